"""Notes and evidence: what people write beside a decision, a revision, a withdrawal or a settlement. Sealed, with an entry of their own that commits to them."""

from sqlalchemy.ext.asyncio import AsyncConnection

from store.changes import lock_refund
from store.texts import Texts


async def keep(connection: AsyncConnection, texts: Texts, *, refund_id: str, actor: str, about: str, note: str) -> None:
    """Keep what somebody wrote about a decision or instruction, in the transaction that records it; nothing when it is blank.

    Enters ``note_kept``, which names what it is about and commits to the text. Raises ``REFUND_NOT_FOUND``.
    """
    if not note.strip():
        return
    change = await lock_refund(connection, refund_id, texts.clock.now)
    kind = f"note:{about}"
    kept = await texts.write(connection, refund_id=refund_id, customer_id=change["customer_id"], values={kind: note.strip()})
    if kept.commitments:
        change.note("note_kept", actor=actor, commitments=kept.commitments, about=about, masked=kept.masked or None)
        await change.save(connection)
