"""Opening hours as a policy names them: a zone, the hours of each weekday, and the dates on which nobody is there."""

import re
from collections.abc import Iterator
from datetime import date
from typing import Annotated, Literal

from pydantic import AfterValidator, BeforeValidator, Field

from refunds.hours import MINUTES_A_DAY, Calendar
from refunds.policy.kinds import Part, Zone

Weekday = Literal["monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"]
WEEKDAYS: tuple[Weekday, ...] = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")

MOST_HOLIDAYS = 400


def _range(value: object) -> tuple[int, int]:
    found = re.fullmatch(r"([01]\d|2[0-3]):([0-5]\d)-([01]\d|2[0-4]):([0-5]\d)", value) if isinstance(value, str) else None
    first, last = (int(found[1]) * 60 + int(found[2]), int(found[3]) * 60 + int(found[4])) if found else (0, 0)
    if not 0 <= first < last <= MINUTES_A_DAY:
        raise ValueError("write from-to on one day, such as 09:00-17:00 or 18:00-24:00")
    return first, last


def _holiday(value: str) -> str:
    try:
        return date.fromisoformat(value if re.fullmatch(r"\d{4}-\d{2}-\d{2}", value) else "").isoformat()
    except ValueError as error:
        raise ValueError("write a date such as 2026-12-25") from error


class OpeningHours(Part):
    """A calendar: only its open time counts for the ladders that name it. Weekdays that are not named are closed."""

    zone: Zone
    hours: dict[Weekday, tuple[Annotated[tuple[int, int], BeforeValidator(_range)], ...]]
    holidays: Annotated[tuple[Annotated[str, AfterValidator(_holiday)], ...], Field(max_length=MOST_HOLIDAYS)] = ()

    def calendar(self, name: str) -> Calendar:
        """The calendar as its times are counted."""
        return Calendar(name, self.zone, tuple(self.hours.get(day, ()) for day in WEEKDAYS), tuple(sorted(self.holidays)))

    @property
    def minutes_a_week(self) -> int:
        """How long it is open in an ordinary week."""
        return sum(last - first for day in self.hours.values() for first, last in day)

    def faults(self) -> Iterator[tuple[tuple[str | int, ...], str, str]]:
        """What each of its settings allows by itself, but not together: path, problem and remedy."""
        if not self.minutes_a_week:
            yield ("hours",), "it is never open, so nothing could be decided in time", "Add hours, such as monday: [09:00-17:00]."
        for day, ranges in self.hours.items():
            for at in range(1, len(ranges)):
                if ranges[at][0] < ranges[at - 1][1]:
                    yield ("hours", day, at), "it begins before the one before it ends", "Write the hours of a day in order and apart."
        for at, holiday in enumerate(self.holidays):
            if holiday in self.holidays[:at]:
                yield ("holidays", at), f"{holiday} is there twice", "Name it once."
