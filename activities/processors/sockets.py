"""httpcore's network over asyncio itself: TCP and TLS for one event loop, with what httpcore asks of a connection kept at hand.

Why not its default one: that wraps each read and write in cancel scopes and asks the kernel about every idle connection at every request, which costs more than
the rest of a call when many run at once. Here bytes that arrive on an idle connection, and its end, are known without asking.
"""

import asyncio
import ssl
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import Any, cast

import httpcore

_UNREAD_LIMIT = 256 * 1024
_HAPPY_EYEBALLS_S = 0.25
"""After this long the next address of the name is tried too (RFC 8305): one broken address family must not use up the whole time-out."""


class Network(httpcore.AsyncNetworkBackend):
    """Connects over TCP. Raises ``httpcore.ConnectTimeout`` or ``httpcore.ConnectError``."""

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        """Connect to the first address of ``host`` that answers."""
        if local_address is not None or socket_options is not None:
            raise NotImplementedError("neither a local address nor socket options are used here")
        loop = asyncio.get_running_loop()
        async with _connecting(timeout):
            _, wire = await loop.create_connection(_Wire, host, port, happy_eyeballs_delay=_HAPPY_EYEBALLS_S)
        return _Stream(wire)


class _Wire(asyncio.Protocol):
    """What arrived and was not read yet, and whether more can come. One task uses it at a time."""

    transport: asyncio.Transport

    def __init__(self) -> None:
        self.arrived = bytearray()
        self.ended = False
        self.lost: Exception | None = None
        self.drained = asyncio.Event()
        self.drained.set()
        self._paused = False
        self._news: asyncio.Future[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)  # every stream transport is one; another event loop's need not inherit from it

    def data_received(self, data: bytes) -> None:
        self.arrived += data
        if len(self.arrived) > _UNREAD_LIMIT and not self._paused:
            self._paused = True
            self.transport.pause_reading()
        self._wake()

    def take(self, max_bytes: int) -> bytes:
        """What arrived, at most so many bytes."""
        data = bytes(self.arrived[:max_bytes])
        del self.arrived[:max_bytes]
        if self._paused and len(self.arrived) <= _UNREAD_LIMIT and not self.transport.is_closing():
            self._paused = False
            self.transport.resume_reading()
        return data

    def eof_received(self) -> None:
        self.ended = True
        self._wake()

    def connection_lost(self, exc: Exception | None) -> None:
        self.ended, self.lost = True, exc
        self.drained.set()
        self._wake()

    def pause_writing(self) -> None:
        self.drained.clear()

    def resume_writing(self) -> None:
        self.drained.set()

    async def news(self) -> None:
        """Wait until something arrived or the connection ended."""
        while not self.arrived and not self.ended:
            self._news = asyncio.get_running_loop().create_future()
            try:
                await self._news
            finally:
                self._news = None

    def _wake(self) -> None:
        if self._news is not None and not self._news.done():
            self._news.set_result(None)


class _Stream(httpcore.AsyncNetworkStream):
    def __init__(self, wire: _Wire) -> None:
        self._wire = wire

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        """At least one byte, or none at the end. Raises ``httpcore.ReadTimeout`` or ``httpcore.ReadError``."""
        wire = self._wire
        if not wire.arrived and not wire.ended:
            try:
                async with asyncio.timeout(timeout):
                    await wire.news()
            except TimeoutError as error:
                raise httpcore.ReadTimeout from error
        if not wire.arrived and wire.lost is not None:
            raise httpcore.ReadError(type(wire.lost).__name__) from wire.lost
        return wire.take(max_bytes)

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:
        """Hand the bytes to the kernel. Raises ``httpcore.WriteTimeout`` or ``httpcore.WriteError``."""
        if not buffer:
            return
        if self._wire.transport.is_closing():
            raise httpcore.WriteError("the connection is closed")
        self._wire.transport.write(buffer)
        if not self._wire.drained.is_set():
            try:
                async with asyncio.timeout(timeout):
                    await self._wire.drained.wait()
            except TimeoutError as error:
                raise httpcore.WriteTimeout from error

    async def aclose(self) -> None:
        """Close at once. Bytes that were not sent yet are dropped: nothing may leave after the call that wanted it has ended."""
        self._wire.transport.abort()
        await asyncio.sleep(0)

    async def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore.AsyncNetworkStream:
        """The same connection with TLS over it. Raises ``httpcore.ConnectTimeout`` or ``httpcore.ConnectError``; the connection is closed then."""
        under, over = self._wire, _Wire()
        try:
            async with _connecting(timeout):
                if under.arrived:  # never read as if it had come through TLS
                    raise ConnectionResetError("the other side spoke before the handshake")
                loop = asyncio.get_running_loop()
                transport = await loop.start_tls(under.transport, over, ssl_context, server_hostname=server_hostname)
                if transport is None or transport.is_closing():
                    raise ConnectionResetError("closed during the handshake")
        except BaseException:
            await self.aclose()
            raise
        over.connection_made(transport)
        return _Stream(over)

    def get_extra_info(self, info: str) -> Any:
        """What httpcore asks: ``is_readable`` of an idle connection (it is over, or said something unasked), and what asyncio knows."""
        if info == "is_readable":
            return bool(self._wire.arrived) or self._wire.ended or self._wire.transport.is_closing()
        return self._wire.transport.get_extra_info(info)


@asynccontextmanager
async def _connecting(timeout: float | None) -> AsyncIterator[None]:
    """Everything that can go wrong inside happens before a byte of a request has left; an ``OSError`` covers TLS and names that do not resolve."""
    try:
        async with asyncio.timeout(timeout):
            yield
    except TimeoutError as error:
        raise httpcore.ConnectTimeout from error
    except OSError as error:
        raise httpcore.ConnectError(str(error)) from error
