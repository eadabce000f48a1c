"""Reading what refunds took from the balance: on demand, after everything that matters, and never a reason for anything else to fail."""

from collections.abc import Iterable
from datetime import datetime, timedelta

from activities.processors.base import Particulars
from refunds.logs import logger
from refunds.processor import NotSent
from store.settlements import Settlements

log = logger(__name__)

MOST_AT_ONCE = 100
"""So many refunds a reconciliation reads figures of; the next one goes on with the rest."""

MOST_A_ROUND = 10
"""So many are read in one of the many rounds a worker makes: the processor's rate limit is for refunds."""

LATELY = timedelta(days=1)
"""What changed longer ago is left to the reconciliation."""


class Figures:
    """Reads and keeps settlement figures. What cannot be read now is read by a later look; nothing waits for it."""

    def __init__(self, store: Settlements, processor: Particulars) -> None:
        self._store = store
        self._processor = processor

    async def lately(self) -> int:
        """Read figures of refunds that changed lately and are worth a call, at most :data:`MOST_A_ROUND`; returns how many were kept."""
        since = self._store.database.clock.now() - LATELY
        return await self._read(await self._store.wanted_since(since, most=MOST_A_ROUND))

    async def of_window(self, since: datetime, until: datetime) -> int:
        """Read figures of refunds of a window of time, at most :data:`MOST_AT_ONCE`; returns how many were kept."""
        return await self._read(await self._store.wanted_in(since, until, most=MOST_AT_ONCE))

    async def _read(self, wanted: Iterable[str]) -> int:
        kept = 0
        for processor_refund in wanted:
            try:
                found = await self._processor.settlement_of(processor_refund)
            except NotSent as error:
                log.warning("settlement_not_read", processor_refund=processor_refund, reason=error.reason)
                break
            if found is not None:
                kept += await self._store.keep(found)
        return kept
