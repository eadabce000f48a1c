"""What an earlier stack left behind, and making sure that only one stack runs in a home at a time."""

import contextlib
import fcntl
import json
import os
import shutil
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from deploy.local import processes
from deploy.local.parts import Part
from deploy.local.postgres import OUTSIDE
from deploy.local.processes import Identity


class AlreadyRunningError(RuntimeError):
    """A stack runs in this home; `state` is what its stack.json says (empty while it starts)."""

    def __init__(self, home: Path, state: dict[str, Any]) -> None:
        super().__init__(f"A stack is already running in {home} (pid {state.get('pid', 'unknown')}).")
        self.home = home
        self.state = state


class HomeLock:
    """Held by the one supervisor of a home. The kernel lets go of it when the holder dies, however it dies."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self._descriptor: int | None = None

    def acquire(self) -> None:
        """Raises AlreadyRunningError when another process, or another stack of this one, holds it."""
        descriptor = os.open(self._home / "stack.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            raise AlreadyRunningError(self._home, read_state(self._home)) from None
        self._descriptor = descriptor

    def release(self) -> None:
        """Safe to call when it is not held."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


def pid_file(home: Path, part: str) -> Path:
    """Where a part's identity is kept while it runs."""
    return home / "run" / f"{part}.json"


def read_state(home: Path) -> dict[str, Any]:
    """What stack.json says; empty when there is none."""
    try:
        state = json.loads((home / "stack.json").read_text())
    except (FileNotFoundError, ValueError):
        return {}
    return state if isinstance(state, dict) else {}


def clear(home: Path, parts: Sequence[Part]) -> list[str]:
    """End what an earlier supervisor of this home left running, last part first; the names of those that ran.

    Only processes that are certainly ours are touched: those that a pid file names with their starting moment,
    and those whose environment says that they belong to this home.
    """
    ended: list[str] = []
    orders = {part.name: (part.stop_signal, part.grace_seconds) for part in parts}
    found: list[tuple[str, Identity]] = []
    for part in reversed(parts):
        identity = processes.load_identity(pid_file(home, part.name))
        if identity is not None and identity.find() is not None:
            found.append((part.name, identity))
    known = {identity.pid for _, identity in found}
    found += [(name, identity) for name, identity in processes.marked(home) if identity.pid not in known | {os.getpid()}]
    for name, identity in found:
        if identity.find() is not None:
            stop_signal, grace_seconds = orders.get(name, (signal.SIGTERM, 10))
            processes.stop(identity, stop_signal, grace_seconds)
            ended.append(name)
    for part in parts:
        pid_file(home, part.name).unlink(missing_ok=True)
    (home / "stack.json").unlink(missing_ok=True)
    return ended


def remove(home: Path, parts: Sequence[Part]) -> None:
    """Remove all data of a stack, also what lies outside its home, after ending what is left of it.

    The same for stacks whose homes lie in this one, as the demo's does. Raises AlreadyRunningError when one of them runs,
    and then has removed nothing.
    """
    home = home.absolute()
    if not home.exists():
        return
    homes = [*(lock.parent for lock in home.glob("*/stack.lock")), home]
    with contextlib.ExitStack() as undo:
        for each in homes:
            lock = HomeLock(each)
            lock.acquire()
            undo.callback(lock.release)
        for each in homes:
            clear(each, parts)
            outside = (each / "postgres").resolve()
            if (each / "postgres").is_symlink() and outside.parent in OUTSIDE:
                shutil.rmtree(outside, ignore_errors=True)
                with contextlib.suppress(OSError):  # Another stack's data keeps it there.
                    outside.parent.rmdir()
        shutil.rmtree(home)
