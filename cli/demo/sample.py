"""The sample orders of the demo: one customer and one payment for each, with ids that say where they belong."""

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from refunds.clock import rfc3339


@dataclass(frozen=True, slots=True)
class Goods:
    """One sample order. ``amount`` is what was paid, in the currency's API unit; ``payment`` is anything special about the payment in the sandbox."""

    number: int
    amount: int
    currency: str = "USD"
    category: str = "household"
    payment: dict[str, Any] = field(default_factory=dict[str, Any])
    disputed: bool = False

    @property
    def order(self) -> str:
        """The merchant's order id."""
        return f"D-{self.number}"

    @property
    def customer(self) -> str:
        """The merchant's customer id. Everybody is another customer, so that no limit over time joins two scenes."""
        return f"customer-{self.number}"

    @property
    def intent(self) -> str:
        """The PaymentIntent, with a fixed id."""
        return f"pi_demo_{self.number}"

    def in_sandbox(self) -> dict[str, Any]:
        """The payment as the sandbox's control address takes it."""
        return {"id": self.intent, "amount": self.amount, "currency": self.currency.lower(), **self.payment}

    def as_order(self, now: datetime) -> dict[str, Any]:
        """The order as ``PUT /v1/orders/{id}`` takes it: delivered two days ago to a customer of a year."""
        return {
            "customer_id": self.customer,
            "customer_since": rfc3339(now - timedelta(days=365)),
            "placed_at": rfc3339(now - timedelta(days=5)),
            "delivered_at": rfc3339(now - timedelta(days=2)),
            "currency": self.currency,
            "lines": [{"id": "1", "title": "Sample goods", "category": self.category, "amount": self.amount}],
            "payments": [{"id": self.intent, "amount": self.amount, "currency": self.currency}],
        }
