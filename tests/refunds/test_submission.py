"""The frozen request and its key."""

from datetime import UTC, datetime
from typing import Any

import pytest

from refunds.submission import freeze, idempotency_key
from refunds.terms import OperationKind, Terms


def terms(**changed: Any) -> Terms:
    given: dict[str, Any] = {
        "refund": "rf_1",
        "revision": 1,
        "operation": OperationKind.REFUND,
        "processor": "stripe",
        "processor_account": "acct_1",
        "mode": "test",
        "api_version": "2026-08-26.dahlia",
        "order": "or_1",
        "order_version": 1,
        "payment": "pay_1",
        "processor_payment": "pi_1",
        "amount": 3_000,
        "amount_text": "$30.00",
        "currency": "USD",
        "full": False,
        "reason": None,
        "processor_reason": None,
        "policy_version": 1,
        "expires_at": datetime(2026, 9, 11, tzinfo=UTC),
    }
    return Terms(**given | changed)


def test_field_1_the_key_is_the_operations_and_not_the_amounts() -> None:
    first, again, second = freeze(terms(), "op_1"), freeze(terms(), "op_1"), freeze(terms(refund="rf_2"), "op_2")
    assert first == again
    assert first.idempotency_key != second.idempotency_key
    assert freeze(terms(amount=1, reason=None, revision=9), "op_1").idempotency_key == first.idempotency_key


def test_field_3_kinds_and_modes_never_share_a_key() -> None:
    keys = {idempotency_key(kind, mode, "op_1") for kind in ("refund", "release", "reverse_transfer") for mode in ("test", "live")}
    assert len(keys) == 6
    for key in keys:
        assert len(key) <= 255
        assert all(33 <= ord(c) < 127 for c in key)


def test_field_38_an_absent_reason_is_left_out() -> None:
    assert "reason" not in freeze(terms(), "op_1").params
    assert freeze(terms(processor_reason="duplicate"), "op_1").params["reason"] == "duplicate"


def test_field_37_what_belongs_to_a_leg_is_never_a_parameter_of_the_refund() -> None:
    for wish in ({}, {"reverse_transfer": True, "refund_application_fee": True}):
        assert set(freeze(terms(**wish), "op_1").params) == {"payment_intent", "amount", "metadata"}


@pytest.mark.parametrize(("payment", "name"), [("pi_1", "payment_intent"), ("ch_1", "charge"), ("py_1", "charge")])
def test_a_payment_is_named_as_what_it_is(payment: str, name: str) -> None:
    params = freeze(terms(processor_payment=payment), "op_1").params
    assert params[name] == payment
    assert len({"payment_intent", "charge"} & set(params)) == 1


def test_field_53_metadata_is_ids_only_and_small() -> None:
    metadata = freeze(terms(amount_text="x" * 20_000), "op_1").params["metadata"]
    assert set(metadata.values()) == {"op_1", "rf_1", terms(amount_text="x" * 20_000).hash}
    assert all(len(k) <= 40 and len(v) <= 500 for k, v in metadata.items())


def test_field_28_a_release_sends_no_amount() -> None:
    released = freeze(terms(operation=OperationKind.RELEASE), "op_1")
    assert (released.kind, released.params, released.amount) == ("release", {}, 3_000)
