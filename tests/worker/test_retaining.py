"""The worker applies the periods of retention by itself: at its start, and soon again after a run that left something or could not be made."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from refunds.retention import Kept
from store import grants
from tests.conftest import FreshDatabase
from tests.store.world import FixedClock, World
from worker.retaining import Retaining


@pytest.fixture
async def world(database: FreshDatabase) -> AsyncIterator[World]:
    made = World(database, FixedClock())
    await made.open()
    yield made
    await made.close()


async def test_what_has_had_its_time_is_gone_soon_after_the_start(world: World) -> None:
    await world.ready()
    refund_id = await world.accept(world.request(message="words"))
    await world.withdraw(refund_id)
    world.clock.advance(days=600)
    schedule = Retaining(world._pool(grants.WORKER), world.settings)  # pyright: ignore[reportPrivateUsage]

    running = asyncio.create_task(schedule.run_for_ever())
    async with asyncio.timeout(20):
        while world.count("texts") or world.row(refund_id)["body_hash"]:  # noqa: ASYNC110 - the database is what is waited for
            await asyncio.sleep(0.02)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)

    kinds = {row["data"]["kind"] for row in world.rows("SELECT data FROM ledger WHERE type = 'retention_applied'")}
    assert kinds == {Kept.MESSAGES, Kept.FINGERPRINTS}
    assert {row["actor"] for row in world.rows("SELECT actor FROM ledger WHERE type = 'retention_applied'")} == {"system"}
    assert await schedule.once() is False, "nothing is left"
