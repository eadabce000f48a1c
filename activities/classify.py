"""Reading a customer's text with the configured reader. The text never leaves this process but to the reader, and never travels through Temporal."""

from dataclasses import dataclass

from temporalio import activity

from activities.classifiers.base import Classifier, ReadingContext
from refunds.messages import Step, StepInput
from store.changes import read_refund
from store.classifying import Classifying
from store.texts import Texts


@dataclass(frozen=True)
class Classify:
    """The step of the ``classify`` role."""

    store: Classifying
    texts: Texts
    classifier: Classifier

    @activity.defn(name=Step.CLASSIFY)
    async def classify(self, step: StepInput) -> None:
        """Read the text and keep the answer; a failure of the reader is an answer, too. A text that was read is not read again."""
        async with self.store.database.begin() as connection:
            row = await read_refund(connection, step.refund)
            written = await self.texts.read(connection, step.refund)
        if await self.store.is_classified(step.refund):
            return
        classification = await self.classifier.classify(written.get("message", ""), ReadingContext(currency=row["currency"]))
        await self.store.save(step.refund, classification)
