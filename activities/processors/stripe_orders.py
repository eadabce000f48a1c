"""Stripe's payments of a window of time, with the merchant's ids from their metadata: what a pull of orders reads."""

import math
import re
from datetime import UTC, datetime
from typing import Any, cast

from activities.processors import answers
from activities.processors.stripe_calls import MISSHAPEN, PAGE, StripeCalls, reading
from refunds.money import MAX_AMOUNT
from refunds.processor import NotSent
from refunds.pulls import UNWRITABLE, ListedPayment, PaymentPage

_UNWRITABLE = re.compile("[\x00\ud800-\udfff]")


class StripeOrders(StripeCalls):
    """The interface ``PaymentLister``. Acts for the platform; charges without a PaymentIntent and payments made directly on a connected account are not seen."""

    async def list_payments(
        self, *, created_from: datetime, created_to: datetime, after: str | None, order_field: str, customer_field: str, limit: int = PAGE
    ) -> PaymentPage:
        """One page of the account's PaymentIntents, newest first. Raises ``NotSent``; ``ValueError`` for a window without zone or a limit outside 1 to 100.

        One that cannot be read is shown as such and keeps no other from being read.
        """
        if created_from.tzinfo is None or created_to.tzinfo is None or not 1 <= limit <= PAGE:
            raise ValueError(f"a window has a zone and a page has 1 to {PAGE} payments")
        first, end = (math.ceil(moment.timestamp()) for moment in (created_from, created_to))
        cursor = {} if after is None else {"starting_after": after}
        with reading():
            listed = await self._get("/v1/payment_intents", created={"gte": first, "lt": end}, limit=limit, **cursor)
            found, more = answers.page(listed, "payment_intent")
            ids = [answers.text(one, "id") for one in found]
            if after in ids:
                raise ValueError("a list that does not end")
            payments = tuple(_payment(one, order_field, customer_field) for one in found)
            return PaymentPage(payments, ids[-1] if more else None)
        raise NotSent("not_found", "Stripe does not know the list of payments")


def _payment(found: answers.Json, order_field: str, customer_field: str) -> ListedPayment:
    try:
        metadata = found["metadata"]
        if not isinstance(metadata, dict):
            raise TypeError("metadata is not an object")
        captured = answers.amount(found, "amount_received")
        if captured > MAX_AMOUNT:
            raise ValueError("more than any payment")
        return ListedPayment(
            id=answers.text(found, "id"),
            raw_status=answers.text(found, "status"),
            captured=captured,
            currency=answers.text(found, "currency").upper(),
            created_at=datetime.fromtimestamp(answers.whole(found, "created"), UTC),
            order_ref=_named(cast(dict[str, Any], metadata), order_field),
            customer_ref=_named(cast(dict[str, Any], metadata), customer_field),
        )
    except MISSHAPEN:
        return ListedPayment(answers.text(found, "id"), "", 0, None, None, None, None, readable=False)


def _named(metadata: dict[str, Any], field: str) -> str | None:
    value = metadata.get(field)
    if value is not None and not isinstance(value, str):
        raise TypeError("a value of metadata is not text")
    # Without what no column takes; that it was there, and what else is odd about it, is judged later, by name.
    return None if value is None else _UNWRITABLE.sub(UNWRITABLE, value).strip()
