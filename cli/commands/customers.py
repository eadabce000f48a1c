"""A customer as a person: forget one, hand out what is held of one, and how long what is personal is kept."""

import contextlib
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from cli.client import Api, segment
from cli.options import Json, Yes, confirm
from cli.output import Output
from cli.problems import Misused
from refunds.erasure import MOST_CHARACTERS, Because

retention = typer.Typer(help="How long what is personal is kept.", no_args_is_help=True)

_AT_ONCE = 500
_WITHIN_BYTES = 500_000

Customer = Annotated[
    str | None,
    typer.Option("--customer", metavar="ID", help="The merchant's own id of the customer; - reads it from the first line of stdin."),
]


def forget(
    customer: Customer = None,
    reason: Annotated[Because | None, typer.Option("--reason", help="Why; it is recorded for ever.")] = None,
    case: Annotated[str | None, typer.Option("--case", help="The number of a case. No names: it is recorded for ever.")] = None,
    replay: Annotated[
        Path | None,
        typer.Option(
            "--replay", metavar="FILE", exists=True, help="After a restore: forget again whoever stands on this list of erasures."
        ),
    ] = None,
    yes: Yes = False,
    as_json: Json = False,
) -> None:
    """Forget a customer: destroys their key and all that leads to the person. Cannot be undone; amounts, times and proofs stay."""
    out = Output(as_json)
    if replay is not None:
        if customer is not None or reason is not None or case is not None:
            raise Misused("Give --replay alone: who was forgotten, and why, stands on the list.")
        _replay(out, replay)
        return
    if customer is None or reason is None:
        raise Misused("Name --customer and --reason, or a list with --replay.")
    who = _read(customer)
    confirm(out, "Forget this customer for ever?", yes=yes)
    with Api() as api:
        done = api.post(f"/v1/customers/{segment(who)}/erasure", {"reason": reason.value} | ({"reference": case} if case else {}))
    if as_json:
        out.json(done)
        return
    removed = ", ".join(f"{count} {what if count != 1 else what.removesuffix('s')}" for what, count in done["removed"].items() if count)
    out.fields(
        [
            ("erasure", done["id"]),
            ("forgotten at", done["forgotten_at"]),
            ("kept under", done["customer"]),
            ("taken away", removed or "nothing more: forgotten already"),
            ("on the list outside", "yes" if done["listed"] else "no: set ERASURE_LIST, or a restore brings them back"),
        ]
    )


def _read(customer: str) -> str:
    """The id, which need not stand in the shell's history and the list of processes."""
    who = sys.stdin.readline().rstrip("\r\n") if customer == "-" else customer
    if not who.strip():
        raise Misused("--customer: the id is empty.")
    return who


def _replay(out: Output, where: Path) -> None:
    told, answer = {"lines": 0, "forgotten": 0, "absent": 0}, dict[str, Any]()
    with Api() as api:
        for first, lines, last in _parts(where):
            before = {f"{name}_before": count for name, count in told.items()}
            answer = api.post("/v1/erasures/replays", {"lines": lines, "first_line": first, "complete": last} | before)
            told = {name: answer[name] for name in told}
    if out.as_json:
        out.json(answer)
        return
    out.say(
        f"{told['lines']} lines: {told['forgotten']} forgotten again, {told['absent']} not in this database, the others were forgotten already."
    )


def _parts(where: Path) -> Iterator[tuple[int, list[str], bool]]:
    """The lines of a list (a file, or a directory with a file for each) in parts that a call takes; the number of the first one, and whether it is the last."""
    first, part, size = 1, list[str](), 0
    for text in _lines(where):
        if len(part) == _AT_ONCE or size > _WITHIN_BYTES:
            yield first, part, False
            first, part, size = first + len(part), [], 0
        part.append(text)
        size += len(text)
    yield first, part, True


def _lines(where: Path) -> Iterator[str]:
    files = sorted(where.glob("era_*.json")) if where.is_dir() else [where]
    for file in files:
        with file.open(encoding="utf-8", errors="replace") as opened:
            while text := opened.readline(MOST_CHARACTERS + 1):
                if text.strip():
                    yield text.rstrip("\n")[:MOST_CHARACTERS]


def export(
    customer: Customer = None,
    output: Annotated[Path | None, typer.Option("--output", "-o", metavar="FILE", help="Write the whole as JSON to this new file.")] = None,
    as_json: Json = False,
) -> None:
    """Everything that is held of a customer, for a request for access: a summary, and with --output or --json all of it."""
    if customer is None:
        raise Misused("Name the customer: --customer ID.")
    out = Output(as_json)
    path = f"/v1/customers/{segment(_read(customer))}/export"
    with Api() as api:
        if as_json:
            for part in api.text(path):
                out.part(part)
            return
        # A whole document is needed to show it; what one person has fits into memory.
        document = "".join(api.text(path))
    if output is not None:
        _write(output, document)
        out.say(f"{output} holds everything: hand it over, then delete it.")
    out.text("\n".join(json.loads(document)["summary"]))


def _write(path: Path, document: str) -> None:
    """To a file that nobody else on this machine can read, and that was not there."""
    try:
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        raise Misused(f"--output: {path} is there already; nothing is written over.") from None
    except OSError as error:
        raise Misused(f"--output: {path} cannot be written: {error.strerror}.") from None
    with contextlib.closing(os.fdopen(handle, "w", encoding="utf-8")) as file:
        file.write(document)


@retention.command("show")
def show(as_json: Json = False) -> None:
    """Show how long each kind is kept, why, and how much has had its time."""
    with Api() as api:
        answer = api.get("/v1/retention")
    out = Output(as_json)
    if as_json:
        out.json(answer)
        return
    rows = [(one["kind"], one["days"] or "until forgotten", one["due"], f"{one['what']}. {one['reason']}") for one in answer["kinds"]]
    out.table(("kind", "days", "due now", "what, and why so long"), rows, fold="what, and why so long")


@retention.command("run")
def run(dry_run: Annotated[bool, typer.Option("--dry-run", help="Only count.")] = False, yes: Yes = False, as_json: Json = False) -> None:
    """Take away what has had its time, as the worker does by itself once a day."""
    out = Output(as_json)
    if not dry_run:
        confirm(out, "Take away for ever what has had its time?", yes=yes)
    removed: dict[str, int] = {}
    with Api() as api:
        answer: dict[str, Any] = {"more": True}
        while answer["more"]:
            answer = api.post("/v1/retention/runs", {"dry_run": dry_run})
            removed = {kind: removed.get(kind, 0) + answer["removed"].get(kind, 0) for kind in removed | answer["removed"]}
    if as_json:
        out.json(answer | {"removed": removed})
        return
    counted = ", ".join(f"{count} {kind.replace('_', ' ')}" for kind, count in removed.items()) or "nothing"
    out.say(f"{'Has had its time' if dry_run else 'Taken away'}: {counted}.")
