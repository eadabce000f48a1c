"""How people settle a parked leg, as it is recorded before anything is checked or delivered."""

from datetime import datetime

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncConnection

from refunds.clock import Clock
from refunds.errors import Code, RefundError
from refunds.people import Actor, PrincipalKind
from store.changes import lock_refund
from store.decisions import Recorded, another_person, instruct
from store.leg_rows import PARKED
from store.tables import instructions, legs


async def record_leg_settlement(
    connection: AsyncConnection, clock: Clock, *, refund_id: str, leg_id: str, actor: Actor, outcome: str, receipt: str | None
) -> Recorded:
    """Record how a person settles a parked leg, as :func:`store.decisions.record_settlement` does for a refund: ``reversed`` names what was made at the processor,
    ``not_reversed`` needs two persons. Raises ``INVALID_FIELD``, ``PERSON_REQUIRED``, ``LEG_NOT_FOUND`` and ``NOT_PARKED``."""
    if (outcome == "reversed") != (receipt is not None):
        raise RefundError(Code.INVALID_FIELD, "Name reversal_id with the outcome reversed, and only then.", field="reversal_id")
    if actor.kind is not PrincipalKind.PERSON:
        raise RefundError(Code.PERSON_REQUIRED)
    change = await lock_refund(connection, refund_id, clock.now)
    query = select(legs.c.state, legs.c.state_since).where(legs.c.id == leg_id, legs.c.refund_id == refund_id)
    leg = (await connection.execute(query)).one_or_none()
    if leg is None:
        raise RefundError(Code.LEG_NOT_FOUND)
    if leg.state != PARKED:
        raise RefundError(Code.NOT_PARKED, f"The leg is {leg.state}.")
    body = {"leg": leg_id, "outcome": outcome, "reversal_id": receipt}
    if outcome == "not_reversed":
        body["first_person"] = await _first_to_say_so_of(connection, leg_id, actor, since=leg.state_since)
    instruction_id = await instruct(connection, change, "settle", actor, body)
    if outcome == "reversed" or body["first_person"]:
        change.signal("settle", instruction_id)
    await change.save(connection)
    return Recorded(instruction_id, change.row)


async def _first_to_say_so_of(connection: AsyncConnection, leg_id: str, actor: Actor, *, since: datetime) -> str | None:
    """Another person who already said, since it was parked, that a leg was not made."""
    said = (
        instructions.c.body["leg"].astext == leg_id,
        instructions.c.body["outcome"].astext == "not_reversed",
        instructions.c.recorded_at >= since,
    )
    return await another_person(connection, actor, *said)
