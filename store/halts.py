"""Halts: nothing is sent to a processor while one of it is in force, because its key was refused, the database has forgotten something, or an operator said so.

A halt fails no refund: what is approved is held, and goes on once the halt is lifted. The payments role opens halts by itself and can never lift one.
"""

from datetime import datetime

from sqlalchemy import bindparam, literal, null, select, update
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncConnection

from refunds.errors import Code
from refunds.ids import Prefix, new_id
from store.changes import SYSTEM, enter, tell
from store.sql import Query, Row
from store.tables import halts

IN_FORCE = Query(select(halts).where(halts.c.processor == bindparam("processor"), halts.c.lifted_at.is_(None)))
_OPEN = Query(
    insert(halts)
    .values(
        {name: bindparam(name) for name in ("id", "processor", "code", "reason", "opened_at", "opened_by")}
        | {"lifted_at": null(), "lifted_by": null(), "lifted_reason": null()}
    )
    .on_conflict_do_nothing(index_elements=["processor"], index_where=halts.c.lifted_at.is_(None))
    .returning(literal(1))
)


async def in_force(connection: AsyncConnection, processor: str) -> Row | None:
    """The halt of a processor that is in force, or ``None``. Raises when it cannot be read, which counts as halted."""
    return await IN_FORCE.first(connection, processor=processor)


async def open_halt(
    connection: AsyncConnection, at: datetime, *, processor: str, code: Code, reason: str, actor: str | None = None
) -> bool:
    """Halt a processor and tell people; false when it is halted already, whatever for. From the commit on no attempt is opened."""
    halt = new_id(Prefix.HALT)
    opened = await _OPEN.first(
        connection, id=halt, processor=processor, code=code.value, reason=reason[:500], opened_at=at, opened_by=actor
    )
    if opened is None:
        return False
    await enter(
        connection, "processor_halted", at, actor=actor or SYSTEM, halt=halt, processor=processor, code=code.value, reason=reason[:500]
    )
    await tell(connection, "processor_halted", at, halt=halt, processor=processor, code=code.value)
    return True


async def lift(connection: AsyncConnection, at: datetime, *, processor: str, reason: str, actor: str) -> Row | None:
    """Lift the halt in force and return it, or ``None`` when there is none."""
    row = (
        (
            await connection.execute(
                update(halts)
                .where(halts.c.processor == processor, halts.c.lifted_at.is_(None))
                .values(lifted_at=at, lifted_by=actor, lifted_reason=reason)
                .returning(halts)
            )
        )
        .mappings()
        .one_or_none()
    )
    if row is not None:
        await enter(connection, "halt_lifted", at, actor=actor, halt=row["id"], processor=processor, code=row["code"], reason=reason)
    return row
