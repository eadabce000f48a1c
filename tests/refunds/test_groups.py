"""The allocation of a group over payments: exact to the unit, never above what a payment holds, always the same; and the policy sees the whole."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refunds.groups import Allocation, Holder, LeftOut, Others, allocate, judge_as_a_whole
from refunds.money import currency
from refunds.policy import evaluate, load_policy, sample_policy_text
from refunds.processor import MISSING, DisputeState, PaymentState, PaymentStatus
from tests.refunds.conftest import GOOD, NOW, Build


def card(name: str, remaining: int, **more: Any) -> Holder:
    return Holder(name, more.pop("currency", "USD"), remaining, **more)


def gift(name: str, remaining: int, **more: Any) -> Holder:
    return card(name, remaining, by_hand=True, **more)


def authorised(name: str, remaining: int, **more: Any) -> Holder:
    return card(name, remaining, only_authorised=True, **more)


def parts(allocation: Allocation) -> dict[str, int]:
    return {part.payment: part.amount for part in allocation.parts}


def why(allocation: Allocation) -> dict[str, LeftOut]:
    return {one.payment: one.why for one in allocation.left_out}


def test_field_48_the_card_gives_what_it_took_and_the_credit_the_rest() -> None:
    assert parts(allocate([gift("credit", 2_000), card("card", 7_000)], 9_000, "USD")) == {"credit": 2_000, "card": 7_000}


def test_field_26_payments_give_in_the_sequence_of_the_order_until_the_amount_is_reached() -> None:
    found = allocate([card("first", 4_000), card("upgrade", 2_000), card("third", 500)], 5_000, "USD")
    assert (parts(found), why(found), found.missing) == ({"first": 4_000, "upgrade": 1_000}, {"third": LeftOut.NOT_NEEDED}, 0)


def test_manual_tenders_come_last_wherever_the_order_names_them() -> None:
    found = allocate([gift("gift", 5_000), card("card", 5_000)], 6_000, "USD")
    assert parts(found) == {"gift": 1_000, "card": 5_000}


def test_what_is_only_authorised_is_released_as_a_whole_or_not_at_all() -> None:
    assert parts(allocate([card("card", 6_000), authorised("hold", 6_000)], 10_000, "USD")) == {"card": 4_000, "hold": 6_000}
    found = allocate([card("card", 6_000), authorised("hold", 6_000)], 5_000, "USD")
    assert (parts(found), why(found)) == ({"card": 5_000}, {"hold": LeftOut.ONLY_AUTHORISED})


def test_what_the_payments_do_not_hold_is_said_to_the_unit() -> None:
    assert allocate([card("card", 7_000), gift("gift", 2_000)], 9_001, "USD").missing == 1


def test_in_full_everything_that_is_left_goes_back_in_its_own_currency() -> None:
    found = allocate([card("card", 7_000), card("euro", 300, currency="EUR"), gift("gift", 2_000), card("spent", 0)], None, None)
    assert (parts(found), why(found), found.missing) == (
        {"card": 7_000, "euro": 300, "gift": 2_000},
        {"spent": LeftOut.NOTHING_LEFT},
        0,
    )


def test_another_currency_gives_nothing_because_nothing_is_converted() -> None:
    found = allocate([card("card", 100), card("euro", 300, currency="EUR")], 200, "USD")
    assert (why(found), found.missing) == ({"euro": LeftOut.OTHER_CURRENCY}, 100)


def test_only_what_can_be_sent_is_given() -> None:
    found = allocate([card("first", 1_050, currency="UGX"), card("second", 1_000, currency="UGX")], 2_000, "UGX")
    assert parts(found) == {"first": 1_000, "second": 1_000}


STATES = {
    "disputed": ({"dispute": DisputeState.OPEN}, LeftOut.DISPUTED),
    "dispute lost": ({"dispute": DisputeState.LOST}, LeftOut.RETURNED_BY_DISPUTE),
    "inquiry": ({"dispute": DisputeState.INQUIRY}, None),
    "canceled": ({"status": PaymentStatus.CANCELED}, LeftOut.NOT_CAPTURED),
    "processing": ({"status": PaymentStatus.PROCESSING}, LeftOut.NOT_CAPTURED),
    "missing": ({"status": PaymentStatus.INCOMPLETE, "raw_status": MISSING}, LeftOut.UNKNOWN_TO_PROCESSOR),
    "captured": ({}, None),
    "unknown": ({"status": PaymentStatus.UNKNOWN}, None),
}


@pytest.mark.parametrize(("changed", "expected"), STATES.values(), ids=STATES)
def test_each_state_of_a_payment_has_its_own_answer(changed: dict[str, Any], expected: LeftOut | None) -> None:
    values: dict[str, Any] = {
        "processor_payment": "pi_1",
        "status": PaymentStatus.CAPTURED,
        "currency": "USD",
        "captured": 1_000,
        "capturable": 0,
        "refunds": (),
        "dispute": DisputeState.NONE,
        "risk_level": "normal",
        "read_at": NOW,
    }
    holder = Holder.of("pay_1", PaymentState(**(values | changed)), 1_000, by_hand=False)
    assert holder.barred is expected
    assert expected is None or expected.words


holders = st.lists(
    st.builds(
        Holder,
        payment=st.uuids().map(str),
        currency=st.sampled_from(["USD", "USD", "USD", "EUR", "UGX", "KWD"]),
        remaining=st.integers(0, 50_000),
        by_hand=st.booleans(),
        only_authorised=st.booleans(),
        barred=st.sampled_from([None, None, None, None, LeftOut.DISPUTED]),
    ).map(lambda holder: replace(holder, only_authorised=holder.only_authorised and not holder.by_hand)),
    max_size=8,
)


@given(holders, st.sampled_from(["USD", "EUR", "UGX", "KWD"]), st.integers(1, 2_000))
def test_parts_sum_exactly_and_none_is_above_what_its_payment_holds(payments: list[Holder], code: str, steps: int) -> None:
    amount = steps * currency(code).multiple
    found = allocate(payments, amount, code)
    by_name = {holder.payment: holder for holder in payments}

    assert sum(part.amount for part in found.parts) + found.missing == amount
    for part in found.parts:
        holder = by_name[part.payment]
        assert 0 < part.amount <= holder.remaining
        assert (holder.currency, holder.barred) == (code, None)
        assert part.amount % currency(code).multiple == 0 or holder.only_authorised
        assert part.amount == holder.remaining or not holder.only_authorised
    assert sorted([p.payment for p in found.parts] + [e.payment for e in found.left_out]) == sorted(by_name)
    assert found == allocate(payments, amount, code), "the same always comes to the same"


@given(holders)
def test_in_full_every_payment_that_can_gives_all_that_is_left(payments: list[Holder]) -> None:
    found = allocate(payments, None, None)
    assert parts(found) == {h.payment: h.remaining for h in payments if h.barred is None and h.remaining > 0}


@given(holders, st.integers(1, 100_000))
def test_nothing_is_given_by_hand_while_a_processor_could_give_it(payments: list[Holder], amount: int) -> None:
    captured = [replace(holder, only_authorised=False, currency="USD") for holder in payments]
    found = parts(allocate(captured, amount, "USD"))
    if any(found.get(holder.payment) for holder in captured if holder.by_hand):
        assert all(found.get(h.payment, 0) == h.remaining for h in captured if not h.by_hand and h.barred is None)


# --- the policy sees the whole -----------------------------------------------------------------------------------------------------------

POLICY = load_policy(sample_policy_text())
DOLLARS = POLICY.currencies["USD"]


def check(decision: Any, name: str) -> str | None:
    return next((one.result for one in decision.checks if one.id == name), None)


def test_two_payments_do_not_escape_a_ceiling_that_one_would_meet(facts: Build) -> None:
    part = DOLLARS.consent_only_up_to * 6 // 10
    half = facts(request={"amount": part}, payment={"remaining": part, "captured": part})
    assert evaluate(POLICY, half).review is None

    whole = judge_as_a_whole(POLICY, half, Others(amount=part, waiting=part, parts=1))

    assert (whole.outcome, whole.review is None) == ("proceed", False)
    assert (check(whole, "ceiling"), check(whole, "group:ceiling")) == ("pass", "require_review")


def test_the_largest_that_is_allowed_holds_for_the_whole(facts: Build) -> None:
    most = DOLLARS.largest
    part = facts(request={"amount": most}, payment={"remaining": most, "captured": most})
    assert evaluate(POLICY, part).outcome == "proceed"

    whole = judge_as_a_whole(POLICY, part, Others(amount=1, waiting=1, parts=1))

    assert (whole.outcome, whole.code, whole.review, whole.consent) == ("deny", "POLICY_DENIED", None, False)
    assert whole.explanation.startswith("The group as a whole: ")


def test_a_day_counts_every_part_once_whichever_is_judged_first(facts: Build) -> None:
    part = DOLLARS.per_customer_per_day // 2
    first = facts(
        request={"amount": part}, payment={"remaining": part}, customer={"amount_today": 0}, base={"amount": part, "amount_today": 0}
    )
    second = facts(
        request={"amount": part}, payment={"remaining": part}, customer={"amount_today": part}, base={"amount": part, "amount_today": part}
    )

    def days(other: int) -> list[tuple[str | None, str | None]]:
        either = (
            judge_as_a_whole(POLICY, first, Others(amount=other, waiting=other, parts=1)),
            judge_as_a_whole(POLICY, second, Others(amount=other, counted_today=part)),
        )
        return [(check(one, "group:customer_day"), check(one, "group:customer_day_all")) for one in either]

    assert days(part) == [(None, None), (None, None)]
    assert [day for day, _ in days(part + 2)] == ["require_review", "require_review"]


def test_every_part_counts_in_the_week_of_the_customer(facts: Build) -> None:
    limit = POLICY.customer_limits.refunds_per_week
    part = facts(request={"amount": 100}, customer={"refunds_week": limit - 1})
    assert check(judge_as_a_whole(POLICY, part, Others(amount=100, counted_today=0)), "group:customer_week") is None
    assert check(judge_as_a_whole(POLICY, part, Others(amount=100, waiting=100, parts=1)), "group:customer_week") == "require_review"


def test_a_part_alone_is_judged_as_ever(facts: Build) -> None:
    assert judge_as_a_whole(POLICY, facts(), Others()) == evaluate(POLICY, facts())


def test_field_36_parts_in_other_currencies_count_in_the_day_and_under_the_ceilings(facts: Build) -> None:
    ceiling, day = DOLLARS.consent_only_up_to, DOLLARS.per_customer_per_day
    part = facts(request={"amount": ceiling}, payment={"remaining": ceiling}, base={"amount": ceiling, "amount_today": 0})
    assert evaluate(POLICY, part).review is None

    above = judge_as_a_whole(POLICY, part, Others(elsewhere=1, parts=1))
    assert (check(above, "group:ceiling"), check(above, "group:customer_day_all")) == ("require_review", None)
    over_the_day = judge_as_a_whole(POLICY, part, Others(elsewhere=day - ceiling + 1, parts=1))
    assert [one.result for one in over_the_day.checks if one.id == "group:customer_day_all"] == ["require_review"], "told once"
    counted = facts(request={"amount": ceiling}, payment={"remaining": ceiling}, base={"amount": ceiling, "amount_today": day - ceiling})
    already = judge_as_a_whole(POLICY, counted, Others(elsewhere=day - ceiling, elsewhere_today=day - ceiling))
    assert check(already, "group:customer_day_all") is None, "what is in the day already counts once"


def test_field_36_a_part_of_which_nobody_knows_what_it_counts_as_is_a_persons(facts: Build) -> None:
    found = judge_as_a_whole(POLICY, facts(), Others(not_counted=("EUR",), parts=1))
    assert check(found, "group:customer_day_all") == "require_review"


def test_what_the_part_itself_is_denied_for_stays(facts: Build) -> None:
    disputed = facts(payment={"dispute": DisputeState.OPEN})
    found = judge_as_a_whole(POLICY, disputed, Others(amount=100, waiting=100, parts=1))
    assert (found.outcome, found.code) == ("deny", "PAYMENT_DISPUTED")


@given(part=st.integers(1, 1_500_000), other=st.integers(1, 1_500_000))
def test_no_split_is_judged_more_loosely_than_the_part_alone_or_the_whole_in_one(part: int, other: int) -> None:
    def wish(amount: int) -> Any:
        return replace(
            GOOD,
            request=replace(GOOD.request, amount=amount),
            payment=replace(GOOD.payment, remaining=amount),
            base=replace(GOOD.base, amount=amount),
        )

    split = judge_as_a_whole(POLICY, wish(part), Others(amount=other, waiting=other, parts=1))
    for single in (evaluate(POLICY, wish(part)), evaluate(POLICY, wish(part + other))):
        assert single.outcome != "deny" or split.outcome == "deny"
        if split.outcome == "proceed" and single.review is not None:
            assert split.review is not None
            assert split.tier >= single.tier
