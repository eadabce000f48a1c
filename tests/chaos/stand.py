"""The stack under chaos: real processes in a directory of their own, a link in every connection that a real network would carry, and ways to hurt them."""

import asyncio
import os
import shutil
import signal
import tempfile
from collections.abc import AsyncIterator, Coroutine, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import psycopg

from deploy.local import ports
from deploy.local import stack as supervisor
from deploy.local.parts import PARTS, Context, Part
from deploy.local.postgres import OWNER, SUPERUSER
from deploy.local.processes import Command, write_text
from deploy.local.progress import Reporter
from deploy.local.stack import LocalStack
from tests.chaos.links import Link, Mood
from tests.chaos.plan import LINKS, WORKERS
from tests.chaos.plan import PARTS as PARTS_HURT

ROOT = Path(__file__).parents[2]
POINTS_SETTING = "CRASH_POINTS"
LONGEST_BACK_OFF_S = 1.0
PATIENCE_S = 90.0
_WORKER = next(part for part in PARTS if part.name == WORKERS[0])
# What is tried again, looked after or given up by itself is so within a moment, because nobody here waits for minutes.
SETTINGS = {
    "SUBMIT_MAX_ATTEMPTS": "5",
    "SUBMIT_RETRY_INITIAL_S": "0.3",
    "SUBMIT_RETRY_MAX_S": "2",
    "STRIPE_READ_TIMEOUT_S": "3",
    "HELD_RECHECK_S": "3",
    "PENDING_POLL_INITIAL_S": "1",
    "PENDING_POLL_MAX_S": "5",
    "SWEEP_EVERY_S": "0.5",
    "WITNESS_EVERY_S": "2",
    "SWEEP_GRACE_S": "1",
    "API_QUOTE_WAIT_S": "1",
    "API_DECISION_WAIT_S": "2",
    "API_RATE_PER_MINUTE": "1000000",
    "LOG_LEVEL": "WARNING",
}


class _Stack(LocalStack):
    """A stack whose parts can be kept down for a while."""

    kept_down: frozenset[str] = frozenset()

    def _start_again(self, running: Any) -> None:
        if running.part.name not in self.kept_down:
            super()._start_again(running)


class Stand:
    """The running stack and its links."""

    def __init__(self, home: Path, reporter: Reporter) -> None:
        self.links = {name: Link(name, self._target(name)) for name in LINKS}
        self._rules = home / "points"
        machine = {name: os.environ[name] for name in ("PATH", "HOME", "LANG", "TMPDIR") if name in os.environ}
        names = [name for part in PARTS for name in part.ports]
        # Below the ports that the system gives to outgoing connections: one of those must not sit on a port while its part is down.
        first = 20_000 + os.getpid() * len(names) % 10_000
        wanted = {name: first + place for place, name in enumerate(names)}
        table = tuple(self._linked(part) for part in (*PARTS, replace(_WORKER, name=WORKERS[1])))
        self.stack = _Stack(home, ports=wanted, environment=machine, overrides=SETTINGS, reporter=reporter, table=table)
        self.frozen: set[str] = set()

    # --- wiring ----------------------------------------------------------------------------------------------------------------------

    def _target(self, link: str) -> Any:
        server = link.split("-")[1]
        return lambda: self.stack.context.ports[server]

    def _linked(self, part: Part) -> Part:
        """The part as it is, its connections through the links, its code the one beside this file."""
        if part.name in ("postgres", "temporal"):
            return part

        def command(context: Context) -> Command:
            made = part.command(context)
            env = {name: self._rewired(part.name, value, context) for name, value in made.env.items()}
            if part.name in ("api", *WORKERS):
                env[POINTS_SETTING] = f"file:{self._rules}"
            return replace(made, env=env | {"PYTHONPATH": str(ROOT)})

        return replace(part, command=command)

    def _rewired(self, part: str, value: str, context: Context) -> str:
        for name, link in self.links.items():
            client, server = name.split("-")
            if client == ("worker" if part in WORKERS else part):
                value = value.replace(f"{ports.HOST}:{context.ports[server]}", f"{ports.HOST}:{link.port}")
        return value

    def url(self, part: str) -> str:
        """The HTTP address of a part, not through a link."""
        return self.stack.addresses[part]

    # --- hurting ---------------------------------------------------------------------------------------------------------------------

    async def kill(self, part: str) -> None:
        """``kill -9``; the supervisor starts it again."""
        self.frozen.discard(part)
        await asyncio.to_thread(self.stack.kill, part)

    @asynccontextmanager
    async def down(self, *parts: str) -> AsyncIterator[None]:
        """Kill these, and keep them down while the block runs; then they are started again."""
        self.stack.kept_down = frozenset(parts)
        try:
            await asyncio.gather(*(self.kill(part) for part in parts))
            yield
        finally:
            self.stack.kept_down = frozenset()

    def freeze(self, part: str) -> int:
        """SIGSTOP to the process and its children; returns which process it was."""
        pid = self.stack.pid(part)
        _signal_family(pid, signal.SIGSTOP)
        self.frozen.add(part)
        return pid

    def thaw(self, part: str, pid: int) -> None:
        """SIGCONT; nothing when it has been killed meanwhile."""
        _signal_family(pid, signal.SIGCONT)
        self.frozen.discard(part)

    async def ready(self, *parts: str) -> None:
        """Wait until these are ready. Raises ``TimeoutError``."""
        for part in parts:
            await asyncio.to_thread(self.stack.wait_ready, part, PATIENCE_S)

    def arm(self, rule: str) -> None:
        """Have whichever process reaches a named point first meet its end there (``refunds/points.py``)."""
        write_text(self._rules, rule)

    def disarm(self) -> bool:
        """Take the rule away again; whether somebody had reached its point."""
        try:
            self._rules.unlink()
        except FileNotFoundError:
            return True
        return False

    @property
    def armed(self) -> bool:
        """Whether a rule waits for somebody to reach its point."""
        return self._rules.exists()

    def end_sessions(self, login: str) -> int:
        """Have PostgreSQL end every session of a login; returns how many. None while the database is away."""
        try:
            with self._connect(SUPERUSER) as connection:
                found = connection.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = %s", (login,))
                return len(found.fetchall())
        except psycopg.OperationalError:
            return 0

    def rows(self, query: str, *values: Any) -> list[tuple[Any, ...]]:
        """What the database holds, read past the product. Raises ``psycopg.OperationalError`` while it is away."""
        with self._connect(OWNER) as connection:
            return connection.execute(query.encode(), values).fetchall()

    def _connect(self, role: str) -> Any:
        assert self.stack.context.postgres is not None
        return self.stack.context.postgres.connect(role)

    async def calm(self) -> None:
        """Everything passes, nothing is frozen, everything runs."""
        for link in self.links.values():
            link.feel(Mood.PASSING)
        for part in list(self.frozen):
            self.thaw(part, self.stack.pid(part))
        self.disarm()
        await self.ready(*PARTS_HURT)


def _signal_family(pid: int, number: signal.Signals) -> None:
    with suppress(psutil.NoSuchProcess):
        process = psutil.Process(pid)
        for each in (process, *process.children(recursive=True)):
            with suppress(psutil.NoSuchProcess):
                each.send_signal(number)


@contextmanager
def _patient_supervisor() -> Iterator[None]:
    """A part that ends a hundred times is started a hundred times, and without long pauses."""
    before = supervisor.RESTARTS, supervisor.LONGEST_BACK_OFF_SECONDS
    supervisor.RESTARTS, supervisor.LONGEST_BACK_OFF_SECONDS = 1_000_000, LONGEST_BACK_OFF_S
    try:
        yield
    finally:
        supervisor.RESTARTS, supervisor.LONGEST_BACK_OFF_SECONDS = before


def _directory() -> Path:
    """A new one, on a disk where there is one: durable commits in memory would be no test."""
    on_disk = Path("/var/tmp")
    home = Path(tempfile.mkdtemp(prefix="refunds-chaos-", dir=on_disk if on_disk.is_dir() else None))
    home.chmod(0o711)  # the database's own account must get to its files when root starts this
    return home


async def _to_its_end(starting: Coroutine[Any, Any, None]) -> None:
    """Let it come to its end although this task is cancelled meanwhile: only what has started can be stopped."""
    task = asyncio.ensure_future(starting)
    try:
        await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.gather(task, return_exceptions=True)
        raise


@asynccontextmanager
async def running(reporter: Reporter, *, keep: bool = False) -> AsyncIterator[Stand]:
    """Start everything and stop it again. The files stay when ``keep`` is set or something raised; ``stand.stack.home`` says where."""
    home = _directory()
    stand = Stand(home, reporter)
    done = False
    with _patient_supervisor():
        try:
            for link in stand.links.values():
                await link.open()
            try:
                # In threads, because the stack waits for its parts and the links must work meanwhile.
                await _to_its_end(asyncio.to_thread(stand.stack.start))
                yield stand
            finally:
                for part in list(stand.frozen):
                    stand.thaw(part, stand.stack.pid(part))
                await asyncio.to_thread(stand.stack.stop)
            done = True
        except (asyncio.CancelledError, KeyboardInterrupt):
            done = True
            raise
        finally:
            for link in stand.links.values():
                await link.close()
            if done and not keep:
                shutil.rmtree(home)
