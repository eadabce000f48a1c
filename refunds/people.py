"""Who may do what. Rules about people compare *persons*: every key belongs to a person, a service or an agent, and only persons decide."""

import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum


class PrincipalKind(StrEnum):
    """Whom a key belongs to."""

    PERSON = "person"
    SERVICE = "service"
    AGENT = "agent"


class Role(StrEnum):
    """What a key may be used for. Roles do not imply each other, except that a manager may do what a reviewer may."""

    REQUESTER = "requester"
    INTEGRATOR = "integrator"
    REVIEWER = "reviewer"
    MANAGER = "manager"
    FRAUD = "fraud"
    SETTLER = "settler"
    OPERATOR = "operator"
    AUDITOR = "auditor"


PERSONS_ONLY = frozenset({Role.REVIEWER, Role.MANAGER, Role.FRAUD, Role.SETTLER})
"""Roles a service or an agent can never hold: they judge, and only a person can be held to a judgement."""


@dataclass(frozen=True, slots=True)
class Actor:
    """Who is calling: the principal, its handle (how ``requested_by`` names a person) and name, the kind, its roles, and the integration its
    idempotency keys belong to (it survives the rotation of keys).

    ``ceilings`` are the most that they may approve, by currency, in its API unit; ``None`` is no ceiling of their own. ``operates_classifier`` says that they
    choose or instruct the reader of free text.
    """

    principal_id: str
    handle: str
    name: str
    kind: PrincipalKind
    roles: frozenset[Role] = field(default_factory=frozenset[Role])
    integration: str = ""
    ceilings: Mapping[str, int] | None = None
    operates_classifier: bool = False

    def has(self, *wanted: Role) -> bool:
        """Tell whether one of the wanted roles is held; a manager also counts as a reviewer."""
        held = self.roles | {Role.REVIEWER} if Role.MANAGER in self.roles else self.roles
        return any(role in held for role in wanted)

    def is_named(self, text: str) -> bool:
        """Tell whether a name somebody wrote, such as ``requested_by``, means this principal: by id, handle or name, however it is spelt.

        Compared without regard to case, width, accents, doubled blanks, what stands around a word (``Rita.``) or joins two (``rita.jones``), invisible
        characters, letters of other alphabets that look like Latin ones, a leading ``@`` and a mail domain: rather one colleague too many asked than one who
        approves a wish of their own.
        """
        wanted = _spellings(text)
        return any(wanted & _spellings(own) for own in (self.principal_id, self.handle, self.name))


def _spellings(text: str) -> set[str]:
    visible = "".join(c for c in unicodedata.normalize("NFKC", text) if not _invisible(c))
    folded = unicodedata.normalize("NFKD", " ".join(visible.split()).casefold())
    plain = "".join(_LOOKS_LIKE.get(c, c) for c in folded if not unicodedata.combining(c))
    return {_words(plain), _words(plain.lstrip("@").partition("@")[0])} - {""}


def _words(text: str) -> str:
    """The words of a name without the points, quotes and dashes around them; they are no part of who it is. Addresses and handles join the words of a name by
    points, dashes and underscores: ``rita.jones`` is Rita Jones."""
    text = text.translate(_JOINTS)
    around = "".join({c for c in text if not c.isalnum()})
    return " ".join(word for word in (one.strip(around) for one in text.split()) if word)


def readable_name(text: str) -> str:
    """The name of a person as it is kept (in Unicode's NFKC form), if it can only be read as what it is.

    Raises ``ValueError`` for characters that nobody sees or that turn the reading order, for marks without a letter or in heaps, and for letters of
    several alphabets, with which one name is made to look like another. Chinese, Japanese and Korean letters go together, and with Latin ones
    (the level "highly restrictive" of Unicode's UTS #39).
    """
    name = unicodedata.normalize("NFKC", text)
    marks = 0
    for at, character in enumerate(name):
        if _invisible(character):
            raise ValueError(f"the character U+{ord(character):04X} in it cannot be seen; leave it out")
        marks = marks + 1 if unicodedata.category(character).startswith("M") else 0
        if marks > _MARKS_AT_ONCE or (marks and (at == 0 or name[at - 1].isspace())):
            raise ValueError(f"the mark U+{ord(character):04X} in it belongs to no letter, or is one of too many; leave it out")
    if len(name) > _LONGEST:
        raise ValueError(f"written out it is longer than {_LONGEST} characters")
    alphabets = {unicodedata.name(c, "UNKNOWN").split()[0] for c in name if unicodedata.category(c).startswith("L")} - _OF_EVERY_ALPHABET
    if len(alphabets) > 1 and not alphabets <= _WRITTEN_TOGETHER:
        raise ValueError(f"letters of several alphabets are mixed in it ({', '.join(sorted(alphabets)).lower()}); write it in one")
    return name


_LONGEST = 200
_MARKS_AT_ONCE = 2
"""Vietnamese and Hebrew have up to two that do not become part of their letter."""

_OF_EVERY_ALPHABET = frozenset({"MODIFIER"})
_WRITTEN_TOGETHER = frozenset({"LATIN", "CJK", "HIRAGANA", "KATAKANA", "KATAKANA-HIRAGANA", "BOPOMOFO", "HANGUL", "IDEOGRAPHIC"})
_BLANK_LETTERS = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u180b\u180c\u180d\u180f\u2800\u3164\uffa0")
"""Letters and marks that are drawn as nothing, beside those that Unicode calls formatting."""

_LOOKS_LIKE = dict(
    zip(
        "авсԁеһніјӏкмоԛрѕтԝхуүαβεηικμνορτυχγϲϳօսոɑɡıɩⅼ",
        "abcdehhijlkmoqpstwxyyabehikmvoptuxycjounagiil",
        strict=True,
    )
)
"""Small letters that look like Latin ones, or whose capitals do: the common ones of https://www.unicode.org/Public/security/latest/confusables.txt."""


_JOINTS = str.maketrans("._-", "   ")


def _invisible(character: str) -> bool:
    selects_a_variant = "\ufe00" <= character <= "\ufe0f" or "\U000e0100" <= character <= "\U000e01ef"
    return unicodedata.category(character) in ("Cc", "Cf", "Cn", "Co", "Cs", "Zl", "Zp") or selects_a_variant or character in _BLANK_LETTERS
