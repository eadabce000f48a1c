"""Stripe, through its official SDK: asynchronous, without retries of its own, at a pinned API version.

The SDK's ``raw_request_async`` is used rather than its typed services: the same authentication, version, idempotency key, encoding and errors, and plain JSON
instead of a tree of objects, which would cost more than the rest of a call. What the JSON means is in ``answers.py``.
"""

import asyncio
import math
import re
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import Any
from urllib.parse import quote

import stripe

from activities.processors import answers
from activities.processors.error_map import SHAPE, translate
from activities.processors.transport import Transport, sending_before
from refunds import points
from refunds.clock import Clock
from refunds.processor import FrozenRequest, NotSent, PaymentState, ProcessorRefund, RefundPage, Unknown
from refunds.settings import Settings

_PAGE = 100
_ID = re.compile(r"[A-Za-z0-9_]{1,255}")
_MISSHAPEN = (AttributeError, KeyError, TypeError, ValueError, OverflowError)
"""What reading an answer of another shape raises, here and inside the SDK: a bug of the other side, which tells nothing about the money."""


class StripeProcessor:
    """Stripe behind the processor's interface. Safe to share between tasks."""

    name = "stripe"

    def __init__(self, settings: Settings, clock: Clock) -> None:
        if settings.stripe_api_key is None:
            raise RuntimeError("STRIPE_API_KEY is not set; only the payments role holds it")
        self._clock = clock
        self._transport = Transport(settings)
        self._client = stripe.StripeClient(
            settings.stripe_api_key.get_secret_value(),
            stripe_version=settings.stripe_api_version,
            base_addresses={"api": settings.stripe_api_base} if settings.stripe_api_base else {},
            http_client=self._transport,
            max_network_retries=0,
        )

    async def account(self) -> str:
        """The account the key belongs to. Raises ``NotSent``."""
        with _reading():
            return answers.text(answers.an_object(await self._get("/v1/account"), "account"), "id")
        raise NotSent("not_found", "Stripe does not know the account of this key")

    async def read_payment(self, processor_payment: str) -> PaymentState | None:
        """Read a PaymentIntent or a charge, its refunds to the last page, and its disputes."""
        read_at = self._clock.now()
        with _reading():
            paid, refunds, disputes = await asyncio.gather(
                self._paid(processor_payment),
                self._refunds(processor_payment),
                self._list("dispute", processor_payment),
            )
            dispute = answers.strongest(disputes)
            return PaymentState(refunds=refunds, dispute=dispute, read_at=read_at, processor_payment=processor_payment, **paid)
        return None

    async def find(self, processor_payment: str, operation: str) -> ProcessorRefund | None:
        """Look our refund up by our operation id among all refunds of the payment. Raises ``NotSent`` when Stripe cannot be asked."""
        with _reading():
            refunds = await self._refunds(processor_payment)
            return next((refund for refund in refunds if refund.operation == operation), None)
        raise NotSent("not_found", "Stripe does not know the payment")

    async def retrieve(self, processor_refund: str) -> ProcessorRefund | None:
        """Read one refund; ``None`` when Stripe does not know it, as with anything that cannot be an id of Stripe's: a person may have typed it."""
        if not _ID.fullmatch(processor_refund):
            return None
        with _reading():
            return answers.refund(await self._get(f"/v1/refunds/{_segment(processor_refund)}"))
        return None

    async def list_refunds(self, *, created_from: datetime, created_to: datetime, after: str | None, limit: int = _PAGE) -> RefundPage:
        """One page of the account's refunds of a window of time, newest first. Raises ``NotSent``."""
        if created_from.tzinfo is None or created_to.tzinfo is None or not 1 <= limit <= _PAGE:
            raise ValueError(f"a window has a zone and a page has 1 to {_PAGE} refunds")
        # Stripe's times are whole seconds: rounding both ends up keeps exactly the window, and windows that meet share nothing and miss nothing.
        first, end = (math.ceil(moment.timestamp()) for moment in (created_from, created_to))
        cursor = {} if after is None else {"starting_after": after}
        with _reading():
            listed = await self._get("/v1/refunds", created={"gte": first, "lt": end}, limit=limit, **cursor)
            return answers.refund_page(listed, first=first, end=end, after=after)
        raise NotSent("not_found", "Stripe does not know the list of refunds")

    async def refund(self, request: FrozenRequest, *, send_before: float) -> ProcessorRefund:
        """Send the frozen request. Raises ``Refused``, ``NotSent``, ``Unknown`` or :class:`SendTooLate`."""
        with _sending(send_before):
            answer = await self._post("refund.create", "/v1/refunds", request.idempotency_key, request.params)
            return answers.refund(answer, request.processor_payment)

    async def cancel(self, request: FrozenRequest, *, send_before: float) -> None:
        """Cancel the whole authorisation. Raises ``Refused``, ``NotSent``, ``Unknown`` or :class:`SendTooLate`."""
        with _sending(send_before):
            path = f"/v1/payment_intents/{_segment(request.processor_payment)}/cancel"
            answer = answers.an_object(await self._post("authorisation.cancel", path, request.idempotency_key, {}), "payment_intent")
            if (answer["id"], answer["status"]) != (request.processor_payment, "canceled"):
                raise Unknown(SHAPE, "the answer does not say that the authorisation is cancelled")

    async def close(self) -> None:
        """Close the connections."""
        await self._transport.close_async()

    async def _paid(self, processor_payment: str) -> answers.Json:
        if _by_charge(processor_payment):
            return answers.charge(await self._get(f"/v1/charges/{_segment(processor_payment)}"), processor_payment)
        path = f"/v1/payment_intents/{_segment(processor_payment)}"
        return answers.intent(await self._get(path, expand=["latest_charge"]), processor_payment)

    async def _refunds(self, processor_payment: str) -> tuple[ProcessorRefund, ...]:
        """All refunds of a payment, to the last page."""
        return tuple(answers.refund(found, processor_payment) for found in await self._list("refund", processor_payment))

    async def _list(self, kind: str, processor_payment: str) -> list[answers.Json]:
        """All refunds or disputes of a payment, to the last page."""
        scope = {"charge" if _by_charge(processor_payment) else "payment_intent": processor_payment}
        found: list[answers.Json] = []
        seen: set[str] = set()
        after: dict[str, str] = {}
        while True:
            objects, more = answers.page(await self._get(f"/v1/{kind}s", **scope, limit=_PAGE, **after), kind)
            found += objects
            if not more:
                return found
            last = answers.text(objects[-1], "id")
            if last in seen:
                raise ValueError("a list that does not end")
            seen.add(last)
            after = {"starting_after": last}

    async def _get(self, path: str, **params: Any) -> object:
        return (await self._client.raw_request_async("get", path, **params)).data

    async def _post(self, call: str, path: str, idempotency_key: str, params: dict[str, Any]) -> object:
        async with points.around(call):
            return (await self._client.raw_request_async("post", path, **params, idempotency_key=idempotency_key)).data


@contextmanager
def _sending(send_before: float) -> Iterator[None]:
    """Translate every error of a call that can move money; what cannot be read afterwards is unknown, never a refusal."""
    try:
        with sending_before(send_before):
            yield
    except stripe.StripeError as error:
        raise translate(error) from error
    except _MISSHAPEN as error:
        raise Unknown(SHAPE, f"the answer cannot be read ({type(error).__name__})") from error


@contextmanager
def _reading() -> Iterator[None]:
    """Translate every error of a call that only reads: it moves nothing, so whatever went wrong it may simply be tried again.

    Leaves the block quietly, past its end, when Stripe itself says that it does not know the object.
    """
    try:
        yield
    except stripe.StripeError as error:
        found = translate(error)
        if error.http_status == 404 and found.code == "resource_missing":
            return
        raise NotSent(found.reason, found.detail, code=found.code, retry_after=found.retry_after) from error
    except _MISSHAPEN as error:
        raise NotSent(SHAPE, f"the answer cannot be read ({type(error).__name__})") from error


def _by_charge(processor_payment: str) -> bool:
    return processor_payment.startswith(("ch_", "py_"))


def _segment(found: str) -> str:
    """An id as one segment of a path, whatever it contains."""
    return quote(found, safe="")
