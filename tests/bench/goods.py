"""What the refunds are asked for: each its own customer, order and payment, made beforehand and outside of what is timed."""

import itertools
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import httpx

from refunds.clock import SystemClock, rfc3339
from refunds.orders import Order
from refunds.settings import Settings
from store import orders
from store.db import connect
from tests.bench.stand import Stand

PAID = 80_000
SMALL, LARGE = 2_500, 30_000
"""Minor units of USD: under the sample policy the small amount is automatic, the large one waits for a reviewer."""

_numbers = itertools.count(1)


@dataclass(frozen=True, slots=True)
class Goods:
    """One order."""

    number: int

    @property
    def intent(self) -> str:
        """Its PaymentIntent."""
        return f"pi_bench_{self.number}"

    def order(self, now: datetime) -> Order:
        """The order as the merchant sends it: delivered two days ago to a customer of a year, one payment."""
        return Order.model_validate(
            {
                "customer_id": f"bench-customer-{self.number}",
                "customer_since": now - timedelta(days=365),
                "placed_at": now - timedelta(days=5),
                "delivered_at": now - timedelta(days=2),
                "currency": "USD",
                "lines": [{"id": "1", "title": "Goods", "category": "household", "amount": PAID}],
                "payments": [{"id": self.intent, "amount": PAID, "currency": "USD"}],
            }
        )

    def request(self, amount: int) -> dict[str, Any]:
        """The body that asks for a refund of so much, named by the authenticated customer."""
        return {
            "customer_id": f"bench-customer-{self.number}",
            "order_id": f"B-{self.number}",
            "amount": amount,
            "currency": "USD",
            "reason": "product_issue",
            "customer_authentication": {"method": "password", "at": rfc3339(SystemClock().now())},
            "requested_by": "sam",
            "channel": "chat",
        }


async def prepare(stand: Stand, count: int) -> list[Goods]:
    """Make payments in the sandbox and orders in the store; through the store's own function, because nobody measures this."""
    goods = [Goods(next(_numbers)) for _ in range(count)]
    placed = [{"id": item.intent, "amount": PAID, "currency": "usd"} for item in goods]
    async with httpx.AsyncClient(base_url=stand.url("sandbox"), timeout=60, trust_env=False) as sandbox:
        (await sandbox.post("/_sandbox/payments", json=placed)).raise_for_status()
    database = connect(stand.postgres_url, SystemClock(), Settings(refunds_text_key=stand.text_key), name="bench")
    now = SystemClock().now()
    async with database.begin() as connection:
        for item in goods:
            await orders.put_order(connection, database.clock, external_ref=f"B-{item.number}", order=item.order(now), actor="bench")
    await database.close()
    return goods
