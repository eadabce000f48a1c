"""Parts are killed under load, and all of them at once: nothing accepted is lost, nothing is sent twice, and what cannot be done now says so.

A stack of its own: the tests hurt it, and the last one kills it whole.
"""

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from typing import Any, LiteralString

import httpx
import psutil
import pytest

from deploy.local import stack as supervisor
from deploy.local.stack import LocalStack
from tests.end_to_end.whole import Goods, Whole, eventually, only, staffed

PARTS = ("postgres", "temporal", "sandbox", "api", "worker")


@pytest.fixture(scope="module")
async def hurt() -> AsyncIterator[Whole]:
    # What is held is not looked at again by itself while a test runs: only a resume or a restart brings it back.
    async with staffed(API_QUOTE_WAIT_S="1", API_DECISION_WAIT_S="1", HELD_RECHECK_S="300", SWEEP_GRACE_S="1") as running:
        yield running


@contextmanager
def kept_down(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What is killed in here stays away for a while, so that the outage can be looked at; wait for the part afterwards."""
    with monkeypatch.context() as patched:
        patched.setattr(supervisor, "FIRST_BACK_OFF_SECONDS", 4.0)
        patched.setattr(supervisor, "LONGEST_BACK_OFF_SECONDS", 4.0)
        yield


async def ready(whole: Whole, *parts: str) -> None:
    for part in parts:
        await asyncio.to_thread(whole.stack.wait_ready, part)


async def refunds_of(whole: Whole, goods: Goods) -> list[str]:
    answer = await whole.call("anna", "GET", f"/v1/refunds?customer_id={goods.customer}")
    return [refund["id"] for refund in answer.json()["refunds"]]


def stored(whole: Whole, query: LiteralString, *values: str) -> list[Any]:
    """What the database holds, when the API is not there to ask."""
    assert whole.stack.context.postgres is not None
    with whole.stack.context.postgres.connect() as connection:
        return connection.execute(query, values).fetchall()


async def test_without_the_database_nothing_is_stored_and_the_caller_is_told_when_to_come_back(
    hurt: Whole, monkeypatch: pytest.MonkeyPatch
) -> None:
    goods, (_, reviewed) = await hurt.goods(3_000), await hurt.in_review(20_000)
    body, key, terms = hurt.asked(goods), hurt.number(), (await hurt.view(reviewed))["terms_hash"]

    with kept_down(monkeypatch):
        await asyncio.to_thread(hurt.stack.kill, "postgres")
        refused = await hurt.call("shop", "POST", "/v1/refunds", body, Idempotency_Key=key)
        decision = await hurt.decide("rita", reviewed, terms_hash=terms)
        stop = await hurt.call("olga", "PUT", "/v1/controls", {"state": "stopped", "reason": "cannot be stored"})
        alive, able = await hurt.call(None, "GET", "/healthz"), await hurt.call(None, "GET", "/readyz")
        metrics = await hurt.call(None, "GET", "/metrics")
    await ready(hurt, "postgres")

    for answer in (refused, decision, stop):
        assert only(answer, 503, "STORE_UNAVAILABLE")["retryable"] is True
        assert int(answer.headers["Retry-After"]) >= 1
    assert (alive.status_code, able.status_code, able.json()["database"]) == (200, 503, "unreachable")
    assert "refunds_store_up 0.0" in metrics.text
    await eventually(lambda: hurt.call(None, "GET", "/readyz"), lambda answer: answer.status_code == 200)
    assert await refunds_of(hurt, goods) == []
    view = await hurt.view(reviewed)
    assert (view["status"], [d for d in view["decisions"] if d["kind"] == "review"]) == ("awaiting_review", [])
    # The same call again, as the answer said.
    again = await hurt.call("shop", "POST", "/v1/refunds", body, Idempotency_Key=key)
    assert again.status_code in (201, 202)
    await hurt.assert_ended(again.json()["id"], "succeeded", goods=goods, creates=1, returned=[3_000])


async def test_a_database_that_dies_while_a_refund_is_sent_does_not_make_it_two(hurt: Whole) -> None:
    goods = await hurt.goods(3_100)
    await hurt.disturb(goods.intent, {"kind": "hang", "ms": 1_000})
    refund = (await hurt.ask(goods)).json()["id"]
    await eventually(lambda: hurt.truth(goods.intent), lambda truth: len(truth.creates) == 1)

    await asyncio.to_thread(hurt.stack.kill, "postgres")
    await ready(hurt, "postgres")
    await eventually(lambda: hurt.call(None, "GET", "/readyz"), lambda answer: answer.status_code == 200)

    await hurt.assert_ended(refund, "succeeded", goods=goods, creates=1, returned=[3_100])


async def test_without_temporal_requests_and_decisions_are_kept_and_end_by_themselves(hurt: Whole, monkeypatch: pytest.MonkeyPatch) -> None:
    goods, (reviewed_goods, reviewed) = await hurt.goods(3_200), await hurt.in_review(20_000)

    with kept_down(monkeypatch):
        await asyncio.to_thread(hurt.stack.kill, "temporal")
        accepted = await hurt.ask(goods)
        decided = await hurt.decide("rita", reviewed)
        able = await hurt.call(None, "GET", "/readyz")
    await ready(hurt, "temporal", "worker")

    assert (accepted.status_code, accepted.json()["status"]) == (202, "received")
    assert (decided.status_code, decided.json()["status"], decided.json()["delivered"]) == (200, "approved", False)
    assert (able.status_code, able.json()["temporal"]) == (200, "unreachable")
    await hurt.assert_ended(accepted.json()["id"], "succeeded", goods=goods, creates=1, returned=[3_200])
    view = await hurt.assert_ended(reviewed, "succeeded", goods=reviewed_goods, creates=1, returned=[20_000])
    [review] = [decision for decision in view["decisions"] if decision["kind"] == "review"]
    assert review["delivered_at"] is not None


@pytest.mark.parametrize("fault", [{"kind": "hang", "ms": 1_500}, {"kind": "delay", "ms": 1_500}])
async def test_a_worker_that_dies_in_the_middle_of_the_call_to_the_processor(hurt: Whole, fault: dict[str, Any]) -> None:
    goods = await hurt.goods(3_300)
    await hurt.disturb(goods.intent, fault)
    refund = (await hurt.ask(goods)).json()["id"]
    await eventually(lambda: hurt.truth(goods.intent), lambda truth: len(truth.creates) == 1)

    await asyncio.to_thread(hurt.stack.kill, "worker")

    assert (await hurt.view(refund))["status"] == "submitting"
    await ready(hurt, "worker")
    view = await hurt.assert_ended(refund, "succeeded", goods=goods, creates=1, returned=[3_300])
    [operation] = view["processor"]["operations"]
    assert [(attempt["outcome"], attempt["reason"]) for attempt in operation["attempts"]] == [("answered", "found")]


async def test_an_api_that_dies_between_recording_a_decision_and_delivering_it(hurt: Whole) -> None:
    goods, refund = await hurt.in_review(20_000)
    terms = (await hurt.view(refund))["terms_hash"]
    recorded = "SELECT count(*) FROM decisions WHERE refund_id = %s AND kind = 'review'"

    # Temporal is frozen, so that the API has recorded the decision and is waiting to deliver it when it is killed.
    hurt.stack.kill("temporal", signal.SIGSTOP)
    try:
        deciding = asyncio.create_task(hurt.decide("rita", refund, terms_hash=terms))
        await eventually(lambda: asyncio.to_thread(stored, hurt, recorded, refund), lambda rows: rows == [(1,)])
        await asyncio.to_thread(hurt.stack.kill, "api")
    finally:
        hurt.stack.kill("temporal", signal.SIGCONT)
    with pytest.raises(httpx.RemoteProtocolError):
        await deciding
    await ready(hurt, "api")

    view = await hurt.assert_ended(refund, "succeeded", goods=goods, creates=1, returned=[20_000])
    [review] = [decision for decision in view["decisions"] if decision["kind"] == "review"]
    assert (review["recorded_by"]["handle"], review["delivered_at"] is not None) == ("rita", True)
    again = await hurt.decide("rita", refund, terms_hash=terms)
    assert (again.status_code, again.json()["replayed"], again.json()["decision"]["id"]) == (200, True, review["id"])


async def test_everything_is_killed_with_a_refund_in_every_open_status_and_started_again(
    hurt: Whole, monkeypatch: pytest.MonkeyPatch
) -> None:
    open_refunds = await _one_in_every_open_status(hurt)
    statuses = {(await hurt.view(refund))["status"] for refund, _ in open_refunds.values()}
    assert statuses == set(open_refunds)

    old = hurt.stack
    with kept_down(monkeypatch):
        for part in PARTS:
            for process in [psutil.Process(old.pid(part)), *psutil.Process(old.pid(part)).children(recursive=True)]:
                os.kill(process.pid, signal.SIGKILL)
        await asyncio.to_thread(old.stop)
    hurt.stack = LocalStack(old.home, environment=dict(old.context.settings), ports=old.context.ports)
    await asyncio.to_thread(hurt.stack.start)
    assert hurt.stack.addresses == old.addresses

    try:
        await _end_them_all(hurt, open_refunds)
    finally:
        await asyncio.to_thread(hurt.stack.stop)


async def _one_in_every_open_status(hurt: Whole) -> dict[str, tuple[str, Goods]]:
    made: dict[str, tuple[str, Goods]] = {}

    async def keep(status: str, goods: Goods, **asked: Any) -> None:
        answer = await hurt.ask(goods, **asked)
        assert answer.status_code in (201, 202), answer.text
        made[status] = (answer.json()["id"], goods)
        await hurt.until(made[status][0], status)

    await keep("awaiting_consent", await hurt.goods(4_000), customer_authentication=None)
    await keep("awaiting_review", await hurt.goods(20_000))
    turned_away = await hurt.goods(4_100)
    await hurt.disturb(turned_away.intent, "rate_limit", times=None)
    await keep("held", turned_away)
    await keep("pending", await hurt.goods(4_200, refund_outcome={"initial": "pending"}))
    unknown = await hurt.goods(4_300)
    await hurt.disturb(unknown.intent, "lose_answer", "hide", times=None)
    await keep("parked", unknown)
    goods, refund = await hurt.in_review(21_000)
    # Temporal stands still: what is accepted stays received, and what is approved is not sent yet.
    slow = await hurt.goods(4_400)
    await hurt.disturb(slow.intent, {"kind": "hang", "ms": 20_000}, "hide")
    await keep("submitting", slow)
    await eventually(lambda: hurt.truth(slow.intent), lambda truth: len(truth.creates) == 1)
    hurt.stack.kill("temporal", signal.SIGSTOP)
    await keep("received", await hurt.goods(4_500))
    assert (await hurt.decide("rita", refund, deliver="signal")).status_code == 202
    made["approved"] = (refund, goods)
    return made


async def _end_them_all(hurt: Whole, refunds: dict[str, tuple[str, Goods]]) -> None:
    await hurt.control("DELETE", "/faults")
    await hurt.agree(refunds["awaiting_consent"][0])
    await hurt.until(refunds["awaiting_consent"][0], "awaiting_review")
    for status in ("awaiting_consent", "awaiting_review"):
        assert (await hurt.decide("ravi", refunds[status][0])).status_code == 200
    await hurt.resume("after the outage")
    [pending] = (await hurt.truth(refunds["pending"][1].intent)).refunds
    await hurt.control("POST", f"/refunds/{pending['id']}", {"status": "succeeded"})
    [parked] = (await hurt.truth(refunds["parked"][1].intent)).refunds
    settled = {"outcome": "refunded", "processor_refund_id": parked["id"], "evidence": "in the dashboard"}
    answer = await hurt.act("sven", refunds["parked"][0], "settlement", settled)
    # A person settles it, unless the refund that nothing hides any more was observed a moment earlier.
    assert answer.status_code in (200, 202) or answer.json()["code"] == "NOT_PARKED", answer.text
    for status, (refund, goods) in refunds.items():
        # The held one was turned away three times before anything was done; the parked one was posted three times with one key.
        view = await hurt.until(refund, "succeeded")
        truth = await hurt.truth(goods.intent)
        assert truth.amounts == [goods.amount], status
        assert len(truth.refunds) == 1, "nothing twice"
        assert len({request["key"] for request in truth.creates}) == 1, "and by one key"
        await hurt.assert_run_completed(refund)
        assert [entry["refund_version"] for entry in await hurt.ledger(refund)] == list(range(1, view["version"] + 1))
