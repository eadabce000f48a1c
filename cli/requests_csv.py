"""Requests from a CSV file, as facts that a policy can judge: for trying a policy on what another system has kept. The file never leaves this machine.

A column is named like the fact it holds (``request.reason``; ``reason`` where only one group has it). ``amount`` is written as people write it in the
currency beside it; every other amount is in API units, as in ``docs/policy.md``. An empty cell is "not known". A fact without a column is taken as in
order, and said so. A row that cannot be read is left out with its line and column named; no other row is.
"""

import csv
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

from cli.problems import Misused
from refunds.clock import parse_rfc3339, rfc3339
from refunds.errors import RefundError
from refunds.facts import Facts
from refunds.money import CURRENCIES, parse_amount
from refunds.policy.recorded import YEARS

NEEDED = ("amount", "currency", "at")
SEPARATOR = ";"
"""Between the members of a list in one cell."""
LONGEST_CELL = 10_000

_GROUPS = ("request", "order", "payment", "customer", "base", "requester", "agent", "time")
_WRITTEN = "amount"
Read = Callable[[str], Any]


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A row that cannot be read: its line and column in the file (the column's name, empty where it is none of them), and what to do."""

    line: int
    column: str
    problem: str

    def __str__(self) -> str:
        return f"line {self.line}, column {self.column}: {self.problem}" if self.column else f"line {self.line}: {self.problem}"


@dataclass(frozen=True, slots=True)
class Request:
    """One row: its id (or its line), and its facts as JSON text."""

    id: str
    facts: str


class RequestsFile:
    """A file of requests. Raises :class:`cli.problems.Misused` when its first line does not name columns that are known, once each, with those needed."""

    def __init__(self, path: Path, base: str | None) -> None:
        self._path, self._base = path, base
        with self._open() as file:
            first = file.readline()
        self._delimiter = max(",;\t", key=first.count)
        try:
            names = [name.strip() for name in next(csv.reader([first], delimiter=self._delimiter), [])]
        except csv.Error as error:
            raise Misused(f"{path}: line 1 names no columns ({error}); needed are {', '.join(NEEDED)}.") from None
        self._columns = [_column(name, at) for at, name in enumerate(names, 1)]
        for name in NEEDED:
            if name not in names and not (name == _WRITTEN and "request.amount" in names):
                raise Misused(f"{path}: line 1: the column {name} is missing; needed are {', '.join(NEEDED)}.")
        told = [column.fact for column in self._columns]
        twice = next((fact for fact in told if told.count(fact) > 1), None)
        if twice is not None:
            raise Misused(f"{path}: line 1: {twice} is there twice; keep one of them.")
        self._told = set(told)

    @property
    def assumed(self) -> list[str]:
        """The facts that the file does not tell and that are taken as in order, each with its value."""
        plain = _in_order("USD", 1, "2026-01-01T00:00:00.000000Z", None)
        found = [f"{group}.{name}" for group in ("request", "order", "payment", "customer") for name in plain[group]]
        derived = {"request.amount", "request.currency", "request.requested_at", "payment.currency", "order.version"}
        return [name for name in found if name not in self._told and name not in derived]

    def rows(self) -> Iterator[Request | LeftOut]:
        """Every row in its order, read or left out; empty lines are neither."""
        with self._open() as file:
            for number, line in enumerate(file, 1):
                if number == 1 or not line.strip():
                    continue
                try:
                    # Each line by itself: no fact goes over several, and a quote that was not closed must not swallow the rows below it.
                    [cells] = csv.reader([line], delimiter=self._delimiter, strict=True)
                except csv.Error as error:
                    yield LeftOut(number, "", f"the row is no CSV ({error}). Close its quotes, and keep it on one line.")
                    continue
                if any(cell.strip() for cell in cells):
                    yield self._row(number, cells)

    def _open(self) -> Any:
        # What is not UTF-8 becomes a mark that no column takes, so that the line can be named instead of the file being given up.
        return self._path.open(encoding="utf-8-sig", errors="surrogateescape", newline="")

    def _row(self, line: int, cells: Sequence[str]) -> Request | LeftOut:
        if len(cells) != len(self._columns):
            return LeftOut(line, "", f"it has {len(cells)} cells and the first line {len(self._columns)}. Give it as many.")
        told: dict[str, Any] = {}
        for column, cell in zip(self._columns, cells, strict=True):
            text = cell.strip()
            try:
                if len(text) > LONGEST_CELL or not text.isprintable() or "\ufffd" in text:
                    raise ValueError("it is too long or holds characters that are no text. Save the file as UTF-8.")
                told[column.fact] = column.read(text)
            except ValueError as error:
                return LeftOut(line, column.name, str(error))
        try:
            return Request(told.pop("id", None) or f"line {line}", json.dumps(self._facts(told), separators=(",", ":")))
        except RefundError as error:
            return LeftOut(line, _WRITTEN, f"{error.detail} {error.meaning.remedy}")

    def _facts(self, told: dict[str, Any]) -> dict[str, Any]:
        code, at = told.pop("request.currency"), told.pop("at")
        written = told.pop(_WRITTEN, None)
        amount = told.pop("request.amount") if written is None else parse_amount(written, code).amount
        plain = _in_order(code, amount, at, self._base)
        for name, value in told.items():
            group, _, fact = name.partition(".")
            plain[group][fact] = value
        if "base.amount_today" not in told and plain["base"]["currency"] == code:
            plain["base"]["amount_today"] = plain["customer"]["amount_today"]
        return plain


def _in_order(code: str, amount: int, at: str, base: str | None) -> dict[str, Any]:
    """Facts in which all is well, for what a file does not tell."""
    counted = {"currency": base or code, "amount": amount, "amount_today": 0}
    return {
        "at": at,
        "request": {
            "amount": amount,
            "currency": code,
            "full": False,
            "reason": None,
            "channel": None,
            "agent_id": None,
            "requested_at": at,
            "amount_named_by_customer": True,
            "customer_authenticated": True,
        },
        "order": {"version": 1, "placed_at": at, "delivered_at": at},
        "payment": {
            "status": "captured",
            "currency": code,
            "captured": amount,
            "capturable": 0,
            "remaining": amount,
            "dispute": "none",
            "risk_level": "normal",
            "refunds_made": 0,
        },
        "customer": {
            "account_age_days": 365,
            "orders": 10,
            "refunds": 0,
            "share_refunded_percent": 0,
            "amount_today": 0,
            "refunds_week": 0,
        },
        "base": counted if base in (None, code) else {"currency": base},
        "requester": {},
        "agent": {},
        "time": {},
    }


@dataclass(frozen=True, slots=True)
class _Column:
    name: str
    fact: str
    read: Read


def _column(name: str, at: int) -> _Column:
    known = _known()
    if name not in known:
        shown = name if name.isprintable() and len(name) <= 60 else f"the column {at}"
        raise Misused(f"line 1, column {at}: {shown or 'an empty name'} is no fact. Known are: {', '.join(sorted(known))}.")
    return _Column(name, *known[name])


def _known() -> dict[str, tuple[str, Read]]:
    """What a column may be called: the fact it holds, and what reads a cell of it."""
    hints = get_type_hints(Facts)
    full: dict[str, tuple[str, Read]] = {}
    for group in _GROUPS:
        kind = hints[group]
        if group in hints and not get_args(kind):
            of = get_type_hints(kind)
            full |= {f"{group}.{field.name}": (f"{group}.{field.name}", _reading(of[field.name])) for field in fields(kind)}
    short: dict[str, list[str]] = {}
    for name in full:
        short.setdefault(name.partition(".")[2], []).append(name)
    unique = {name: full[those[0]] for name, those in short.items() if len(those) == 1}
    named = {"id": ("id", _text), "at": ("at", _instant), "currency": ("request.currency", _currency), _WRITTEN: (_WRITTEN, _text)}
    return full | unique | named


def _reading(hint: Any) -> Read:
    if get_origin(hint) in (Union, UnionType):
        [inner] = [_reading(one) for one in get_args(hint) if one is not NoneType]
        return lambda text: inner(text) if text else None
    if get_origin(hint) is tuple:
        return lambda text: [part.strip() for part in text.split(SEPARATOR) if part.strip()]
    if isinstance(hint, type) and issubclass(hint, StrEnum):
        return _one_of(tuple(member.value for member in hint))
    return {bool: _truth, int: _whole, datetime: _instant}.get(hint, _text)


def _text(text: str) -> str:
    if not text:
        raise ValueError("it is empty. Write a value.")
    return text


def _currency(text: str) -> str:
    if text not in CURRENCIES:
        raise ValueError("this currency cannot be refunded here. Use an upper-case ISO code such as USD.")
    return text


def _whole(text: str) -> int:
    if not (text.removeprefix("-").isascii() and text.removeprefix("-").isdigit() and len(text) < 16):
        raise ValueError("it is no whole number. Write digits only.")
    return int(text)


def _truth(text: str) -> bool:
    if text.lower() in ("true", "yes", "1"):
        return True
    if text.lower() in ("false", "no", "0"):
        return False
    raise ValueError("it is neither true nor false. Write one of them.")


def _instant(text: str) -> str:
    try:
        at = parse_rfc3339(text if len(text) > 10 else f"{text}T00:00:00Z")
    except (ValueError, OverflowError):
        raise ValueError("it is no time. Write one such as 2026-03-01T09:00:00Z, or a date.") from None
    if at.year not in YEARS:
        raise ValueError(f"it is too early or too late. Write a year from {YEARS[0]} to {YEARS[-1]}.")
    return rfc3339(at)


def _one_of(values: tuple[str, ...]) -> Read:
    def read(text: str) -> str:
        if text not in values:
            raise ValueError(f"it is none of {', '.join(values)}.")
        return text

    return read
