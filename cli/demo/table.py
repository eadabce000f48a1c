"""The demo's table: live on a terminal; in a pipe one line for each change, and the whole table at the end."""

import sys
from collections.abc import Iterable, Sequence
from types import TracebackType
from typing import Protocol, Self

from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from cli.demo.board import Board, Row
from cli.output import clean, fits, records
from cli.refund_view import amount_of, ended
from refunds.ids import workflow_id

_WAITS = "waits for"
COLUMNS = ("scene", "refund", "order", "amount", "status", _WAITS, "ended", "run")
REFRESHES_PER_SECOND = 5
WIDE = 120
"""Cells from which on the moving table has room for what a refund waits for."""
_STYLES = {"succeeded": "green", "released": "green", "denied": "", "expired": "", "parked": "red", "held": "red", "failed": "red"}


def run_link(ui: str, refund: str) -> str:
    """The page of a refund's run in the Temporal UI."""
    return f"{ui}/namespaces/default/workflows/{workflow_id(refund)}"


def cells(row: Row, ui: str) -> tuple[str, ...]:
    """A row as plain text."""
    now = row.now
    how = f"{ended(now)}{'' if row.as_expected else f' (expected {row.expected})'}" if row.final else ""
    waits = "" if row.final else now.get("next_step")
    values = (row.scene, row.refund, row.order, amount_of(now), now.get("status"), waits, how, run_link(ui, row.refund))
    return tuple(clean(value) for value in values)


def compact(rows: Iterable[Row], ui: str, *, footer: str, width: int) -> Table:
    """One line a refund, so that the whole table fits a screen while it moves: long sentences are cut, ids are not."""
    table = Table(box=None, pad_edge=False, caption=footer, caption_justify="left", header_style="bold", expand=True)
    wide = width >= WIDE
    names = (
        ("scene", "refund", "order", "amount", "status", "waits for, or how it ended") if wide else ("scene", "refund", "amount", "status")
    )
    for name in names:
        ratio = {"scene": 2, names[-1] if wide else "scene": 3}.get(name)
        table.add_column(name, no_wrap=True, overflow="ellipsis" if ratio else "fold", ratio=ratio)
    for row in rows:
        scene, refund, order, amount, status, waits, how, link = cells(row, ui)
        first, sum_ = (Text(scene), _linked(refund, link)), Text(amount, justify="right")
        if wide:
            last = Text(how, style="green" if row.as_expected else "bold red") if row.final else Text(waits)
            table.add_row(*first, Text(order), sum_, _status(status), last)
        else:
            table.add_row(*first, sum_, _status(status) if row.as_expected or not row.final else Text(status, style="bold red"))
    return table


def complete(rows: Iterable[Row], ui: str, *, width: int) -> Table | Text:
    """All there is to say when all is over: a table, or where it does not fit a block for each refund. Nothing is cut."""
    rows = list(rows)
    names, texts = _told(COLUMNS[:-1], [cells(row, ui)[:-1] for row in rows])
    # A drawn table has three cells of lines and padding a column, and one more; `fits` counts the two between columns already.
    if not fits(names, texts, width - len(names) - 6 - len("open")):
        blocks = records(names, texts, width)
        for row in rows:
            blocks.highlight_words([row.refund], f"link {run_link(ui, row.refund)}")
        return blocks
    table = Table(header_style="bold", expand=True)
    for name in (*names, "run"):
        table.add_column(name, no_wrap=True)
    for row in rows:
        *told, link = cells(row, ui)
        drawn = {name: Text(cell) for name, cell in zip(COLUMNS, told, strict=False)} | {
            "refund": _linked(row.refund, link),
            "amount": Text(amount_of(row.now), justify="right"),
            "status": _status(str(row.now.get("status"))),
            "run": _linked("open", link),
        }
        drawn["ended"].stylize(_style(str(row.now.get("status"))) if row.as_expected else "bold red")
        table.add_row(*(drawn[name] for name in (*names, "run")))
    return table


def _told(columns: Sequence[str], texts: Sequence[tuple[str, ...]]) -> tuple[list[str], list[list[str]]]:
    """Columns and rows without what says nothing: when every refund has ended, none waits for anything, and how it ended begins with its status."""
    ended = columns.index("ended")
    over = texts and all(row[ended] != clean(None) for row in texts)
    left_out = {columns.index(name) for name in (_WAITS, "status")} if over else set[int]()
    names, *rows = ([cell for at, cell in enumerate(row) if at not in left_out] for row in (columns, *texts))
    return names, rows


def _linked(text: str, address: str) -> Text:
    """Text that terminals which know links open in the browser."""
    return Text(text, style=f"link {address}")


def _status(status: str) -> Text:
    return Text(status, style=_style(status))


def _style(status: str) -> str:
    return _STYLES.get(status, "yellow")


class Display(Protocol):
    """Shows the board while the scenes play."""

    def __enter__(self) -> Self: ...

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None: ...

    def refresh(self) -> None:
        """Show what has changed."""
        ...


class LiveTable:
    """For a terminal: a compact table is redrawn in place; when it is over the complete one takes its place."""

    def __init__(self, board: Board, ui: str, console: Console) -> None:
        self._board, self._ui, self._console = board, ui, console
        self._live = Live(console=console, auto_refresh=False, transient=True)

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._live.stop()
        shown = complete(self._board.rows(), self._ui, width=self._console.width)
        self._console.print(shown, soft_wrap=isinstance(shown, Text))
        self._console.print(Text(f"The run of each refund: {run_link(self._ui, '<refund>')}"), soft_wrap=True)

    def refresh(self) -> None:
        """Redraw."""
        rows = self._board.rows()
        done = sum(row.final for row in rows)
        footer = self._board.trouble or f"{done} of {len(rows)} refunds have ended"
        self._live.update(compact(rows, self._ui, footer=footer, width=self._console.width), refresh=True)


class ChangeLines:
    """For a pipe: a line for each change of a refund, and the whole table when it is over. Nothing is shortened."""

    def __init__(self, board: Board, ui: str) -> None:
        self._board, self._ui = board, ui
        self._told: dict[str, str] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.refresh()
        self._say("")
        names, texts = _told(COLUMNS, [cells(row, self._ui) for row in self._board.rows()])
        rows = [names, *texts]
        widths = [max(len(cell) for cell in column) for column in zip(*rows, strict=True)]
        for row in rows:
            self._say("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())

    def refresh(self) -> None:
        """Print what has changed since the last call."""
        for row in self._board.rows():
            scene, refund, _, amount, status, waits, how, _ = cells(row, self._ui)
            line = f"{refund}  {amount:>10}  {status:<16}  {how if row.final else waits}  [{scene}]"
            if row.now and self._told.get(refund) != line:
                self._told[refund] = line
                self._say(line)

    def _say(self, line: str) -> None:
        sys.stdout.write(line + "\n")
        sys.stdout.flush()


def display(board: Board, ui: str, console: Console) -> Display:
    """The way of showing that fits where it is shown."""
    return LiveTable(board, ui, console) if console.is_terminal else ChangeLines(board, ui)
