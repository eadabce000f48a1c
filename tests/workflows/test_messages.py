"""Messages that are not as they should be: each has a defined result that somebody can see, and none stops the run (field reports 64, 66)."""

import asyncio
import json
from collections.abc import Mapping
from typing import Any

import pytest
from temporalio.api.common.v1 import Payload
from temporalio.client import WorkflowQueryFailedError, WorkflowUpdateFailedError
from temporalio.common import RawValue
from temporalio.service import RPCError

from refunds.messages import Message, Step
from tests.workflows.memory import Plan
from tests.workflows.running import NO_CACHE, Run, Runs, count, eventually, message

HUGE = "x" * 500_000
FORGED = "dec_01m8kwhm2paw1vv6wkbf2pdd9j"


def raw(data: bytes, encoding: str = "json/plain", **metadata: bytes) -> RawValue:
    """A payload as anybody with access to Temporal can send it."""
    return RawValue(Payload(metadata={"encoding": encoding.encode(), **metadata}, data=data))


def body(**fields: Any) -> RawValue:
    return raw(json.dumps(fields).encode())


MALFORMED: Mapping[str, list[Any]] = {
    "no argument": [],
    "two arguments": [Message(FORGED), Message(FORGED)],
    "no id": [body(revision=1)],
    "empty id": [body(id="")],
    "id of a wrong type": [body(id=7)],
    "id is a list": [body(id=["dec"])],
    "revision of a wrong type": [body(id=FORGED, revision="one")],
    "a bare string": [raw(b'"approve"')],
    "null": [raw(b"null")],
    "not JSON": [raw(b"{")],
    "no encoding that anybody knows": [raw(b"?", "binary/mystery")],
    "deeply nested": [raw(b'{"id":' + b"[" * 100_000 + b"]" * 100_000 + b"}")],
}


async def still_works(run: Run, runs: Runs) -> None:
    """The run still takes a real decision and ends by it."""
    await run.handle.signal("approve", message(runs.store.decide(run.row, "approve")))
    assert (await run.result()).status == "succeeded"
    assert run.row.calls[Step.SUBMIT] == 1


@pytest.mark.parametrize("arguments", MALFORMED.values(), ids=MALFORMED.keys())
async def test_field_64_malformed_signal_is_entered_as_refused(runs: Runs, arguments: list[Any]) -> None:
    run = await runs.start(Plan(people=1))
    await run.until("awaiting_review")

    await run.handle.signal("approve", args=arguments)
    await run.entry("message_refused")

    assert (await run.view()).status == "awaiting_review"
    [entry] = [data for type_, data in run.row.ledger if type_ == "message_refused"]
    assert (entry["kind"], entry["code"]) == ("approve", "MESSAGE_MALFORMED")
    assert len(entry["detail"]) <= 200
    await still_works(run, runs)


@pytest.mark.parametrize("arguments", MALFORMED.values(), ids=MALFORMED.keys())
@pytest.mark.parametrize("name", ["decide", "revise", "settle"])
async def test_field_64_malformed_update_is_rejected_and_leaves_no_event(runs: Runs, name: str, arguments: list[Any]) -> None:
    run = await runs.start(Plan(people=1))
    await run.until("awaiting_review")

    with pytest.raises(WorkflowUpdateFailedError):
        await run.handle.execute_update(name, args=arguments)

    assert count(await run.history(), "WORKFLOW_EXECUTION_UPDATE_ACCEPTED") == 0
    assert run.row.entries("message_refused") == 0
    await still_works(run, runs)


async def test_an_extra_field_is_tolerated(runs: Runs) -> None:
    run = await runs.start(Plan(people=1))
    await run.until("awaiting_review")
    decision = runs.store.decide(run.row, "approve")

    await run.handle.signal("approve", body(id=decision, revision=1, colour="blue", verdict="deny"))

    assert (await run.result()).status == "succeeded"
    assert run.row.entries("message_refused") == 0


@pytest.mark.parametrize("name", ["approve", "deny", "decide", "consent", "withdraw", "settle", "revise"])
async def test_forged_signal_changes_nothing_and_is_entered(runs: Runs, name: str) -> None:
    run = await runs.start(Plan(people=1))
    await run.until("awaiting_review")

    await run.handle.signal(name, Message(FORGED))
    await run.entry("message_refused")

    [entry] = [data for type_, data in run.row.ledger if type_ == "message_refused"]
    assert (entry["kind"], entry["code"], entry["detail"]) == (name, "MESSAGE_UNBACKED", FORGED)
    assert (await run.view()).status == "awaiting_review"
    await still_works(run, runs)


@pytest.mark.parametrize("name", ["decide", "revise", "settle"])
async def test_forged_update_is_answered(runs: Runs, name: str) -> None:
    run = await runs.start(Plan(people=1))
    await run.until("awaiting_review")

    assert await run.ask(name, Message(FORGED)) == "MESSAGE_UNBACKED"

    assert run.row.entries("message_refused") == 1
    await still_works(run, runs)


async def test_a_decision_on_another_refund_is_not_this_one_s(runs: Runs) -> None:
    other, run = await runs.start(Plan(people=1)), await runs.start(Plan(people=1))
    await other.until("awaiting_review")
    await run.until("awaiting_review")

    assert await run.ask("decide", message(runs.store.decide(other.row, "approve"))) == "MESSAGE_UNBACKED"

    assert (await run.view()).status == "awaiting_review"


async def test_an_approval_sent_as_denial_is_refused(runs: Runs) -> None:
    run = await runs.start(Plan(people=2))
    await run.until("awaiting_review")

    await run.handle.signal("deny", message(runs.store.decide(run.row, "approve")))
    await run.entry("message_refused")

    assert (await run.view()).status == "awaiting_review"


@pytest.mark.parametrize("name", ["aprove", "pause", "x" * 900, "approve "], ids=["misspelt", "unknown", "long", "space"])
async def test_a_signal_of_an_unknown_name_is_entered_as_refused(runs: Runs, name: str) -> None:
    run = await runs.start(Plan(people=1))
    await run.until("awaiting_review")

    await run.handle.signal(name, Message(FORGED))
    await run.entry("message_refused")

    [entry] = [data for type_, data in run.row.ledger if type_ == "message_refused"]
    assert len(entry["kind"]) <= 50
    await still_works(run, runs)


async def test_an_update_of_an_unknown_name_is_rejected(runs: Runs) -> None:
    run = await runs.start(Plan(people=1))
    await run.until("awaiting_review")

    with pytest.raises(WorkflowUpdateFailedError):
        await run.handle.execute_update("aprove", Message(FORGED))

    await still_works(run, runs)


async def test_a_query_of_an_unknown_name_is_an_error_for_its_caller_only(runs: Runs) -> None:
    run = await runs.start(Plan(people=1))
    await run.until("awaiting_review")

    with pytest.raises(WorkflowQueryFailedError):
        await run.handle.query("everything")

    await still_works(run, runs)


async def test_early_decisions_change_nothing(runs: Runs) -> None:
    row = runs.store.add(Plan(text=True, people=1))
    other = runs.store.add(Plan(people=1))
    run = await runs.start_row(row)

    answers = await asyncio.gather(*(run.ask("decide", Message(FORGED)) for _ in range(3)), run.handle.signal("approve", Message(FORGED)))

    assert answers[:3] == ["MESSAGE_UNBACKED"] * 3
    await run.until("awaiting_review")
    assert other.status == "received"
    await still_works(run, runs)


async def test_late_messages_are_answered_by_the_engine(runs: Runs) -> None:
    run = await runs.start(Plan(people=1))
    await run.until("awaiting_review")
    decision = runs.store.decide(run.row, "deny")
    await run.ask("decide", message(decision))
    await run.result()

    assert await run.ask("decide", message(decision)) == "run is over"
    with pytest.raises(RPCError, match="already completed"):
        await run.handle.signal("approve", message(decision))


async def test_stale_decision_is_rejected_before_it_counts(runs: Runs) -> None:
    run = await runs.start(Plan(people=1))
    await run.until("awaiting_review")
    await run.ask("revise", message(runs.store.revise(run.row, 2000)))

    assert await run.ask("decide", Message(FORGED, revision=1)) == "TERMS_CHANGED"

    assert run.row.entries("message_refused") == 0


async def test_field_59_the_same_decision_many_times_counts_once(runs: Runs) -> None:
    run = await runs.start(Plan(people=2))
    await run.until("awaiting_review")
    decision = message(runs.store.decide(run.row, "approve"), run)

    answers = await asyncio.gather(
        *(run.ask("decide", decision, id="same") for _ in range(5)), *(run.ask("decide", decision) for _ in range(5))
    )
    for _ in range(5):
        await run.handle.signal("approve", decision)

    assert answers == ["awaiting_review"] * 10
    assert (await run.view()).status == "awaiting_review"
    assert run.row.entries("decision_recorded") == 1
    await run.ask("decide", message(runs.store.decide(run.row, "approve", "bob")))
    assert (await run.result()).status == "succeeded"


async def test_repeated_update_id_gets_the_first_answer(runs: Runs) -> None:
    run = await runs.start(Plan(people=2))
    await run.until("awaiting_review")

    assert await run.ask("decide", Message(FORGED), id="first") == "MESSAGE_UNBACKED"
    assert await run.ask("decide", message(runs.store.decide(run.row, "approve")), id="first") == "MESSAGE_UNBACKED"


@pytest.mark.parametrize("hint", ["resume", "payment_event"])
async def test_a_flood_of_hints_asks_the_store_at_a_bounded_rate(runs: Runs, hint: str) -> None:
    run = await runs.start(Plan(people=1))
    await run.until("awaiting_review")

    for _ in range(200):
        await run.handle.signal(hint, HUGE[:1000])
    await still_works(run, runs)

    assert run.row.calls[Step.DEADLINE] <= 3


async def test_an_older_answer_that_arrives_later_is_not_believed(runs: Runs) -> None:
    run = await runs.start(Plan(answers=["park"]))
    await run.until("parked")
    gate = run.row.plan.gate = asyncio.Event()
    slow = asyncio.create_task(run.ask("settle", message(runs.store.settle(run.row, "not_there"))))
    await eventually(run.settlements, lambda begun: begun == 1)
    run.row.plan.gate = None
    await run.ask("settle", message(runs.store.settle(run.row, "pending")))

    gate.set()

    assert await slow == "SETTLEMENT_NOT_FOUND"
    assert (await run.view()).status == "pending"


async def test_a_message_that_is_never_cached(runs: Runs) -> None:
    run = await runs.start(Plan(people=1), queue=NO_CACHE)
    await run.until("awaiting_review")

    await run.handle.signal("approve")
    await run.entry("message_refused")
    assert await run.ask("decide", Message(FORGED)) == "MESSAGE_UNBACKED"

    await still_works(run, runs)
