"""Custom rules: conditions in CEL (https://cel.dev) over the facts.

A condition sees ``request``, ``order``, ``payment``, ``customer``, ``base``, ``requester``, ``agent``, ``time``, ``reading`` (with the names of
:mod:`refunds.facts`), the list ``lines`` and ``at``; times are RFC 3339 text, to be turned into times with ``timestamp(...)``. It cannot ask for the
time or anything else outside the facts, so the same facts always give the same answer.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import fields
from functools import lru_cache
from types import NoneType
from typing import Any, cast, get_args, get_origin, get_type_hints

import cel

from refunds.facts import (
    AgentFacts,
    BaseFacts,
    CustomerFacts,
    Facts,
    LineFacts,
    OrderFacts,
    PaymentFacts,
    ReadingFacts,
    RequesterFacts,
    RequestFacts,
    TimeFacts,
)
from refunds.policy import cost

_GROUPS: dict[str, type[Any]] = {
    "request": RequestFacts,
    "order": OrderFacts,
    "payment": PaymentFacts,
    "customer": CustomerFacts,
    "base": BaseFacts,
    "requester": RequesterFacts,
    "agent": AgentFacts,
    "time": TimeFacts,
    "reading": ReadingFacts,
    "lines": LineFacts,
}


def _single(hint: Any) -> type | None:
    """What a condition sees of a fact with this type, where it is no list; one that may be missing is what it is otherwise."""
    kinds = [one for one in get_args(hint) or (hint,) if one is not NoneType]
    if get_origin(hint) is tuple or len(kinds) != 1:
        return None
    return kinds[0] if kinds[0] in (int, bool) else str


FACTS: dict[str, frozenset[str]] = {name: frozenset(f.name for f in fields(kind)) for name, kind in _GROUPS.items()}
"""Every group of facts and the names in it; ``lines`` is a list whose members have them."""

KINDS: dict[str, dict[str, type]] = {
    group: {name: kind for name, hint in get_type_hints(of).items() if (kind := _single(hint)) is not None}
    for group, of in _GROUPS.items()
    if group != "lines"
}
"""Every fact that is one number (``int``), truth (``bool``) or text (``str``), by its group and name."""

_FACT = re.compile(r"\b(" + "|".join(FACTS) + r")\s*\.\s*([A-Za-z_]\w*)")
_OF_LIST = frozenset({"all", "exists", "exists_one", "map", "filter", "size"})
_OVER_LINES = re.compile(r"\blines\s*\.\s*(?:all|exists|exists_one|map|filter)\s*\(\s*([A-Za-z_]\w*)\s*,")
_TYPES = frozenset({"int", "uint", "double", "bool", "string", "bytes", "list", "map", "null_type"})
_FUNCTIONS = frozenset(
    {"size", "contains", "startsWith", "endsWith", "matches", "int", "uint", "double", "string", "bytes", "type", "dyn"}
    | {"timestamp", "duration"}
    | {
        "getFullYear",
        "getMonth",
        "getDate",
        "getDayOfMonth",
        "getDayOfWeek",
        "getDayOfYear",
        "getHours",
        "getMinutes",
        "getSeconds",
        "getMilliseconds",
    }
)
"""Functions of CEL that this version of the library has and that depend on nothing but their arguments."""
_FAILURES = (ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError, ValueError)


class RuleError(Exception):
    """A condition that could not be judged, or whose answer is not true or false; a person looks."""


class NoAnswer(RuleError):
    """A condition whose answer is not true or false, but of a ``kind``; ``nothing`` says that it is a fact that is not known."""

    def __init__(self, answer: object) -> None:
        self.nothing, self.kind = answer is None, _KINDS.get(type(answer), "something else")
        super().__init__(f"the answer is {type(answer).__name__}, not true or false")


_KINDS: dict[type, str] = {int: "a number", float: "a number", str: "a text", list: "a list", dict: "a group of facts"}


@lru_cache(maxsize=1_024)
def _compiled(condition: str) -> cel.Program:
    return cel.compile(condition)


@lru_cache(maxsize=1_024)
def groups_in(condition: str) -> frozenset[str]:
    """The groups of facts that a condition looks at."""
    return frozenset(_compiled(condition).variables()) & {*FACTS, "at"}


def uses_reading(condition: str) -> bool:
    """Tell whether a condition looks at what a reader made of free text."""
    return "reading" in groups_in(condition)


def judge(condition: str, facts: Mapping[str, Any]) -> bool:
    """Judge a condition over plain facts. Raises :class:`RuleError` for any error in it and for an answer that is not a boolean."""
    try:
        # Only what it looks at: handing all facts over costs more than judging them does.
        answer = _compiled(condition).execute({name: facts[name] for name in groups_in(condition) if name in facts})
    except _FAILURES as error:
        raise RuleError(f"{type(error).__name__}: {str(error)[:200]}") from error
    if not isinstance(answer, bool):
        raise NoAnswer(answer)
    return answer


@lru_cache(maxsize=1_024)
def _facts_in(condition: str) -> tuple[tuple[str, str], ...]:
    """The facts that a condition names, in its order, each once. What a reader noticed is left out: its words may quote the customer (promise P9)."""
    named = dict.fromkeys(_FACT.findall(cost.bare(condition)))
    return tuple(one for one in named if one[1] in FACTS[one[0]] and one not in _OF_A_CUSTOMERS_WORDS)


_OF_A_CUSTOMERS_WORDS = {("reading", "manipulation"), ("reading", "contradictions")}


def seen(condition: str, facts: Mapping[str, Any]) -> str:
    """What the facts were that a condition names, in words that follow its verdict: ``: request.amount is 6000, request.reason is not known``."""
    groups = cast("Mapping[str, dict[str, object] | None]", facts)
    shown = [f"{group}.{name} is {_shown((groups.get(group) or {}).get(name))}" for group, name in _facts_in(condition) if group != "lines"]
    return f": {', '.join(shown)}" if shown else ""


def _shown(value: object) -> str:
    if value is None:
        return "not known"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list):
        items = cast("list[object]", value)
        return f"[{', '.join(str(one)[:40] for one in items[:5])}{', ...' if len(items) > 5 else ''}]"
    return str(value)[:80]


def plain_facts(facts: Facts, conditions: Iterable[str] | None = None) -> dict[str, Any]:
    """The facts as conditions see them: the groups that any of these looks at, and the request; all groups when none are given."""
    if conditions is None:
        return facts.plain()
    return facts.plain_of({"request"}.union(*map(groups_in, conditions)))


def faults(condition: str) -> list[tuple[str, str]]:
    """What can be told about a condition without facts: pairs of problem and remedy, none when it is in order."""
    if (too_much := cost.too_much(condition)) is not None:
        return [too_much]
    try:
        program = _compiled(condition)
    except ValueError as error:
        found = re.search(r"ERROR: <input>:(\d+):(\d+): (.*)", str(error))
        where = f"at its character {found[2]}: {found[3][:160]}" if found else str(error)[:200]
        return [
            (f"not a CEL condition, {where}", 'Write a condition such as request.amount > 5000 && order.categories.exists(c, c == "sale").')
        ]
    bare = cost.bare(condition)
    problems: list[tuple[str, str]] = []
    bound = set(cost.STEP.findall(bare))
    known = {*FACTS, "at", *_TYPES, *bound}
    problems += [(f"{name} is a fact and cannot be another name", "Call it x.") for name in sorted(bound & {*FACTS, "at"})]
    for name in program.variables():
        if name not in known:
            problems.append((f"there is no fact {name}", f"Use one of: {', '.join([*FACTS, 'at'])}."))
    for group, name in _FACT.findall(bare):
        if group == "lines" and name not in _OF_LIST:
            problems.append((f"lines is a list and has no {name} of its own", "Write lines.exists(x, x.shipped > x.returned)."))
        elif group != "lines" and name not in FACTS[group] and group not in bound:
            problems.append((f"there is no fact {group}.{name}", f"Use one of: {', '.join(sorted(FACTS[group]))}."))
    for line in set(_OVER_LINES.findall(bare)):
        for name in re.findall(rf"\b{line}\s*\.\s*([A-Za-z_]\w*)(?!\w*\s*\()", bare):
            if name not in FACTS["lines"]:
                problems.append((f"a line has no {name}", f"Use one of: {', '.join(sorted(FACTS['lines']))}."))
    for name in program.functions():
        if name[0].isalpha() and name not in _FUNCTIONS:
            problems.append((f"there is no function {name}", f"Use one of: {', '.join(sorted(_FUNCTIONS))}."))
    return problems
