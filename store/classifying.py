"""The database's side of reading text, over the login of the ``classify`` role."""

from dataclasses import dataclass

from sqlalchemy import insert

from refunds.classification import Classification
from store.changes import lock_refund
from store.db import Database
from store.facts import reading_of
from store.tables import classifications


@dataclass(frozen=True)
class Classifying:
    """Keeps what a reader made of a text."""

    database: Database

    async def is_classified(self, refund_id: str) -> bool:
        """Whether the text was read already."""
        async with self.database.begin() as connection:
            return await reading_of(connection, refund_id) is not None

    async def save(self, refund_id: str, classification: Classification) -> None:
        """Keep a classification; the first one stays."""
        async with self.database.begin() as connection:
            change = await lock_refund(connection, refund_id, self.database.clock.now)
            if await reading_of(connection, refund_id) is not None:
                return
            body = classification.model_dump(mode="json")
            await connection.execute(insert(classifications).values(refund_id=refund_id, body=body, recorded_at=change.at))
            change.note(
                "classified",
                actor=f"classifier:{classification.classifier}",
                model=classification.model,
                model_version=classification.version,
                prompt_hash=classification.prompt_hash,
                failure=classification.failure,
                intent=classification.reading.intent.value if classification.reading else None,
                input_tokens=classification.input_tokens,
                output_tokens=classification.output_tokens,
            )
            await change.save(connection)
