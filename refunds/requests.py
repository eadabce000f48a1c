"""What a support system or an agent asks for: the strict shapes of the outside contract, judged as far as the call alone allows."""

from typing import Annotated, Any, Protocol, Self, TypeVar

from pydantic import AfterValidator, BeforeValidator, Field, StringConstraints, model_validator

from refunds.allocation import Units
from refunds.errors import Code, RefundError
from refunds.money import Money, currency, requested
from refunds.naming import shown_name
from refunds.orders import CleanText, ExternalId, Instant, ShortText, Strict
from refunds.people import readable_name
from refunds.reasons import Reason
from refunds.scope import check_fields, check_reason
from refunds.sources import Statable, Stated
from refunds.terms import canonical_hash

MAX_TEXT = 200_000
"""The longest message taken, in characters. It is kept whole, encrypted, and never travels through Temporal or to the processor."""


def _integer_amount(value: Any) -> Any:
    # A JSON true is an int to Python, and 1e3 or 30.0 are floats: neither is an amount (field report 43).
    if value is not None and type(value) is not int:
        raise RefundError(Code.AMOUNT_NOT_INTEGER, "The amount must be a JSON integer of minor units.", field="amount")
    return value


def _no_direct_charge(value: Any) -> None:
    # Direct charges belong to the connected account: our key, ledger and limits are the platform's, so they are refused by name.
    if value is not None:
        raise RefundError(Code.CONNECTED_ACCOUNT, field="connected_account")


AskedAmount = Annotated[int | None, BeforeValidator(_integer_amount)]
PersonName = Annotated[ShortText, AfterValidator(readable_name)]
"""Who somebody is, in letters that say so."""
LongText = Annotated[CleanText, StringConstraints(max_length=MAX_TEXT)]


class CustomerAuthentication(Strict):
    """How and when the caller made sure that this is the customer, such as ``password`` or ``order_email_link``."""

    method: Annotated[CleanText, StringConstraints(min_length=1, max_length=100)]
    at: Instant


class RequestedLine(Strict):
    """A line of the order and how many of it."""

    id: ExternalId
    quantity: Annotated[int, Field(strict=True, ge=1, le=1_000_000)] = 1


class _Sourced(Protocol):
    sources: dict[Statable, Stated]


_Request = TypeVar("_Request", bound=_Sourced)


def check_sources(request: _Request) -> _Request:
    """The request as it is. Raises ``INVALID_FIELD`` for a source of a field that is not given."""
    for name in request.sources:
        if not getattr(request, name.value, None):
            raise RefundError(Code.INVALID_FIELD, f"sources.{name.value}: {name.value} is not given.", field=f"sources.{name.value}")
    return request


class _Asked(Strict):
    """What every way of asking has in common."""

    customer_id: ExternalId
    customer_authentication: CustomerAuthentication | None = None
    requested_by: PersonName | None = None
    channel: Annotated[CleanText, StringConstraints(pattern=r"^[a-z0-9_.-]{1,50}$")] | None = None
    metadata: Annotated[dict[str, Annotated[CleanText, StringConstraints(max_length=500)]], Field(max_length=30)] = {}
    agent_session_id: ExternalId | None = None
    agent_model: Annotated[CleanText, StringConstraints(max_length=200)] | None = None
    agent_reasoning: Annotated[CleanText, StringConstraints(max_length=20_000)] | None = None
    conversation_context: LongText | None = None
    sources: Annotated[
        dict[Statable, Stated], Field(description="Where the caller has a field from, where that is not plain from who asks.")
    ] = {}

    _fields_in_scope = model_validator(mode="before")(check_fields)
    _sources_of_what_is_given = model_validator(mode="after")(check_sources)

    @model_validator(mode="after")
    def _metadata_keys(self) -> Self:
        for key in self.metadata:
            if not 1 <= len(key) <= 40 or key.startswith("refund"):
                raise ValueError(f"metadata.{shown_name(key)}: keys have 1 to 40 characters and do not start with 'refund', which is ours")
        return self

    def body_hash(self) -> str:
        """The identity of the body, for the repeated use of an idempotency key. What is left out counts as its default, now and in later versions."""
        return canonical_hash(self.model_dump(mode="json", exclude_defaults=True))


class RefundRequest(_Asked):
    """``POST /v1/refunds``: a refund of exactly one payment, by amount, in full, or by ``lines`` and ``shipping``.

    Without an amount the lines are priced when it is quoted: from what was captured, by the order's version in force (:mod:`refunds.allocation`). With
    one, the amount counts, and a person looks where the lines come to another. Either way their units count as gone back.

    On a marketplace, ``reverse_transfer`` takes the connected accounts' part of it back from them, and ``refund_application_fee`` gives the platform's fee on
    it back; each is refused by name for a payment that has none (:mod:`refunds.marketplace`).
    """

    order_id: ExternalId | None = None
    payment_id: ExternalId | None = None
    amount: AskedAmount = None
    currency: Annotated[str, StringConstraints(min_length=1, max_length=12)] | None = None
    full: bool = False
    reason: Annotated[Reason | None, BeforeValidator(check_reason)] = None
    lines: Annotated[list[RequestedLine], Field(max_length=1000)] = []
    shipping: Annotated[bool, Field(strict=True)] = False
    reverse_transfer: Annotated[bool, Field(strict=True)] = False
    refund_application_fee: Annotated[bool, Field(strict=True)] = False
    connected_account: Annotated[None, BeforeValidator(_no_direct_charge)] = None
    message: LongText | None = None

    @model_validator(mode="after")
    def _what_is_asked(self) -> Self:
        if self.order_id is None and self.payment_id is None:
            raise RefundError(Code.INVALID_FIELD, "Name the order_id, the payment_id, or both.", field="order_id")
        if self.full and self.amount is not None:
            raise RefundError(Code.AMOUNT_AND_FULL, field="full")
        if self.full and self.units:
            raise RefundError(Code.LINES_AND_FULL, field="lines" if self.lines else "shipping")
        if not self.full and self.amount is None and not self.units:
            raise RefundError(Code.AMOUNT_REQUIRED, field="amount")
        named: set[str] = set()
        for at, line in enumerate(self.lines):
            if line.id in named:
                raise RefundError(Code.LINE_TWICE, field=f"lines.{at}.id")
            named.add(line.id)
        if self.amount is not None and self.currency is None:
            raise RefundError(Code.UNKNOWN_CURRENCY, "An amount needs its currency.", field="currency")
        if self.amount is not None and self.currency is not None:
            requested(self.amount, self.currency)
        return self

    @property
    def money(self) -> Money | None:
        """The amount asked for, or ``None`` for a full refund and for one by lines alone."""
        return requested(self.amount, self.currency) if self.amount is not None and self.currency is not None else None

    @property
    def units(self) -> Units:
        """What it names of the order's lines and shipping; false when it names nothing."""
        return Units({line.id: line.quantity for line in self.lines}, self.shipping)


class GroupRequest(_Asked):
    """``POST /v1/refund-groups``: an order-wide refund over all payments of an order, by amount, in full, or by ``lines`` and ``shipping``.

    Which payment gives what is decided by one rule (:mod:`refunds.groups`); each part is a refund of its own. In full with a ``currency``, only the payments
    in it take part.
    """

    order_id: ExternalId
    amount: AskedAmount = None
    currency: Annotated[str, StringConstraints(min_length=1, max_length=12)] | None = None
    full: bool = False
    reason: Annotated[Reason | None, BeforeValidator(check_reason)] = None
    lines: Annotated[list[RequestedLine], Field(max_length=1000)] = []
    shipping: Annotated[bool, Field(strict=True)] = False
    message: LongText | None = None

    @model_validator(mode="after")
    def _what_is_asked(self) -> Self:
        if self.amount is not None and self.units:
            raise RefundError(
                Code.INVALID_FIELD, "Send an amount, or lines and shipping: of a whole order one of them tells it.", field="amount"
            )
        # The same rules as for a refund of one payment; naming an order stands for naming it.
        RefundRequest.model_validate(
            {name: getattr(self, name) for name in ("order_id", "customer_id", "amount", "currency", "full", "shipping")}
            | {"lines": [line.model_dump() for line in self.lines]}
        )
        if self.currency is not None:
            currency(self.currency)
        return self

    @property
    def money(self) -> Money | None:
        """The amount asked for, or ``None`` in full and by lines."""
        return requested(self.amount, self.currency) if self.amount is not None and self.currency is not None else None

    @property
    def units(self) -> Units:
        """What it names of the order's lines and shipping; false when it names nothing."""
        return Units({line.id: line.quantity for line in self.lines}, self.shipping)


class Ticket(_Asked):
    """``POST /v1/tickets``: free text; a classifier reads order, amount and reason from it."""

    message: Annotated[LongText, StringConstraints(min_length=1)]
    order_id: ExternalId | None = None


class RevisionRequest(Strict):
    """``POST /v1/refunds/{id}/revisions``: other terms, for the ``terms_hash`` that was seen. At least one of amount, payment, reason and legs changes."""

    terms_hash: Annotated[str, StringConstraints(pattern="^[0-9a-f]{64}$")] | None = None
    payment_id: ExternalId | None = None
    amount: AskedAmount = None
    currency: Annotated[str, StringConstraints(min_length=1, max_length=12)] | None = None
    full: bool = False
    reason: Annotated[Reason | None, BeforeValidator(check_reason)] = None
    reverse_transfer: Annotated[bool | None, Field(strict=True)] = None
    refund_application_fee: Annotated[bool | None, Field(strict=True)] = None
    note: Annotated[CleanText, StringConstraints(max_length=5_000)] = ""
    sources: Annotated[
        dict[Statable, Stated], Field(description="Where the reviewer has a field from; otherwise it is their own word.")
    ] = {}

    _fields_in_scope = model_validator(mode="before")(check_fields)
    _sources_of_what_is_given = model_validator(mode="after")(check_sources)

    @model_validator(mode="after")
    def _something_changes(self) -> Self:
        if self.full and self.amount is not None:
            raise RefundError(Code.AMOUNT_AND_FULL, field="full")
        legs = self.reverse_transfer is not None or self.refund_application_fee is not None
        if self.amount is None and not self.full and self.payment_id is None and self.reason is None and not legs:
            raise RefundError(Code.TERMS_UNCHANGED, "Give another amount, payment_id, reason or other legs.", field="amount")
        if self.amount is not None:
            if self.currency is None:
                raise RefundError(Code.UNKNOWN_CURRENCY, "An amount needs its currency.", field="currency")
            requested(self.amount, self.currency)
        return self
