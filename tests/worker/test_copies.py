"""Copies on their way hold nothing up, and what they say is believed before a database that may have been put back (promise P8)."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from datetime import timedelta
from pathlib import Path

import pytest

from store import grants
from store.sequencing import Inconsistent
from tests.conftest import FreshDatabase
from tests.store.chained import Chained
from tests.worker.test_ledger_watch import SETTINGS
from worker import ledger as role
from worker.copying import Copier, CopyFailed
from worker.ledger import Keeper

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@pytest.fixture
async def chained(database: FreshDatabase) -> AsyncIterator[Chained]:
    made = Chained(database)
    yield made
    await made.close()


@asynccontextmanager
async def keeping(chained: Chained, *targets: str, timeout_s: float = 30) -> AsyncIterator[Keeper]:
    """The role, just started, with these places for copies."""
    copier = Copier(timedelta(seconds=timeout_s))
    settings = SETTINGS.model_copy(update={"ledger_copies": ",".join(targets)})
    keeper = Keeper(chained.pool(grants.LEDGER), settings, copier)
    yield keeper
    await keeper.copies.end()
    await copier.close()


@asynccontextmanager
async def receiver(serve: Serve) -> AsyncIterator[str]:
    """A receiver of copies, which has hung up on everybody when the block ends: end the copying before."""
    calls: list[asyncio.Future[None]] = []

    async def call(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        calls.append(over := asyncio.get_running_loop().create_future())
        await serve(reader, writer)
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()
        over.set_result(None)

    async with await asyncio.start_server(call, "127.0.0.1", 0) as server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/keep"
        await asyncio.gather(*calls)


def sizes(place: Path) -> list[int]:
    """Of which size the copies in a directory are."""
    return sorted(int(path.name.partition("-")[0]) for path in place.iterdir())


async def until(condition: Callable[[], bool]) -> None:
    for _ in range(3_000):
        if condition():
            return
        await asyncio.sleep(0.01)
    pytest.fail("it did not happen")


async def test_a_receiver_that_never_ends_its_answer_holds_up_neither_the_chain_nor_other_places(
    chained: Chained, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(role, "_COPY_EVERY_S", 0.0)
    asked = asyncio.Event()

    async def for_ever(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        asked.set()
        await reader.read()

    async with receiver(for_ever) as address, keeping(chained, address, f"{tmp_path}/") as keeper:
        for copies in (1, 2):
            await chained.enter()
            await keeper.once()
            await asyncio.wait_for(asked.wait(), 30)
            # The file is there a moment before it is recorded that it is.
            await until(lambda copies=copies: len(chained.rows("SELECT 1 FROM ledger_exports WHERE done_at IS NOT NULL")) == copies)
        assert sizes(tmp_path) == [1, 3]
        assert chained.rows("SELECT target, done_at IS NULL FROM ledger_exports ORDER BY target, checkpoint_id") == [
            (f"{tmp_path}/", False),
            (f"{tmp_path}/", False),
            (address, True),
            (address, True),
        ]


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (b"HTTP/1.1 307 Temporary Redirect\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n", "it answered 307"),
        (b"HTTP/1.1 500 Internal Server Error\r\nContent-Length: 9\r\n\r\n", "it answered 500"),
        (b"no HTTP at all\r\n\r\n", "no answer: RemoteProtocolError"),
        (b"HTTP/1.1 200 OK\r\n", "no answer within 0.2 s"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 999999999\r\n\r\nx", None),
    ],
)
async def test_what_a_receiver_answers_is_its_head_and_nothing_it_can_draw_out(chained: Chained, answer: bytes, why: str | None) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(answer)
        if b"\r\n\r\n" not in answer or b"99999" in answer:
            await reader.read()

    await chained.enter()
    await chained.numbered()
    copier = Copier(timedelta(seconds=0.2 if why and "within" in why else 30))
    async with receiver(serve) as address:
        await chained.signed(targets=(address,))
        async with chained.pool(grants.LEDGER).begin() as connection:
            due = await role.checkpoints.take_copy(connection, chained.clock.now(), address)
        assert due is not None
        if why is None:
            await copier.send(due)
        else:
            with pytest.raises(CopyFailed) as caught:
                await copier.send(due)
            assert str(caught.value) == why
        await copier.close()


async def test_a_database_that_was_put_back_is_not_signed_for_by_whoever_signed_more_or_has_a_copy(
    chained: Chained, tmp_path: Path
) -> None:
    async with keeping(chained, f"{tmp_path}/") as keeper:
        await chained.enter(4)
        await keeper.once()
        await until(lambda: any(tmp_path.iterdir()))
        for table in ("ledger_exports", "ledger_checkpoints", "ledger_entries", "ledger_nodes", "ledger"):
            chained.spoil(f"DELETE FROM {table}")
        await chained.enter(2)
        with pytest.raises(Inconsistent, match="4 entries were signed, and here are 2: the database is an older one"):
            await keeper.once()
    await chained.enter(5, other="history")
    async with keeping(chained, f"{tmp_path}/") as started_again:
        with pytest.raises(Inconsistent, match="the first 4 entries are not those of which a copy is kept"):
            await started_again.once()
    assert chained.rows("SELECT count(*) FROM ledger_checkpoints") == [(0,)]
    async with keeping(chained, f"{tmp_path}/nowhere/") as knows_nothing:
        await knows_nothing.once()
    assert chained.rows("SELECT size FROM ledger_checkpoints") == [(7,)]
