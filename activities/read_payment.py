"""Reading a payment live, for a quote."""

from dataclasses import replace

from temporalio import activity
from temporalio.exceptions import ApplicationError

from activities.heartbeat import heartbeating
from activities.keys import HALTING, halting_without_key
from activities.processors.base import Marketplace, PaymentSource
from refunds.clock import Clock
from refunds.errors import Code
from refunds.messages import WITH_FLOW, Step, StepInput
from refunds.payment_ids import NotAPayment
from refunds.processor import MISSING, DisputeState, PaymentState, PaymentStatus, ProcessorError
from store.observing import Observing
from store.operations import Payments


class PaymentReader:
    """Reads payments from the processor and keeps the readings in the store. With ``observing``, a refund they show that is not recorded is."""

    def __init__(
        self,
        payments: Payments,
        processor: PaymentSource,
        clock: Clock,
        observing: Observing | None = None,
        marketplace: Marketplace | None = None,
    ) -> None:
        self._payments = payments
        self._processor = processor
        self._marketplace = marketplace
        self._clock = clock
        self._observing = observing

    async def read(self, payment_id: str, *, with_flow: bool = False) -> PaymentState:
        """Read one payment and keep the reading. Raises ``NotSent`` when the processor cannot be asked.

        A payment the processor does not know is kept as such, so that the quote can deny it by name. A manual payment is never asked about: it is as recorded.
        """
        if (known := await self._payments.manual_payment(payment_id)) is not None:
            return known
        state = await self.look(*await self._payments.processor_payment_of(payment_id), with_flow)
        await self._payments.save_snapshot(payment_id, state)
        return state

    async def look(self, processor_payment: str, currency: str, with_flow: bool = False) -> PaymentState:
        """Read one payment without keeping the reading. Raises ``NotSent`` when the processor cannot be asked.

        ``with_flow``: also where its money went, which is more calls, and asked only for a refund that is to return it.
        """
        async with halting_without_key(self._payments):
            state = await self._processor.read_payment(processor_payment)
            if state is None:
                state = missing(processor_payment, currency, self._clock, await self._processor.why_missing(processor_payment))
            if with_flow and state.raw_status != MISSING and self._marketplace is not None:
                state = replace(state, flow=await self._marketplace.read_flow(processor_payment))
        if self._observing is not None:
            await self._observing.take_in(processor_payment, state)
        return state

    @activity.defn(name=Step.READ_PAYMENT)
    async def read_payment(self, step: StepInput) -> None:
        """Read the payment named in ``message``."""
        try:
            async with heartbeating():
                with_flow = step.detail == WITH_FLOW or (step.refund != "" and await self._payments.wants_flow(step.refund))
                await self.read(step.message, with_flow=with_flow)
        except ProcessorError as error:
            if step.refund:
                await self._payments.not_read(step.refund, *_words(error))
            raise ApplicationError(error.reason, type=type(error).__name__) from None


def _words(error: ProcessorError) -> tuple[Code | None, str]:
    """What a refund whose payment cannot be read waits for."""
    again = "it is tried again by itself, at most five minutes apart"
    if error.reason in HALTING:
        return Code.PROCESSOR_HALTED, f"the processor does not accept our key ({error.reason}) until an operator has repaired it; {again}"
    return None, f"the processor cannot be asked ({error.reason}); {again}"


def missing(processor_payment: str, currency: str, clock: Clock, why: NotAPayment = NotAPayment.UNKNOWN) -> PaymentState:
    """The reading of a payment that the processor does not know, and why."""
    return PaymentState(
        processor_payment=processor_payment,
        status=PaymentStatus.INCOMPLETE,
        raw_status=MISSING,
        not_a_payment=why,
        currency=currency,
        captured=0,
        capturable=0,
        refunds=(),
        dispute=DisputeState.NONE,
        risk_level="unknown",
        read_at=clock.now(),
    )
