"""What a payment processor tells us, in our words, and the three ways a call can go wrong.

Processors (Stripe first) translate their answers into these values and their errors into :class:`Refused`, :class:`NotSent` or
:class:`Unknown`; nothing else of a processor is known outside ``activities/processors``.
"""

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any

from refunds.errors import Code
from refunds.marketplace import MoneyFlow
from refunds.money import Money
from refunds.status import Event


class PaymentStatus(StrEnum):
    """A payment's state at the processor, decoupled from its own vocabulary."""

    CAPTURED = "captured"
    AUTHORISED = "authorised"
    PROCESSING = "processing"
    CANCELED = "canceled"
    INCOMPLETE = "incomplete"
    UNKNOWN = "unknown"


STRIPE = "stripe"
"""The name of the processor that is built in."""

MANUAL = "manual"
"""The "processor" of a payment that no processor can return: a person gives it back (``docs/runbooks/manual.md``). Nothing is ever asked or sent for one."""

MISSING = "missing"
"""The raw status of a payment that the processor does not know."""


class RefundState(StrEnum):
    """The five states Stripe's refunds have, and one for what this version does not know."""

    PENDING = "pending"
    REQUIRES_ACTION = "requires_action"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELED = "canceled"
    UNKNOWN = "unknown"

    @property
    def counts(self) -> bool:
        """Whether its amount is no longer refundable. An unknown state counts: it is never guessed to be free."""
        return self not in (RefundState.FAILED, RefundState.CANCELED)


class DisputeState(StrEnum):
    """The strongest dispute of a payment, by what it does to a refund (design, section 4)."""

    NONE = "none"
    INQUIRY = "inquiry"
    OPEN = "open"
    LOST = "lost"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class ProcessorRefund:
    """A refund as the processor shows it. ``operation`` is our operation id from its metadata, or ``None`` when it is not ours."""

    id: str
    processor_payment: str
    amount: int
    currency: str
    state: RefundState
    raw_state: str
    operation: str | None = None
    failure_reason: str | None = None
    created_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class RefundPage:
    """One page of an account's refunds, newest first. ``next_after`` asks for the next one; ``None``: this was the last.

    ``charges`` gives the charge of each refund by the refund's id, for payments that are known to us by their charge.
    """

    refunds: tuple[ProcessorRefund, ...]
    next_after: str | None
    charges: dict[str, str] = field(default_factory=dict[str, str])


@dataclass(frozen=True, slots=True)
class PaymentState:
    """A payment read live: what was captured, every refund to the last page, disputes and risk.

    ``captured`` and ``capturable`` are in API units of ``currency``. ``captured`` is what was taken, in one capture or several, below the authorised amount
    or above it, by whichever charge; what is released of an authorisation is in neither, and in no refund. A payment of which a part was captured while more
    can be is ``CAPTURED`` with both. ``charge`` is the one that took the money, which need not be the latest. ``read_at`` is our clock's time when the
    reading began: nothing later is in it. ``flow`` is where the money went, read only when somebody asks for its return; it has a time of its own.
    ``transfer`` and ``application_fee`` are what the charge itself names of a marketplace; transfers that were made separately show on no charge.
    ``payer`` is a hash of the processor's customer (:func:`refunds.fitting.payer_of`), ``country`` the one that issued the card, ``failed_checks`` what the
    issuer checked and found wrong when it was paid; empty where the processor says nothing of it.
    ``not_a_payment`` says why the processor knows no such payment (a :class:`refunds.payment_ids.NotAPayment`), where it is ``MISSING``.
    """

    processor_payment: str
    status: PaymentStatus
    currency: str
    captured: int
    capturable: int
    refunds: tuple[ProcessorRefund, ...]
    dispute: DisputeState
    risk_level: str
    read_at: datetime
    charge: str | None = None
    raw_status: str = ""
    transfer: str | None = None
    application_fee: str | None = None
    flow: MoneyFlow | None = None
    not_a_payment: str = ""
    payer: str = ""
    country: str = ""
    failed_checks: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Settlement:
    """What a refund took from our balance, beside what the customer receives: two amounts that are never put into one field (field report 36).

    ``presentment_*`` is what the customer paid and gets back; ``settlement_*`` is what left the balance, above zero, in the currency it is kept in. ``rate`` is
    the processor's own figure as it wrote it, settlement currency for one of presentment in major units of both, ``None`` where nothing was exchanged or
    it gives none. ``fee`` is what the refund itself cost, in the settlement currency. ``returned`` is what came back when the refund failed later.
    """

    processor_refund: str
    presentment_amount: int
    presentment_currency: str
    settlement_amount: int
    settlement_currency: str
    rate: str | None
    fee: int
    returned: int = 0


@dataclass(frozen=True, slots=True)
class FrozenRequest:
    """The exact request of an operation, frozen before its first attempt and repeated byte for byte (field report 5).

    ``params`` are the processor's own parameters as plain JSON; ``idempotency_key`` depends on the operation id, the kind and the mode, and on
    nothing else (field reports 1 and 3).
    """

    operation: str
    kind: str
    processor_payment: str
    amount: int
    currency: str
    idempotency_key: str
    params: dict[str, Any] = field(default_factory=dict[str, Any])


CLOCKS_APART = timedelta(minutes=1)
"""How far the processor's clock and ours may be apart. Its times are whole seconds, rounded down."""


CLOCKS_OF_A_PERSON = timedelta(seconds=5)
"""As much as two clocks that are kept right differ, with the second that is rounded off. Enough where a person says what stands for a refund or a leg: they
make it good long after it was sent, and what is taken for it by mistake was made for something else."""


def made_before(created_at: datetime | None, intended_at: datetime, apart: timedelta = CLOCKS_APART) -> bool:
    """Whether what the processor shows is older than an intent of ours, by clocks that are that far apart, so that it cannot have been made for it."""
    return created_at is not None and created_at < intended_at - apart


class ProcessorError(Exception):
    """A call that did not end with an answer we can record. ``reason`` is one of the fixed words of the error map; ``detail`` names no secret."""

    def __init__(self, reason: str, detail: str = "", *, code: str | None = None, retry_after: int | None = None) -> None:
        super().__init__(f"{reason}: {detail}" if detail else reason)
        self.reason = reason
        self.detail = detail
        self.code = code
        self.retry_after = retry_after


class Refused(ProcessorError):
    """The processor definitely said no: no money moved by this call. Releases the money, if no other attempt is uncertain."""


class NotSent(ProcessorError):
    """Certainly nothing was done: no connection was made, or the processor says it did not begin. May be tried again."""


class Unknown(ProcessorError):
    """Nobody can tell whether the money moved. Never concluded from; looked up, then parked."""


@dataclass(frozen=True, slots=True)
class Conclusion:
    """What an answer means for the refund: the event to apply, and the code when it is not plainly good."""

    event: Event
    code: Code | None = None
    detail: str = ""


_BY_STATE: dict[RefundState, Conclusion] = {
    RefundState.PENDING: Conclusion(Event.PROCESSOR_PENDING),
    RefundState.REQUIRES_ACTION: Conclusion(Event.PROCESSOR_PENDING),
    RefundState.SUCCEEDED: Conclusion(Event.PROCESSOR_SUCCEEDED),
    RefundState.FAILED: Conclusion(Event.PROCESSOR_FAILED, Code.PROCESSOR_FAILED),
    RefundState.CANCELED: Conclusion(Event.PROCESSOR_FAILED, Code.PROCESSOR_FAILED),
    RefundState.UNKNOWN: Conclusion(Event.PARK, Code.STATUS_UNKNOWN),
}


def conclude(refund: ProcessorRefund, *, amount: Money, processor_payment: str, operation: str | None = None) -> Conclusion:
    """Compare the processor's refund with what was approved, then read its state.

    A difference in payment, amount or currency parks whatever the state says (field report 29), and in the answer to our own call so does another
    ``operation`` than ours: what does not carry our id could never be found again. A state that is not known parks (field report 16).
    """
    differences = [
        f"{name}: approved {approved}, answered {answered}"
        for name, approved, answered in (
            ("payment", processor_payment, refund.processor_payment),
            ("amount", amount.amount, refund.amount),
            ("currency", amount.currency, refund.currency.upper()),
            ("our id", operation or refund.operation, refund.operation),
        )
        if approved != answered
    ]
    if differences:
        return Conclusion(Event.PARK, Code.RESPONSE_MISMATCH, "; ".join(differences))
    found = _BY_STATE[refund.state]
    if refund.state is RefundState.UNKNOWN:
        return Conclusion(found.event, found.code, f"the processor reports {refund.raw_state[:60]!r}")
    return Conclusion(found.event, found.code, refund.failure_reason or "")
