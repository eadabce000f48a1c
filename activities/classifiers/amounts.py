"""Reading the amount a customer asks for out of a sentence, strictly: one clear amount or none. Nothing is rounded and nothing is guessed."""

import re
from dataclasses import dataclass

from refunds.errors import RefundError
from refunds.money import CURRENCIES, Money, parse_amount

_OTHER_DOLLARS = (  # and the pesos of Mexico, which are written the same
    *("AUD", "BBD", "BMD", "BND", "BSD", "BZD", "CAD", "FJD", "GYD", "HKD", "JMD", "KYD", "LRD", "MXN", "NAD", "NZD"),
    *("SBD", "SGD", "TTD", "TWD"),
)
# What a sign or a word may stand for. The first is meant when the order's currency is not known; a known one must be in the row, or nothing is read.
_SIGNS: dict[str, tuple[str, ...]] = {
    "$": ("USD", *_OTHER_DOLLARS),
    "€": ("EUR",),
    "£": ("GBP",),
    "¥": ("JPY", "CNY"),
    "₩": ("KRW",),
    "₹": ("INR",),
}
_WORDS: dict[str, str] = {
    "dollar": "$",
    "dollars": "$",
    "bucks": "$",
    "euro": "€",
    "euros": "€",
    "pounds": "£",
    "yen": "¥",
    "us$": "USD",
    "ca$": "CAD",
    "c$": "CAD",
    "au$": "AUD",
    "a$": "AUD",
    "nz$": "NZD",
    "hk$": "HKD",
    "s$": "SGD",
}
_NUMBER = r"\d[\d.,]*"
_PREFIX = "|".join([r"[A-Za-z]{1,2}\$", *map(re.escape, _SIGNS), *sorted(CURRENCIES)])
_SUFFIX = "|".join([*map(re.escape, _SIGNS), *sorted(CURRENCIES), *(word for word in _WORDS if word.isalpha())])
# Codes are read in capitals or small letters ("30 usd"); a sign of minus, a percent or letters glued to the number make it something else.
PATTERN = re.compile(
    r"(?P<minus>-\s?)?(?<![\w.,$€£¥])"
    rf"(?:(?P<before>{_PREFIX})\s?(?P<inner>-)?(?P<one>{_NUMBER})|(?P<two>{_NUMBER})\s?(?P<after>{_SUFFIX})(?!\w))"
    r"(?P<glued>\w|%)?",
    re.ASCII | re.IGNORECASE,
)
# A price that was paid is not the amount that is asked for.
_PRICE = re.compile(
    r"\b(?:paid|pay|price|priced|costs?|costing|worth|value|valued|charged|billed|spent|total|debited)\b[^.!?\n]{0,24}$", re.IGNORECASE
)
# A share of something is an amount only when one knows of what.
_SHARE = re.compile(r"\d\s?%|\bper\s?cent\b|\bhalf\b", re.IGNORECASE)
MAX_WRITTEN = 64


@dataclass(frozen=True, slots=True)
class AmountRead:
    """``text`` is the one amount as written; ``money`` the same when it could be read strictly.

    ``unclear`` is true when an amount is asked for but no single one could be read: that must not look like a request that names none.
    """

    text: str | None = None
    money: Money | None = None
    unclear: bool = False


def read_amount(text: str, currency: str | None = None) -> AmountRead:
    """The one amount this text asks for. ``currency`` is the order's, when it is known.

    Several different amounts, a minus, a percentage or a number that is not written as that currency is written give no ``money``; prices that
    were paid are left out. The result is never above what ``refunds.money`` takes.
    """
    found: dict[str, Money | None] = {}
    for match in PATTERN.finditer(text):
        if not _PRICE.search(text[max(0, match.start() - 48) : match.start()]):
            found.setdefault(match[0].strip(), _money(match, currency))
    if not found:
        return AmountRead(unclear=bool(_SHARE.search(text)))
    written, money = next(iter(found.items()))
    if len(set(found.values())) > 1 or _SHARE.search(text) or len(written) > MAX_WRITTEN:
        return AmountRead(unclear=True)
    return AmountRead(written, money, unclear=money is None)


def _money(match: re.Match[str], currency: str | None) -> Money | None:
    if match["minus"] or match["inner"] or match["glued"]:
        return None
    code = _code(match["before"] or match["after"], currency)
    number = (match["one"] or match["two"]).rstrip(".,")  # the full stop of the sentence
    if code is None:
        return None
    try:
        return parse_amount(number, code)
    except RefundError:
        return None


def _code(sign: str, currency: str | None) -> str | None:
    known = currency.upper() if currency else None
    mark = _WORDS.get(sign.lower(), sign)
    if mark in _SIGNS:
        row = _SIGNS[mark]
        return (known if known in row else None) if known else row[0]
    return mark.upper() if mark.upper() in CURRENCIES else None
