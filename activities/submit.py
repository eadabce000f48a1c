"""Submitting: the only step that can move money (promises P1, P3, P4, P7).

Intent, attempt and receipt are the store's; this file only decides what to do between them. Called again after anything (a crash, a time-out, a reset) it
first finds out what became of the attempts before it, and repeats the same bytes with the same key only inside the safe window.
"""

import asyncio
import random
from dataclasses import replace
from datetime import timedelta

from temporalio import activity
from temporalio.exceptions import ApplicationError

from activities.heartbeat import heartbeating, to_its_end
from activities.keys import CANNOT_LOOK_UP, halt_for
from activities.processors.base import Marketplace, Processor, SendTooLate, uptime
from activities.processors.error_map import RATE_LIMITED
from activities.read_payment import missing
from refunds.errors import Code
from refunds.logs import logger
from refunds.messages import Situation, Step, StepInput
from refunds.processor import NotSent, PaymentStatus, ProcessorError, ProcessorRefund, Refused, Unknown
from refunds.settings import Settings
from refunds.status import Status
from refunds.terms import OperationKind
from store import brakes
from store.manual import HandingOver
from store.observing import Observing
from store.operations import Attempt, Operation, Standing
from store.situations import to_the_second

log = logger(__name__)


class Submit:
    """The step of the ``payments`` role that sends."""

    def __init__(
        self, payments: HandingOver, observing: Observing, processor: Processor, settings: Settings, marketplace: Marketplace | None = None
    ) -> None:
        self._payments = payments
        self._observing = observing
        self._processor = processor
        self._marketplace = marketplace
        self._settings = settings

    @activity.defn(name=Step.SUBMIT)
    async def submit(self, step: StepInput) -> Situation:
        """Bring an approved refund to the processor's answer, or to ``held`` or ``parked``. Safe to call any number of times.

        A cancelled or timed-out activity still finishes its call and records the answer: abandoning it would only make it unknown.
        """
        tried = activity.info().attempt
        async with heartbeating():
            return await to_its_end(self._attempt_once(step.refund, tried))

    async def _attempt_once(self, refund_id: str, tried: int) -> Situation:
        standing = await self._payments.standing(refund_id)
        if standing.situation.status not in (Status.APPROVED, Status.SUBMITTING):
            return standing.situation
        if standing.by_hand:
            return await self._payments.hand_over(refund_id)
        try:
            return await self._in_turn(refund_id, standing)
        except (NotSent, Unknown) as error:
            log.warning("attempt_without_answer", refund=refund_id, outcome=type(error).__name__, reason=error.reason, tried=tried)
            return await self._give_up_or_retry(refund_id, error, tried)

    async def _in_turn(self, refund_id: str, standing: Standing) -> Situation:
        """Wait, here and then by being repeated, while another call of the same payment is under way, which takes seconds. Everything is read anew each time."""
        give_up = uptime() + TURN_WITHIN_S
        while True:
            try:
                return await self._advance(refund_id, standing)
            except _NotItsTurn:
                if uptime() > give_up:
                    raise ApplicationError(_BUSY, type=NotSent.__name__, next_retry_delay=timedelta(seconds=random.uniform(1, 2))) from None
            await asyncio.sleep(random.uniform(0.1, 0.3))
            standing = await self._payments.standing(refund_id)
            if standing.situation.status not in (Status.APPROVED, Status.SUBMITTING):
                return standing.situation

    async def _advance(self, refund_id: str, standing: Standing) -> Situation:
        operation = standing.operation
        if operation is not None and operation.in_flight:
            raise Unknown(_IN_FLIGHT, "another worker may be sending it")
        if operation is not None and operation.uncertain:
            adopted = await self._look_up(operation)
            if adopted is not None:
                return adopted
            if (why := self._payments.no_more_posts(operation, self._payments.database.clock.now())) is not None:
                return await self._payments.park(operation, Code.OUTCOME_UNKNOWN, f"not in the processor's list, and {why}")
        elif standing.unreachable and (held := await self._payments.hold_unless_probing(refund_id)) is not None:
            return held
        state = await self._processor.read_payment(standing.processor_payment)
        if state is None:
            state = missing(standing.processor_payment, standing.currency, self._payments.database.clock)
        elif standing.with_legs and self._marketplace is not None:
            state = replace(state, flow=await self._marketplace.read_flow(standing.processor_payment))
        if standing.unreachable:
            await self._payments.reached()
        await self._observing.take_in(standing.processor_payment, state)
        ours = operation and next((r for r in state.refunds if r.operation == operation.id), None)
        if operation is not None and ours is not None:  # an answer that this database has forgotten
            return await self._payments.receipt(operation, ours, attempt=None)
        began = uptime()
        opened = await self._payments.open_attempt(standing, state)
        if isinstance(opened, Situation):
            if opened.refused == Code.PAYMENT_BUSY and (operation is None or not operation.uncertain):
                raise _NotItsTurn
            if opened.status == Status.SUBMITTING:
                raise Unknown(opened.refused.lower(), opened.refused_detail)
            return opened
        operation, attempt = opened
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
            raise Unknown(CANNOT_LOOK_UP, error.reason) from error
        return None if found is None else await self._payments.receipt(operation, found, attempt=None)

    async def _give_up_or_retry(self, refund_id: str, error: NotSent | Unknown, tried: int) -> Situation:
        """Try again later with growing, jittered waits, or stop for now: held when certainly nothing was sent, else parked.

        A key that the processor does not accept is nobody's outcome: everything is halted until an operator has repaired it, and nothing fails or is parked for it.
        What may have been sent is looked for, and repeated when it can be, until the safe window is over: only looks that came when every answer had to be
        visible, and that nothing of ours kept from being followed by a repetition, may park it sooner.
        """
        refused_key = await halt_for(self._payments, error)
        operation = (await self._payments.standing(refund_id)).operation
        if operation is None or operation.first_sent_at is None:
            if refused_key is not None:
                why = f"the processor does not accept our key ({error.reason})"
                return await self._payments.hold_unsent(refund_id, Code.PROCESSOR_HALTED, why)
            if tried >= self._settings.submit_max_attempts:
                if error.reason != RATE_LIMITED:  # whoever is told to slow down has reached it
                    await self._payments.trip_breaker()
                why = f"the processor cannot be reached ({error.reason})"
                return await self._payments.hold_unsent(refund_id, Code.PROCESSOR_UNREACHABLE, why)
        elif error.reason != _IN_FLIGHT:
            why = await self._in_vain(operation, error, refused_key is not None)
            if why is not None:
                return await self._payments.park(operation, Code.OUTCOME_UNKNOWN, why)
        longest = min(self._settings.submit_retry_max_s, self._settings.submit_retry_initial_s * 2 ** min(tried - 1, 30))
        if error.reason in _BRAKES:  # ours, so it costs little to ask whether it is over
            longest = min(longest, self._settings.held_recheck_s)
        wait = max(longest * random.uniform(0.5, 1.0), error.retry_after or 0)
        raise ApplicationError(error.reason, type=type(error).__name__, next_retry_delay=timedelta(seconds=wait)) from None

    async def _in_vain(self, operation: Operation, error: NotSent | Unknown, key_refused: bool) -> str | None:
        """Say in the refund why it is looked for and not repeated just now; returns why it must be parked, or ``None`` while it need not be."""
        over = self._payments.window_is_over(operation, self._payments.database.clock.now())
        if error.reason == CANNOT_LOOK_UP and over and not key_refused:
            return f"it could not be looked up ({error.detail}), and the safe window is over"
        looked = isinstance(error, Unknown) and error.reason not in _NO_LOOK and not operation.may_answer and not key_refused
        looks = await self._payments.still_unknown(operation, self._words(operation, error, key_refused), looked=looked)
        if looked and looks >= self._settings.submit_max_attempts:
            return f"no answer ({error.reason}) after {operation.attempts} attempts and {looks} looks"
        return None

    def _words(self, operation: Operation, error: NotSent | Unknown, key_refused: bool) -> str:
        """What an operation that may have been sent waits for, and until when."""
        if key_refused:
            return "the processor does not accept our key; it is looked for again until an operator has repaired that"
        if error.reason in _BRAKES:
            why = f"{error.detail}; meanwhile it is looked for and not sent again"
        elif error.reason == CANNOT_LOOK_UP or isinstance(error, NotSent):
            why = f"the processor cannot be asked ({error.detail or error.reason})"
        else:
            why = f"no answer yet ({error.reason})"
        assert operation.first_sent_at is not None
        until = operation.first_sent_at + timedelta(seconds=self._settings.submit_safe_window_s)
        return f"{why}; parked for a person at {to_the_second(until)} at the latest"


class _NotItsTurn(Exception):
    """Another refund of the same payment is being sent."""


TURN_WITHIN_S = 30
"""So long a call that finds another of its payment under way waits here, before it is left to be repeated."""

_BUSY = Code.PAYMENT_BUSY.value.lower()
_IN_FLIGHT = "attempt_in_flight"
_BRAKES = frozenset(code.value.lower() for code in brakes.CODES)
_NO_LOOK = frozenset({CANNOT_LOOK_UP, Code.ATTEMPT_OPEN.value.lower(), _BUSY}) | _BRAKES
"""After these nobody can say that it was looked for and not found, or that it could have been repeated."""
