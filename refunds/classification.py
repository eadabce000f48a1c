"""What a reader made of a customer's text: one typed result, whoever read it.

Promise P10: a classification can add requirements and never satisfy or remove one. Nothing in here is ever sent as an amount or a payment by
itself; the policy decides over facts, and these are facts of the weakest kind.
"""

from enum import StrEnum

from pydantic import BaseModel, ConfigDict, Field

from refunds.reasons import Reason


class Intent(StrEnum):
    """What the customer wants."""

    REFUND = "refund"
    CANCEL_ORDER = "cancel_order"
    TRACK_REFUND = "track_refund"
    POLICY_QUESTION = "policy_question"
    COMPLAINT = "complaint"
    OUT_OF_SCOPE = "out_of_scope"
    OTHER = "other"


class Proposal(StrEnum):
    """What the reader would do. Only ``deny`` and ``escalate`` have any effect, and both only make it stricter."""

    APPROVE = "approve"
    DENY = "deny"
    ESCALATE = "escalate"


class Source(StrEnum):
    """Where a field came from."""

    CUSTOMER = "customer"
    SYSTEM_OF_RECORD = "system_of_record"
    PROCESSOR = "processor"
    MODEL = "model"
    RULES = "rules"
    VERIFIED_DOCUMENT = "verified_document"
    THIRD_PARTY = "third_party"
    PERSON = "person"
    AGENT = "agent"


class Reading(BaseModel):
    """The reader's answer. Bounded in size field by field, so that a flood from a model is an error and not a payload.

    ``order_reference`` is the order as the customer wrote it; ``amount_text`` the amount as written (``"$30"``) and ``amount`` / ``currency`` the same
    in API units when it could be read strictly. ``confidence`` is in percent. ``manipulation`` lists signs that the text tries to steer the reader
    (instructions, imitated system text, claims that rules changed).
    """

    model_config = ConfigDict(extra="forbid")

    intent: Intent
    reason: Reason | None = None
    order_reference: str | None = Field(default=None, max_length=200)
    product_lines: list[str] = Field(default_factory=list[str], max_length=50)
    amount_text: str | None = Field(default=None, max_length=64)
    amount: int | None = Field(default=None, ge=0, le=10**12)
    currency: str | None = Field(default=None, max_length=3)
    proposal: Proposal = Proposal.ESCALATE
    confidence: int = Field(default=0, ge=0, le=100)
    rationale: str = Field(default="", max_length=2000)
    manipulation: list[str] = Field(default_factory=list[str], max_length=20)


class Classification(BaseModel):
    """A reading with its provenance. ``failure`` is set, and ``reading`` is ``None``, when no reader answered properly: then a person reads it.

    ``prompt_hash`` is the SHA-256 of the exact instructions (not of the customer's text). Tokens are zero for the rule-based reader. ``provider`` and
    ``region`` say where it was read, and ``sent`` names the fields the reader was given (:class:`refunds.readers.DataKind`), never what stood in them.
    ``cost_micros`` is in millionths of the currency's major unit, and ``None`` where nobody stated a price or no tokens were reported: a cost is never guessed.
    """

    model_config = ConfigDict(extra="forbid")

    reading: Reading | None
    failure: str | None = None
    source: Source
    classifier: str
    model: str
    version: str
    prompt_hash: str
    provider: str = ""
    region: str | None = None
    sent: list[str] = Field(default_factory=list[str], max_length=20)
    input_tokens: int = 0
    output_tokens: int = 0
    duration_ms: int = 0
    cost_micros: int | None = None
    cost_currency: str | None = None
