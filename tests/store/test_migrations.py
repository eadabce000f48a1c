"""The schema: what the migrations make is what the code's tables say; they may be run again, and by several at once."""

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import create_engine

from store.db import SCHEMA_REVISION, SchemaMismatch, connect, psycopg_url
from store.migrate import migrate
from store.tables import metadata
from tests.conftest import ROOT, FreshDatabase
from tests.store.world import FixedClock, settings


def revision(database: FreshDatabase) -> list[tuple[str]]:
    with database.connect("postgres") as connection:
        return connection.execute("SELECT version_num FROM alembic_version").fetchall()


def test_the_migrations_make_exactly_the_tables_of_the_code(empty_database: FreshDatabase) -> None:
    assert migrate(empty_database.url()) == []

    engine = create_engine(psycopg_url(empty_database.url()))
    with engine.connect() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True, "compare_server_default": True})
        assert compare_metadata(context, metadata) == []
    engine.dispose()


def test_migrating_again_changes_nothing(database: FreshDatabase) -> None:
    assert migrate(database.url()) == []
    assert revision(database) == [(SCHEMA_REVISION,)]


def test_migrating_from_several_places_at_once(empty_database: FreshDatabase) -> None:
    with ThreadPoolExecutor(4) as pool:
        ended = list(pool.map(migrate, [empty_database.url()] * 4))

    assert ended == [[]] * 4
    assert revision(empty_database) == [(SCHEMA_REVISION,)]


async def check(database: FreshDatabase, login: str) -> None:
    pool = connect(database.url(login), FixedClock(), settings(), name="test")
    try:
        await pool.check_revision()
    finally:
        await pool.close()


@pytest.mark.parametrize(
    "login", ["refunds_api", "refunds_worker", "refunds_classify", "refunds_payments", "refunds_ledger", "refunds_auditor", "refunds_owner"]
)
async def test_every_login_sees_the_revision_and_starts(database: FreshDatabase, login: str) -> None:
    await check(database, login)


async def test_a_program_refuses_another_revision(database: FreshDatabase) -> None:
    with database.connect("postgres") as connection:
        connection.execute("UPDATE alembic_version SET version_num = '0000'")

    with pytest.raises(SchemaMismatch, match=f"at revision 0000, this program needs {SCHEMA_REVISION}"):
        await check(database, "refunds_api")


async def test_a_program_refuses_an_empty_database(empty_database: FreshDatabase) -> None:
    with pytest.raises(SchemaMismatch, match="at revision none"):
        await check(empty_database, "refunds_owner")


def test_a_database_that_is_not_there_is_one_sentence() -> None:
    ended = subprocess.run(
        [sys.executable, "-m", "store.migrate"],
        cwd=ROOT,
        env={"PATH": "/usr/bin:/bin", "DATABASE_URL": "postgresql://nobody@127.0.0.1:1/none"},
        capture_output=True,
        text=True,
        check=False,
    )

    assert (ended.returncode, ended.stdout) == (1, "")
    assert ended.stderr.startswith("The database cannot be migrated: ")
    assert len(ended.stderr.splitlines()) == 1
