"""Where fields came from is kept with every revision, on real PostgreSQL."""

from typing import Any

import pytest

from refunds.errors import Code, RefundError
from refunds.people import PrincipalKind, Role
from tests.store.world import World


async def by_revision(world: World, refund: str) -> list[dict[str, Any]]:
    return [row["sources"] for row in world.rows("SELECT sources FROM revisions WHERE refund_id = %s ORDER BY revision", refund)]


async def test_each_revision_says_where_its_fields_came_from_and_the_ones_before_still_do(world: World) -> None:
    await world.ready(captured=100_000)
    refund, _ = await world.quoted(amount=20_000)
    await world.revise(refund, world.ann, reason="other")
    await world.revise(refund, world.bob, amount=15_000, sources={"amount": "verified_document"})

    first, second, third = await by_revision(world, refund)

    assert (first["amount"], first["reason"], first["payment"], first["destination"]) == (
        "customer",
        "customer",
        "system_of_record",
        "processor",
    )
    assert second == first | {"reason": "person"}
    assert third == second | {"amount": "verified_document", "currency": "person"}
    assert world.row(refund)["sources"] == third
    assert [e["data"]["sources"] for e in world.ledger(refund) if e["type"] == "quoted"] == [first, second, third]


async def test_an_agent_cannot_vouch_for_where_a_field_comes_from(world: World) -> None:
    await world.ready()
    agent = await world.actor("bot", PrincipalKind.AGENT, Role.REQUESTER)

    with pytest.raises(RefundError) as refused:
        await world.accept(world.request(sources={"amount": "verified_document"}), actor=agent)

    assert refused.value.code is Code.INVALID_FIELD
    assert world.count("refunds") == 0
