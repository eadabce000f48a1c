"""Recorded facts, read back: what a decision rested on, so that it can be judged again, by its own version or by another.

The facts of older refunds lack what came later; a name that is missing has the default of :mod:`refunds.facts`, which means "not known" or "none". A name
that is there has the right kind, or nothing is guessed and the whole is refused.
"""

from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field, fields, is_dataclass
from datetime import datetime
from enum import StrEnum
from functools import cache
from types import NoneType, UnionType
from typing import Any, Union, cast, get_args, get_origin, get_type_hints

from refunds.clock import parse_rfc3339
from refunds.facts import Facts

YEARS = range(1970, 3000)
"""The years that times of facts lie in, as :mod:`refunds.orders` takes them."""

_MOST_COUNTED = 10_000


class UnreadableFacts(ValueError):
    """Recorded facts that cannot be read. Names the fact and what is wrong with it; repeats no value."""


Read = Callable[[Any, str], Any]


def facts_from(plain: Mapping[str, Any]) -> Facts:
    """The facts that :meth:`refunds.facts.Facts.plain` wrote and a JSON column kept. Names that are not known are left out.

    Judged by the version that judged them, they give the decision that was recorded, for ever. Raises :class:`UnreadableFacts`.
    """
    return _reader(Facts)(plain, "")


@cache
def _reader(kind: type) -> Read:
    """What reads one group of facts."""
    hints = get_type_hints(kind)
    members = [(field, _of(hints[field.name])) for field in fields(kind)]
    missing_are_none = {field.name for field in fields(kind) if _takes_none(hints[field.name])}

    def read(plain: Any, at: str) -> Any:
        if not isinstance(plain, Mapping):
            raise UnreadableFacts(f"{at or 'the facts'}: no group of facts")
        found = cast(Mapping[str, Any], plain)
        given: dict[str, Any] = {}
        for field, member in members:
            name = f"{at}.{field.name}" if at else field.name
            if field.name in found:
                given[field.name] = member(found[field.name], name)
            elif not _has_default(field):
                if field.name not in missing_are_none:
                    raise UnreadableFacts(f"{name} is missing")
                given[field.name] = None
        return kind(**given)

    return read


def _has_default(field: Field[Any]) -> bool:
    return field.default is not MISSING or field.default_factory is not MISSING


def _takes_none(hint: Any) -> bool:
    return get_origin(hint) in (Union, UnionType) and NoneType in get_args(hint)


def _of(hint: Any) -> Read:
    """What reads one fact of a kind. Raises ``TypeError`` for a kind that no fact has had so far."""
    if get_origin(hint) in (Union, UnionType):
        [inner] = [_of(one) for one in get_args(hint) if one is not NoneType]
        return (lambda value, at: None if value is None else inner(value, at)) if _takes_none(hint) else inner
    if get_origin(hint) is tuple:
        return _many(_of(get_args(hint)[0]), counted=get_args(hint)[0] is str)
    if is_dataclass(hint):
        return lambda value, at: _reader(cast(type, hint))(value, at)
    if isinstance(hint, type) and issubclass(hint, StrEnum):
        return _one_of(hint)
    if hint is datetime:
        return _instant
    if hint in (str, int, bool):
        return _exactly(hint)
    raise TypeError(f"no fact is read as {hint}")


def _exactly(kind: type) -> Read:
    def read(value: Any, at: str) -> Any:
        if type(value) is not kind:
            raise UnreadableFacts(f"{at}: {type(value).__name__}, not {kind.__name__}")
        return value

    return read


def _one_of(kind: type[StrEnum]) -> Read:
    values = {member.value: member for member in kind}

    def read(value: Any, at: str) -> Any:
        found = values.get(value) if isinstance(value, str) else None
        if found is None:
            raise UnreadableFacts(f"{at}: none of {', '.join(values)}")
        return found

    return read


def _instant(value: Any, at: str) -> datetime:
    try:
        moment = parse_rfc3339(value)
    except (TypeError, ValueError, OverflowError):
        raise UnreadableFacts(f"{at}: no time with a zone") from None
    if moment.year not in YEARS:  # beyond which no window could be added
        raise UnreadableFacts(f"{at}: no time from {YEARS[0]} to {YEARS[-1]}")
    return moment


def _many(one: Read, *, counted: bool) -> Read:
    def read(value: Any, at: str) -> tuple[Any, ...]:
        if counted and type(value) is int and 0 <= value <= _MOST_COUNTED:
            # Of signs of manipulation only the number is kept, because their words may quote the customer: these stand for them, as when they were judged.
            return tuple(f"sign {number}" for number in range(1, value + 1))
        if not isinstance(value, list | tuple):
            raise UnreadableFacts(f"{at}: no list")
        return tuple(one(item, f"{at}.{index}") for index, item in enumerate(cast(list[Any], value)))

    return read
