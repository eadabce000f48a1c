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
from tests.api.conftest import TEXT_KEY, Api, Caller, running
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
        "SUBMIT_MAX_ATTEMPTS": "2",
        "SUBMIT_RETRY_INITIAL_S": "0.2",
        "SUBMIT_SEND_WITHIN_S": "1",
        "STRIPE_CONNECT_TIMEOUT_S": "1",
        "STRIPE_READ_TIMEOUT_S": "2",
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


async def asked(api: Api, sandbox: Sandbox, **changed: Any) -> dict[str, Any]:
    """A refund of a payment of its own, as it was first answered."""
    answer = await api.ask(api.asked(await order_paid_with(api, await paid(sandbox)), **changed))
    assert answer.status_code == 201, answer.text
    return (await api.call("GET", f"/v1/refunds/{answer.json()['id']}", await api.reviewer())).json()


async def say(api: Api, view: dict[str, Any], what: str, caller: Caller, **body: Any) -> httpx.Response:
    return await api.call("POST", f"/v1/refunds/{view['id']}/{what}", caller, body)


async def test_the_first_answer_has_the_quote_and_a_small_refund_ends_by_itself(whole: Api, sandbox_server: Sandbox) -> None:
    order = await order_paid_with(whole, await paid(sandbox_server))

    answer = await whole.ask(whole.asked(order, amount=3_000))

    assert answer.status_code == 201, answer.text
    assert answer.json()["terms"]["amount_text"] == "$30.00"
    view = await eventually(whole, answer.json()["id"], "succeeded")
    [operation] = view["processor"]["operations"]
    assert operation["refund_id"].startswith("re_")
    assert [attempt["outcome"] for attempt in operation["attempts"]] == ["answered"]


async def test_field_59_three_posts_at_once_make_one_refund_and_one_run(
    whole: Api, sandbox_server: Sandbox, temporal_client: Client
) -> None:
    body = whole.asked(await order_paid_with(whole, await paid(sandbox_server)), amount=3_300)

    answers = await asyncio.gather(*(whole.ask(body, key="thrice") for _ in range(3)))

    assert sorted(answer.status_code for answer in answers) == [200, 200, 201]
    [refund_id] = {answer.json()["id"] for answer in answers}
    await eventually(whole, refund_id, "succeeded")
    runs = [run async for run in temporal_client.list_workflows(f"WorkflowId = 'refund-{refund_id}'")]
    assert len(runs) <= 1  # the list may lag; more than one would be a second run


async def test_an_approval_by_update_is_delivered_in_its_answer(whole: Api, sandbox_server: Sandbox) -> None:
    view = await asked(whole, sandbox_server)

    answer = await say(whole, view, "decisions", await whole.reviewer(), verdict="approve", terms_hash=view["terms_hash"])

    assert (answer.status_code, answer.json()["delivered"]) == (200, True)
    assert answer.json()["decision"]["delivered_at"] is not None
    await eventually(whole, view["id"], "succeeded")
    again = await say(whole, view, "decisions", await whole.reviewer(), verdict="approve", terms_hash=view["terms_hash"])
    assert (again.status_code, again.json()["delivered"], again.json()["replayed"]) == (200, True, True)
    assert again.json()["decision"] == answer.json()["decision"]


async def test_an_approval_by_signal_arrives(whole: Api, sandbox_server: Sandbox) -> None:
    view = await asked(whole, sandbox_server)

    answer = await say(whole, view, "decisions", await whole.reviewer(), verdict="approve", terms_hash=view["terms_hash"], deliver="signal")

    assert (answer.status_code, answer.json()["delivered"]) == (202, True)
    await eventually(whole, view["id"], "succeeded")


async def test_a_revision_is_quoted_anew_and_needs_its_own_decision(whole: Api, sandbox_server: Sandbox) -> None:
    view = await asked(whole, sandbox_server)
    rita, vera = await whole.reviewer(), await whole.reviewer("vera")

    revised = await say(whole, view, "revisions", rita, terms_hash=view["terms_hash"], amount=15_000, currency="USD")

    assert (revised.status_code, revised.json()["revision"], revised.json()["amount_text"]) == (201, 2, "$150.00")
    assert revised.json()["sources"]["amount"] == "person"
    assert revised.json()["request"]["amount"] == 20_000
    stale = await say(whole, view, "decisions", vera, verdict="approve", terms_hash=view["terms_hash"])
    assert stale.status_code == 409
    terms_hash = revised.json()["terms_hash"]
    consented = await say(whole, view, "consent", await whole.shop(), agreed=True, terms_hash=terms_hash)
    assert consented.json()["status"] == "awaiting_review"
    await say(whole, view, "decisions", vera, verdict="approve", terms_hash=terms_hash)
    assert (await eventually(whole, view["id"], "succeeded"))["amount"] == 15_000


async def test_a_revision_the_policy_denies_is_refused_and_leaves_the_terms(whole: Api, sandbox_server: Sandbox) -> None:
    view = await asked(whole, sandbox_server)

    refused = await say(whole, view, "revisions", await whole.reviewer(), terms_hash=view["terms_hash"], amount=30_001, currency="USD")

    assert (refused.status_code, refused.json()["code"]) == (409, "EXCEEDS_REFUNDABLE")
    after = (await whole.call("GET", f"/v1/refunds/{view['id']}", await whole.reviewer())).json()
    assert (after["revision"], after["terms_hash"]) == (1, view["terms_hash"])
    assert [(i["kind"], i["refused"]) for i in after["instructions"]] == [("revise", "EXCEEDS_REFUNDABLE")]


async def test_a_quote_is_read_live_and_keeps_nothing(whole: Api, sandbox_server: Sandbox) -> None:
    order = await order_paid_with(whole, await paid(sandbox_server))
    made_before = [row["id"] for row in await whole.rows("SELECT id FROM refunds")]
    tables = ("refunds", "revisions", "texts", "decisions")

    async def kept() -> list[int]:
        """The rows there are, without what earlier refunds still enter meanwhile."""
        entries = await whole.rows("SELECT id FROM ledger WHERE refund_id IS NULL OR refund_id <> ALL(:old)", old=made_before)
        return [await whole.count(table) for table in tables] + [len(entries)]

    before = await kept()
    small = await whole.call("POST", "/v1/quotes", await whole.shop(), whole.asked(order, amount=3_000, message="please"))
    large = await whole.call("POST", "/v1/quotes", await whole.shop(), whole.asked(order))
    too_much = await whole.call("POST", "/v1/quotes", await whole.shop(), whole.asked(order, amount=30_001))

    assert small.status_code == 200, small.text
    assert (small.json()["outcome"], small.json()["needs"]) == ("proceed", {"consent": False, "review": None})
    assert (small.json()["terms"]["amount_text"], small.json()["not_considered"]) == ("$30.00", ["message"])
    assert large.json()["needs"]["review"] == {"role": "reviewer", "people": 1}
    assert (too_much.json()["outcome"], too_much.json()["code"]) == ("deny", "EXCEEDS_REFUNDABLE")
    assert await kept() == before


async def test_a_stop_holds_what_is_approved_and_a_resume_lets_it_go(whole: Api, sandbox_server: Sandbox) -> None:
    await whole.call("PUT", "/v1/controls", whole.administrator, {"state": "stopped", "reason": "test"})
    view = await asked(whole, sandbox_server, amount=2_200)
    held = await eventually(whole, view["id"], "held")

    omar = await whole.caller("omar", Role.OPERATOR)
    resumed = await whole.call("PUT", "/v1/controls", omar, {"state": "running", "reason": "test"})

    assert held["code"] == "EMERGENCY_STOP"
    assert held["processor"]["operations"] == [], "nothing was even intended"
    assert resumed.json()["resumed"] == 1
    await eventually(whole, view["id"], "succeeded")


async def parked(api: Api, sandbox: Sandbox, *faults: str) -> tuple[dict[str, Any], str]:
    """A refund about which nobody can know, and its payment; the faults are over."""
    intent = await paid(sandbox)
    kinds = [{"kind": kind} for kind in faults]
    order = {"on": "refund.create", "match": {"payment_intent": intent}, "times": None, "fault": kinds}
    sandbox.control("POST", "/faults", order)
    answer = await api.ask(api.asked(await order_paid_with(api, intent), amount=4_500))
    view = await eventually(api, answer.json()["id"], "parked")
    sandbox.control("DELETE", "/faults")
    return view, intent


async def test_a_settlement_with_the_processors_id_is_checked_live(whole: Api, sandbox_server: Sandbox) -> None:
    view, intent = await parked(whole, sandbox_server, "lose_answer", "hide")
    sven = await whole.caller("sven", Role.SETTLER)
    [truth] = [r for r in sandbox_server.control("GET", "/truth")["refunds"] if r["payment_intent"] == intent]

    unknown = await say(whole, view, "settlement", sven, outcome="refunded", processor_refund_id="re_nothing", evidence="guessed")
    settled = await say(whole, view, "settlement", sven, outcome="refunded", processor_refund_id=truth["id"], evidence="dashboard")

    assert (unknown.status_code, unknown.json()["code"]) == (409, "SETTLEMENT_NOT_FOUND")
    assert (settled.status_code, settled.json()["status"], settled.json()["waits_for"]) == (200, "succeeded", None)
    assert settled.json()["refund"]["processor"]["operations"][0]["refund_id"] == truth["id"]
    assert "texts" not in settled.json()["refund"]


async def test_not_refunded_waits_for_a_second_person(whole: Api, sandbox_server: Sandbox) -> None:
    view, _ = await parked(whole, sandbox_server, "lose_request")
    sven, sara = await whole.caller("sven", Role.SETTLER), await whole.caller("sara", Role.SETTLER)
    body = {"outcome": "not_refunded", "evidence": "not in the dashboard"}

    first = await say(whole, view, "settlement", sven, **body)
    same = await say(whole, view, "settlement", sven, **body)
    async with asyncio.timeout(20):
        # A request that nobody has heard of may still arrive.
        while True:
            second = await say(whole, view, "settlement", sara, **body)
            if second.json().get("code") != "ATTEMPT_OPEN":
                break
            await asyncio.sleep(second.json()["retry_after"])

    for answer in (first, same):
        assert (answer.status_code, answer.json()["waits_for"]) == (202, "a second person who says the same")
    # What she said before may have been heard in the meantime.
    assert second.status_code == 200 or second.json()["code"] == "NOT_PARKED", second.text
    assert (await eventually(whole, view["id"], "failed"))["code"] == "SETTLED_NOT_REFUNDED"


async def test_field_66_everybody_who_speaks_while_it_ends_gets_a_typed_answer(whole: Api, sandbox_server: Sandbox) -> None:
    rita, shop = await whole.reviewer(), await whole.shop()
    for _ in range(8):
        view = await asked(whole, sandbox_server)
        approved, withdrawn = await asyncio.gather(
            say(whole, view, "decisions", rita, verdict="approve", terms_hash=view["terms_hash"]),
            say(whole, view, "withdrawal", shop),
        )
        assert approved.status_code in (200, 409), approved.text
        assert withdrawn.status_code in (200, 409), withdrawn.text
        if withdrawn.status_code == 200:
            final = await eventually(whole, view["id"], "withdrawn")
            assert final["processor"]["operations"] == []
        else:
            assert withdrawn.json()["code"] == "TOO_LATE"
            await eventually(whole, view["id"], "succeeded")


async def test_a_ticket_in_words_is_read_and_shown_with_its_reading(whole: Api, sandbox_server: Sandbox) -> None:
    order = await order_paid_with(whole, await paid(sandbox_server))
    words = f"Hello, the mug from order {order['order_id']} arrived broken. I would like a refund of $28.00 please."
    body = {"customer_id": order["customer_id"], "order_id": order["order_id"], "message": words, "channel": "email"}

    answer = await whole.call("POST", "/v1/tickets", await whole.shop(), body, Idempotency_Key="ticket-1")

    assert answer.status_code == 201, answer.text
    assert words not in answer.text
    view = (await whole.call("GET", f"/v1/refunds/{answer.json()['id']}", await whole.reviewer())).json()
    assert (view["request"]["kind"], view["request"]["amount"]) == ("ticket", None)
    assert view["texts"]["message"] == words
    assert (view["amount_text"], view["sources"]["amount"]) == ("$28.00", "model")
    assert view["reading"]["amount_text"] == "$28.00"
    assert "amount_text" not in answer.json()["reading"]
