"""What commands print: results on stdout (a table or fields for people, JSON with ``--json``), messages on stderr.

On a terminal tables are drawn, and one that does not fit becomes a block of lines for each record: an id is never cut or folded. In a pipe they are plain
columns: no colour, no folding, nothing shortened. Text that comes from elsewhere is never read as markup and never reaches the terminal with control
characters in it.
"""

import json
import os
import re
import sys
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import Any, cast

from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

from cli.problems import SeenEnough
from refunds.clock import SystemClock

GAP = 2
"""Spaces between columns."""
FOLDED_AT_LEAST = 24
"""A column of prose that gets less than this reads badly: then records are shown one below the other."""

_UNSAFE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


def clean(value: Any) -> str:
    """A value as one line of text that cannot move the cursor or reorder what stands beside it; an absent one is ``-``."""
    if value is None or value in ("", [], {}, ()):
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, Mapping):
        return ", ".join(f"{clean(name)} {clean(inner)}" for name, inner in cast("Mapping[Any, Any]", value).items())
    if isinstance(value, list | tuple):
        return ", ".join(map(clean, cast("Sequence[Any]", value)))
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

    @property
    def messages(self) -> Console:
        """Where messages go, for what draws itself: a bar."""
        return self._messages

    @property
    def messages_on_terminal(self) -> bool:
        """Whether a person looks at the messages."""
        return self._messages.is_terminal

    def say(self, text: str) -> None:
        """A message: on stderr, so that stdout holds results only."""
        self._messages.print(text)

    def json(self, value: Any) -> None:
        """One JSON document on stdout: indented, keys as the API gives them."""
        with _whole():
            sys.stdout.write(json.dumps(value, indent=2, ensure_ascii=False) + "\n")

    def table(self, columns: Sequence[str], rows: Sequence[Sequence[Any]], *, fold: str = "") -> None:
        """Rows under their columns. On a terminal only the column ``fold`` may fold; where that is not enough, each row is a block of its own."""
        texts = [[clean(cell) for cell in row] for row in rows]
        if not self._out.is_terminal:
            widths = column_widths(columns, texts)
            with _whole():
                for row in (list(columns), *texts):
                    sys.stdout.write("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() + "\n")
            return
        if not fits(columns, texts, self._out.width, fold=fold):
            if texts:
                with _whole():
                    self._out.print(records(columns, texts, self._out.width), soft_wrap=True)
            return
        table = Table(box=None, pad_edge=False, header_style="bold")
        for name in columns:
            table.add_column(name, no_wrap=name != fold, overflow="fold")
        for row in texts:
            table.add_row(*(Text(cell) for cell in row))
        with _whole():
            self._out.print(table)

    def fields(self, pairs: Sequence[tuple[str, Any]]) -> None:
        """Names and values. Absent values are left out; on a terminal long ones go on below, cut between words only."""
        shown = [(name, clean(value)) for name, value in pairs if value not in (None, "", [], {})]
        if not shown:
            return
        with _whole():
            self._out.print(_block(shown, self._out.width if self._out.is_terminal else None), soft_wrap=True)

    def heading(self, text: str) -> None:
        """A line above what follows."""
        with _whole():
            self._out.print(Text(f"\n{text}", style="bold"))

    def part(self, text: str) -> None:
        """A part of a document, written as it is."""
        with _whole():
            sys.stdout.write(text)

    def text(self, text: str) -> None:
        """Text as it is."""
        with _whole():
            sys.stdout.write(text if text.endswith("\n") else text + "\n")


def column_widths(columns: Sequence[str], texts: Sequence[Sequence[str]]) -> list[int]:
    """The cells of a terminal that each column needs to be whole."""
    return [max(cell_len(cell) for cell in column) for column in zip(columns, *texts, strict=True)]


def fits(columns: Sequence[str], texts: Sequence[Sequence[str]], width: int, *, fold: str = "") -> bool:
    """Whether a table has room for every column as a whole, but for ``fold``, which may become narrow within reason."""
    needed = column_widths(columns, texts)
    least = [min(wide, FOLDED_AT_LEAST) if name == fold else wide for name, wide in zip(columns, needed, strict=True)]
    return sum(least) + GAP * (len(least) - 1) <= width


def records(columns: Sequence[str], texts: Sequence[Sequence[str]], width: int) -> Text:
    """Each row as a block of ``name  value`` lines, with an empty line between two; absent values are left out."""
    blocks = [[(name, cell) for name, cell in zip(columns, row, strict=True) if cell not in ("", "-")] for row in texts]
    return Text("\n\n").join(_block(block, width, names=max(map(len, columns))) for block in blocks)


def _block(pairs: Sequence[tuple[str, str]], width: int | None, *, names: int | None = None) -> Text:
    """Lines of a bold name and its value; a value that would pass ``width`` goes on under its own first word. Words, so ids too, stay whole."""
    indent = (max(len(name) for name, _ in pairs) if names is None else names) + GAP
    lines: list[Text] = []
    for name, value in pairs:
        room = max(width - indent, FOLDED_AT_LEAST) if width else len(value) + 1
        parts = textwrap.wrap(value, room, break_long_words=False, break_on_hyphens=False) or [value]
        for index, part in enumerate(parts):
            lines.append(Text(("" if index else name).ljust(indent), style="bold") + Text(part, style="not bold"))
    return Text("\n").join(lines)


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
