"""Reading what refunds took from the balance: on demand, after everything that matters, and never a reason for anything else to fail."""

from collections.abc import Iterable
from datetime import datetime

from activities.processors.base import Particulars
from refunds.logs import logger
from refunds.processor import NotSent
from store.settlements import Settlements

log = logger(__name__)

MOST_AT_ONCE = 100
"""So many refunds a reconciliation reads figures of; the next one goes on with the rest."""


class Figures:
    """Reads and keeps settlement figures. What cannot be read now is read by a later look; nothing waits for it."""

    def __init__(self, store: Settlements, processor: Particulars) -> None:
        self._store = store
        self._processor = processor

    async def of_payment(self, payment_id: str) -> int:
        """Read the figures of a payment's refunds that are worth a call; returns how many were kept."""
        return await self._read(await self._store.wanted_of(payment_id))

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
