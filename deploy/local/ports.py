"""The one place for port numbers."""

import json
import socket
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path

import psutil

from deploy.local.processes import write_text

HOST = "127.0.0.1"
DEFAULTS = {"postgres": 54329, "temporal": 7233, "ui": 8233, "sandbox": 12111, "api": 8080}
LAST_TRIED_BEYOND = 200
HIGHEST = 65_535


class NoPortError(RuntimeError):
    """No free port near the wanted one."""


def is_free(port: int) -> bool:
    """Whether a server of ours could listen there on loopback right now (a connection lingering from before is no bar)."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as attempt:
        attempt.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            attempt.bind((HOST, port))
        except OSError:
            return False
    return True


def unused(count: int) -> list[int]:
    """So many different ports that the system says are free, for throw-away servers."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for each in sockets:
            each.bind((HOST, 0))
        return [each.getsockname()[1] for each in sockets]
    finally:
        for each in sockets:
            each.close()


def choose(names: Iterable[str], memory: Path, wanted: Mapping[str, int] | None = None) -> tuple[dict[str, int], list[str]]:
    """A free port for each name, and a sentence for each that had to differ from the wanted one.

    Wanted is what the caller asks for, else what was used last time (kept in the file `memory`, so that addresses stay
    the same from one start to the next), else the default. Whatever holds a taken port is left alone. Raises
    NoPortError.
    """
    first_choice = {**DEFAULTS, **_remembered(memory), **(wanted or {})}
    chosen: dict[str, int] = {}
    notes: list[str] = []
    for name in names:
        port = first_choice[name]
        if not _usable(port, chosen.values()):
            holder = _holder(port)
            chosen[name] = _next_free(port, chosen.values())
            notes.append(f"Port {port} for {name} is taken{holder}; using {chosen[name]} instead.")
        else:
            chosen[name] = port
    memory.parent.mkdir(parents=True, exist_ok=True)
    write_text(memory, json.dumps({**_remembered(memory), **chosen}, indent=1))
    return chosen, notes


def _usable(port: int, used: Collection[int]) -> bool:
    return port not in used and is_free(port)


def _next_free(port: int, used: Collection[int]) -> int:
    for candidate in range(port + 1, min(port + LAST_TRIED_BEYOND, HIGHEST)):
        if _usable(candidate, used):
            return candidate
    raise NoPortError(f"No free port between {port} and {port + LAST_TRIED_BEYOND}.")


def _remembered(memory: Path) -> dict[str, int]:
    try:
        content = json.loads(memory.read_text())
        return {name: int(content[name]) for name in DEFAULTS if name in content}
    except (FileNotFoundError, ValueError, TypeError):
        return {}


def _holder(port: int) -> str:
    """Who listens there, as far as this account may know."""
    try:
        for connection in psutil.net_connections("tcp"):
            local = connection.laddr
            if connection.status == psutil.CONN_LISTEN and local and local.port == port and connection.pid:
                return f" by {psutil.Process(connection.pid).name()} (pid {connection.pid})"
    except (psutil.AccessDenied, psutil.NoSuchProcess):
        return ""
    return ""
