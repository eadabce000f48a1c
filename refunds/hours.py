"""Business hours: when a calendar is open, and when so much open time has passed. Pure, and exact where clocks change.

A calendar is open at an instant when the clocks of its zone then read a time within the hours of that weekday, and the date is no holiday. What a clock
skips is never open time; an hour that it reads twice is open twice.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from functools import lru_cache
from typing import Any
from zoneinfo import ZoneInfo

MINUTES_A_DAY = 1_440

LONGEST_DAYS = 3_300
"""How many calendar days ahead open time is looked for: a policy's rungs take at most 52 weeks of open time, and its holidays at most spoil 400 weeks more."""

_Range = tuple[int, int]
_Span = tuple[datetime, datetime]


@dataclass(frozen=True, slots=True)
class Calendar:
    """Named opening hours of a zone. ``week`` has seven days, Monday first; each lists its ranges in minutes from midnight, first included, last not (1440
    is the end of the day), in order and apart. ``holidays`` are dates as ``2026-12-25``, on which it is closed."""

    name: str
    zone: str
    week: tuple[tuple[_Range, ...], ...]
    holidays: tuple[str, ...] = ()

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any]) -> "Calendar":
        """Rebuild a calendar from its JSON form."""
        week = tuple(tuple((int(first), int(last)) for first, last in day) for day in plain["week"])
        return cls(plain["name"], plain["zone"], week, tuple(plain["holidays"]))


def local(zone: str, at: datetime) -> datetime:
    """An instant as the clocks of a zone read it."""
    return at.astimezone(_zone(zone))


def is_holiday(calendar: Calendar, at: datetime) -> bool:
    """Whether the calendar's own date at this instant is one of its holidays."""
    return local(calendar.zone, at).date().isoformat() in calendar.holidays


def is_open(calendar: Calendar, at: datetime) -> bool:
    """Whether the calendar is open at an instant; at the last instant of a range it is closed already."""
    return any(start <= at < end for start, end in _open_on(calendar, local(calendar.zone, at).date()))


def open_between(calendar: Calendar, start: datetime, end: datetime) -> timedelta:
    """How much open time lies between two instants; nothing when ``end`` is not after ``start``."""
    spent, day, last = timedelta(), local(calendar.zone, start).date(), local(calendar.zone, end).date()
    while day <= last:
        for opens, closes in _open_on(calendar, day):
            spent += max(timedelta(), min(closes, end) - max(opens, start))
        day += timedelta(days=1)
    return spent


def after(calendar: Calendar, since: datetime, seconds: int) -> datetime:
    """The instant by which exactly so many seconds of open time have passed since ``since``, in UTC.

    Raises ``OverflowError`` when that is more than :data:`LONGEST_DAYS` days ahead, which no policy that was read can bring about.
    """
    left, day = timedelta(seconds=seconds), local(calendar.zone, since).date()
    for _ in range(LONGEST_DAYS):
        for opens, closes in _open_on(calendar, day):
            begins = max(opens, since)
            if begins < closes and left <= closes - begins:
                return (begins + left).astimezone(UTC)
            left -= max(timedelta(), closes - begins)
        day += timedelta(days=1)
    raise OverflowError(f"{calendar.name} has not so much open time in {LONGEST_DAYS} days")


def due(calendar: Calendar | None, since: datetime, seconds: int) -> datetime:
    """The instant that lies so many seconds after ``since``: of open time with a calendar, of any time without."""
    return since + timedelta(seconds=seconds) if calendar is None else after(calendar, since, seconds)


def _open_on(calendar: Calendar, day: date) -> Iterator[_Span]:
    """The spans in which the calendar is open on a date, in UTC and in order: per stretch of the day in which the zone's offset is one."""
    if day.isoformat() in calendar.holidays:
        return
    ranges = calendar.week[day.weekday()]
    if not ranges:
        return
    midnight = datetime.combine(day, time.min, UTC)
    for begins, ends, offset in _stretches(calendar.zone, day):
        for first, last in ranges:
            opens, closes = (midnight + timedelta(minutes=minute) - offset for minute in (first, last))
            if max(opens, begins) < min(closes, ends):
                yield max(opens, begins), min(closes, ends)


@lru_cache(maxsize=4_096)
def _stretches(zone: str, day: date) -> tuple[tuple[datetime, datetime, timedelta], ...]:
    """A date of a zone as stretches of UTC with one offset each: one, or two on a day on which clocks change (no zone changes twice on a day)."""
    name = _zone(zone)
    begins, ends = (datetime.combine(d, time.min, name).astimezone(UTC) for d in (day, day + timedelta(days=1)))
    first, last = (_offset(name, at) for at in (begins, ends - timedelta(seconds=1)))
    if first == last or begins >= ends:
        return ((begins, ends, first),)
    low, high = 0, int((ends - begins).total_seconds())
    while high - low > 1:
        middle = (low + high) // 2
        if _offset(name, begins + timedelta(seconds=middle)) == first:
            low = middle
        else:
            high = middle
    change = begins + timedelta(seconds=high)
    return ((begins, change, first), (change, ends, last))


def _offset(zone: ZoneInfo, at: datetime) -> timedelta:
    return at.astimezone(zone).utcoffset() or timedelta()


@lru_cache(maxsize=64)
def _zone(name: str) -> ZoneInfo:
    return ZoneInfo(name)
