"""Verifying the ledger against PostgreSQL itself: every entry, the rows it was made of, the tree, the checkpoints, and where each refund stands.

Read only, over the auditor's login, in one snapshot. Everything is computed again from what is stored; nothing that is stored is believed. What an entry
must be like is judged by :mod:`refunds.ledger.verifier`, the same code that judges files.
"""

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import psycopg
from psycopg.rows import dict_row

from refunds.clock import rfc3339
from refunds.ledger import verifier
from refunds.ledger.entry import read
from refunds.ledger.merkle import STORED_EVERY, Frontier
from refunds.ledger.verifier import Checkpoint, Kept, Key, Wrong
from store import agreeing

Progress = Callable[[int, int], None]
"""Told how many entries are verified, and how many there are."""

TELL_EVERY = 2_000
# A time that Python has none of (infinity, a year before the first) is as good as none, and must not end the reading.
_AT = "CASE WHEN l.at BETWEEN '0001-01-02Z' AND '9999-12-30Z' THEN l.at END AS at"
_ENTRIES = f"""
SELECT e.seq, e.entry, e.hash, e.previous, l.id, {_AT}, l.type, l.refund_id, l.refund_version, l.actor, l.on_behalf_of,
       l.data::text AS data, l.commitments::text AS commitments
FROM ledger_entries e LEFT JOIN ledger l ON l.id = e.ledger_id ORDER BY e.seq
"""
_WAITING = f"""
SELECT l.id, {_AT}, l.type, l.refund_id AS refund, l.refund_version, l.data::text AS data
FROM ledger l WHERE NOT EXISTS (SELECT 1 FROM ledger_entries e WHERE e.ledger_id = l.id) ORDER BY l.id
"""
_FIELDS = {"type": "type", "refund": "refund_id", "refund_version": "refund_version", "actor": "actor", "on_behalf_of": "on_behalf_of"}


@dataclass(frozen=True, slots=True)
class Verified:
    """What was verified: so many entries, so many of them signed by the newest checkpoint, so many checkpoints and refunds; rows that wait for a number, as
    long as they may; and how many checkpoints are signed by keys that were not given, so that only their roots were compared."""

    entries: int
    signed: int
    checkpoints: int
    refunds: int
    waiting: int
    by_other_keys: int
    newest: Checkpoint | None


class Verification:
    """One verification, over one connection that is in no transaction yet."""

    def __init__(self, connection: psycopg.Connection[Any], keys: Sequence[Key], kept: Kept, now: datetime, behind: timedelta) -> None:
        self._connection = connection
        self._keys = keys
        self._kept = kept
        self._now = now
        self._behind = behind
        self._chain = verifier.Chain(now)
        self._edge = Frontier()
        self._nodes: dict[int, Iterator[dict[str, Any]]] = {}
        self._standing = verifier.Standing()
        self._by_other_keys = 0
        self._later: Wrong | None = None

    def run(self, progress: Progress) -> Verified:
        """Verify everything. Raises :class:`refunds.ledger.verifier.Wrong` with the first thing that is wrong."""
        with self._connection.transaction():
            self._connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
            self._connection.execute("SET LOCAL statement_timeout = 0")
            self._connection.execute("SET LOCAL jit = off")
            total = self._all("SELECT count(*) AS n FROM ledger_entries")[0]["n"]
            signed, newest = self._checkpoints()
            if newest is not None:
                self._kept.belong_to(newest.origin)
            self._entries(signed, total, progress)
            self._nothing_left_of_the_tree()
            if signed and max(signed) > self._chain.size:
                raise Wrong(
                    "truncated",
                    f"Entry {self._chain.size + 1} and what follows is missing: a checkpoint signs {max(signed)} entries,"
                    f" and here are {self._chain.size}.",
                    self._chain.size + 1,
                )
            self._kept.reaches(self._chain.size)
            if not signed and self._all("SELECT 1 FROM ledger WHERE type = 'ledger_keys_changed' LIMIT 1"):
                raise Wrong("missing", "Checkpoints were made, as an entry says, and none of them is in the database any more.")
            waiting = self._rows_without_a_number()
            refunds = self._refunds()
            self._records()
        return Verified(
            self._chain.size, newest.size if newest else 0, sum(map(len, signed.values())), refunds, waiting, self._by_other_keys, newest
        )

    # --- the chain

    def _entries(self, signed: dict[int, list[Checkpoint]], total: int, progress: Progress) -> None:
        for row in self._streamed("entries", _ENTRIES):
            seq = self._chain.size + 1
            if row["seq"] != seq:
                raise Wrong("missing", f"Entry {seq} is missing: entry {row['seq']} follows entry {seq - 1}.", seq)
            line = (row["entry"] or "").encode()
            leaf = verifier.leaf_hash(line)
            if leaf != bytes(row["hash"] or b""):
                raise Wrong("changed", f"Entry {seq} was changed: it no longer has the hash it was numbered with.", seq)
            entry = self._added(line, seq)
            if entry["previous"] != bytes(row["previous"] or b"").hex():
                raise Wrong("changed", f"Entry {seq} was changed: what is kept beside it as the hash before it is another.", seq)
            _matches_its_row(seq, entry, row)
            self._standing.follow(seq, entry)
            self._tree(leaf)
            for checkpoint in signed.get(seq, ()):
                if checkpoint.root != self._chain.root():
                    what = f"The checkpoint that signs {seq} entries has another root: the log was forked or written anew."
                    self._keep(Wrong("forked", what, seq))
            if self._kept.get(seq) is not None:
                self._keep(self._kept.differs(seq, self._chain.root()))
            if seq % TELL_EVERY == 0 or seq == total:
                progress(seq, total)
        at_the_end = signed.get(self._chain.size)
        self._chain.end(at_the_end[-1].root if at_the_end else None)
        if self._later is not None:
            raise self._later

    def _added(self, line: bytes, seq: int) -> dict[str, Any]:
        try:
            return self._chain.add(line)
        except Wrong as wrong:
            if wrong.kind != "order":
                raise
            raise Wrong("reordered", f"Entry {seq} is not in its place: another one stands there.", seq) from None

    def _tree(self, leaf: bytes) -> None:
        """Hold what is stored of the tree against what the leaves make."""
        for made in self._edge.add(leaf):
            if made.level == 0 or made.level % STORED_EVERY:
                continue
            stored = next(self._nodes_of(made.level), None)
            if stored is None or (stored["position"], bytes(stored["hash"] or b"")) != (made.position, made.hash):
                first, last = (made.position << made.level) + 1, (made.position + 1) << made.level
                self._keep(Wrong("tree", f"What is stored of the tree over the entries {first} to {last} is not their hash.", first))

    def _keep(self, wrong: Wrong | None) -> None:
        """Keep the first of what is only said when no entry is found that explains it."""
        self._later = self._later or wrong

    def _nodes_of(self, level: int) -> Iterator[dict[str, Any]]:
        if level not in self._nodes:
            query = f"SELECT position, hash FROM ledger_nodes WHERE level = {level} ORDER BY position"
            self._nodes[level] = self._streamed(f"nodes_{level}", query)
        return self._nodes[level]

    def _nothing_left_of_the_tree(self) -> None:
        known = [level for level, nodes in self._nodes.items() if next(nodes, None) is None]
        [beyond] = self._all("SELECT count(*) AS n FROM ledger_nodes WHERE NOT (level = ANY(%s))", known)
        if len(known) != len(self._nodes) or beyond["n"]:
            size = self._chain.size
            raise Wrong("truncated", f"Entry {size + 1} and what follows is missing: the stored tree goes on after entry {size}.", size + 1)

    def _checkpoints(self) -> tuple[dict[int, list[Checkpoint]], Checkpoint | None]:
        """The stored checkpoints by size, and the newest, which must be signed by a key that was given."""
        signed: dict[int, list[Checkpoint]] = {}
        newest = None
        rows = self._all("SELECT size, root, origin, keys, note FROM ledger_checkpoints ORDER BY size, id")
        for row in rows:
            note = (row["note"] or "").encode()
            try:
                newest = verifier.open_checkpoint(note, self._keys)
            except Wrong as wrong:
                if wrong.kind not in ("wrong_key", "other_log") or row is rows[-1]:
                    raise
                self._by_other_keys += 1
                newest = verifier.read_text(verifier.read_note(note)[0])
            if newest.size != row["size"]:
                raise Wrong("changed", f"The checkpoint kept as that of {row['size']} entries signs {newest.size}.")
            if (newest.origin, newest.root) != (row["origin"], bytes(row["root"] or b"")) or not _signs(note, row["keys"]):
                raise Wrong(
                    "changed", f"What is kept beside the checkpoint of {newest.size} entries (log, root, keys) is not what it says."
                )
            signed.setdefault(newest.size, []).append(newest)
        return signed, newest

    # --- what the entries say against how things stand

    def _rows_without_a_number(self) -> int:
        waiting, oldest = 0, None
        for row in self._streamed("waiting", _WAITING):
            waiting += 1
            if row["at"] is None or row["at"] > self._now + verifier.AHEAD:
                raise Wrong("future", f"A row without a number, {row['type']}, is from the future, or its time is none.")
            oldest = row if oldest is None or row["at"] < oldest["at"] else oldest
            self._standing.follow(None, row | {"data": json.loads(row["data"] or "null")})
        if oldest is not None and self._now - oldest["at"] > self._behind:
            of = f" of refund {oldest['refund']} (version {oldest['refund_version']})" if oldest["refund"] else ""
            raise Wrong(
                "unnumbered",
                f"{waiting} rows have no number; the oldest, {oldest['type']}{of}, has waited for one since {rfc3339(oldest['at'])},"
                f" longer than {int(self._behind.total_seconds())} s.",
            )
        return waiting

    def _refunds(self) -> int:
        count, standing = 0, self._standing.of
        for row in self._streamed("refunds", "SELECT id, status, version FROM refunds ORDER BY id"):
            count += 1
            version, status = standing.pop(row["id"], (0, ""))
            if (row["version"], row["status"]) != (version, status):
                raise Wrong(
                    "state",
                    f"Refund {row['id']} is {row['status']} at version {row['version']}, and its entries make it"
                    f" {status or 'nothing'} at version {version}.",
                )
        if standing:
            raise Wrong("state", f"Refund {min(standing)} has entries, and is not there.")
        return count

    def _records(self) -> None:
        """Hold the records against their entries. Raises :class:`Wrong` with the first that does not agree."""
        for query in agreeing.QUERIES:
            if found := self._all(query.text):
                raise Wrong("record", query.said(found[0]))
        for index, (what, query) in enumerate(agreeing.HASHED):
            for row in self._streamed(f"hashed_{index}", query):
                if agreeing.is_another(row):
                    raise Wrong("record", f"{what} {row['id']} is not what was entered: its hash is another.")

    # --- reading

    def _all(self, query: str, *values: object) -> list[dict[str, Any]]:
        with self._connection.cursor(row_factory=dict_row) as cursor:
            return cursor.execute(query.encode(), values or None).fetchall()

    def _streamed(self, name: str, query: str) -> Iterator[dict[str, Any]]:
        with self._connection.cursor(name=name, row_factory=dict_row) as cursor:
            cursor.itersize = TELL_EVERY
            cursor.execute(query.encode())
            yield from cursor


def _signs(note: bytes, keys: object) -> bool:
    """Whether the keys kept beside a checkpoint are those of the signatures on it: they are what people are shown."""
    try:
        named = [(key.name, key.id) for key in map(verifier.read_key, keys)] if isinstance(keys, list) else []
    except (Wrong, AttributeError):
        return False
    return sorted(named) == sorted((name, key_id) for name, key_id, _ in verifier.read_note(note)[1])


def _matches_its_row(seq: int, entry: dict[str, Any], row: dict[str, Any]) -> None:
    """Raise :class:`Wrong` unless the entry says what the row says that it was made of."""
    if row["id"] is None:
        raise Wrong("missing", f"The row that entry {seq} was made of is missing from the ledger.", seq)
    differing = [name for name, column in _FIELDS.items() if entry[name] != row[column]]
    if row["at"] is None or entry["at"] != rfc3339(row["at"]):
        differing.append("at")
    for name in ("data", "commitments"):
        if entry[name] != (None if row[name] is None else read(row[name])):
            differing.append(name)
    if differing:
        what = " and ".join(differing)
        raise Wrong("changed", f"The row that entry {seq} was made of was changed afterwards: {what} is another.", seq)
