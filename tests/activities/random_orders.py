"""Random orders for the model: their lines, and payments captured in every way there is, in currencies of every kind."""

from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st

from refunds.allocation import weigh
from refunds.money import currency
from refunds.orders import Order
from refunds.processor import PaymentStatus
from tests.activities.memory_processor import Held
from tests.policies import without_limits

_ISK = "  ISK: { consent_only_up_to: 15000, manager_above: 75000, largest: 1500000, per_customer_per_day: 22500 }\n  JPY:"
POLICY = without_limits().replace("  JPY:", _ISK, 1).replace("default_days: 30", "default_days: 3650", 1)
CODES = ("USD", "EUR", "JPY", "ISK", "KWD")


@dataclass
class Paid:
    """A payment, and the order it is of."""

    held: Held
    order_ref: str
    order: Order
    captured_at_first: int

    @property
    def step(self) -> int:
        return currency(self.held.currency).multiple

    @property
    def by_lines(self) -> bool:
        """Whether lines of its order can be asked for."""
        return len(self.order.payments) == 1 and bool(self.order.lines)

    @property
    def base(self) -> int:
        """What could be given back at all: the captured money, or the authorisation to be let go."""
        return self.held.capturable if self.held.status is PaymentStatus.AUTHORISED else self.held.captured


@st.composite
def an_order(draw: st.DrawFn) -> dict[str, Any]:
    """An order as a merchant sends it, with how each of its payments was captured."""
    code = draw(st.sampled_from(CODES))
    lines: list[dict[str, Any]] = []
    for number in range(draw(st.integers(0, 3))):
        amount = draw(st.integers(0, 9_000))
        line = {"id": f"line-{number}", "quantity": draw(st.integers(1, 4)), "amount": amount, "discount": draw(st.integers(0, amount))}
        lines.append(line | ({"tax": draw(st.integers(0, 900))} if draw(st.booleans()) else {}))
    shipping = draw(st.sampled_from([0, 500, 999]))
    priced = sum(line["amount"] for line in lines) + shipping
    body = {
        "customer_id": "buyer",
        "currency": code,
        "lines": lines,
        "shipping": shipping,
        "tax": sum(line.get("tax", 0) for line in lines) + draw(st.sampled_from([0, 0, 701])),
        "discount": min(priced, sum(line["discount"] for line in lines) + draw(st.sampled_from([0, 0, 333]))),
    }
    return body | {
        "shapes": draw(st.lists(st.sampled_from(["whole", "whole", "part", "over", "open", "authorised"]), min_size=1, max_size=3))
    }


def worth(order: Order) -> int:
    """What its lines and its shipping come to."""
    of_lines, of_shipping = weigh(order)
    return sum(part.amount for part in of_lines) + of_shipping.amount


def captured_as(shape: str, name: str, amount: int, code: str) -> Held:
    """A payment of an amount that was authorised, captured in one of the ways there are. All amounts are such as can be sent."""
    step = currency(code).multiple
    part = max(step, amount // 3 // step * step)
    over = amount + amount // 6 // step * step
    captured, capturable = {
        "whole": (amount, 0),
        "part": (part, 0),
        "over": (over, 0),
        "open": (part, amount - part),
        "authorised": (0, amount),
    }[shape]
    status = PaymentStatus.CAPTURED if captured else PaymentStatus.AUTHORISED
    return Held(name, captured, capturable, status, code)
