"""Submitting money: intent and attempts here, receipts beside it; short transactions, and never a network call inside one (design, section 4).

An operation is as uncertain as its worst attempt: an attempt that was opened and has no recorded answer counts as unknown, and once one is unknown no later
refusal concludes anything.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Any

from sqlalchemy import ARRAY, DateTime, Interval, Text, any_, bindparam, func, insert, or_, select, true, update
from sqlalchemy.ext.asyncio import AsyncConnection

from refunds.errors import Code
from refunds.ids import Prefix, is_id, new_id
from refunds.ledger.entry import hash_of
from refunds.marketplace import no_longer_fits
from refunds.messages import Situation
from refunds.money import Money
from refunds.processor import (
    MANUAL,
    STRIPE,
    Conclusion,
    DisputeState,
    FrozenRequest,
    NotSent,
    PaymentState,
    PaymentStatus,
    Refused,
    Unknown,
)
from refunds.status import Event, Status
from refunds.submission import freeze
from refunds.terms import OperationKind, Terms
from store import brakes, flows, halts, leg_rows, policies, snapshots
from store.asking import wish_of
from store.changes import Change, lock_refund
from store.claims import CLAIMS, claiming, fold
from store.holding import Holding, Standing
from store.operation_rows import LAPSED, NOT_SENT, REFUSED, UNKNOWN, Attempt, Operation, operation_from
from store.requirements import DECISIONS, REVISION, Required, order_moved, sufficient
from store.sending import Room, room
from store.situations import situation
from store.sql import Query, Row, commit, pipelined
from store.tables import attempts, consumed_decisions, instructions, operations, payments, processor_refunds, refunds

__all__ = ["Attempt", "Operation", "Payments", "Standing"]


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


_KNOWN = Query(
    select(operations.c.id)
    .where(operations.c.id == any_(bindparam("operations", type_=ARRAY(Text))))
    .union_all(
        # Found before, halted for, and let go by somebody who had looked.
        select(processor_refunds.c.id).where(processor_refunds.c.id == any_(bindparam("refunds", type_=ARRAY(Text))))
    )
)


_NAMED = ("reverse_transfer", "refund_application_fee")
_WANTS_FLOW = Query(
    select(or_(*(refunds.c[name] for name in _NAMED), *(instructions.c.body[name].as_boolean().is_(true()) for name in _NAMED)))
    .outerjoin(instructions, instructions.c.id == refunds.c.pending_revision)
    .where(refunds.c.id == bindparam("refund"))
)


class Payments(Holding):
    """The database's side of submitting, over the login of the ``payments`` role."""

    # --- intent and attempt ------------------------------------------------------------------------------------------------------------

    async def open_attempt(self, seen: Standing, state: PaymentState) -> tuple[Operation, Attempt] | Situation:
        """Open one attempt under the stop's lock, if everything still fits; otherwise hold the refund and answer with its situation.

        The first attempt of a revision makes the operation in the same transaction: it consumes the approvals and freezes the exact request and its key,
        once per approved revision, for ever. ``seen`` is how the refund stood before the payment was read, ``state`` that reading. Checked, each in its own
        statement after the locks: the stop, halts, that the refund still stands so and the reading is fresh, that no other attempt is open, the terms, the
        payment's state and disputes, and what is still refundable. One that waits for another of its payment stays as it is. An
        operation that may already have been sent is never held: when it does not fit any more it is looked up and not repeated.

        Limits over time are locked last of all, when everything else is written, and until the commit that comes with the next statement: every refund is
        counted by the limits of everyone. Without room for it all is taken back and done again in the sequence that tells why.
        """
        try:
            return await self._open_attempt(seen, state, written_first=True)
        except _NoRoom:
            return await self._open_attempt(seen, state, written_first=False)

    async def _open_attempt(self, seen: Standing, state: PaymentState, *, written_first: bool) -> tuple[Operation, Attempt] | Situation:
        async with self.database.begin() as connection:
            brake, payment, change = await self._locked_to_send(connection, STRIPE, seen.situation.refund)
            # What the caller knows was read before calls to the processor took their time; only what is read under the locks counts.
            now = await self._read(connection, change)
            current, revision = now.current, now.revision
            if payment is None or not self._still_so(change, payment, now, seen, state):
                return situation(change.row, refused=Code.ATTEMPT_OPEN.value, refused_detail="it has moved on meanwhile")
            if current is not None and current.in_flight:
                return situation(change.row, refused=Code.ATTEMPT_OPEN.value, refused_detail="another worker may be sending it")
            intended = current or _intended(change, revision)
            refusal = brake or now.brake or await self._unfit(connection, change, intended, state, now.claims)
            if refusal is None and not intended.uncertain:
                refusal = _moved(revision) or await _legs_unfit(connection, change, revision, state)
            consumed = approvals_to_consume(change, revision, now.decisions) if refusal is None and current is None else None
            limited: Room | None = None
            counted = change.status is Status.APPROVED  # what is being sent already was counted then
            policy = (await policies.parsed(connection, now.newest)).policy
            weighing = partial(room, connection, change, revision, policy, processor=payment["processor"], locking=True)
            if refusal is None and counted and not written_first:
                limited = await weighing()
                refusal = limited.refusal
            if refusal is None:
                async with pipelined(connection):
                    await snapshots.save(connection, payment["id"], state, now=change.at)
                    if consumed is not None:
                        await self._write_operation(connection, change, revision, intended, consumed)
                        await leg_rows.write(connection, change, revision["terms"], operation=intended.id)
                    change.put(detail=None)  # what it waited for until now
                    if counted:
                        change.move(Event.SUBMIT, revision=intended.revision, terms_hash=change["terms_hash"])
                    attempt = await self._insert_attempt(connection, change, intended)
                if counted and written_first:
                    limited = await weighing()
                    if limited.refusal is not None:
                        raise _NoRoom
                async with pipelined(connection):
                    if limited is not None:
                        await limited.take(connection, change)
                        await change.save(connection)  # what people are told of limits that are nearly used
                    await commit(connection)
                return intended, attempt
            await snapshots.save(connection, payment["id"], state, now=change.at)
            code, why = refusal
            if code is Code.PAYMENT_BUSY and change.status is Status.APPROVED and (change["code"], change["detail"]) != (code.value, why):
                if change["code"] != code.value:
                    change.note("waits", code=code.value)
                change.put(code=code.value, detail=why)
                await change.save(connection, announce=True)
            if intended.uncertain or code is Code.PAYMENT_BUSY:
                return situation(change.row, refused=code.value, refused_detail=why)
            self._hold(change, code, why)
            if limited is not None:
                limited.wait(change)
            return await self._saved(connection, change)

    async def _read(self, connection: AsyncConnection, change: Change) -> "_Now":
        """Read everything that the locks keep as it is, a statement each and one trip for all."""
        payment = change["payment_id"] or ""
        async with pipelined(connection):
            asked = await self._ask_operation(connection, change)
            revised = await REVISION.ask(connection, refund=change.id, number=change["revision"])
            braked = await brakes.ask_of_payment_now(connection, payment, besides=change.id, longest=self._longest_call)
            claimed = await CLAIMS.ask(connection, **claiming(payment, besides=change.id))
            decided = await DECISIONS.ask(connection, refund=change.id, number=change["revision"])
            newest = await policies.IN_FORCE.ask(connection, at=change.at)
        current = self._read_operation(await asked.all())
        return _Now(
            current, await revised.one(), await braked.read(), await claimed.all(), list[Row](await decided.all()), await newest.first()
        )

    def _still_so(self, change: Change, payment: Row, now: "_Now", seen: Standing, state: PaymentState) -> bool:
        """Whether the refund still stands as the caller saw it, with the same operation or none, and its payment was read a moment ago.

        A worker that was frozen after reading comes back to other terms, another worker's operation, or a reading of another day.
        """
        read_ago = (change.at - state.read_at).total_seconds()
        return (
            change.status in (Status.APPROVED, Status.SUBMITTING)
            and change["revision"] == seen.situation.revision
            and change["payment_id"] == payment["id"] == now.revision["payment_id"]
            and payment["processor_payment"] == state.processor_payment
            and (now.current and now.current.id) == (seen.operation and seen.operation.id)
            and read_ago <= self.settings.payment_snapshot_max_age_s
        )

    async def _write_operation(
        self, connection: AsyncConnection, change: Change, revision: Row, operation: Operation, consumed: list[str]
    ) -> None:
        request = _request_plain(operation.request)
        await _OPEN.do(
            connection,
            id=operation.id,
            refund_id=change.id,
            revision=operation.revision,
            kind=operation.kind.value,
            terms_hash=revision["terms_hash"],
            payment_id=operation.payment_id,
            amount=operation.amount.amount,
            currency=operation.amount.currency,
            request=request,
            idempotency_key=operation.request.idempotency_key,
            created_at=operation.created_at,
            looks=0,
            settled_at=None,
            outcome=None,
        )
        await _CONSUME.do(connection, decisions=consumed, operation=operation.id, at=change.at)
        change.note("intent", operation=operation.id, kind=operation.kind.value, consumed=consumed, request=hash_of(request))

    async def _unfit(
        self, connection: AsyncConnection, change: Change, operation: Operation, state: PaymentState, claims: Sequence[Row]
    ) -> tuple[Code, str] | None:
        """Why this operation may not be attempted now, or ``None``. ``claims`` is what other refunds claim of the payment."""
        if (forgotten := await self._forgotten(connection, state)) is not None:
            why = f"the processor shows {forgotten}, a refund of ours that the database does not know"
            await halts.open_halt(connection, change.at, processor=STRIPE, code=Code.DATABASE_FORGOT, reason=why)
            return Code.PROCESSOR_HALTED, why
        if operation.uncertain and (why := self.no_more_posts(operation, change.at)) is not None:
            return Code.OUTCOME_UNKNOWN, why
        why = self._no_longer_fits(change, operation, state, claims)
        return None if why is None else (Code.TERMS_EXPIRED, f"{why}; the terms are judged again")

    async def _forgotten(self, connection: AsyncConnection, state: PaymentState) -> str | None:
        """A refund in a reading that carries an operation of ours which this database does not know: it is older than what was sent from it."""
        # Only what is a name of ours: metadata of others may use the same words.
        ours = {refund.operation: refund.id for refund in state.refunds if is_id(refund.operation, Prefix.OPERATION)}
        if not ours:
            return None
        known = {row["id"] for row in await _KNOWN.all(connection, operations=list(ours), refunds=list(ours.values()))}
        return next((refund for operation, refund in ours.items() if operation not in known and refund not in known), None)

    def _no_longer_fits(self, change: Change, operation: Operation, state: PaymentState, claims: Sequence[Row]) -> str | None:
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
        figures = fold(state, claims)
        if figures.remaining < operation.amount.amount:
            return f"only {Money(figures.remaining, state.currency)} is still refundable"
        if (
            change["full"]
            and operation.kind is OperationKind.REFUND
            and figures.remaining != operation.amount.amount
            and not operation.uncertain
        ):
            return f"{Money(figures.remaining, state.currency)} is refundable now, and all of it was asked for"
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
                code = _REFUSAL_CODES.get(error.code or "") or _REFUSAL_REASONS.get(error.reason, Code.PROCESSOR_REFUSED)
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

    # --- readings ------------------------------------------------------------------------------------------------------------------------

    async def save_snapshot(self, payment_id: str, state: PaymentState) -> None:
        """Keep a live reading of a payment."""
        async with self.database.begin() as connection:
            await snapshots.save(connection, payment_id, state, now=self.database.clock.now())

    async def manual_payment(self, payment_id: str) -> PaymentState | None:
        """A payment that no processor can return, as the merchant recorded it; ``None`` for any other."""
        async with self.database.read() as connection:
            row = (await connection.execute(select(payments).where(payments.c.id == payment_id))).mappings().one()
            return snapshots.by_hand(row, self.database.clock.now()) if row["processor"] == MANUAL else None

    async def wants_flow(self, refund_id: str) -> bool:
        """Whether a refund, or the revision of it that is to be quoted, is to return what went to connected accounts."""
        async with self.database.read() as connection:
            return bool(await _WANTS_FLOW.value(connection, refund=refund_id))

    async def processor_payment_of(self, payment_id: str) -> tuple[str, str]:
        """The processor's id of a payment, and its currency."""
        async with self.database.read() as connection:
            row = (
                await connection.execute(select(payments.c.processor_payment, payments.c.currency).where(payments.c.id == payment_id))
            ).one()
            return row.processor_payment, row.currency


class _NoRoom(Exception):
    """A limit over time has no room for what was written already."""


@dataclass(frozen=True, slots=True)
class _Now:
    """What there is under the locks: the operation of the present revision, the revision, what its payment keeps back, what other refunds claim of that,
    what was decided on the revision, and which policy version is in force."""

    current: Operation | None
    revision: Row
    brake: brakes.Brake | None
    claims: Sequence[Row]
    decisions: list[Row]
    newest: Row | None


def approvals_to_consume(change: Change, revision: Row, recorded: list[Row]) -> list[str]:
    """The approvals to consume. Raises when they do not meet what the terms require: a bug, or a hand in the database."""
    approving = sufficient(Required.of(revision["decision"]), recorded, revision["terms_hash"])
    if approving is None:
        raise RuntimeError(f"{change.id} is approved but its recorded decisions do not meet its requirements; nothing is sent")
    return [decision["id"] for decision in approving]


def _moved(revision: Row) -> tuple[Code, str] | None:
    """Why the order keeps approved terms from being sent, or ``None``: they name one version of it."""
    why = order_moved(revision)
    return None if why is None else (Code.TERMS_EXPIRED, f"{why}; the terms are judged again")


async def _legs_unfit(connection: AsyncConnection, change: Change, revision: Row, state: PaymentState) -> tuple[Code, str] | None:
    """Why the legs of approved terms cannot be sent as the way of the money is now, or ``None``: then the terms are void."""
    wish = wish_of(change.row)
    if not wish:
        return None
    planned = Terms.from_stored(revision["terms"]).planned
    if state.flow is None:
        return Code.TERMS_EXPIRED, "where the money went was not read; the terms are judged again"
    why = no_longer_fits(planned, state.flow, wish, await flows.claimed(connection, state.flow, besides=change.id))
    return None if why is None else (Code.TERMS_EXPIRED, f"{why}; the terms are judged again")


def _intended(change: Change, revision: Row) -> Operation:
    """The operation of an approved revision, with the exact request and its key; nothing is written yet."""
    terms = Terms.from_stored(revision["terms"])
    if terms.hash != revision["terms_hash"]:
        raise RuntimeError(f"the stored terms of {change.id} do not match their hash; nothing is sent")
    operation_id = new_id(Prefix.OPERATION)
    row = {
        "id": operation_id,
        "refund_id": change.id,
        "revision": change["revision"],
        "kind": terms.operation.value,
        "payment_id": revision["payment_id"],
        "amount": terms.amount,
        "currency": terms.currency,
        "request": _request_plain(freeze(terms, operation_id)),
        "expires_at": revision["expires_at"],
        "dispute": revision["facts"]["payment"]["dispute"],
        "api_version": terms.api_version,
        "created_at": change.at,
    }
    return operation_from(row, [])


def _same_dispute(now: DisputeState, quoted: str) -> bool:
    """Whether the dispute is as it was judged: none, or an inquiry (or one that nobody knows) that a person has seen and approved."""
    return now is DisputeState.NONE or (now in (DisputeState.INQUIRY, DisputeState.UNKNOWN) and now == quoted)


_REFUSAL_CODES = {
    "charge_disputed": Code.PAYMENT_DISPUTED,
    "charge_already_refunded": Code.ALREADY_REFUNDED,
}
_REFUSAL_REASONS = {"too_old": Code.PAYMENT_TOO_OLD, "other_mode": Code.PAYMENT_OTHER_MODE}
"""Refusals that the processor gives no code of its own, by the words of the error map."""


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
