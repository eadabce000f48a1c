"""What lines, units and shipping of an order come to: allocated from the captured integer, never computed from parts that were rounded before.

Integers only. The rule, in the order it is applied:

1. What the order's discount has beyond the lines' own is spread over the lines by their amounts after their own discounts; what is more than all goods
   comes off the shipping. What the order's tax has beyond the lines' own is spread over the shipping and the lines that state none, by their amounts
   after discount (over all of them where that comes to nothing).
2. What was captured is spread over the lines and the shipping by what each comes to (amount less discount plus tax).
3. What is left of a line is spread over its units that are left, evenly.

Each spreading is by largest remainder, and a tie goes to what comes first: the lines in the order's own sequence, shipping last, the unit that is
returned first. Steps 2 and 3 count in the currency's smallest sendable step (100 for ISK and UGX, 10 for the dinars), so every part can be sent. What a
capture has beyond whole steps could never be sent and is left out.

Because step 3 starts from what earlier refunds took of the line, any order and any grouping of partial refunds ends at exactly the line's share, and all
lines with the shipping at exactly what was captured, also when the capture or the order changed in between. Source of the rule: field report 46.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from refunds.errors import Code, RefundError
from refunds.money import currency
from refunds.orders import Order, OrderLine


@dataclass(frozen=True, slots=True)
class Units:
    """What a refund is to return: how many units of which lines, by the line's id, and whether the shipping."""

    lines: Mapping[str, int] = field(default_factory=dict[str, int])
    shipping: bool = False

    def __bool__(self) -> bool:
        return bool(self.lines) or self.shipping


NO_UNITS = Units()


@dataclass(frozen=True, slots=True)
class Share:
    """A part of what was captured. ``tax`` is in ``amount``; ``discount`` is what had been taken off before, and is not in it."""

    amount: int = 0
    tax: int = 0
    discount: int = 0


@dataclass(frozen=True, slots=True)
class LineShare:
    """What ``quantity`` units of a line come to, ``earlier`` of its ``ordered`` units having gone back before; ``left`` is the line's money afterwards."""

    id: str
    quantity: int
    ordered: int
    earlier: int
    amount: int
    tax: int
    discount: int
    left: int


@dataclass(frozen=True, slots=True)
class Breakdown:
    """An amount, line by line, in API units of ``currency``. ``amount`` is the exact sum of the parts.

    ``lines`` are in the sequence of the request. ``captured`` is what it was allocated from. ``order_total`` (in ``order_currency``) is what the order's lines
    and shipping come to by themselves; where the two differ, more or less was taken than the order says.
    """

    amount: int
    currency: str
    captured: int
    order_total: int
    order_currency: str
    lines: tuple[LineShare, ...]
    shipping: Share | None

    @property
    def captured_as_ordered(self) -> bool:
        """Whether exactly what the order comes to was captured, in its currency."""
        return (self.captured, self.currency) == (self.order_total, self.order_currency)


@dataclass(frozen=True, slots=True)
class Taken:
    """What earlier refunds took of a line: how many units, and what they came to."""

    quantity: int = 0
    amount: int = 0
    tax: int = 0
    discount: int = 0

    def with_(self, part: Mapping[str, int]) -> "Taken":
        """With the part of one more breakdown added."""
        return Taken(
            self.quantity + part.get("quantity", 1),
            self.amount + part["amount"],
            self.tax + part["tax"],
            self.discount + part["discount"],
        )


NOTHING = Taken()


@dataclass(frozen=True, slots=True)
class Earlier:
    """What the earlier refunds of an order took, by line, and of the shipping."""

    lines: Mapping[str, Taken] = field(default_factory=dict[str, Taken])
    shipping: Taken = NOTHING

    @classmethod
    def of(cls, breakdowns: Iterable[Mapping[str, Any]]) -> "Earlier":
        """Fold recorded breakdowns, as plain JSON values. Their sequence does not matter."""
        lines: dict[str, Taken] = {}
        shipping = NOTHING
        for one in breakdowns:
            for line in one["lines"]:
                lines[line["id"]] = lines.get(line["id"], NOTHING).with_(line)
            if one["shipping"] is not None:
                shipping = shipping.with_(one["shipping"])
        return cls(lines, shipping)

    def units(self, line_id: str) -> int:
        """How many units of a line went back, or are about to."""
        return self.lines.get(line_id, NOTHING).quantity


NOTHING_EARLIER = Earlier()


def spread(total: int, weights: Sequence[int], *, step: int = 1) -> list[int]:
    """Spread a total over weights by largest remainder in multiples of ``step``; the parts sum to exactly the total.

    Of equal remainders the first gets the step; a weight of zero gets nothing. Raises ``ValueError`` for anything below zero, for a total that the step
    does not divide, and for a total above zero over weights that come to nothing.
    """
    if total < 0 or step < 1 or total % step or min(weights, default=0) < 0:
        raise ValueError("a total and weights are never below zero, and the step divides the total")
    whole = sum(weights)
    if whole == 0:
        if total:
            raise ValueError("nothing has a weight")
        return [0] * len(weights)
    steps = total // step
    parts = [steps * weight // whole for weight in weights]
    remainders = [steps * weight % whole for weight in weights]
    first = sorted(range(len(weights)), key=lambda at: (-remainders[at], at))
    for at in first[: steps - sum(parts)]:
        parts[at] += 1
    return [part * step for part in parts]


def of_units(amount: int, units: int, taken: int, *, step: int = 1) -> int:
    """What the first ``taken`` of ``units`` equal units come to: :func:`spread` over them, summed.

    Taking some and then others of the rest comes to the same as taking all at once, because the larger parts come first.
    """
    each, more = divmod(amount // step, units)
    return step * (each * taken + min(taken, more))


def weigh(order: Order) -> tuple[list[Share], Share]:
    """What each line and the shipping of an order come to by themselves, order-wide tax and discount included (step 1 of the rule)."""
    lines = order.lines
    goods = [line.amount - line.discount for line in lines]
    more = max(0, order.discount - sum(line.discount for line in lines))
    off_goods = min(more, sum(goods))
    off_shipping = min(more - off_goods, order.shipping)
    off = spread(off_goods, goods)
    net = [a - b for a, b in zip(goods, off, strict=True)] + [order.shipping - off_shipping]
    tax = [line.tax or 0 for line in lines] + [0]
    beyond = max(0, order.tax - sum(tax))
    bearing = [n if at == len(lines) or lines[at].tax is None else 0 for at, n in enumerate(net)]
    weights = next((w for w in (bearing, net) if sum(w)), [1] * len(net))
    tax = [a + b for a, b in zip(tax, spread(beyond, weights), strict=True)]
    discounts = [line.discount + o for line, o in zip(lines, off, strict=True)] + [off_shipping]
    *of_lines, of_shipping = [Share(n + t, t, d) for n, t, d in zip(net, tax, discounts, strict=True)]
    return of_lines, of_shipping


def shares(order: Order, captured: int, code: str) -> tuple[list[Share], Share]:
    """What of the captured amount each line and the shipping have; the amounts sum to it, down to whole sendable steps.

    Raises ``LINES_NOT_PRICED`` when the order's lines and shipping come to nothing, so that there is nothing to allocate by.
    """
    step = currency(code).multiple
    of_lines, of_shipping = weigh(order)
    parts = [*of_lines, of_shipping]
    sendable = captured - captured % step
    weights = [part.amount for part in parts]
    if not sum(weights):
        raise RefundError(Code.LINES_NOT_PRICED, field="lines")
    found = [_scaled(part, amount, step) for part, amount in zip(parts, spread(sendable, weights, step=step), strict=True)]
    return found[:-1], found[-1]


def _scaled(part: Share, amount: int, step: int) -> Share:
    if part.amount == 0:
        return Share(0, 0, part.discount)
    _, tax = spread(amount, [part.amount - part.tax, part.tax], step=step)
    return Share(amount, tax, part.discount * amount // part.amount)


def check_units(order: Order, units: Units, earlier: Earlier = NOTHING_EARLIER) -> None:
    """Raise ``LINE_NOT_FOUND`` or ``LINE_NOT_LEFT`` for what the order does not have, or what earlier refunds returned already.

    The sentences name a line by its place in the request: its id is the merchant's, and sentences travel (promise P9).
    """
    known = {line.id: line for line in order.lines}
    for at, (line_id, quantity) in enumerate(units.lines.items()):
        line = known.get(line_id)
        if line is None:
            raise RefundError(Code.LINE_NOT_FOUND, f"The order has no line with the id in lines.{at}.", field=f"lines.{at}.id")
        before = earlier.units(line_id)
        left = max(0, line.quantity - before)
        if quantity > left:
            what = f"Of the line in lines.{at}, {left} of {line.quantity} units are left to refund; {quantity} are asked for."
            raise RefundError(Code.LINE_NOT_LEFT, what, field=f"lines.{at}.quantity", left=left)
    if units.shipping and earlier.shipping.quantity:
        raise RefundError(Code.LINE_NOT_LEFT, "The shipping went back already, or is about to.", field="shipping")


def break_down(order: Order, captured: int, code: str, units: Units, earlier: Earlier) -> Breakdown:
    """What the units come to, part by part, in the currency ``code`` of what was captured.

    The same units after the same earlier refunds always come to the same. Raises ``LINE_NOT_FOUND``, ``LINE_NOT_LEFT``, ``LINES_NOT_PRICED``, and
    ``LINES_COME_TO_NOTHING`` when the units cost nothing (free lines, or no smallest step fell to them).
    """
    check_units(order, units, earlier)
    step = currency(code).multiple
    of_lines, of_shipping = shares(order, captured, code)
    known = {line.id: (line, share) for line, share in zip(order.lines, of_lines, strict=True)}
    lines = tuple(
        _of_line(*known[line_id], quantity, earlier.lines.get(line_id, NOTHING), step) for line_id, quantity in units.lines.items()
    )
    shipping = of_shipping if units.shipping else None
    amount = sum(line.amount for line in lines) + (shipping.amount if shipping else 0)
    if amount == 0 and captured > 0:
        raise RefundError(Code.LINES_COME_TO_NOTHING, field="lines")
    whole_lines, whole_shipping = weigh(order)
    total = sum(part.amount for part in (*whole_lines, whole_shipping))
    return Breakdown(amount, currency(code).code, captured, total, order.currency, lines, shipping)


def _of_line(line: OrderLine, share: Share, quantity: int, before: Taken, step: int) -> LineShare:
    """Step 3: what is left of the line's share, over the units that are left."""
    units = line.quantity - before.quantity
    money = max(0, share.amount - before.amount)
    amount = of_units(money, units, quantity, step=step)
    tax = min(amount, of_units(max(0, share.tax - before.tax), units, quantity, step=step))
    discount = of_units(max(0, share.discount - before.discount), units, quantity)
    return LineShare(line.id, quantity, line.quantity, before.quantity, amount, tax, discount, money - amount)
