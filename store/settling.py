"""Settling a parked refund by hand: what a person says is checked live before it counts (design, section 4)."""

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncConnection

from refunds.errors import Code
from refunds.messages import Situation
from refunds.processor import CLOCKS_OF_A_PERSON, Conclusion, ProcessorRefund, RefundState, conclude, made_before
from refunds.status import Event, Status
from refunds.terms import OperationKind
from store.changes import lock_refund
from store.instructed import Instructed, said_given_back
from store.manual import HandingOver
from store.operations import Operation
from store.situations import situation
from store.sql import Row
from store.tables import processor_refunds

_BY_STATE = {
    RefundState.SUCCEEDED: Event.PROCESSOR_SUCCEEDED,
    RefundState.PENDING: Event.PROCESSOR_PENDING,
    RefundState.REQUIRES_ACTION: Event.PROCESSOR_PENDING,
    RefundState.FAILED: Event.PROCESSOR_FAILED,
    RefundState.CANCELED: Event.PROCESSOR_FAILED,
}


class Settling(HandingOver, Instructed):
    """The settling half of the payments role."""

    async def settle_refunded(self, operation: Operation, instruction: Row, refund: ProcessorRefund | None) -> Situation:
        """Let ``refunded`` count if the processor's refund is the one that was approved, and is not older than what it is said to have been made for.

        A refund that differs is refused as ``SETTLEMENT_MISMATCH``, unless it is the very one whose difference parked this refund: then the person has
        judged that difference, and it is kept in the ledger.
        """
        async with self.database.begin() as connection:
            change = await self._locked(connection, operation)
            if (heard := await self._already(connection, change, instruction)) is not None:
                return heard
            if change.status is not Status.PARKED:
                return await self._done(connection, change, instruction, Code.NOT_PARKED, f"it is {change.status}")
            if refund is None:
                return await self._done(
                    connection, change, instruction, Code.SETTLEMENT_NOT_FOUND, "the processor does not know this refund"
                )
            stored = await self._stored_refund(connection, operation)
            if stored not in (None, refund.id):
                return await self._done(connection, change, instruction, Code.SETTLEMENT_MISMATCH, f"the receipt names {stored}")
            conclusion = conclude(refund, amount=operation.amount, processor_payment=operation.request.processor_payment)
            if conclusion.code is Code.RESPONSE_MISMATCH and stored is None:
                return await self._done(connection, change, instruction, Code.SETTLEMENT_MISMATCH, conclusion.detail)
            if await self._taken(connection, operation, refund):
                return await self._done(
                    connection, change, instruction, Code.SETTLEMENT_MISMATCH, "that refund belongs to another refund of ours"
                )
            if stored is None and refund.operation is None and await self._is_older(connection, operation, refund):
                return await self._done(
                    connection, change, instruction, Code.SETTLEMENT_MISMATCH, "that refund was made before this one was sent"
                )
            event = _BY_STATE.get(refund.state)
            if event is None:
                why = f"the processor reports {refund.raw_state[:60]!r}, which is not final"
                return await self._done(connection, change, instruction, Code.STATUS_UNKNOWN, why)
            await self._keep(
                connection, change, operation, refund
            )  # also one that had been taken for somebody else's: from now on it is ours
            if stored is None:
                self.enter_adopted(change, operation, refund, actor=instruction["principal_id"])
            failed = Code.PROCESSOR_FAILED if event is Event.PROCESSOR_FAILED else None
            settled = Conclusion(event, failed, conclusion.detail)
            await self._apply(connection, change, operation, settled, processor_refund=refund.id, by=instruction["principal_id"])
            return await self._done(connection, change, instruction, None, "")

    async def settle_not_refunded(self, operation: Operation, instruction: Row, found: ProcessorRefund | None) -> Situation:
        """Let ``not_refunded`` count if a second person says it, no attempt can still be under way, and the complete fresh list has no such refund.

        ``found`` is our refund in that list, if it is there: then it is adopted and the settlement refused as ``SETTLEMENT_CONTRADICTED``. So is one of a
        manual part of which somebody said that they gave it back.
        """
        if found is not None:
            await self.receipt(operation, found, attempt=None)
        async with self.database.begin() as connection:
            change = await self._locked(connection, operation)
            if (heard := await self._already(connection, change, instruction)) is not None:
                return heard
            if found is not None:
                return await self._done(
                    connection, change, instruction, Code.SETTLEMENT_CONTRADICTED, f"the processor's list shows {found.id}"
                )
            if change.status is not Status.PARKED:
                return await self._done(connection, change, instruction, Code.NOT_PARKED, f"it is {change.status}")
            if not instruction["body"].get("first_person"):
                return await self._done(connection, change, instruction, Code.SECOND_PERSON_REQUIRED, "only one person has said so")
            by_hand = operation.kind is OperationKind.MANUAL
            if by_hand and (giver := await said_given_back(connection, change.id)) is not None:
                return await self._done(connection, change, instruction, Code.SETTLEMENT_CONTRADICTED, f"{giver} gave it back")
            if (named := await self._named(connection, operation)) is not None:
                return await self._done(connection, change, instruction, Code.SETTLEMENT_CONTRADICTED, f"the receipt names {named}")
            current = await self._operation(connection, change)
            if current is None or current.may_answer:
                return situation(change.row, refused=Code.ATTEMPT_OPEN.value, refused_detail="a request may still be under way")
            conclusion = Conclusion(Event.PROCESSOR_FAILED, Code.SETTLED_NOT_REFUNDED, "two persons found that no money had moved")
            await self._apply(connection, change, operation, conclusion, processor_refund=None, by=instruction["principal_id"])
            return await self._done(connection, change, instruction, None, "")

    async def settle_by_hand(self, operation: Operation, instruction: Row) -> Situation:
        """Let ``refunded`` count for a manual part: whoever gave it back says so with evidence, and there is nobody else to ask."""
        async with self.database.begin() as connection:
            change = await self._locked(connection, operation)
            if (heard := await self._already(connection, change, instruction)) is not None:
                return heard
            if change.status is not Status.PARKED:
                return await self._done(connection, change, instruction, Code.NOT_PARKED, f"it is {change.status}")
            given = Conclusion(Event.PROCESSOR_SUCCEEDED)
            await self._apply(connection, change, operation, given, processor_refund=None, by=instruction["principal_id"])
            return await self._done(connection, change, instruction, None, "")

    async def settle_released(self, operation: Operation, instruction: Row, *, canceled: bool) -> Situation:
        """Let ``refunded`` count for the release of an authorisation, when the processor shows that it is cancelled."""
        async with self.database.begin() as connection:
            change = await self._locked(connection, operation)
            if (heard := await self._already(connection, change, instruction)) is not None:
                return heard
            if change.status is not Status.PARKED:
                return await self._done(connection, change, instruction, Code.NOT_PARKED, f"it is {change.status}")
            if not canceled:
                return await self._done(connection, change, instruction, Code.SETTLEMENT_MISMATCH, "the authorisation is not cancelled")
            await self._apply(
                connection,
                change,
                operation,
                Conclusion(Event.AUTHORISATION_RELEASED),
                processor_refund=None,
                by=instruction["principal_id"],
            )
            return await self._done(connection, change, instruction, None, "")

    async def refuse_unbacked(self, refund_id: str, detail: str, *, enter_refusal: bool) -> Situation:
        """Refuse a settle message that names nothing recorded, and enter it in the ledger unless there were too many."""
        async with self.database.begin() as connection:
            change = await lock_refund(connection, refund_id, self.database.clock.now)
            if enter_refusal:
                change.note("message_refused", kind="settle", code=Code.MESSAGE_UNBACKED.value, detail=ascii(detail[:80])[1:-1])
                await change.save(connection)
            return situation(change.row, refused=Code.MESSAGE_UNBACKED.value)

    async def settle_contradicted_release(self, operation: Operation, instruction: Row) -> Situation:
        """Refuse ``not_refunded`` for an authorisation that the processor shows as cancelled, and record that it is."""
        await self.released(operation, attempt=None)
        async with self.database.begin() as connection:
            change = await self._locked(connection, operation)
            if (heard := await self._already(connection, change, instruction)) is not None:
                return heard
            return await self._done(connection, change, instruction, Code.SETTLEMENT_CONTRADICTED, "the authorisation is cancelled")

    async def _stored_refund(self, connection: AsyncConnection, operation: Operation) -> str | None:
        """The processor's refund that a receipt of this operation names."""
        query = select(processor_refunds.c.id).where(processor_refunds.c.operation_id == operation.id)
        return (await connection.execute(query)).scalar_one_or_none()

    async def _named(self, connection: AsyncConnection, operation: Operation) -> str | None:
        """The refund that a receipt names, unless it is recorded as failed: money has moved, whatever a list shows or its metadata say."""
        query = select(processor_refunds.c.id).where(
            processor_refunds.c.operation_id == operation.id,
            processor_refunds.c.state.not_in([state.value for state in RefundState if not state.counts]),
        )
        return (await connection.execute(query)).scalar_one_or_none()

    async def _is_older(self, connection: AsyncConnection, operation: Operation, refund: ProcessorRefund) -> bool:
        """Whether a refund was there before ours was sent: by the processor's time, or because we had seen it by then, whatever clocks say."""
        if made_before(refund.created_at, operation.created_at, CLOCKS_OF_A_PERSON):
            return True
        # Every reading for a quote or an attempt is taken in, so whatever it showed has been seen since then.
        seen = select(processor_refunds.c.id).where(
            processor_refunds.c.id == refund.id, processor_refunds.c.first_seen_at < operation.created_at
        )
        return (await connection.execute(seen)).one_or_none() is not None

    async def _taken(self, connection: AsyncConnection, operation: Operation, refund: ProcessorRefund) -> bool:
        owner = (
            await connection.execute(select(processor_refunds.c.operation_id).where(processor_refunds.c.id == refund.id))
        ).scalar_one_or_none()
        return (owner or refund.operation or operation.id) != operation.id
