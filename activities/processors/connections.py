"""Connections to one address with no proxy in between, kept open for the next request. What travels over them is httpcore's work.

Why not its pool: whenever a request begins or ends, that looks at all its connections for each one that is idle. With some dozens of them, as many refunds at
once need, this costs more processor time than everything else about a request.
"""

import asyncio
import ssl
from collections import deque
from collections.abc import AsyncIterator
from typing import Protocol, cast

import httpcore


class _Stream(Protocol):
    """What httpcore's answers are read from."""

    def __aiter__(self) -> AsyncIterator[bytes]: ...

    async def aclose(self) -> None: ...


class Connections(httpcore.AsyncConnectionInterface):
    """At most ``most`` at a time. One that was idle for ``idle_for_s``, that the other side ended, or over which it spoke unasked, is never used again.

    Use ``stream`` as with any connection of httpcore's. Time-outs are those of each request: ``pool`` for a place, ``connect`` for TCP and for TLS. Raises
    ``httpcore.PoolTimeout`` when there is no place in time: then nothing was sent.
    """

    def __init__(self, network: httpcore.AsyncNetworkBackend, tls: ssl.SSLContext, *, most: int, idle_for_s: float) -> None:
        tls.set_alpn_protocols(["http/1.1"])
        self._network = network
        self._tls = tls
        self._places = asyncio.Semaphore(most)
        self._idle_for_s = idle_for_s
        self._idle: deque[httpcore.AsyncHTTP11Connection] = deque()
        self._open: set[httpcore.AsyncHTTP11Connection] = set()

    async def handle_async_request(self, request: httpcore.Request) -> httpcore.Response:
        """Send a request over the connection that was used last, or over a new one; its place is free again when the answer is closed."""
        timeouts = request.extensions["timeout"]
        await self._take_place(timeouts["pool"])
        connection: httpcore.AsyncHTTP11Connection | None = None
        try:
            connection = await self._waiting() or await self._connect(request, timeouts["connect"])
            answer = await connection.handle_async_request(request)
        except BaseException:
            self._places.release()
            if connection is not None:
                await self._close(connection)
            raise
        body = _Body(cast(_Stream, answer.stream), connection, self)
        return httpcore.Response(answer.status, headers=answer.headers, content=body, extensions=answer.extensions)

    async def give_back(self, connection: httpcore.AsyncHTTP11Connection) -> None:
        """Take a connection back whose answer is closed: kept if it was read to its end."""
        self._places.release()
        if connection.is_idle():
            self._idle.append(connection)
        else:
            await self._close(connection)
        while self._idle and self._idle[0].has_expired():  # the one that was used longest ago
            await self._close(self._idle.popleft())

    @property
    def connections(self) -> list[httpcore.AsyncHTTP11Connection]:
        """Those that are open."""
        return list(self._open)

    async def aclose(self) -> None:
        """Close every connection, also those in use."""
        self._idle.clear()
        for connection in self.connections:
            await self._close(connection)

    async def _take_place(self, within_s: float) -> None:
        if not self._places.locked():
            await self._places.acquire()  # at once
            return
        try:
            async with asyncio.timeout(within_s):
                await self._places.acquire()
        except TimeoutError as error:
            raise httpcore.PoolTimeout from error

    async def _waiting(self) -> httpcore.AsyncHTTP11Connection | None:
        while self._idle:
            connection = self._idle.pop()
            if not connection.has_expired():
                return connection
            await self._close(connection)
        return None

    async def _connect(self, request: httpcore.Request, within_s: float) -> httpcore.AsyncHTTP11Connection:
        origin = request.url.origin
        host = origin.host.decode("ascii")
        stream = await self._network.connect_tcp(host, origin.port, timeout=within_s)
        if origin.scheme == b"https":
            stream = await stream.start_tls(self._tls, server_hostname=host, timeout=within_s)
        connection = httpcore.AsyncHTTP11Connection(origin, stream, keepalive_expiry=self._idle_for_s)
        self._open.add(connection)
        return connection

    async def _close(self, connection: httpcore.AsyncHTTP11Connection) -> None:
        self._open.discard(connection)
        await connection.aclose()


class _Body:
    """The rest of an answer. Closing it gives its connection back, once."""

    def __init__(self, stream: _Stream, connection: httpcore.AsyncHTTP11Connection, home: Connections) -> None:
        self._stream = stream
        self._connection: httpcore.AsyncHTTP11Connection | None = connection
        self._home = home

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for chunk in self._stream:
            yield chunk

    async def aclose(self) -> None:
        connection, self._connection = self._connection, None
        if connection is None:
            return
        try:
            await self._stream.aclose()
        finally:
            await self._home.give_back(connection)
