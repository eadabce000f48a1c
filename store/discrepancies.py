"""Discrepancies between the processor and our record: one row for one difference, with its evidence, owner and standing."""

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

    The first time it is entered in the ledger and people are told. ``evidence`` is what either side says, as integers, strings, and lists and maps of them:
    nothing personal, and no time of reading, because an explained difference whose evidence has changed is open again. ``standing`` is ``EXPLAINED`` for what
    explains itself, such as a refund that was imported. ``UNKNOWN_OPERATION`` holds its payment until it is closed.
    """
    shown = plain(dict(evidence))
    same = and_(
        discrepancies.c.kind == kind.value,
        func.coalesce(discrepancies.c.processor_refund, "") == (processor_refund or ""),
        func.coalesce(discrepancies.c.operation_id, "") == (operation_id or ""),
        _OPEN_ROW,
    )
    known = (await connection.execute(select(discrepancies).where(same).with_for_update(key_share=True))).mappings().one_or_none()
    if known is not None:
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
            first_seen_at=at,
            last_seen_at=at,
            reconciliation_id=reconciliation_id,
        )
        .on_conflict_do_nothing()
        .returning(discrepancies.c.id)
    )
    if inserted.first() is None:
        return False  # somebody else has just recorded the same
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
