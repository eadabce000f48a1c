"""How often one key may call, and how often one address may be wrong about its key: token buckets in this process's memory."""

import hashlib
import math
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from refunds.errors import Code, RefundError

FAILURES_PER_MINUTE = 60
"""Wrong keys an address may send in a minute before it is asked to wait."""

AT_ONCE = 64
"""Calls one key may have under way at the same time in one process."""

UNKNOWN_KEYS = 10
"""How many times the calls of one key all keys together may make that were never right in this process: each costs one indexed query."""

_REMEMBERED = 10_000


class Buckets:
    """A bucket for each name: a minute's worth at once, refilled evenly. The least recently used of too many is forgotten."""

    def __init__(self, per_minute: int, now: Callable[[], float] = time.monotonic) -> None:
        self._most = per_minute
        self._rate = per_minute / 60
        self._now = now
        self._levels: OrderedDict[bytes, tuple[float, float]] = OrderedDict()

    def __contains__(self, name: bytes) -> bool:
        return name in self._levels

    def level(self, name: bytes) -> float:
        """What is left now."""
        left, since = self._levels.get(name, (float(self._most), self._now()))
        return min(self._most, left + (self._now() - since) * self._rate)

    def take(self, name: bytes) -> None:
        """Take one. Raises ``RATE_LIMITED`` with the seconds to wait when there is none."""
        left = self.level(name)
        if left < 1:
            raise RefundError(Code.RATE_LIMITED, retry_after=math.ceil((1 - left) / self._rate))
        self._levels[name] = (left - 1, self._now())
        self._levels.move_to_end(name)
        if len(self._levels) > _REMEMBERED:
            self._levels.popitem(last=False)


class Limits:
    """The limits of one API process."""

    def __init__(self, per_minute: int, now: Callable[[], float] = time.monotonic) -> None:
        self._keys = Buckets(per_minute, now)
        self._failures = Buckets(min(per_minute, FAILURES_PER_MINUTE), now)
        self._busy: Counter[bytes] = Counter()
        self._unknown = Buckets(per_minute * UNKNOWN_KEYS, now)

    def before(self, key: str) -> None:
        """Count a call before its key is looked up. All keys that were never right here share one bucket: looking them up must not drown the rest.

        An address that sends wrong keys does not keep others behind it from being looked up: an operator must be able to stop everything.
        """
        name = _name(key)
        if name in self._keys:
            self._keys.take(name)
        else:
            self._unknown.take(_UNKNOWN)

    def right(self, key: str) -> None:
        """Remember that the key was right."""
        name = _name(key)
        if name not in self._keys:
            self._keys.take(name)

    @contextmanager
    def at_once(self, key: str) -> Iterator[None]:
        """Count a call while it works. Raises ``RATE_LIMITED`` above :data:`AT_ONCE`: one caller's crowd must not keep the stop waiting in line."""
        name = _name(key)
        if self._busy[name] >= AT_ONCE:
            raise RefundError(Code.RATE_LIMITED, f"This key has {AT_ONCE} calls under way.", retry_after=1)
        self._busy[name] += 1
        try:
            yield
        finally:
            self._busy[name] -= 1
            if not self._busy[name]:
                del self._busy[name]

    def wrong(self, address: str) -> None:
        """Count a missing or wrong key against the address. Raises ``RATE_LIMITED`` when it has failed too often."""
        try:
            self._failures.take(_name(address))
        except RefundError as error:
            raise RefundError(Code.RATE_LIMITED, "Too many wrong keys from this address.", **error.ids) from None


_UNKNOWN = b"unknown"


def _name(text: str) -> bytes:
    # Keys themselves stay nowhere in memory longer than their call.
    return hashlib.sha256(text.encode("utf-8", "replace")).digest()
