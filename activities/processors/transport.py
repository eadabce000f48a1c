"""The connections to Stripe's API: the SDK's own door for a transport (``http_client=``), over httpcore, which is already below httpx.

Everything above it stays the SDK's: authentication, version, idempotency key, encoding, errors. Here are the time-outs, the bound on an answer, TLS,
the proxy, and the check at the last moment before a request leaves.
"""

import asyncio
import ssl
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any
from urllib.parse import unquote, urlsplit
from urllib.request import getproxies, proxy_bypass

import httpcore
import httpx
import stripe

from activities.processors.base import SendTooLate, uptime
from activities.processors.connections import Connections
from activities.processors.sockets import Network
from refunds.settings import Settings

ANSWER_LIMIT = 8 * 1024 * 1024
"""The most bytes of an answer that are read. A page of a hundred refunds is some hundred kilobytes at most."""

_MAX_CONNECTIONS = 100
_IDLE_FOR_S = 5  # shorter than any server in between keeps an idle connection, so that a request seldom meets a closed one
_ABOUT_TO_SEND = "http11.send_request_headers.started"

_send_before: ContextVar[float | None] = ContextVar("send_before", default=None)

_FAILURES = (
    httpcore.TimeoutException,
    httpcore.NetworkError,
    httpcore.ProtocolError,
    httpcore.ProxyError,
    httpcore.UnsupportedProtocol,
    OSError,  # also TimeoutError, and ssl.SSLError: a record that cannot be decrypted leaves httpcore as it is
    RuntimeError,  # an event loop's own word for a transport that was closed under it
)


class AnswerTooLong(Exception):
    """The answer has more than ``ANSWER_LIMIT`` bytes. It was not read to its end, so nothing is known of it."""


@contextmanager
def sending_before(moment: float) -> Iterator[None]:
    """Inside the block a request's first byte leaves before ``moment`` (:func:`uptime`), or :class:`SendTooLate` is raised and none leaves."""
    token = _send_before.set(moment)
    try:
        yield
    finally:
        _send_before.reset(token)


class Transport(stripe.HTTPClient):
    """Requests to one address, kept alive and pooled. Only asynchronous; redirects are not followed; safe to share between tasks.

    Whatever goes wrong on the wire leaves as ``stripe.APIConnectionError`` with httpcore's error as its cause: the error map reads from its type
    whether a connection stood. A connection that the server closed while it idled is such an error too, after bytes may have left.
    """

    name = "httpcore"

    def __init__(self, settings: Settings) -> None:
        super().__init__()
        base = urlsplit(settings.stripe_api_base or stripe.DEFAULT_API_BASE)
        self._origin = f"{base.scheme}://{base.netloc}"
        self._url = {"scheme": base.scheme, "host": base.hostname or "", "port": base.port}
        self._standing = [("Host", base.netloc), ("Accept", "*/*"), ("Accept-Encoding", "identity")]
        self._timeouts = {
            "pool": settings.stripe_connect_timeout_s,
            "connect": settings.stripe_connect_timeout_s,
            "write": settings.stripe_read_timeout_s,
            "read": settings.stripe_read_timeout_s,
        }
        tls, proxy = ssl.create_default_context(cafile=stripe.ca_bundle_path), proxy_for(base.scheme, base.netloc)
        if proxy is None:
            self._pool = Connections(Network(), tls, most=_MAX_CONNECTIONS, idle_for_s=_IDLE_FOR_S)
        else:
            self._pool = httpcore.AsyncConnectionPool(
                ssl_context=tls,
                proxy=proxy,
                max_connections=_MAX_CONNECTIONS,
                keepalive_expiry=_IDLE_FOR_S,
                network_backend=Network(),
            )

    async def request_async(
        self, method: str, url: str, headers: Mapping[str, str], post_data: str | None = None
    ) -> tuple[bytes, int, Mapping[str, str]]:
        """Send one request and read its answer whole: body, status, headers. Raises ``stripe.APIConnectionError`` or :class:`SendTooLate`."""
        if not url.startswith(f"{self._origin}/"):
            raise RuntimeError("the key is sent to the configured address only")

        async def trace(event: str, _info: dict[str, Any]) -> None:
            """Called by httpcore; here when the connection stands and the first byte of the request has not left."""
            if event == _ABOUT_TO_SEND:
                deadline = _send_before.get()
                if deadline is not None and uptime() >= deadline:
                    raise SendTooLate
                # Each wait alone is bounded too, but an answer that drips would outlast every one of them, and the attempt that must be over by then.
                whole.reschedule(asyncio.get_running_loop().time() + self._timeouts["read"])

        try:
            async with (
                asyncio.timeout(None) as whole,
                self._pool.stream(
                    method.upper(),
                    httpcore.URL(target=url.removeprefix(self._origin), **self._url),
                    headers=[*self._standing, *headers.items()],
                    content=None if method == "get" else (post_data or "").encode(),
                    extensions={"timeout": self._timeouts, "trace": trace},
                ) as response,
            ):
                body = await _read(response)
                return body, response.status, httpx.Headers(response.headers)
        except (*_FAILURES, AnswerTooLong) as error:
            raise stripe.APIConnectionError(f"Stripe did not answer ({type(error).__name__})") from error

    async def close_async(self) -> None:
        """Close every connection."""
        await self._pool.aclose()


async def _read(response: httpcore.Response) -> bytes:
    chunks: list[bytes] = []
    left = ANSWER_LIMIT
    async for chunk in response.aiter_stream():
        left -= len(chunk)
        if left < 0:
            raise AnswerTooLong
        chunks.append(chunk)
    return b"".join(chunks)


def proxy_for(scheme: str, host: str) -> httpcore.Proxy | None:
    """The proxy that the environment names for this address: ``HTTPS_PROXY`` (``HTTP_PROXY``, ``ALL_PROXY``), unless ``NO_PROXY`` excepts it.

    Raises ``RuntimeError`` for a proxy that is no HTTP proxy: it must not be passed over in silence.
    """
    proxies = getproxies()
    found = proxies.get(scheme) or proxies.get("all")
    if not found or proxy_bypass(host):
        return None
    url = urlsplit(found if "://" in found else f"http://{found}")
    if url.scheme not in ("http", "https") or not url.hostname:
        raise RuntimeError("the environment names a proxy for Stripe that is not an http:// or https:// one")
    auth = (unquote(url.username), unquote(url.password or "")) if url.username else None
    return httpcore.Proxy(httpcore.URL(scheme=url.scheme, host=url.hostname, port=url.port, target="/"), auth=auth)
