"""What differs between two policies, and which way it goes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refunds.facts import Facts
from refunds.policy import Policy, evaluate, load_policy, policy_hash, sample_policy_text
from refunds.policy.diff import Difference, differences, settings
from refunds.policy.simulation import Direction, compare
from tests.refunds.policy import arbitrary
from tests.refunds.policy.test_properties import POLICIES, anything

SAMPLE = sample_policy_text()
TODAY = load_policy(SAMPLE)
OPPOSITE = {"stricter": "looser", "looser": "stricter", "other": "other"}


def changed(*changes: tuple[str, str], more: str = "") -> Policy:
    text = SAMPLE
    for old, new in changes:
        assert old in text, old
        text = text.replace(old, new, 1)
    return load_policy(text + more)


CASES: list[tuple[tuple[str, str], tuple[str, str, str, str]]] = [
    (("consent_only_up_to: 100.00", "consent_only_up_to: 50.00"), ("currencies.USD.consent_only_up_to", "$100.00", "$50.00", "stricter")),
    (("manager_above: 75000", "manager_above: 80000"), ("currencies.JPY.manager_above", "¥75,000", "¥80,000", "looser")),
    (("default_days: 30", "default_days: 31"), ("windows.default_days", "30", "31", "looser")),
    (("electronics: 14", "electronics: 10"), ("windows.categories.electronics", "14", "10", "stricter")),
    (("electronics: 14", "electronics: 14\n    a.b: 60"), ("windows.categories.a.b", "", "60", "looser")),
    (("electronics: 14", "electronics: 14\n    hats: 3"), ("windows.categories.hats", "", "3", "stricter")),
    (("required: true", "required: false"), ("consent.required", "true", "false", "looser")),
    (("within: 3d", "within: 36h"), ("consent.within", "3d", "36h", "other")),
    (("agents: accept", "agents: review"), ("requesters.agents", "accept", "review", "stricter")),
    (("not_given: accept", "not_given: deny"), ("reasons.not_given", "accept", "deny", "stricter")),
    (("any_other: review", "any_other: deny"), ("reasons.any_other", "review", "deny", "stricter")),
    (("refunds_per_week: 3", "refunds_per_week: 4"), ("customer_limits.refunds_per_week", "3", "4", "looser")),
    (("confidence_to_refund: 80", "confidence_to_refund: 70"), ("reading.confidence_to_refund", "80", "70", "looser")),
    (("account_younger_than_days: 7", "account_younger_than_days: 9"), ("fraud.account_younger_than_days", "7", "9", "stricter")),
    (
        ("share_refunded_above_percent: 50", "share_refunded_above_percent: 40"),
        ("fraud.share_refunded_above_percent", "50", "40", "stricter"),
    ),
    (("[normal, not_assessed]", "[normal]"), ("fraud.risk_levels_accepted", "normal, not_assessed", "normal", "stricter")),
    (
        ("[normal, not_assessed]", "[not_assessed, elevated]"),
        ("fraud.risk_levels_accepted", "normal, not_assessed", "not_assessed, elevated", "other"),
    ),
    (("    people: 1", "    people: 2"), ("review.team.people", "1", "2", "stricter")),
    (("        role: reviewer", "        role: manager"), ("review.team.rungs.0.role", "reviewer", "manager", "stricter")),
    (("remind_after: 4h", "remind_after: 5h"), ("review.team.rungs.0.remind_after", "4h", "5h", "other")),
    (("    then: require_review", "    then: deny"), ("rules.gift_cards.then", "require_review", "deny", "stricter")),
    (("    kept_with_order: true\n", ""), ("rules.final_sale.kept_with_order", "true", "false", "other")),
    (("specialists: [manager]", "specialists: [manager, fraud]"), ("review.managers.specialists", "manager", "manager, fraud", "looser")),
    (("specialists: [manager]", "specialists: [fraud]"), ("review.managers.specialists", "manager", "fraud", "other")),
    (("    specialists: [manager]\n", ""), ("review.managers.specialists", "manager", "none", "looser")),
    (("duplicates:\n  within: 24h", "duplicates:\n  within: 12h"), ("duplicates.within", "1d", "12h", "looser")),
    (("mismatches: [customer, checks]", "mismatches: []"), ("fraud.mismatches", "customer, checks", "none", "looser")),
    (("    cool_down: 30m", "    cool_down: 45m"), ("breakers.unusual_volume.cool_down", "30m", "45m", "other")),
    (("name: Sample policy", "name: Ours"), ("name", "Sample policy", "Ours", "other")),
]


@pytest.mark.parametrize(("change", "told"), CASES, ids=[told[0] + " " + told[3] for _, told in CASES])
def test_a_changed_setting_is_told_in_words_with_its_direction(change: tuple[str, str], told: tuple[str, str, str, str]) -> None:
    try:
        after = changed(change)
    except ValueError:  # some settings stand in the way of each other when only one is changed
        after = changed(change, ("    ladder: managers\n    text: A manager", "    text: A manager"))
    [first, *others] = differences(TODAY, after)
    assert (first.setting, first.before, first.after, first.direction.value) == told
    assert [one.setting for one in others] in ([], ["rules.gift_cards.ladder"])
    [back, *_] = differences(after, TODAY)
    assert (back.before, back.after, back.direction.value) == (told[2], told[1], OPPOSITE[told[3]])


def test_a_currency_a_rule_and_a_limit_are_told_as_a_whole() -> None:
    rule = '  - {id: new, when: "request.amount > 7", then: require_review, text: Look.}\n'
    line = next(line for line in SAMPLE.splitlines(keepends=True) if line.startswith("  KWD: {"))
    limit = "\nlimits:\n  - {name: seasonal, who: customer, refunds: 9, window: month, zone: UTC}\n"
    found = differences(TODAY, changed((line, ""), ("\nlimits:\n", limit), more=rule))

    assert [(one.setting, one.direction.value) for one in found] == [
        ("currencies.KWD", "stricter"),
        ("limits.seasonal", "stricter"),
        ("rules.new", "stricter"),
    ]
    assert "KWD 3,000.000" in found[0].before
    assert found[0].after == ""
    assert "when: request.amount > 7" in found[2].after


def test_the_order_of_what_is_listed_is_no_difference() -> None:
    other = changed(("[normal, not_assessed]", "[not_assessed, normal]"))

    assert differences(TODAY, other) == []
    assert policy_hash(TODAY) != policy_hash(other), "which is told: they say the same in another order"


@pytest.mark.parametrize("policy", POLICIES)
def test_a_policy_does_not_differ_from_itself(policy: Policy) -> None:
    assert differences(policy, policy.model_copy(deep=True)) == []


def test_every_setting_has_a_line_of_its_own_for_people() -> None:
    shown = dict(settings(TODAY))

    assert (shown["currencies.KWD.largest"], shown["terms_valid_for"], shown["consent.required"]) == ("KWD 3,000.000", "1d", "true")
    assert len(shown) == len(settings(TODAY)) > 100


LOOSER_THAN: list[tuple[str, Policy]] = [
    (told[0], changed(change))
    for change, told in CASES
    if told[3] in ("stricter", "looser") and told[0] not in ("review.team.rungs.0.role", "rules.gift_cards.then", "windows.categories.a.b")
]


@given(st.sampled_from(LOOSER_THAN), anything | arbitrary.facts)
def test_what_is_called_stricter_is_never_looser_for_anybody(one: tuple[str, Policy], facts: Facts) -> None:
    """The words of a difference are held to what evaluating says, on any facts."""
    [difference] = differences(TODAY, one[1])
    assert isinstance(difference, Difference)
    found = compare("x", evaluate(TODAY, facts), evaluate(one[1], facts), facts)
    if found is not None:
        assert found.direction in (difference.direction, Direction.OTHER), (difference, found)
