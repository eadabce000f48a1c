"""Posting events: one kept connection, HTTP/1.1, nothing more. A common client would cost more than everything else the sandbox does for a refund."""

import asyncio
import ssl
from collections.abc import Mapping
from urllib.parse import urlsplit

FAILURES = (OSError, EOFError, ValueError, asyncio.LimitOverrunError)
"""What :meth:`Poster.post` raises: nobody listens, the connection broke, it took too long, or the answer is not HTTP."""


class Poster:
    """One post after the other."""

    def __init__(self, within_s: float) -> None:
        self._within_s = within_s
        self._origin = ""
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None

    async def post(self, url: str, headers: Mapping[str, str], content: bytes) -> int:
        """Post and return the status; the answer's body is not looked at. Raises one of :data:`FAILURES`."""
        address = urlsplit(url)
        path = (address.path or "/") + (f"?{address.query}" if address.query else "")
        lines = [f"POST {path} HTTP/1.1", f"Host: {address.netloc.rpartition('@')[2]}", f"Content-Length: {len(content)}"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        head = "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n"
        try:
            async with asyncio.timeout(self._within_s):
                reader, writer = await self._connected(
                    f"{address.scheme}://{address.netloc}", address.scheme, address.hostname, address.port
                )
                writer.write(head + content)
                await writer.drain()
                return await self._status(reader)
        except BaseException:
            self.hang_up()
            raise

    def hang_up(self) -> None:
        """Close the connection, if there is one."""
        if self._writer is not None:
            self._writer.transport.abort()
        self._reader = self._writer = None

    async def _connected(
        self, origin: str, scheme: str, host: str | None, port: int | None
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        # A server hangs up on who says nothing for some seconds.
        if self._reader is None or self._writer is None or self._origin != origin or self._reader.at_eof() or self._writer.is_closing():
            self.hang_up()
            secure = scheme == "https"
            tls = ssl.create_default_context() if secure else None
            self._reader, self._writer = await asyncio.open_connection(host, port or (443 if secure else 80), ssl=tls)
            self._origin = origin
        return self._reader, self._writer

    async def _status(self, reader: asyncio.StreamReader) -> int:
        said = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        version, status = said[0].split(" ", 2)[:2]
        if not version.startswith("HTTP/1."):
            raise ValueError("not HTTP/1")
        fields = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in said[1:])}
        length = fields.get("content-length", "")
        if length.isdigit() and fields.get("connection", "").lower() != "close":
            await reader.readexactly(int(length))
        else:
            self.hang_up()
        return int(status)
