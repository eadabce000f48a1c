"""Exchange rates: what an amount of one currency is worth in another, exactly, for limits that count all currencies together.

Nothing that is refunded is ever converted: a refund is in its payment's currency (field report 34). A rate only says what it counts as. Rates are decimals
written as text and calculated with as whole numbers; there are no floats.
"""

import re
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal

from refunds.errors import Code, RefundError
from refunds.money import Money, currency, format_money

_WRITTEN = re.compile(r"(?:0|[1-9][0-9]{0,11})(?:\.[0-9]{1,18})?")
FORM = "up to 12 digits before the point and 18 behind it, such as 1.0834"
"""How a rate is written."""


def base_currency(code: str) -> str:
    """The code of a base currency, in any case. Raises ``UNKNOWN_CURRENCY``, naming the field ``base``."""
    try:
        return currency(code).code
    except RefundError as error:
        raise RefundError(error.code, error.detail, field="base") from error


@dataclass(frozen=True, slots=True)
class Rate:
    """One ``currency`` is ``text`` of ``base``, both in major units: ``Rate("USD", "EUR", "1.0834")`` says that 1 EUR is 1.0834 USD.

    Raises ``UNKNOWN_CURRENCY``, and ``INVALID_FIELD`` for a rate that is not a plain decimal above zero or is of a currency to itself. ``text`` is kept in
    its shortest form: ``1.0800`` and ``1.08`` are one rate.
    """

    base: str
    currency: str
    text: str

    def __post_init__(self) -> None:
        object.__setattr__(self, "base", base_currency(self.base))
        object.__setattr__(self, "currency", currency(self.currency).code)
        if self.base == self.currency:
            raise RefundError(Code.INVALID_FIELD, f"A rate of {self.base} to itself is not needed: it is one.", field="currency")
        if not _WRITTEN.fullmatch(self.text) or not Decimal(self.text):
            raise RefundError(Code.INVALID_FIELD, f"{self.text[:40]!r} is not a rate; write it above zero, with {FORM}.", field="rate")
        object.__setattr__(self, "text", format(Decimal(self.text).normalize(), "f"))

    def __str__(self) -> str:
        return f"1 {self.currency} = {self.text} {self.base}"

    def worth(self, money: Money) -> Money:
        """What an amount counts as in the base currency: exact, then rounded up to its next unit, so that no limit comes out looser by rounding.

        Each amount is rounded by itself: parts of an amount never count as less than the whole. Raises ``ValueError`` for an amount in another currency or
        below zero.
        """
        if money.currency != self.currency or money.amount < 0:
            raise ValueError(f"{money.amount} {money.currency} cannot be counted by the rate {self}")
        numerator, denominator = Decimal(self.text).as_integer_ratio()
        above = money.amount * numerator * 10 ** currency(self.base).exponent
        below = denominator * 10 ** currency(self.currency).exponent
        return Money(-(-above // below), self.base)

    def shown(self) -> str:
        """The rate with an example, for people who check what they typed: ``1 EUR = 1.0834 USD, so €100.00 count as $108.34``."""
        example = Money(100 * 10 ** currency(self.currency).exponent, self.currency)
        return f"{self}, so {format_money(example)} count as {format_money(self.worth(example))}"


@dataclass(frozen=True, slots=True)
class RecordedRate:
    """A rate as it was recorded: its id, and from when on it holds. It is never edited; a newer one is another."""

    id: str
    rate: Rate
    effective_at: datetime

    def is_too_old(self, at: datetime, most_days: int) -> bool:
        """Whether it had held for more than so many days of 24 hours at that time."""
        return at - self.effective_at > timedelta(days=most_days)
