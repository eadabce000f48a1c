"""Directories for what the services of a test run write. They go with the run; what a killed one left, its servers too, goes when the next one starts."""

import contextlib
import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psutil

IN_MEMORY = Path("/dev/shm")
ROOM = 4 * 2**30
"""So many bytes free, in memory and in its file system, and the files are there."""

PREFIX = "refunds-test-"
HELD = "held"
"""A file in each directory that its owner keeps locked; the kernel lets go of it when the owner dies, however it dies."""


@contextlib.contextmanager
def open_directory() -> Iterator[Path]:
    """A new directory that other accounts can enter, because a database started by root must get there; removed at the end."""
    directory = Path(tempfile.mkdtemp(prefix=PREFIX, dir=_quickest()))
    directory.chmod(0o711)
    new = directory / f"{HELD}-soon"
    new.touch(0o600)  # so that another account, which could not end our servers, does not try to
    with new.open() as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        new.rename(directory / HELD)  # it appears locked, so nobody takes the directory for one that was left behind
        try:
            yield directory
        finally:
            shutil.rmtree(directory)


def clear_leftovers() -> None:
    """End the servers and remove the directories of runs that were killed. Those of runs that go on are left alone."""
    for directory in {*IN_MEMORY.glob(f"{PREFIX}*"), *Path(tempfile.gettempdir()).glob(f"{PREFIX}*")}:
        with contextlib.suppress(FileNotFoundError, PermissionError, BlockingIOError), (directory / HELD).open() as held:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
            _end_all_of(directory)
            shutil.rmtree(directory, ignore_errors=True)


def _end_all_of(directory: Path) -> None:
    """Every server names its files in its command line."""
    for process in psutil.process_iter(["cmdline"]):
        if any(str(directory) in word for word in process.info["cmdline"] or ()):
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
                process.wait(10)


def _quickest() -> Path | None:
    """Where files that are thrown away cost least: in memory, if there is room and nobody named another place; else ``None``, the usual one.

    Each test has a database of its own. Copying one takes 20 ms in memory; on a disk 40 to 400, most of what a test of the store takes.
    """
    if "TMPDIR" in os.environ or not os.access(IN_MEMORY, os.W_OK | os.X_OK):
        return None
    return IN_MEMORY if min(shutil.disk_usage(IN_MEMORY).free, psutil.virtual_memory().available) >= ROOM else None
