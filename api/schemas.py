"""The shapes of the answers, for ``/openapi.json``. Answers are written directly; the tests hold every one of them against these."""

from typing import Annotated, Any, Literal

from pydantic import AwareDatetime, Field

from api.approving_shapes import DifferenceView, EvidenceView, ReviewAwaited
from api.governing import GovernanceView, ReviewNeeded
from api.limit_shapes import LimitView
from api.shapes import Amounts, CodeInWords, Requester, Shape, Who
from refunds.errors import Code
from refunds.orders import Tender
from refunds.status import Status


class RefundSummary(Amounts, CodeInWords):
    """A refund in a list."""

    id: str
    status: Status
    status_since: AwareDatetime
    created_at: AwareDatetime
    final: bool
    order_id: str | None
    customer_id: Annotated[str | None, Field(description="Null once the customer is forgotten.")]
    customer_forgotten_at: AwareDatetime | None
    payment_id: str | None
    agent_id: str | None
    group_id: Annotated[str | None, Field(description="The order-wide refund it is a part of.")]
    tender: Annotated[Tender | None, Field(description="Of a manual payment: what a person gives back.")]
    revision: int
    terms_hash: str | None
    tier: int | None
    queue: str | None
    assigned_to: Annotated[str | None, Field(description="The person it is given to, while it waits for a review.")]
    answer_by: Annotated[AwareDatetime | None, Field(description="Until when the customer or a reviewer may answer.")]
    detail: str | None
    next_step: Annotated[str | None, Field(description="What it waits for, in words.")]


class RefundPage(Shape):
    """A page of a list."""

    refunds: list[RefundSummary]
    next_cursor: str | None


class Asked(Shape):
    """The request as it was made, in the caller's own ids."""

    kind: Literal["refund", "ticket"]
    order_id: str | None
    customer_id: str | None
    payment_id: str | None
    amount: int | None
    currency: str | None
    full: bool | None
    reason: str | None
    channel: str | None
    requested_by: str | None
    requester: Requester
    agent_id: str | None
    lines: list[dict[str, Any]]
    shipping: bool
    metadata: dict[str, str]
    customer_authentication: dict[str, Any] | None
    has_message: bool


class LinePart(Shape):
    """What units of one line come to. Of `amount`, `tax` is tax; `discount` had been taken off before."""

    id: str
    quantity: Annotated[int, Field(description="Units that go back.")]
    ordered: int
    earlier: Annotated[int, Field(description="Units that went back before, or are about to.")]
    amount: int
    amount_text: str
    tax: int
    discount: int
    left: Annotated[int, Field(description="What of the line's money is left afterwards.")]


class ShippingPart(Shape):
    """What the shipping comes to. Of `amount`, `tax` is tax; `discount` had been taken off before."""

    amount: int
    tax: int
    discount: int


class BreakdownView(Amounts):
    """What the named lines and shipping come to: exactly the sum of the parts, allocated from what was captured."""

    captured: int
    order_total: Annotated[int, Field(description="What the order's lines and shipping come to, in `order_currency`.")]
    order_currency: str
    lines: list[LinePart]
    shipping: ShippingPart | None


class CheckView(Shape):
    """One rule, judged."""

    id: str
    text: str
    observed: str
    limit: str
    result: Annotated[str, Field(description="`pass`, `require_consent`, `require_review`, `deny` or `answer`.")]


class Needs(Shape):
    """What the terms required when they were quoted."""

    consent: bool
    review: ReviewNeeded | None


class ReturnRules(Shape):
    """The version whose return rules counted: the one in force when the order was placed, or today's where that is not known or older than the first."""

    version: int
    hash: str
    because: Literal["placed", "older_than_the_first", "not_known"]


class PolicyJudged(Shape):
    """What the policy made of the request. ``return_rules`` is absent from refunds that were judged before orders kept theirs, ``governance``, ``appeal`` and
    ``answer`` from those judged before they were recorded.
    """

    version: int
    hash: str
    return_rules: ReturnRules | None
    outcome: str
    explanation: str
    text: str
    signals: list[str]
    checks: list[CheckView]
    draft: Annotated[bool, Field(description="It is prepared and never sent: the policy makes drafts of this tier.")]
    appeal: Annotated[str | None, Field(description="How the customer can have it looked at again.")]
    answer: Annotated[str | None, Field(description="What is said where only something was asked, and that a machine wrote it.")]
    governance: GovernanceView | None
    needs: Needs


class DecisionMade(Shape):
    """A recorded consent, review or automatic approval of exact terms."""

    id: str
    kind: Literal["consent", "review", "policy"]
    step: int
    revision: int
    verdict: Literal["approve", "deny"]
    terms_hash: str | None
    person: str
    recorded_by: Who | None
    on_behalf_of: Annotated[Who | None, Field(description="Whose right was used, by a delegation.")]
    delegation: str | None
    role: str
    recorded_at: AwareDatetime
    delivered_at: AwareDatetime | None


class InstructionGiven(Shape):
    """A recorded revision, withdrawal, settlement or assignment, and what became of it."""

    id: str
    kind: Literal["revise", "withdraw", "settle", "assign"]
    body: dict[str, Any]
    by: Who
    recorded_at: AwareDatetime
    applied_at: AwareDatetime | None
    refused: Code | None
    detail: str | None


class RevisionMade(Amounts):
    """One version of the terms."""

    revision: int
    terms_hash: str | None
    author: str
    changes: Annotated[list[DifferenceView], Field(description="What is not as it was in the revision before.")]
    created_at: AwareDatetime


class Deadlines(Shape):
    """What is due when."""

    consent_by: AwareDatetime | None
    review_by: AwareDatetime | None
    next_due_at: AwareDatetime | None
    terms_expire_at: AwareDatetime | None


class AttemptMade(Shape):
    """One call to the processor."""

    number: int
    opened_at: AwareDatetime
    send_by: AwareDatetime
    answered_at: AwareDatetime | None
    outcome: str | None
    reason: str | None


class OperationMade(Amounts):
    """What is sent for one revision, once."""

    id: str
    kind: str
    revision: int
    created_at: AwareDatetime
    settled_at: AwareDatetime | None
    outcome: str | None
    refund_id: Annotated[str | None, Field(description="The processor's id of the refund.")]
    refund_state: str | None
    attempts: list[AttemptMade]


class LegMade(Amounts, CodeInWords):
    """What is returned beside the refund on a marketplace: one reversal of a transfer, or one refund of the platform's fee."""

    id: str
    kind: Literal["reverse_transfer", "refund_fee"]
    operation: str
    target: Annotated[str, Field(description="The transfer that is reversed, or the fee that is given back.")]
    account: Annotated[str, Field(description="The connected account that a transfer had gone to, or that paid the fee.")]
    state: Literal["waiting", "done", "parked", "not_done", "void"]
    state_since: AwareDatetime
    due_at: AwareDatetime | None
    detail: str | None
    reversal_id: Annotated[str | None, Field(description="The processor's id of the reversal, or of the refund of the fee.")]
    attempts: list[AttemptMade]


class SettlementFigures(Shape):
    """What a refund took from the merchant's balance, beside what the customer receives. ``null`` in a refund while the processor was not asked for it.

    ``presentment`` is what the customer paid and gets back; ``settled`` what left the balance, in the currency it is kept in; ``rate`` the processor's own, as
    it wrote it; ``fee`` what the refund cost, and ``returned`` what came back of ``settled`` when the refund failed later.
    """

    refund_id: str
    presentment: Amounts
    settled: Amounts
    rate: Annotated[str | None, Field(examples=["1.3985"])]
    rate_text: Annotated[str | None, Field(examples=["1 USD = 1.3985 CAD"])]
    fee: Amounts
    returned: Amounts
    read_at: AwareDatetime


class ProcessorSide(Shape):
    """What is known of the payment processor's side."""

    name: str | None
    payment_id: str | None
    operations: list[OperationMade]
    settlement: SettlementFigures | None
    legs: list[LegMade]


class RefundableView(Shape):
    """What is still refundable of the payment, leaving out this refund, by the last live reading."""

    captured: int
    returned: int
    reserved: int
    external: int
    remaining: int
    remaining_text: str
    currency: str
    read_at: AwareDatetime


class EarlierRefund(Amounts):
    """Another refund of the same payment."""

    id: str
    status: Status
    created_at: AwareDatetime


class LooksLike(EarlierRefund):
    """A refund that this one may repeat: of the same order, for the same money, lines or ticket."""

    payment_id: str | None
    channel: str | None
    agent_id: str | None
    requested_by: str | None
    requester: str


class Context(Shape):
    """What a reviewer looks at beside the terms. ``customer`` is the history the quote was judged on."""

    refundable_besides_this: RefundableView | None
    earlier_refunds: list[EarlierRefund]
    customer: dict[str, Any] | None
    limits: Annotated[
        list[LimitView],
        Field(
            description="The limits over time that concern it: as they stand, in other answers than GET as they stood when it was quoted."
        ),
    ]
    transfer: Annotated[
        str | None,
        Field(
            description="The transfer to a connected account that was made together with the charge, by the last reading; `null` also for separate ones."
        ),
    ]
    application_fee: Annotated[str | None, Field(description="The platform's fee on the payment, by the last reading.")]


class Run(Shape):
    """The Temporal run and where it is shown."""

    workflow_id: str
    url: str


class StopView(Shape):
    """A stop or halt that keeps a refund back: its scope, why, since when, and by whom (null: the orchestrator itself)."""

    scope: str
    code: str
    reason: str | None
    since: AwareDatetime | None
    by: str | None
    name: str | None


class RefundView(RefundSummary):
    """Everything about a refund. ``texts`` and the reader's own words are only there for reviewers and auditors."""

    version: int
    final_at: AwareDatetime | None
    request: Asked
    terms: dict[str, Any] | None
    breakdown: BreakdownView | None
    sources: Annotated[dict[str, str], Field(description="Where each field came from.")]
    policy: PolicyJudged | None
    decisions: list[DecisionMade]
    review: Annotated[ReviewAwaited | None, Field(description="The review it waits for, and what silence will do.")]
    evidence: list[EvidenceView]
    instructions: list[InstructionGiven]
    revisions: list[RevisionMade]
    deadlines: Deadlines
    held_by: Annotated[list[StopView], Field(description="The stops and halts that keep it back now, the oldest first.")]
    runbook: str | None
    for_customer: str
    processor: ProcessorSide
    context: Context
    limit: Annotated[LimitView | None, Field(description="With `LIMIT_EXCEEDED`: the limit that says no.")]
    reading: dict[str, Any] | None
    possible_duplicate_of: str | None
    possible_duplicate: LooksLike | None
    run: Run
    texts: dict[str, str] | None = None


class DecisionView(Shape):
    """The outcome of a decision: as recorded, whether the run has it, and the refund afterwards."""

    decision: DecisionMade
    status: Status
    delivered: bool
    replayed: bool
    refund: RefundView


class SettlementView(Shape):
    """What became of a settlement."""

    settlement: str
    status: Status
    waits_for: str | None
    refund: RefundView
