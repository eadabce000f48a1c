"""How held refunds are let go, one after the other, and the breaker that keeps everybody from trying a processor that nobody can reach.

Both are one row a processor. The breaker trips for a while when a refund has given up reaching the processor; when that is over the first to come probes and
all others stay held; whoever reaches the processor resets it.
"""

from datetime import datetime, timedelta

from sqlalchemy import Interval, bindparam, func, null, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from store.sql import Query
from store.tables import pacing

_THIS = pacing.c.processor == bindparam("name")
_PACE = bindparam("pace", type_=Interval)
_FIRST_FREE = func.greatest(pacing.c.next_at, bindparam("at"), func.coalesce(pacing.c.open_until, bindparam("at")))
_TAKE = Query(update(pacing).where(_THIS).values(next_at=_FIRST_FREE + _PACE).returning((pacing.c.next_at - _PACE).label("slot")))
_OPEN_UNTIL = Query(select(pacing.c.open_until).where(_THIS))
_PROBE = Query(update(pacing).where(_THIS, pacing.c.open_until <= bindparam("at")).values(open_until=bindparam("again_at")))
_TRIP = Query(update(pacing).where(_THIS).values(open_until=bindparam("again_at")))
_RESET = Query(update(pacing).where(_THIS, pacing.c.open_until.is_not(None)).values(open_until=null()))


async def take_slot(connection: AsyncConnection, processor: str, at: datetime, *, per_second: float) -> datetime:
    """When the next held refund may go on: each slot is given once, and none lies before the breaker may be probed."""
    return await _TAKE.value(connection, name=processor, at=at, pace=timedelta(seconds=1 / per_second))


async def open_until(connection: AsyncConnection, processor: str) -> datetime | None:
    """Until when nobody tries the processor, or since when it may be probed; ``None`` while the breaker is closed, as it should be."""
    return await _OPEN_UNTIL.value(connection, name=processor)


async def may_probe(connection: AsyncConnection, processor: str, at: datetime, *, again_s: float) -> bool:
    """Whether the caller is the one that probes now: true once, then the breaker stays open for ``again_s`` more unless the probe resets it."""
    return await _PROBE.do(connection, name=processor, at=at, again_at=at + timedelta(seconds=again_s)) == 1


async def trip(connection: AsyncConnection, processor: str, at: datetime, *, again_s: float) -> None:
    """Open the breaker for ``again_s``: the processor could not be reached."""
    await _TRIP.do(connection, name=processor, again_at=at + timedelta(seconds=again_s))


async def reset(connection: AsyncConnection, processor: str) -> bool:
    """Close the breaker: the processor answered. True when it was open."""
    return await _RESET.do(connection, name=processor) == 1
