"""What differs between two policies, setting by setting, and which way each difference goes.

It follows the model's own fields, so a setting that is added later is compared without a line here. Which way a difference goes is said for the settings
below; of any other it says only that it is another.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from fnmatch import fnmatchcase
from math import inf
from typing import Any, cast

from pydantic import BaseModel

from refunds.clock import rfc3339
from refunds.money import CURRENCIES, Money, format_money
from refunds.policy.kinds import ReviewRole
from refunds.policy.model import Policy
from refunds.policy.simulation import Direction

Path = tuple[str, ...]

_NOT_THERE = object()

_MORE_IS_LOOSER = (
    *("currencies.*.*", "limits.*.refunds", "limits.*.amount", "exceptions.*.at_most.*"),
    *("windows.default_days", "windows.categories.*", "customer_limits.refunds_per_week", "payments.refunds_per_payment"),
    *("fraud.share_*", "fraud.*_above", "rates_at_most_days_old", "terms_valid_for"),
    *("reasons.accepted", "channels.accepted", "fraud.risk_levels_accepted", "exceptions.*.lifts", "exceptions.*.ends"),
    "review.*.rungs.*.decide_within",
)
_MORE_IS_STRICTER = (
    *("reading.confidence_*", "fraud.account_younger_than_days", "review.*.people", "review.*.rungs.*.role", "review.*.reasons_required"),
    *("returns.require_return_for", "reasons.evidence.*", "fraud.mismatches", "consent.required", "tiers.*.draft", "rules.*.then"),
    *("exceptions.*.starts", "duplicates.within"),
)
_ADDED_IS_LOOSER = ("currencies.*", "exceptions.*")
_ADDED_IS_STRICTER = ("rules.*", "limits.*", "reasons.evidence.*", "breaker")
_UNLIMITED = ("currencies.*.two_people_above", "payments.refunds_per_payment", "fraud.*_above")
"""Where nothing stands, there is no limit."""
_RANKS: tuple[tuple[str, ...], ...] = (
    ("accept", "hold", "review", "deny"),
    ("require_consent", "require_review", "deny"),
    tuple(ReviewRole),
)
"""Words in the order of their strictness."""
_LENGTHS = (
    *("terms_valid_for", "consent.within", "duplicates.within", "limits.*.window"),
    *("review.*.rungs.*.remind_after", "review.*.rungs.*.decide_within"),
    *("breakers.*.usual_over", "breakers.*.cool_down", "breakers.*.closes_itself_after"),
)
_ENTRIES = ("id", "name")
"""What the entries of a list are told apart by; others by their place."""


@dataclass(frozen=True, slots=True)
class Difference:
    """One setting that differs, in words. ``before`` or ``after`` is empty where the setting is not there."""

    setting: str
    before: str
    after: str
    direction: Direction

    def plain(self) -> dict[str, str]:
        """As JSON values."""
        return {"setting": self.setting, "before": self.before, "after": self.after, "direction": self.direction.value}


def differences(before: Policy, after: Policy) -> list[Difference]:
    """Every difference between two policies, in the order of their settings; none for two of the same content."""
    return list(_Comparison(before, after).all())


def settings(policy: Policy) -> list[tuple[str, str]]:
    """Every setting of a policy with its value in words, in the order of the model."""
    return list(_Comparison(policy, policy).written((), policy))


class _Comparison:
    def __init__(self, before: Policy, after: Policy) -> None:
        self._before, self._after = before, after

    def all(self) -> Iterator[Difference]:
        yield from self._between((), self._before, self._after)

    def _between(self, path: Path, before: Any, after: Any) -> Iterator[Difference]:
        one, other = _members(before), _members(after)
        if one is None or other is None:
            if () in (before, after) and (one or other):  # of a list of parts, one of the two has none
                one, other = one or {}, other or {}
            elif before is None or after is None:
                before, after = (_NOT_THERE if value is None and members else value for value, members in ((before, other), (after, one)))
        if one is None or other is None:
            if before is not after and _plain(before) != _plain(after):
                yield self._difference(path, before, after)
            return
        for name in [*one, *(name for name in other if name not in one)]:
            here = (*path, name)
            first, second = one.get(name, _NOT_THERE), other.get(name, _NOT_THERE)
            if first is _NOT_THERE or second is _NOT_THERE:
                yield self._difference(here, first, second)
            else:
                yield from self._between(here, first, second)

    def written(self, path: Path, value: Any) -> Iterator[tuple[str, str]]:
        members = _members(value)
        if members is None:
            yield ".".join(path), self._words(path, value)
            return
        for name, member in members.items():
            yield from self.written((*path, name), member)

    def _difference(self, path: Path, before: Any, after: Any) -> Difference:
        words = tuple("" if value is _NOT_THERE else self._words(path, value) for value in (before, after))
        return Difference(".".join(path), words[0], words[1], self._direction(path, before, after))

    def _direction(self, path: Path, before: Any, after: Any) -> Direction:
        if path[:2] == ("windows", "categories") and len(path) == 3:  # without one of its own, a category has the window of all
            days = [p.windows.default_days if v is _NOT_THERE else v for p, v in ((self._before, before), (self._after, after))]
            return _by_size(days[0], days[1], more=Direction.LOOSER)
        if _fits(path, ("review.*.specialists",)):  # nobody named is everybody
            if before and after:
                return _by_size(_size(before, None), _size(after, None), more=Direction.LOOSER)
            return Direction.STRICTER if after else Direction.LOOSER
        if before is _NOT_THERE or after is _NOT_THERE:
            for patterns, when_added in ((_ADDED_IS_LOOSER, Direction.LOOSER), (_ADDED_IS_STRICTER, Direction.STRICTER)):
                if _fits(path, patterns):
                    return when_added if before is _NOT_THERE else _OPPOSITE[when_added]
            return Direction.OTHER
        ranked = _rank(before), _rank(after)
        if None not in ranked:
            return _by_size(ranked[0], ranked[1], more=Direction.STRICTER)
        for patterns, more in ((_MORE_IS_LOOSER, Direction.LOOSER), (_MORE_IS_STRICTER, Direction.STRICTER)):
            if _fits(path, patterns):
                missing = inf if _fits(path, _UNLIMITED) else -inf if more is Direction.STRICTER else None
                return _by_size(_size(before, missing), _size(after, missing), more=more)
        return Direction.OTHER

    def _words(self, path: Path, value: Any) -> str:
        if value is None:
            return "not set"
        if isinstance(value, bool):
            return "true" if value else "false"
        if isinstance(value, int):
            return self._number(path, value)
        if isinstance(value, datetime):
            return rfc3339(value).replace(".000000", "")
        members = _members(value)
        if members is not None:
            shown = [f"{name}: {self._words((*path, name), member)}" for name, member in members.items() if member not in (None, (), {})]
            return "; ".join(shown) or "empty"
        if isinstance(value, tuple | list):
            return ", ".join(self._words(path, item) for item in cast(Sequence[Any], value)) or "none"
        return str(value)

    def _number(self, path: Path, value: int) -> str:
        if _fits(path, _LENGTHS):
            return _length(value)
        code = path[1] if path[0] == "currencies" else path[-1] if "at_most" in path else None
        if code is None and _fits(path, ("limits.*.amount",)):
            code = self._after.base or self._before.base
        return format_money(Money(value, code)) if code in CURRENCIES else str(value)


_OPPOSITE = {Direction.LOOSER: Direction.STRICTER, Direction.STRICTER: Direction.LOOSER}


def _members(value: Any) -> dict[str, Any] | None:
    """The settings of a part, the entries of a mapping, or those of a list of parts; ``None`` for a value of its own."""
    if isinstance(value, BaseModel):
        return {name: getattr(value, name) for name in type(value).model_fields}
    if isinstance(value, Mapping):
        return {str(name): member for name, member in cast(Mapping[Any, Any], value).items()}
    if isinstance(value, tuple | list):
        items = cast(Sequence[Any], value)
        if items and all(isinstance(item, BaseModel) for item in items):
            return {_named(item) or str(at): item for at, item in enumerate(items)}
    return None


def _named(item: BaseModel) -> str | None:
    return next((str(getattr(item, name)) for name in _ENTRIES if name in type(item).model_fields), None)


def _plain(value: Any) -> Any:
    """A value to be compared: of a plain list only what is in it, because its order says nothing."""
    members = _members(value)
    if members is not None:
        return {name: _plain(member) for name, member in members.items()}
    if isinstance(value, tuple | list):
        return sorted(map(str, cast(Sequence[Any], value)))
    return value


def _fits(path: Path, patterns: Sequence[str]) -> bool:
    """Whether a setting is one of those meant. Compared name by name, because a category's name may have a dot in it."""
    for pattern in patterns:
        names = pattern.split(".")
        if len(names) == len(path) and all(fnmatchcase(name, wanted) for name, wanted in zip(path, names, strict=True)):
            return True
    return False


def _rank(value: Any) -> int | None:
    """The place of a word among those of its kind, from the easiest to the strictest."""
    if not isinstance(value, str):
        return None
    return next((words.index(value) for words in _RANKS if value in words), None)


def _size(value: Any, missing: float | None) -> Any:
    if value is None:
        return missing
    return frozenset(map(str, cast(Sequence[Any], value))) if isinstance(value, tuple | list) else value


def _by_size(before: Any, after: Any, *, more: Direction) -> Direction:
    """Which way it goes when the second is more, by number, time or truth, or because it holds all of the first and something else."""
    try:
        if after > before:
            return more
        return _OPPOSITE[more] if after < before else Direction.OTHER
    except TypeError:
        return Direction.OTHER


def _length(seconds: int) -> str:
    for unit, size in (("d", 86_400), ("h", 3_600), ("m", 60)):
        if seconds % size == 0:
            return f"{seconds // size}{unit}"
    return f"{seconds}s"
