"""The forms of keys, passwords and security codes that people type: known by their makers' prefixes, or by what they are called beside them.

What is only named ("password", "cvc") is taken for one where it stands as a value: after a colon, an equals sign or an arrow, in JSON and in the query of an
address as well, and after "is" where it does not look like a word. Sentences about passwords stay.
"""

import re
from collections.abc import Iterator
from typing import NamedTuple


class Found(NamedTuple):
    """Where a value stands in a text."""

    start: int
    end: int


_NOT_MASKED = r"(?!\[[a-z ]{6,13} removed\])"
_QUOTE = r"\\?[\"'`]?"
_IS = r"(?:is|was|are|ist|war|lautet|es|est|é|è|to|是)"
_SIGN = r"(?:[:=→：]|->|=>)"

# --- keys --------------------------------------------------------------------------------------------------------------------------------

_MADE = re.compile(
    r"(?<![A-Za-z0-9])(?:"
    r"[srp]k_(?:live|test)_[A-Za-z0-9]{8,}"  # Stripe
    r"|(?:pi|seti)_[A-Za-z0-9]{3,}_secret_[A-Za-z0-9]{8,}"  # what its clients pay with
    r"|whsec_[A-Za-z0-9+/=_-]{8,}"  # signing secrets of webhooks
    r"|rfk_[A-Za-z0-9_-]{8,}"  # ours
    r"|sk-[A-Za-z0-9_-]{20,}|hf_[A-Za-z0-9]{20,}"  # providers of models
    r"|A[KS]IA[0-9A-Z]{16}|AIza[0-9A-Za-z_-]{35}|ya29\.[A-Za-z0-9_-]{20,}"  # clouds
    r"|gh[pousr]_[A-Za-z0-9]{20,}|github_pat_[A-Za-z0-9_]{20,}|glpat-[A-Za-z0-9_-]{20,}|npm_[A-Za-z0-9]{30,}|pypi-[A-Za-z0-9_-]{16,}"
    r"|xox[abeoprs]-[A-Za-z0-9-]{10,}|SG\.[A-Za-z0-9_-]{16,}\.[A-Za-z0-9_-]{16,}|shp(?:at|ca|pa|ss)_[0-9a-fA-F]{32}"
    r"|(?:SK|AC)[0-9a-f]{32}"  # Twilio
    r"|eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}"  # JSON Web Tokens
    r"|-----BEGIN [A-Z ]{0,20}PRIVATE KEY-----[A-Za-z0-9+/=\s]{0,10000}(?:-----END [A-Z ]{0,20}PRIVATE KEY-----)?"
    r")"
)
_BEARER = re.compile(r"\bbearer\s+(?P<value>(?=[A-Za-z._~+/-]{0,200}\d)[A-Za-z0-9._~+/-]{12,}=*)", re.IGNORECASE)
_BASIC = re.compile(r"\bauthorization" + _QUOTE + r"\s*[:=]\s*" + _QUOTE + r"basic\s+(?P<value>[A-Za-z0-9+/]{8,}=*)", re.IGNORECASE)
_IN_ADDRESS = re.compile(r"\b[a-z][a-z0-9+.-]{1,20}://[^\s/:@\"']{0,100}:(?P<value>" + _NOT_MASKED + r"[^\s/@\"']{1,200})@", re.IGNORECASE)
_KEY_NAMES = r"(?:(?:api|secret|access|private|client|auth|refresh|session)[_ -]?){1,3}(?:key|token|secret)"
_KEY_NAMED = re.compile(
    r"(?<![A-Za-z])" + _KEY_NAMES + _QUOTE + r"\s*(?:" + _SIGN + r"|\bis\b:?)\s*" + _QUOTE + r"(?P<value>[A-Za-z0-9._~+/=-]{12,})",
    re.IGNORECASE,
)
_TOKEN = re.compile(
    r"(?<![A-Za-z])(?:token|secret|apikey)"
    + _QUOTE
    + r"\s*"
    + _SIGN
    + r"\s*"
    + _QUOTE
    + r"(?P<value>(?=[A-Za-z._~+/=-]{0,200}\d)[A-Za-z0-9._~+/=-]{16,})",
    re.IGNORECASE,
)


def keys(flat: str) -> Iterator[Found]:
    """Keys and tokens."""
    for found in _MADE.finditer(flat):
        yield Found(*found.span())
    for pattern in (_BEARER, _BASIC, _IN_ADDRESS, _KEY_NAMED, _TOKEN):
        for found in pattern.finditer(flat):
            yield Found(*found.span("value"))


# --- passwords ---------------------------------------------------------------------------------------------------------------------------

_PASSWORD_NAMES = (
    r"(?:pass[ -]?words?|passwort|kennwort|passcode|passphrase|passwd|pwd|contrase[ñn]a|mot de passe|senha|wachtwoord|lösenord|пароль|密码)"
)
_LOOKS_MADE_UP = r"(?=[^\s\"']{0,100}(?:\d|[@#$%^&*!](?=[^\s\"'.,;:!?)])))"
_PASSWORD = re.compile(
    r"(?<![A-Za-z])" + _PASSWORD_NAMES + r"(?! removed\])" + _QUOTE + r"(?:"
    # In quotes after a sign: whatever is between them.
    r"\s*" + _SIGN + r"\s*(?P<quote>\\?[\"'`])" + _NOT_MASKED + r"(?P<quoted>[^\"'`\n\\]{1,200})(?P=quote)"
    # After a sign: one, whatever it looks like.
    r"|\s*(?:"
    + _IS
    + r"\s*)?"
    + _SIGN
    + r"\s*"
    + _QUOTE
    + _NOT_MASKED
    + r"(?P<any>(?!\\[\"'`])(?!(?:null|true|false|none)\b)[^\s\"'`,;{}\[\]]+(?:[,;{}\[\]]+[^\s\"'`,;{}\[\]]+)*)"
    # After "is" or a dash, or beside it: only when it does not look like a word.
    r"|\s*(?:" + _IS + r"\s+|是\s*|\s-\s+)" + _QUOTE + _NOT_MASKED + _LOOKS_MADE_UP + r"(?P<odd>[^\s\"',;]{4,})"
    r"|\s+" + _QUOTE + _NOT_MASKED + r"(?=[^\s\"']{0,100}\d)(?=[^\s\"']{0,100}[A-Za-z])(?P<beside>[^\s\"',;-]{6,})"
    r")",
    re.IGNORECASE,
)
_PIN = re.compile(
    r"(?<![A-Za-z])(?:pin|geheimzahl)(?:[ _-]?(?:code|number|nr\.?|no\.?))?"
    + (_QUOTE + r"\s*(?:" + _IS + r"\b\s*" + _SIGN + r"?|" + _SIGN + r")\s*" + _QUOTE + r"(?P<pin>\d{4,12})(?!\d)"),
    re.IGNORECASE,
)


def passwords(flat: str) -> Iterator[Found]:
    """What is named as a password or as a PIN."""
    for found in _PASSWORD.finditer(flat):
        yield Found(*next(found.span(name) for name in ("quoted", "any", "odd", "beside") if found[name] is not None))
    for found in _PIN.finditer(flat):
        yield Found(*found.span("pin"))


def names_a_password(name: str) -> bool:
    """Whether a field of that name holds a password, whatever it looks like."""
    return _FIELD.fullmatch(name) is not None


_FIELD = re.compile(r"(?:[A-Za-z0-9]{1,30}[_ .-])?" + _PASSWORD_NAMES, re.IGNORECASE)

# --- security codes ----------------------------------------------------------------------------------------------------------------------

_CVC_NAMES = r"(?:cvc2?|cvv2?|cvn|card code|security[ _]code|verification (?:code|value)|prüfziffer|kartenprüfnummer|código de seguridad|cryptogramme)"
_CVC = re.compile(
    r"(?<![A-Za-z])(?:"
    + _CVC_NAMES + _QUOTE + r"(?:\s+(?:" + _IS + r"|number|code|no\.?))*\s*[:=#(-]*\s*" + _QUOTE
    + r"|(?:csc|cid)" + _QUOTE + r"(?:\s+(?:" + _IS + r"|number|code|no\.?))*\s*[:=#(]+\s*" + _QUOTE
    + r"|(?:3|three|4|four) digits (?:on|at) the back(?:\s+of [a-z ]{2,20})?\s*(?:" + _IS + r")?\s*:?\s*"
    + r")(?P<code>\d(?: ?\d){2,3})(?!\d)",
    re.IGNORECASE,
)  # fmt: skip


def security_codes(flat: str) -> Iterator[Found]:
    """The three or four digits that are named as a card's security code."""
    for found in _CVC.finditer(flat):
        yield Found(*found.span("code"))
