"""How held refunds are let go, one after the other, and the cut-out that keeps everybody from trying a processor that nobody can reach.

Both are one row a processor. The cut-out trips for a while when a refund has given up reaching the processor; when that is over the first to come probes and
all others stay held; whoever reaches the processor resets it.

A time that lies further ahead than any worker could have meant was written by one whose clock is ahead, and counts as now: what it held back must not stay so
for as long as it was wrong. Held refunds that have such a time are woken by the sweep (:func:`stranded`), by the database's clock.
"""

from datetime import datetime, timedelta

from sqlalchemy import DateTime, Integer, Interval, bindparam, case, func, literal, null, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from refunds.settings import Settings
from refunds.status import Status
from store.sql import Query
from store.tables import pacing, refunds

REQUOTED_S = 300.0
"""The longest that terms which keep being refuted wait to be quoted again."""

LIMITED_S = 900.0
"""The longest that a refund which waits for a limit over time waits to look again: when it opens, and not later than this, for it may be raised."""

SLACK = timedelta(minutes=1)
"""What is no sign of a wrong clock yet: machines differ, and transactions take their time."""

_THIS = pacing.c.processor == bindparam("name")
_PACE = bindparam("pace", type_=Interval)
_AT = bindparam("at", type_=DateTime(timezone=True))
_HELD = select(func.count()).where(refunds.c.final_at.is_(None), refunds.c.status == literal(Status.HELD.value)).scalar_subquery()
_LAST_SLOT = _HELD * _PACE
"""No slot lies further ahead: each held refund has one at most."""
_SOONEST = bindparam("again_at", type_=DateTime(timezone=True))
_NEXT = case((pacing.c.next_at <= _AT + _LAST_SLOT + SLACK, pacing.c.next_at), else_=_AT)
_CLOSED = case((pacing.c.open_until <= _SOONEST + SLACK, pacing.c.open_until), else_=_AT)
_FIRST_FREE = func.greatest(_NEXT, _AT, _CLOSED)
_TAKE = Query(update(pacing).where(_THIS).values(next_at=_FIRST_FREE + _PACE).returning((pacing.c.next_at - _PACE).label("slot")))
_OPEN_UNTIL = Query(select(pacing.c.open_until).where(_THIS))
_PROBE = Query(
    update(pacing).where(_THIS, (pacing.c.open_until <= _AT) | (pacing.c.open_until > _SOONEST + SLACK)).values(open_until=_SOONEST)
)
_TRIP = Query(update(pacing).where(_THIS).values(open_until=bindparam("again_at")))
_FOR_ITS_TURN = case((refunds.c.slot_at.is_(None), literal(timedelta(0), Interval)), else_=_LAST_SLOT)
_STRANDED = Query(
    select(refunds.c.id)
    .where(
        refunds.c.final_at.is_(None),
        refunds.c.status == literal(Status.HELD.value),
        refunds.c.wake_at > func.clock_timestamp() + bindparam("longest", type_=Interval) + _FOR_ITS_TURN,
    )
    .order_by(refunds.c.id)
    .limit(bindparam("most", type_=Integer))
)
_RESET = Query(update(pacing).where(_THIS, pacing.c.open_until.is_not(None)).values(open_until=null()))


async def take_slot(connection: AsyncConnection, processor: str, at: datetime, settings: Settings) -> datetime:
    """When the next held refund may go on: each slot is given once, and none lies before the cut-out may be probed."""
    pace, again_at = timedelta(seconds=1 / settings.held_release_per_s), at + timedelta(seconds=settings.held_recheck_s)
    return await _TAKE.value(connection, name=processor, at=at, pace=pace, again_at=again_at)


async def stranded(connection: AsyncConnection, settings: Settings, *, limit: int = 100) -> list[str]:
    """Held refunds that are to be looked at again later than any worker with the right time would have said."""
    longest = timedelta(seconds=max(settings.held_recheck_s, REQUOTED_S, LIMITED_S)) + SLACK
    pace = timedelta(seconds=1 / settings.held_release_per_s)
    return [row["id"] for row in await _STRANDED.all(connection, longest=longest, pace=pace, most=limit)]


async def open_until(connection: AsyncConnection, processor: str) -> datetime | None:
    """Until when nobody tries the processor, or since when it may be probed; ``None`` while the cut-out is closed, as it should be."""
    return await _OPEN_UNTIL.value(connection, name=processor)


async def may_probe(connection: AsyncConnection, processor: str, at: datetime, *, again_s: float) -> bool:
    """Whether the caller is the one that probes now: true once, then the cut-out stays open for ``again_s`` more unless the probe resets it."""
    return await _PROBE.do(connection, name=processor, at=at, again_at=at + timedelta(seconds=again_s)) == 1


async def trip(connection: AsyncConnection, processor: str, at: datetime, *, again_s: float) -> None:
    """Open the cut-out for ``again_s``: the processor could not be reached."""
    await _TRIP.do(connection, name=processor, again_at=at + timedelta(seconds=again_s))


async def reset(connection: AsyncConnection, processor: str) -> bool:
    """Close the cut-out: the processor answered. True when it was open."""
    return await _RESET.do(connection, name=processor) == 1
