"""Pulling the merchant's orders: the processor's payments of a window of time, read page by page and made into orders.

Reading moves nothing, so everything here may be repeated, and a processor that cannot be asked changes nothing but the time of the next try.
"""

from datetime import timedelta

from temporalio import activity
from temporalio.exceptions import ApplicationError

from activities.heartbeat import heartbeating
from activities.keys import halting_without_key
from activities.processors.base import PaymentLister
from refunds.logs import logger
from refunds.messages import PullInput, PullProgress, Step
from refunds.processor import NotSent
from refunds.pulls import PullPhase
from store.pulling import Pull, Pulling

log = logger(__name__)

STEPS_AT_ONCE = 100
"""After so many pages or batches an attempt ends, so that the run shows how far it has come and a worker that is told to stop can."""

_NOT_THERE = "resource_missing"
_WITHOUT_KEY = timedelta(minutes=1)


class PullOrders:
    """The pull of the ``payments`` role."""

    def __init__(self, pulling: Pulling, processor: PaymentLister, *, steps_at_once: int = STEPS_AT_ONCE) -> None:
        self._store = pulling
        self._processor = processor
        self._steps_at_once = steps_at_once

    @activity.defn(name=Step.PULL)
    async def pull(self, given: PullInput) -> PullProgress:
        """Carry a pull on, from where it stands. When the processor cannot be asked, the pull says so and is tried again."""
        pull = await self._store.read(given.pull)
        if not self._store.may_seal:
            await self._store.failed(pull.id, "the payments role holds no master key; a pull stores identifiers: set REFUNDS_TEXT_KEY")
            raise ApplicationError("no master key", type="NoMasterKey", next_retry_delay=_WITHOUT_KEY)
        async with heartbeating():
            for _ in range(self._steps_at_once):
                if pull.is_over:
                    break
                pull = await (self._store.make(pull) if pull.phase is PullPhase.MAKING else self._read(pull))
        return PullProgress(pull.id, pull.phase.value, pull.pages, pull.payments, pull.judged, pull.is_over)

    @activity.defn(name=Step.PULL_CANCEL)
    async def cancel(self, given: PullInput) -> None:
        """End a pull that an operator has cancelled in Temporal."""
        await self._store.cancel(given.pull)

    async def _read(self, pull: Pull) -> Pull:
        try:
            async with halting_without_key(self._store):
                page = await self._processor.list_payments(
                    created_from=pull.since,
                    created_to=pull.until,
                    after=pull.after,
                    order_field=pull.order_field,
                    customer_field=pull.customer_field,
                )
        except NotSent as error:
            if pull.after is not None and error.code == _NOT_THERE:
                return await self._store.restart(pull)
            await self._store.failed(pull.id, f"the processor cannot be asked ({error.reason})")
            log.warning("orders_pull_waits", pull=pull.id, reason=error.reason)
            delay = None if error.retry_after is None else timedelta(seconds=error.retry_after)
            raise ApplicationError(error.reason, type="NotSent", next_retry_delay=delay) from None
        return await self._store.keep(pull, page)
