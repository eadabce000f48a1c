"""The merchant's orders out of the processor's payments: what is read of a payment, and what becomes of it.

A payment belongs to the order that its metadata names; several that name one order are one order. What the processor does not know (lines, delivery) stays
empty, so a person looks at what hangs on it. An order that is there already keeps everything it says: payments are added to it and nothing else
(docs/decisions/0018-a-pull-adds-payments-and-nothing-else.md).
"""

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from refunds.errors import CATALOGUE, Code, RefundError
from refunds.money import currency


class PullPhase(StrEnum):
    """What a pull is doing; ``canceled``: an operator ended it before it was done."""

    READING = "reading"
    MAKING = "making"
    DONE = "done"
    CANCELED = "canceled"


class PullOutcome(StrEnum):
    """What became of a payment. ``created`` and ``new_version`` are of its order; in a dry run they say what would become of it."""

    CREATED = "created"
    NEW_VERSION = "new_version"
    UNCHANGED = "unchanged"
    SKIPPED = "skipped"
    ERROR = "error"


@dataclass(frozen=True, slots=True)
class ListedPayment:
    """A payment as the processor's list shows it: what was captured (API units of ``currency``), and the merchant's ids from its metadata, as they stand
    there. ``readable`` is false for one whose fields are not what they should be; then nothing but its id counts."""

    id: str
    raw_status: str
    captured: int
    currency: str | None
    created_at: datetime | None
    order_ref: str | None
    customer_ref: str | None
    readable: bool = True


@dataclass(frozen=True, slots=True)
class PaymentPage:
    """One page of the processor's payments, newest first. ``next_after`` asks for the next one; ``None``: this was the last."""

    payments: tuple[ListedPayment, ...]
    next_after: str | None


@dataclass(frozen=True, slots=True)
class Judgement:
    """What becomes of a payment, and why, when it is no part of an order. No detail repeats the merchant's ids."""

    outcome: PullOutcome
    code: Code | None = None
    detail: str | None = None
    version: int | None = None

    @classmethod
    def skipped(cls, code: Code, detail: str | None = None) -> "Judgement":
        """Left out, for a reason that the merchant can do something about."""
        return cls(PullOutcome.SKIPPED, code, detail or CATALOGUE[code].meaning)

    @classmethod
    def failed(cls, code: Code, detail: str | None = None) -> "Judgement":
        """Contradicts what is recorded, or cannot be read."""
        return cls(PullOutcome.ERROR, code, detail or CATALOGUE[code].meaning)


_LONGEST_ID = 200
UNWRITABLE = "\ufffd"
"""Stands in an id for what no text may contain (NUL, half a surrogate pair): no id of anybody's."""
_NOTHING_TAKEN = {
    "processing": Code.PAYMENT_PROCESSING,
    "canceled": Code.PAYMENT_CANCELED,
    "requires_payment_method": Code.PAYMENT_INCOMPLETE,
    "requires_confirmation": Code.PAYMENT_INCOMPLETE,
    "requires_action": Code.PAYMENT_INCOMPLETE,
}


def judge_alone(payment: ListedPayment) -> Judgement | None:
    """What can be said of a payment by itself; ``None`` when it may be a part of its order."""
    if not payment.readable or not all(word.isprintable() for word in (payment.raw_status, payment.currency or "")):
        return Judgement.failed(Code.PAYMENT_UNREADABLE)
    if not (payment.order_ref or "").strip():
        return Judgement.skipped(Code.NO_ORDER_ID)
    if payment.captured == 0:
        return Judgement.skipped(_NOTHING_TAKEN.get(payment.raw_status, Code.PAYMENT_NOT_CAPTURED))
    if not (payment.customer_ref or "").strip():
        return Judgement.skipped(Code.NO_CUSTOMER_ID)
    for name, value in (("order", payment.order_ref), ("customer", payment.customer_ref)):
        if value is not None and (len(value.strip()) > _LONGEST_ID or not value.isprintable() or UNWRITABLE in value):
            return Judgement.skipped(
                Code.INVALID_FIELD, f"The {name}'s id in the metadata is no id: at most {_LONGEST_ID} printable characters."
            )
    try:
        currency(payment.currency or "")
    except RefundError as error:
        return Judgement.skipped(error.code, error.detail)
    return None


@dataclass(frozen=True, slots=True)
class KnownOrder:
    """The order that payments name, as it is recorded: whose it is, its currency, and which of these payments are on it already."""

    customer_ref: str
    currency: str
    version: int
    payments: Collection[str]


def judge_together(
    payments: Sequence[ListedPayment], known: KnownOrder | None, elsewhere: Collection[str]
) -> tuple[dict[str, Judgement], list[ListedPayment]]:
    """Judge the payments that name one order: what becomes of those that are no part of it, and those to be added, in their order.

    ``elsewhere`` are payments that are on another order. Nobody is chosen among contradictions: when the payments of a new order name several customers,
    or are in several currencies, none of them makes it.
    """
    judged: dict[str, Judgement] = {}
    left: list[ListedPayment] = []
    for payment in payments:
        if payment.id in elsewhere:
            judged[payment.id] = Judgement.failed(Code.ORDER_CONFLICT, "This payment belongs to another order.")
        elif known is not None and payment.customer_ref != known.customer_ref:
            judged[payment.id] = Judgement.skipped(Code.CUSTOMERS_DIFFER)
        elif known is not None and payment.id in known.payments:
            judged[payment.id] = Judgement(PullOutcome.UNCHANGED, version=known.version)
        elif known is not None and payment.currency != known.currency:
            judged[payment.id] = Judgement.skipped(Code.CURRENCIES_DIFFER)
        else:
            left.append(payment)
    for code, said in (
        (Code.CUSTOMERS_DIFFER, Counter(payment.customer_ref for payment in left)),
        (Code.CURRENCIES_DIFFER, Counter(payment.currency for payment in left)),
    ):
        if len(said) > 1:
            judged |= {payment.id: Judgement.skipped(code) for payment in left}
            left = []
    return judged, left
