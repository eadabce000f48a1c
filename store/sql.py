"""Running statements: written once in SQLAlchemy's language, compiled once, sent by psycopg itself over the transaction's own connection.

A refund takes some forty statements, and building, caching and unwrapping each of them anew cost several times what PostgreSQL needs to answer. So the
statements of the hot path are module constants; the rest uses SQLAlchemy's connection as usual. Both run in the same transaction.
"""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, cast

import psycopg
from psycopg.rows import dict_row
from psycopg.types.json import Jsonb
from sqlalchemy.dialects.postgresql.psycopg import PGDialect_psycopg
from sqlalchemy.ext.asyncio import AsyncConnection
from sqlalchemy.sql.expression import Executable
from sqlalchemy.types import JSON

from refunds import points

Row = Mapping[Any, Any]
"""A row by column names, however it was read."""

_DIALECT = PGDialect_psycopg(paramstyle="numeric_dollar")
"""With PostgreSQL's own ``$1``: what is compiled is sent as it is, where the driver would take ``%(name)s`` apart, a long statement each time it is sent."""


class Answer:
    """What a pipelined statement answered, to be read after the pipeline's end."""

    def __init__(self, cursor: psycopg.AsyncCursor[dict[str, Any]]) -> None:
        self._cursor = cursor

    async def all(self) -> list[dict[str, Any]]:
        """Every row by column names."""
        return await self._cursor.fetchall()

    async def first(self) -> dict[str, Any] | None:
        """The first row, or ``None``."""
        return await self._cursor.fetchone()

    async def one(self) -> dict[str, Any]:
        """The first row, which must be there: a missing one is a bug and raises ``LookupError``."""
        return _there(await self.first())


class Query:
    """A statement with named parameters (``bindparam``), prepared on each connection the first time it runs there.

    Every method raises ``psycopg.Error``, which :meth:`store.db.Database.begin` translates.
    """

    def __init__(self, statement: Executable) -> None:
        compiled = cast(Any, statement).compile(dialect=_DIALECT)
        self._text: bytes = compiled.string.encode()
        self._order: tuple[str, ...] = tuple(compiled.positiontup)
        self._given: dict[str, Any] = dict(compiled.params)
        self._needed = frozenset(name for name, bind in compiled.binds.items() if bind.required)
        self._json = frozenset(name for name, bind in compiled.binds.items() if isinstance(bind.type, JSON))

    async def all(self, connection: AsyncConnection, **values: Any) -> list[dict[str, Any]]:
        """Run it and return every row by column names."""
        return await (await self._run(connection, values)).fetchall()

    async def first(self, connection: AsyncConnection, **values: Any) -> dict[str, Any] | None:
        """Run it and return the first row, or ``None``."""
        return await (await self._run(connection, values)).fetchone()

    async def one(self, connection: AsyncConnection, **values: Any) -> dict[str, Any]:
        """Run it and return the first row, which must be there: a missing one is a bug and raises ``LookupError``."""
        return _there(await self.first(connection, **values), *sorted(values))

    async def value(self, connection: AsyncConnection, **values: Any) -> Any:
        """Run it and return the first column of the first row, or ``None`` without one."""
        row = await self.first(connection, **values)
        return None if row is None else next(iter(row.values()))

    async def ask(self, connection: AsyncConnection, **values: Any) -> "Answer":
        """Send it inside :func:`pipelined`; its rows are there after the block."""
        return Answer(await self._run(connection, values))

    async def do(self, connection: AsyncConnection, **values: Any) -> int:
        """Run it and return how many rows it touched."""
        return (await self._run(connection, values)).rowcount

    async def _run(self, connection: AsyncConnection, values: Mapping[str, Any]) -> psycopg.AsyncCursor[dict[str, Any]]:
        assert self._needed <= values.keys(), f"not given: {sorted(self._needed - values.keys())}"
        given = {**self._given, **values}
        for name in self._json:
            if given.get(name) is not None:
                given[name] = Jsonb(given[name])
        cursor = psycopg.AsyncRawCursor(driver(connection), row_factory=dict_row)
        return await cursor.execute(self._text, [given[name] for name in self._order], prepare=True)


def _there(row: dict[str, Any] | None, *asked_by: str) -> dict[str, Any]:
    if row is None:
        raise LookupError(f"no row for {', '.join(asked_by) or 'a pipelined statement'}")
    return row


@asynccontextmanager
async def pipelined(connection: AsyncConnection) -> AsyncIterator[None]:
    """Send the block's statements together and wait for all of them at its end: for statements that do not depend on each other's answers.

    Inside, rows and counts are not there yet. What one of them raises is raised at the end of the block.
    """
    async with driver(connection).pipeline():
        yield


async def commit(connection: AsyncConnection) -> None:
    """Commit as the last statement of a pipeline, so that its locks are held for no trip of ours; what one of its statements raises is raised here, and then
    nothing is stored. Nothing may follow in the transaction, whose end finds nothing left to commit.
    """
    await points.committing()
    await driver(connection).commit()


def driver(connection: AsyncConnection) -> psycopg.AsyncConnection[Any]:
    """The psycopg connection under a SQLAlchemy one: the same session, the same transaction."""
    wrapped = connection.sync_connection
    assert wrapped is not None
    found = wrapped.connection.driver_connection
    assert isinstance(found, psycopg.AsyncConnection)
    return found
