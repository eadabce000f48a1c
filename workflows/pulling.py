"""A pull of the merchant's orders: carried on step by step until it is done, from wherever the stored pull stands.

The store is believed: a run that was terminated, or whose worker died, is started again and goes on. Cancelling ends it for good.
"""

import asyncio
from datetime import timedelta

from temporalio import workflow
from temporalio.common import RetryPolicy
from temporalio.exceptions import ActivityError, is_cancelled_exception

from refunds.messages import PULL_WORKFLOW, QUEUE_PAYMENTS, PullInput, PullProgress, Step

# No end: an outage or a bug is retried until it is over. The stored pull says why it does not get on, and so does the pending step in Temporal.
_AGAIN = RetryPolicy(initial_interval=timedelta(seconds=1), backoff_coefficient=2, maximum_interval=timedelta(minutes=5))
_STEP = timedelta(minutes=30)
_HEARTBEAT = timedelta(seconds=6)


@workflow.defn(name=PULL_WORKFLOW)
class OrdersPullWorkflow:
    """One pull. Nothing of the merchant's passes through it but counts."""

    @workflow.init
    def __init__(self, request: PullInput) -> None:
        self._progress = PullProgress(request.pull, "beginning")

    @workflow.run
    async def run(self, request: PullInput) -> PullProgress:
        """Carry the pull to its end and answer how it ended."""
        try:
            while not self._progress.over:
                self._progress = await workflow.execute_activity(
                    Step.PULL,
                    request,
                    result_type=PullProgress,
                    task_queue=QUEUE_PAYMENTS,
                    start_to_close_timeout=_STEP,
                    heartbeat_timeout=_HEARTBEAT,
                    retry_policy=_AGAIN,
                    summary=f"Read payments and make orders, {self._progress.payments} payments so far",
                )
                self._show()
        except (asyncio.CancelledError, ActivityError) as error:
            if isinstance(error, asyncio.CancelledError) or is_cancelled_exception(error):
                await asyncio.shield(self._cancel(request))
            raise
        return self._progress

    @workflow.query(name="progress")
    def progress(self) -> PullProgress:
        """How far it has come, as this run last heard from the store."""
        return self._progress

    def _show(self) -> None:
        found = self._progress
        workflow.set_current_details(
            f"**{found.phase}**\n\n{found.payments} payments read on {found.pages} pages, {found.judged} of them judged.\n\n"
            f"Pull `{found.pull}`. See: `refunds orders pulled {found.pull}`, `docs/orders.md`"
        )

    async def _cancel(self, request: PullInput) -> None:
        await workflow.execute_activity(
            Step.PULL_CANCEL,
            request,
            task_queue=QUEUE_PAYMENTS,
            start_to_close_timeout=timedelta(seconds=30),
            retry_policy=_AGAIN,
            summary="End the pull",
        )
