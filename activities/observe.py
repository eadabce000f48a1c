"""Observing a payment: one live reading, recorded. Whatever hints at something new leads here, and it may be done any number of times."""

from datetime import timedelta

from temporalio import activity
from temporalio.exceptions import ApplicationError

from activities.heartbeat import heartbeating
from activities.keys import halting_without_key
from activities.processors.base import Processor
from activities.read_payment import missing
from refunds.clock import Clock
from refunds.messages import Observed, Step, StepInput
from refunds.processor import MANUAL, NotSent
from store.observing import Observing

READINGS = 3
"""How often a payment is read again at once because something was recorded while it was being read."""


class Observer:
    """The observing step of the ``payments`` role; also what a reconciliation does about a payment that differs."""

    def __init__(self, observing: Observing, processor: Processor, clock: Clock) -> None:
        self._observing = observing
        self._processor = processor
        self._clock = clock

    async def observe(self, payment_id: str) -> Observed:
        """Read a payment with all its refunds and disputes, and record what it says. Raises ``NotSent`` when the processor cannot be asked.

        Everything that hinted at this payment before the reading began is answered by it.
        """
        name, currency, processor = await self._observing.named(payment_id)
        if processor == MANUAL:
            return Observed(payment_id)  # nobody could be asked, and nothing is there that our own record does not say
        for _ in range(READINGS):
            hints = await self._observing.hints(payment_id, name)
            async with halting_without_key(self._observing):
                state = await self._processor.read_payment(name) or missing(name, currency, self._clock)
            if (found := await self._observing.observe(payment_id, state, hints=hints)) is not None:
                return found
        raise NotSent("overtaken", "something was recorded during each reading")

    @activity.defn(name=Step.OBSERVE)
    async def observe_payment(self, step: StepInput) -> Observed:
        """Observe the payment named in ``message``."""
        try:
            async with heartbeating():
                return await self.observe(step.message)
        except NotSent as error:
            delay = None if error.retry_after is None else timedelta(seconds=error.retry_after)
            raise ApplicationError(error.reason, type="NotSent", next_retry_delay=delay) from None
