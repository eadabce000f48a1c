"""Policy versions: published once, never edited. The one in force is the newest whose effective date has come."""

from datetime import datetime

from sqlalchemy import insert, select
from sqlalchemy.engine import RowMapping
from sqlalchemy.ext.asyncio import AsyncConnection

from refunds.clock import Clock
from refunds.policy import Policy, load_policy, policy_hash
from store.changes import enter
from store.tables import policy_versions


async def in_force(connection: AsyncConnection, at: datetime) -> tuple[RowMapping, Policy]:
    """The version in force at an instant, with its parsed form. Raises ``LookupError`` when none was ever published (a start-up error)."""
    row = (
        (
            await connection.execute(
                select(policy_versions)
                .where(policy_versions.c.effective_from <= at)
                .order_by(policy_versions.c.effective_from.desc(), policy_versions.c.version.desc())
                .limit(1)
            )
        )
        .mappings()
        .one_or_none()
    )
    if row is None:
        raise LookupError("no policy version is in force; publish one with: refunds policy publish")
    return row, load_policy(row["source"])


async def publish(
    connection: AsyncConnection, clock: Clock, *, source: str, effective_from: datetime | None, author_id: str | None, note: str
) -> RowMapping:
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
