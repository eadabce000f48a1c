"""Submitting money: intent, attempts, receipt; three short transactions, and never a network call inside one (design, section 4).

An operation is as uncertain as its worst attempt: an attempt that was opened and has no recorded answer counts as unknown, and once one is unknown no later
refusal concludes anything.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import func, insert, select, update
from sqlalchemy.dialects.postgresql import insert as upsert
from sqlalchemy.engine import RowMapping
from sqlalchemy.ext.asyncio import AsyncConnection

from refunds.errors import Code
from refunds.ids import Prefix, new_id
from refunds.messages import Situation
from refunds.money import Money
from refunds.processor import (
    Conclusion,
    DisputeState,
    FrozenRequest,
    NotSent,
    PaymentState,
    PaymentStatus,
    ProcessorRefund,
    Refused,
    Unknown,
    conclude,
)
from refunds.settings import Settings
from refunds.status import Event, Status, allows
from refunds.submission import freeze
from refunds.terms import OperationKind, Terms
from store import controls, snapshots
from store.changes import Change, announce, lock_payment, lock_refund, read_refund
from store.claims import refundable_of
from store.db import Database
from store.requirements import Required, decisions_on, revision_of, sufficient
from store.situations import situation
from store.tables import attempts, consumed_decisions, operations, payments, processor_refunds

ANSWERED, REFUSED, NOT_SENT, UNKNOWN, LAPSED = "answered", "refused", "not_sent", "unknown", "lapsed"
_CERTAIN = (ANSWERED, REFUSED, NOT_SENT, LAPSED)


@dataclass(frozen=True, slots=True)
class Operation:
    """One operation with what its attempts say.

    ``in_flight``: an attempt is open that may still be sent, perhaps by another worker; ``may_answer``: one may still be under way.
    ``first_sent_at``: the opening of the first attempt that may have been sent.
    """

    id: str
    refund_id: str
    payment_id: str
    kind: OperationKind
    amount: Money
    request: FrozenRequest
    attempts: int
    uncertain: bool
    in_flight: bool
    may_answer: bool
    first_sent_at: datetime | None
    last_reason: str | None


@dataclass(frozen=True, slots=True)
class Attempt:
    """An open attempt: it may leave this machine for ``send_within_s`` from the moment the transaction that opened it was begun, and not later."""

    id: str
    number: int
    send_within_s: float


@dataclass(frozen=True)
class Payments:
    """The database's side of submitting, over the login of the ``payments`` role."""

    database: Database
    settings: Settings
    worker: str

    @property
    def _longest_call(self) -> timedelta:
        """How long after its ``send_by`` a call can still be under way."""
        return timedelta(seconds=self.settings.stripe_connect_timeout_s + self.settings.stripe_read_timeout_s)

    # --- intent ------------------------------------------------------------------------------------------------------------------

    async def intent(self, refund_id: str) -> tuple[Operation | None, Situation]:
        """Consume the approvals, freeze the exact request and its key, and move to ``submitting``; once per approved revision, for ever.

        Returns the operation, or ``None`` when this refund is not to be submitted now (the situation says why). Called again it returns the same
        operation.
        """
        async with self.database.begin() as connection:
            row = await read_refund(connection, refund_id)
            if row["payment_id"] is None:
                return None, situation(dict(row))
            await lock_payment(connection, row["payment_id"])
            change = await lock_refund(connection, refund_id, self.database.clock.now)
            if change.status is Status.SUBMITTING:
                return await self._operation(connection, change), situation(change.row)
            if change.status is not Status.APPROVED:
                return None, situation(change.row)
            revision = await revision_of(connection, refund_id, change["revision"])
            if revision["expires_at"] <= change.at:
                self._hold(change, Code.TERMS_EXPIRED, "the terms expired; they are quoted again")
                return None, await self._saved(connection, change)
            if (await self._existing(connection, change)) is None:
                await self._open_operation(connection, change, revision)
            change.move(Event.SUBMIT, revision=change["revision"], terms_hash=revision["terms_hash"])
            saved = await self._saved(connection, change)
            return await self._operation(connection, change), saved

    async def _open_operation(self, connection: AsyncConnection, change: Change, revision: RowMapping) -> None:
        terms = Terms.from_stored(revision["terms"])
        if terms.hash != revision["terms_hash"]:
            raise RuntimeError(f"the stored terms of {change.id} do not match their hash; nothing is sent")
        recorded = await decisions_on(connection, change.id, change["revision"])
        approving = sufficient(Required.of(revision["decision"]), recorded, terms.hash)
        if approving is None:
            raise RuntimeError(f"{change.id} is approved but its recorded decisions do not meet its requirements; nothing is sent")
        operation_id = new_id(Prefix.OPERATION)
        request = freeze(terms, operation_id)
        await connection.execute(
            insert(operations).values(
                id=operation_id,
                refund_id=change.id,
                revision=change["revision"],
                kind=terms.operation.value,
                terms_hash=terms.hash,
                payment_id=revision["payment_id"],
                amount=terms.amount,
                currency=terms.currency,
                request=_request_plain(request),
                idempotency_key=request.idempotency_key,
                created_at=change.at,
            )
        )
        await connection.execute(
            insert(consumed_decisions),
            [{"decision_id": d["id"], "operation_id": operation_id, "consumed_at": change.at} for d in approving],
        )
        change.note("intent", operation=operation_id, kind=terms.operation.value, consumed=[d["id"] for d in approving])

    async def _existing(self, connection: AsyncConnection, change: Change) -> RowMapping | None:
        query = select(operations).where(operations.c.refund_id == change.id, operations.c.revision == change["revision"])
        return (await connection.execute(query)).mappings().one_or_none()

    async def operation_of(self, refund_id: str) -> Operation | None:
        """The operation of a refund's present revision, or ``None``."""
        async with self.database.begin() as connection:
            row = await read_refund(connection, refund_id)
            change = Change(row, self.database.clock.now())
            return await self._operation(connection, change) if await self._existing(connection, change) else None

    async def _operation(self, connection: AsyncConnection, change: Change) -> Operation:
        row = await self._existing(connection, change)
        assert row is not None
        tried = (
            (
                await connection.execute(
                    select(
                        attempts,
                        (attempts.c.send_by > func.clock_timestamp()).label("sendable"),
                        (attempts.c.send_by + self._longest_call > func.clock_timestamp()).label("answerable"),
                    )
                    .where(attempts.c.operation_id == row["id"])
                    .order_by(attempts.c.number)
                )
            )
            .mappings()
            .all()
        )
        maybe_sent = [a for a in tried if a["outcome"] not in (NOT_SENT, LAPSED)]
        uncertain = [a for a in tried if a["outcome"] not in _CERTAIN]
        return Operation(
            id=row["id"],
            refund_id=row["refund_id"],
            payment_id=row["payment_id"],
            kind=OperationKind(row["kind"]),
            amount=Money(row["amount"], row["currency"]),
            request=FrozenRequest(**row["request"]),
            attempts=len(tried),
            uncertain=bool(uncertain),
            in_flight=any(a["outcome"] is None and a["sendable"] for a in tried),
            may_answer=any(a["outcome"] is None and a["answerable"] for a in tried),
            first_sent_at=min((a["opened_at"] for a in maybe_sent), default=None),
            last_reason=tried[-1]["reason"] if tried else None,
        )

    # --- attempt -----------------------------------------------------------------------------------------------------------------

    async def open_attempt(self, operation: Operation, state: PaymentState) -> tuple[Attempt | None, Situation]:
        """Open one attempt under the stop's lock, if everything still fits; otherwise hold the refund and return ``None``.

        ``state`` was read live just before. Checked, each in its own statement after the locks: the stop, what is still refundable, the payment's state
        and disputes, and that the refund is still the one that was approved. An operation that may already have been sent is never held back by these:
        its fate is looked up, not decided.
        """
        async with self.database.begin() as connection:
            await controls.share_stop_lock(connection)
            control = await controls.read(connection)
            await lock_payment(connection, operation.payment_id)
            change = await lock_refund(connection, operation.refund_id, self.database.clock.now)
            if change.status is not Status.SUBMITTING:
                return None, situation(change.row)
            refusal = await self._unfit(connection, change, operation, state, stopped=control.stopped)
            if refusal is not None:
                code, why = refusal
                if operation.uncertain:
                    return None, situation(change.row, refused=code.value, refused_detail=why)
                self._hold(change, code, why)
                return None, await self._saved(connection, change)
            current = await self._operation(connection, change)
            if current.in_flight:
                return None, situation(change.row, refused=Code.ATTEMPT_OPEN.value, refused_detail="another worker may be sending it")
            return await self._insert_attempt(connection, change, current), situation(change.row)

    async def _unfit(
        self, connection: AsyncConnection, change: Change, operation: Operation, state: PaymentState, *, stopped: bool
    ) -> tuple[Code, str] | None:
        if stopped:
            return Code.EMERGENCY_STOP, "an operator has stopped all refunds"
        revision = await revision_of(connection, change.id, change["revision"])
        if not operation.uncertain and revision["expires_at"] <= change.at:
            return Code.TERMS_EXPIRED, "the terms expired; they are quoted again"
        if not _same_dispute(state.dispute, revision["facts"]["payment"]["dispute"]):
            return Code.TERMS_EXPIRED, f"a dispute appeared ({state.dispute}); the terms are judged again"
        wanted = PaymentStatus.AUTHORISED if operation.kind is OperationKind.RELEASE else PaymentStatus.CAPTURED
        if state.status is not wanted or state.currency != operation.amount.currency:
            return Code.TERMS_EXPIRED, f"the payment is now {state.status}; the terms are judged again"
        figures = await refundable_of(connection, operation.payment_id, state, besides=change.id)
        if operation.kind is OperationKind.RELEASE and state.capturable != operation.amount.amount:
            return Code.TERMS_EXPIRED, "the authorised amount changed; the terms are judged again"
        if figures.remaining < operation.amount.amount:
            left = Money(figures.remaining, state.currency)
            return Code.TERMS_EXPIRED, f"only {left} is still refundable; the terms are judged again"
        return None

    async def _insert_attempt(self, connection: AsyncConnection, change: Change, operation: Operation) -> Attempt:
        number, attempt_id = operation.attempts + 1, new_id(Prefix.ATTEMPT)
        within = self.settings.submit_send_within_s
        await connection.execute(
            insert(attempts).values(
                id=attempt_id,
                operation_id=operation.id,
                number=number,
                worker=self.worker,
                opened_at=change.at,
                # By the database's clock: workers' clocks may differ, and the stop asks the database what may still be sent.
                send_by=func.clock_timestamp() + timedelta(seconds=within),
            )
        )
        change.note("attempt_opened", operation=operation.id, attempt=attempt_id, number=number)
        await change.save(connection)
        return Attempt(attempt_id, number, within)

    def _hold(self, change: Change, code: Code, why: str) -> None:
        soon = 0.0 if code is Code.TERMS_EXPIRED else self.settings.held_recheck_s
        change.put(wake_at=change.at + timedelta(seconds=soon), detail=why)
        change.move(Event.HOLD, code=code)

    async def _saved(self, connection: AsyncConnection, change: Change) -> Situation:
        await change.save(connection)
        await announce(connection, change.id)
        return situation(change.row)

    # --- receipt -----------------------------------------------------------------------------------------------------------------

    async def receipt(self, operation: Operation, refund: ProcessorRefund, *, attempt: Attempt | None) -> Situation:
        """Store the processor's refund id as the first act, then compare with what was approved, then move.

        Converges: whoever comes second finds the receipt and changes nothing. ``attempt`` is ``None`` when the refund was found by looking it up; then
        every uncertain attempt is answered by it.
        """
        async with self.database.begin() as connection:
            await lock_payment(connection, operation.payment_id)
            change = await lock_refund(connection, operation.refund_id, self.database.clock.now)
            await self._keep(connection, change, operation, refund)
            await self._answer_attempts(connection, change, operation, attempt, refund)
            conclusion = conclude(refund, amount=operation.amount, processor_payment=operation.request.processor_payment)
            await self._apply(connection, change, operation, conclusion, processor_refund=refund.id)
            return await self._saved(connection, change)

    async def _keep(self, connection: AsyncConnection, change: Change, operation: Operation, refund: ProcessorRefund) -> None:
        values = {
            "id": refund.id,
            "processor": "stripe",
            "payment_id": operation.payment_id,
            "operation_id": operation.id,
            "amount": refund.amount,
            "currency": refund.currency.upper(),
            "state": refund.state.value,
            "raw_state": refund.raw_state,
            "failure_reason": refund.failure_reason,
            "first_seen_at": change.at,
            "updated_at": change.at,
        }
        fresh = {k: values[k] for k in ("state", "raw_state", "failure_reason", "updated_at")}
        await connection.execute(upsert(processor_refunds).values(values).on_conflict_do_update(index_elements=["id"], set_=fresh))

    async def _answer_attempts(
        self, connection: AsyncConnection, change: Change, operation: Operation, attempt: Attempt | None, refund: ProcessorRefund
    ) -> None:
        which = attempts.c.operation_id == operation.id
        which &= attempts.c.id == attempt.id if attempt else (attempts.c.outcome.is_(None) | (attempts.c.outcome == UNKNOWN))
        await connection.execute(
            update(attempts)
            .where(which)
            .values(answered_at=change.at, outcome=ANSWERED, reason="answer" if attempt else "found", detail=refund.id)
        )
        change.note(
            "receipt" if attempt else "adopted",
            operation=operation.id,
            attempt=attempt.id if attempt else None,
            processor_refund=refund.id,
            amount=refund.amount,
            currency=refund.currency.upper(),
            state=refund.raw_state,
        )

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
        if not allows(change.status, conclusion.event):
            return  # the other worker, a poll or an event was here first; the record already says so
        change.put(detail=conclusion.detail or None)
        change.move(conclusion.event, actor=by, code=conclusion.code, operation=operation.id, processor_refund=processor_refund)
        if conclusion.event in (Event.PROCESSOR_SUCCEEDED, Event.PROCESSOR_FAILED, Event.AUTHORISATION_RELEASED):
            await connection.execute(
                update(operations).where(operations.c.id == operation.id).values(settled_at=change.at, outcome=change.status.value)
            )
        if conclusion.event is Event.PROCESSOR_PENDING:
            change.put(wake_at=change.at + timedelta(seconds=self.settings.pending_poll_initial_s))
        if conclusion.event is Event.PARK:
            change.put(wake_at=change.at + timedelta(seconds=self.settings.parked_escalate_s), queue="settle")
            change.notice("parked", code=conclusion.code)
        if conclusion.event is Event.PROCESSOR_FAILED:
            change.notice("failed", code=conclusion.code)

    async def released(self, operation: Operation, *, attempt: Attempt | None) -> Situation:
        """Record that the authorisation was cancelled: no money was taken, so it is not counted as a refund."""
        async with self.database.begin() as connection:
            await lock_payment(connection, operation.payment_id)
            change = await lock_refund(connection, operation.refund_id, self.database.clock.now)
            which = attempts.c.operation_id == operation.id
            which &= attempts.c.id == attempt.id if attempt else (attempts.c.outcome.is_(None) | (attempts.c.outcome == UNKNOWN))
            await connection.execute(update(attempts).where(which).values(answered_at=change.at, outcome=ANSWERED, reason="released"))
            await self._apply(connection, change, operation, Conclusion(Event.AUTHORISATION_RELEASED), processor_refund=None)
            return await self._saved(connection, change)

    async def failed_attempt(self, operation: Operation, attempt: Attempt, error: Refused | NotSent | Unknown) -> Situation:
        """Record how an attempt ended without an answer of ours.

        A refusal concludes only when no other attempt is uncertain. Nothing sent leaves the refund as it is: it is tried again, or held.
        """
        outcome = {Refused: REFUSED, NotSent: NOT_SENT, Unknown: UNKNOWN}[type(error)]
        async with self.database.begin() as connection:
            await lock_payment(connection, operation.payment_id)
            change = await lock_refund(connection, operation.refund_id, self.database.clock.now)
            done = await connection.execute(
                update(attempts)
                .where(attempts.c.id == attempt.id, attempts.c.outcome.is_(None))
                .values(answered_at=change.at, outcome=outcome, reason=error.reason, detail=error.detail[:500])
            )
            if done.rowcount:
                change.note(
                    "attempt_ended",
                    operation=operation.id,
                    attempt=attempt.id,
                    outcome=outcome,
                    reason=error.reason,
                    processor_code=error.code,
                )
            now = await self._operation(connection, change)
            # Only while it is being submitted: a refusal that comes in late must not undo what another attempt achieved.
            if isinstance(error, Refused) and change.status is Status.SUBMITTING and not now.uncertain:
                code = _REFUSAL_CODES.get(error.code or "", Code.PROCESSOR_REFUSED)
                await self._apply(
                    connection, change, operation, Conclusion(Event.PROCESSOR_FAILED, code, error.detail[:300]), processor_refund=None
                )
            return await self._saved(connection, change)

    async def lapse(self, operation: Operation, attempt: Attempt) -> None:
        """Record that an attempt was not sent before its ``send_by``: it is void, certainly nothing left."""
        async with self.database.begin() as connection:
            change = await lock_refund(connection, operation.refund_id, self.database.clock.now)
            await connection.execute(
                update(attempts)
                .where(attempts.c.id == attempt.id, attempts.c.outcome.is_(None))
                .values(answered_at=change.at, outcome=LAPSED, reason="too_late_to_send")
            )
            change.note("attempt_ended", operation=operation.id, attempt=attempt.id, outcome=LAPSED)
            await change.save(connection)

    # --- giving up for now, and what comes later ---------------------------------------------------------------------------------

    async def hold_unsent(self, operation: Operation, why: str) -> Situation:
        """Hold a refund of which certainly nothing was sent, until the processor can be reached again."""
        async with self.database.begin() as connection:
            await lock_payment(connection, operation.payment_id)
            change = await lock_refund(connection, operation.refund_id, self.database.clock.now)
            now = await self._operation(connection, change)
            if change.status is Status.SUBMITTING and now.first_sent_at is None:
                self._hold(change, Code.PROCESSOR_UNREACHABLE, why)
            return await self._saved(connection, change)

    async def park(self, operation: Operation, code: Code, why: str) -> Situation:
        """Park a refund whose outcome nobody can know: a person settles it. Its money stays reserved."""
        async with self.database.begin() as connection:
            await lock_payment(connection, operation.payment_id)
            change = await lock_refund(connection, operation.refund_id, self.database.clock.now)
            if change.status is Status.SUBMITTING:  # another worker may have learned the outcome meanwhile
                await self._apply(connection, change, operation, Conclusion(Event.PARK, code, why), processor_refund=None, by="system")
            return await self._saved(connection, change)

    async def observed(self, operation: Operation, refund: ProcessorRefund | None) -> Situation:
        """Record what a poll or look-up saw of a refund that is not final; ``None`` when the processor could not be asked.

        Age is never evidence: an old pending refund is parked, not failed, and one that could not be asked stays as it is (field report 8).
        """
        async with self.database.begin() as connection:
            await lock_payment(connection, operation.payment_id)
            change = await lock_refund(connection, operation.refund_id, self.database.clock.now)
            if refund is not None:
                await self._keep(connection, change, operation, refund)
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

    async def save_snapshot(self, payment_id: str, state: PaymentState) -> None:
        """Keep a live reading of a payment."""
        async with self.database.begin() as connection:
            await snapshots.save(connection, payment_id, state)

    async def processor_payment_of(self, payment_id: str) -> tuple[str, str]:
        """The processor's id of a payment, and its currency."""
        async with self.database.begin() as connection:
            row = (
                await connection.execute(select(payments.c.processor_payment, payments.c.currency).where(payments.c.id == payment_id))
            ).one()
            return row.processor_payment, row.currency

    async def processor_refund_of(self, operation: Operation) -> str | None:
        """The processor's refund id of an operation, once there is a receipt."""
        async with self.database.begin() as connection:
            return (
                await connection.execute(select(processor_refunds.c.id).where(processor_refunds.c.operation_id == operation.id))
            ).scalar_one_or_none()


def _same_dispute(now: DisputeState, quoted: str) -> bool:
    """Whether the dispute is as it was judged: none, or an inquiry (or one that nobody knows) that a person has seen and approved."""
    return now is DisputeState.NONE or (now in (DisputeState.INQUIRY, DisputeState.UNKNOWN) and now == quoted)


_REFUSAL_CODES = {
    "charge_disputed": Code.PAYMENT_DISPUTED,
    "charge_already_refunded": Code.ALREADY_REFUNDED,
}


def _request_plain(request: FrozenRequest) -> dict[str, Any]:
    return {
        "operation": request.operation,
        "kind": request.kind,
        "processor_payment": request.processor_payment,
        "amount": request.amount,
        "currency": request.currency,
        "idempotency_key": request.idempotency_key,
        "params": request.params,
    }
