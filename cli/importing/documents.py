"""JSON Lines: one order a line, with its ``order_id`` beside the fields of the API. Amounts are integers, as everywhere in the API."""

import json
from collections.abc import Iterator
from typing import Any

from cli.importing.entries import Entry, Judged, check, trouble
from cli.importing.lines import Lines, LineTooLong, is_utf8
from cli.problems import Misused
from refunds.errors import Code


class Document:
    """An order on a line of its own."""

    def __init__(self, line: int, text: str) -> None:
        self.first = self.last = line
        self.order_id = ""
        self._order: dict[str, Any] = {}
        self._wrong = "" if is_utf8(text) else "The line is not UTF-8; save the file as UTF-8."
        try:
            plain = None if self._wrong else json.loads(text, object_pairs_hook=_no_duplicates, parse_constant=_no_constant)
        except RecursionError:
            plain, self._wrong = None, "The line is nested too deeply."
        except ValueError as error:
            plain, self._wrong = None, f"The line is no JSON object: {error}."
        if isinstance(plain, dict):
            given = plain.pop("order_id", None)
            self.order_id = given.strip() if isinstance(given, str) and is_utf8(given) else ""
            self._order = plain
        elif not self._wrong:
            self._wrong = "The line is JSON but no object."

    def judge(self) -> Judged:
        """The order, checked as the API checks it."""
        if self._wrong:
            return Judged(
                {}, (trouble(self.first, "", Code.MALFORMED_JSON, "", self._wrong, "Write one JSON object a line."),), self._place
            )
        if not self.order_id:
            what = "The order has no order_id that is text."
            return Judged({}, (trouble(self.first, "", Code.INVALID_FIELD, "order_id", what),), self._place)
        return Judged(self._order, check(self.order_id, self._order, self._place), self._place)

    def _place(self, field: str) -> tuple[int, str]:
        return self.first, field


class _Unreadable:
    def __init__(self, line: int, what: str) -> None:
        self.first = self.last = line
        self.order_id = ""
        self._what = what

    def judge(self) -> Judged:
        return Judged(
            {}, (trouble(self.first, "", Code.MALFORMED_JSON, "", self._what, "Write one JSON object a line."),), lambda _: (0, "")
        )


def documents(lines: Lines) -> Iterator[Entry]:
    """The orders of a file of JSON Lines; empty lines are left out. Raises :class:`Misused` for a file that is one JSON document."""
    while True:
        try:
            text = next(lines, None)
        except LineTooLong as error:
            yield _Unreadable(lines.number, str(error))
            continue
        if text is None:
            return
        if lines.number == 1 and (text.startswith("[") or text.strip() == "{"):
            raise Misused("The file is one JSON document and not JSON Lines; send it with: refunds orders put FILE")
        if text.strip():
            yield Document(lines.number, text)


def _no_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    known = dict(pairs)
    if len(known) != len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"the field {twice[:60]!r} stands twice")
    return known


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is no JSON value")
