"""Stop and resume, and what machines read."""

import asyncio
import time
from datetime import timedelta

import pytest
from sqlalchemy import text

from api.routes import controls as control_routes
from refunds.people import Role
from tests.api.conftest import Api, Caller, running
from tests.conftest import FreshDatabase

STOP = {"scope": "everything", "state": "stopped", "reason": "double payouts seen"}
RESUME = {"state": "running", "reason": "fixed"}


async def operator(api: Api, handle: str = "omar") -> Caller:
    """The key of another operator."""
    return await api.caller(handle, Role.OPERATOR)


async def test_a_stop_is_recorded_with_who_when_and_why_and_keeps_the_mode(api: Api) -> None:
    await api.call("PUT", "/v1/controls", api.administrator, RESUME | {"mode": "draft"})

    stopped = await api.call("PUT", "/v1/controls", api.administrator, STOP)
    shown = await api.call("GET", "/v1/controls", await api.shop())
    resumed = await api.call("PUT", "/v1/controls", await operator(api), RESUME)

    assert stopped.status_code == 200
    [control] = shown.json()["controls"]
    assert (control["state"], control["stopped"], control["mode"], control["reason"]) == ("stopped", True, "draft", "double payouts seen")
    assert (resumed.json()["state"], resumed.json()["mode"], resumed.json()["resumed"]) == ("running", "draft", 0)
    rows = await api.rows("SELECT actor, data FROM ledger WHERE type = 'control_changed' ORDER BY id")
    assert [row["data"]["stopped"] for row in rows] == [False, True, False]
    assert [row["actor"] == control["changed_by"] for row in rows] == [True, True, False]
    assert (control["stopped_by"], control["stopped_by_handle"]) == (control["changed_by"], "administrator")


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"state": "stopped"}, "reason"),
        ({"state": "stopped", "reason": "  "}, "reason"),
        ({"reason": "x"}, "state"),
        ({"state": "paused", "reason": "x"}, "state"),
        ({"state": "stopped", "reason": "x", "mode": "dry"}, "mode"),
        ({"state": "stopped", "reason": "x", "scope": "agent:1"}, "scope"),
        ({"state": "stopped", "reason": "x", "scope": "agent:"}, "scope"),
        ({"state": "stopped", "reason": "x", "scope": "agent:administrator"}, "scope"),
        ({"state": "stopped", "reason": "x", "scope": "agents:bot"}, "scope"),
        ({"state": "stopped", "reason": "x", "scope": "agents,processor:stripe"}, "scope"),
        ({"state": "stopped", "reason": "x", "scope": ["agents", "processor:stripe"]}, "scope"),
        ({"state": "stopped", "reason": "x", "scope": ""}, "scope"),
        ({"state": "stopped", "reason": "x", "scope": "agents", "mode": "draft"}, "mode"),
        ({"state": "running", "reason": " "}, "reason"),
        ({"state": "stopped", "reason": "x", "scope": "processor:other"}, "scope"),
        ({"state": "stopped", "reason": "x", "scope": "processor:stripe", "mode": "draft"}, "mode"),
    ],
)
async def test_a_change_that_is_not_whole_changes_nothing(shared_api: Api, body: dict[str, str], field: str) -> None:
    api = shared_api
    answer = await api.call("PUT", "/v1/controls", api.administrator, body)

    assert (answer.status_code, answer.json()["field"]) == (422, field)
    assert (await api.call("GET", "/v1/controls", api.administrator)).json()["controls"][0]["state"] == "running"
    assert await api.rows("SELECT id FROM halts") == []
    changed = "SELECT type FROM ledger WHERE type IN ('control_changed', 'scope_halted', 'processor_halted', 'stop_repeated')"
    assert await api.rows(changed) == []


BOUND = "INSERT INTO processor_binding (processor, account, mode, bound_at) VALUES ('stripe', 'acct_1', 'test', now())"
PROCESSOR = {"scope": "processor:stripe"}


async def test_a_processor_is_halted_and_let_go_by_name(api: Api) -> None:
    async with api.owner.begin() as connection:
        await connection.execute(text(BOUND))

    before = await api.call("GET", "/v1/controls", api.administrator)
    stopped = await api.call("PUT", "/v1/controls", api.administrator, PROCESSOR | {"state": "stopped", "reason": "key rolled"})
    again = await api.call("PUT", "/v1/controls", api.administrator, PROCESSOR | {"state": "stopped", "reason": "again"})
    shown = await api.call("GET", "/v1/controls", api.administrator)
    resumed = await api.call("PUT", "/v1/controls", await operator(api), PROCESSOR | {"state": "running", "reason": "new key"})

    assert [(c["scope"], c["state"], c["reason"]) for c in before.json()["controls"]] == [
        ("everything", "running", "new installation"),
        ("processor:stripe", "running", "never halted"),
    ]
    halted = shown.json()["controls"][1]
    assert (halted["state"], halted["code"], halted["reason"], halted["mode"]) == ("stopped", "HALTED_BY_OPERATOR", "key rolled", None)
    assert halted["changed_by_handle"] == "administrator"
    assert [answer.json()["reason"] for answer in (stopped, again)] == ["key rolled"] * 2, "what is halted stays as it is"
    assert (resumed.json()["state"], resumed.json()["reason"], resumed.json()["code"]) == ("running", "new key", None)
    kinds = await api.rows("SELECT type FROM ledger WHERE type IN ('processor_halted', 'halt_lifted') ORDER BY id")
    assert [row["type"] for row in kinds] == ["processor_halted", "halt_lifted"]


async def open_attempt(api: Api, *, send_within_s: float) -> str:
    """A refund with a call to the processor under way, as the payments role leaves it."""
    view = await api.in_review()
    async with api.owner.begin() as connection:
        await connection.execute(
            text(
                "INSERT INTO operations (id, refund_id, revision, kind, terms_hash, payment_id, amount, currency, request, idempotency_key,"
                " created_at) SELECT 'op_1', id, 1, 'refund', 'h', payment_id, amount, currency, '{}', 'k', now() FROM refunds WHERE id = :id"
            ),
            {"id": view["id"]},
        )
        await connection.execute(
            text(
                "INSERT INTO attempts (id, operation_id, number, worker, opened_at, send_by)"
                " VALUES ('att_1', 'op_1', 1, 'w', clock_timestamp(), clock_timestamp() + :within)"
            ),
            {"within": timedelta(seconds=send_within_s)},
        )
    return view["id"]


async def test_a_stop_waits_for_calls_under_way_and_says_that_they_ended(api: Api) -> None:
    refund_id = await open_attempt(api, send_within_s=60)

    async def answer_soon() -> None:
        async with asyncio.timeout(10):
            while not (await api.rows("SELECT stopped FROM controls"))[0]["stopped"]:  # noqa: ASYNC110 - the database is what is waited for
                await asyncio.sleep(0.01)
        async with api.owner.begin() as connection:
            await connection.execute(text("UPDATE attempts SET outcome = 'answered', answered_at = now()"))

    stopped, _ = await asyncio.gather(api.call("PUT", "/v1/controls", api.administrator, STOP), answer_soon())

    [call] = stopped.json()["calls_in_flight"]
    assert (call["attempt"], call["refund"], call["confirmed"], call["may_still_send"]) == ("att_1", refund_id, True, False)


async def test_operators_who_change_different_things_at_once_never_block_each_other(api: Api) -> None:
    # With and without a mode the same lock comes first: two orders of locks would make one of the two, perhaps the stop, fail.
    changes = [STOP, RESUME | {"mode": "draft"}, RESUME, STOP | {"mode": "live"}] * 5
    other = await operator(api)

    answers = await asyncio.gather(
        *(api.call("PUT", "/v1/controls", api.administrator if "scope" in change else other, change) for change in changes)
    )

    assert [answer.status_code for answer in answers] == [200] * 20


async def test_a_stop_lists_what_it_could_not_confirm_once_it_can_no_longer_be_sent(api: Api) -> None:
    await open_attempt(api, send_within_s=0.5)
    began = time.monotonic()

    stopped = await api.call("PUT", "/v1/controls", api.administrator, STOP)

    [call] = stopped.json()["calls_in_flight"]
    assert (call["confirmed"], call["may_still_send"]) == (False, False)
    assert 0.2 < time.monotonic() - began < 5


async def test_a_stop_answers_in_bounded_time(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(control_routes, "CONFIRM_WITHIN_S", 0.3)
    await open_attempt(api, send_within_s=60)

    stopped = await api.call("PUT", "/v1/controls", api.administrator, STOP)

    [call] = stopped.json()["calls_in_flight"]
    assert (call["confirmed"], call["may_still_send"]) == (False, True)


async def test_health_and_readiness_tell_temporal_from_the_database(api: Api) -> None:
    assert (await api.http.get("/healthz")).json() == {"status": "ok"}

    ready = await api.http.get("/readyz")

    assert (ready.status_code, ready.json()) == (200, {"status": "ok", "database": "ok", "temporal": "unreachable", "ledger": "ok"})


async def test_metrics_count_by_route_and_never_by_id(api: Api) -> None:
    view = await api.in_review()

    text_form = (await api.http.get("/metrics")).text

    assert 'refunds_http_requests_total{method="GET",route="/v1/refunds/{refund_id}",status="200"} 1.0' in text_form
    assert 'refunds_accepted_total{kind="refund"} 1.0' in text_form
    assert 'refunds_open{status="awaiting_review"} 1.0' in text_form
    assert "refunds_store_up 1.0" in text_form
    assert view["id"] not in text_form
    assert view["order_id"] not in text_form


async def test_without_the_database_nothing_is_stored_and_the_caller_is_told_to_repeat(database: FreshDatabase) -> None:
    async with running(database) as api:
        body, rita = api.asked(await api.order()), await api.reviewer()
        await api.received()
        with database.server.connect("postgres", "postgres") as connection:
            connection.execute(f'ALTER DATABASE "{database.name}" ALLOW_CONNECTIONS false')
            connection.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s AND pid <> pg_backend_pid()", [database.name]
            )
            down = await api.ask(body, key="during")
            reading = await api.call("GET", "/v1/refunds", rita)
            stop = await api.call("PUT", "/v1/controls", api.administrator, STOP)
            ready, metrics, alive = [await api.http.get(path) for path in ("/readyz", "/metrics", "/healthz")]
            connection.execute(f'ALTER DATABASE "{database.name}" ALLOW_CONNECTIONS true')

        for answer in (down, reading, stop):
            assert (answer.status_code, answer.json()["code"], answer.json()["retryable"]) == (503, "STORE_UNAVAILABLE", True)
            assert int(answer.headers["Retry-After"]) >= 1
        assert (ready.status_code, ready.json()["database"]) == (503, "unreachable")
        assert "refunds_store_up 0.0" in metrics.text
        assert alive.status_code == 200
        await api.owner.engine.dispose()  # the test's own connections were cut off too
        assert await api.count("refunds") == 1
        assert (await api.ask(body, key="during")).status_code == 202


async def test_a_caller_may_name_the_request(api: Api) -> None:
    named = await api.call("GET", "/v1/refunds", await api.shop(), X_Request_Id="case-77.a")
    odd = await api.call("GET", "/v1/refunds", await api.shop(), X_Request_Id="a b\tc")

    assert named.headers["X-Request-Id"] == "case-77.a"
    assert odd.headers["X-Request-Id"] != "a b\tc"


async def test_an_operator_of_another_kind_sees_the_stop(api: Api) -> None:
    for role in Role:
        answer = await api.call("GET", "/v1/controls", await api.caller(f"one-{role}", role))
        assert answer.status_code == 200
