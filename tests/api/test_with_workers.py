"""The API with the real Temporal, the real workers and the payment sandbox: what only the whole can show."""

import asyncio
import os
import sys
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from temporalio.client import Client

from deploy.local.processes import Command
from refunds.people import Role
from tests.api.conftest import TEXT_KEY, Api, running
from tests.conftest import ROOT, FreshDatabase, Sandbox, TemporalServer, open_directory, ready
from tests.conftest import running as process_running

API_KEY = "sk_test_api_tests"


def worker_command(fresh: FreshDatabase, temporal: TemporalServer, sandbox: Sandbox, home: Path) -> Command:
    logins = {"REFUNDS": "refunds_worker", "CLASSIFY": "refunds_classify", "PAYMENTS": "refunds_payments"}
    (home / "temporal.toml").touch()
    env = {
        "PATH": os.environ["PATH"],
        **{f"DATABASE_URL_{role}": fresh.url(login) for role, login in logins.items()},
        "REFUNDS_TEXT_KEY": TEXT_KEY,
        "STRIPE_API_KEY": API_KEY,
        "STRIPE_API_BASE": sandbox.url,
        "TEMPORAL_ADDRESS": temporal.address,
        "TEMPORAL_NAMESPACE": temporal.namespace,
        "TEMPORAL_CONFIG_FILE": str(home / "temporal.toml"),
    }
    return Command((sys.executable, "-m", "worker"), env=env, cwd=ROOT)


@pytest.fixture(scope="module")
def workers(module_database: FreshDatabase, temporal_server: TemporalServer, sandbox_server: Sandbox) -> Iterator[None]:
    with open_directory() as home:
        log = home / "worker.log"
        with process_running(worker_command(module_database, temporal_server, sandbox_server, home), log):
            ready(lambda: "worker_ready" in log.read_text(), "The worker", log)
            yield


@pytest.fixture(scope="module")
async def whole(module_database: FreshDatabase, temporal_server: TemporalServer, workers: None) -> AsyncIterator[Api]:
    async def lazily() -> Client:
        return await Client.connect(temporal_server.address, namespace=temporal_server.namespace, lazy=True)

    async with running(module_database, lazily, api_quote_wait_s=10, api_decision_wait_s=10) as api:
        yield api


async def paid(sandbox: Sandbox, amount: int = 30_000) -> str:
    """A payment that was captured at the sandbox."""
    async with httpx.AsyncClient(base_url=sandbox.url, auth=(API_KEY, "")) as stripe:
        answer = await stripe.post(
            "/v1/payment_intents",
            data={"amount": amount, "currency": "usd", "confirm": "true", "payment_method": "pm_card_visa"},
        )
        assert answer.is_success, answer.text
        return answer.json()["id"]


async def order_paid_with(api: Api, *intents: str, amount: int = 30_000) -> dict[str, Any]:
    return await api.order(payments=[{"id": intent, "amount": amount, "currency": "USD"} for intent in intents])


async def eventually(api: Api, refund_id: str, status: str) -> dict[str, Any]:
    """The refund, once it has that status."""
    until = time.monotonic() + 20
    while True:
        view = (await api.call("GET", f"/v1/refunds/{refund_id}", await api.reviewer())).json()
        if view["status"] == status:
            return view
        assert time.monotonic() < until, view
        await asyncio.sleep(0.05)


async def test_the_first_answer_has_the_quote_and_a_small_refund_ends_by_itself(whole: Api, sandbox_server: Sandbox) -> None:
    order = await order_paid_with(whole, await paid(sandbox_server))

    answer = await whole.ask(whole.asked(order, amount=3_000))

    assert answer.status_code == 201, answer.text
    assert answer.json()["terms"]["amount_text"] == "$30.00"
    view = await eventually(whole, answer.json()["id"], "succeeded")
    [operation] = view["processor"]["operations"]
    assert operation["refund_id"].startswith("re_")
    assert [attempt["outcome"] for attempt in operation["attempts"]] == ["answered"]
