"""Policy versions over the API: read, published, refused with what to do; and simulations, which leave the whole database as it was, byte for byte."""

import asyncio
import json
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import pytest

from api import simulations
from api.simulations import SimulationLine
from refunds.people import Role
from refunds.policy import policy_hash, sample_policy_text
from tests.api.conftest import Api

SAMPLE = sample_policy_text()
STRICT = SAMPLE.replace("manager_above: 500.00", "manager_above: 150.00", 1)
RULE = "  - {{id: mine, when: '{when}', then: require_review, text: Mine.}}\n"


async def publish(api: Api, source: str = STRICT, **more: Any) -> Any:
    return await api.call("POST", "/v1/policy/versions", api.administrator, {"source": source, "note": "because"} | more)


async def everything(api: Api) -> dict[str, Any]:
    """The bytes of the whole database: every row of every table as text, and where each sequence stands."""
    tables = await api.rows("SELECT tablename FROM pg_tables WHERE schemaname = current_schema() ORDER BY 1")
    found: dict[str, Any] = {
        name: [row["t"] for row in await api.rows(f'SELECT x::text AS t FROM "{name}" x ORDER BY 1')]
        for name in (row["tablename"] for row in tables)
    }
    sequences = await api.rows("SELECT sequencename, last_value FROM pg_sequences WHERE schemaname = current_schema() ORDER BY 1")
    return found | {"sequences": [tuple(row.values()) for row in sequences]}


# --- reading -----------------------------------------------------------------------------------------------------------------------------


async def test_versions_are_listed_with_who_why_and_where_they_stand(api: Api) -> None:
    await publish(api)
    tomorrow = (api.clock.now() + timedelta(days=1)).isoformat()
    await publish(api, SAMPLE, effective_from=tomorrow)

    listed = (await api.call("GET", "/v1/policy/versions", await api.reviewer())).json()
    page = (await api.call("GET", "/v1/policy/versions?limit=2", api.administrator)).json()
    rest = (await api.call("GET", f"/v1/policy/versions?before={page['next_before']}", api.administrator)).json()

    assert [(row["version"], row["standing"]) for row in listed["versions"]] == [(3, "scheduled"), (2, "in_force"), (1, "superseded")]
    assert [row["author"] and row["author"]["handle"] for row in listed["versions"]] == ["administrator", "administrator", None]
    assert (listed["in_force"], listed["next_before"], page["next_before"]) == (2, None, 2)
    assert [row["version"] for row in page["versions"] + rest["versions"]] == [3, 2, 1]
    assert all("source" not in row for row in listed["versions"])


async def test_a_version_is_shown_as_it_was_published_with_its_hash(api: Api) -> None:
    await publish(api)

    shown = (await api.call("GET", "/v1/policy/versions/2", await api.caller("audrey", Role.AUDITOR))).json()

    assert (shown["source"], shown["hash"], shown["note"]) == (STRICT, policy_hash(STRICT), "because")


@pytest.mark.parametrize("name", ["7", "0", "-1", "now", "1.0", "99999999999999999999", "%C2%B2"])
async def test_a_version_that_is_not_there_is_not_found(api: Api, name: str) -> None:
    answer = await api.call("GET", f"/v1/policy/versions/{name}", api.administrator)

    assert (answer.status_code, answer.json()["code"]) == (404, "NOT_FOUND")


async def test_the_version_in_force_at_a_date_is_told(api: Api) -> None:
    before = api.clock.now()
    await publish(api)
    later = api.clock.now() + timedelta(days=1)
    await publish(api, SAMPLE, effective_from=later.isoformat())

    async def at(moment: Any) -> Any:
        return await api.call("GET", f"/v1/policy?at={moment.isoformat().replace('+00:00', 'Z')}", api.administrator)

    assert [(await at(moment)).json()["version"] for moment in (before, later - timedelta(seconds=1), later)] == [1, 2, 3]
    assert (await at(before - timedelta(days=1))).status_code == 404


# --- publishing --------------------------------------------------------------------------------------------------------------------------


async def test_a_repeated_publication_is_answered_with_the_version_it_made(api: Api) -> None:
    first, again = await publish(api), await publish(api)

    assert (first.status_code, first.json()["published"], first.json()["version"]) == (201, True, 2)
    assert (again.status_code, again.json()["published"], again.json()["version"]) == (200, False, 2)
    assert await api.count("policy_versions") == 2


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"source": "name: [\n"}, ["line 2", "not readable as YAML", "Correct the indentation"]),
        ({"source": SAMPLE + "\nmagic: true\n"}, ["magic", "this name is not known", "Known here"]),
        ({"source": SAMPLE.replace("largest: 10000.00", "largest: -1.00", 1)}, ["currencies.USD.largest", "above zero"]),
        ({"source": SAMPLE + RULE.format(when="1 / payment.refunds_made > 0")}, ["rules.2.when", "divides by zero", "Ask first"]),
        ({"source": SAMPLE + RULE.format(when="7 % customer.refunds == 1")}, ["rules.2.when", "divides by zero", "first request"]),
        (
            {
                "source": SAMPLE.replace(
                    "  EUR: {",
                    "  SEK: { consent_only_up_to: 9.00, manager_above: 9.00, largest: 9.00, per_customer_per_day: 9.00 }\n  EUR: {",
                    1,
                )
            },
            ["currencies.SEK", "no rate of SEK in USD is recorded", "refunds rates set SEK RATE --base USD"],
        ),
        ({"effective_from": "2020-01-01T00:00:00Z"}, ["has passed", "Name a later time, or leave it out"]),
        ({"effective_from": "tomorrow"}, ["effective_from"]),
        ({"note": "   "}, ["note"]),
        ({"author": "me"}, ["author"]),
    ],
)
async def test_bad_input_is_refused_with_what_to_do_and_nothing_changes(api: Api, changed: dict[str, Any], told: list[str]) -> None:
    before = await everything(api)

    answer = await api.call("POST", "/v1/policy/versions", api.administrator, {"source": STRICT, "note": "x"} | changed)

    assert answer.status_code == 422
    said = json.dumps(answer.json(), ensure_ascii=False)
    assert [words for words in told if words not in said] == []
    assert await everything(api) == before


async def test_who_may_not_publish_is_refused_and_entered_once(api: Api) -> None:
    rita = await api.reviewer()

    answer = await api.call("POST", "/v1/policy/versions", rita, {"source": STRICT, "note": "mine"})

    assert (answer.status_code, answer.json()["code"]) == (403, "FORBIDDEN")
    assert await api.count("policy_versions") == 1
    entered = await api.rows("SELECT actor, data FROM ledger WHERE type = 'policy_refused'")
    assert [(entry["actor"], entry["data"]) for entry in entered] == [(rita.id, {"code": "FORBIDDEN"})]


async def test_a_second_version_with_one_date_is_refused_and_nothing_changes(api: Api) -> None:
    at = (api.clock.now() + timedelta(days=1)).isoformat()
    await publish(api, effective_from=at)
    before = await everything(api)

    answer = await publish(api, STRICT.replace("Sample policy", "Another"), effective_from=at)

    assert (answer.status_code, answer.json()["code"], answer.json()["version"]) == (409, "POLICY_DATE_TAKEN", 2)
    assert "Name another time" in answer.json()["detail"]
    assert await everything(api) == before


async def test_a_currency_can_be_published_once_its_rate_is_recorded(api: Api) -> None:
    sek = SAMPLE.replace(
        "  EUR: {", "  SEK: { consent_only_up_to: 9.00, manager_above: 9.00, largest: 9.00, per_customer_per_day: 9.00 }\n  EUR: {", 1
    )
    assert (await publish(api, sek)).status_code == 422
    await api.call("PUT", "/v1/rates", api.administrator, {"currency": "SEK", "rate": "0.095", "source": "test"})

    assert (await publish(api, sek)).status_code == 201


# --- simulating --------------------------------------------------------------------------------------------------------------------------


async def simulated(api: Api, **body: Any) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """The lines of a simulation but the last, and the last one; each held against the model that the description names."""
    answer = await api.call("POST", "/v1/policy/simulations", api.administrator, body)
    assert (answer.status_code, answer.headers["content-type"]) == (200, "application/x-ndjson")
    lines = [json.loads(line) for line in answer.text.splitlines()]
    for line in lines:
        SimulationLine.model_validate(line)
    return lines[:-1], lines[-1]


async def test_a_simulation_tells_what_would_change_and_leaves_every_byte_as_it_was(api: Api) -> None:
    seen = [await api.in_review(amount=amount) for amount in (12_000, 20_000, 25_000)]
    await api.received()
    before = await everything(api)

    lines, last = await simulated(api, source=STRICT)

    assert await everything(api) == before, "it writes nothing, not even that it ran"
    result = last["result"]
    assert (last["type"], result["requests"], result["changed"], result["stricter"]) == ("result", 3, 2, 2)
    assert (result["before"]["version"], result["after"]) == (1, {"version": None, "name": "Sample policy"})
    assert result["moves"] == [{"before": "reviewer", "after": "manager", "requests": 2, "amounts": {"USD": 45_000}}]
    assert [left["requests"] for left in result["left_out"]] == [1]
    changed = [line["changed"] for line in lines if line["type"] == "changed"]
    assert [one["id"] for one in changed] == [view["id"] for view in seen[1:]]
    assert [one["checks"] for one in changed] == [["ceiling"], ["ceiling"]]
    progress = [(line["done"], line["total"]) for line in lines if line["type"] == "progress"]
    assert progress == [(0, 3), (3, 3)]
    personal = [seen[0]["customer_id"], seen[0]["order_id"]]
    assert not [name for name in personal if name in json.dumps([*lines, last])]


async def test_the_same_simulation_gives_the_same_result(api: Api) -> None:
    for amount in (12_000, 20_000):
        await api.in_review(amount=amount)
    until = api.clock.now().isoformat()

    first, second = [await simulated(api, source=STRICT, until=until) for _ in range(2)]

    assert first[0] == second[0]
    assert first[1]["result"] == second[1]["result"]


async def test_a_version_is_tried_against_another_and_on_a_time_of_its_own(api: Api) -> None:
    await publish(api)
    await api.in_review()
    after = api.clock.now()

    _, none = await simulated(api, version=1, since=after.isoformat())
    _, back = await simulated(api, version=1, against=2)
    _, same = await simulated(api, version=2)

    assert (none["result"]["requests"], back["result"]["looser"], same["result"]["changed"]) == (0, 1, 0)


@pytest.mark.parametrize(
    ("body", "status", "told"),
    [
        ({}, 422, "name either a version or give a source"),
        ({"version": 1, "source": SAMPLE}, 422, "name either a version or give a source"),
        ({"version": 9}, 404, "There is no policy version 9"),
        ({"version": 1, "against": 9}, 404, "There is no policy version 9"),
        ({"version": "1"}, 422, "version"),
        ({"source": "name: x\n"}, 422, "is missing"),
        ({"version": 1, "since": "2026-02-01T00:00:00Z", "until": "2026-01-01T00:00:00Z"}, 422, "later than since"),
        ({"version": 1, "keep": True}, 422, "keep"),
    ],
)
async def test_a_simulation_that_cannot_be_made_is_refused(shared_api: Api, body: dict[str, Any], status: int, told: str) -> None:
    answer = await shared_api.call("POST", "/v1/policy/simulations", shared_api.administrator, body)

    assert (answer.status_code, told in answer.text) == (status, True), answer.text


async def test_only_operators_simulate(shared_api: Api) -> None:
    for role in (Role.REVIEWER, Role.AUDITOR, Role.MANAGER, Role.REQUESTER):
        caller = await shared_api.caller(f"a-{role}", role)
        assert (await shared_api.call("POST", "/v1/policy/simulations", caller, {"version": 1})).status_code == 403


async def test_one_simulation_runs_at_a_time(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second is told so, whether it comes before the first has begun to answer or after."""
    going, go_on = asyncio.Event(), asyncio.Event()
    whole = simulations.lines

    async def slow(*arguments: Any) -> AsyncIterator[bytes]:
        going.set()
        await go_on.wait()
        async for line in whole(*arguments):
            yield line

    monkeypatch.setattr(simulations, "lines", slow)
    first = asyncio.create_task(simulated(api, version=1))
    await going.wait()
    second = await api.call("POST", "/v1/policy/simulations", api.administrator, {"version": 1})
    go_on.set()

    assert (second.status_code, second.json()["code"], second.json()["retryable"]) == (429, "SIMULATION_RUNNING", True)
    assert (await first)[1]["type"] == "result"
    assert (await simulated(api, version=1))[1]["type"] == "result"
