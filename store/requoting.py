"""Held refunds before they go on: judged anew after whatever kept them back, on a reading of a moment ago."""

from sqlalchemy.ext.asyncio import AsyncConnection

from refunds.errors import Code, RefundError
from refunds.processor import PaymentState
from refunds.standing import no_longer_stands
from store import quoting
from store.asking import Asked
from store.changes import Change
from store.facts import UNREAD, reading_of
from store.sql import Row

MOMENTARY = frozenset({Code.PROCESSOR_UNREACHABLE.value, Code.PAYMENT_BUSY.value, Code.LIMIT_EXCEEDED.value})
"""What keeps a refund back for its turn, and says nothing about its terms: it goes on as it was approved. The attempt reads the payment anyway."""


async def no_news(connection: AsyncConnection, change: Change, revision: Row, asked: Asked, state: PaymentState) -> bool:
    """Whether the approved terms of a held refund would be quoted as they are, so that they, and their approvals, stand. Writes nothing but why not.

    The caller holds the locks of the payment and the refund.
    """
    stored = (await reading_of(connection, change.id) or UNREAD) if change["has_text"] else None
    try:
        judged = await quoting.judge(connection, change, asked, state, stored=stored, locking=False)
    except RefundError as error:
        why: str | None = error.detail
    else:
        why = no_longer_stands(revision, judged.decision, judged.facts)
    if why is not None:
        change.note("terms_void", revision=change["revision"], terms_hash=change["terms_hash"], code=change["code"])
    return why is None
