"""Connections kept for the next request: none is lost, none is used that should not be, and many of them make no request dearer."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from ssl import create_default_context
from typing import Any

import httpcore
import pytest

from activities.processors.connections import Connections
from activities.processors.sockets import Network
from tests.activities.staging import until

TIMEOUTS = {"pool": 0.2, "connect": 2, "read": 2, "write": 2}


def connections(most: int = 10, idle_for_s: float = 60) -> Connections:
    return Connections(Network(), create_default_context(), most=most, idle_for_s=idle_for_s)


@asynccontextmanager
async def echoing(gate: asyncio.Event | None = None) -> AsyncIterator[httpcore.URL]:
    """A server that answers each request with the number of its connection, once the gate is open."""
    made = 0

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal made
        made += 1
        mine = str(made).encode()
        try:
            while True:
                await reader.readuntil(b"\r\n\r\n")
                if gate is not None:
                    await gate.wait()
                writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % len(mine) + mine)
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        yield httpcore.URL(scheme="http", host="127.0.0.1", port=server.sockets[0].getsockname()[1], target="/")


async def get(pool: Connections, url: httpcore.URL, **extensions: Any) -> int:
    async with pool.stream("GET", url, extensions={"timeout": TIMEOUTS | extensions}) as answer:
        return int(await answer.aread())


async def test_the_connection_used_last_is_used_next() -> None:
    gate = asyncio.Event()
    pool = connections()
    async with echoing(gate) as url:
        together = [asyncio.create_task(get(pool, url)) for _ in range(3)]
        await until(lambda: len(pool.connections) == 3)
        gate.set()
        assert sorted(await asyncio.gather(*together)) == [1, 2, 3]
        last = await get(pool, url)
        assert [await get(pool, url) for _ in range(3)] == [last] * 3
        assert len(pool.connections) == 3
        await pool.aclose()
    assert pool.connections == []


async def test_one_that_idled_too_long_is_closed_although_nobody_needs_it() -> None:
    gate = asyncio.Event()
    pool = connections(idle_for_s=0.05)
    async with echoing(gate) as url:
        together = [asyncio.create_task(get(pool, url)) for _ in range(3)]
        await until(lambda: len(pool.connections) == 3)
        gate.set()
        await asyncio.gather(*together)
        await until(lambda: all(one.has_expired() for one in pool.connections))

        assert await get(pool, url) == 4
        assert len(pool.connections) == 1
        await pool.aclose()


async def test_every_way_a_request_ends_gives_its_place_back() -> None:
    gate = asyncio.Event()
    pool = connections(most=1)
    async with echoing(gate) as url:
        waiting = asyncio.create_task(get(pool, url))
        await until(lambda: len(pool.connections) == 1)
        with pytest.raises(httpcore.PoolTimeout):
            await get(pool, url)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert pool.connections == [], "an answer may still come over it"
        with pytest.raises(httpcore.ReadTimeout):
            await get(pool, url, read=0.05)
        with pytest.raises(httpcore.ConnectError):
            await get(pool, httpcore.URL(scheme="http", host="127.0.0.1", port=1, target="/"))
        gate.set()
        async with pool.stream("GET", url, extensions={"timeout": TIMEOUTS}):
            pass  # its body is not read
        assert pool.connections == []

        assert await get(pool, url) == await get(pool, url)
        await pool.aclose()


async def test_a_request_looks_at_no_more_connections_than_it_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    gate = asyncio.Event()
    pool = connections(most=60)
    async with echoing(gate) as url:
        together = [asyncio.create_task(get(pool, url)) for _ in range(50)]
        await until(lambda: len(pool.connections) == 50)
        gate.set()
        await asyncio.gather(*together)
        looked, real = 0, httpcore.AsyncHTTP11Connection.has_expired

        def counting(self: httpcore.AsyncHTTP11Connection) -> bool:
            nonlocal looked
            looked += 1
            return real(self)

        monkeypatch.setattr(httpcore.AsyncHTTP11Connection, "has_expired", counting)
        await get(pool, url)

        assert looked == 2, "the one it takes, and the one that was used longest ago"
        await pool.aclose()
