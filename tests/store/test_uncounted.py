"""What nobody can count in the base currency, because no rate is recorded: it waits itself, and keeps nobody else waiting until its money has moved."""

import pytest

from refunds.errors import Code, RefundError
from refunds.messages import Situation
from refunds.processor import NotSent
from refunds.rates import Rate
from store import rates
from tests.policies import with_limits
from tests.store.test_limits import DENY, asked, outside, sent, shop, standing
from tests.store.world import World


async def euros(world: World, amount: int) -> tuple[str, Situation]:
    """A refund in a currency of which no rate is recorded, of a customer of its own."""
    [payment] = await world.order(ref="order-9", customer="customer-9", amounts=(10_000,), currency="EUR")
    await world.read(payment, 10_000, currency="EUR")
    return await asked(world, 9, amount=amount, currency="EUR")


async def record(world: World, rate: str = "1.10") -> None:
    async with world.api.begin() as connection:
        found, by = Rate("USD", "EUR", rate), world.ann.principal_id
        await rates.record(connection, world.clock, rate=found, effective_at=None, source="test", principal_id=by)


async def test_money_that_has_moved_and_cannot_be_counted_is_no_zero(world: World) -> None:
    await world.policy(with_limits("name: all, who: everyone, amount: 90000.00, window: day, zone: UTC, taken: both, when_exceeded: deny"))
    await shop(world, 2)
    before, _ = await asked(world, 0)
    await outside(world, 0, 500, "EUR")

    _, seen = await asked(world, 1)
    held = await world.kept(before)

    assert seen.status == "awaiting_review", "a person looks, and it is not denied"
    assert (held.status, held.code) == ("held", "LIMIT_EXCEEDED")
    assert "refunds rates set" in world.row(before)["detail"]


async def test_a_missing_rate_that_is_recorded_late_is_the_remedy_it_is_said_to_be(world: World) -> None:
    """For others in the same window, for whoever is to approve, and for the sending: each by the rate there is by then."""
    await world.policy(
        with_limits(
            "name: all, who: everyone, amount: 90000.00, window: day, zone: UTC, taken: both, when_exceeded: review",
            "name: sums, who: reviewer, amount: 50000.00, window: day, zone: UTC",
        )
    )
    await shop(world, 2)
    refund, unknown = await euros(world, 1_000)
    _, beside = await asked(world, 0)
    with pytest.raises(RefundError) as refused:
        await world.decide(refund, world.ann)

    await record(world)
    other, after = await asked(world, 1)
    await world.decide(refund, world.ann)
    await world.attempted(refund, currency="EUR")

    assert (unknown.status, beside.status, refused.value.code) == ("awaiting_review", "approved", "REVIEWER_LIMIT")
    assert (after.status, standing(world, other, "all")["used"]) == ("approved", 1_100 + 1_000)
    [took] = world.rows("SELECT worth FROM limit_uses WHERE refund_id = %s AND stage = 'sent'", refund)
    assert took["worth"] == 1_100


async def test_what_waits_uncounted_keeps_nobody_else_waiting(world: World) -> None:
    await world.policy(with_limits("name: all, who: everyone, amount: 90000.00, window: day, zone: UTC, taken: both, when_exceeded: deny"))
    await shop(world, 2)

    _, unknown = await euros(world, 1_000)
    other, beside = await asked(world, 0, amount=2_000)
    await sent(world, other)

    assert (unknown.status, beside.status) == ("awaiting_review", "approved")
    assert standing(world, other, "all")["used"] == 0


@pytest.mark.parametrize("taken", ["both", "reserved"])
async def test_it_does_not_go_before_its_rate_is_recorded_and_takes_its_place_then(world: World, taken: str) -> None:
    await world.policy(
        with_limits(f"name: all, who: everyone, amount: 10000.00, window: day, zone: UTC, taken: {taken}, when_exceeded: deny")
    )
    await shop(world, 2, amount=20_000)
    await outside(world, 0, 980_000)
    refund, _ = await euros(world, 1_000)
    await world.decide(refund, world.ann)

    unknown = await world.kept(refund, currency="EUR")
    await record(world)
    last, full = await asked(world, 1, amount=18_901)

    assert (unknown.status, unknown.code) == ("held", "LIMIT_EXCEEDED")
    assert "refunds rates set" in unknown.waits_for
    assert (full.code, standing(world, last, "all")["used"]) == ("LIMIT_EXCEEDED", 980_000 + 1_100)
    assert (await world.steps.resume_held(refund)).status == "approved"
    await world.attempted(refund, currency="EUR")
    [took] = world.rows("SELECT base, worth FROM limit_uses WHERE refund_id = %s AND stage = 'reserved'", refund)
    assert took == {"base": "USD", "worth": 1_100}


@pytest.mark.parametrize("looks", ["held", "approved"])
async def test_what_has_no_room_when_it_can_be_counted_is_judged_again_and_denied(world: World, looks: str) -> None:
    await world.policy(with_limits(f"name: all, who: everyone, amount: 100.00, window: day, zone: UTC, {DENY}"))
    await shop(world, 1)
    refund, _ = await euros(world, 1_000)
    await world.decide(refund, world.ann)
    if looks == "held":
        await world.kept(refund, currency="EUR")
    assert (await asked(world, 0, amount=9_000))[1].status == "approved"
    await record(world)

    if looks == "held":
        found = await world.steps.resume_held(refund)
    else:
        found = await world.kept(refund, currency="EUR")

    assert (found.status, found.code) == ("held", "TERMS_EXPIRED")
    assert "limit all" in found.waits_for
    assert world.row(refund)["wake_at"] == world.clock.at, "at once"
    world.clock.advance(seconds=1)
    [payment] = world.rows("SELECT p.processor_payment AS p FROM payments p JOIN refunds r ON r.payment_id = p.id WHERE r.id = %s", refund)
    await world.read(payment["p"], currency="EUR")
    again = await world.steps.resume_held(refund)
    assert (again.status, again.code, world.count("attempts")) == ("denied", "LIMIT_EXCEEDED", 0)


async def test_a_person_may_let_it_pass_a_limit_that_asks_a_person(world: World) -> None:
    await world.policy(
        with_limits("name: all, who: everyone, amount: 100.00, window: day, zone: UTC, taken: reserved, when_exceeded: review")
    )
    await shop(world, 1)
    refund, _ = await euros(world, 1_000)
    assert (await asked(world, 0, amount=9_000))[1].status == "approved"
    await record(world)

    await world.decide(refund, world.ann)

    operation, attempt = await world.attempted(refund, currency="EUR")
    await world.submitting.failed_attempt(operation, attempt, NotSent("no_connection"))
    await world.submitting.hold_unsent(refund, Code.PROCESSOR_UNREACHABLE, "test")
    assert (await world.steps.resume_held(refund)).status == "approved"
    await world.attempted(refund, currency="EUR")
