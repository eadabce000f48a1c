"""Policy versions: published once, never edited. The one in force is the newest whose effective date has come."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, bindparam, func, insert, literal_column, select
from sqlalchemy.ext.asyncio import AsyncConnection

from refunds.clock import Clock, rfc3339
from refunds.errors import Code, RefundError
from refunds.policy import Policy, load_policy, policy_hash
from refunds.policy.return_rules import with_return_rules_of
from store.changes import enter
from store.sql import Query, Row
from store.tables import orders, policy_versions, principals

_PUBLISHING = 7_316_103_294
"""The advisory lock that publishers take one after the other, so that each sees the version that the one before it made."""

_parsed: dict[str, Policy] = {}
_combined: dict[tuple[str, str], Policy] = {}

_NEWEST_FIRST = (policy_versions.c.effective_from.desc(), policy_versions.c.version.desc())


def _newest(*columns: Any, at: ColumnElement[Any] | None = None) -> Any:
    """The version in force at an instant (the parameter ``at``): of those whose time has come, the last."""
    moment = bindparam("at") if at is None else at
    return select(*columns).where(policy_versions.c.effective_from <= moment).order_by(*_NEWEST_FIRST).limit(literal_column("1"))


IN_FORCE = Query(_newest(policy_versions.c.version, policy_versions.c.hash))

NEWEST = tuple(
    _newest(column).correlate(None).scalar_subquery().label(name)
    for column, name in ((policy_versions.c.version, "newest_version"), (policy_versions.c.hash, "newest_hash"))
)
"""The same as two columns of another statement (null where none was ever published), for :func:`applied`."""

PLACED = tuple(
    _newest(column, at=orders.c.placed_at).correlate(orders).scalar_subquery().label(name)
    for column, name in ((policy_versions.c.version, "placed_version"), (policy_versions.c.hash, "placed_hash"))
)
"""Two more columns for a statement that reads orders: the version that was in force when the order was placed. Null where nobody recorded when that
was, and for orders older than the first version."""


@dataclass(frozen=True, slots=True)
class InForce:
    """A policy version and its parsed form."""

    version: int
    hash: str
    policy: Policy


@dataclass(frozen=True, slots=True)
class Applied(InForce):
    """What judges one refund: the version in force, in whose ``policy`` the return rules are those of the version ``placed``.

    ``because`` says how that one was found: ``placed`` (in force when the order was placed), ``older_than_the_first`` or ``not_known`` (then today's hold).
    """

    placed: InForce
    because: str

    def recorded(self) -> dict[str, Any]:
        """Both versions, as they are recorded with the decision."""
        kept = {"version": self.placed.version, "hash": self.placed.hash, "because": self.because}
        return {"version": self.version, "hash": self.hash, "return_rules": kept}


async def in_force(connection: AsyncConnection, at: datetime) -> InForce:
    """The version in force at an instant. Raises ``LookupError`` when none was ever published (a start-up error)."""
    return await parsed(connection, await IN_FORCE.first(connection, at=at))


async def parsed(connection: AsyncConnection, row: Row | None) -> InForce:
    """The version that :data:`IN_FORCE` found. Raises as :func:`in_force` does."""
    if row is None:
        raise LookupError("no policy version is in force; publish one with: refunds policy publish")
    # A version never changes, so its parsed form is kept under what names its content.
    policy = _parsed.get(row["hash"])
    if policy is None:
        source = select(policy_versions.c.source).where(policy_versions.c.version == row["version"])
        policy = _parsed[row["hash"]] = load_policy((await connection.execute(source)).scalar_one(), published=True)
    return InForce(row["version"], row["hash"], policy)


async def applied(connection: AsyncConnection, order: Mapping[Any, Any], at: datetime) -> Applied:
    """What judges a refund of an order, from its :data:`NEWEST` and :data:`PLACED` columns. Asks the database for nothing that is known.

    Raises as :func:`in_force` does. An order that would be placed in the future has today's return rules.
    """
    newest = {"version": order["newest_version"], "hash": order["newest_hash"]}
    now = await parsed(connection, newest if newest["hash"] else None)
    if order["placed_at"] is None:
        return Applied(now.version, now.hash, now.policy, now, "not_known")
    if order["placed_at"] > at or order["placed_version"] == now.version:
        return Applied(now.version, now.hash, now.policy, now, "placed")
    if order["placed_version"] is None:
        return Applied(now.version, now.hash, now.policy, now, "older_than_the_first")
    placed = await parsed(connection, {"version": order["placed_version"], "hash": order["placed_hash"]})
    both = now.hash, placed.hash
    if both not in _combined:
        _combined[both] = with_return_rules_of(now.policy, placed.policy)
    return Applied(now.version, now.hash, _combined[both], placed, "placed")


_SHOWN = (*policy_versions.c, principals.c.handle.label("author_handle"), principals.c.name.label("author_name"))
_WITH_AUTHOR = policy_versions.outerjoin(principals, principals.c.id == policy_versions.c.author_id)


async def version_in_force(connection: AsyncConnection, at: datetime) -> Row:
    """The whole row of the version in force at an instant, for showing it. Raises ``NOT_FOUND`` for an instant before the first one."""
    row = (await connection.execute(_newest(*_SHOWN).select_from(_WITH_AUTHOR).params(at=at))).mappings().first()
    if row is None:
        raise RefundError(Code.NOT_FOUND, f"No policy version was in force at {rfc3339(at)}; list them all: GET /v1/policy/versions.")
    return row


async def version_of(connection: AsyncConnection, version: int) -> Row:
    """The whole row of one version. Raises ``NOT_FOUND``."""
    query = select(*_SHOWN).select_from(_WITH_AUTHOR).where(policy_versions.c.version == version)
    row = (await connection.execute(query)).mappings().first()
    if row is None:
        raise RefundError(Code.NOT_FOUND, f"There is no policy version {version}; list them all: GET /v1/policy/versions.")
    return row


async def versions(connection: AsyncConnection, *, before: int | None, limit: int) -> Sequence[Row]:
    """Versions without their sources, the last published first; ``before`` goes on behind a page."""
    columns = [column for column in _SHOWN if column.name != "source"]
    query = select(*columns).select_from(_WITH_AUTHOR).order_by(policy_versions.c.version.desc()).limit(limit)
    if before is not None:
        query = query.where(policy_versions.c.version < before)
    return (await connection.execute(query)).mappings().all()


@dataclass(frozen=True, slots=True)
class Published:
    """What publishing came to: the version, and whether it is new. It is not when the version that would be in force then has just this content."""

    row: Row
    new: bool


async def publish(
    connection: AsyncConnection, clock: Clock, *, source: str, effective_from: datetime | None, author_id: str | None, note: str
) -> Published:
    """Publish a version that takes effect at a date to come, or at once. Safe to repeat: the same content again publishes nothing.

    Publishers wait for one another, so what was in force at any past instant never changes afterwards. Raises
    :class:`refunds.policy.PolicyError` naming line and field when the source is not valid, ``INVALID_FIELD`` for a date that has passed, and
    ``POLICY_DATE_TAKEN`` when another version takes effect at that very date.
    """
    policy = load_policy(source)
    digest = policy_hash(policy)
    await connection.execute(select(func.pg_advisory_xact_lock(_PUBLISHING)))
    now = clock.now()
    if effective_from is not None and effective_from <= now:
        what = f"{rfc3339(effective_from)} has passed (it is {rfc3339(now)}). Name a later time, or leave it out: the version then holds at once."
        raise RefundError(Code.INVALID_FIELD, what, field="effective_from")
    at = effective_from or now
    until_then = (await connection.execute(_newest(*_SHOWN).select_from(_WITH_AUTHOR).params(at=at))).mappings().first()
    if until_then is not None and until_then["hash"] == digest:
        return Published(until_then, new=False)
    if until_then is not None and until_then["effective_from"] == at:
        what = f"Version {until_then['version']} takes effect at {rfc3339(at)} already, and a version is never edited. Name another time."
        raise RefundError(Code.POLICY_DATE_TAKEN, what, field="effective_from", version=until_then["version"])
    values = {"hash": digest, "source": source, "effective_from": at, "author_id": author_id, "note": note, "created_at": now}
    version = (await connection.execute(insert(policy_versions).values(values).returning(policy_versions.c.version))).scalar_one()
    await enter(
        connection,
        "policy_published",
        now,
        actor=author_id or "bootstrap",
        version=version,
        hash=digest,
        text=hashlib.sha256(source.encode()).hexdigest(),
        effective_from=at,
    )
    return Published(await version_of(connection, version), new=True)
