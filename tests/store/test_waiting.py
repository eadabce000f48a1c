"""What is held back has an age and an owner, and what was approved is never sent when the installation only prepares (design, sections 4 and 5)."""

from datetime import timedelta

import pytest

from refunds.policy import sample_policy_text
from refunds.processor import NotSent
from store import controls
from tests.store.world import World


async def control(world: World, *, stopped: bool = False, mode: str = "live") -> None:
    async with world.api.begin() as connection:
        await controls.change(connection, world.clock, stopped=stopped, mode=mode, reason="a test", actor="pr_op")


async def fresh(world: World) -> None:
    [payment] = world.rows("SELECT processor_payment FROM payments")
    await world.read(payment["processor_payment"], captured=100_000)


async def held(world: World) -> str:
    """A refund that a stop holds back."""
    await world.ready(captured=100_000)
    refund, _ = await world.quoted(amount=2_000)
    await control(world, stopped=True)
    assert (await world.kept(refund, 100_000)).status == "held"
    return refund


def notices(world: World) -> list[str]:
    return [r["body"]["kind"] for r in world.rows("SELECT body FROM outbox WHERE kind = 'notice' ORDER BY id")]


async def test_a_held_refund_reminds_its_owners_once_a_day(world: World) -> None:
    refund = await held(world)
    for _ in range(3):
        world.clock.advance(hours=12, minutes=1)
        await world.steps.resume_held(refund)

    assert notices(world) == ["still_held"]


@pytest.mark.parametrize("at", ["approved", "submitting", "held"])
async def test_nothing_is_sent_any_more_once_the_mode_is_draft(world: World, at: str) -> None:
    await world.ready(captured=100_000)
    refund, _ = await world.quoted(amount=2_000)
    attempts = 0
    if at == "submitting":
        operation, attempt = await world.attempted(refund, 100_000)
        await world.submitting.failed_attempt(operation, attempt, NotSent("no_connection"))
        attempts = 1
    if at == "held":
        await control(world, stopped=True)
        await world.kept(refund, 100_000)
    await control(world, mode="draft")

    if at == "held":
        await world.steps.resume_held(refund)
    await world.kept(refund, 100_000)

    assert world.count("attempts") == attempts
    assert world.row(refund)["status"] in ("drafted", "held")


async def test_what_a_person_had_approved_a_person_approves_again(world: World) -> None:
    """Also when the policy of today would ask nobody."""
    await world.ready(captured=100_000)
    refund, _ = await world.quoted(amount=20_000)
    await world.decide(refund, world.ann)
    looser = sample_policy_text().replace("consent_only_up_to: 100.00", "consent_only_up_to: 400.00", 1)
    await world.policy(looser.replace("per_customer_per_day: 150.00", "per_customer_per_day: 900.00", 1))
    [revision] = world.rows("SELECT expires_at FROM revisions")
    world.clock.at = revision["expires_at"] + timedelta(seconds=1)
    await world.kept(refund, 100_000)

    again = await world.steps.resume_held(refund)

    assert (again.revision, again.status) == (2, "awaiting_review")
