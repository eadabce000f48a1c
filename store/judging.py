"""What people see of reconciliations and discrepancies, and what they do about them, over the login of the API."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import func, select, text, update
from sqlalchemy.ext.asyncio import AsyncConnection

from refunds.clock import Clock
from refunds.discrepancies import Kind, Standing
from refunds.errors import Code, RefundError
from refunds.ids import Prefix, new_id
from refunds.masking import mask
from refunds.people import Actor, PrincipalKind
from refunds.processor import STRIPE
from store import reconciling
from store.changes import enter
from store.reconciling import Run
from store.remarks import open_remark, seal_remark
from store.sql import Row
from store.tables import discrepancies, principals, reconciliations

_LIST = """
    SELECT d.*, p.processor_payment, o.handle AS owner_handle, o.name AS owner_name, c.handle AS closer_handle, c.name AS closer_name
      FROM discrepancies d
      LEFT JOIN payments p ON p.id = d.payment_id
      LEFT JOIN principals o ON o.id = d.owner_id
      LEFT JOIN principals c ON c.id = d.closed_by
     WHERE {conditions}
     ORDER BY d.first_seen_at DESC, d.id DESC
     LIMIT :limit
"""
_CONDITIONS = {
    "id": "d.id = :id",
    "state": "d.state = :state",
    "kind": "d.kind = :kind",
    "reconciliation": "d.reconciliation_id = :reconciliation",
}


@dataclass(frozen=True, slots=True)
class Filters:
    """What a list is narrowed to; ``None`` leaves out that filter. ``after`` is the place the page before ended at."""

    id: str | None = None
    state: Standing | None = None
    kind: Kind | None = None
    reconciliation: str | None = None
    after: tuple[datetime, str] | None = None


async def page(connection: AsyncConnection, filters: Filters, *, limit: int) -> list[Row]:
    """One page of discrepancies, newest first."""
    values: dict[str, Any] = {"limit": limit}
    conditions = ["TRUE"]
    for name, condition in _CONDITIONS.items():
        if (value := getattr(filters, name)) is not None:
            conditions.append(condition)
            values[name] = value
    if filters.after is not None:
        conditions.append("(d.first_seen_at, d.id) < (:after_at, :after_id)")
        values |= {"after_at": filters.after[0], "after_id": filters.after[1]}
    query = text(_LIST.format(conditions=" AND ".join(conditions)))
    rows = (await connection.execute(query, values)).mappings()
    return [{**row, "note": open_remark(connection, row["id"], row["note"])} for row in rows]


async def counts(connection: AsyncConnection) -> Mapping[str, int]:
    """How many discrepancies there are by standing."""
    rows = await connection.execute(select(discrepancies.c.state, func.count().label("n")).group_by(discrepancies.c.state))
    found = {row.state: row.n for row in rows}
    return {standing.value: found.get(standing.value, 0) for standing in Standing}


async def recent_runs(connection: AsyncConnection, *, limit: int) -> list[Run]:
    """The latest reconciliations, newest first."""
    rows = await connection.execute(
        select(reconciliations).order_by(reconciliations.c.started_at.desc(), reconciliations.c.id.desc()).limit(limit)
    )
    return [Run.of(row) for row in rows.mappings()]


async def request_run(connection: AsyncConnection, clock: Clock, actor: Actor, *, since: datetime) -> Run:
    """Store a reconciliation from ``since`` until now that somebody asked for. Raises ``INVALID_FIELD`` for a time that is not past."""
    now = clock.now()
    if since >= now:
        raise RefundError(Code.INVALID_FIELD, "A reconciliation looks back: give a time that is past.", field="since")
    run = await reconciling.begin(
        connection,
        now,
        run_id=new_id(Prefix.RECONCILIATION),
        processor=STRIPE,
        since=since,
        until=now,
        started_by=actor.principal_id,
    )
    await enter(connection, "reconciliation_requested", now, actor=actor.principal_id, reconciliation=run.id, since=since)
    return run


async def change(
    connection: AsyncConnection,
    clock: Clock,
    actor: Actor,
    discrepancy_id: str,
    *,
    owner: str | None,
    standing: Standing | None,
    note: str | None,
) -> Row:
    """Give a discrepancy an owner (a person, by id or handle), a standing, a note; what is ``None`` stays. Saying the same again changes nothing.

    Raises ``NOT_FOUND``, ``DISCREPANCY_CLOSED`` for one that is closed, and ``INVALID_FIELD`` for an owner who is no person here.
    """
    query = select(discrepancies).where(discrepancies.c.id == discrepancy_id).with_for_update(key_share=True)
    row = (await connection.execute(query)).mappings().one_or_none()
    if row is None:
        raise RefundError(Code.NOT_FOUND, "There is no such discrepancy.")
    wanted: dict[str, Any] = {}
    if owner is not None:
        wanted["owner_id"] = await _person(connection, owner)
    if standing is not None:
        wanted["state"] = standing.value
    changes = {name: value for name, value in wanted.items() if row[name] != value}
    if note is not None and mask(note).text != open_remark(connection, discrepancy_id, row["note"]):
        changes["note"] = note
    if changes:
        if row["state"] == Standing.CLOSED.value:
            raise RefundError(Code.DISCREPANCY_CLOSED, discrepancy=discrepancy_id)
        await _write(connection, clock.now(), actor, row, changes)
    [shown] = await page(connection, Filters(id=discrepancy_id), limit=1)
    return shown


async def _write(connection: AsyncConnection, at: datetime, actor: Actor, row: Row, changes: dict[str, Any]) -> None:
    remark = seal_remark(connection, row["id"], changes["note"]) if "note" in changes else None
    if remark is not None:
        changes = changes | {"note": remark.kept}
    closing = {"closed_at": at, "closed_by": actor.principal_id} if changes.get("state") == Standing.CLOSED.value else {}
    await connection.execute(update(discrepancies).where(discrepancies.c.id == row["id"]).values(changes | closing))
    await enter(
        connection,
        "discrepancy_changed",
        at,
        actor=actor.principal_id,
        discrepancy=row["id"],
        difference=row["kind"],
        owner=changes.get("owner_id"),
        standing=changes.get("state"),
        # The words stay in the row, sealed; the ledger says that there are new ones, and commits to them.
        noted="note" in changes,
        masked=(remark and remark.masked) or None,
        commitments={"note": remark.commitment} if remark else None,
    )


async def _person(connection: AsyncConnection, owner: str) -> str:
    query = select(principals).where(
        (principals.c.id == owner) | (func.lower(principals.c.handle) == owner.lower()),
        principals.c.kind == PrincipalKind.PERSON.value,
        principals.c.disabled_at.is_(None),
    )
    row = (await connection.execute(query)).mappings().first()
    if row is None:
        raise RefundError(Code.INVALID_FIELD, "There is no such person here.", field="owner")
    return row["id"]
