"""Policy versions: published once, never edited. The one in force is the newest whose effective date has come."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import bindparam, insert, literal_column, select
from sqlalchemy.ext.asyncio import AsyncConnection

from refunds.clock import Clock
from refunds.policy import Policy, load_policy, policy_hash
from store.changes import enter
from store.sql import Query, Row
from store.tables import policy_versions

_parsed: dict[str, Policy] = {}


def _newest(*columns: Any) -> Any:
    """The version in force at the parameter ``at``: of those whose time has come, the one published last."""
    order = (policy_versions.c.effective_from.desc(), policy_versions.c.version.desc())
    return select(*columns).where(policy_versions.c.effective_from <= bindparam("at")).order_by(*order).limit(literal_column("1"))


IN_FORCE = Query(_newest(policy_versions.c.version, policy_versions.c.hash))


@dataclass(frozen=True, slots=True)
class InForce:
    """A policy version and its parsed form."""

    version: int
    hash: str
    policy: Policy


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
        policy = _parsed[row["hash"]] = load_policy((await connection.execute(source)).scalar_one())
    return InForce(row["version"], row["hash"], policy)


async def version_in_force(connection: AsyncConnection, at: datetime) -> Row:
    """The whole row of the version in force, for showing it."""
    return (await connection.execute(_newest(policy_versions).params(at=at))).mappings().one()


async def publish(
    connection: AsyncConnection, clock: Clock, *, source: str, effective_from: datetime | None, author_id: str | None, note: str
) -> Row:
    """Publish a version. Raises :class:`refunds.policy.PolicyError` naming line and field when the source is not valid."""
    policy = load_policy(source)
    now = clock.now()
    row = (
        (
            await connection.execute(
                insert(policy_versions)
                .values(
                    hash=policy_hash(policy),
                    source=source,
                    effective_from=effective_from or now,
                    author_id=author_id,
                    note=note,
                    created_at=now,
                )
                .returning(policy_versions)
            )
        )
        .mappings()
        .one()
    )
    await enter(
        connection,
        "policy_published",
        now,
        actor=author_id or "bootstrap",
        version=row["version"],
        hash=row["hash"],
        effective_from=row["effective_from"],
    )
    return row
