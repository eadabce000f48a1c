"""The emergency stop against a worker that froze on its way to the processor, in real processes (promise P4).

SIGSTOP is what a paused machine looks like: it holds its locks, answers nothing, and goes on later as if no time had passed.
"""

import signal
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any

import httpx
import psutil
import pytest
from temporalio.client import Client

from api.app import create_app
from api.routes.controls import CONFIRM_WITHIN_S
from refunds.people import PrincipalKind, Role
from refunds.settings import Settings
from store import principals
from store.db import connect
from tests.activities.shop import TEXT_KEY
from tests.worker.site import Site, Worker, until

HELD_AT_MOST_S = 6
"""How long PostgreSQL lets anybody hold the stop's lock (``store.controls``)."""
SLACK_S = 4
OPENED, OPENING = "after:intent+submitting+attempt_opened", "before:intent+submitting+attempt_opened"


@pytest.fixture(scope="module", autouse=True)
def orchestration(site: Site) -> None:
    """The process that hosts the workflows; the payments role is each test's own."""
    site.start("refunds")


@dataclass(frozen=True)
class Operators:
    """The API on the same database, and the keys of two operators by the state each asks for: whoever stopped cannot resume."""

    http: httpx.AsyncClient
    keys: dict[str, str]


@pytest.fixture
async def operator(site: Site) -> AsyncIterator[Operators]:
    owner, clock = site.shop.owner, site.shop.clock
    keys: dict[str, str] = {}
    for state, name in (("stopped", "Olga"), ("running", "Omar")):
        handle = f"{name}-{time.monotonic_ns()}"
        async with owner.begin() as connection:
            person = await principals.create_principal(connection, clock, kind=PrincipalKind.PERSON, handle=handle, name=name, actor="test")
            given = {"principal_id": person["id"], "roles": [Role.OPERATOR], "integration": None, "expires_at": None, "actor": "test"}
            _, keys[state] = await principals.create_key(connection, clock, **given)
    settings = Settings(refunds_text_key=TEXT_KEY, api_quote_wait_s=0.3)
    async with AsyncExitStack() as stack:
        database = connect(site.fresh.url("refunds_api"), clock, settings, name="refunds_api")
        stack.push_async_callback(database.close)

        async def temporal() -> Client:
            return site.client

        app = create_app(settings, database, temporal)
        await stack.enter_async_context(app.router.lifespan_context(app))
        client = httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://api", timeout=60)
        yield Operators(await stack.enter_async_context(client), keys)


async def change(operator: Operators, state: str) -> tuple[dict[str, Any], float]:
    """Stop or resume; returns the answer and how long it took."""
    began = time.monotonic()
    headers = {"Authorization": f"Bearer {operator.keys[state]}"}
    answer = await operator.http.put("/v1/controls", json={"state": state, "reason": "a worker does not answer"}, headers=headers)
    assert answer.status_code == 200, answer.text
    return answer.json(), time.monotonic() - began


async def frozen_at(site: Site, point: str, **changed: str) -> tuple[Worker, str, str]:
    """A worker that froze there with a refund in its hands."""
    intent = await site.shop.paid()
    refund = await site.shop.received(intent)
    worker = site.launch("payments", CRASH_POINTS=f"{point}=freeze", **changed)
    await site.run(refund)

    async def stands_still() -> bool:
        return f"crash point {point}: freeze" in worker.text and psutil.Process(worker.process.pid).status() == psutil.STATUS_STOPPED

    await until(stands_still, lambda: worker.text[-3000:])
    return worker, refund, intent


async def assert_nothing_left_until_resumed(site: Site, operator: Operators, worker: Worker, refund: str, intent: str) -> None:
    """The worker thaws, sends nothing and holds the refund; after the resume it is made, once."""
    worker.send(signal.SIGCONT)
    assert await site.reaches(refund, "held", "succeeded", "failed", "parked") == "held"
    assert (await site.shop.row(refund))["code"] == "EMERGENCY_STOP"
    assert await site.shop.asked_and_made(intent) == (0, 0)

    await change(operator, "running")
    assert await site.reaches(refund, "succeeded", "failed", "parked") == "succeeded"
    assert await site.shop.asked_and_made(intent) == (1, 1)
    worker.kill()


async def test_a_stop_lists_an_attempt_of_a_frozen_worker_and_it_sends_nothing_when_it_thaws(site: Site, operator: Operators) -> None:
    worker, refund, intent = await frozen_at(site, OPENED)

    stopped, took = await change(operator, "stopped")

    [call] = stopped["calls_in_flight"]
    assert (call["refund"], call["confirmed"], call["may_still_send"]) == (refund, False, False)
    assert took < CONFIRM_WITHIN_S + SLACK_S
    await assert_nothing_left_until_resumed(site, operator, worker, refund, intent)
    assert await site.shop.outcomes(refund) == ["lapsed", "answered"]


async def test_a_stop_outwaits_a_frozen_worker_that_holds_its_lock_and_its_attempt_never_was(site: Site, operator: Operators) -> None:
    worker, refund, intent = await frozen_at(site, OPENING)

    stopped, took = await change(operator, "stopped")

    assert stopped["calls_in_flight"] == []
    assert took < HELD_AT_MOST_S + SLACK_S
    await assert_nothing_left_until_resumed(site, operator, worker, refund, intent)
    assert await site.shop.outcomes(refund) == ["answered"]


async def test_a_stop_answers_within_its_bound_though_a_frozen_attempt_could_be_sent_for_longer(site: Site, operator: Operators) -> None:
    """With a ``send_by`` further away than a stop waits, it says so: this one may still leave, which is what ``may_still_send`` is for."""
    worker, refund, intent = await frozen_at(site, OPENED, SUBMIT_SEND_WITHIN_S="40")

    stopped, took = await change(operator, "stopped")

    [call] = stopped["calls_in_flight"]
    assert (call["refund"], call["confirmed"], call["may_still_send"]) == (refund, False, True)
    assert CONFIRM_WITHIN_S <= took < CONFIRM_WITHIN_S + SLACK_S
    worker.send(signal.SIGCONT)
    assert await site.reaches(refund, "held", "succeeded", "failed", "parked") == "succeeded"
    assert await site.shop.asked_and_made(intent) == (1, 1)
    await change(operator, "running")
    worker.kill()
