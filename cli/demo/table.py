"""The demo's table: live on a terminal; in a pipe one line for each change, and the whole table at the end."""

import sys
from collections.abc import Iterable
from types import TracebackType
from typing import Protocol, Self

from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from cli.demo.board import Board, Row
from cli.output import clean
from cli.refund_view import amount_of, ended
from refunds.ids import workflow_id

COLUMNS = ("scene", "refund", "order", "amount", "status", "waits for", "ended", "run")
REFRESHES_PER_SECOND = 5
_STYLES = {"succeeded": "green", "released": "green", "parked": "red", "held": "red", "failed": "red"}


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


def drawn(rows: Iterable[Row], ui: str, *, footer: str = "") -> Table:
    """The table for a terminal. The refund's id is the link to its run: terminals that know links open it by a click."""
    table = Table(caption=footer or None, header_style="bold", expand=True)
    for name in COLUMNS[:-1]:
        table.add_column(name, no_wrap=name in ("refund", "order", "amount", "status"), overflow="fold")
    for row in rows:
        scene, refund, order, amount, status, waits, how, link = cells(row, ui)
        table.add_row(
            scene,
            Text(refund, style=f"link {link}"),
            order,
            Text(amount, justify="right"),
            Text(status, style=_STYLES.get(status, "yellow" if not row.final else "")),
            Text(waits),
            Text(how, style="" if row.as_expected or not row.final else "bold red"),
        )
    return table


class Display(Protocol):
    """Shows the board while the scenes play."""

    def __enter__(self) -> Self: ...

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None: ...

    def refresh(self) -> None:
        """Show what has changed."""
        ...


class LiveTable:
    """For a terminal: the table is redrawn in place, and stays when it is over."""

    def __init__(self, board: Board, ui: str, console: Console) -> None:
        self._board, self._ui = board, ui
        self._live = Live(console=console, refresh_per_second=REFRESHES_PER_SECOND, vertical_overflow="visible")

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.refresh()
        self._live.stop()

    def refresh(self) -> None:
        """Redraw."""
        rows = self._board.rows()
        done = sum(row.final for row in rows)
        footer = self._board.trouble or f"{done} of {len(rows)} refunds have ended"
        self._live.update(drawn(rows, self._ui, footer=footer), refresh=True)


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
        rows = [COLUMNS, *(cells(row, self._ui) for row in self._board.rows())]
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
