"""Stripe, through its official SDK: asynchronous, without retries of its own, at a pinned API version. Marketplaces are in ``stripe_marketplace.py``.

The SDK's ``raw_request_async`` is used rather than its typed services: the same authentication, version, idempotency key, encoding and errors, and plain JSON
instead of a tree of objects, which would cost more than the rest of a call. What the JSON means is in ``answers.py``.
"""

import asyncio
import math
import re
from datetime import datetime

from activities.processors import answers
from activities.processors.error_map import OTHER_MODE, SHAPE
from activities.processors.stripe_calls import PAGE, by_charge, ended, reading, segment, sending
from activities.processors.stripe_marketplace import StripeMarketplace
from activities.processors.stripe_orders import StripeOrders
from refunds.payment_ids import NotAPayment, by_its_prefix
from refunds.processor import FrozenRequest, NotSent, PaymentState, ProcessorRefund, RefundPage, Settlement, Unknown

_ID = re.compile(r"[A-Za-z0-9_]{1,255}")


class StripeProcessor(StripeOrders, StripeMarketplace):
    """Stripe behind the processor's interfaces ``Processor``, ``Particulars``, ``PaymentLister`` and ``Marketplace``. Safe to share between tasks."""

    name = "stripe"

    async def account(self) -> str:
        """The account the key belongs to. Raises ``NotSent``."""
        with reading():
            return answers.text(answers.an_object(await self._get("/v1/account"), "account"), "id")
        raise NotSent("not_found", "Stripe does not know the account of this key")

    async def read_payment(self, processor_payment: str) -> PaymentState | None:
        """Read a PaymentIntent or a charge, its refunds to the last page, and its disputes. ``None`` also for what cannot be an id of Stripe's."""
        if not _ID.fullmatch(processor_payment):
            return None
        read_at = self._clock.now()
        with reading():
            paid = asyncio.ensure_future(self._paid(processor_payment))
            refunds = asyncio.ensure_future(self._refunds(processor_payment))
            disputes = asyncio.ensure_future(self._list("dispute", processor_payment))
            await ended(paid, refunds, disputes)
            return PaymentState(
                refunds=refunds.result(),
                dispute=answers.strongest(disputes.result()),
                read_at=read_at,
                processor_payment=processor_payment,
                **paid.result(),
            )
        return None

    async def find(self, processor_payment: str, operation: str) -> ProcessorRefund | None:
        """Look our refund up by our operation id among all refunds of the payment. Raises ``NotSent`` when Stripe cannot be asked."""
        with reading():
            refunds = await self._refunds(processor_payment)
            return next((refund for refund in refunds if refund.operation == operation), None)
        raise NotSent("not_found", "Stripe does not know the payment")

    async def retrieve(self, processor_refund: str, *, of: str | None = None) -> ProcessorRefund | None:
        """Read one refund; ``None`` when Stripe does not know it, as with anything that cannot be an id of Stripe's: a person may have typed it."""
        if not _ID.fullmatch(processor_refund):
            return None
        with reading():
            return answers.refund(await self._get(f"/v1/refunds/{segment(processor_refund)}"), of)
        return None

    async def list_refunds(self, *, created_from: datetime, created_to: datetime, after: str | None, limit: int = PAGE) -> RefundPage:
        """One page of the account's refunds of a window of time, newest first. Raises ``NotSent``."""
        if created_from.tzinfo is None or created_to.tzinfo is None or not 1 <= limit <= PAGE:
            raise ValueError(f"a window has a zone and a page has 1 to {PAGE} refunds")
        # Stripe's times are whole seconds: rounding both ends up keeps exactly the window, and windows that meet share nothing and miss nothing.
        first, end = (math.ceil(moment.timestamp()) for moment in (created_from, created_to))
        cursor = {} if after is None else {"starting_after": after}
        with reading():
            listed = await self._get("/v1/refunds", created={"gte": first, "lt": end}, limit=limit, **cursor)
            return answers.refund_page(listed, first=first, end=end, after=after)
        raise NotSent("not_found", "Stripe does not know the list of refunds")

    async def refund(self, request: FrozenRequest, *, send_before: float) -> ProcessorRefund:
        """Send the frozen request. Raises ``Refused``, ``NotSent``, ``Unknown`` or :class:`SendTooLate`."""
        with sending(send_before):
            answer = await self._post("refund.create", "/v1/refunds", request.idempotency_key, request.params)
            return answers.refund(answer, request.processor_payment)

    async def cancel(self, request: FrozenRequest, *, send_before: float) -> None:
        """Cancel the whole authorisation. Raises ``Refused``, ``NotSent``, ``Unknown`` or :class:`SendTooLate`."""
        with sending(send_before):
            path = f"/v1/payment_intents/{segment(request.processor_payment)}/cancel"
            answer = answers.an_object(await self._post("authorisation.cancel", path, request.idempotency_key, {}), "payment_intent")
            if (answer["id"], answer["status"]) != (request.processor_payment, "canceled"):
                raise Unknown(SHAPE, "the answer does not say that the authorisation is cancelled")

    async def settlement_of(self, processor_refund: str) -> Settlement | None:
        """What a refund took from the balance. Raises ``NotSent``."""
        if not _ID.fullmatch(processor_refund):
            return None
        with reading():
            path = f"/v1/refunds/{segment(processor_refund)}"
            return answers.settlement(await self._get_exactly(path, expand=["balance_transaction", "failure_balance_transaction"]))
        return None

    async def why_missing(self, processor_payment: str) -> NotAPayment:
        """Why a payment is not known: by its prefix, else by what Stripe says of it. Raises ``NotSent``."""
        by_prefix = by_its_prefix(processor_payment)
        if by_prefix is not None or not _ID.fullmatch(processor_payment):
            return by_prefix or NotAPayment.UNKNOWN
        kind = "charges" if by_charge(processor_payment) else "payment_intents"
        said: list[str] = []
        with reading(said):
            await self._get(f"/v1/{kind}/{segment(processor_payment)}")
        return NotAPayment.OTHER_MODE if OTHER_MODE in said else NotAPayment.UNKNOWN

    async def _paid(self, processor_payment: str) -> answers.Json:
        if by_charge(processor_payment):
            return answers.charge(await self._get(f"/v1/charges/{segment(processor_payment)}"), processor_payment)
        found, charges = await self._intent(processor_payment)
        return answers.intent(found, processor_payment, charges)

    async def _refunds(self, processor_payment: str) -> tuple[ProcessorRefund, ...]:
        """All refunds of a payment, of all its charges, to the last page."""
        listed = await self._list("refund", processor_payment)
        return tuple(answers.refund(found, processor_payment) for found in listed if not answers.is_release(found))

    async def _list(self, kind: str, processor_payment: str) -> list[answers.Json]:
        """All refunds or disputes of a payment, to the last page."""
        scope = {"charge" if by_charge(processor_payment) else "payment_intent": processor_payment}
        return await self._every(kind, f"/v1/{kind}s", **scope)
