"""A connection between two parts that can be hurt: a TCP proxy that cuts, refuses, stalls, and loses answers.

It keeps reading while it stalls, so that what a process has sent is known at the moment it left that process: the emergency stop is judged by that.
"""

import asyncio
import re
import time
from collections.abc import Callable
from enum import StrEnum

from deploy.local.ports import HOST

_POST = re.compile(
    rb"POST (/v1/refunds|/v1/payment_intents/[^/ ]+/cancel|/v1/transfers/[^/ ]+/reversals|/v1/application_fees/[^/ ]+/refunds) "
)
_KEY = re.compile(rb"\r\nidempotency-key: *([^\r]+)\r\n", re.IGNORECASE)


class Mood(StrEnum):
    """What a link does with what it is given."""

    PASSING = "passing"
    REFUSING = "refusing"
    STALLING = "stalling"
    SWALLOWING = "swallowing"


class _Side(asyncio.Protocol):
    """One of the two connections of a pair."""

    def __init__(self, pair: "_Pair", *, from_client: bool) -> None:
        self.pair = pair
        self.from_client = from_client
        self.transport: asyncio.Transport | None = None
        self.waiting: list[bytes] = []
        """What is to be written to this side and was held back."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self.pair.connected(self)

    def data_received(self, data: bytes) -> None:
        self.pair.received(self, data)

    def connection_lost(self, exc: Exception | None) -> None:
        self.pair.ended(self)

    def write(self, data: bytes, *, hold: bool) -> None:
        if self.transport is None or hold or self.waiting:
            self.waiting.append(data)
        elif not self.transport.is_closing():
            self.transport.write(data)

    def flush(self) -> None:
        if self.transport is not None and self.waiting and not self.transport.is_closing():
            self.transport.write(b"".join(self.waiting))
            self.waiting.clear()


class _Pair:
    """A client's connection and the one to the server that belongs to it."""

    def __init__(self, link: "Link") -> None:
        self.link = link
        self.client, self.server = _Side(self, from_client=True), _Side(self, from_client=False)
        self._connecting: asyncio.Task[None] | None = None
        self._over = False

    def connected(self, side: _Side) -> None:
        if self._over:
            self.abort()  # the client went away while its connection to the server was being made
        elif side is self.client:
            if self.link.mood is Mood.REFUSING:
                self.abort()
                return
            self.link.pairs.add(self)
            self._connecting = asyncio.get_running_loop().create_task(self._connect())
        elif self.link.mood is not Mood.STALLING:
            side.flush()

    async def _connect(self) -> None:
        try:
            await asyncio.get_running_loop().create_connection(lambda: self.server, HOST, self.link.target())
        except OSError:
            self.abort()

    def received(self, side: _Side, data: bytes) -> None:
        if side.from_client:
            self.link.saw(data)
        elif self.link.mood is Mood.SWALLOWING:
            self.link.swallowed += 1
            return
        other = self.server if side.from_client else self.client
        other.write(data, hold=self.link.mood is Mood.STALLING)

    def ended(self, side: _Side) -> None:
        other = self.server if side.from_client else self.client
        self._over = True
        self.link.pairs.discard(self)
        if other.transport is not None and not other.transport.is_closing():
            other.flush()
            other.transport.close()

    def flush(self) -> None:
        self.client.flush()
        self.server.flush()

    def abort(self) -> None:
        self._over = True
        self.link.pairs.discard(self)
        for side in (self.client, self.server):
            if side.transport is not None:
                side.transport.abort()


class Link:
    """Listens at ``port`` and passes everything on to the port that ``target`` names at that moment."""

    def __init__(self, name: str, target: Callable[[], int]) -> None:
        self.name = name
        self.target = target
        self.mood = Mood.PASSING
        self.pairs: set[_Pair] = set()
        self.swallowed = 0
        self.posts: dict[str, list[float]] = {}
        """When each request that moves money left the client, by its idempotency key (seconds since the epoch)."""
        self._server: asyncio.Server | None = None

    @property
    def port(self) -> int:
        """Where it listens."""
        assert self._server is not None
        return self._server.sockets[0].getsockname()[1]

    async def open(self) -> None:
        """Listen on a free port."""
        self._server = await asyncio.get_running_loop().create_server(lambda: _Pair(self).client, HOST, 0)

    async def close(self) -> None:
        """Stop listening and cut everything."""
        self.cut()
        if self._server is not None:
            self._server.close()
            await self._server.wait_closed()

    def cut(self) -> int:
        """Reset every connection; returns how many."""
        pairs = list(self.pairs)
        for pair in pairs:
            pair.abort()
        return len(pairs)

    def feel(self, mood: Mood) -> None:
        """Change what it does. What was stalled is passed on; where answers were lost the connections are cut, as nobody can go on with them."""
        before, self.mood = self.mood, mood
        if mood is Mood.REFUSING or before is Mood.SWALLOWING:
            self.cut()
        if before is Mood.STALLING:
            for pair in list(self.pairs):
                pair.flush()

    def saw(self, data: bytes) -> None:
        """Note a request that moves money."""
        if data.startswith(b"POST ") and _POST.match(data) and (key := _KEY.search(data)) is not None:
            self.posts.setdefault(key[1].decode("latin-1"), []).append(time.time())
