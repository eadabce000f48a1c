"""``python -m store.migrate``: bring the database named by DATABASE_URL to the revision of this code, as its owner, and set the grants.

Safe to run again, and at the same time from several places: an advisory lock makes the others wait. Exits 1 with one sentence when it cannot.
"""

import sys
from pathlib import Path

from alembic import command
from alembic.config import Config
from sqlalchemy import create_engine, text
from sqlalchemy.exc import OperationalError

from refunds.settings import Settings
from store import grants
from store.db import SCHEMA_REVISION, psycopg_url
from store.master_keys import KeysMissing
from store.sealing import Unreadable

_LOCK = 0x4D49_4752


def migrate(url: str) -> list[str]:
    """Run the migrations and the grants in one transaction; returns the logins that do not exist on this server."""
    engine = create_engine(psycopg_url(url))
    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent / "migrations"))
    try:
        with engine.begin() as connection:
            connection.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": _LOCK})
            config.attributes["connection"] = connection
            command.upgrade(config, SCHEMA_REVISION)
            return grants.apply(connection)
    finally:
        engine.dispose()


def main() -> int:
    """Migrate and say what was done."""
    settings = Settings.load()
    try:
        absent = migrate(settings.database_url.get_secret_value())
    except OperationalError as error:
        print(f"The database cannot be migrated: {str(error.orig).splitlines()[0]}", file=sys.stderr)
        return 1
    except (KeysMissing, Unreadable) as error:
        print(f"The database cannot be migrated: {error}", file=sys.stderr)
        return 1
    print(f"The database is at revision {SCHEMA_REVISION}.")
    if absent:
        print(f"These logins do not exist on this server and got no grants: {', '.join(absent)}.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
