"""Legs in the terminal: shown with the refund, and settled one by one."""

from typing import Any

import pytest

from tests.cli.conftest import FakeApi, Runner, refund

ID = refund()["id"]
LEG = {
    "id": "leg_01m8kwhm2paw1vv6wkbf2pdd9j",
    "kind": "reverse_transfer",
    "operation": "op_1",
    "target": "tr_1",
    "account": "acct_seller",
    "amount": 3_000,
    "currency": "USD",
    "amount_text": "$30.00",
    "state": "parked",
    "state_since": "2026-09-01T10:00:00Z",
    "due_at": None,
    "code": "LEG_REFUSED",
    "meaning": "The processor definitely refused this leg.",
    "remedy": "Settle it.",
    "detail": "the processor answered balance_insufficient",
    "reversal_id": None,
    "attempts": [],
}
PATH = f"/v1/refunds/{ID}/legs/{LEG['id']}/settlement"


def with_leg(**changed: Any) -> dict[str, Any]:
    found = refund(status="succeeded")
    return found | {"processor": {"name": "stripe", "payment_id": "pi_1", "operations": [], "legs": [LEG | changed]}}


@pytest.fixture
def parked(api: FakeApi) -> FakeApi:
    """A refund that succeeded, and whose leg waits for a person."""
    api.on("GET", f"/v1/refunds/{ID}", (200, with_leg()))
    api.on("POST", PATH, (200, {"waits_for": None, "refund": with_leg(state="done")}))
    return api


def test_show_lists_the_legs(parked: FakeApi, refunds: Runner) -> None:
    ran = refunds("show", ID)

    assert ran.code == 0
    assert all(word in ran.out for word in ("Legs", "tr_1", "acct_seller", "parked", "balance_insufficient"))


def test_terms_say_what_of_a_marketplace_they_leave_where_it_is(api: FakeApi, refunds: Runner) -> None:
    quoted = refund()
    names = {"transfer": "tr_1", "application_fee": "fee_1"}
    fee_back = {"kind": "refund_fee", "target": "fee_1", "account": "acct_seller", "amount_text": "$3.00"}
    api.on("GET", f"/v1/refunds/{ID}", (200, quoted | {"context": names}))
    neither = refunds("show", ID).out
    api.on("GET", f"/v1/refunds/{ID}", (200, quoted | {"context": names, "terms": quoted["terms"] | {"legs": [fee_back]}}))
    one = refunds("show", ID).out

    assert "any of tr_1 back from the connected account" in neither and "any of the fee fee_1 back to it" in neither
    assert "any of tr_1 back from the connected account" in one and "any of the fee" not in one


def test_a_leg_is_settled_by_what_was_made(parked: FakeApi, refunds: Runner) -> None:
    ran = refunds("settle-leg", ID, LEG["id"], "--reversed", "trr_1", "--yes")

    assert (ran.code, ran.err) == (0, f"{LEG['id']} is done.\n")
    assert "$30.00 of tr_1 back from acct_seller" in ran.out
    sent = {"outcome": "reversed", "reversal_id": "trr_1", "evidence": "trr_1 in the processor's dashboard"}
    assert parked.sent("POST") == [(PATH, sent)]


def test_not_reversed_needs_evidence_and_a_second_person(parked: FakeApi, refunds: Runner) -> None:
    parked.on("POST", PATH, (202, {"waits_for": "a second person who says the same", "refund": with_leg()}))

    assert refunds("settle-leg", ID, LEG["id"], "--not-reversed", "--yes").code == 2
    assert refunds("settle-leg", ID, LEG["id"], "--yes").code == 2
    assert refunds("settle-leg", ID, LEG["id"], "--reversed", "trr_1", "--not-reversed", "--yes").code == 2
    assert refunds("settle-leg", ID, "leg_other", "--reversed", "trr_1", "--yes").code == 2
    assert parked.sent("POST") == []
    ran = refunds("settle-leg", ID, LEG["id"], "--not-reversed", "--evidence", "in no list", "--yes")

    assert "a second person who says the same" in ran.err
    assert parked.sent("POST") == [(PATH, {"outcome": "not_reversed", "evidence": "in no list"})]


def test_revise_asks_for_a_leg_or_for_none(api: FakeApi, refunds: Runner) -> None:
    api.on("GET", f"/v1/refunds/{ID}", (200, refund()))
    api.on("POST", f"/v1/refunds/{ID}/revisions", (200, refund()))

    ran = refunds("revise", ID, "--reverse-transfer", "--keep-fee", "--yes")

    assert "New terms: taking the transfer back, not giving the platform's fee back." in ran.err
    sent = {"terms_hash": refund()["terms_hash"], "reverse_transfer": True, "refund_application_fee": False}
    assert api.sent("POST") == [(f"/v1/refunds/{ID}/revisions", sent)]
