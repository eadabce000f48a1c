"""Reading a customer's text with the configured reader. The text never leaves this process but to the reader, and never travels through Temporal."""

from dataclasses import dataclass

from temporalio import activity

from activities.classifiers import Classifier, NotAllowed, ReadingContext
from activities.heartbeat import heartbeating
from refunds.messages import Step, StepInput
from store.classifying import Classifying


@dataclass(frozen=True)
class Classify:
    """The step of the ``classify`` role."""

    store: Classifying
    classifier: Classifier

    @activity.defn(name=Step.CLASSIFY)
    async def classify(self, step: StepInput) -> None:
        """Read the text and keep the answer; a failure of the reader is an answer, too. A text that was read is not read again."""
        async with heartbeating():
            # A text that may not be sent is not even opened for it.
            unread = await self.store.unread(step.refund, opened=not isinstance(self.classifier, NotAllowed))
            if unread is None:
                return
            message, currency = unread
            await self.store.save(step.refund, await self.classifier.classify(message, ReadingContext(currency=currency)))
