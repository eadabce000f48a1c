"""What a request would come to, by the same facts and policy as the real thing, with nothing kept: the caller always rolls its transaction back."""

from dataclasses import dataclass
from typing import Any

from sqlalchemy.ext.asyncio import AsyncConnection

from refunds.allocation import Breakdown
from refunds.clock import Clock
from refunds.facts import PolicyDecision
from refunds.marketplace import PlannedLeg
from refunds.money import Money
from refunds.processor import PaymentState
from refunds.reasons import Reason, processor_reason
from refunds.refundable import Refundable
from refunds.terms import OperationKind
from store.asking import asked_at_first
from store.changes import Change, read_refund
from store.quoting import judge


@dataclass(frozen=True, slots=True)
class Preview:
    """What would be quoted. ``consented`` says that asking so is consent already; ``reason`` is what the processor would be told, ``versions`` whose rules
    judged it."""

    operation: OperationKind
    destination: str
    processor_payment: str
    amount: Money
    full: bool
    reason: Reason | None
    processor_reason: str | None
    consented: bool
    versions: dict[str, Any]
    decision: PolicyDecision
    figures: Refundable
    breakdown: Breakdown | None
    legs: tuple[PlannedLeg, ...]


async def preview(connection: AsyncConnection, clock: Clock, refund_id: str, state: PaymentState) -> Preview:
    """Judge a refund that was just stored in this transaction, on a reading of its payment. Takes no locks: nothing is reserved by it.

    Free text is not read here, so a reader can only make the real refund stricter. Raises what the amount alone makes impossible.
    """
    change = Change(await read_refund(connection, refund_id), clock.now())
    asked = asked_at_first(change, None, change["payment_id"])
    judged = await judge(connection, change, asked, state, stored=None, locking=False)
    facts, amount = judged.facts, judged.facts.request.amount
    return Preview(
        operation=judged.operation(state),
        destination=judged.destination,
        processor_payment=state.processor_payment,
        amount=Money(amount, state.currency),
        full=amount == judged.figures.remaining,
        reason=asked.reason,
        processor_reason=None if judged.by_hand else processor_reason(asked.reason),
        consented=facts.request.amount_named_by_customer and facts.request.customer_authenticated,
        versions=judged.force.recorded(),
        decision=judged.decision,
        figures=judged.figures,
        breakdown=judged.breakdown,
        legs=judged.planned.legs,
    )
