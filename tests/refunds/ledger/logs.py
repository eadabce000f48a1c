"""A small log for the tests of the ledger's domain: its entries, keys, checkpoints and files, made by our own writing side."""

import json
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from refunds.ledger import files, merkle, notes, verifier
from refunds.ledger.entry import Numbered, Recorded, number

ORIGIN = "shop.example/refunds"
START = datetime(2026, 3, 1, 12, tzinfo=UTC)
NOW = START + timedelta(days=1)
KEY = notes.SigningKey.from_seed(ORIGIN, bytes(range(32)))
NEXT_KEY = notes.SigningKey.from_seed(ORIGIN, bytes(range(32, 64)))


def keys(*given: notes.SigningKey) -> list[verifier.Key]:
    """What an auditor was given."""
    return [verifier.read_key(key.vkey) for key in given or (KEY,)]


def row(index: int, **changed: Any) -> Recorded:
    """A row as the database has them: some of a refund, some not, some with what only UTF-8 can say."""
    of_refund = index % 3 != 0
    version = sum(other % 3 != 0 for other in range(index // 30 * 30, index + 1))
    given: dict[str, Any] = {
        "id": index,
        "at": START + timedelta(seconds=index, microseconds=index),
        "type": ("status_changed" if version > 1 else "refund_received") if of_refund else "order_recorded",
        "refund_id": f"rf_{index // 30}" if of_refund else None,
        "refund_version": version if of_refund else None,
        "actor": "pr_1",
        "on_behalf_of": None,
        "data": json.dumps({"from": "received", "to": "received", "amount": index, "note": "ä€😀" if index % 7 == 0 else "plain"}),
        "commitments": json.dumps({"message": "ab" * 32}) if index % 5 == 0 else None,
    }
    return Recorded(**given | changed)


@dataclass
class Log:
    """So many entries, chained."""

    entries: list[Numbered] = field(default_factory=list)
    origin: str = ORIGIN

    @classmethod
    def of(cls, size: int, **changed: Any) -> "Log":
        log = cls()
        for index in range(size):
            log.add(row(index, **changed))
        return log

    def add(self, one: Recorded) -> None:
        previous = self.entries[-1].hash if self.entries else merkle.EMPTY_ROOT
        self.entries.append(number(one, len(self.entries) + 1, previous))

    def leaves(self) -> dict[merkle.Node, bytes]:
        return {(0, entry.seq - 1): entry.hash for entry in self.entries}

    def hash_of(self, node: merkle.Node) -> bytes:
        level, position = node
        if level == 0:
            return self.entries[position].hash
        return merkle.node_hash(self.hash_of((level - 1, 2 * position)), self.hash_of((level - 1, 2 * position + 1)))

    def root(self, size: int | None = None) -> bytes:
        return merkle.span_hash((0, len(self.entries) if size is None else size), self.hash_of)

    def note(self, size: int | None = None, *signers: notes.SigningKey) -> str:
        size = len(self.entries) if size is None else size
        return notes.signed(notes.checkpoint_text(self.origin, size, self.root(size)), signers or (KEY,))

    def export(self, note: str | None = None) -> bytes:
        export = files.Export()
        lines = [export.header(note or self.note()), *(export.entry(entry.entry) for entry in self.entries), export.trailer()]
        return "".join(lines).encode()

    def proof(self, seq: int, size: int | None = None) -> dict[str, Any]:
        size = len(self.entries) if size is None else size
        hashes = [merkle.span_hash(span, self.hash_of) for span in merkle.inclusion_spans(seq - 1, size)]
        return files.proof(seq, self.entries[seq - 1].entry, hashes, self.note(size))

    def consistency(self, older: int, newer: int) -> dict[str, Any]:
        hashes = [merkle.span_hash(span, self.hash_of) for span in merkle.consistency_spans(older, newer)]
        return files.consistency(self.note(older), self.note(newer), hashes)


def sealed(lines: list[bytes]) -> bytes:
    """An export of these lines (the header and the entries) with the right hash at its end: what somebody makes who changes a file and knows how it ends."""
    export = files.Export()
    written = "".join(export.entry(line.decode()) for line in lines)
    return (written + export.trailer()).encode()


def judged(data: bytes, *kept: str, given: list[verifier.Key] | None = None, now: datetime = NOW) -> verifier.Report:
    """What the verifier says of an export."""
    trusted = given or keys()
    return verifier.verify_export(data.splitlines(keepends=True), trusted, verifier.keep((note.encode() for note in kept), trusted), now)
