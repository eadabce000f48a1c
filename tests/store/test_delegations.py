"""The right to decide, handed to another person for a while: how long, how far, and that both persons are looked at (field report 56)."""

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from refunds.errors import Code, RefundError
from refunds.people import Actor, PrincipalKind, Role
from store import delegations
from store.decisions import Recorded
from tests.store.approvals import MANAGED, MANAGERS, decide, lets, managed, policy, refused, reviewed
from tests.store.test_limits import with_limits
from tests.store.world import World

__all__ = ["managed", "reviewed"]


async def test_a_stand_in_decides_in_their_own_name_on_behalf_of_the_other(world: World, managed: str) -> None:
    assert await refused(world, managed, world.ann) is Code.ROLE_TOO_LOW
    made = await lets(world, world.mia, world.ann)

    recorded = await decide(world, managed, world.ann)

    [row] = world.rows("SELECT principal_id, person, on_behalf_of, delegation_id, role FROM decisions WHERE id = %s", recorded.id)
    assert row == {
        "principal_id": world.ann.principal_id,
        "person": world.ann.principal_id,
        "on_behalf_of": world.mia.principal_id,
        "delegation_id": made["id"],
        "role": "manager",
    }
    [entry] = [e for e in world.ledger(managed) if e["type"] == "decision_recorded" and e["data"]["kind"] == "review"]
    assert (entry["actor"], entry["on_behalf_of"], entry["data"]["delegation"]) == (
        world.ann.principal_id,
        world.mia.principal_id,
        made["id"],
    )
    assert recorded.row["status"] == "approved"


@pytest.mark.parametrize(("at", "holds"), [(-1, False), (0, True), (24 * 3600 - 1, True), (24 * 3600, False)])
async def test_a_delegation_holds_from_its_first_instant_until_before_its_last(world: World, managed: str, at: int, *, holds: bool) -> None:
    start = world.clock.at
    await lets(world, world.mia, world.ann, after=1, hours=24)
    world.clock.at = start + timedelta(hours=1, seconds=at)

    if holds:
        assert (await decide(world, managed, world.ann)).row["status"] == "approved"
    else:
        assert await refused(world, managed, world.ann) is Code.ROLE_TOO_LOW
        assert await refused(world, managed, world.ann, on_behalf_of="mia") is Code.DELEGATION_INVALID


async def test_a_delegation_that_was_ended_early_gives_nothing_from_then_on(world: World, managed: str) -> None:
    made = await lets(world, world.mia, world.ann)
    async with world.api.begin() as connection:
        ended = await delegations.end(connection, world.clock, actor=world.mia, delegation_id=made["id"])
    world.clock.advance(hours=1)
    async with world.api.begin() as connection:
        again = await delegations.end(connection, world.clock, actor=world.ann, delegation_id=made["id"])

    assert (ended["ended_at"], again["ended_at"], again["ender_handle"]) == (ended["ended_at"], ended["ended_at"], "mia")
    assert await refused(world, managed, world.ann) is Code.ROLE_TOO_LOW
    made_and_ended = [e["type"] for e in world.rows("SELECT type FROM ledger WHERE type LIKE 'delegation%%' ORDER BY id")]
    assert made_and_ended == ["delegation_made", "delegation_ended"]


async def test_a_stranger_ends_no_delegation(world: World) -> None:
    made = await lets(world, world.mia, world.ann)

    async with world.api.begin() as connection:
        with pytest.raises(RefundError) as refusal:
            await delegations.end(connection, world.clock, actor=world.bob, delegation_id=made["id"])

    assert refusal.value.code is Code.NOT_FOUND


async def test_what_was_handed_over_ends_with_the_role_of_whoever_handed_it_over(world: World, managed: str) -> None:
    await lets(world, world.mia, world.ann)
    world.execute("UPDATE api_keys SET revoked_at = %s WHERE principal_id = %s", world.clock.at, world.mia.principal_id)

    assert await refused(world, managed, world.ann) is Code.DELEGATION_INVALID


async def test_a_stand_in_who_is_disabled_meanwhile_approves_nothing(world: World, managed: str) -> None:
    await lets(world, world.mia, world.ann)
    world.execute("UPDATE principals SET disabled_at = now() WHERE id = %s", world.ann.principal_id)

    assert await refused(world, managed, world.ann, on_behalf_of="mia") is Code.ROLE_TOO_LOW


async def test_nothing_is_handed_on(world: World, managed: str) -> None:
    await lets(world, world.mia, world.ann)

    with pytest.raises(RefundError) as refusal:
        await lets(world, world.ann, world.bob)

    assert (refusal.value.code, refusal.value.field) == (Code.ROLE_TOO_LOW, "role")
    await lets(world, world.ann, world.bob, Role.REVIEWER)  # what is Ann's own
    assert await refused(world, managed, world.bob) is Code.ROLE_TOO_LOW
    assert (await decide(world, managed, world.ann)).row["status"] == "approved"


@pytest.mark.parametrize(
    ("to", "given", "field"),
    [
        ("mia", {}, "to"),
        ("mia@support.example", {}, "to"),
        ("nobody", {}, "to"),
        ("desk", {}, "to"),
        ("clerk", {}, "to"),
        ("ann", {"after": -1}, "starts_at"),
        ("ann", {"hours": 0}, "ends_at"),
        ("ann", {"hours": -1}, "ends_at"),
        ("ann", {"hours": 367 * 24}, "ends_at"),
        ("ann", {"role": Role.OPERATOR}, "role"),
    ],
)
async def test_a_delegation_that_makes_no_sense_is_refused(world: World, to: str, given: dict[str, Any], field: str) -> None:
    await world.actor("clerk", PrincipalKind.PERSON, Role.REQUESTER)
    await world.actor("mia@support.example", PrincipalKind.PERSON, Role.REVIEWER)
    somebody = Actor("pr_x", to, to, PrincipalKind.PERSON)

    with pytest.raises(RefundError) as refusal:
        await lets(world, world.mia, somebody, **given)

    assert (refusal.value.code, refusal.value.field) == (Code.INVALID_FIELD, field)
    assert world.count("delegations") == 0


async def test_of_several_delegations_one_that_suffices_is_used_and_one_that_is_named(world: World, managed: str) -> None:
    max_ = await world.actor("max", PrincipalKind.PERSON, Role.MANAGER)
    await lets(world, max_, world.ann, queue="vip")
    await lets(world, world.mia, world.ann)
    await lets(world, world.mia, world.ann, hours=1)

    assert await refused(world, managed, world.ann, on_behalf_of="max") is Code.DELEGATION_INVALID
    recorded = await decide(world, managed, world.ann)
    assert world.rows("SELECT on_behalf_of FROM decisions WHERE id = %s", recorded.id) == [{"on_behalf_of": world.mia.principal_id}]


async def test_field_56_nobody_approves_their_own_request_through_a_stand_in(world: World) -> None:
    uma = await world.actor("uma", PrincipalKind.PERSON, Role.REQUESTER, Role.MANAGER)
    await world.ready(captured=100_000)
    refund, _ = await world.quoted(actor=uma, amount=MANAGERS)
    await lets(world, uma, world.ann)
    await lets(world, world.mia, uma)

    assert await refused(world, refund, world.ann) is Code.SELF_APPROVAL
    assert await refused(world, refund, world.ann, on_behalf_of="uma") is Code.SELF_APPROVAL
    assert await refused(world, refund, uma, on_behalf_of="mia") is Code.SELF_APPROVAL
    assert (await decide(world, refund, world.mia)).row["status"] == "approved"


async def test_field_56_two_of_which_one_stands_in_for_the_other_are_one(world: World) -> None:
    await policy(world, (MANAGED, "managers:\n    people: 2"))
    max_ = await world.actor("max", PrincipalKind.PERSON, Role.MANAGER)
    await world.ready(captured=100_000)
    refund, _ = await world.quoted(amount=MANAGERS)
    await lets(world, world.mia, world.ann)
    await lets(world, max_, world.bob)
    await lets(world, world.mia, world.bob)

    first = await decide(world, refund, world.ann)

    assert first.row["status"] == "awaiting_review"
    assert await refused(world, refund, world.mia) is Code.SELF_APPROVAL  # in whose right it was approved
    assert await refused(world, refund, world.bob, on_behalf_of="mia") is Code.SELF_APPROVAL
    assert (await decide(world, refund, world.ann)).replayed
    assert (await decide(world, refund, world.bob)).row["status"] == "approved"  # on behalf of Max
    assert world.count("decisions") == 3  # the customer's consent and two reviews


async def test_a_stand_in_denies_too(world: World, managed: str) -> None:
    assert await refused(world, managed, world.ann, "deny") is Code.ROLE_TOO_LOW
    await lets(world, world.mia, world.ann)

    recorded = await decide(world, managed, world.ann, "deny")

    assert recorded.row["status"] == "denied"
    assert world.rows("SELECT on_behalf_of FROM decisions WHERE id = %s", recorded.id) == [{"on_behalf_of": world.mia.principal_id}]


async def test_a_decision_and_the_end_of_the_delegation_it_rests_on_have_one_order(world: World) -> None:
    await world.ready(captured=1_000_000)
    for _ in range(5):
        refund, _ = await world.quoted(amount=MANAGERS)
        made = await lets(world, world.mia, world.ann)

        async def end(delegation: str = made["id"]) -> None:
            async with world.api.begin() as connection:
                await delegations.end(connection, world.clock, actor=world.mia, delegation_id=delegation)

        ended = await asyncio.gather(decide(world, refund, world.ann), end(), return_exceptions=True)

        approved = world.row(refund)["status"] == "approved"
        assert approved == isinstance(ended[0], Recorded)
        assert ended[1] is None


async def test_what_stand_ins_approve_counts_against_the_limit_of_whose_right_it_is(world: World) -> None:
    await world.policy(with_limits("name: reviewers, who: reviewer, refunds: 1, window: 24h"))
    await world.ready(captured=1_000_000)
    ids = [(await world.quoted(amount=MANAGERS + step))[0] for step in range(3)]
    await lets(world, world.mia, world.ann)
    await lets(world, world.mia, world.bob)

    assert (await decide(world, ids[0], world.ann)).row["status"] == "approved"
    assert await refused(world, ids[1], world.bob) is Code.REVIEWER_LIMIT
    assert await refused(world, ids[1], world.mia) is Code.REVIEWER_LIMIT
    world.clock.advance(hours=24)
    assert (await decide(world, ids[1], world.mia)).row["status"] == "approved"
