"""The database steps of a run. Each may run twice, or after a crash, and changes nothing the second time: it acts on the stored status and answers with it."""

from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from sqlalchemy import bindparam, exists, literal, or_, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from refunds.errors import Code, RefundError
from refunds.marketplace import Wish
from refunds.messages import Situation, Step
from refunds.processor import MANUAL, PaymentState
from refunds.settings import Settings
from refunds.status import BEFORE_OPERATION, Event, Status
from store import asking, brakes, pacing, policies, quoting, requoting, snapshots
from store.changes import Change, lock_payment, lock_refund, lock_with_payment, read_refund
from store.db import Database
from store.deadlines import climb, remind_of_holding, remind_of_waiting
from store.facts import StoredReading, reading_of
from store.requirements import revision_of
from store.sending import room
from store.situations import situation
from store.sql import Query, Row, commit, pipelined
from store.tables import classifications, decisions, instructions, orders, payments, refunds

_TO_READ = Query(
    select(
        payments.c.processor_payment, payments.c.currency, or_(refunds.c.reverse_transfer, refunds.c.refund_application_fee).label("flow")
    )
    .join(refunds, refunds.c.payment_id == payments.c.id)
    .where(
        refunds.c.id == bindparam("refund"),
        payments.c.processor != literal(MANUAL),
        refunds.c.status == literal(Status.RECEIVED.value),
        ~(refunds.c.has_text & ~exists().where(classifications.c.refund_id == refunds.c.id)),
    )
)


@dataclass(frozen=True)
class Steps:
    """The steps of the ``refunds`` role, over its own login."""

    database: Database
    settings: Settings

    async def payment_to_read(self, refund_id: str) -> tuple[str, str, bool] | None:
        """The processor's id and the currency of the payment that a first quote needs a reading of, if that is known already, and whether its legs are asked for."""
        async with self.database.read() as connection:
            row = await _TO_READ.first(connection, refund=refund_id)
            return None if row is None else (row["processor_payment"], row["currency"], row["flow"])

    async def prepare(self, refund_id: str, reading: PaymentState | None = None, *, unread: bool = False) -> Situation:
        """Read and quote a received refund; answer the stored situation of any other.

        ``reading`` is the payment, read a moment ago by the same process. ``needs`` of the answer names the step of another role that must run first: the
        text is not yet classified (with ``unread`` it goes on without, and a person reads it), or the payment was not read lately.
        """
        async with self.database.begin() as connection:
            payment_id = None
            if reading is None:  # else its payment is known: it was read
                row = await read_refund(connection, refund_id)
                if row["status"] != Status.RECEIVED:
                    return situation(dict(row))
                stored = await reading_of(connection, refund_id) if row["has_text"] else None
                if row["has_text"] and stored is None and not unread:
                    return situation(dict(row), needs=Step.CLASSIFY)
                payment_id = row["payment_id"] or await self._resolve(connection, row, stored)
            payment, change = await lock_with_payment(connection, refund_id, self.database.clock.now, payment_id=payment_id)
            if change.status is not Status.RECEIVED:
                return situation(change.row)
            if payment is None:
                change.put(run_seen_at=change.at)
                await quoting.to_a_person(connection, change, "nobody could tell which payment is meant")
                return await self._saved(connection, change)
            return await self._quote_first(connection, change, payment, reading, unread)

    async def _quote_first(
        self, connection: AsyncConnection, change: Change, payment: Row, reading: PaymentState | None, unread: bool
    ) -> Situation:
        stored = await reading_of(connection, change.id) if change["has_text"] else None
        if change["has_text"] and stored is None and not unread:
            return situation(change.row, needs=Step.CLASSIFY)
        state = reading or await self._fresh(connection, change, payment["id"], asking.wish_of(change.row))
        if state is None:
            return situation(change.row | {"payment_id": payment["id"]}, needs=Step.READ_PAYMENT)
        # A ticket learns its payment here, and with it the currency its amount is read in.
        change.put(run_seen_at=change.at, currency=payment["currency"])
        await quoting.quote(connection, self.settings, change, asking.asked_at_first(change, stored, payment["id"]), state)
        async with pipelined(connection):
            if reading is not None:
                await snapshots.save(connection, payment["id"], reading, now=change.at)
            found = await self._saved(connection, change)
            await commit(connection)
        return found

    async def _fresh(self, connection: AsyncConnection, change: Change, payment_id: str, wish: Wish) -> PaymentState | None:
        """A reading of the payment that is young enough to quote on, with where its money went when that is to be returned."""
        within = timedelta(seconds=self.settings.payment_snapshot_max_age_s)
        return await snapshots.latest(connection, payment_id, now=change.at, within=within, with_flow=bool(wish))

    async def _saved(self, connection: AsyncConnection, change: Change) -> Situation:
        await change.save(connection, announce=True)
        return situation(change.row)

    async def _resolve(self, connection: AsyncConnection, row: Row, stored: StoredReading | None) -> str | None:
        """The payment a ticket means: only through an order of the same customer that the text names, and only when that has one payment."""
        order_id = row["order_id"] or (stored.order_id if stored else None)
        if order_id is None:
            return None
        found = (
            (
                await connection.execute(
                    select(payments)
                    .join(orders, orders.c.id == payments.c.order_id)
                    .where(orders.c.id == order_id, orders.c.customer_id == row["customer_id"], payments.c.amount > 0)
                )
            )
            .mappings()
            .all()
        )
        return found[0]["id"] if len(found) == 1 else None

    async def pass_deadline(self, refund_id: str) -> Situation:
        """Do what is due by now: remind, escalate, expire, remind again. A decision that was recorded in time has moved the refund already."""
        async with self.database.begin() as connection:
            change = await lock_refund(connection, refund_id, self.database.clock.now)
            await climb(connection, change)
            if change.status is Status.PARKED:
                remind_of_waiting(change, self.settings)
            return await self._saved(connection, change)

    async def resume_held(self, refund_id: str) -> Situation:
        """Let a held refund go on when nothing holds it any more: judged anew, and as approved where that changes nothing, else quoted again.

        So it is quoted again when its terms lapsed or no longer fit, or when the policy demands more of them than before; a person decides again where one had,
        or where the money, a dispute or the order has moved.
        """
        async with self.database.begin() as connection:
            row = await read_refund(connection, refund_id)
            if row["status"] != Status.HELD:
                return situation(dict(row))
            payment = await lock_payment(connection, row["payment_id"])
            change = await lock_refund(connection, refund_id, self.database.clock.now)
            if change.status is not Status.HELD:
                return situation(change.row)
            if await self._kept_back(connection, change, payment):
                return await self._saved(connection, change)
            revision = await revision_of(connection, refund_id, change["revision"])
            void = change["code"] == Code.TERMS_EXPIRED or revision["expires_at"] <= change.at
            if void or change["code"] not in requoting.MOMENTARY:
                state = await self._fresh(connection, change, change["payment_id"], asking.wish_of(change.row))
                if state is None:
                    await change.save(connection)  # its turn, which has come
                    return situation(change.row, needs=Step.READ_PAYMENT)
                again = asking.asked_again(change, revision)
                if void or not await requoting.no_news(connection, change, revision, again, state):
                    await quoting.quote(connection, self.settings, change, again, state, before=revision, by_itself=True)
                    return await self._saved(connection, change)
                if await self._limited(connection, change, payment, judged=True):
                    return await self._saved(connection, change)
            change.put(wake_at=None, slot_at=None, detail=None)
            change.move(Event.APPROVE, revision=change["revision"], terms_hash=change["terms_hash"])
            return await self._saved(connection, change)

    async def _kept_back(self, connection: AsyncConnection, change: Change, payment: Row) -> bool:
        """Whether a held refund stays held: by the stop, draft mode, a halt or its payment, or because its turn has not come."""
        brake = await brakes.of_everything(connection, payment["processor"], change.id)
        brake = brake or await brakes.of_payment(connection, payment["id"], besides=change.id)
        if brake is not None:
            code, why = brake
            if change["code"] not in (code, Code.TERMS_EXPIRED):  # terms that have to be judged again still have to be
                change.put(code=code.value, detail=why)
                change.note("held_for_another_reason", code=code.value)
            change.put(slot_at=None)
            remind_of_holding(change, self.settings)
            return True
        if change["code"] == Code.TERMS_EXPIRED:
            return False  # nothing kept it back; it only had to be judged again
        if await self._limited(connection, change, payment, judged=change["code"] in requoting.MOMENTARY):
            return True
        slot = change["slot_at"]
        if slot is None:
            slot = await pacing.take_slot(connection, payment["processor"], change.at, self.settings)
        change.put(slot_at=slot)
        if slot > change.at:
            change.put(wake_at=slot)
            return True
        return False

    async def _limited(self, connection: AsyncConnection, change: Change, payment: Row, *, judged: bool) -> bool:
        """Whether a limit over time, or a breaker that is half-open, has no room for it yet: then it says so and looks again when there may be.

        What still has to be ``judged`` anew is, before it waits for a limit: that it waits for one says nothing about its terms, and is no reason to judge them.
        """
        revision = await revision_of(connection, change.id, change["revision"])
        force = await policies.in_force(connection, change.at)
        limited = await room(connection, change, revision, force.policy, processor=payment["processor"], locking=False)
        if limited.refusal is None:
            return False
        code, why = limited.refusal
        if code is Code.LIMIT_EXCEEDED and not judged:
            return False
        if change["code"] != code:
            change.note("held_for_another_reason", code=code.value)
        change.put(code=code.value, detail=why, slot_at=None)
        remind_of_holding(change, self.settings)
        limited.wait(change)
        return True

    async def apply_message(self, refund_id: str, kind: str, message_id: str, *, enter_refusal: bool = True) -> Situation:
        """Let a message count as far as the store confirms it (design, section 4).

        A decision, consent or withdrawal moved the refund when it was recorded, so it is only marked as delivered. A revision is quoted now. A message
        that names nothing recorded for this refund changes nothing and is entered in the ledger as refused, unless ``enter_refusal`` is false.
        """
        async with self.database.begin() as connection:
            if kind == "revise":
                return await self._revise(connection, refund_id, message_id, enter_refusal=enter_refusal)
            change = await lock_refund(connection, refund_id, self.database.clock.now)
            table = instructions if kind in ("withdraw", "settle") else decisions
            known = await self._mark_delivered(connection, table, refund_id, kind, message_id, change)
            if not known:
                return await self._refuse(connection, change, kind, Code.MESSAGE_UNBACKED, message_id[:80], enter=enter_refusal)
            return await self._saved(connection, change)

    async def _mark_delivered(
        self, connection: AsyncConnection, table: Any, refund_id: str, kind: str, message_id: str, change: Change
    ) -> bool:
        verdicts = {
            "approve": ("approve", "deny"),
            "deny": ("approve", "deny"),
            "decide": ("approve", "deny"),
            "consent": ("approve", "deny"),
        }
        row = (
            (await connection.execute(select(table).where(table.c.id == message_id, table.c.refund_id == refund_id)))
            .mappings()
            .one_or_none()
        )
        if row is None:
            return False
        if table is instructions:
            if row["kind"] == kind and row["applied_at"] is None:
                await connection.execute(update(instructions).where(instructions.c.id == message_id).values(applied_at=change.at))
            return row["kind"] == kind
        wanted = verdicts[kind] if kind in ("decide", "consent") else (kind,)
        if row["verdict"] not in wanted or (row["kind"] == "consent") != (kind == "consent"):
            return False
        if row["delivered_at"] is None:
            await connection.execute(update(decisions).where(decisions.c.id == message_id).values(delivered_at=change.at))
        return True

    async def refuse_message(self, refund_id: str, kind: str, detail: str) -> Situation:
        """Enter a message that could not even be read in the ledger."""
        async with self.database.begin() as connection:
            change = await lock_refund(connection, refund_id, self.database.clock.now)
            return await self._refuse(connection, change, kind, Code.MESSAGE_MALFORMED, detail[:200])

    async def _refuse(
        self, connection: AsyncConnection, change: Change, kind: str, code: Code, detail: str, *, enter: bool = True
    ) -> Situation:
        detail = ascii(detail)[1:-1]  # from outside: no character that the database would refuse
        if not enter:
            return situation(change.row, refused=code.value, refused_detail=detail)
        change.note("message_refused", kind=ascii(kind)[1:-1], code=code.value, detail=detail)
        await change.save(connection)
        return situation(change.row, refused=code.value, refused_detail=detail)

    async def _revise(self, connection: AsyncConnection, refund_id: str, instruction_id: str, *, enter_refusal: bool) -> Situation:
        row = await read_refund(connection, refund_id)
        instruction = (
            (
                await connection.execute(
                    select(instructions).where(
                        instructions.c.id == instruction_id, instructions.c.refund_id == refund_id, instructions.c.kind == "revise"
                    )
                )
            )
            .mappings()
            .one_or_none()
        )
        payments_locked = sorted({p for p in (row["payment_id"], instruction["body"].get("payment") if instruction else None) if p})
        for payment_id in payments_locked:
            await lock_payment(connection, payment_id)
        change = await lock_refund(connection, refund_id, self.database.clock.now)
        if instruction is None:
            return await self._refuse(connection, change, "revise", Code.MESSAGE_UNBACKED, instruction_id[:80], enter=enter_refusal)
        if instruction["applied_at"] is not None:
            return situation(change.row, refused=instruction["outcome"] or "", refused_detail=instruction["detail"] or "")
        if change.status not in BEFORE_OPERATION - {Status.RECEIVED}:
            return await self._instruction_done(connection, change, instruction, RefundError(Code.NOT_REVISABLE))
        try:
            asked = await asking.resolve_revision(
                connection,
                change,
                instruction["body"],
                author=instruction["principal_id"],
                by_fraud_role="fraud" in instruction["role"].split(","),
            )
            state = await self._fresh(connection, change, asked.payment_id, asked.wish)
            if state is None:
                return situation(change.row | {"payment_id": asked.payment_id}, needs=Step.READ_PAYMENT)
            before = await revision_of(connection, refund_id, change["revision"]) if change["revision"] else None
            await quoting.quote(connection, self.settings, change, asked, state, refuse_denied=True, before=before)
        except RefundError as error:
            return await self._instruction_done(connection, change, instruction, error)
        return await self._instruction_done(connection, change, instruction, None)

    async def _instruction_done(
        self, connection: AsyncConnection, change: Change, instruction: Row, error: RefundError | None
    ) -> Situation:
        await connection.execute(
            update(instructions)
            .where(instructions.c.id == instruction["id"])
            .values(applied_at=change.at, outcome=error.code.value if error else None, detail=error.detail if error else None)
        )
        change.put(pending_revision=None)
        if error is not None:
            change.note("instruction_refused", kind=instruction["kind"], instruction=instruction["id"], code=error.code.value)
        await change.save(connection, announce=True)
        return situation(change.row, refused=error.code.value if error else "", refused_detail=error.detail if error else "")
