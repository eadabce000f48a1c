"""The run of a pull, with time that is skipped: steps are stand-ins that count what they are asked."""

from collections.abc import AsyncIterator
from datetime import timedelta

import pytest
from temporalio.client import WorkflowFailureError
from temporalio.exceptions import CancelledError
from temporalio.testing import WorkflowEnvironment

from deploy.local import temporal
from refunds.messages import PULL_WORKFLOW, QUEUE_REFUNDS, PullInput, PullProgress
from tests.workflows.pulled import PullSteps, hosting
from tests.workflows.running import eventually


@pytest.fixture(scope="module")
async def temporal_env() -> AsyncIterator[WorkflowEnvironment]:
    """A server of this module's own: elsewhere other workers listen on the same queues and know nothing of pulls."""
    environment = await WorkflowEnvironment.start_time_skipping_v2(
        dev_server_existing_path=str(temporal.executable()),
        dev_server_log_level="error",
        dev_server_extra_args=[*temporal.server_arguments(), "--dynamic-config-value", "frontend.WorkflowTimeSkippingEnabled=true"],
    )
    async with environment:
        yield environment


@pytest.fixture
async def steps(temporal_env: WorkflowEnvironment) -> AsyncIterator[PullSteps]:
    made = PullSteps()
    made.gate.set()
    async with hosting(temporal_env.client, made):
        yield made


async def test_a_pull_is_carried_on_until_the_store_says_that_it_is_over(temporal_env: WorkflowEnvironment, steps: PullSteps) -> None:
    ended = await temporal_env.client.execute_workflow(
        PULL_WORKFLOW, PullInput("pull_1"), id="orders-pull_1", task_queue=QUEUE_REFUNDS, result_type=PullProgress
    )
    assert (ended.pull, ended.over, ended.payments, steps.done) == ("pull_1", True, 300, {"pull_1": 3})


async def test_an_outage_delays_and_never_fails_it(temporal_env: WorkflowEnvironment, steps: PullSteps) -> None:
    steps.failing = 10
    with temporal_env.with_time_skipping_disabled():
        handle = await temporal_env.client.start_workflow(PULL_WORKFLOW, PullInput("pull_2"), id="orders-pull_2", task_queue=QUEUE_REFUNDS)
    await temporal_env.fast_forward(handle, timedelta(hours=1))
    await handle.result()
    assert (steps.failing, steps.done["pull_2"]) == (0, 3)


async def test_cancelling_ends_the_stored_pull_too(temporal_env: WorkflowEnvironment, steps: PullSteps) -> None:
    steps.gate.clear()
    handle = await temporal_env.client.start_workflow(PULL_WORKFLOW, PullInput("pull_3"), id="orders-pull_3", task_queue=QUEUE_REFUNDS)
    await eventually(lambda: handle.query("progress", result_type=PullProgress), lambda seen: seen.pull == "pull_3")
    await handle.cancel()
    with pytest.raises(WorkflowFailureError) as ended:
        await handle.result()
    assert isinstance(ended.value.cause, CancelledError)
    assert steps.canceled == ["pull_3"]
