"""Reading the chain: entries, proofs, checkpoints, and how far it is behind. Nothing here writes."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import BigInteger, Text, and_, bindparam, column, exists, func, literal, select
from sqlalchemy.dialects.postgresql import ARRAY
from sqlalchemy.ext.asyncio import AsyncConnection

from refunds.errors import Code, RefundError
from refunds.ledger import files, merkle
from refunds.ledger.merkle import HashOf, Span
from store.sql import Query, Row
from store.tables import ledger, ledger_checkpoints, ledger_entries, ledger_exports, ledger_nodes

MOST_COUNTED = 100_000
"""A lag is counted so far."""

LOOKED_BACK = 2_000
"""So many ids before the newest numbered row are looked at for one without a number."""

_WANTED = (
    func.unnest(bindparam("levels", type_=ARRAY(BigInteger)), bindparam("positions", type_=ARRAY(BigInteger)))
    .table_valued(column("level"), column("position"))
    .render_derived()
)
_READ_NODES = Query(
    select(ledger_nodes.c.level, ledger_nodes.c.position, ledger_nodes.c.hash).join(
        _WANTED, and_(ledger_nodes.c.level == _WANTED.c.level, ledger_nodes.c.position == _WANTED.c.position)
    )
)
_READ_LEAVES = Query(
    select(ledger_entries.c.seq, ledger_entries.c.hash).where(ledger_entries.c.seq == func.any(bindparam("seqs", type_=ARRAY(BigInteger))))
)
_ENTRY = Query(select(ledger_entries.c.seq, ledger_entries.c.entry).where(ledger_entries.c.seq == bindparam("seq", type_=BigInteger)))
_PAGE = Query(
    select(ledger_entries.c.seq, ledger_entries.c.entry, ledger_entries.c.hash)
    .where(ledger_entries.c.seq > bindparam("after", type_=BigInteger), ledger_entries.c.seq <= bindparam("until", type_=BigInteger))
    .order_by(ledger_entries.c.seq)
    .limit(bindparam("most", type_=BigInteger))
)
_OF_REFUND = Query(
    select(ledger, ledger_entries.c.seq, ledger_entries.c.entry)
    .outerjoin(ledger_entries, ledger_entries.c.ledger_id == ledger.c.id)
    .where(ledger.c.refund_id == bindparam("refund", type_=Text))
    .order_by(ledger.c.refund_version)
)
_CHECKPOINTS = select(ledger_checkpoints)
_NEWEST = Query(_CHECKPOINTS.order_by(ledger_checkpoints.c.size.desc(), ledger_checkpoints.c.id.desc()).limit(1))
_OF_SIZE = Query(
    _CHECKPOINTS.where(ledger_checkpoints.c.size == bindparam("size", type_=BigInteger)).order_by(ledger_checkpoints.c.id.desc()).limit(1)
)
_COPIES = Query(
    select(
        ledger_exports.c.target,
        func.count().filter(ledger_exports.c.done_at.is_(None)).label("waiting"),
        func.max(ledger_exports.c.done_at).label("last_done_at"),
        func.min(ledger_exports.c.last_error).filter(ledger_exports.c.done_at.is_(None)).label("last_error"),
    )
    .group_by(ledger_exports.c.target)
    .order_by(ledger_exports.c.target)
)
_AFTER = bindparam("after", type_=BigInteger)
_BEHIND = (
    select(ledger.c.at)
    .where(
        ledger.c.id > _AFTER,
        ~exists().where(ledger_entries.c.ledger_id == ledger.c.id, ledger_entries.c.ledger_id > _AFTER),
    )
    .order_by(ledger.c.id)
    .limit(literal(MOST_COUNTED))
).subquery()
_HEAD_ID = Query(select(func.coalesce(func.max(ledger_entries.c.ledger_id), 0)))
_STANDING = Query(
    select(
        select(func.coalesce(func.max(ledger_entries.c.seq), 0)).scalar_subquery().label("size"),
        select(func.count()).select_from(_BEHIND).scalar_subquery().label("waiting"),
        select(func.min(_BEHIND.c.at)).scalar_subquery().label("oldest_at"),
        select(func.max(ledger_checkpoints.c.size)).scalar_subquery().label("signed"),
        select(ledger_checkpoints.c.made_at)
        .order_by(ledger_checkpoints.c.id.desc())
        .limit(literal(1))
        .scalar_subquery()
        .label("signed_at"),
        select(func.count()).where(ledger_exports.c.done_at.is_(None)).scalar_subquery().label("copies_waiting"),
        select(func.count())
        .where(ledger_exports.c.done_at.is_(None), ledger_exports.c.tries > literal(0), ledger_exports.c.last_error.is_not(None))
        .scalar_subquery()
        .label("copies_failing"),
    )
)


@dataclass(frozen=True, slots=True)
class Standing:
    """How the chain stands: entries with a number, rows without one (counted up to :data:`MOST_COUNTED`) and since when, what is signed, which copies wait."""

    size: int
    waiting: int
    oldest_at: datetime | None
    signed: int | None
    signed_at: datetime | None
    copies_waiting: int
    copies_failing: int

    def behind_s(self, now: datetime) -> float:
        """For how long the oldest row without a number has waited, in seconds."""
        return 0.0 if self.oldest_at is None else max((now - self.oldest_at).total_seconds(), 0.0)

    def figures(self, now: datetime) -> dict[str, float]:
        """The same by names, for metrics; without an age of a checkpoint where there is none."""
        age = {} if self.signed_at is None else {"checkpoint_age_seconds": max((now - self.signed_at).total_seconds(), 0.0)}
        return age | {
            "entries": self.size,
            "unnumbered": self.waiting,
            "unnumbered_seconds": self.behind_s(now),
            "signed": self.signed or 0,
            "copies_waiting": self.copies_waiting,
            "copies_failing": self.copies_failing,
        }


async def standing(connection: AsyncConnection) -> Standing:
    """How the chain stands now, at a cost that does not grow with the ledger. A row that was passed over long ago is found by the sequencer."""
    head = await _HEAD_ID.value(connection)
    return Standing(**await _STANDING.one(connection, after=max(head - LOOKED_BACK, 0)))


async def read_nodes(connection: AsyncConnection, spans: Iterable[Span]) -> HashOf:
    """What is stored of the tree to make the hashes of these spans. Asked for a node that is not there, what is returned raises ``KeyError``."""
    wanted = sorted(merkle.stored_of(spans))
    leaves = [position + 1 for level, position in wanted if level == 0]
    inner = [node for node in wanted if node[0]]
    found = {(0, row["seq"] - 1): bytes(row["hash"]) for row in (await _READ_LEAVES.all(connection, seqs=leaves) if leaves else ())}
    if inner:
        rows = await _READ_NODES.all(connection, levels=[node[0] for node in inner], positions=[node[1] for node in inner])
        found |= {(row["level"], row["position"]): bytes(row["hash"]) for row in rows}
    return merkle.from_stored(found)


async def root_at(connection: AsyncConnection, size: int) -> bytes:
    """The root over the first ``size`` entries, from what is stored. Raises ``KeyError`` when something of it is missing."""
    return merkle.span_hash((0, size), await read_nodes(connection, [(0, size)]))


async def entries(connection: AsyncConnection, *, after: int, until: int, limit: int) -> list[Row]:
    """Entries in their order, from the one after ``after`` to ``until``: number, canonical text and hash."""
    return list(await _PAGE.all(connection, after=after, until=until, most=limit))


async def newest_checkpoint(connection: AsyncConnection) -> Row | None:
    """The checkpoint that signs most, and of those the newest."""
    return await _NEWEST.first(connection)


async def checkpoint_of(connection: AsyncConnection, size: int) -> Row:
    """The newest checkpoint that signs exactly so many entries. Raises ``CHECKPOINT_NOT_FOUND``."""
    found = await _OF_SIZE.first(connection, size=size)
    if found is None:
        raise RefundError(Code.CHECKPOINT_NOT_FOUND, f"No checkpoint signs {size} entries.", size=size)
    return found


async def copies(connection: AsyncConnection) -> list[Row]:
    """Where copies of checkpoints go, how many wait for each place, when the last one arrived, and what went wrong last."""
    return list(await _COPIES.all(connection))


async def proof_of(connection: AsyncConnection, seq: int, size: int | None = None) -> dict[str, object]:
    """The proof file of one entry, against the newest checkpoint or that of ``size``.

    Raises ``LEDGER_ENTRY_NOT_FOUND`` for a number that was not given, and ``CHECKPOINT_NOT_FOUND`` when no checkpoint signs it yet.
    """
    row = await _ENTRY.first(connection, seq=seq)
    if row is None:
        raise RefundError(Code.LEDGER_ENTRY_NOT_FOUND, f"The ledger has no entry {seq}.", seq=seq)
    checkpoint = await newest_checkpoint(connection) if size is None else await checkpoint_of(connection, size)
    if checkpoint is None or checkpoint["size"] < seq:
        raise RefundError(Code.CHECKPOINT_NOT_FOUND, f"No checkpoint signs entry {seq} yet.", seq=seq)
    [hashes] = await _inclusion(connection, [seq], checkpoint["size"])
    return files.proof(seq, row["entry"], hashes, checkpoint["note"])


async def consistency_between(connection: AsyncConnection, older: int, newer: int | None) -> dict[str, object]:
    """The proof that the checkpoint of ``newer`` entries (or the newest) continues that of ``older``. Raises ``CHECKPOINT_NOT_FOUND``."""
    first = await checkpoint_of(connection, older)
    second = await newest_checkpoint(connection) if newer is None else await checkpoint_of(connection, newer)
    assert second is not None
    if second["size"] < older:
        raise RefundError(Code.INVALID_FIELD, "The newer checkpoint must sign at least as many entries as the older one.", field="newer")
    spans = merkle.consistency_spans(older, second["size"])
    hash_of = await read_nodes(connection, spans)
    return files.consistency(first["note"], second["note"], [merkle.span_hash(span, hash_of) for span in spans])


async def of_refund(connection: AsyncConnection, refund_id: str, *, proofs: bool) -> list[dict[str, Any]]:
    """The rows about a refund in their order, each with its number in the chain, once it has one; with ``proofs`` each that a checkpoint signs has its proof."""
    rows = await _OF_REFUND.all(connection, refund=refund_id)
    checkpoint = await newest_checkpoint(connection) if proofs else None
    files_by_seq: dict[int, dict[str, Any]] = {}
    if checkpoint is not None:
        proven = [row for row in rows if row["seq"] is not None and row["seq"] <= checkpoint["size"]]
        hashes = await _inclusion(connection, [row["seq"] for row in proven], checkpoint["size"])
        for row, path in zip(proven, hashes, strict=True):
            files_by_seq[row["seq"]] = files.proof(row["seq"], row["entry"], path, checkpoint["note"])
    return [{name: row[name] for name in row if name != "entry"} | {"proof": files_by_seq.get(row["seq"])} for row in rows]


async def _inclusion(connection: AsyncConnection, seqs: Sequence[int], size: int) -> list[list[bytes]]:
    """The inclusion proofs of several entries in the tree of that size, from one reading of what is stored."""
    spans = [merkle.inclusion_spans(seq - 1, size) for seq in seqs]
    hash_of = await read_nodes(connection, [span for one in spans for span in one])
    return [[merkle.span_hash(span, hash_of) for span in one] for one in spans]
