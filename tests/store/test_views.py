"""What is shown of refunds: whose, in which order, and never as pending what nobody can answer in time any more."""

from datetime import timedelta
from typing import Any

import pytest

from refunds.errors import Code, RefundError
from refunds.people import PrincipalKind, Role
from store import views
from tests.store.world import World


async def listed(world: World, *, limit: int = 50, **filters: Any) -> list[str]:
    async with world.api.begin() as connection:
        return [row["id"] for row in await views.page(connection, views.Filters(**filters), limit=limit, now=world.clock.now())]


async def test_field_57_the_pending_list_leaves_out_what_has_expired(world: World) -> None:
    await world.ready(captured=100_000)
    refund, seen = await world.quoted(amount=60_000)
    deadline = world.clock.at + timedelta(hours=48)
    assert (seen.status, seen.review_by) == ("awaiting_review", deadline)

    for at, pending in ((deadline - timedelta(microseconds=1), [refund]), (deadline, [])):
        world.clock.at = at
        assert await listed(world, queue="managers") == pending
        assert await listed(world, status="awaiting_review") == pending
        assert await listed(world) == [refund]


async def test_a_page_goes_on_where_the_one_before_ended(world: World) -> None:
    await world.order()
    ids = []
    for _ in range(5):
        ids.append(await world.accept())
        world.clock.advance(seconds=1)
    newest_first = ids[::-1]

    first = await listed(world, limit=2)
    last = world.row(first[-1])
    rest = await listed(world, after=(last["created_at"], last["id"]))

    assert first + rest == newest_first


async def test_a_page_at_one_instant_leaves_nothing_out(world: World) -> None:
    await world.order()
    ids = {await world.accept() for _ in range(5)}

    first = await listed(world, limit=2)
    last = world.row(first[-1])

    assert set(first + await listed(world, after=(last["created_at"], last["id"]))) == ids


@pytest.mark.parametrize(
    ("filters", "found"),
    [
        ({"order_ref": "order-1"}, 1),
        ({"order_ref": "order-2"}, 1),
        ({"customer_ref": "customer-1"}, 1),
        ({"customer_ref": "customer-3"}, 0),
        ({"agent_id": "helper"}, 1),
        ({"status": "received"}, 2),
        ({"status": "succeeded"}, 0),
        ({"order_ref": "' OR 1=1 --"}, 0),
    ],
)
async def test_filters(world: World, filters: dict[str, Any], found: int) -> None:
    helper = await world.actor("helper", PrincipalKind.AGENT, Role.REQUESTER)
    await world.order("order-1", "customer-1")
    await world.order("order-2", "customer-2")
    await world.accept()
    await world.accept(world.request(order_id="order-2", customer_id="customer-2"), actor=helper)

    assert len(await listed(world, **filters)) == found


async def test_another_integration_sees_nothing(world: World) -> None:
    await world.ready()
    refund, _ = await world.quoted(amount=2_000)

    async with world.api.begin() as connection:
        seen = await views.refund(connection, refund, integration=world.desk.integration, now=world.clock.now())
        assert seen.row["id"] == refund
        for integration in ("somebody-else", ""):
            with pytest.raises(RefundError) as unseen:
                await views.refund(connection, refund, integration=integration, now=world.clock.now())
            assert unseen.value.code is Code.REFUND_NOT_FOUND
    assert await listed(world, integration="somebody-else") == []


async def test_field_15_everybody_shows_one_figure_for_what_is_left(world: World) -> None:
    await world.ready(captured=10_000)
    first, _ = await world.quoted(amount=6_000)
    second, _ = await world.quoted(amount=3_000)

    async with world.api.begin() as connection:
        figures = [(await views.refund(connection, refund, integration=None, now=world.clock.now())).figures for refund in (first, second)]

    # Each without itself: what it could be changed to.
    assert [f.remaining for f in figures if f is not None] == [7_000, 4_000]
