"""Capture and quote: read the request, take the live reading of its payment, judge it under the policy, write exact terms."""

from temporalio import activity

from activities.read_payment import PaymentReader
from refunds.logs import logger
from refunds.messages import UNREAD, Situation, Step, StepInput
from refunds.processor import PaymentState, ProcessorError
from store.progress import Steps

log = logger(__name__)


class Prepare:
    """The first step of a run.

    A process that also hosts the payments role reads the payment on the spot, which spares the run a round trip; any other answers with what it needs,
    and the workflow asks the payments role for it.
    """

    def __init__(self, steps: Steps, reader: PaymentReader | None) -> None:
        self._steps = steps
        self._reader = reader

    @activity.defn(name=Step.PREPARE)
    async def prepare(self, step: StepInput) -> Situation:
        """Bring a received refund as far as its first quote, or say what is needed first."""
        return await self._steps.prepare(step.refund, await self._reading(step.refund), unread=step.detail == UNREAD)

    async def _reading(self, refund_id: str) -> PaymentState | None:
        """The payment read on the spot, or ``None``: then the store falls back on a stored reading, or asks for one to be taken with patience."""
        if self._reader is None:
            return None
        wanted = await self._steps.payment_to_read(refund_id)
        try:
            return None if wanted is None else await self._reader.look(*wanted)
        except ProcessorError as error:
            log.warning("payment_not_read", refund=refund_id, reason=error.reason)
            return None
