"""Sending copies of checkpoints away: into a directory, to the end of a file, or to an address (``LEDGER_COPIES``).

A copy is worth what its place is: it should be one that whoever could change the database cannot change. Sending the same one twice does no harm.
"""

import asyncio
import os
from collections.abc import Sequence
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

import httpx

from refunds.ledger.origin import goes_over_http, is_address
from refunds.ledger.verifier import Checkpoint, Key, Wrong, open_checkpoint, split_notes
from store.checkpoints import Copy

_TAIL = 64 * 1024


class CopyFailed(Exception):
    """A copy did not arrive: why, in words for whoever looks after the place."""


class Copier:
    """Sends copies. Close it at the end."""

    def __init__(self, timeout: timedelta) -> None:
        self._timeout_s = timeout.total_seconds()
        self._http = httpx.AsyncClient(timeout=self._timeout_s, follow_redirects=False)

    async def close(self) -> None:
        """Let go of the connections."""
        await self._http.aclose()

    async def send(self, copy: Copy) -> None:
        """Bring a checkpoint to its target. Raises :class:`CopyFailed`; then it may or may not be there."""
        if goes_over_http(copy.target):
            await self._post(copy)
            return
        write = into_directory if copy.target.endswith("/") else onto_file
        try:
            await asyncio.to_thread(write, copy)
        except OSError as error:
            raise CopyFailed(f"{copy.target}: {error.strerror or type(error).__name__}") from error

    async def _post(self, copy: Copy) -> None:
        """Post it and look at the head of the answer alone: a time-out over all of it, because one between two bytes never ends for whoever sends some."""
        if not is_address(copy.target):
            raise CopyFailed("it is no address")
        headers = {"Content-Type": "text/plain; charset=utf-8", "Ledger-Size": str(copy.size)}
        try:
            async with (
                asyncio.timeout(self._timeout_s),
                self._http.stream("POST", copy.target, content=copy.note.encode(), headers=headers) as answer,
            ):
                if not answer.is_success:
                    raise CopyFailed(f"it answered {answer.status_code}")
        except TimeoutError:
            raise CopyFailed(f"no answer within {self._timeout_s:g} s") from None
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise CopyFailed(f"no answer: {type(error).__name__}") from error


def into_directory(copy: Copy) -> None:
    """One file a checkpoint, named by how much it signs, so that the newest sorts last; there whole or not at all. Raises ``OSError``."""
    directory = Path(copy.target)
    target = directory / f"{copy.size:012d}-{copy.checkpoint_id}.checkpoint"
    part = target.with_suffix(".part")
    with part.open("wb") as file:
        file.write(copy.note.encode())
        file.flush()
        os.fsync(file.fileno())
    part.replace(target)
    _sync(directory)


def onto_file(copy: Copy) -> None:
    """At the end of one file, after an empty line. What a crash left there half written is cut off first; a file that holds anything else is left as it is.

    Raises ``OSError``, and :class:`CopyFailed` for such a file.
    """
    path = Path(copy.target)
    is_new = not path.exists()
    with path.open("ab+") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(size - _TAIL, 0))
        tail = file.read()
        whole = _whole(tail)
        if copy.note.encode() in tail[:whole]:
            return
        if not _is_begun(tail[whole:], copy.note):
            raise CopyFailed(f"{copy.target} holds something else than checkpoints of this log; name another file")
        if whole < len(tail):
            file.truncate(size - len(tail) + whole)
        file.write((b"\n" if size - len(tail) + whole else b"") + copy.note.encode())
        file.flush()
        os.fsync(file.fileno())
    if is_new:
        _sync(path.parent)


def newest_in(target: str, keys: Sequence[Key]) -> Checkpoint | None:
    """The checkpoint that signs most of those in a place which can be read: ``None`` for an address, and where none is there that one of these keys signed.

    Raises ``OSError``.
    """
    if goes_over_http(target):
        return None
    path = Path(target)
    if target.endswith("/"):
        notes = [max(found).read_bytes()] if (found := list(path.glob("*.checkpoint"))) else []
    else:
        with path.open("rb") as file:
            file.seek(max(file.seek(0, os.SEEK_END) - _TAIL, 0))
            tail = file.read()
        notes = split_notes(tail[: _whole(tail)])
    opened: list[Checkpoint] = []
    for note in notes:
        with suppress(Wrong):
            opened.append(open_checkpoint(note, keys))
    return max(opened, key=lambda one: one.size, default=None)


def _is_begun(rest: bytes, note: str) -> bool:
    """Whether the end of a file can be what a crash left of a note of this log: nothing, or the beginning of one or of its next signature."""
    begun, name = rest.lstrip(b"\n"), note.partition("\n")[0].encode()
    beginnings = (name + b"\n", "\u2014 ".encode() + name + b" ")
    return len(begun) <= 2 * len(note.encode()) and any(begun.startswith(one) or one.startswith(begun) for one in beginnings)


def _whole(tail: bytes) -> int:
    """How much of the end of a file is whole notes."""
    end = len(tail)
    while end:
        with suppress(Wrong):
            split_notes(tail[:end])
            return end
        end = tail.rfind(b"\n", 0, end - 1) + 1
    return 0


def _sync(directory: Path) -> None:
    handle = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
