"""Who looks at a refund in review, and that no deadline moves by it (field report 57)."""

from datetime import timedelta

import pytest

from refunds.errors import Code, RefundError
from refunds.people import PrincipalKind, Role
from store import assigning
from store.decisions import Recorded
from tests.store.approvals import TEAM, approving, decide, managed, refused, reviewed
from tests.store.test_groups import one_before_review
from tests.store.world import World

__all__ = ["managed", "reviewed"]


async def assign(world: World, refund: str, to: str | None = None, queue: str | None = None) -> Recorded:
    async with world.api.begin() as connection:
        return await assigning.record_assignment(connection, world.clock, refund_id=refund, actor=world.mia, to=to, queue=queue)


DUE = ("review_by", "wake_at", "rung_since", "reminded", "rung")


async def test_giving_it_to_somebody_moves_no_deadline_and_keeps_nobody_else_from_deciding(world: World, reviewed: str) -> None:
    before = world.row(reviewed)
    world.clock.advance(hours=3)

    first = await assign(world, reviewed, "Bob")
    again = await assign(world, reviewed, world.bob.principal_id)

    after = world.row(reviewed)
    assert (first.replayed, again.replayed, again.id) == (False, True, first.id)
    assert (after["assigned_to"], after["queue"]) == (world.bob.principal_id, "team")
    assert [after[name] for name in DUE] == [before[name] for name in DUE]
    assert [e["type"] for e in world.ledger(reviewed)].count("assign_recorded") == 1
    [hint] = [row["body"] for row in world.rows("SELECT body FROM outbox WHERE kind = 'signal'")]
    assert hint == {"name": "resume", "message": first.id}
    assert (await decide(world, reviewed, world.ann)).row["status"] == "approved"


async def test_in_another_queue_its_role_is_asked_for_and_the_ladder_goes_on_as_it_was(world: World, reviewed: str) -> None:
    before = world.row(reviewed)
    await assign(world, reviewed, "mia", "managers")
    moved = world.row(reviewed)

    assert (moved["queue"], moved["assigned_to"]) == ("managers", world.mia.principal_id)
    assert [moved[name] for name in DUE] == [before[name] for name in DUE]
    assert await refused(world, reviewed, world.ann) is Code.ROLE_TOO_LOW
    world.clock.at = before["review_by"]
    escalated = await world.steps.pass_deadline(reviewed)
    assert (escalated.status, escalated.queue, world.row(reviewed)["assigned_to"]) == ("awaiting_review", "managers", None)
    assert escalated.review_by == before["review_by"] + timedelta(hours=24)
    assert (await decide(world, reviewed, world.mia)).row["status"] == "approved"


async def test_back_in_the_first_queue_the_role_does_not_fall(world: World, reviewed: str) -> None:
    world.clock.advance(hours=24)
    await world.steps.pass_deadline(reviewed)
    assert world.row(reviewed)["queue"] == "managers"

    await assign(world, reviewed, queue="team")

    assert world.row(reviewed)["queue"] == "team"
    assert await refused(world, reviewed, world.ann) is Code.ROLE_TOO_LOW


async def test_it_can_be_taken_back(world: World, reviewed: str) -> None:
    await assign(world, reviewed, "bob")
    await assign(world, reviewed, assigning.NOBODY)

    assert world.row(reviewed)["assigned_to"] is None


@pytest.mark.parametrize(
    ("to", "queue", "field"),
    [
        ("desk", None, "to"),
        ("uma", None, "to"),
        ("bea", None, "to"),
        ("ann", "managers", "to"),
        ("nobody", None, "to"),
        (None, "vip", "queue"),
    ],
)
async def test_it_is_given_to_nobody_who_could_not_approve_it(world: World, to: str | None, queue: str | None, field: str) -> None:
    await world.actor("uma", PrincipalKind.PERSON, Role.REVIEWER)
    await approving(world, await world.actor("bea", PrincipalKind.PERSON, Role.REVIEWER), approves_up_to={"USD": 100})
    await world.ready(captured=100_000)
    refund, _ = await world.quoted(amount=TEAM, requested_by="Uma")
    before = world.row(refund)

    with pytest.raises(RefundError) as refusal:
        await assign(world, refund, to, queue)

    assert (refusal.value.code, refusal.value.field) == (Code.INVALID_FIELD, field)
    assert world.row(refund) == before


async def test_what_waits_for_no_review_is_given_to_nobody(world: World, reviewed: str) -> None:
    await decide(world, reviewed, world.ann)

    with pytest.raises(RefundError) as refusal:
        await assign(world, reviewed, "bob")

    assert refusal.value.code is Code.NOT_AWAITING_REVIEW


async def test_what_was_moved_stays_where_it_is_when_its_time_begins_anew(world: World) -> None:
    _, waits, _ = await one_before_review(world)
    await assign(world, waits, "mia", "managers")

    world.clock.at = world.row(waits)["review_by"]
    await world.steps.pass_deadline(waits)

    now = world.row(waits)
    assert [e["type"] for e in world.ledger(waits)][-1] == "review_time_anew"
    assert (now["rung"], now["queue"], now["assigned_to"]) == (0, "managers", world.mia.principal_id)
