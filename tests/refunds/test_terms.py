"""Exact terms: every field is in the hash, and the hash survives being stored."""

import json
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from refunds.marketplace import LegKind
from refunds.reasons import Reason
from refunds.terms import LegTerms, OperationKind, Terms, canonical_hash

TERMS = Terms(
    refund="rf_1",
    revision=1,
    operation=OperationKind.REFUND,
    processor="stripe",
    processor_account="acct_1",
    mode="test",
    api_version="2026-08-26.dahlia",
    order="or_1",
    order_version=3,
    payment="pay_1",
    processor_payment="pi_1",
    amount=3_000,
    amount_text="$30.00",
    currency="USD",
    full=False,
    reason=Reason.PRODUCT_ISSUE,
    processor_reason="requested_by_customer",
    policy_version=7,
    expires_at=datetime(2026, 9, 11, 12, tzinfo=UTC),
)

OTHER: dict[str, Any] = {
    "refund": "rf_2",
    "revision": 2,
    "operation": OperationKind.RELEASE,
    "processor": "other",
    "processor_account": "acct_2",
    "mode": "live",
    "api_version": "2027-01-01.next",
    "order": "or_2",
    "order_version": 4,
    "payment": "pay_2",
    "processor_payment": "pi_2",
    "amount": 3_001,
    "amount_text": "$30.01",
    "currency": "EUR",
    "full": True,
    "destination": "bank_account",
    "reverse_transfer": True,
    "refund_application_fee": True,
    "legs": (LegTerms(kind=LegKind.REVERSE_TRANSFER, target="tr_1", account="acct_1", amount=1, amount_text="$0.01", currency="USD"),),
    "flow": ("tr_1",),
    "reason": None,
    "processor_reason": None,
    "policy_version": 8,
    "expires_at": TERMS.expires_at + timedelta(microseconds=1),
}


@pytest.mark.parametrize("field", list(Terms.model_fields))
def test_any_field_changed_is_another_hash(field: str) -> None:
    assert TERMS.model_copy(update={field: OTHER[field]}).hash != TERMS.hash


LEG = {"kind": LegKind.REVERSE_TRANSFER, "target": "tr_1", "account": "acct_1", "amount": 1, "amount_text": "$0.01", "currency": "USD"}


@pytest.mark.parametrize(
    ("field", "other"),
    [
        ("kind", LegKind.REFUND_FEE),
        ("target", "tr_2"),
        ("account", "acct_2"),
        ("amount", 2),
        ("amount_text", "$0.02"),
        ("currency", "EUR"),
    ],
)
def test_anything_about_a_leg_changed_is_another_hash(field: str, other: Any) -> None:
    before, after = (TERMS.model_copy(update={"legs": (LegTerms(**leg),)}) for leg in (LEG, LEG | {field: other}))
    assert before.hash != after.hash
    assert Terms.from_stored(before.canonical()) == before


def test_the_hash_is_fixed_for_ever() -> None:
    assert TERMS.hash == canonical_hash(json.loads(json.dumps(TERMS.canonical())))
    assert TERMS.hash == "d361f5677e0d6c00c9fd2483c93b3d5a3dd947c486845c8b77bdcef44d412307"


def test_what_was_stored_comes_back_the_same() -> None:
    stored = json.loads(json.dumps(TERMS.canonical(), sort_keys=True))
    back = Terms.from_stored(stored)
    assert back == TERMS
    assert back.hash == TERMS.hash


def test_the_same_instant_in_another_zone_is_the_same_terms() -> None:
    elsewhere = TERMS.expires_at.astimezone(timezone(timedelta(hours=9)))
    assert TERMS.model_copy(update={"expires_at": elsewhere}).hash == TERMS.hash


@given(st.integers(1, 10**11), st.text(min_size=1, max_size=20), st.booleans())
def test_round_trip_for_any_content(amount: int, text: str, full: bool) -> None:
    terms = TERMS.model_copy(update={"amount": amount, "amount_text": text, "full": full})
    assert Terms.from_stored(json.loads(json.dumps(terms.canonical()))).hash == terms.hash


@pytest.mark.parametrize(
    ("field", "value"), [("amount", "3000"), ("amount", 30.5), ("amount", True), ("operation", "payout"), ("extra", 1)]
)
def test_stored_terms_that_are_not_terms_are_refused(field: str, value: object) -> None:
    with pytest.raises(ValidationError, match=field):
        Terms.from_stored(TERMS.canonical() | {field: value})


def test_terms_cannot_be_changed() -> None:
    with pytest.raises(ValidationError, match="frozen"):
        TERMS.amount = 1
