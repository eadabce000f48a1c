"""Money: an integer in the unit Stripe's API takes for the currency, always together with the currency. No floats anywhere.

One table of exponents, used in both directions. A currency that is not in it is refused, never guessed.
Sources: https://docs.stripe.com/currencies (zero-decimal, three-decimal, special cases); ISO 4217.
"""

import re
import unicodedata
from dataclasses import dataclass
from functools import cache, lru_cache

from babel import Locale, UnknownLocaleError
from babel.numbers import get_currency_symbol, get_decimal_symbol, get_group_symbol

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

    Raises ``AMOUNT_NOT_INTEGER``, ``AMOUNT_NOT_POSITIVE``, ``AMOUNT_TOO_LARGE``, ``UNKNOWN_CURRENCY`` or ``AMOUNT_NOT_SENDABLE`` (the currency's smallest
    step does not divide it; the nearest amounts that can be sent are named, nothing is rounded). Zero never means everything (field report 45).
    """
    kind = currency(code)
    if type(amount) is not int:
        raise RefundError(Code.AMOUNT_NOT_INTEGER, field="amount")
    least, most = Money(kind.multiple, kind.code), Money(MAX_AMOUNT - MAX_AMOUNT % kind.multiple, kind.code)
    if amount <= 0:
        given = "zero" if amount == 0 else "below zero"
        what = f"The amount is {given}; ask for at least {format_money(least)} ({least.amount}), or for everything with full: true."
        raise RefundError(Code.AMOUNT_NOT_POSITIVE, what, field="amount")
    if amount > most.amount:
        what = f"The amount is above {format_money(most)} ({most.amount}); amounts are in the currency's smallest unit."
        raise RefundError(Code.AMOUNT_TOO_LARGE, what, field="amount")
    if amount % kind.multiple:
        lower = amount - amount % kind.multiple
        offers = [f"{format_money(Money(a, kind.code))} ({a})" for a in (lower, lower + kind.multiple) if 0 < a <= most.amount]
        raise RefundError(
            Code.AMOUNT_NOT_SENDABLE,
            f"{kind.code} amounts must be a multiple of {kind.multiple}; ask for {' or '.join(offers)}.",
            field="amount",
        )
    return Money(amount, kind.code)


def format_money(money: Money, locale: str = "en_US") -> str:
    """Write an amount as people of that locale read it, with every decimal of the currency: ``$30.00``, ``¥5,800``, ``KWD 18.600``.

    Spaces are plain ones. Raises ``INVALID_FIELD`` for a locale that is not known.
    """
    return _formatted(money.amount, money.currency, locale)


@lru_cache(maxsize=8_192)
def _formatted(amount: int, code: str, locale: str) -> str:
    kind, known = currency(code), _locale(locale)
    digits = str(abs(amount)).rjust(kind.exponent + 1, "0")
    whole, decimals = (digits[: -kind.exponent], digits[-kind.exponent :]) if kind.exponent else (digits, "")
    if not decimals.strip("0"):
        decimals = decimals[: kind.shown_decimals]
    number = _grouped(whole, known) + (get_decimal_symbol(known) + decimals if decimals else "")
    pattern, symbol = known.currency_formats["standard"], get_currency_symbol(kind.code, known)
    prefix, suffix = pattern.prefix[amount < 0], pattern.suffix[amount < 0]
    text = _spaced(prefix.replace("¤", symbol) + number + suffix.replace("¤", symbol), symbol)
    return text.translate(_SPACES)


def _grouped(whole: str, locale: Locale) -> str:
    """The digits in the locale's groups: three and three in most, three and then two in India."""
    last, others = locale.currency_formats["standard"].grouping
    head, groups = whole[:-last], [whole[-last:]]
    while head:
        head, group = head[:-others], head[-others:]
        groups.insert(0, group)
    return get_group_symbol(locale).join(groups)


def _spaced(text: str, symbol: str) -> str:
    """Put a space between a digit and a symbol of letters, as CLDR's spacing rule has it (UTS 35, part 3, "Currency Formats")."""
    for edge, pattern, between in (
        (symbol[-1], rf"({re.escape(symbol)})(?=\d)", r"\1 "),
        (symbol[0], rf"(?<=\d)({re.escape(symbol)})", r" \1"),
    ):
        if unicodedata.category(edge)[0] not in "SZ":
            text = re.sub(pattern, between, text)
    return text


@cache
def _locale(name: str) -> Locale:
    """The locale of that name, written ``de_DE`` or ``de-DE``. Raises ``INVALID_FIELD`` for one that is not known."""
    try:
        if not re.fullmatch(r"[A-Za-z]{2,8}(?:[_-][A-Za-z0-9]{1,8}){0,3}", name):
            raise ValueError(name)
        return Locale.parse(name.replace("-", "_"))
    except (UnknownLocaleError, ValueError) as error:
        what = f"The locale {name[:20]!r} is not known; write one such as en_US or de_DE."
        raise RefundError(Code.INVALID_FIELD, what, field="locale") from error


def parse_amount(text: str, code: str, locale: str = "en_US") -> Money:
    """Read an amount a person typed to be sent, strictly by the locale, and return it in API units.

    Raises what :func:`read_amount` and :func:`requested` raise. Nothing is rounded.
    """
    return requested(read_amount(text, code, locale).amount, code)


def read_amount(text: str, code: str, locale: str = "en_US") -> Money:
    """Read an amount a person wrote, strictly by the locale, and return it in API units: a tax of zero, or of one thousandth of a dinar, is one too.

    Grouping must be in the right places, the decimal sign must be the locale's, and more decimals than the currency has are an error. The currency's
    symbol in that locale or its code may stand before or after, as :func:`format_money` writes it; another currency's may not. Raises
    ``AMOUNT_UNREADABLE`` with what was expected, ``INVALID_FIELD`` for an unknown locale, or ``UNKNOWN_CURRENCY``. Nothing is rounded.
    """
    kind, known = currency(code), _locale(locale)
    bare = _without_currency(text, kind, known) if len(text) <= _LONGEST_TEXT else ""
    match = _shape(known).fullmatch(bare)
    if match is None or len(match["decimals"] or "") > kind.shown_decimals:
        example = format_money(Money(1_234 * 10**kind.exponent, kind.code), locale)
        raise RefundError(
            Code.AMOUNT_UNREADABLE,
            f"{text[:40]!r} is not an amount in {kind.code} as written in {locale}; write it like {example}.",
            field="amount",
        )
    decimals = (match["decimals"] or "").ljust(kind.exponent, "0")
    return Money(int(re.sub(r"\D", "", match["whole"]) + decimals), kind.code)


_LONGEST_TEXT = 64
_SPACES = dict.fromkeys(map(ord, "\u00a0\u202f\u2009"), " ")
_PLAIN = _SPACES | dict.fromkeys(map(ord, "\u200e\u200f\u061c"))
"""To plain spaces, and without the marks of writing direction that some locales put around symbols."""


def _without_currency(text: str, kind: Currency, locale: Locale) -> str:
    """The text with plain spaces, without direction marks, spaces around it, and one mention of the currency."""
    bare = text.translate(_PLAIN).strip()
    for mark in (get_currency_symbol(kind.code, locale).translate(_PLAIN).strip(), kind.code):
        if bare.startswith(mark):
            return bare.removeprefix(mark).lstrip()
        if bare.endswith(mark):
            return bare.removesuffix(mark).rstrip()
    return bare


@cache
def _shape(locale: Locale) -> re.Pattern[str]:
    """What an amount looks like in the locale: digits, grouped in the right places or not at all, and decimals."""
    point, group = re.escape(get_decimal_symbol(locale)), get_group_symbol(locale)
    between = " " if group.isspace() else "['\u2019]" if group in "'\u2019" else re.escape(group)
    last, others = locale.currency_formats["standard"].grouping
    grouped = rf"\d{{1,{others}}}(?:{between}\d{{{others}}})*{between}\d{{{last}}}"
    return re.compile(rf"(?P<whole>{grouped}|\d+)(?:{point}(?P<decimals>\d+))?", re.ASCII)
