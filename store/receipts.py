"""What came of an operation: receipts, adoptions, releases, parking, and what is seen later.

Every function here converges: whoever comes second finds the record made and changes nothing (field report 11).
"""

from datetime import timedelta
from typing import Any

from sqlalchemy import Text, bindparam, func, insert, literal, not_, select, update
from sqlalchemy.dialects.postgresql import insert as upsert
from sqlalchemy.ext.asyncio import AsyncConnection

from refunds.errors import Code
from refunds.messages import Situation
from refunds.processor import Conclusion, ProcessorRefund, RefundState, conclude
from refunds.status import Event, Status, allows
from store import leg_rows
from store.changes import Change
from store.operation_rows import ANSWERED, UNKNOWN, Attempt, Operation, OperationRows
from store.sql import Query, commit, pipelined
from store.tables import attempts, operations, processor_refunds

_FRESH = ("state", "raw_state", "failure_reason", "updated_at")
_KEPT = ("id", "processor", "payment_id", "operation_id", "amount", "currency", *_FRESH[:3], "created_at", "first_seen_at", "updated_at")
_MADE = upsert(processor_refunds).values({name: bindparam(name) for name in _KEPT})
_FAILED = [literal(state.value) for state in RefundState if not state.counts]
_UNDER_WAY = [literal(RefundState.PENDING.value), literal(RefundState.REQUIRES_ACTION.value)]
_DONE = [literal(RefundState.SUCCEEDED.value)]
_BEFORE, _NOW = processor_refunds.c.state, _MADE.excluded.state
_UNDONE = (_BEFORE.in_(_FAILED) & _NOW.not_in(_FAILED)) | (_BEFORE.in_(_DONE) & _NOW.in_(_UNDER_WAY))
"""What an answer that waited to be recorded would undo. Only an observation, which is ordered by when it was read, may say that."""

# Taken for somebody else's until now: our own answer, or a person, says that it is ours.
_OURS = {"operation_id": func.coalesce(processor_refunds.c.operation_id, _MADE.excluded.operation_id)}
_FRESHER = {name: _MADE.excluded[name] for name in _FRESH} | _OURS
_KEEP = Query(_MADE.on_conflict_do_update(index_elements=["id"], set_=_FRESHER, where=not_(_UNDONE)))
RECORD = Query(insert(processor_refunds))
"""Keeps a refund of the processor that is not recorded yet."""

_THIS = bindparam("attempt", type_=Text)
_ANSWER = Query(
    update(attempts)
    .where(
        attempts.c.operation_id == bindparam("operation"),
        (attempts.c.id == _THIS) | (_THIS.is_(None) & (attempts.c.outcome.is_(None) | (attempts.c.outcome == literal(UNKNOWN)))),
    )
    .values(answered_at=bindparam("at"), outcome=literal(ANSWERED), reason=bindparam("why"), detail=bindparam("what"))
)
_SETTLE = Query(
    update(operations).where(operations.c.id == bindparam("operation")).values(settled_at=bindparam("at"), outcome=bindparam("status"))
)


def _answer(operation: Operation, refund: ProcessorRefund) -> dict[str, Any]:
    return {
        "operation": operation.id,
        "processor_refund": refund.id,
        "amount": refund.amount,
        "currency": refund.currency.upper(),
        "state": refund.raw_state,
    }


def _money(operation: Operation) -> dict[str, Any]:
    return {"amount": operation.amount.amount, "currency": operation.amount.currency}


_WORSE = (Code.RESPONSE_MISMATCH, Code.REFUNDED_TWICE)
"""What a parked refund may turn out to be: then nothing more is sent for its payment until it is settled (``store/brakes.py``)."""


class Receipts(OperationRows):
    """The recording half of the payments role."""

    async def receipt(self, operation: Operation, refund: ProcessorRefund, *, attempt: Attempt | None) -> Situation:
        """Store the processor's refund id as the first act, then compare with what was approved, then move.

        Converges: whoever comes second finds the receipt and moves nothing; that it came is entered. ``attempt`` is ``None`` when the refund was found by
        looking it up; then every uncertain attempt is answered by it.
        """
        async with self.database.begin() as connection:
            change = await self._locked(connection, operation)
            newest = await self._keep(connection, change, operation, refund)
            async with pipelined(connection):
                await self._answer_attempts(connection, change, operation, attempt, refund)
                if newest:
                    approved = {"amount": operation.amount, "processor_payment": operation.request.processor_payment}
                    conclusion = conclude(refund, **approved, operation=operation.id)
                    await self._apply(connection, change, operation, conclusion, processor_refund=refund.id)
                found = await self._saved(connection, change)
                await commit(connection)
            return found

    async def _keep(self, connection: AsyncConnection, change: Change, operation: Operation, refund: ProcessorRefund) -> bool:
        """Store the processor's refund; false when something newer is known of it (field report 22)."""
        kept = await _KEEP.do(
            connection,
            id=refund.id,
            processor="stripe",
            payment_id=operation.payment_id,
            operation_id=operation.id,
            amount=refund.amount,
            currency=refund.currency.upper(),
            state=refund.state.value,
            raw_state=refund.raw_state,
            failure_reason=refund.failure_reason,
            created_at=refund.created_at,
            first_seen_at=change.at,
            updated_at=change.at,
        )
        return kept == 1

    async def _answer_attempts(
        self, connection: AsyncConnection, change: Change, operation: Operation, attempt: Attempt | None, refund: ProcessorRefund
    ) -> None:
        await self._answered(connection, change, operation, attempt, reason="answer" if attempt else "found", detail=refund.id)
        change.note("receipt" if attempt else "adopted", attempt=attempt.id if attempt else None, **_answer(operation, refund))

    def enter_adopted(self, change: Change, operation: Operation, refund: ProcessorRefund, *, actor: str) -> None:
        """Enter that a person named the processor's refund, and what the processor said of it: this stands behind the money that is recorded of it."""
        change.note("adopted", actor=actor, **_answer(operation, refund))

    async def _answered(
        self,
        connection: AsyncConnection,
        change: Change,
        operation: Operation,
        attempt: Attempt | None,
        *,
        reason: str,
        detail: str | None = None,
    ) -> None:
        """Mark one attempt as answered, or with ``None`` every attempt of which nothing is known: what was found answers them all."""
        await _ANSWER.do(connection, operation=operation.id, attempt=attempt.id if attempt else None, at=change.at, why=reason, what=detail)

    async def _apply(
        self,
        connection: AsyncConnection,
        change: Change,
        operation: Operation,
        conclusion: Conclusion,
        *,
        processor_refund: str | None,
        by: str = "processor",
    ) -> None:
        if change.status is Status.FAILED and conclusion.event is Event.PROCESSOR_PENDING:
            # Taken for failed, and now under way after all: a person must see it.
            conclusion = Conclusion(Event.PARK, Code.OUTCOME_UNKNOWN, "it was recorded as failed, and the processor shows it as under way")
        if change["code"] == Code.REFUNDED_TWICE and by == "processor":
            return  # whatever either of the two does, a person says what that means
        code = conclusion.code
        if change.status is Status.PARKED and code is not None and code in _WORSE and change["code"] not in _WORSE:
            # Parked for want of an answer, and now there is one that is not what was approved: that is what a person has to settle.
            change.put(code=code.value, detail=conclusion.detail)
            change.note("parked_for_another_reason", code=code.value, operation=operation.id, processor_refund=processor_refund)
            change.notice("parked", code=code)
        if not allows(change.status, conclusion.event):
            return  # the other worker, a poll or an event was here first; the record already says so
        before = change.status
        change.put(detail=conclusion.detail or None)
        change.move(conclusion.event, actor=by, code=conclusion.code, operation=operation.id, processor_refund=processor_refund)
        if conclusion.event in (Event.PROCESSOR_SUCCEEDED, Event.PROCESSOR_FAILED, Event.AUTHORISATION_RELEASED):
            await _SETTLE.do(connection, operation=operation.id, at=change.at, status=change.status.value)
        if conclusion.event is Event.PROCESSOR_PENDING:
            change.put(wake_at=change.at + timedelta(seconds=self.settings.pending_poll_initial_s))
        if conclusion.event is Event.PARK:
            change.put(wake_at=change.at + timedelta(seconds=self.settings.parked_escalate_s), queue="settle")
            change.notice("parked", code=conclusion.code)
        if before is Status.SUCCEEDED and conclusion.event is Event.PROCESSOR_FAILED:
            # Counted as returned until now: the entry that takes it back stands beside the one that counted it (field report 17).
            change.note(
                "compensated",
                operation=operation.id,
                processor_refund=processor_refund,
                **_money(operation),
                reason=conclusion.detail or None,
            )
            change.notice("failed_after_success", code=conclusion.code)
        elif conclusion.event is Event.PROCESSOR_FAILED:
            change.notice("failed", code=conclusion.code)
        if before is Status.FAILED and conclusion.event is Event.PROCESSOR_SUCCEEDED:
            change.notice("succeeded_after_failure")
        await leg_rows.follow(connection, change, longest=self._longest_call, escalate=timedelta(seconds=self.settings.parked_escalate_s))

    async def released(self, operation: Operation, *, attempt: Attempt | None) -> Situation:
        """Record that the authorisation was cancelled: no money was taken, so it is not counted as a refund."""
        async with self.database.begin() as connection:
            change = await self._locked(connection, operation)
            await self._answered(connection, change, operation, attempt, reason="released")
            await self._apply(connection, change, operation, Conclusion(Event.AUTHORISATION_RELEASED), processor_refund=None)
            return await self._saved(connection, change)

    async def park(self, operation: Operation, code: Code, why: str) -> Situation:
        """Park a refund whose outcome nobody can know: a person settles it. Its money stays reserved."""
        async with self.database.begin() as connection:
            change = await self._locked(connection, operation)
            if change.status is Status.SUBMITTING:  # another worker may have learned the outcome meanwhile
                await self._apply(connection, change, operation, Conclusion(Event.PARK, code, why), processor_refund=None, by="system")
            return await self._saved(connection, change)

    async def observed(self, operation: Operation, refund: ProcessorRefund | None) -> Situation:
        """Record what a poll or look-up saw of a refund that is not final; ``None`` when the processor could not be asked.

        Age is never evidence: an old pending refund is parked, not failed, and one that could not be asked stays as it is (field report 8).
        """
        async with self.database.begin() as connection:
            change = await self._locked(connection, operation)
            if refund is not None and await self._keep(connection, change, operation, refund):
                conclusion = conclude(refund, amount=operation.amount, processor_payment=operation.request.processor_payment)
                if conclusion.event is not Event.PROCESSOR_PENDING or change.status is not Status.PENDING:
                    await self._apply(connection, change, operation, conclusion, processor_refund=refund.id)
            if change.status is Status.PENDING:
                age = (change.at - change["status_since"]).total_seconds()
                if age >= self.settings.pending_give_up_s:
                    why = f"still pending after {int(age // 86_400)} days"
                    await self._apply(
                        connection, change, operation, Conclusion(Event.PARK, Code.PENDING_TOO_LONG, why), processor_refund=None
                    )
                else:
                    wait = min(max(self.settings.pending_poll_initial_s, age / 2), self.settings.pending_poll_max_s)
                    change.put(wake_at=change.at + timedelta(seconds=wait))
            return await self._saved(connection, change)

    async def processor_refund_of(self, operation: Operation) -> str | None:
        """The processor's refund id of an operation, once there is a receipt."""
        async with self.database.begin() as connection:
            return (
                await connection.execute(select(processor_refunds.c.id).where(processor_refunds.c.operation_id == operation.id))
            ).scalar_one_or_none()
