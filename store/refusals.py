"""What somebody tried and was refused: entered in the ledger, once each, in a transaction of its own after the refusal (field reports 56, 57)."""

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncConnection

from refunds.clock import Clock
from refunds.errors import Code, RefundError
from refunds.people import Actor
from store.changes import enter, lock_refund, read_refund
from store.tables import refund_groups

AUDITED = frozenset(
    {
        Code.SELF_APPROVAL,
        Code.ROLE_TOO_LOW,
        Code.REVIEWER_LIMIT,
        Code.PERSON_REQUIRED,
        Code.ABOVE_OWN_LIMIT,
        Code.SPECIALIST_REQUIRED,
        Code.DELEGATION_INVALID,
        Code.REASON_REQUIRED,
        Code.EVIDENCE_MISSING,
        Code.LIMIT_EXCEEDED,
        Code.FORBIDDEN,
        # Of a refund or group that is there and not the caller's; of one that is not there at all, there is nothing to enter.
        Code.REFUND_NOT_FOUND,
        Code.GROUP_NOT_FOUND,
        Code.TERMS_CHANGED,
        Code.ALREADY_DECIDED,
        Code.DECIDED_TOGETHER,
        Code.REVIEW_EXPIRED,
        Code.CONSENT_EXPIRED,
        Code.NOT_AWAITING_REVIEW,
        Code.NOT_AWAITING_CONSENT,
        Code.TOO_LATE,
        Code.NOT_PARKED,
        Code.SETTLEMENT_CONTRADICTED,
        Code.NOT_REVISABLE,
    }
)
"""Refusals that are entered in the ledger: somebody tried, and an auditor will ask."""


async def note_refusal(
    connection: AsyncConnection, clock: Clock, refund_id: str, actor: Actor, what: str, error: RefundError, *, sees: str | None
) -> None:
    """Enter a refused decision or instruction in the refund's ledger, in a transaction of its own after the refusal.

    ``sees`` is the only integration whose refunds the actor may see, or ``None`` for all. What is tried on a refund out of sight is entered beside it, not
    in it: strangers neither lock it nor lengthen its record.
    """
    row = await read_refund(connection, refund_id)
    if sees not in (None, row["integration"]):
        await enter(connection, f"{what}_refused", clock.now(), actor=actor.principal_id, code=error.code.value, out_of_sight=refund_id)
        return
    change = await lock_refund(connection, refund_id, clock.now)
    change.note(f"{what}_refused", actor=actor.principal_id, code=error.code.value)
    await change.save(connection)


async def note_refusal_of_group(
    connection: AsyncConnection, clock: Clock, group_id: str, actor: Actor, what: str, error: RefundError
) -> None:
    """Enter that something was refused of a group as a whole, such as to somebody without the role; nothing of a group that there is not."""
    query = select(refund_groups.c.id).where(refund_groups.c.id == group_id)
    if (await connection.execute(query)).scalar_one_or_none() is not None:
        await enter(connection, f"{what}_refused", clock.now(), actor=actor.principal_id, code=error.code.value, group=group_id)


async def note_mismatch(connection: AsyncConnection, clock: Clock, actor: Actor, code: Code) -> None:
    """Enter in the ledger that somebody named an order or payment that is not the customer's (field report 62)."""
    await enter(connection, "ownership_mismatch", clock.now(), actor=actor.principal_id, code=code.value)
