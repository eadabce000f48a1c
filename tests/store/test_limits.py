"""Limits over time on real PostgreSQL: taken once, given back where it was taken, and exact however many ask at once (promise P5)."""

import asyncio
from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from refunds.clock import rfc3339
from refunds.messages import Situation
from refunds.people import Actor, PrincipalKind, Role
from refunds.policy import sample_policy_text
from refunds.processor import Conclusion, ProcessorRefund, RefundState
from refunds.status import Event
from store.operations import Attempt, Operation
from tests.store.world import World


def limits(*written: str) -> str:
    """The sample policy, with these limits instead of its own."""
    before, _, rest = sample_policy_text().partition("\nlimits:\n")
    after = "\n" + rest[rest.index("\n\n") :] if rest else ""
    return before + after + "\nlimits:\n" + "".join(f"  - {{ {one} }}\n" for one in written)


DENY = "taken: reserved, when_exceeded: deny"


async def shop(world: World, count: int, amount: int = 10_000) -> None:
    """Orders ``order-0`` and so on of as many customers."""
    for number in range(count):
        [payment] = await world.order(ref=f"order-{number}", customer=f"customer-{number}", amounts=(amount,))
        await world.read(payment, amount)


async def asked(world: World, number: int, *, actor: Actor | None = None, amount: int = 1_000, **more: Any) -> tuple[str, Situation]:
    return await world.quoted(actor=actor, order_id=f"order-{number}", customer_id=f"customer-{number}", amount=amount, **more)


def standing(world: World, refund: str, name: str) -> dict[str, Any]:
    [row] = world.rows("SELECT decision FROM revisions WHERE refund_id = %s ORDER BY revision DESC LIMIT 1", refund)
    [found] = [one for one in row["decision"]["limits"] if one["name"] == name]
    return found


def used(world: World, stage: str = "reserved") -> tuple[int, int]:
    [row] = world.rows(
        "SELECT count(*) AS n, coalesce(sum(amount), 0) AS s FROM limit_uses WHERE stage = %s AND given_back_at IS NULL", stage
    )
    return row["n"], int(row["s"])


async def agent(world: World, handle: str = "bot") -> Actor:
    return await world.actor(handle, PrincipalKind.AGENT, Role.REQUESTER)


async def sent(world: World, refund: str) -> tuple[Operation, Attempt]:
    return await world.attempted(refund)


async def test_twenty_racing_requests_of_which_one_fits_make_one(world: World) -> None:
    await world.policy(limits(f"name: all_hour, who: everyone, amount: 45.00, window: 1h, {DENY}"))
    await shop(world, 20)
    first, _ = await asked(world, 0, amount=2_500)
    ids = [
        await world.accept(world.request(order_id=f"order-{n}", customer_id=f"customer-{n}", amount=2_000)) for n in range(20)
    ]

    quoted = await asyncio.gather(*(world.steps.prepare(refund) for refund in ids))

    assert Counter((s.status, s.code) for s in quoted) == {("approved", ""): 1, ("denied", "LIMIT_EXCEEDED"): 19}
    assert used(world) == (2, 4_500)
    refused = next(s.refund for s in quoted if s.status == "denied")
    assert standing(world, refused, "all_hour") == {
        "name": "all_hour",
        "rule": "at most $45.00 in one hour by everyone together",
        "currency": "USD",
        "at_most": 4_500,
        "used": 4_500,
        "left": 0,
        "own": 2_000,
        "exceeded": True,
        "warns": False,
        "opens_at": rfc3339(world.clock.at + timedelta(hours=1)),
    }
    assert world.row(first)["status"] == "approved"
