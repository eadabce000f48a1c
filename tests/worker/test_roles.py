"""Three worker processes, each with only its own secrets, carry a refund together; nothing personal and no secret is left where it can be read (promises P6, P9)."""

import asyncio
import re
from collections.abc import Iterator

import psutil
import pytest
from temporalio.client import WorkflowExecutionStatus

from refunds.messages import Message, Situation
from refunds.people import Role
from store import decisions
from tests.activities.shop import API_KEY, TEXT_KEY
from tests.worker.site import Site, until

MARKERS = ["Zweiblum", "kettle-7f3a", "ann.example@shop.invalid"]
WORDS = f"My {MARKERS[1]} arrived broken, please send back $30.00. {MARKERS[0]}, {MARKERS[2]}"


@pytest.fixture(scope="module", autouse=True)
def three_roles(site: Site) -> Iterator[None]:
    """One process for each role."""
    site.start("refunds", "classify", "payments")
    yield


async def everything_in_temporal(site: Site, refund_id: str) -> str:
    """The run's whole history, its search attributes and memo, as bytes that a person with access to Temporal could read."""
    handle = site.client.get_workflow_handle(f"refund-{refund_id}")
    history = await handle.fetch_history()
    described = await handle.describe()
    return history.to_json() + str(described.raw_description)


async def test_each_process_holds_only_its_own_secrets(site: Site) -> None:
    names = {"DATABASE_URL_REFUNDS", "DATABASE_URL_CLASSIFY", "DATABASE_URL_PAYMENTS", "STRIPE_API_KEY", "REFUNDS_TEXT_KEY"}
    held = {worker.role: names & set(psutil.Process(worker.process.pid).environ()) for worker in site.workers}

    assert held == {
        "refunds": {"DATABASE_URL_REFUNDS"},
        "classify": {"DATABASE_URL_CLASSIFY", "REFUNDS_TEXT_KEY"},
        "payments": {"DATABASE_URL_PAYMENTS", "STRIPE_API_KEY"},
    }


async def test_a_refund_with_text_is_carried_to_its_end_by_all_three(site: Site) -> None:
    shop = site.shop
    intent = await shop.paid()
    refund_id = await shop.received(intent, message=WORDS, requested_by=MARKERS[0], metadata={"note": MARKERS[2]})
    handle = await site.run(refund_id)

    # The rule-based reader is honest about its low confidence, so a person looks at a request in words.
    assert await site.reaches(refund_id, "awaiting_review", "succeeded", "denied") == "awaiting_review"
    await shop.decide(refund_id, "rita")
    assert await site.reaches(refund_id, "succeeded", "parked") == "succeeded"

    outcome = await handle.result()
    assert (outcome["refund"], outcome["status"]) == (refund_id, "succeeded")
    assert await shop.asked_and_made(intent) == (1, 1)
    [refund] = (await shop.truth(intent))["refunds"]
    entries = await shop.entries(refund_id)
    assert [entries.count(kind) for kind in ("classified", "quoted", "intent", "attempt_opened", "receipt")] == [1, 1, 1, 1, 1]

    secrets = [API_KEY, TEXT_KEY] + [
        re.split("[:@]", site.fresh.url(f"refunds_{login}"))[-3] for login in ("worker", "classify", "payments")
    ]
    temporal = await everything_in_temporal(site, refund_id)
    for place, text in {"the logs": site.logs(), "Temporal": temporal, "the processor": str(refund)}.items():
        found = [word for word in [*MARKERS, *secrets, f"customer of {intent}"] if word in text]
        assert found == [], place
    stored = await shop.query("SELECT string_agg(data::text, ' ') AS data FROM ledger WHERE refund_id = :r", r=refund_id)
    assert [word for word in MARKERS if word in stored[0]["data"]] == []


async def test_a_request_without_a_run_is_started(site: Site) -> None:
    """The API died between storing the request and starting its run."""
    intent = await site.shop.paid()
    refund_id = await site.shop.received(intent)

    assert await site.reaches(refund_id, "succeeded", "denied") == "succeeded"
    assert await site.shop.asked_and_made(intent) == (1, 1)


async def test_a_terminated_run_is_started_again_and_resumes(site: Site) -> None:
    shop = site.shop
    intent = await shop.paid(50_000)
    refund_id = await shop.received(intent, 20_000)
    handle = await site.run(refund_id)
    await site.reaches(refund_id, "awaiting_review")
    before = await shop.row(refund_id)
    first = (await handle.describe()).run_id
    await handle.terminate("by an operator")

    async def running_again() -> bool:
        described = await handle.describe()
        return described.run_id != first and described.status is WorkflowExecutionStatus.RUNNING

    await until(running_again, site.logs)
    after = await shop.row(refund_id)
    assert (after["status"], after["review_by"], after["revision"]) == (before["status"], before["review_by"], 1)
    await shop.decide(refund_id, "rita")
    assert await site.reaches(refund_id, "succeeded", "parked") == "succeeded"
    assert await shop.asked_and_made(intent) == (1, 1)


async def test_a_run_that_completed_before_its_refund_is_started_again(site: Site) -> None:
    # Whoever may use Temporal can end an activity by hand, and a run believes its steps; the store is believed more.
    shop = site.shop
    intent = await shop.paid()
    await shop.fault("refund.create", {"kind": "rate_limit"}, times=4, intent=intent)
    refund_id = await shop.received(intent)
    handle = await site.run(refund_id)
    await site.reaches(refund_id, "submitting")
    described = await handle.describe()
    [pending] = described.raw_description.pending_activities
    forged = site.client.get_async_activity_handle(workflow_id=handle.id, run_id=described.run_id, activity_id=pending.activity_id)
    await forged.complete(Situation(refund=refund_id, status="succeeded", version=99_999))

    assert await site.reaches(refund_id, "succeeded", "parked") == "succeeded"
    assert await shop.asked_and_made(intent) == (5, 1)


async def test_a_reset_run_sends_nothing_again(site: Site) -> None:
    from temporalio.api.common.v1 import WorkflowExecution
    from temporalio.api.workflowservice.v1 import ResetWorkflowExecutionRequest

    shop = site.shop
    intent = await shop.paid()
    refund_id = await shop.received(intent)
    handle = await site.run(refund_id)
    await site.reaches(refund_id, "succeeded")
    await handle.result()
    history = await handle.fetch_history()
    first_task = next(e.event_id for e in history.events if e.HasField("workflow_task_completed_event_attributes"))
    described = await handle.describe()
    answer = await site.client.workflow_service.reset_workflow_execution(
        ResetWorkflowExecutionRequest(
            namespace=site.client.namespace,
            workflow_execution=WorkflowExecution(workflow_id=handle.id, run_id=described.run_id),
            reason="by an operator",
            workflow_task_finish_event_id=first_task,
            request_id="reset-1",
        )
    )

    outcome = await site.client.get_workflow_handle(handle.id, run_id=answer.run_id).result()

    assert outcome["status"] == "succeeded"
    assert await shop.asked_and_made(intent) == (1, 1)


async def test_an_undelivered_decision_is_delivered_later_and_counts_once(site: Site) -> None:
    """The API recorded the decision and died; then the same decision is delivered again, by hand and by update."""
    shop = site.shop
    intent = await shop.paid(50_000)
    refund_id = await shop.received(intent, 20_000)
    handle = await site.run(refund_id)
    await site.reaches(refund_id, "awaiting_review")
    assert shop.people["rita"].has(Role.MANAGER)
    terms = (await shop.row(refund_id))["terms_hash"]
    async with shop.api.begin() as connection:
        given = {"refund_id": refund_id, "actor": shop.people["rita"], "verdict": "approve", "terms_hash": terms}
        recorded = await decisions.record_review(connection, shop.clock, **given)

    assert await site.reaches(refund_id, "succeeded", "parked") == "succeeded"
    await handle.result()

    [decision] = await shop.query("SELECT * FROM decisions WHERE id = :d", d=recorded.id)
    assert decision["delivered_at"] is not None
    moves = await shop.moves(refund_id)
    assert (moves.count("approved"), moves.count("succeeded")) == (1, 1)
    assert await shop.asked_and_made(intent) == (1, 1)


async def test_a_decision_delivered_many_times_counts_once(site: Site) -> None:
    shop = site.shop
    intent = await shop.paid(50_000)
    refund_id = await shop.received(intent, 20_000)
    handle = await site.run(refund_id)
    await site.reaches(refund_id, "awaiting_review")
    terms = (await shop.row(refund_id))["terms_hash"]
    async with shop.api.begin() as connection:
        given = {"refund_id": refund_id, "actor": shop.people["rita"], "verdict": "approve", "terms_hash": terms}
        recorded = await decisions.record_review(connection, shop.clock, **given)
    # All at once: the first one heard carries the run to its end, and a run that is over takes no signal.
    sent = await asyncio.gather(*(handle.signal("approve", Message(recorded.id)) for _ in range(5)), return_exceptions=True)

    assert None in sent
    assert await site.reaches(refund_id, "succeeded", "parked") == "succeeded"
    assert (await shop.moves(refund_id)).count("approved") == 1
    assert await shop.asked_and_made(intent) == (1, 1)


async def test_a_forged_decision_changes_nothing(site: Site) -> None:
    shop = site.shop
    intent = await shop.paid(50_000)
    refund_id = await shop.received(intent, 20_000)
    handle = await site.run(refund_id)
    await site.reaches(refund_id, "awaiting_review")
    await handle.signal("approve", Message("dec_00000000000000000000000000"))
    await handle.signal("approve", "nonsense")

    async def entered() -> bool:
        return (await shop.entries(refund_id)).count("message_refused") == 2

    await until(entered, site.logs)
    assert (await shop.row(refund_id))["status"] == "awaiting_review"
    assert await shop.asked_and_made(intent) == (0, 0)


async def test_a_stop_holds_and_a_resume_lets_go(site: Site) -> None:
    shop = site.shop
    intent = await shop.paid()
    await shop.stop()
    try:
        refund_id = await shop.received(intent)
        handle = await site.run(refund_id)
        await site.reaches(refund_id, "held")
        assert await shop.asked_and_made(intent) == (0, 0)
    finally:
        await shop.stop(stopped=False)
    await handle.signal("resume")

    assert await site.reaches(refund_id, "succeeded") == "succeeded"
    assert await shop.asked_and_made(intent) == (1, 1)
