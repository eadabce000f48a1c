"""Verify the export of a period: every file against its manifest, the manifest against the ledger's entry, the entry against what was signed.

With ``verifier.py`` beside it, it runs alone: ``python period_verifier.py DIRECTORY --key KEY``. Needs Python 3.11, ``cryptography`` and nothing else.
"""

import argparse
import hashlib
import json
import re
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

if __package__:
    from refunds.ledger.verifier import Kept, Key, Report, Wrong, keep, kept_notes, read_key, verify_proof
else:
    from verifier import Kept, Key, Report, Wrong, keep, kept_notes, read_key, verify_proof  # pyright: ignore[reportMissingImports]

FORMAT = "refunds period 1"
MANIFEST, PROOF = "manifest.json", "manifest.proof.json"
_NAME = re.compile(r"[a-z]{1,20}\.(jsonl|csv)")


def verify_period(directory: Path, keys: Sequence[Key], kept: Kept, now: datetime) -> Report:
    """Verify all files of a directory; returns what holds. Raises :class:`Wrong`, and ``OSError`` for what cannot be read."""
    text = (directory / MANIFEST).read_bytes()
    manifest = _manifest(text)
    proof = (directory / PROOF).read_bytes()
    report = verify_proof(proof, keys, kept, now)
    entry = json.loads(proof)["entry"]
    if entry["type"] != "period_exported":
        raise Wrong("other_entry", f"{PROOF} proves entry {entry['seq']}, which is no export of a period.", entry["seq"])
    if entry["data"].get("manifest") != hashlib.sha256(text).hexdigest():
        raise Wrong("changed", f"{MANIFEST} was changed: entry {entry['seq']} of the ledger is of another manifest.", entry["seq"])
    for name, said in manifest["files"].items():
        _verify_file(directory / name, name, said)
    more = sorted(p.name for p in directory.iterdir() if p.suffix.lower() in (".csv", ".jsonl") and p.name not in manifest["files"])
    if more:
        raise Wrong("changed", f"{more[0]} is no part of this export.")
    said = f"{len(manifest['files'])} files of {manifest['from']} to {manifest['to']}, all as exported. {report.said}"
    return Report(said, report.checkpoint)


def is_file_name(name: str) -> bool:
    """Whether a file of an export can be called that: it leads into no other directory."""
    return _NAME.fullmatch(name) is not None


def _manifest(text: bytes) -> dict[str, Any]:
    found: dict[str, Any] = {}
    try:
        found = json.loads(text)
        whole = found["format"] == FORMAT and all(
            _NAME.fullmatch(name) and set(said) == {"sha256", "records"} for name, said in found["files"].items()
        )
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        whole = False
    if not whole:
        raise Wrong("malformed", f"{MANIFEST} is not the manifest of an export in a form that this verifier knows.")
    return found


def _verify_file(path: Path, name: str, said: dict[str, Any]) -> None:
    digest = hashlib.sha256()
    try:
        with path.open("rb") as file:
            while block := file.read(1 << 20):
                digest.update(block)
    except FileNotFoundError:
        raise Wrong("missing", f"{name} is missing: the manifest names it.") from None
    if digest.hexdigest() != said["sha256"]:
        raise Wrong("changed", f"{name} was changed or cut off: it has another hash than the manifest says.")


def main(arguments: Sequence[str] | None = None) -> int:
    """Verify the directory that the arguments name; returns the exit code."""
    parser = argparse.ArgumentParser(description="Verify the export of a period of a refunds ledger.")
    parser.add_argument("directory", type=Path)
    parser.add_argument("--key", action="append", required=True, help="the log's verifier key, name+id+base64; may be given again")
    parser.add_argument(
        "--checkpoint", action="append", type=Path, default=[], help="a file of checkpoints kept earlier; may be given again"
    )
    given = parser.parse_args(arguments)
    try:
        keys = [read_key(key) for key in given.key]
        kept = keep((note for path in given.checkpoint for note in kept_notes(path.read_bytes())), keys)
        print(verify_period(given.directory, keys, kept, datetime.now(UTC)).said)  # noqa: TID251 - an auditor's own clock
    except Wrong as wrong:
        print(wrong, file=sys.stderr)
        return 2 if wrong.kind == "key" else 1
    except OSError as error:
        print(f"{error.filename or given.directory} cannot be read: {error.strerror}.", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
