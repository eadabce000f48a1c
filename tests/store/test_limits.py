"""Limits over time on real PostgreSQL: taken once, given back where it was taken, and exact however many ask at once (promise P5)."""

import asyncio
from collections import Counter
from datetime import timedelta
from typing import Any

from refunds.clock import rfc3339
from refunds.errors import Code
from refunds.messages import Situation
from refunds.people import Actor, PrincipalKind, Role
from refunds.policy import sample_policy_text
from refunds.processor import NotSent, ProcessorRefund, RefundState, Refused
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
    ids = [await world.accept(world.request(order_id=f"order-{n}", customer_id=f"customer-{n}", amount=2_000)) for n in range(20)]

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


async def test_a_limit_for_each_agent_and_session_counts_across_customers_and_leaves_others_alone(world: World) -> None:
    await world.policy(
        limits(
            f"name: agent, who: agent, refunds: 2, window: 1m, {DENY}",
            f"name: session, who: session, refunds: 1, window: day, zone: UTC, {DENY}",
        )
    )
    await shop(world, 5)
    bot, other = await agent(world), await agent(world, "other")

    seen = [(await asked(world, n, actor=bot, agent_session_id=f"s{n}"))[1] for n in range(3)]
    another = (await asked(world, 3, actor=other, agent_session_id="s0"))[1]
    again = (await asked(world, 4, actor=other, agent_session_id="s0"))[1]
    desk = (await asked(world, 4, agent_session_id=None))[1]

    assert [(s.status, s.code) for s in seen] == [("awaiting_consent", "")] * 2 + [("denied", "LIMIT_EXCEEDED")]
    assert (another.status, another.code) == ("awaiting_consent", ""), "a session is one of its own integration"
    assert (again.status, again.code, desk.code) == ("denied", "LIMIT_EXCEEDED", "")
    world.clock.advance(seconds=60)
    assert (await asked(world, 2, actor=bot, agent_session_id="s9"))[1].code == "", "a rolling minute later the first is free again"


async def test_what_ends_gives_back_what_it_took_and_parked_keeps_it(world: World) -> None:
    await world.policy(limits(f"name: all, who: everyone, refunds: 100, window: month, zone: UTC, {DENY}"))
    await shop(world, 9)
    ids = [(await asked(world, n, amount=1_000 + n))[0] for n in range(6)]
    assert used(world) == (6, sum(range(1_000, 1_006)))

    await world.withdraw(ids[0])
    operation, attempt = await sent(world, ids[1])
    await world.submitting.failed_attempt(operation, attempt, Refused("no_card"))
    operation, _ = await sent(world, ids[2])
    await world.submitting.park(operation, Code.OUTCOME_UNKNOWN, "test")
    operation, attempt = await sent(world, ids[3])
    made = ProcessorRefund("re_1", operation.request.processor_payment, 1_003, "USD", RefundState.SUCCEEDED, "succeeded", operation.id)
    await world.submitting.receipt(operation, made, attempt=attempt)
    operation, attempt = await sent(world, ids[4])
    await world.submitting.failed_attempt(operation, attempt, NotSent("no_connection"))
    await world.submitting.hold_unsent(ids[4], Code.PROCESSOR_UNREACHABLE, "test")

    assert [world.row(one)["status"] for one in ids] == ["withdrawn", "failed", "parked", "succeeded", "held", "approved"]
    assert used(world) == (4, 1_002 + 1_003 + 1_004 + 1_005)
    assert used(world, "sent") == (2, 1_002 + 1_003), "nothing left of what is held, and nothing moved of what failed"


async def test_field_17_a_bounce_days_later_gives_nothing_back_to_the_day_it_comes_in(world: World) -> None:
    await world.policy(limits(f"name: day, who: everyone, amount: 50.00, window: day, zone: UTC, {DENY}"))
    await shop(world, 4)
    refund, _ = await asked(world, 0, amount=3_000)
    operation, attempt = await sent(world, refund)
    made = ProcessorRefund("re_1", operation.request.processor_payment, 3_000, "USD", RefundState.SUCCEEDED, "succeeded", operation.id)
    await world.submitting.receipt(operation, made, attempt=attempt)
    world.clock.advance(days=5)
    for number in (1, 2, 3):
        await world.read([row["p"] for row in world.rows("SELECT processor_payment AS p FROM payments ORDER BY id")][number])
    late, _ = await asked(world, 1, amount=3_000)

    failed = ProcessorRefund(
        "re_1", made.processor_payment, 3_000, "USD", RefundState.FAILED, "failed", operation.id, "expired_or_canceled_card"
    )
    await world.submitting.observed(operation, failed)
    after = (await asked(world, 2, amount=2_001))[1]

    assert world.row(refund)["status"] == "failed"
    assert (after.status, after.code) == ("denied", "LIMIT_EXCEEDED"), "the fifth day had nothing of it"
    assert standing(world, after.refund, "day")["used"] == 3_000
    assert world.row(late)["status"] == "approved"


async def test_a_revision_takes_the_place_of_what_it_replaces(world: World) -> None:
    await world.policy(limits("name: all, who: everyone, amount: 900.00, window: month, zone: UTC, taken: reserved, when_exceeded: deny"))
    await shop(world, 2, amount=60_000)
    refund, seen = await asked(world, 0, amount=50_000)
    assert (seen.status, used(world)) == ("awaiting_review", (1, 50_000))

    revised = await world.revise(refund, world.ann, amount=45_000)

    assert (revised.status, used(world)) == ("awaiting_review", (1, 45_000))
    assert (await asked(world, 1, amount=45_000))[1].code == "", "5,000 of it are free again"
    refused = await world.revise(refund, world.bob, amount=45_001)
    assert refused.refused == "LIMIT_EXCEEDED"
    assert used(world) == (2, 90_000), "terms that are refused take nothing and lose nothing"
