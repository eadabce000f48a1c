"""Parts that run to their end once, and what is said of a part that failed."""

import os
import subprocess
from pathlib import Path

from deploy.local.processes import Command

TASK_SECONDS = 300
LOG_TAIL_BYTES = 3_000


class PartFailedError(RuntimeError):
    """A part did not start or ended for good; the message holds the end of its log."""

    def __init__(self, name: str, problem: str, log: Path) -> None:
        tail = log.read_bytes()[-LOG_TAIL_BYTES:].decode(errors="replace").strip() if log.exists() else ""
        super().__init__(f"{name}: {problem}. The end of {log}:\n{tail}")
        self.name = name


def run_task(name: str, command: Command, log: Path, kept: Path | None = None) -> str:
    """Run it to its end; what it prints goes to the file `kept`, which is returned, or else to the log ("" is returned).

    The file appears only when the task ended well and printed something. Raises PartFailedError otherwise, and
    subprocess.TimeoutExpired after five minutes.
    """
    # Printed straight into a file: what it says once is not lost when this process is killed before it can keep it.
    partial = kept.with_name(f"{kept.name}.partial") if kept else log
    with os.fdopen(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)) as output, log.open("ab") as errors:
        done = subprocess.run(
            command.argv,
            env=dict(command.env),
            cwd=command.cwd,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=errors,
            start_new_session=True,
            timeout=TASK_SECONDS,
            check=False,
        )
    if done.returncode != 0:
        raise PartFailedError(name, f"ended with exit code {done.returncode}", log)
    if kept is None or not (text := partial.read_text().strip()):
        return ""
    partial.replace(kept)
    return text
