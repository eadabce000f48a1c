"""Sending legs: attempts, receipts, parking; the protocol of the refund itself, for each leg by itself (promises P1, P3, P4, P7).

A leg was approved with its refund and frozen with the intent. It is sent only after the processor has accepted the refund, looked up by our id before every
attempt, repeated only inside the safe window with the same bytes and key, and parked for a person where nobody can know, or where it was refused. Every
function here converges: whoever comes second finds the leg moved and changes nothing.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from sqlalchemy import Interval, Text, bindparam, func, insert, literal, literal_column, update
from sqlalchemy.ext.asyncio import AsyncConnection

from refunds.errors import Code
from refunds.ids import Prefix, new_id
from refunds.marketplace import LegReceipt, leg_differences
from refunds.messages import Situation
from refunds.money import Money
from refunds.processor import STRIPE, NotSent, Refused, Unknown
from refunds.status import Status
from store import brakes, leg_rows
from store.changes import Change, lock_with_payment, read_refund
from store.leg_rows import ACCEPTED, DONE, OPEN, PARKED, WAITING, Leg
from store.operation_rows import ANSWERED, LAPSED, NOT_SENT, REFUSED, UNKNOWN, Attempt, OperationRows
from store.situations import situation
from store.sql import Query
from store.tables import leg_attempts
from store.tables import legs as legs_table

HELD = brakes.CODES - {Code.PAYMENT_HELD}
"""What keeps a leg back until somebody lifts it: then it is tried at once."""

_ATTEMPT = Query(
    insert(leg_attempts).values(
        {name: bindparam(name) for name in ("id", "leg_id", "number", "worker", "opened_at")}
        # By the database's clock, as with a refund's attempts.
        | {"send_by": func.clock_timestamp() + bindparam("within", type_=Interval)}
    )
)
_ENDED = Query(
    update(leg_attempts)
    .where(leg_attempts.c.id == bindparam("attempt"), leg_attempts.c.outcome.is_(None))
    .values(answered_at=bindparam("at"), outcome=bindparam("how"), reason=bindparam("why"), detail=bindparam("what", type_=Text))
)
# What the processor has made answers every attempt of which nothing is known: they all carried the same key.
_FOUND = Query(
    update(leg_attempts)
    .where(leg_attempts.c.leg_id == bindparam("leg"), leg_attempts.c.outcome.is_(None) | (leg_attempts.c.outcome == literal(UNKNOWN)))
    .values(answered_at=bindparam("at"), outcome=literal(ANSWERED), reason=bindparam("why"), detail=bindparam("what"))
)
_LOOKED = Query(
    update(legs_table)
    .where(legs_table.c.id == bindparam("leg"))
    .values(looks=legs_table.c.looks + literal_column("1"))
    .returning(legs_table.c.looks)
)


@dataclass(frozen=True, slots=True)
class LegsStanding:
    """A refund and its legs before anybody is called, read without locks. ``due`` are those that something can be done about now."""

    situation: Situation
    legs: list[Leg]
    due: list[Leg]


class Legs(OperationRows):
    """The database's side of the legs, over the login of the ``payments`` role."""

    async def standing(self, refund_id: str) -> LegsStanding:
        """How the legs of a refund stand. Only what :meth:`open_attempt` finds under the locks counts."""
        now = self.database.clock.now()
        async with self.database.read() as connection:
            row = await read_refund(connection, refund_id)
            found = await leg_rows.of_refund(connection, refund_id, longest=self._longest_call)
        busy = row["status"] in (*ACCEPTED, Status.FAILED)
        waiting = [leg for leg in found if busy and leg.state == WAITING and leg.due_at is not None]
        return LegsStanding(situation(dict(row)), found, [leg for leg in waiting if leg.code in HELD or _at(leg) <= now])

    async def leg(self, refund_id: str, leg_id: str) -> Leg | None:
        """One leg of a refund, read without locks."""
        return next((leg for leg in (await self.standing(refund_id)).legs if leg.id == leg_id), None)

    async def open_attempt(self, seen: Leg) -> tuple[Leg, Attempt] | None:
        """Open one attempt under the stop's lock if the leg may still be sent; else say on it what it waits for, and ``None``.

        Checked after the locks: the stop, draft mode and halts, that the refund is accepted, that the leg still waits, that no other attempt is open, and the
        safe window.
        """
        async with self.database.begin() as connection:
            brake, _, change = await self._locked_to_send(connection, STRIPE, seen.refund_id)
            leg = await self._again(connection, seen)
            if leg.state != WAITING or leg.in_flight or change.status not in ACCEPTED:
                return None
            if brake is not None:
                again = change.at + timedelta(seconds=self.settings.held_recheck_s)
                await leg_rows.postpone(connection, leg, again, code=brake[0], detail=brake[1])
                if leg.code != brake[0]:
                    change.note("leg_held", leg=leg.id, code=brake[0].value)
                await self._stand(connection, change)
                return None
            if (why := self.no_more_posts(leg, change.at)) is not None and (leg.uncertain or leg.api_version != self._api_version):
                await self._park(connection, change, leg, Code.OUTCOME_UNKNOWN if leg.uncertain else Code.LEG_GIVEN_UP, why)
                await self._stand(connection, change)
                return None
            within, number = self.settings.submit_send_within_s, leg.attempts + 1
            attempt = Attempt(new_id(Prefix.ATTEMPT), number, within)
            await _ATTEMPT.do(
                connection,
                id=attempt.id,
                leg_id=leg.id,
                number=number,
                worker=self.worker,
                opened_at=change.at,
                within=timedelta(seconds=within),
            )
            change.note("leg_attempt_opened", leg=leg.id, attempt=attempt.id, number=number)
            await self._stand(connection, change)
            return leg, attempt

    async def found(self, seen: Leg, made: Sequence[LegReceipt]) -> bool:
        """Hold what the processor shows of a leg's target, to the last page, against the leg before it is sent; true when nothing is to be sent now.

        What carries its id is its receipt. So is the reversal that the processor made together with the very refund, which a person had made by hand. What names
        nobody and was made since the leg was intended may be what a person did for it, and sending would do it twice: it is parked, and a person says.
        """
        if (ours := made_by(seen, made)) is not None:
            await self.receipt(seen, ours, attempt=None)
            return True
        if not made:
            return False
        async with self.database.begin() as connection:
            change, leg = await self._locked_leg(connection, seen)
            if leg.state != WAITING or leg.in_flight:
                return True
            others = await leg_rows.not_its(connection, leg, made)
            nobodys = [receipt for receipt in made if receipt.id not in others]
            with_refund = next((receipt for receipt in nobodys if receipt.source_refund is not None), None)
            if with_refund is not None and not leg.uncertain:
                await self._take(connection, change, leg, replace(with_refund, operation=leg.id), found=True)
            elif nobodys:
                what = ", ".join(f"{Money(receipt.amount, receipt.currency)} ({receipt.id})" for receipt in nobodys)
                code = Code.OUTCOME_UNKNOWN if leg.uncertain else Code.LEG_GIVEN_UP
                await self._park(
                    connection, change, leg, code, f"somebody else took {what} of {leg.request.target} back since it was approved"
                )
            await self._stand(connection, change)
            return bool(nobodys)

    async def receipt(self, seen: Leg, receipt: LegReceipt, *, attempt: Attempt | None) -> None:
        """Store what the processor has made, then compare it with what was approved: done, or parked. ``attempt`` is ``None`` when it was found."""
        async with self.database.begin() as connection:
            change, leg = await self._locked_leg(connection, seen)
            await _FOUND.do(connection, leg=leg.id, at=change.at, why="answer" if attempt else "found", what=receipt.id)
            await self._take(connection, change, leg, receipt, found=attempt is None)
            await self._stand(connection, change)

    async def _take(self, connection: AsyncConnection, change: Change, leg: Leg, receipt: LegReceipt, *, found: bool) -> None:
        if leg.receipt_id == receipt.id:
            return  # the other worker was here first; the record already says so
        how = {"found": found, "processor_amount": receipt.amount}
        if leg.receipt_id is not None:
            why = f"the processor shows {receipt.id} beside {leg.receipt_id}"
            change.note("leg_made_twice", leg=leg.id, receipt=receipt.id, **how)
            await self._park(connection, change, leg, Code.REFUNDED_TWICE, why)
        elif difference := leg_differences(receipt, leg.request):
            await self._park(connection, change, leg, Code.RESPONSE_MISMATCH, difference, receipt=receipt.id)
        else:
            await leg_rows.become(connection, change, leg, DONE, receipt=receipt.id, **how)
            if leg.state not in OPEN:
                change.notice("leg_done_after_all", leg=leg.id)
            if change.status is Status.FAILED:
                leg_rows.outlived(change, leg)

    async def failed_attempt(self, seen: Leg, attempt: Attempt, error: Refused | NotSent | Unknown) -> bool:
        """Record how an attempt ended without a receipt; true when that concludes the leg: refused, and no other attempt of it is uncertain."""
        outcome = {Refused: REFUSED, NotSent: NOT_SENT, Unknown: UNKNOWN}[type(error)]
        async with self.database.begin() as connection:
            change = await self._ended(connection, seen, attempt, outcome, error.reason, error.code)
            leg = await self._again(connection, seen)
            concluded = isinstance(error, Refused) and leg.state == WAITING and not leg.uncertain
            if concluded:
                await self._park(connection, change, leg, Code.LEG_REFUSED, f"the processor answered {error.code or error.reason}")
            await self._stand(connection, change)
            return concluded

    async def lapse(self, seen: Leg, attempt: Attempt) -> None:
        """Record that an attempt was not sent before its ``send_by``: it is void, certainly nothing left."""
        async with self.database.begin() as connection:
            change = await self._ended(connection, seen, attempt, LAPSED, "too_late_to_send", None)
            await self._stand(connection, change)

    async def park(self, seen: Leg, code: Code, why: str) -> None:
        """Park a leg whose outcome nobody can know. Its refund stays what it is."""
        async with self.database.begin() as connection:
            change, leg = await self._locked_leg(connection, seen)
            if leg.state == WAITING:
                await self._park(connection, change, leg, code, why)
            await self._stand(connection, change)

    async def no_answer(self, seen: Leg, error: NotSent | Unknown, *, looked: bool) -> None:
        """Say when the leg is tried or looked for again, later each time; or park it, when it may have been sent and there is no more to hope for.

        ``looked``: it was looked for and not found. Only looks that came when every answer had to be visible count towards parking it within the safe window.
        """
        async with self.database.begin() as connection:
            change, leg = await self._locked_leg(connection, seen)
            if leg.state != WAITING:
                return
            in_vain = leg.uncertain and looked and not leg.may_answer
            looks = await _LOOKED.value(connection, leg=leg.id) if in_vain else 0
            if looks >= self.settings.submit_max_attempts:
                await self._park(connection, change, leg, Code.OUTCOME_UNKNOWN, f"no answer ({error.reason}) after {looks} looks")
            elif leg.uncertain and self.window_is_over(leg, change.at):
                why = f"it could not be looked up ({error.reason}), and the safe window is over"
                await self._park(connection, change, leg, Code.OUTCOME_UNKNOWN, why)
            else:
                await self._later(connection, change, leg, error)
            await self._stand(connection, change)

    async def _later(self, connection: AsyncConnection, change: Change, leg: Leg, error: NotSent | Unknown) -> None:
        """As long again as it has waited already, within limits: nobody counts for it, and a lost worker changes nothing."""
        least, most = self.settings.submit_retry_initial_s, self.settings.submit_retry_max_s
        waited = (change.at - leg.state_since).total_seconds()
        wait = max(min(most, max(least, waited)) * random.uniform(0.5, 1.0), error.retry_after or 0)
        code = None if leg.uncertain or leg.in_flight else Code.PROCESSOR_UNREACHABLE
        why = f"{'no answer yet' if leg.uncertain else 'the processor cannot be reached'} ({error.reason})"
        await leg_rows.postpone(connection, leg, change.at + timedelta(seconds=wait), code=code, detail=why)
        if code is not None and leg.code != code:
            change.note("leg_held", leg=leg.id, code=code.value)

    async def remind(self, refund_id: str) -> Situation:
        """Tell the owners of parked legs again when it is time, and answer with how the refund stands."""
        async with self.database.begin() as connection:
            _, change = await lock_with_payment(connection, refund_id, self.database.clock.now)
            for leg in await leg_rows.of_refund(connection, refund_id, longest=self._longest_call):
                if leg.state == PARKED and _at(leg) <= change.at:
                    code = Code(leg.code) if leg.code else None
                    await leg_rows.postpone(connection, leg, change.at + self._escalate, code=code, detail=leg.detail or "")
                    change.note("reminded", leg=leg.id)
                    change.notice("leg_still_parked", leg=leg.id, code=code)
            await self._stand(connection, change)
            return situation(change.row)

    # --- inside ----------------------------------------------------------------------------------------------------------------------

    @property
    def _api_version(self) -> str:
        return self.settings.stripe_api_version

    @property
    def _escalate(self) -> timedelta:
        return timedelta(seconds=self.settings.parked_escalate_s)

    async def _locked_leg(self, connection: AsyncConnection, seen: Leg) -> tuple[Change, Leg]:
        """Lock the payment, then the refund, and read the leg anew."""
        _, change = await lock_with_payment(connection, seen.refund_id, self.database.clock.now)
        return change, await self._again(connection, seen)

    async def _again(self, connection: AsyncConnection, seen: Leg) -> Leg:
        found = await leg_rows.of_refund(connection, seen.refund_id, longest=self._longest_call)
        return next(leg for leg in found if leg.id == seen.id)

    async def _ended(
        self, connection: AsyncConnection, seen: Leg, attempt: Attempt, outcome: str, reason: str, detail: str | None
    ) -> Change:
        change, leg = await self._locked_leg(connection, seen)
        if await _ENDED.do(connection, attempt=attempt.id, at=change.at, how=outcome, why=reason, what=detail):
            change.note("leg_attempt_ended", leg=leg.id, attempt=attempt.id, outcome=outcome, reason=reason, processor_code=detail)
        return change

    async def _park(
        self, connection: AsyncConnection, change: Change, leg: Leg, code: Code, why: str, *, receipt: str | None = None
    ) -> None:
        await leg_rows.become(connection, change, leg, PARKED, code=code, detail=why, due_at=change.at + self._escalate, receipt=receipt)
        change.notice("leg_parked", code=code, leg=leg.id)

    async def _stand(self, connection: AsyncConnection, change: Change) -> None:
        leg_rows.stand(change, await leg_rows.of_refund(connection, change.id, longest=self._longest_call))
        await change.save(connection, announce=True)


def made_by(leg: Leg, made: Sequence[LegReceipt]) -> LegReceipt | None:
    """What carries the leg's own id. ``None`` is no evidence of anything."""
    return next((receipt for receipt in made if receipt.operation == leg.id), None)


def _at(leg: Leg) -> datetime:
    assert leg.due_at is not None
    return leg.due_at
