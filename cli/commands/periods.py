"""``refunds ledger period``: everything of a period as files in a directory, with a manifest and the proof that the ledger stands behind it."""

import json
import time
from pathlib import Path
from typing import Annotated, Any

import typer

from cli.client import Api
from cli.options import Json, past
from cli.output import Output
from cli.problems import Exit, Misused, Problem
from refunds import period as files
from refunds.ledger.period_verifier import MANIFEST, PROOF, is_file_name

_WAIT_S = 20.0
_ASK_EVERY_S = 0.5


def period(
    since: Annotated[
        str, typer.Option("--from", metavar="TIME", help="Where it begins: 2026-03-01, an RFC 3339 time, or so long ago (30d).")
    ],
    until: Annotated[str, typer.Option("--to", metavar="TIME", help="Where it ends; the moment itself is no part of it.")],
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="A new or empty directory for the files.")],
    as_json: Json = False,
) -> None:
    """Write refunds, decisions, operations, attempts, settlements and ledger entries of a period into DIR: JSON Lines and CSV, manifest and proof. For auditors.

    Verify it with: refunds ledger verify DIR --key KEY.
    """
    out = Output(as_json)
    body = {"from": past(since, "--from"), "to": past(until, "--to")}
    _empty(directory)
    with Api() as api:
        told = _written(api, directory, body)
        proof = _proof(api, out, told)
    _put(directory / PROOF, json.dumps(proof, indent=2, ensure_ascii=False) + "\n")
    if as_json:
        out.json({"directory": str(directory), "manifest": told["manifest"], "seq": proof["seq"]})
    else:
        rows = [(name, said["records"], said["sha256"]) for name, said in told["manifest"]["files"].items()]
        out.table(("file", "records", "sha256"), rows)
        out.say(
            f"The ledger's entry {proof['seq']} stands behind {directory / MANIFEST}. To verify all of it: refunds ledger verify {directory} --key KEY"
        )


def _empty(directory: Path) -> None:
    try:
        directory.mkdir(parents=True, exist_ok=True)
        if any(directory.iterdir()):
            raise Misused(f"{directory} is not empty; name a new directory, so that nothing else is taken for a part of the export.")
    except OSError as error:
        raise Misused(f"{directory} cannot be written: {error.strerror}.") from error


def _written(api: Api, directory: Path, body: dict[str, str]) -> dict[str, Any]:
    """Write the files as they come, and the manifest; returns the last line. Raises :class:`Problem` when it was cut off."""
    last: dict[str, Any] = {}
    for line in api.lines("/v1/ledger/periods", body):
        last = line
        if line.get("file") is not None and not is_file_name(line["file"]):
            raise Problem("The API named a file that is none of an export's.", Exit.REFUSED)
        if line.get("file") is not None:
            _put(directory / line["file"], line["text"])
    if not last.get("manifest"):
        raise Problem("The export was cut off: what is in the directory is not whole. Repeat it with another directory.", Exit.UNREACHABLE)
    _put(directory / MANIFEST, files.manifest_text(last["manifest"]))
    return last


def _put(path: Path, text: str) -> None:
    try:
        with path.open("a", encoding="utf-8", newline="") as file:
            file.write(text)
    except OSError as error:
        raise Misused(f"{path} cannot be written: {error.strerror}.") from error


def _proof(api: Api, out: Output, told: dict[str, Any]) -> dict[str, Any]:
    """The proof of the entry, against a checkpoint that is made for it. Raises :class:`Problem` when the sequencer does not come to it."""
    wanted, until = files.manifest_hash(told["manifest"]), time.monotonic() + _WAIT_S
    out.say("The ledger is asked to sign it.")
    api.post("/v1/ledger/checkpoint", {})
    while True:
        size = api.get("/v1/ledger/checkpoint")["size"]
        page = api.get("/v1/ledger/entries", after=max(size - 200, 0), limit=200)["entries"]
        for one in page:
            if one["entry"]["type"] == files.ENTRY and one["entry"]["data"].get("manifest") == wanted and one["seq"] <= size:
                return api.get(f"/v1/ledger/proofs/{one['seq']}")
        if time.monotonic() >= until:
            raise Problem(
                f"The files are whole, and no checkpoint signs entry of row {told['entry']} yet; the sequencer is behind (docs/runbooks/ledger.md).",
                Exit.UNREACHABLE,
            )
        time.sleep(_ASK_EVERY_S)
