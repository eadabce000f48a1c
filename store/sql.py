"""Running statements: written once in SQLAlchemy's language, compiled once, sent by psycopg itself over the transaction's own connection.

A refund takes some forty statements, and building, caching and unwrapping each of them anew cost several times what PostgreSQL needs to answer. So the
statements of the hot path are module constants; the rest uses SQLAlchemy's connection as usual. Both run in the same transaction.
"""

from collections.abc import Mapping
from typing import Any, cast

import psycopg
from psycopg.rows import dict_row
from psycopg.types.json import Jsonb
from sqlalchemy.dialects.postgresql.psycopg import PGDialect_psycopg
from sqlalchemy.ext.asyncio import AsyncConnection
from sqlalchemy.sql.expression import Executable
from sqlalchemy.types import JSON

Row = Mapping[Any, Any]
"""A row by column names, however it was read."""

_DIALECT = PGDialect_psycopg()


class Query:
    """A statement with named parameters (``bindparam``), prepared on each connection the first time it runs there.

    Every method raises ``psycopg.Error``, which :meth:`store.db.Database.begin` translates.
    """

    def __init__(self, statement: Executable) -> None:
        compiled = cast(Any, statement).compile(dialect=_DIALECT)
        self._text: bytes = compiled.string.encode()
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
        row = await self.first(connection, **values)
        if row is None:
            raise LookupError(f"no row for {sorted(values)}")
        return row

    async def value(self, connection: AsyncConnection, **values: Any) -> Any:
        """Run it and return the first column of the first row, or ``None`` without one."""
        row = await self.first(connection, **values)
        return None if row is None else next(iter(row.values()))

    async def do(self, connection: AsyncConnection, **values: Any) -> int:
        """Run it and return how many rows it touched."""
        return (await self._run(connection, values)).rowcount

    async def _run(self, connection: AsyncConnection, values: Mapping[str, Any]) -> psycopg.AsyncCursor[dict[str, Any]]:
        assert self._needed <= values.keys(), f"not given: {sorted(self._needed - values.keys())}"
        given = {**self._given, **values}
        for name in self._json:
            if given.get(name) is not None:
                given[name] = Jsonb(given[name])
        cursor = driver(connection).cursor(row_factory=dict_row)
        return await cursor.execute(self._text, given, prepare=True)


def driver(connection: AsyncConnection) -> psycopg.AsyncConnection[Any]:
    """The psycopg connection under a SQLAlchemy one: the same session, the same transaction."""
    wrapped = connection.sync_connection
    assert wrapped is not None
    found = wrapped.connection.driver_connection
    assert isinstance(found, psycopg.AsyncConnection)
    return found
