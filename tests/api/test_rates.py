"""Exchange rates over the API: recorded with who and where from, never edited, never a float."""

from datetime import timedelta
from typing import Any

import pytest

from refunds.clock import rfc3339
from refunds.people import Role
from tests.api.conftest import Api

EURO = {"currency": "EUR", "rate": "1.0834", "source": "European Central Bank"}


async def test_a_rate_is_recorded_with_who_when_and_where_from(api: Api) -> None:
    olga = await api.caller("olga", Role.OPERATOR)

    first = await api.call("PUT", "/v1/rates", olga, EURO)
    api.clock.advance(timedelta(minutes=1))
    second = await api.call("PUT", "/v1/rates", olga, EURO | {"rate": "1.1000", "currency": "eur"})
    listed = (await api.call("GET", "/v1/rates", olga)).json()
    history = (await api.call("GET", "/v1/rates?history=true&currency=EUR&limit=1", olga)).json()
    older = (await api.call("GET", f"/v1/rates?history=true&currency=EUR&limit=1&cursor={history['next_cursor']}", olga)).json()

    assert (first.status_code, second.status_code) == (200, 200)
    made = first.json()
    assert (made["base"], made["currency"], made["rate"], made["before"]) == ("USD", "EUR", "1.0834", None)
    assert made["shown"] == "1 EUR = 1.0834 USD, so €100.00 count as $108.34"
    assert (made["recorded_by"]["handle"], made["source"]) == ("olga", "European Central Bank")
    assert (second.json()["rate"], second.json()["before"]["id"]) == ("1.1", made["id"])
    assert (listed["base_currency"], listed["rates_at_most_days_old"]) == ("USD", 7)
    assert [rate["id"] for rate in listed["rates"]] == [second.json()["id"]]
    assert listed["missing"] == ["GBP", "CAD", "AUD", "CHF", "JPY", "INR", "KWD", "BHD"]
    assert [rate["id"] for rate in history["rates"] + older["rates"]] == [second.json()["id"], made["id"]]
    assert older["next_cursor"] is None
    entered = await api.rows("SELECT actor, data FROM ledger WHERE type = 'rate_recorded' ORDER BY id")
    assert [(row["actor"], row["data"]["rate"]) for row in entered] == [(olga.id, "1.0834"), (olga.id, "1.1")]


async def test_a_rate_that_is_too_old_is_missing(api: Api) -> None:
    since = rfc3339(api.clock.now() - timedelta(days=7, minutes=1))
    assert (await api.call("PUT", "/v1/rates", api.administrator, EURO | {"effective_at": since})).status_code == 200

    assert (await api.call("GET", "/v1/rates", api.administrator)).json()["missing"][0] == "EUR"


@pytest.mark.parametrize(
    ("changed", "code", "field"),
    [
        *[
            ({"rate": rate}, "INVALID_FIELD", "rate")
            for rate in (1.0834, 1, "0", "0.000", "-1", "1e3", "1,08", "NaN", "", "1.", ".5", "01.5")
        ],
        *[({"rate": rate}, "INVALID_FIELD", "rate") for rate in ("\uff11.5", "\u0661", " 1.5", "1" * 13, "1." + "0" * 18 + "1")],
        ({"currency": "USD"}, "INVALID_FIELD", "currency"),
        ({"currency": "XXX"}, "UNKNOWN_CURRENCY", "currency"),
        ({"base": "XXX"}, "UNKNOWN_CURRENCY", "base"),
        ({"base": "US"}, "INVALID_FIELD", "base"),
        ({"source": " "}, "INVALID_FIELD", "source"),
        ({"source": None}, "INVALID_FIELD", "source"),
        ({"effective_at": "2999-01-01T00:00:00Z"}, "INVALID_FIELD", "effective_at"),
        ({"effective_at": "2026-01-01T00:00:00"}, "INVALID_FIELD", "effective_at"),
        ({"inverse": True}, "UNKNOWN_FIELD", "inverse"),
    ],
)
async def test_what_is_no_rate_is_not_recorded(shared_api: Api, changed: dict[str, Any], code: str, field: str) -> None:
    answer = await shared_api.call("PUT", "/v1/rates", shared_api.administrator, EURO | changed)

    assert (answer.status_code, answer.json()["code"], answer.json()["field"]) == (422, code, field)
    assert (await shared_api.call("GET", "/v1/rates", shared_api.administrator)).json()["rates"] == []


async def test_only_operators_record_rates(shared_api: Api) -> None:
    for caller in (await shared_api.shop(), await shared_api.reviewer(), await shared_api.caller("audi", Role.AUDITOR)):
        assert (await shared_api.call("PUT", "/v1/rates", caller, EURO)).json()["code"] == "FORBIDDEN"
    assert (await shared_api.call("GET", "/v1/rates", await shared_api.shop())).json()["code"] == "FORBIDDEN"
    assert (await shared_api.call("GET", "/v1/rates", await shared_api.reviewer())).status_code == 200


@pytest.mark.parametrize("query", ["cursor=x", "limit=0", "limit=201", "currency=XXX", "since=2026"])
async def test_a_wrong_question_about_rates_is_told(shared_api: Api, query: str) -> None:
    answer = await shared_api.call("GET", f"/v1/rates?{query}", shared_api.administrator)
    assert (answer.status_code, answer.json()["field"]) == (422, query.partition("=")[0])
