"""Shapes of capture as Stripe's API shows them: in parts, above the authorised amount, by one of several charges, and without a PaymentIntent."""

from collections.abc import Callable
from typing import Any

import httpx
import pytest
import stripe

Pay = Callable[..., dict[str, Any]]
MULTI: Any = {"card": {"request_multicapture": "if_available"}}
OVER: Any = {"card": {"request_overcapture": "if_available"}}


async def held(client: stripe.StripeClient, options: Any = None) -> str:
    given: Any = {"amount": 10_000, "currency": "usd", "payment_method": "pm_card_visa", "confirm": True, "capture_method": "manual"}
    return (await client.v1.payment_intents.create_async(given | ({"payment_method_options": options} if options else {}))).id


async def charge_of(client: stripe.StripeClient, intent: str) -> stripe.Charge:
    found = await client.v1.payment_intents.retrieve_async(intent, {"expand": ["latest_charge"]})
    assert isinstance(found.latest_charge, stripe.Charge)
    return found.latest_charge


async def events(client: stripe.StripeClient) -> list[str]:
    """The events, oldest first."""
    return [event.type for event in reversed((await client.v1.events.list_async({"limit": 100})).data)]


async def test_a_part_is_captured_and_no_refund_field_shows_the_rest(client: stripe.StripeClient):
    intent = await held(client)
    captured = await client.v1.payment_intents.capture_async(intent, {"amount_to_capture": 6_000})
    charge = await charge_of(client, intent)

    assert (captured.status, captured.amount_received, captured.amount_capturable) == ("succeeded", 6_000, 0)
    assert (charge.amount, charge.amount_captured, charge.amount_refunded, charge.refunded) == (10_000, 6_000, 0, False)
    assert (await client.v1.refunds.list_async({"payment_intent": intent})).data == []
    [row] = (await client.v1.balance_transactions.list_async({"source": charge.id})).data
    assert (row.type, row.amount, row.currency, row.exchange_rate) == ("charge", 8_391, "cad", 1.3985)


async def test_a_cancelled_authorisation_is_no_refund(client: stripe.StripeClient):
    """Since 2025-03-31.basil: no Refund, `amount_captured` 0, `amount_refunded` and `refunded` untouched, and no `charge.refunded`."""
    intent = await held(client)
    await client.v1.payment_intents.cancel_async(intent)
    charge = await charge_of(client, intent)

    assert (charge.amount_captured, charge.amount_refunded, charge.refunded, charge.captured) == (0, 0, False, False)
    assert await events(client) == ["charge.expired", "payment_intent.canceled"]
    assert (await client.v1.refunds.list_async({"payment_intent": intent})).data == []


async def test_several_captures_until_the_final_one(client: stripe.StripeClient):
    intent = await held(client, MULTI)
    steps: list[Any] = []
    for amount, final in ((3_000, False), (2_500, False), (1_500, True)):
        found = await client.v1.payment_intents.capture_async(intent, {"amount_to_capture": amount, "final_capture": final})
        steps.append((found.status, found.amount_received, found.amount_capturable))
    charge = await charge_of(client, intent)

    assert steps == [("requires_capture", 3_000, 7_000), ("requires_capture", 5_500, 4_500), ("succeeded", 7_000, 0)]
    assert (charge.amount_captured, charge.amount_refunded) == (7_000, 0)
    assert len((await client.v1.balance_transactions.list_async({"source": charge.id})).data) == 3
    assert await events(client) == ["charge.updated", "charge.updated", "payment_intent.succeeded"]


async def test_between_captures_what_was_captured_can_be_refunded_and_the_charge_is_not_refunded(client: stripe.StripeClient):
    intent = await held(client, MULTI)
    await client.v1.payment_intents.capture_async(intent, {"amount_to_capture": 3_000, "final_capture": False})
    await client.v1.refunds.create_async({"payment_intent": intent, "amount": 3_000})
    between = await charge_of(client, intent)
    with pytest.raises(stripe.InvalidRequestError):
        await client.v1.refunds.create_async({"payment_intent": intent, "amount": 1})
    cancelled = await client.v1.payment_intents.cancel_async(intent)
    after = await charge_of(client, intent)

    assert (between.amount_captured, between.amount_refunded, between.refunded) == (3_000, 3_000, False)
    assert (cancelled.status, cancelled.amount_received, cancelled.amount_capturable) == ("succeeded", 3_000, 0)
    assert after.refunded is True


async def test_what_was_not_asked_for_is_not_available(client: stripe.StripeClient):
    intent = await held(client)
    for params in ({"amount_to_capture": 100, "final_capture": False}, {"amount_to_capture": 10_001}):
        with pytest.raises(stripe.InvalidRequestError):
            await client.v1.payment_intents.capture_async(intent, params)
    assert (await client.v1.payment_intents.retrieve_async(intent)).amount_received == 0


@pytest.mark.parametrize(("asked", "taken"), [(11_500, 11_500), (12_000, 12_000), (12_001, None)])
async def test_more_than_was_authorised(client: stripe.StripeClient, asked: int, taken: int | None):
    intent = await held(client, OVER)
    if taken is None:
        with pytest.raises(stripe.InvalidRequestError):
            await client.v1.payment_intents.capture_async(intent, {"amount_to_capture": asked})
        return
    found = await client.v1.payment_intents.capture_async(intent, {"amount_to_capture": asked})
    charge = await charge_of(client, intent)
    whole = await client.v1.refunds.create_async({"payment_intent": intent})

    assert (found.amount, found.amount_received, charge.amount, charge.amount_captured) == (10_000, taken, 10_000, taken)
    assert whole.amount == taken


async def test_several_charges_and_the_latest_is_not_the_one_that_took_the_money(client: stripe.StripeClient, pay: Pay):
    placed = pay(id="pi_a", failed_before=2, failed_after=1)
    found = await client.v1.payment_intents.retrieve_async("pi_a")
    charges = (await client.v1.charges.list_async({"payment_intent": "pi_a"})).data
    refund = await client.v1.refunds.create_async({"payment_intent": "pi_a", "amount": 700})

    assert (placed["charge"]["id"], found.latest_charge, found.status) == ("ch_a", "ch_a_later1", "succeeded")
    assert [(charge.id, charge.status) for charge in charges] == [
        ("ch_a_later1", "failed"),
        ("ch_a", "succeeded"),
        ("ch_a_failed2", "failed"),
        ("ch_a_failed1", "failed"),
    ]
    assert refund.charge == "ch_a"


async def test_a_charge_without_a_payment_intent(client: stripe.StripeClient, sandbox: Any, pay: Pay):
    assert pay(legacy=True, charge="ch_old", amount=8_000)["payment_intent"] is None
    made = await client.v1.refunds.create_async({"charge": "ch_old", "amount": 3_000})
    sandbox.control("POST", "/disputes", {"charge": "ch_old", "status": "won"})

    assert (made.charge, made.payment_intent) == ("ch_old", None)
    assert [refund.id for refund in (await client.v1.refunds.list_async({"charge": "ch_old"})).data] == [made.id]
    assert [dispute.status for dispute in (await client.v1.disputes.list_async({"charge": "ch_old"})).data] == ["won"]
    truth = sandbox.control("GET", "/truth?payment_intent=ch_old")
    assert ([refund["id"] for refund in truth["refunds"]], truth["create_requests"][0]["made"]) == ([made.id], made.id)


async def test_faults_find_a_charge_without_a_payment_intent(client: stripe.StripeClient, sandbox: Any, pay: Pay):
    pay(legacy=True, charge="ch_old")
    pay(legacy=True, charge="ch_older")
    sandbox.control("POST", "/faults", {"on": "refund.create", "match": {"payment_intent": "ch_old"}, "fault": {"kind": "lose_request"}})
    await client.v1.refunds.create_async({"charge": "ch_older", "amount": 1})
    with pytest.raises(stripe.APIConnectionError):
        await client.v1.refunds.create_async({"charge": "ch_old", "amount": 1})


@pytest.mark.parametrize(
    "wrong",
    [
        {"captured": 10_001},
        {"captured": 12_001, "overcapture": True},
        {"captures": [9_000, 1_001]},
        {"captures": [-1]},
        {"captures": [100.0]},
        {"captured": 0, "failed_after": 1},
        {"captures": [100], "open": True, "failed_after": 1},
        {"account": "acct_nobody"},
        {"transfer_data": {"destination": "acct_nobody"}},
    ],
)
async def test_a_payment_that_cannot_be_is_refused(http: httpx.AsyncClient, sandbox: Any, wrong: dict[str, Any]):
    answer = await http.post("/_sandbox/payments", json={"amount": 10_000, "currency": "usd", **wrong})
    assert (answer.status_code, bool(answer.json()["error"])) == (400, True)
