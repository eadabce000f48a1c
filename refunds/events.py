"""Events of a processor: hints that it may know more than we do. What they say is never believed; what they are about is read live.

Only what tells where to look is taken from one (promise P9): charges carry names and addresses, and none of that is kept.
"""

from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any

REFUND_EVENTS = frozenset({"refund.created", "refund.updated", "refund.failed", "charge.refund.updated"})
"""About one refund. ``charge.refund.updated`` is the deprecated form that older endpoints are still sent."""

CHARGE_EVENTS = frozenset({"charge.refunded"})
"""Something of a charge went back; which refund it was is not in it (field report 23)."""

DISPUTE_EVENTS = frozenset(f"charge.dispute.{what}" for what in ("created", "updated", "closed", "funds_withdrawn", "funds_reinstated"))
"""About a dispute of a charge."""

USED = REFUND_EVENTS | CHARGE_EVENTS | DISPUTE_EVENTS
"""The types that are acted on; others are acknowledged and counted."""


class EventState(StrEnum):
    """How far a stored event has come."""

    WAITING = "waiting"
    DONE = "done"
    IGNORED = "ignored"
    UNMATCHED = "unmatched"


class WhyIgnored(StrEnum):
    """Why an event that is properly signed is none of ours."""

    MODE = "mode"
    ACCOUNT = "account"
    API_VERSION = "api_version"


@dataclass(frozen=True, slots=True)
class ProcessorEvent:
    """An event, reduced to what is needed to find what it is about.

    ``facts`` are words and whole numbers: the object's kind and state, and for refunds amount, currency and charge. ``operation`` is our operation id as the
    object's metadata carries it, whatever somebody may have written there.
    """

    id: str
    type: str
    livemode: bool
    created_at: datetime
    api_version: str | None = None
    account: str | None = None
    object_id: str | None = None
    processor_payment: str | None = None
    operation: str | None = None
    facts: dict[str, Any] = field(default_factory=dict[str, Any])
