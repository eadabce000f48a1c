"""Legs: what is left of a transfer or a fee, the frozen request of a leg, and in what a receipt differs from it."""

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from refunds.marketplace import FeeState, LegKind, LegReceipt, LegRequest, TransferState, leg_differences
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
