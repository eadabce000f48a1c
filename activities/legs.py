"""Legs: what a refund on a marketplace returns beside itself. Each is sent by itself after the refund was accepted, and none waits for another (field report 37).

Attempt and receipt are the store's; this file only decides what to do between them. When to try again is kept on the leg and not in the engine's retries, so
that a leg of which nothing is known keeps neither the other legs nor the run from going on.
"""

from temporalio import activity

from activities.heartbeat import heartbeating, to_its_end
from activities.keys import CANNOT_LOOK_UP, halt_for
from activities.processors.base import Marketplace, SendTooLate, uptime
from refunds.errors import Code
from refunds.logs import logger
from refunds.marketplace import LegKind, LegReceipt, LegRequest
from refunds.messages import Situation, Step, StepInput
from refunds.processor import NotSent, Refused, Unknown
from refunds.status import Status
from store.leg_rows import Leg
from store.legs import Legs
from store.operation_rows import Attempt

log = logger(__name__)
_IN_FLIGHT = "attempt_in_flight"


class SendLegs:
    """The step of the ``payments`` role that returns what went to connected accounts."""

    def __init__(self, legs: Legs, processor: Marketplace) -> None:
        self._legs = legs
        self._processor = processor

    @activity.defn(name=Step.LEGS)
    async def send_legs(self, step: StepInput) -> Situation:
        """Do what is due for each open leg of a refund, remind of the parked ones, and answer with when that is next. Safe to call any number of times."""
        async with heartbeating():
            return await to_its_end(self._all(step.refund))

    async def _all(self, refund_id: str) -> Situation:
        standing = await self._legs.standing(refund_id)
        for leg in standing.due:
            try:
                await self._advance(leg, failed=standing.situation.status == Status.FAILED)
            except (NotSent, Unknown) as error:
                log.warning("leg_without_answer", refund=refund_id, leg=leg.id, outcome=type(error).__name__, reason=error.reason)
                await halt_for(self._legs, error)
                looked = isinstance(error, Unknown) and error.reason not in (_IN_FLIGHT, CANNOT_LOOK_UP)
                await self._legs.no_answer(leg, error, looked=looked)
        return await self._legs.remind(refund_id)

    async def _advance(self, leg: Leg, *, failed: bool) -> None:
        if leg.in_flight:
            raise Unknown(_IN_FLIGHT, "another worker may be sending it")
        if await self._adopted(leg):
            return
        if failed:
            # Nothing is sent for a refund that failed; what may have been sent before and does not show is for a person to find out.
            await self._legs.park(leg, Code.OUTCOME_UNKNOWN, "not in the processor's list, and its refund has failed")
            return
        began = uptime()
        opened = await self._legs.open_attempt(leg)
        if opened is not None:
            await self._send(*opened, send_before=began + opened[1].send_within_s)

    async def _send(self, leg: Leg, attempt: Attempt, *, send_before: float) -> None:
        try:
            receipt = await self._call(leg.request, send_before)
        except SendTooLate:
            await self._legs.lapse(leg, attempt)
            raise NotSent("too_late_to_send", "the attempt lapsed before it was sent") from None
        except (Refused, NotSent, Unknown) as error:
            if await self._legs.failed_attempt(leg, attempt, error):
                return
            if isinstance(error, NotSent):
                raise
            if await self._adopted(leg):
                return
            if error.reason == "idempotency_conflict":
                await self._legs.park(leg, Code.IDEMPOTENCY_CONFLICT, "the processor knows the key with other content")
                return
            raise Unknown(error.reason, error.detail, code=error.code, retry_after=error.retry_after) from error
        await self._legs.receipt(leg, receipt, attempt=attempt)

    async def _call(self, request: LegRequest, send_before: float) -> LegReceipt:
        if request.kind is LegKind.REVERSE_TRANSFER:
            return await self._processor.reverse_transfer(request, send_before=send_before)
        return await self._processor.refund_fee(request, send_before=send_before)

    async def _adopted(self, leg: Leg) -> bool:
        """Whether the leg was found at the processor by our id: made by an attempt whose answer was lost, or one that this database has forgotten."""
        try:
            found = await find(self._processor, leg.request)
        except NotSent as error:
            if leg.uncertain:
                raise Unknown(CANNOT_LOOK_UP, error.reason) from error
            raise
        if found is None:
            return False
        await self._legs.receipt(leg, found, attempt=None)
        return True


async def find(processor: Marketplace, request: LegRequest) -> LegReceipt | None:
    """Look a leg up by our id, to the last page. ``None`` is no evidence of anything. Raises ``NotSent``."""
    if request.kind is LegKind.REVERSE_TRANSFER:
        return await processor.find_reversal(request.target, request.operation)
    return await processor.find_fee_refund(request.target, request.operation)
