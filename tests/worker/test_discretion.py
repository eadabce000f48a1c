"""What a failed step says stays here: neither Temporal's history nor the log repeats an error's words (promise P9)."""

import logging
from datetime import timedelta

import pytest
from temporalio import activity, workflow
from temporalio.client import Client, WorkflowFailureError
from temporalio.common import RetryPolicy
from temporalio.worker import UnsandboxedWorkflowRunner, Worker

from refunds.errors import Code, RefundError
from worker.discretion import Discretion

MARK = "Zephyrine Quux"


@activity.defn
async def breaks(kind: str) -> None:
    if kind == "ours":
        raise RefundError(Code.STORE_UNAVAILABLE, f"DETAIL: Failing row contains ({MARK})")
    try:
        raise KeyError(MARK)
    except KeyError as error:
        raise ValueError(f"the row of {MARK}") from error


@workflow.defn
class Breaking:
    @workflow.run
    async def run(self, kind: str) -> None:
        await workflow.execute_activity(
            breaks, kind, start_to_close_timeout=timedelta(seconds=5), retry_policy=RetryPolicy(maximum_attempts=1)
        )


@pytest.mark.parametrize(("kind", "word"), [("ours", "STORE_UNAVAILABLE"), ("a bug", "ValueError")])
async def test_an_error_leaves_its_step_as_a_fixed_word(
    temporal_client: Client, caplog: pytest.LogCaptureFixture, kind: str, word: str
) -> None:
    queue = f"discretion-{kind}"
    caplog.set_level(logging.DEBUG)
    async with Worker(
        temporal_client,
        task_queue=queue,
        workflows=[Breaking],
        activities=[breaks],
        interceptors=[Discretion()],
        workflow_runner=UnsandboxedWorkflowRunner(),
    ):
        handle = await temporal_client.start_workflow(Breaking.run, kind, id=queue, task_queue=queue)
        with pytest.raises(WorkflowFailureError):
            await handle.result()

    history = (await handle.fetch_history()).to_json()
    assert word in history
    assert MARK not in history
    assert MARK not in caplog.text
