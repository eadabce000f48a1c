"""Submitting money: intent, attempts, receipt; three short transactions, and never a network call inside one (design, section 4).

An operation is as uncertain as its worst attempt: an attempt that was opened and has no recorded answer counts as unknown, and once one is unknown no later
refusal concludes anything.
"""

from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import ARRAY, DateTime, Interval, Text, bindparam, func, insert, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from refunds.errors import Code
from refunds.ids import Prefix, new_id
from refunds.messages import Situation
from refunds.money import Money
from refunds.processor import Conclusion, DisputeState, FrozenRequest, NotSent, PaymentState, PaymentStatus, Refused, Unknown
from refunds.status import Event, Status
from refunds.submission import freeze
from refunds.terms import OperationKind, Terms
from store import controls, snapshots
from store.changes import Change, lock_payment_of, lock_refund
from store.claims import refundable_of
from store.operation_rows import LAPSED, NOT_SENT, REFUSED, UNKNOWN, Attempt, Operation, operation_from
from store.receipts import Receipts
from store.requirements import Required, decisions_on, revision_of, sufficient
from store.situations import situation
from store.sql import Query, Row
from store.tables import attempts, consumed_decisions, operations, payments

__all__ = ["Attempt", "Operation", "Payments"]


_OPEN = Query(insert(operations))
_CONSUME = Query(
    insert(consumed_decisions).from_select(
        ["decision_id", "operation_id", "consumed_at"],
        select(
            func.unnest(bindparam("decisions", type_=ARRAY(Text))),
            bindparam("operation", type_=Text),
            bindparam("at", type_=DateTime(timezone=True)),
        ),
    )
)
_ATTEMPT = Query(
    insert(attempts).values(
        {name: bindparam(name) for name in ("id", "operation_id", "number", "worker", "opened_at")}
        # By the database's clock: workers' clocks may differ, and the stop asks the database what may still be sent.
        | {"send_by": func.clock_timestamp() + bindparam("within", type_=Interval)}
    )
)


class Payments(Receipts):
    """The database's side of submitting, over the login of the ``payments`` role."""

    # --- intent ------------------------------------------------------------------------------------------------------------------

    async def intent(self, refund_id: str) -> tuple[Operation | None, Situation]:
        """Consume the approvals, freeze the exact request and its key, and move to ``submitting``; once per approved revision, for ever.

        Returns the operation, or ``None`` when this refund is not to be submitted now (the situation says why). Called again it returns the same
        operation.
        """
        async with self.database.begin() as connection:
            payment = await lock_payment_of(connection, refund_id)
            change = await lock_refund(connection, refund_id, self.database.clock.now)
            if payment is None or change["payment_id"] != payment["id"]:
                return None, situation(change.row)
            if change.status is Status.SUBMITTING:
                return await self._operation(connection, change), situation(change.row)
            if change.status is not Status.APPROVED:
                return None, situation(change.row)
            revision = await revision_of(connection, refund_id, change["revision"])
            if revision["expires_at"] <= change.at:
                self._hold(change, Code.TERMS_EXPIRED, "the terms expired; they are quoted again")
                return None, await self._saved(connection, change)
            # A refund that was held and approved again before anything was sent goes on with the operation it has.
            operation = await self._operation(connection, change) or await self._open_operation(connection, change, revision)
            change.move(Event.SUBMIT, revision=change["revision"], terms_hash=revision["terms_hash"])
            await change.save(connection)
            return operation, situation(change.row)

    async def _open_operation(self, connection: AsyncConnection, change: Change, revision: Row) -> Operation:
        terms = Terms.from_stored(revision["terms"])
        if terms.hash != revision["terms_hash"]:
            raise RuntimeError(f"the stored terms of {change.id} do not match their hash; nothing is sent")
        recorded = await decisions_on(connection, change.id, change["revision"])
        approving = sufficient(Required.of(revision["decision"]), recorded, terms.hash)
        if approving is None:
            raise RuntimeError(f"{change.id} is approved but its recorded decisions do not meet its requirements; nothing is sent")
        operation_id = new_id(Prefix.OPERATION)
        request = freeze(terms, operation_id)
        row = {
            "id": operation_id,
            "refund_id": change.id,
            "revision": change["revision"],
            "kind": terms.operation.value,
            "terms_hash": terms.hash,
            "payment_id": revision["payment_id"],
            "amount": terms.amount,
            "currency": terms.currency,
            "request": _request_plain(request),
            "idempotency_key": request.idempotency_key,
            "created_at": change.at,
        }
        await _OPEN.do(connection, **row, settled_at=None, outcome=None)
        await _CONSUME.do(connection, decisions=[d["id"] for d in approving], operation=operation_id, at=change.at)
        change.note("intent", operation=operation_id, kind=terms.operation.value, consumed=[d["id"] for d in approving])
        dispute = revision["facts"]["payment"]["dispute"]
        return operation_from(row | {"expires_at": revision["expires_at"], "dispute": dispute, "api_version": terms.api_version}, [])

    # --- attempt -----------------------------------------------------------------------------------------------------------------

    async def open_attempt(self, operation: Operation, state: PaymentState) -> tuple[Attempt | None, Situation]:
        """Open one attempt under the stop's lock, if everything still fits; otherwise hold the refund and return ``None``.

        ``state`` was read live just before. Checked, each in its own statement after the locks: the stop, that this operation is still the refund's and no
        other attempt of it is open, the terms, the payment's state and disputes, and what is still refundable. An operation that may already have been sent
        is never held: when it does not fit any more it is looked up and not repeated.
        """
        async with self.database.begin() as connection:
            await controls.share_stop_lock(connection)
            control = await controls.read(connection)
            change = await self._locked(connection, operation)
            # What the caller knows was read before calls to the processor took their time; only what is read under the locks counts.
            current = await self._operation(connection, change)
            if change.status is not Status.SUBMITTING or current is None or current.id != operation.id:
                return None, situation(change.row, refused=Code.ATTEMPT_OPEN.value, refused_detail="it has moved on meanwhile")
            if current.in_flight:
                return None, situation(change.row, refused=Code.ATTEMPT_OPEN.value, refused_detail="another worker may be sending it")
            await snapshots.save(connection, operation.payment_id, state, now=change.at)
            refusal = await self._unfit(connection, change, current, state, control)
            if refusal is None:
                return await self._insert_attempt(connection, change, current), situation(change.row)
            code, why = refusal
            if current.uncertain:
                return None, situation(change.row, refused=code.value, refused_detail=why)
            self._hold(change, code, why)
            return None, await self._saved(connection, change)

    def no_more_posts(self, operation: Operation, now: datetime) -> str | None:
        """Why nothing may be posted again for an operation that may already have been sent, or ``None``.

        Processors forget idempotency keys; after the safe window a repeated request could be a second refund (field report 4).
        """
        if operation.api_version != self.settings.stripe_api_version:
            return f"it was approved for API version {operation.api_version}"
        window = timedelta(seconds=self.settings.submit_safe_window_s)
        # Over when either clock says so: a worker whose clock was ahead must not make an old attempt look young.
        ages = [operation.first_sent_ago, now - operation.first_sent_at if operation.first_sent_at else None]
        if any(age is not None and age >= window for age in ages):
            return f"the safe window of {self.settings.submit_safe_window_s / 3600:g} h is over"
        if operation.attempts >= self.settings.submit_max_attempts:
            return f"{operation.attempts} attempts had no answer ({operation.last_reason})"
        return None

    async def _unfit(
        self, connection: AsyncConnection, change: Change, operation: Operation, state: PaymentState, control: controls.Control
    ) -> tuple[Code, str] | None:
        """Why no attempt may be opened now, or ``None``."""
        if control.stopped:
            return Code.EMERGENCY_STOP, "an operator has stopped all refunds"
        if control.mode == "draft":
            return Code.DRAFT_MODE, "the installation is in draft mode, in which nothing is sent"
        if operation.uncertain and (why := self.no_more_posts(operation, change.at)) is not None:
            return Code.OUTCOME_UNKNOWN, why
        why = await self._no_longer_fits(connection, change, operation, state)
        return None if why is None else (Code.TERMS_EXPIRED, f"{why}; the terms are judged again")

    async def _no_longer_fits(self, connection: AsyncConnection, change: Change, operation: Operation, state: PaymentState) -> str | None:
        if operation.terms_expire_at <= change.at:
            return "the terms expired"
        if operation.api_version != self.settings.stripe_api_version:
            return f"they were approved for API version {operation.api_version}"
        if not _same_dispute(state.dispute, operation.quoted_dispute):
            return f"a dispute appeared ({state.dispute})"
        wanted = PaymentStatus.AUTHORISED if operation.kind is OperationKind.RELEASE else PaymentStatus.CAPTURED
        if state.status is not wanted or state.currency != operation.amount.currency:
            return f"the payment is now {state.status}"
        if operation.kind is OperationKind.RELEASE and state.capturable != operation.amount.amount:
            return "the authorised amount changed"
        figures = await refundable_of(connection, operation.payment_id, state, besides=change.id)
        if figures.remaining < operation.amount.amount:
            return f"only {Money(figures.remaining, state.currency)} is still refundable"
        return None

    async def _insert_attempt(self, connection: AsyncConnection, change: Change, operation: Operation) -> Attempt:
        number, attempt_id = operation.attempts + 1, new_id(Prefix.ATTEMPT)
        within = self.settings.submit_send_within_s
        await _ATTEMPT.do(
            connection,
            id=attempt_id,
            operation_id=operation.id,
            number=number,
            worker=self.worker,
            opened_at=change.at,
            within=timedelta(seconds=within),
        )
        change.note("attempt_opened", operation=operation.id, attempt=attempt_id, number=number)
        await change.save(connection)
        return Attempt(attempt_id, number, within)

    def _hold(self, change: Change, code: Code, why: str) -> None:
        # Quoted again at once; but terms that keep being refuted are not quoted in a hot loop.
        again = 0.0 if change["revision"] <= 3 else min(2.0 ** change["revision"], 300.0)
        soon = again if code is Code.TERMS_EXPIRED else self.settings.held_recheck_s
        change.put(wake_at=change.at + timedelta(seconds=soon), detail=why)
        change.move(Event.HOLD, code=code)

    async def failed_attempt(self, operation: Operation, attempt: Attempt, error: Refused | NotSent | Unknown) -> Situation:
        """Record how an attempt ended without an answer of ours.

        A refusal concludes only when no other attempt is uncertain. Nothing sent leaves the refund as it is: it is tried again, or held.
        """
        outcome = {Refused: REFUSED, NotSent: NOT_SENT, Unknown: UNKNOWN}[type(error)]
        async with self.database.begin() as connection:
            change = await self._locked(connection, operation)
            done = await connection.execute(
                update(attempts)
                .where(attempts.c.id == attempt.id, attempts.c.outcome.is_(None))
                .values(answered_at=change.at, outcome=outcome, reason=error.reason, detail=error.code)
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
            assert now is not None
            # Only while it is being submitted: a refusal that comes in late must not undo what another attempt achieved.
            if isinstance(error, Refused) and change.status is Status.SUBMITTING and not now.uncertain:
                code = _REFUSAL_CODES.get(error.code or "", Code.PROCESSOR_REFUSED)
                await self._apply(
                    connection,
                    change,
                    operation,
                    Conclusion(Event.PROCESSOR_FAILED, code, f"the processor answered {error.code or error.reason}"),
                    processor_refund=None,
                )
            return await self._saved(connection, change)

    async def lapse(self, operation: Operation, attempt: Attempt) -> None:
        """Record that an attempt was not sent before its ``send_by``: it is void, certainly nothing left."""
        async with self.database.begin() as connection:
            change = await lock_refund(connection, operation.refund_id, self.database.clock.now)
            done = await connection.execute(
                update(attempts)
                .where(attempts.c.id == attempt.id, attempts.c.outcome.is_(None))
                .values(answered_at=change.at, outcome=LAPSED, reason="too_late_to_send")
            )
            if done.rowcount:
                change.note("attempt_ended", operation=operation.id, attempt=attempt.id, outcome=LAPSED)
                await change.save(connection)

    # --- giving up for now, and readings ---------------------------------------------------------------------------------------------

    async def hold_unsent(self, operation: Operation, why: str) -> Situation:
        """Hold a refund of which certainly nothing was sent, until the processor can be reached again."""
        async with self.database.begin() as connection:
            change = await self._locked(connection, operation)
            now = await self._operation(connection, change)
            if change.status is Status.SUBMITTING and now is not None and now.first_sent_at is None:
                self._hold(change, Code.PROCESSOR_UNREACHABLE, why)
            return await self._saved(connection, change)

    async def save_snapshot(self, payment_id: str, state: PaymentState) -> None:
        """Keep a live reading of a payment."""
        async with self.database.begin() as connection:
            await snapshots.save(connection, payment_id, state, now=self.database.clock.now())

    async def processor_payment_of(self, payment_id: str) -> tuple[str, str]:
        """The processor's id of a payment, and its currency."""
        async with self.database.read() as connection:
            row = (
                await connection.execute(select(payments.c.processor_payment, payments.c.currency).where(payments.c.id == payment_id))
            ).one()
            return row.processor_payment, row.currency


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
