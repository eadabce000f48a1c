"""Settling by hand: a person says what became of a parked refund, and the processor is asked before it counts."""

from temporalio import activity
from temporalio.exceptions import ApplicationError

from activities.heartbeat import heartbeating
from activities.keys import halting_without_key
from activities.processors.base import Processor
from activities.settle_legs import SettleLegs
from refunds.messages import UNRECORDED, Situation, Step, StepInput
from refunds.processor import NotSent, PaymentStatus
from refunds.terms import OperationKind
from store.settling import Settling


class Settle:
    """The settling step of the ``payments`` role."""

    def __init__(self, settling: Settling, processor: Processor, legs: SettleLegs | None = None) -> None:
        self._settling = settling
        self._processor = processor
        self._legs = legs

    @activity.defn(name=Step.SETTLE)
    async def settle(self, step: StepInput) -> Situation:
        """Check a recorded settlement live and let it count, or refuse it. A message that names nothing recorded is entered as refused."""
        try:
            async with heartbeating(), halting_without_key(self._settling):
                return await self._check(step)
        except NotSent as error:
            raise ApplicationError(error.reason, type="NotSent") from None

    async def _check(self, step: StepInput) -> Situation:
        instruction = await self._settling.instruction(step.refund, step.message)
        if instruction is not None and instruction["body"].get("leg") and self._legs is not None:
            heard = await self._legs.check(step.refund, instruction)
            if heard is not None:
                return heard
            instruction = None
        operation = await self._settling.operation_of(step.refund)
        if instruction is None or operation is None:
            return await self._settling.refuse_unbacked(step.refund, step.message, enter_refusal=step.detail != UNRECORDED)
        moved = instruction["body"]["outcome"] == "refunded"
        if operation.kind is OperationKind.MANUAL:
            if moved:
                return await self._settling.settle_by_hand(operation, instruction)
            return await self._settling.settle_not_refunded(operation, instruction, None)
        if operation.kind is OperationKind.RELEASE:
            state = await self._processor.read_payment(operation.request.processor_payment)
            canceled = state is not None and state.status is PaymentStatus.CANCELED
            if moved:
                return await self._settling.settle_released(operation, instruction, canceled=canceled)
            if canceled:
                return await self._settling.settle_contradicted_release(operation, instruction)
            return await self._settling.settle_not_refunded(operation, instruction, None)
        if not moved:
            found = await self._processor.find(operation.request.processor_payment, operation.id)
            named = None if found else await self._settling.processor_refund_of(operation)
            if named is not None:  # the receipt's own, whatever its metadata say by now
                found = await self._processor.retrieve(named, of=operation.request.processor_payment)
            return await self._settling.settle_not_refunded(operation, instruction, found)
        refund = await self._processor.retrieve(instruction["body"]["processor_refund_id"] or "", of=operation.request.processor_payment)
        return await self._settling.settle_refunded(operation, instruction, refund)
