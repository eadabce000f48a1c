"""The supervisor behind `refunds up`: starts the parts in order, keeps them running, stops them in reverse order."""

import contextlib
import json
import os
import signal
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path

import psutil

from deploy.local import processes
from deploy.local.leftovers import AlreadyRunningError, HomeLock, clear, pid_file
from deploy.local.parts import PARTS, Context, Part
from deploy.local.ports import HOST, NoPortError, Ports
from deploy.local.processes import HOME_MARK, PART_MARK, Command, Identity
from deploy.local.progress import ConsoleReporter, Reporter, Silent
from deploy.local.tasks import PartFailedError, run_task

START_SECONDS = 60
POLL_SECONDS = 0.05
FIRST_BACK_OFF_SECONDS = 0.2
LONGEST_BACK_OFF_SECONDS = 10
# Restarts in a row before the part is given up; a part that ran this long counts as well again.
RESTARTS = 8
WELL_AFTER_SECONDS = 60


class State(StrEnum):
    """Of one part."""

    STARTING = "starting"
    READY = "ready"
    DOWN = "down"
    GIVEN_UP = "given up"


@dataclass
class _Running:
    part: Part
    command: Command
    process: subprocess.Popen[bytes]
    identity: Identity
    state: State
    since: float
    failures: int = 0
    next_try: float = 0


def default_home() -> Path:
    """REFUNDS_HOME, or `.local` in the current directory."""
    return Path(os.environ.get("REFUNDS_HOME") or ".local").absolute()


class LocalStack:
    """The parts of the product on this machine, with all their data under `home`.

    `parts` are names from `deploy.local.parts.PARTS` (all by default), `ports` wanted port numbers by name, `overrides`
    settings that win over `environment` (the caller's own by default). A part whose setting is present there
    (DATABASE_URL, TEMPORAL_ADDRESS, STRIPE_API_KEY) is used and not started.

    Use as a context manager, or call `start` and `stop`. Calls block and may come from any one thread.
    """

    def __init__(
        self,
        home: Path,
        *,
        ports: Mapping[str, int] | None = None,
        parts: Sequence[str] | None = None,
        overrides: Mapping[str, str] | None = None,
        environment: Mapping[str, str] | None = None,
        reporter: Reporter | None = None,
        table: Sequence[Part] = PARTS,
    ) -> None:
        names = [part.name for part in table]
        unknown = sorted(set(parts or ()) - set(names))
        if unknown:
            raise ValueError(f"No such part: {', '.join(unknown)}. There are: {', '.join(names)}.")
        self.home = home.absolute()
        settings = {**(os.environ if environment is None else environment), **(overrides or {})}
        self.context = Context(self.home, settings)
        self._table = table
        chosen = [part for part in table if parts is None or part.name in parts]
        self._started_here = [part for part in chosen if not (part.instead and settings.get(part.instead))]
        self._used = [part for part in chosen if part not in self._started_here]
        self._wanted_ports = ports
        self._reporter: Reporter = reporter or Silent()
        self._lock = HomeLock(self.home)
        self._ports = Ports(self.home / "ports.json")
        self._running: dict[str, _Running] = {}
        self._changed = threading.Condition()
        self._stopping = threading.Event()
        self._watcher: threading.Thread | None = None

    @property
    def addresses(self) -> dict[str, str]:
        """Where the parts listen: `postgres` and `temporal` as host:port, the others as http addresses."""
        plain = ("postgres", "temporal")
        return {name: f"{HOST}:{port}" if name in plain else f"http://{HOST}:{port}" for name, port in self.context.ports.items()}

    @property
    def admin_key(self) -> str:
        """The first administrator's key. Raises FileNotFoundError before that part was started once."""
        return (self.home / "admin-key").read_text().strip()

    def __enter__(self) -> "LocalStack":
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        """Bring everything up; returns when all parts are ready. What was started is stopped again when one fails.

        What an earlier supervisor of this home left behind is ended first. Raises AlreadyRunningError, PartFailedError,
        and the errors of the ports, PostgreSQL and Temporal modules.
        """
        self._make_home()
        self._lock.acquire()
        with contextlib.ExitStack() as undo:
            undo.callback(self.stop)
            if ended := clear(self.home, self._table):
                self._reporter.note(f"Ended what an earlier start had left running: {', '.join(ended)}.")
            self._stopping.clear()
            names = [name for part in self._started_here for name in part.ports]
            self.context.ports, notes = self._ports.choose(names, self._wanted_ports)
            for note in notes:
                self._reporter.note(note)
            for part in self._used:
                self._reporter.note(f"{part.name}: using the one named by {part.instead}, starting none.")
            for part in self._started_here:
                self._bring_up(part)
            self._save_state()
            self._watcher = threading.Thread(target=self._watch, name="local-stack", daemon=True)
            self._watcher.start()
            undo.pop_all()

    def stop(self) -> None:
        """Stop everything, last part first, each with its time to finish. Safe to call again, and after a failed start."""
        self._stopping.set()
        if self._watcher is not None:
            self._watcher.join()
            self._watcher = None
        self._reporter.end()
        for running in reversed(self._running.values()):
            part = running.part
            if running.process.poll() is None and not processes.stop(running.identity, part.stop_signal, part.grace_seconds):
                self._reporter.note(f"{part.name} did not stop within {part.grace_seconds:.0f} s and was killed.")
            running.process.wait()
        self._running.clear()
        if self.home.exists():
            clear(self.home, self._table)
        self._ports.release()
        self._lock.release()

    def kill(self, part: str, sig: signal.Signals = signal.SIGKILL) -> None:
        """Send a part a signal, as an accident would. After one that ends processes, returns when the process is gone.

        The part is then started again by itself; `wait_ready` waits for that.
        """
        running = self._running[part]
        process = running.process
        process.send_signal(sig)
        if sig in (signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGQUIT):
            process.wait(timeout=running.part.grace_seconds + START_SECONDS)
            if running.process is process:
                # From here on it counts as down, also when the watching thread has not looked yet.
                self._mark_down(running, State.READY)

    def wait_ready(self, part: str, timeout_seconds: float = START_SECONDS) -> None:
        """Return when the part is ready. Raises PartFailedError when it was given up, TimeoutError when it takes longer."""
        running = self._running[part]
        with self._changed:
            if not self._changed.wait_for(lambda: running.state in (State.READY, State.GIVEN_UP), timeout_seconds):
                raise TimeoutError(f"{part} is not ready after {timeout_seconds:.0f} s")
        if running.state is State.GIVEN_UP:
            raise PartFailedError(part, "ended again and again", self._log(part))

    def pid(self, part: str) -> int:
        """The process id of a part at this moment."""
        return self._running[part].process.pid

    def wait(self) -> None:
        """Block until a part is given up. Raises PartFailedError then; KeyboardInterrupt passes through."""
        while not (given_up := [name for name, running in self._running.items() if running.state is State.GIVEN_UP]):
            # Not on the condition: an interrupt while its lock is being taken would leave it locked for ever.
            time.sleep(POLL_SECONDS)
        raise PartFailedError(given_up[0], f"ended {RESTARTS} times in a row", self._log(given_up[0]))

    def _bring_up(self, part: Part) -> None:
        if part.once and (self.home / part.once).exists():
            return
        self._reporter.begin(part.name)
        self._move_away(part)
        for note in part.prepare(self.context):
            self._reporter.note(note)
        if part.once is not None:
            kept = self.home / part.once if part.once else None
            if text := run_task(part.name, self._marked(part), self._log(part.name), kept):
                self._reporter.note(f"The first administrator's key, shown this once and kept in {kept}: {text}")
            self._reporter.done(part.name, "done")
            return
        running = self._running[part.name] = self._spawn(part)
        while (problem := self._until_ready(running)) is not None:
            self._end(running)
            if not self._move_away(part):
                raise PartFailedError(part.name, problem, self._log(part.name))
            running = self._running[part.name] = self._spawn(part)
        part.complete(self.context)
        self._reporter.done(part.name, self.addresses.get(part.name, f"pid {running.process.pid}"))

    def _spawn(self, part: Part) -> _Running:
        command = self._marked(part)
        process = processes.spawn(command, self._log(part.name))
        try:
            identity = Identity.of(psutil.Process(process.pid))
        except psutil.NoSuchProcess:
            process.wait()
            raise PartFailedError(part.name, f"ended at once with exit code {process.returncode}", self._log(part.name)) from None
        processes.save_identity(pid_file(self.home, part.name), identity)
        return _Running(part, command, process, identity, State.STARTING, time.monotonic())

    def _move_away(self, part: Part) -> bool:
        """Give a part that does not run new ports where somebody else has taken its own; whether that was so."""
        moved, notes = self._ports.replace_taken(part.ports)
        self.context.move(moved)
        for note in notes:
            self._reporter.note(note)
        return bool(moved)

    def _marked(self, part: Part) -> Command:
        command = part.command(self.context)
        return replace(command, env={**command.env, HOME_MARK: str(self.home), PART_MARK: part.name})

    def _until_ready(self, running: _Running) -> str | None:
        """Wait for a part's first start; what is wrong when it ends or takes too long."""
        while running.state is State.STARTING:
            if (problem := self._look_at_start(running)) is not None:
                return problem
            time.sleep(POLL_SECONDS)
        return None

    def _look_at_start(self, running: _Running) -> str | None:
        """Note when a starting part has become ready; what is wrong when it never will."""
        if (code := running.process.poll()) is not None:
            return f"ended while starting ({processes.ending(code)})"
        # Who listens comes first: a stranger at its port might answer just like it, and must not be asked to.
        pid, numbers = running.process.pid, [self.context.ports[name] for name in running.part.ports]
        if all(processes.listens(pid, port) for port in numbers) and running.part.is_ready(self.context, pid):
            with self._changed:
                running.state, running.since = State.READY, time.monotonic()
                self._changed.notify_all()
        elif time.monotonic() - running.since > START_SECONDS:
            return f"was not ready after {START_SECONDS} s"
        return None

    def _end(self, running: _Running) -> None:
        """End a part that is of no use; returns when it is gone."""
        processes.stop(running.identity, signal.SIGKILL, 0)
        running.process.wait()

    def _watch(self) -> None:
        while not self._stopping.wait(POLL_SECONDS):
            for running in self._running.values():
                self._look_after(running)

    def _look_after(self, running: _Running) -> None:
        """One glance at one part. Never waits for a part to become ready: another, which it needs, may be down too."""
        if running.state is State.READY:
            self._look_at_ready(running)
        elif running.state is State.STARTING:
            if self._look_at_start(running) is not None:
                self._end(running)
                self._mark_down(running, State.STARTING)
            elif running.state is State.READY:
                self._save_state()
                self._reporter.note(f"{running.part.name} is running again (pid {running.process.pid}).")
        elif running.state is State.DOWN and time.monotonic() >= running.next_try:
            self._start_again(running)

    def _look_at_ready(self, running: _Running) -> None:
        if running.process.poll() is not None:
            self._mark_down(running, State.READY)
        elif running.failures and time.monotonic() - running.since > WELL_AFTER_SECONDS:
            running.failures = 0

    def _start_again(self, running: _Running) -> None:
        try:
            if self._move_away(running.part):
                self._end_misled(running)
            fresh = self._spawn(running.part)
        except (PartFailedError, NoPortError, OSError) as problem:
            self._reporter.note(str(problem))
            self._mark_down(running, State.DOWN)
            return
        with self._changed:
            running.command, running.process, running.identity = fresh.command, fresh.process, fresh.identity
            running.state, running.since = fresh.state, fresh.since

    def _end_misled(self, moved: _Running) -> None:
        """End all parts that were told an address which is no longer right; each is started again at the next glance."""
        for running in self._running.values():
            part = running.part
            if running is moved or running.process.poll() is not None or running.command == self._marked(part):
                continue
            self._reporter.note(f"{part.name} is started again, because {moved.part.name} has moved.")
            processes.stop(running.identity, part.stop_signal, part.grace_seconds)
            running.process.wait()
            with self._changed:
                running.state, running.next_try = State.DOWN, time.monotonic()

    def _mark_down(self, running: _Running, seen: State) -> None:
        """Note an end nobody asked for, and when to try again; once, though both `kill` and the watching thread see it."""
        name, code = running.part.name, running.process.wait()
        with self._changed:
            if running.state is not seen:
                return
            running.failures += 1
            if running.failures > RESTARTS:
                running.state = State.GIVEN_UP
                said = f"{name} ended {running.failures} times in a row and is given up; see {self._log(name)}."
            else:
                delay = min(FIRST_BACK_OFF_SECONDS * 2 ** (running.failures - 1), LONGEST_BACK_OFF_SECONDS)
                running.state, running.next_try = State.DOWN, time.monotonic() + delay
                said = f"{name} ended unexpectedly ({processes.ending(code)}); starting it again in {delay:.1f} s."
            self._changed.notify_all()
        self._reporter.note(said)

    def _make_home(self) -> None:
        if not self.home.exists():
            self.home.mkdir(parents=True)
            # Only root must let another account (the database's) through; nobody may list it in any case.
            self.home.chmod(0o711 if os.geteuid() == 0 else 0o700)
        for name in ("run", "logs"):
            (self.home / name).mkdir(mode=0o700, exist_ok=True)

    def _log(self, name: str) -> Path:
        return self.home / "logs" / f"{name}.log"

    def _save_state(self) -> None:
        parts = {name: {"pid": running.process.pid, "state": running.state} for name, running in self._running.items()}
        content = {"pid": os.getpid(), "home": str(self.home), "addresses": self.addresses, "parts": parts}
        processes.write_text(self.home / "stack.json", json.dumps(content, indent=1))


def run(
    home: Path | None = None,
    *,
    parts: Sequence[str] | None = None,
    ports: Mapping[str, int] | None = None,
    overrides: Mapping[str, str] | None = None,
) -> int:
    """Run the stack in the foreground until Ctrl-C or SIGTERM; the exit code for the shell.

    When a stack already runs in this home, its addresses are shown and nothing is started.
    """
    reporter = ConsoleReporter()
    stack = LocalStack(home or default_home(), parts=parts, ports=ports, overrides=overrides, reporter=reporter)
    with processes.interruptible():
        try:
            with stack:
                for name, address in stack.addresses.items():
                    reporter.note(f"  {name:<10} {address}")
                reporter.note("Ctrl-C stops everything in order.")
                stack.wait()
        except KeyboardInterrupt:
            reporter.note("Stopped.")
        except AlreadyRunningError as running:
            reporter.note(str(running))
            for name, address in running.state.get("addresses", {}).items():
                reporter.note(f"  {name:<10} {address}")
        except PartFailedError as failure:
            reporter.end()
            reporter.note(str(failure))
            return 1
    return 0
