"""What the ledger role tells people: that it is behind, that a version of a refund is missing, that what is stored contradicts itself. Each once an hour."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from datetime import timedelta
from typing import Any

import psycopg
import pytest
from pydantic import SecretStr

from refunds import points
from refunds.settings import Settings
from store import grants
from store.sequencing import LOCK
from tests.conftest import FreshDatabase
from tests.store.chained import ORIGIN, Chained
from tests.worker.test_ledger import SEEDS
from worker.copying import Copier
from worker.ledger import Keeper, signing_keys

SETTINGS = Settings(
    refunds_ledger_key=SecretStr(SEEDS["key"]),
    ledger_origin=ORIGIN,
    ledger_every_s=0.01,
    ledger_everywhere_s=0.001,
    ledger_checkpoint_every_s=0.01,
    ledger_behind_s=60,
)


@pytest.fixture
async def chained(database: FreshDatabase) -> AsyncIterator[Chained]:
    made = Chained(database)
    yield made
    await made.close()


@pytest.fixture
async def keeper(chained: Chained) -> AsyncIterator[Keeper]:
    copier = Copier(timedelta(seconds=1))
    yield Keeper(chained.pool(grants.LEDGER), SETTINGS, copier)
    await copier.close()


def notices(chained: Chained) -> list[Any]:
    return [body for (body,) in chained.rows("SELECT body FROM outbox WHERE kind = 'notice' ORDER BY id")]


def row(chained: Chained, version: int) -> None:
    chained.spoil(
        "INSERT INTO ledger (at, type, refund_id, refund_version, actor, data) VALUES (%s, 'x', 'rf_1', %s, 'test', '{}')",
        chained.clock.now(),
        version,
    )


async def test_rows_that_wait_too_long_and_a_version_that_is_missing_are_told_once(chained: Chained, keeper: Keeper) -> None:
    row(chained, 1)
    row(chained, 3)
    assert await keeper.once() == 1
    assert notices(chained) == [], "nothing has waited for long, and a gap may be a commit that is on its way"

    chained.clock.advance(minutes=2)
    for _ in range(4):
        await keeper.once()
    gap, behind = notices(chained)
    assert gap == {"kind": "ledger_gap", "refund": "rf_1", "missing_version": 2, "runbook": "ledger.md"}
    assert behind == {"kind": "ledger_behind", "rows": 1, "seconds": 120, "runbook": "ledger.md"}

    row(chained, 2)
    assert await keeper.once() == 2


async def test_a_chain_that_contradicts_itself_is_told_and_nothing_is_added_or_signed(chained: Chained, keeper: Keeper) -> None:
    await chained.enter(20)
    await keeper.once()
    chained.spoil("UPDATE ledger_checkpoints SET root = '\\x00'")
    await chained.enter(2)
    running = asyncio.create_task(keeper.run_for_ever())
    for _ in range(500):
        if notices(chained):
            break
        await asyncio.sleep(0.01)
    running.cancel()
    with suppress(asyncio.CancelledError):
        await running
    [told] = notices(chained)
    assert (told["kind"], told["why"].startswith("the first 20 entries are not those that were signed on ")) == (
        "ledger_inconsistent",
        True,
    )
    assert chained.rows("SELECT count(*) FROM ledger_checkpoints") == [(1,)]


async def test_an_error_that_nobody_foresaw_is_told_by_its_kind_and_the_role_goes_on(chained: Chained, keeper: Keeper) -> None:
    chained.spoil("INSERT INTO ledger (at, type, actor, data) VALUES ('infinity', 'a customer''s name', 'test', '{}')")
    running = asyncio.create_task(keeper.run_for_ever())
    for _ in range(500):
        if notices(chained):
            break
        await asyncio.sleep(0.01)
    assert not running.done()
    chained.spoil("DELETE FROM ledger")
    await chained.enter(3)
    for _ in range(500):
        if chained.rows("SELECT 1 FROM ledger_entries WHERE seq = 3"):
            break
        await asyncio.sleep(0.01)
    running.cancel()
    with suppress(asyncio.CancelledError):
        await running
    [told] = notices(chained)
    assert (told["kind"], told["why"]) == ("ledger_inconsistent", "DataError")
    assert chained.rows("SELECT count(*) FROM ledger_entries") >= [(3,)]


async def test_a_checkpoint_that_was_asked_for_is_made_though_another_one_was_at_work_just_then(
    chained: Chained, database: FreshDatabase
) -> None:
    copier = Copier(timedelta(seconds=1))
    keeper = Keeper(chained.pool(grants.LEDGER), SETTINGS.model_copy(update={"ledger_checkpoint_every_s": 3_600}), copier)
    await chained.enter()
    await keeper.once()
    await chained.enter(type_="checkpoint_requested")
    assert await keeper.once() == 2, "with the entry that names the log's keys"
    assert chained.rows("SELECT max(size) FROM ledger_checkpoints") == [(3,)]

    await chained.enter(type_="checkpoint_requested")
    with database.connect(grants.LEDGER) as other:
        async with at_work_between(other):
            await keeper.once()
        assert chained.rows("SELECT max(size) FROM ledger_checkpoints") == [(3,)]
    await keeper.once()
    assert chained.rows("SELECT max(size) FROM ledger_checkpoints") == [(4,)]
    await copier.close()


@asynccontextmanager
async def at_work_between(other: psycopg.Connection) -> AsyncIterator[None]:
    """Another sequencer takes the lock right after a batch was numbered, and has it until the block ends."""

    async def taking(point: str) -> None:
        if point == "after:sequenced":
            other.execute("SELECT pg_advisory_lock(%s)", (LOCK,))

    with points.watched_by(taking):
        yield
    other.execute("SELECT pg_advisory_unlock(%s)", (LOCK,))


async def test_nothing_is_told_of_a_ledger_that_keeps_up(chained: Chained, keeper: Keeper) -> None:
    for _ in range(3):
        await chained.enter(3)
        chained.clock.advance(seconds=30)
        await keeper.once()
    assert notices(chained) == []


def test_a_process_without_a_key_cannot_sign() -> None:
    with pytest.raises(RuntimeError, match="REFUNDS_LEDGER_KEY is not set"):
        signing_keys(Settings())
