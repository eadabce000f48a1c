"""Who looks at a refund that waits for a review: a manager gives it to a person, or moves it to another queue of its ladder.

Neither touches a deadline: reminders, escalation and expiry come when they would have come, so nothing is put off by handing it on. Anybody whose right
suffices may still decide.
"""

from datetime import timedelta
from typing import Any

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncConnection

from refunds.approving import Right, check_approval, check_role, roles_needed
from refunds.clock import Clock
from refunds.errors import Code, RefundError
from refunds.facts import Review
from refunds.people import Actor, PrincipalKind
from refunds.status import Status
from store.approvers import case_of, find_person, live, read_case
from store.changes import Change, lock_refund
from store.deadlines import climb
from store.decisions import Recorded, instruct
from store.sql import Row
from store.tables import instructions

NOBODY = ""
"""Given as the person, it takes a refund from whoever it was given to."""


async def record_assignment(
    connection: AsyncConnection, clock: Clock, *, refund_id: str, actor: Actor, to: str | None, queue: str | None
) -> Recorded:
    """Give a refund in review ``to`` a person (handle or id; :data:`NOBODY` for nobody), or move it to a ``queue`` of its ladder, or both.

    The person must be able to approve it: who asked for it, or may not approve so much, is no help. In the other queue the highest role of both is asked for.
    Giving it to the same again changes nothing. Raises ``PERSON_REQUIRED``, ``NOT_AWAITING_REVIEW``, ``REVIEW_EXPIRED`` and ``INVALID_FIELD``.
    """
    if actor.kind is not PrincipalKind.PERSON:
        raise RefundError(Code.PERSON_REQUIRED)
    change = await lock_refund(connection, refund_id, clock.now)
    await climb(connection, change)
    if change.status is not Status.AWAITING_REVIEW:
        expired = change["code"] == Code.REVIEW_EXPIRED
        raise RefundError(Code.REVIEW_EXPIRED if expired else Code.NOT_AWAITING_REVIEW, f"It is {change.status}.")
    review = Review.from_plain(change["review"])
    if queue is not None and queue not in (names := [rung.queue for rung in review.ladder]):
        raise RefundError(Code.INVALID_FIELD, f"The queues of its ladder are: {', '.join(names)}.", field="queue")
    wanted: dict[str, Any] = {"queue": queue or change["queue"], "assigned_to": change["assigned_to"]}
    if to is not None:
        wanted["assigned_to"] = await _somebody(connection, change, review, to, wanted["queue"]) if to else None
    before = {name: change[name] for name in wanted}
    if wanted == before:
        return Recorded(await _latest(connection, refund_id), change.row, replayed=True)
    change.put(**wanted)
    body = {"to": wanted["assigned_to"], "queue": wanted["queue"], "from": before["assigned_to"], "from_queue": before["queue"]}
    instruction_id = await instruct(connection, change, "assign", actor, body, applied=True)
    change.signal("resume", instruction_id, after=timedelta(0))  # a hint: the run's page shows the queue it is in
    await change.save(connection, announce=True)
    return Recorded(instruction_id, change.row)


async def _somebody(connection: AsyncConnection, change: Change, review: Review, to: str, queue: str) -> str:
    """The id of the person it is given to. Raises ``INVALID_FIELD`` for one who could not approve it, and says why."""
    person = await live(connection, await find_person(connection, to, field="to"), change.at)
    try:
        check_role(Right(person), roles_needed(review, change["rung"], queue), queue)
        if change["revision"]:
            row = await read_case(connection, change, person.principal_id)
            check_approval(case_of(change, row), review, Right(person))
    except RefundError as refusal:
        if refusal.code is not Code.EVIDENCE_MISSING:
            raise RefundError(Code.INVALID_FIELD, f"{refusal.detail} Name somebody who could approve it.", field="to") from refusal
    return person.principal_id


async def _latest(connection: AsyncConnection, refund_id: str) -> str:
    query = (
        select(instructions.c.id)
        .where(instructions.c.refund_id == refund_id, instructions.c.kind == "assign")
        .order_by(instructions.c.recorded_at.desc(), instructions.c.id.desc())
        .limit(1)
    )
    return (await connection.execute(query)).scalar() or ""


def assigned(row: Row) -> str | None:
    """Whom a refund is given to, while that says anything: for as long as it waits for a review."""
    return row["assigned_to"] if row["status"] == Status.AWAITING_REVIEW else None
