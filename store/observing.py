"""Recording what one live reading of a payment says: of our refunds, of refunds made without us, and of disputes.

Whatever hints that the processor knows more than we do (an event, a sweep, a restore) leads here. Nothing is taken from the hint: the reading counts, it is
recorded in one transaction under the payment's lock, and it may be recorded any number of times (field reports 17, 19, 22).
"""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import ARRAY, Text, any_, bindparam, func, literal, literal_column, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from refunds.discrepancies import Kind, Standing
from refunds.errors import Code
from refunds.ids import Prefix, is_id
from refunds.messages import Observed
from refunds.processor import MISSING, STRIPE, Conclusion, DisputeState, PaymentState, PaymentStatus, ProcessorRefund, conclude
from refunds.status import FINAL, Event, Status, allows
from refunds.terms import OperationKind
from store import discrepancies, events, halts, snapshots
from store.changes import Change, enter, lock_payment, lock_refund
from store.comparing import theirs
from store.receipts import RECORD, Receipts
from store.sql import Query, Row
from store.tables import discrepancies as discrepancies_table
from store.tables import operations, payment_snapshots, payments, processor_refunds, refunds, revisions

EXTERNAL = "external"
"""The actor of what was done at the processor without us."""

_HINT = "payment_event"
_NAMED = Query(select(payments.c.processor_payment, payments.c.currency, payments.c.processor).where(payments.c.id == bindparam("payment")))
_LAST_READ = Query(select(payment_snapshots.c.read_at).where(payment_snapshots.c.payment_id == bindparam("payment")))
_KNOWN = Query(select(processor_refunds).where(processor_refunds.c.id == any_(bindparam("ids", type_=ARRAY(Text)))))
_OVERLOOKED = Query(
    select(
        payments.c.id,
        select(func.count())
        .where(processor_refunds.c.id == any_(bindparam("ids", type_=ARRAY(Text))))
        .correlate(payments)
        .scalar_subquery()
        .label("known"),
    ).where(payments.c.processor == bindparam("processor"), payments.c.processor_payment == bindparam("name"))
)
_OPERATIONS = Query(
    select(
        operations.c.id,
        operations.c.refund_id,
        operations.c.revision,
        operations.c.payment_id,
        processor_refunds.c.id.label("receipt"),
    )
    .outerjoin(processor_refunds, processor_refunds.c.operation_id == operations.c.id)
    .where(operations.c.id == any_(bindparam("ids", type_=ARRAY(Text))))
)
_REFRESH = Query(
    update(processor_refunds)
    .where(processor_refunds.c.id == bindparam("refund"))
    .values({name: bindparam(name) for name in ("state", "raw_state", "failure_reason", "updated_at")})
)
_ADOPT = Query(update(processor_refunds).where(processor_refunds.c.id == bindparam("refund")).values(operation_id=bindparam("operation")))
_QUOTED = Query(
    select(revisions.c.facts["payment"]["dispute"].astext).where(
        revisions.c.refund_id == bindparam("refund"), revisions.c.revision == bindparam("number")
    )
)
_UNDECIDED = Query(
    select(refunds.c.id)
    .where(refunds.c.payment_id == bindparam("payment"), refunds.c.status == any_(bindparam("statuses", type_=ARRAY(Text))))
    .order_by(refunds.c.id)
)
_RELEASING = Query(
    select(refunds.c.id)
    .join(operations, (operations.c.refund_id == refunds.c.id) & (operations.c.revision == refunds.c.revision))
    .where(
        refunds.c.payment_id == bindparam("payment"),
        operations.c.kind == literal(OperationKind.RELEASE.value),
        refunds.c.status == any_(bindparam("statuses", type_=ARRAY(Text))),
    )
    .order_by(refunds.c.id)
)
_JUDGED = Query(
    select(discrepancies_table.c.id)
    .where(discrepancies_table.c.kind == bindparam("kind"), discrepancies_table.c.processor_refund == bindparam("refund"))
    .limit(literal_column("1"))
)
_PROMISED = [s.value for s in (Status.AWAITING_CONSENT, Status.AWAITING_REVIEW, Status.APPROVED, Status.HELD)]
_UNSURE = [Status.SUBMITTING.value, Status.PARKED.value]
_DENIED = {
    DisputeState.OPEN: (Code.PAYMENT_DISPUTED, "the payment is disputed; a refund would pay twice"),
    DisputeState.LOST: (Code.ALREADY_RETURNED, "the money went back through a lost dispute"),
}


class Observing(Receipts):
    """The observing half of the payments role."""

    async def named(self, payment_id: str) -> tuple[str, str, str]:
        """The processor's id of a payment, its currency, and its processor."""
        async with self.database.read() as connection:
            row = await _NAMED.one(connection, payment=payment_id)
            return row["processor_payment"], row["currency"], row["processor"]

    async def hints(self, payment_id: str, processor_payment: str) -> list[str]:
        """The events about a payment that a reading which begins now will answer."""
        async with self.database.read() as connection:
            return await events.hints_of(connection, processor=STRIPE, payment_id=payment_id, name=processor_payment)

    async def take_in(self, processor_payment: str, state: PaymentState) -> None:
        """Observe a reading that was made for something else, if it shows a refund that is not recorded (field report 33). Costs nothing where there is none."""
        if not state.refunds:
            return
        ids = [refund.id for refund in state.refunds]
        async with self.database.read() as connection:
            found = await _OVERLOOKED.first(connection, name=processor_payment, processor=STRIPE, ids=ids)
        if found is not None and found["known"] < len(ids):
            await self.observe(found["id"], state)

    async def observe(self, payment_id: str, state: PaymentState, *, hints: Sequence[str] = ()) -> Observed | None:
        """Record a reading and mark the ``hints`` that came before it as answered.

        ``None``: the record holds something newer than this reading (an answer that came in meanwhile, or another reading), so that nothing may be concluded
        from it; nothing was recorded, and the payment is to be read again.
        """
        async with self.database.begin() as connection:
            await lock_payment(connection, payment_id)
            at = self.database.clock.now()
            known = {row["id"]: row for row in await _KNOWN.all(connection, ids=[refund.id for refund in state.refunds])}
            if await self._overtaken(connection, payment_id, state, known, at):
                return None
            reading = _Reading(payment_id, state, known)
            await snapshots.save(connection, payment_id, state, now=at)
            await self._refunds(connection, reading)
            if state.raw_status != MISSING:
                await self._releases(connection, reading)
                await self._disputed(connection, reading)
            if reading.imported:
                ids = [refund.id for refund in state.refunds]
                await events.matched_at_last(connection, at, processor=STRIPE, name=state.processor_payment, objects=ids)
            await events.done(connection, hints, at, "missing" if state.raw_status == MISSING else "observed")
            return Observed(payment_id, reading.imported, reading.moved, reading.differences)

    async def _overtaken(
        self, connection: AsyncConnection, payment_id: str, state: PaymentState, known: Mapping[str, Row], at: datetime
    ) -> bool:
        """Whether anything was recorded after this reading began that it may not show."""
        last = await _LAST_READ.value(connection, payment=payment_id)
        newest = [row["updated_at"] for row in known.values()] + ([last] if last is not None else [])
        # A time from the future was written by a clock that is wrong; it must not keep true readings out.
        return any(state.read_at < written <= at + snapshots.CLOCKS_DIFFER for written in newest)

    # --- refunds -----------------------------------------------------------------------------------------------------------------------

    async def _refunds(self, connection: AsyncConnection, reading: "_Reading") -> None:
        named = sorted({_operation_of(refund, reading.known) or "" for refund in reading.state.refunds} - {""})
        ours = {row["id"]: row for row in await _OPERATIONS.all(connection, ids=named)} if named else {}
        for refund in sorted(reading.state.refunds, key=lambda refund: refund.id):
            name = _operation_of(refund, reading.known)
            row = ours.get(name) if name else None
            if name is None:
                await self._external(connection, reading, refund)
            elif row is None:
                await self._forgotten(connection, reading, refund, name)
            elif row["payment_id"] != reading.payment:
                await self._misplaced(connection, reading, refund, row, Kind.PAYMENT)
            elif row["receipt"] not in (None, refund.id):
                await self._second(connection, reading, refund, row)
            else:
                await self._ours(connection, reading, refund, row)

    async def _ours(self, connection: AsyncConnection, reading: "_Reading", refund: ProcessorRefund, row: Row) -> None:
        change = await lock_refund(connection, row["refund_id"], self.database.clock.now)
        operation = await self._operation(connection, change)
        if operation is None or operation.id != row["id"] or change.status not in _SENT:
            # Only what was sent can be there: the database has forgotten that it was, or something was sent for terms that are no more.
            await self._misplaced(connection, reading, refund, row, Kind.STATUS)
            return
        before, first = change.status, row["receipt"] is None
        changed = await self._record(connection, reading, refund, operation.id, change.at)
        if first and not changed:  # known, and taken for somebody else's until now
            await _ADOPT.do(connection, refund=refund.id, operation=operation.id)
        if first:
            await self._answer_attempts(connection, change, operation, None, refund)
        # What is over stays so while the refund is what it was: a person may have judged exactly the difference that it still shows.
        if first or changed or before not in FINAL:
            wanted = conclude(refund, amount=operation.amount, processor_payment=operation.request.processor_payment)
            await self._apply(connection, change, operation, wanted, processor_refund=refund.id)
        if first or changed or change.status is not before:
            await self._tell_run(connection, reading, change, before)

    async def _external(self, connection: AsyncConnection, reading: "_Reading", refund: ProcessorRefund) -> None:
        """Import a refund that was made without us: it counts in what is refundable and in the customer's limits, and is entered once."""
        first = refund.id not in reading.known
        at = self.database.clock.now()
        if not await self._record(connection, reading, refund, None, at):
            return
        kind = "external_refund" if first else "external_refund_changed"
        await enter(connection, kind, at, actor=EXTERNAL, payment=reading.payment, **_shown(refund))
        if first:
            reading.imported += 1
            await self._differs(connection, reading, refund, Kind.EXTERNAL, standing=Standing.EXPLAINED)

    async def _forgotten(self, connection: AsyncConnection, reading: "_Reading", refund: ProcessorRefund, operation: str) -> None:
        """A refund with an operation of ours that the database does not know: it is older than what was sent from it. Nothing more is sent."""
        first = refund.id not in reading.known
        at = self.database.clock.now()
        await self._record(connection, reading, refund, None, at)
        if not first:
            return  # seen before; whoever lifted the halt has judged it
        reading.imported += 1
        await self._differs(connection, reading, refund, Kind.UNKNOWN_OPERATION, operation=operation)
        # Found before its order was sent again, and halted for then: its payment is held by the discrepancy, the others are not.
        if not await _JUDGED.all(connection, refund=refund.id, kind=Kind.UNKNOWN_PAYMENT.value):
            await self._halt(connection, at, refund, "carries an operation of ours that the database does not know")

    async def _misplaced(self, connection: AsyncConnection, reading: "_Reading", refund: ProcessorRefund, row: Row, kind: Kind) -> None:
        """A refund with an operation of ours where our record says that there can be none."""
        first = refund.id not in reading.known
        at = self.database.clock.now()
        await self._record(connection, reading, refund, None, at)
        if not first:
            return
        reading.imported += 1
        await self._differs(connection, reading, refund, kind, operation=row["id"], ours=row["refund_id"])
        if kind is Kind.STATUS:
            await self._halt(connection, at, refund, f"is of {row['refund_id']}, of which nothing was sent by our record")

    async def _second(self, connection: AsyncConnection, reading: "_Reading", refund: ProcessorRefund, row: Row) -> None:
        """A second refund of one operation: more may have gone out than was due. It is parked for a person, with an alarm (promise P1)."""
        first = refund.id not in reading.known
        at = self.database.clock.now()
        await self._record(connection, reading, refund, None, at)
        if not first:
            return
        reading.imported += 1
        await self._differs(connection, reading, refund, Kind.DUPLICATE, operation=row["id"], ours=row["refund_id"])
        change = await lock_refund(connection, row["refund_id"], self.database.clock.now)
        operation = await self._operation(connection, change)
        before = change.status
        change.notice("refunded_twice", operation=row["id"], receipt=row["receipt"], second=refund.id)
        if operation is not None and allows(change.status, Event.PARK):
            why = f"the processor shows {row['receipt']} and {refund.id}, both of this operation"
            await self._apply(connection, change, operation, Conclusion(Event.PARK, Code.REFUNDED_TWICE, why), processor_refund=refund.id)
        elif change.status is Status.PARKED:
            if change["code"] != Code.REFUNDED_TWICE:
                change.note("parked_for_another_reason", code=Code.REFUNDED_TWICE.value, operation=row["id"], processor_refund=refund.id)
            change.put(code=Code.REFUNDED_TWICE.value, detail=f"the processor shows {row['receipt']} and {refund.id}")
        await self._tell_run(connection, reading, change, before)

    async def _record(
        self, connection: AsyncConnection, reading: "_Reading", refund: ProcessorRefund, operation: str | None, at: datetime
    ) -> bool:
        """Keep the processor's refund; true when that changed anything. Ordered by the reading, so that any state may follow any other."""
        known = reading.known.get(refund.id)
        fresh = {"state": refund.state.value, "raw_state": refund.raw_state, "failure_reason": refund.failure_reason}
        if known is None:
            made = {"amount": refund.amount, "currency": refund.currency.upper(), "created_at": refund.created_at}
            await RECORD.do(
                connection,
                id=refund.id,
                processor=STRIPE,
                payment_id=reading.payment,
                operation_id=operation,
                first_seen_at=at,
                updated_at=at,
                compared_in=None,
                **made,
                **fresh,
            )
            return True
        if all(known[name] == value for name, value in fresh.items()):
            return False
        await _REFRESH.do(connection, refund=refund.id, updated_at=at, **fresh)
        return True

    async def _differs(
        self,
        connection: AsyncConnection,
        reading: "_Reading",
        refund: ProcessorRefund,
        kind: Kind,
        *,
        standing: Standing = Standing.OPEN,
        operation: str | None = None,
        ours: str | None = None,
    ) -> None:
        new = await discrepancies.note(
            connection,
            self.database.clock.now(),
            kind=kind,
            processor=STRIPE,
            payment_id=reading.payment,
            refund_id=ours,
            operation_id=operation,
            processor_refund=refund.id,
            evidence={"ours": {"refund": ours}, "theirs": theirs(refund)},
            standing=standing,
        )
        reading.differences += new

    async def _halt(self, connection: AsyncConnection, at: datetime, refund: ProcessorRefund, why: str) -> None:
        await halts.open_halt(connection, at, processor=STRIPE, code=Code.DATABASE_FORGOT, reason=f"{refund.id} {why}")

    # --- releases and disputes ---------------------------------------------------------------------------------------------------------

    async def _releases(self, connection: AsyncConnection, reading: "_Reading") -> None:
        """An authorisation that is cancelled answers the attempt to cancel it."""
        if reading.state.status is not PaymentStatus.CANCELED:
            return
        for row in await _RELEASING.all(connection, payment=reading.payment, statuses=_UNSURE):
            change = await lock_refund(connection, row["id"], self.database.clock.now)
            operation, before = await self._operation(connection, change), change.status
            if operation is None or change.status.value not in _UNSURE or operation.attempts == 0:
                continue
            await self._answered(connection, change, operation, None, reason="released")
            await self._apply(connection, change, operation, Conclusion(Event.AUTHORISATION_RELEASED), processor_refund=None)
            await self._tell_run(connection, reading, change, before)

    async def _disputed(self, connection: AsyncConnection, reading: "_Reading") -> None:
        """Judge what was promised and not sent by the design's table (field report 32). What is being submitted is judged at its attempt."""
        dispute = reading.state.dispute
        if dispute is DisputeState.NONE:
            return
        for row in await _UNDECIDED.all(connection, payment=reading.payment, statuses=_PROMISED):
            change = await lock_refund(connection, row["id"], self.database.clock.now)
            before = change.status
            if before.value not in _PROMISED:
                continue
            if dispute in _DENIED:
                code, why = _DENIED[dispute]
                change.put(detail=why)
                change.move(Event.DENY, actor="processor", code=code, revision=change["revision"], dispute=dispute.value)
                change.notice("disputed", code=code)
            elif not await self._for_a_person(connection, change, dispute):
                continue
            await self._tell_run(connection, reading, change, before)

    async def _for_a_person(self, connection: AsyncConnection, change: Change, dispute: DisputeState) -> bool:
        """An inquiry, or a dispute nobody knows: terms that were not judged with it are judged again before anything is sent, which needs a person.

        What is approved is held for that; what still waits for consent or review is told to its people, and its attempt would find the same.
        """
        if change["terms_hash"] is None:
            return False  # a person has to write terms, which are judged with what is true then
        quoted = await _QUOTED.value(connection, refund=change.id, number=change["revision"])
        why = f"a dispute of the payment has begun ({dispute})"
        if quoted == dispute.value or change["detail"] == why:
            return False
        if change.status is Status.APPROVED:
            change.put(wake_at=change.at, slot_at=None, detail=why)
            change.move(Event.HOLD, actor="processor", code=Code.TERMS_EXPIRED, dispute=dispute.value)
        elif change.status is Status.HELD:
            return False  # it is judged again when it goes on
        else:
            change.put(detail=why)
            change.note("dispute_noticed", actor="processor", dispute=dispute.value)
        change.notice("inquiry", dispute=dispute.value)
        return True

    async def _tell_run(self, connection: AsyncConnection, reading: "_Reading", change: Change, before: Status) -> None:
        """Have the open run look at the store; a run that has ended stays ended, and one whose refund is open again is started by the sweep."""
        if change.status is not before:
            reading.moved += 1
        if before not in FINAL:
            change.signal(_HINT, "", after=timedelta(0))  # nobody else tells the run
        await change.save(connection, announce=True)


_SENT = frozenset({Status.SUBMITTING, Status.PENDING, Status.PARKED, Status.SUCCEEDED, Status.FAILED})
"""Statuses in which something of ours may be at the processor."""


class _Reading:
    """One reading while it is recorded, and what came of it."""

    def __init__(self, payment: str, state: PaymentState, known: Mapping[str, Row]) -> None:
        self.payment = payment
        self.state = state
        self.known = known
        self.imported = self.moved = self.differences = 0


def _operation_of(refund: ProcessorRefund, known: Mapping[str, Row]) -> str | None:
    """Our operation of a refund: the recorded one, for metadata can be edited, else the one it names, if that is a name of ours."""
    row = known.get(refund.id)
    if row is not None and row["operation_id"] is not None:
        return row["operation_id"]
    return refund.operation if is_id(refund.operation, Prefix.OPERATION) else None


def _shown(refund: ProcessorRefund) -> dict[str, Any]:
    return {
        "processor_refund": refund.id,
        "amount": refund.amount,
        "currency": refund.currency.upper(),
        "state": refund.raw_state,
        "created_at": refund.created_at,
    }
