"""Retention: what has had its time goes, by kind; nothing of an open refund, and nothing that the ledger or the accounts need."""

from typing import Any

import pytest

from refunds.discrepancies import Kind, Standing
from refunds.people import PrincipalKind, Role
from refunds.retention import Kept
from store import discrepancies, grants, judging
from store.retention import Retention
from tests.store.world import World

EVERY_TEXT = {"message": "words", "agent_reasoning": "words", "conversation_context": "words"}

BROUGHT_ABOUT = ("refunds_api: insert texts",)
"""Texts of any age are put there by the tests, without what would bring them."""


def retention(world: World, by: str = grants.WORKER, /, **days: int) -> Retention:
    """The periods applied over the login of the worker, which is what the schedule does; what is not named has none."""
    periods = {f"retention_{kind}_days": days.get(kind.value, 0) for kind in Kept}
    return Retention(world._pool(by), world.settings.model_copy(update=periods))  # pyright: ignore[reportPrivateUsage]


async def over(world: World, **more: Any) -> str:
    """A refund with every kind of text that was withdrawn."""
    refund_id = await world.accept(world.request(**(EVERY_TEXT | more)))
    for kind in ("reading", "note:dec_1", "evidence:ev_1"):
        async with world.api.begin() as connection:
            customer = world.row(refund_id)["customer_id"]
            await world.texts.write(connection, refund_id=refund_id, customer_id=customer, values={kind: "words"})
    await world.withdraw(refund_id)
    assert world.row(refund_id)["final_at"] is not None
    return refund_id


def kinds(world: World, refund_id: str) -> set[str]:
    return {row["kind"] for row in world.rows("SELECT kind FROM texts WHERE refund_id = %s", refund_id)}


def removals(world: World) -> list[tuple[str, int]]:
    rows = world.rows("SELECT data FROM ledger WHERE type = 'retention_applied' ORDER BY id")
    return [(row["data"]["kind"], row["data"]["removed"]) for row in rows]


@pytest.mark.parametrize(
    ("kind", "gone"),
    [
        ("messages", {"message", "agent_reasoning"}),
        ("conversations", {"conversation"}),
        ("readings", {"reading"}),
        ("notes", {"note:dec_1", "evidence:ev_1"}),
    ],
)
async def test_each_kind_goes_when_its_time_is_over_and_not_a_moment_before(world: World, kind: str, gone: set[str]) -> None:
    await world.ready()
    refund_id = await over(world)
    everything = kinds(world, refund_id)
    before = world.row(refund_id)

    world.clock.advance(days=10)
    early = await retention(world, **{kind: 10}).run()
    world.clock.advance(seconds=1)
    done = await retention(world, **{kind: 10}).run()
    again = await retention(world, **{kind: 10}).run()

    assert (early.removed, early.id) == ({}, None)
    assert done.removed == {Kept(kind): len(gone)}
    assert again.removed == {}
    assert kinds(world, refund_id) == everything - gone
    assert removals(world) == [(kind, len(gone))]
    assert world.row(refund_id) == before, "the refund itself is as it was"


async def test_nothing_of_a_refund_that_is_under_way_is_touched(world: World) -> None:
    await world.ready()
    refund_id = await world.accept(world.request(**EVERY_TEXT))
    before = world.row(refund_id), kinds(world, refund_id)

    world.clock.advance(days=4_000)
    done = await retention(world, **{kind.value: 1 for kind in Kept}).run()

    assert done.removed == {}
    assert (world.row(refund_id), kinds(world, refund_id)) == before
    assert removals(world) == []


async def test_a_text_written_later_has_a_time_of_its_own(world: World) -> None:
    await world.ready()
    refund_id = await over(world)
    world.clock.advance(days=9)
    async with world.api.begin() as connection:
        customer = world.row(refund_id)["customer_id"]
        await world.texts.write(connection, refund_id=refund_id, customer_id=customer, values={"note:dec_2": "later"})

    world.clock.advance(days=2)
    await retention(world, notes=10).run()

    assert {"note:dec_2"} == {kind for kind in kinds(world, refund_id) if kind.startswith("note:")}


async def test_a_dry_run_counts_and_takes_nothing(world: World) -> None:
    await world.ready()
    refund_id = await over(world)
    everything = kinds(world, refund_id)
    world.clock.advance(days=400)

    counted = await retention(world, messages=30, notes=30, fingerprints=30).run(dry_run=True)

    assert counted.removed == {Kept.MESSAGES: 2, Kept.NOTES: 2, Kept.FINGERPRINTS: 1}
    assert counted.id is None
    assert kinds(world, refund_id) == everything
    assert removals(world) == []


async def test_a_fingerprint_goes_and_the_key_is_still_refused_for_anything_new(world: World) -> None:
    await world.ready()
    request = world.request()
    refund_id = await world.accept(request, key="once")
    await world.withdraw(refund_id)
    world.clock.advance(days=31)

    done = await retention(world, fingerprints=30).run()

    assert done.removed == {Kept.FINGERPRINTS: 1}
    assert world.row(refund_id)["body_hash"] == ""
    with pytest.raises(Exception, match="IDEMPOTENCY_KEY_REUSED"):
        await world.accept(request, key="once")
    assert world.count("refunds") == 1


async def test_events_keep_their_ids_and_lose_what_they_said(world: World) -> None:
    columns = "(id, processor, type, livemode, facts, created_at, received_at, state, due_at, done_at)"
    for name, state in (("old", "done"), ("ignored", "ignored"), ("waiting", "waiting"), ("unmatched", "unmatched")):
        done = None if state == "waiting" else world.clock.now()
        world.execute(
            f"INSERT INTO events {columns} VALUES (%s, 'stripe', 'refund.updated', false, '{{\"amount\": 5}}', %s, %s, %s, %s, %s)",
            *(f"evt_{name}", world.clock.now(), world.clock.now(), state, world.clock.now(), done),
        )
    world.clock.advance(days=91)

    done = await retention(world, events=90).run()

    assert done.removed == {Kept.EVENTS: 2}
    facts = {row["id"]: row["facts"] for row in world.rows("SELECT id, facts FROM events")}
    assert facts == {"evt_old": {}, "evt_ignored": {}, "evt_waiting": {"amount": 5}, "evt_unmatched": {"amount": 5}}


async def test_reports_of_pulls_keep_their_figures_and_lose_the_orders_ids(world: World) -> None:
    made = "(id, processor, since, until, dry_run, order_field, customer_field, started_by, started_at, phase, progressed_at, finished_at)"
    for name, finished in (("old", world.clock.now()), ("open", None)):
        now = world.clock.now()
        values = (f"pull_{name}", "stripe", now, now, False, "o", "c", "pr_1", now, "done" if finished else "making", now, finished)
        world.execute(f"INSERT INTO order_pulls {made} VALUES ({', '.join(['%s'] * len(values))})", *values)
        world.execute(
            "INSERT INTO pulled_payments (pull_id, processor_payment, order_lookup, order_sealed, customer_sealed, captured, raw_status)"
            " VALUES (%s, 'pi_1', 'a', 'b', 'c', 5, 'succeeded')",
            f"pull_{name}",
        )
    world.clock.advance(days=91)

    done = await retention(world, pulls=90).run()

    assert done.removed == {Kept.PULLS: 1}
    found = {row["pull_id"]: (row["order_sealed"], row["captured"]) for row in world.rows("SELECT * FROM pulled_payments")}
    assert found == {"pull_old": (None, 5), "pull_open": (b"b", 5)}


async def test_remarks_go_once_what_they_are_about_was_dealt_with_that_long_ago(world: World) -> None:
    olga = await world.actor("olga", PrincipalKind.PERSON, Role.OPERATOR)
    for name in ("re_open", "re_closed"):
        async with world.payments.begin() as connection:
            given: dict[str, Any] = {"kind": Kind.AMOUNT, "processor": "stripe", "processor_refund": name, "evidence": {}}
            await discrepancies.note(connection, world.clock.now(), **given)
    for row in world.rows("SELECT id, processor_refund FROM discrepancies"):
        standing = Standing.CLOSED if row["processor_refund"] == "re_closed" else None
        async with world.api.begin() as connection:
            await judging.change(connection, world.clock, olga, row["id"], owner=None, standing=standing, note="Ann called")

    world.clock.advance(days=10)
    early = await retention(world, notes=10).run()
    world.clock.advance(seconds=1)
    done = await retention(world, notes=10).run()

    assert (early.removed, done.removed) == ({}, {Kept.NOTES: 1})
    assert [row["processor_refund"] for row in world.rows("SELECT processor_refund FROM discrepancies WHERE note IS NOT NULL")] == [
        "re_open"
    ]
    assert removals(world) == [("notes", 1)]


async def test_much_is_taken_away_in_batches_of_an_entry_each(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("store.retention.BATCH", 2)
    monkeypatch.setattr("store.retention.MOST_BATCHES", 2)
    await world.ready()
    for _ in range(3):
        await over(world)
    world.clock.advance(days=31)

    first = await retention(world, messages=30).run()
    second = await retention(world, messages=30).run()

    assert (first.removed, first.more) == ({Kept.MESSAGES: 4}, True)
    assert (second.removed, second.more) == ({Kept.MESSAGES: 2}, False)
    assert removals(world) == [("messages", 2)] * 3


async def test_the_worker_can_take_away_and_read_nothing_of_it(world: World) -> None:
    await world.ready()
    await over(world)

    for statement in ("SELECT sealed FROM texts", "SELECT wrapped FROM customer_keys", "DELETE FROM customer_keys", "DELETE FROM ledger"):
        with pytest.raises(Exception, match="permission denied"):
            world.execute(statement, login=grants.WORKER)


async def test_the_api_may_apply_them_too(world: World) -> None:
    await world.ready()
    await over(world)
    world.clock.advance(days=31)

    done = await retention(world, grants.API, **{kind.value: 30 for kind in Kept}).run(actor=world.ann.principal_id)

    assert set(done.removed) == {Kept.MESSAGES, Kept.CONVERSATIONS, Kept.READINGS, Kept.NOTES, Kept.FINGERPRINTS}
    assert {row["actor"] for row in world.rows("SELECT actor FROM ledger WHERE type = 'retention_applied'")} == {world.ann.principal_id}
