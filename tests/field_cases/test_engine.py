"""Field reports 64, 65, 66, 69 on the whole stack: what is said to a run is answered, and every run of these tests replays."""

import asyncio
from collections import Counter
from typing import Any

import pytest
from temporalio.api.enums.v1 import EventType
from temporalio.client import WorkflowExecutionStatus, WorkflowUpdateFailedError
from temporalio.worker import Replayer

from tests.end_to_end.whole import Whole, eventually, only
from worker.roles import WORKFLOWS


@pytest.mark.parametrize(
    ("change", "code", "field"),
    [
        ({"verdict": None}, "INVALID_FIELD", "verdict"),
        ({"verdict": "perhaps"}, "INVALID_FIELD", "verdict"),
        ({"verdict": "APPROVE"}, "INVALID_FIELD", "verdict"),
        ({"deliver": "pigeon"}, "INVALID_FIELD", "deliver"),
        ({"terms_hash": "short"}, "INVALID_FIELD", "terms_hash"),
        ({"amount": 1}, "UNKNOWN_FIELD", "amount"),
    ],
)
async def test_field_64_a_malformed_decision_is_refused_where_it_is_made(
    whole: Whole, waiting: str, change: dict[str, Any], code: str, field: str
) -> None:
    body = {"verdict": "approve", "terms_hash": (await whole.view(waiting))["terms_hash"]} | change
    only(await whole.act("rita", waiting, "decisions", body), 422, code, field)
    assert (await whole.view(waiting))["status"] == "awaiting_review"


@pytest.fixture(scope="module")
async def waiting(whole: Whole) -> str:
    """A refund in review that every test leaves in review."""
    _, refund = await whole.in_review(20_000)
    return refund


async def test_field_64_a_malformed_update_is_answered_and_leaves_no_event(whole: Whole, waiting: str) -> None:
    handle = (await whole.temporal()).get_workflow_handle(f"refund-{waiting}")
    before = await accepted(whole, waiting)

    for argument in ({"id": ""}, {"id": "no id of ours"}, {"id": 7}):
        with pytest.raises(WorkflowUpdateFailedError):
            await handle.execute_update("decide", argument)

    assert await accepted(whole, waiting) == before


async def accepted(whole: Whole, refund: str) -> int:
    history = await (await whole.temporal()).get_workflow_handle(f"refund-{refund}").fetch_history()
    kind = EventType.EVENT_TYPE_WORKFLOW_EXECUTION_UPDATE_ACCEPTED
    return sum(event.event_type == kind for event in history.events)


async def test_field_64_a_field_of_a_newer_version_is_tolerated(whole: Whole) -> None:
    goods, refund = await whole.in_review(20_000)
    await whole.stop()  # a run that is held cannot end before it has heard the signal
    try:
        decided = (await whole.decide("rita", refund)).json()["decision"]["id"]
        await whole.until(refund, "held")
        handle = (await whole.temporal()).get_workflow_handle(f"refund-{refund}")
        await handle.signal("approve", {"id": decided, "a_new_field": {"of": "tomorrow"}})
    finally:
        await whole.resume()

    view = await whole.until(refund, "succeeded")
    assert [entry["type"] for entry in await whole.ledger(refund)].count("message_refused") == 0
    await whole.assert_ended(view["id"], "succeeded", goods=goods, creates=1, returned=[20_000])


async def test_field_65_a_wait_that_times_out_is_no_failure_of_the_run(whole: Whole) -> None:
    goods, refund = await whole.in_review(9_000, category="perishable")

    await whole.assert_ended(refund, "expired", "REVIEW_EXPIRED", goods=goods, creates=0, returned=[])

    history = await (await whole.temporal()).get_workflow_handle(f"refund-{refund}").fetch_history()
    kinds = Counter(event.event_type for event in history.events)
    assert kinds[EventType.EVENT_TYPE_WORKFLOW_TASK_FAILED] == 0
    assert kinds[EventType.EVENT_TYPE_WORKFLOW_TASK_TIMED_OUT] == 0
    assert kinds[EventType.EVENT_TYPE_WORKFLOW_EXECUTION_COMPLETED] == 1
    story = await whole.story(refund)
    assert (story.count("escalated"), story.count("to expired")) == (1, 1)


async def test_field_66_everybody_who_speaks_at_the_end_gets_a_typed_answer(whole: Whole) -> None:
    async def one() -> None:
        goods, refund = await whole.in_review(20_000)
        terms = (await whole.view(refund))["terms_hash"]
        answers = await asyncio.gather(
            whole.decide("rita", refund, terms_hash=terms),
            whole.decide("ravi", refund, terms_hash=terms, deliver="signal"),
            whole.decide("mona", refund, "deny", terms_hash=terms),
            whole.act("shop", refund, "withdrawal", {}),
            whole.act("uma", refund, "revisions", {"terms_hash": terms, "amount": 15_000, "currency": "USD"}),
        )
        # A decision that was too late is told so; nobody hears of the engine, and nobody waits for ever.
        assert {answer.status_code for answer in answers} <= {200, 201, 202, 409}, [answer.text for answer in answers]
        for answer in answers:
            if answer.status_code == 409:
                assert answer.json()["code"] in (*("ALREADY_DECIDED", "NOT_AWAITING_REVIEW", "TERMS_CHANGED", "TOO_LATE", "NOT_REVISABLE"),)
        view = await whole.view(refund)
        if view["status"] in ("awaiting_consent", "awaiting_review"):
            await whole.act("shop", refund, "withdrawal", {})
        await eventually(lambda: whole.view(refund), lambda seen: seen["final"])
        await whole.assert_run_completed(refund)
        truth = await whole.truth(goods.intent)
        assert len(truth.creates) == len(truth.refunds) <= 1

    await asyncio.gather(*(one() for _ in range(8)))


async def test_field_69_every_run_of_the_stack_replays(whole: Whole, waiting: str) -> None:
    client = await whole.temporal()
    replayer = Replayer(workflows=WORKFLOWS)

    wrong: dict[str, str] = {}
    statuses: Counter[WorkflowExecutionStatus | None] = Counter()
    async for run in client.list_workflows():
        history = await client.get_workflow_handle(run.id, run_id=run.run_id).fetch_history()
        result = await replayer.replay_workflow(history, raise_on_replay_failure=False)
        statuses[run.status] += 1
        if result.replay_failure is not None:
            wrong[run.id] = str(result.replay_failure)

    assert wrong == {}
    assert statuses[WorkflowExecutionStatus.COMPLETED] >= 1
    assert set(statuses) <= {WorkflowExecutionStatus.COMPLETED, WorkflowExecutionStatus.RUNNING, WorkflowExecutionStatus.TERMINATED}
