"""What people say of a group: to all its parts in one transaction, or to none.

Each part keeps its own decision on its own exact terms, so that submitting verifies a part of a group as it verifies any refund. The parts are locked in the
order of their ids, like everything that locks several refunds.
"""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

from sqlalchemy import bindparam, select
from sqlalchemy.ext.asyncio import AsyncConnection

from refunds.clock import Clock
from refunds.errors import Code, RefundError
from refunds.groups import BEFORE_REVIEW, held_up
from refunds.people import Actor
from refunds.status import BEFORE_OPERATION, FINAL, Status
from store import decisions
from store.decisions import Recorded
from store.sql import Query, Row
from store.tables import refunds

_LOCK = Query(select(refunds).where(refunds.c.group_id == bindparam("group")).order_by(refunds.c.id).with_for_update(key_share=True))
_BEFORE_CONSENT = (Status.RECEIVED, Status.CLASSIFIED)


@dataclass(frozen=True, slots=True)
class Withdrawn:
    """What a withdrawal came to for one part: ``withdrawn``; ``over`` when nothing had moved and nothing will; ``too_late`` when something may have."""

    refund_id: str
    outcome: str
    status: Status
    recorded: Recorded | None = None


async def record_reviews(
    connection: AsyncConnection,
    clock: Clock,
    *,
    group_id: str,
    actor: Actor,
    verdict: str,
    terms: Mapping[str, str | None],
    reason: str = "",
    on_behalf_of: str | None = None,
) -> list[Recorded]:
    """Record one verdict on every part of a group that waits for a decision, each on its exact terms as seen.

    Raises what :func:`store.decisions.record_review` raises for any of them, with ``refund`` naming it; ``TERMS_CHANGED`` for a part that waits and was not
    named, and, unless it is denied, ``NOT_AWAITING_REVIEW`` for one that has not come so far. Then nothing is recorded of any. Repeated, it answers as
    before. A denial denies what waits for review; a part that has not come so far goes on by itself.
    """

    async def one(refund_id: str) -> Recorded:
        return await decisions.record_review(
            connection,
            clock,
            refund_id=refund_id,
            actor=actor,
            verdict=verdict,
            terms_hash=terms[refund_id],
            reason=reason,
            on_behalf_of=on_behalf_of,
            together=True,
        )

    members = await _LOCK.all(connection, group=group_id)
    recorded = await _each(members, terms, group_id, one)
    for row in _unnamed(members, terms):
        if row["status"] == Status.AWAITING_REVIEW:
            raise _moved(
                row,
                group_id,
                Code.TERMS_CHANGED,
                f"{row['id']} waits for a decision too; name it with the terms_hash you saw",
                row["terms_hash"],
            )
        if verdict != decisions.DENY and row["status"] in BEFORE_REVIEW:
            raise _moved(row, group_id, Code.NOT_AWAITING_REVIEW, f"{held_up(row['id'], row['status'])}, and a group is approved together")
    return recorded


async def record_consents(
    connection: AsyncConnection, clock: Clock, *, group_id: str, actor: Actor, agreed: bool, terms: Mapping[str, str | None]
) -> list[Recorded]:
    """Record what the customer said to every part of a group that waits for consent. As :func:`record_reviews`, with the codes of a consent."""

    async def one(refund_id: str) -> Recorded:
        seen = terms[refund_id]
        if seen is None:
            raise RefundError(Code.TERMS_CHANGED, "A customer agrees to exact terms only.")
        return await decisions.record_consent(
            connection, clock, refund_id=refund_id, actor=actor, agreed=agreed, terms_hash=seen, together=True
        )

    members = await _LOCK.all(connection, group=group_id)
    recorded = await _each(members, terms, group_id, one)
    for row in _unnamed(members, terms):
        if row["status"] == Status.AWAITING_CONSENT:
            raise _moved(
                row,
                group_id,
                Code.TERMS_CHANGED,
                f"{row['id']} waits for consent too; name it with the terms_hash you saw",
                row["terms_hash"],
            )
        if agreed and row["status"] in _BEFORE_CONSENT:
            raise _moved(row, group_id, Code.NOT_AWAITING_CONSENT, f"{held_up(row['id'], row['status'])}, and is agreed to together")
    return recorded


async def record_withdrawals(connection: AsyncConnection, clock: Clock, *, group_id: str, actor: Actor) -> list[Withdrawn]:
    """Withdraw every part of a group of which certainly nothing was sent, in one transaction, and say of each what became of it.

    Raises ``TOO_LATE``, naming the parts, when there is none of which that can be said. Repeated, it answers as before.
    """
    found: list[Withdrawn] = []
    for row in await _LOCK.all(connection, group=group_id):
        status = Status(row["status"])
        if status in BEFORE_OPERATION or status is Status.WITHDRAWN:
            recorded = await decisions.record_withdrawal(connection, clock, refund_id=row["id"], actor=actor)
            found.append(Withdrawn(row["id"], "withdrawn", Status.WITHDRAWN, recorded))
        else:
            nothing_moved = status in FINAL - {Status.SUCCEEDED, Status.RELEASED, Status.FAILED}
            found.append(Withdrawn(row["id"], "over" if nothing_moved else "too_late", status))
    if not any(one.outcome == "withdrawn" for one in found):
        late = {one.refund_id: one.status.value for one in found}
        raise RefundError(Code.TOO_LATE, f"Of {len(late)} parts none can be withdrawn any more.", group=group_id, refunds=late)
    return found


async def _each(
    members: list[dict[str, object]], terms: Mapping[str, str | None], group_id: str, one: Callable[[str], Awaitable[Recorded]]
) -> list[Recorded]:
    known = {row["id"] for row in members}
    if not terms or not set(terms) <= known:
        raise RefundError(Code.INVALID_FIELD, "Name parts of this group, each with the terms_hash you saw.", field="terms", group=group_id)
    recorded: list[Recorded] = []
    for refund_id in sorted(terms):
        try:
            recorded.append(await one(refund_id))
        except RefundError as error:
            named = error.ids | {"refund": refund_id, "group": group_id}
            raise RefundError(error.code, f"{refund_id}: {error.detail}", field=error.field, **named) from error
    return recorded


def _unnamed(members: list[dict[str, object]], terms: Mapping[str, str | None]) -> list[Row]:
    return [row for row in members if row["id"] not in terms]


def _moved(row: Row, group_id: str, code: Code, words: str, terms_hash: str | None = None) -> RefundError:
    ids = {"terms_hash": terms_hash} if terms_hash else {}
    return RefundError(code, f"{words}.", refund=row["id"], group=group_id, **ids)
