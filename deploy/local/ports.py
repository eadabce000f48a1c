"""The one place for port numbers."""

import json
import socket
from collections.abc import Iterable, Mapping
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


class Ports:
    """The ports of one stack, its own from the moment they are chosen, and remembered in the file `memory`.

    A server binds its port seconds after the port was chosen; another stack that starts meanwhile would find it free.
    So each port is claimed by holding the *UDP* port of the same number, which no part of a stack uses: the claim holds
    for every account of the machine, leaves no file behind, and the kernel lets go of it when the holder dies.
    """

    def __init__(self, memory: Path) -> None:
        self._memory = memory
        self._chosen: dict[str, int] = {}
        self._claims: dict[int, socket.socket] = {}

    def choose(self, names: Iterable[str], wanted: Mapping[str, int] | None = None) -> tuple[dict[str, int], list[str]]:
        """A free port for each name, and a sentence for each that had to differ from the wanted one.

        Wanted is what the caller asks for, else what was used last time (so that addresses stay the same from one start
        to the next), else the default. Whatever holds a taken port is left alone. Raises NoPortError.
        """
        first_choice = {**DEFAULTS, **self._remembered(), **(wanted or {})}
        notes: list[str] = []
        for name in names:
            if self._claim(first_choice[name]):
                self._chosen[name] = first_choice[name]
            else:
                notes.append(self._take_another(name, first_choice[name]))
        self._remember()
        return dict(self._chosen), notes

    def replace_taken(self, names: Iterable[str]) -> tuple[dict[str, int], list[str]]:
        """New ports for those of the names whose port somebody else has taken, and a sentence for each.

        For parts that do not run at the moment: what listens there then is none of ours. Raises NoPortError.
        """
        taken = [name for name in names if not is_free(self._chosen[name])]
        notes: list[str] = []
        for name in taken:
            old = self._chosen[name]
            notes.append(self._take_another(name, old))
            self._claims.pop(old).close()
        if taken:
            self._remember()
        return {name: self._chosen[name] for name in taken}, notes

    def release(self) -> None:
        """Give all of them up. Safe to call again."""
        for claim in self._claims.values():
            claim.close()
        self._claims.clear()
        self._chosen.clear()

    def _claim(self, port: int) -> bool:
        """Claim it and only then look whether it is free; the other way round two stacks could both have found it so."""
        claim = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        try:
            claim.bind((HOST, port))
        except OSError:
            claim.close()
            return False
        if not is_free(port):
            claim.close()
            return False
        self._claims[port] = claim
        return True

    def _take_another(self, name: str, port: int) -> str:
        holder = _holder(port)
        for candidate in range(port + 1, min(port + LAST_TRIED_BEYOND, HIGHEST)):
            if self._claim(candidate):
                self._chosen[name] = candidate
                return f"Port {port} for {name} is taken{holder}; using {candidate} instead."
        raise NoPortError(f"No free port between {port} and {port + LAST_TRIED_BEYOND}.")

    def _remember(self) -> None:
        self._memory.parent.mkdir(parents=True, exist_ok=True)
        write_text(self._memory, json.dumps({**self._remembered(), **self._chosen}, indent=1))

    def _remembered(self) -> dict[str, int]:
        try:
            content = json.loads(self._memory.read_text())
            return {name: int(content[name]) for name in DEFAULTS if name in content}
        except (FileNotFoundError, ValueError, TypeError):
            return {}


def _holder(port: int) -> str:
    """Who listens there or, as another stack that is starting, has claimed it; as far as this account may know."""
    try:
        for connection in psutil.net_connections("inet"):
            local = connection.laddr
            if connection.status in (psutil.CONN_LISTEN, psutil.CONN_NONE) and local and local.port == port and connection.pid:
                return f" by {psutil.Process(connection.pid).name()} (pid {connection.pid})"
    except (psutil.AccessDenied, psutil.NoSuchProcess):
        return ""
    return ""
