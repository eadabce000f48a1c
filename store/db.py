"""Connections: one pool a login, bounded waits, and the injected clock that every store function takes its time from."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import cached_property

import psycopg
from psycopg import sql
from psycopg.pq import PipelineStatus
from sqlalchemy import event, text
from sqlalchemy.engine import URL, make_url
from sqlalchemy.engine.interfaces import AdaptedConnection, DBAPIConnection
from sqlalchemy.exc import DBAPIError, InterfaceError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeout
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine
from sqlalchemy.pool import ConnectionPoolEntry

from refunds import points
from refunds.clock import Clock
from refunds.errors import Code, RefundError
from refunds.settings import Settings
from store import master_keys
from store import vault as vaults

SCHEMA_REVISION = "0004"
"""The migration this code was written for. A process refuses to start on any other."""


Connection = AsyncConnection
"""A connection inside a transaction, as every store function takes it; so named for packages that must not know SQL's library."""


class SchemaMismatch(RuntimeError):
    """The database is not at the revision this program needs."""


@dataclass(frozen=True)
class Database:
    """A pool of connections for one login, and the clock. Its connections carry the keys of the process, if it holds any (:mod:`store.vault`)."""

    engine: AsyncEngine
    clock: Clock
    url: URL

    @asynccontextmanager
    async def begin(self) -> AsyncIterator[AsyncConnection]:
        """Open one transaction: committed when the block ends, rolled back when it raises.

        Raises ``STORE_UNAVAILABLE`` when PostgreSQL cannot be reached or a lock was not had in time: nothing of the block is stored then, or all of it where
        the connection was lost after the commit had left, so whoever repeats finds it. Who is cancelled is so, also when the connection is lost over it.
        """
        await self._opened()
        with points.Transaction() as transaction:
            async with _translated() as block, self.engine.begin() as connection:
                with block:
                    yield connection
                    await transaction.committing()
            await transaction.committed()

    @asynccontextmanager
    async def read(self) -> AsyncIterator[AsyncConnection]:
        """Open a connection on which each statement is a transaction of its own: for readers that need no more, at a third of the round trips.

        Raises ``STORE_UNAVAILABLE`` as :meth:`begin` does.
        """
        await self._opened()
        async with _translated() as block, self._each_by_itself.connect() as connection:
            with block:
                yield connection

    @asynccontextmanager
    async def one(self) -> AsyncIterator[AsyncConnection]:
        """Open a connection for one statement that changes something, which is a transaction of its own: stored when it has answered, or not at all.

        Raises ``STORE_UNAVAILABLE`` as :meth:`begin` does. The points around it are those of a transaction; the second one comes when the block ends.
        """
        with points.Transaction() as transaction:
            async with self.read() as connection:
                await transaction.committing()
                yield connection
            await transaction.committed()

    @cached_property
    def _each_by_itself(self) -> AsyncEngine:
        return self.engine.execution_options(isolation_level="AUTOCOMMIT")

    async def check_revision(self) -> None:
        """Raise :class:`SchemaMismatch` when the database is not at the revision of this code.

        Opens the keys of the process as well, so that a wrong master key stops the start: raises :class:`store.sealing.Unreadable`.
        """
        async with _translated(), self.engine.begin() as connection:
            found = (await connection.execute(text("SELECT to_regclass('alembic_version')"))).scalar_one()
            current = None
            if found is not None:
                current = (await connection.execute(text("SELECT version_num FROM alembic_version"))).scalar_one_or_none()
        if current != SCHEMA_REVISION:
            raise SchemaMismatch(
                f"the database is at revision {current or 'none'}, this program needs {SCHEMA_REVISION}; run: refunds migrate"
            )
        await self._opened()

    @property
    def vault(self) -> vaults.Vault | None:
        """The keys of the process; ``None`` in one that holds no master key."""
        return vaults.of_engine(self.engine)

    async def _opened(self) -> None:
        """Before a connection is taken, so that opening the keys never waits for connections that wait for it."""
        if self.vault is not None and not self.vault.is_fresh:
            async with _translated():
                await self.vault.open(self.engine, self.clock.now())

    async def close(self) -> None:
        """Close the pool."""
        await self.engine.dispose()


class _Block:
    """What is done over a connection: whether it was begun, and whether it was cancelled."""

    begun = cancelled = False

    def __enter__(self) -> None:
        self.begun = True

    def __exit__(self, kind: type[BaseException] | None, *_error: object) -> None:
        self.cancelled = kind is asyncio.CancelledError


_TIMED_OUT = (psycopg.errors.TransactionTimeout, psycopg.errors.IdleInTransactionSessionTimeout)
"""The server's last words before it ends a connection; the driver takes them for a bug of ours."""


@asynccontextmanager
async def _translated() -> AsyncIterator[_Block]:
    block = _Block()
    try:
        yield block
    except (DBAPIError, PoolTimeout, psycopg.OperationalError, psycopg.InterfaceError, *_TIMED_OUT, OSError) as error:
        if isinstance(error, DBAPIError) and not (isinstance(error, OperationalError | InterfaceError) or error.connection_invalidated):
            raise
        if block.cancelled:  # taking the transaction back is what failed; a loop that goes on after this error must not go on
            raise asyncio.CancelledError from error
        raise RefundError(Code.STORE_UNAVAILABLE, _why(error, begun=block.begun)) from error


def _why(error: Exception, *, begun: bool) -> str:
    cause = getattr(error, "orig", error)
    if isinstance(cause, psycopg.errors.LockNotAvailable | psycopg.errors.DeadlockDetected):
        return "Another change holds the same rows; repeat in a moment."
    if isinstance(cause, psycopg.errors.QueryCanceled | psycopg.errors.TransactionTimeout):
        return "The database took too long; repeat in a moment."
    if begun and (
        getattr(cause, "sqlstate", None) is None or isinstance(cause, psycopg.errors.AdminShutdown | psycopg.errors.CrashShutdown)
    ):
        return "The connection to the database was lost; repeat, and what was stored before that is found again."
    return "The database cannot be reached; nothing was stored."


def psycopg_url(url: str) -> URL:
    """Read a PostgreSQL address in either spelling (``postgres://``, ``postgresql://``) and select the psycopg driver."""
    return make_url(url).set(drivername="postgresql+psycopg")


def connect(url: str, clock: Clock, settings: Settings, *, name: str) -> Database:
    """Make the pool of one login. Opens no connection yet.

    Waits are bounded on the server's side: a lock wait well below a second, a statement by its time-out, an idle transaction and a long one are cut off.
    The last takes PostgreSQL 17 or newer; an older one refuses the connection.
    """
    options = " ".join(
        f"-c {key}={value}"
        for key, value in {
            "lock_timeout": f"{settings.database_lock_timeout_ms}ms",
            "statement_timeout": f"{settings.database_statement_timeout_ms}ms",
            # A frozen process must not keep its locks. The first does not hold after a pipeline, whose last message (a Flush) disarms it.
            "idle_in_transaction_session_timeout": "5s",
            "transaction_timeout": "30s",
            "timezone": "UTC",
        }.items()
    )
    address = psycopg_url(url)
    engine = create_async_engine(
        address,
        pool_size=settings.database_pool_size,
        max_overflow=0,
        pool_timeout=5,
        pool_recycle=1800,
        pool_use_lifo=True,
        connect_args={"options": options, "application_name": f"refunds-{name}", "connect_timeout": 5},
        execution_options=vaults.options(master_keys.of(settings)),
    )
    event.listen(engine.sync_engine, "checkin", _given_back)
    return Database(engine, clock, address)


def _given_back(connection: DBAPIConnection | None, entry: ConnectionPoolEntry) -> None:
    """Throw a connection away that comes back in pipeline mode, where it stays when a task is cancelled just as it begins one: whoever had it next would not
    get the answers to their statements."""
    driver = connection.driver_connection if isinstance(connection, AdaptedConnection) else None
    if isinstance(driver, psycopg.AsyncConnection) and driver.pgconn.pipeline_status != PipelineStatus.OFF:
        entry.invalidate()


class Listener:
    """Wakes waiters when PostgreSQL notifies a channel: a hint that something changed, never the only way to learn of it."""

    def __init__(self, database: Database, channel: str) -> None:
        self._database = database
        self._channel = channel
        self._waiting: dict[str, list[asyncio.Event]] = {}
        self._task: asyncio.Task[None] | None = None
        self._tried = asyncio.Event()

    async def start(self) -> None:
        """Begin to listen in the background, and return once it listens or its first try has failed; reconnects by itself."""
        self._task = asyncio.create_task(self._listen(), name=f"listen-{self._channel}")
        await self._tried.wait()

    async def stop(self) -> None:
        """Stop listening."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def expect(self, payload: str) -> asyncio.Event:
        """Return an event that is set when ``payload`` is notified. Register before doing what causes the notification."""
        event = asyncio.Event()
        self._waiting.setdefault(payload, []).append(event)
        return event

    def forget(self, payload: str, event: asyncio.Event) -> None:
        """Drop an expectation."""
        events = self._waiting.get(payload, [])
        if event in events:
            events.remove(event)
        if not events:
            self._waiting.pop(payload, None)

    async def _listen(self) -> None:
        address = self._database.url.set(drivername="postgresql").render_as_string(hide_password=False)
        while True:
            try:
                async with await psycopg.AsyncConnection.connect(address, autocommit=True, connect_timeout=5) as connection:
                    await connection.execute(sql.SQL("LISTEN {}").format(sql.Identifier(self._channel)))
                    self._tried.set()
                    async for notice in connection.notifies():
                        for event in self._waiting.get(notice.payload, []) + self._waiting.get("*", []):
                            event.set()
            except (psycopg.Error, OSError):
                self._tried.set()
                await asyncio.sleep(1)
