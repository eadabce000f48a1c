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
_REFUNDS = """
INSERT INTO refunds SELECT (jsonb_populate_record(NULL::refunds, %(row)s || jsonb_build_object(
    'id', 'rf_bench_' || n, 'idempotency_key', 'bench-' || n, 'integration', 'bench'))).*
FROM generate_series(1, %(count)s) AS n
"""
_ROWS = """
INSERT INTO ledger (at, type, refund_id, refund_version, actor, on_behalf_of, data, commitments)
SELECT e.at, e.type, 'rf_bench_' || n, e.refund_version, e.actor, e.on_behalf_of, e.data, e.commitments
FROM generate_series(1, %(count)s) AS n, jsonb_populate_recordset(NULL::ledger, %(entries)s) WITH ORDINALITY AS e ORDER BY n, e.ordinality
"""


@dataclass(frozen=True)
class Template:
    """What one refund left: its row and its entries, as JSON."""

    row: dict[str, Any]
    entries: list[dict[str, Any]]

    @classmethod
    def of(cls, connection: psycopg.Connection, refund_id: str) -> "Template":
        """Read a refund that is over."""
        row = connection.execute("SELECT to_jsonb(r) FROM refunds r WHERE id = %s", (refund_id,)).fetchone()
        query = "SELECT to_jsonb(l) FROM ledger l WHERE refund_id = %s ORDER BY refund_version"
        assert row is not None
        return cls(row[0], [entry for (entry,) in connection.execute(query, (refund_id,))])


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
        owner.execute(_REFUNDS, {"row": Jsonb(template.row), "count": count})
        owner.execute(_ROWS, {"entries": Jsonb(template.entries), "count": count})
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
