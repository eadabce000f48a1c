"""Sending copies of checkpoints away: into a directory, to the end of a file, or to an address (``LEDGER_COPIES``).

A copy is worth what its place is: it should be one that whoever could change the database cannot change. Sending the same one twice does no harm.
"""

import asyncio
import os
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

import httpx

from refunds.ledger.verifier import Wrong, split_notes
from store.checkpoints import Copy

_TAIL = 64 * 1024


class CopyFailed(Exception):
    """A copy did not arrive: why, in words for whoever looks after the place."""


class Copier:
    """Sends copies. Close it at the end."""

    def __init__(self, timeout: timedelta) -> None:
        self._http = httpx.AsyncClient(timeout=timeout.total_seconds(), follow_redirects=False)

    async def close(self) -> None:
        """Let go of the connections."""
        await self._http.aclose()

    async def send(self, copy: Copy) -> None:
        """Bring a checkpoint to its target. Raises :class:`CopyFailed`; then it may or may not be there."""
        if copy.target.startswith(("http://", "https://")):
            await self._post(copy)
            return
        write = into_directory if copy.target.endswith("/") else onto_file
        try:
            await asyncio.to_thread(write, copy)
        except OSError as error:
            raise CopyFailed(f"{copy.target}: {error.strerror or type(error).__name__}") from error

    async def _post(self, copy: Copy) -> None:
        headers = {"Content-Type": "text/plain; charset=utf-8", "Ledger-Size": str(copy.size)}
        try:
            answer = await self._http.post(copy.target, content=copy.note.encode(), headers=headers)
        except httpx.HTTPError as error:
            raise CopyFailed(f"no answer: {type(error).__name__}") from error
        if not answer.is_success:
            raise CopyFailed(f"it answered {answer.status_code}")


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
    """At the end of one file, after an empty line. What a crash left there half written is cut off first. Raises ``OSError``."""
    path = Path(copy.target)
    is_new = not path.exists()
    with path.open("ab+") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(size - _TAIL, 0))
        tail = file.read()
        whole = _whole(tail)
        if copy.note.encode() in tail[:whole]:
            return
        if whole < len(tail):
            file.truncate(size - len(tail) + whole)
        file.write((b"\n" if size - len(tail) + whole else b"") + copy.note.encode())
        file.flush()
        os.fsync(file.fileno())
    if is_new:
        _sync(path.parent)


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
