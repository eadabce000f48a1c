"""Properties that hold for any facts: the same decision for ever, and nothing a reader says makes a decision looser (promises P10 and P11)."""

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from hypothesis import given, settings
from hypothesis import strategies as st

from refunds.classification import Intent, Proposal
from refunds.errors import CATALOGUE, Code
from refunds.facts import BaseFacts, CustomerFacts, Facts, OrderFacts, PaymentFacts, PolicyDecision, ReadingFacts, RequestFacts
from refunds.policy import Policy, evaluate, load_policy, sample_policy_text
from refunds.policy.uniting import AND
from refunds.processor import DisputeState, PaymentStatus
from refunds.reasons import Reason

NOW = datetime(2026, 9, 10, 12, tzinfo=UTC)
RESULTS = {"pass", "require_consent", "require_review", "deny", "answer"}

# The sample with rules that look at everything a reader can supply, also the wrong way round.
RULES = """
  - {id: r1, when: 'reading.confidence < 50', then: deny, text: R.}
  - {id: r2, when: 'reading == null', then: deny, text: R.}
  - {id: r3, when: 'request.reason != "product_issue"', then: require_review, ladder: managers, text: R.}
  - {id: r4, when: '1 / (payment.refunds_made - 1) > 0', then: require_consent, text: R.}
  - {id: r5, when: 'reading.intent != "refund" && customer.orders > 3', then: require_consent, text: R.}
"""
# Everything else that the language has: evidence, specialists, business hours, exceptions, drafts, limits of one payment.
EXCEPTIONS = """
exceptions:
  - id: storm
    text: Late.
    lifts: [window, reason, evidence]
    starts: 2026-09-01T00:00:00Z
    ends: 2026-09-30T00:00:00Z
    at_most: { USD: 200.00 }
    categories: [books, electronics]
"""
WHOLE = (
    sample_policy_text()
    .replace("review:\n", "calendars:\n  office: { zone: Europe/Berlin, hours: { monday: [09:00-17:00] } }\n\nreview:\n", 1)
    .replace("  team:\n", "  team:\n    specialists: [fraud, bo]\n", 1)
    .replace("        decide_within: 24h\n", "        decide_within: 24h\n        hours: office\n", 1)
    .replace("  # evidence: {", "  evidence: { product_issue: [photo] }\n  # evidence: {", 1)
    .replace("    title: Decided by the team\n", "    title: Decided by the team\n    draft: true\n", 1)
)
POLICIES = [
    load_policy(WHOLE),
    load_policy(WHOLE + EXCEPTIONS),
    load_policy(sample_policy_text()),
    load_policy(sample_policy_text() + RULES),
    load_policy(sample_policy_text().replace("required: true", "required: false").replace("any_other: review", "any_other: deny")),
]

requests = st.builds(
    RequestFacts,
    amount=st.integers(1, 1_200_000) | st.sampled_from([1, 10_000, 10_001, 50_000, 50_001]),
    currency=st.sampled_from(["USD", "JPY", "KWD", "SEK"]),
    full=st.booleans(),
    reason=st.none() | st.sampled_from(list(Reason)),
    channel=st.sampled_from([None, "chat", "fax"]),
    agent_id=st.sampled_from([None, "ag_1"]),
    requested_at=st.just(NOW),
    amount_named_by_customer=st.booleans(),
    customer_authenticated=st.booleans(),
    extracted=st.booleans(),
    possible_duplicate_of=st.sampled_from([None, None, "rf_1"]),
)
orders = st.builds(
    OrderFacts,
    version=st.integers(1, 3),
    placed_at=st.none() | st.just(NOW - timedelta(days=50)),
    delivered_at=st.none() | st.integers(-1, 40).map(lambda days: NOW - timedelta(days=days)),
    categories=st.lists(st.sampled_from(["books", "electronics", "final_sale", "gift_card"]), max_size=2).map(tuple),
    geography=st.sampled_from([None, "DE"]),
)
payments = st.builds(
    PaymentFacts,
    status=st.sampled_from([PaymentStatus.CAPTURED, PaymentStatus.CAPTURED, *PaymentStatus]),
    currency=st.just("USD"),
    captured=st.integers(0, 2_000_000),
    capturable=st.integers(0, 2_000_000),
    remaining=st.integers(0, 2_000_000),
    dispute=st.sampled_from([DisputeState.NONE, DisputeState.NONE, *DisputeState]),
    risk_level=st.sampled_from(["normal", "normal", "elevated", "unknown", ""]),
    refunds_made=st.integers(0, 3),
    customer_matches=st.sampled_from([None, None, True, False]),
    failed_checks=st.sampled_from([(), (), ("cvc",)]),
)
customers = st.builds(
    CustomerFacts,
    account_age_days=st.none() | st.integers(0, 1_000),
    orders=st.integers(0, 20),
    refunds=st.integers(0, 20),
    share_refunded_percent=st.none() | st.integers(0, 100),
    amount_today=st.integers(0, 20_000),
    refunds_week=st.integers(0, 5),
    requests_hour=st.sampled_from([0, 0, 19, 20]),
    requests_day=st.sampled_from([0, 49, 50]),
)
readings = st.builds(
    ReadingFacts,
    failed=st.booleans(),
    intent=st.none() | st.sampled_from(list(Intent)),
    proposal=st.none() | st.sampled_from(list(Proposal)),
    confidence=st.integers(0, 100),
    manipulation=st.sampled_from([(), (), ("instructions",)]),
    contradictions=st.sampled_from([(), (), ("amount",)]),
)


def _same_currency(facts: Facts) -> Facts:
    return replace(facts, payment=replace(facts.payment, currency=facts.request.currency))


bases = st.builds(
    BaseFacts,
    currency=st.sampled_from(["USD", "USD", "EUR", None]),
    amount=st.none() | st.integers(0, 20_000),
    amount_today=st.none() | st.integers(0, 20_000),
    not_counted=st.sampled_from([(), (), ("ISK",)]),
    rate=st.sampled_from([None, "1.0834"]),
    rate_id=st.just("rate_1"),
    rate_at=st.sampled_from([None, NOW, NOW - timedelta(days=7), NOW - timedelta(days=8)]),
)
anything = st.builds(Facts, at=st.just(NOW), request=requests, order=orders, payment=payments, customer=customers, base=bases).map(
    _same_currency
)
policies = st.sampled_from(POLICIES)


def not_looser(before: PolicyDecision, after: PolicyDecision) -> None:
    """Everything that can move under ``after`` could move under ``before``, and needed no more then."""
    if after.outcome != "proceed":
        return
    assert before.outcome == "proceed"
    assert after.consent >= before.consent
    assert after.tier >= before.tier
    if before.review is None:
        return
    assert after.review is not None
    assert after.review.people >= before.review.people
    assert ("reviewer", "manager").index(after.review.role) >= ("reviewer", "manager").index(before.review.role)
    assert set(after.review.evidence) >= set(before.review.evidence)
    assert after.review.reasons_required >= before.review.reasons_required
    if before.review.specialists:
        known = [set(one.split(AND)) for one in before.review.specialists]
        assert after.review.specialists
        assert all(any(set(one.split(AND)) >= wanted for wanted in known) for one in after.review.specialists)


@settings(max_examples=500)
@given(policies, anything, readings)
def test_field_63_no_reading_ever_makes_a_decision_looser(policy: Policy, facts: Facts, reading: ReadingFacts) -> None:
    not_looser(evaluate(policy, facts), evaluate(policy, replace(facts, reading=reading)))


@settings(max_examples=300)
@given(policies, anything, readings, st.none() | st.sampled_from(list(Reason)))
def test_field_63_no_reason_that_a_model_read_makes_a_decision_looser(
    policy: Policy, facts: Facts, reading: ReadingFacts, reason: Reason | None
) -> None:
    unread = replace(facts, request=replace(facts.request, reason=None))
    read = replace(facts, request=replace(facts.request, reason=reason, extracted=True), reading=reading)
    not_looser(evaluate(policy, unread), evaluate(policy, read))


@settings(max_examples=300)
@given(policies, anything, st.none() | readings)
def test_the_same_facts_give_the_same_decision(policy: Policy, facts: Facts, reading: ReadingFacts | None) -> None:
    facts = replace(facts, reading=reading)
    assert evaluate(policy, facts) == evaluate(policy, replace(facts))


@settings(max_examples=300)
@given(policies, anything, st.none() | readings)
def test_a_decision_is_whole(policy: Policy, facts: Facts, reading: ReadingFacts | None) -> None:
    decision = evaluate(policy, replace(facts, reading=reading))
    results = [c.result for c in decision.checks]
    assert set(results) <= RESULTS
    assert len({c.id for c in decision.checks}) == len(decision.checks)
    assert all(type(text) is str and text for c in decision.checks for text in (c.id, c.text, c.observed, c.limit))
    if decision.outcome == "deny":
        assert Code(decision.code or "") in CATALOGUE
        assert decision.explanation
        assert "deny" in results
    elif decision.outcome == "answer":
        assert decision.tier == 1
        assert decision.policy_text
        assert "answer" in results
    else:
        assert decision.outcome == "proceed"
        assert not {"deny", "answer"} & set(results)
        assert decision.code is None
        assert decision.consent == ("require_consent" in results)
        assert (decision.review is not None) == ("require_review" in results)
        assert decision.tier in (2, 3, 4)
        assert (decision.tier == 2) == (decision.review is None)
    if decision.review is not None:
        assert all(rung.role in (decision.review.role, "manager") for rung in decision.review.ladder)


@settings(max_examples=300)
@given(policies, anything)
def test_what_goes_without_a_person_is_in_order_in_every_way(policy: Policy, facts: Facts) -> None:
    decision = evaluate(policy, facts)
    if decision.outcome != "proceed" or decision.review is not None:
        return
    request, payment, customer = facts.request, facts.payment, facts.customer
    assert request.amount <= policy.currencies[request.currency].consent_only_up_to
    assert request.amount <= payment.remaining
    assert request.customer_authenticated
    assert request.possible_duplicate_of is None
    assert payment.dispute is DisputeState.NONE
    assert payment.status in (PaymentStatus.CAPTURED, PaymentStatus.AUTHORISED)
    assert payment.risk_level == "normal"
    assert customer.account_age_days is not None
    if payment.status is PaymentStatus.CAPTURED:
        assert facts.order.delivered_at is not None
        assert customer.refunds_week < 3
        assert customer.amount_today + request.amount <= policy.currencies[request.currency].per_customer_per_day
        assert policy.base is not None
        worth = request.amount if request.currency == policy.base else facts.base.amount
        assert worth is not None and facts.base.amount_today is not None and not facts.base.not_counted
        assert worth + facts.base.amount_today <= policy.currencies[policy.base].per_customer_per_day


@settings(max_examples=300)
@given(anything, st.none() | readings)
def test_an_exception_changes_the_checks_that_it_lifts_and_nothing_else(facts: Facts, reading: ReadingFacts | None) -> None:
    facts = replace(facts, reading=reading)
    without, with_it = (evaluate(policy, facts) for policy in POLICIES[:2])
    changed = {one.id for one, other in zip(with_it.checks, without.checks, strict=True) if one != other}
    assert changed <= {"window", "reason", "evidence"}
    assert not changed or not facts.request.extracted
    assert all(one.result == "pass" and "excepted by storm" in one.observed for one in with_it.checks if one.id in changed)


@given(anything, st.integers(1, 1_000_000))
def test_a_larger_amount_is_never_easier(facts: Facts, more: int) -> None:
    if facts.payment.status is PaymentStatus.AUTHORISED:
        return  # there the whole is easier than a part: releasing a part is not possible
    larger = replace(facts, request=replace(facts.request, amount=facts.request.amount + more))
    not_looser(evaluate(POLICIES[2], facts), evaluate(POLICIES[2], larger))


@given(anything)
def test_every_decision_can_be_recorded(facts: Facts) -> None:
    plain = evaluate(POLICIES[0], facts).plain()
    assert json.loads(json.dumps(plain, allow_nan=False)) == plain
