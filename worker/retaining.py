"""The schedule of retention: beside the ``refunds`` role, at its start and then at intervals, what has had its time is taken away."""

import asyncio

from refunds.errors import RefundError
from refunds.logs import logger
from refunds.settings import Settings
from store.db import Database
from store.retention import Retention

log = logger(__name__)


class Retaining:
    """Several may run at once: each batch is a transaction of its own, and what one has taken away the other does not find."""

    def __init__(self, database: Database, settings: Settings) -> None:
        self._retention = Retention(database, settings)
        self._every_s = settings.retention_every_s
        self._again_s = min(settings.retention_every_s, 60)

    async def run_for_ever(self) -> None:
        """Apply the periods at intervals; an outage is logged and tried again soon."""
        while True:
            try:
                left = await self.once()
            except RefundError as error:
                log.warning("retention_interrupted", error=str(error)[:300])
                left = True
            await asyncio.sleep(self._again_s if left else self._every_s)

    async def once(self) -> bool:
        """One run; whether it left something for the next."""
        run = await self._retention.run()
        if run.removed:
            log.info("retention_applied", run=run.id, removed={kind.value: count for kind, count in run.removed.items()}, more=run.more)
        return run.more
