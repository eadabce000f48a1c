"""Exact terms: what would be sent, all of it, and the hash that a consent or a decision is given for.

Promise P3: no call that moves money starts without an approval of exactly these terms. Change one and the hash is another, so the old
approval is void by construction.
"""

import hashlib
import json
from datetime import datetime
from enum import StrEnum
from typing import Any

import rfc8785
from pydantic import BaseModel, ConfigDict

from refunds.clock import rfc3339
from refunds.marketplace import LegKind, Planned, PlannedLeg
from refunds.reasons import Reason


class OperationKind(StrEnum):
    """What is done: money of a captured payment is returned by its processor, a whole authorisation is released, or, for what no processor can return
    (a gift card, store credit, cash), a person gives it back."""

    REFUND = "refund"
    RELEASE = "release"
    MANUAL = "manual"


class LegTerms(BaseModel):
    """One leg beside the refund, exactly: so much of this transfer is reversed from that account, or so much of this fee given back to it."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    kind: LegKind
    target: str
    account: str
    amount: int
    amount_text: str
    currency: str


class Terms(BaseModel):
    """The exact terms of one revision of one refund.

    ``legs`` are what is returned beside the refund on a marketplace, ``flow`` the transfers and the fee they were worked out from; both are absent from the
    canonical form when there are none, so that terms without them have the hash they always had. ``amount`` is in the currency's API unit. ``order`` and
    ``payment`` are our surrogates, ``processor_payment`` is the PaymentIntent or charge. ``processor_reason`` is what the processor is told. Nothing personal
    is in here: terms travel through Temporal.
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
    legs: tuple[LegTerms, ...] = ()
    flow: tuple[str, ...] = ()
    reason: Reason | None
    processor_reason: str | None
    policy_version: int
    expires_at: datetime

    def canonical(self) -> dict[str, Any]:
        """The terms as plain JSON values, times as RFC 3339: what is stored, shown and hashed."""
        plain = self.model_dump(mode="json")
        plain["expires_at"] = rfc3339(self.expires_at)
        return {name: value for name, value in plain.items() if value or name not in ("legs", "flow")}

    @property
    def planned(self) -> Planned:
        """The legs, as they are compared with the way of the money."""
        legs = tuple(PlannedLeg(leg.kind, leg.target, leg.account, leg.amount, leg.currency) for leg in self.legs)
        return Planned(legs, self.flow)

    @property
    def hash(self) -> str:
        """SHA-256 over the RFC 8785 canonical JSON of the terms, in lower-case hex."""
        return canonical_hash(self.canonical())

    @classmethod
    def from_stored(cls, plain: dict[str, Any]) -> "Terms":
        """Rebuild terms from what :meth:`canonical` gave and a JSON column kept."""
        return cls.model_validate_json(json.dumps(plain))


def canonical_hash(plain: Any) -> str:
    """SHA-256 over RFC 8785 canonical JSON, in lower-case hex. Raises ``rfc8785.CanonicalizationError`` for what JSON cannot carry exactly."""
    return hashlib.sha256(rfc8785.dumps(plain)).hexdigest()
