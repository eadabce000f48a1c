"""What may be stopped, scope by scope: everything (``store/controls.py``), or one processor (``store/halts.py``)."""

from typing import Any

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncConnection

from refunds.clock import Clock
from refunds.errors import Code
from store import controls, restoring
from store.halts import in_force, lift, open_halt
from store.tables import halts, principals, processor_binding

PROCESSOR = "processor:"
"""Begins the name of the scope of one processor."""


async def states(connection: AsyncConnection) -> list[dict[str, Any]]:
    """The state of every scope as the API shows it, with who changed it: everything, then each processor this database is bound to."""
    shown = [await _everything(connection, await controls.read(connection))]
    for processor in (await connection.execute(select(processor_binding.c.processor).order_by(processor_binding.c.processor))).scalars():
        shown.append(await _of_processor(connection, processor))
    return shown


async def _everything(connection: AsyncConnection, control: controls.Control) -> dict[str, Any]:
    return controls.as_plain(control) | {"code": None, "changed_by_handle": await _handle(connection, control.changed_by)}


async def _of_processor(connection: AsyncConnection, processor: str) -> dict[str, Any]:
    """The state of one processor, by its last halt."""
    newest = select(halts).where(halts.c.processor == processor).order_by(halts.c.opened_at.desc()).limit(1)
    row = (await connection.execute(newest)).mappings().first()
    stopped = row is not None and row["lifted_at"] is None
    by, at, reason = None, None, "never halted"
    if row is not None:
        by, at, reason = (
            (row["opened_by"], row["opened_at"], row["reason"]) if stopped else (row["lifted_by"], row["lifted_at"], row["lifted_reason"])
        )
    return {
        "scope": PROCESSOR + processor,
        "stopped": stopped,
        "mode": None,
        "code": row["code"] if row is not None and stopped else None,
        "reason": reason,
        "changed_by": by,
        "changed_by_handle": await _handle(connection, by),
        "changed_at": at,
    }


async def _change_processor(
    connection: AsyncConnection, clock: Clock, *, processor: str, stopped: bool, reason: str, actor: str
) -> dict[str, Any]:
    """Halt a processor, or lift its halt, under the exclusive lock: once this is committed no attempt begins, or held refunds may go on.

    Raises ``RECONCILIATION_REQUIRED`` when the halt must not be lifted yet. What is so already stays as it is.
    """
    await controls.lock_exclusively(connection)
    if stopped:
        await open_halt(connection, clock.now(), processor=processor, code=Code.HALTED_BY_OPERATOR, reason=reason, actor=actor)
    elif (halt := await in_force(connection, processor)) is not None:
        await restoring.check_lift(connection, halt)
        await lift(connection, clock.now(), processor=processor, reason=reason, actor=actor)
    return await _of_processor(connection, processor)


async def _handle(connection: AsyncConnection, principal_id: str | None) -> str | None:
    return (await connection.execute(select(principals.c.handle).where(principals.c.id == principal_id))).scalar_one_or_none()


async def change(
    connection: AsyncConnection, clock: Clock, *, scope: str, stopped: bool, mode: str | None, reason: str, actor: str
) -> dict[str, Any]:
    """Stop or resume a scope and return its state; ``mode`` is everything's alone. Committing the transaction is the moment of the stop."""
    if scope.startswith(PROCESSOR):
        processor = scope.removeprefix(PROCESSOR)
        return await _change_processor(connection, clock, processor=processor, stopped=stopped, reason=reason, actor=actor)
    changed = await controls.change(connection, clock, stopped=stopped, mode=mode, reason=reason, actor=actor)
    return await _everything(connection, changed)
