"""What the sample policy, and changes to it, make of facts."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from refunds.classification import Intent, Proposal
from refunds.errors import Code
from refunds.facts import Facts, PolicyDecision, ReadingFacts
from refunds.policy import PolicyError, evaluate, load_policy, sample_policy, sample_policy_text
from refunds.processor import DisputeState, PaymentStatus
from refunds.reasons import Reason

Build = Callable[..., Facts]
SAMPLE = sample_policy_text()
NOW = datetime(2026, 9, 10, 12, tzinfo=UTC)
CLEAR = ReadingFacts(failed=False, intent=Intent.REFUND, proposal=Proposal.APPROVE, confidence=95)


def judge(facts: Facts, *changes: tuple[str, str]) -> PolicyDecision:
    text = SAMPLE
    for old, new in changes:
        assert old in text, old
        text = text.replace(old, new, 1)
    return evaluate(load_policy(text), facts)


def result(decision: PolicyDecision, check: str) -> str:
    [found] = [c for c in decision.checks if c.id == check]
    return found.result


def not_passed(decision: PolicyDecision) -> list[str]:
    return [c.id for c in decision.checks if c.result != "pass"]


def assert_reviewed(decision: PolicyDecision, *checks: str, role: str = "reviewer", queue: str = "team") -> None:
    assert decision.outcome == "proceed"
    assert decision.review is not None
    assert (decision.review.role, decision.review.ladder[0].queue) == (role, queue)
    assert not_passed(decision) == list(checks)
    assert decision.tier == (4 if role == "manager" else 3)


def assert_denied(decision: PolicyDecision, code: Code, check: str) -> None:
    assert (decision.outcome, decision.code) == ("deny", code)
    assert (decision.review, decision.consent) == (None, False)
    assert result(decision, check) == "deny"
    assert decision.explanation


def test_small_and_clear_is_automatic_with_every_check_reported(facts: Build) -> None:
    decision = judge(facts())
    assert (decision.outcome, decision.tier, decision.consent, decision.review, decision.code) == ("proceed", 2, False, None, None)
    assert [c.id for c in decision.checks] == [
        *["payment_status", "dispute", "refundable", "currency", "requester", "channel", "reason", "evidence", "window"],
        *["lines_amount", "lines_captured", "lines_returned", "largest", "ceiling"],
        *["customer_authentication", "consent", "customer_day", "exchange_rate", "customer_day_all"],
        *["customer_week", "payment_refunds", "duplicate", "risk_level", "account_age"],
        *["share_refunded", "refunds_number", "velocity", "mismatch"],
        *["limit:customer_month", "limit:customer_month_refunds", "limit:everyone_minute", "limit:everyone_hour"],
        *["reading", "rule:final_sale", "rule:gift_cards"],
    ]
    assert not_passed(decision) == []
    for check in decision.checks:
        assert check.text.endswith(".")
        assert check.observed
        assert check.limit
    assert (decision.consent_within_s, decision.terms_valid_s) == (3 * 86_400, 86_400)


@pytest.mark.parametrize(
    ("amount", "tier", "role"), [(10_000, 2, None), (10_001, 3, "reviewer"), (50_000, 3, "reviewer"), (50_001, 4, "manager")]
)
def test_the_ceilings_of_the_field_are_included_in_what_they_allow(facts: Build, amount: int, tier: int, role: str | None) -> None:
    decision = judge(facts(request={"amount": amount}), ("per_customer_per_day: 150.00", "per_customer_per_day: 9000.00"))
    assert (decision.outcome, decision.tier, decision.review.role if decision.review else None) == ("proceed", tier, role)


def test_above_the_ceiling_consent_and_review_are_both_required(facts: Build) -> None:
    decision = judge(facts(request={"amount": 12_000, "amount_named_by_customer": False}))
    assert decision.consent
    assert_reviewed(decision, "ceiling", "consent")


def test_the_ladder_goes_from_the_team_to_the_managers(facts: Build) -> None:
    review = judge(facts(request={"amount": 12_000})).review
    assert review is not None
    assert [(r.queue, r.role, r.remind_after_s, r.decide_within_s) for r in review.ladder] == [
        ("team", "reviewer", 14_400, 86_400),
        ("managers", "manager", 14_400, 86_400),
    ]


def test_more_than_the_largest_is_denied(facts: Build) -> None:
    rich = {"remaining": 2_000_000, "captured": 2_000_000}
    assert_denied(judge(facts(request={"amount": 1_000_001}, payment=rich)), Code.POLICY_DENIED, "largest")
    assert judge(facts(request={"amount": 1_000_000}, payment=rich)).outcome == "proceed"


@pytest.mark.parametrize(
    ("request_", "asked"),
    [
        ({}, False),
        ({"amount_named_by_customer": False}, True),
        ({"extracted": True}, True),
    ],
)
def test_only_the_amount_the_customer_named_is_consent_by_itself(facts: Build, request_: dict[str, Any], asked: bool) -> None:
    decision = judge(facts(request=request_))
    assert decision.consent is asked
    assert decision.review is None


def test_what_a_model_read_has_to_be_agreed_to_even_where_no_consent_is_required(facts: Build) -> None:
    off = ("required: true", "required: false")
    assert not judge(facts(request={"amount_named_by_customer": False}), off).consent
    assert judge(facts(request={"extracted": True}), off).consent


def test_a_customer_nobody_made_sure_of_is_asked_and_looked_at(facts: Build) -> None:
    decision = judge(facts(request={"customer_authenticated": False}))
    assert decision.consent
    assert_reviewed(decision, "customer_authentication", "consent")


@pytest.mark.parametrize(
    ("status", "code"),
    [
        (PaymentStatus.PROCESSING, Code.PAYMENT_PROCESSING),
        (PaymentStatus.CANCELED, Code.PAYMENT_CANCELED),
        (PaymentStatus.INCOMPLETE, Code.PAYMENT_INCOMPLETE),
    ],
)
def test_field_28_what_was_not_captured_is_not_refunded(facts: Build, status: PaymentStatus, code: Code) -> None:
    decision = judge(facts(payment={"status": status, "captured": 0, "remaining": 0}))
    assert_denied(decision, code, "payment_status")


def test_field_28_an_authorisation_is_released_as_a_whole_or_looked_at(facts: Build) -> None:
    held = {"status": PaymentStatus.AUTHORISED, "captured": 0, "capturable": 3_000, "remaining": 3_000}
    used_up = {"amount_today": 15_000, "refunds_week": 3}
    assert not_passed(judge(facts(payment=held, order={"delivered_at": None}, customer=used_up))) == []
    assert_reviewed(judge(facts(payment=held, request={"amount": 2_999})), "payment_status")
    assert_reviewed(judge(facts(payment=held | {"capturable": 4_000})), "payment_status")


def test_field_28_an_unknown_payment_is_looked_at(facts: Build) -> None:
    decision = judge(facts(payment={"status": PaymentStatus.UNKNOWN, "captured": 0, "remaining": 0}))
    assert_reviewed(decision, "payment_status", "refundable")


def test_field_32_disputes(facts: Build) -> None:
    assert_denied(judge(facts(payment={"dispute": DisputeState.OPEN})), Code.PAYMENT_DISPUTED, "dispute")
    assert_denied(judge(facts(payment={"dispute": DisputeState.LOST})), Code.ALREADY_RETURNED, "dispute")
    for state in (DisputeState.INQUIRY, DisputeState.UNKNOWN):
        assert_reviewed(judge(facts(payment={"dispute": state})), "dispute")


def test_field_30_more_than_is_left_is_denied(facts: Build) -> None:
    decision = judge(facts(request={"amount": 7_000}, payment={"captured": 6_000, "remaining": 6_000}))
    assert_denied(decision, Code.EXCEEDS_REFUNDABLE, "refundable")
    assert "$70.00" in decision.explanation
    assert "at most $60.00" in decision.explanation
    assert judge(facts(request={"amount": 6_000}, payment={"captured": 6_000, "remaining": 6_000})).outcome == "proceed"
    assert_denied(judge(facts(request={"amount": 1}, payment={"remaining": 0})), Code.ALREADY_REFUNDED, "refundable")


@pytest.mark.parametrize("request_", [{"amount": 0, "full": True}, {"amount": 0, "lines_amount": 0}, {"amount": -1}])
def test_field_45_no_amount_slips_below_the_ceilings(facts: Build, request_: dict[str, Any]) -> None:
    assert_denied(judge(facts(request=request_)), Code.AMOUNT_NOT_POSITIVE, "refundable")


def test_field_45_an_amount_nobody_could_tell_is_unknown_and_not_zero(facts: Build) -> None:
    decision = judge(facts(request={"amount": 0, "amount_named_by_customer": False}, customer={"amount_today": 4_000}))
    assert_reviewed(decision, "refundable", "largest", "ceiling", "consent", "customer_day", "customer_day_all")
    observed = {check.id: check.observed for check in decision.checks}
    assert not [said for said in observed.values() if "$0.00 with" in said or said == "$0.00"]
    assert (observed["refundable"], observed["ceiling"], observed["largest"]) == ("unknown",) * 3
    assert observed["payment_status"] == "captured, unknown asked for"
    assert observed["customer_day"] == "unknown with this one, $40.00 before"


def test_field_34_another_currency_than_the_payments_is_denied(facts: Build) -> None:
    assert_denied(judge(facts(payment={"currency": "INR"})), Code.CURRENCY_MISMATCH, "currency")


def test_a_currency_that_is_not_named_is_never_automatic(facts: Build) -> None:
    decision = judge(facts(request={"currency": "SEK", "amount": 1}, payment={"currency": "SEK"}))
    assert_reviewed(decision, "currency", "largest", "ceiling", "customer_day", "exchange_rate", role="manager", queue="managers")


@pytest.mark.parametrize(
    ("amount", "code", "tier"),
    [(15_000, "JPY", 2), (15_001, "JPY", 3), (75_001, "JPY", 4), (30_000, "KWD", 2), (30_010, "KWD", 3), (150_010, "KWD", 4)],
)
def test_field_39_field_40_ceilings_are_in_the_currencys_own_unit(facts: Build, amount: int, code: str, tier: int) -> None:
    rate = {"amount": 10_000, "rate": "0.0066", "rate_id": "rate_1", "rate_at": NOW}
    decision = judge(facts(request={"amount": amount, "currency": code}, payment={"currency": code, "remaining": 10**9}, base=rate))
    assert (decision.outcome, decision.tier) == ("proceed", tier)


def test_deny_by_default(facts: Build) -> None:
    assert_denied(judge(facts(request={"channel": "carrier_pigeon"})), Code.NOT_COVERED, "channel")
    nobody = ("  agents: accept\n", "")
    assert_denied(judge(facts(request={"agent_id": "ag_1"}), nobody), Code.NOT_COVERED, "requester")
    assert judge(facts(), nobody).outcome == "proceed"
    only = ("any_other: review", "any_other: deny")
    decision = judge(facts(request={"reason": Reason.OTHER}), only)
    assert_denied(decision, Code.NOT_COVERED, "reason")
    assert decision.policy_text == sample_policy().texts.not_covered
    assert_reviewed(judge(facts(request={"reason": Reason.OTHER})), "reason")


def test_missing_data_goes_to_a_person_unless_the_policy_names_it(facts: Build) -> None:
    bare = [("  # A request that gives no reason: accept, review or deny.\n  not_given: accept\n", ""), ("  not_given: accept\n", "")]
    assert_reviewed(judge(facts(request={"reason": None, "channel": None}), *bare), "channel", "reason")
    assert not_passed(judge(facts(request={"reason": None, "channel": None}))) == []
    assert_reviewed(judge(facts(order={"delivered_at": None})), "window")
    assert_reviewed(judge(facts(customer={"account_age_days": None})), "account_age")
    assert_reviewed(judge(facts(customer={"share_refunded_percent": None})), "share_refunded")
    assert_reviewed(judge(facts(payment={"risk_level": ""})), "risk_level")


def test_the_window_ends_at_its_exact_last_instant(facts: Build) -> None:
    last = NOW - timedelta(days=30)
    assert judge(facts(order={"delivered_at": last})).outcome == "proceed"
    late = judge(facts(order={"delivered_at": last - timedelta(microseconds=1)}))
    assert_denied(late, Code.OUTSIDE_WINDOW, "window")
    assert late.policy_text == sample_policy().texts.outside_window
    assert "to 2026-09-10T11:59:59.999999Z" in late.explanation


def test_the_window_counts_when_it_was_asked_for_not_when_it_is_judged(facts: Build) -> None:
    asked = facts(order={"delivered_at": NOW - timedelta(days=30)})
    assert judge(Facts(NOW + timedelta(days=9), asked.request, asked.order, asked.payment, asked.customer)).outcome == "proceed"


def test_of_several_categories_the_shortest_window_counts(facts: Build) -> None:
    delivered = NOW - timedelta(days=20)
    for categories, outcome in ((("books",), "proceed"), (("electronics",), "deny"), (("books", "electronics"), "deny"), ((), "proceed")):
        assert judge(facts(order={"delivered_at": delivered, "categories": categories})).outcome == outcome


def test_a_delivery_that_lies_ahead_is_looked_at(facts: Build) -> None:
    assert_reviewed(judge(facts(order={"delivered_at": NOW + timedelta(seconds=1)})), "window")


def test_ninety_nine_dollars_three_times_the_second_the_same_day_is_stopped(facts: Build) -> None:
    first = judge(facts(request={"amount": 9_900}))
    second = judge(facts(request={"amount": 9_900}, customer={"amount_today": 9_900, "refunds_week": 1}))
    assert first.review is None
    assert_reviewed(second, "customer_day")
    assert "$198.00 with this one, $99.00 before" in [c.observed for c in second.checks]


@pytest.mark.parametrize(("amount", "reviewed"), [(10_000, False), (10_001, True)])
def test_the_limit_of_a_day_is_included_in_what_it_allows(facts: Build, amount: int, reviewed: bool) -> None:
    decision = judge(facts(request={"amount": amount}, customer={"amount_today": 5_000}))
    assert (result(decision, "customer_day") == "require_review") is reviewed


@pytest.mark.parametrize(("before", "reviewed"), [(2, False), (3, True)])
def test_three_refunds_a_week(facts: Build, before: int, reviewed: bool) -> None:
    assert (result(judge(facts(customer={"refunds_week": before})), "customer_week") == "require_review") is reviewed


def test_limits_can_refuse_instead(facts: Build) -> None:
    decision = judge(facts(customer={"amount_today": 15_000}), ("when_exceeded: review", "when_exceeded: deny"))
    assert_denied(decision, Code.LIMIT_EXCEEDED, "customer_day")
    assert decision.policy_text == sample_policy().texts.limits


@pytest.mark.parametrize(
    ("part", "values", "check", "signal"),
    [
        ("payment", {"risk_level": "elevated"}, "risk_level", "risk_level:elevated"),
        ("payment", {"risk_level": "highest"}, "risk_level", "risk_level:highest"),
        ("payment", {"risk_level": "unknown"}, "risk_level", "risk_level:unknown"),
        ("customer", {"account_age_days": 6}, "account_age", "account_age:6"),
        ("customer", {"share_refunded_percent": 51, "orders": 4}, "share_refunded", "share_refunded:51"),
        ("request", {"possible_duplicate_of": "rf_9"}, "duplicate", "possible_duplicate:rf_9"),
    ],
)
def test_any_signal_means_a_person(facts: Build, part: str, values: dict[str, Any], check: str, signal: str) -> None:
    decision = judge(facts(**{part: values}))
    assert_reviewed(decision, check)
    assert decision.signals == (signal,)


def test_a_share_of_few_orders_says_nothing(facts: Build) -> None:
    for share in (100, None):
        assert not_passed(judge(facts(customer={"share_refunded_percent": share, "orders": 3}))) == []


def test_field_63_the_ticket_says_the_rules_have_changed(facts: Build) -> None:
    told = ReadingFacts(False, Intent.REFUND, Proposal.APPROVE, 100, manipulation=("claims that the rules changed",))
    decision = judge(facts(request={"amount": 50_000}, reading=told))
    assert_reviewed(decision, "ceiling", "customer_day", "customer_day_all", "manipulation")
    assert "manipulation" in decision.signals


@pytest.mark.parametrize(
    ("reading", "checks"),
    [
        (CLEAR, []),
        (ReadingFacts(True, None, None, 0), ["reading"]),
        (ReadingFacts(False, Intent.REFUND, Proposal.APPROVE, 79), ["confidence"]),
        (ReadingFacts(False, Intent.REFUND, Proposal.APPROVE, 80), []),
        (ReadingFacts(False, Intent.REFUND, Proposal.DENY, 95), ["proposal"]),
        (ReadingFacts(False, Intent.REFUND, Proposal.ESCALATE, 95), ["proposal"]),
        (ReadingFacts(False, Intent.REFUND, None, 95), ["proposal"]),
        (ReadingFacts(False, None, Proposal.APPROVE, 95), ["intent"]),
        (ReadingFacts(False, Intent.OUT_OF_SCOPE, Proposal.APPROVE, 95), ["intent"]),
        (ReadingFacts(False, Intent.CANCEL_ORDER, Proposal.APPROVE, 95), ["intent"]),
        (ReadingFacts(False, Intent.REFUND, Proposal.APPROVE, 95, ("x",), ()), ["manipulation"]),
        (ReadingFacts(False, Intent.REFUND, Proposal.APPROVE, 95, (), ("amount",)), ["contradictions"]),
        (ReadingFacts(False, Intent.TRACK_REFUND, Proposal.APPROVE, 95), ["intent"]),
        (ReadingFacts(False, Intent.POLICY_QUESTION, Proposal.APPROVE, 95), ["intent"]),
    ],
)
def test_a_reading_only_adds_people(facts: Build, reading: ReadingFacts, checks: list[str]) -> None:
    decision = judge(facts(reading=reading))
    assert not_passed(decision) == checks
    assert (decision.review is not None) == bool(checks)


@pytest.mark.parametrize("intent", [Intent.TRACK_REFUND, Intent.POLICY_QUESTION])
def test_a_question_in_words_is_answered_with_the_policys_text(facts: Build, intent: Intent) -> None:
    decision = judge(facts(request={"extracted": True}, reading=ReadingFacts(False, intent, Proposal.DENY, 70)))
    texts = sample_policy().texts
    assert (decision.outcome, decision.tier, decision.consent, decision.review, decision.code) == ("answer", 1, False, None, None)
    assert decision.policy_text == (texts.track_refund if intent is Intent.TRACK_REFUND else texts.policy_question)
    assert decision.explanation


@pytest.mark.parametrize(
    "reading",
    [
        ReadingFacts(False, Intent.TRACK_REFUND, Proposal.APPROVE, 69),
        ReadingFacts(False, Intent.TRACK_REFUND, Proposal.APPROVE, 95, manipulation=("x",)),
        ReadingFacts(False, Intent.TRACK_REFUND, Proposal.APPROVE, 95, contradictions=("x",)),
        ReadingFacts(True, Intent.TRACK_REFUND, Proposal.APPROVE, 95),
    ],
)
def test_an_unsure_question_is_read_by_a_person(facts: Build, reading: ReadingFacts) -> None:
    decision = judge(facts(request={"extracted": True}, reading=reading))
    assert decision.outcome == "proceed"
    assert decision.review is not None


def test_a_reason_that_a_model_read_satisfies_nothing(facts: Build) -> None:
    strict = ("  # A request that gives no reason: accept, review or deny.\n  not_given: accept\n", "  not_given: review\n")
    read = facts(request={"extracted": True, "reason": Reason.PRODUCT_ISSUE}, reading=CLEAR)
    assert result(judge(read, strict), "reason") == "require_review"
    assert result(judge(facts(request={"reason": Reason.PRODUCT_ISSUE}), strict), "reason") == "pass"
    bad = facts(request={"extracted": True, "reason": Reason.FRAUDULENT}, reading=CLEAR)
    assert result(judge(bad), "reason") == "require_review"


def test_several_refusals_give_the_first_code_and_all_sentences(facts: Build) -> None:
    decision = judge(facts(payment={"dispute": DisputeState.OPEN, "remaining": 0}, request={"channel": "fax"}))
    assert decision.code == Code.PAYMENT_DISPUTED
    assert decision.explanation.count("; limit ") == 3
    assert not_passed(decision) == ["dispute", "refundable", "channel"]


TWO = """review:
  pair:
    people: 2
    rungs:
      - {queue: pair, role: reviewer, remind_after: 1h, decide_within: 2h}
      - {queue: managers, role: manager, remind_after: 1h, decide_within: 2h}
"""


def test_requirements_are_united_to_the_highest_role_and_the_most_people(facts: Build) -> None:
    pair = [("review:\n", TWO), ("ladder: team\n\n# The reader", "ladder: pair\n\n# The reader")]
    risky = {"risk_level": "elevated"}
    alone = judge(facts(payment=risky), *pair)
    assert alone.review is not None
    assert (alone.review.role, alone.review.people, alone.tier) == ("reviewer", 2, 4)
    both = judge(facts(payment=risky, request={"amount": 60_000}), *pair)
    assert both.review is not None
    assert (both.review.role, both.review.people, both.tier) == ("manager", 2, 4)
    assert [(r.queue, r.role) for r in both.review.ladder] == [("managers", "manager")]


def test_custom_rules(facts: Build) -> None:
    denied = judge(facts(order={"categories": ("final_sale",)}))
    assert_denied(denied, Code.POLICY_DENIED, "rule:final_sale")
    assert denied.policy_text == "Goods sold as final sale cannot be returned."
    assert_reviewed(judge(facts(order={"categories": ("gift_card",)})), "rule:gift_cards", role="manager", queue="managers")


def with_rule(when: str, then: str) -> tuple[str, str]:
    return ("  - id: final_sale\n", f"  - {{id: mine, when: '{when}', then: {then}, text: Mine.}}\n  - id: final_sale\n")


@pytest.mark.parametrize("then", ["deny", "require_consent", "require_review"])
@pytest.mark.parametrize(
    "when",
    ["1 / payment.refunds_made > 0", "request.amount", "agent.age_days > 5", "order.placed_at.year > 1", "[request.amount][5] == 1"],
)
def test_a_rule_that_fails_or_is_not_boolean_means_a_person(facts: Build, when: str, then: str) -> None:
    assert_reviewed(judge(facts(), with_rule(when, then)), "rule:mine")


def test_a_rule_can_ask_for_consent(facts: Build) -> None:
    rule, off = with_rule("request.amount > 1000", "require_consent"), ("required: true", "required: false")
    assert judge(facts(request={"amount_named_by_customer": False}), rule, off).consent
    assert not judge(facts(), rule, off).consent
    assert not judge(facts(request={"amount": 1_000, "amount_named_by_customer": False}), rule, off).consent


def test_a_rule_about_the_reading_waits_for_one(facts: Build) -> None:
    rule = with_rule("reading.confidence < 99", "deny")
    assert not_passed(judge(facts(), rule)) == []
    assert_denied(judge(facts(reading=CLEAR), rule), Code.POLICY_DENIED, "rule:mine")


def test_a_rule_is_not_satisfied_by_a_reason_that_a_model_read(facts: Build) -> None:
    rule = with_rule('request.reason != "product_issue"', "deny")
    said = {"reason": Reason.PRODUCT_ISSUE}
    assert result(judge(facts(request=said), rule), "rule:mine") == "pass"
    assert result(judge(facts(request=said | {"extracted": True}), rule), "rule:mine") == "deny"


def test_a_rule_that_refuses_refuses_also_when_it_fails_without_the_reason(facts: Build) -> None:
    rule = with_rule("size(request.reason) > 3", "deny")
    said = {"reason": Reason.PRODUCT_ISSUE, "extracted": True}
    assert_denied(judge(facts(request=said), rule), Code.POLICY_DENIED, "rule:mine")
    milder = with_rule("size(request.reason) > 3", "require_consent")
    assert result(judge(facts(request=said), milder), "rule:mine") == "require_review"


def test_of_two_ladders_that_ask_the_same_the_one_that_leaves_less_time_counts(facts: Build) -> None:
    urgent = "review:\n  urgent:\n    rungs:\n      - {queue: urgent, role: reviewer, remind_after: 1m, decide_within: 5m}\n"
    changes = [("review:\n", urgent), ("ladder: team\n\n# The reader", "ladder: urgent\n\n# The reader")]
    decision = judge(facts(payment={"risk_level": "highest"}, request={"customer_authenticated": False}), *changes)
    assert decision.review is not None
    assert [r.queue for r in decision.review.ladder] == ["urgent"]


@pytest.mark.parametrize(
    ("zone", "at", "start", "hours"),
    [
        ("Asia/Shanghai", "2026-09-10T15:59:59+00:00", "2026-09-09T16:00:00+00:00", 24),
        ("Asia/Shanghai", "2026-09-10T16:00:00+00:00", "2026-09-10T16:00:00+00:00", 24),
        ("America/New_York", "2026-03-08T12:00:00+00:00", "2026-03-08T05:00:00+00:00", 23),
        ("America/New_York", "2026-11-01T12:00:00+00:00", "2026-11-01T04:00:00+00:00", 25),
    ],
)
def test_field_49_a_day_is_the_zones_calendar_day(zone: str, at: str, start: str, hours: int) -> None:
    limits = load_policy(SAMPLE.replace("zone: UTC", f"zone: {zone}", 1)).customer_limits
    begins, ends = limits.day(datetime.fromisoformat(at))
    assert begins == datetime.fromisoformat(start)
    assert ends - begins == timedelta(hours=hours)
    assert begins.tzinfo is UTC


@pytest.mark.parametrize(
    ("amount", "people", "tier"), [(10_000, None, 2), (50_000, 1, 3), (50_001, 1, 4), (200_000, 1, 4), (200_001, 2, 4), (1_000_000, 2, 4)]
)
def test_above_a_ceiling_two_people_decide(facts: Build, amount: int, people: int | None, tier: int) -> None:
    policy = load_policy(
        sample_policy_text().replace("    manager_above: 500.00\n", "    manager_above: 500.00\n    two_people_above: 2000.00\n", 1)
    )
    within = {"amount": amount}

    decision = evaluate(policy, facts(request=within, base=within, payment={"captured": 10**7, "remaining": 10**7}))

    assert (None if decision.review is None else decision.review.people, decision.tier) == (people, tier)
    [ceiling] = [check for check in decision.checks if check.id == "ceiling"]
    assert ceiling.limit == "up to $100.00 without a person, above $500.00 a manager, above $2,000.00 two people"


def test_two_people_above_lies_between_the_other_ceilings() -> None:
    for wrong in ("499.99", "10000.01"):
        with pytest.raises(PolicyError, match="two_people_above"):
            load_policy(
                sample_policy_text().replace(
                    "    manager_above: 500.00\n", f"    manager_above: 500.00\n    two_people_above: {wrong}\n", 1
                )
            )
