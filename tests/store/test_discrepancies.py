"""Discrepancies: one row for one difference, and what happens to it."""

import asyncio
from typing import Any

import psycopg
import pytest

from refunds.discrepancies import Kind, Standing
from refunds.people import PrincipalKind, Role
from store import brakes, discrepancies, judging
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


async def test_other_refunds_and_other_operations_without_one_are_other_differences(world: World) -> None:
    assert await noted(world)
    assert await noted(world, processor_refund="re_2")
    assert await noted(world, processor_refund=None, operation_id="op_1")
    assert await noted(world, processor_refund=None, operation_id="op_2")
    assert world.count("discrepancies") == 4


async def test_many_at_once_make_one_row(world: World) -> None:
    first = await asyncio.gather(*(noted(world) for _ in range(12)))
    assert sorted(first) == [False] * 11 + [True]
    assert (world.count("discrepancies"), len(notices(world)), len(entries(world, "discrepancy_found"))) == (1, 1, 1)


def kinds(world: World) -> list[tuple[str, str]]:
    return [(row["kind"], row["state"]) for row in world.rows("SELECT kind, state FROM discrepancies ORDER BY first_seen_at, id")]


async def test_what_turns_out_to_be_worse_is_one_open_discrepancy_that_says_so(world: World) -> None:
    olga = await world.actor("olga", PrincipalKind.PERSON, Role.OPERATOR)
    await noted(world, kind=Kind.STATUS)
    [old] = world.rows("SELECT id FROM discrepancies")
    async with world.api.begin() as connection:
        await judging.change(connection, world.clock, olga, old["id"], owner="olga", standing=None, note="I ask the bank.")
    world.clock.advance(hours=1)

    assert await noted(world, kind=Kind.PAYMENT)
    assert not await noted(world, kind=Kind.PAYMENT)

    assert kinds(world) == [("status", "closed"), ("payment", "open")]
    was, now = world.rows("SELECT * FROM discrepancies ORDER BY first_seen_at, id")
    assert "bank" not in was["note"]
    async with world.api.begin() as connection:
        [shown] = await judging.page(connection, judging.Filters(id=was["id"]), limit=1)
    assert shown["note"] == f"I ask the bank.\nClosed by the orchestrator: it turned out to be payment, see {now['id']}."
    [said] = [entry for entry in entries(world, "discrepancy_changed") if entry["actor"] == olga.principal_id]
    assert set(said["commitments"]) == {"note"}
    assert (was["closed_at"], was["closed_by"], now["owner_id"]) == (world.clock.now(), None, olga.principal_id)
    closing = [entry for entry in entries(world, "discrepancy_changed") if entry["actor"] == "system"]
    assert [(entry["data"]["discrepancy"], entry["data"]["replaced_by"]) for entry in closing] == [(was["id"], now["id"])]
    assert len(entries(world, "discrepancy_found")) == len([n for n in notices(world) if n["kind"] == "discrepancy_found"]) == 2


async def test_what_is_weaker_is_the_same_discrepancy_seen_again(world: World) -> None:
    await noted(world, kind=Kind.PAYMENT)
    world.clock.advance(hours=1)
    assert not await noted(world, kind=Kind.DUPLICATE, operation_id="op_1")
    [row] = world.rows("SELECT * FROM discrepancies")
    assert (row["kind"], row["state"], row["last_seen_at"]) == ("payment", "open", world.clock.now())
    assert len(entries(world, "discrepancy_found")) == 1


async def test_an_explained_one_stays_as_somebody_left_it(world: World) -> None:
    await noted(world, kind=Kind.EXTERNAL, standing=Standing.EXPLAINED)
    world.clock.advance(hours=1)
    assert await noted(world, kind=Kind.AMOUNT)
    assert kinds(world) == [("external", "explained"), ("amount", "open")]


@pytest.mark.parametrize("kind", sorted(set(Kind) - {Kind.UNKNOWN_OPERATION}))
async def test_what_holds_its_payment_is_closed_by_nothing_but_a_person(world: World, kind: Kind) -> None:
    await noted(world, kind=Kind.UNKNOWN_OPERATION, operation_id="op_1")
    world.clock.advance(hours=1)
    assert not await noted(world, kind=kind)
    assert kinds(world) == [("unknown_operation", "open")]


async def test_two_kinds_at_once_are_one_open_discrepancy(world: World) -> None:
    """The sweep and a look notice the same refund in the same moment, and each sees something else in it."""
    both = (Kind.AMOUNT, Kind.PAYMENT, Kind.UNKNOWN_PAYMENT, Kind.UNKNOWN_OPERATION)
    await asyncio.gather(*(noted(world, kind=both[turn % 4]) for turn in range(12)))
    assert [kind for kind, state in kinds(world) if state == "open"] == ["unknown_operation"]


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


async def test_a_forgotten_refund_holds_its_payment_until_it_is_closed_and_not_only_explained(world: World) -> None:
    await world.order(amounts=(10_000, 5_000))
    first, second = (row["id"] for row in world.rows("SELECT id FROM payments ORDER BY id"))
    olga = await world.actor("olga", PrincipalKind.PERSON, Role.OPERATOR)
    await noted(world, kind=Kind.UNKNOWN_OPERATION, payment_id=first, operation_id="op_1")
    await noted(world, kind=Kind.UNKNOWN_OPERATION, payment_id=first, operation_id="op_2", processor_refund="re_2")
    await noted(world, kind=Kind.EXTERNAL, payment_id=second, processor_refund="re_3", standing=Standing.EXPLAINED)
    held, other = (row["id"] for row in world.rows("SELECT id FROM discrepancies WHERE kind = 'unknown_operation' ORDER BY id"))

    async def judged(which: str, standing: Standing) -> list[str | None]:
        async with world.api.begin() as connection:
            await judging.change(connection, world.clock, olga, which, owner=None, standing=standing, note="looked")
        return await held_for()

    async def held_for() -> list[str | None]:
        """The discrepancy that each payment is held for."""
        async with world.submitting.database.read() as connection:
            found = [await brakes.of_payment(connection, payment, besides="rf_1") for payment in (first, second)]
        return [None if brake is None else next(name for name in (held, other) if name in brake[1]) for brake in found]

    assert await held_for() == [held, None]
    assert await judged(held, Standing.EXPLAINED) == [held, None]
    assert await judged(held, Standing.CLOSED) == [other, None], "the payment is held for the other one now"
    assert await judged(other, Standing.CLOSED) == [None, None]


async def test_only_the_logins_that_find_and_judge_may_write_them(world: World) -> None:
    await noted(world)
    for login, statement in (
        ("refunds_api", "INSERT INTO discrepancies SELECT * FROM discrepancies"),
        ("refunds_api", "UPDATE discrepancies SET evidence = '{}'"),
        ("refunds_api", "DELETE FROM discrepancies"),
        ("refunds_payments", "DELETE FROM discrepancies"),
        ("refunds_payments", "UPDATE halts SET lifted_at = now()"),
        ("refunds_worker", "UPDATE discrepancies SET state = 'closed'"),
        ("refunds_classify", "SELECT * FROM reconciliations"),
    ):
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            world.execute(statement, login=login)
