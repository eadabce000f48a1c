"""What the demo sees: every refund as the API shows it, read again and again, for the table and for the scenes that wait for something."""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from cli.client import PAGE, Api
from cli.problems import Problem

POLL_SECONDS = 0.2
PATIENCE_SECONDS = 45


class NeverHappened(Exception):
    """A scene waited for something in vain."""


@dataclass(frozen=True, slots=True)
class End:
    """How a refund is expected to end."""

    status: str
    code: str | None = None

    def __str__(self) -> str:
        return f"{self.status} {self.code or ''}".strip()


@dataclass
class Row:
    """One refund of one scene: what it should come to, and how it stands. ``seen`` is every distinct status it was seen in."""

    scene: str
    refund: str
    order: str
    expected: End
    now: dict[str, Any] = field(default_factory=dict[str, Any])
    seen: list[str] = field(default_factory=list[str])

    @property
    def final(self) -> bool:
        """Whether it has ended."""
        return bool(self.now.get("final"))

    @property
    def as_expected(self) -> bool:
        """Whether it has ended as it should. A code counts only where one is expected."""
        return self.final and self.now["status"] == self.expected.status and self.expected.code in (None, self.now.get("code"))


class Board:
    """The rows, shared by the scenes (each in a thread of its own), the reader and the table."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._rows: dict[str, Row] = {}
        self._changed = threading.Condition()
        self._ending = threading.Event()
        self._given_up = False
        self._reader = threading.Thread(target=self._read_on, name="demo-board", daemon=True)
        self.trouble = ""

    def start(self) -> None:
        """Begin to read."""
        self._reader.start()

    def stop(self) -> None:
        """Stop reading; returns when the last answer was taken in."""
        self._ending.set()
        self._reader.join()

    def give_up(self) -> None:
        """Let every scene that waits end at once, because somebody pressed Ctrl-C."""
        with self._changed:
            self._given_up = True
            self._changed.notify_all()

    def rows(self) -> list[Row]:
        """All rows, by order, and of one order as they were asked for."""
        with self._changed:
            return sorted(self._rows.values(), key=lambda row: row.order)

    def add(self, row: Row) -> None:
        """A refund that was accepted. The same one again changes nothing."""
        with self._changed:
            self._rows.setdefault(row.refund, row)

    def until(self, refund: str, what: str, holds: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """Wait until the refund stands so, and return it. Raises :class:`NeverHappened` when it does not come to that, or ends before."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        with self._changed:
            while True:
                row = self._rows[refund]
                if row.now and holds(row.now):
                    return row.now
                if self._given_up:
                    raise NeverHappened("interrupted")
                if row.final:
                    raise NeverHappened(f"{refund} ended as {row.now['status']} before {what}")
                if (left := deadline - time.monotonic()) <= 0:
                    raise NeverHappened(f"{refund} is {row.now.get('status', 'unseen')} and did not come to {what} in {PATIENCE_SECONDS} s")
                self._changed.wait(left)

    def _read_on(self) -> None:
        while not self._ending.wait(POLL_SECONDS):
            try:
                self._read()
                self.trouble = ""
            except Problem as problem:
                # Shown, and tried again: the scenes have their own patience.
                self.trouble = problem.line
        return

    def _read(self) -> None:
        found: list[dict[str, Any]] = []
        more = None
        while True:
            page = self._api.get("/v1/refunds", limit=PAGE, cursor=more)
            found += page["refunds"]
            more = page.get("next_cursor")
            if not more:
                break
        with self._changed:
            for refund in found:
                row = self._rows.get(refund["id"])
                if row is not None:
                    row.now = refund
                    if not row.seen or row.seen[-1] != refund["status"]:
                        row.seen.append(refund["status"])
            self._changed.notify_all()
