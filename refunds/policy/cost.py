"""What a condition of a merchant's own rule may cost at most, told from its text alone, before it is compiled.

The library follows a condition without limits of its own, and a limit by the clock would give the same facts two answers. So the text is bounded: a step over a
list stands in no other and looks at no whole list inside, one ``map`` grows nothing that another step walks, and length, operators and lists are counted, and
patterns weighed (:mod:`refunds.policy.patterns`). The worst that is left is a few passes over an order's thousand lines
(``tests/refunds/policy/test_costly_rules.py`` measures it).
"""

import re
from collections.abc import Iterator

from refunds.policy import patterns

LONGEST = 2_000
"""The longest condition, in characters."""

MOST_OPERATORS = 200
"""Operators, accesses, brackets and calls a condition may have."""

MOST_LISTS = 10
"""How often a condition may name a list or a whole group of facts: each time all of it is handed over."""

MOST_LISTS_OF_ALL = 50
"""How often all rules of a policy together may."""

MOST_SUMS = 5
"""How many sums stand inside one step: texts grow with each, for every member."""

LISTS = ("lines", "order.categories", "payment.failed_checks", "base.not_counted", "reading.manipulation", "reading.contradictions")
"""The facts that are lists."""

GROUPS = ("request", "order", "payment", "customer", "base", "requester", "agent", "time", "reading", "lines")

STEP = re.compile(r"\.\s*(?:all|exists|exists_one|map|filter)\s*\(\s*([A-Za-z_]\w*)\s*,")
"""A step over a list, with the name it gives each member."""

_TEXT = re.compile(r'"(?:\\.|[^"\\])*"|\'(?:\\.|[^\'\\])*\'')
_QUOTED = re.compile(r'(\b[rRbB]{1,2})?("""|\'\'\'|"(?:\\.|[^"\\])*"|\'(?:\\.|[^\'\\])*\')')
_OPERATOR = re.compile(r"[-+*/%!<>?.(\[{]|&&|\|\||==|\bin\b")
_MAP = re.compile(r"\.\s*map\s*\(")
_DOTTED = [one.replace(".", r"\s*\.\s*") for one in LISTS]
_WHOLE = re.compile(rf"(?<![.\w])(?:(?:{'|'.join(_DOTTED)})\b|(?:{'|'.join(GROUPS)})\b(?!\s*\.))")
"""A list among the facts, or a whole group of them."""


def bare(condition: str) -> str:
    """The condition with empty texts."""
    return _TEXT.sub('""', condition)


def blanked(condition: str) -> str:
    """The condition with its texts blanked, every other sign at its place."""
    return _TEXT.sub(lambda text: " " * len(text[0]), condition)


def too_much(condition: str) -> tuple[str, str] | None:
    """Why a condition costs more than a rule may, and what to do; ``None`` when it does not."""
    if len(condition) > LONGEST:
        return f"the condition has more than {LONGEST} characters", "Write several rules."
    # Texts of other forms, and comments, could hide from here what the library then follows.
    if any((len(text) == 3 and text[0] == text[1]) or "r" in prefix.lower() for prefix, text in _QUOTED.findall(condition)):
        return "a text with three quotes, or a raw one", 'Write it plainly, a backslash doubled: "a\\\\d+".'
    text = bare(condition)
    if "//" in text:
        return "a comment inside the condition", "Write it in the file, after a #."
    if len(_OPERATOR.findall(text)) > MOST_OPERATORS:
        return f"the condition has more than {MOST_OPERATORS} operators", "Write several rules."
    for member, begins, ends in _steps(text):
        inside = text[begins:ends]
        if STEP.search(inside):
            return "a step over a list stands inside another", "Write one all, exists, map or filter after the other, not inside."
        whole = next((found[0] for found in _WHOLE.finditer(inside) if found[0] != member), None)
        if whole is not None:
            what = f"a step over a list looks at all of {whole} each time"
            return what, "Compare its member with words, numbers and facts that are no list; write two conditions joined by &&."
        if inside.count("+") > MOST_SUMS:
            return f"a step over a list has more than {MOST_SUMS} sums inside", "Compare what is added one by one."
    if len(_MAP.findall(text)) > 1:
        return "it has more than one map, and each can make a list larger", "Look at the list itself: lines.exists(x, ...)."
    if lists_in(condition) > MOST_LISTS:
        return f"it names lists of facts more than {MOST_LISTS} times", "Write several rules."
    return _costly_patterns(condition)


def _costly_patterns(condition: str) -> tuple[str, str] | None:
    blank = blanked(condition)
    try:
        if patterns.weight(condition, blank) > patterns.MOST:
            return "its patterns cost too much to make", _SIMPLER
        for _, begins, ends in _steps(blank):
            if patterns.weight(condition[begins:ends], blank[begins:ends]) > patterns.MOST_INSIDE:
                return "a step over a list makes costly patterns anew for each member", _SIMPLER
    except patterns.Unplain as unplain:
        return "a pattern that is no plain text", str(unplain)
    return None


_SIMPLER = "Name the letters ([a-z0-9_] and not \\\\w), repeat less ({4} and not {400}), or use startsWith, endsWith or contains."


def patterns_in(condition: str) -> int:
    """What the patterns of a condition that was taken weigh."""
    return patterns.weight(condition, blanked(condition))


def lists_in(condition: str) -> int:
    """How often a condition names a list or a whole group of facts."""
    return len(_WHOLE.findall(bare(condition)))


def _steps(text: str) -> Iterator[tuple[str, int, int]]:
    """Every step over a list: the name of its member, and where what stands inside it begins and ends."""
    for step in STEP.finditer(text):
        depth, at = 1, text.index("(", step.start()) + 1
        while depth and at < len(text):
            depth += {"(": 1, ")": -1}.get(text[at], 0)
            at += 1
        yield step[1], step.end(), at
