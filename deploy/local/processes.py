"""Starting, recognising and stopping processes.

A process is recognised by its pid *and* the moment it started: a pid alone is reused by the kernel, and killing by a
reused pid would kill somebody else's program. Its command line is no part of it, because the kernel shows none for a
moment after the program was started.
"""

import contextlib
import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

import psutil

from deploy.local.accounts import Account

# Every process of a stack carries these, so that what a killed supervisor left behind can be told from everything else.
HOME_MARK = "REFUNDS_STACK_HOME"
PART_MARK = "REFUNDS_STACK_PART"
LOG_LIMIT_BYTES = 20_000_000
POLL_SECONDS = 0.02


@dataclass(frozen=True)
class Command:
    """What to run: arguments, the whole environment (nothing is inherited), where, and as whom."""

    argv: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict)
    cwd: Path = Path("/")
    account: Account | None = None


@dataclass(frozen=True)
class Identity:
    """Enough to recognise one process later and never to take another one for it."""

    pid: int
    started: str

    @classmethod
    def of(cls, process: psutil.Process) -> "Identity":
        """Raises psutil.NoSuchProcess when it is gone already."""
        return cls(process.pid, _started(process))

    def find(self) -> psutil.Process | None:
        """The running process that this names, or None when it ended (a zombie has ended) or the pid was reused."""
        try:
            process = psutil.Process(self.pid)
            running = _started(process) == self.started and process.status() != psutil.STATUS_ZOMBIE
            return process if running else None
        except psutil.NoSuchProcess:
            return None


def spawn(command: Command, log: Path) -> subprocess.Popen[bytes]:
    """Start it in a session of its own (the terminal's Ctrl-C reaches the supervisor only), output appended to `log`."""
    with _open_log(log) as output:
        account = command.account
        return subprocess.Popen(
            command.argv,
            env=dict(command.env),
            cwd=command.cwd,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            user=account.uid if account else None,
            group=account.gid if account else None,
            extra_groups=[] if account else None,
            umask=0o077,
        )


def wait_until(condition: Callable[[], bool], seconds: float, poll: float = POLL_SECONDS) -> bool:
    """Whether the condition came true within so many seconds."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(poll)
    return True


def stop(identity: Identity, stop_signal: signal.Signals, grace_seconds: float) -> bool:
    """End the process and what it started: ask with `stop_signal`, after the grace period kill.

    Does nothing when the identity names no running process. True when asking was enough. The process may be a child of
    this one or a stranger's orphan; a child must be reaped by whoever holds its Popen.
    """
    process = identity.find()
    if process is None:
        return True
    family = [Identity.of(child) for child in _children(process)]
    _send(process, stop_signal)
    asked = wait_until(lambda: identity.find() is None, grace_seconds)
    if not asked:
        _send(process, signal.SIGKILL)
        wait_until(lambda: identity.find() is None, 5)
    # Children of a part that was killed end by themselves a moment later (PostgreSQL's do); the rest is ended here.
    wait_until(lambda: not any(child.find() for child in family), 2)
    for child in family:
        if (left := child.find()) is not None:
            _send(left, signal.SIGKILL)
    return asked


def marked(home: Path) -> list[tuple[str, Identity]]:
    """(part, identity) of every running process that was started for the stack at `home`, by its environment."""
    found: list[tuple[str, Identity]] = []
    for process in psutil.process_iter():
        try:
            env = process.environ()
            if env.get(HOME_MARK) == str(home) and process.status() != psutil.STATUS_ZOMBIE:
                found.append((env.get(PART_MARK, ""), Identity.of(process)))
        except (psutil.NoSuchProcess, psutil.AccessDenied, psutil.ZombieProcess):
            continue
    return found


def listens(pid: int, port: int) -> bool:
    """Whether this very process takes connections at the TCP port; where the account may not know that, taken for granted."""
    try:
        connections = psutil.Process(pid).net_connections("tcp")
    except psutil.AccessDenied:
        return True
    except psutil.NoSuchProcess:
        return False
    return any(each.status == psutil.CONN_LISTEN and each.laddr.port == port for each in connections)


def save_identity(path: Path, identity: Identity) -> None:
    """Write a pid file that `load_identity` reads back; replaced in one step, so never half-written."""
    write_text(path, json.dumps({"pid": identity.pid, "started": identity.started}))


def load_identity(path: Path) -> Identity | None:
    """The identity in a pid file; None when there is none or it cannot be read as one."""
    try:
        content = json.loads(path.read_text())
        return Identity(int(content["pid"]), str(content["started"]))
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        return None


def write_text(path: Path, text: str, mode: int = 0o600) -> None:
    """Replace a file in one step, readable for its owner only from the first byte (unless `mode` says otherwise)."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.unlink(missing_ok=True)
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    with os.fdopen(descriptor, "w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)


def _started(process: psutil.Process) -> str:
    """When it started, in a form that does not move when somebody sets the clock (wall-clock start times do)."""
    try:
        # Field 22, counted after the name in brackets, which may itself hold spaces and brackets: ticks since boot.
        ticks = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[19]
        return f"{Path('/proc/sys/kernel/random/boot_id').read_text().strip()}+{ticks}"
    except (FileNotFoundError, ProcessLookupError):
        return str(process.create_time())  # Not Linux; raises NoSuchProcess when it is simply gone.


@contextlib.contextmanager
def interruptible() -> Iterator[None]:
    """Let Ctrl-C and SIGTERM unwind, so that everything is stopped in order; more of them do not disturb the stopping.

    Both are set, because a shell starts background jobs with SIGINT ignored.
    """

    def interrupt(number: int, frame: object) -> None:
        for each in before:
            signal.signal(each, signal.SIG_IGN)
        raise KeyboardInterrupt

    before = {each: signal.signal(each, signal.SIG_DFL) for each in (signal.SIGINT, signal.SIGTERM)}
    for each in before:
        signal.signal(each, interrupt)
    try:
        yield
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)


def ending(code: int) -> str:
    """An exit code in words."""
    return f"killed by {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"


def _open_log(log: Path) -> IO[bytes]:
    log.parent.mkdir(parents=True, exist_ok=True)
    if log.exists() and log.stat().st_size > LOG_LIMIT_BYTES:
        log.replace(log.with_name(log.name + ".1"))
    return log.open("ab")


def _children(process: psutil.Process) -> list[psutil.Process]:
    try:
        return process.children(recursive=True)
    except psutil.NoSuchProcess:
        return []


def _send(process: psutil.Process, number: signal.Signals) -> None:
    try:
        process.send_signal(number)
        if number is not signal.SIGKILL:
            process.send_signal(signal.SIGCONT)  # A stopped process would not hear anything else.
    except psutil.NoSuchProcess:
        return
