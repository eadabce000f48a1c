"""``python -m store.bootstrap``: what a new installation needs before its first request, made once: the control row, the first policy version, and a
first administrator with a key, which is printed as the only line. Run again it prints nothing."""

import asyncio
import sys

from sqlalchemy import func, select

from refunds.clock import SystemClock
from refunds.people import PrincipalKind, Role
from refunds.policy import sample_policy_text
from refunds.settings import Settings
from store import controls, policies, principals
from store.db import Database, connect
from store.tables import policy_versions
from store.tables import principals as principals_table

ADMINISTRATOR_ROLES = (Role.OPERATOR, Role.INTEGRATOR, Role.AUDITOR)
"""An administrator governs and connects systems; deciding and settling need keys of their own, made for other people."""


async def bootstrap(database: Database) -> str | None:
    """Make what is missing and return the first administrator's key, or ``None`` when somebody exists already."""
    clock = database.clock
    async with database.begin() as connection:
        await controls.ensure(connection, clock)
        if not (await connection.execute(select(func.count()).select_from(policy_versions))).scalar_one():
            await policies.publish(
                connection, clock, source=sample_policy_text(), effective_from=None, author_id=None, note="the embedded sample policy"
            )
        if (await connection.execute(select(func.count()).select_from(principals_table))).scalar_one():
            return None
        person = await principals.create_principal(
            connection, clock, kind=PrincipalKind.PERSON, handle="administrator", name="First administrator", actor="bootstrap"
        )
        _, key = await principals.create_key(
            connection,
            clock,
            principal_id=person["id"],
            roles=ADMINISTRATOR_ROLES,
            integration=None,
            expires_at=None,
            actor="bootstrap",
        )
        return key


async def _main() -> int:
    settings = Settings.load()
    database = connect(settings.database_url.get_secret_value(), SystemClock(), settings, name="bootstrap")
    try:
        await database.check_revision()
        key = await bootstrap(database)
    finally:
        await database.close()
    if key is not None:
        print(key)
    return 0


if __name__ == "__main__":
    sys.exit(asyncio.run(_main()))
