"""Links: what passes, what is refused, late or lost, and what is noted of the requests that move money."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

from deploy.local.ports import HOST
from tests.chaos.links import Link, Mood

POST = b"POST /v1/refunds HTTP/1.1\r\nHost: x\r\nIdempotency-Key: refunds-refund-test-op_1\r\nContent-Length: 0\r\n\r\n"


@asynccontextmanager
async def _linked() -> AsyncIterator[Link]:
    """A link to a server that answers every piece it gets with the same piece."""

    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(4096):
            writer.write(data)
        writer.close()

    server = await asyncio.start_server(echo, HOST, 0)
    link = Link("client-server", lambda: server.sockets[0].getsockname()[1])
    await link.open()
    try:
        yield link
    finally:
        await link.close()
        server.close()


@asynccontextmanager
async def _connection(link: Link) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    reader, writer = await asyncio.open_connection(HOST, link.port)
    try:
        yield reader, writer
    finally:
        writer.close()
        await asyncio.gather(writer.wait_closed(), return_exceptions=True)


async def _is_reset(reader: asyncio.StreamReader) -> bool:
    """Whether the connection ends without another word."""
    async with asyncio.timeout(5):
        try:
            return await reader.read(1) == b""
        except ConnectionError:
            return True


async def _answer(reader: asyncio.StreamReader, within_s: float = 5) -> bytes:
    async with asyncio.timeout(within_s):
        return await reader.read(4096)


async def _until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(5):
        while not condition():
            await _turn()


async def _turn() -> None:
    await asyncio.sleep(0.001)


async def test_what_is_said_and_answered_passes_and_the_end_too() -> None:
    async with _linked() as link, _connection(link) as (reader, writer):
        writer.write(b"hello")
        assert await _answer(reader) == b"hello"
        writer.write_eof()

        assert await _answer(reader) == b""


async def test_what_is_refused_gets_no_answer_and_later_ones_do() -> None:
    async with _linked() as link:
        async with _connection(link) as (open_before, _):
            link.feel(Mood.REFUSING)
            assert await _is_reset(open_before)
        async with _connection(link) as (reader, _):
            assert await _is_reset(reader)

        link.feel(Mood.PASSING)
        async with _connection(link) as (reader, writer):
            writer.write(b"hello")
            assert await _answer(reader) == b"hello"


async def test_what_is_stalled_arrives_later_in_order() -> None:
    async with _linked() as link, _connection(link) as (reader, writer):
        writer.write(b"first")
        assert await _answer(reader) == b"first"
        link.feel(Mood.STALLING)
        writer.write(b"one ")
        with pytest.raises(TimeoutError):
            await _answer(reader, within_s=0.1)
        writer.write(b"two")

        link.feel(Mood.PASSING)

        async with asyncio.timeout(5):
            assert await reader.readexactly(7) == b"one two"


async def test_swallowed_answers_are_lost_and_their_connections_end() -> None:
    async with _linked() as link, _connection(link) as (reader, writer):
        writer.write(b"hello")
        assert await _answer(reader) == b"hello"
        link.feel(Mood.SWALLOWING)
        writer.write(b"lost")
        await _until(lambda: link.swallowed > 0)

        link.feel(Mood.PASSING)

        assert await _is_reset(reader)


async def test_a_cut_resets_everything_that_is_open() -> None:
    async with _linked() as link, _connection(link) as (first, writer), _connection(link) as (second, _):
        writer.write(b"hello")
        assert await _answer(first) == b"hello"
        await _until(lambda: len(link.pairs) == 2)

        assert link.cut() == 2

        assert await _is_reset(first)
        assert await _is_reset(second)


async def test_requests_that_move_money_are_noted_when_they_leave_even_if_they_are_stalled() -> None:
    async with _linked() as link, _connection(link) as (reader, writer):
        link.feel(Mood.STALLING)
        before = time.time()
        writer.write(POST)
        await _until(lambda: bool(link.posts))
        link.feel(Mood.PASSING)
        assert await _answer(reader) == POST
        writer.write(POST.replace(b"/v1/refunds", b"/v1/refunds/re_1"))
        assert await _answer(reader)

    assert list(link.posts) == ["refunds-refund-test-op_1"]
    [left] = link.posts["refunds-refund-test-op_1"]
    assert before <= left <= time.time()
