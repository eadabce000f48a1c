"""The return rules an order keeps, and everything else that it does not."""

from datetime import UTC, datetime, timedelta
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from refunds.facts import Facts
from refunds.policy import Policy, evaluate, load_policy, sample_policy_text
from refunds.policy.return_rules import SECTIONS, WORDS, return_rules, return_rules_hash, with_return_rules_of
from tests.refunds.policy import arbitrary
from tests.refunds.policy.test_properties import POLICIES, anything

SAMPLE = sample_policy_text()
NOW = datetime(2026, 9, 10, 12, tzinfo=UTC)
RULES = """
  - {id: kept, when: 'order.categories.exists(c, c == "hats")', then: deny, kept_with_order: true, text: No hats.}
  - {id: at_once, when: 'request.amount > 900', then: require_review, text: Look.}
"""


def changed(*changes: tuple[str, str], more: str = "") -> Policy:
    text = SAMPLE
    for old, new in changes:
        assert old in text, old
        text = text.replace(old, new, 1)
    return load_policy(text + more)


PLACED = changed(
    ("default_days: 30", "default_days: 90"),
    ("    - duplicate\n", "    - duplicate\n    - other\n"),
    ("consent_only_up_to: 100.00", "consent_only_up_to: 75.00"),
    ("outside_window: Refunds can", "outside_window: Ninety days. Refunds can"),
    ("limits: There is a limit", "limits: There was a limit"),
    more=RULES,
)
TODAY = load_policy(SAMPLE)


def test_sections_words_and_kept_rules_are_the_order_s_and_all_else_is_today_s() -> None:
    judging = with_return_rules_of(TODAY, PLACED)

    for name in Policy.model_fields:
        source = PLACED if name in SECTIONS else TODAY
        if name not in ("texts", "rules"):
            assert getattr(judging, name) == getattr(source, name), name
    for word, text in judging.texts:
        assert text == getattr(PLACED.texts if word in WORDS else TODAY.texts, word), word
    assert [rule.id for rule in judging.rules] == ["final_sale", "kept", "gift_cards"]


def test_a_return_rule_that_came_later_does_not_bind_an_earlier_order() -> None:
    judging = with_return_rules_of(PLACED, TODAY)

    assert [rule.id for rule in judging.rules] == ["final_sale", "gift_cards", "at_once"]
    assert judging.windows.default_days == 30


def test_the_window_is_the_order_s_and_the_ceiling_is_today_s(facts: Any) -> None:
    late = facts(order={"delivered_at": NOW - timedelta(days=50)}, request={"amount": 9_000})

    assert evaluate(TODAY, late).code == "OUTSIDE_WINDOW"
    decision = evaluate(with_return_rules_of(TODAY, PLACED), late)
    assert (decision.outcome, decision.review) == ("proceed", None), "in the old window, and below today's ceiling"


def test_versions_that_promise_the_same_are_one(facts: Any) -> None:
    other = changed(("consent_only_up_to: 100.00", "consent_only_up_to: 75.00"))

    assert with_return_rules_of(TODAY, other) is TODAY
    assert return_rules_hash(TODAY) == return_rules_hash(other) != return_rules_hash(PLACED)


def test_a_kept_rule_whose_ladder_is_gone_asks_the_ladder_of_high_impact(facts: Any) -> None:
    ladder = (
        "review:\n  hatters:\n    people: 2\n    rungs:\n      - { queue: hats, role: reviewer, remind_after: 1h, decide_within: 2h }\n"
    )
    rule = '  - {id: kept, when: "request.amount > 0", then: require_review, ladder: hatters, kept_with_order: true, text: Hats.}\n'
    placed = load_policy(SAMPLE.replace("review:\n  team:", ladder + "  team:", 1) + rule)

    decision = evaluate(with_return_rules_of(TODAY, placed), facts())

    assert decision.review is not None
    assert (decision.review.role, decision.review.people, decision.review.ladder[0].queue) == ("manager", 1, "managers")


@given(st.sampled_from([*POLICIES, PLACED]), st.sampled_from([*POLICIES, PLACED]), anything | arbitrary.facts)
def test_any_two_versions_judge_together(now: Policy, placed: Policy, facts: Facts) -> None:
    judging = with_return_rules_of(now, placed)

    assert evaluate(judging, facts) == evaluate(judging, facts)
    assert return_rules(judging) == return_rules(placed)
    assert with_return_rules_of(judging, placed) is judging
