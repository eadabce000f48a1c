"""Stripe, through its official SDK: asynchronous, without retries of its own, at a pinned API version."""

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import Any, cast

import httpx
import stripe

from activities.processors.base import SendTooLate
from activities.processors.error_map import translate
from refunds.clock import Clock
from refunds.processor import (
    DisputeState,
    FrozenRequest,
    NotSent,
    PaymentState,
    PaymentStatus,
    ProcessorRefund,
    RefundState,
    Unknown,
)
from refunds.settings import Settings
from refunds.submission import METADATA_OPERATION

_send_before: ContextVar[float | None] = ContextVar("send_before", default=None)
_ABOUT_TO_SEND = frozenset({"http11.send_request_headers.started", "http2.send_request_headers.started"})

_PAYMENT_STATUS = {
    "succeeded": PaymentStatus.CAPTURED,
    "requires_capture": PaymentStatus.AUTHORISED,
    "processing": PaymentStatus.PROCESSING,
    "canceled": PaymentStatus.CANCELED,
    "requires_action": PaymentStatus.INCOMPLETE,
    "requires_confirmation": PaymentStatus.INCOMPLETE,
    "requires_payment_method": PaymentStatus.INCOMPLETE,
}
_DISPUTES = {
    "needs_response": DisputeState.OPEN,
    "under_review": DisputeState.OPEN,
    "lost": DisputeState.LOST,
    "warning_needs_response": DisputeState.INQUIRY,
    "warning_under_review": DisputeState.INQUIRY,
    "warning_closed": DisputeState.NONE,
    "won": DisputeState.NONE,
    "prevented": DisputeState.NONE,
}
_STRONGEST = (DisputeState.OPEN, DisputeState.LOST, DisputeState.UNKNOWN, DisputeState.INQUIRY, DisputeState.NONE)


_MISSHAPEN = (AttributeError, KeyError, TypeError, ValueError, OverflowError)
"""What reading an answer of another shape raises, here and inside the SDK: a bug of the other side, which tells nothing about the money."""


async def _check_send_before(event: str, _info: dict[str, Any]) -> None:
    deadline = _send_before.get()
    if deadline is not None and event in _ABOUT_TO_SEND and time.monotonic() >= deadline:
        raise SendTooLate


class _HTTPClient(stripe.HTTPXClient):
    """The SDK's own client with our time-outs, and a check at the last moment before bytes leave: after connecting, not before it."""

    def __init__(self, settings: Settings) -> None:
        timeout = httpx.Timeout(settings.stripe_read_timeout_s, connect=settings.stripe_connect_timeout_s)
        super().__init__(timeout=timeout)

    def _get_request_args_kwargs(self, method: str, url: str, headers: Any, post_data: Any) -> Any:
        arguments, options = super()._get_request_args_kwargs(method, url, headers, post_data)
        body = options.pop("data", None)  # already encoded by the SDK; httpx has deprecated taking bytes as form data
        return [arguments, options | {"content": body or None, "extensions": {"trace": _check_send_before}}]

    def _handle_request_error(self, e: Exception) -> Any:
        if isinstance(e, SendTooLate):
            raise e
        return super()._handle_request_error(e)


class StripeProcessor:
    """Stripe behind the processor's interface. Safe to share between tasks."""

    name = "stripe"

    def __init__(self, settings: Settings, clock: Clock) -> None:
        if settings.stripe_api_key is None:
            raise RuntimeError("STRIPE_API_KEY is not set; only the payments role holds it")
        self._clock = clock
        self._http = _HTTPClient(settings)
        self._client = stripe.StripeClient(
            settings.stripe_api_key.get_secret_value(),
            stripe_version=settings.stripe_api_version,
            base_addresses={"api": settings.stripe_api_base} if settings.stripe_api_base else {},
            http_client=self._http,
            max_network_retries=0,
        )

    async def account(self) -> str:
        """The account the key belongs to. Raises ``NotSent``."""
        with _reading():
            return (await self._client.v1.accounts.retrieve_current_async()).id
        raise NotSent("not_found", "Stripe does not know the account of this key")

    async def read_payment(self, processor_payment: str) -> PaymentState | None:
        """Read a PaymentIntent or a charge, its refunds to the last page, and its disputes."""
        read_at = self._clock.now()
        by_charge = processor_payment.startswith(("ch_", "py_"))
        scope = {"charge" if by_charge else "payment_intent": processor_payment}
        with _reading():
            paid, refunds, disputes = await asyncio.gather(
                self._charge(processor_payment) if by_charge else self._intent(processor_payment),
                self._refunds(scope, processor_payment),
                self._client.v1.disputes.list_async(cast(Any, scope | {"limit": 100})),
            )
            found = {_DISPUTES.get(str(d.status), DisputeState.UNKNOWN) for d in disputes.data}
            dispute = next(state for state in _STRONGEST if state in found or state is DisputeState.NONE)
            return PaymentState(refunds=refunds, dispute=dispute, read_at=read_at, processor_payment=processor_payment, **paid)
        return None

    async def _intent(self, intent_id: str) -> dict[str, Any]:
        intent = await self._client.v1.payment_intents.retrieve_async(intent_id, {"expand": ["latest_charge"]})
        charge = intent.latest_charge if isinstance(intent.latest_charge, stripe.Charge) else None
        return {
            "status": _PAYMENT_STATUS.get(intent.status, PaymentStatus.UNKNOWN),
            "raw_status": intent.status,
            "currency": intent.currency.upper(),
            "captured": intent.amount_received,
            "capturable": intent.amount_capturable,
            "charge": charge.id if charge else None,
            "risk_level": _risk(charge),
        }

    async def _charge(self, charge_id: str) -> dict[str, Any]:
        charge = await self._client.v1.charges.retrieve_async(charge_id)
        # An uncaptured charge without a PaymentIntent has no call that releases the whole and nothing else: a person looks.
        captured = charge.captured and charge.status == "succeeded"
        return {
            "status": PaymentStatus.CAPTURED if captured else PaymentStatus.UNKNOWN,
            "raw_status": charge.status if captured else f"{charge.status}, not captured",
            "currency": charge.currency.upper(),
            "captured": charge.amount_captured,
            "capturable": 0,
            "charge": charge.id,
            "risk_level": _risk(charge),
        }

    async def _refunds(self, scope: dict[str, str], processor_payment: str) -> tuple[ProcessorRefund, ...]:
        """All refunds of a payment, to the last page."""
        found: list[ProcessorRefund] = []
        after: dict[str, str] = {}
        while True:
            page = await self._client.v1.refunds.list_async(cast(Any, scope | {"limit": 100} | after))
            found += [_refund(refund, processor_payment) for refund in page.data]
            if not page.has_more:
                return tuple(found)
            after = {"starting_after": page.data[-1].id}

    async def find(self, processor_payment: str, operation: str) -> ProcessorRefund | None:
        """Look our refund up by our operation id among all refunds of the payment. Raises ``NotSent`` when Stripe cannot be asked."""
        scope = {"charge" if processor_payment.startswith(("ch_", "py_")) else "payment_intent": processor_payment}
        with _reading():
            refunds = await self._refunds(scope, processor_payment)
            return next((refund for refund in refunds if refund.operation == operation), None)
        raise NotSent("not_found", "Stripe does not know the payment")

    async def retrieve(self, processor_refund: str) -> ProcessorRefund | None:
        """Read one refund; ``None`` when Stripe does not know it."""
        with _reading():
            refund = await self._client.v1.refunds.retrieve_async(processor_refund)
            return _refund(refund, str(refund.payment_intent or refund.charge or ""))
        return None

    async def refund(self, request: FrozenRequest, *, send_before: float) -> ProcessorRefund:
        """Send the frozen request. Raises ``Refused``, ``NotSent``, ``Unknown`` or :class:`SendTooLate`."""
        with _sending(send_before):
            refund = await self._client.v1.refunds.create_async(cast(Any, request.params), {"idempotency_key": request.idempotency_key})
            return _refund(refund, request.processor_payment)

    async def cancel(self, request: FrozenRequest, *, send_before: float) -> None:
        """Cancel the whole authorisation. Raises ``Refused``, ``NotSent``, ``Unknown`` or :class:`SendTooLate`."""
        with _sending(send_before):
            intent = await self._client.v1.payment_intents.cancel_async(
                request.processor_payment, options={"idempotency_key": request.idempotency_key}
            )
            if intent.status != "canceled":
                raise Unknown("unexpected_shape", "the answer does not say that the authorisation is cancelled")

    async def close(self) -> None:
        """Close the connections."""
        await self._http.close_async()


@contextmanager
def _sending(send_before: float) -> Iterator[None]:
    """Translate every error of a call that can move money; what cannot be read afterwards is unknown, never a refusal."""
    token = _send_before.set(send_before)
    try:
        yield
    except stripe.StripeError as error:
        raise translate(error) from error
    except _MISSHAPEN as error:
        raise Unknown("unexpected_shape", f"the answer cannot be read ({type(error).__name__})") from error
    finally:
        _send_before.reset(token)


@contextmanager
def _reading() -> Iterator[None]:
    """Translate every error of a call that only reads: it moves nothing, so whatever went wrong it may simply be tried again.

    Leaves the block quietly, past its end, when Stripe itself says that it does not know the object.
    """
    try:
        yield
    except stripe.StripeError as error:
        if error.http_status == 404 and error.error is not None and error.error.type == "invalid_request_error":
            return
        found = translate(error)
        raise NotSent(found.reason, found.detail, code=found.code, retry_after=found.retry_after) from error
    except _MISSHAPEN as error:
        raise NotSent("unexpected_shape", f"the answer cannot be read ({type(error).__name__})") from error


def _risk(charge: stripe.Charge | None) -> str:
    outcome = charge.outcome if charge else None
    return str(getattr(outcome, "risk_level", None) or "unknown")


def _refund(refund: stripe.Refund, processor_payment: str) -> ProcessorRefund:
    """Translate a refund. The payment is compared by the id we asked with: the PaymentIntent or the charge."""
    shown = (str(refund.payment_intent or ""), str(refund.charge or ""))
    try:
        state = RefundState(refund.status or "")
    except ValueError:
        state = RefundState.UNKNOWN
    metadata = refund.metadata
    if not refund.id.startswith(("re_", "pyr_")) or type(refund.amount) is not int or type(refund.currency) is not str:
        raise TypeError("not a refund")
    return ProcessorRefund(
        id=refund.id,
        processor_payment=processor_payment if processor_payment in shown else shown[0] or shown[1],
        amount=refund.amount,
        currency=refund.currency.upper(),
        state=state,
        raw_state=str(refund.status),
        operation=metadata[METADATA_OPERATION] if metadata and METADATA_OPERATION in metadata else None,
        failure_reason=getattr(refund, "failure_reason", None),
        created_at=datetime.fromtimestamp(refund.created, UTC),
    )
