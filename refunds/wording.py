"""What is wrong with a value, in words for the people who wrote it: a validation library's own are for programmers."""

from collections.abc import Mapping
from typing import Any

_KINDS = {
    "missing": "It is missing: give it.",
    "string_type": "Write text.",
    "list_type": "Write a list.",
    "tuple_type": "Write a list.",
    "dict_type": "Write names and values.",
    "model_type": "Write names and values.",
    "model_attributes_type": "Write names and values.",
    "finite_number": "Write a number.",
}
_BEGINNINGS = (
    ("int_", "Write a whole number."),
    ("bool_", "Write true or false."),
    ("datetime_", "Write a time like 2026-03-01T12:00:00Z."),
    ("timezone_", "Write a time like 2026-03-01T12:00:00Z."),
)
_BOUNDS = {
    "greater_than_equal": ("ge", "Write {} or more."),
    "greater_than": ("gt", "Write more than {}."),
    "less_than_equal": ("le", "Write {} or less."),
    "less_than": ("lt", "Write less than {}."),
}
PATTERNS = {
    r"^[a-z][a-z0-9_-]{0,63}$": "Begin with a small letter; small letters, digits, _ and - may follow, 64 in all.",
    r"^[A-Za-z][A-Za-z0-9_-]{0,39}$": "Begin with a letter; letters, digits, _ and - may follow, 40 in all.",
    r"^[a-z0-9_.-]{1,50}$": "Write 1 to 50 small letters, digits, _, . and -.",
    r"^[A-Za-z0-9@._+-]{1,200}$": "Write 1 to 200 letters, digits and @ . _ + -.",
    r"^[0-9a-f]{64}$": "Write the 64 digits and letters a to f of the hash, as they were given.",
    r"^[A-Za-z0-9_]{1,100}$": "Write 1 to 100 letters, digits and _.",
    r"^[A-Za-z0-9_.-]{1,100}$": "Write 1 to 100 letters, digits, _, . and -.",
    r"^[A-Za-z0-9_]{1,255}$": "Write 1 to 255 letters, digits and _.",
    r"^[A-Za-z]{3}$": "Write the three letters of a currency, such as USD.",
    r"^cus_[A-Za-z0-9_]{1,100}$": "Write the processor's id of the customer, such as cus_NffrFeUfNV2Hib.",
    r"^[^\x00]*$": "NUL is not taken.",
}
"""The forms that texts must have here, in words."""


def in_words(kind: str, message: str, context: Mapping[str, Any]) -> str:
    """The sentence for one error of pydantic's, which says what to write.

    ``kind``, ``message`` and ``context`` are the error's ``type``, ``msg`` and ``ctx``. What has no words here keeps the library's.
    """
    if kind in _KINDS:
        return _KINDS[kind]
    if kind in ("enum", "literal_error"):
        return f"Write one of: {context['expected'].replace(' or ', ', ')}."
    if kind == "string_pattern_mismatch":
        return PATTERNS.get(context["pattern"], f"Write it in the form {context['pattern']}.")
    if kind in _BOUNDS:
        name, sentence = _BOUNDS[kind]
        return sentence.format(context[name])
    if kind in ("string_too_long", "string_too_short", "too_long", "too_short"):
        return _of_length(kind, context)
    return next((sentence for start, sentence in _BEGINNINGS if kind.startswith(start)), message.removeprefix("Value error, "))


def _of_length(kind: str, context: Mapping[str, Any]) -> str:
    # A text that is checked after something else was is "a value" with items to the library.
    text = kind.startswith("string") or context["field_type"] == "Value"
    if kind.endswith("too_long"):
        return f"Write at most {context['max_length']:,} {'characters' if text else 'of them'}."
    if text and context["min_length"] == 1:
        return "It is blank: write it out."
    return f"Write at least {context['min_length']} {'characters' if text else 'of them'}."
