"""Reading one payment live for a process that holds no processor key, such as the API answering a quote."""

from temporalio import workflow

from refunds.messages import READING_WORKFLOW, StepInput
from workflows import steps


@workflow.defn(name=READING_WORKFLOW)
class PaymentReadingWorkflow:
    """One reading of one payment, kept in the store."""

    @workflow.run
    async def run(self, request: StepInput) -> None:
        """Read the payment whose surrogate id is in ``message``."""
        await steps.read_payment(request.refund, request.message, detail=request.detail)
