"""The database's side of reading text, over the login of the ``classify`` role."""

from dataclasses import dataclass
from typing import Any

from sqlalchemy import insert, select
from sqlalchemy.ext.asyncio import AsyncConnection

from refunds.classification import Classification, Reading
from refunds.ledger.entry import hash_of
from store import identifiers
from store.changes import Change, lock_refund, read_refund
from store.db import Database
from store.facts import reading_of
from store.tables import classifications, orders
from store.texts import READING, Texts

SEALED = READING
"""The kind under which the words of a reading are kept among the encrypted texts."""


@dataclass(frozen=True)
class Classifying:
    """Reads the texts of refunds and keeps what a reader made of them."""

    database: Database
    texts: Texts

    async def unread(self, refund_id: str, *, opened: bool = True) -> tuple[str, str | None] | None:
        """The message of a refund and the currency of its payment if known; ``None`` when it was read already.

        Unless it may be ``opened`` the message stays sealed, and an empty one is answered.
        """
        async with self.database.begin() as connection:
            if await reading_of(connection, refund_id) is not None:
                return None
            row = await read_refund(connection, refund_id)
            # A reader needs the message and nothing else, so nothing else is opened for it.
            written = await self.texts.read(connection, refund_id, only="message") if opened else {}
            return written.get("message", ""), row["currency"]

    async def save(self, refund_id: str, classification: Classification) -> None:
        """Keep a classification; the first one stays. What it quotes of the customer is sealed, the rest is plain."""
        async with self.database.begin() as connection:
            change = await lock_refund(connection, refund_id, self.database.clock.now)
            if await reading_of(connection, refund_id) is not None:
                return
            reading = classification.reading
            reference = (reading.order_reference or "").strip() if reading else ""
            body = without_words(classification).model_dump(mode="json")
            await connection.execute(
                insert(classifications).values(
                    refund_id=refund_id,
                    body=body,
                    names_an_order=bool(reference),
                    order_id=await self._order(connection, change, reference) if reference else None,
                    recorded_at=change.at,
                )
            )
            commitments = None
            if reading is not None:
                owner = {"refund_id": refund_id, "customer_id": change["customer_id"]}
                commitments = (await self.texts.write(connection, **owner, values={SEALED: reading.model_dump_json()})).commitments
            by = f"classifier:{classification.classifier}"
            change.note("classified", actor=by, commitments=commitments, answer=hash_of(body), **_provenance(classification))
            await change.save(connection)

    async def _order(self, connection: AsyncConnection, change: Change, reference: str) -> str | None:
        """The order of this customer that is named, in the merchant's own spelling, with or without a leading number sign."""
        named = [identifiers.order_lookup(connection, spelled) for spelled in {reference, reference.lstrip("#")}]
        query = select(orders.c.id).where(orders.c.customer_id == change["customer_id"], orders.c.ref_lookup.in_(named))
        return (await connection.execute(query.limit(1))).scalar_one_or_none()


def without_words(classification: Classification) -> Classification:
    """The same classification without anything that may quote the customer; of the signs, only how many there are."""
    if classification.reading is None:
        return classification
    kept: dict[str, Any] = {"order_reference": None, "product_lines": [], "amount_text": None, "rationale": ""}
    signs = [f"sign {number}" for number in range(1, len(classification.reading.manipulation) + 1)]
    reading: Reading = classification.reading.model_copy(update=kept | {"manipulation": signs})
    return classification.model_copy(update={"reading": reading})


def _provenance(classification: Classification) -> dict[str, Any]:
    return {
        "provider": classification.provider or None,
        "region": classification.region,
        "sent": classification.sent,
        "model": classification.model,
        "model_version": classification.version,
        "prompt_hash": classification.prompt_hash,
        "failure": classification.failure,
        "intent": classification.reading.intent.value if classification.reading else None,
        "input_tokens": classification.input_tokens,
        "output_tokens": classification.output_tokens,
        "cost_micros": classification.cost_micros,
        "cost_currency": classification.cost_currency,
    }
