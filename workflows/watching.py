"""Watching one payment for as long as something hints that there is something to see: an event, or whoever asks.

Hints carry nothing: each one means that the payment is worth a look, and those that come during a look are answered together by the next. The run ends when
nobody has hinted since it looked last; the next hint begins another one under the same id.
"""

from collections.abc import Sequence
from datetime import timedelta

from temporalio import workflow
from temporalio.common import RawValue, RetryPolicy, SearchAttributeKey

from refunds.messages import QUEUE_PAYMENTS, WATCH_WORKFLOW, Observed, Step, StepInput
from workflows.steps import HEARTBEAT

PAYMENT = SearchAttributeKey.for_keyword("RefundPayment")
# No end: a processor that is away, or a bug, is waited for; the events that led here are taken up again too, and alert.
_AGAIN = RetryPolicy(initial_interval=timedelta(seconds=1), backoff_coefficient=2, maximum_interval=timedelta(minutes=5))
_LOOK = timedelta(minutes=3)


@workflow.defn(name=WATCH_WORKFLOW)
class PaymentWatchWorkflow:
    """The watch over one payment."""

    @workflow.init
    def __init__(self, request: StepInput) -> None:
        self._hinted = True  # being started is the first hint
        self._looks = 0

    @workflow.run
    async def run(self, request: StepInput) -> Observed:
        """Look at the payment whose surrogate is in ``message`` until nothing hints at it any more; answer what the last look came to."""
        found = Observed(request.message)
        while self._hinted:
            self._hinted = False
            found = await self._look(request)
            if workflow.info().is_continue_as_new_suggested() and self._hinted:
                workflow.continue_as_new(request)
        return found

    async def _look(self, request: StepInput) -> Observed:
        self._looks += 1
        workflow.set_current_details(
            f"Looks at the payment `{request.message}`, time {self._looks}.\n\nRunbook: `docs/runbooks/webhooks.md`"
        )
        return await workflow.execute_activity(
            Step.OBSERVE,
            request,
            result_type=Observed,
            task_queue=QUEUE_PAYMENTS,
            start_to_close_timeout=_LOOK,
            heartbeat_timeout=HEARTBEAT,
            retry_policy=_AGAIN,
            summary="Read the payment, its refunds and disputes at the processor",
        )

    @workflow.signal(dynamic=True)
    def hint(self, name: str, arguments: Sequence[RawValue]) -> None:
        """Any signal, whatever it is called and carries: look again. It moves nothing, so anybody may send it."""
        self._hinted = True
