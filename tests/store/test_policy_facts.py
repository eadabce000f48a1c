"""The facts of a policy as they are gathered and recorded: who asks, how fast, when, what fits, and what an order states (promise P11)."""

from datetime import UTC, datetime, timedelta
from typing import Any

from refunds.fitting import payer_of
from refunds.people import PrincipalKind, Role
from refunds.policy import sample_policy_text
from refunds.requests import GroupRequest
from store import groups
from tests.store.world import World


def recorded(world: World, refund_id: str) -> dict[str, Any]:
    [row] = world.rows("SELECT facts, decision FROM revisions WHERE refund_id = %s ORDER BY revision DESC LIMIT 1", refund_id)
    return row


def facts(world: World, refund_id: str) -> dict[str, Any]:
    return recorded(world, refund_id)["facts"]


def result(world: World, refund_id: str, check: str) -> str:
    [found] = [one for one in recorded(world, refund_id)["decision"]["checks"] if one["id"] == check]
    return found["result"]


async def test_who_asks_is_a_fact_and_no_name_is(world: World) -> None:
    await world.ready()
    refund, _ = await world.quoted()
    assert facts(world, refund)["requester"] == {"kind": "service", "age_days": 0, "person_named": False}
    assert facts(world, refund)["agent"] == {"known": None, "allowed": None, "age_days": None, "session_named": None}


async def test_an_agent_that_asks_is_known_and_has_an_age_and_one_that_was_blocked_since_is_not_allowed(world: World) -> None:
    bot = await world.actor("bot", PrincipalKind.AGENT, Role.REQUESTER)
    world.clock.advance(days=3)
    await world.ready()
    refund, _ = await world.quoted(actor=bot, amount=1_000, requested_by="Kim Lee", agent_session_id="s-1")
    assert facts(world, refund)["agent"] == {"known": True, "allowed": True, "age_days": 3, "session_named": True}
    assert facts(world, refund)["requester"] == {"kind": "agent", "age_days": 3, "person_named": True}
    assert "bot" not in str(facts(world, refund)["requester"]) + str(facts(world, refund)["agent"])

    world.execute("UPDATE principals SET disabled_at = %s WHERE handle = 'bot'", world.clock.now())
    await world.revise(refund, world.ann, amount=900)
    assert facts(world, refund)["agent"]["allowed"] is False


async def test_velocity_counts_requests_of_the_customer_by_whomever_and_whatever_became_of_them(world: World) -> None:
    await world.ready()
    await world.order("order-2", "customer-2")
    for minutes in (-59, -60, -1_439, -1_440):
        world.clock.advance(minutes=minutes)
        await world.accept(actor=await world.actor(f"bot{minutes}", PrincipalKind.AGENT, Role.REQUESTER))
        world.clock.advance(minutes=-minutes)
    _, situation = await world.quoted(amount=20_000)
    assert situation.status == "denied"
    refund, _ = await world.quoted(amount=1_200)
    customer = facts(world, refund)["customer"]
    assert (customer["requests_hour"], customer["requests_day"]) == (2, 4)
    assert customer["refunds"] == 0


async def test_too_many_requests_are_looked_at_with_the_number_shown(world: World) -> None:
    await world.policy(sample_policy_text().replace("requests_per_hour_above: 20", "requests_per_hour_above: 2", 1))
    await world.ready()
    ids = [(await world.quoted(amount=100 + n))[0] for n in range(3)]
    assert [result(world, refund, "velocity") for refund in ids] == ["pass", "pass", "require_review"]


async def test_a_group_was_asked_for_once_however_many_parts_it_has(world: World) -> None:
    for payment in await world.order(amounts=(2_000, 3_000)):
        await world.read(payment, 2_000)
    request = GroupRequest.model_validate({"order_id": "order-1", "customer_id": "customer-1", "amount": 4_000, "currency": "USD"})
    async with world.api.begin() as connection:
        await groups.accept(connection, world.clock, world.texts, actor=world.desk, key="group", request=request, readings={})
    parts = world.rows("SELECT id FROM refunds WHERE group_id IS NOT NULL ORDER BY id")
    assert len(parts) == 2
    for part in parts:
        await world.steps.prepare(part["id"])
        assert facts(world, part["id"])["customer"]["requests_hour"] == 0


async def test_the_time_is_when_it_was_asked_for_and_not_when_it_is_quoted(world: World) -> None:
    await world.ready()
    refund = await world.accept()
    asked: datetime = world.row(refund)["created_at"].astimezone(UTC)
    world.clock.advance(hours=5)
    await world.read(world.rows("SELECT processor_payment AS p FROM payments")[0]["p"])
    await world.steps.prepare(refund)
    time = facts(world, refund)["time"]
    assert (time["zone"], time["hour"]) == ("UTC", asked.hour)
    assert time["weekday"] == asked.strftime("%A").lower()


async def test_what_an_order_states_is_recorded_with_the_refund(world: World) -> None:
    [payment] = await world.order(legal_entity="Shop GmbH", customer_type="business", geography="DE-BY")
    await world.read(payment, country="DE")
    refund, _ = await world.quoted()
    order, governance = facts(world, refund)["order"], recorded(world, refund)["decision"]["governance"]
    stated = {"legal_entity": "Shop GmbH", "customer_type": "business", "geography": "DE-BY"}
    assert {name: order[name] for name in stated} == {name: governance[name] for name in stated} == stated
    assert order["id"] == world.row(refund)["order_id"]
    assert governance["approval_owner"] == "Head of customer service"
    assert facts(world, refund)["payment"]["country_matches"] is True


async def test_another_customer_at_the_processor_means_a_person_and_neither_id_is_kept_with_the_facts(world: World) -> None:
    named = {"id": "pi_named", "amount": 10_000, "currency": "USD", "processor_customer": "cus_ours"}
    await world.order(payments=[named])
    await world.read("pi_named", payer=payer_of("cus_theirs"), failed_checks=("cvc",))
    refund, situation = await world.quoted()
    assert situation.status == "awaiting_review"
    assert facts(world, refund)["payment"]["customer_matches"] is False
    assert result(world, refund, "mismatch") == "require_review"
    assert "cus_" not in str(recorded(world, refund))


async def test_a_tier_of_drafts_ends_drafted_and_nothing_is_sent(world: World) -> None:
    await world.policy(sample_policy_text().replace("    title: Small and clear\n", "    title: Small and clear\n    draft: true\n", 1))
    await world.ready()
    _, situation = await world.quoted()
    assert situation.status == "drafted"
    assert world.count("operations") == 0
    larger, waits = await world.quoted(amount=6_000, reason="wrong_item", customer_authentication=None)
    assert waits.status != "drafted", larger


async def test_deadlines_of_a_ladder_in_business_hours_count_only_open_time(world: World) -> None:
    office = "calendars:\n  office:\n    zone: Europe/Berlin\n    hours: { monday: [09:00-17:00], friday: [09:00-17:00] }\n\n"
    text = sample_policy_text().replace("# How long after delivery a refund", office + "# How long after delivery a refund", 1)
    text = text.replace("        decide_within: 24h\n", "        decide_within: 24h\n        hours: office\n", 1)
    await world.policy(text)
    world.clock.at = datetime(2026, 6, 5, 8, tzinfo=UTC)  # a Friday, 10:00 in Berlin
    await world.ready(captured=60_000)
    refund, situation = await world.quoted(amount=20_000)
    assert situation.status == "awaiting_review"
    row = world.row(refund)
    assert row["review_by"] == datetime(2026, 6, 15, 8, tzinfo=UTC)  # 7 h on that Friday, 8 on Monday, 8 on Friday, 1 on Monday
    assert row["wake_at"] == datetime(2026, 6, 5, 12, tzinfo=UTC)
    [terms] = world.rows("SELECT expires_at FROM revisions WHERE refund_id = %s", refund)
    assert terms["expires_at"] == datetime(2026, 6, 15, 8, tzinfo=UTC) + timedelta(hours=48)
