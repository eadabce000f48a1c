"""The files that an auditor takes away: an export, the proof of one entry, and that one checkpoint continues another. :mod:`refunds.ledger.verifier` reads them."""

from collections.abc import Sequence
from hashlib import sha256
from typing import Any

import rfc8785

from refunds.ledger.entry import parsed


class Export:
    """The lines of an export, in their order: a header with the checkpoint, each entry it signs, and the hash of all of that.

    An entry's line is the entry itself, so that whoever has the file can hash it without any program of ours.
    """

    def __init__(self) -> None:
        self._digest = sha256()

    def header(self, note: str) -> str:
        """The first line."""
        return self._line(rfc8785.dumps({"format": "refunds ledger export 1", "checkpoint": note}))

    def entry(self, entry: str) -> str:
        """The line of the next entry."""
        return self._line(entry.encode())

    def trailer(self) -> str:
        """The last line."""
        return rfc8785.dumps({"sha256": self._digest.hexdigest()}).decode() + "\n"

    def _line(self, content: bytes) -> str:
        line = content + b"\n"
        self._digest.update(line)
        return line.decode()


def proof(seq: int, entry: str, hashes: Sequence[bytes], note: str) -> dict[str, Any]:
    """The proof that an entry is among those that a checkpoint signs. Of other entries it holds nothing but hashes."""
    return {
        "format": "refunds ledger proof 1",
        "seq": seq,
        "entry": dict(parsed(entry)),
        "hashes": [one.hex() for one in hashes],
        "checkpoint": note,
    }


def consistency(older: str, newer: str, hashes: Sequence[bytes]) -> dict[str, Any]:
    """The proof that what one checkpoint signs begins with what an earlier one signed."""
    return {"format": "refunds ledger consistency 1", "older": older, "newer": newer, "hashes": [one.hex() for one in hashes]}
