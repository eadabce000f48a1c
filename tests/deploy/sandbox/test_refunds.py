"""What may be refunded, in which currency, how refunds move afterwards, and how lists page. Through the official SDK."""

from collections.abc import Callable
from typing import Any

import httpx
import pytest
import stripe

from deploy.sandbox.currency import printed

Pay = Callable[..., dict[str, Any]]


async def refund(client: stripe.StripeClient, intent: str, amount: int | None = None) -> stripe.Refund:
    params: Any = {"payment_intent": intent} if amount is None else {"payment_intent": intent, "amount": amount}
    return await client.v1.refunds.create_async(params)


async def refused(client: stripe.StripeClient, intent: str, amount: int | None = None) -> str:
    """The code of the refusal, or its text where Stripe gives no code."""
    with pytest.raises(stripe.InvalidRequestError) as caught:
        await refund(client, intent, amount)
    assert caught.value.error is not None
    return caught.value.error.code or str(caught.value.user_message)


async def test_field_30_the_ceiling_is_what_was_captured(client: stripe.StripeClient, pay: Pay):
    placed = pay(id="pi_r", amount=10000, captured=6000)
    assert (placed["payment_intent"]["amount_received"], placed["charge"]["amount_captured"]) == (6000, 6000)
    assert "greater than unrefunded amount on charge ($60.00)" in await refused(client, "pi_r", 7000)
    assert (await refund(client, "pi_r", 6000)).amount == 6000
    assert await refused(client, "pi_r", 1) == "charge_already_refunded"


@pytest.mark.parametrize("status", ["processing", "requires_payment_method", "requires_action", "canceled"])
async def test_a_payment_that_never_succeeded_has_nothing_to_refund(status: str, client: stripe.StripeClient, pay: Pay):
    assert pay(id="pi_r", status=status)["charge"] is None
    assert (await client.v1.payment_intents.retrieve_async("pi_r")).status == status
    assert "does not have a successful charge to refund" in await refused(client, "pi_r")


@pytest.mark.parametrize(
    ("currency", "amount", "text"),
    [
        ("usd", 3000, "$30.00"),
        ("usd", 123456789, "$1,234,567.89"),
        ("eur", 5, "€0.05"),
        ("jpy", 5000, "¥5,000"),
        ("kwd", 1230, "KWD1.230"),
        ("isk", 500, "ISK5"),
        ("huf", 12345, "HUF123.45"),
        ("twd", 100, "NT$1.00"),
    ],
)
def test_amounts_in_error_texts(currency: str, amount: int, text: str):
    assert printed(amount, currency).replace("\u00a0", "") == text


@pytest.mark.parametrize(("currency", "whole", "bad"), [("kwd", 12340, 1005), ("isk", 50000, 150), ("ugx", 50000, 199)])
async def test_field_39_currencies_whose_last_digits_must_be_zero(
    currency: str, whole: int, bad: int, client: stripe.StripeClient, pay: Pay
):
    pay(id="pi_r", amount=whole, currency=currency)
    assert await refused(client, "pi_r", bad) == "parameter_invalid_integer"
    assert (await refund(client, "pi_r", bad // 100 * 100)).currency == currency


@pytest.mark.parametrize("form", [{"amount": "0"}, {"amount": "-5"}, {"amount": "1.5"}, {"reason": "because"}, {"amount": ""}])
async def test_values_that_are_no_refund(form: dict[str, str], http: httpx.AsyncClient, sandbox: Any, pay: Pay):
    pay(id="pi_r")
    answer = await http.post("/v1/refunds", data={"payment_intent": "pi_r", **form})
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, next(iter(form)))
    assert sandbox.control("GET", "/truth?payment_intent=pi_r")["refunds"] == []


async def test_pending_refunds_count_and_failed_ones_give_back(client: stripe.StripeClient, sandbox: Any, pay: Pay):
    pay(id="pi_r", refund_outcome={"initial": "pending", "then": "failed", "after_ms": 60_000, "failure_reason": "declined"})
    made = await refund(client, "pi_r", 4000)
    charge = await client.v1.charges.retrieve_async("ch_r")
    assert (made.status, made.pending_reason, charge.amount_refunded) == ("pending", "processing", 4000)
    assert "($10.00)" in await refused(client, "pi_r", 1001)
    sandbox.control("POST", "/clock", {"advance_seconds": 61})
    failed = await client.v1.refunds.retrieve_async(made.id)
    charge = await client.v1.charges.retrieve_async("ch_r")
    assert (failed.status, failed.failure_reason, charge.amount_refunded) == ("failed", "declined", 0)
    assert isinstance(failed.failure_balance_transaction, str)
    row = await client.v1.balance_transactions.retrieve_async(failed.failure_balance_transaction)
    assert (row.type, row.amount, row.source) == ("refund_failure", 5594, made.id)
    kinds = [event.type for event in (await client.v1.events.list_async({"limit": 100})).data]
    assert kinds == ["refund.failed", "refund.updated", "charge.updated", "charge.refunded", "refund.created", "payment_intent.succeeded"]


@pytest.mark.parametrize(
    ("path", "counted"),
    [
        (["failed"], 0),
        (["failed", "succeeded"], 5000),
        (["pending", "requires_action", "canceled"], 0),
        (["pending", "succeeded"], 5000),
    ],
)
async def test_a_refund_can_be_moved_by_hand(
    path: list[str], counted: int, http: httpx.AsyncClient, sandbox: Any, client: stripe.StripeClient, pay: Pay
):
    pay(id="pi_r")
    made = await refund(client, "pi_r")
    for status in path:
        sandbox.control("POST", f"/refunds/{made.id}", {"status": status})
    shown = (await http.get(f"/v1/refunds/{made.id}")).json()
    charge = (await http.get("/v1/charges/ch_r")).json()
    assert (shown["status"], charge["amount_refunded"], charge["refunded"]) == (path[-1], counted, counted == 5000)
    assert ("failure_reason" in shown, "pending_reason" in shown) == (path[-1] in ("failed", "canceled"), False)


async def test_only_a_refund_that_waits_for_the_customer_can_be_cancelled(client: stripe.StripeClient, pay: Pay):
    pay(id="pi_r", refund_outcome={"initial": "requires_action"})
    made = await refund(client, "pi_r")
    cancelled = await client.v1.refunds.cancel_async(made.id)
    charge = await client.v1.charges.retrieve_async("ch_r")
    assert (cancelled.status, charge.amount_refunded) == ("canceled", 0)


async def test_field_16_too_little_balance_makes_card_refunds_pending(client: stripe.StripeClient, sandbox: Any, pay: Pay):
    for name in ("pi_a", "pi_b"):
        pay(id=name)
    sandbox.control("PUT", "/balance", {"currency": "usd", "available": 6000})
    paid, waiting = await refund(client, "pi_a"), await refund(client, "pi_b")
    assert (paid.status, waiting.status, waiting.pending_reason) == ("succeeded", "pending", "insufficient_funds")
    assert waiting.balance_transaction is None
    sandbox.control("PUT", "/balance", {"currency": "usd", "available": 5000})
    later = await client.v1.refunds.retrieve_async(waiting.id)
    balance = await client.v1.balance.retrieve_async()
    assert (later.status, {row.currency: row.amount for row in balance.available}["usd"]) == ("succeeded", 0)


async def test_too_little_balance_fails_the_refund_of_another_method(client: stripe.StripeClient, sandbox: Any, pay: Pay):
    pay(id="pi_r", payment_method_type="us_bank_account")
    sandbox.control("PUT", "/balance", {"currency": "usd", "available": 100})
    made = await refund(client, "pi_r")
    charge = await client.v1.charges.retrieve_async("ch_r")
    assert (made.status, made.failure_reason, charge.amount_refunded) == ("failed", "insufficient_funds", 0)


async def test_cancelling_releases_the_whole_authorisation(client: stripe.StripeClient, sandbox: Any, pay: Pay):
    pay(id="pi_r", captured=0)
    for _ in range(2):
        intent = await client.v1.payment_intents.cancel_async("pi_r", {}, {"idempotency_key": "c"})
        assert (intent.status, intent.amount_capturable, intent.amount_received) == ("canceled", 0, 0)
    with pytest.raises(stripe.InvalidRequestError) as caught:
        await client.v1.payment_intents.cancel_async("pi_r", {}, {"idempotency_key": "d"})
    assert caught.value.error is not None
    assert caught.value.error.code == "payment_intent_unexpected_state"
    truth = sandbox.control("GET", "/truth?payment_intent=pi_r")
    assert (truth["refunds"], [request["answered"] for request in truth["cancel_requests"]]) == ([], [200, 200, 400])


async def test_capturing_a_part_releases_the_rest(client: stripe.StripeClient, pay: Pay):
    pay(id="pi_r", amount=10000, captured=0)
    intent = await client.v1.payment_intents.capture_async("pi_r", {"amount_to_capture": 6000})
    charge = await client.v1.charges.retrieve_async("ch_r")
    assert (intent.status, intent.amount, intent.amount_received, intent.amount_capturable) == ("succeeded", 10000, 6000, 0)
    assert (charge.amount_captured, charge.amount_refunded, charge.captured) == (6000, 0, True)
    assert (await refund(client, "pi_r")).amount == 6000


async def test_a_declined_card_leaves_a_failed_charge(client: stripe.StripeClient):
    with pytest.raises(stripe.CardError) as caught:
        await client.v1.payment_intents.create_async(
            {"amount": 100, "currency": "usd", "payment_method": "pm_card_chargeDeclined", "confirm": True}
        )
    assert caught.value.error is not None
    assert (caught.value.error.code, caught.value.error.decline_code) == ("card_declined", "generic_decline")
    [charge] = (await client.v1.charges.list_async()).data
    assert (charge.status, charge.paid, charge.failure_code) == ("failed", False, "card_declined")


async def test_risk_is_normal_unless_it_is_set(client: stripe.StripeClient, pay: Pay):
    pay(id="pi_a")
    pay(id="pi_b", risk_level="elevated", risk_score=71)
    found = []
    for name in ("pi_a", "pi_b"):
        intent = await client.v1.payment_intents.retrieve_async(name, {"expand": ["latest_charge"]})
        assert isinstance(intent.latest_charge, stripe.Charge)
        assert intent.latest_charge.outcome is not None
        found.append((intent.latest_charge.outcome.risk_level, intent.latest_charge.outcome.risk_score))
    assert found == [("normal", 12), ("elevated", 71)]


async def test_metadata_is_merged_and_limited(client: stripe.StripeClient, http: httpx.AsyncClient, pay: Pay):
    pay(id="pi_r")
    made = await client.v1.refunds.create_async({"payment_intent": "pi_r", "metadata": {"a": "1", "b": "2"}})
    updated = await client.v1.refunds.update_async(made.id, {"metadata": {"b": "", "c": "3"}})
    assert updated.to_dict()["metadata"] == {"a": "1", "c": "3"}
    for name, value in (("k" * 41, "v"), ("k", "v" * 501)):
        answer = await http.post(f"/v1/refunds/{made.id}", data={f"metadata[{name}]": value})
        assert (answer.status_code, answer.json()["error"]["param"]) == (400, f"metadata[{name}]")


async def test_out_of_band_refunds_carry_nothing_of_ours(client: stripe.StripeClient, sandbox: Any, pay: Pay):
    pay(id="pi_r")
    made = sandbox.control("POST", "/refunds", {"payment_intent": "pi_r", "amount": 1200})
    truth = sandbox.control("GET", "/truth?payment_intent=pi_r")
    assert (made["metadata"], truth["create_requests"], [item["id"] for item in truth["refunds"]]) == ({}, [], [made["id"]])
    assert "($38.00)" in await refused(client, "pi_r", 3801)


async def test_lists_page_both_ways_and_filter(client: stripe.StripeClient, sandbox: Any, pay: Pay):
    pay(id="pi_r")
    pay(id="pi_other")
    await refund(client, "pi_other", 1)
    ids = [(await refund(client, "pi_r", amount)).id for amount in (1, 2, 3, 4, 5)][::-1]

    async def page(**cursor: Any) -> Any:
        params: Any = {"payment_intent": "pi_r", "limit": 2, **cursor}
        return await client.v1.refunds.list_async(params)

    first = await page()
    second = await page(starting_after=ids[1])
    last = await page(starting_after=ids[3])
    back = await page(ending_before=ids[3])
    pages = [([item.id for item in page.data], page.has_more) for page in (first, second, last, back)]
    assert pages == [(ids[:2], True), (ids[2:4], True), (ids[4:], False), (ids[1:3], True)]
    assert [item.id async for item in first.auto_paging_iter()] == ids
    sandbox.control("POST", "/clock", {"advance_seconds": 100})
    late = await refund(client, "pi_r", 6)
    newer = await client.v1.refunds.list_async({"created": {"gte": late.created}})
    older = await client.v1.refunds.list_async({"payment_intent": "pi_r", "created": {"lt": late.created}})
    assert ([item.id for item in newer.data], [item.id for item in older.data]) == ([late.id], ids)


async def test_expansion_reaches_four_levels_and_names_what_it_cannot(client: stripe.StripeClient, http: httpx.AsyncClient, pay: Pay):
    pay(id="pi_r")
    await refund(client, "pi_r", 100)
    deep = (await http.get("/v1/payment_intents/pi_r", params={"expand[]": "latest_charge.refunds.data.balance_transaction"})).json()
    assert deep["latest_charge"]["refunds"]["data"][0]["balance_transaction"]["type"] == "refund"
    listed = (await http.get("/v1/refunds", params={"expand[]": "data.charge"})).json()
    assert listed["data"][0]["charge"]["id"] == "ch_r"
    answer = await http.get("/v1/refunds", params={"expand[]": "data.colour"})
    assert (answer.status_code, answer.json()["error"]["message"]) == (400, "This property cannot be expanded (data.colour).")


async def test_test_cards_refund_late(client: stripe.StripeClient, sandbox: Any):
    ends = []
    for card in ("pm_card_pendingRefund", "pm_card_refundFail"):
        intent = await client.v1.payment_intents.create_async({"amount": 900, "currency": "usd", "payment_method": card, "confirm": True})
        made = await refund(client, intent.id)
        sandbox.control("POST", "/clock", {"advance_seconds": 5})
        ends.append((made.status, (await client.v1.refunds.retrieve_async(made.id)).status))
    assert ends == [("pending", "succeeded"), ("succeeded", "failed")]


async def test_a_failed_expansion_undoes_the_work(http: httpx.AsyncClient, sandbox: Any, pay: Pay):
    pay(id="pi_r")
    answer = await http.post("/v1/refunds", data={"payment_intent": "pi_r", "expand[]": "colour"})
    truth = sandbox.control("GET", "/truth?payment_intent=pi_r")
    assert (answer.status_code, truth["refunds"], truth["create_requests"][0]["answered"]) == (400, [], 400)
    assert (await http.get("/v1/charges/ch_r")).json()["amount_refunded"] == 0
