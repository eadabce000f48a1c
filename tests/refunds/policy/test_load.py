"""A policy file is taken as a whole or refused with every problem, each with its exact place and what to do."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refunds.policy import LARGEST_BYTES, Policy, PolicyError, load_policy, policy_hash, sample_policy, sample_policy_text

SAMPLE = sample_policy_text()


def line_of(text: str, part: str) -> int:
    return text[: text.index(part)].count("\n") + 1


def changed(old: str, new: str) -> str:
    assert SAMPLE.count(old) >= 1
    return SAMPLE.replace(old, new, 1)


def problems(text: str) -> list[tuple[int, str, str]]:
    with pytest.raises(PolicyError) as raised:
        load_policy(text)
    for problem in raised.value.problems:
        assert problem.problem
        assert problem.remedy.endswith((".", "?"))
        assert problem.column >= 1
        assert str(problem) in str(raised.value)
    return [(p.line, p.path, f"{p.problem}. {p.remedy}") for p in raised.value.problems]


def test_the_sample_is_a_policy_of_what_the_field_describes() -> None:
    policy = sample_policy()
    usd = policy.currencies["USD"]
    assert (usd.consent_only_up_to, usd.manager_above, usd.per_customer_per_day) == (10_000, 50_000, 15_000)
    assert policy.currencies["JPY"].consent_only_up_to == 15_000
    assert policy.currencies["KWD"].consent_only_up_to == 30_000
    assert policy.customer_limits.refunds_per_week == 3
    assert policy.windows.default_days == 30
    assert policy.consent.required
    assert [(r.queue, r.role, r.decide_within) for r in policy.review["team"].rungs] == [
        ("team", "reviewer", 86_400),
        ("managers", "manager", 86_400),
    ]
    assert policy.review["managers"].rungs[0].role == "manager"


def test_every_setting_of_the_sample_is_explained() -> None:
    lines = SAMPLE.splitlines()
    for at, line in enumerate(lines):
        top = line and not line.startswith((" ", "#"))
        if top:
            assert lines[at - 1].startswith("#"), line


# One wrong line each: what is written instead of what, at which name the problem is found, and words of the problem and its remedy.
WRONG = [
    ("terms_valid_for: 24h", "terms_valid_for: 24", "terms_valid_for", "24 is not taken here. Write a whole number and a unit"),
    ("terms_valid_for: 24h", "terms_valid_for: 500d", "terms_valid_for", "at most 400d"),
    ("terms_valid_for: 24h", "terms_valid_for: -1h", "terms_valid_for", "such as 90s, 30m, 24h or 3d"),
    ("  required: true", "  required: yes", "consent.required", "'yes' is of the wrong kind. Write true or false."),
    ("    ladder: team\n", "    ladder: taem\n", "tiers.reviewed.ladder", "no ladder taem under review. Use one of: team, managers"),
    ("    title: Small and clear", "    ladder: team\n    title: x", "tiers.automatic.ladder", "not decided by people. Remove the ladder."),
    ("    ladder: managers\n", "    ladder: team\n", "tiers.high_impact.ladder", "one reviewer alone would decide it"),
    ("  managers:\n    people: 1", "  managers:\n    people: 3", "review.managers.people", "3 is not taken here. It must be 1 or 2."),
    ("        remind_after: 4h", "        remind_after: 40h", "review.team.rungs.0.remind_after", "the reminder would come after the end"),
    ("        role: manager", "        role: boss", "review.team.rungs.1.role", "Write reviewer or manager."),
    ("default_days: 30", "default_days: 0", "windows.default_days", "It must be greater than 0."),
    ("default_days: 30", "default_days: 30.5", "windows.default_days", "Write a whole number."),
    ("    electronics: 14", "    electronics: -3", "windows.categories.electronics", "It must be greater than 0."),
    ("consent_only_up_to: 100.00", "consent_only_up_to: 10000", "currencies.USD.consent_only_up_to", "with 2 decimals, as USD is written"),
    ("consent_only_up_to: 100.00", "consent_only_up_to: -5.00", "currencies.USD.consent_only_up_to", "Write it above zero"),
    (
        "consent_only_up_to: 15000,",
        "consent_only_up_to: 150.00,",
        "currencies.JPY.consent_only_up_to",
        "with no decimals, as JPY is written",
    ),
    ("consent_only_up_to: 30.000,", "consent_only_up_to: 30.005,", "currencies.KWD.consent_only_up_to", "such as 100.000"),
    (
        "    manager_above: 500.00",
        "    manager_above: 20000.00",
        "currencies.USD.manager_above",
        "($20,000.00) is above largest ($10,000.00)",
    ),
    (
        "per_customer_per_day: 150.00",
        "per_customer_per_day: 99.00",
        "currencies.USD.consent_only_up_to",
        "above per_customer_per_day ($99.00)",
    ),
    ("    largest: 10000.00", "    largest: 10000.0", "currencies.USD.largest", "with 2 decimals"),
    ("  GBP: {", "  XXX: {", "currencies.XXX", "this currency cannot be refunded here"),
    ("  GBP: {", "  gbp: {", "currencies.gbp", "Use an upper-case ISO code"),
    ("    - wrong_item", "    - wrong_itm", "reasons.accepted.3", "Write one of: product_not_received"),
    ("zone: UTC", "zone: Mars/Olympus", "customer_limits.zone", "Write a time zone by its name"),
    ("when_exceeded: review", "when_exceeded: accept", "customer_limits.when_exceeded", "It must be 'review' or 'deny'."),
    ("refunds_per_week: 3", "refunds_per_week: -3", "customer_limits.refunds_per_week", "greater than or equal to 1"),
    ("    then: deny", "    then: permit", "rules.0.then", "'require_consent', 'require_review' or 'deny'"),
    ("    then: deny", "    then: deny\n    ladder: team", "rules.0.ladder", "only require_review has a ladder"),
    ("  - id: gift_cards", "  - id: final_sale", "rules.1.id", "the id final_sale is there twice"),
    ("confidence_to_refund: 80", "confidence_to_refund: 101", "reading.confidence_to_refund", "less than or equal to 100"),
]


@pytest.mark.parametrize(("old", "new", "path", "words"), WRONG)
def test_one_wrong_line_is_one_problem_at_its_line(old: str, new: str, path: str, words: str) -> None:
    text = changed(old, new)
    [(line, found, said)] = problems(text)
    assert found == path
    assert words in said
    name = path.split(".")[-1]
    if name in new or name.isdigit():
        assert line == line_of(SAMPLE, old) + new[: max(new.find(name), 0)].count("\n")
    else:  # a contradiction is reported at the first of the two settings
        assert line == line_of(SAMPLE, f"    {name}: ")


RULE = 'when: order.categories.exists(c, c == "final_sale")'


@pytest.mark.parametrize(
    ("when", "words"),
    [
        ("request.amount >", "not a CEL condition, at its character 17"),
        ("request.amuont > 1", "there is no fact request.amuont. Use one of: agent_id, amount"),
        ("order.refund_window > 1", "there is no fact order.refund_window"),
        ("weather == 'rain'", "there is no fact weather"),
        ("now() > timestamp(at)", "there is no function now"),
        ("order.categories.exists(reading, reading == 'x')", "reading is a fact and cannot be another name"),
    ],
)
def test_a_condition_that_can_never_be_judged_is_refused_when_loading(when: str, words: str) -> None:
    text = changed(RULE, f"when: {when}")
    [(line, path, said)] = problems(text)
    assert (line, path) == (line_of(text, f"when: {when}"), "rules.0.when")
    assert words in said


@pytest.mark.parametrize(
    "when",
    [
        "1 / (payment.refunds_made - payment.refunds_made) > 0",
        "reading.confidence < 50",
        'request.reason == "other" && "request.nothing" != "x"',
        "order.categories.all(x, x.startsWith('a'))",
        "timestamp(at) - timestamp(order.placed_at) > duration('720h')",
        "type(request.amount) == int && has(request.channel)",
    ],
)
def test_a_condition_that_may_be_judged_is_taken(when: str) -> None:
    assert load_policy(changed(RULE, f"when: {when}")).rules[0].when == when


def test_unknown_names_suggest_the_known_one_and_missing_ones_name_their_part() -> None:
    text = changed("    manager_above: 500.00", "    manager_over: 500.00")
    assert problems(text) == [
        (line_of(text, "  USD:"), "currencies.USD.manager_above", "is missing. Add it; the sample policy shows how."),
        (line_of(text, "    manager_over"), "currencies.USD.manager_over", "this name is not known. Did you mean manager_above?"),
    ]
    [(line, path, said)] = problems(SAMPLE + "\nzzz: 1\n")
    assert (path, line) == ("zzz", len(SAMPLE.splitlines()) + 2)
    assert "Known here: base_currency, " in said
    assert " channels, consent, currencies, " in said


def test_a_doubled_name_names_both_lines() -> None:
    text = changed("terms_valid_for: 24h", "terms_valid_for: 24h\nterms_valid_for: 25h")
    first = line_of(text, "terms_valid_for: 24h")
    assert problems(text) == [
        (first + 1, "terms_valid_for", f"terms_valid_for is there twice; the first is in line {first}. Keep one of them.")
    ]


def test_a_gap_in_the_tiers_and_a_ladder_nothing_leads_to() -> None:
    text = changed("  high_impact:\n    title: Decided by a manager\n    ladder: managers\n", "")
    assert [(p, w[:11]) for _, p, w in problems(text)] == [("tiers.high_impact", "is missing.")]
    text = changed("review:\n", "review:\n  spare:\n    rungs:\n      - {queue: q, role: manager, remind_after: 1h, decide_within: 2h}\n")
    [(line, path, said)] = problems(text)
    assert (line, path) == (line_of(text, "  spare:"), "review.spare")
    assert "nothing leads to this ladder" in said


def test_a_ladder_cannot_climb_down() -> None:
    text = changed("      - queue: team\n        role: reviewer", "      - queue: team\n        role: manager")
    text = text.replace("      - queue: managers\n        role: manager", "      - queue: managers\n        role: reviewer", 1)
    [(_, path, said)] = problems(text)
    assert path == "review.team.rungs.1.role"
    assert "silence would climb down" in said


def test_all_problems_are_told_at_once_in_the_order_of_the_file() -> None:
    text = changed("terms_valid_for: 24h", "terms_valid_for: soon").replace("default_days: 30", "default_days: 0", 1)
    text = text.replace("zone: UTC", "zone: Nowhere", 1)
    assert [path for _, path, _ in problems(text)] == ["terms_valid_for", "windows.default_days", "customer_limits.zone"]


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("", 1, "the policy is empty"),
        ("# nothing\n", 1, "the policy is empty"),
        ("- a\n- b\n", 1, "must hold names and values"),
        ("just text", 1, "must hold names and values"),
        ("a: b\n---\nc: d\n", 2, "single document"),
        ("name: [unclosed\nnext: 1\n", 2, "not readable as YAML"),
        ("\tname: x\n", 1, "not readable as YAML"),
        ("a: 1\nname: \x07bell\n", 2, "a character that text files do not have"),
        ("a: \ud800\n", 1, "a character that text files do not have"),
        ('a: 1\nname: "\\UFFFFFFFF"\n', 2, "a character that text files do not have"),
        ('a: 1\nname: "\\U00110000"\n', 2, "a character that text files do not have"),
        ("a: &x 1\nb: *x\n", 2, "a reference (*name) is not taken here"),
        ("[" * 5_000, 1, "it nests deeper than 20"),
        ("x" * (LARGEST_BYTES + 1), 1, "larger than"),
    ],
)
def test_text_that_is_no_policy(text: str, line: int, words: str) -> None:
    [(found, _, said)] = problems(text)
    assert found == line
    assert words in said


LINES = SAMPLE.splitlines()
EDITS = st.lists(
    st.tuples(st.integers(0, len(LINES) - 1), st.sampled_from(["drop", "double", "indent", "blank"]) | st.text(max_size=30)),
    min_size=1,
    max_size=4,
)


@given(EDITS)
def test_any_edit_is_a_policy_or_told_by_line(edits: list[tuple[int, str]]) -> None:
    lines = list(LINES)
    for at, how in edits:
        lines[at] = {"drop": "#", "double": f"{lines[at]}\n{lines[at]}", "indent": f"  {lines[at]}", "blank": ""}.get(how, how)
    text = "\n".join(lines)
    try:
        load_policy(text)
    except PolicyError as error:
        assert error.problems
        last = len(re.split(r"\r\n|[\r\n\x85\u2028\u2029]", text)) + 1
        assert all(1 <= p.line <= last and p.column >= 1 and p.problem and p.remedy for p in error.problems)


@given(st.text(max_size=200))
def test_any_text_is_refused_in_words(text: str) -> None:
    assert problems(text)


def test_tags_of_ones_own_are_refused_and_never_run() -> None:
    text = changed("name: Sample policy", "name: !!python/object/apply:os.system [ls]")
    assert [path for _, path, _ in problems(text)] == ["name"]
    text = changed("name: Sample policy", "name: !!python/name:os.system x")
    [(_, path, said)] = problems(text)
    assert (path, "is not taken here" in said) == ("name", True)


@pytest.mark.parametrize(
    ("old", "new", "path"),
    [
        ("terms_valid_for: 24h", "terms_valid_for: &day 24h", "terms_valid_for"),
        ("refunds_per_week: 3", 'refunds_per_week: !!int "3"', "customer_limits.refunds_per_week"),
        ("risk_levels_accepted: [", "risk_levels_accepted: !!seq [", "fraud.risk_levels_accepted"),
    ],
)
def test_what_only_looks_plain_is_refused_at_its_name_and_still_judges_when_it_was_published(old: str, new: str, path: str) -> None:
    text = changed(old, new)

    assert [(line, at) for line, at, _ in problems(text)] == [(line_of(text, new), path)]
    assert policy_hash(load_policy(text, published=True)) == policy_hash(SAMPLE)


@pytest.mark.parametrize(
    ("old", "new", "path", "words"),
    [
        ("    people: 1", "    people: true", "review.team.people", "true and false are no numbers of people"),
        ("name: Sample policy", 'name: "Sample \\0 policy"', "name", "U+0000"),
        ("name: Sample policy", 'name: "\\u202eSample"', "name", "U+202E"),
        ("name: Sample policy", 'name: "\\u200b \\u200b"', "name", "nothing in it to be read"),
        ("    text: Goods sold", '    text: "\\x07Goods" #', "rules.0.text", "U+0007"),
        ("    electronics: 14", '    "elec\\x00tronics": 14', "windows.categories.elec\x00tronics", "U+0000"),
        ("  zone: UTC\n", "  zone: localtime\n", "customer_limits.zone", "another zone on every machine"),
    ],
)
def test_texts_that_nobody_can_read_or_keep_are_told(old: str, new: str, path: str, words: str) -> None:
    [(_, at, said)] = problems(changed(old, new))
    assert (at, words in said) == (path, True), said


def test_words_of_any_language_are_taken() -> None:
    for words in ("\u0627\u0644\u0645\u0631\u062a\u062c\u0639\u0627\u062a\u200f", "\u8fd4\u54c1", "R\u00fcckgabe \U0001f600", "a\tb"):
        assert load_policy(changed("name: Sample policy", f'name: "{words}"')).name == words


@pytest.mark.parametrize(
    "text",
    [
        "currencies:\n" + "".join(f"  A{at}: {{}}\n" for at in range(20_000)),
        "".join(f"a{at}: 1\n" for at in range(26_000)),
        "rules: [" + ",".join(["{}"] * 60_000) + "]",
    ],
    ids=["currencies", "names", "rules"],
)
def test_a_file_of_far_too_many_values_is_refused_before_it_is_judged(text: str) -> None:
    [(_, _, said)] = problems(text)
    assert "more than 20,000 names and values. Shorten it." in said


def test_of_very_many_problems_the_first_are_told_and_how_many_more_there_are() -> None:
    many = SAMPLE + "".join(f"unknown{at}: 1\n" for at in range(300))
    found = problems(many)
    assert (len(found), found[199][1], found[200][1], found[200][2]) == (
        201,
        "unknown199",
        "",
        "from here on there are 100 more problems. Correct these first.",
    )


def test_an_unknown_currency_is_told_once_and_not_for_everything_in_it() -> None:
    text = changed("  EUR: {", "  XXX: {")
    assert [(path, "cannot be refunded here" in said) for _, path, said in problems(text)] == [("currencies.XXX", True)]


def test_specialists_who_would_have_to_be_of_too_many_ladders_at_once_are_told() -> None:
    ladders = "".join(
        f"  l{n}:\n    specialists: [{', '.join(f'p{n}x{at}' for at in range(40))}]\n"
        "    rungs: [{queue: q, role: reviewer, remind_after: 1h, decide_within: 2h}]\n"
        for n in range(2)
    )
    rules = "".join(f"  - {{id: r{n}, when: request.amount > {n}, then: require_review, ladder: l{n}, text: R.}}\n" for n in range(2))
    [(_, path, said)] = problems(changed("  managers:\n    people: 1\n", f"{ladders}  managers:\n    people: 1\n").rstrip() + "\n" + rules)
    assert (path, "more than 1000 ways" in said) == ("review.l1.specialists", True)


def test_the_hash_is_of_the_content() -> None:
    same = changed("terms_valid_for: 24h", "terms_valid_for: 1440m  # a day").replace("# The sample policy", "# Our policy", 1)
    assert policy_hash(load_policy(same)) == policy_hash(SAMPLE) == policy_hash(sample_policy())
    other = changed("default_days: 30", "default_days: 31")
    assert policy_hash(other) != policy_hash(SAMPLE)
    assert len(policy_hash(other)) == 64


def test_the_same_text_is_the_same_policy_and_cannot_be_changed() -> None:
    policy = load_policy(SAMPLE)
    assert load_policy(SAMPLE) is policy
    assert isinstance(policy, Policy)
    with pytest.raises(ValueError, match="frozen"):
        policy.name = "other"
