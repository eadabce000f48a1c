"""What commands print: results on stdout (a table or fields for people, JSON with ``--json``), messages on stderr.

On a terminal tables are drawn and fold; in a pipe they are plain columns: no colour, no folding, nothing shortened. Text that comes from elsewhere is never
read as markup and never reaches the terminal with control characters in it.
"""

import json
import os
import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from cli.problems import SeenEnough
from refunds.clock import SystemClock

_UNSAFE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


def clean(value: Any) -> str:
    """A value as one line of text that cannot move the cursor or reorder what stands beside it; an absent one is ``-``."""
    if value is None or value == "":
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return " ".join(_UNSAFE.sub("\ufffd", str(value)).split())


@contextmanager
def _whole() -> Iterator[None]:
    """Write through to the reader, and end the command quietly when it has gone (``refunds list | head``): it has seen enough."""
    try:
        yield
        sys.stdout.flush()
    except BrokenPipeError:
        # What is still buffered must not fail again when the interpreter ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise SeenEnough from None


class _Results(Console):
    """A console that leaves it to :func:`_whole` what happens when the reader has gone; rich's own would end with exit code 1."""

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError


class Output:
    """Prints the results of one command."""

    def __init__(self, as_json: bool = False) -> None:
        self.as_json = as_json
        self._out = _Results(file=sys.stdout, highlight=False, markup=False, emoji=False)
        self._messages = Console(file=sys.stderr, highlight=False, markup=False, emoji=False, soft_wrap=True)

    @property
    def is_terminal(self) -> bool:
        """Whether a person looks at it."""
        return self._out.is_terminal

    def say(self, text: str) -> None:
        """A message: on stderr, so that stdout holds results only."""
        self._messages.print(text)

    def json(self, value: Any) -> None:
        """One JSON document on stdout: indented, keys as the API gives them."""
        with _whole():
            sys.stdout.write(json.dumps(value, indent=2, ensure_ascii=False) + "\n")

    def table(self, columns: Sequence[str], rows: Sequence[Sequence[Any]], *, fold: str = "") -> None:
        """Rows under their columns. On a terminal only the column ``fold`` may fold; ids and amounts stay whole and can be copied."""
        texts = [[clean(cell) for cell in row] for row in rows]
        if self._out.is_terminal:
            table = Table(box=None, pad_edge=False, header_style="bold")
            for name in columns:
                table.add_column(name, no_wrap=name != fold, overflow="fold")
            for row in texts:
                table.add_row(*(Text(cell) for cell in row))
            with _whole():
                self._out.print(table)
            return
        widths = [max(len(cell) for cell in column) for column in zip(columns, *texts, strict=True)]
        with _whole():
            for row in (list(columns), *texts):
                sys.stdout.write("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() + "\n")

    def fields(self, pairs: Sequence[tuple[str, Any]]) -> None:
        """Names and values, one a line. Absent values are left out."""
        shown = [(name, clean(value)) for name, value in pairs if value not in (None, "", [], {})]
        width = max((len(name) for name, _ in shown), default=0)
        with _whole():
            for name, value in shown:
                line = Text(name.ljust(width + 2), style="bold") + Text(value, style="not bold")
                self._out.print(line, soft_wrap=True)

    def heading(self, text: str) -> None:
        """A line above what follows."""
        with _whole():
            self._out.print(Text(f"\n{text}", style="bold"))

    def text(self, text: str) -> None:
        """Text as it is."""
        with _whole():
            sys.stdout.write(text if text.endswith("\n") else text + "\n")


def age(since: str | None, now: datetime | None = None) -> str:
    """How long ago an RFC 3339 instant was, in the two largest units people use: ``3 d 4 h``, ``12 min``, ``8 s``."""
    if not since:
        return "-"
    seconds = max(0, int(((now or SystemClock().now()) - datetime.fromisoformat(since)).total_seconds()))
    days, hours, minutes = seconds // 86_400, seconds % 86_400 // 3_600, seconds % 3_600 // 60
    if days:
        return f"{days} d {hours} h"
    if hours:
        return f"{hours} h {minutes} min"
    return f"{minutes} min" if minutes else f"{seconds} s"
