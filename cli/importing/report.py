"""The report of an import: a table of everything that is wrong, line by line."""

import csv
import io
import os
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import Self

from cli.importing.entries import Trouble
from cli.problems import Misused

COLUMNS = ("line", "order", "code", "field", "what", "remedy")


class Report:
    """A CSV file that grows. ``kept`` bytes of an earlier one stay, for an import that goes on; what it wrote after its last confirmed line is dropped."""

    def __init__(self, path: Path, kept: int = 0) -> None:
        self.path = path
        try:
            self._file = path.open("r+b" if kept else "wb")
        except OSError as error:
            raise Misused(f"{path} cannot be written: {error.strerror}; name another with --report.") from error
        if kept:
            self._file.truncate(kept)
            self._file.seek(kept)
        else:
            self._write([COLUMNS])

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._file.close()

    def add(self, troubles: Iterable[Trouble]) -> None:
        """Write rows."""
        self._write([(one.line, one.order, one.code, one.field, one.what, one.remedy) for one in troubles])

    def sync(self) -> int:
        """Have everything on the disk, and return how many bytes that is."""
        self._file.flush()
        os.fsync(self._file.fileno())
        return self._file.tell()

    def _write(self, rows: Iterable[Iterable[object]]) -> None:
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerows([_cell(value) for value in row] for row in rows)
        self._file.write(text.getvalue().encode("utf-8", "replace"))


def _cell(value: object) -> object:
    """A cell that no spreadsheet takes for a formula: text that begins like one gets an apostrophe in front (OWASP, "CSV Injection")."""
    return f"'{value}" if isinstance(value, str) and value.lstrip(" ")[:1] in _RISKY else value


_RISKY = tuple("=+-@\t\r\n|%＝＋－＠")
