"""A customer can be forgotten, and what has had its time can go, and the record still verifies, from the same checkpoint as before (promises P8, P9)."""

import asyncio
from typing import Any

import pytest
from sqlalchemy import select

from refunds.discrepancies import Kind
from refunds.erasure import Because, Erasure
from refunds.errors import Code, RefundError
from refunds.ids import Prefix, new_id
from refunds.people import PrincipalKind, Role
from refunds.retention import Kept
from store import discrepancies, forgetting, halts, intake, judging, notes
from store.limits import Subject
from store.retention import Retention
from store.tables import refunds
from tests.store.chained import Chained
from tests.store.test_verifying import verified
from tests.store.world import World

BROUGHT_ABOUT = ("refunds_api: insert texts",)
"""One test has a model's words written without what would bring them."""


def customer_of(world: World) -> str:
    [row] = world.rows("SELECT id FROM customers WHERE forgotten_at IS NULL")
    return row["id"]


async def forget(world: World, customer: str, then: Any = None) -> forgetting.Forgotten | None:
    """Forget somebody; ``then`` is awaited right before the commit."""
    erasure = Erasure(new_id(Prefix.ERASURE), customer, world.clock.now(), world.ann.principal_id, Because.CUSTOMER_ASKED)
    async with world.api.begin() as connection:
        done = await forgetting.forget(connection, world.clock, erasure, actor=world.ann.principal_id, mark=None)
        if then is not None:
            await then()
    return done


async def until_it_waits(world: World, task: asyncio.Task[Any]) -> None:
    """Until a transaction of the task waits for a lock."""
    while not world.rows("SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"):
        assert not task.done(), task
        await asyncio.sleep(0.02)


async def test_a_request_whose_customer_is_forgotten_before_it_is_stored_is_refused(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    await world.ready()
    check = intake.lines.check

    async def forgotten_meanwhile(*given: Any) -> None:
        await check(*given)
        await forget(world, customer_of(world))

    monkeypatch.setattr(intake.lines, "check", forgotten_meanwhile)

    with pytest.raises(RefundError) as refused:
        await world.accept(world.request(message="words", agent_session_id="s"))

    assert (refused.value.code, refused.value.field) == (Code.ORDER_NOT_FOUND, "order_id")
    assert (world.count("refunds"), world.count("texts"), world.count("customer_keys")) == (0, 0, 0)


async def test_a_request_that_comes_while_its_customer_is_forgotten_waits_and_is_refused(world: World) -> None:
    await world.ready()
    asking: list[asyncio.Task[str]] = []

    async def asks() -> None:
        asking.append(asyncio.create_task(world.accept(world.request(message="words"))))
        await until_it_waits(world, asking[0])

    await forget(world, customer_of(world), asks)

    with pytest.raises(RefundError) as refused:
        await asking[0]
    assert refused.value.code is Code.ORDER_NOT_FOUND
    assert (world.count("refunds"), world.count("texts")) == (0, 0)


async def test_an_order_that_comes_while_its_customer_is_forgotten_is_a_new_customers(world: World) -> None:
    await world.ready()
    old = customer_of(world)
    putting: list[asyncio.Task[list[str]]] = []

    async def puts() -> None:
        putting.append(asyncio.create_task(world.order("order-2")))
        await until_it_waits(world, putting[0])

    await forget(world, old, puts)
    await putting[0]

    [order] = world.rows("SELECT customer_id FROM orders WHERE ref_lookup IS NOT NULL")
    assert order["customer_id"] == customer_of(world) != old


async def test_what_colleagues_write_afterwards_is_kept_and_nothing_else(world: World) -> None:
    await world.ready()
    refund = await world.accept(world.request(message="words"))
    customer = customer_of(world)
    await forget(world, customer)
    settled = {"refund_id": refund, "actor": world.ann.principal_id, "about": "ins_1", "note": "the bank's letter says it arrived"}

    async with world.api.begin() as connection:
        await notes.keep(connection, world.texts, **settled)
        await world.texts.write(connection, refund_id=refund, customer_id=customer, values={"reading": "words", "evidence:ev_1": "a photo"})

    async with world.api.begin() as connection:
        found = await world.texts.openings(connection, refund)
    assert {kind: one.value for kind, one in found.items()} == {"note:ins_1": settled["note"], "evidence:ev_1": "a photo"}
    [entry] = [one for one in world.ledger(refund) if one["type"] == "note_kept"]
    assert entry["commitments"] == {"note:ins_1": found["note:ins_1"].commitment}
    assert "bank" not in str(world.rows("SELECT sealed FROM texts")), "it is sealed"
    again = await forget(world, customer)
    assert again is not None and again.removed["texts"] == 2, "who asks again has it taken away, and the entry says so"


async def test_a_stop_of_what_agents_ask_for_still_covers_what_one_asked_for_the_forgotten(world: World) -> None:
    """After a restore the list is replayed, also over refunds that are under way: only that an agent was named is left of it."""
    await world.ready()
    for number, named in enumerate(({"agent_session_id": "s-1"}, {"agent_model": "m-1"}, {})):
        await world.accept(world.request(**named), key=f"key-{number}")
    covered = select(halts.asked_by_agent()).order_by(refunds.c.id)

    async def asked_by_agents() -> tuple[list[bool], list[bool]]:
        async with world.api.read() as connection:
            stopped = list((await connection.execute(covered)).scalars())
        return stopped, [Subject.of(row).by_agent for row in world.rows("SELECT * FROM refunds ORDER BY id")]

    before = await asked_by_agents()
    await forget(world, customer_of(world))

    assert before == await asked_by_agents()
    assert sorted(before[0]) == sorted(before[1]) == [False, True, True]
    assert not world.rows("SELECT 1 FROM refunds WHERE details ?| ARRAY['agent_session_id', 'agent_model']")


async def test_remarks_on_the_refunds_of_the_forgotten_go_also_where_no_payment_is_named(world: World) -> None:
    await world.ready()
    refund, olga = await world.accept(), await world.actor("olga", PrincipalKind.PERSON, Role.OPERATOR)
    for name, about in {"re_1": {"refund_id": refund}, "re_2": {}}.items():
        async with world.payments.begin() as connection:
            given: dict[str, Any] = {"kind": Kind.AMOUNT, "processor": "stripe", "processor_refund": name, "evidence": {}} | about
            await discrepancies.note(connection, world.clock.now(), **given)
    for row in world.rows("SELECT id FROM discrepancies"):
        async with world.api.begin() as connection:
            await judging.change(connection, world.clock, olga, row["id"], owner=None, standing=None, note="Ann called")

    assert "Ann" not in str(world.rows("SELECT note FROM discrepancies")), "they are sealed"
    await forget(world, customer_of(world))

    assert [row["refund_id"] for row in world.rows("SELECT refund_id FROM discrepancies WHERE note IS NOT NULL")] == [None]


async def test_the_record_verifies_after_forgetting_and_after_retention(world: World) -> None:
    await world.ready()
    asked = [await world.accept(world.request(message="words", agent_reasoning="more"), key=f"key-{n}") for n in range(2)]
    for refund_id in asked:
        await world.withdraw(refund_id)
    chained = Chained(world.database, world.clock)
    await chained.numbered()
    await chained.signed()
    kept, before = await chained.note(), world.rows("SELECT * FROM ledger ORDER BY id")
    customer = world.row(asked[0])["customer_id"]
    world.clock.advance(days=1_000)

    every_day = world.settings.model_copy(update={f"retention_{kind}_days": 1 for kind in Kept})
    removed = await Retention(world.api, every_day).run()
    erasure = Erasure(new_id(Prefix.ERASURE), customer, world.clock.now(), world.ann.principal_id, Because.CUSTOMER_ASKED)
    async with world.api.begin() as connection:
        done = await forgetting.forget(connection, world.clock, erasure, actor=world.ann.principal_id, mark=None)
    await chained.numbered()
    await chained.signed()

    assert removed.removed[Kept.MESSAGES] == 4 and done is not None and done.removed["keys"] == 1
    after = world.rows("SELECT * FROM ledger ORDER BY id")
    assert after[: len(before)] == before, "nothing of the record was touched"
    assert verified(chained, kept).entries == len(after)
    assert [row["type"] for row in after][-1] == "customer_forgotten"
    await chained.close()
