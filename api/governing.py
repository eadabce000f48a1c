"""What is recorded with every refund beside the judgement: what good governance asks for, drafts, and what is said to the customer."""

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import Field

from api.shapes import Shape
from refunds.status import Status

HIGH_IMPACT = 4


class GovernanceView(Shape):
    """What good governance asks to be recorded. ``null`` where neither the policy nor the order states it."""

    system_of_record: str | None
    legal_entity: str | None
    customer_type: str | None
    geography: str | None
    data_involved: list[str]
    financial_ceiling: Annotated[str | None, Field(description="The most that one refund in its currency may be.")]
    reversible: bool
    reversibility: str
    approval_owner: str | None
    required_evidence: Annotated[list[str], Field(description="The kinds of evidence that must be there before anybody approves.")]


class ReviewNeeded(Shape):
    """The least role, how many different persons, and the ladder that silence climbs."""

    role: str
    people: int
    ladder: list[dict[str, Any]]
    specialists: Annotated[
        list[str], Field(description="Handles and roles: where there are any, only these may approve; `a and b` is one person who is both.")
    ]
    reasons_required: Annotated[bool, Field(description="Everybody who decides says why.")]
    evidence: Annotated[list[str], Field(description="The kinds of evidence that must be there before anybody approves.")]


def recorded(decision: Mapping[str, Any]) -> dict[str, Any]:
    """What a recorded decision says beside its checks; also one that was recorded before there was any of it."""
    return {
        "draft": decision.get("draft", False),
        "appeal": decision.get("appeal") or None,
        "answer": decision.get("answer") or None,
        "governance": decision.get("governance"),
    }


def review_needed(review: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """A review that a recorded decision requires."""
    if review is None:
        return None
    return {
        "role": review["role"],
        "people": review["people"],
        "ladder": review["ladder"],
        "specialists": review.get("specialists", []),
        "reasons_required": review.get("reasons_required", False),
        "evidence": review.get("evidence", []),
    }


def said(sentence: str, status: Status, tier: int | None, decision: Mapping[str, Any] | None) -> str:
    """The sentence for the customer with what the policy adds: the answer to a question, and how to appeal where it was denied or is of the highest tier."""
    if decision is None:
        return sentence
    if status is Status.ANSWERED and decision.get("answer"):
        return decision["answer"]
    appeals = status is Status.DENIED or tier == HIGH_IMPACT
    return f"{sentence} {decision['appeal']}" if appeals and decision.get("appeal") else sentence
