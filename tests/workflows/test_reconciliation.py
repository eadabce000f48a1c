"""The reconciliation's run and its schedules, with time that is skipped: steps are stand-ins that count what they are asked."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta

import pytest
from pydantic import SecretStr
from temporalio.client import Client, ScheduleActionStartWorkflow, WorkflowFailureError
from temporalio.exceptions import CancelledError
from temporalio.testing import WorkflowEnvironment

from deploy.local import temporal
from refunds.ids import Prefix, is_id, new_id
from refunds.messages import (
    QUEUE_REFUNDS,
    RECONCILIATION_WORKFLOW,
    ReconciliationInput,
    ReconciliationProgress,
)
from refunds.settings import Settings
from tests.workflows.running import eventually
from tests.workflows.swept import Steps, hosting
from worker import schedules

NOW = datetime(2026, 6, 1, tzinfo=UTC)


@pytest.fixture(scope="module")
async def temporal_env() -> AsyncIterator[WorkflowEnvironment]:
    """A server of this module's own: elsewhere other workers listen on the same queues and know nothing of reconciliations."""
    environment = await WorkflowEnvironment.start_time_skipping_v2(
        dev_server_existing_path=str(temporal.executable()),
        dev_server_log_level="error",
        dev_server_extra_args=[*temporal.server_arguments(), "--dynamic-config-value", "frontend.WorkflowTimeSkippingEnabled=true"],
    )
    async with environment:
        yield environment


@pytest.fixture
async def steps(temporal_env: WorkflowEnvironment) -> AsyncIterator[Steps]:
    made = Steps()
    made.gate.set()
    async with hosting(temporal_env.client, made):
        yield made


async def run(client: Client, request: ReconciliationInput) -> ReconciliationProgress:
    return await client.execute_workflow(
        RECONCILIATION_WORKFLOW,
        request,
        id=f"reconciliation-{new_id(Prefix.TICKET)}",
        task_queue=QUEUE_REFUNDS,
        result_type=ReconciliationProgress,
    )


async def test_a_stored_run_is_carried_on_to_its_end_and_not_begun(temporal_env: WorkflowEnvironment, steps: Steps) -> None:
    ended = await run(temporal_env.client, ReconciliationInput(run="rec_1"))
    assert (ended.run, ended.over, steps.done, steps.begun) == ("rec_1", True, {"rec_1": 3}, [])


async def test_one_that_begins_by_itself_is_begun_once_however_often_that_is_tried(temporal_env: WorkflowEnvironment, steps: Steps) -> None:
    steps.failing = 2
    ended = await run(temporal_env.client, ReconciliationInput(window_s=60))
    assert is_id(ended.run, Prefix.RECONCILIATION)
    assert [(step.run, step.window_s) for step in steps.begun] == [(ended.run, 60)] * 3
    assert steps.begun[0].begun_by.startswith("reconciliation-tk_")


async def test_field_8_an_outage_delays_and_ends_in_a_whole_run(temporal_env: WorkflowEnvironment, steps: Steps) -> None:
    """Retried with growing waits up to five minutes, never given up, and never a failure of the run."""
    steps.failing = 10
    with temporal_env.with_time_skipping_disabled():
        handle = await temporal_env.client.start_workflow(
            RECONCILIATION_WORKFLOW, ReconciliationInput(run="rec_2"), id="reconciliation-rec_2", task_queue=QUEUE_REFUNDS
        )
    await temporal_env.fast_forward(handle, timedelta(hours=1))
    await handle.result()
    assert (steps.failing, steps.done["rec_2"]) == (0, 3)


async def test_cancelling_ends_the_stored_run_too(temporal_env: WorkflowEnvironment, steps: Steps) -> None:
    steps.gate.clear()
    handle = await temporal_env.client.start_workflow(
        RECONCILIATION_WORKFLOW, ReconciliationInput(run="rec_3"), id="reconciliation-rec_3", task_queue=QUEUE_REFUNDS
    )
    await eventually(lambda: handle.query("progress", result_type=ReconciliationProgress), lambda seen: seen.run == "rec_3")
    await handle.cancel()
    with pytest.raises(WorkflowFailureError) as ended:
        await handle.result()
    assert isinstance(ended.value.cause, CancelledError)
    assert steps.canceled == ["rec_3"]


def settings(**changed: float) -> Settings:
    return Settings(database_url=SecretStr("postgresql://unused"), **changed)  # pyright: ignore[reportArgumentType]


@pytest.fixture
async def scheduled(temporal_env: WorkflowEnvironment) -> AsyncIterator[Client]:
    """No schedule is left by another test, or for one."""
    client = temporal_env.client
    yield client
    for wanted in schedules.recurring(settings()):
        await client.get_schedule_handle(wanted.id).delete()


async def test_schedules_are_made_once_and_never_overlap(scheduled: Client) -> None:
    for _ in range(3):
        await schedules.keep(scheduled, settings(), NOW)
    found = {name: await scheduled.get_schedule_handle(name).describe() for name in ("reconcile-recent", "reconcile-deep")}
    for name, every, window_s in (("reconcile-recent", timedelta(hours=1), 172_800), ("reconcile-deep", timedelta(days=1), 3_974_400)):
        schedule = found[name].schedule
        assert isinstance(schedule.action, ScheduleActionStartWorkflow)
        assert [interval.every for interval in schedule.spec.intervals] == [every]
        assert schedule.policy.overlap.name == "SKIP"
        [given] = await scheduled.data_converter.decode(list(schedule.action.args), [ReconciliationInput])
        assert given == ReconciliationInput(window_s=window_s)


async def test_an_operators_pause_survives_a_redeployment_and_the_interval_follows_the_settings(scheduled: Client) -> None:
    await schedules.keep(scheduled, settings(), NOW)
    handle = scheduled.get_schedule_handle("reconcile-recent")
    await handle.pause(note="the processor asked us to")
    before = (await handle.describe()).schedule
    await schedules.keep(scheduled, settings(reconcile_every_s=1_800), NOW + timedelta(days=3))
    after = (await handle.describe()).schedule
    assert (after.state.paused, after.state.note) == (True, "the processor asked us to")
    assert [interval.every for interval in after.spec.intervals] == [timedelta(minutes=30)]
    assert after.spec.start_at == before.spec.start_at
    assert after.action == before.action


async def test_the_schedule_begins_a_reconciliation_of_its_window(scheduled: Client, steps: Steps) -> None:
    await schedules.keep(scheduled, settings(), NOW)
    handle = scheduled.get_schedule_handle("reconcile-recent")
    await handle.trigger()

    async def begun() -> int:
        return steps.done.total()

    await eventually(begun, lambda count: count >= 3)
    [step] = steps.begun
    assert step.window_s == 172_800
    assert step.begun_by.startswith("reconcile-recent-")
