"""Discrepancies: one row for one difference, and what happens to it."""

import asyncio
from typing import Any

from refunds.discrepancies import Kind, Standing
from store import discrepancies
from tests.store.world import World


async def noted(world: World, **changed: Any) -> bool:
    """Record a difference over the login that finds them."""
    given: dict[str, Any] = {
        "kind": Kind.AMOUNT,
        "processor": "stripe",
        "processor_refund": "re_1",
        "evidence": {"ours": {"amount": 3_000}, "theirs": {"amount": 2_999}},
    }
    async with world.payments.begin() as connection:
        return await discrepancies.note(connection, world.clock.now(), **(given | changed))


def entries(world: World, *types: str) -> list[dict[str, Any]]:
    return world.rows("SELECT * FROM ledger WHERE type = ANY(%s) ORDER BY id", list(types))


def notices(world: World) -> list[dict[str, Any]]:
    return [row["body"] for row in world.rows("SELECT body FROM outbox WHERE kind = 'notice' ORDER BY id")]


async def test_a_difference_is_one_row_one_entry_and_one_notice_however_often_it_is_seen(world: World) -> None:
    assert await noted(world)
    world.clock.advance(hours=1)
    assert [await noted(world) for _ in range(3)] == [False, False, False]
    [row] = world.rows("SELECT * FROM discrepancies")
    assert (row["kind"], row["state"], row["processor_refund"]) == ("amount", "open", "re_1")
    assert row["evidence"] == {"ours": {"amount": 3_000}, "theirs": {"amount": 2_999}}
    assert (row["last_seen_at"] - row["first_seen_at"]).total_seconds() == 3_600
    [entry] = entries(world, "discrepancy_found")
    assert (entry["data"]["discrepancy"], entry["data"]["difference"], entry["refund_id"]) == (row["id"], "amount", None)
    [notice] = notices(world)
    assert notice["kind"] == "discrepancy_found"
    assert notice["runbook"] == "docs/runbooks/discrepancies.md#amount"


async def test_other_kinds_and_other_refunds_are_other_differences(world: World) -> None:
    assert await noted(world)
    assert await noted(world, kind=Kind.CURRENCY)
    assert await noted(world, processor_refund="re_2")
    assert await noted(world, operation_id="op_1")
    assert world.count("discrepancies") == 4


async def test_many_at_once_make_one_row(world: World) -> None:
    first = await asyncio.gather(*(noted(world) for _ in range(12)))
    assert sorted(first) == [False] * 11 + [True]
    assert (world.count("discrepancies"), len(notices(world)), len(entries(world, "discrepancy_found"))) == (1, 1, 1)


async def test_what_explains_itself_is_found_as_explained_and_stays_so(world: World) -> None:
    assert await noted(world, kind=Kind.EXTERNAL, standing=Standing.EXPLAINED)
    assert not await noted(world, kind=Kind.EXTERNAL, standing=Standing.EXPLAINED, evidence={"theirs": {"amount": 5}})
    [row] = world.rows("SELECT * FROM discrepancies")
    assert (row["state"], row["evidence"]) == ("explained", {"theirs": {"amount": 5}})


async def test_an_explained_difference_is_open_again_when_its_evidence_changes_and_not_before(world: World) -> None:
    await noted(world)
    world.execute("UPDATE discrepancies SET state = 'explained'")
    await noted(world)
    assert world.rows("SELECT state FROM discrepancies") == [{"state": "explained"}]
    await noted(world, evidence={"ours": {"amount": 3_000}, "theirs": {"amount": 1}})
    assert world.rows("SELECT state FROM discrepancies") == [{"state": "open"}]
    assert [entry["type"] for entry in entries(world, "discrepancy_found", "discrepancy_reopened")] == [
        "discrepancy_found",
        "discrepancy_reopened",
    ]
    assert [notice["kind"] for notice in notices(world)] == ["discrepancy_found", "discrepancy_reopened"]


async def test_a_closed_difference_that_is_seen_again_is_a_new_one(world: World) -> None:
    await noted(world)
    world.execute("UPDATE discrepancies SET state = 'closed'")
    assert await noted(world)
    assert [row["state"] for row in world.rows("SELECT state FROM discrepancies ORDER BY id")] == ["closed", "open"]
