"""What a careless release could look like, to show that the corpus notices it."""

from temporalio import workflow

from refunds.messages import WORKFLOW_TYPE, Outcome, RefundInput, Step, StepInput
from workflows import steps


@workflow.defn(name=WORKFLOW_TYPE)
class AnotherOrder:
    """Reads the payment before it prepares: another order of the same steps."""

    @workflow.run
    async def run(self, request: RefundInput) -> Outcome:
        await steps.read_payment(request.refund, "")
        found = await steps.database_step(Step.PREPARE, StepInput(request.refund))
        return Outcome(found.refund, found.status, found.revision)
