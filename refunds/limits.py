"""Limits over time: how many refunds, or how much money, in a window; what is used and left, and when a window opens again. Pure.

A window is a calendar day, week or month of a named zone, or the last so many seconds. One rule, :meth:`Window.begins`, says what is counted at an instant;
when it opens again is worked out by the same rule, so that message and rule cannot differ (field report 49).
"""

from bisect import insort
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime, time, timedelta
from enum import StrEnum
from typing import Protocol
from zoneinfo import ZoneInfo

from refunds.clock import rfc3339
from refunds.facts import LimitFacts
from refunds.money import Money, format_money
from refunds.status import FINAL, RESERVING, Status

_TICK = timedelta(microseconds=1)


class Who(StrEnum):
    """Whose refunds are counted together."""

    CUSTOMER = "customer"
    AGENT = "agent"
    AGENTS = "agents"
    SESSION = "session"
    REVIEWER = "reviewer"
    EVERYONE = "everyone"


class Stage(StrEnum):
    """When a limit is taken: when terms are reserved, or right before money moves."""

    RESERVED = "reserved"
    SENT = "sent"


_GOING = frozenset({Status.SUBMITTING, Status.PENDING, Status.PARKED, Status.SUCCEEDED})
COUNTED: dict[Stage, frozenset[Status]] = {Stage.RESERVED: RESERVING | {Status.SUCCEEDED}, Stage.SENT: _GOING}
"""The statuses in which what was taken at each stage counts. Any other gives it back: a denial, an expiry, a withdrawal, a release, a failure."""


def given_back(before: Status, after: Status) -> list[Stage]:
    """What a move gives back of what was taken; also of what was taken on the way, by what is quoted and at once a draft."""
    at_once = {Stage.RESERVED} if after is Status.DRAFTED else frozenset[Stage]()
    return [stage for stage, counted in COUNTED.items() if after not in counted and (before in counted or stage in at_once)]


def taken_again(before: Status, after: Status) -> list[Stage]:
    """What a move makes count again: of what was over and, as became known later, is not."""
    return [stage for stage, counted in COUNTED.items() if before in FINAL - counted and after in counted]


class Calendar(StrEnum):
    """A window that begins at a midnight of its zone: each day, each Monday, each first of a month."""

    DAY = "day"
    WEEK = "week"
    MONTH = "month"


@dataclass(frozen=True, slots=True)
class Window:
    """A stretch of time: a ``calendar`` one in a ``zone``, or the last ``seconds``.

    A calendar window contains the instant it begins at and not the one it ends at; a day on which clocks change has 23 or 25 hours. A rolling one no longer
    contains what lies exactly its length back: what was used at 18:00 is free again at 18:00 of the next day, and not a moment before.
    """

    calendar: Calendar | None = None
    zone: str = "UTC"
    seconds: int = 0

    def begins(self, at: datetime) -> datetime:
        """The first instant that is counted at ``at``, in UTC."""
        if self.calendar is None:
            return at.astimezone(UTC) - timedelta(seconds=self.seconds) + _TICK
        return self._midnight(self._first(at.astimezone(ZoneInfo(self.zone)).date()))

    def next_begins(self, at: datetime) -> datetime:
        """When a calendar window that contains ``at`` is over and the next one begins, in UTC; for a rolling one, when what was used at ``at`` is free."""
        if self.calendar is None:
            return at.astimezone(UTC) + timedelta(seconds=self.seconds)
        first = self._first(at.astimezone(ZoneInfo(self.zone)).date())
        days = {Calendar.DAY: 1, Calendar.WEEK: 7, Calendar.MONTH: 31}[self.calendar]
        later = first + timedelta(days=days)
        return self._midnight(later.replace(day=1) if self.calendar is Calendar.MONTH else later)

    def _first(self, day: date) -> date:
        match self.calendar:
            case Calendar.WEEK:
                return day - timedelta(days=day.weekday())
            case Calendar.MONTH:
                return day.replace(day=1)
            case _:
                return day

    def _midnight(self, day: date) -> datetime:
        # A midnight that clocks skip is the instant they skip it at; of one that comes twice it is the first.
        return datetime.combine(day, time.min, ZoneInfo(self.zone)).astimezone(UTC)

    def __str__(self) -> str:
        if self.calendar is not None:
            return f"a calendar {self.calendar} ({self.zone})"
        for seconds, name in ((86_400, "day"), (3_600, "hour"), (60, "minute"), (1, "second")):
            if self.seconds % seconds == 0:
                number = self.seconds // seconds
                if name == "day":  # days of a calendar may have 23 or 25 hours; these have not
                    number, name = number * 24, "hour"
                return f"{number} {name}s" if number != 1 else f"one {name}"
        raise AssertionError("a window has a length")


class Limit(Protocol):
    """What a limit of a policy says; ``at_most`` is refunds, or an amount in the unit of the base currency where ``counts_money``."""

    @property
    def name(self) -> str:
        """Its name, unique in its policy."""
        ...

    @property
    def who(self) -> Who:
        """Whose refunds it counts together."""
        ...

    @property
    def at_most(self) -> int:
        """How much fits, inclusive."""
        ...

    @property
    def counts_money(self) -> bool:
        """Whether it counts amounts instead of refunds."""
        ...

    @property
    def over(self) -> Window:
        """Its window."""
        ...

    @property
    def warn_at_percent(self) -> int | None:
        """From which share of it on there is a warning."""
        ...


@dataclass(frozen=True, slots=True)
class State:
    """How a limit stands for one refund, which itself counts as ``own``: ``used`` is without it, ``left`` what fits beside that.

    ``own`` is ``None`` and ``uncounted`` above zero where nobody recorded what something counts as: that is no zero, and does not fit by itself.
    ``kept`` says that it holds its place by earlier terms.
    ``opens_at`` says, for one that does not fit, when it will if nothing else is used; ``None`` when it never will: it is larger than the limit.
    """

    name: str
    at_most: int
    used: int
    own: int | None
    uncounted: int = 0
    opens_at: datetime | None = None
    warn_at_percent: int | None = None
    kept: bool = False

    @property
    def left(self) -> int:
        """What still fits; never below zero."""
        return max(0, self.at_most - self.used)

    @property
    def fits(self) -> bool:
        """Whether this refund certainly fits, or holds its place already."""
        return self.kept or (self.own is not None and not self.uncounted and self.used + self.own <= self.at_most)

    @property
    def is_exceeded(self) -> bool:
        """Whether it certainly does not fit. Neither this nor :attr:`fits`: nobody can tell, and a person looks."""
        return not self.kept and self.used + (self.own or 0) > self.at_most

    @property
    def warns(self) -> bool:
        """Whether what is used with this refund reaches the share from which there is a warning."""
        return self.warn_at_percent is not None and (self.used + (self.own or 0)) * 100 >= self.at_most * self.warn_at_percent


def state(limit: Limit, facts: LimitFacts) -> State:
    """How a limit stands by the facts gathered for it."""
    return State(limit.name, limit.at_most, facts.used, facts.own, facts.uncounted, facts.opens_at, limit.warn_at_percent, facts.kept)


def reopens(limit: Limit, at: datetime, used: Sequence[tuple[datetime, int]], own: int) -> datetime | None:
    """When ``own`` will fit if nothing else is used: ``at`` itself when it fits now, ``None`` when it never will.

    ``used`` is what is counted at ``at``: when each was taken and what it counts as.
    """
    if own > limit.at_most:
        return None
    over = sum(amount for _, amount in used) + own - limit.at_most
    if over <= 0:
        return at
    if limit.over.calendar is not None:
        return limit.over.next_begins(at)
    for taken_at, amount in sorted(used):
        over -= amount
        if over <= 0:
            return limit.over.next_begins(taken_at)
    raise AssertionError("without anything used it fits")


def shown(amount: int, base: str | None) -> str:
    """An amount of a limit in words: money where it counts money (``base`` is given), refunds otherwise."""
    if base is None:
        return f"{amount} refund" if amount == 1 else f"{amount} refunds"
    return format_money(Money(amount, base))


_BY = {
    Who.CUSTOMER: "one customer",
    Who.AGENT: "one agent",
    Who.AGENTS: "all agents together",
    Who.SESSION: "one session",
    Who.REVIEWER: "one reviewer",
    Who.EVERYONE: "everyone together",
}


def rule(limit: Limit, base: str | None) -> str:
    """What the limit says: ``at most 30 refunds in one minute by one agent``."""
    return f"at most {shown(limit.at_most, base if limit.counts_money else None)} in {limit.over} by {_BY[limit.who]}"


def why(limit: Limit, found: State, base: str | None) -> str:
    """Why something does not fit now, in words with the figures and when it opens again."""
    money = base if limit.counts_money else None
    text = f"limit {limit.name} ({rule(limit, base)}): {shown(found.used, money)} used, {shown(found.left, money)} left"
    if found.own is None or found.uncounted:
        return f"{text}; what some of it counts as in {base} is not recorded: record the missing rate (refunds rates set)"
    if found.opens_at is None:
        return f"{text}; {shown(found.own, money)} is more than the whole limit and never fits: ask for less, or raise the limit"
    return f"{text}; it opens again at {rfc3339(found.opens_at)}"


@dataclass
class Tally:
    """A reference in memory: what was taken and not given back. The store must agree with it, and a simulation may count with it.

    Taking is keyed: the same key again replaces what it took before, in one step, so however often something is replayed it counts once (field report 52).
    """

    taken: dict[str, tuple[datetime, int]] = field(default_factory=dict[str, tuple[datetime, int]])

    def used(self, limit: Limit, at: datetime, *, besides: str | None = None) -> list[tuple[datetime, int]]:
        """What counts at an instant, oldest first, leaving out one key."""
        begins = limit.over.begins(at)
        counted: list[tuple[datetime, int]] = []
        for key, (taken_at, amount) in self.taken.items():
            if key != besides and taken_at >= begins:
                insort(counted, (taken_at, amount))
        return counted

    def stands(self, limit: Limit, at: datetime, *, key: str, own: int) -> State:
        """How the limit stands for ``key``, which counts as ``own``."""
        used, kept = self.used(limit, at, besides=key), self._keeps(key, own) and own <= limit.at_most
        found = State(limit.name, limit.at_most, sum(amount for _, amount in used), own, 0, None, limit.warn_at_percent, kept)
        return found if found.fits else replace(found, opens_at=reopens(limit, at, used, own))

    def take(self, key: str, at: datetime, own: int) -> None:
        """Count it, in place of what the key took before: from then on where that was at least as much, else from now on."""
        self.taken[key] = (self.taken[key][0] if self._keeps(key, own) else at, own)

    def _keeps(self, key: str, own: int) -> bool:
        return key in self.taken and own <= self.taken[key][1]

    def give_back(self, key: str) -> None:
        """Count it no more. What it was taken in is the window that gets it back, and no later one."""
        self.taken.pop(key, None)


def first_refused(states: Iterable[State]) -> State | None:
    """Of limits that do not fit, the one that opens last, or that never does: until then nothing goes."""
    refused = [found for found in states if not found.fits]
    if not refused:
        return None
    return max(refused, key=lambda found: found.opens_at or datetime.max.replace(tzinfo=UTC))
