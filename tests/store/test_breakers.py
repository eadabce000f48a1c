"""Breakers on real PostgreSQL: opened by what was seen, holding what is approved, half-open, closed by an operator or by themselves."""

import asyncio
from typing import Any

import psycopg
import pytest

from refunds.errors import Code, RefundError
from refunds.people import Actor, PrincipalKind, Role
from refunds.processor import Refused
from refunds.rates import Rate
from store import breakers, rates, scopes
from store.breakers import Moved
from store.operations import Attempt, Operation
from tests.policies import with_breakers
from tests.store.world import World, denied

VOLUME = "name: burst, scope: everything, watches: volume, times: 2, at_least: 3, usual_over: 24h, cool_down: 30m, half_open_per_hour: 2"
FAILURES = "name: failing, scope: everything, watches: failures, percent: 50, at_least: 3, cool_down: 30m, half_open_per_hour: 5"


async def shop(world: World, count: int, actor: Actor | None = None) -> list[str]:
    """Approved refunds of as many customers, asked for by the desk or by ``actor``; returns their ids."""
    ids: list[str] = []
    for number in range(count):
        [payment] = await world.order(ref=f"order-{number}", customer=f"customer-{number}")
        await world.read(payment)
        refund, _ = await world.quoted(actor=actor, order_id=f"order-{number}", customer_id=f"customer-{number}", amount=1_000)
        if world.row(refund)["status"] == "awaiting_consent":
            await world.consent(refund)
        assert world.row(refund)["status"] == "approved"
        ids.append(refund)
    return ids


async def sent(world: World, *ids: str) -> list[tuple[Operation, Attempt]]:
    return [await world.attempted(one) for one in ids]


async def judged(world: World) -> list[Moved]:
    return await breakers.judge(world.steps.database)


async def states(world: World) -> list[tuple[str, str, str]]:
    async with world.api.begin() as connection:
        return [(one["name"], one["scope"], one["state"]) for one in await breakers.shown(connection, world.clock.at)]


async def resume(world: World, scope: str, actor: Actor) -> dict[str, Any]:
    async with world.api.begin() as connection:
        return await scopes.change(connection, world.clock, scopes.Wanted(scope, False, None, "looked into it"), actor)


async def test_a_breaker_opens_holds_lets_a_few_through_and_an_operator_closes_it(world: World) -> None:
    await world.policy(with_breakers(VOLUME))
    ids = await shop(world, 12)
    await sent(world, *ids[:3])
    world.clock.advance(hours=20)
    assert await judged(world) == []
    await sent(world, *ids[3:6])

    opened = await judged(world)

    assert opened == [Moved("burst", "everything", opened[0].to, "3 refunds in the last hour, more than 2 times the usual 0 refunds")]
    assert await states(world) == [("burst", "everything", "open")]
    assert await judged(world) == [], "it is open already"
    held = await world.kept(ids[6])
    assert (held.status, held.code) == ("held", "BREAKER_OPEN")
    assert "burst" in world.row(ids[6])["detail"]

    world.clock.advance(minutes=30)
    assert [(one.to.value, one.scope) for one in await judged(world)] == [("half_open", "everything")]
    await sent(world, *ids[7:9])
    world.clock.advance(minutes=1)
    waiting = await world.kept(ids[9])
    assert (waiting.status, waiting.code) == ("held", "BREAKER_OPEN")
    assert "half-open" in world.row(ids[9])["detail"]
    looked = await world.steps.resume_held(ids[6])
    assert (looked.status, looked.code, looked.needs) == ("held", "BREAKER_OPEN", ""), "its payment is read when it may go"
    world.clock.advance(minutes=59)
    await sent(world, ids[10])

    await resume(world, "everything", world.mia)
    assert await states(world) == []
    await sent(world, ids[11])
    assert await judged(world) == [], "what was sent before it was closed counts no more"
    said = [row["type"] for row in world.rows("SELECT type FROM ledger WHERE type LIKE 'breaker%%' ORDER BY id")]
    assert said == ["breaker_open", "breaker_half_open", "breaker_closed"]
    told = [row["body"]["kind"] for row in world.rows("SELECT body FROM outbox WHERE body ->> 'kind' LIKE 'breaker%%' ORDER BY id")]
    assert told == said
    [closed] = world.rows("SELECT closed_by, closed_reason FROM breakers")
    assert (closed["closed_by"], closed["closed_reason"]) == (world.mia.principal_id, "looked into it")


async def test_a_first_busy_day_is_not_held_against_the_empty_days_before_it(world: World) -> None:
    """Each agent, too, is compared with its own hours: one that began a while ago has no empty week behind it either."""
    each_agent = VOLUME.replace("burst", "busy").replace("everything", "each_agent")
    await world.policy(with_breakers(VOLUME, each_agent))
    bot = await world.actor("bot", PrincipalKind.AGENT, Role.REQUESTER)
    ids = await shop(world, 25, bot)

    for hour in range(3):
        await sent(world, *ids[hour * 4 : hour * 4 + 4])
        assert await judged(world) == []
        world.clock.advance(hours=1)
    await sent(world, *ids[12:])

    figures = {one.name: one.why for one in await judged(world)}
    words = "13 refunds in the last hour, more than 2 times the usual 6 refunds"
    assert figures == {"burst": words, "busy": words}


async def test_half_open_lets_exactly_as_many_through_however_many_come_at_once(world: World) -> None:
    await world.policy(with_breakers(VOLUME))
    ids = await shop(world, 12)
    await sent(world, *ids[:3])
    world.clock.advance(hours=20)
    await sent(world, *ids[3:6])
    await judged(world)
    world.clock.advance(minutes=30)
    await judged(world)
    seen = [await world.submitting.standing(one) for one in ids[6:]]
    read = [await world.read(one.processor_payment) for one in seen]

    opened = await asyncio.gather(*(world.submitting.open_attempt(one, state) for one, state in zip(seen, read, strict=True)))

    assert sum(isinstance(one, tuple) for one in opened) == 2


async def test_half_open_lets_as_many_through_as_the_policy_says_now(world: World) -> None:
    await world.policy(with_breakers(VOLUME))
    ids = await shop(world, 9)
    await sent(world, *ids[:3])
    world.clock.advance(hours=20)
    await sent(world, *ids[3:6])
    await judged(world)
    world.clock.advance(minutes=30)
    await judged(world)
    await world.policy(with_breakers(VOLUME.replace("half_open_per_hour: 2", "half_open_per_hour: 1")))

    await sent(world, ids[6])
    second = await world.kept(ids[7])

    assert (second.code, "half-open: 1 refund in one hour went" in second.waits_for) == ("BREAKER_OPEN", True)
    async with world.api.begin() as connection:
        assert [one["per_hour"] for one in await breakers.shown(connection, world.clock.at)] == [1]


async def test_half_open_counts_also_what_failed(world: World) -> None:
    """It may have opened for failures: that each gives its money back makes no room for the next."""
    await world.policy(with_breakers(FAILURES))
    ids = await shop(world, 10)
    for operation, attempt in await sent(world, *ids[:3]):
        await world.submitting.failed_attempt(operation, attempt, Refused("no_card"))
    await judged(world)
    world.clock.advance(minutes=30)
    await judged(world)

    for one in ids[3:8]:
        await world.submitting.failed_attempt(*await world.attempted(one), Refused("no_card"))
    sixth = await world.kept(ids[8])

    assert (sixth.status, sixth.code) == ("held", "BREAKER_OPEN")
    assert "half-open" in sixth.waits_for


async def test_a_share_of_failures_opens_it_and_it_closes_by_itself_where_the_policy_says_so(world: World) -> None:
    await world.policy(with_breakers(FAILURES + ", closes_itself_after: 2h"))
    ids = await shop(world, 9)
    for operation, attempt in await sent(world, *ids[:2]):
        await world.submitting.failed_attempt(operation, attempt, Refused("declined"))
    assert await judged(world) == [], "two are too few cases"
    await sent(world, ids[2])

    assert [(one.to.value, one.why) for one in await judged(world)] == [
        ("open", "2 of 3 refunds in the last hour failed, more than 50 percent")
    ]
    world.clock.advance(minutes=30)
    assert [one.to.value for one in await judged(world)] == ["half_open"]
    world.clock.advance(seconds=1)
    for operation, attempt in await sent(world, *ids[3:6]):
        await world.submitting.failed_attempt(operation, attempt, Refused("declined"))
    assert [one.to.value for one in await judged(world)] == ["open"], "it fails still"
    world.clock.advance(minutes=30)
    await judged(world)
    world.clock.advance(hours=1, minutes=59)
    assert await judged(world) == []
    world.clock.advance(minutes=1)
    assert [one.to.value for one in await judged(world)] == ["closed"]
    assert await states(world) == []
    await sent(world, ids[6])


async def test_each_agent_has_a_breaker_of_its_own(world: World) -> None:
    await world.policy(with_breakers(FAILURES.replace("scope: everything", "scope: each_agent")))
    bot = await world.actor("bot", PrincipalKind.AGENT, Role.REQUESTER)
    desk = await shop(world, 1)
    ids: list[str] = []
    for number in range(1, 5):
        [payment] = await world.order(ref=f"order-{number}", customer=f"customer-{number}")
        await world.read(payment)
        refund, _ = await world.quoted(actor=bot, order_id=f"order-{number}", customer_id=f"customer-{number}", amount=1_000)
        await world.consent(refund)
        ids.append(refund)
    for operation, attempt in await sent(world, *ids[:3]):
        await world.submitting.failed_attempt(operation, attempt, Refused("declined"))

    await judged(world)

    assert await states(world) == [("failing", f"agent:{world.row(ids[0])['agent_id']}", "open")]
    assert (await world.kept(ids[3])).code == "BREAKER_OPEN"
    await sent(world, *desk)


async def test_one_that_the_policy_no_longer_has_is_closed(world: World) -> None:
    await world.policy(with_breakers(FAILURES))
    ids = await shop(world, 3)
    for operation, attempt in await sent(world, *ids):
        await world.submitting.failed_attempt(operation, attempt, Refused("declined"))
    await judged(world)
    world.clock.advance(seconds=1)
    await world.policy(with_breakers(VOLUME))

    moved = await judged(world)

    assert [(one.name, one.to.value) for one in moved] == [("failing", "closed")]
    assert world.count("halts WHERE lifted_at IS NULL") == 0


async def test_one_that_the_policy_has_for_another_scope_now_is_closed_in_the_old_one(world: World) -> None:
    await world.policy(with_breakers(VOLUME))
    ids = await shop(world, 7)
    await sent(world, *ids[:3])
    world.clock.advance(hours=20)
    await sent(world, *ids[3:6])
    await judged(world)

    await world.policy(with_breakers(VOLUME.replace("everything", "each_processor")))

    moved = {(one.scope, one.to.value) for one in await judged(world)}
    assert moved == {("everything", "closed"), ("processor:stripe", "open")}
    assert await states(world) == [("burst", "processor:stripe", "open")]


async def test_an_amount_that_could_not_be_counted_when_it_was_sent_counts_once_its_rate_is_recorded(world: World) -> None:
    await world.policy(with_breakers(VOLUME.replace("volume", "amount").replace("times: 2", "times: 48")))
    ids = await shop(world, 6)
    await sent(world, *ids[:3])
    world.clock.advance(hours=20)
    await sent(world, *ids[3:])
    uncounted = "UPDATE limit_uses SET currency = 'EUR', amount = 9000, base = NULL, worth = NULL WHERE stage = 'sent' AND refund_id = %s"
    world.execute(uncounted, ids[5])
    assert await judged(world) == []

    async with world.api.begin() as connection:
        rate, by = Rate("USD", "EUR", "1.10"), world.ann.principal_id
        await rates.record(connection, world.clock, rate=rate, effective_at=None, source="test", principal_id=by)

    [opened] = await judged(world)
    assert opened.why == "$119.00 in the last hour, more than 48 times the usual $1.57"


async def test_two_that_are_open_in_one_scope_hold_until_both_have_cooled_down(world: World) -> None:
    await world.policy(with_breakers(FAILURES, FAILURES.replace("name: failing", "name: slower").replace("30m", "60m")))
    ids = await shop(world, 4)
    for operation, attempt in await sent(world, *ids[:3]):
        await world.submitting.failed_attempt(operation, attempt, Refused("declined"))
    assert len(await judged(world)) == 2

    world.clock.advance(minutes=30)
    await judged(world)

    assert await states(world) == [("failing", "everything", "half_open"), ("slower", "everything", "open")]
    assert (await world.kept(ids[3])).code == "BREAKER_OPEN"
    world.clock.advance(minutes=30)
    await judged(world)
    assert world.count("halts WHERE lifted_at IS NULL") == 0


async def test_only_a_person_closes_it_and_an_operators_stop_is_never_lifted_by_it(world: World) -> None:
    await world.policy(with_breakers(FAILURES))
    ids = await shop(world, 3)
    for operation, attempt in await sent(world, *ids):
        await world.submitting.failed_attempt(operation, attempt, Refused("declined"))
    await judged(world)
    async with world.api.begin() as connection:
        await scopes.change(connection, world.clock, scopes.Wanted("agents", True, None, "to be sure"), world.ann)

    with pytest.raises(RefundError) as refused:
        await resume(world, "everything", world.desk)
    world.clock.advance(minutes=30)
    await judged(world)
    with pytest.raises(RefundError) as half_open:
        await resume(world, "everything", world.desk)

    assert (refused.value.code, half_open.value.code) == (Code.PERSON_REQUIRED, Code.PERSON_REQUIRED)
    assert world.rows("SELECT scope, code FROM halts WHERE lifted_at IS NULL") == [{"scope": "agents", "code": "HALTED_BY_OPERATOR"}]


def test_no_login_that_moves_money_may_close_a_breaker(world: World) -> None:
    for login in ("refunds_payments", "refunds_classify"):
        with pytest.raises(psycopg.Error) as error:
            world.execute("UPDATE breakers SET state = 'closed', closed_at = now()", login=login)
        assert denied(error.value), login
