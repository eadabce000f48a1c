"""Manual parts through the steps a run calls: whatever is asked of the payments role, no processor hears of it."""

import json
from typing import Any

import pytest
from temporalio.testing import ActivityEnvironment

from activities.observe import Observer
from activities.prepare import Prepare
from activities.read_payment import PaymentReader
from activities.settle import Settle
from activities.settle_legs import SettleLegs
from refunds.errors import Code
from refunds.messages import Observed, Situation, StepInput
from refunds.orders import Order
from refunds.requests import RefundRequest
from refunds.status import Status
from store import intake, orders
from store.texts import Texts
from tests.activities.shop import LONG_AGO, Shop


class Untouched:
    """A processor of which nothing may be asked."""

    name = "stripe"

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(f"the processor was asked: {name}")


NOBODY: Any = Untouched()


async def gift_card(shop: Shop, number: str, amount: int = 3_000, *, by: str = "shop") -> str:
    """A refund of an order that was paid with a gift card, accepted."""
    body = {
        "customer_id": f"customer-{number}",
        "customer_since": LONG_AGO,
        "placed_at": LONG_AGO,
        "delivered_at": shop.clock.now().isoformat(),
        "currency": "USD",
        "payments": [{"id": f"gc-{number}", "processor": "manual", "tender": "gift_card", "amount": 9_000, "currency": "USD"}],
    }
    async with shop.owner.begin() as connection:
        order = Order.model_validate_json(json.dumps(body))
        await orders.put_order(connection, shop.clock, external_ref=f"gift-{number}", order=order, actor="test")
    asked = {
        "order_id": f"gift-{number}",
        "customer_id": f"customer-{number}",
        "amount": amount,
        "currency": "USD",
        "reason": "product_issue",
        "channel": "email",
        "customer_authentication": {"method": "password", "at": LONG_AGO},
    }
    async with shop.api.begin() as connection:
        texts = Texts(shop.clock)
        request = RefundRequest.model_validate_json(json.dumps(asked))
        accepted = await intake.accept(connection, shop.clock, texts, actor=shop.people[by], key=f"gift {number}", request=request)
    return accepted.refund_id


def reader(shop: Shop) -> PaymentReader:
    return PaymentReader(shop.payments, NOBODY, shop.clock, shop.observing, NOBODY)


async def parked(shop: Shop, number: str) -> str:
    """A manual part that waits for a person, brought there by the run's own steps."""
    refund_id = await gift_card(shop, number)
    await ActivityEnvironment().run(Prepare(shop.steps, reader(shop)).prepare, StepInput(refund_id))
    await shop.agreed(refund_id)
    found = await shop.submit(refund_id, step=shop.submitting(NOBODY))
    assert (found.status, found.code) == (Status.PARKED, Code.MANUAL_PART)
    return refund_id


async def settled(shop: Shop, refund_id: str, message: str) -> Situation:
    step = Settle(shop.payments, NOBODY, SettleLegs(shop.legs, NOBODY))
    return await ActivityEnvironment().run(step.settle, StepInput(refund_id, "settle", message))


async def test_a_manual_part_is_quoted_and_handed_over_without_a_word_to_the_processor(shop: Shop) -> None:
    refund_id = await parked(shop, "quoted")
    again = await shop.submit(refund_id, step=shop.submitting(NOBODY))
    assert again.status == Status.PARKED
    operations = await shop.query("SELECT kind FROM operations WHERE refund_id = :r", r=refund_id)
    assert [row["kind"] for row in operations] == ["manual"]
    assert (
        await shop.query("SELECT a.id FROM attempts a JOIN operations o ON o.id = a.operation_id WHERE o.refund_id = :r", r=refund_id) == []
    )


async def test_reading_and_observing_a_manual_payment_ask_nobody(shop: Shop) -> None:
    refund_id = await gift_card(shop, "observed")
    payment = (await shop.row(refund_id))["payment_id"]
    assert (await reader(shop).read(payment)).captured == 9_000
    assert await Observer(shop.observing, NOBODY, shop.clock).observe(payment) == Observed(payment)
    assert await shop.query("SELECT payment_id FROM payment_snapshots WHERE payment_id = :p", p=payment) == []


@pytest.mark.parametrize("outcome", ["refunded", "not_refunded"])
async def test_a_settlement_by_hand_counts_without_asking_the_processor(shop: Shop, outcome: str) -> None:
    refund_id = await parked(shop, outcome)
    message = await shop.says(refund_id, "sam", outcome)
    if outcome == "not_refunded":
        message = await shop.says(refund_id, "tess", outcome)
    found = await settled(shop, refund_id, message)
    assert found.status == (Status.SUCCEEDED if outcome == "refunded" else Status.FAILED)
    assert (await settled(shop, refund_id, message)).status == found.status, "heard twice, counted once"
