"""An installation of its own for every test: a clone of the migrated database, bootstrapped, with a clock that stands still."""

from collections.abc import AsyncIterator

import pytest

from deploy.local.postgres import PostgresServer
from tests.conftest import FreshDatabase, cloned
from tests.store.world import FixedClock, World


@pytest.fixture
def clock() -> FixedClock:
    return FixedClock()


@pytest.fixture(scope="session")
async def founded(postgres_server: PostgresServer, watched_database: str) -> World:
    """An installation that was opened once and is closed again: those of the tests are copies of it."""
    made = World(FreshDatabase(postgres_server, "template_founded"), FixedClock())
    postgres_server.create_database(made.database.name, watched_database)
    await made.open()
    await made.close()
    return made


@pytest.fixture
async def world(founded: World, clock: FixedClock, request: pytest.FixtureRequest) -> AsyncIterator[World]:
    with cloned(founded.database.server, founded.database.name, request.module) as database:
        made = World(database, clock)
        made.take_up(founded)
        yield made
        await made.close()
