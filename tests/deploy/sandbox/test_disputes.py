"""Disputes opened and moved through the control API, and what they do to refunds."""

from collections.abc import Callable
from typing import Any

import pytest
import stripe

from deploy.sandbox.disputes import CLOSED, STATUSES

MONEY = {"dispute": -1, "dispute_reversal": 1}


@pytest.mark.parametrize("status", sorted(STATUSES))
async def test_each_status_blocks_or_allows_refunds_and_agrees_with_its_money(
    status: str, client: stripe.StripeClient, sandbox: Any, pay: Callable[..., Any]
):
    pay(id="pi_d", amount=6000)
    opened = sandbox.control("POST", "/disputes", {"payment_intent": "pi_d", "status": status})
    [listed] = (await client.v1.disputes.list_async({"payment_intent": "pi_d"})).data
    refundable = status.startswith("warning_") or status in ("won", "prevented")
    assert (listed.id, listed.status, listed.is_charge_refundable) == (opened["id"], status, refundable)
    standing = sum(MONEY[row.reporting_category] for row in listed.balance_transactions)
    assert standing == (0 if refundable else -1)
    assert listed.payment_method_details is not None and listed.payment_method_details.card is not None
    assert listed.payment_method_details.card.case_type == ("inquiry" if status.startswith("warning_") else "chargeback")
    if refundable:
        assert (await client.v1.refunds.create_async({"payment_intent": "pi_d", "amount": 1})).status == "succeeded"
    else:
        with pytest.raises(stripe.InvalidRequestError) as caught:
            await client.v1.refunds.create_async({"payment_intent": "pi_d", "amount": 1})
        assert caught.value.error is not None and caught.value.error.code == "charge_disputed"


async def test_an_inquiry_that_becomes_a_chargeback_takes_the_money_once(
    client: stripe.StripeClient, sandbox: Any, pay: Callable[..., Any]
):
    pay(id="pi_d", amount=6000)
    opened = sandbox.control("POST", "/disputes", {"payment_intent": "pi_d", "status": "warning_needs_response"})
    for status in ("needs_response", "under_review", "won", "lost"):
        sandbox.control("POST", f"/disputes/{opened['id']}", {"status": status})
    dispute = await client.v1.disputes.retrieve_async(opened["id"])
    rows = [row.reporting_category for row in dispute.balance_transactions]
    assert rows == ["dispute", "dispute_reversal", "dispute"]


@pytest.mark.parametrize(("text", "status"), [("winning_evidence", "won"), ("losing_evidence", "lost")])
async def test_evidence_decides_after_a_while(text: str, status: str, client: stripe.StripeClient, sandbox: Any, pay: Callable[..., Any]):
    pay(id="pi_d")
    opened = sandbox.control("POST", "/disputes", {"payment_intent": "pi_d"})
    staged = await client.v1.disputes.update_async(opened["id"], {"evidence": {"receipt": "file_1"}, "submit": False})
    assert (staged.status, staged.evidence_details.submission_count) == ("needs_response", 0)
    await client.v1.disputes.update_async(opened["id"], {"evidence": {"uncategorized_text": text}})
    sandbox.control("POST", "/clock", {"advance_seconds": 2})
    decided = await client.v1.disputes.retrieve_async(opened["id"])
    assert (decided.status, decided.status in CLOSED, decided.evidence.receipt) == (status, True, "file_1")


@pytest.mark.parametrize(("opened_as", "closed_as"), [("needs_response", "lost"), ("warning_needs_response", "warning_closed")])
async def test_closing_accepts_it(opened_as: str, closed_as: str, client: stripe.StripeClient, sandbox: Any, pay: Callable[..., Any]):
    pay(id="pi_d")
    opened = sandbox.control("POST", "/disputes", {"payment_intent": "pi_d", "status": opened_as})
    assert (await client.v1.disputes.close_async(opened["id"])).status == closed_as
    charge = await client.v1.charges.retrieve_async("ch_d")
    assert (charge.disputed, charge.refunded) == (True, False)
