"""Limits over time on real PostgreSQL: taken once, given back where it was taken, and exact however many ask at once (promise P5)."""

import asyncio
import itertools
from collections import Counter
from datetime import timedelta
from typing import Any

import pytest

from refunds.clock import rfc3339
from refunds.errors import Code, RefundError
from refunds.limits import Stage
from refunds.messages import Situation
from refunds.money import Money
from refunds.people import Actor, PrincipalKind, Role
from refunds.processor import NotSent, ProcessorRefund, RefundState, Refused
from refunds.rates import Rate
from store import controls, grants, rates
from store import limits as store_limits
from store.db import connect
from store.operations import Attempt, Operation
from store.progress import Steps
from tests.policies import with_limits
from tests.store.world import World

DENY = "taken: reserved, when_exceeded: deny"


async def shop(world: World, count: int, amount: int = 10_000) -> None:
    """Orders ``order-0`` and so on of as many customers."""
    for number in range(count):
        [payment] = await world.order(ref=f"order-{number}", customer=f"customer-{number}", amounts=(amount,))
        await world.read(payment, amount)


def paid(world: World, number: int) -> str:
    """The processor's id of the payment of an order, in the order in which they were made."""
    rows = world.rows("SELECT processor_payment AS p FROM payments ORDER BY length(processor_payment), processor_payment")
    return rows[number]["p"]


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


async def test_twenty_racing_requests_in_two_processes_of_which_one_fits_make_one(world: World) -> None:
    await world.policy(with_limits(f"name: all_hour, who: everyone, amount: 45.00, window: 1h, {DENY}"))
    await shop(world, 20)
    first, _ = await asked(world, 0, amount=2_500)
    ids = [await world.accept(world.request(order_id=f"order-{n}", customer_id=f"customer-{n}", amount=2_000)) for n in range(20)]

    other = connect(world.database.url(grants.WORKER), world.clock, world.settings, name="another process")
    processes = itertools.cycle((world.steps, Steps(other, world.settings)))
    # All connections are open before they race, or the first would be done before the last begins.
    await asyncio.gather(*(next(processes).payment_to_read(refund) for refund in ids))
    quoted = await asyncio.gather(*(next(processes).prepare(refund) for refund in ids))
    await other.close()

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
        with_limits(
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
    await world.policy(with_limits(f"name: all, who: everyone, refunds: 100, window: month, zone: UTC, {DENY}"))
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


@pytest.mark.parametrize("approved", ["at once", "by a person"])
async def test_a_draft_keeps_nothing_of_what_it_took(world: World, approved: str) -> None:
    await world.policy(with_limits(f"name: all, who: everyone, refunds: 1, window: month, zone: UTC, {DENY}"))
    await shop(world, 2, amount=20_000)
    await mode(world, "draft")

    drafted, _ = await asked(world, 0, amount=1_000 if approved == "at once" else 15_000)
    if approved != "at once":
        assert used(world) == (1, 15_000)
        await world.decide(drafted, world.ann)
    await mode(world, "live")

    assert (world.row(drafted)["status"], used(world)) == ("drafted", (0, 0))
    assert (await asked(world, 1))[1].status == "approved"


async def mode(world: World, wanted: str) -> None:
    async with world.api.begin() as connection:
        await controls.change(connection, world.clock, stopped=False, mode=wanted, reason="test", actor=world.mia.principal_id)


async def test_field_17_a_bounce_days_later_gives_nothing_back_to_the_day_it_comes_in(world: World) -> None:
    await world.policy(with_limits(f"name: day, who: everyone, amount: 50.00, window: day, zone: UTC, {DENY}"))
    await shop(world, 4)
    refund, _ = await asked(world, 0, amount=3_000)
    operation, attempt = await sent(world, refund)
    made = ProcessorRefund("re_1", operation.request.processor_payment, 3_000, "USD", RefundState.SUCCEEDED, "succeeded", operation.id)
    await world.submitting.receipt(operation, made, attempt=attempt)
    world.clock.advance(days=5)
    for number in (1, 2, 3):
        await world.read(paid(world, number))
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
    await world.policy(
        with_limits("name: all, who: everyone, amount: 900.00, window: month, zone: UTC, taken: reserved, when_exceeded: deny")
    )
    await shop(world, 2, amount=60_000)
    refund, seen = await asked(world, 0, amount=50_000)
    assert (seen.status, used(world)) == ("awaiting_review", (1, 50_000))

    revised = await world.revise(refund, world.ann, amount=45_000)

    assert (revised.status, used(world)) == ("awaiting_consent", (1, 45_000))
    assert (await asked(world, 1, amount=45_000))[1].code == "", "5,000 of it are free again"
    refused = await world.revise(refund, world.bob, amount=45_001)
    assert refused.refused == "LIMIT_EXCEEDED"
    assert used(world) == (2, 90_000), "terms that are refused take nothing and lose nothing"


async def test_terms_that_lapsed_keep_the_place_that_they_had(world: World) -> None:
    await world.policy(with_limits(f"name: hour, who: everyone, amount: 50.00, window: 1h, {DENY}"))
    await shop(world, 4)
    refund, _ = await asked(world, 0, amount=5_000)
    world.clock.advance(hours=25)
    assert (await asked_anew(world, 1, 5_000)).status == "approved", "the hour is another"
    held = await world.kept(refund)
    assert (held.status, held.code) == ("held", "TERMS_EXPIRED")

    await world.read(paid(world, 0))
    again = await world.steps.resume_held(refund)

    assert (again.revision, again.code) == (2, ""), "it was in time when it was reserved, and is not denied for what others took since"
    [row] = world.rows("SELECT * FROM limit_uses WHERE refund_id = %s", refund)
    assert (row["revision"], row["taken_at"], row["given_back_at"]) == (2, world.clock.at - timedelta(hours=25), None)
    assert standing(world, again.refund, "hour")["used"] == 5_000


async def test_terms_that_lapsed_are_denied_when_they_are_more_than_the_whole_limit_by_now(world: World) -> None:
    """Limits are safety settings: the place that terms had is none under a limit that was lowered below them."""
    await world.policy(with_limits(f"name: hour, who: everyone, amount: 50.00, window: 1h, {DENY}"))
    await shop(world, 1)
    refund, _ = await asked(world, 0, amount=5_000)
    await world.policy(with_limits(f"name: hour, who: everyone, amount: 49.99, window: 1h, {DENY}"))
    world.clock.advance(hours=25)
    await world.kept(refund)

    await world.read(paid(world, 0))
    again = await world.steps.resume_held(refund)

    assert (again.status, again.code, used(world)) == ("denied", "LIMIT_EXCEEDED", (0, 0))


async def test_a_month_of_approvals_goes_out_at_the_pace_that_is_permitted(world: World) -> None:
    await world.policy(with_limits("name: pace, who: everyone, refunds: 2, window: 1m, taken: sent"))
    await shop(world, 5)
    ids = [(await asked(world, n))[0] for n in range(5)]
    world.clock.advance(seconds=30)
    first, second = await sent(world, ids[0]), None
    world.clock.advance(seconds=10)
    second = await sent(world, ids[1])

    held = [await world.kept(one) for one in ids[2:]]

    assert first[0].id != second[0].id
    assert {(s.status, s.code) for s in held} == {("held", "LIMIT_EXCEEDED")}
    opens_at = world.clock.at + timedelta(seconds=50)
    assert {world.row(one)["wake_at"] for one in ids[2:]} == {opens_at}
    words = world.row(ids[2])["detail"]
    assert (
        words
        == f"limit pace (at most 2 refunds in one minute by everyone together): 2 refunds used, 0 refunds left; it opens again at {rfc3339(opens_at)}"
    )
    world.clock.advance(seconds=49, microseconds=999_999)
    assert (await world.steps.resume_held(ids[2])).status == "held"
    world.clock.advance(microseconds=1)
    assert (await world.steps.resume_held(ids[2])).status == "approved"
    await sent(world, ids[2])
    world.clock.advance(seconds=2)
    assert (await world.steps.resume_held(ids[3])).status == "held", "there is room for one: the other left a moment later"
    assert world.row(ids[3])["wake_at"] == opens_at + timedelta(seconds=10)
    assert used(world, "sent") == (3, 3_000)


async def test_what_a_stop_had_held_goes_out_at_the_pace_that_is_permitted(world: World) -> None:
    await world.policy(with_limits("name: pace, who: everyone, refunds: 2, window: 1m, taken: sent"))
    await shop(world, 5)
    ids = [(await asked(world, n))[0] for n in range(5)]
    await stop(world, stopped=True)
    assert {(await world.kept(one)).code for one in ids} == {"EMERGENCY_STOP"}
    await stop(world, stopped=False)

    went: list[int] = []
    for _ in range(3):
        for number, one in enumerate(ids):
            if world.row(one)["status"] == "held":
                await world.read(paid(world, number))
                await world.steps.resume_held(one)
            if world.row(one)["status"] == "approved" and isinstance(await world.attempt(one), tuple):
                went.append(number)
            world.clock.advance(seconds=1)  # each has its slot
        assert len(went) == used(world, "sent")[0]
        world.clock.advance(seconds=60)

    assert went == [0, 1, 2, 3, 4]
    opened = [row["opened_at"] for row in world.rows("SELECT opened_at FROM attempts ORDER BY opened_at")]
    assert all(later - earlier >= timedelta(minutes=1) for earlier, later in zip(opened, opened[2:], strict=False)), opened


async def test_what_a_stop_had_held_is_judged_anew_though_a_limit_keeps_it_waiting(world: World) -> None:
    await world.policy(with_limits("name: pace, who: everyone, refunds: 1, window: 1m, taken: sent"))
    await shop(world, 3)
    ids = [(await asked(world, n))[0] for n in range(3)]
    await stop(world, stopped=True)
    for one in ids:
        await world.kept(one)
    await stop(world, stopped=False)
    world.clock.advance(seconds=5)

    async def looks(number: int, risk: str = "normal") -> str:
        await world.read(paid(world, number), risk_level=risk)
        return (await world.steps.resume_held(ids[number])).status

    assert await looks(0) == "approved"
    await sent(world, ids[0])
    world.clock.advance(seconds=1)
    assert (await looks(1, "highest"), world.row(ids[1])["revision"]) == ("awaiting_review", 2), "a person sees that the risk has risen"
    world.clock.advance(seconds=1)
    assert (await looks(2), world.row(ids[2])["code"]) == ("held", "LIMIT_EXCEEDED"), "nothing is new about it, so it waits for its limit"
    world.clock.advance(seconds=61)
    assert (await world.steps.resume_held(ids[2])).status == "approved", "it was judged already, and only had to wait"


async def stop(world: World, *, stopped: bool) -> None:
    async with world.api.begin() as connection:
        await controls.change(connection, world.clock, stopped=stopped, mode=None, reason="test", actor=world.mia.principal_id)


async def test_who_waits_behind_others_looks_again_when_those_have_gone(world: World) -> None:
    await world.policy(with_limits("name: pace, who: everyone, refunds: 2, window: 1m, taken: sent"))
    await shop(world, 7)
    ids = [(await asked(world, n))[0] for n in range(7)]
    for one in ids[:2]:
        await sent(world, one)
    for one in ids[2:]:
        world.clock.advance(seconds=1)
        await world.kept(one)

    for one in ids[2:]:
        await world.steps.resume_held(one)

    first = world.row(ids[0])["status_since"] + timedelta(minutes=1)
    turns = [(world.row(one)["wake_at"] - first) // timedelta(minutes=1) for one in ids[2:]]
    assert turns == [0, 0, 1, 1, 2]


async def test_twenty_racing_sends_of_which_five_fit_are_five_attempts(world: World) -> None:
    await world.policy(with_limits("name: pace, who: everyone, amount: 10000.00, window: 1h, taken: sent"))
    await shop(world, 12, amount=200_000)
    ids = [(await asked(world, n, amount=200_000))[0] for n in range(12)]
    for one in ids:
        await world.consent(one) if world.row(one)["status"] == "awaiting_consent" else None
        await world.decide(one, world.mia)
    seen = [await world.submitting.standing(one) for one in ids]
    states = [await world.read(one.processor_payment, 200_000) for one in seen]

    opened = await asyncio.gather(*(world.submitting.open_attempt(one, state) for one, state in zip(seen, states, strict=True)))

    kept = [one for one in opened if isinstance(one, Situation)]
    assert Counter(s.code for s in kept) == {"LIMIT_EXCEEDED": 7}
    assert (world.count("attempts"), used(world, "sent")) == (5, (5, 1_000_000))
    assert (world.count("operations"), world.count("consumed_decisions")) == (5, 10), "of those without room everything was taken back"


async def test_refunds_made_outside_count_for_the_customer_and_for_everyone(world: World) -> None:
    await world.policy(
        with_limits(
            f"name: customer, who: customer, amount: 50.00, window: day, zone: UTC, {DENY}",
            f"name: all, who: everyone, amount: 70.00, window: day, zone: UTC, {DENY}",
        )
    )
    await shop(world, 3)
    await outside(world, 0, 3_000)

    same, other = (await asked(world, 0, amount=2_500))[1], (await asked(world, 1, amount=4_500))[1]
    fits = (await asked(world, 2, amount=4_000))[1]

    assert standing(world, same.refund, "customer")["used"] == 3_000
    assert (same.code, other.code, fits.code) == ("LIMIT_EXCEEDED", "LIMIT_EXCEEDED", "")
    assert standing(world, other.refund, "customer")["used"] == 0
    assert standing(world, other.refund, "all")["used"] == 3_000
    world.clock.advance(days=1)
    assert standing(world, (await asked_anew(world, 0, 2_500)).refund, "customer")["used"] == 0


async def outside(world: World, number: int, amount: int, currency: str = "USD") -> None:
    """A refund that somebody made in the processor's dashboard a moment ago, and that was then seen."""
    [payment] = world.rows("SELECT id FROM payments WHERE processor_payment = %s", paid(world, number))
    world.execute(
        "INSERT INTO processor_refunds (id, processor, payment_id, amount, currency, state, raw_state, created_at, first_seen_at, updated_at)"
        " VALUES (%s, 'stripe', %s, %s, %s, 'succeeded', 'succeeded', %s, %s, %s)",
        f"re_out{amount}{currency}",
        payment["id"],
        amount,
        currency,
        *[world.clock.at] * 3,
    )


async def asked_anew(world: World, number: int, amount: int) -> Situation:
    """Ask again on a payment that is read again first."""
    await world.read(paid(world, number))
    return (await asked(world, number, amount=amount))[1]


@pytest.mark.parametrize("rate", ["1.10", "0.000123", "149.37"])
async def test_what_somebody_returned_outside_in_another_currency_counts_as_the_rate_says(world: World, rate: str) -> None:
    await world.policy(with_limits(f"name: all, who: everyone, amount: 9000000.00, window: day, zone: UTC, {DENY}"))
    await shop(world, 1)
    expected = 0
    for currency, amount in (("EUR", 12_345), ("JPY", 12_345), ("KWD", 12_340)):
        async with world.api.begin() as connection:
            await rates.record(
                connection,
                world.clock,
                rate=Rate("USD", currency, rate),
                effective_at=None,
                source="test",
                principal_id=world.ann.principal_id,
            )
        world.clock.advance(seconds=1)
        await outside(world, 0, amount, currency)
        expected += Rate("USD", currency, rate).worth(Money(amount, currency)).amount

    _, seen = await asked(world, 0)

    assert standing(world, seen.refund, "all")["used"] == expected


async def test_a_reviewer_approves_as_much_as_one_may_and_no_more(world: World) -> None:
    await world.policy(
        with_limits(
            "name: reviewers, who: reviewer, refunds: 2, window: 24h", "name: sums, who: reviewer, amount: 500.00, window: day, zone: UTC"
        )
    )
    await shop(world, 5, amount=60_000)
    ids = [(await asked(world, n, amount=amount))[0] for n, amount in enumerate((15_000, 15_000, 15_000, 40_000, 15_000))]

    for one in ids[:2]:
        await world.decide(one, world.ann)
        await world.decide(one, world.ann)  # the same again is the same decision
    with pytest.raises(RefundError) as refused:
        await world.decide(ids[2], world.ann)
    await world.decide(ids[2], world.bob)
    with pytest.raises(RefundError) as above:
        await world.decide(ids[3], world.bob)

    assert (refused.value.code, refused.value.ids["limit"], refused.value.ids["used"], refused.value.ids["left"]) == (
        "REVIEWER_LIMIT",
        "reviewers",
        2,
        0,
    )
    assert refused.value.ids["opens_at"] == rfc3339(world.clock.at + timedelta(hours=24))
    assert (above.value.code, above.value.ids["limit"], above.value.ids["used"], above.value.ids["left"]) == (
        "REVIEWER_LIMIT",
        "sums",
        15_000,
        35_000,
    )
    await world.decide(ids[4], world.ann, verdict="deny")
    world.clock.advance(hours=23, minutes=59)
    assert world.count("decisions WHERE kind = 'review'") == 4


async def test_one_reviewer_who_clicks_ten_times_at_once_approves_one(world: World) -> None:
    await world.policy(with_limits("name: reviewers, who: reviewer, refunds: 1, window: 24h"))
    await shop(world, 8, amount=60_000)
    ids = [(await asked(world, n, amount=15_000))[0] for n in range(8)]

    said = await asyncio.gather(*(world.decide(one, world.ann) for one in ids), return_exceptions=True)

    codes = Counter(one.code if isinstance(one, RefundError) else "" for one in said)
    assert codes == {"": 1, Code.REVIEWER_LIMIT: 7}


async def test_a_second_account_of_a_reviewer_has_no_limit_of_its_own(world: World) -> None:
    await world.policy(with_limits("name: reviewers, who: reviewer, refunds: 1, window: 24h"))
    await shop(world, 8, amount=60_000)
    ids = [(await asked(world, n, amount=15_000))[0] for n in range(8)]
    second = await world.actor("Ann.", PrincipalKind.PERSON, Role.REVIEWER)

    said = await asyncio.gather(
        *(world.decide(one, who) for one, who in zip(ids, itertools.cycle((world.ann, second)), strict=False)), return_exceptions=True
    )

    codes = Counter(one.code if isinstance(one, RefundError) else "" for one in said)
    assert codes == {"": 1, Code.REVIEWER_LIMIT: 7}


async def test_field_52_a_limit_is_taken_once_however_often_it_is_replayed(world: World) -> None:
    await world.policy(with_limits("name: all, who: everyone, refunds: 100, window: month, zone: UTC"))
    await shop(world, 2)
    refund, _ = await asked(world, 0)
    over, _ = await asked(world, 1)
    for _ in range(3):
        await world.steps.prepare(refund)  # as a replay that lost its answers would
    await world.withdraw(over)
    rows = world.rows("SELECT * FROM limit_uses ORDER BY refund_id")
    assert [(row["refund_id"], row["given_back_at"] is None) for row in rows] == sorted([(refund, True), (over, False)])
    async with world.steps.database.begin() as connection:
        for row in rows * 5:
            given = {name: row[name] for name in ("revision", "processor", "amount", "currency", "base", "worth")}
            await store_limits.take(
                connection, world.row(row["refund_id"]), Stage.RESERVED, at=world.clock.at + timedelta(hours=1), **given
            )

    assert used(world) == (1, 1_000)
    assert world.rows("SELECT * FROM limit_uses ORDER BY refund_id") == rows, "nor is what was given back taken again"
    await sent(world, refund)
    seen = await world.submitting.standing(refund)
    again = await world.submitting.open_attempt(seen, await world.read(seen.processor_payment))
    assert isinstance(again, Situation)
    assert used(world, "sent") == (1, 1_000)


async def test_warnings_come_from_the_set_share_on_and_people_are_told_once_a_window(world: World) -> None:
    await world.policy(with_limits("name: all, who: everyone, refunds: 4, window: day, zone: UTC, taken: reserved, warn_at_percent: 50"))
    await shop(world, 5)

    warned = [standing(world, (await asked(world, n))[0], "all")["warns"] for n in range(4)]
    world.clock.advance(days=1)
    for _ in range(2):
        await asked_anew(world, 4, 1_000)

    assert warned == [False, True, True, True]
    told = world.rows("SELECT body FROM outbox WHERE body ->> 'kind' = 'limit_warning' ORDER BY id")
    assert [row["body"]["used"] for row in told] == [2, 2]
