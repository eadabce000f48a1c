"""What a policy says about lines: figures that must agree, goods that must come back, and rules that ask about them."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from refunds.errors import Code
from refunds.facts import Facts, LineFacts
from refunds.policy import PolicyError, evaluate, load_policy, policy_hash, rules, sample_policy_text
from refunds.processor import PaymentStatus
from refunds.terms import canonical_hash

Build = Callable[..., Facts]
SAMPLE = sample_policy_text()
RETURNS = "returns:\n  require_return_for: [shoes]\n"
DENYING = RETURNS + "  not_returned: deny\n"
SHOES = LineFacts(category="shoes", ordered=3, asked=1, refunded=0, shipped=3, returned=0)


def result(facts: Facts, check: str, policy: str = SAMPLE) -> tuple[str, str, str | None]:
    """What a check comes to: its result, the outcome, and the code."""
    decision = evaluate(load_policy(policy), facts)
    [found] = [c for c in decision.checks if c.id == check]
    return found.result, decision.outcome, decision.code


def test_an_amount_beside_lines_is_the_one_they_come_to_or_a_person_looks(facts: Build) -> None:
    assert result(facts(), "lines_amount")[0] == "pass"
    assert result(facts(request={"lines_amount": 3_000}), "lines_amount")[0] == "pass"
    for other in (2_999, 3_001, 0):
        assert result(facts(request={"lines_amount": other}), "lines_amount")[:2] == ("require_review", "proceed")


@pytest.mark.parametrize(
    ("payment", "order", "result_"),
    [
        ({}, {"total": 100_000, "currency": "USD"}, "pass"),
        ({}, {"total": 99_999, "currency": "USD"}, "require_review"),
        ({}, {"total": 100_001, "currency": "USD"}, "require_review"),
        ({}, {"total": 100_000, "currency": "EUR"}, "require_review"),
        ({}, {"total": None, "currency": "USD"}, "pass"),
        ({"status": PaymentStatus.AUTHORISED, "captured": 0, "capturable": 500}, {"total": 500, "currency": "USD"}, "pass"),
        ({"currency": "eur"}, {"total": 100_000, "currency": "EUR"}, "require_review"),
    ],
)
def test_field_46_a_capture_that_is_not_the_orders_total_is_looked_at(
    facts: Build, payment: dict[str, object], order: dict[str, object], result_: str
) -> None:
    named = facts(request={"lines_amount": 3_000}, payment=payment, order=order)
    assert result(named, "lines_captured")[0] == result_
    assert result(facts(payment=payment, order=order), "lines_captured")[0] == "pass", "no lines are named"


@pytest.mark.parametrize(
    ("changed", "awaited"),
    [
        ({}, 1),
        ({"asked": 3}, 3),
        ({"asked": 1, "refunded": 1, "returned": 1}, 1),
        ({"asked": 1, "refunded": 1, "returned": 2}, 0),
        ({"shipped": 0}, 0),
        ({"shipped": 2}, 0),
        ({"asked": 2, "shipped": 2}, 1),
        ({"asked": None}, 3),
        ({"asked": None, "shipped": 1, "returned": 1}, 0),
        ({"shipped": None, "returned": None}, None),
        ({"shipped": None, "returned": 1}, 0),
        ({"asked": 2, "shipped": None, "returned": 1}, 1),
        ({"asked": 2, "returned": None}, 2),
    ],
)
def test_units_that_were_sent_and_have_not_come_back_are_counted(changed: dict[str, int | None], awaited: int | None) -> None:
    assert replace(SHOES, **changed).awaited == awaited


@pytest.mark.parametrize(
    ("changed", "reviewing", "denying"),
    [
        ({}, "require_review", "deny"),
        ({"returned": 1}, "pass", "pass"),
        ({"category": "books"}, "pass", "pass"),
        ({"shipped": None, "returned": None}, "require_review", "require_review"),
        ({"asked": None}, "require_review", "require_review"),
        ({"asked": None, "shipped": 0}, "pass", "pass"),
    ],
)
def test_goods_that_must_come_back_are_as_the_setting_says_and_what_is_not_known_goes_to_a_person(
    facts: Build, changed: dict[str, object], reviewing: str, denying: str
) -> None:
    seen = replace(facts(), lines=(replace(SHOES, **changed),))
    assert result(seen, "lines_returned")[0] == "pass", "the sample requires no return"
    assert result(seen, "lines_returned", SAMPLE + RETURNS)[0] == reviewing
    assert result(seen, "lines_returned", SAMPLE + DENYING)[0] == denying
    if denying == "deny":
        assert result(seen, "lines_returned", SAMPLE + DENYING)[1:] == ("deny", Code.LINES_NOT_RETURNED)


def test_one_line_that_is_known_to_be_away_denies_beside_one_that_nobody_recorded(facts: Build) -> None:
    seen = replace(facts(), lines=(SHOES, replace(SHOES, shipped=None, returned=None)))
    assert result(seen, "lines_returned", SAMPLE + DENYING)[0] == "deny"


@pytest.mark.parametrize(
    ("text", "at", "path", "words"),
    [
        ("returns:\n  require_return_for: []\n", 0, "returns", "no category is named"),
        ("returns:\n  not_returned: deny\n", 0, "returns", "no category is named"),
        ("returns:\n  require_return_for: [a, b, a]\n", 1, "returns.require_return_for.2", "a is there twice"),
        ("returns:\n  require_return_for: shoes\n", 1, "returns.require_return_for", "Write a list, such as [a, b]"),
        (RETURNS + "  not_returned: accept\n", 2, "returns.not_returned", "must be"),
        (RETURNS + "  not_return: deny\n", 2, "returns.not_return", "Did you mean not_returned?"),
    ],
)
def test_a_mistake_about_returns_is_named_by_line_and_field(text: str, at: int, path: str, words: str) -> None:
    with pytest.raises(PolicyError) as raised:
        load_policy(SAMPLE + text)
    [problem] = raised.value.problems
    assert (problem.line, problem.path) == (SAMPLE.count("\n") + 1 + at, path)
    assert words in str(problem)


def test_a_policy_that_asks_for_no_return_keeps_the_hash_it_had() -> None:
    policy = load_policy(SAMPLE)
    assert policy_hash(policy) == canonical_hash(policy.model_dump(mode="json", exclude={"returns"}))
    assert len({policy_hash(SAMPLE), policy_hash(SAMPLE + RETURNS), policy_hash(SAMPLE + DENYING)}) == 3


def test_a_rule_can_ask_whether_a_line_was_sent_or_came_back(facts: Build) -> None:
    when = 'lines.exists(x, x.category == "shoes" && x.shipped > x.returned)'
    policy = SAMPLE.replace("rules:\n", f"rules:\n  - {{id: sent, when: '{when}', then: deny, text: Send it back first.}}\n", 1)
    assert result(replace(facts(), lines=(SHOES,)), "rule:sent", policy)[0] == "deny"
    assert result(replace(facts(), lines=(replace(SHOES, returned=3),)), "rule:sent", policy)[0] == "pass"
    assert result(facts(), "rule:sent", policy)[0] == "pass"
    assert result(replace(facts(), lines=(replace(SHOES, returned=None),)), "rule:sent", policy)[0] == "require_review"


@pytest.mark.parametrize(
    ("when", "words"),
    [
        ("lines.exists(x, x.shiped > 0)", "a line has no shiped"),
        ('lines.exists(x, x.id == "1")', "a line has no id"),
        ("lines.shipped > 0", "lines is a list and has no shipped of its own"),
        ("lines.exists(lines, lines.asked == 1)", "lines is a fact and cannot be another name"),
    ],
)
def test_a_mistake_about_lines_in_a_rule_is_found_before_it_is_in_force(when: str, words: str) -> None:
    assert any(words in problem for problem, _ in rules.faults(when))


@pytest.mark.parametrize(
    "when", ['lines.all(x, x.category.startsWith("a") && x.asked == 1)', "lines.size() > 3", "size(lines) > 3 && lines[0].ordered > 1"]
)
def test_rules_over_lines_are_in_order(when: str) -> None:
    assert rules.faults(when) == []
