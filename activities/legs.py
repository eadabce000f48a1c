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
from store.legs import Legs, made_by
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
        if await self._legs.found(leg, await self._made(leg)):
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
            if (found := made_by(leg, await self._made(leg))) is not None:
                await self._legs.receipt(leg, found, attempt=None)
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

    async def _made(self, leg: Leg) -> tuple[LegReceipt, ...]:
        """All that the processor has made of the leg's target, to the last page: also by an attempt whose answer was lost or is forgotten, and by others."""
        try:
            return await self._processor.returned_of(leg.request.kind, leg.request.target)
        except NotSent as error:
            if leg.uncertain:
                raise Unknown(CANNOT_LOOK_UP, error.reason) from error
            raise
