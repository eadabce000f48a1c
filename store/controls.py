"""The emergency stop (promise P4).

The stop takes an advisory lock exclusively that every attempt shares, flips one flag and nothing else, and commits. So when it has answered, an attempt
either opened its row before (and is listed until it has answered or lapsed) or reads the flag in a statement that began after it. A stop state that
cannot be read counts as stopped: the attempt's transaction fails, and nothing is sent.
"""

from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Text, cast, func, literal, literal_column, select, text, update
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncConnection

from refunds.clock import Clock
from store.changes import enter
from store.halts import EVERYTHING, covers
from store.sql import Query, Row
from store.tables import attempts, controls, leg_attempts, legs, operations, payments, refunds

STOP_LOCK = 0x5245_4655_4E44  # any fixed number; this one spells REFUND


@dataclass(frozen=True, slots=True)
class Control:
    """The state of everything. ``mode`` is ``live`` or ``draft`` (prepare only, nothing is ever sent).

    ``changed_*`` and ``reason`` tell of the last change of either; ``stopped_*`` whose the present stop is and why, ``None`` while it runs.
    """

    scope: str
    stopped: bool
    mode: str
    reason: str
    changed_by: str | None
    changed_at: datetime
    stopped_by: str | None = None
    stopped_at: datetime | None = None
    stop_reason: str | None = None


READ = Query(select(controls).where(controls.c.scope == EVERYTHING))
MODE = select(controls.c.mode).where(controls.c.scope == literal(EVERYTHING)).scalar_subquery().label("mode")
"""The mode as a column of another statement. Null, where the row is not there, is not ``live``."""
_HELD_AT_MOST = "6s"
_SHARE_LOCK = Query(
    select(
        # Whoever holds the lock must come to an end, even frozen: the stop waits for it, and waits longer than this. A running clock is not set anew.
        func.set_config("transaction_timeout", "0", True).label("until_now"),
        func.set_config("transaction_timeout", _HELD_AT_MOST, True).label("within"),
        cast(func.pg_advisory_xact_lock_shared(literal_column(str(STOP_LOCK))), Text),
    )
)


async def read(connection: AsyncConnection) -> Control:
    """Read the state. Raises when it cannot be read, which counts as stopped."""
    return Control(**await READ.one(connection))


async def share_stop_lock(connection: AsyncConnection) -> None:
    """Take the stop's lock in shared mode until the transaction ends, for six seconds at most: the first lock of the order.

    Read the flag in a later statement, in the same pipeline or after it. A transaction that takes longer is cut off by the database, and nothing of it is stored.
    """
    await _SHARE_LOCK.do(connection)


async def lock_exclusively(connection: AsyncConnection) -> None:
    """Take the stop's lock: whoever opens an attempt waits until this transaction ends, and then sees what it changed."""
    # The stop must win over a busy system, so it waits longer for its lock than anybody may hold it (`share_stop_lock`).
    await connection.execute(text("SET LOCAL lock_timeout = '15s'"))
    await connection.execute(text("SET LOCAL statement_timeout = '20s'"))
    await connection.execute(select(func.pg_advisory_xact_lock(STOP_LOCK)))


async def change(connection: AsyncConnection, clock: Clock, *, stopped: bool, mode: str | None, reason: str, actor: str) -> Control:
    """Flip the flag under the exclusive lock and nothing else; without ``mode`` it stays. Committing the transaction is the moment of the stop.

    What is so already stays as it is: a stop belongs to who stopped first. Whether the actor may resume is the caller's to check (``store/scopes.py``).
    """
    await lock_exclusively(connection)
    before, now = await read(connection), clock.now()
    wanted = mode or before.mode
    if (stopped, wanted) == (before.stopped, before.mode):
        return before
    values: dict[str, Any] = {"stopped": stopped, "mode": wanted, "reason": reason, "changed_by": actor, "changed_at": now}
    if stopped is not before.stopped:
        ours = (actor, now, reason) if stopped else (None, None, None)
        values |= dict(zip(("stopped_by", "stopped_at", "stop_reason"), ours, strict=True))
    changing = update(controls).where(controls.c.scope == EVERYTHING).values(values).returning(controls)
    row = (await connection.execute(changing)).mappings().one()
    await enter(connection, "control_changed", now, actor=actor, scope=EVERYTHING, stopped=stopped, mode=row["mode"], reason=reason)
    return Control(**row)


async def ensure(connection: AsyncConnection, clock: Clock) -> None:
    """Make the row on a new database: running, live."""
    await connection.execute(
        insert(controls)
        .values(scope=EVERYTHING, stopped=False, mode="live", reason="new installation", changed_by=None, changed_at=clock.now())
        .on_conflict_do_nothing()
    )


async def open_attempts(connection: AsyncConnection, scope: str = EVERYTHING) -> list[Row]:
    """Attempts, of refunds and of their legs, within a scope that were opened and have neither answered nor lapsed: what a stop waits for, then lists."""
    # Past send_by nothing can leave any more, but what left just before it may still be under way.
    of_refunds = (
        select(
            attempts.c.id,
            operations.c.refund_id,
            attempts.c.opened_at,
            attempts.c.send_by,
            (func.clock_timestamp() <= attempts.c.send_by).label("may_still_send"),
        )
        .join(operations, operations.c.id == attempts.c.operation_id)
        .join(payments, payments.c.id == operations.c.payment_id)
        .join(refunds, refunds.c.id == operations.c.refund_id)
        .where(attempts.c.outcome.is_(None), operations.c.settled_at.is_(None), covers(literal(scope), payments.c.processor))
    )
    of_legs = (
        select(
            leg_attempts.c.id,
            legs.c.refund_id,
            leg_attempts.c.opened_at,
            leg_attempts.c.send_by,
            (func.clock_timestamp() <= leg_attempts.c.send_by).label("may_still_send"),
        )
        .join(legs, legs.c.id == leg_attempts.c.leg_id)
        .join(refunds, refunds.c.id == legs.c.refund_id)
        .join(payments, payments.c.id == refunds.c.payment_id)
        .where(leg_attempts.c.outcome.is_(None), legs.c.state == literal("waiting"), covers(literal(scope), payments.c.processor))
    )
    rows = await connection.execute(of_refunds.union_all(of_legs).order_by("opened_at"))
    return list(rows.mappings())


def as_plain(control: Control) -> dict[str, Any]:
    """The state as the API shows it."""
    return asdict(control)
