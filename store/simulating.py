"""Recorded requests, read for a simulation: what each was first judged by, page by page, in transactions that can write nothing."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import DateTime, Text, and_, bindparam, case, cast, false, func, literal_column, select, text
from sqlalchemy.ext.asyncio import AsyncConnection

from refunds.status import Status
from store.db import Database
from store.sql import Query
from store.tables import refunds, revisions

FIRST = 1
"""The revision that says how a request was judged when it came; later ones are what people made of it."""


@dataclass(frozen=True, slots=True)
class Period:
    """Which requests: recorded from ``since`` on (``None``: from the first one) and before ``until``."""

    since: datetime | None
    until: datetime


@dataclass(frozen=True, slots=True)
class Extent:
    """How many requests of a period can be judged again, how many were never judged or were denied for what no policy says (such as lines of which nothing
    is left), and how many of those that can be judged are parts of groups."""

    requests: int
    never_judged: int
    parts: int
    denied_otherwise: int = 0


@asynccontextmanager
async def reading_only(database: Database) -> AsyncIterator[AsyncConnection]:
    """Open one transaction in which PostgreSQL itself refuses every write. Raises ``STORE_UNAVAILABLE`` as ``Database.begin`` does."""
    async with database.begin() as connection:
        await connection.execute(text("SET TRANSACTION READ ONLY"))
        yield connection


_judged = revisions.join(refunds, refunds.c.id == revisions.c.refund_id)
_since = cast(bindparam("since"), DateTime(timezone=True))
_IN_PERIOD = (
    (refunds.c.created_at >= _since) | _since.is_(None),
    refunds.c.created_at < bindparam("until"),
)
_DENIED_OTHERWISE = case(
    # A large column is read only of what was denied at once, which stays denied.
    (
        and_(refunds.c.status == literal_column(f"'{Status.DENIED}'"), refunds.c.revision == literal_column(str(FIRST))),
        ~func.jsonb_path_exists(revisions.c.decision, literal_column("""'$.checks[*] ? (@.result == "deny")'::jsonpath"""))
        & (revisions.c.decision["outcome"].astext == literal_column("'deny'")),
    ),
    else_=false(),
)
"""Denied, and by no check: what the facts alone would not deny again, under whichever policy."""

_PAGE = Query(
    select(revisions.c.refund_id, cast(revisions.c.facts, Text).label("facts"))
    .select_from(_judged)
    .where(revisions.c.revision == literal_column(str(FIRST)), revisions.c.refund_id > bindparam("after"), ~_DENIED_OTHERWISE, *_IN_PERIOD)
    .order_by(revisions.c.refund_id)
    .limit(bindparam("limit"))
)


async def extent(connection: AsyncConnection, period: Period) -> Extent:
    """How much there is to judge, before it begins."""
    conditions = [refunds.c.created_at < period.until]
    if period.since is not None:
        conditions.append(refunds.c.created_at >= period.since)
    first = revisions.c.revision == FIRST
    judged = and_(revisions.c.refund_id.is_not(None), ~_DENIED_OTHERWISE)
    query = (
        select(
            func.count().filter(judged).label("requests"),
            func.count().filter(revisions.c.refund_id.is_(None)).label("never_judged"),
            func.count().filter(judged, refunds.c.group_id.is_not(None)).label("parts"),
            func.count().filter(_DENIED_OTHERWISE).label("denied_otherwise"),
        )
        .select_from(refunds.outerjoin(revisions, (revisions.c.refund_id == refunds.c.id) & first))
        .where(*conditions)
    )
    row = (await connection.execute(query)).one()
    return Extent(row.requests, row.never_judged, row.parts, row.denied_otherwise)


async def page(connection: AsyncConnection, period: Period, *, after: str, limit: int) -> list[tuple[str, str]]:
    """Up to ``limit`` requests behind the one with the id ``after`` (empty: from the first on), in the order of their ids: each its id and facts as JSON text."""
    rows = await _PAGE.all(connection, after=after, since=period.since, until=period.until, limit=limit)
    return [(row["refund_id"], row["facts"]) for row in rows]
