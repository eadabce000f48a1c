"""The merchant's order, as it is sent to us: customer, times, lines, tax, shipping and how it was paid."""

import re
import unicodedata
from datetime import datetime
from enum import StrEnum
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, AwareDatetime, BaseModel, BeforeValidator, ConfigDict, Field, StringConstraints, model_validator
from pydantic_core import PydanticCustomError

from refunds.errors import Code
from refunds.masking import holds_a_card_number
from refunds.money import MAX_AMOUNT, currency
from refunds.payment_ids import answer_for, by_its_prefix, unfit_for_manual
from refunds.processor import STRIPE


def _no_control_characters(text: str) -> str:
    if re.search(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]", text):
        raise ValueError("control characters such as NUL are not taken")
    return text


def _visible(text: str) -> str:
    if all(unicodedata.category(character)[0] in "ZC" for character in text):
        raise ValueError("it is blank: write it out")
    return text


def _plausible(moment: datetime) -> datetime:
    if not 1970 <= moment.year <= 2999:
        raise ValueError("write a year from 1970 to 2999")
    return moment


def _written(value: object) -> object:
    """Only a time that is written as one: a bare number would be taken for seconds since 1970, and a spreadsheet's date is days since 1900."""
    if isinstance(value, str):
        if not re.match(r"\d{4}-\d{2}-\d{2}[Tt ]", value):
            raise ValueError("write it like 2026-03-01T12:00:00Z")
        return datetime.fromisoformat(value.upper())
    if isinstance(value, int | float):
        raise ValueError("write it as text like 2026-03-01T12:00:00Z")
    return value


def _known_currency(code: str) -> str:
    return currency(code).code


CleanText = Annotated[str, AfterValidator(_no_control_characters)]
"""Text without control characters (tab, line feed and carriage return are text)."""

Said = Annotated[
    str, StringConstraints(min_length=1, strip_whitespace=True), AfterValidator(_no_control_characters), AfterValidator(_visible)
]
"""Words that somebody wrote for others to read: something of them can be seen. The users say how long they may be."""

ShortText = Annotated[Said, StringConstraints(max_length=200)]
"""A name or a few words: not only blanks."""


def _no_card_number(value: str) -> str:
    if holds_a_card_number(value):
        raise ValueError("it looks like a card number, which is never kept: send an id of your own instead")
    return value


ExternalId = Annotated[ShortText, AfterValidator(_no_card_number)]
"""An id somebody else chose. It is kept and shown, so one that looks like a card number is refused."""

Instant = Annotated[AwareDatetime, BeforeValidator(_written), AfterValidator(_plausible)]
"""A time with its zone, in the years 1970 to 2999."""

CoarseWord = Annotated[str, StringConstraints(pattern=r"^[A-Za-z][A-Za-z0-9_-]{0,39}$")]
"""A word for a kind of customer or a place, too short and too plain for a name or an address."""

CurrencyCode = Annotated[str, StringConstraints(min_length=3, max_length=3), AfterValidator(_known_currency)]
Amount = Annotated[int, Field(strict=True, ge=0, le=MAX_AMOUNT)]
UnitCount = Annotated[int, Field(strict=True, ge=0, le=1_000_000)]


def _absent(value: object) -> bool:
    return value in (None, 0)


def _is_none(value: object) -> bool:
    return value is None


class Strict(BaseModel):
    """A value from outside: unknown fields are refused, nothing is converted silently."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class OrderLine(Strict):
    """One line: ``amount`` is its whole price in minor units of the order's currency, before ``discount`` and without ``tax``.

    ``shipped`` and ``returned`` count its units that were sent and that came back; ``None`` is not known. Without ``tax`` it takes part in what the
    order's tax has beyond the lines' own. What is not stated is not stored, so an order without any of it stays the same, byte by byte.
    """

    id: ExternalId
    title: Annotated[CleanText, StringConstraints(max_length=500)] = ""
    category: Annotated[CleanText, StringConstraints(max_length=100)] = ""
    quantity: Annotated[int, Field(strict=True, ge=1, le=1_000_000)] = 1
    amount: Amount
    tax: Annotated[Amount | None, Field(exclude_if=_is_none)] = None
    discount: Annotated[Amount, Field(exclude_if=_absent)] = 0
    shipped: Annotated[UnitCount | None, Field(exclude_if=_is_none)] = None
    returned: Annotated[UnitCount | None, Field(exclude_if=_is_none)] = None

    @model_validator(mode="after")
    def _of_what_there_is(self) -> Self:
        if self.discount > self.amount:
            raise ValueError("discount: a line's discount is at most its amount")
        if self.shipped is not None and self.shipped > self.quantity:
            raise ValueError("shipped: at most the line's quantity")
        if self.returned is not None and self.returned > (self.quantity if self.shipped is None else self.shipped):
            raise ValueError("returned: at most what was shipped, and at most the line's quantity")
        return self


class Tender(StrEnum):
    """What a manual payment was paid with: what a person has to give back."""

    GIFT_CARD = "gift_card"
    STORE_CREDIT = "store_credit"
    CASH = "cash"
    BANK_TRANSFER = "bank_transfer"
    OTHER = "other"

    @property
    def how(self) -> str:
        """How it is given back, in words that follow an amount."""
        return _HOW[self]


_HOW = {
    Tender.GIFT_CARD: "on the gift card",
    Tender.STORE_CREDIT: "as store credit",
    Tender.CASH: "in cash",
    Tender.BANK_TRANSFER: "by bank transfer",
    Tender.OTHER: "the way it was paid",
}


class OrderPayment(Strict):
    """How it was paid: a Stripe PaymentIntent (``pi_...``) or charge (``ch_...``), and what the merchant believes was taken.

    What no processor can return has ``processor: "manual"``, its ``tender``, and an id of its own among all such payments, which is not that of anything
    at the processor. There the amount is the record: nobody else can be asked what was taken. ``processor_customer`` is the customer at Stripe (``cus_...``)
    that it is of, as far as the merchant knows: another one at Stripe is a sign of fraud.
    """

    processor: Literal["stripe", "manual"] = STRIPE
    id: Annotated[ExternalId, StringConstraints(max_length=120)]
    amount: Annotated[int, Field(strict=True, ge=1, le=MAX_AMOUNT)]
    currency: CurrencyCode
    tender: Annotated[Tender | None, Field(exclude_if=_is_none)] = None
    processor_customer: Annotated[str | None, Field(exclude_if=_is_none, pattern=r"^cus_[A-Za-z0-9_]{1,100}$")] = None

    @model_validator(mode="after")
    def _of_its_kind(self) -> Self:
        if self.processor == STRIPE:
            if (kind := by_its_prefix(self.id)) is not None:
                code, what = answer_for(kind)
                raise _about("id", what, code)
            if not re.fullmatch(r"(pi|ch|py)_[A-Za-z0-9_]{1,100}", self.id):
                raise _about("id", "A payment at Stripe is named by its PaymentIntent (pi_...) or charge (ch_..., py_...).")
            if self.tender is not None:
                raise _about("tender", 'Only a payment with processor "manual" has a tender.')
            return self
        if self.processor_customer is not None:
            raise _about("processor_customer", "Only a payment at Stripe has a customer there.")
        if self.tender is None:
            raise _about("tender", f"Say what it was paid with, one of {', '.join(Tender)}.")
        if (why := unfit_for_manual(self.id)) is not None:
            raise _about("id", why)
        return self


def _about(field: str, what: str, code: Code = Code.INVALID_FIELD) -> PydanticCustomError:
    """What is wrong with one field of an object that can only be judged as a whole."""
    return PydanticCustomError(code.value, "{what}", {"field": field, "what": what})


class Order(Strict):
    """An order. Every PUT is a new version; terms name the version they were quoted on.

    ``tax`` and ``discount`` are of the whole order: what lines state of either is part of it, and zero means that it is only what the lines state.
    ``legal_entity``, ``customer_type`` and ``geography`` are recorded with every refund of it; they are coarse words (``consumer``, ``US-CA``), never an
    address. ``shipping`` is without tax. How they are spread over lines and shipping is said in :mod:`refunds.allocation`.
    """

    customer_id: ExternalId
    customer_since: Instant | None = None
    placed_at: Instant | None = None
    delivered_at: Instant | None = None
    currency: CurrencyCode
    lines: Annotated[list[OrderLine], Field(max_length=1000)] = []
    tax: Amount = 0
    shipping: Amount = 0
    discount: Annotated[Amount, Field(exclude_if=_absent)] = 0
    payments: Annotated[list[OrderPayment], Field(max_length=50)] = []
    legal_entity: Annotated[ShortText | None, Field(exclude_if=_is_none)] = None
    customer_type: Annotated[CoarseWord | None, Field(exclude_if=_is_none)] = None
    geography: Annotated[CoarseWord | None, Field(exclude_if=_is_none)] = None

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        ids = [p.id for p in self.payments]
        if len(set(ids)) != len(ids):
            raise ValueError("payments: each payment may be named once")
        lines = [line.id for line in self.lines]
        if len(set(lines)) != len(lines):
            raise ValueError("lines: each line id may be used once")
        for name, whole in (("tax", self.tax), ("discount", self.discount)):
            of_lines = sum(getattr(line, name) or 0 for line in self.lines)
            if whole and of_lines > whole:
                raise ValueError(f"{name}: the lines' come to {of_lines}, more than the order's {whole}, which includes them")
        if self.lines and self.discount > (priced := sum(line.amount for line in self.lines) + self.shipping):
            raise ValueError(f"discount: at most what lines and shipping come to, {priced}")
        placed: datetime | None = self.placed_at
        if placed and self.delivered_at and self.delivered_at < placed:
            raise ValueError("delivered_at is before placed_at")
        return self

    @property
    def categories(self) -> tuple[str, ...]:
        """The categories of its lines, each once, sorted."""
        return tuple(sorted({line.category for line in self.lines if line.category}))
