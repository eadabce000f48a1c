"""A transaction that is committed with its last statement is one like any other: all or nothing, and its points are told in their places."""

import psycopg
import pytest
from sqlalchemy import bindparam, insert

from refunds import points
from refunds.messages import Situation
from store.sql import Query, commit, pipelined
from store.tables import payment_snapshots
from tests.store.world import World

_WRITE = Query(insert(payment_snapshots).values({name: bindparam(name) for name in ("payment_id", "read_at", "body")}))


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
