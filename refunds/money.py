"""Money: an integer in the unit Stripe's API takes for the currency, always together with the currency. No floats anywhere.

One table of exponents, used in both directions. A currency that is not in it is refused, never guessed.
Sources: https://docs.stripe.com/currencies (zero-decimal, three-decimal, special cases); ISO 4217.
"""

import re
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from functools import cache

from babel import Locale, UnknownLocaleError
from babel.numbers import format_currency, get_decimal_symbol, get_group_symbol

from refunds.errors import Code, RefundError

MAX_AMOUNT = 99_999_999_999
"""The largest amount taken in one request, in minor units: far above any card payment, far below what overflows a bigint sum."""

_ZERO = "BIF CLP DJF GNF JPY KMF KRW MGA PYG RWF VND VUV XAF XOF XPF"
# ISO 4217 gives these no decimals, but Stripe takes them with two that must be 00 (docs.stripe.com/currencies, "Special cases").
_TWO_BUT_WHOLE = "ISK UGX"
_THREE = "BHD JOD KWD OMR TND"
_TWO = (
    "AED AFN ALL AMD ANG AOA ARS AUD AWG AZN BAM BBD BDT BGN BMD BND BOB BRL BSD BTN BWP BYN BZD CAD CDF CHF CNY COP CRC CVE CZK"
    " DKK DOP DZD EGP ETB EUR FJD FKP GBP GEL GHS GIP GMD GTQ GYD HKD HNL HTG HUF IDR ILS INR JMD KES KGS KHR KYD KZT LAK LBP LKR"
    " LRD LSL MAD MDL MKD MMK MNT MOP MUR MVR MWK MXN MYR MZN NAD NGN NIO NOK NPR NZD PAB PEN PGK PHP PKR PLN QAR RON RSD RUB SAR"
    " SBD SCR SEK SGD SHP SLE SOS SRD STD SZL THB TJS TOP TRY TTD TWD TZS UAH USD UYU UZS WST XCD YER ZAR ZMW"
)


@dataclass(frozen=True, slots=True)
class Currency:
    """One currency: its upper-case ISO code, the decimals of the API's unit, and the multiple every amount must be of."""

    code: str
    exponent: int
    multiple: int = 1

    @property
    def shown_decimals(self) -> int:
        """How many decimals a person reads: none for ISK and UGX although the API's unit has two."""
        return 0 if self.multiple == 100 else self.exponent


CURRENCIES: dict[str, Currency] = {
    **{code: Currency(code, 0) for code in _ZERO.split()},
    **{code: Currency(code, 2) for code in _TWO.split()},
    **{code: Currency(code, 2, multiple=100) for code in _TWO_BUT_WHOLE.split()},
    **{code: Currency(code, 3, multiple=10) for code in _THREE.split()},
}


def currency(code: str) -> Currency:
    """Look a currency up, in any case. Raises ``UNKNOWN_CURRENCY``: an exponent that is not in the table is never guessed."""
    known = CURRENCIES.get(code.strip().upper())
    if known is None:
        raise RefundError(Code.UNKNOWN_CURRENCY, f"The currency {code[:12]!r} is not one that can be refunded here.", field="currency")
    return known


@dataclass(frozen=True, slots=True)
class Money:
    """An amount and its currency. ``amount`` is in the unit Stripe's API takes (cents, yen, thousandths of a dinar)."""

    amount: int
    currency: str

    def __post_init__(self) -> None:
        if type(self.amount) is not int:
            raise TypeError("an amount is an integer of minor units")
        object.__setattr__(self, "currency", currency(self.currency).code)

    def __str__(self) -> str:
        return format_money(self)


def requested(amount: int, code: str) -> Money:
    """Check an amount somebody asks for and return it.

    Raises ``AMOUNT_NOT_POSITIVE``, ``AMOUNT_TOO_LARGE``, ``UNKNOWN_CURRENCY`` or ``AMOUNT_NOT_SENDABLE`` (the currency's smallest step
    does not divide it; the nearest amounts that can be sent are named, nothing is rounded).
    """
    kind = currency(code)
    if amount <= 0:
        raise RefundError(Code.AMOUNT_NOT_POSITIVE, f"The amount is {amount}; it must be at least 1.", field="amount")
    if amount > MAX_AMOUNT:
        raise RefundError(Code.AMOUNT_TOO_LARGE, f"The amount is above {MAX_AMOUNT}.", field="amount")
    if amount % kind.multiple:
        lower = amount - amount % kind.multiple
        offers = [format_money(Money(a, kind.code)) for a in (lower, lower + kind.multiple) if a > 0]
        raise RefundError(
            Code.AMOUNT_NOT_SENDABLE,
            f"{kind.code} amounts must be a multiple of {kind.multiple}; ask for {' or '.join(offers)}.",
            field="amount",
        )
    return Money(amount, kind.code)


def format_money(money: Money, locale: str = "en_US") -> str:
    """Write an amount as people of that locale read it, with every decimal of the currency: ``$30.00``, ``¥5,800``, ``KWD 18.600``."""
    kind = currency(money.currency)
    value = Decimal(money.amount).scaleb(-kind.exponent)
    decimals = kind.shown_decimals
    shown = value.quantize(Decimal(1).scaleb(-decimals)) if value == round(value, decimals) else value
    places = max(0, -int(shown.as_tuple().exponent))
    pattern = "¤#,##0" + ("." + "0" * places if places else "")
    text = format_currency(shown, kind.code, format=_pattern(locale, places) or pattern, locale=locale, currency_digits=False)
    return text.replace("\xa0", " ").replace("\u202f", " ")


@cache
def _pattern(locale: str, places: int) -> str:
    """The locale's own currency pattern with exactly ``places`` decimals."""
    raw = str(Locale.parse(locale).currency_formats["standard"].pattern).split(";")[0]
    head = re.sub(r"\.[0#]+", "", raw)
    decimals = "." + "0" * places if places else ""
    return re.sub(r"(0)(?=[^0#,]*$)", lambda m: m.group(1) + decimals, head, count=1)


def parse_amount(text: str, code: str, locale: str = "en_US") -> Money:
    """Read an amount a person typed, strictly by the locale, and return it in API units.

    Grouping must be in the right places, the decimal sign must be the locale's, and more decimals than the currency has are an error.
    Raises ``AMOUNT_UNREADABLE`` with what was expected, or the errors of :func:`requested`. Nothing is rounded.
    """
    kind = currency(code)
    try:
        parsed = Locale.parse(locale)
    except (UnknownLocaleError, ValueError) as error:
        raise RefundError(Code.AMOUNT_UNREADABLE, f"The locale {locale[:20]!r} is not known.", field="locale") from error
    point, group = get_decimal_symbol(parsed), get_group_symbol(parsed)
    groups = r"[\s\u00a0\u202f]" if group.isspace() else re.escape(group)
    shape = rf"(?:\d{{1,3}}(?:{groups}\d{{3}})+|\d+)(?:{re.escape(point)}(\d+))?"
    match = re.fullmatch(shape, text.strip(), flags=re.ASCII)
    decimals = kind.shown_decimals
    if match is None or len(match.group(1) or "") > max(decimals, 0):
        example = format_money(Money(123_450_000 // kind.multiple * kind.multiple, kind.code), locale)
        raise RefundError(
            Code.AMOUNT_UNREADABLE,
            f"{text[:40]!r} is not an amount in {kind.code} as written in {locale}; write it like {example}.",
            field="amount",
        )
    plain = re.sub(groups, "", text.strip()).replace(point, ".")
    try:
        minor = Decimal(plain).scaleb(kind.exponent)
    except InvalidOperation as error:  # the shape above leaves digits only; kept so that a surprise stays an error of the input
        raise RefundError(Code.AMOUNT_UNREADABLE, f"{text[:40]!r} is not a number.", field="amount") from error
    return requested(int(minor), kind.code)
