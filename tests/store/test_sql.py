"""Statements that are compiled once are sent as they were written: each value in its own place, wherever and however often it is named."""

import pytest
from sqlalchemy import Integer, Text, bindparam, column, literal, null, select, values
from sqlalchemy.dialects.postgresql import JSONB

from store.sql import Query
from tests.store.world import World

_FIRST, _SECOND = bindparam("first", type_=Integer), bindparam("second", type_=Integer)
_TWICE = Query(
    select((_SECOND - _FIRST).label("less"), (_FIRST * 10 + _SECOND).label("side"), literal(7).label("fixed"), _FIRST.label("again"))
)
_PERCENT = Query(select(literal("100% %s %(first)s $1").label("said"), bindparam("given", type_=Text).like("%50\\%%").label("found")))
_LONG = Query(
    select(*(_FIRST.op("+")(literal(number)).label(f"a_column_with_a_name_that_is_rather_long_{number}") for number in range(100)))
)
_JSON = Query(select(bindparam("body", None, type_=JSONB).label("body"), bindparam("body", None, type_=JSONB).is_(null()).label("missing")))
_NAMED = Query(select(values(column("x", Integer), name="v").data([(1,), (2,)])).where(column("x") > bindparam("least", 1, type_=Integer)))


async def test_a_value_stands_wherever_it_is_named(world: World) -> None:
    async with world.api.read() as connection:
        assert await _TWICE.one(connection, second=5, first=2) == {"less": 3, "side": 25, "fixed": 7, "again": 2}


async def test_percent_and_dollar_signs_are_only_themselves(world: World) -> None:
    async with world.api.read() as connection:
        assert await _PERCENT.one(connection, given="that is 50% off") == {"said": "100% %s %(first)s $1", "found": True}


async def test_a_long_statement_is_one_like_any_other(world: World) -> None:
    async with world.api.read() as connection:
        row = await _LONG.one(connection, first=1000)
    assert list(row.values()) == list(range(1000, 1100))


@pytest.mark.parametrize(("body", "shown", "missing"), [({"a": [1, None, "%s"]}, {"a": [1, None, "%s"]}, False), (None, None, True)])
async def test_json_goes_as_it_is_and_nothing_is_null(world: World, body: object, shown: object, missing: bool) -> None:
    async with world.api.read() as connection:
        assert await _JSON.one(connection, body=body) == {"body": shown, "missing": missing}


async def test_what_is_not_given_has_its_own_value_and_what_must_be_is_asked_for_by_name(world: World) -> None:
    async with world.api.read() as connection:
        assert [row["x"] for row in await _NAMED.all(connection)] == [2]
        assert [row["x"] for row in await _NAMED.all(connection, least=0)] == [1, 2]
        with pytest.raises(AssertionError, match=r"not given: \['second'\]"):
            await _TWICE.one(connection, first=1)
