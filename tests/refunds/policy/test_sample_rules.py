"""The sample policy is the rule set the field describes: one test for each sentence of it, by what it makes of facts.

The sentences: up to $100 the customer's consent; above it consent, then the team; above $500 a manager; $150 a day and three a week per customer across agents
($99 three times: the second the same day is stopped); payouts and anything unnamed refused, and a policy that would allow payouts must name its dispute
process.
"""

from collections.abc import Callable
from typing import Any

import pytest

from refunds.classification import Intent, Proposal
from refunds.errors import Code, RefundError
from refunds.facts import Facts, PolicyDecision, ReadingFacts
from refunds.policy import PolicyError, evaluate, load_policy, sample_policy, sample_policy_text
from refunds.reasons import Reason
from refunds.requests import RefundRequest

Build = Callable[..., Facts]


def judge(facts: Facts) -> PolicyDecision:
    return evaluate(sample_policy(), facts)


def needs(decision: PolicyDecision) -> tuple[bool, str | None, int]:
    """Whether consent is needed, who must approve, and the tier."""
    return decision.consent, decision.review.role if decision.review else None, decision.tier


def asked(facts: Build, amount: int, *, named: bool, **customer: Any) -> PolicyDecision:
    worth = {"amount": amount, "amount_today": customer.get("amount_today", 0)}
    return judge(facts(request={"amount": amount, "amount_named_by_customer": named}, customer=customer, base=worth))


@pytest.mark.parametrize("amount", [1, 9_999, 10_000])
def test_up_to_100_dollars_the_customers_consent_is_enough(facts: Build, amount: int) -> None:
    assert needs(asked(facts, amount, named=True)) == (False, None, 2)  # naming the amount is the consent
    assert needs(asked(facts, amount, named=False)) == (True, None, 2)


@pytest.mark.parametrize("amount", [10_001, 15_000, 50_000])
def test_above_100_dollars_it_is_consent_and_then_the_team(facts: Build, amount: int) -> None:
    assert needs(asked(facts, amount, named=False)) == (True, "reviewer", 3)
    review = asked(facts, amount, named=False).review
    assert review is not None
    assert [(rung.queue, rung.role) for rung in review.ladder] == [("team", "reviewer"), ("managers", "manager")]


@pytest.mark.parametrize("amount", [50_001, 99_999])
def test_above_500_dollars_it_is_a_manager(facts: Build, amount: int) -> None:
    assert needs(asked(facts, amount, named=False)) == (True, "manager", 4)
    review = asked(facts, amount, named=False).review
    assert review is not None
    assert [(rung.queue, rung.role) for rung in review.ladder] == [("managers", "manager")]


def test_150_dollars_a_day_is_in_order_and_one_cent_more_is_not(facts: Build) -> None:
    assert needs(asked(facts, 5_000, named=True, amount_today=10_000)) == (False, None, 2)
    assert needs(asked(facts, 5_001, named=True, amount_today=10_000)) == (False, "reviewer", 3)


def test_three_a_week_are_in_order_and_the_fourth_is_not(facts: Build) -> None:
    assert needs(asked(facts, 1_000, named=True, refunds_week=2)) == (False, None, 2)
    assert needs(asked(facts, 1_000, named=True, refunds_week=3)) == (False, "reviewer", 3)


def test_99_dollars_three_times_the_second_of_the_same_day_is_stopped(facts: Build) -> None:
    first = asked(facts, 9_900, named=True)
    second = asked(facts, 9_900, named=True, amount_today=9_900, refunds_week=1)
    tomorrow = asked(facts, 9_900, named=True, amount_today=0, refunds_week=1)
    assert [needs(decision) for decision in (first, second, tomorrow)] == [(False, None, 2), (False, "reviewer", 3), (False, None, 2)]


def test_it_counts_across_agents(facts: Build) -> None:
    """The facts of the customer's day and week are those of the customer, whoever asks (tests/store/test_policy_facts.py shows that they are gathered so)."""
    agent = {"agent_id": "another-agent", "amount": 9_900}
    used = {"amount_today": 9_900, "refunds_week": 1}
    assert needs(judge(facts(request=agent, customer=used, base={"amount": 9_900, "amount_today": 9_900})))[1] == "reviewer"


@pytest.mark.parametrize("named", ["payout", "store_credit", "voucher", "goodwill", "gift card", "Compensation"])
def test_payouts_credits_and_goodwill_are_refused_by_name(named: str) -> None:
    with pytest.raises(RefundError) as refused:
        RefundRequest.model_validate({"customer_id": "c", "order_id": "o", "full": True, "reason": named})
    assert (refused.value.code, refused.value.field) == (Code.OUT_OF_SCOPE, "reason")


@pytest.mark.parametrize(
    ("request_", "check"),
    [({"channel": "carrier_pigeon"}, "channel"), ({"reason": Reason.OTHER}, "reason"), ({"currency": "SEK"}, "currency")],
)
def test_what_is_not_named_is_refused_or_goes_to_a_person(facts: Build, request_: dict[str, Any], check: str) -> None:
    decision = judge(facts(request=request_, payment={"currency": request_.get("currency", "USD")}))
    assert next(one.result for one in decision.checks if one.id == check) != "pass"
    assert decision.outcome == "deny" or decision.review is not None


def test_payouts_asked_for_in_words_never_go_without_a_person(facts: Build) -> None:
    said = ReadingFacts(False, Intent.OUT_OF_SCOPE, Proposal.APPROVE, 100)
    assert needs(judge(facts(reading=said, request={"extracted": True})))[1] == "reviewer"


def test_a_policy_that_would_allow_payouts_must_name_its_dispute_process() -> None:
    text = sample_policy_text()
    with pytest.raises(PolicyError, match="must name its dispute process"):
        load_policy(text + "\npayouts:\n  allowed: true\n")
    assert not sample_policy().payouts.allowed


def test_signals_of_fraud_mean_a_person(facts: Build) -> None:
    for parts in (
        {"payment": {"risk_level": "elevated"}},
        {"customer": {"account_age_days": 6}},
        {"customer": {"share_refunded_percent": 51}},
        {"customer": {"requests_hour": 20}},
        {"payment": {"customer_matches": False}},
    ):
        assert needs(judge(facts(**parts)))[1] == "reviewer", parts
