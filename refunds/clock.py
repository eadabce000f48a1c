"""The one source of time outside workflows (inside a workflow, Temporal's time is used).

Everything that needs the time is handed a ``Clock``. A test may shift it; live mode refuses a shifted one, because deadlines, limits
and the safe window for repeating a payment request all hang on it.
"""

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Protocol


class Clock(Protocol):
    """Tells the time: aware, UTC."""

    def now(self) -> datetime:
        """Return the present instant, aware and in UTC."""
        ...


class SystemClock:
    """The machine's clock."""

    def now(self) -> datetime:
        """Return the present instant, aware and in UTC."""
        return datetime.now(UTC)  # noqa: TID251 - the one place that may ask the machine


@dataclass
class ShiftedClock:
    """The machine's clock, moved by ``shift``; for tests and demonstrations only."""

    shift: timedelta = field(default_factory=timedelta)

    def now(self) -> datetime:
        """Return the shifted instant, aware and in UTC."""
        return SystemClock().now() + self.shift

    def advance(self, by: timedelta) -> None:
        """Move the clock forward by ``by``."""
        self.shift += by


def rfc3339(moment: datetime) -> str:
    """Write an instant as RFC 3339 in UTC with microseconds, the form that is stored, hashed and answered.

    Raises ``ValueError`` for a naive time: a time without a zone has no meaning here.
    """
    if moment.tzinfo is None:
        raise ValueError("a time without a zone cannot be written; give it one (UTC)")
    return moment.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


def parse_rfc3339(text: str) -> datetime:
    """Read what :func:`rfc3339` wrote. Raises ``ValueError`` for anything without a zone."""
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        raise ValueError(f"{text!r} has no time zone; write it as 2026-01-31T12:00:00Z")
    return moment.astimezone(UTC)
