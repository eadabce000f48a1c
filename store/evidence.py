"""What is attached to a refund for whoever decides: words, sealed under the customer's key, or a reference with the digest of what it leads to."""

from dataclasses import dataclass

from sqlalchemy import insert
from sqlalchemy.ext.asyncio import AsyncConnection

from refunds.clock import Clock
from refunds.errors import Code, RefundError
from refunds.ids import Prefix, new_id
from refunds.people import Actor
from refunds.status import BEFORE_OPERATION
from store.changes import lock_refund
from store.sql import Row
from store.tables import evidence
from store.texts import Texts


@dataclass(frozen=True, slots=True)
class Attached:
    """What was attached: its id, and the refund's row afterwards."""

    id: str
    row: Row


async def attach(
    connection: AsyncConnection, clock: Clock, texts: Texts, *, refund_id: str, actor: Actor, kind: str, words: str, digest: str | None
) -> Attached:
    """Attach evidence of a kind to a refund of which nothing was sent yet. ``words`` are a statement, or with a ``digest`` (SHA-256, hex) a reference.

    It belongs to the refund and not to one revision of its terms. What an agent attaches is shown, and stands for nothing that the policy asks for
    (promise P10). Nothing is ever taken away or replaced. Raises ``TOO_LATE``.
    """
    change = await lock_refund(connection, refund_id, clock.now)
    if change.status not in BEFORE_OPERATION:
        raise RefundError(Code.TOO_LATE, f"It is {change.status}.")
    evidence_id = new_id(Prefix.EVIDENCE)
    await connection.execute(
        insert(evidence).values(
            id=evidence_id, refund_id=refund_id, kind=kind, digest=digest, given_by=actor.principal_id, recorded_at=change.at
        )
    )
    owner = {"refund_id": refund_id, "customer_id": change["customer_id"]}
    kept = await texts.write(connection, **owner, values={f"evidence:{evidence_id}": words})
    said = {"evidence": evidence_id, "kind": kind, "digest": digest, "masked": kept.masked or None}
    change.note("evidence_attached", actor=actor.principal_id, commitments=kept.commitments, **said)
    await change.save(connection, announce=True)
    return Attached(evidence_id, change.row)
