"""The interfaces a payment processor is behind: what every one does, and two that not every one has.

Implementations translate answers into the values of ``refunds.processor`` and every error into ``Refused``, ``NotSent`` or ``Unknown``; anything else that
leaves them is a bug and is loud.
"""

import time
from datetime import datetime
from typing import Protocol

from refunds.marketplace import LegKind, LegReceipt, LegRequest, MoneyFlow
from refunds.payment_ids import NotAPayment
from refunds.processor import FrozenRequest, PaymentState, ProcessorRefund, RefundPage, Settlement
from refunds.pulls import PaymentPage


def uptime() -> float:
    """Seconds that only grow, counted also while the machine sleeps: what ``send_before`` is measured in.

    ``time.monotonic`` stands still while a virtual machine is suspended, and a request must not leave because nobody counted the night.
    """
    boot = getattr(time, "CLOCK_BOOTTIME", None)
    return time.monotonic() if boot is None else time.clock_gettime(boot)


class SendTooLate(Exception):
    """The attempt's ``send_by`` had passed before a byte left: the attempt is void."""


class Processor(Protocol):
    """A payment processor, as far as refunds need it. Reading raises ``NotSent`` when the processor cannot be asked."""

    name: str

    async def account(self) -> str:
        """The account the key belongs to."""
        ...

    async def read_payment(self, processor_payment: str) -> PaymentState | None:
        """Read a payment live: captured amount, all refunds to the last page, disputes, risk. ``None`` when the processor does not know it."""
        ...

    async def refund(self, request: FrozenRequest, *, send_before: float) -> ProcessorRefund:
        """Send a frozen refund request, if the first byte can leave before ``send_before`` (:func:`uptime`); else raise :class:`SendTooLate`.

        Raises ``Refused``, ``NotSent`` or ``Unknown``.
        """
        ...

    async def cancel(self, request: FrozenRequest, *, send_before: float) -> None:
        """Cancel a whole authorisation, with the same guarantees."""
        ...

    async def find(self, processor_payment: str, operation: str) -> ProcessorRefund | None:
        """Look our refund up: list the payment's refunds to the last page and match our operation id. ``None`` is no evidence of anything."""
        ...

    async def retrieve(self, processor_refund: str, *, of: str | None = None) -> ProcessorRefund | None:
        """Read one refund by the processor's id; ``None`` when the processor does not know it. ``of`` is how we name its payment: by the payment or its charge."""
        ...

    async def list_refunds(self, *, created_from: datetime, created_to: datetime, after: str | None, limit: int = 100) -> RefundPage:
        """One page of the refunds of the whole account, ours or not, whose ``created_at`` is from ``created_from`` on and before ``created_to``.

        Newest first; ``after`` is a page's ``next_after``, ``None`` for the first page. A refund that is made while the pages are read may stand before
        the first one and is then not seen: a window that has ended is read whole. Raises ``NotSent`` when the processor cannot be asked, and with the
        code ``resource_missing`` when it does not know ``after`` (the window is then read from its beginning). ``ValueError`` for a window without zone or
        a ``limit`` outside 1 to 100.
        """
        ...

    async def close(self) -> None:
        """Close connections."""
        ...


class Particulars(Protocol):
    """What is asked on demand, never on the way of a refund."""

    async def settlement_of(self, processor_refund: str) -> Settlement | None:
        """What a refund took from the balance, and at which rate. ``None`` when the processor does not know the refund, or it has taken nothing yet.

        Raises ``NotSent`` when the processor cannot be asked.
        """
        ...

    async def why_missing(self, processor_payment: str) -> NotAPayment:
        """Why :meth:`Processor.read_payment` gave ``None`` for this id. Asks the processor only where the id itself does not say. Raises ``NotSent``."""
        ...


class PaymentSource(Processor, Particulars, Protocol):
    """A processor of which a payment is read, and asked why it does not know one."""


class PaymentLister(Protocol):
    """A processor whose payments carry the merchant's own ids."""

    async def list_payments(
        self, *, created_from: datetime, created_to: datetime, after: str | None, order_field: str, customer_field: str, limit: int = 100
    ) -> PaymentPage:
        """One page of the account's payments created from ``created_from`` on and before ``created_to``, newest first, as :meth:`Processor.list_refunds`.

        ``order_field`` and ``customer_field`` name the merchant's ids in a payment's metadata. Raises ``NotSent``.
        """
        ...


class Marketplace(Protocol):
    """A processor that moves money on to connected accounts. A leg has the guarantees of a refund, and the same three errors."""

    async def read_flow(self, processor_payment: str) -> MoneyFlow | None:
        """Read live where the money of a payment went: its transfers and its fee, each with all that was returned of it. ``None`` for an unknown payment.

        Raises ``NotSent`` when the processor cannot be asked.
        """
        ...

    async def reverse_transfer(self, request: LegRequest, *, send_before: float) -> LegReceipt:
        """Take a part of a transfer back, if the first byte can leave before ``send_before`` (:func:`uptime`); else raise :class:`SendTooLate`.

        Safe to call again with the same request, as :meth:`Processor.refund`. Raises ``Refused`` (nothing came back: ``insufficient_funds`` when the connected
        account has too little), ``NotSent`` or ``Unknown``.
        """
        ...

    async def refund_fee(self, request: LegRequest, *, send_before: float) -> LegReceipt:
        """Give a part of an application fee back to the account it was taken from, with the same guarantees."""
        ...

    async def returned_of(self, kind: LegKind, target: str) -> tuple[LegReceipt, ...]:
        """All reversals of a transfer, or all refunds of a fee, to the last page. Raises ``NotSent``, also when the processor does not know the target.

        What is not in it yet may exist all the same.
        """
        ...
