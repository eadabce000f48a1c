"""`refunds orders import`: the merchant's orders from a file."""

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from io import BufferedReader
from pathlib import Path
from typing import Annotated

import typer
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

from cli.client import Api
from cli.connection import connection
from cli.importing import checkpoint
from cli.importing.checkpoint import Checkpoint, Source
from cli.importing.report import Report
from cli.importing.run import READY, Format, Import, Shows, format_of, source_of
from cli.importing.sending import Sender
from cli.options import File, Json
from cli.output import Output
from cli.problems import Exit, Misused, Problem, Refused, Unreachable
from refunds.money import Money, format_money

SAY_EVERY_S = 2.0


def import_orders(
    file: File,
    format_: Annotated[Format | None, typer.Option("--format", help="By the file's name, unless you say it.")] = None,
    locale: Annotated[str, typer.Option("--locale", help="How amounts in a CSV file are written, such as de_DE for 1.234,50.")] = "en_US",
    report: Annotated[Path | None, typer.Option("--report", help="Where problems go, line by line; FILE.report.csv by default.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Read and judge everything, and send nothing.")] = False,
    restart: Annotated[bool, typer.Option("--restart", help="Begin again where an import of it was cut off.")] = False,
    as_json: Json = False,
) -> None:
    """Send the orders of a CSV or JSON Lines file. Safe to repeat; cut off, it goes on where it was; orders with problems are left out and reported."""
    out = Output(as_json)
    to = report or file.with_name(file.name + ".report.csv")
    if to.resolve() == file.resolve():
        raise Misused("--report names the file itself.")
    how = format_of(file, format_)
    format_money(Money(0, "USD"), locale)  # an unknown locale is said before anything is read
    with ExitStack() as stack:
        opened = stack.enter_context(file.open("rb"))
        target = "" if dry_run else connection().url
        source = source_of(opened, how, locale, target)
        sender = None if dry_run else Sender(stack.enter_context(Api()), out.say)
        state = Checkpoint(to.with_name(to.name + (".dry" if dry_run else ".resume")), source)
        done = _imported(out, opened, source, to, state, sender, restart=restart)
    _summary(out, file, to, done, dry_run=dry_run)
    if done.counts["failed"]:
        raise typer.Exit(Exit.REFUSED)


def _imported(
    out: Output, opened: BufferedReader, source: Source, to: Path, state: Checkpoint, sender: Sender | None, *, restart: bool
) -> checkpoint.Progress:
    if restart:
        state.forget()
    before = state.load() if sender is not None else None
    if before is not None and not (to.exists() and to.stat().st_size >= before.report_bytes):
        raise Misused(f"The report {to} of the import that was cut off is gone; begin again with --restart.")
    if before is not None:
        out.say(f"Going on after line {before.line}, where an import of this file was cut off.")
    with Report(to, before.report_bytes if before else 0) as report:
        running = Import(opened, source, report, sender, state, before or checkpoint.Progress())
        try:
            with _progress(out) as show:
                return running.run(show, out.say)
        except KeyboardInterrupt:
            raise Problem(_stopped(running.progress, "Stopped."), Exit.REFUSED) from None
        except (Refused, Unreachable) as problem:
            if running.progress.line == 0:
                raise
            raise Problem(_stopped(running.progress, problem.line), problem.exit_code) from problem


def _stopped(progress: checkpoint.Progress, why: str) -> str:
    return f"{why} Everything up to line {progress.line} is done; the same command goes on there."


@contextmanager
def _progress(out: Output) -> Iterator[Shows]:
    """A bar on a terminal; in a pipe a line now and then. Both go to stderr, so that stdout holds the result only."""
    if not out.messages_on_terminal:
        yield _lines(out)
        return
    columns = (TextColumn("Importing"), BarColumn(), TaskProgressColumn(), TextColumn("{task.fields[figures]}"), TimeElapsedColumn())
    with Progress(*columns, console=out.messages, transient=True) as bar:
        task = bar.add_task("", total=1, figures="")

        def show(done: int, size: int, progress: checkpoint.Progress) -> None:
            bar.update(task, completed=done, total=size, figures=_figures(progress))

        yield show


def _lines(out: Output) -> Shows:
    said = time.monotonic()

    def show(done: int, size: int, progress: checkpoint.Progress) -> None:
        nonlocal said
        if time.monotonic() - said >= SAY_EVERY_S and done < size:
            out.say(f"{100 * done // max(size, 1)} %, line {progress.line}: {_figures(progress)}")
            said = time.monotonic()

    return show


def _figures(progress: checkpoint.Progress) -> str:
    return ", ".join(f"{count} {name.replace('_', ' ')}" for name, count in progress.counts.items() if count) or "no orders yet"


def _summary(out: Output, file: Path, report: Path, done: checkpoint.Progress, *, dry_run: bool) -> None:
    if out.as_json:
        plain = {"file": str(file), "dry_run": dry_run, "last_line": done.line, "report": str(report), "problems": done.problems}
        out.json(plain | done.counts | {"paid": done.paid})
        return
    paid = ", ".join(f"{format_money(Money(amount, code))}" for code, amount in sorted(done.paid.items()))
    shown = (READY,) if dry_run else ("created", "new_version", "unchanged")
    counts = {name.replace("_", " "): done.counts.get(name, 0) for name in shown}
    out.fields([("last line", done.line), *counts.items(), ("paid", paid), ("failed", done.counts["failed"])])
    if done.problems:
        out.say(f"{done.problems} problems, line by line: {report}")
    if dry_run:
        out.say("Nothing was sent (--dry-run).")
