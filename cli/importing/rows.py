"""The rows of one order in a table, and the order they come to."""

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from cli.importing.entries import Judged, Trouble, check, trouble
from refunds.errors import Code, RefundError
from refunds.money import Money, currency, format_money, parse_amount, read_amount

OF_ORDER = ("customer_id", "customer_since", "placed_at", "delivered_at", "currency", "tax", "shipping", "discount")
OF_PAYMENT = ("payment_id", "payment_amount", "payment_currency", "payment_tender")
OF_LINE = (
    *("line_id", "line_title", "line_category", "line_quantity", "line_amount"),
    *("line_tax", "line_discount", "line_shipped", "line_returned"),
)
COLUMNS = ("order_id", *OF_ORDER, *OF_PAYMENT, *OF_LINE)
"""Every column there is; only ``order_id``, ``customer_id`` and ``currency`` must be there."""

ROWS = 2_000
"""Rows of one order that are looked at: an order has at most 1,000 lines and 50 payments."""

_AMOUNTS = ("tax", "shipping", "discount", "line_amount", "line_tax", "line_discount")
_COUNTS = ("line_quantity", "line_shipped", "line_returned")
_SHORTENED = re.compile(r"\d(?:[.,]\d+)?E\+?\d+", re.IGNORECASE)


@dataclass
class Row:
    """One row: its cells that are not empty, by column, and what is wrong with the text in them."""

    first: int
    last: int
    order_id: str
    values: dict[str, str]
    wrong: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])


class RowsOfOrder:
    """The rows of an order, one below the other."""

    def __init__(self, order_id: str, first: int, locale: str) -> None:
        self.order_id = order_id
        self.first = self.last = first
        self._locale = locale
        self._rows: list[Row] = []
        self._troubles: list[Trouble] = []

    def add(self, row: Row) -> None:
        """One more row."""
        self.last = row.last
        if len(self._rows) < ROWS:
            self._rows.append(row)
        elif not any(one.line > self.first and "rows" in one.what for one in self._troubles):
            self._troubles.append(trouble(row.first, self.order_id, Code.INVALID_FIELD, "", f"The order has more than {ROWS} rows."))

    def add_trouble(self, last: int, found: Trouble) -> None:
        """Something, up to line ``last``, that keeps the order from being sent."""
        self.last = last
        self._troubles.append(found)

    def judge(self) -> Judged:
        """The order, checked as the API checks it."""
        reading = _Reading(self.order_id, self._rows, self._locale)
        troubles = (*self._troubles, *reading.troubles)
        if not troubles:
            troubles = check(self.order_id, reading.order, reading.place)
        return Judged(reading.order, tuple(sorted(troubles, key=lambda one: one.line)), reading.place, reading.shown)


class _Reading:
    """Reads the rows once, from the first to the last."""

    def __init__(self, order_id: str, rows: list[Row], locale: str) -> None:
        self.order: dict[str, Any] = {}
        self.troubles: list[Trouble] = []
        self.shown = ""
        self._order_id, self._locale, self._rows = order_id, locale, rows
        self._lines: dict[str, int] = {}
        self._payments: dict[str, dict[str, Any]] = {}
        for row in rows:
            for name, what in row.wrong:
                self._wrong(row, name, what)
        if not self.troubles and rows:
            self._read()

    def place(self, field: str) -> tuple[int, str]:
        """Where a field of the order stands: the line, and the column by its name in the table."""
        head, *rest = field.split(".")
        prefix = {"payments": "payment_", "lines": "line_"}.get(head)
        start = self._rows[0].first if self._rows else 0
        if prefix is None or not rest:
            return self._lines.get(head, start), head
        return self._lines.get(f"{head}.{rest[0]}", start), prefix + (rest[1] if len(rest) > 1 else "id")

    def _read(self) -> None:
        if _SHORTENED.fullmatch(self._order_id):
            self._wrong(self._rows[0], "order_id", "A spreadsheet has shortened this number; make the column text before you save.")
        for row in self._rows:
            self._of_order(row)
        code = self.order.get("currency", "")
        try:
            self.order["currency"] = currency(code).code if code else code
        except RefundError as error:
            self._refused(self._rows[0], "currency", error)
            return
        if not code:
            self._wrong(self._rows[0], "currency", "The order names no currency, so no amount can be read.")
            return
        for name in ("tax", "shipping", "discount"):
            if name in self.order:
                row = next(row for row in self._rows if row.first == self._lines[name])
                self._amount(row, name, code, self.order, name)
        for row in self._rows:
            self._payment(row, code)
            self._line(row, code)

    def _of_order(self, row: Row) -> None:
        for name in OF_ORDER:
            given = row.values.get(name)
            if given is None:
                continue
            known = self.order.setdefault(name, given)
            self._lines.setdefault(name, row.first)
            if known != given:
                self._wrong(row, name, f"The rows of an order say the same or nothing; line {self._lines[name]} says something else.")

    def _payment(self, row: Row, order_currency: str) -> None:
        given = {name: row.values[name] for name in OF_PAYMENT if name in row.values}
        if not given or self._lacks(row, given, "payment_id", "payment_amount"):
            return
        code = given.get("payment_currency", order_currency)
        paid: dict[str, Any] = {"id": given["payment_id"], "currency": code.upper()}
        if "payment_tender" in given:  # only what no processor can return has one
            paid |= {"processor": "manual", "tender": given["payment_tender"]}
        if not self._amount(row, "payment_amount", code, paid, "amount", parse=parse_amount):
            return
        known = self._payments.setdefault(paid["id"], paid)
        if known is paid:
            self._lines[f"payments.{len(self._payments) - 1}"] = row.first
            self.order["payments"] = list(self._payments.values())
        elif known != paid:
            self._wrong(row, "payment_amount", "This payment stands further up with another amount, currency or tender.")

    def _line(self, row: Row, code: str) -> None:
        given = {name: row.values[name] for name in OF_LINE if name in row.values}
        if not given or self._lacks(row, given, "line_id", "line_amount"):
            return
        line: dict[str, Any] = {}
        for name, text in given.items():
            short = name.removeprefix("line_")
            if name in _AMOUNTS:
                self._amount(row, name, code, line, short)
            elif name not in _COUNTS:
                line[short] = text
            elif re.fullmatch(r"[0-9]{1,7}", text):
                line[short] = int(text)
            else:
                self._wrong(row, name, "This is no whole number; write one in digits only, such as 2.")
        lines = self.order.setdefault("lines", [])
        self._lines[f"lines.{len(lines)}"] = row.first
        lines.append(line)

    def _lacks(self, row: Row, given: dict[str, str], *needed: str) -> bool:
        missing = [name for name in needed if name not in given]
        for name in missing:
            self._wrong(row, name, f"The row has {', '.join(given)} and no {name}.")
        return bool(missing)

    def _amount(
        self, row: Row, name: str, code: str, into: dict[str, Any], key: str, *, parse: Callable[[str, str, str], Money] = read_amount
    ) -> bool:
        """Read a cell as an amount. One that could be read in two ways is not read at all."""
        text = row.values[name]
        try:
            money = parse(text, code, self._locale)
        except RefundError as error:
            self._refused(row, "payment_currency" if error.field == "currency" else name, error)
            return False
        into[key] = money.amount
        read = f"{format_money(money, self._locale)} ({money.amount} {money.currency} in the processor's unit)"
        self.shown = self.shown or f"line {row.first}, {name}: {text} is {read}"
        return True

    def _wrong(self, row: Row, name: str, what: str) -> None:
        self.troubles.append(trouble(row.first, self._order_id, Code.INVALID_FIELD, name, what))

    def _refused(self, row: Row, name: str, error: RefundError) -> None:
        self.troubles.append(trouble(row.first, self._order_id, error.code.value, name, error.detail))
