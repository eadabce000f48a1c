"""An installation of its own for every test: a clone of the migrated database, bootstrapped, with a clock that stands still."""

from collections.abc import AsyncIterator

import pytest

from tests.conftest import FreshDatabase
from tests.store.world import FixedClock, World


@pytest.fixture
def clock() -> FixedClock:
    return FixedClock()


@pytest.fixture
async def world(database: FreshDatabase, clock: FixedClock) -> AsyncIterator[World]:
    made = World(database, clock)
    await made.open()
    yield made
    await made.close()
