"""An HTTP client that costs next to nothing: client and servers share the cores, and a common one would be a good part of what is measured."""

import asyncio
import json
from dataclasses import dataclass
from typing import Any, Self
from urllib.parse import urlsplit


@dataclass(frozen=True, slots=True)
class Answer:
    """A status and the decoded JSON."""

    status: int
    body: Any


class Line:
    """One connection that is kept open: one call after the other."""

    def __init__(self, url: str, key: str) -> None:
        address = urlsplit(url)
        self._host, self._port = address.hostname or "127.0.0.1", address.port or 80
        self._head = f"Host: {self._host}:{self._port}\r\nAuthorization: Bearer {key}\r\nContent-Type: application/json\r\n"
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._hang_up()

    async def _hang_up(self) -> None:
        if self._writer is not None:
            self._writer.close()
            await asyncio.gather(self._writer.wait_closed(), return_exceptions=True)

    async def _connected(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        if self._reader is None or self._writer is None or self._reader.at_eof():  # a server hangs up on who says nothing for seconds
            await self._hang_up()
            self._reader, self._writer = await asyncio.open_connection(self._host, self._port)
        return self._reader, self._writer

    async def connect(self) -> None:
        """Connect now, so that the first call does not wait for it."""
        await self._connected()

    async def post(self, path: str, body: Any, *, key: str = "") -> Answer:
        """POST a JSON body; ``key`` is the idempotency key. Raises ``OSError`` when the connection breaks."""
        reader, writer = await self._connected()
        raw = json.dumps(body).encode()
        idempotency = f"Idempotency-Key: {key}\r\n" if key else ""
        writer.write(f"POST {path} HTTP/1.1\r\n{self._head}{idempotency}Content-Length: {len(raw)}\r\n\r\n".encode() + raw)
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
            fields = dict(line.lower().split(": ", 1) for line in head.split("\r\n")[1:] if line)
            content = await reader.readexactly(int(fields["content-length"]))
        except asyncio.IncompleteReadError as error:
            raise ConnectionError(f"the connection ended in the middle of the answer to POST {path}") from error
        return Answer(int(head.split(" ", 2)[1]), json.loads(content) if content else None)
