"""The shapes of what the API shows about approving, for ``/openapi.json``."""

from typing import Annotated, Any, Literal

from pydantic import AwareDatetime, Field

from api.shapes import Shape, Who


class ReviewAwaited(Shape):
    """The review that a refund waits for: who may decide, what is missing, until when, and what silence will do then."""

    queue: str | None
    role: str
    people: Annotated[int, Field(description="How many different persons must approve.")]
    approved_by: Annotated[list[str], Field(description="Who has approved these terms already.")]
    assigned_to: str | None
    specialists: Annotated[list[str], Field(description="Persons and roles of which one must approve; empty: anybody with the role.")]
    reasons_required: bool
    evidence_required: list[str]
    evidence_missing: list[str]
    rung: Annotated[int, Field(description="On which rung of its ladder it stands, counted from 1.")]
    rungs: int
    hours: Annotated[str | None, Field(description="The calendar whose open time the deadlines count, if not all time.")]
    reminded: bool
    remind_at: AwareDatetime | None
    decide_by: AwareDatetime | None
    then: Literal["escalates", "expires"]
    then_to: Annotated[str | None, Field(description="The queue it escalates to.")]


class EvidenceView(Shape):
    """Evidence that was attached. Its words are among the texts, as `evidence:<id>`, for those who may read these."""

    id: str
    kind: str
    digest: Annotated[str | None, Field(description="SHA-256 of what a reference leads to.")]
    by: Who
    counts: Annotated[bool, Field(description="Whether it stands for what the policy asks for; what an agent attached does not.")]
    recorded_at: AwareDatetime


class DifferenceView(Shape):
    """One thing that is not as it was in the revision before."""

    field: str
    before: Any
    after: Any
    words: str


class DelegationView(Shape):
    """The right to decide, handed to another person for a while."""

    id: str
    from_: Annotated[Who, Field(alias="from")]
    to: Who
    role: str
    queue: str | None
    starts_at: AwareDatetime
    ends_at: AwareDatetime
    created_at: AwareDatetime
    ended_at: AwareDatetime | None
    ended_by: Who | None
    state: Literal["to_come", "in_force", "over", "ended"]


class DelegationList(Shape):
    """Delegations, the latest first."""

    delegations: list[DelegationView]
