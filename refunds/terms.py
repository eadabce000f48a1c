"""Exact terms: what would be sent, all of it, and the hash that a consent or a decision is given for.

Promise P3: no call that moves money starts without an approval of exactly these terms. Change one and the hash is another, so the old
approval is void by construction.
"""

import hashlib
from datetime import datetime
from enum import StrEnum
from typing import Any

import rfc8785
from pydantic import BaseModel, ConfigDict

from refunds.clock import rfc3339
from refunds.reasons import Reason


class OperationKind(StrEnum):
    """What is done at the processor: money of a captured payment is returned, or a whole authorisation is released."""

    REFUND = "refund"
    RELEASE = "release"


class Terms(BaseModel):
    """The exact terms of one revision of one refund.

    ``amount`` is in the currency's API unit. ``order`` and ``payment`` are our surrogates, ``processor_payment`` is the PaymentIntent or charge.
    ``processor_reason`` is what the processor is told. Nothing personal is in here: terms travel through Temporal.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    refund: str
    revision: int
    operation: OperationKind
    processor: str
    processor_account: str
    mode: str
    api_version: str
    order: str
    order_version: int
    payment: str
    processor_payment: str
    amount: int
    amount_text: str
    currency: str
    full: bool
    destination: str = "original_payment_method"
    reverse_transfer: bool = False
    refund_application_fee: bool = False
    reason: Reason | None
    processor_reason: str | None
    policy_version: int
    expires_at: datetime

    def canonical(self) -> dict[str, Any]:
        """The terms as plain JSON values, times as RFC 3339: what is stored, shown and hashed."""
        plain = self.model_dump(mode="json")
        plain["expires_at"] = rfc3339(self.expires_at)
        return plain

    @property
    def hash(self) -> str:
        """SHA-256 over the RFC 8785 canonical JSON of the terms, in lower-case hex."""
        return canonical_hash(self.canonical())

    @classmethod
    def from_stored(cls, plain: dict[str, Any]) -> "Terms":
        """Rebuild terms from what :meth:`canonical` gave and a JSON column kept."""
        return cls.model_validate_json(rfc8785.dumps(plain))


def canonical_hash(plain: Any) -> str:
    """SHA-256 over RFC 8785 canonical JSON, in lower-case hex. Raises ``rfc8785.CanonicalizationError`` for what JSON cannot carry exactly."""
    return hashlib.sha256(rfc8785.dumps(plain)).hexdigest()
