"""Discrepancies between the processor and our record: one row for one difference, with its evidence, owner and standing.

One refund of the processor is one open discrepancy, whoever notices it: it names the strongest of what differs (:meth:`refunds.discrepancies.Kind.replaces`).
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from sqlalchemy import and_, func, select, update
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncConnection

from refunds.discrepancies import Kind, Standing
from refunds.ids import Prefix, new_id
from store.changes import SYSTEM, enter, plain, tell
from store.sql import Row
from store.tables import discrepancies

_ONE_REFUND = 0x4449_5343  # any fixed number; this one spells DISC
_OPEN_ROW = discrepancies.c.state != Standing.CLOSED.value


async def note(
    connection: AsyncConnection,
    at: datetime,
    *,
    kind: Kind,
    processor: str,
    payment_id: str | None = None,
    refund_id: str | None = None,
    operation_id: str | None = None,
    processor_refund: str | None = None,
    evidence: Mapping[str, Any],
    reconciliation_id: str | None = None,
    standing: Standing = Standing.OPEN,
) -> bool:
    """Record a difference; true the first time. Seen again, until somebody has closed it, it is the same row with a later ``last_seen_at``.

    An open discrepancy of the same refund of the processor and of another kind is closed with a note in the same transaction when this kind is the stronger
    one, and its owner owns the new one; otherwise it stays, and only was seen again.

    The first time it is entered in the ledger and people are told. ``evidence`` is what either side says, as integers, strings, and lists and maps of them:
    nothing personal, and no time of reading, because an explained difference whose evidence has changed is open again. ``standing`` is ``EXPLAINED`` for what
    explains itself, such as a refund that was imported. ``UNKNOWN_OPERATION`` holds its payment until it is closed.
    """
    shown = plain(dict(evidence))
    other = await _open_besides(connection, processor_refund, kind)
    if other is not None and not kind.replaces(Kind(other["kind"])):
        await connection.execute(update(discrepancies).where(discrepancies.c.id == other["id"]).values(last_seen_at=at))
        return False
    same = and_(
        discrepancies.c.kind == kind.value,
        func.coalesce(discrepancies.c.processor_refund, "") == (processor_refund or ""),
        func.coalesce(discrepancies.c.operation_id, "") == (operation_id or ""),
        _OPEN_ROW,
    )
    known = (await connection.execute(select(discrepancies).where(same).with_for_update(key_share=True))).mappings().one_or_none()
    if known is not None:
        if other is not None:
            await _replace(connection, at, other, known["id"], kind)
        await _seen_again(connection, at, known, shown, standing)
        return False
    found = new_id(Prefix.DISCREPANCY)
    inserted = await connection.execute(
        insert(discrepancies)
        .values(
            id=found,
            kind=kind.value,
            processor=processor,
            payment_id=payment_id,
            refund_id=refund_id,
            operation_id=operation_id,
            processor_refund=processor_refund,
            evidence=shown,
            state=standing.value,
            owner_id=other["owner_id"] if other is not None else None,
            first_seen_at=at,
            last_seen_at=at,
            reconciliation_id=reconciliation_id,
        )
        .on_conflict_do_nothing()
        .returning(discrepancies.c.id)
    )
    if inserted.first() is None:
        return False  # somebody else has just recorded the same
    if other is not None:
        await _replace(connection, at, other, found, kind)
    names = {
        "payment": payment_id,
        "refund_id": refund_id,
        "operation": operation_id,
        "processor_refund": processor_refund,
        "standing": standing.value,
    }
    await enter(connection, "discrepancy_found", at, actor=SYSTEM, discrepancy=found, difference=kind.value, evidence=shown, **names)
    await tell(connection, "discrepancy_found", at, discrepancy=found, difference=kind.value, runbook=kind.runbook, **names)
    return True


async def _open_besides(connection: AsyncConnection, processor_refund: str | None, kind: Kind) -> Row | None:
    """The open discrepancy of another kind of a refund of the processor. From now on nobody else records one of it, until this transaction is over."""
    if processor_refund is None:
        return None
    await connection.execute(select(func.pg_advisory_xact_lock(_ONE_REFUND, func.hashtext(processor_refund))))
    query = select(discrepancies).where(
        discrepancies.c.processor_refund == processor_refund,
        discrepancies.c.state == Standing.OPEN.value,
        discrepancies.c.kind != kind.value,
    )
    return (
        (await connection.execute(query.order_by(discrepancies.c.first_seen_at).limit(1).with_for_update(key_share=True)))
        .mappings()
        .first()
    )


async def _replace(connection: AsyncConnection, at: datetime, old: Row, new: str, kind: Kind) -> None:
    """Close a discrepancy that turned out to be another one."""
    note = f"Closed by the orchestrator: it turned out to be {kind.value}, see {new}."
    values = {"state": Standing.CLOSED.value, "closed_at": at, "note": f"{old['note']}\n{note}" if old["note"] else note}
    await connection.execute(update(discrepancies).where(discrepancies.c.id == old["id"]).values(values))
    await enter(
        connection,
        "discrepancy_changed",
        at,
        actor=SYSTEM,
        discrepancy=old["id"],
        difference=old["kind"],
        standing=Standing.CLOSED.value,
        noted=True,
        replaced_by=new,
    )


async def _seen_again(connection: AsyncConnection, at: datetime, known: Row, shown: dict[str, Any], standing: Standing) -> None:
    changed = known["evidence"] != shown
    reopened = changed and standing is Standing.OPEN and known["state"] == Standing.EXPLAINED.value
    values: dict[str, Any] = {"last_seen_at": at, "evidence": shown}
    if reopened:
        values["state"] = Standing.OPEN.value
    await connection.execute(update(discrepancies).where(discrepancies.c.id == known["id"]).values(values))
    if reopened:
        await enter(connection, "discrepancy_reopened", at, actor=SYSTEM, discrepancy=known["id"], evidence=shown)
        await tell(connection, "discrepancy_reopened", at, discrepancy=known["id"], difference=known["kind"])
    elif changed:
        await enter(connection, "discrepancy_seen_otherwise", at, actor=SYSTEM, discrepancy=known["id"], evidence=shown)
