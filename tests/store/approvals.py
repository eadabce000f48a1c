"""What the tests of approvals share: refunds that wait for somebody, policies with a change, what persons may approve, delegations, decisions taken and refused."""

from datetime import timedelta
from typing import Any

import pytest

from refunds.errors import Code, RefundError
from refunds.people import Actor, PrincipalKind, Role
from store import decisions, delegations, principals
from store.decisions import Recorded
from store.sql import Row
from tests.store.world import World

TEAM, MANAGERS = 20_000, 60_000
"""Amounts that the sample policy has a reviewer and a manager decide on."""
MANAGED = "managers:\n    people: 1"
"""How many people the sample policy asks there, as it is written."""


@pytest.fixture
async def reviewed(world: World) -> str:
    """A refund that waits for the team."""
    return await waiting(world, TEAM, "team")


@pytest.fixture
async def managed(world: World) -> str:
    """A refund that waits for a manager."""
    return await waiting(world, MANAGERS, "managers")


async def waiting(world: World, amount: int, queue: str) -> str:
    """A refund of that amount, which waits for a decision in that queue."""
    await world.ready(captured=100_000)
    refund, seen = await world.quoted(amount=amount)
    assert (seen.status, seen.queue) == ("awaiting_review", queue)
    return refund


async def policy(world: World, *changes: tuple[str, str]) -> None:
    [current] = world.rows("SELECT source FROM policy_versions ORDER BY version DESC LIMIT 1")
    source = current["source"]
    for old, new in changes:
        assert old in source, old
        source = source.replace(old, new, 1)
    await world.policy(source)


async def approving(world: World, actor: Actor, **said: Any) -> Actor:
    """Have an operator say what somebody may approve; returns them as they authenticate from then on."""
    async with world.api.begin() as connection:
        operator = Actor("pr_operator", "operator", "Operator", PrincipalKind.PERSON, frozenset({Role.OPERATOR}))
        given = {"approves_up_to": None, "operates_classifier": False, "owner_id": None} | said
        row = await principals.set_approving(connection, world.clock, principal_id=actor.principal_id, actor=operator, **given)
    return Actor(
        actor.principal_id,
        actor.handle,
        actor.name,
        actor.kind,
        actor.roles,
        actor.integration,
        row["approves_up_to"],
        row["operates_classifier"],
    )


async def lets(
    world: World, of: Actor, to: Actor, role: Role = Role.MANAGER, *, queue: str | None = None, after: float = 0, hours: float = 240
) -> Row:
    async with world.api.begin() as connection:
        begins = world.clock.now() + timedelta(hours=after)
        times = {"starts_at": begins, "ends_at": begins + timedelta(hours=hours)}
        return await delegations.delegate(connection, world.clock, actor=of, to=to.handle, role=role, queue=queue, **times)


async def decide(world: World, refund: str, actor: Actor, verdict: str = "approve", **more: Any) -> Recorded:
    async with world.api.begin() as connection:
        said = {"terms_hash": world.row(refund)["terms_hash"], "reason": "looked at it"} | more
        return await decisions.record_review(connection, world.clock, refund_id=refund, actor=actor, verdict=verdict, **said)


async def refused(world: World, refund: str, actor: Actor, verdict: str = "approve", **more: Any) -> Code:
    """Have a decision refused; holds that nothing at all changed."""
    before = world.row(refund), len(world.ledger(refund)), world.count("decisions")
    with pytest.raises(RefundError) as refusal:
        await decide(world, refund, actor, verdict, **more)
    assert (world.row(refund), len(world.ledger(refund)), world.count("decisions")) == before
    return refusal.value.code
