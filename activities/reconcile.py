"""Reconciling one refund that the processor accepted: read it again until it is final there. Age only ever causes a look, never a conclusion."""

from temporalio import activity

from activities.heartbeat import heartbeating
from activities.keys import halting_without_key
from activities.processors.base import Processor
from refunds.logs import logger
from refunds.messages import Situation, Step, StepInput
from refunds.processor import NotSent
from store.operations import Payments

log = logger(__name__)


class Reconcile:
    """The polling step of the ``payments`` role."""

    def __init__(self, payments: Payments, processor: Processor) -> None:
        self._payments = payments
        self._processor = processor

    @activity.defn(name=Step.RECONCILE)
    async def reconcile(self, step: StepInput) -> Situation:
        """Read the processor's refund and record what it says; when it cannot be asked, nothing changes but the next time to ask."""
        async with heartbeating():
            return await self._look(step)

    async def _look(self, step: StepInput) -> Situation:
        operation = await self._payments.operation_of(step.refund)
        assert operation is not None, "only a refund with an operation is pending"
        refund_id = await self._payments.processor_refund_of(operation)
        seen = None
        try:
            if refund_id is not None:
                async with halting_without_key(self._payments):
                    seen = await self._processor.retrieve(refund_id, of=operation.request.processor_payment)
        except NotSent as error:
            log.warning("processor_not_asked", refund=step.refund, reason=error.reason)
        return await self._payments.observed(operation, seen)
