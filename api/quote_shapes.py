"""The shapes of what a refund would come to."""

from typing import Literal

from pydantic import AwareDatetime

from api.schemas import BreakdownView, CheckView, ReturnRules
from api.shapes import Amounts, CodeInWords, Shape


class LegQuoted(Amounts):
    """One leg that would be sent beside it."""

    kind: Literal["reverse_transfer", "refund_fee"]
    target: str
    account: str


class QuotedTerms(Amounts):
    """What would be sent."""

    operation: Literal["refund", "release", "manual"]
    payment_id: str
    full: bool
    destination: str
    reverse_transfer: bool
    refund_application_fee: bool
    legs: list[LegQuoted]
    reason: str | None
    processor_reason: str | None


class QuotedPolicy(Shape):
    """The version it was judged under, and the text it rests on."""

    version: int
    hash: str
    return_rules: ReturnRules
    text: str


class ReviewQuoted(Shape):
    """The review it would need."""

    role: str
    people: int


class QuotedNeeds(Shape):
    """What would still be needed."""

    consent: bool
    review: ReviewQuoted | None


class QuotedFigures(Shape):
    """What is left of the payment now."""

    remaining: int
    currency: str
    read_at: AwareDatetime


class QuoteView(CodeInWords):
    """What a refund would come to."""

    outcome: Literal["proceed", "deny", "answer"]
    detail: str | None
    terms: QuotedTerms
    breakdown: BreakdownView | None
    tier: int
    policy: QuotedPolicy
    checks: list[CheckView]
    needs: QuotedNeeds
    refundable: QuotedFigures
    not_considered: list[str]
