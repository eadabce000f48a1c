"""Legs: what is left of a transfer or a fee, the frozen request of a leg, and in what a receipt differs from it."""

import itertools
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refunds.errors import Code
from refunds.marketplace import (
    FeeState,
    FundsFlow,
    LegKind,
    LegReceipt,
    LegRequest,
    MoneyFlow,
    Planned,
    TransferState,
    Wish,
    leg_differences,
    no_longer_fits,
    plan_legs,
)
from refunds.submission import freeze_leg

AT = datetime(2026, 9, 21, tzinfo=UTC)
RECEIPT = LegReceipt("trr_1", LegKind.REVERSE_TRANSFER, "tr_1", 3_000, "USD", AT, "op_1")


def frozen(kind: LegKind = LegKind.REVERSE_TRANSFER, **changed: Any) -> LegRequest:
    given: dict[str, Any] = {
        "operation_id": "op_1",
        "refund": "rf_1",
        "terms_hash": "f" * 64,
        "mode": "test",
        "processor_payment": "pi_1",
        "target": "tr_1",
        "amount": 3_000,
        "currency": "USD",
    }
    return freeze_leg(kind, **(given | changed))


def test_field_3_the_key_of_a_leg_is_its_own_and_not_the_amounts() -> None:
    keys = {
        frozen(kind, mode=mode, operation_id=operation).idempotency_key
        for kind in LegKind
        for mode in ("test", "live")
        for operation in ("op_1", "op_2")
    }
    assert len(keys) == 8
    assert frozen(amount=1, target="tr_2", terms_hash="0").idempotency_key == frozen().idempotency_key
    assert frozen().idempotency_key == "refunds-reverse_transfer-test-op_1"


def test_field_37_a_leg_always_says_its_amount_and_carries_ids_only() -> None:
    assert frozen().params == {
        "amount": 3_000,
        "metadata": {"refunds_operation": "op_1", "refunds_refund": "rf_1", "refunds_terms": "f" * 64},
    }


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({}, ""),
        ({"currency": "usd"}, ""),
        ({"amount": 2_999}, "amount: approved 3000, answered 2999"),
        ({"currency": "EUR"}, "currency: approved USD, answered EUR"),
        ({"target": "tr_2"}, "target: approved tr_1, answered tr_2"),
        ({"operation": None}, "operation: approved op_1, answered None"),
        ({"kind": LegKind.REFUND_FEE}, "kind: approved reverse_transfer, answered refund_fee"),
    ],
)
def test_in_what_a_receipt_differs(changed: dict[str, Any], says: str) -> None:
    assert leg_differences(replace(RECEIPT, **changed), frozen()) == says


@pytest.mark.parametrize(
    ("total", "listed", "left"),
    [
        (0, [], 10_000),
        (3_000, [3_000], 7_000),
        (3_000, [3_000, 500], 6_500),
        (4_000, [3_000], 6_000),
        (10_000, [10_000], 0),
        (0, [11_000], 0),
    ],
)
def test_what_is_left_goes_by_the_larger_of_total_and_list(total: int, listed: list[int], left: int) -> None:
    """A list and a total that differ are a reading in between: the smaller rest is the safe one."""
    receipts = tuple(replace(RECEIPT, amount=amount) for amount in listed)
    assert TransferState("tr_1", "acct_1", 10_000, total, "USD", "ch_1", receipts).left == left
    assert FeeState("fee_1", "acct_1", 10_000, total, "USD", receipts).left == left


# --- planning ------------------------------------------------------------------------------------------------------------------------------

SELLER = "acct_seller"


def transfer(
    amount: int = 9_000, *, name: str = "tr_1", reversed_: int = 0, currency: str = "USD", charge: str | None = "ch_1"
) -> TransferState:
    return TransferState(name, SELLER, amount, reversed_, currency, charge, ())


def way(*transfers: TransferState, fee: int | None = None, refunded: int = 0) -> MoneyFlow:
    taken = None if fee is None else FeeState("fee_1", SELLER, fee, refunded, "USD", ())
    return MoneyFlow("pi_1", "ch_1", FundsFlow.SEPARATE if len(transfers) > 1 else FundsFlow.DESTINATION, transfers, taken, AT)


BOTH = Wish(reverse_transfer=True, refund_application_fee=True)
FEE = Wish(refund_application_fee=True)


def planned(flow: MoneyFlow, wish: Wish = BOTH, **changed: Any) -> Planned:
    usual: dict[str, Any] = {"amount": 3_000, "before": 0, "captured": 10_000, "claimed": {}}
    return plan_legs(flow, wish, **(usual | changed))


def test_each_leg_is_in_proportion_to_the_refund() -> None:
    plan = planned(way(transfer(9_000), fee=1_000))

    assert [(leg.kind, leg.target, leg.account, leg.amount, leg.currency) for leg in plan.legs] == [
        (LegKind.REVERSE_TRANSFER, "tr_1", SELLER, 2_700, "USD"),
        (LegKind.REFUND_FEE, "fee_1", SELLER, 300, "USD"),
    ]
    assert plan.flow == ("tr_1", "fee_1")


@given(
    captured=st.integers(1, 10**6),
    transfers=st.lists(st.integers(1, 10**6), min_size=1, max_size=4),
    fee=st.integers(1, 10**5),
    cuts=st.lists(st.integers(1, 10**6), max_size=6),
)
def test_parts_in_any_order_end_at_exactly_the_whole(captured: int, transfers: list[int], fee: int, cuts: list[int]) -> None:
    bounds = sorted({0, captured, *(cut for cut in cuts if cut < captured)})
    taken: dict[str, int] = {}
    whole = {f"tr_{number}": amount for number, amount in enumerate(transfers)} | {"fee_1": fee}
    for before, until in itertools.pairwise(bounds):
        flow = way(*(transfer(amount, name=f"tr_{n}", reversed_=taken.get(f"tr_{n}", 0)) for n, amount in enumerate(transfers)), fee=fee)
        for leg in planned(flow, amount=until - before, before=before, captured=captured).legs:
            assert leg.amount > 0
            taken[leg.target] = taken.get(leg.target, 0) + leg.amount
    assert taken == whole


@pytest.mark.parametrize(("currency", "amount"), [("KWD", 3_330), ("JPY", 3_333), ("ISK", 3_300)])
def test_a_part_is_of_whole_steps_of_its_currency(currency: str, amount: int) -> None:
    plan = planned(way(transfer(10_000, currency=currency)), Wish(reverse_transfer=True), amount=3_333)

    assert [leg.amount for leg in plan.legs] == [amount]


def test_never_more_than_what_is_left_and_not_claimed() -> None:
    plan = planned(way(transfer(9_000, reversed_=7_000), fee=1_000, refunded=0), claimed={"tr_1": 500, "fee_1": 900})

    assert [leg.amount for leg in plan.legs] == [1_500, 100]


def test_a_part_that_comes_to_nothing_is_no_leg() -> None:
    plan = planned(way(transfer(9_000), fee=1), amount=1)

    assert ([leg.target for leg in plan.legs], plan.flow) == (["tr_1"], ("tr_1", "fee_1"))


@pytest.mark.parametrize("claimed", [{}, {"fee_1": 30}])
@pytest.mark.parametrize("refunded", [0, 30])
def test_the_last_part_is_no_leg_and_no_refusal_where_rounding_gave_all_of_it_back_before(refunded: int, claimed: dict[str, int]) -> None:
    """99.00 of 100.00 had taken 29.7 of the fee of 0.30, and that is all of it."""
    first = planned(way(fee=30), FEE, amount=9_900)
    last = planned(way(fee=30, refunded=refunded), FEE, amount=100, before=9_900, claimed=claimed)

    assert [leg.amount for leg in first.legs] == [30]
    assert (last.refusal, last.legs, last.flow) == (None, (), ("fee_1",))


def test_a_share_in_what_came_back_is_refused_though_another_transfer_is_left() -> None:
    """The one that is left is so small that nothing of it belongs to this refund."""
    plan = planned(way(transfer(9_000, reversed_=9_000), transfer(1, name="tr_2")), Wish(reverse_transfer=True))

    assert (plan.refusal, plan.legs) == (Code.TRANSFER_REVERSED, ())


def test_a_part_that_was_withdrawn_in_between_may_leave_a_step_and_never_takes_more() -> None:
    """6, 52, the 6 withdrawn, 48: of 61 that were sent on, 60 come back."""
    wish, taken = Wish(reverse_transfer=True), []
    for amount, before, claimed in ((6, 0, 0), (52, 6, 4), (48, 52, 31)):
        [leg] = planned(way(transfer(61)), wish, amount=amount, before=before, captured=100, claimed={"tr_1": claimed}).legs
        taken.append(leg.amount)

    assert taken == [4, 31, 29]


@pytest.mark.parametrize(
    ("flow", "wish", "claimed", "code"),
    [
        (way(), Wish(reverse_transfer=True), {}, Code.NO_TRANSFER),
        (way(transfer()), Wish(refund_application_fee=True), {}, Code.NO_APPLICATION_FEE),
        (way(transfer(), transfer(name="tr_2", charge=None)), Wish(reverse_transfer=True), {}, Code.TRANSFER_UNCLEAR),
        (way(transfer(reversed_=9_000)), Wish(reverse_transfer=True), {}, Code.TRANSFER_REVERSED),
        (way(transfer(reversed_=8_000)), Wish(reverse_transfer=True), {"tr_1": 1_000}, Code.TRANSFER_REVERSED),
        (way(transfer(), fee=1_000, refunded=1_000), BOTH, {}, Code.FEE_RETURNED),
        (way(transfer(currency="XXX")), Wish(reverse_transfer=True), {}, Code.UNKNOWN_CURRENCY),
    ],
)
def test_what_makes_no_sense_is_refused_by_name(flow: MoneyFlow, wish: Wish, claimed: dict[str, int], code: Code) -> None:
    plan = planned(flow, wish, claimed=claimed)

    assert (plan.refusal, plan.legs) == (code, ())
    assert plan.why


@pytest.mark.parametrize(
    ("now", "claimed", "says"),
    [
        (way(transfer(9_000), fee=1_000), {}, None),
        (way(transfer(9_000, reversed_=6_300), fee=1_000), {}, None),
        (way(transfer(9_000, reversed_=6_301), fee=1_000), {}, "only $26.99 of tr_1 can still be taken back"),
        (way(transfer(9_000), fee=1_000), {"fee_1": 701}, "only $2.99 of fee_1 can still be taken back"),
        (way(transfer(9_000)), {}, "the way of the money changed: tr_1, fee_1 became tr_1"),
        (way(transfer(9_000), transfer(name="tr_2"), fee=1_000), {}, "the way of the money changed: tr_1, fee_1 became tr_1, tr_2, fee_1"),
        (way(transfer(9_000, currency="EUR"), fee=1_000), {}, "tr_1 is not what was approved"),
    ],
)
def test_what_was_approved_is_held_against_the_way_of_the_money_as_it_is(now: MoneyFlow, claimed: dict[str, int], says: str | None) -> None:
    plan = planned(way(transfer(9_000), fee=1_000))

    assert no_longer_fits(plan, now, BOTH, claimed) == says
