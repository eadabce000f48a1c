"""Watching a long job of the server to its end: a bar on a terminal, a line now and then in a pipe. The job goes on whatever becomes of the watching."""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

from cli.output import Output

LOOK_EVERY_S = 0.5
SAY_EVERY_S = 5.0


@dataclass(frozen=True, slots=True)
class Kind:
    """How one kind of job is shown: its title, its phases in words, its figures, and how much of it is done (0 to 1)."""

    title: str
    phases: Mapping[str, str]
    figures: Callable[[dict[str, Any]], str]
    share: Callable[[dict[str, Any]], float]


class _Shows(Protocol):
    def __call__(self, job: dict[str, Any]) -> None: ...


def watch(out: Output, kind: Kind, job: dict[str, Any], look: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """Show a job until it is finished, looking at it again and again; returns it as it ended."""
    with _progress(out, kind) as show:
        while job["finished_at"] is None:
            show(job)
            time.sleep(LOOK_EVERY_S)
            job = look()
        show(job)
    return job


@contextmanager
def _progress(out: Output, kind: Kind) -> Iterator[_Shows]:
    """Both ways go to stderr, so that stdout holds the result only."""
    if not out.messages_on_terminal:
        yield _lines(out, kind)
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TaskProgressColumn(),
        TextColumn("{task.fields[figures]}"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=out.messages, transient=True) as bar:
        task = bar.add_task(kind.title, total=1.0, figures="")

        def show(job: dict[str, Any]) -> None:
            bar.update(
                task,
                completed=kind.share(job),
                description=kind.phases.get(job["phase"], job["phase"]),
                figures=job["last_error"] or kind.figures(job),
            )

        yield show


def _lines(out: Output, kind: Kind) -> _Shows:
    said: tuple[float, str] = (float("-inf"), "")

    def show(job: dict[str, Any]) -> None:
        nonlocal said
        line = f"{job['phase']}: {kind.figures(job)}" + (f"; {job['last_error']}" if job["last_error"] else "")
        now = time.monotonic()
        if line != said[1] and (now - said[0] >= SAY_EVERY_S or job["finished_at"] is not None):
            out.say(line)
            said = (now, line)

    return show
