"""``refunds ledger``: the record of a refund in words, and the chained ledger: checkpoints, proofs and exports to take away, and verifying all of it.

Files are verified here, by the same module that an auditor can run alone. The database is verified by a program of its own that reads it with the auditor's
login: an API in between would be one more thing to believe.
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from cli import ledger_view
from cli.client import Api, segment
from cli.commands import periods
from cli.connection import addresses, home
from cli.options import Json, RefundId
from cli.output import Output
from cli.problems import Exit, Misused, Problem
from refunds.clock import SystemClock
from refunds.ledger import files, verifier
from refunds.ledger.period_verifier import verify_period

PAGE = 1_000
SAY_EVERY_S = 1.0

Keys = Annotated[
    list[str] | None,
    typer.Option("--key", metavar="KEY", help="The log's verifier key (name+id+base64), which you kept. May be given again."),
]
Checkpoints = Annotated[
    list[Path] | None,
    typer.Option("--checkpoint", metavar="FILE", help="Checkpoints you kept: what they sign must still be so. May be given again."),
]
Out = Annotated[Path | None, typer.Option("--out", "-o", metavar="FILE", help="Write it into this file; otherwise to stdout.")]


class _OrShow(TyperGroup):
    """``refunds ledger REFUND`` is ``refunds ledger show REFUND``: what most people want of a ledger is the record of one refund."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """As the library does, with ``show`` where no command is named."""
        if args and args[0] not in self.commands and args[0] not in ("--help", "-h"):
            args = ["show", *args]
        return super().parse_args(ctx, args)


ledger = typer.Typer(
    cls=_OrShow, no_args_is_help=True, help="The record of a refund (REFUND alone is enough), and the ledger that proves itself."
)


@ledger.command()
def show(refund: RefundId, as_json: Json = False) -> None:
    """Show the record of one refund: every change, when, by whom, and what it was. For auditors and reviewers."""
    out = Output(as_json)
    with Api() as api:
        found = api.get(f"/v1/refunds/{segment(refund)}/ledger")
        names = {} if as_json else ledger_view.names_in(api.refund(refund))
    if as_json:
        out.json(found)
    else:
        ledger_view.show(out, found["entries"], names)


@ledger.command()
def checkpoint(
    new: Annotated[bool, typer.Option("--new", help="Have one made now, over everything that was entered.")] = False,
    out_file: Out = None,
    as_json: Json = False,
) -> None:
    """Show the newest signed checkpoint; with --out the note itself, to be kept where nobody here can change it. For auditors."""
    out = Output(as_json)
    with Api() as api:
        found = api.post("/v1/ledger/checkpoint", {})["checkpoint"] if new else None
        if new and found is None:
            out.say("It was asked for and is not there yet; this is the newest.")
        found = found or api.get("/v1/ledger/checkpoint")
    if out_file is not None:
        _write(out_file, [found["note"]])
        out.say(f"The checkpoint over {found['size']} entries is in {out_file}.")
    if as_json:
        out.json(found)
    elif out_file is None:
        out.fields(
            [
                *((name.replace("_", " "), found[name]) for name in ("origin", "size", "root", "made_at", "entries", "unnumbered")),
                ("behind", f"{found['behind_s']} s"),
                *(("key", key) for key in found["keys"]),
                *(("copies to", _copy_in_words(copy)) for copy in found["copies"]),
            ]
        )


@ledger.command()
def prove(
    seq: Annotated[int, typer.Argument(metavar="SEQ", min=1, help="The entry's number in the ledger.")],
    size: Annotated[
        int | None, typer.Option("--size", min=1, help="Against the checkpoint of so many entries; by default the newest.")
    ] = None,
    out_file: Out = None,
) -> None:
    """Write the proof that one entry is in the ledger: a file that holds by itself and shows nothing of other customers."""
    with Api() as api:
        found = api.get(f"/v1/ledger/proofs/{seq}", size=size)
    _give(found, out_file, f"The proof of entry {seq}")


@ledger.command()
def consistency(
    older: Annotated[int, typer.Argument(metavar="OLDER", min=1, help="How many entries the earlier checkpoint signs.")],
    newer: Annotated[int | None, typer.Argument(metavar="[NEWER]", min=1, help="And the later one; by default the newest.")] = None,
    out_file: Out = None,
) -> None:
    """Write the proof that one checkpoint continues another: that nothing which the earlier one signs was changed."""
    with Api() as api:
        found = api.get("/v1/ledger/consistency", older=older, newer=newer)
    _give(found, out_file, "The proof of consistency")


@ledger.command()
def export(out_file: Annotated[Path, typer.Option("--out", "-o", metavar="FILE", help="The file to write.")]) -> None:
    """Write every entry up to the newest checkpoint into one file, which can be verified with the log's key alone. For auditors."""
    out = Output()
    with Api() as api:
        note = api.get("/v1/ledger/checkpoint")["note"]
        size = verifier.read_text(verifier.read_note(note.encode())[0]).size
        _write(out_file, _exported(api, out, note, size))
    out.say(f"{size} entries are in {out_file}. To verify it: refunds ledger verify {out_file} --key KEY")


ledger.command()(periods.period)


@ledger.command()
def verify(
    file: Annotated[
        Path | None,
        typer.Argument(
            metavar="[FILE]", help="An export, a proof, or the directory of a period. Without one the database itself is verified."
        ),
    ] = None,
    keys: Keys = None,
    kept: Checkpoints = None,
    seq: Annotated[int | None, typer.Option("--seq", min=1, help="The entry that a proof must be of.")] = None,
    as_json: Json = False,
) -> None:
    """Verify the ledger: a file with the key alone, or (DATABASE_URL_AUDITOR) everything in PostgreSQL. Names the first entry that is wrong, and how.

    Exit code 0: it holds; 1: it does not; 2: it cannot be verified.
    """
    if file is None:
        raise typer.Exit(_verify_database(keys or [], kept or [], as_json))
    if not keys:
        raise Misused("--key: give the verifier key of the log, which you got from elsewhere; a file cannot vouch for itself.")
    try:
        trusted = [verifier.read_key(key) for key in keys]
        held = verifier.keep((note for path in kept or [] for note in verifier.kept_notes(path.read_bytes())), trusted)
        now = SystemClock().now()
        whole = file.is_dir() and seq is None
        report = verify_period(file, trusted, held, now) if whole else verifier.verify_file(file, trusted, held, now, seq)
    except verifier.Wrong as wrong:
        if as_json:
            Output(as_json).json({"verified": False, "kind": wrong.kind, "entry": wrong.seq, "what": str(wrong)})
        raise Problem(str(wrong), Exit.MISUSED if wrong.kind == "key" else Exit.REFUSED) from None
    except OSError as error:
        raise Misused(f"{error.filename or file} cannot be read: {error.strerror}.") from None
    if as_json:
        Output(as_json).json(
            {"verified": True, "what": report.said, "signed_by": report.checkpoint.signed_by, "unknown": report.checkpoint.unknown}
        )
    else:
        Output().say(report.said)


def _verify_database(keys: Sequence[str], kept: Sequence[Path], as_json: bool) -> int:
    """Run the program that verifies the database, whose output and exit code are this command's."""
    arguments = [part for key in keys for part in ("--key", key)] + [part for path in kept for part in ("--checkpoint", str(path))]
    environment = os.environ | {"DATABASE_URL": _auditors_database()}
    argv = [sys.executable, "-P", "-m", "store.verify", *arguments, *(["--json"] if as_json else [])]
    return subprocess.run(argv, env=environment, check=False).returncode


def _auditors_database() -> str:
    """The address of the database with the auditor's login: from the environment, or the local stack's."""
    given = os.environ.get("DATABASE_URL_AUDITOR", "").strip()
    if given:
        return given
    try:
        password = json.loads((home() / "postgres-passwords.json").read_text())["refunds_auditor"]
        return f"postgresql://refunds_auditor:{password}@{addresses(home())['postgres']}/refunds"
    except (OSError, ValueError, KeyError):
        raise Misused("Set DATABASE_URL_AUDITOR to the database's address with the auditor's login; no local stack runs here.") from None


def _exported(api: Api, out: Output, note: str, size: int) -> Iterator[str]:
    written, after, said = files.Export(), 0, time.monotonic()
    yield written.header(note)
    while after < size:
        page = api.get("/v1/ledger/entries", after=after, limit=min(PAGE, size - after))["entries"]
        for one in page:
            line = verifier.canonical(one["entry"])
            if one["seq"] != after + 1 or verifier.leaf_hash(line).hex() != one["hash"]:
                raise Problem(
                    f"The API gave entry {after + 1} in a form that is not the one that was hashed; verify the database.", Exit.REFUSED
                )
            after += 1
            yield written.entry(line.decode())
        if not page:
            raise Problem(f"The API has no entry {after + 1}, and the checkpoint signs {size}; verify the database.", Exit.REFUSED)
        if time.monotonic() - said >= SAY_EVERY_S:
            said = time.monotonic()
            out.say(f"{after} of {size} entries")
    yield written.trailer()


def _give(found: dict[str, Any], out_file: Path | None, what: str) -> None:
    if out_file is None:
        Output(True).json(found)
        return
    _write(out_file, [json.dumps(found, indent=2, ensure_ascii=False) + "\n"])
    Output().say(f"{what} is in {out_file}. To verify it: refunds ledger verify {out_file} --key KEY")


def _write(path: Path, parts: Sequence[str] | Iterator[str]) -> None:
    """Write a file whole or not at all. Raises :class:`Misused`."""
    part = path.with_name(f"{path.name}.part")
    try:
        with part.open("w", encoding="utf-8", newline="") as file:
            for text in parts:
                file.write(text)
        part.replace(path)
    except OSError as error:
        raise Misused(f"{path} cannot be written: {error.strerror}.") from error


def _copy_in_words(copy: dict[str, Any]) -> str:
    waiting = f"; {copy['waiting']} wait: {copy['last_error'] or 'not tried yet'}" if copy["waiting"] else ""
    return f"{copy['target']} (last one {copy['last_done_at'] or 'never'}{waiting})"
