"""The list of erasures outside the database: a file, a directory or a webhook that the operator names (``ERASURE_LIST``).

A database that is restored brings back whom it had forgotten since. So every erasure is written here first, and only then done: what was done is on the list,
whatever dies in between; what is on the list and was not done is done by asking again, or by going through the list. Lines name nobody (``refunds/erasure.py``).
"""

import asyncio
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import httpx

from refunds.erasure import MOST_CHARACTERS, Erasure, read_line
from refunds.errors import Code, RefundError
from refunds.logs import logger
from refunds.settings import Settings
from store import forgetting, halts, restoring
from store.db import Connection
from store.vault import keys_of

_log = logger(__name__)
_WITHIN_S = 5
_AT_ONCE = 500
_BEGINS = '{"at":"'
"""What every line begins with: one that begins so and is not whole was cut off while it was written, and then the erasure was never begun."""


class ErasureList(Protocol):
    """Where erasures are written down."""

    def write(self, erasure_id: str, line: str) -> None:
        """Write a line so that it outlives this machine's memory; blocks. Raises ``OSError`` or ``httpx.HTTPError``."""
        ...

    def lines(self) -> Iterator[str] | None:
        """Every line that was written, oldest first, or ``None`` where it cannot be read back. Raises ``OSError``."""
        ...


@dataclass(frozen=True)
class InFile:
    """One file that is only ever added to."""

    path: Path

    def write(self, erasure_id: str, line: str) -> None:
        """One write, then to the disk. After a line that was cut off a new one begins."""
        with self.path.open("ab+") as file:
            size = file.seek(0, os.SEEK_END)
            if size:
                file.seek(size - 1)
            begins = b"" if not size or file.read(1) == b"\n" else b"\n"
            file.write(begins + line.encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())

    def lines(self) -> Iterator[str]:
        """Line by line; a file that is not there yet has none."""
        if not self.path.exists():
            return
        with self.path.open(encoding="utf-8", errors="replace") as file:
            while text := file.readline(MOST_CHARACTERS + 1):
                if text.strip():
                    yield text.rstrip("\n")


@dataclass(frozen=True)
class InDirectory:
    """A file for each erasure, by its id."""

    path: Path

    def write(self, erasure_id: str, line: str) -> None:
        """Under another name first, so that no file is ever half there."""
        part, whole = self.path / f".{erasure_id}.part", self.path / f"{erasure_id}.json"
        with part.open("wb") as file:
            file.write(line.encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())
        part.rename(whole)
        directory = os.open(self.path, os.O_RDONLY)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)

    def lines(self) -> Iterator[str]:
        """By their names, which sort by time."""
        for file in sorted(self.path.glob("era_*.json")):
            with file.open(encoding="utf-8", errors="replace") as opened:
                yield opened.read(MOST_CHARACTERS + 1).rstrip("\n")


@dataclass(frozen=True)
class ByWebhook:
    """Sent as JSON with ``POST``; anything but 2xx means that it is not written. The same erasure may come again, under the same ``Idempotency-Key``."""

    url: str

    def write(self, erasure_id: str, line: str) -> None:
        """Send it and wait for the answer."""
        headers = {"Content-Type": "application/json", "Idempotency-Key": erasure_id}
        httpx.post(self.url, content=line.encode(), headers=headers, timeout=_WITHIN_S, follow_redirects=False).raise_for_status()

    def lines(self) -> None:
        """Whoever receives it keeps it: it has to be handed to ``refunds forget --replay``."""
        return


def erasure_list(settings: Settings) -> ErasureList | None:
    """The list the settings name, or ``None``. Raises ``RuntimeError`` when it cannot be written, so that a process does not start that could forget nobody."""
    if settings.erasure_list is None:
        _log.warning("no_erasure_list", effect="after a restore of the database nobody knows who was forgotten", remedy="set ERASURE_LIST")
        return None
    where = settings.erasure_list.get_secret_value()
    if where.startswith(("https://", "http://")):
        return ByWebhook(where)
    path = Path(where)
    if path.is_dir():
        chosen, probed = InDirectory(path), path
    else:
        chosen, probed = InFile(path), path if path.exists() else path.parent
    if not os.access(probed, os.W_OK):
        raise RuntimeError("ERASURE_LIST names a file or directory that this process cannot write; make it, or correct the setting")
    return chosen


async def write_down(chosen: ErasureList | None, erasure: Erasure, key: bytes) -> bool:
    """Write an erasure down before it is done; false when no list is named. Raises ``ERASURE_LIST_UNAVAILABLE``."""
    if chosen is None:
        return False
    try:
        await asyncio.to_thread(chosen.write, erasure.id, erasure.line(key))
    except (OSError, httpx.HTTPError) as error:
        _log.error("erasure_list_unavailable", erasure=erasure.id, kind=type(error).__name__)
        raise RefundError(Code.ERASURE_LIST_UNAVAILABLE) from error
    return True


def read_lines(lines: Iterator[str], key: bytes, *, first: int = 1) -> Iterator[Erasure]:
    """Read lines of a list. One that was cut off while it was written counts as not written. Raises ``ERASURE_LIST_UNREADABLE`` with the line's number."""
    for number, text in enumerate(lines, first):
        try:
            yield read_line(text, key)
        except ValueError as error:
            if text.startswith(_BEGINS) and not text.endswith("}"):
                _log.warning("erasure_line_cut_off", line=number)
                continue
            raise RefundError(Code.ERASURE_LIST_UNREADABLE, f"Line {number}: {error}.", line=number) from error


async def check_replayed(connection: Connection, chosen: ErasureList | None, scope: str) -> None:
    """Before a scope is resumed under which the database may have forgotten something: nobody on the list may be known again.

    A list that can be read is compared with the database. Of one that cannot, and of one that lacks erasures which the database has (it is an older copy, or
    lines of it were lost), it must have been said, since then, that it was gone through.
    Raises ``ERASURES_NOT_REPLAYED``, and ``ERASURE_LIST_UNAVAILABLE`` or ``ERASURE_LIST_UNREADABLE`` when it cannot be told.
    """
    if chosen is None:
        return
    doubts = [await restoring.doubted_since(connection, halt) for halt in await halts.all_in_force(connection, scope)]
    since = max((moment for moment in doubts if moment is not None), default=None)
    if since is None:
        return
    try:
        listed = await asyncio.to_thread(_listed, chosen, keys_of(connection).erasures())
    except OSError as error:
        raise RefundError(Code.ERASURE_LIST_UNAVAILABLE, "The list of erasures cannot be read.") from error
    if listed is None:
        if not await forgetting.replayed_since(connection, since):
            raise RefundError(Code.ERASURES_NOT_REPLAYED)
        return
    customers, known = sorted({erasure.customer for erasure in listed}), 0
    for at in range(0, len(customers), _AT_ONCE):
        known += len(await forgetting.unforgotten(connection, customers[at : at + _AT_ONCE]))
    if known:
        raise RefundError(
            Code.ERASURES_NOT_REPLAYED, f"{known} who had been forgotten {'is' if known == 1 else 'are'} known again.", known=known
        )
    lacking = await forgetting.others_than(connection, {erasure.id for erasure in listed}, min((one.at for one in listed), default=None))
    if lacking and not await forgetting.replayed_since(connection, since):
        raise RefundError(
            Code.ERASURES_NOT_REPLAYED,
            f"The list lacks {lacking} of the erasures that this database has: it is an older copy, or lines were lost. Find the true one first.",
            lacking=lacking,
        )


def _listed(chosen: ErasureList, key: bytes) -> list[Erasure] | None:
    lines = chosen.lines()
    return None if lines is None else list(read_lines(lines, key))
