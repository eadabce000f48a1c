"""The sequencer: gives every row of the ledger that has no number yet its place in the chain. Nothing waits for it.

Rows are found by having no number, never by a mark up to which all is supposed done: their ids commit out of order. Most rounds look at the newest rows only,
because that is where they are; every so often one looks at all, so that no row is passed over for longer than that.

One works at a time, under an advisory lock; that a number, a row and a parent are unique makes a fork impossible even without it. A batch is one transaction,
so that whoever dies over it has done nothing. The order is that of the rows' ids, in which each refund's versions follow each other; no clock has a say in it.
A version whose predecessor is not there is not numbered, and neither is what follows it: that is said, and stays visible.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from sqlalchemy import BigInteger, Text, bindparam, cast, column, exists, func, insert, literal, select
from sqlalchemy.dialects.postgresql import ARRAY, JSONB
from sqlalchemy.ext.asyncio import AsyncConnection

from refunds import points
from refunds.ledger import merkle
from refunds.ledger.entry import Numbered, Recorded, number
from refunds.ledger.merkle import EMPTY_ROOT, STORED_EVERY, Frontier, Made
from store.chain import read_nodes
from store.db import Database
from store.sql import Query
from store.tables import ledger, ledger_entries, ledger_nodes

LOCK = 0x4C45_4447
BATCH = 200
"""So many rows are one transaction: some ten milliseconds, in a process that has other things to do."""

WINDOW = 2_000
"""How far before the newest numbered row an ordinary round begins to look. Commits that are later than so many others are found by the looks at everything."""

SLICE = 100_000
"""So many ids are looked at in one statement when everything is."""

_TRY_LOCK = Query(select(func.pg_try_advisory_xact_lock(bindparam("lock", type_=BigInteger))))
_HEAD = Query(select(ledger_entries.c.seq, ledger_entries.c.hash).order_by(ledger_entries.c.seq.desc()).limit(1))
_NEWEST = Query(select(func.coalesce(func.max(ledger_entries.c.ledger_id), 0)))
_AFTER, _UNTIL = bindparam("after", type_=BigInteger), bindparam("until", type_=BigInteger)
# The bound stands on both sides, because PostgreSQL does not carry it over: without it every look would read all that is numbered.
_NO_NUMBER = (ledger.c.id > _AFTER) & ~exists().where(ledger_entries.c.ledger_id == ledger.c.id, ledger_entries.c.ledger_id > _AFTER)
_WITHOUT_NUMBER = Query(
    select(
        *(ledger.c[name] for name in ("id", "at", "type", "refund_id", "refund_version", "actor", "on_behalf_of")),
        cast(ledger.c.data, Text).label("data"),
        cast(ledger.c.commitments, Text).label("commitments"),
    )
    .where(_NO_NUMBER)
    .order_by(ledger.c.id)
    .limit(literal(BATCH))
)
_ANY = Query(select(exists().where(_NO_NUMBER)))
_FIRST = Query(select(func.min(ledger.c.id)).where(ledger.c.id > _AFTER))
_FIRST_IN_SLICE = Query(
    select(func.min(ledger.c.id)).where(
        ledger.c.id > _AFTER,
        ledger.c.id <= _UNTIL,
        ~exists().where(
            ledger_entries.c.ledger_id == ledger.c.id, ledger_entries.c.ledger_id > _AFTER, ledger_entries.c.ledger_id <= _UNTIL
        ),
    )
)
_VERSIONS = Query(
    select(ledger.c.refund_id, func.max(ledger.c.refund_version).label("version"))
    .join(ledger_entries, ledger_entries.c.ledger_id == ledger.c.id)
    .where(ledger.c.refund_id == func.any(bindparam("refunds", type_=ARRAY(Text))))
    .group_by(ledger.c.refund_id)
)
# As JSON, because the driver makes an array element by element, at a third of what a round costs; hashes as hexadecimal digits.
_ENTRIES = (
    func.jsonb_to_recordset(bindparam("entries", type_=JSONB))
    .table_valued(
        column("seq", BigInteger), column("ledger_id", BigInteger), column("entry", Text), column("hash", Text), column("previous", Text)
    )
    .render_derived(with_types=True)
)
_ADD = Query(
    insert(ledger_entries).from_select(
        ["seq", "ledger_id", "entry", "hash", "previous"],
        select(
            _ENTRIES.c.seq,
            _ENTRIES.c.ledger_id,
            _ENTRIES.c.entry,
            func.decode(_ENTRIES.c.hash, "hex"),
            func.decode(_ENTRIES.c.previous, "hex"),
        ),
        include_defaults=False,
    )
)
_NODES = (
    func.jsonb_to_recordset(bindparam("nodes", type_=JSONB))
    .table_valued(column("level", BigInteger), column("position", BigInteger), column("hash", Text))
    .render_derived(with_types=True)
)
_ADD_NODES = Query(
    insert(ledger_nodes).from_select(
        ["level", "position", "hash"], select(_NODES.c.level, _NODES.c.position, func.decode(_NODES.c.hash, "hex")), include_defaults=False
    )
)


class Inconsistent(RuntimeError):
    """What is stored of the chain contradicts itself: nothing is added to it."""


@dataclass(frozen=True, slots=True)
class Gap:
    """A refund of which a version is missing: its later ones are not numbered."""

    refund: str
    missing: int


@dataclass(slots=True)
class Batch:
    """What one round did: how many rows it numbered, what kinds they are of, and the gaps it met. ``busy`` means that another one is at work."""

    numbered: int = 0
    types: set[str] = field(default_factory=set[str])
    gaps: list[Gap] = field(default_factory=list[Gap])
    busy: bool = False


class Sequencer:
    """Numbers and chains. Several may exist; one works at a time."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._edge = Frontier()
        self._head = EMPTY_ROOT  # the entry that the edge ends with: a database that was put back may have as many entries, and others

    async def once(self, *, everywhere: bool) -> Batch:
        """Number one batch; ``everywhere`` looks at all rows and not only at the newest. Raises ``STORE_UNAVAILABLE`` and :class:`Inconsistent`."""
        behind = await self._first_passed_over() if everywhere else None
        async with self._database.read() as connection:
            newest = max(await _NEWEST.value(connection) - WINDOW, 0)
            if behind is None and not await _ANY.value(connection, after=newest):
                return Batch()  # nearly always: so nothing is locked for it
        async with self._database.begin() as connection:
            if not await _TRY_LOCK.value(connection, lock=LOCK):
                return Batch(busy=True)
            head = await _HEAD.first(connection)
            seq, previous = (head["seq"], bytes(head["hash"])) if head else (0, EMPTY_ROOT)
            rows, gaps = await self._choose(connection, after=newest if behind is None else min(behind - 1, newest))
            if not rows:
                return Batch(gaps=gaps)
            edge = (await self._edge_at(connection, seq, previous)).copy()
            entries, made = _chained(rows, seq, previous, edge)
            await _add(connection, rows, entries, made)
            points.writes("sequenced")
        self._edge, self._head = edge, entries[-1].hash
        return Batch(len(rows), {row.type for row in rows}, gaps)

    async def _first_passed_over(self) -> int | None:
        """The first row of all that has no number, looked for slice by slice and holding nothing up; ``None`` when there is none."""
        async with self._database.read() as connection:
            after, last = 0, await _NEWEST.value(connection)
            while after < last and (first := await _FIRST.value(connection, after=after)) is not None:
                after = first - 1  # over whatever lies between: how far apart ids are is nobody's promise
                found = await _FIRST_IN_SLICE.value(connection, after=after, until=after + SLICE)
                if found is not None:
                    return found
                after += SLICE
        return None

    async def _choose(self, connection: AsyncConnection, *, after: int) -> tuple[list[Recorded], list[Gap]]:
        """The next rows to number, each refund's versions in their order and without a gap."""
        chosen: list[Recorded] = []
        due: dict[str, int] = {}
        waiting: dict[str, dict[int, Recorded]] = {}
        while len(chosen) < BATCH:
            page = [Recorded(**row) for row in await _WITHOUT_NUMBER.all(connection, after=after)]
            fresh = sorted({row.refund_id for row in page if row.refund_id is not None} - due.keys())
            if fresh:
                due |= dict.fromkeys(fresh, 1) | {
                    row["refund_id"]: row["version"] + 1 for row in await _VERSIONS.all(connection, refunds=fresh)
                }
            for row in page:
                chosen += _in_turn(row, due, waiting)
            if len(page) < BATCH:
                break
            after = page[-1].id
        return chosen, [Gap(refund, due[refund]) for refund, rows in waiting.items() if rows]

    async def _edge_at(self, connection: AsyncConnection, size: int, head: bytes) -> Frontier:
        """The right edge of the tree over what is numbered: as it was left, or read anew when somebody else has gone on."""
        if (self._edge.size, self._head) != (size, head):
            peaks = merkle.peaks_of((0, size))
            hash_of = await read_nodes(connection, [(0, size)])
            try:
                self._edge, self._head = Frontier(size, [hash_of(node) for node in peaks]), head
            except KeyError as error:
                raise Inconsistent(f"the tree has no node {error.args[0]}, although {size} entries are numbered") from None
        return self._edge


def _in_turn(row: Recorded, due: dict[str, int], waiting: dict[str, dict[int, Recorded]]) -> Iterable[Recorded]:
    """The row if it is its turn, and what of its refund has waited for it."""
    if row.refund_id is None or row.refund_version is None:
        yield row
        return
    kept = waiting.setdefault(row.refund_id, {})
    kept[row.refund_version] = row
    while due[row.refund_id] in kept:
        yield kept.pop(due[row.refund_id])
        due[row.refund_id] += 1


def _chained(rows: Sequence[Recorded], seq: int, previous: bytes, edge: Frontier) -> tuple[list[Numbered], list[Made]]:
    entries: list[Numbered] = []
    made: list[Made] = []
    for row in rows:
        seq += 1
        entry = number(row, seq, previous)
        made += [node for node in edge.add(entry.hash) if node.level and node.level % STORED_EVERY == 0]
        previous = entry.hash
        entries.append(entry)
    return entries, made


async def _add(connection: AsyncConnection, rows: Sequence[Recorded], entries: Sequence[Numbered], made: Sequence[Made]) -> None:
    added = [
        {"seq": entry.seq, "ledger_id": row.id, "entry": entry.entry, "hash": entry.hash.hex(), "previous": entry.previous.hex()}
        for row, entry in zip(rows, entries, strict=True)
    ]
    await _ADD.do(connection, entries=added)
    if made:
        await _ADD_NODES.do(connection, nodes=[{"level": node.level, "position": node.position, "hash": node.hash.hex()} for node in made])
