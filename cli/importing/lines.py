"""The lines of a file, one at a time: never more of it in memory than its longest line, which is bounded too."""

import io
from types import TracebackType
from typing import Self

from cli.problems import Misused

LONGEST_LINE = 1_000_000
"""Characters: no order is that long, and the API takes no larger body."""

_NOT_UTF8 = (b"\xff\xfe", b"\xfe\xff")


class LineTooLong(ValueError):
    """A line is no line of a file of orders. The next one can be read."""


class Lines:
    """Lines with their ends, by ``\\n``, ``\\r\\n`` or ``\\r``. ``number`` is that of the line read last, from 1.

    A byte-order mark is left out. Bytes that are no UTF-8 become half surrogate pairs, which :func:`is_utf8` finds, so that only their line is lost.
    Raises :class:`LineTooLong`, and goes on behind it. Use it in ``with``. Not a generator: one that has raised could not go on.
    """

    def __init__(self, file: io.BufferedReader) -> None:
        start = file.read(2)
        if start in _NOT_UTF8:
            raise Misused("The file is UTF-16; save it as UTF-8 (in Excel: CSV UTF-8) and import that.")
        file.seek(0)
        self._text = io.TextIOWrapper(file, encoding="utf-8-sig", errors="surrogateescape", newline="")
        self.number = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._text.detach()  # the file is closed by who opened it

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> str:
        line = self._text.readline(LONGEST_LINE)
        if not line:
            raise StopIteration
        self.number += 1
        if len(line) == LONGEST_LINE and not _ended(line):
            while (rest := self._text.readline(LONGEST_LINE)) and not _ended(rest):
                pass
            raise LineTooLong(f"The line is longer than {LONGEST_LINE} characters.")
        return line


def is_utf8(text: str) -> bool:
    """Whether text that :class:`Lines` gave was UTF-8 in the file."""
    return text.isascii() or not any("\ud800" <= character <= "\udfff" for character in text)


def _ended(line: str) -> bool:
    return line[-1] in "\r\n"
