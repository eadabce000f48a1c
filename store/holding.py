"""What keeps approved refunds back: the stop, draft mode, a halt, a breaker, a limit over time, the cut-out of a processor that nobody can reach. Nothing of
what is held was ever sent.

A held refund is looked at again by itself (``store/progress.py``), and when nothing holds it any more it goes on in its turn.
"""

from dataclasses import dataclass
from datetime import timedelta

from sqlalchemy import Integer, bindparam, exists, select, update

from refunds.errors import Code, RefundError
from refunds.messages import Situation
from refunds.processor import MANUAL, STRIPE
from refunds.status import Event, Status
from store import pacing
from store.changes import Change, lock_refund, lock_with_payment
from store.operation_rows import Operation
from store.receipts import Receipts
from store.situations import situation
from store.sql import Query
from store.tables import operations, payments, refunds
from store.tables import pacing as pacing_table

_LOOKED = Query(
    update(operations)
    .where(operations.c.id == bindparam("operation"))
    .values(looks=operations.c.looks + bindparam("more", type_=Integer))
    .returning(operations.c.looks)
)
_STANDING = Query(
    select(
        refunds,
        payments.c.processor,
        payments.c.processor_payment,
        payments.c.currency.label("payment_currency"),
        exists().where(operations.c.refund_id == refunds.c.id, operations.c.revision == refunds.c.revision).label("operated"),
        select(pacing_table.c.open_until).where(pacing_table.c.processor == bindparam("processor")).scalar_subquery().label("open_until"),
    )
    .outerjoin(payments, payments.c.id == refunds.c.payment_id)
    .where(refunds.c.id == bindparam("refund"))
)


@dataclass(frozen=True, slots=True)
class Standing:
    """A refund before it is submitted: its operation, once there is one, the payment at the processor, and whether the cut-out is open. One ``by_hand``
    is for a person, and no processor; one ``with_legs`` returns more than the refund, on a marketplace."""

    situation: Situation
    operation: Operation | None
    processor_payment: str
    currency: str
    unreachable: bool
    by_hand: bool = False
    with_legs: bool = False


class Holding(Receipts):
    """The holding half of the payments role."""

    async def standing(self, refund_id: str) -> Standing:
        """How a refund stands before anybody is called. Read without locks: only what :meth:`open_attempt` finds under them counts."""
        async with self.database.read() as connection:
            row = await _STANDING.first(connection, refund=refund_id, processor=STRIPE)
            if row is None:
                raise RefundError(Code.REFUND_NOT_FOUND, refund=refund_id)
            change = Change(row, self.database.clock.now())
            operation = await self._operation(connection, change) if row["operated"] else None
        return Standing(
            situation(row),
            operation,
            row["processor_payment"],
            row["payment_currency"],
            unreachable=row["open_until"] is not None,
            by_hand=row["processor"] == MANUAL,
            with_legs=row["reverse_transfer"] or row["refund_application_fee"],
        )

    async def hold_unless_probing(self, refund_id: str) -> Situation | None:
        """Hold a refund while the cut-out is open; ``None`` for the one that probes the processor."""
        again_s = self.settings.held_recheck_s
        async with self.database.begin() as connection:
            if await pacing.may_probe(connection, STRIPE, self.database.clock.now(), again_s=again_s):
                return None
        return await self.hold_unsent(refund_id, Code.PROCESSOR_UNREACHABLE, "the processor could not be reached a moment ago")

    async def reached(self) -> None:
        """Close the cut-out: the processor has answered."""
        async with self.database.begin() as connection:
            await pacing.reset(connection, STRIPE)

    async def hold_unsent(self, refund_id: str, code: Code, why: str) -> Situation:
        """Hold a refund of which certainly nothing was sent. One that may have been sent, or has moved on, stays as it is."""
        async with self.database.begin() as connection:
            payment, change = await lock_with_payment(connection, refund_id, self.database.clock.now)
            if payment is None:
                return situation(change.row)
            operation = await self._operation(connection, change)
            if change.status in (Status.APPROVED, Status.SUBMITTING) and (operation is None or operation.first_sent_at is None):
                self._hold(change, code, why)
            return await self._saved(connection, change)

    async def not_read(self, refund_id: str, code: Code | None, why: str) -> None:
        """Say why the payment of a refund that is not quoted yet could not be read. What is quoted has its own words."""
        async with self.database.begin() as connection:
            change = await lock_refund(connection, refund_id, self.database.clock.now)
            wanted = {"code": code.value if code else None, "detail": why}
            if change.status is Status.RECEIVED and any(change[name] != value for name, value in wanted.items()):
                if change["code"] != wanted["code"]:
                    change.note("waits", code=wanted["code"])
                change.put(**wanted)
                await change.save(connection, announce=True)

    async def trip_breaker(self) -> None:
        """Keep everybody from trying the processor for a while: it could not be reached."""
        async with self.database.begin() as connection:
            await pacing.trip(connection, STRIPE, self.database.clock.now(), again_s=self.settings.held_recheck_s)

    async def still_unknown(self, operation: Operation, why: str, *, looked: bool) -> int:
        """Say why an operation that may have been sent is not repeated just now, and count this time if it was ``looked`` for and not found.

        Returns how often it was looked for in vain.
        """
        async with self.database.begin() as connection:
            change = await lock_refund(connection, operation.refund_id, self.database.clock.now)
            if change.status is Status.SUBMITTING and change["detail"] != why:
                change.put(detail=why)
                await change.save(connection, announce=True)
            return await _LOOKED.value(connection, operation=operation.id, more=int(looked))

    def _hold(self, change: Change, code: Code, why: str) -> None:
        # Quoted again at once; but terms that keep being refuted are not quoted in a hot loop.
        again = 0.0 if change["revision"] <= 3 else min(2.0 ** change["revision"], pacing.REQUOTED_S)
        soon = again if code is Code.TERMS_EXPIRED else self.settings.held_recheck_s
        change.put(wake_at=change.at + timedelta(seconds=soon), slot_at=None, detail=why)
        change.move(Event.HOLD, code=code)
