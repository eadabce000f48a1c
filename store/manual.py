"""Manual parts: what no processor can return is handed to a person when it would be sent, and a person says what became of it.

The same approvals are consumed by the same kind of operation, once for each approved revision, so that nobody is told twice to give the same money back. No
attempt is ever opened: nothing leaves this machine.
"""

from datetime import timedelta
from typing import Any

from sqlalchemy.ext.asyncio import AsyncConnection

from refunds.errors import Code
from refunds.ids import Prefix, new_id
from refunds.messages import Situation
from refunds.money import Money
from refunds.orders import Tender
from refunds.processor import MANUAL, FrozenRequest
from refunds.status import Event, Status
from refunds.submission import idempotency_key
from refunds.terms import OperationKind, Terms
from store import policies, snapshots
from store.changes import Change
from store.claims import refundable_of
from store.operation_rows import Operation, operation_from
from store.operations import Payments, approvals_to_consume
from store.requirements import REVISION, decisions_on, order_moved
from store.sending import room
from store.situations import situation
from store.sql import Row


class HandingOver(Payments):
    """The part of the payments role that sends nothing."""

    async def hand_over(self, refund_id: str) -> Situation:
        """Park an approved manual part for the person who gives it back, and tell its owners; hold it while a stop or draft mode holds everything, or
        the database may have forgotten that it was given back already.

        Safe to call any number of times: only an approved one moves. Terms that expired, or that no longer fit what is left of the payment, are held and
        quoted again, as for any other refund.
        """
        async with self.database.begin() as connection:
            brake, payment, change = await self._locked_to_send(connection, MANUAL, refund_id)
            still_so = payment is not None and payment["processor"] == MANUAL and payment["id"] == change["payment_id"]
            if payment is None or not still_so or change.status is not Status.APPROVED:
                return situation(change.row)
            revision = await REVISION.one(connection, refund=change.id, number=change["revision"])
            operation = _intended(change, revision)
            refusal = brake or await self._unfit_by_hand(connection, change, payment, operation, order_moved(revision))
            if refusal is not None:
                self._hold(change, *refusal)
                return await self._saved(connection, change)
            force = await policies.in_force(connection, change.at)
            limited = await room(connection, change, revision, force.policy, processor=MANUAL, locking=True)
            if limited.refusal is not None:
                self._hold(change, *limited.refusal)
                limited.wait(change)
                return await self._saved(connection, change)
            await limited.take(connection, change)
            consumed = approvals_to_consume(change, revision, await decisions_on(connection, change.id, change["revision"]))
            await self._write_operation(connection, change, revision, operation, consumed)
            change.move(Event.SUBMIT, revision=operation.revision, terms_hash=change["terms_hash"])
            self._park_by_hand(change, payment, operation)
            return await self._saved(connection, change)

    async def _unfit_by_hand(
        self, connection: AsyncConnection, change: Change, payment: Row, operation: Operation, moved: str | None
    ) -> tuple[Code, str] | None:
        """Why it may not be handed over now, or ``None``; ``moved`` is what the order has against it."""
        why = moved
        if operation.terms_expire_at <= change.at:
            why = "the terms expired"
        else:
            state = snapshots.by_hand(payment, change.at)
            figures = await refundable_of(connection, payment["id"], state, besides=change.id)
            if figures.remaining < operation.amount.amount:
                why = f"only {Money(figures.remaining, state.currency)} is still refundable"
        return None if why is None else (Code.TERMS_EXPIRED, f"{why}; the terms are judged again")

    def _park_by_hand(self, change: Change, payment: Row, operation: Operation) -> None:
        tender = Tender(payment["tender"])
        change.put(
            detail=f"give {operation.amount} back {tender.how}",
            wake_at=change.at + timedelta(seconds=self.settings.parked_escalate_s),
            queue="settle",
        )
        change.move(Event.PARK, code=Code.MANUAL_PART, operation=operation.id)
        change.notice("manual_part", code=Code.MANUAL_PART, queue="settle", tender=tender.value, amount=operation.amount.amount)


def _intended(change: Change, revision: Row) -> Operation:
    """The operation of an approved manual part: a request that is never sent, with the key it would carry."""
    terms = Terms.from_stored(revision["terms"])
    if terms.hash != revision["terms_hash"] or terms.operation is not OperationKind.MANUAL:
        raise RuntimeError(f"the stored terms of {change.id} are not those of a manual part that was approved; nobody is told to pay")
    operation_id = new_id(Prefix.OPERATION)
    key = idempotency_key(terms.operation, terms.mode, operation_id)
    request = FrozenRequest(operation_id, terms.operation.value, terms.processor_payment, terms.amount, terms.currency, key)
    row: dict[str, Any] = {
        "id": operation_id,
        "refund_id": change.id,
        "revision": change["revision"],
        "kind": terms.operation.value,
        "payment_id": revision["payment_id"],
        "amount": terms.amount,
        "currency": terms.currency,
        "request": {name: getattr(request, name) for name in FrozenRequest.__dataclass_fields__},
        "expires_at": revision["expires_at"],
        "dispute": revision["facts"]["payment"]["dispute"],
        "api_version": terms.api_version,
        "created_at": change.at,
    }
    return operation_from(row, [])
