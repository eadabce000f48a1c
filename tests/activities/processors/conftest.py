"""Clients of our processor interface, and servers on loopback that misbehave below HTTP, where the sandbox cannot."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest

from activities.processors.base import uptime
from activities.processors.stripe import StripeProcessor
from refunds.clock import SystemClock
from refunds.processor import FrozenRequest
from refunds.settings import Settings
from tests.activities.shop import API_KEY
from tests.conftest import Sandbox

MakeProcessor = Callable[..., StripeProcessor]
Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


def soon() -> float:
    """A deadline for sending that is not reached."""
    return uptime() + 30


def request_for(intent: str, amount: int = 3_000, key: str = "refunds-refund-test-op_1", **params: Any) -> FrozenRequest:
    """A frozen refund request of operation ``op_1``."""
    body: dict[str, Any] = {"payment_intent": intent, "amount": amount, "metadata": {"refunds_operation": "op_1"}} | params
    return FrozenRequest("op_1", "refund", intent, amount, "USD", key, body)


@dataclass
class Server:
    """A TCP server that does one thing to every connection. ``received`` holds what each connection has sent so far."""

    url: str = ""
    received: list[bytes] = field(default_factory=list)


@asynccontextmanager
async def listening(serve: Serve, scheme: str = "http") -> AsyncIterator[str]:
    """Give every TCP connection to ``serve``; yields the address. No connection outlives the block."""
    served: set[asyncio.Task[None]] = set()

    async def one(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await serve(reader, writer)
        finally:
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    def accepted(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(one(reader, writer))
        served.add(task)

    listener = await asyncio.start_server(accepted, "127.0.0.1", 0)
    try:
        yield f"{scheme}://127.0.0.1:{listener.sockets[0].getsockname()[1]}"
    finally:
        listener.close()
        await asyncio.gather(*served, return_exceptions=True)


@asynccontextmanager
async def serving(serve: Serve) -> AsyncIterator[Server]:
    """Serve every HTTP request that way; what was received before is recorded."""
    server = Server()

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        length = next((int(line.split(b":")[1]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length")), 0)
        server.received.append(head + await reader.readexactly(length))
        await serve(reader, writer)

    async with listening(handle) as server.url:
        yield server


def answering(status: str, body: str, content_type: str = "application/json", extra: str = "") -> Serve:
    """Answer with exactly this."""

    async def serve(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        content = body.encode()
        head = f"HTTP/1.1 {status}\r\nContent-Type: {content_type}\r\nContent-Length: {len(content)}\r\n{extra}Connection: close\r\n\r\n"
        writer.write(head.encode() + content)
        await writer.drain()

    return serve


@pytest.fixture
async def connected() -> AsyncIterator[MakeProcessor]:
    """A function that makes a processor for an address; keyword arguments are settings."""
    made: list[StripeProcessor] = []

    def make(url: str, **changed: Any) -> StripeProcessor:
        given: dict[str, Any] = {"stripe_api_key": API_KEY, "stripe_api_base": url, "stripe_read_timeout_s": 8}
        made.append(StripeProcessor(Settings(**(given | changed)), SystemClock()))
        return made[-1]

    yield make
    for processor in made:
        await processor.close()


@pytest.fixture
def processor(connected: MakeProcessor, sandbox: Sandbox) -> StripeProcessor:
    """The processor on an emptied sandbox."""
    return connected(sandbox.url)
