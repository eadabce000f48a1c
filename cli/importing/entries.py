"""One order of a file: where it stands, how it reads, and what is wrong with it, by the rules of the API itself (:class:`refunds.orders.Order`)."""

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Protocol

from pydantic import TypeAdapter, ValidationError

from refunds.errors import CATALOGUE, Code, RefundError
from refunds.orders import ExternalId, Order

TIMES = ("customer_since", "placed_at", "delivered_at")
# The model takes digits for seconds since 1970, so that what a spreadsheet makes of a date, a number of days, would be a moment of that year.
_NUMBER = "This is no time as year, month and day."
_ID = TypeAdapter(ExternalId)


@dataclass(frozen=True)
class Trouble:
    """One thing that is wrong, as a row of the report."""

    line: int
    order: str
    code: str
    field: str
    what: str
    remedy: str


def trouble(line: int, order: str, code: str, field: str, what: str, remedy: str = "") -> Trouble:
    """A trouble with the remedy of its code, unless there is a better one."""
    known = CATALOGUE[Code(code)].remedy if code in CATALOGUE else ""
    return Trouble(line, order, code, field, what, remedy or known)


@dataclass(frozen=True)
class Judged:
    """An order as the API takes it, or the troubles that keep it from being sent. ``place`` tells the line and the name in the file of a field."""

    order: dict[str, Any]
    troubles: tuple[Trouble, ...]
    place: Callable[[str], tuple[int, str]]
    shown: str = ""
    """The first amount as it was read, for people to compare."""


class Entry(Protocol):
    """An order of the file, from its ``first`` to its ``last`` line. ``order_id`` is empty when it cannot be told."""

    first: int
    last: int
    order_id: str

    def judge(self) -> Judged:
        """Read it. Costs time, so that what was imported before is not judged again."""
        ...


def check(order_id: str, order: dict[str, Any], place: Callable[[str], tuple[int, str]]) -> tuple[Trouble, ...]:
    """Everything that the API would find wrong with an order without looking into its record."""
    found: list[tuple[str, str, str]] = []
    try:
        _ID.validate_python(order_id)
    except ValidationError as error:
        found += [(Code.INVALID_FIELD, "order_id", one["msg"]) for one in error.errors()]
    found += [(Code.INVALID_FIELD, name, _NUMBER) for name in TIMES if isinstance(order.get(name), str) and order[name].strip()[4:5] != "-"]
    if found:
        return tuple(located(order_id, found, place))
    try:
        Order.model_validate_json(json.dumps(order), strict=True)
    except ValidationError as error:
        found += [_problem(one) for one in error.errors(include_input=False, include_url=False)]
    except RefundError as error:
        found.append((error.code.value, error.field or "", error.detail))
    except (ValueError, RecursionError) as error:
        found.append((Code.INVALID_FIELD, "", f"The order cannot be read: {error}."))
    return tuple(located(order_id, found, place))


def located(order_id: str, found: Iterable[tuple[str, str, str]], place: Callable[[str], tuple[int, str]]) -> list[Trouble]:
    """Problems of code, field and detail, as the troubles of the lines where these fields stand."""
    troubles: list[Trouble] = []
    for code, field, what in found:
        line, name = place(field)
        remedy = "Write a time with its zone, such as 2026-03-01T09:00:00Z." if field in TIMES else ""
        troubles.append(trouble(line, order_id, str(code), name, what, remedy))
    return troubles


def _problem(one: Any) -> tuple[str, str, str]:
    field, what = ".".join(str(part) for part in one["loc"]), one["msg"].removeprefix("Value error, ")
    if one["type"] == "extra_forbidden":
        return Code.UNKNOWN_FIELD, field, "This field is not known here."
    if one["type"] in set(Code):
        # A check of the domain with a code of its own, which says which part of its object it is about.
        return one["type"], f"{field}.{one['ctx']['field']}", what
    # A check across fields names none; its message begins with one.
    start = what.split(maxsplit=1)[0].rstrip(":") if what else ""
    return Code.INVALID_FIELD, start if not field and start in Order.model_fields else field, what
