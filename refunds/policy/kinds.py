"""The kinds of values that settings of a policy have, and what all its parts share."""

import re
from enum import StrEnum
from functools import cache
from typing import Annotated, Any, Literal
from zoneinfo import available_timezones

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field

from refunds.reasons import Reason

LONGEST_S = 400 * 86_400
"""The longest length of time a policy may name."""

_UNITS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}


def seconds(value: object) -> int:
    """A length of time as it is written, in seconds. Raises ``ValueError`` with the remedy."""
    match = re.fullmatch(r"([1-9]\d{0,8})([smhd])", value) if isinstance(value, str) else None
    length = int(match[1]) * _UNITS[match[2]] if match else 0
    if not 1 <= length <= LONGEST_S:
        raise ValueError("write a whole number and a unit, such as 90s, 30m, 24h or 3d; at most 400d")
    return length


@cache
def _zones() -> frozenset[str]:
    """The time zones there are: found by reading a directory of hundreds of files, so once."""
    return frozenset(available_timezones())


def _zone(name: str) -> str:
    if name not in _zones():
        raise ValueError("write a time zone by its name, such as UTC, Europe/Berlin or America/New_York")
    return name


def _reason(value: object) -> Reason:
    try:
        return Reason(value if isinstance(value, str) else "")
    except ValueError as error:
        raise ValueError(f"write one of: {', '.join(Reason)}") from error


Seconds = Annotated[int, BeforeValidator(seconds)]
Zone = Annotated[str, Field(max_length=64), AfterValidator(_zone)]
Name = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_-]{0,63}$")]
Sentence = Annotated[str, Field(min_length=1, max_length=2_000)]
Amount = Annotated[int, Field(gt=0)]
Days = Annotated[int, Field(gt=0, le=3_650)]
NamedReason = Annotated[Reason, BeforeValidator(_reason)]
Answer = Literal["accept", "review", "deny"]
Stricter = Literal["review", "deny"]


class Part(BaseModel):
    """What all parts of a policy share: unknown names are errors, types are taken as written, nothing changes afterwards."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)


class ReviewRole(StrEnum):
    """Who may decide, from the least to the highest; a manager may do what a reviewer may."""

    REVIEWER = "reviewer"
    MANAGER = "manager"

    @property
    def rank(self) -> int:
        """The place in the order: a higher rank may decide all that a lower one may."""
        return list(ReviewRole).index(self)


def is_default(default: object) -> Any:
    """For a field that a later version added: where it is at its default, a policy has the hash it always had."""
    return Field(exclude_if=lambda value: value == default)


def _role(value: object) -> ReviewRole:
    try:
        return ReviewRole(value if isinstance(value, str) else "")
    except ValueError as error:
        raise ValueError("write reviewer or manager") from error


NamedRole = Annotated[ReviewRole, BeforeValidator(_role)]
Percent = Annotated[int, Field(ge=1, le=100)]
Words = Annotated[str, Field(min_length=1, max_length=200)]
CurrencyName = Annotated[str, Field(pattern=r"^[A-Z]{3}$")]
