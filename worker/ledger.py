"""The ``ledger`` role: numbers and chains the ledger's rows, signs checkpoints, sends copies of them away, and says when any of that falls behind.

It has a login and a secret of its own (the signing key) and needs nothing of Temporal. Nothing waits for it: while it is away everything else goes on, and its
rows wait for a number.
"""

import asyncio
import time
from collections.abc import Sequence

from refunds.errors import RefundError
from refunds.ledger.notes import SigningKey
from refunds.ledger.verifier import read_key
from refunds.logs import logger
from refunds.settings import Settings
from store import checkpoints
from store.chain import standing
from store.changes import tell
from store.db import Database
from store.sequencing import BATCH, Batch, Gap, Inconsistent, Sequencer
from worker.copies import Copies
from worker.copying import Copier

log = logger(__name__)

_TOLD_EVERY_S = 3600.0
_COPY_EVERY_S = 1.0


def signing_keys(settings: Settings) -> list[SigningKey]:
    """The keys of this installation's log. Raises ``RuntimeError`` in a process that holds none."""
    if not settings.ledger_seeds:
        raise RuntimeError("REFUNDS_LEDGER_KEY is not set in this process; the ledger role signs with it")
    return [SigningKey.from_seed(settings.ledger_origin, seed) for seed in settings.ledger_seeds]


class Keeper:
    """Runs as the ``ledger`` role. Several may run: one works at a time."""

    def __init__(self, database: Database, settings: Settings, copier: Copier) -> None:
        self._database = database
        self._settings = settings
        self._keys: Sequence[SigningKey] = signing_keys(settings)
        self._sequencer = Sequencer(database)
        self.copies = Copies(database, settings.ledger_targets, copier)
        self._seen: dict[int, bytes] | None = None
        self._everywhere_at = 0.0
        self._signed_at: float | None = None
        self._copied_at = 0.0
        self._asked = False
        self._gaps: set[Gap] = set()
        self._told: dict[str, float] = {}

    async def run_for_ever(self) -> None:
        """Keep up at intervals, and at once again while there is more; an outage is logged and tried again."""
        try:
            while True:
                [met] = await asyncio.gather(self.once(), return_exceptions=True)
                if isinstance(met, Exception):
                    await self._went_wrong(met)
                elif isinstance(met, BaseException):
                    raise met
                if not isinstance(met, int) or met < BATCH:
                    await asyncio.sleep(self._settings.ledger_every_s)
        finally:
            await self.copies.end()

    async def _went_wrong(self, error: Exception) -> None:
        """An outage is waited for. Anything else is said aloud, and tried again all the same: a role that has ended in silence would be missed last."""
        if isinstance(error, RefundError):
            log.warning("ledger_interrupted", error=str(error)[:300])
            return
        # Of an error that nobody foresaw its kind alone: what databases say repeats rows (promise P9).
        why = str(error) if isinstance(error, Inconsistent) else type(error).__name__
        log.error("ledger_inconsistent", why=why, runbook="ledger.md")
        await self._tell("ledger_inconsistent", why=why)

    async def once(self) -> int:
        """One round; returns how many rows were numbered."""
        batch = await self._sequencer.once(everywhere=False)
        if batch.numbered < BATCH and time.monotonic() - self._everywhere_at >= self._settings.ledger_everywhere_s:
            batch = await self._look_everywhere(batch)
        self._asked |= checkpoints.REQUESTED in batch.types
        await self._sign()
        if time.monotonic() - self._copied_at >= _COPY_EVERY_S:
            self._copied_at = time.monotonic()
            await self.copies.go_on()
        return batch.numbered

    async def _look_everywhere(self, batch: Batch) -> Batch:
        """Look at all rows, once the newest are done; what was numbered now and before."""
        found = await self._sequencer.once(everywhere=True)
        if found.numbered < BATCH:  # else there is more of it, and the next round goes on
            self._everywhere_at = time.monotonic()
        if found.numbered < BATCH and not found.busy:
            await self._look_at_gaps(set(found.gaps))
            await self._look_at_lag()
        return Batch(batch.numbered + found.numbered, batch.types | found.types)

    async def _sign(self) -> None:
        """Sign when somebody asked, and at intervals; the first time at once, because nobody knows for how long nobody has."""
        since = None if self._signed_at is None else time.monotonic() - self._signed_at
        if not self._asked and since is not None and since < self._settings.ledger_checkpoint_every_s:
            return
        targets, known = self._settings.ledger_targets, await self._known()
        async with self._database.begin() as connection:
            now = self._database.clock.now()
            made = await checkpoints.make(connection, now, keys=self._keys, targets=targets, again=self._asked, known=known)
        if made is not None and made.size == 0:
            return  # in the next round, then
        self._signed_at, self._asked = time.monotonic(), False
        if made is not None:
            self._seen = {made.size: made.root}
            log.info("checkpoint_made", size=made.size)

    async def _known(self) -> dict[int, bytes]:
        """What this log has signed, whatever the database says: as this process did, or by the copies that it can read, once when it starts."""
        if self._seen is None:
            self._seen = await self.copies.newest([read_key(key.vkey) for key in self._keys])
        return self._seen

    async def _look_at_gaps(self, gaps: set[Gap]) -> None:
        """Say which refunds have lost a version: those that two looks at everything have found in the same way, for one can fall between two commits."""
        for gap in sorted(gaps & self._gaps, key=lambda gap: gap.refund):
            log.error("ledger_gap", refund=gap.refund, missing_version=gap.missing, runbook="ledger.md")
            await self._tell("ledger_gap", refund=gap.refund, missing_version=gap.missing)
        self._gaps = gaps

    async def _look_at_lag(self) -> None:
        async with self._database.read() as connection:
            found = await standing(connection)
        behind_s = found.behind_s(self._database.clock.now())
        if found.waiting > self._settings.ledger_behind_rows or behind_s > self._settings.ledger_behind_s:
            log.warning("ledger_behind", rows=found.waiting, seconds=int(behind_s), runbook="ledger.md")
            await self._tell("ledger_behind", rows=found.waiting, seconds=int(behind_s))

    async def _tell(self, kind: str, **data: str | int) -> None:
        """Tell people, once an hour for as long as it lasts."""
        what = f"{kind} {data.get('refund', '')}"
        if time.monotonic() - self._told.get(what, -_TOLD_EVERY_S) < _TOLD_EVERY_S:
            return
        try:
            async with self._database.begin() as connection:
                await tell(connection, kind, self._database.clock.now(), **data, runbook="ledger.md")
        except RefundError as error:
            log.warning("ledger_interrupted", error=str(error)[:300])
        else:
            self._told[what] = time.monotonic()
