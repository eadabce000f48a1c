"""Groups: an order-wide refund, stored with all its parts in one transaction, once per idempotency key for ever.

Each part is a refund of one payment like any other, with its own terms, key, status and run; this file makes them, and tells a part's quote about the others.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import Text, bindparam, literal_column, null, select
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncConnection

from refunds.allocation import Breakdown, break_down, check_units
from refunds.apart import apart
from refunds.clock import Clock
from refunds.errors import Code, RefundError
from refunds.groups import MOST_PARTS, Allocation, Holder, Others, Part, allocate
from refunds.ids import Prefix, new_id
from refunds.money import Money
from refunds.orders import Order
from refunds.people import Actor
from refunds.policy import Policy
from refunds.processor import MANUAL, DisputeState, PaymentState, PaymentStatus
from refunds.requests import GroupRequest
from refunds.status import RESERVING, Status
from refunds.terms import canonical_hash
from store import identifiers, lines, orders, rates, snapshots
from store.changes import Change, enter
from store.claims import refundable_of
from store.identifiers import KEY_COLUMNS
from store.intake import NOT_KEPT, Accepted, Owner, fingerprints, sources_of, store_refund
from store.sql import Query, Row
from store.tables import customer_keys, customers, refund_groups, refunds, revisions
from store.tables import orders as orders_table
from store.texts import Texts
from store.vault import keys_of

PART = "part"
"""Where a refund of a group keeps which payment it was allocated to, by our id of it: a revision may make it another payment's."""

_EVER = timedelta(days=36_500)
_REPLAY = Query(
    select(refund_groups.c.id, refund_groups.c.body_hash).where(
        refund_groups.c.integration == bindparam("integration"), refund_groups.c.idempotency_key == bindparam("key")
    )
)
_MEMBERS = Query(select(refunds).where(refunds.c.group_id == bindparam("group")).order_by(refunds.c.id))
_LOCK_ORDER = Query(select(orders_table.c.id).where(orders_table.c.id == bindparam("order")).with_for_update(key_share=True))
_OTHERS = Query(
    select(
        refunds.c.status,
        refunds.c.payment_id,
        refunds.c.currency,
        refunds.c.amount,
        revisions.c.amount.label("quoted"),
        revisions.c.created_at.label("quoted_at"),
        revisions.c.facts[literal_column("'base'", Text)].label("base"),
        refund_groups.c.allocation,
    )
    .join(refund_groups, refund_groups.c.id == refunds.c.group_id)
    .outerjoin(revisions, (revisions.c.refund_id == refunds.c.id) & (revisions.c.revision == refunds.c.revision))
    .where(refunds.c.group_id == bindparam("group"), refunds.c.id != bindparam("refund"))
)
_UNQUOTED = (Status.RECEIVED.value, Status.CLASSIFIED.value)
_COUNTED = sorted(status.value for status in RESERVING | {Status.SUCCEEDED})


@dataclass(frozen=True, slots=True)
class AcceptedGroup:
    """The group that a request became, with its parts; ``replayed`` when it was there already."""

    id: str
    replayed: bool
    parts: tuple[Accepted, ...]


async def order_of(connection: AsyncConnection, request: GroupRequest) -> tuple[Row, list[Row]]:
    """The order a group is about and its payments, in the order's own sequence.

    Raises ``ORDER_NOT_FOUND``, ``PAYMENT_NOT_FOUND`` without a payment, and ``LINE_NOT_FOUND`` or ``LINE_NOT_LEFT`` for units the order never had.
    """
    order = await orders.find_order(connection, customer_ref=request.customer_id, order_ref=request.order_id)
    payments = await orders.in_sequence(connection, order)
    if not payments:
        raise RefundError(Code.PAYMENT_NOT_FOUND, "The order has no payment that could be refunded.", field="order_id")
    if request.units:
        check_units(Order.model_validate(order["body"]), request.units)
    return order, payments


async def accept(
    connection: AsyncConnection,
    clock: Clock,
    texts: Texts,
    *,
    actor: Actor,
    key: str,
    request: GroupRequest,
    readings: Mapping[str, PaymentState],
) -> AcceptedGroup:
    """Allocate a request over the order's payments and store the group with a refund in status ``received`` for each part: all of it, or nothing.

    ``readings`` are the payments just read, by our surrogates; without one the last reading counts, and without any what the merchant recorded. What each
    payment holds is judged again under its lock when its part is quoted. Safe to call again with the same key and body. Raises what :func:`order_of` raises,
    ``IDEMPOTENCY_KEY_REUSED``, ``GROUP_NOT_COVERED`` when the payments do not hold what is asked for, ``GROUP_TOO_LARGE`` when it would take more of
    them than a group may have parts, and what pricing lines raises.
    """
    body_hash = request.body_hash()
    if (replay := await find_replay(connection, actor, key, body_hash)) is not None:
        return replay
    order, payments = await order_of(connection, request)
    await _LOCK_ORDER.one(connection, order=order["id"])  # each unit once, also for two groups at once
    if (replay := await find_replay(connection, actor, key, body_hash)) is not None:
        return replay  # the same request, a moment earlier: what it took must not be missing from itself
    states = {p["id"]: readings.get(p["id"]) or await _last_known(connection, p, clock.now()) for p in payments}
    allocation, breakdown = await _allocated(connection, request, order, payments, states)
    group_id = new_id(Prefix.GROUP)
    if not await _store(connection, clock, group_id, actor, key, request, order, allocation, breakdown):
        replay = await find_replay(connection, actor, key, body_hash)  # with the same key, for another order: raises
        assert replay is not None
        return replay
    parts = [await _store_part(connection, clock, texts, actor, group_id, request, order, part) for part in allocation.parts]
    return AcceptedGroup(group_id, replayed=False, parts=tuple(parts))


async def find_replay(connection: AsyncConnection, actor: Actor, key: str, body_hash: str) -> AcceptedGroup | None:
    """The group this integration already made with this key. Raises ``IDEMPOTENCY_KEY_REUSED`` when the body differs."""
    of_key, of_body = fingerprints(connection, key, body_hash)
    row = await _REPLAY.first(connection, integration=actor.integration, key=of_key)
    if row is None:
        return None
    if row["body_hash"] != of_body:
        raise RefundError(Code.IDEMPOTENCY_KEY_REUSED, None if row["body_hash"] else NOT_KEPT, field="Idempotency-Key", group=row["id"])
    members = await _MEMBERS.all(connection, group=row["id"])
    return AcceptedGroup(row["id"], replayed=True, parts=tuple(Accepted(m["id"], replayed=True, row=m) for m in members))


async def _last_known(connection: AsyncConnection, payment: Row, now: datetime) -> PaymentState:
    """The last reading of a payment, however old, or what the merchant recorded of one that was never read."""
    state = await snapshots.latest(connection, payment["id"], now=now, within=_EVER)
    return state or PaymentState(
        processor_payment=payment["processor_payment"],
        status=PaymentStatus.CAPTURED,
        currency=payment["currency"],
        captured=payment["amount"],
        capturable=0,
        refunds=(),
        dispute=DisputeState.NONE,
        risk_level="unknown",
        read_at=now,
    )


async def _allocated(
    connection: AsyncConnection, request: GroupRequest, order: Row, payments: Sequence[Row], states: Mapping[str, PaymentState]
) -> tuple[Allocation, Breakdown | None]:
    holders = [
        Holder.of(
            p["id"],
            states[p["id"]],
            (await refundable_of(connection, p["id"], states[p["id"]])).remaining,
            by_hand=p["processor"] == MANUAL,
        )
        for p in payments
    ]
    breakdown = await _priced(connection, request, order, states) if request.units else None
    if breakdown is not None:
        amount, code = breakdown.amount, breakdown.currency
    else:
        money = request.money
        amount = money.amount if money else None
        code = money.currency if money else request.currency.strip().upper() if request.currency else None
    allocation = allocate(holders, amount, code)
    if allocation.missing or not allocation.parts:
        raise _not_covered(allocation, payments, amount, code)
    if (parts := len(allocation.parts)) > MOST_PARTS:
        raise RefundError(Code.GROUP_TOO_LARGE, f"It would take {parts} payments, and a group has at most {MOST_PARTS} parts.", parts=parts)
    return allocation, breakdown


async def _priced(connection: AsyncConnection, request: GroupRequest, order: Row, states: Mapping[str, PaymentState]) -> Breakdown:
    """What the named units come to, of all that the order's payments took together."""
    currencies = {state.currency for state in states.values() if state.captured or state.capturable} or {order["body"]["currency"]}
    if len(currencies) > 1:
        raise RefundError(
            Code.LINES_OF_SEVERAL_PAYMENTS, "The order was paid in several currencies, so its lines have no one price.", field="lines"
        )
    captured = sum(s.capturable if s.status is PaymentStatus.AUTHORISED else s.captured for s in states.values())
    earlier = await lines.taken_of_order(connection, order["id"])
    return break_down(Order.model_validate(order["body"]), captured, currencies.pop(), request.units, earlier)


def _not_covered(allocation: Allocation, payments: Sequence[Row], amount: int | None, code: str | None) -> RefundError:
    names = {p["id"]: p["processor_payment"] for p in payments}
    held = [{"payment_id": names[p.payment], "holds": p.amount, "text": str(Money(p.amount, p.currency))} for p in allocation.parts]
    out = [
        {"payment_id": names[e.payment], "holds": e.remaining, "text": str(Money(e.remaining, e.currency))} | {"why": e.why.words}
        for e in allocation.left_out
    ]
    words = "Nothing is left to refund of this order's payments."
    if amount is not None and code is not None and allocation.parts:
        have, missing = Money(amount - allocation.missing, code), Money(allocation.missing, code)
        words = f"The order's payments hold {have} of {Money(amount, code)}: {missing} is missing."
    return RefundError(Code.GROUP_NOT_COVERED, words, field="amount", missing=allocation.missing, payments=held + out)


async def _store(
    connection: AsyncConnection,
    clock: Clock,
    group_id: str,
    actor: Actor,
    key: str,
    request: GroupRequest,
    order: Row,
    allocation: Allocation,
    breakdown: Breakdown | None,
) -> bool:
    now, money, body = clock.now(), request.money, request.model_dump(mode="json")
    of_key, of_body = fingerprints(connection, key, request.body_hash())
    kept = ("reason", "channel", "metadata", "lines", "shipping", "customer_authentication")
    made = insert(refund_groups).values(
        id=group_id,
        integration=actor.integration,
        idempotency_key=of_key,
        body_hash=of_body,
        requester_id=actor.principal_id,
        requested_by=request.requested_by,
        customer_id=order["customer_id"],
        order_id=order["id"],
        order_version=order["version"],
        amount=breakdown.amount if breakdown else money.amount if money else None,
        currency=breakdown.currency if breakdown else money.currency if money else None,
        full=request.full,
        # What is personal of it is sealed with each part.
        details=apart({name: body[name] for name in kept if body.get(name)}, keys_of(connection).fingerprint)[0],
        allocation=allocation.plain(),
        breakdown=lines.recorded(breakdown).get(lines.BREAKDOWN) or null(),
        created_at=now,
    )
    made = made.on_conflict_do_nothing(index_elements=["integration", "idempotency_key"]).returning(refund_groups.c.id)
    if (await connection.execute(made)).scalar_one_or_none() is None:
        return False
    await enter(
        connection,
        "group_received",
        now,
        actor=actor.principal_id,
        on_behalf_of=order["customer_id"],
        group=group_id,
        order=order["id"],
        order_version=order["version"],
        body_hash=of_body,
        **allocation.plain(),
    )
    return True


async def _store_part(
    connection: AsyncConnection, clock: Clock, texts: Texts, actor: Actor, group_id: str, request: GroupRequest, order: Row, part: Part
) -> Accepted:
    """One part: an ordinary refund of its payment, whose key and body are derived from the group's, so that no caller's own can meet them."""
    body = request.model_dump(mode="json")
    kept = ("customer_authentication", "metadata", "lines", "shipping", "agent_session_id", "agent_model")
    values: dict[str, Any] = {
        "group_id": group_id,
        "order_id": order["id"],
        "payment_id": part.payment,
        "amount": None if request.full else part.amount,
        "currency": part.currency,
        "full": request.full,
        "reason": request.reason.value if request.reason else None,
        "reverse_transfer": False,
        "refund_application_fee": False,
        "has_text": request.message is not None and bool(request.message.strip()),
        "details": {name: body[name] for name in kept if body.get(name)} | {"kind": "refund", PART: part.payment},
        "sources": sources_of(actor, request),
    }
    derived = canonical_hash({"group": request.body_hash(), "payment": part.payment})
    owner = Owner(order["customer_id"], await orders.key_of_owner(connection, order))
    return await store_refund(connection, clock, texts, actor, f"{group_id}/{part.payment}", derived, request, owner, values)


async def others(connection: AsyncConnection, change: Change, policy: Policy, currency: str) -> Others:
    """What the other parts of a refund's group come to: those that are not yet quoted by the allocation, the others by their present terms.

    Parts in another currency than ``currency`` count as what was recorded with their quote, or as what they would be quoted as now.

    Read it under the customer's lock, so that two parts that are quoted at once see each other.
    """
    found, (today, _) = Others(), policy.customer_limits.day(change.at)
    for row in await _OTHERS.all(connection, group=change["group_id"], refund=change.id):
        waits = row["quoted"] is None and row["status"] in _UNQUOTED
        if waits:
            amount = row["amount"] or next(p["amount"] for p in row["allocation"]["parts"] if p["payment"] == row["payment_id"])
            found = replace(found, parts=found.parts + 1)
        elif row["status"] in _COUNTED and row["quoted"]:
            amount = row["quoted"]
        else:
            continue
        in_day = not waits and row["quoted_at"] >= today
        if row["currency"] == currency:
            counted, waiting = (amount if in_day else 0), (amount if waits else 0)
            found = replace(
                found, amount=found.amount + amount, counted_today=found.counted_today + counted, waiting=found.waiting + waiting
            )
        elif (worth := await _worth(connection, change, policy, row, amount, waits=waits)) is None:
            found = replace(found, not_counted=(*found.not_counted, row["currency"]))
        else:
            found = replace(found, elsewhere=found.elsewhere + worth, elsewhere_today=found.elsewhere_today + (worth if in_day else 0))
    return found


async def _worth(connection: AsyncConnection, change: Change, policy: Policy, row: Row, amount: int, *, waits: bool) -> int | None:
    """What a part in another currency counts as in the base currency; ``None`` when nobody knows, or the rate is too old."""
    if row["currency"] == policy.base:
        return amount
    if not waits:
        recorded = row["base"] or {}
        return recorded.get("amount") if recorded.get("currency") == policy.base else None
    found = await rates.worth(connection, policy, Money(amount, row["currency"]), change.at)
    too_old = found.rate is not None and found.rate.is_too_old(change.at, policy.rates_at_most_days_old)
    return None if too_old else found.amount


async def visible(connection: AsyncConnection, group_id: str, *, integration: str | None) -> Row:
    """A group with the merchant's names of its order and customer. With ``integration`` only one of that is seen. Raises ``GROUP_NOT_FOUND``."""
    query = (
        select(
            refund_groups,
            orders_table.c.ref_sealed.label("order_sealed"),
            customers.c.ref_sealed.label("customer_sealed"),
            customers.c.forgotten_at.label("customer_forgotten_at"),
            *KEY_COLUMNS,
        )
        .join(orders_table, orders_table.c.id == refund_groups.c.order_id)
        .join(customers, customers.c.id == refund_groups.c.customer_id)
        .outerjoin(customer_keys, customer_keys.c.customer_id == refund_groups.c.customer_id)
        .where(refund_groups.c.id == group_id)
    )
    row = (await connection.execute(query)).mappings().one_or_none()
    if row is None or integration not in (None, row["integration"]):
        raise RefundError(Code.GROUP_NOT_FOUND, group=group_id)
    return await identifiers.opened(connection, row)
