"""Databases as an earlier revision left them, for the tests of what a migration makes of them."""

import os
import subprocess
import sys
from collections.abc import Callable

import psycopg
from alembic import command
from alembic.config import Config
from sqlalchemy import create_engine

from store.db import psycopg_url
from tests.conftest import ROOT, FreshDatabase


def at_revision(database: FreshDatabase, revision: str, fill: Callable[[psycopg.Connection], None]) -> FreshDatabase:
    """An empty database, migrated to a revision and filled with the rows of its time."""
    moving(database, command.upgrade, revision)
    with database.connect() as connection:
        fill(connection)
    return database


def moving(database: FreshDatabase, way: Callable[[Config, str], None], revision: str) -> None:
    """Have Alembic upgrade or downgrade a database in this process, in one transaction."""
    engine = create_engine(psycopg_url(database.url()))
    config = Config()
    config.set_main_option("script_location", str(ROOT / "store/migrations"))
    try:
        with engine.begin() as connection:
            config.attributes["connection"] = connection
            way(config, revision)
    finally:
        engine.dispose()


def migrating(database: FreshDatabase, **env: str) -> subprocess.CompletedProcess[str]:
    """Run the program that migrates, as its owner, with nothing else in its environment."""
    given = {"PATH": os.environ["PATH"], "DATABASE_URL": database.url(), **env}
    return subprocess.run([sys.executable, "-m", "store.migrate"], cwd=ROOT, env=given, capture_output=True, text=True, check=False)
