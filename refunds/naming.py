"""Names that somebody else chose, made safe to repeat: a field that is wrong is named back to its sender, and the answer ends up in logs and tickets."""

import re

_NAME = re.compile(r"[^\W\d][\w .:\[\]-]{0,39}")
_MOST_WORDS, _MOST_DIGITS, _MOST_MIXED = 3, 5, 15
_SECRET = re.compile(r"(?:sk|rk|rfk|pk|whsec)_[A-Za-z0-9_-]{4}|eyJ[A-Za-z0-9_-]{8}", re.IGNORECASE)
_START = 3


def shown_name(name: str) -> str:
    """The name itself if it is a plain one: letters, digits and a few marks, at most 40 characters, of at most three words.

    Anything else (longer, with control characters, or like a sentence, an address, a number of somebody's, a key) is told by its first letters and its
    length, which its sender recognises and nobody else can use.
    """
    digits = sum(character.isdigit() for character in name)
    mixed = digits and any(len(run) > _MOST_MIXED and re.search(r"\d", run) for run in re.findall(r"[^\W_]+", name))
    if _NAME.fullmatch(name) and len(name.split()) <= _MOST_WORDS and digits <= _MOST_DIGITS and not mixed and not _SECRET.match(name):
        return name
    start = re.match(rf"[A-Za-z_]{{0,{_START}}}", name)
    return f"{start.group() if start else ''}... ({len(name)} characters)"
