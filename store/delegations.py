"""The right to decide, handed to another person for a while: made by whoever holds it, ended early by either of the two or an operator.

Whether one gives a right is judged when it is used (:mod:`store.approvers`), by what its delegator may do then; here is only what was said.
"""

from datetime import datetime, timedelta

from sqlalchemy import insert, or_, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from refunds.approving import Who
from refunds.clock import Clock
from refunds.errors import Code, RefundError
from refunds.ids import Prefix, new_id
from refunds.people import Actor, PrincipalKind, Role
from store.approvers import find_person, live
from store.changes import enter
from store.sql import Row
from store.tables import delegations, principals

LONGEST = timedelta(days=366)
"""What is handed over for longer is no stand-in: give the other person a key with the role."""

DELEGABLE = (Role.REVIEWER, Role.MANAGER)

_of, _to, _by = principals.alias("delegator"), principals.alias("delegate"), principals.alias("ender")
_ROWS = (
    select(
        delegations,
        _of.c.handle.label("delegator_handle"),
        _of.c.name.label("delegator_name"),
        _to.c.handle.label("delegate_handle"),
        _to.c.name.label("delegate_name"),
        _by.c.handle.label("ender_handle"),
        _by.c.name.label("ender_name"),
    )
    .join(_of, _of.c.id == delegations.c.delegator_id)
    .join(_to, _to.c.id == delegations.c.delegate_id)
    .outerjoin(_by, _by.c.id == delegations.c.ended_by)
)


async def delegate(
    connection: AsyncConnection,
    clock: Clock,
    *,
    actor: Actor,
    to: str,
    role: Role,
    queue: str | None,
    starts_at: datetime | None,
    ends_at: datetime,
) -> Row:
    """Hand a role of the actor's own to another person (by handle or id), from ``starts_at`` (now when left out) until before ``ends_at``.

    Delegations may overlap; each is a right of its own. Raises ``PERSON_REQUIRED``, ``ROLE_TOO_LOW`` for a role that the actor does not hold, and
    ``INVALID_FIELD`` for somebody who is no person here, who is the actor or may not decide at all, and for times that are past, the wrong way round or more
    than a year apart.
    """
    now = clock.now()
    if actor.kind is not PrincipalKind.PERSON:
        raise RefundError(Code.PERSON_REQUIRED)
    if role not in DELEGABLE:
        raise RefundError(Code.INVALID_FIELD, f"Handed over is one of: {', '.join(DELEGABLE)}.", field="role")
    begins = starts_at or now
    if begins < now:
        raise RefundError(Code.INVALID_FIELD, "A delegation begins now (leave it out) or later.", field="starts_at")
    if not begins < ends_at <= begins + LONGEST:
        raise RefundError(Code.INVALID_FIELD, f"A delegation ends after it begins, and within {LONGEST.days} days.", field="ends_at")
    own = await live(connection, actor.principal_id, now)
    if not actor.has(role) or not own.has(role):
        raise RefundError(
            Code.ROLE_TOO_LOW, f"You do not hold the role {role} yourself; what was handed to you stays with you.", field="role"
        )
    delegate_id = await find_person(connection, to, field="to")
    other = await live(connection, delegate_id, now)
    if Who(actor.principal_id, actor.handle, actor.name).is_also(other):
        raise RefundError(Code.INVALID_FIELD, "Name another person; an account of your own is none.", field="to")
    if not other.has(Role.REVIEWER):
        words = f"{to[:80]!r} has no key with the role reviewer or manager, so nothing can be decided with it; an operator makes one."
        raise RefundError(Code.INVALID_FIELD, words, field="to")
    delegation_id = new_id(Prefix.DELEGATION)
    await connection.execute(
        insert(delegations).values(
            id=delegation_id,
            delegator_id=actor.principal_id,
            delegate_id=delegate_id,
            role=role.value,
            queue=queue,
            starts_at=begins,
            ends_at=ends_at,
            created_at=now,
        )
    )
    await enter(
        connection,
        "delegation_made",
        now,
        actor=actor.principal_id,
        delegation=delegation_id,
        to=delegate_id,
        role=role.value,
        queue=queue,
        starts_at=begins,
        ends_at=ends_at,
    )
    return await _one(connection, delegation_id)


async def end(connection: AsyncConnection, clock: Clock, *, actor: Actor, delegation_id: str) -> Row:
    """End a delegation now: no decision that is recorded after this rests on it, and those before stand. Repeating it changes nothing.

    Raises ``NOT_FOUND`` for one that the actor neither gave nor has, unless they are an operator.
    """
    query = select(delegations).where(delegations.c.id == delegation_id).with_for_update(key_share=True)
    row = (await connection.execute(query)).mappings().one_or_none()
    own = row is not None and actor.principal_id in (row["delegator_id"], row["delegate_id"])
    if row is None or not (own or actor.has(Role.OPERATOR)):
        raise RefundError(Code.NOT_FOUND, "There is no such delegation.")
    now = clock.now()
    if row["ended_at"] is None and now < row["ends_at"]:
        values = {"ended_at": now, "ended_by": actor.principal_id}
        await connection.execute(update(delegations).where(delegations.c.id == delegation_id).values(values))
        await enter(connection, "delegation_ended", now, actor=actor.principal_id, delegation=delegation_id)
    return await _one(connection, delegation_id)


async def listed(connection: AsyncConnection, *, of: str | None, in_force_at: datetime | None, limit: int) -> list[Row]:
    """Delegations, the latest first: those that a person gave or has (``of``), or everybody's; only those in force at an instant, or all."""
    query = _ROWS.order_by(delegations.c.created_at.desc(), delegations.c.id.desc()).limit(limit)
    if of is not None:
        query = query.where(or_(delegations.c.delegator_id == of, delegations.c.delegate_id == of))
    if in_force_at is not None:
        query = query.where(delegations.c.starts_at <= in_force_at, delegations.c.ends_at > in_force_at, delegations.c.ended_at.is_(None))
    return list((await connection.execute(query)).mappings())


async def _one(connection: AsyncConnection, delegation_id: str) -> Row:
    return (await connection.execute(_ROWS.where(delegations.c.id == delegation_id))).mappings().one()
