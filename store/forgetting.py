"""Forgetting a customer: one transaction in which everything that leads to the person goes, and one entry in the ledger.

What goes: the customer's key (with it everything sealed under it, here and in every copy of this database), the sealed rows themselves, what the customer and the
orders are found by, and what is personal in orders and requests. What stays is what the law and the accounts need without the person: amounts, times,
terms, decisions, the processor's ids, our surrogates; and the ledger, whose proofs hold because nothing of it is touched.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import bindparam, delete, insert, or_, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from refunds.clock import Clock
from refunds.erasure import Erasure, details_without_person, order_without_person
from refunds.errors import Code, RefundError
from refunds.ids import Prefix, new_id
from store.changes import enter
from store.sql import Row
from store.tables import (
    customer_keys,
    customers,
    discrepancies,
    erasure_replays,
    erasures,
    order_versions,
    orders,
    payments,
    pulled_payments,
    refund_groups,
    refunds,
    texts,
)
from store.vault import keys_of

_MOST_NAMED = 20
"""So many open refunds are named in a refusal."""


@dataclass(frozen=True, slots=True)
class Forgotten:
    """That somebody is forgotten: by which erasure, and since when. ``removed`` counts what this call took away, nothing when it had gone before."""

    erasure: str
    customer: str
    at: datetime
    removed: dict[str, int]

    @property
    def anew(self) -> bool:
        """Whether this call took something away."""
        return any(self.removed.values())


def mark(connection: AsyncConnection, external_id: str) -> bytes:
    """What tells for some days that a merchant's id was forgotten: the same for the same id, and nothing that can be tried without the key."""
    return keys_of(connection).lookup("erasure", external_id)


async def check_may_be_forgotten(connection: AsyncConnection, customer_id: str) -> None:
    """Raise ``CUSTOMER_HAS_OPEN_REFUNDS`` with their ids while a refund of this customer is under way.

    Whoever decides on it, or has to find out what became of it, needs what was written; and what was promised must not be lost (promise P6).
    """
    query = (
        select(refunds.c.id, refunds.c.status)
        .where(refunds.c.customer_id == customer_id, refunds.c.final_at.is_(None))
        .order_by(refunds.c.id)
    )
    found = (await connection.execute(query)).all()
    if found:
        raise RefundError(
            Code.CUSTOMER_HAS_OPEN_REFUNDS,
            f"{len(found)} {'refund is' if len(found) == 1 else 'refunds are'} under way.",
            refunds=[{"id": refund_id, "status": status} for refund_id, status in found[:_MOST_NAMED]],
        )


async def erasure_of(connection: AsyncConnection, *, customer_id: str | None = None, mark: bytes | None = None) -> Forgotten | None:
    """The erasure of a customer, by our surrogate or by the mark that its id left for some days; the latest one of that mark."""
    by = erasures.c.customer_id == customer_id if customer_id is not None else erasures.c.mark == mark
    row = (await connection.execute(select(erasures).where(by).order_by(erasures.c.forgotten_at.desc()).limit(1))).mappings().first()
    return None if row is None else Forgotten(row["id"], row["customer_id"], row["forgotten_at"], {})


async def forget(
    connection: AsyncConnection, clock: Clock, erasure: Erasure, *, actor: str, mark: bytes | None, unless_open: bool = False
) -> Forgotten | None:
    """Forget a customer by our surrogate; ``None`` when this database knows no such customer.

    Safe to call again: the first erasure stands, and what was written about the person since then goes, too. Refunds that are still under way go on without
    what was written; with ``unless_open`` it is refused because of them, as :func:`check_may_be_forgotten` does, and by now none can come after it was looked.
    The lock of the customer comes last in the order of locks.
    """
    await connection.execute(_ids_of(refunds, erasure.customer).with_for_update(key_share=True))
    await connection.execute(_ids_of(orders, erasure.customer).with_for_update(key_share=True))
    # Not only "no key update": whoever is about to store a request or an order of this customer waits, and finds them gone.
    customer = (await connection.execute(select(customers).where(customers.c.id == erasure.customer).with_for_update())).mappings().first()
    if customer is None:
        return None
    if unless_open:
        await check_may_be_forgotten(connection, erasure.customer)
    earlier = await erasure_of(connection, customer_id=erasure.customer)
    removed = await _remove(connection, erasure.customer, known=customer["forgotten_at"] is None, at=erasure.at)
    if earlier is None:
        await connection.execute(
            insert(erasures).values(
                id=erasure.id,
                customer_id=erasure.customer,
                forgotten_at=erasure.at,
                forgotten_by=erasure.by,
                reason=erasure.reason.value,
                reference=erasure.reference,
                mark=mark,
            )
        )
    done = Forgotten(earlier.erasure if earlier else erasure.id, erasure.customer, earlier.at if earlier else erasure.at, removed)
    if earlier is None or done.anew:
        await enter(
            connection,
            "customer_forgotten",
            clock.now(),
            actor=actor,
            customer=erasure.customer,
            erasure=done.erasure,
            forgotten_at=done.at,
            reason=erasure.reason.value,
            reference=erasure.reference,
            removed=removed,
        )
    return done


def _ids_of(table: Any, customer_id: str) -> Any:
    return select(table.c.id).where(table.c.customer_id == customer_id).order_by(table.c.id)


async def _remove(connection: AsyncConnection, customer_id: str, *, known: bool, at: datetime) -> dict[str, int]:
    """Take away what leads to the person; how much of each kind there was.

    Of one who is not ``known`` any more only what was on its way then can be left: it is looked for in the same way, and what is reduced already stays as it is.
    """
    keys = await connection.execute(delete(customer_keys).where(customer_keys.c.customer_id == customer_id))
    sealed = await connection.execute(delete(texts).where(texts.c.customer_id == customer_id))
    if known:
        gone = {"ref_lookup": None, "ref_sealed": None, "account_created_at": None, "forgotten_at": at}
        await connection.execute(update(customers).where(customers.c.id == customer_id).values(gone))
    of_customer = orders.c.customer_id == customer_id
    its_orders = (await connection.execute(select(orders).where(of_customer).order_by(orders.c.id))).mappings().all()
    named = await _reduce_orders(connection, customer_id, its_orders)
    await _reduce_requests(connection, customer_id, named)
    its_payments = select(payments.c.processor_payment).join(orders, orders.c.id == payments.c.order_id).where(of_customer)
    await connection.execute(
        update(pulled_payments)
        .where(pulled_payments.c.processor_payment.in_(its_payments), pulled_payments.c.outcome.is_not(None))
        .values(order_lookup=None, order_sealed=None, customer_sealed=None)
    )
    # Remarks of operators are sealed under no key of the customer's.
    named_here = select(payments.c.id).join(orders, orders.c.id == payments.c.order_id).where(of_customer)
    about_them = or_(
        discrepancies.c.payment_id.in_(named_here),
        discrepancies.c.refund_id.in_(select(refunds.c.id).where(refunds.c.customer_id == customer_id)),
    )
    await connection.execute(update(discrepancies).where(about_them, discrepancies.c.note.is_not(None)).values(note=None))
    whole = [order for order in its_orders if order["ref_lookup"] is not None or order["body_sealed"] is not None]
    return {"keys": keys.rowcount, "texts": sealed.rowcount, "orders": len(whole)}


async def _reduce_orders(connection: AsyncConnection, customer_id: str, its_orders: Sequence[Row]) -> dict[str, dict[str, str]]:
    """Reduce orders and their versions to what the accounts need; the new names of each order's lines, which are the same in all of its versions."""
    names: dict[str, dict[str, str]] = {order["id"]: {} for order in its_orders}
    versions = select(order_versions).where(order_versions.c.order_id.in_(list(names)))
    for version in (await connection.execute(versions.order_by(order_versions.c.order_id, order_versions.c.version))).mappings().all():
        body = order_without_person(version["body"], customer_id, names[version["order_id"]])
        if body != version["body"] or version["body_sealed"] is not None:
            key = (order_versions.c.order_id == version["order_id"], order_versions.c.version == version["version"])
            await connection.execute(update(order_versions).where(*key).values(body=body, body_sealed=None))
    for order in its_orders:
        body = order_without_person(order["body"], customer_id, names[order["id"]])
        if body != order["body"] or order["body_sealed"] is not None or order["ref_lookup"] is not None:
            reduced = {"ref_lookup": None, "ref_sealed": None, "body": body, "body_sealed": None}
            await connection.execute(update(orders).where(orders.c.id == order["id"]).values(reduced))
    return names


async def _reduce_requests(connection: AsyncConnection, customer_id: str, names: dict[str, dict[str, str]]) -> None:
    for table in (refunds, refund_groups):
        rows = (
            await connection.execute(select(table.c.id, table.c.order_id, table.c.details).where(table.c.customer_id == customer_id))
        ).all()
        changed = [{"row": row.id, "reduced": details_without_person(row.details, names.get(row.order_id or "", {}))} for row in rows]
        if changed:
            statement = (
                update(table)
                .where(table.c.id == bindparam("row"))
                .values(details=bindparam("reduced", type_=table.c.details.type), body_hash="")
            )
            await connection.execute(statement, changed)


# --- after a restore


async def replay(connection: AsyncConnection, clock: Clock, lines: Sequence[Erasure], *, actor: str) -> tuple[int, int]:
    """Forget again whoever stands on the list outside and is known here; how many were, and how many this database does not know."""
    forgotten = absent = 0
    for erasure in lines:
        done = await forget(connection, clock, erasure, actor=actor, mark=None)
        absent += done is None
        forgotten += done is not None and done.anew
    return forgotten, absent


async def note_replayed(connection: AsyncConnection, clock: Clock, *, lines: int, forgotten: int, absent: int, actor: str) -> str:
    """Record that the whole list was gone through; returns the id of the record."""
    replay_id, now = new_id(Prefix.REPLAY), clock.now()
    await connection.execute(
        insert(erasure_replays).values(id=replay_id, at=now, by=actor, lines=lines, forgotten=forgotten, absent=absent)
    )
    await enter(connection, "erasures_replayed", now, actor=actor, replay=replay_id, lines=lines, forgotten=forgotten, absent=absent)
    return replay_id


async def unforgotten(connection: AsyncConnection, customer_ids: Sequence[str]) -> list[str]:
    """Who of these is known here and not forgotten."""
    query = select(customers.c.id).where(customers.c.id.in_(customer_ids), customers.c.forgotten_at.is_(None)).order_by(customers.c.id)
    return list((await connection.execute(query)).scalars())


async def others_than(connection: AsyncConnection, listed: Collection[str], since: datetime | None) -> int:
    """How many erasures this database has that are none of these, from an instant on; without one, of all times."""
    query = select(erasures.c.id).where(*([erasures.c.forgotten_at >= since] if since is not None else ()))
    return len(set((await connection.execute(query)).scalars()).difference(listed))


async def replayed_since(connection: AsyncConnection, moment: datetime) -> bool:
    """Whether the list was gone through since then."""
    query = select(erasure_replays.c.id).where(erasure_replays.c.at >= moment).limit(1)
    return (await connection.execute(query)).first() is not None
