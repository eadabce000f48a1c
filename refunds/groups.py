"""An order-wide refund over all payments of an order: how its money is allocated, and how the policy judges the parts as the one wish they are.

The rule of allocation, in the order it is applied (decision 0015):

1. Payments that are only authorised, each as a whole where the whole of it fits: releasing it returns nothing that was taken. A part cannot be released.
2. Captured payments at the processor.
3. Manual tenders (gift card, store credit, cash), last: what a person must give back by hand is kept as small as it can be.

Within each, in the sequence in which the order names its payments. Each gives what is still refundable of it, in sendable steps, until the amount is
reached to the unit. Deterministic: the same order, readings and amount always come to the same parts. In full, each payment gives all that is left of it.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from refunds.errors import Code
from refunds.facts import Facts, PolicyDecision
from refunds.money import currency
from refunds.policy import Policy, evaluate
from refunds.policy.checks import whole_release
from refunds.policy.uniting import unite
from refunds.processor import MISSING, DisputeState, PaymentState, PaymentStatus
from refunds.status import Status

MOST_PARTS = 50
"""The most parts of a group, so that it can be seen and decided as a whole. An order names as many payments, but those of its earlier versions stay its own."""

BEFORE_REVIEW = (Status.RECEIVED, Status.CLASSIFIED, Status.AWAITING_CONSENT)
"""Where a part has not come so far that a reviewer could approve it."""


def held_up(part: str, status: str) -> str:
    """Which part holds up the approval of its group, and what it waits for."""
    what = "waits for the customer's consent" if status == Status.AWAITING_CONSENT else "is still being read and quoted"
    return f"{part} of the same group {what}"


class LeftOut(StrEnum):
    """Why a payment of the order has no part in a group."""

    NOT_NEEDED = "not_needed"
    OTHER_CURRENCY = "other_currency"
    DISPUTED = "disputed"
    RETURNED_BY_DISPUTE = "returned_by_dispute"
    NOTHING_LEFT = "nothing_left"
    ONLY_AUTHORISED = "only_authorised"
    NOT_CAPTURED = "not_captured"
    UNKNOWN_TO_PROCESSOR = "unknown_to_processor"

    @property
    def words(self) -> str:
        """The reason as people read it."""
        return _WORDS[self]


_WORDS = {
    LeftOut.NOT_NEEDED: "the payments before it hold the whole amount",
    LeftOut.OTHER_CURRENCY: "it is in another currency, and nothing is converted",
    LeftOut.DISPUTED: "it is disputed; a refund would pay twice",
    LeftOut.RETURNED_BY_DISPUTE: "its money went back through a lost dispute",
    LeftOut.NOTHING_LEFT: "nothing of it is left to refund",
    LeftOut.ONLY_AUTHORISED: "it is only authorised, and a part of it cannot be released",
    LeftOut.NOT_CAPTURED: "no money was taken that could be returned",
    LeftOut.UNKNOWN_TO_PROCESSOR: "the processor does not know it",
}


@dataclass(frozen=True, slots=True)
class Holder:
    """A payment as a group may draw on it: our surrogate, its currency, and what is still refundable of it in API units (of one that is only authorised,
    what could be released). ``barred`` says why nothing can be drawn at all."""

    payment: str
    currency: str
    remaining: int
    by_hand: bool = False
    only_authorised: bool = False
    barred: LeftOut | None = None

    @classmethod
    def of(cls, payment: str, state: PaymentState, remaining: int, *, by_hand: bool) -> "Holder":
        """A payment as a reading shows it. A dispute that is only an inquiry is for a person to judge, so it bars nothing here."""
        return cls(payment, state.currency, remaining, by_hand, state.status is PaymentStatus.AUTHORISED, _barred(state))

    @property
    def rank(self) -> int:
        """Its place in the rule."""
        return 0 if self.only_authorised else 2 if self.by_hand else 1


def _barred(state: PaymentState) -> LeftOut | None:
    if state.raw_status == MISSING:
        return LeftOut.UNKNOWN_TO_PROCESSOR
    if state.dispute is DisputeState.OPEN:
        return LeftOut.DISPUTED
    if state.dispute is DisputeState.LOST:
        return LeftOut.RETURNED_BY_DISPUTE
    taken = state.status in (PaymentStatus.CAPTURED, PaymentStatus.AUTHORISED, PaymentStatus.UNKNOWN)
    return None if taken else LeftOut.NOT_CAPTURED


@dataclass(frozen=True, slots=True)
class Part:
    """What one payment gives, in API units of its currency."""

    payment: str
    amount: int
    currency: str


@dataclass(frozen=True, slots=True)
class Excluded:
    """A payment that gives nothing, and why; ``remaining`` is what is still refundable of it all the same."""

    payment: str
    why: LeftOut
    remaining: int
    currency: str


@dataclass(frozen=True, slots=True)
class Allocation:
    """Who gives what. The parts sum to exactly the amount less ``missing``, none is above what its payment holds; in full, ``missing`` is zero."""

    parts: tuple[Part, ...]
    left_out: tuple[Excluded, ...]
    missing: int = 0

    def plain(self) -> dict[str, Any]:
        """The allocation as JSON values, for the record."""
        return {
            "parts": [{"payment": p.payment, "amount": p.amount, "currency": p.currency} for p in self.parts],
            "left_out": [
                {"payment": e.payment, "why": e.why.value, "remaining": e.remaining, "currency": e.currency} for e in self.left_out
            ],
        }


def allocate(holders: Sequence[Holder], amount: int | None, code: str | None) -> Allocation:
    """Allocate an amount (``None``: all that is left) in the currency ``code`` over payments, given in the sequence in which the order names them.

    ``code`` may be ``None`` only in full, and then every payment gives in its own currency. Never raises: what the payments do not hold is ``missing``.
    """
    left, given, out = amount, dict[int, Part](), dict[int, Excluded]()
    for at in sorted(range(len(holders)), key=lambda at: (holders[at].rank, at)):
        holder = holders[at]
        why = _why_nothing(holder, code, left)
        if why is not None:
            out[at] = Excluded(holder.payment, why, holder.remaining, holder.currency)
            continue
        gives = holder.remaining if left is None else _gives(holder, left)
        given[at] = Part(holder.payment, gives, holder.currency)
        left = None if left is None else left - gives
    return Allocation(tuple(given[at] for at in sorted(given)), tuple(out[at] for at in sorted(out)), left or 0)


def _why_nothing(holder: Holder, code: str | None, left: int | None) -> LeftOut | None:
    if holder.barred is not None:
        return holder.barred
    if code is not None and holder.currency != code:
        return LeftOut.OTHER_CURRENCY
    if holder.remaining <= 0:
        return LeftOut.NOTHING_LEFT
    if left is None:
        return None
    if left == 0:
        return LeftOut.NOT_NEEDED
    if holder.only_authorised and holder.remaining > left:
        return LeftOut.ONLY_AUTHORISED
    return None if _gives(holder, left) else LeftOut.NOTHING_LEFT


def _gives(holder: Holder, left: int) -> int:
    step = currency(holder.currency).multiple
    most = min(holder.remaining, left)
    return most if holder.only_authorised else most - most % step


@dataclass(frozen=True, slots=True)
class Others:
    """The other parts of a group that are not over without having moved anything.

    ``amount`` is what those in the currency of the judged part come to; ``counted_today`` of it is in the customer's day already, ``waiting`` of it is not yet
    quoted. ``elsewhere`` is what those in other currencies count as in the policy's base currency, ``elsewhere_today`` of it is in the day already;
    ``not_counted`` are currencies of which nobody knows. ``parts`` of all currencies are not yet quoted.
    """

    amount: int = 0
    counted_today: int = 0
    waiting: int = 0
    parts: int = 0
    elsewhere: int = 0
    elsewhere_today: int = 0
    not_counted: tuple[str, ...] = ()


def judge_as_a_whole(policy: Policy, facts: Facts, others: Others) -> PolicyDecision:
    """Judge one part of a group, by itself and as the whole that was asked for: what either needs is needed, what either denies is denied (promise P5).

    120 in two payments of 60 so meets a ceiling of 100 as 120 does, whichever part is judged first.
    """
    own = evaluate(policy, facts)
    if others == Others() or whole_release(facts):
        return own
    whole = _whole(facts, others)
    united = _united(own, evaluate(policy, whole))
    in_base = _in_base(whole, others)
    return united if in_base is None else _united(united, evaluate(policy, in_base))


def _whole(facts: Facts, others: Others) -> Facts:
    """The facts with the whole group's amount in place of the part's. What the part's own payment holds was judged by itself."""
    request, payment, customer, base = facts.request, facts.payment, facts.customer, facts.base
    total = request.amount + others.amount
    room = max(0, payment.remaining - request.amount)
    worth, day = request.amount if base.currency == request.currency else base.amount, base.amount_today
    if worth is not None and request.amount > 0:  # at the rate of the part, rounded to the stricter side
        day = None if day is None else max(0, day - worth * others.counted_today // request.amount)
        worth = -(-worth * total // request.amount)
    return replace(
        facts,
        request=replace(request, amount=total),
        payment=replace(payment, remaining=total + room),
        customer=replace(
            customer,
            amount_today=max(0, customer.amount_today - others.counted_today),
            refunds_week=customer.refunds_week + others.parts,
        ),
        base=replace(
            base,
            amount=worth,
            amount_today=None if day is None else day + others.elsewhere - others.elsewhere_today,
            not_counted=tuple(sorted({*base.not_counted, *others.not_counted})),
        ),
    )


def _in_base(whole: Facts, others: Others) -> Facts | None:
    """The same in the base currency where parts are in several: 60 dollars and 60 euros are above a ceiling of 100 dollars. ``None`` where nothing says so."""
    base = whole.base
    if base.currency is None or base.amount is None or base.amount_today is None or not others.elsewhere:
        return None
    total = base.amount + others.elsewhere
    return replace(
        whole,
        request=replace(whole.request, amount=total, currency=base.currency, lines_amount=None),
        payment=replace(whole.payment, currency=base.currency, remaining=total),
        customer=replace(whole.customer, amount_today=0),
        base=replace(base, amount=total, amount_today=max(0, base.amount_today - others.elsewhere)),
    )


def _united(own: PolicyDecision, whole: PolicyDecision) -> PolicyDecision:
    told = {check.id: check.result for check in own.checks}
    more = tuple(
        replace(check, id=f"group:{check.id}", text=f"The group as a whole: {check.text}")
        for check in whole.checks
        if check.result not in ("pass", told.get(check.id), told.get(f"group:{check.id}"))
    )
    stricter = max(own, whole, key=lambda decision: decision.tier)
    united = replace(own, checks=(*own.checks, *more), tier=stricter.tier, draft=own.draft or whole.draft, governance=stricter.governance)
    if own.outcome != "proceed":
        return united
    if whole.outcome == "deny":
        return replace(
            united,
            outcome="deny",
            consent=False,
            review=None,
            code=whole.code or Code.POLICY_DENIED.value,
            explanation=f"The group as a whole: {whole.explanation}",
            policy_text=whole.policy_text,
        )
    review = unite([r for r in (own.review, whole.review) if r is not None])
    stated = stricter.governance and replace(stricter.governance, required_evidence=review.evidence if review else ())
    return replace(united, consent=own.consent or whole.consent, review=review, governance=stated)
