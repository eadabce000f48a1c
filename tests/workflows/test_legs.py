"""The run of a refund with legs: it goes on after the refund is over, until each leg is done or a person has settled it."""

from datetime import timedelta

from refunds.messages import QUEUE_REFUNDS, Outcome, Step
from tests.workflows.memory import DAY, Plan
from tests.workflows.running import Runs, count, message
from tests.workflows.test_paths import QUEUES


@QUEUES
async def test_legs_are_sent_after_the_refund_was_accepted(runs: Runs, queue: str) -> None:
    run = await runs.start(Plan(legs=["done"]), queue=queue)

    assert await run.result() == Outcome(run.row.id, "succeeded", revision=1)

    assert run.row.calls == {Step.PREPARE: 1, Step.SUBMIT: 1, Step.LEGS: 1}


@QUEUES
async def test_a_leg_of_which_nothing_is_known_is_tried_again_when_it_is_due(runs: Runs, queue: str) -> None:
    run = await runs.start(Plan(legs=["later", "done"]), queue=queue)
    await run.entry("leg_later")
    await run.heard(run.row.version)
    assert run.row.calls[Step.LEGS] == 1

    await run.pass_time(timedelta(seconds=62))

    assert (await run.result()).status == "succeeded"
    assert run.row.calls[Step.LEGS] == 2


async def test_a_hint_has_a_leg_tried_at_once(runs: Runs) -> None:
    run = await runs.start(Plan(legs=["later", "done"]))
    await run.entry("leg_later")
    await run.heard(run.row.version)

    await run.handle.signal("resume")

    assert (await run.result()).status == "succeeded"


async def test_a_pending_refund_is_asked_about_beside_its_legs(runs: Runs) -> None:
    run = await runs.start(Plan(answers=["pending"], polls=["succeeded"], legs=["later", "later", "done"]))
    await run.entry("leg_later")

    await run.pass_time(timedelta(seconds=62))
    await run.entry("leg_later", 2)
    await run.pass_time(timedelta(seconds=62))

    assert (await run.result()).status == "succeeded"
    assert (run.row.calls[Step.RECONCILE], run.row.calls[Step.LEGS]) == (1, 3)


@QUEUES
async def test_the_run_waits_for_whoever_settles_a_parked_leg(runs: Runs, queue: str) -> None:
    run = await runs.start(Plan(legs=["parked", "parked"]), queue=queue)
    await run.entry("leg_parked")
    await run.pass_time(DAY + timedelta(seconds=2))
    await run.entry("leg_parked", 2)

    answer = await run.ask("settle", message(runs.store.settle(run.row, "leg")))

    assert answer == "succeeded"
    assert (await run.result()).status == "succeeded"
    assert run.row.calls[Step.LEGS] == 2


async def test_a_run_that_is_started_again_goes_on_with_the_legs(runs: Runs) -> None:
    first = await runs.start(Plan(legs=["parked", "done"]))
    await first.entry("leg_parked")
    await first.heard(first.row.version)
    await first.handle.terminate("an operator did")
    first.row.legs_at = first.row.now()

    again = await runs.start_row(first.row)

    assert (await again.result()).status == "succeeded"
    assert first.row.calls[Step.SUBMIT] == 1


async def test_legs_cost_an_ordinary_run_nothing(runs: Runs) -> None:
    run = await runs.start(queue=QUEUE_REFUNDS)
    await run.result()

    assert count(await run.history(), "ACTIVITY_TASK_SCHEDULED") == 1
