"""CSV: rows under named columns. The rows of one order stand together; each may bring a payment, a line, or both.

What cannot be read is never left out quietly: a row that cannot be told to belong to one order keeps the orders on both sides of it from being sent,
because part of one of them may be missing.
"""

import csv
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from cli.importing.entries import Entry, Trouble, trouble
from cli.importing.lines import Lines, LineTooLong, is_utf8
from cli.importing.rows import COLUMNS, Row, RowsOfOrder
from cli.problems import Misused
from refunds.errors import Code

DELIMITERS = ",;\t"
ACROSS_LINES = ("line_title",)
"""Columns whose text may go over several lines; elsewhere that is a quote which was not closed."""


@dataclass(frozen=True)
class _Broken:
    """Lines of which nobody can say whose they are."""

    first: int
    last: int
    what: str


def rows_of_orders(lines: Lines, locale: str) -> Iterator[Entry]:
    """The orders of a table, amounts written as in ``locale``. Raises :class:`Misused` when the first line does not name known columns."""
    columns, delimiter = _header(lines)
    current: RowsOfOrder | None = None
    before: _Broken | None = None
    for row in _rows(lines, columns, delimiter):
        if isinstance(row, _Broken):
            if current is None:
                current = RowsOfOrder("", row.first, locale)
            current.add_trouble(row.last, trouble(row.first, current.order_id, Code.INVALID_FIELD, "", row.what, _WHOLE))
            before = row
            continue
        if current is None or row.order_id != current.order_id:
            if current is not None:
                yield current
            current = RowsOfOrder(row.order_id, row.first, locale)
            if before is not None:
                current.add_trouble(row.last, _in_doubt(row, before))
        before = None
        current.add(row)
    if current is not None:
        yield current


_WHOLE = "Correct the line; the orders before and after it are not sent, because it may belong to either."


def _in_doubt(row: Row, before: _Broken) -> Trouble:
    what = f"Line {before.last}, just before this order, cannot be read and may belong to it."
    return trouble(row.first, row.order_id, Code.INVALID_FIELD, "", what, "Correct that line.")


def _header(lines: Lines) -> tuple[list[str], str]:
    try:
        line = next((line for line in lines if line.strip()), "")
        if line.lower().startswith("sep="):
            line = next((line for line in lines if line.strip()), "")
    except LineTooLong as error:
        raise Misused(f"The first line does not name the columns: {error}") from error
    if not line:
        raise Misused("The file is empty.")
    if not is_utf8(line):
        raise Misused("The first line is not UTF-8; save the file as UTF-8 (in Excel: CSV UTF-8).")
    found = {delimiter: _names(line, delimiter) for delimiter in DELIMITERS}
    delimiter = max(found, key=lambda one: sum(name in COLUMNS for name in found[one]))
    columns = found[delimiter]
    missing = [name for name in ("order_id", "customer_id", "currency") if name not in columns]
    unknown = [name or "(no name)" for name in columns if name not in COLUMNS]
    twice = sorted({name for name in columns if columns.count(name) > 1})
    for names, what in ((missing, "it lacks"), (unknown, "not known are"), (twice, "twice there are")):
        if names:
            shown = ", ".join(name[:40] for name in names[:10])
            raise Misused(f"The first line must name the columns of the table: {what} {shown}. Known: {', '.join(COLUMNS)}.")
    return columns, delimiter


def _names(line: str, delimiter: str) -> list[str]:
    try:
        return [name.strip().lower() for name in next(csv.reader([line], delimiter=delimiter, strict=True))]
    except csv.Error:
        return []


def _rows(lines: Lines, columns: Sequence[str], delimiter: str) -> Iterator[Row | _Broken]:
    reader = csv.reader(lines, delimiter=delimiter, strict=True)
    while True:
        first = lines.number + 1
        try:
            cells = next(reader, None)
        except (csv.Error, LineTooLong) as error:
            yield _Broken(first, lines.number, _unreadable(first, lines.number, error))
            continue
        if cells is None:
            return
        cells = [cell.strip() for cell in cells]
        if any(cells):
            yield _row(first, lines.number, columns, cells)


def _unreadable(first: int, last: int, error: Exception) -> str:
    what = str(error).rstrip(".")
    if last > first or "end of data" in what:
        return f"Lines {first} to {last} cannot be read, because a quote that opens there is not closed as it should be ({what})."
    return f"The line cannot be read: {what}."


def _row(first: int, last: int, columns: Sequence[str], cells: list[str]) -> Row | _Broken:
    if len(cells) != len(columns):
        return _Broken(first, last, f"The row has {len(cells)} cells and the first line has {len(columns)}.")
    values = {name: cell for name, cell in zip(columns, cells, strict=True) if cell}
    order_id = values.get("order_id", "")
    if not order_id or not _plain(order_id):
        return _Broken(first, last, "The row does not say, in order_id, which order it is of.")
    row = Row(first, last, order_id, values)
    for name, cell in values.items():
        if not is_utf8(cell):
            row.wrong.append((name, "The text is not UTF-8; save the file as UTF-8 (in Excel: CSV UTF-8)."))
        elif "\0" in cell:
            row.wrong.append((name, "The text contains NUL."))
        elif name not in ACROSS_LINES and ("\n" in cell or "\r" in cell):
            row.wrong.append((name, "The text goes over several lines; is a quote not closed?"))
    return row


def _plain(order_id: str) -> bool:
    return is_utf8(order_id) and not any(character in order_id for character in "\0\r\n")
