"""Halts: within the scope of one that is in force nothing is sent, because an operator said so, a key was refused, the database has forgotten something, or
something else of ours is not as it should be.

A halt fails no refund: what is approved is held, and goes on once the halt is lifted. Several may be in force in one scope, one for each reason. The payments
role opens halts by itself and can never lift one. That an operator has stopped everything is a flag of its own (``store/controls.py``).
"""

from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, bindparam, case, func, literal, null, or_, select, true, update
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncConnection

from refunds.erasure import BY_AGENT
from refunds.errors import Code
from refunds.ids import Prefix, new_id
from store.changes import SYSTEM, enter, tell
from store.sql import Query, Row
from store.tables import halts, refunds

EVERYTHING, AGENTS = "everything", "agents"
AGENT, PROCESSOR = "agent:", "processor:"
"""How the name of a scope begins that is one agent's (its handle follows) or one processor's."""

FORGETFUL = frozenset({Code.DATABASE_RESTORED.value, Code.DATABASE_FORGOT.value})
"""Halts that only a full reconciliation makes good."""

_FORGETFUL_FIRST = case((halts.c.code.in_([literal(code) for code in sorted(FORGETFUL)]), literal(0)), else_=literal(1))
IN_FORCE = Query(
    select(halts)
    .where(halts.c.scope == bindparam("scope"), halts.c.lifted_at.is_(None))
    .order_by(_FORGETFUL_FIRST, halts.c.opened_at, halts.c.id)
)
_OPEN = Query(
    insert(halts)
    .values(
        {name: bindparam(name) for name in ("id", "scope", "processor", "code", "reason", "opened_at", "opened_by")}
        | {"lifted_at": null(), "lifted_by": null(), "lifted_reason": null()}
    )
    .on_conflict_do_nothing(index_elements=["scope", "code"], index_where=halts.c.lifted_at.is_(None))
    .returning(literal(1))
)


def asked_by_agent(refund: Any = refunds) -> ColumnElement[bool]:
    """Whether an agent asked for a refund: with a key of its own, or through a system that names the agent's session or model.

    The latter nobody has proven, which is enough for what only ever keeps something back.
    """
    named = (refund.c.details[name].astext.is_not(None) for name in BY_AGENT)
    return or_(refund.c.agent_id.is_not(None), *named)


def covers(scope: Any, processor: Any, refund: Any = refunds) -> ColumnElement[bool]:
    """Whether a scope covers a refund (a row of ``refund``) whose payment is with a processor. A scope that nobody understands covers every refund."""
    return case(
        (scope == literal(AGENTS), asked_by_agent(refund)),
        (scope.like(literal(f"{AGENT}%")), scope == func.concat(literal(AGENT), refund.c.agent_id)),
        (scope.like(literal(f"{PROCESSOR}%")), scope == func.concat(literal(PROCESSOR), processor)),
        else_=true(),
    )


async def in_force(connection: AsyncConnection, processor: str) -> Row | None:
    """The halt of a processor that is in force, or ``None``; of several the one that only a reconciliation makes good. Raises when it cannot be read, which
    counts as halted."""
    return await IN_FORCE.first(connection, scope=PROCESSOR + processor)


async def all_in_force(connection: AsyncConnection, scope: str) -> list[dict[str, Any]]:
    """Every halt in force of exactly this scope, those first that only a reconciliation makes good, then the oldest."""
    return await IN_FORCE.all(connection, scope=scope)


async def open_halt(
    connection: AsyncConnection, at: datetime, *, processor: str, code: Code, reason: str, actor: str | None = None
) -> bool:
    """Halt a processor and tell people; false when it is halted for that already. From the commit on no attempt is opened there."""
    return await open_scope(connection, at, scope=PROCESSOR + processor, code=code, reason=reason, actor=actor)


async def open_scope(connection: AsyncConnection, at: datetime, *, scope: str, code: Code, reason: str, actor: str | None = None) -> bool:
    """Halt a scope and tell people; false when it is halted for that already. ``actor`` is ``None`` for the orchestrator itself.

    To be sure that an attempt was opened before it or sees it, hold the stop's lock (``store.controls.lock_exclusively``).
    """
    # That a database has forgotten something needs one reconciliation, however often and by whatever it is noticed meanwhile.
    if code in FORGETFUL and any(halt["code"] in FORGETFUL for halt in await all_in_force(connection, scope)):
        return False
    processor = scope.removeprefix(PROCESSOR) if scope.startswith(PROCESSOR) else None
    halt, reason = new_id(Prefix.HALT), reason[:500]
    given = {"id": halt, "scope": scope, "processor": processor, "code": code.value, "reason": reason}
    if await _OPEN.first(connection, opened_at=at, opened_by=actor, **given) is None:
        return False
    kind = "scope_halted" if processor is None else "processor_halted"
    about = {"halt": halt, "scope": scope, "processor": processor, "code": code.value}
    await enter(connection, kind, at, actor=actor or SYSTEM, reason=reason, **about)
    await tell(connection, kind, at, **about)
    return True


async def lift(connection: AsyncConnection, at: datetime, *, processor: str, reason: str, actor: str) -> Row | None:
    """Lift the halts in force of a processor and return the first of them, or ``None`` when there is none."""
    return next(iter(await lift_scope(connection, at, scope=PROCESSOR + processor, reason=reason, actor=actor)), None)


async def lift_scope(connection: AsyncConnection, at: datetime, *, scope: str, reason: str, actor: str) -> list[Row]:
    """Lift every halt in force of exactly this scope, whatever for, and return them, the oldest first. Whether the actor may is the caller's to check."""
    return await _lift(connection, at, halts.c.scope == scope, reason=reason, actor=actor)


async def lift_own(connection: AsyncConnection, at: datetime, *, scope: str, code: Code, reason: str) -> bool:
    """Lift what the orchestrator itself has halted with this code, and nothing that a person did; false when there is nothing of it in force."""
    own = (halts.c.scope == scope) & (halts.c.code == code.value) & halts.c.opened_by.is_(None)
    return bool(await _lift(connection, at, own, reason=reason, actor=None))


async def _lift(connection: AsyncConnection, at: datetime, which: ColumnElement[bool], *, reason: str, actor: str | None) -> list[Row]:
    lifted = (
        update(halts)
        .where(which, halts.c.lifted_at.is_(None))
        .values(lifted_at=at, lifted_by=actor, lifted_reason=reason[:500])
        .returning(halts)
    )
    rows: list[Row] = sorted((await connection.execute(lifted)).mappings(), key=lambda row: (row["opened_at"], row["id"]))
    for row in rows:
        about = {"halt": row["id"], "scope": row["scope"], "processor": row["processor"], "code": row["code"]}
        await enter(connection, "halt_lifted", at, actor=actor or SYSTEM, reason=reason[:500], **about)
    return rows
