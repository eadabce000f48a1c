"""Reading an event of Stripe's whose signature was right: the envelope, and of the object it is about only what tells where to look.

Stripe may add fields at any time, so unknown ones are tolerated here, unlike in every other call. Shapes: Stripe's OpenAPI description of API version
2026-08-26.dahlia.
"""

import json
from datetime import UTC, datetime
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError

from api.problems import invalid
from refunds.errors import Code, RefundError
from refunds.events import CHARGE_EVENTS, REFUND_EVENTS, ProcessorEvent
from refunds.submission import METADATA_OPERATION

Id = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_]{1,255}$")]
Word = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_.-]{1,100}$")]
Currency = Annotated[str, StringConstraints(pattern=r"^[A-Za-z]{3}$", to_upper=True)]
Amount = Annotated[int, Field(ge=0, le=2**63 - 1)]
_LAST_SECOND = 32_503_679_999
"""The end of the year 2999."""


class _Tolerant(BaseModel):
    model_config = ConfigDict(extra="ignore", strict=True, frozen=True)


class Data(_Tolerant):
    """What an event carries: the object as it was then. It is a hint, and read again."""

    object: dict[str, Any]


class StripeEvent(_Tolerant):
    """An event as Stripe sends it, as far as it is looked at."""

    id: Annotated[str, StringConstraints(pattern=r"^evt_[A-Za-z0-9_]{1,250}$")]
    object: Annotated[str, StringConstraints(pattern=r"^event$")]
    type: Word
    created: Annotated[int, Field(ge=0, le=_LAST_SECOND)]
    livemode: bool
    api_version: Word | None = None
    account: Id | None = None
    data: Data


class _Refund(_Tolerant):
    id: Id
    object: Annotated[str, StringConstraints(pattern=r"^refund$")]
    status: Word | None
    amount: Amount
    currency: Currency
    payment_intent: Id | None = None
    charge: Id | None = None
    metadata: dict[str, Any] | None = None


class _Charge(_Tolerant):
    id: Id
    object: Annotated[str, StringConstraints(pattern=r"^charge$")]
    payment_intent: Id | None = None
    amount_refunded: Amount
    currency: Currency


class _Dispute(_Tolerant):
    id: Id
    object: Annotated[str, StringConstraints(pattern=r"^dispute$")]
    status: Word
    amount: Amount
    currency: Currency
    payment_intent: Id | None = None
    charge: Id | None = None


def read(raw: bytes) -> StripeEvent:
    """Read the envelope. Raises ``MALFORMED_JSON``, or ``INVALID_FIELD`` naming what is not as Stripe sends it."""
    try:
        plain = json.loads(raw)
    except (ValueError, RecursionError):
        raise RefundError(Code.MALFORMED_JSON, "The body is signed and is not JSON.") from None
    try:
        return StripeEvent.model_validate(plain)
    except ValidationError as error:
        raise invalid(error) from None


def reduced(event: StripeEvent, *, usable: bool) -> ProcessorEvent:
    """Keep what is needed. Of an event that is not ``usable`` (another mode, account or API version) only the envelope: its object may have any shape.

    Raises ``INVALID_FIELD`` for an object that is not as Stripe sends it.
    """
    about = _about(event) if usable else {}
    return ProcessorEvent(
        id=event.id,
        type=event.type,
        livemode=event.livemode,
        created_at=datetime.fromtimestamp(event.created, UTC),
        api_version=event.api_version,
        account=event.account,
        **about,
    )


def _about(event: StripeEvent) -> dict[str, Any]:
    try:
        if event.type in REFUND_EVENTS:
            return _about_refund(_Refund.model_validate(event.data.object))
        if event.type in CHARGE_EVENTS:
            charge = _Charge.model_validate(event.data.object)
            facts = {"object": "charge", "charge": charge.id, "amount_refunded": charge.amount_refunded, "currency": charge.currency}
            return {"object_id": charge.id, "processor_payment": charge.payment_intent or charge.id, "facts": facts}
        dispute = _Dispute.model_validate(event.data.object)
    except ValidationError as error:
        raise invalid(error) from None
    facts = {"object": "dispute", "status": dispute.status, "charge": dispute.charge}
    return {"object_id": dispute.id, "processor_payment": dispute.payment_intent or dispute.charge, "facts": facts}


def _about_refund(refund: _Refund) -> dict[str, Any]:
    operation = (refund.metadata or {}).get(METADATA_OPERATION)
    return {
        "object_id": refund.id,
        "processor_payment": refund.payment_intent or refund.charge,
        # Anybody who may edit metadata can write anything there; what is not a word of ours is not looked for.
        "operation": operation
        if isinstance(operation, str) and operation.isascii() and operation.isprintable() and len(operation) <= 64
        else None,
        "facts": {
            "object": "refund",
            "status": refund.status,
            "amount": refund.amount,
            "currency": refund.currency,
            "charge": refund.charge,
        },
    }
