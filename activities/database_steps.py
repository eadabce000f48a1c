"""The short database steps: messages, deadlines, release of held refunds. Run as local activities of the ``refunds`` role."""

from temporalio import activity

from refunds.messages import UNRECORDED, Situation, Step, StepInput
from store.progress import Steps


class DatabaseSteps:
    """Each asks the store and answers with the refund's situation."""

    def __init__(self, steps: Steps) -> None:
        self._steps = steps

    @activity.defn(name=Step.APPLY)
    async def apply_message(self, step: StepInput) -> Situation:
        """Let a decision, consent, withdrawal or revision count as far as the store confirms it."""
        return await self._steps.apply_message(step.refund, step.kind, step.message, enter_refusal=step.detail != UNRECORDED)

    @activity.defn(name=Step.REFUSE)
    async def refuse_message(self, step: StepInput) -> Situation:
        """Enter a message that could not be read in the ledger."""
        return await self._steps.refuse_message(step.refund, step.kind, step.detail)

    @activity.defn(name=Step.DEADLINE)
    async def pass_deadline(self, step: StepInput) -> Situation:
        """Remind, escalate or expire, as is due by now."""
        return await self._steps.pass_deadline(step.refund)

    @activity.defn(name=Step.RESUME)
    async def resume_held(self, step: StepInput) -> Situation:
        """Let a held refund go on if nothing holds it any more."""
        return await self._steps.resume_held(step.refund)
