"""What each part costs: processor time and memory, its children included."""

from collections.abc import Mapping
from contextlib import suppress

import psutil

Seconds = dict[str, float]


def _family(pid: int) -> list[psutil.Process]:
    parent = psutil.Process(pid)
    return [parent, *parent.children(recursive=True)]


def cpu_seconds(pids: Mapping[str, int]) -> Seconds:
    """Processor time that each part has used so far, ended children included."""
    return {name: _cpu_seconds(pid) for name, pid in pids.items()}


def _cpu_seconds(pid: int) -> float:
    used = 0.0
    for process in _family(pid):
        with suppress(psutil.NoSuchProcess):  # a child that ended meanwhile: from now on its parent counts it
            times = process.cpu_times()
            used += times.user + times.system + times.children_user + times.children_system
    return used


class Memory:
    """The most memory of each part over all looks, in bytes. Pages that several processes of one part share count once."""

    def __init__(self) -> None:
        self.peak: dict[str, int] = {}

    def look(self, pids: Mapping[str, int]) -> None:
        """Look at all parts now."""
        for name, pid in pids.items():
            self.peak[name] = max(self.peak.get(name, 0), _memory(pid))


def _memory(pid: int) -> int:
    used = 0
    for process in _family(pid):
        with suppress(psutil.NoSuchProcess):
            full = process.memory_full_info()
            used += getattr(full, "pss", full.uss)  # `pss` is Linux's; elsewhere what a process shares with nobody
    return used
