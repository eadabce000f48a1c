"""The chained ledger: what numbering a refund's entries costs, and how fast a large ledger is proven and verified.

In a database of its own on the stand's server, filled with copies of what one automatic refund really entered, because a sequencer that keeps up with the
measurement of refunds would have nothing left to be measured by.
"""

import json
import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import psycopg
from psycopg.types.json import Jsonb

from refunds.clock import SystemClock
from refunds.ledger import files, verifier
from refunds.ledger.notes import SigningKey
from refunds.settings import Settings
from store import chain, checkpoints
from store.db import connect
from store.migrate import migrate
from store.sequencing import BATCH, Sequencer
from store.verifying import Verification
from tests.bench.usage import cpu_seconds

PROOFS = 200
KEY = SigningKey.from_seed("bench.example/ledger", bytes(32))
_ENTRIES = """
INSERT INTO ledger (at, type, refund_id, refund_version, actor, on_behalf_of, data, commitments)
SELECT e.at, e.type, e.refund_id, e.refund_version, e.actor, e.on_behalf_of, e.data, e.commitments
FROM generate_series(1, %(count)s) AS n,
     jsonb_array_elements(%(rows)s) WITH ORDINALITY AS given(row, place),
     jsonb_populate_record(NULL::ledger, {copy}) AS e ORDER BY n, given.place
"""
_RECORDS = """
INSERT INTO {table} SELECT (jsonb_populate_record(NULL::{table}, {copy})).*
FROM generate_series(1, %(count)s) AS n, jsonb_array_elements(%(rows)s) AS given(row)
"""
_LEFT = {
    "refunds": "SELECT to_jsonb(r) FROM refunds r WHERE id = %s",
    "revisions": "SELECT to_jsonb(v) FROM revisions v WHERE refund_id = %s",
    "decisions": "SELECT to_jsonb(d) FROM decisions d WHERE refund_id = %s",
    "operations": "SELECT to_jsonb(o) FROM operations o WHERE refund_id = %s",
    "consumed_decisions": "SELECT to_jsonb(c) FROM consumed_decisions c JOIN operations o ON o.id = c.operation_id WHERE o.refund_id = %s",
    "attempts": "SELECT to_jsonb(a) FROM attempts a JOIN operations o ON o.id = a.operation_id WHERE o.refund_id = %s",
    "processor_refunds": "SELECT to_jsonb(p) FROM processor_refunds p JOIN operations o ON o.id = p.operation_id WHERE o.refund_id = %s",
    "ledger": "SELECT to_jsonb(l) FROM ledger l WHERE refund_id = %s ORDER BY refund_version",
}
"""The records behind a refund's entries, which a verification holds against them, and how one refund's are read."""

_HASHED = ("terms", "facts", "decision", "request")
"""Columns whose hash was entered: copied as they are."""


@dataclass(frozen=True)
class Template:
    """What one refund left: the rows of each table, as JSON."""

    left: dict[str, list[dict[str, Any]]]

    @classmethod
    def of(cls, connection: psycopg.Connection, refund_id: str) -> "Template":
        """Read a refund that is over."""
        return cls({table: [row for (row,) in connection.execute(query.encode(), (refund_id,))] for table, query in _LEFT.items()})

    @property
    def entries(self) -> list[dict[str, Any]]:
        """Its entries."""
        return self.left["ledger"]

    def fill(self, owner: psycopg.Connection, count: int) -> None:
        """Write so many copies, each with ids of its own, the entries of one after those of another."""
        names = {row["id"] for table, rows in self.left.items() if table != "ledger" for row in rows if "id" in row}
        names.add(self.left["refunds"][0]["idempotency_key"])
        copy = "given.row::text"
        for name in sorted(names):
            copy = f"replace({copy}, '{name}', '{name}_' || n)"
        kept = ", ".join(f"'{name}', given.row->'{name}'" for name in _HASHED)
        copy = f"(({copy})::jsonb || (SELECT coalesce(jsonb_object_agg(key, value), '{{}}') FROM jsonb_each(jsonb_build_object({kept})) WHERE given.row ? key))"
        for table, rows in self.left.items():
            statement = _ENTRIES.format(copy=copy) if table == "ledger" else _RECORDS.format(table=table, copy=copy)
            owner.execute(statement.encode(), {"rows": Jsonb(rows), "count": count})


@dataclass(frozen=True)
class Recorded:
    """What was found: entries in all and of one refund, how many were numbered and verified a second (in the database, and from a file), the processor time
    of numbering one (both sides together), and how long proofs took."""

    entries: int
    per_refund: int
    numbered_per_s: float
    cpu_ms_per_entry: float
    verified_per_s: float
    file_verified_per_s: float
    proof_ms: list[float] = field(default_factory=list[float])


async def measure(url: Callable[[str], str], postgres_pid: int, template: Template, entries: int) -> Recorded:
    """Fill, number, sign, prove and verify. ``url`` gives the address of the empty database for a login. Raises ``RuntimeError`` when something does not hold."""
    migrate(url("refunds_owner"))
    count = max(entries // len(template.entries), 1)
    with psycopg.connect(_plain(url("postgres")), autocommit=True) as owner:
        owner.execute("SET session_replication_role = replica")  # a refund alone, without its order and payment
        template.fill(owner, count)
        owner.execute("VACUUM ANALYZE ledger")
    pool = connect(url("refunds_ledger"), SystemClock(), Settings(), name="bench")
    try:
        pids = {"postgres": postgres_pid}
        sequencer, numbered = Sequencer(pool), 0
        began, own, theirs = time.perf_counter(), time.process_time(), cpu_seconds(pids)["postgres"]
        while True:
            batch = await sequencer.once(everywhere=False)
            numbered += batch.numbered
            if batch.numbered < BATCH:
                break
        took = time.perf_counter() - began
        used = time.process_time() - own + cpu_seconds(pids)["postgres"] - theirs
        if numbered != count * len(template.entries):
            raise RuntimeError(f"{numbered} entries were numbered of {count * len(template.entries)}")
        async with pool.begin() as connection:
            await checkpoints.make(connection, SystemClock().now(), keys=[KEY], targets=())
        proof_ms: list[float] = []
        for seq in random.Random(1).choices(range(1, numbered + 1), k=PROOFS):
            started = time.perf_counter()
            async with pool.read() as connection:
                proof = await chain.proof_of(connection, seq)
            proof_ms.append(1_000 * (time.perf_counter() - started))
            _holds(proof)
        async with pool.read() as connection:
            note = await chain.newest_checkpoint(connection)
            lines = [row["entry"] for row in await chain.entries(connection, after=0, until=numbered, limit=numbered)]
        assert note is not None
        return Recorded(
            entries=numbered,
            per_refund=len(template.entries),
            numbered_per_s=numbered / took,
            cpu_ms_per_entry=1_000 * used / numbered,
            verified_per_s=numbered / _verified_in(_plain(url("refunds_auditor"))),
            file_verified_per_s=numbered / _file_verified_in(note["note"], lines),
            proof_ms=proof_ms,
        )
    finally:
        await pool.close()


def _holds(proof: dict[str, Any]) -> None:
    verifier.verify_proof(json.dumps(proof).encode(), [verifier.read_key(KEY.vkey)], verifier.Kept([]), SystemClock().now())


def _verified_in(url: str) -> float:
    began = time.perf_counter()
    with psycopg.connect(url, autocommit=True) as connection:
        keys = [verifier.read_key(KEY.vkey)]
        Verification(connection, keys, verifier.Kept([]), SystemClock().now(), timedelta(days=1)).run(lambda done, total: None)
    return time.perf_counter() - began


def _file_verified_in(note: str, entries: list[str]) -> float:
    export = files.Export()
    lines = [line.encode() for line in (export.header(note), *map(export.entry, entries), export.trailer())]
    began = time.perf_counter()
    verifier.verify_export(lines, [verifier.read_key(KEY.vkey)], verifier.Kept([]), SystemClock().now())
    return time.perf_counter() - began


def _plain(url: str) -> str:
    return url.replace("postgresql+psycopg://", "postgresql://")
