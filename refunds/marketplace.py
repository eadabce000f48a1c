"""How the money of a payment flows on a marketplace, and the legs that return it: values only.

A refund to the customer is one leg. Where a part of the money went to a connected account, or came back from it as the platform's fee, each of these is a leg
of its own with its own request, key and receipt: a leg that is done is never repeated because another one is missing (field report 37).
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any

from refunds.errors import Code
from refunds.money import CURRENCIES, Money


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


@dataclass(frozen=True, slots=True)
class Wish:
    """Which legs are asked for beside the refund; false when none is."""

    reverse_transfer: bool = False
    refund_application_fee: bool = False

    def __bool__(self) -> bool:
        return self.reverse_transfer or self.refund_application_fee


NO_WISH = Wish()


@dataclass(frozen=True, slots=True)
class PlannedLeg:
    """One leg as it stands in exact terms: what is taken back of ``target``, and from (a transfer) or to (a fee) which connected account."""

    kind: LegKind
    target: str
    account: str
    amount: int
    currency: str


@dataclass(frozen=True, slots=True)
class Planned:
    """The legs of one refund, and everything they were taken from: ``flow`` names also what comes to nothing. Or why they cannot be, and then no leg."""

    legs: tuple[PlannedLeg, ...] = ()
    flow: tuple[str, ...] = ()
    refusal: Code | None = None
    why: str = ""


NOTHING_PLANNED = Planned()
LEG_FIELDS = {
    Code.NO_TRANSFER: "reverse_transfer",
    Code.TRANSFER_UNCLEAR: "reverse_transfer",
    Code.TRANSFER_REVERSED: "reverse_transfer",
    Code.NO_APPLICATION_FEE: "refund_application_fee",
    Code.FEE_RETURNED: "refund_application_fee",
}
"""Which field each refusal of a leg is about."""


def plan_legs(flow: MoneyFlow, wish: Wish, *, amount: int, before: int, captured: int, claimed: Mapping[str, int]) -> Planned:
    """Work out the legs of a refund of ``amount`` of a payment of which ``captured`` was taken and ``before`` has gone back or is promised.

    Each transfer, and the fee, is returned in the proportion in which the payment is: what belongs to ``before + amount`` less what belongs to ``before``, each
    rounded to the nearest step of its currency (half up). So parts of it, in any order, end at exactly the whole, and none is ever below zero; only where a part
    was taken out again after a later one was planned may the whole be missed by a step, never exceeded. More than what is left (less ``claimed``, what other
    refunds of ours have promised of a target) is never taken. A part that comes to nothing is no leg.
    """
    targets = tuple(_targets(flow, wish))
    if (refusal := _senseless(flow, wish, targets)) is not None:
        return Planned(refusal=refusal[0], why=refusal[1])
    shares: list[_Share] = []
    for kind, target in targets:
        step = CURRENCIES[target.currency].multiple
        due = _upto(target.amount, before + amount, captured, step) - _upto(target.amount, before, captured, step)
        shares.append(_Share(kind, target, due, min(due, target.left - claimed.get(target.id, 0))))
    if (refusal := _nothing_left(shares)) is not None:
        return Planned(refusal=refusal[0], why=refusal[1])
    legs = [PlannedLeg(one.kind, one.target.id, _account(one.target), one.taken, one.target.currency) for one in shares if one.taken > 0]
    return Planned(tuple(legs), tuple(target.id for _, target in targets))


def no_longer_fits(planned: Planned, flow: MoneyFlow, wish: Wish, claimed: Mapping[str, int]) -> str | None:
    """Why legs that were approved cannot be sent as the money's way is now, or ``None``: another transfer or fee, or less of one left than was approved."""
    now = {target.id: target for _, target in _targets(flow, wish)}
    if tuple(now) != planned.flow:
        return f"the way of the money changed: {', '.join(planned.flow) or 'nothing'} became {', '.join(now) or 'nothing'}"
    for leg in planned.legs:
        target = now[leg.target]
        if (_account(target), target.currency) != (leg.account, leg.currency):
            return f"{leg.target} is not what was approved"
        if (left := target.left - claimed.get(leg.target, 0)) < leg.amount:
            return f"only {Money(max(left, 0), leg.currency)} of {leg.target} can still be taken back"
    return None


def _targets(flow: MoneyFlow, wish: Wish) -> Iterator[tuple[LegKind, TransferState | FeeState]]:
    if wish.reverse_transfer:
        yield from ((LegKind.REVERSE_TRANSFER, transfer) for transfer in flow.transfers)
    if wish.refund_application_fee and flow.fee is not None:
        yield LegKind.REFUND_FEE, flow.fee


def _senseless(flow: MoneyFlow, wish: Wish, targets: tuple[tuple[LegKind, TransferState | FeeState], ...]) -> tuple[Code, str] | None:
    """Why a wish makes no sense for this payment. What cannot be told for sure is refused too, never guessed."""
    if wish.reverse_transfer and not flow.transfers:
        return Code.NO_TRANSFER, "Nothing of this payment was transferred to a connected account."
    if wish.refund_application_fee and flow.fee is None:
        return Code.NO_APPLICATION_FEE, "No application fee was taken of this payment."
    loose = [transfer.id for transfer in flow.transfers if transfer.charge is None]
    if wish.reverse_transfer and loose:
        return Code.TRANSFER_UNCLEAR, f"{loose[0]} is of the same transfer group but of no charge, so it may belong to another payment."
    for _, target in targets:
        if target.currency not in CURRENCIES:
            return Code.UNKNOWN_CURRENCY, f"{target.id} is in {target.currency[:12]}, which is not known here."
    return None


@dataclass(frozen=True, slots=True)
class _Share:
    """What of one target belongs to a refund (``due``), and what of that can be taken."""

    kind: LegKind
    target: TransferState | FeeState
    due: int
    taken: int


def _nothing_left(shares: list[_Share]) -> tuple[Code, str] | None:
    """Why a refund that has a share in what was sent on cannot have any of it. One whose share comes to nothing is missing nothing."""
    for kind, code, what in (
        (LegKind.REVERSE_TRANSFER, Code.TRANSFER_REVERSED, "what was transferred"),
        (LegKind.REFUND_FEE, Code.FEE_RETURNED, "the application fee"),
    ):
        concerned = [share for share in shares if share.kind is kind and share.due > 0]
        if concerned and all(share.taken <= 0 for share in concerned):
            return code, f"All of {what} came back already, or is about to."
    return None


def _account(target: TransferState | FeeState) -> str:
    return target.destination if isinstance(target, TransferState) else target.account


def _upto(whole: int, returned: int, captured: int, step: int) -> int:
    """What of ``whole`` belongs to ``returned`` of ``captured``, to the nearest step, half up; all of it for everything."""
    if returned >= captured:
        return whole
    return min(whole, (2 * whole * returned + captured * step) // (2 * captured * step) * step)
