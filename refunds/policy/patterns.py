"""What a pattern of a condition (``matches``) may cost: the library makes it anew each time it is asked, and some patterns take a hundredth of a second to make.

Weights are about the microseconds that each part takes to make, as measured (``tests/refunds/policy/test_costly_rules.py``): a word character of Unicode costs
as much as a thousand plain ones. What a group is repeated counts for all of the pattern, because it may stand around all of it.
"""

import re
from collections.abc import Iterator

MOST = 5_000
"""What the patterns of one condition may weigh."""

MOST_OF_ALL = 20_000
"""What those of all rules of a policy together may."""

MOST_INSIDE = 120
"""What those inside a step over a list may, because they are made for each of its members."""

_MAKING, _IGNORING_CASE = 15, 5
_LETTERS, _FEW, _SET, _ANY, _PLAIN_ONE = 800, 100, 12, 8, 1
_PART = re.compile(
    r"(?P<letters>\\[wW]|\\[pP](?:\{[^}]*\}|.))|(?P<few>\\[dDsSbB])|(?P<set>\[\^?(?:\\.|[^\]\\])*\]?)|(?P<any>\.)|\{(?P<count>\d*,?\d*)\}|(?P<one>\\.|.)",
    re.S,
)
_CALL = re.compile(r"\bmatches\s*\(")
_TEXT = re.compile(r"""\s*(?:"((?:\\[\\"']|[^"\\])*)"|'((?:\\[\\"']|[^'\\])*)')\s*\)""")


class Unplain(ValueError):
    """A pattern that cannot be weighed, because it is put together or written in an unusual way. The text is the remedy."""


def weight(condition: str, bare: str) -> int:
    """What all patterns of a condition weigh. ``bare`` is the condition with its texts blanked, every other sign at its place. Raises :class:`Unplain`."""
    return sum(map(_weight, _patterns(condition, bare)))


def _patterns(condition: str, bare: str) -> Iterator[str]:
    for call in _CALL.finditer(bare):
        found = _TEXT.match(condition, call.end())
        if found is None or not bare[: call.start()].rstrip().endswith("."):
            raise Unplain(
                'Write x.matches("a[0-9]+"): one plain text, in which only the backslash and quotes have a backslash before them.'
            )
        if re.search(r"\(\?[a-zA-Z]*x", condition[call.end() : found.end()]):
            raise Unplain("Leave the flag x out: blanks could stand between a part and how often it is repeated.")
        yield re.sub(r"\\(.)", r"\1", found[1] if found[1] is not None else found[2])


def _weight(pattern: str) -> int:
    made = last = 0
    times = _IGNORING_CASE if re.search(r"\(\?[a-zA-Z]*i", pattern) else 1
    for part in _PART.finditer(pattern):
        if part["count"] is None:
            last = _price(part)
            made += last
            continue
        count = max(1, *(int(number[:9]) for number in part["count"].split(",") if number), 1)
        if pattern[part.start() - 1] == ")":
            times *= count  # of a group: as if it were all of the pattern
        else:
            made, last = made + last * (count - 1), last * count
    return _MAKING + made * times


def _price(part: re.Match[str]) -> int:
    if part["set"] is not None:
        inside = part["set"]
        return _SET + _LETTERS * len(re.findall(r"\\[wWpP]", inside)) + _FEW * len(re.findall(r"\\[dDsSbB]", inside))
    return _LETTERS if part["letters"] else _FEW if part["few"] else _ANY if part["any"] else _PLAIN_ONE
