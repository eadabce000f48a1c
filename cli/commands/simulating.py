"""`refunds policy simulate`: what another policy would have made of past requests. It writes nothing but the files it is asked for."""

import asyncio
import csv
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

from cli import simulation_picture, simulation_view
from cli.client import Api
from cli.options import Json, past
from cli.output import Output
from cli.policy_files import Named, from_api, named
from cli.problems import Misused, Refused, Unreachable

SAY_EVERY_S = 2.0
DIFFERENT = 5
"""The exit code of ``--exit-code`` when something would change."""

_COLUMNS = ("id", "amount", "currency", "reason", "before", "tier_before", "after", "tier_after", "direction", "checks")
Shows = Callable[[int, int | None], None]


def simulate(
    file: Annotated[Path | None, typer.Argument(metavar="FILE", exists=True, dir_okay=False, help="The policy to try.")] = None,
    version: Annotated[int | None, typer.Option("--version", min=1, help="A published version to try, instead of a file.")] = None,
    against: Annotated[
        str, typer.Option("--against", help="What it is held against: a version, or with --csv a file; in force by default.")
    ] = "",
    since: Annotated[str | None, typer.Option("--since", metavar="TIME", help="Requests from then on, such as 90d or 2026-01-01.")] = None,
    until: Annotated[str | None, typer.Option("--until", metavar="TIME", help="Requests before then.")] = None,
    requests: Annotated[
        Path | None, typer.Option("--csv", exists=True, dir_okay=False, help="Requests from a file instead; it stays on this machine.")
    ] = None,
    changed: Annotated[
        Path | None, typer.Option("--changed", metavar="FILE", help="A CSV file for every request that would change.")
    ] = None,
    picture: Annotated[Path | None, typer.Option("--picture", metavar="FILE", help="A picture, as .svg or .html.")] = None,
    show: Annotated[int, typer.Option("--show", min=0, max=1_000, help="How many of the changed requests are listed.")] = 20,
    exit_code: Annotated[bool, typer.Option("--exit-code", help=f"End with {DIFFERENT} when something would change.")] = False,
    as_json: Json = False,
) -> None:
    """Try a policy on past requests: who would have decided, what would have been denied. Nothing that counts is read for writing, or written.

    Each request is judged by itself on the facts that were recorded when it came.
    """
    out = Output(as_json)
    if (file is None) == (version is None):
        raise Misused("Name either a policy file or --version N.")
    if picture is not None:
        simulation_picture.check(picture)
    if requests is not None and (since or until):
        raise Misused("--since and --until choose recorded requests; a CSV file is taken whole.")
    with _kept(changed, show) as keeps:
        result = (
            _recorded(out, file, version, against, since, until, keeps)
            if requests is None
            else _from_csv(out, requests, file, version, against, keeps)
        )
    if picture is not None:
        simulation_picture.write(picture, result)
        out.say(f"The picture is in {picture}.")
    if as_json:
        out.json(result | {"changed_requests": keeps.first})
    else:
        simulation_view.show(out, result, keeps.first, most=show, kept_in=str(changed or ""))
    if exit_code and result["changed"]:
        raise typer.Exit(DIFFERENT)


class _Kept:
    """Takes each changed request: into the file, if there is one, and the first few for the list."""

    def __init__(self, most: int, write: Callable[[list[Any]], object] | None) -> None:
        self.first: list[dict[str, Any]] = []
        self._most, self._write = most, write

    def __call__(self, one: dict[str, Any]) -> None:
        if len(self.first) < self._most:
            self.first.append(one)
        if self._write is not None:
            before, after = one["before"], one["after"]
            row = [one["id"], one["amount"], one["currency"], one["reason"], before["way"], before["tier"], after["way"], after["tier"]]
            # A cell that begins like a formula is text for whoever opens it in a spreadsheet; an id from a CSV file could be one.
            cells = (*row, one["direction"], " ".join(one["checks"]))
            self._write([f"'{cell}" if str(cell).startswith(("=", "+", "-", "@", "\t", "\r")) else cell for cell in cells])


@contextmanager
def _kept(path: Path | None, most: int) -> Iterator[_Kept]:
    if path is None:
        yield _Kept(most, None)
        return
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(_COLUMNS)
        yield _Kept(most, writer.writerow)


def _recorded(
    out: Output, file: Path | None, version: int | None, against: str, since: str | None, until: str | None, keeps: _Kept
) -> dict[str, Any]:
    """Recorded requests, judged where they are."""
    if against and not against.isdigit():
        raise Misused("--against: recorded requests are held against a published version; name its number (a file works with --csv).")
    body = {
        "source": None if file is None else named(str(file), None).source,
        "version": version,
        "against": int(against) if against else None,
        "since": None if since is None else past(since, "--since"),
        "until": None if until is None else past(until, "--until"),
    }
    with Api() as api, _progress(out) as shows:
        for line in api.lines("/v1/policy/simulations", {name: value for name, value in body.items() if value is not None}):
            match line["type"]:
                case "progress":
                    shows(line["done"], line["total"])
                case "changed":
                    keeps(line["changed"])
                case "result":
                    return line["result"] | ({"after": {"version": None, "name": file.name}} if file is not None else {})
                case _:
                    raise Refused(0, line)
    raise Unreachable("The simulation broke off; there is no result. Repeat it.")


def _from_csv(out: Output, path: Path, file: Path | None, version: int | None, against: str, keeps: _Kept) -> dict[str, Any]:
    """Requests of a file, judged on this machine; only published versions are fetched."""
    after = named(str(file), None) if file is not None else from_api(version)
    before = named(against, "--against") if against else from_api(None)
    with _progress(out) as shows:
        return asyncio.run(_judge(out, path, before, after, keeps, shows))


async def _judge(out: Output, path: Path, before: Named, after: Named, keeps: _Kept, shows: Shows) -> dict[str, Any]:
    from cli.requests_csv import LeftOut, RequestsFile
    from refunds.policy.judges import BATCH, batch_of, judged
    from refunds.policy.simulation import Tally

    file, tally, said = RequestsFile(path, before.policy.base), Tally(), 0

    async def batches() -> AsyncIterator[str]:
        nonlocal said
        waiting: list[tuple[str, str]] = []
        for row in file.rows():
            if isinstance(row, LeftOut):
                tally.leave_out("the row cannot be read", f"line {row.line}")
                said += 1
                if said <= _MOST_SAID:
                    out.say(f"{path}: {row}")
                continue
            waiting.append((row.id, row.facts))
            if len(waiting) == BATCH:
                yield batch_of(waiting)
                waiting.clear()
        if waiting:
            yield batch_of(waiting)

    async for result in judged(before.source, after.source, batches()):
        tally.merge(result["tally"])
        for one in result["changed"]:
            keeps(one)
        shows(tally.requests, None)
    if said > _MOST_SAID:
        out.say(f"{path}: {said - _MOST_SAID} more rows cannot be read.")
    return {"before": before.shown, "after": after.shown, "file": path.name, "assumed": file.assumed, **tally.summary()}


_MOST_SAID = 20


@contextmanager
def _progress(out: Output) -> Iterator[Shows]:
    """A bar on a terminal, a line now and then in a pipe; both on stderr, so that stdout holds the result only."""
    if not out.messages_on_terminal:
        said = time.monotonic()

        def line(done: int, total: int | None) -> None:
            nonlocal said
            if time.monotonic() - said >= SAY_EVERY_S:
                out.say(f"{done:,} of {total:,} requests judged" if total is not None else f"{done:,} requests judged")
                said = time.monotonic()

        yield line
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TaskProgressColumn(),
        TextColumn("{task.fields[figures]}"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=out.messages, transient=True) as bar:
        task = bar.add_task("judging", total=None, figures="")
        yield lambda done, total: bar.update(task, completed=done, total=total, figures=f"{done:,}")
