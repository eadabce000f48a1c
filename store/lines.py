"""Refunds by line: which units of an order earlier refunds took, and what the named ones come to. Read it only with the payment locked.

An order's lines can only be refunded while it has one payment, so that payment's lock is the lock of its lines.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from sqlalchemy import ARRAY, Text, any_, bindparam, exists, literal_column, select
from sqlalchemy.ext.asyncio import AsyncConnection

from refunds.allocation import Breakdown, Earlier, Units, break_down, check_units, weigh
from refunds.errors import Code, RefundError
from refunds.facts import LineFacts
from refunds.orders import Order
from refunds.processor import PaymentState, PaymentStatus
from refunds.status import RESERVING, Status
from store import orders
from store.sql import Query, Row
from store.tables import refund_groups, refunds, revisions

BREAKDOWN = "breakdown"
"""Where a revision keeps its breakdown, beside the facts it was judged on: without the lines' ids, which are the merchant's and stand in the request."""

TAKEN = Query(
    select(
        revisions.c.facts[literal_column(f"'{BREAKDOWN}'", Text)].label(BREAKDOWN),
        refunds.c.details[literal_column("'lines'", Text)].label("named"),
    )
    .join(refunds, (revisions.c.refund_id == refunds.c.id) & (revisions.c.revision == refunds.c.revision))
    .where(
        refunds.c.payment_id == bindparam("payment"),
        refunds.c.status == any_(bindparam("claiming", type_=ARRAY(Text))),
        refunds.c.id != bindparam("besides"),
        revisions.c.facts.has_key(literal_column(f"'{BREAKDOWN}'", Text)),
    )
)
"""The breakdowns of the refunds that reserve or have returned money of a payment: those of :data:`store.claims.CLAIMS` that name lines, asked
with :func:`store.claims.claiming`."""


@dataclass(frozen=True, slots=True)
class Priced:
    """What a request's units come to: a ``breakdown``, or why there is none (``refusal``); neither when it names no units.

    ``total`` is what the order's lines and shipping come to, ``None`` without lines. ``earlier`` is what other refunds took.
    """

    order: Order
    units: Units
    earlier: Earlier
    total: int | None
    breakdown: Breakdown | None = None
    refusal: RefundError | None = None

    @property
    def amount(self) -> int | None:
        """The sum of the breakdown: zero for units that cost nothing or have no price, ``None`` where there is nothing to tell."""
        if self.breakdown is not None:
            return self.breakdown.amount
        return 0 if self.worthless else None

    @property
    def worthless(self) -> bool:
        """Whether the units are there and have no price. That refuses a request by lines alone; beside an amount it is for a person to see."""
        return self.refusal is not None and self.refusal.code in (Code.LINES_NOT_PRICED, Code.LINES_COME_TO_NOTHING)

    def facts(self, *, full: bool) -> tuple[LineFacts, ...]:
        """The lines that the request concerns, as a policy may ask about them."""
        named = self.units.lines
        concerned = [line for line in self.order.lines if not self.units or line.id in named]
        return tuple(
            LineFacts(
                category=line.category,
                ordered=line.quantity,
                asked=named[line.id] if self.units else max(0, line.quantity - self.earlier.units(line.id)) if full else None,
                refunded=self.earlier.units(line.id),
                shipped=line.shipped,
                returned=line.returned,
            )
            for line in concerned
        )


def units_of(details: Row) -> Units:
    """What a stored request names of its order's lines and shipping."""
    return Units({line["id"]: line["quantity"] for line in details.get("lines", ())}, bool(details.get("shipping")))


def price(order_row: Row, units: Units, state: PaymentState, taken: Sequence[Row]) -> Priced:
    """Work out what units come to, by the order's version in force and what the live reading says was captured (for a payment that is only authorised,
    what can be captured: that is what a release gives back). ``taken`` are the rows of :data:`TAKEN`.

    What makes it impossible is kept as ``refusal`` for the caller to judge.
    """
    order = Order.model_validate(order_row["body"])
    earlier = Earlier.of(with_ids(row[BREAKDOWN], row["named"]) for row in taken)
    lines, shipping = weigh(order)
    priced = Priced(order, units, earlier, sum(part.amount for part in (*lines, shipping)) if lines else None)
    if not units:
        return priced
    captured = state.capturable if state.status is PaymentStatus.AUTHORISED else state.captured
    try:
        if order_row["payments"] > 1:
            raise RefundError(Code.LINES_OF_SEVERAL_PAYMENTS, field="lines")
        breakdown = break_down(order, captured, order_row["recorded_currency"], units, earlier)
    except RefundError as error:
        return Priced(order, units, earlier, priced.total, refusal=error)
    return Priced(order, units, earlier, priced.total, breakdown)


_TAKEN_OF_ORDER = Query(
    select(
        revisions.c.facts[literal_column(f"'{BREAKDOWN}'", Text)].label(BREAKDOWN),
        refunds.c.details[literal_column("'lines'", Text)].label("named"),
    )
    .join(refunds, (revisions.c.refund_id == refunds.c.id) & (revisions.c.revision == refunds.c.revision))
    .where(
        refunds.c.order_id == bindparam("order"),
        refunds.c.status == any_(bindparam("claiming", type_=ARRAY(Text))),
        revisions.c.facts.has_key(literal_column(f"'{BREAKDOWN}'", Text)),
    )
    .union_all(
        # The units of a group are gone back, or about to, while any part of it is.
        select(refund_groups.c.breakdown, refund_groups.c.details[literal_column("'lines'", Text)]).where(
            refund_groups.c.order_id == bindparam("order"),
            refund_groups.c.id != bindparam("besides"),
            refund_groups.c.breakdown.is_not(None),
            exists().where(
                refunds.c.group_id == refund_groups.c.id, refunds.c.status == any_(bindparam("open_or_back", type_=ARRAY(Text)))
            ),
        )
    )
)


async def taken_of_order(connection: AsyncConnection, order_id: str, *, besides: str = "") -> Earlier:
    """What refunds by lines took of an order, over all its payments, leaving out the group ``besides``."""
    claiming = sorted(status.value for status in RESERVING | {Status.SUCCEEDED})
    undecided = [Status.RECEIVED.value, Status.CLASSIFIED.value]
    rows = await _TAKEN_OF_ORDER.all(
        connection, order=order_id, besides=besides, claiming=claiming, open_or_back=[*claiming, *undecided, Status.RELEASED.value]
    )
    return Earlier.of(with_ids(row[BREAKDOWN], row["named"]) for row in rows)


async def of_group(connection: AsyncConnection, order_row: Row, units: Units, group_id: str) -> Priced:
    """The lines that a part of a group concerns, for the policy to ask about. The group itself was priced as a whole; its parts have amounts."""
    order = Order.model_validate(order_row["body"])
    return Priced(order, units, await taken_of_order(connection, order_row["id"], besides=group_id), None)


async def check(connection: AsyncConnection, order: Row, units: Units) -> None:
    """Refuse what the order alone makes impossible, before anything is stored.

    Raises ``LINES_OF_SEVERAL_PAYMENTS``, ``LINE_NOT_FOUND``, ``LINE_NOT_LEFT``.
    """
    if not units:
        return
    if len(await orders.taken_for(connection, order["id"])) > 1:
        raise RefundError(Code.LINES_OF_SEVERAL_PAYMENTS, field="lines")
    check_units(Order.model_validate(order["body"]), units)


def recorded(breakdown: Breakdown | None) -> dict[str, Any]:
    """A breakdown as a revision keeps it, nothing when there is none."""
    if breakdown is None:
        return {}
    plain = asdict(breakdown)
    return {BREAKDOWN: plain | {"lines": [{name: value for name, value in line.items() if name != "id"} for line in plain["lines"]]}}


def with_ids(kept: Row, named: Sequence[Row] | None) -> dict[str, Any]:
    """What :func:`recorded` kept, with the lines' ids from the request, whose sequence it has."""
    return {**kept, "lines": [{"id": line["id"], **part} for line, part in zip(named or (), kept["lines"], strict=True)]}


def breakdown_of(facts: Row, details: Row) -> dict[str, Any] | None:
    """The breakdown of a revision, as plain JSON values; ``None`` when it has none."""
    kept = facts.get(BREAKDOWN)
    return None if kept is None else with_ids(kept, details.get("lines"))
