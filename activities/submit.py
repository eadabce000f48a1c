"""Submitting: the only step that can move money (promises P1, P3, P4, P7).

Intent, attempt and receipt are the store's; this file only decides what to do between them. Called again after anything (a crash, a time-out, a reset) it
first finds out what became of the attempts before it, and repeats the same bytes with the same key only inside the safe window.
"""

import asyncio
import random
from collections.abc import Coroutine
from datetime import timedelta
from typing import Any

from temporalio import activity
from temporalio.exceptions import ApplicationError

from activities.heartbeat import heartbeating
from activities.processors.base import Processor, SendTooLate, uptime
from activities.read_payment import missing
from refunds.errors import Code
from refunds.logs import logger
from refunds.messages import Situation, Step, StepInput
from refunds.processor import NotSent, PaymentStatus, ProcessorError, ProcessorRefund, Refused, Unknown
from refunds.settings import Settings
from refunds.status import Status
from refunds.terms import OperationKind
from store.operations import Attempt, Operation, Payments

log = logger(__name__)


class Submit:
    """The step of the ``payments`` role that sends."""

    def __init__(self, payments: Payments, processor: Processor, settings: Settings) -> None:
        self._payments = payments
        self._processor = processor
        self._settings = settings

    @activity.defn(name=Step.SUBMIT)
    async def submit(self, step: StepInput) -> Situation:
        """Bring an approved refund to the processor's answer, or to ``held`` or ``parked``. Safe to call any number of times.

        A cancelled or timed-out activity still finishes its call and records the answer: abandoning it would only make it unknown.
        """
        tried = activity.info().attempt
        async with heartbeating():
            return await _to_its_end(self._attempt_once(step.refund, tried))

    async def _attempt_once(self, refund_id: str, tried: int) -> Situation:
        operation, found = await self._payments.intent(refund_id)
        if operation is None:
            return found
        try:
            return await self._advance(operation)
        except (NotSent, Unknown) as error:
            log.warning("attempt_without_answer", refund=refund_id, outcome=type(error).__name__, reason=error.reason, tried=tried)
            return await self._give_up_or_retry(refund_id, error, tried)

    async def _advance(self, operation: Operation) -> Situation:
        if operation.in_flight:
            raise Unknown("attempt_in_flight", "another worker may be sending it")
        if operation.uncertain:
            adopted = await self._look_up(operation)
            if adopted is not None:
                return adopted
            if (why := self._payments.no_more_posts(operation, self._payments.database.clock.now())) is not None:
                return await self._payments.park(operation, Code.OUTCOME_UNKNOWN, f"not in the processor's list, and {why}")
        state = await self._processor.read_payment(operation.request.processor_payment)
        if state is None:
            state = missing(operation.request.processor_payment, operation.amount.currency, self._payments.database.clock)
        ours = next((r for r in state.refunds if r.operation == operation.id), None)
        if ours is not None:  # a refund that this database has forgotten
            return await self._payments.receipt(operation, ours, attempt=None)
        began = uptime()
        attempt, found = await self._payments.open_attempt(operation, state)
        if attempt is None:
            if found.status == Status.SUBMITTING:
                raise Unknown(found.refused.lower() or "not_now", found.refused_detail)
            return found
        return await self._send(operation, attempt, send_before=began + attempt.send_within_s)

    async def _send(self, operation: Operation, attempt: Attempt, *, send_before: float) -> Situation:
        try:
            if operation.kind is OperationKind.RELEASE:
                await self._processor.cancel(operation.request, send_before=send_before)
                return await self._payments.released(operation, attempt=attempt)
            refund = await self._processor.refund(operation.request, send_before=send_before)
        except SendTooLate:
            await self._payments.lapse(operation, attempt)
            raise NotSent("too_late_to_send", "the attempt lapsed before it was sent") from None
        except (Refused, NotSent, Unknown) as error:
            found = await self._payments.failed_attempt(operation, attempt, error)
            if isinstance(error, Refused) and found.status != Status.SUBMITTING:
                return found
            return await self._after_no_answer(operation, error)
        return await self._payments.receipt(operation, refund, attempt=attempt)

    async def _after_no_answer(self, operation: Operation, error: ProcessorError) -> Situation:
        """The answer is missing, or a refusal concludes nothing because an earlier attempt may have gone out: look at once."""
        if isinstance(error, NotSent):
            raise error
        adopted = await self._look_up(operation)
        if adopted is not None:
            return adopted
        if error.reason == "idempotency_conflict":
            return await self._payments.park(operation, Code.IDEMPOTENCY_CONFLICT, "the processor knows the key with other content")
        raise Unknown(error.reason, error.detail, code=error.code, retry_after=error.retry_after)

    async def _look_up(self, operation: Operation) -> Situation | None:
        """Find what an earlier attempt did, by our operation id. ``None`` when it is not there, which proves nothing.

        Raises ``Unknown`` when the processor cannot be asked.
        """
        try:
            if operation.kind is OperationKind.RELEASE:
                state = await self._processor.read_payment(operation.request.processor_payment)
                if state is not None and state.status is PaymentStatus.CANCELED:
                    return await self._payments.released(operation, attempt=None)
                return None
            found: ProcessorRefund | None = await self._processor.find(operation.request.processor_payment, operation.id)
        except NotSent as error:
            raise Unknown("cannot_look_up", error.reason) from error
        return None if found is None else await self._payments.receipt(operation, found, attempt=None)

    async def _give_up_or_retry(self, refund_id: str, error: NotSent | Unknown, tried: int) -> Situation:
        """Try again later with growing, jittered waits, or stop for now: held when certainly nothing was sent, else parked."""
        operation = await self._payments.operation_of(refund_id)
        assert operation is not None
        if tried >= self._settings.submit_max_attempts:
            if operation.first_sent_at is None:
                return await self._payments.hold_unsent(operation, f"the processor cannot be reached ({error.reason})")
            why = f"no answer ({error.reason}) after {operation.attempts} attempts and {tried} looks"
            return await self._payments.park(operation, Code.OUTCOME_UNKNOWN, why)
        longest = min(self._settings.submit_retry_max_s, self._settings.submit_retry_initial_s * 2 ** (tried - 1))
        wait = max(longest * random.uniform(0.5, 1.0), error.retry_after or 0)
        raise ApplicationError(error.reason, type=type(error).__name__, next_retry_delay=timedelta(seconds=wait)) from None


async def _to_its_end(work: Coroutine[Any, Any, Situation]) -> Situation:
    """Run to the end even when the activity is cancelled meanwhile."""
    task = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.gather(task, return_exceptions=True)
        raise
