"""The breaker: when what goes out, fails or is parked is unlike the usual, it opens by itself and holds what is approved. Pure.

Not to be confused with the cut-out of a processor that nobody can reach (``store/pacing.py``): that one waits for a machine to answer, this one for a person
to look.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Protocol

from refunds.limits import shown

HOUR = timedelta(hours=1)


class Breaking(StrEnum):
    """Where a breaker is. ``closed`` lets everything through, ``open`` nothing, ``half_open`` a set number an hour."""

    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half_open"


class Watches(StrEnum):
    """What a breaker watches in the last hour: how many refunds were sent, how much, the share that failed, or the share that was parked."""

    VOLUME = "volume"
    AMOUNT = "amount"
    FAILURES = "failures"
    PARKED = "parked"


class Rule(Protocol):
    """What a breaker of a policy says."""

    @property
    def name(self) -> str:
        """Its name."""
        ...

    @property
    def watches(self) -> Watches:
        """What it watches."""
        ...

    @property
    def times(self) -> int | None:
        """Of volume and amount: it opens above so many times the usual hour."""
        ...

    @property
    def percent(self) -> int | None:
        """Of failures and parked: it opens above this share."""
        ...

    @property
    def at_least(self) -> int:
        """It never opens for fewer cases."""
        ...

    @property
    def usual_over(self) -> int:
        """Over how many seconds before the last hour the usual hour is taken."""
        ...

    @property
    def cool_down(self) -> int:
        """For how many seconds it lets nothing through."""
        ...

    @property
    def half_open_per_hour(self) -> int:
        """How many it lets through in an hour after that."""
        ...

    @property
    def closes_itself_after(self) -> int | None:
        """After how many seconds half-open without a reason to open it closes by itself; ``None``: only an operator closes it."""
        ...


@dataclass(frozen=True, slots=True)
class Seen:
    """What was seen of one scope: in the last hour, and before it. ``amount`` and ``usual_amount`` are in the base currency.

    ``usual_s`` is over how many seconds before the last hour something is known: all that the rule asks for (``None``), or since the first refund was sent.
    """

    volume: int = 0
    amount: int = 0
    failed: int = 0
    parked: int = 0
    usual_volume: int = 0
    usual_amount: int = 0
    usual_s: int | None = None


@dataclass(frozen=True, slots=True)
class Standing:
    """A breaker as it is kept: its state, since when, and until when it cools down."""

    state: Breaking = Breaking.CLOSED
    since: datetime | None = None
    cool_until: datetime | None = None


@dataclass(frozen=True, slots=True)
class Step:
    """What is to happen to a breaker now, and why in words with the figures."""

    to: Breaking
    why: str


def trips(rule: Rule, seen: Seen, base: str | None, *, at_least: int | None = None) -> str | None:
    """Why it opens, or ``None``. It never opens for fewer than ``at_least`` cases, nor against a usual hour that fewer cases stand for, or less than an hour:
    one that is not known is no zero that everything is many times of."""
    least = rule.at_least if at_least is None else at_least
    if rule.watches in (Watches.VOLUME, Watches.AMOUNT):
        over = rule.usual_over if seen.usual_s is None else min(seen.usual_s, rule.usual_over)
        if seen.volume < least or seen.usual_volume < rule.at_least or rule.times is None or over < HOUR.total_seconds():
            return None
        now, before = (seen.volume, seen.usual_volume) if rule.watches is Watches.VOLUME else (seen.amount, seen.usual_amount)
        # By whole numbers: now / 1 h against times * before / over.
        if now * over <= rule.times * before * 3_600:
            return None
        money = base if rule.watches is Watches.AMOUNT else None
        usual = before * 3_600 // over
        return f"{shown(now, money)} in the last hour, more than {rule.times} times the usual {shown(usual, money)}"
    cases = seen.failed if rule.watches is Watches.FAILURES else seen.parked
    if seen.volume < least or rule.percent is None or cases * 100 <= seen.volume * rule.percent:
        return None
    what = "failed" if rule.watches is Watches.FAILURES else "were parked"
    return f"{cases} of {shown(seen.volume, None)} in the last hour {what}, more than {rule.percent} percent"


def step(rule: Rule, standing: Standing, seen: Seen, now: datetime, base: str | None) -> Step | None:
    """What happens to a breaker now, or ``None`` when it stays as it is. ``seen`` holds nothing older than the state, once it is half-open or was closed."""
    match standing.state:
        case Breaking.CLOSED:
            why = trips(rule, seen, base)
            return None if why is None else Step(Breaking.OPEN, why)
        case Breaking.OPEN:
            if standing.cool_until is None or now < standing.cool_until:
                return None
            return Step(Breaking.HALF_OPEN, f"the cool-down is over; {rule.half_open_per_hour} an hour may go")
        case Breaking.HALF_OPEN:
            # No more than these can be sent, so no more can be asked for before it opens again.
            why = trips(rule, seen, base, at_least=min(rule.at_least, rule.half_open_per_hour))
            if why is not None:
                return Step(Breaking.OPEN, why)
            after = rule.closes_itself_after
            if after is not None and standing.since is not None and now >= standing.since + timedelta(seconds=after):
                return Step(Breaking.CLOSED, "nothing unusual since it was half-open")
            return None


def counted_from(standing: Standing, now: datetime) -> datetime:
    """From when on what was sent counts as the last hour: not from before the breaker changed its state last, which it was judged for already."""
    return now - HOUR if standing.since is None else max(now - HOUR, standing.since)
