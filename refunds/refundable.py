"""What is still refundable of a payment: one definition, used by quotes, policy, submitting and every page.

Promise P2. A fold over what the processor shows and what we have promised: never a running total that could drift.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from refunds.processor import PaymentState, PaymentStatus


@dataclass(frozen=True, slots=True)
class Claim:
    """One of our refunds that reserves money: its id, amount (API units), its operation once there is one, and the processor's refund id once
    there is a receipt."""

    refund: str
    amount: int
    operation: str | None = None
    processor_refund: str | None = None


@dataclass(frozen=True, slots=True)
class Refundable:
    """The figures of one payment, all in API units of its currency.

    ``remaining`` is what a new refund may ask for: never negative. ``external`` is what was refunded without us.
    """

    captured: int
    returned: int
    reserved: int
    external: int
    remaining: int


def refundable(payment: PaymentState, claims: Iterable[Claim], *, ours: frozenset[str] = frozenset()) -> Refundable:
    """Fold a payment and our claims on it.

    A claim that the processor shows (by its refund id, or by our operation id in its metadata when the answer was lost) is counted once, by the
    processor's amount. A claim it does not show still counts: a list that misses it is no evidence. ``ours`` are processor refund ids known to be
    ours though they no longer reserve (succeeded); it only tells external from ours. For a payment that was only authorised, what could be
    released is what could be captured.
    """
    counting = [r for r in payment.refunds if r.state.counts]
    shown_ids = {r.id for r in payment.refunds}
    shown_operations = {r.operation for r in payment.refunds if r.operation}
    claims = list(claims)
    reserved = sum(c.amount for c in claims if c.processor_refund not in shown_ids and c.operation not in shown_operations)
    mine = ours | {c.processor_refund for c in claims if c.processor_refund}
    returned = sum(r.amount for r in counting)
    external = sum(r.amount for r in counting if r.id not in mine and r.operation is None)
    base = payment.capturable if payment.status is PaymentStatus.AUTHORISED else payment.captured
    return Refundable(payment.captured, returned, reserved, external, max(0, base - returned - reserved))
