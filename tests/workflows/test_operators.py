"""What operators see in Temporal, what a run costs in events, cancelling, and the last moment of a run (field report 66)."""

import asyncio
from collections.abc import Generator
from datetime import timedelta

import pytest
from temporalio.client import WorkflowExecutionDescription, WorkflowFailureError
from temporalio.exceptions import CancelledError

from refunds.messages import Message, RefundInput, Step
from tests.workflows.memory import Plan
from tests.workflows.running import Run, Runs, count, eventually, message
from workflows.refund import RefundWorkflow


def attributes(description: WorkflowExecutionDescription) -> dict[str, object]:
    return {pair.key.name: pair.value for pair in description.typed_search_attributes if pair.key.name.startswith("Refund")}


async def details(run: Run) -> str:
    metadata = await run.handle.query("__temporal_workflow_metadata")
    return str(metadata)


async def test_search_attributes_while_it_waits_and_after(runs: Runs) -> None:
    run = await runs.start(Plan(people=1))
    await run.until("awaiting_review")

    seen = attributes(await run.handle.describe())

    assert seen == {
        "RefundStatus": "awaiting_review",
        "RefundTier": "3",
        "RefundQueue": "team",
        "RefundCurrency": "USD",
        "RefundAmount": 3000,
        "RefundReviewBy": run.row.review_by,
        "RefundOrder": "or_surrogate",
        "RefundPayment": "pay_surrogate",
    }
    await run.ask("decide", message(runs.store.decide(run.row, "approve")))
    await run.result()
    after = attributes(await run.handle.describe())
    assert after == {
        "RefundStatus": "succeeded",
        "RefundTier": "3",
        "RefundCurrency": "USD",
        "RefundAmount": 3000,
        "RefundOrder": "or_surrogate",
        "RefundPayment": "pay_surrogate",
    }


async def test_current_details_say_what_it_waits_for_since_when_and_until_when(runs: Runs) -> None:
    run = await runs.start(Plan(people=1))
    await run.until("awaiting_review")

    words = await details(run)

    assert "**awaiting_review**" in words
    assert "Waits for what awaiting_review waits for." in words
    assert f"Since {run.row.since:%Y-%m-%d %H:%M:%S} UTC." in words
    assert f"Until {run.row.review_by:%Y-%m-%d %H:%M:%S} UTC." in words
    assert "docs/runbooks/review.md" in words


async def test_an_escalation_shows_its_queue_and_deadline(runs: Runs) -> None:
    run = await runs.start(Plan(people=1, remind_after=timedelta(days=1)))
    await run.until("awaiting_review")
    await run.pass_time(timedelta(days=1, seconds=5))
    await run.entry("escalated")
    await run.heard(run.row.version)

    async def queue() -> object:
        return attributes(await run.handle.describe()).get("RefundQueue")

    await eventually(queue, lambda seen: seen == "managers")


async def test_the_reason_a_refund_is_parked_may_be_long(runs: Runs) -> None:
    # Summaries travel in commands, and a command that the server refuses would stop the run.
    run = await runs.start(Plan(answers=["park"], detail="the processor's answer differs: " + "ü" * 2_000))

    await run.until("parked")
    await run.handle.signal("settle", message(runs.store.settle(run.row, "succeeded")))

    assert (await run.result()).status == "succeeded"


async def test_view_is_what_the_store_last_said(runs: Runs) -> None:
    run = await runs.start(Plan(people=1))
    await run.until("awaiting_review")

    before = await run.history()

    seen = await run.view()

    assert seen == runs.store.situation(run.row)
    assert len((await run.history()).events) == len(before.events)  # looking leaves no trace


async def test_while_it_is_submitted_nobody_is_told_that_it_waits_for_review(runs: Runs) -> None:
    gate = asyncio.Event()
    run = await runs.start(Plan(people=1, gate=gate))
    await run.until("awaiting_review")
    await run.handle.signal("approve", message(runs.store.decide(run.row, "approve")))
    await eventually(lambda: _calls(run, Step.SUBMIT), lambda calls: calls == 1)

    seen = attributes(await run.handle.describe())

    assert (seen["RefundStatus"], seen.get("RefundQueue"), seen.get("RefundReviewBy")) == ("approved", None, None)
    gate.set()
    await run.result()


@pytest.mark.parametrize("text", [False, True], ids=["structured", "with text"])
async def test_events_of_an_automatic_refund(runs: Runs, text: bool) -> None:
    run = await runs.start(Plan(text=text))
    await run.result()

    # The classifier is a regular activity with its own role: three events and a workflow task more.
    assert len((await run.history()).events) <= 20 + 6 * text


@pytest.mark.parametrize("name", ["update", "signal"])
async def test_events_of_a_refund_with_an_approval(runs: Runs, name: str) -> None:
    lengths: list[int] = []
    for _ in range(3):
        run = await runs.start(Plan(people=1))
        await run.until("awaiting_review")
        approval = message(runs.store.decide(run.row, "approve"), run)
        if name == "update":
            await run.ask("decide", approval)
        else:
            await run.handle.signal("approve", approval)
        await run.result()
        lengths.append(len((await run.history()).events))

    # A machine that is busy elsewhere may need one workflow task more now and then; what the run itself costs is the least.
    assert min(lengths) <= 24, lengths


async def test_cancelling_while_it_is_submitted_still_records_the_answer(runs: Runs) -> None:
    gate = asyncio.Event()
    run = await runs.start(Plan(gate=gate))
    await eventually(lambda: _calls(run, Step.SUBMIT), lambda calls: calls == 1)

    await run.handle.cancel()
    await eventually(run.history, lambda history: count(history, "WORKFLOW_EXECUTION_CANCEL_REQUESTED") == 1)
    gate.set()

    with pytest.raises(WorkflowFailureError) as failure:
        await run.result()
    assert isinstance(failure.value.cause, CancelledError)
    assert (run.row.status, run.row.calls[Step.SUBMIT]) == ("succeeded", 1)
    assert (await (await runs.start_row(run.row)).result()).status == "succeeded"


async def test_cancelling_while_it_waits_ends_the_run_and_leaves_the_refund(runs: Runs) -> None:
    run = await runs.start(Plan(people=1))
    await run.until("awaiting_review")

    await run.handle.cancel()

    with pytest.raises(WorkflowFailureError):
        await run.result()
    assert run.row.status == "awaiting_review"


async def test_cancelling_answers_the_message_that_is_being_handled(runs: Runs) -> None:
    gate = asyncio.Event()
    run = await runs.start(Plan(answers=["park"]))
    await run.until("parked")
    run.row.plan.gate = gate
    asking = asyncio.create_task(run.ask("settle", message(runs.store.settle(run.row, "succeeded"))))
    await eventually(lambda: _calls(run, Step.SETTLE), lambda calls: calls == 1)

    await run.handle.cancel()
    await eventually(run.history, lambda history: count(history, "WORKFLOW_EXECUTION_CANCEL_REQUESTED") == 1)
    gate.set()

    assert await asking == "succeeded"


async def test_field_66_two_hundred_times_approve_and_withdraw_at_the_last_moment(runs: Runs) -> None:
    answers: list[str] = []
    for _ in range(20):
        answers += [answer for pair in await asyncio.gather(*(_race(runs) for _ in range(10))) for answer in pair]

    assert len(answers) == 400
    assert set(answers) <= {"succeeded", "submitting", "MESSAGE_UNBACKED", "TOO_LATE", "run is over"}, set(answers)


async def _race(runs: Runs) -> tuple[str, str]:
    """Send an approval and a withdrawal while the last step of a run completes."""
    gate = asyncio.Event()
    run = await runs.start(Plan(people=1, gate=gate))
    await run.until("awaiting_review")
    approval = message(runs.store.decide(run.row, "approve"), run)
    await run.handle.signal("approve", approval)
    await eventually(lambda: _calls(run, Step.SUBMIT), lambda calls: calls == 1)
    gate.set()
    answers = await asyncio.gather(run.ask("decide", approval), run.ask("decide", Message("dec_01m8kwhm2paw1vv6wkbf2pdd9j")))
    assert (await run.result()).status == "succeeded"
    return answers[0], answers[1]


async def _calls(run: Run, step: str) -> int:
    return run.row.calls[step]


def test_a_run_that_is_thrown_away_in_its_middle_ends_in_silence(monkeypatch: pytest.MonkeyPatch) -> None:
    """As a worker leaves one behind that is stopped hard: collected outside of any workflow, it may neither wait nor do anything else there."""

    class Never:
        def __await__(self) -> Generator[None]:
            yield

    async def carry(_: RefundWorkflow) -> None:
        await Never()

    monkeypatch.setattr(RefundWorkflow, "_carry", carry)
    request = RefundInput("rf_01m8kwhm2paw1vv6wkbf2pdd9j")
    run = RefundWorkflow(request).run(request)
    run.send(None)
    run.close()
