"""A transaction that is committed with its last statement is one like any other: all or nothing, and its points are told in their places."""

import asyncio

import psycopg
import pytest
from psycopg import waiting
from sqlalchemy import Text, bindparam, func, insert, literal, select

from refunds import points
from refunds.errors import Code, RefundError
from refunds.messages import Situation
from store.sql import Query, commit, pipelined
from store.tables import payment_snapshots, payments
from tests.store.world import World

_WRITE = Query(insert(payment_snapshots).values({name: bindparam(name) for name in ("payment_id", "read_at", "body")}))
_SLEEP = Query(select(func.pg_sleep(bindparam("seconds")).cast(Text)))
_LOCK = Query(select(payments.c.id).where(payments.c.id == bindparam("payment")).with_for_update(key_share=True))
_PID = Query(select(func.pg_backend_pid()))


@pytest.fixture
async def known(world: World) -> list[str]:
    """Two payments that nobody has read."""
    await world.order(amounts=(1_000, 2_000))
    return [row["id"] for row in world.rows("SELECT id FROM payments ORDER BY id")]


async def test_what_was_committed_stays_whatever_comes_after_it(world: World, known: list[str]) -> None:
    with pytest.raises(RuntimeError, match="too late"):
        async with world.payments.begin() as connection:
            async with pipelined(connection):
                for payment in known:
                    await _WRITE.ask(connection, payment_id=payment, read_at=world.clock.at, body={})
                await commit(connection)
            raise RuntimeError("too late")

    assert world.count("payment_snapshots") == 2


async def test_a_statement_that_fails_is_raised_and_nothing_of_them_is_stored(world: World, known: list[str]) -> None:
    with pytest.raises(psycopg.errors.ForeignKeyViolation):
        async with world.payments.begin() as connection, pipelined(connection):
            for payment in (known[0], "pay_none", known[1]):
                await _WRITE.ask(connection, payment_id=payment, read_at=world.clock.at, body={})
            await commit(connection)

    assert world.count("payment_snapshots") == 0
    async with world.payments.begin() as connection:  # and the connection serves the next
        await _WRITE.do(connection, payment_id=known[0], read_at=world.clock.at, body={})
    assert world.count("payment_snapshots") == 1


async def test_its_points_are_told_once_before_anything_is_stored_and_after_all_is(world: World) -> None:
    await world.ready()
    refund, _ = await world.quoted(amount=2_000)
    seen = await world.submitting.standing(refund)
    state = await world.read(seen.processor_payment)
    told: list[tuple[str, int]] = []

    async def watch(point: str) -> None:
        told.append((point, world.count("attempts")))

    with points.watched_by(watch):
        opened = await world.submitting.open_attempt(seen, state)

    assert not isinstance(opened, Situation)
    assert told == [("before:intent+submitting+attempt_opened", 0), ("after:intent+submitting+attempt_opened", 1)]


async def test_an_error_at_the_point_before_it_leaves_nothing(world: World) -> None:
    await world.ready()
    refund, _ = await world.quoted(amount=2_000)
    before = world.row(refund), world.ledger(refund)

    async def crash(point: str) -> None:
        if point.startswith("before:"):
            raise points.Crashed(point)

    with points.watched_by(crash), pytest.raises(points.Crashed):
        await world.attempt(refund)

    assert (world.row(refund), world.ledger(refund), world.count("attempts"), world.count("operations")) == (*before, 0, 0)


async def test_a_task_that_is_cancelled_as_it_begins_a_pipeline_leaves_nobody_a_connection_in_one(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def begins() -> None:
        async with world.payments.begin() as connection:
            await connection.execute(select(literal(1)))
            monkeypatch.setattr(waiting, "MAX_BUSY_TIME", -1)  # the driver gives others a turn at once, as it does in a busy process
            task = asyncio.current_task()
            assert task is not None
            task.cancel()
            async with pipelined(connection):
                raise AssertionError("it was not cancelled")

    with pytest.raises(asyncio.CancelledError):
        await asyncio.create_task(begins())

    monkeypatch.undo()
    async with world.payments.begin() as connection:
        assert (await connection.execute(select(literal(5)))).scalar_one() == 5


async def test_who_is_cancelled_is_so_although_the_connection_is_lost_over_it(world: World) -> None:
    sleeping = asyncio.Event()

    async def sleeps() -> None:
        async with world.payments.begin() as connection:
            await _PID.value(connection)
            sleeping.set()
            await _SLEEP.value(connection, seconds=30)

    task = asyncio.create_task(sleeps())
    await sleeping.wait()
    await asyncio.sleep(0)  # now it waits for the statement
    task.cancel()
    await asyncio.sleep(0)  # now the driver cancels that, and what interrupts it there costs the connection
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_a_lost_connection_promises_nothing_about_what_was_stored(world: World) -> None:
    with pytest.raises(RefundError, match="what was stored before that is found again") as lost:
        async with world.payments.begin() as connection:
            world.rows("SELECT pg_terminate_backend(%s, 5000)", await _PID.value(connection))
            async with pipelined(connection):
                await commit(connection)
    assert lost.value.code is Code.STORE_UNAVAILABLE


async def test_a_lost_connection_promises_nothing_about_one_statement_either(world: World, known: list[str]) -> None:
    with pytest.raises(RefundError, match="what was stored before that is found again"):
        async with world.payments.one() as connection:
            world.rows("SELECT pg_terminate_backend(%s, 5000)", await _PID.value(connection))
            await _WRITE.do(connection, payment_id=known[0], read_at=world.clock.at, body={})


async def test_two_that_wait_for_each_other_are_told_so_and_one_goes_on(world: World, known: list[str]) -> None:
    both = asyncio.Barrier(2)

    async def locks(*order: str) -> str | None:
        try:
            async with world.payments.begin() as connection:
                for payment in order:
                    async with pipelined(connection):
                        await _LOCK.ask(connection, payment=payment)
                    if payment == order[0]:
                        await both.wait()
        except RefundError as error:
            return error.detail
        return None

    told = await asyncio.gather(locks(known[0], known[1]), locks(known[1], known[0]))
    assert sorted(told, key=str) == ["Another change holds the same rows; repeat in a moment.", None]
