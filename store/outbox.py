"""What must reach the outside at least once, and which runs are missing: the work list of the worker's sweep."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import exists, func, insert, literal, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from refunds.messages import Situation
from refunds.status import Status
from store.halts import EVERYTHING, covers
from store.situations import situation
from store.tables import controls, halts, instructions, outbox, payments, refunds

_BACK_OFF_S = (1, 2, 5, 15, 60, 300)
LEASE = timedelta(seconds=60)
"""How long one sweep may take over what it has taken before another may take it."""


@dataclass(frozen=True, slots=True)
class Due:
    """One thing to deliver: a ``signal`` to a run, or a ``notice`` to people."""

    id: int
    kind: str
    refund_id: str | None
    body: dict[str, Any]
    tries: int


async def take_due(connection: AsyncConnection, now: datetime, *, limit: int = 100) -> list[Due]:
    """Take what is due, oldest first, for :data:`LEASE`: what is not marked as done by then is due again. Rows another sweep holds are left to it.

    That a run has heard a message by an update is no reason to leave out its signal: Temporal forgets an update whose task is lost after its step was done, and
    with it that the run must go on. Hearing twice changes nothing.
    """
    ready = (
        select(outbox.c.id)
        .where(outbox.c.done_at.is_(None), outbox.c.due_at <= now)
        .order_by(outbox.c.due_at, outbox.c.id)
        .limit(limit)
        .with_for_update(skip_locked=True)
    )
    ids = list((await connection.execute(ready)).scalars())
    if not ids:
        return []
    rows = await connection.execute(
        update(outbox)
        .where(outbox.c.id.in_(ids), outbox.c.done_at.is_(None))
        .values(due_at=now + LEASE, tries=outbox.c.tries + 1)
        .returning(outbox.c.id, outbox.c.kind, outbox.c.refund_id, outbox.c.body, outbox.c.tries)
    )
    return sorted((Due(*row) for row in rows), key=lambda due: due.id)


async def done(connection: AsyncConnection, ids: list[int], now: datetime) -> None:
    """Mark as delivered."""
    if ids:
        await connection.execute(update(outbox).where(outbox.c.id.in_(ids)).values(done_at=now))


async def failed(connection: AsyncConnection, due: Due, now: datetime, error: str) -> None:
    """Try again later: after 1 s, then ever longer, up to 5 minutes."""
    wait = _BACK_OFF_S[min(due.tries, len(_BACK_OFF_S)) - 1]
    await connection.execute(
        update(outbox).where(outbox.c.id == due.id).values(due_at=now + timedelta(seconds=wait), last_error=error[:500])
    )


async def missing_runs(connection: AsyncConnection, now: datetime, *, grace: timedelta, limit: int = 100) -> list[Situation]:
    """Refunds that are not final and whose run was never seen, or not looked for lately: each is to be started if it is not running.

    They are marked as looked for, so that every open refund comes round.
    """
    never_seen = refunds.c.run_seen_at.is_(None) & (refunds.c.created_at < now - grace)
    not_lately = (refunds.c.run_checked_at < now - grace * 12) | (
        refunds.c.run_checked_at.is_(None) & (refunds.c.created_at < now - grace * 12)
    )
    rows = (
        (
            await connection.execute(
                select(refunds)
                .where(refunds.c.final_at.is_(None), (never_seen & refunds.c.run_checked_at.is_(None)) | not_lately)
                .order_by(refunds.c.created_at)
                .limit(limit)
                .with_for_update(skip_locked=True, key_share=True)
            )
        )
        .mappings()
        .all()
    )
    if rows:
        await connection.execute(update(refunds).where(refunds.c.id.in_([r["id"] for r in rows])).values(run_checked_at=now))
    return [situation(dict(row)) for row in rows]


async def say_again(connection: AsyncConnection, refund_ids: Sequence[str], now: datetime) -> None:
    """Queue again what was asked of refunds and not carried out: their runs have just been started, and heard nothing of what was said before."""
    again = select(
        literal("signal"),
        instructions.c.refund_id,
        func.jsonb_build_object("name", instructions.c.kind, "message", instructions.c.id),
        literal(now),
        literal(now),
    ).where(instructions.c.refund_id.in_(refund_ids), instructions.c.applied_at.is_(None))
    await connection.execute(
        insert(outbox).from_select(["kind", "refund_id", "body", "created_at", "due_at"], again, include_defaults=False)
    )


async def held_refunds(connection: AsyncConnection, scope: str = EVERYTHING) -> list[str]:
    """Refunds of a scope that were held back, or legs of whom may be, and that no other stop, halt or mode keeps back, oldest first: what a resume wakes."""
    still = exists().where(halts.c.lifted_at.is_(None), covers(halts.c.scope, payments.c.processor))
    all_of_them = exists().where(controls.c.scope == EVERYTHING, controls.c.stopped | (controls.c.mode != "live"))
    kept_back = (refunds.c.status == Status.HELD) | refunds.c.legs_at.is_not(None)
    rows = await connection.execute(
        select(refunds.c.id)
        .join(payments, payments.c.id == refunds.c.payment_id)
        .where(kept_back, covers(literal(scope), payments.c.processor), ~still, ~all_of_them)
        .order_by(refunds.c.status_since)
    )
    return list(rows.scalars())
