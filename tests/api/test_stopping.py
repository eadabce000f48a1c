"""Who may stop and who may resume, scope by scope, and what the record says of it (promise P4)."""

from typing import Any

import httpx
import pytest
from sqlalchemy import text

from refunds.errors import Code
from refunds.people import PrincipalKind, Role
from store import halts, outbox
from tests.api.conftest import Api, Caller

STOPPED = {"state": "stopped", "reason": "double payouts seen"}
RUNNING = {"state": "running", "reason": "looked into it"}
SCOPES = ["everything", "agents", "agent:bot", "processor:stripe"]
BOUND = "INSERT INTO processor_binding (processor, account, mode, bound_at) VALUES ('stripe', 'acct_1', 'test', now())"


@pytest.fixture
async def desk(api: Api) -> Api:
    """With an agent, and a processor that the database is bound to."""
    await api.caller("bot", Role.REQUESTER, kind=PrincipalKind.AGENT)
    await change(api, BOUND)
    return api


async def change(api: Api, statement: str, **values: Any) -> None:
    async with api.owner.begin() as connection:
        await connection.execute(text(statement), values)


async def put(api: Api, key: Caller | str, scope: str, wanted: dict[str, Any]) -> httpx.Response:
    return await api.call("PUT", "/v1/controls", key, wanted | {"scope": scope})


async def state(api: Api, scope: str) -> dict[str, Any] | None:
    shown = (await api.call("GET", "/v1/controls", api.administrator)).json()["controls"]
    return next((control for control in shown if control["scope"] == scope), None)


async def record(api: Api) -> list[tuple[str, str, str | None]]:
    """What the ledger says of controls: the type, the scope, and the code where it was refused."""
    kinds = "'control_changed', 'scope_halted', 'processor_halted', 'halt_lifted', 'stop_repeated', 'control_refused'"
    rows = await api.rows(f"SELECT type, data FROM ledger WHERE type IN ({kinds}) ORDER BY id")
    return [(row["type"], row["data"].get("scope"), row["data"].get("code")) for row in rows]


@pytest.mark.parametrize("scope", SCOPES)
async def test_one_operator_stops_and_only_another_one_resumes(desk: Api, scope: str) -> None:
    olga, omar = await desk.caller("olga", Role.OPERATOR), await desk.caller("omar", Role.OPERATOR)

    stopped = await put(desk, olga, scope, STOPPED)
    own = await put(desk, olga, scope, RUNNING)
    still = await state(desk, scope)
    resumed = await put(desk, omar, scope, RUNNING)
    after = await state(desk, scope)

    assert (stopped.status_code, stopped.json()["state"], stopped.json()["stopped_by_handle"]) == (200, "stopped", "olga")
    assert (stopped.json()["stop_reason"], stopped.json()["scope"]) == ("double payouts seen", scope)
    assert (own.status_code, own.json()["code"]) == (403, "RESUME_NEEDS_ANOTHER_PERSON")
    assert "another operator" in own.json()["detail"]
    assert still is not None and (still["state"], still["stopped_by_handle"], still["reason"]) == ("stopped", "olga", "double payouts seen")
    assert (resumed.status_code, resumed.json()["state"], resumed.json()["changed_by_handle"]) == (200, "running", "omar")
    assert resumed.json()["stopped_by"] is None
    assert after is None or after["state"] == "running"
    refused = [entry for entry in await record(desk) if entry[0] == "control_refused"]
    assert refused == [("control_refused", scope, "RESUME_NEEDS_ANOTHER_PERSON")]


@pytest.mark.parametrize("scope", ["everything", "agents"])
async def test_a_second_account_of_whoever_stopped_is_no_second_person(desk: Api, scope: str) -> None:
    olga = await desk.caller("olga", Role.OPERATOR)
    await put(desk, olga, scope, STOPPED)
    again = await desk.caller("olga-2", Role.OPERATOR)
    await change(desk, "UPDATE principals SET name = (SELECT name FROM principals WHERE handle = 'olga') WHERE handle = 'olga-2'")

    answer = await put(desk, again, scope, RUNNING)

    assert (answer.status_code, answer.json()["code"]) == (403, "RESUME_NEEDS_ANOTHER_PERSON")
    still = await state(desk, scope)
    assert still is not None and still["state"] == "stopped"


@pytest.mark.parametrize("scope", SCOPES)
async def test_a_stop_that_is_asked_for_again_stays_whose_it_was(desk: Api, scope: str) -> None:
    """Omar saying so too does not make Olga free to resume: she still needs him, or anybody else."""
    olga, omar = await desk.caller("olga", Role.OPERATOR), await desk.caller("omar", Role.OPERATOR)
    first = await put(desk, olga, scope, STOPPED)

    again = await put(desk, omar, scope, STOPPED | {"reason": "I see it too"})
    own = await put(desk, olga, scope, RUNNING)
    resumed = await put(desk, omar, scope, RUNNING)

    for name in ("stopped_by_handle", "stopped_at", "stop_reason", "reason", "changed_at"):
        assert again.json()[name] == first.json()[name]
    assert (own.status_code, resumed.status_code) == (403, 200)
    [repeated] = await desk.rows("SELECT actor, data FROM ledger WHERE type = 'stop_repeated'")
    assert repeated["data"] == {"scope": scope, "reason": "I see it too"}
    assert repeated["actor"] != first.json()["stopped_by"]


@pytest.mark.parametrize("scope", SCOPES)
async def test_to_resume_what_is_not_stopped_changes_nothing(desk: Api, scope: str) -> None:
    olga = await desk.caller("olga", Role.OPERATOR)

    for _ in range(2):
        answer = await put(desk, olga, scope, RUNNING)
        assert (answer.status_code, answer.json()["state"]) == (200, "running")

    assert await record(desk) == []


async def test_a_mode_changes_no_stop_and_whose_it_is(desk: Api) -> None:
    """Otherwise whoever stopped would have the mode changed by a colleague, and resume alone."""
    olga, omar = await desk.caller("olga", Role.OPERATOR), await desk.caller("omar", Role.OPERATOR)
    await put(desk, olga, "everything", STOPPED)

    drafted = await put(desk, omar, "everything", {"mode": "draft", "reason": "until tomorrow"})
    with_a_stop = await put(desk, omar, "everything", STOPPED | {"mode": "live", "reason": "both"})
    own = await put(desk, olga, "everything", RUNNING)

    assert (drafted.json()["state"], drafted.json()["mode"], drafted.json()["stopped_by_handle"]) == ("stopped", "draft", "olga")
    assert (with_a_stop.json()["mode"], with_a_stop.json()["stopped_by_handle"]) == ("live", "olga")
    assert own.json()["code"] == "RESUME_NEEDS_ANOTHER_PERSON"
    modes = await desk.rows("SELECT data FROM ledger WHERE type = 'control_changed' ORDER BY id")
    assert [(row["data"]["mode"], row["data"]["reason"]) for row in modes[1:]] == [("draft", "until tomorrow"), ("live", "both")]


async def test_a_mode_that_is_set_while_it_runs_resumes_and_stops_nothing(desk: Api) -> None:
    answer = await put(desk, desk.administrator, "everything", {"mode": "draft", "reason": "a first look"})

    assert (answer.status_code, answer.json()["state"], answer.json()["mode"]) == (200, "running", "draft")


@pytest.mark.parametrize("scope", SCOPES)
async def test_a_service_may_stop_and_never_resumes(desk: Api, scope: str) -> None:
    watchdog = await desk.caller("watchdog", Role.OPERATOR, kind=PrincipalKind.SERVICE)

    stopped = await put(desk, watchdog, scope, STOPPED)
    own = await put(desk, watchdog, scope, RUNNING)
    resumed = await put(desk, desk.administrator, scope, RUNNING)

    assert (stopped.status_code, own.status_code, own.json()["code"], resumed.status_code) == (200, 403, "PERSON_REQUIRED", 200)


@pytest.mark.parametrize("wanted", [STOPPED, RUNNING, {"mode": "draft", "reason": "x"}])
async def test_an_agent_never_stops_nor_resumes_whatever_its_key_allows(desk: Api, wanted: dict[str, Any]) -> None:
    clever = await desk.caller("clever", Role.OPERATOR, kind=PrincipalKind.AGENT)

    answer = await put(desk, clever, "everything", wanted)

    assert (answer.status_code, answer.json()["code"]) == (403, "FORBIDDEN")
    assert await record(desk) == [("control_refused", None, "FORBIDDEN")]
    everything = await state(desk, "everything")
    assert everything is not None and (everything["state"], everything["mode"]) == ("running", "live")


async def test_nobody_but_an_operator_stops_and_each_refusal_is_recorded(desk: Api) -> None:
    roles = [role for role in Role if role is not Role.OPERATOR]
    for role in roles:
        answer = await put(desk, await desk.caller(f"one-{role}", role), "everything", STOPPED)
        assert (answer.status_code, answer.json()["code"]) == (403, "FORBIDDEN")

    assert await record(desk) == [("control_refused", None, "FORBIDDEN")] * len(roles)
    refused = await desk.rows(
        "SELECT p.handle FROM ledger l JOIN principals p ON p.id = l.actor WHERE type = 'control_refused' ORDER BY l.id"
    )
    assert [row["handle"] for row in refused] == [f"one-{role}" for role in roles]
    everything = await state(desk, "everything")
    assert everything is not None and everything["state"] == "running"


async def test_what_the_orchestrator_halted_needs_one_person_and_an_operator_s_stop_beside_it_another(desk: Api) -> None:
    olga, omar = await desk.caller("olga", Role.OPERATOR), await desk.caller("omar", Role.OPERATOR)
    clock = desk.clock
    async with desk.owner.begin() as connection:
        await halts.open_scope(connection, clock.now(), scope="agents", code=Code.KEY_REFUSED, reason="the orchestrator's own")
    assert (await put(desk, olga, "agents", RUNNING)).status_code == 200
    async with desk.owner.begin() as connection:
        await halts.open_scope(connection, clock.now(), scope="agents", code=Code.KEY_REFUSED, reason="the orchestrator's own")
    both = await put(desk, olga, "agents", STOPPED)

    assert [(halt["code"], halt["opened_by_handle"]) for halt in both.json()["halts"]] == [
        ("KEY_REFUSED", None),
        ("HALTED_BY_OPERATOR", "olga"),
    ]
    assert (await put(desk, olga, "agents", RUNNING)).status_code == 403
    shown = await state(desk, "agents")
    assert shown is not None and len(shown["halts"]) == 2, "a resume that is refused lifts nothing"
    assert (await put(desk, omar, "agents", RUNNING)).json()["halts"] == []


async def test_each_stop_is_its_own(desk: Api) -> None:
    olga, omar = await desk.caller("olga", Role.OPERATOR), await desk.caller("omar", Role.OPERATOR)
    for scope in SCOPES:
        await put(desk, olga, scope, STOPPED)

    await put(desk, omar, "everything", RUNNING)

    shown = (await desk.call("GET", "/v1/controls", omar)).json()
    assert {control["scope"]: control["state"] for control in shown["controls"]} == {
        "everything": "running",
        "agents": "stopped",
        "agent:bot": "stopped",
        "processor:stripe": "stopped",
    }
    assert shown["moves_money"] is False, "test mode"


async def test_a_resume_wakes_only_what_nothing_else_keeps_back(desk: Api) -> None:
    olga, omar = await desk.caller("olga", Role.OPERATOR), await desk.caller("omar", Role.OPERATOR)
    view = await desk.in_review(agent_model="a-model")
    await change(desk, "UPDATE refunds SET status = 'held', code = 'EMERGENCY_STOP' WHERE id = :id", id=view["id"])

    async def goes_on() -> list[str]:
        async with desk.owner.read() as connection:
            return await outbox.held_refunds(connection, "agents")

    assert await goes_on() == [view["id"]]
    for scope in ("everything", "agents", "processor:stripe"):
        await put(desk, olga, scope, STOPPED)
        assert await goes_on() == []
        await put(desk, omar, scope, RUNNING)
    await put(desk, omar, "everything", {"mode": "draft", "reason": "a first look"})
    assert await goes_on() == []
    await put(desk, omar, "everything", {"mode": "live", "reason": "enough"})
    await put(desk, olga, "agent:bot", STOPPED)
    assert await goes_on() == [view["id"]], "another agent's stop is not its own"


async def test_a_held_refund_says_which_stop_keeps_it_back_and_whose_it_is(desk: Api) -> None:
    olga = await desk.caller("olga", Role.OPERATOR)
    view = await desk.in_review()
    await change(desk, "UPDATE refunds SET status = 'held', code = 'EMERGENCY_STOP' WHERE id = :id", id=view["id"])
    await put(desk, olga, "everything", STOPPED)
    await put(desk, olga, "agents", STOPPED)

    shown = (await desk.call("GET", f"/v1/refunds/{view['id']}", await desk.reviewer())).json()

    [by] = shown["held_by"]
    assert (by["scope"], by["code"], by["by"], by["reason"]) == ("everything", "EMERGENCY_STOP", "olga", "double payouts seen")
    assert "everything stopped by Olga (olga) since " in shown["next_step"] and shown["next_step"].endswith(": double payouts seen")
