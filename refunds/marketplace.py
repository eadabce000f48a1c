"""How the money of a payment flows on a marketplace, and the legs that return it: values only.

A refund to the customer is one leg. Where a part of the money went to a connected account, or came back from it as the platform's fee, each of these is a leg
of its own with its own request, key and receipt: a leg that is done is never repeated because another one is missing (field report 37).
"""

from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any


class FundsFlow(StrEnum):
    """Whose account the money of a payment went to."""

    PLATFORM = "platform"
    """It stayed with the account that was paid."""
    DESTINATION = "destination"
    """The processor moved it to a connected account together with the charge; ``reverse_transfer`` on a refund applies."""
    SEPARATE = "separate"
    """Transfers of their own followed, to one or more accounts; ``reverse_transfer`` on a refund does not apply, each is reversed by itself."""


class LegKind(StrEnum):
    """What a leg does beside the refund: its word is a part of its idempotency key (field report 3)."""

    REVERSE_TRANSFER = "reverse_transfer"
    REFUND_FEE = "refund_fee"


@dataclass(frozen=True, slots=True)
class LegReceipt:
    """A reversal of a transfer, or a refund of a fee, as the processor shows it. Both are final when they exist.

    ``target`` is the transfer or the fee. ``operation`` is our id from the metadata, ``None`` when it is not ours. ``source_refund`` is the refund that
    the processor reversed the transfer for, when it was done by a parameter of a refund.
    """

    id: str
    kind: LegKind
    target: str
    amount: int
    currency: str
    created_at: datetime
    operation: str | None = None
    source_refund: str | None = None


@dataclass(frozen=True, slots=True)
class TransferState:
    """A transfer read live, with every reversal to the last page. ``charge`` is the charge it was paid out of, ``None`` for one out of the balance."""

    id: str
    destination: str
    amount: int
    reversed: int
    currency: str
    charge: str | None
    reversals: tuple[LegReceipt, ...]

    @property
    def left(self) -> int:
        """What can still be reversed: never negative."""
        return max(0, self.amount - max(self.reversed, sum(found.amount for found in self.reversals)))


@dataclass(frozen=True, slots=True)
class FeeState:
    """An application fee read live, with every refund of it to the last page. ``account`` is whom it was taken from."""

    id: str
    account: str
    amount: int
    refunded: int
    currency: str
    refunds: tuple[LegReceipt, ...]

    @property
    def left(self) -> int:
        """What can still be given back: never negative."""
        return max(0, self.amount - max(self.refunded, sum(found.amount for found in self.refunds)))


@dataclass(frozen=True, slots=True)
class MoneyFlow:
    """Where the money of a captured payment went. ``fee`` is ``None`` where no fee was taken, also where one of zero was asked for.

    ``transfers`` of a ``SEPARATE`` flow are those out of the payment's charge, and those out of the balance in the same transfer group, which may belong
    to another payment of the group as well: their ``charge`` is ``None``.
    """

    processor_payment: str
    charge: str | None
    flow: FundsFlow
    transfers: tuple[TransferState, ...]
    fee: FeeState | None
    read_at: datetime


@dataclass(frozen=True, slots=True)
class LegRequest:
    """The exact request of one leg, frozen before its first attempt and repeated byte for byte. ``operation`` is the leg's own id."""

    operation: str
    kind: LegKind
    processor_payment: str
    target: str
    amount: int
    currency: str
    idempotency_key: str
    params: dict[str, Any] = field(default_factory=dict[str, Any])


def leg_differences(receipt: LegReceipt, request: LegRequest) -> str:
    """In what a receipt differs from what was asked, in words; empty when in nothing. A difference parks the leg, as it does a refund (field report 29)."""
    return "; ".join(
        f"{name}: approved {asked}, answered {answered}"
        for name, asked, answered in (
            ("kind", request.kind.value, receipt.kind.value),
            ("target", request.target, receipt.target),
            ("amount", request.amount, receipt.amount),
            ("currency", request.currency, receipt.currency.upper()),
            ("operation", request.operation, receipt.operation),
        )
        if asked != answered
    )
