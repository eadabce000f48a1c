"""Many of the merchant's orders in one transaction: each is stored whole or not at all, and none undoes another.

Most orders of an import are new, or known and unchanged. These take a few statements for all of them together; the others go one by one, each in a
savepoint, by the same steps as an order that is sent alone.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from sqlalchemy import select
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncConnection

from refunds import points
from refunds.clock import Clock
from refunds.errors import RefundError
from refunds.ids import Prefix, new_id
from refunds.orders import Order
from store import identifiers
from store.changes import plain
from store.identifiers import KEY_COLUMNS, Customer
from store.orders import Put, key_of_owner, made_of, note_since, record_order
from store.sql import Row
from store.tables import customer_keys, customers, ledger, order_versions, orders, payments


@dataclass(frozen=True)
class Imported:
    """What became of one order: stored at a version, or refused, with nothing of it stored."""

    put: Put | None
    version: int | None = None
    error: RefundError | None = None


@dataclass(frozen=True)
class Sent:
    """An order under the merchant's id, and how it would be stored."""

    external_ref: str
    order: Order
    body: dict[str, Any]


@dataclass
class _Since:
    """Since when whom it concerns are customers. Written at the end, in one order: customers are locked last, and two imports lock them alike."""

    _wanted: dict[str, datetime] = field(default_factory=dict)

    def note(self, customer: Customer, order: Order) -> None:
        if order.customer_since is None:
            return
        if order.customer_since != customer.account_created_at:
            self._wanted[customer.id] = order.customer_since
        else:
            self._wanted.pop(customer.id, None)

    async def write(self, connection: AsyncConnection) -> None:
        for customer_id, since in sorted(self._wanted.items()):
            await note_since(connection, customer_id, since)


async def import_orders(connection: AsyncConnection, clock: Clock, wanted: Sequence[tuple[str, Order]], *, actor: str) -> list[Imported]:
    """Store orders, none of them named twice, and say of each, in the same order, what became of it.

    As if each was put alone: the same content makes no new version, so the whole may be repeated; an order that is refused (``ORDER_CONFLICT``) leaves
    nothing of itself and changes nothing of the others. Raises ``STORE_UNAVAILABLE``, when a lock is not had in time too; then nothing at all is stored.
    """
    sent = [Sent(ref, order, order.model_dump(mode="json")) for ref, order in wanted]
    known, taken = await _known(connection, sent), await _taken(connection, sent)
    fresh = [one for one in sent if one.external_ref not in known and not any(payment.id in taken for payment in one.order.payments)]
    since = _Since()
    done = {ref: Imported(Put.CREATED, 1) for ref in await _add(connection, clock, fresh, since, actor)}
    for one in sent:
        row = known.get(one.external_ref)
        if row is not None and row["owner"] == identifiers.customer_lookup(connection, one.order.customer_id) and row["body"] == one.body:
            done[one.external_ref] = Imported(Put.UNCHANGED, row["version"])
        elif one.external_ref not in done:
            done[one.external_ref] = await _alone(connection, clock, one, since, actor)
    await since.write(connection)
    return [done[one.external_ref] for one in sent]


async def _known(connection: AsyncConnection, sent: Sequence[Sent]) -> dict[str, Row]:
    """The orders that are there, with their content as it was sent. An order keeps its customer for ever, so one that is unchanged needs no lock."""
    refs = {identifiers.order_lookup(connection, one.external_ref): one.external_ref for one in sent}
    columns = (orders.c.id, orders.c.ref_lookup, orders.c.customer_id, orders.c.version, orders.c.body, orders.c.body_sealed)
    reading = (
        select(*columns, customers.c.ref_lookup.label("owner"), *KEY_COLUMNS)
        .join(customers, customers.c.id == orders.c.customer_id)
        .outerjoin(customer_keys, customer_keys.c.customer_id == orders.c.customer_id)
        .where(orders.c.ref_lookup.in_(list(refs)))
    )
    found = (await connection.execute(reading)).mappings().all()
    return {refs[row["ref_lookup"]]: {**row, "body": identifiers.open_body(await key_of_owner(connection, row), row)} for row in found}


async def _taken(connection: AsyncConnection, sent: Sequence[Sent]) -> set[str]:
    named = [payment.id for one in sent for payment in one.order.payments]
    return set((await connection.execute(select(payments.c.processor_payment).where(payments.c.processor_payment.in_(named)))).scalars())


async def _alone(connection: AsyncConnection, clock: Clock, one: Sent, since: _Since, actor: str) -> Imported:
    try:
        async with connection.begin_nested():
            row, put, customer = await record_order(connection, clock, external_ref=one.external_ref, order=one.order, actor=actor)
    except RefundError as error:
        return Imported(None, error=error)
    if put is not Put.UNCHANGED:
        since.note(customer, one.order)
    return Imported(put, row["version"])


class _Overtaken(Exception):
    """One of the orders or payments is there after all: somebody else stored it since they were read, or two of the new orders name one payment."""


async def _add(connection: AsyncConnection, clock: Clock, fresh: Sequence[Sent], since: _Since, actor: str) -> list[str]:
    """Store orders of which nothing is there yet, and return their ids; none, when any of it is there after all."""
    if not fresh:
        return []
    try:
        async with connection.begin_nested():
            owners = await _customers(connection, clock, fresh)
            await _insert(connection, clock, fresh, owners, actor)
    except _Overtaken:
        return []
    for one in fresh:
        since.note(owners[one.order.customer_id], one.order)
    return [one.external_ref for one in fresh]


async def _customers(connection: AsyncConnection, clock: Clock, fresh: Sequence[Sent]) -> dict[str, Customer]:
    first = {one.order.customer_id: one.order.customer_since for one in reversed(fresh)}
    return await identifiers.put_customers(connection, first, at=clock.now())


async def _insert(connection: AsyncConnection, clock: Clock, fresh: Sequence[Sent], owners: dict[str, Customer], actor: str) -> None:
    now = clock.now()
    ids = {one.external_ref: new_id(Prefix.ORDER) for one in fresh}
    sealed, bodies = {}, {}
    for one in fresh:
        owner, order_id = owners[one.order.customer_id], ids[one.external_ref]
        assert owner.key is not None
        sealed[one.external_ref] = identifiers.seal_order(connection, owner.key, order_id, one.external_ref)
        bodies[one.external_ref] = identifiers.sealed_body(owner.key, order_id, 1, one.body, owner.id)
    order_rows = [
        {
            "id": ids[one.external_ref],
            "customer_id": owners[one.order.customer_id].id,
            "version": 1,
            "placed_at": one.order.placed_at,
            "delivered_at": one.order.delivered_at,
            "updated_at": now,
            **sealed[one.external_ref].columns,
            **bodies[one.external_ref],
        }
        for one in fresh
    ]
    payment_rows = [
        {
            "id": new_id(Prefix.PAYMENT),
            "order_id": ids[one.external_ref],
            "processor": payment.processor,
            "processor_payment": payment.id,
            "currency": payment.currency,
            "amount": payment.amount,
            "tender": payment.tender,
        }
        for one in fresh
        for payment in one.order.payments
    ]
    for table, rows in ((orders, order_rows), (payments, payment_rows)):
        adding = insert(table).on_conflict_do_nothing().returning(table.c.id)
        if rows and len((await connection.execute(adding, rows)).all()) != len(rows):
            raise _Overtaken
    versions = [
        {"order_id": ids[one.external_ref], "version": 1, "recorded_at": now, "recorded_by": actor, **bodies[one.external_ref]}
        for one in fresh
    ]
    await connection.execute(insert(order_versions), versions)
    entries = [
        {
            "at": now,
            "type": "order_recorded",
            "actor": actor,
            "data": plain({"order": ids[one.external_ref], "version": 1}),
            "commitments": made_of(owners[one.order.customer_id], sealed[one.external_ref].commitment),
        }
        for one in fresh
    ]
    await connection.execute(insert(ledger).inline(), entries)
    points.writes("order_recorded")
