"""Likely duplicates, from any channel or agent, go to a person with both shown (field report 73); honest wishes that only look alike from afar do not."""

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import pytest

from refunds.classification import Classification, Intent, Proposal, Reading, Source
from refunds.requests import Ticket
from refunds.status import Status
from tests.store.world import World

TICKET = {"metadata": {"ticket_id": "T-1001"}}
SESSION = {"agent_session_id": "session-1"}
WORDS = {"message": "My mug arrived in pieces,\n please refund it."}


async def quoted(world: World, **fields: Any) -> tuple[str, str]:
    """A refund and its status, quoted after what its message says was read without any doubt."""
    refund_id = await world.accept(world.request(**fields))
    if "message" in fields:
        reading = Reading(intent=Intent.REFUND, confidence=100, proposal=Proposal.APPROVE)
        await world.classifying.save(
            refund_id,
            Classification(reading=reading, source=Source.MODEL, classifier="test", model="test", version="1", prompt_hash="0" * 64),
        )
    return refund_id, (await world.steps.prepare(refund_id)).status


async def like(world: World, refund_id: str) -> str | None:
    return world.row(refund_id)["possible_duplicate_of"]


@pytest.mark.parametrize(
    ("first", "second"),
    [
        pytest.param(TICKET, TICKET | {"channel": "email"}, id="ticket"),
        pytest.param(TICKET, {"metadata": {"ticket": " t-1001 "}}, id="ticket under its other name, in other letters"),
        pytest.param(SESSION, SESSION, id="agent session"),
        pytest.param(WORDS, {"message": "MY MUG arrived in pieces, please refund it. "}, id="words"),
    ],
)
async def test_field_73_the_same_ticket_with_another_amount_goes_to_a_person(
    world: World, first: dict[str, Any], second: dict[str, Any]
) -> None:
    await world.ready()
    one, status = await quoted(world, amount=2_000, **first)
    assert status == Status.APPROVED

    other, status = await quoted(world, amount=1_500, **second)

    assert (status, await like(world, other)) == (Status.AWAITING_REVIEW, one)
    [row] = world.rows("SELECT decision FROM revisions WHERE refund_id = %s", other)
    [check] = [check for check in row["decision"]["checks"] if check["id"] == "duplicate"]
    assert (check["result"], check["observed"]) == ("require_review", f"like {one}")


async def test_the_same_amount_of_another_payment_of_the_order_may_be_the_same_wish(world: World) -> None:
    one_payment, other_payment = await world.order(amounts=(5_000, 5_000))
    for payment in (one_payment, other_payment):
        await world.read(payment, 5_000)
    one, _ = await world.quoted(payment_id=one_payment, amount=2_000)

    other, seen = await world.quoted(payment_id=other_payment, amount=2_000)

    assert (seen.status, await like(world, other)) == (Status.AWAITING_REVIEW, one)


@pytest.mark.parametrize(
    "second",
    [
        pytest.param({"amount": 1_500}, id="another amount"),
        pytest.param({"amount": 1_500, "metadata": {"ticket_id": "T-1002"}}, id="another ticket"),
        pytest.param({"amount": 1_500, "metadata": {"note": "T-1001"}}, id="metadata that names no ticket"),
        pytest.param({"amount": 1_500, "agent_session_id": "T-1001"}, id="a session that is called like the ticket"),
    ],
)
async def test_two_honest_wishes_are_two(world: World, second: Mapping[str, Any]) -> None:
    await world.ready()
    await world.quoted(amount=2_000, **TICKET)

    other, seen = await world.quoted(**second)

    assert (seen.status, await like(world, other)) == (Status.APPROVED, None)


async def test_one_ticket_about_two_orders_is_two_wishes(world: World) -> None:
    for number in (1, 2):
        [payment] = await world.order(f"order-{number}")
        await world.read(payment)
    await world.quoted(order_id="order-1", amount=2_000, **TICKET)

    other, seen = await world.quoted(order_id="order-2", amount=2_000, **TICKET)

    assert (seen.status, await like(world, other)) == (Status.APPROVED, None)


@pytest.mark.parametrize(("later", "alike"), [(timedelta(hours=24) - timedelta(seconds=1), True), (timedelta(hours=24), False)])
async def test_what_lies_longer_back_than_the_policy_says_is_another_wish(world: World, later: timedelta, alike: bool) -> None:
    payment = await world.ready()
    one, _ = await world.quoted(amount=2_000, **TICKET)
    world.clock.advance(seconds=later.total_seconds())
    await world.read(payment)

    other, _ = await world.quoted(amount=2_000, **TICKET)

    assert await like(world, other) == (one if alike else None)


async def test_what_came_to_nothing_is_repeated_and_not_doubled(world: World) -> None:
    await world.ready()
    one, _ = await world.quoted(amount=2_000, **TICKET)
    await world.withdraw(one)

    other, seen = await world.quoted(amount=2_000, **TICKET)

    assert (seen.status, await like(world, other)) == (Status.APPROVED, None)


async def test_what_tells_a_ticket_again_is_kept_as_a_keyed_fingerprint(world: World) -> None:
    await world.ready()
    ticket = Ticket(customer_id="customer-1", message=WORDS["message"], metadata=TICKET["metadata"])

    refund_id = await world.accept(ticket)

    kept = world.row(refund_id)["details"]["alike"]
    assert [len(mark) for mark in kept] == [64, 64]
    assert "T-1001" not in str(world.row(refund_id)) and "mug" not in str(world.row(refund_id))
