"""Named points around everything that cannot be undone, at which a test lets a process die, freeze, wait or fail (``docs/crash-points.md``).

A point is named after what is being done, so that no caller has to be edited for it: ``before:`` or ``after:`` and, joined by ``+``, what the transaction
writes (the types of its ledger entries, a move by the status it leads to: ``after:receipt+succeeded``; ``commit`` when it writes none) or the call that moves
money (``before:refund.create``). "Before" a commit nothing of it is stored; "after" it everything is, and nobody has been told yet.

Nothing is armed unless a test arms it, and then a reached point costs one comparison. Live mode refuses to start armed.
"""

import asyncio
import os
import re
import signal
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Iterable
from contextlib import asynccontextmanager, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path

UNNAMED = "commit"
"""What a transaction is called that enters nothing in the ledger."""

ANY = "*"
IN_FILE = "file:"
_RULE = re.compile(
    r"(?P<when>before|after):(?P<what>[a-z_.+]+|\*)(?P<exact>!?)=(?P<action>kill|freeze|raise|delay:(?P<delay>\d+(?:\.\d+)?))(?:@(?P<nth>[1-9]\d*))?"
)

Watcher = Callable[[str], Awaitable[None]]
"""Told the name of each point that is reached, and waited for."""


class Crashed(Exception):
    """What the action ``raise`` raises: the work ends here as if the process had, and only the process lives on."""


@dataclass(slots=True)
class Rule:
    """What happens at a point, the ``nth`` time it is reached.

    ``what`` names some of what is written there (``receipt`` is part of ``receipt+succeeded``), or if ``exact`` all of it.
    """

    when: str
    what: frozenset[str]
    action: str
    delay_s: float = 0
    nth: int = 1
    exact: bool = False
    reached: int = 0

    def matches(self, point: str) -> bool:
        """Whether the point is one of those that the rule is about."""
        when, _, what = point.partition(":")
        found = frozenset(what.split("+"))
        return self.when == when and (self.what == found if self.exact else self.what <= found)

    async def meet(self, point: str) -> None:
        """Count the point if it is meant, and act when it was reached often enough."""
        if not self.matches(point):
            return
        self.reached += 1
        if self.reached == self.nth:
            await self.act(point)

    async def act(self, point: str) -> None:
        """Do it. ``kill`` and ``freeze`` are signals that no process can answer: what a power cut and a paused machine look like."""
        print(f"crash point {point}: {self.action}", file=sys.stderr, flush=True)
        if self.action == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        elif self.action == "freeze":
            os.kill(os.getpid(), signal.SIGSTOP)
        elif self.action == "raise":
            raise Crashed(point)
        else:
            await asyncio.sleep(self.delay_s)


def parse(text: str) -> list[Rule]:
    """Read rules such as ``after:receipt=kill@2, before:refund.create=freeze, after:*=delay:0.5``.

    Actions: ``kill``, ``freeze``, ``raise``, ``delay:<seconds>``; ``@n`` means the nth time, else the first; ``after:succeeded!=kill`` means
    a transaction that writes this and nothing else. Raises ``ValueError``.
    """
    rules: list[Rule] = []
    for part in filter(None, (part.strip() for part in text.split(","))):
        found = _RULE.fullmatch(part)
        if found is None:
            raise ValueError(f"{part!r} is no crash point; write one as before:intent=kill, after:receipt=freeze@2 or after:*=delay:0.5")
        what = frozenset[str]() if found["what"] == ANY else frozenset(found["what"].split("+"))
        delay = float(found["delay"] or 0)  # seconds to wait, not money
        rules.append(Rule(found["when"], what, found["action"].partition(":")[0], delay, int(found["nth"] or 1), bool(found["exact"])))
    return rules


class _Armed:
    """Rules of one process, for its whole life."""

    def __init__(self, rules: Iterable[Rule]) -> None:
        self._rules = list(rules)

    async def __call__(self, point: str) -> None:
        for rule in self._rules:
            await rule.meet(point)


class _ArmedByFile:
    """Rules that somebody puts into a file while the process runs: whoever reaches the point first takes the file away, of all processes that share it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._stamp = 0
        self._rules: list[Rule] = []

    async def __call__(self, point: str) -> None:
        try:
            stamp = self._path.stat().st_mtime_ns
            if stamp != self._stamp:
                self._stamp, self._rules = stamp, parse(self._path.read_text())
        except FileNotFoundError:
            return
        for rule in self._rules:
            if not rule.matches(point):
                continue
            rule.reached += 1
            if rule.reached == rule.nth and self._take():
                await rule.act(point)

    def _take(self) -> bool:
        try:
            self._path.rename(self._path.with_suffix(".taken"))
        except FileNotFoundError:
            return False
        return True


def check(text: str) -> None:
    """Raise ``ValueError`` when this cannot be armed."""
    if not text.startswith(IN_FILE):
        parse(text)


_watcher: Watcher | None = None
_open: ContextVar["Transaction | None"] = ContextVar("open", default=None)


def arm(text: str) -> None:
    """Arm the process with rules (:func:`parse`), or with ``file:<path>``: a file of rules that may come and go. Empty disarms. Raises ``ValueError``."""
    global _watcher
    _watcher = None
    if text.startswith(IN_FILE):
        _watcher = _ArmedByFile(Path(text.removeprefix(IN_FILE)))
    elif rules := parse(text):
        _watcher = _Armed(rules)


@contextmanager
def watched_by(watcher: Watcher) -> Generator[None]:
    """Have every point that this process reaches told to ``watcher``, which may note it, wait there, or raise."""
    global _watcher
    before, _watcher = _watcher, watcher
    try:
        yield
    finally:
        _watcher = before


def writes(*names: str) -> None:
    """Tell what the open transaction writes. Costs nothing when no test looks."""
    if _watcher is None:
        return
    transaction = _open.get()
    if transaction is not None:
        transaction.write(names)


async def committing() -> None:
    """Right before the commit of the open transaction, for who commits it before its end."""
    transaction = None if _watcher is None else _open.get()
    if transaction is not None:
        await transaction.committing()


@asynccontextmanager
async def around(call: str) -> AsyncGenerator[None]:
    """The points before and after a call; there is no "after" of a call that raised."""
    if _watcher is not None:
        await _watcher(f"before:{call}")
    yield
    if _watcher is not None:
        await _watcher(f"after:{call}")


class Transaction:
    """The points of one transaction, which is named by what it has written when it comes to its end."""

    __slots__ = ("_enclosing", "_name", "_written")

    def __init__(self) -> None:
        self._written: list[str] = []
        self._name: str | None = None

    def __enter__(self) -> "Transaction":
        if _watcher is not None:
            self._enclosing = _open.get()
            _open.set(self)
        return self

    def __exit__(self, *_error: object) -> None:
        if _open.get() is self:
            _open.set(self._enclosing)

    def write(self, names: Iterable[str]) -> None:
        """What it writes: part of its name."""
        self._written += [name for name in dict.fromkeys(names) if name not in self._written]

    async def committing(self) -> None:
        """Right before the commit. Once: one that was committed before its end has had it."""
        if _watcher is not None and self._name is None:
            self._name = "+".join(self._written) or UNNAMED
            await _watcher(f"before:{self._name}")

    async def committed(self) -> None:
        """Right after the commit."""
        if _watcher is not None:
            await _watcher(f"after:{self._name}")
