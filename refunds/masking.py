"""What people type and nobody may keep: card numbers and their security codes, bank accounts, keys, passwords. Masked before anything is stored or shown to a model.

Only what is known by its form is masked: a card number has a network's prefix and length and passes the Luhn check, an IBAN its country's length and check digits
(ISO 13616), a key its maker's prefix. Order numbers, amounts, dates and tracking numbers have none of these and stay. Written apart, with other digits
(full-width, Arabic) or with invisible characters between, they are the same numbers.
"""

import re
import unicodedata
from collections import Counter
from collections.abc import Iterator
from enum import StrEnum
from itertools import pairwise
from typing import NamedTuple

from refunds import secret_forms


class Kind(StrEnum):
    """What was masked."""

    CARD = "card"
    CVC = "cvc"
    IBAN = "iban"
    SECRET = "secret"
    PASSWORD = "password"

    @property
    def mark(self) -> str:
        """What stands in its place."""
        return _MARKS[self]


_MARKS = {
    Kind.CARD: "[card number removed]",
    Kind.CVC: "[security code removed]",
    Kind.IBAN: "[bank account removed]",
    Kind.SECRET: "[secret removed]",
    Kind.PASSWORD: "[password removed]",
}


class Masked(NamedTuple):
    """A text without what nobody may keep, and how often each kind was in it."""

    text: str
    counts: dict[str, int]


def mask(text: str) -> Masked:
    """Take out of a text what nobody may keep; safe to repeat, because no mark looks like what it stands for."""
    counts = Counter[str]()
    for _ in range(_MOST_LAYERS):  # what stood right beside something that went may be seen only now
        text, found = _mask_once(text)
        counts += found
        if not found:
            break
    return Masked(text, dict(counts))


_MOST_LAYERS = 5


def _mask_once(text: str) -> tuple[str, Counter[str]]:
    flat, places = _flat(text)
    parts: list[str] = []
    at, counts = 0, Counter[str]()
    for start, end, kind in sorted(_spans(flat), key=lambda span: (span[0], -span[1])):
        first, last = places[start], places[end - 1] + 1
        if first < at:
            continue
        parts += [text[at:first], kind.mark]
        counts[kind.value] += 1
        at = last
    return "".join([*parts, text[at:]]) if counts else text, counts


def mask_field(name: str, value: str) -> Masked:
    """The same for the value of a field, whose name may say what it is: of ``{"password": "rosebud"}`` the value goes, although it is a word."""
    if value.strip() and value != Kind.PASSWORD.mark and secret_forms.names_a_password(name):
        return Masked(Kind.PASSWORD.mark, {Kind.PASSWORD.value: 1})
    named = mask(f"{name}={value}")
    if named.counts and named.text.startswith(f"{name}="):
        return Masked(named.text[len(name) + 1 :], named.counts)
    return mask(value)


def holds_a_card_number(text: str) -> bool:
    """Whether there is a card number in a text that is meant as an id. Of 13 digits, which many ids have, there are hardly any cards."""
    flat = _flat(text)[0]
    return any(sum(character.isdigit() for character in flat[start:end]) > 13 for start, end in _cards(flat))


# --- reading through disguises -----------------------------------------------------------------------------------------------------------


def _flat(text: str) -> tuple[str, range | list[int]]:
    """The text with plain digits and letters and without invisible characters, and where each of its characters stands in the text."""
    if text.isascii() and _ESCAPE.search(text) is None:
        return text, range(len(text))
    flat: list[str] = []
    places: list[int] = []
    escapes = {found.start(): found.end() for found in _ESCAPE.finditer(text)}
    hidden_until = 0
    for place, character in enumerate(text):
        if place < hidden_until:
            continue
        if (end := escapes.get(place)) is not None:
            plain, hidden_until = " ", end
        else:
            plain = character if character.isascii() else _plain(character)
        if plain:
            flat.append(plain)
            places.append(place)
    return "".join(flat), places


def _plain(character: str) -> str:
    """A character as it is read; empty for one that nobody sees."""
    category = unicodedata.category(character)
    if (digit := unicodedata.digit(character, None)) is not None:
        return str(digit)
    if (alike := _ALIKE.get(character)) is not None:
        return alike
    if category in _INVISIBLE:
        return ""
    if category in _BLANK:
        return " "
    if category == "Pd":
        return "-"
    plain = unicodedata.normalize("NFKC", character)
    return plain if len(plain) == 1 else character


_ESCAPE = re.compile(
    r"&(?:nbsp|ensp|emsp|thinsp|zwj|zwnj|shy|#\d{1,6}|#x[0-9a-f]{1,5});|%20|<br ?/?>|\\u[0-9a-f]{4}|\\[nrt]", re.IGNORECASE
)
"""What stands for a blank where a mail or a page was pasted."""
_INVISIBLE = ("Cf", "Mn", "Me", "Co")
_BLANK = ("Zs", "Zl", "Zp", "Cc")
_ALIKE = (
    dict.fromkeys("·•‧∙⋅・●…․", ".")
    | dict.fromkeys("\u2212\u2043", "-")
    | dict.fromkeys("⁄∕", "/")
    | dict.fromkeys("\u3164\u115f\u1160\uffa0\u2800", " ")
)

Span = tuple[int, int, Kind]


def _spans(flat: str) -> Iterator[Span]:
    if any(character.isdigit() for character in flat):
        for start, end in _cards(flat):
            yield start, end, Kind.CARD
            if beside := _BESIDE.match(flat, end):
                yield beside.start("code"), beside.end("code"), Kind.CVC
        for start, end in secret_forms.security_codes(flat):
            yield start, end, Kind.CVC
        for start, end in _ibans(flat):
            yield start, end, Kind.IBAN
    for start, end in secret_forms.keys(flat):
        yield start, end, Kind.SECRET
    for start, end in secret_forms.passwords(flat):
        yield start, end, Kind.PASSWORD


# --- card numbers ------------------------------------------------------------------------------------------------------------------------

_RUN = re.compile(r"\d(?:[\s._/*,:;|+~#()\[\]\"'-]{0,8}\d)*")
_GROUP = re.compile(r"\d+")
_LONGEST_LIST = 400
_AMEX, _DINERS = [4, 6, 5], [4, 6, 4]


def _cards(flat: str) -> Iterator[tuple[int, int]]:
    """Where card numbers are, from left to right and not overlapping."""
    for run in _RUN.finditer(flat):
        if run.end() - run.start() < 13:
            continue
        groups = [(found.start(), found.end()) for found in _GROUP.finditer(flat, run.start(), run.end())]
        # In a long list of numbers nobody writes a card digit by digit; looking for it there would take whoever serves the call long.
        least = 1 if len(groups) <= _LONGEST_LIST else 3
        at = 0
        while at < len(groups):
            last = _card_from(flat, groups, at) if groups[at][1] - groups[at][0] >= least else None
            if last is None:
                at += 1
                continue
            yield groups[at][0], groups[last][1]
            at = last + 1


def _card_from(flat: str, groups: list[tuple[int, int]], first: int) -> int | None:
    """The last of the groups that make a card number together with those from the first, the longest one; ``None`` when there is none."""
    found, digits = None, ""
    if flat[groups[first][0]] not in "2345689":  # how the number of any network begins
        return None
    for last in range(first, len(groups)):
        digits += flat[groups[last][0] : groups[last][1]]
        if len(digits) > 19:
            break
        if len(digits) >= 13 and _is_card(digits) and _written_as_one(flat, groups[first : last + 1]):
            found = last if _stands_alone(flat, groups[first][0], groups[last][1]) else found
    return found


def _written_as_one(flat: str, groups: list[tuple[int, int]]) -> bool:
    """Whether groups of digits look like one number: in the sizes cards are printed in, or of one size throughout."""
    sizes = [end - start for start, end in groups]
    between = {flat[before[1] : after[0]] for before, after in pairwise(groups)}
    in_fours = all(size == 4 for size in sizes[:-1]) and sizes[-1] <= 4
    if in_fours or sizes in (_AMEX, _DINERS):
        return True
    even = len(set(sizes[:-1])) <= 1 and (len(sizes) == 1 or sizes[-1] <= sizes[0])
    return len(between) <= 1 and (even or sizes[0] == 6)


def _is_card(digits: str) -> bool:
    return _NETWORKS.fullmatch(digits) is not None and passes_luhn(digits) and not _is_barcode(digits)


def _is_barcode(digits: str) -> bool:
    """Whether it is the number of an article (EAN-13): tickets are full of these, and cards of so few digits are hardly issued any more."""
    if len(digits) != 13:
        return False
    ones, threes = digits[-1::-2], digits[-2::-2]
    return (sum(map(int, ones)) + 3 * sum(map(int, threes))) % 10 == 0


_NETWORKS = re.compile(
    r"4\d{12}(?:\d{3}){0,2}"  # Visa: 13, 16, 19
    r"|(?:5[1-5]\d{2}|222[1-9]|22[3-9]\d|2[3-6]\d{2}|27[01]\d|2720)\d{12}"  # Mastercard
    r"|3[47]\d{13}"  # American Express
    r"|(?:30[0-5]|309|36\d|3[89]\d)\d{11}(?:\d{2,5})?"  # Diners Club: 14, and 16 to 19
    r"|35(?:2[89]|[3-8]\d)\d{12,15}"  # JCB
    r"|(?:6011|64[4-9]\d|65\d{2}|62\d{2}|81\d{2})\d{12,15}"  # Discover, UnionPay, RuPay
    r"|220[0-4]\d{12,15}|9792\d{12}"  # Mir, Troy
    r"|(?:50|5[6-9]|6\d)\d{14,17}"  # Maestro and other debit: 16 to 19; shorter ones are hardly issued, and shops number orders with 12 and 13 digits
)


def passes_luhn(digits: str) -> bool:
    """ISO/IEC 7812-1, annex B; a row of zeros passes it, and is no number of anybody's."""
    total = sum(map(int, digits[-1::-2])) + sum(_DOUBLED[digit] for digit in digits[-2::-2])
    return total % 10 == 0 and len(set(digits)) > 1


_DOUBLED = {str(digit): digit * 2 - (9 if digit > 4 else 0) for digit in range(10)}


_CARD_WORD = re.compile(
    r"(?:card|visa|mastercard|master|amex|maestro|karte|tarjeta|carte|carta|kort|kaart|pan|cc|mc|(?:^|[^A-Za-z])(?:no|nr|num|number|numero|nummer))"
    r"(?:[ _-]?(?:no|nr|num|number|numero|nummer))?[_-]?$",
    re.IGNORECASE,
)
_ID_BEGINS = re.compile(r"(?<![A-Za-z0-9])[A-Z]{2,6}-$")


def _stands_alone(flat: str, start: int, end: int) -> bool:
    """Whether the digits are no part of a longer id, such as ``pi_4242...``, ``INV-4242...`` or a tracking number's ``1Z...``."""
    before = flat[start - 1 : start]
    ahead = max(0, start - 30)
    if before.isalnum() or before == "_" or _ID_BEGINS.search(flat, ahead, start):
        return bool(_CARD_WORD.search(flat, ahead, start)) or (before.isalpha() and not before.isascii())
    return _ID_GOES_ON.match(flat, end) is None


_ID_GOES_ON = re.compile(r"_|(?!(?i:exp|valid|good|thru|bis|cv[cvn]|csc|cid|pin|sec))[A-Za-z]{1,12}\d")
_EXPIRY = r"(?:[\s,;|/-]*(?:exp\w*|valid\w*|good thru|until)?[\s.:]*\d{1,2}\s?[/.-]\s?\d{2,4})?"
_BESIDE = re.compile(
    _EXPIRY + r"[\s,;|/-]+(?P<code>\d{3,4})(?![\d.,]?\d)(?!\s*(?:usd|eur|gbp|dollars?|euros?|units?|items?|days?|times|[$€£%]))",
    re.IGNORECASE,
)


# --- bank accounts -----------------------------------------------------------------------------------------------------------------------

# ISO 13616 registry, by length.
_IBAN_LENGTHS = {
    length: frozenset(countries.split())
    for length, countries in {
        15: "NO",
        16: "BE",
        18: "DK FK FO GL FI NL SD",
        19: "MK SI",
        20: "AT BA EE KZ LT LU XK MN",
        21: "CH HR LI LV",
        22: "BG BH CR DE GB GE IE ME RS VA",
        23: "AE GI IL IQ TL OM SO",
        24: "AD CZ ES MD PK RO SA SE SK TN VG",
        25: "LY PT ST",
        26: "IS TR",
        27: "BI DJ FR GR IT MC MR SM",
        28: "AL AZ BY CY DO GT HN HU LB NI PL SV",
        29: "BR EG PS QA UA",
        30: "JO KW MU YE",
        31: "MT SC",
        32: "LC",
        33: "RU",
    }.items()
}
_IBAN_LENGTH = {country: length for length, countries in _IBAN_LENGTHS.items() for country in countries}
_IBAN_START = re.compile(r"(?:(?<![A-Za-z0-9])|(?<=iban)|(?<=IBAN))([A-Za-z]{2})[ -]?\d\d")


def _ibans(flat: str) -> Iterator[tuple[int, int]]:
    for found in _IBAN_START.finditer(flat):
        length = _IBAN_LENGTH.get(found[1].upper())
        if length is None:
            continue
        taken, at = "", found.start()
        while at < len(flat) and len(taken) < length:
            if flat[at].isascii() and flat[at].isalnum():
                taken += flat[at].upper()
            elif flat[at] not in " -./\t\r\n":
                break
            at += 1
        if len(taken) == length and not flat[at : at + 1].isdigit() and _iban_checks(taken):
            yield found.start(), at


def _iban_checks(iban: str) -> bool:
    moved = iban[4:] + iban[:4]
    return int("".join(str(int(character, 36)) for character in moved)) % 97 == 1
