"""What a request would come to, by the same facts and policy as the real thing, with nothing kept: the caller always rolls its transaction back."""

from dataclasses import dataclass

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncConnection

from refunds.clock import Clock
from refunds.facts import PolicyDecision
from refunds.money import Money, requested
from refunds.policy import evaluate
from refunds.processor import PaymentState, PaymentStatus
from refunds.reasons import Reason, processor_reason
from refunds.refundable import Refundable
from refunds.terms import OperationKind
from store import policies
from store.changes import Change, read_refund
from store.claims import refundable_of
from store.facts import gather
from store.quoting import asked_at_first
from store.tables import orders, payments


@dataclass(frozen=True, slots=True)
class Preview:
    """What would be quoted. ``consented`` says that asking so is consent already; ``reason`` is what the processor would be told."""

    operation: OperationKind
    processor_payment: str
    amount: Money
    full: bool
    reason: Reason | None
    processor_reason: str | None
    consented: bool
    policy_version: int
    policy_hash: str
    decision: PolicyDecision
    figures: Refundable


async def preview(connection: AsyncConnection, clock: Clock, refund_id: str, state: PaymentState) -> Preview:
    """Judge a refund that was just stored in this transaction, on a reading of its payment. Takes no locks: nothing is reserved by it.

    Free text is not read here, so a reader can only make the real refund stricter. Raises what the amount alone makes impossible.
    """
    change = Change(await read_refund(connection, refund_id), clock.now())
    asked = asked_at_first(change, None, change["payment_id"])
    version, policy = await policies.in_force(connection, change.at)
    payment = (await connection.execute(select(payments).where(payments.c.id == asked.payment_id))).mappings().one()
    order = (await connection.execute(select(orders).where(orders.c.id == payment["order_id"]))).mappings().one()
    figures = await refundable_of(connection, asked.payment_id, state, besides=refund_id)
    amount = figures.remaining if asked.amount is None else requested(asked.amount, state.currency).amount
    facts = await gather(
        connection,
        change,
        policy=policy,
        order=order,
        payment_id=asked.payment_id,
        state=state,
        figures=figures,
        amount=amount,
        full=asked.full,
        reason=asked.reason,
        asked_by_customer=True,
        extracted=False,
        stored=None,
    )
    return Preview(
        operation=OperationKind.RELEASE if state.status is PaymentStatus.AUTHORISED else OperationKind.REFUND,
        processor_payment=state.processor_payment,
        amount=Money(amount, state.currency),
        full=amount == figures.remaining,
        reason=asked.reason,
        processor_reason=processor_reason(asked.reason),
        consented=facts.request.amount_named_by_customer and facts.request.customer_authenticated,
        policy_version=version["version"],
        policy_hash=version["hash"],
        decision=evaluate(policy, facts),
        figures=figures,
    )
