"""Every shape of capture, from the reading through the quote and the reservation to the last unit sent: the ceiling is what was captured and is still there."""

import itertools
import json
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest

from refunds.orders import Order
from store import decisions, orders
from tests.activities.shop import LONG_AGO, Shop

_numbers = itertools.count(1)
AUTHORISED = 10_000


@dataclass(frozen=True)
class Shape:
    """A payment of which $100.00 were authorised, as it is placed at the sandbox, and what was captured of it."""

    placed: dict[str, Any]
    captured: int
    by_charge: bool = False


SHAPES = {
    "whole": Shape({}, 10_000),
    "part, and the rest released": Shape({"captured": 6_000}, 6_000),
    "one unit": Shape({"captured": 1}, 1),
    "above what was authorised": Shape({"captured": 11_500, "overcapture": True}, 11_500),
    "several captures, closed short": Shape({"captures": [3_000, 2_500]}, 5_500),
    "several captures, still open": Shape({"captures": [3_000, 2_500], "open": True}, 5_500),
    "several captures of everything": Shape({"captures": [3_000, 2_500, 4_500]}, 10_000),
    "after two failed attempts": Shape({"failed_before": 2}, 10_000),
    "the latest charge is one that failed": Shape({"captured": 7_000, "failed_before": 1, "failed_after": 1}, 7_000),
    "known by its charge": Shape({"captured": 6_000}, 6_000, by_charge=True),
    "a charge without a PaymentIntent": Shape({"legacy": True, "captured": 8_000}, 8_000, by_charge=True),
}


async def paid(shop: Shop, shape: Shape) -> str:
    """Place it, with the order of what was authorised; returns the id that the order knows it by."""
    number = next(_numbers)
    ids = {"id": f"pi_cap{number}", "charge": f"ch_cap{number}"}
    await shop.control("POST", "/payments", {"amount": AUTHORISED, "currency": "usd"} | ids | shape.placed)
    known = ids["charge" if shape.by_charge else "id"]
    await shop.ordered(known, AUTHORISED)
    return known


async def quoted(shop: Shop, payment: str, amount: int | None) -> tuple[str, tuple[str, str | None]]:
    refund_id = await shop.received(payment, amount)
    await shop.prepared(refund_id)
    return refund_id, await shop.ended(refund_id)


async def payment_facts(shop: Shop, refund_id: str) -> dict[str, Any]:
    [row] = await shop.query("SELECT facts->'payment' AS payment FROM revisions WHERE refund_id = :r", r=refund_id)
    return row["payment"]


@pytest.mark.parametrize("name", SHAPES)
async def test_field_30_the_quote_takes_what_was_captured_and_not_one_unit_more(shop: Shop, name: str) -> None:
    shape = SHAPES[name]
    payment = await paid(shop, shape)

    over, ended = await quoted(shop, payment, shape.captured + 1)
    assert ended == ("denied", "EXCEEDS_REFUNDABLE")
    facts = await payment_facts(shop, over)
    assert (facts["captured"], facts["remaining"], facts["refunds_made"]) == (shape.captured, shape.captured, 0)

    first = shape.captured // 3
    if first:
        refund_id = await shop.approved(payment, first)
        assert await shop.remaining(payment) == shape.captured - first, "reserved as soon as it is quoted"
        assert (await shop.submitted(refund_id)).status == "succeeded"
    left = shape.captured - first
    assert await shop.remaining(payment) == left
    assert (await quoted(shop, payment, left + 1))[1] == ("denied", "EXCEEDS_REFUNDABLE")
    everything, _ = await quoted(shop, payment, None)
    assert (await shop.row(everything))["amount"] == left
    assert (await shop.submitted(await shop.agreed(everything))).status == "succeeded"
    assert (await quoted(shop, payment, 1))[1] == ("denied", "ALREADY_REFUNDED")

    made = [refund["amount"] for refund in (await shop.truth(payment_intent_of(payment, shape)))["refunds"]]
    assert sorted(made) == sorted(amount for amount in (first, left) if amount)
    assert await shop.remaining(payment) == 0


def payment_intent_of(payment: str, shape: Shape) -> str:
    """The id that the sandbox's truth is asked by."""
    return payment if not shape.by_charge or "legacy" in shape.placed else payment.replace("ch_", "pi_")


async def test_field_28_a_released_remainder_is_no_refund_anywhere(shop: Shop) -> None:
    """Nothing is imported as made elsewhere, nothing counts in the customer's limits, and the payment counts as untouched."""
    payment = await paid(shop, SHAPES["part, and the rest released"])
    refund_id, _ = await quoted(shop, payment, 100)
    [facts] = await shop.query("SELECT facts FROM revisions WHERE refund_id = :r", r=refund_id)
    customer = facts["facts"]["customer"]
    assert (customer["refunds"], customer["refunds_week"], customer["amount_today"]) == (0, 0, 0)
    assert facts["facts"]["payment"]["refunds_made"] == 0
    imported = "SELECT r.id FROM processor_refunds r JOIN payments p ON p.id = r.payment_id WHERE p.processor_payment = :p"
    assert await shop.query(imported, p=payment) == []


async def test_field_30_a_capture_that_grows_raises_the_ceiling_and_what_was_approved_stays(shop: Shop) -> None:
    """Several captures, still open: everything so far is promised; then more is captured, and only that is new."""
    payment = await paid(shop, SHAPES["several captures, still open"])
    refund_id = await shop.approved(payment, 5_500)
    assert await shop.remaining(payment) == 0
    await capture(shop, payment, 2_000)
    assert await shop.remaining(payment) == 2_000
    assert (await shop.submitted(refund_id)).status == "succeeded"
    assert (await quoted(shop, payment, 2_001))[1] == ("denied", "EXCEEDS_REFUNDABLE")
    rest = await shop.approved(payment, 2_000)
    assert (await shop.submitted(rest)).status == "succeeded"
    assert await shop.remaining(payment) == 0


async def capture(shop: Shop, payment: str, amount: int) -> None:
    """What the merchant captures meanwhile; the last capture releases the rest."""
    given = {"amount_to_capture": amount}
    await shop.processor._post("test", f"/v1/payment_intents/{payment}/capture", f"capture-{payment}-{amount}", given)  # pyright: ignore[reportPrivateUsage]


async def test_field_28_captured_in_part_while_a_release_waits_nothing_is_released_and_nothing_returned(shop: Shop) -> None:
    """The whole authorisation was to be let go; a part is captured first. The terms are void: there is money now, and another amount of it."""
    payment = await paid(shop, Shape({"status": "requires_capture"}, 0))
    refund_id = await shop.approved(payment, AUTHORISED)
    await capture(shop, payment, 4_000)
    situation = await shop.submit(refund_id)
    assert (situation.status, situation.code) == ("held", "TERMS_EXPIRED")
    assert await shop.asked_and_made(payment) == (0, 0)
    assert (await shop.truth(payment))["cancel_requests"] == []


async def test_field_46_lines_of_a_part_that_was_captured_end_at_exactly_that(shop: Shop) -> None:
    """Three equal lines of $100.00, of which $60.01 were captured: line by line, in another order, to exactly nothing."""
    number = next(_numbers)
    intent = f"pi_caplines{number}"
    await shop.control("POST", "/payments", {"id": intent, "amount": 10_000, "currency": "usd", "captured": 6_001})
    await shop.ordered(intent, 10_000)
    statement = (
        "UPDATE orders SET body = jsonb_set(body, '{lines}', CAST(:lines AS jsonb))"
        " WHERE id = (SELECT order_id FROM payments WHERE processor_payment = :p)"
    )
    lines = '[{"id": "a", "amount": 3333}, {"id": "b", "amount": 3333}, {"id": "c", "amount": 3334}]'
    await shop.query_nothing(statement, lines=lines, p=intent)
    for line in ("c", "a", "b"):
        refund_id = await shop.received(intent, None, full=False, lines=[{"id": line, "quantity": 1}])
        await shop.prepared(refund_id)
        assert (await shop.submitted(await shop.agreed(refund_id))).status == "succeeded"
    made = [refund["amount"] for refund in (await shop.truth(intent))["refunds"]]
    assert (len(made), sum(made)) == (3, 6_001)
    assert (await quoted(shop, intent, 1))[1] == ("denied", "ALREADY_REFUNDED")


async def test_field_29_captured_in_the_dashboard_the_part_that_was_asked_for_goes_back_and_no_more(shop: Shop) -> None:
    """Our last reading says that nothing was captured; meanwhile everything was. Asked for $25.00, exactly that is sent, as a refund and not as a release."""
    payment = await paid(shop, Shape({"status": "requires_capture"}, 0))
    first, ended = await quoted(shop, payment, 2_500)
    assert ended == ("awaiting_review", None), "a part of an authorisation cannot be let go"
    assert (await shop.row(first))["terms_hash"] is None
    await capture(shop, payment, AUTHORISED)

    refund_id = await shop.approved(payment, 2_500)
    assert (await shop.submitted(refund_id)).status == "succeeded"

    truth = await shop.truth(payment)
    assert [refund["amount"] for refund in truth["refunds"]] == [2_500]
    assert truth["cancel_requests"] == []
    assert await shop.remaining(payment) == AUTHORISED - 2 * 2_500, "what went back, and what still waits for a person"


async def test_field_26_withdrawing_the_refund_of_one_payment_leaves_that_of_the_other(shop: Shop) -> None:
    """An order that was paid in two parts, a refund of each: one is called off, and the other goes its way."""
    first, second = [f"pi_two{next(_numbers)}" for _ in range(2)]
    for intent in (first, second):
        await shop.control("POST", "/payments", {"id": intent, "amount": 4_000, "currency": "usd"})
    body = {
        "customer_id": f"customer of {first}",
        "customer_since": LONG_AGO,
        "delivered_at": (shop.clock.now() - timedelta(days=1)).isoformat(),
        "currency": "USD",
        "payments": [{"id": intent, "amount": 4_000, "currency": "USD"} for intent in (first, second)],
    }
    async with shop.owner.begin() as connection:
        order = Order.model_validate_json(json.dumps(body))
        await orders.put_order(connection, shop.clock, external_ref=f"order of {first}", order=order, actor="test")
    one = await shop.approved(first, 2_000)
    other = await shop.received(second, 2_000, customer_id=f"customer of {first}")
    await shop.prepared(other)
    await shop.agreed(other)
    async with shop.api.begin() as connection:
        await decisions.record_withdrawal(connection, shop.clock, refund_id=one, actor=shop.people["shop"])

    assert await shop.ended(one) == ("withdrawn", None)
    assert await shop.ended(other) == ("approved", None)
    assert (await shop.submitted(other)).status == "succeeded"
    assert await shop.remaining(first) == 4_000
    assert [len((await shop.truth(intent))["refunds"]) for intent in (first, second)] == [0, 1]
