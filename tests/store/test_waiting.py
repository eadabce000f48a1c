"""What was approved is never sent once the installation only prepares (design, sections 4 and 5)."""

import pytest

from store import controls
from tests.store.world import World


async def control(world: World, *, stopped: bool = False, mode: str = "live") -> None:
    async with world.api.begin() as connection:
        await controls.change(connection, world.clock, stopped=stopped, mode=mode, reason="a test", actor="pr_op")


@pytest.mark.parametrize("at", ["approved", "submitting", "held"])
async def test_nothing_is_sent_any_more_once_the_mode_is_draft(world: World, at: str) -> None:
    await world.ready(captured=100_000)
    [payment] = world.rows("SELECT processor_payment FROM payments")
    refund, _ = await world.quoted(amount=2_000)
    operation = None
    if at != "approved":
        operation, _ = await world.submitting.intent(refund)
        assert operation is not None
    if at == "held":
        await control(world, stopped=True)
        assert operation is not None
        await world.submitting.open_attempt(operation, await world.read(payment["processor_payment"], captured=100_000))
    await control(world, mode="draft")

    if at == "held":
        await world.steps.resume_held(refund)
    operation, _ = await world.submitting.intent(refund)
    if operation is not None:
        await world.submitting.open_attempt(operation, await world.read(payment["processor_payment"], captured=100_000))

    assert world.count("attempts") == 0
    assert world.row(refund)["status"] in ("drafted", "held")
