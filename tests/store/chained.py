"""A ledger on real PostgreSQL with its sequencer, over the logins that write it in production; and a way around every protection, to spoil it."""

import json
from dataclasses import dataclass, field
from pathlib import Path

from refunds.ledger import files, verifier
from refunds.ledger.notes import SigningKey
from store import chain, checkpoints, grants
from store.changes import enter
from store.db import Database, connect
from store.sequencing import BATCH, Batch, Gap, Sequencer
from tests.conftest import FreshDatabase
from tests.store.world import FixedClock, settings

ORIGIN = "shop.example/refunds"
KEY = SigningKey.from_seed(ORIGIN, b"k" * 32)
NEXT_KEY = SigningKey.from_seed(ORIGIN, b"n" * 32)


@dataclass
class Chained:
    """The ledger of one database. Rows are entered by the API's login and numbered by the ledger's."""

    fresh: FreshDatabase
    clock: FixedClock = field(default_factory=FixedClock)
    pools: dict[str, Database] = field(default_factory=dict)
    begun: bool = False

    def pool(self, login: str) -> Database:
        if login not in self.pools:
            self.pools[login] = connect(self.fresh.url(login), self.clock, settings(), name="test")
        return self.pools[login]

    async def close(self) -> None:
        for pool in self.pools.values():
            await pool.close()

    # --- writing as production does

    async def enter(self, count: int = 1, type_: str = "order_recorded", **data: object) -> None:
        async with self.pool(grants.API).begin() as connection:
            for _ in range(count):
                await enter(connection, type_, self.clock.now(), actor="pr_1", **data)
        if not self.begun:  # What making a database's keys enters beside is not what these tests count.
            self.begun = True
            self.spoil("DELETE FROM ledger WHERE type = 'sealing_keys_made' AND id NOT IN (SELECT ledger_id FROM ledger_entries)")

    def sequencer(self) -> Sequencer:
        """A sequencer that has just been started."""
        return Sequencer(self.pool(grants.LEDGER))

    async def numbered(self, sequencer: Sequencer | None = None, *, everywhere: bool = True) -> int:
        """Number until nothing is left that can be; returns how many."""
        sequencer = sequencer or self.sequencer()
        total, batch = 0, Batch(numbered=BATCH)
        while batch.numbered == BATCH:
            batch = await sequencer.once(everywhere=everywhere)
            total += batch.numbered
        return total

    async def gaps(self) -> list[Gap]:
        return (await self.sequencer().once(everywhere=True)).gaps

    async def signed(self, *keys: SigningKey, targets: tuple[str, ...] = (), again: bool = False) -> int | None:
        async with self.pool(grants.LEDGER).begin() as connection:
            made = await checkpoints.make(connection, self.clock.now(), keys=keys or (KEY,), targets=targets, again=again)
        return None if made is None else made.size

    # --- reading as an auditor does

    async def note(self) -> str:
        async with self.pool(grants.API).read() as connection:
            newest = await chain.newest_checkpoint(connection)
        assert newest is not None
        return newest["note"]

    async def proof(self, seq: int, size: int | None = None) -> dict[str, object]:
        async with self.pool(grants.API).read() as connection:
            return await chain.proof_of(connection, seq, size)

    async def export(self) -> bytes:
        note = await self.note()
        size = verifier.read_text(verifier.read_note(note.encode())[0]).size
        async with self.pool(grants.API).read() as connection:
            rows = await chain.entries(connection, after=0, until=size, limit=size)
        export = files.Export()
        return "".join([export.header(note), *(export.entry(row["entry"]) for row in rows), export.trailer()]).encode()

    async def judged(self, *kept: str, key: SigningKey = KEY) -> verifier.Report:
        """What the standalone verifier says of the whole."""
        keys = [verifier.read_key(key.vkey)]
        lines = (await self.export()).splitlines(keepends=True)
        return verifier.verify_export(lines, keys, verifier.keep((one.encode() for one in kept), keys), self.clock.now())

    async def judged_proof(self, seq: int) -> verifier.Report:
        keys = [verifier.read_key(KEY.vkey)]
        return verifier.verify_proof(json.dumps(await self.proof(seq)).encode(), keys, verifier.Kept([]), self.clock.now())

    # --- spoiling as nobody may

    def spoil(self, statement: str, *values: object) -> int:
        """Run a statement as somebody who has the database in their hands: past every grant and trigger."""
        with self.fresh.connect("postgres") as connection:
            connection.execute("SET session_replication_role = replica")
            return connection.execute(statement.encode(), values).rowcount

    def rows(self, query: str, *values: object) -> list[tuple[object, ...]]:
        with self.fresh.connect("postgres") as connection:
            return connection.execute(query.encode(), values).fetchall()

    def program(self, home: Path, **more: str) -> dict[str, str]:
        """The environment of a worker process that keeps this ledger, and has no other secret."""
        (home / "temporal.toml").touch()
        return {"DATABASE_URL_LEDGER": self.fresh.url(grants.LEDGER), "LEDGER_ORIGIN": ORIGIN, **more}
