"""What a database can tell of its own identity, and what is owed after it may have forgotten something: a full reconciliation before anything is sent again."""

from datetime import datetime, timedelta

from sqlalchemy import exists, func, literal, or_, select, text
from sqlalchemy.exc import ProgrammingError
from sqlalchemy.ext.asyncio import AsyncConnection

from refunds.clock import rfc3339
from refunds.errors import Code, RefundError
from refunds.identity import Identity
from refunds.ids import Prefix, new_id
from refunds.logs import logger
from store import controls, halts, reconciling
from store.db import Database
from store.halts import FORGETFUL
from store.reconciling import FULL, Phase, Run
from store.sql import Row
from store.tables import halts as halts_table
from store.tables import ledger, processor_binding, reconciliations

log = logger(__name__)

REACH = FULL + timedelta(days=1)
"""What an owed reconciliation reaches back over. One that reaches over ``FULL``, or to the day the database was bound to its account, is enough: an older
backup is no backup."""

OWED = "system: the database may have forgotten something"

IN_DOUBT = or_(
    halts_table.c.code.in_([literal(code) for code in sorted(FORGETFUL)]),
    # It was halted for something else already when the database was doubted.
    exists().where(
        reconciliations.c.processor == halts_table.c.processor,
        reconciliations.c.started_by == literal(OWED),
        reconciliations.c.started_at >= halts_table.c.opened_at,
    ),
)
"""Whether the database may have forgotten something under a halt, of whichever processor it is."""

_CLUSTER = text(
    "SELECT (SELECT system_identifier::text FROM pg_control_system()) AS system,"
    # The timeline that is written now; the control file's lags behind a promotion until the next checkpoint.
    " ('x' || left(pg_walfile_name(pg_current_wal_lsn()), 8))::bit(32)::int AS timeline,"
    " (SELECT oid::bigint FROM pg_database WHERE datname = current_database()) AS database"
)


async def identity(database: Database) -> Identity:
    """What the database says of itself now. Where a login may not ask the cluster, the ledger alone must do."""
    system, timeline, number = "", 0, 0
    try:
        async with database.begin() as connection:
            system, timeline, number = (await connection.execute(_CLUSTER)).one()
    except ProgrammingError:
        log.warning(
            "cluster_identity_unreadable", remedy="grant EXECUTE on pg_control_system() and pg_walfile_name() to the payments login"
        )
    async with database.begin() as connection:
        last = (await connection.execute(select(func.coalesce(func.max(ledger.c.id), 0)))).scalar_one()
    return Identity(system, timeline, number, last)


async def lineage(connection: AsyncConnection, processor: str) -> str:
    """A name for this database and all its copies: the moment it was bound to its account, which a restored copy brings along."""
    row = (await connection.execute(select(processor_binding).where(processor_binding.c.processor == processor))).mappings().one()
    return f"{processor}-{row['account']}-{row['mode']}-{int(row['bound_at'].timestamp() * 1_000_000)}"


async def was_used(connection: AsyncConnection) -> bool:
    """Whether a reconciliation was ever begun: from then on something outside knows how far the database had come."""
    return (await connection.execute(select(literal(1)).select_from(reconciliations).limit(1))).first() is not None


async def doubted(connection: AsyncConnection, at: datetime, *, processor: str, reason: str, actor: str | None = None) -> Run:
    """Halt the processor because the database may have forgotten something, and begin the full reconciliation that is owed. Returns that."""
    await controls.lock_exclusively(connection)  # whoever is opening an attempt comes before the halt, or sees it
    await halts.open_halt(connection, at, processor=processor, code=Code.DATABASE_RESTORED, reason=reason, actor=actor)
    return await _owe(connection, at, processor)


async def owe_if_forgetful(connection: AsyncConnection, at: datetime, *, processor: str) -> Run | None:
    """Begin a full reconciliation for a halt that needs one and has none since it was opened."""
    halt = await halts.in_force(connection, processor)
    if halt is None or halt["code"] not in FORGETFUL or await _full_run(connection, processor, since=halt["opened_at"], done=False):
        return None
    return await _owe(connection, at, processor)


async def doubted_since(connection: AsyncConnection, halt: Row) -> datetime | None:
    """Since when, under this halt, the database may have forgotten something; ``None`` for a halt that says nothing of the kind."""
    owed = (
        await connection.execute(
            select(func.max(reconciliations.c.started_at)).where(
                reconciliations.c.processor == halt["processor"], reconciliations.c.started_by == OWED
            )
        )
    ).scalar_one()
    since = [moment for moment in (owed, halt["opened_at"] if halt["code"] in FORGETFUL else None) if moment is not None]
    return max(since, default=None)


async def check_lift(connection: AsyncConnection, halt: Row) -> None:
    """Raise ``RECONCILIATION_REQUIRED`` while a halt must not be lifted: the database may have forgotten something, and no full reconciliation that began
    since then is done."""
    since = await doubted_since(connection, halt)
    if since is not None and not await _full_run(connection, halt["processor"], since=since, done=True):
        raise RefundError(
            Code.RECONCILIATION_REQUIRED, f"No full reconciliation that began after {rfc3339(since)} is done.", halt=halt["id"]
        )


async def _owe(connection: AsyncConnection, at: datetime, processor: str) -> Run:
    run_id = new_id(Prefix.RECONCILIATION)
    return await reconciling.begin(connection, at, run_id=run_id, processor=processor, since=at - REACH, until=at, started_by=OWED)


async def _full_run(connection: AsyncConnection, processor: str, *, since: datetime, done: bool) -> bool:
    bound = select(processor_binding.c.bound_at).where(processor_binding.c.processor == processor).scalar_subquery()
    query = select(literal(1)).where(
        reconciliations.c.processor == processor,
        reconciliations.c.started_at >= since,
        reconciliations.c.since <= func.greatest(reconciliations.c.started_at - FULL, bound),
        reconciliations.c.phase == Phase.DONE.value if done else reconciliations.c.phase != Phase.CANCELED.value,
    )
    return (await connection.execute(query.limit(1))).first() is not None
