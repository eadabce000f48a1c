"""The ledger as the API shows it: entries, proofs as files to take away, checkpoints, and how far the chain is."""

import base64
from datetime import datetime
from typing import Annotated, Any

from pydantic import AwareDatetime, Field

from api.schemas import Shape
from refunds.ledger.entry import parsed
from refunds.orders import Strict
from store.chain import Standing
from store.sql import Row

Hash = Annotated[str, Field(pattern="^[0-9a-f]{64}$", description="SHA-256, in hex.")]
Note = Annotated[str, Field(description="A C2SP signed note: the log, how many entries, the root over them, and the signatures.")]


class Entry(Shape):
    """An entry of the chain. Its RFC 8785 form is what is hashed."""

    v: int
    seq: int
    at: AwareDatetime
    type: str
    refund: str | None
    refund_version: int | None
    actor: str
    on_behalf_of: str | None
    data: dict[str, Any]
    commitments: dict[str, str] | None
    previous: Hash


class ProofFile(Shape):
    """That one entry is among those a checkpoint signs: whole in itself, with nothing of other entries but hashes. ``docs/ledger.md`` says how it is verified."""

    format: str
    seq: int
    entry: Entry
    hashes: list[Hash]
    checkpoint: Note


class ConsistencyFile(Shape):
    """That what one checkpoint signs begins with what an earlier one signed."""

    format: str
    older: Note
    newer: Note
    hashes: list[Hash]


class LedgerEntry(Shape):
    """One entry of a refund's record. ``seq`` is its number in the chain, once it has one; ``proof`` is there when it was asked for and a checkpoint signs it."""

    id: int
    at: AwareDatetime
    type: str
    refund_id: str
    refund_version: int
    actor: str
    on_behalf_of: str | None
    data: dict[str, Any]
    commitments: Annotated[
        dict[str, str] | None, Field(description="What it commits to without showing it: the name of a personal value, and a salted hash.")
    ]
    seq: int | None
    proof: ProofFile | None


class LedgerView(Shape):
    """The record of a refund."""

    refund: str
    entries: list[LedgerEntry]


class NumberedEntry(Shape):
    """An entry and its hash, which the next one names and the tree is made of."""

    seq: int
    hash: Hash
    entry: Entry


class EntryPage(Shape):
    """Entries in their order. ``size`` is how many there are."""

    entries: list[NumberedEntry]
    size: int
    next_after: int | None


class CopyView(Shape):
    """A place that copies of checkpoints go to: how many wait, and what went wrong last."""

    target: str
    waiting: int
    last_done_at: AwareDatetime | None
    last_error: str | None


class CheckpointView(Shape):
    """The newest checkpoint, and how far the chain has gone since."""

    origin: str
    size: int
    root: Annotated[str, Field(description="Base64, as it stands in the note.")]
    note: Note
    made_at: AwareDatetime
    keys: Annotated[list[str], Field(description="The verifier keys that signed it. Whoever verifies must have them from elsewhere.")]
    entries: Annotated[int, Field(description="Entries that have a number.")]
    unnumbered: Annotated[int, Field(description="Rows that wait for one, of the newest; counted up to 100,000.")]
    behind_s: Annotated[int, Field(description="Since when the oldest of them waits, in seconds.")]
    copies: list[CopyView]


class NewCheckpoint(Strict):
    """That one is wanted: there is nothing to say of it."""


class CheckpointAsked(Shape):
    """That a checkpoint was asked for. ``checkpoint`` is it, or null while the sequencer has not come to it."""

    checkpoint: CheckpointView | None


def checkpoint(row: Row, standing: Standing, copies: list[Row], now: datetime) -> dict[str, Any]:
    """A checkpoint."""
    return {
        "origin": row["origin"],
        "size": row["size"],
        "root": base64.b64encode(bytes(row["root"])).decode(),
        "note": row["note"],
        "made_at": row["made_at"],
        "keys": row["keys"],
        "entries": standing.size,
        "unnumbered": standing.waiting,
        "behind_s": int(standing.behind_s(now)),
        "copies": [dict(copy) for copy in copies],
    }


def numbered(row: Row) -> dict[str, Any]:
    """An entry of the chain."""
    return {"seq": row["seq"], "hash": bytes(row["hash"]).hex(), "entry": dict(parsed(row["entry"]))}


def in_words(standing: Standing, now: datetime, *, rows: int, seconds: float) -> str:
    """How the chain stands, for ``/readyz``: ``ok``, or what is behind."""
    said: list[str] = []
    if standing.waiting > rows or standing.behind_s(now) > seconds:
        said.append(f"behind: {standing.waiting} entries wait for a number, the oldest for {int(standing.behind_s(now))} s")
    if standing.copies_failing:
        said.append(f"{standing.copies_failing} copies of checkpoints do not arrive")
    return "; ".join(said) or "ok"
