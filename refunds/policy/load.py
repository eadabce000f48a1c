"""Reads a policy file, and says exactly what is wrong with one: line, column, name and remedy, all problems at once."""

import difflib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib import resources
from typing import Any, cast, get_args, get_origin

from pydantic import BaseModel, ValidationError

from refunds.errors import RefundError
from refunds.money import CURRENCIES, Money, format_money, parse_amount
from refunds.policy import limits, positions
from refunds.policy.contradictions import contradictions
from refunds.policy.model import Ceilings, Policy
from refunds.policy.positions import Path, Placed
from refunds.terms import canonical_hash

LARGEST_BYTES = 262_144
"""The largest policy file taken, in bytes."""

MOST_TOLD = 200
"""So many problems of one file are told at once."""

_MOST_READ = 2_000
"""So many of pydantic's errors are put into words: far more than are told, because some are left out for what was told already."""


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong with a policy file: where (line and column count from 1), at which name, what, and what to do."""

    line: int
    column: int
    path: str
    problem: str
    remedy: str

    def __str__(self) -> str:
        at = f"{self.path}: " if self.path else ""
        return f"line {self.line}, column {self.column}: {at}{self.problem}. {self.remedy}"


class PolicyError(ValueError):
    """A policy file that cannot be used; nothing of it was taken. ``problems`` are in the order of the file."""

    def __init__(self, problems: list[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(str(p) for p in problems))


@lru_cache(maxsize=64)
def load_policy(text: str, *, published: bool = False) -> Policy:
    """Read a policy from YAML text. The same text gives the same policy.

    Raises :class:`PolicyError` with every problem found: text that is not YAML, names that are unknown, missing or doubled, values of the wrong kind, and
    settings that contradict each other or leave a gap. Of a text that was ``published`` contradictions are not asked again: it was judged when it was
    published, and what a later program would no longer publish still judges the refunds and orders of its time.
    """
    if len(text.encode(errors="surrogatepass")) > LARGEST_BYTES:
        raise PolicyError([Problem(1, 1, "", f"the file is larger than {LARGEST_BYTES} bytes", "Shorten it; comments count.")])
    placed = positions.read(text, published=published)
    found: list[tuple[Path, str, str]] = []
    problems = [Problem(f.mark.line, f.mark.column, _dotted(f.path), f.problem, f.remedy) for f in placed.faults]
    policy: Policy | None = None
    if placed.value is not None:
        found += _read_amounts(placed)
        found += limits.read_amounts(_mapping(placed.value))
        try:
            policy = Policy.model_validate(placed.value)
        except ValidationError as error:
            reported = {path for path, _, _ in found} | {f.path for f in placed.faults if f.path}
            faults = map(_translate, _told_once(error.errors(include_url=False)[:_MOST_READ]))
            found += [fault for fault in faults if not any(fault[0][:length] in reported for length in range(len(fault[0]) + 1))]
    if not published:
        found += _true_for_one(placed)
    if policy is not None and not published:
        unread = {path[:2] for path, _, _ in found}
        found += [fault for fault in contradictions(policy) if fault[0][:2] not in unread]
    for path, problem, remedy in found:
        mark = placed.mark(path)
        problems.append(Problem(mark.line, mark.column, _dotted(path), problem, remedy))
    if problems or policy is None:
        raise PolicyError(_first(sorted(problems, key=lambda p: (p.line, p.column, p.path, p.problem))))
    return policy


def sample_policy_text() -> str:
    """The text of the sample policy that is the built-in default, with its comments."""
    return resources.files("refunds.policy").joinpath("sample.yaml").read_text(encoding="utf-8")


def sample_policy() -> Policy:
    """The sample policy that is the built-in default."""
    return load_policy(sample_policy_text())


def policy_hash(policy: Policy | str) -> str:
    """SHA-256 of a policy's content (or of the content of its text) in lower-case hex.

    Comments, the order of names and the spelling of lengths of time do not matter. A part that a later version added counts only where it is used, so that
    a recorded hash stays what it was. Raises :class:`PolicyError` for text that is no policy.
    """
    policy = load_policy(policy) if isinstance(policy, str) else policy
    unused: set[str] = set() if policy.returns.require_return_for else {"returns"}
    if policy.base_currency is None:
        unused |= {"base_currency", "rates_at_most_days_old"}
    return canonical_hash(policy.model_dump(mode="json", exclude=unused))


def _first(problems: list[Problem]) -> list[Problem]:
    """The first problems, and how many more there are: nobody corrects thousands at once."""
    if (more := len(problems) - MOST_TOLD) <= 0:
        return problems
    last = problems[MOST_TOLD]
    return [
        *problems[:MOST_TOLD],
        Problem(last.line, last.column, "", f"from here on there are {more:,} more problems", "Correct these first."),
    ]


def _true_for_one(placed: Placed) -> list[tuple[Path, str, str]]:
    """Numbers of people written as ``true``, which pydantic would take for 1."""
    ladders = _mapping(_mapping(placed.value).get("review"))
    paths = [("review", name, "people") for name, ladder in ladders.items() if type(_mapping(ladder).get("people")) is bool]
    return [(path, "true and false are no numbers of people", "Write 1 or 2.") for path in paths]


def _dotted(path: Path) -> str:
    return ".".join(str(part) for part in path)


def _read_amounts(placed: Placed) -> list[tuple[Path, str, str]]:
    """Turn the amounts under ``currencies`` into API units; an amount that cannot be read becomes 1 and is reported."""
    found: list[tuple[Path, str, str]] = []
    for code, ceilings in _mapping(_mapping(placed.value).get("currencies")).items():
        if code not in CURRENCIES:
            found.append((("currencies", code), "this currency cannot be refunded here", "Use an upper-case ISO code such as USD."))
            continue
        amounts = _mapping(ceilings)
        for name in amounts.keys() & Ceilings.model_fields.keys():
            try:
                amounts[name] = _amount(amounts[name], code)
            except ValueError as error:
                amounts[name] = 1
                found.append((("currencies", code, name), "not an amount", str(error)))
    return found + _read_exceptions(placed)


def _read_exceptions(placed: Placed) -> list[tuple[Path, str, str]]:
    """The same for the amounts of exceptions, which are by currency."""
    found: list[tuple[Path, str, str]] = []
    listed: object = _mapping(placed.value).get("exceptions")
    for at, one in enumerate(cast("tuple[object, ...]", listed) if isinstance(listed, tuple) else ()):
        amounts = _mapping(_mapping(one).get("at_most"))
        for code in amounts.keys() & CURRENCIES.keys():
            try:
                amounts[code] = _amount(amounts[code], code)
            except ValueError as error:
                amounts[code] = 1
                found.append((("exceptions", at, "at_most", code), "not an amount", str(error)))
    return found


def _mapping(value: Any) -> dict[str, Any]:
    """The value itself when it is a mapping (so that it can be changed in place), else an empty one."""
    return value if isinstance(value, dict) else {}  # pyright: ignore[reportUnknownVariableType]


def _amount(value: object, code: str) -> int:
    """Read an amount written with exactly the currency's decimals, so that ``10000`` cannot be meant as cents and read as dollars."""
    decimals = CURRENCIES[code].shown_decimals
    example = format_money(Money(100 * 10 ** CURRENCIES[code].exponent, code)).split(code)[-1].strip("$€£¥₹ \u00a0")
    remedy = f"Write it above zero and with {decimals or 'no'} decimals, as {code} is written: such as {example}."
    text = str(value) if type(value) in (str, int) else ""
    if len(text.partition(".")[2]) != decimals:
        raise ValueError(remedy)
    try:
        return parse_amount(text, code).amount
    except RefundError as error:
        raise ValueError(remedy) from error


def _told_once(errors: Sequence[Any]) -> list[Any]:
    """The errors, without one that a list is too short where that is so only because a member of it could not be read."""
    places = [tuple(error["loc"]) for error in errors]
    around = {place[:length] for place in places for length in range(len(place))}
    return [error for error, place in zip(errors, places, strict=True) if error["type"] != "too_short" or place not in around]


def _translate(error: Any) -> tuple[Path, str, str]:
    """Put an error of pydantic into our words: what is wrong, and what to do."""
    path: Path = tuple(part for part in error["loc"] if part != "[key]")
    kind, context = str(error["type"]), dict(error.get("ctx", {}))
    given = repr(error["input"])[:60]
    if kind == "extra_forbidden":
        known = _names(path[:-1])
        close = difflib.get_close_matches(str(path[-1]), known, n=1)
        return path, "this name is not known", f"Did you mean {close[0]}?" if close else f"Known here: {', '.join(known)}."
    if kind == "missing":
        return path, "is missing", "Add it; the sample policy shows how."
    if kind == "value_error":
        text = str(context["error"])
        return path, f"{given} is not taken here", text[:1].upper() + text[1:] + "."
    if kind in ("model_type", "dict_type", "model_attributes_type"):
        return path, "must hold names and values", "Write name: value on indented lines below it."
    if kind in ("string_type", "int_type", "bool_type", "tuple_type"):
        wanted = {
            "string_type": "text",
            "int_type": "a whole number",
            "bool_type": "true or false",
            "tuple_type": "a list, such as [a, b]",
        }[kind]
        return path, f"{given} is of the wrong kind", f"Write {wanted}."
    message = str(error["msg"]).replace("Input should be", "It must be").replace("Input should", "It must")
    return path, f"{given} is not taken here", f"{message}."


def _names(path: Path) -> list[str]:
    """The names a policy may have at ``path``."""
    here: Any = Policy
    for part in path:
        if isinstance(here, type) and issubclass(here, BaseModel):
            field = here.model_fields.get(str(part))
            here = field.annotation if field else None
        elif get_origin(here) in (dict, tuple):
            here = get_args(here)[1 if get_origin(here) is dict else 0]
        if not isinstance(here, type) and get_origin(here) not in (dict, tuple):
            here = next((a for a in get_args(here) if isinstance(a, type) and issubclass(a, BaseModel)), None)
    return sorted(here.model_fields) if isinstance(here, type) and issubclass(here, BaseModel) else []
