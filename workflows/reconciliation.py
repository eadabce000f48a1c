"""A reconciliation with the processor: carried on page by page until it is done, from wherever the stored run stands.

The store is believed: a run that was terminated, or whose worker died, is started again and goes on. Cancelling ends it for good.
"""

import asyncio
from datetime import timedelta

from temporalio import workflow
from temporalio.common import RetryPolicy
from temporalio.exceptions import ActivityError, is_cancelled_exception

from refunds.ids import Prefix, id_of
from refunds.messages import (
    QUEUE_PAYMENTS,
    RECONCILIATION_WORKFLOW,
    ReconciliationInput,
    ReconciliationProgress,
    ReconciliationStep,
    Step,
)

# No end: an outage or a bug is retried until it is over. The stored run says why it does not get on, and so does the pending step in Temporal.
_AGAIN = RetryPolicy(initial_interval=timedelta(seconds=1), backoff_coefficient=2, maximum_interval=timedelta(minutes=5))
_STEP = timedelta(minutes=30)
_HEARTBEAT = timedelta(seconds=6)


@workflow.defn(name=RECONCILIATION_WORKFLOW)
class ReconciliationWorkflow:
    """One reconciliation."""

    @workflow.init
    def __init__(self, request: ReconciliationInput) -> None:
        # Made here, so that a step that is tried again begins no second run.
        self._run = request.run or id_of(Prefix.RECONCILIATION, int(workflow.now().timestamp() * 1_000), workflow.random().getrandbits(80))
        self._progress = ReconciliationProgress(self._run, "beginning")

    @workflow.run
    async def run(self, request: ReconciliationInput) -> ReconciliationProgress:
        """Carry the run to its end and answer how it ended."""
        step = ReconciliationStep(self._run, request.window_s, workflow.info().workflow_id)
        try:
            if not request.run:
                self._adopt(await self._do(Step.RECONCILE_BEGIN, step, "Begin the reconciliation"))
            while not self._progress.over:
                self._adopt(await self._do(Step.RECONCILE_PAGES, step, f"Compare, {self._progress.pages} pages so far"))
        except (asyncio.CancelledError, ActivityError) as error:
            if isinstance(error, asyncio.CancelledError) or is_cancelled_exception(error):
                await asyncio.shield(self._cancel(step))
            raise
        return self._progress

    @workflow.query(name="progress")
    def progress(self) -> ReconciliationProgress:
        """How far it has come, as this run last heard from the store."""
        return self._progress

    def _adopt(self, found: ReconciliationProgress) -> None:
        self._progress = found
        workflow.set_current_details(
            f"**{found.phase}**\n\n{found.compared} refunds compared on {found.pages} pages, {found.differences} differ.\n\n"
            f"Reconciliation `{found.run}`. Runbook: `docs/runbooks/discrepancies.md`"
        )

    async def _do(self, name: str, step: ReconciliationStep, summary: str) -> ReconciliationProgress:
        return await workflow.execute_activity(
            name,
            step,
            result_type=ReconciliationProgress,
            task_queue=QUEUE_PAYMENTS,
            start_to_close_timeout=_STEP,
            heartbeat_timeout=_HEARTBEAT,
            retry_policy=_AGAIN,
            summary=summary,
        )

    async def _cancel(self, step: ReconciliationStep) -> None:
        await workflow.execute_activity(
            Step.RECONCILE_CANCEL,
            step,
            task_queue=QUEUE_PAYMENTS,
            start_to_close_timeout=timedelta(seconds=30),
            retry_policy=_AGAIN,
            summary="End the reconciliation",
        )
