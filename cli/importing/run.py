"""An import from the first line to the last: judge, send in parts, report, remember."""

import hashlib
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from io import BufferedReader
from pathlib import Path
from typing import Any, Protocol

from cli.importing.checkpoint import Checkpoint, Progress, Source, digest
from cli.importing.documents import documents
from cli.importing.entries import Entry, Judged, Trouble, located, trouble
from cli.importing.lines import Lines
from cli.importing.report import Report
from cli.importing.sending import MOST_BYTES, MOST_ORDERS, Sender, size_of
from cli.importing.tables import rows_of_orders
from cli.problems import Misused
from refunds.errors import Code

MOST_WAITING = 1_000
"""Entries of the file, good or bad, after which what is known is confirmed."""


READY = "ready"
"""What became of an order that would have been sent."""


class Format(StrEnum):
    """How a file of orders is written."""

    CSV = "csv"
    JSONL = "jsonl"


class Shows(Protocol):
    """Shows how far it has come: bytes read of so many, and the figures."""

    def __call__(self, done: int, size: int, progress: Progress) -> None: ...


@dataclass
class _Part:
    """Orders and troubles that wait to be confirmed together."""

    ready: list[tuple[Entry, Judged]] = field(default_factory=list[tuple[Entry, Judged]])
    troubles: list[Trouble] = field(default_factory=list[Trouble])
    failed: int = 0
    entries: int = 0
    bytes: int = 0
    last: int = 0

    def full(self) -> bool:
        return len(self.ready) >= MOST_ORDERS or self.bytes >= MOST_BYTES or self.entries >= MOST_WAITING


class Import:
    """One import of a file. Without a ``sender`` everything is read and judged, and nothing is sent or remembered."""

    def __init__(
        self, file: BufferedReader, source: Source, report: Report, sender: Sender | None, checkpoint: Checkpoint, progress: Progress
    ) -> None:
        self._file, self._source = file, source
        self._report, self._sender, self._checkpoint = report, sender, checkpoint
        self.progress = progress
        self._seen: dict[bytes, int] = {}
        self._written = _stamp(file)

    def run(self, show: Shows, say: Callable[[str], None]) -> Progress:
        """Import what is not confirmed yet. Whatever it raises, what is confirmed is remembered, and running it again goes on there."""
        with Lines(self._file) as lines:
            self._run(lines, show, say)
        if self._sender is not None:
            self._checkpoint.forget()
        return self.progress

    def _run(self, lines: Lines, show: Shows, say: Callable[[str], None]) -> None:
        part, told, beyond = _Part(), False, self.progress.line
        for entry in self._entries(lines):
            first_on = self._seen.setdefault(_short(entry.order_id), entry.first) if entry.order_id else entry.first
            if entry.last <= beyond:
                continue
            judged = entry.judge()
            if judged.shown and not told:
                say(f"Amounts are read as {self._source.locale} writes them; {judged.shown}.")
                told = True
            self._take(part, entry, judged, first_on)
            if part.full():
                self._confirm(part, show)
                part = _Part()
        if not part.entries and not self.progress.line:
            raise Misused("The file has no orders.")
        self._confirm(part, show)

    def _entries(self, lines: Lines) -> Iterator[Entry]:
        return rows_of_orders(lines, self._source.locale) if self._source.format == Format.CSV else documents(lines)

    def _take(self, part: _Part, entry: Entry, judged: Judged, first_on: int) -> None:
        troubles = judged.troubles
        if first_on != entry.first:
            what = f"The order begins on line {first_on} already; nothing of this one is sent."
            troubles = (
                *troubles,
                trouble(entry.first, entry.order_id, Code.INVALID_FIELD, "order_id", what, "Put the rows of an order together."),
            )
        part.entries += 1
        part.last = entry.last
        if troubles:
            part.troubles += troubles
            part.failed += 1
        else:
            part.ready.append((entry, judged))
            part.bytes += size_of((entry.order_id, judged.order))

    def _confirm(self, part: _Part, show: Shows) -> None:
        progress = self.progress
        if part.entries:
            if _stamp(self._file) != self._written:
                raise Misused("The file was changed while it was imported; import it again when it is finished.")
            self._send(part)
            progress.problems += len(part.troubles)
            progress.counts["failed"] += part.failed
            self._report.add(sorted(part.troubles, key=lambda one: one.line))
            progress.line, progress.report_bytes = part.last, self._report.sync()
            if self._sender is not None:
                self._checkpoint.save(progress)
        show(os.lseek(self._file.fileno(), 0, os.SEEK_CUR), self._source.size, progress)

    def _send(self, part: _Part) -> None:
        if not part.ready:
            return
        if self._sender is None:
            outcomes: list[dict[str, Any]] = [{"outcome": READY}] * len(part.ready)
        else:
            outcomes = self._sender.send([(entry.order_id, judged.order) for entry, judged in part.ready])
        for (entry, judged), one in zip(part.ready, outcomes, strict=True):
            if one["outcome"] == "refused":
                found = [(str(e.get("code")), str(e.get("field") or ""), str(e.get("detail"))) for e in one.get("errors") or [{}]]
                part.troubles += located(entry.order_id, found, judged.place)
                part.failed += 1
                continue
            self.progress.counts[one["outcome"]] = self.progress.counts.get(one["outcome"], 0) + 1
            for paid in judged.order.get("payments", ()):
                self.progress.paid[paid["currency"].upper()] = self.progress.paid.get(paid["currency"].upper(), 0) + paid["amount"]


def source_of(file: BufferedReader, format_: Format, locale: str, target: str) -> Source:
    """What an open file is, and how and where it is imported."""
    return Source(digest(file), os.fstat(file.fileno()).st_size, format_.value, locale, target)


def format_of(path: Path, given: Format | None) -> Format:
    """How the file is written, by what was said or by its name. Raises :class:`Misused` when neither tells."""
    found = {".csv": Format.CSV, ".tsv": Format.CSV, ".jsonl": Format.JSONL, ".ndjson": Format.JSONL}.get(path.suffix.lower())
    if given is None and found is None:
        raise Misused(f"{path.name} tells by its name neither CSV nor JSON Lines; say --format csv or --format jsonl.")
    return given or found or Format.CSV


def _stamp(file: BufferedReader) -> tuple[int, int]:
    found = os.fstat(file.fileno())
    return found.st_size, found.st_mtime_ns


def _short(order_id: str) -> bytes:
    # Sixteen bytes an order, however long its id is, so that a file of any length can be watched for an order that comes twice.
    return hashlib.blake2b(order_id.encode("utf-8", "replace"), digest_size=16).digest()
