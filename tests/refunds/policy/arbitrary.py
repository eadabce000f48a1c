"""Arbitrary facts, made from the kinds of the facts themselves: a fact that is added later is arbitrary here without a line."""

from dataclasses import fields, is_dataclass
from datetime import UTC, datetime
from enum import StrEnum
from types import NoneType, UnionType
from typing import Any, Union, cast, get_args, get_origin, get_type_hints

from hypothesis import strategies as st

from refunds.facts import Facts

CURRENCIES = ("USD", "EUR", "JPY", "KWD", "SEK")
_WORDS = ("", "books", "electronics", "final_sale", "gift_card", "chat", "fax", "normal", "elevated", "monday", "DE", "rf_1", "day")
_WHOLE = st.integers(0, 2_000_000) | st.integers(0, 40) | st.sampled_from([0, 1, 10_000, 10_001, 50_000, 50_001])
_TIMES = st.datetimes(datetime(2024, 1, 1), datetime(2028, 1, 1)).map(lambda moment: moment.replace(tzinfo=UTC))  # noqa: DTZ001 - made aware here


def _of(hint: Any, name: str) -> st.SearchStrategy[Any]:
    if get_origin(hint) in (Union, UnionType):
        return st.one_of(*(st.none() if one is NoneType else _of(one, name) for one in get_args(hint)))
    if get_origin(hint) is tuple:
        return st.lists(_of(get_args(hint)[0], name), max_size=3).map(tuple)
    if is_dataclass(hint):
        return group(cast(type, hint))
    if isinstance(hint, type) and issubclass(hint, StrEnum):
        return st.sampled_from(list(hint))
    if name == "currency":
        return st.sampled_from(CURRENCIES)
    if name == "rate":
        return st.sampled_from(["1.0834", "0.0066"])
    kinds: dict[type, st.SearchStrategy[Any]] = {
        bool: st.booleans(),
        int: _WHOLE,
        str: st.sampled_from(_WORDS) | st.text(max_size=12),
        datetime: _TIMES,
    }
    return kinds[hint]


def group(kind: type) -> st.SearchStrategy[Any]:
    """Any value of one group of facts."""
    hints = get_type_hints(kind)
    return st.builds(kind, **{field.name: _of(hints[field.name], field.name) for field in fields(kind)})


facts: st.SearchStrategy[Facts] = group(Facts)
