"""Serves the sandbox over HTTP and lets it cut a connection in the middle of a call."""

import asyncio
import logging
import signal
import socket
import sys
from types import FrameType

import uvicorn
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from deploy.sandbox.api import ABORT
from deploy.sandbox.app import build
from deploy.sandbox.options import Options

_GRACE_SECONDS = 2


class CuttableProtocol(H11Protocol):
    """Puts the connection's abort into the scope: ASGI itself has no way to end a call without an answer."""

    def connection_made(self, transport: asyncio.Transport) -> None:
        super().connection_made(transport)
        inner: ASGIApp = self.app

        async def app(scope: Scope, receive: Receive, send: Send) -> None:
            scope[ABORT] = transport.abort
            await inner(scope, receive, send)

        self.app = app


class AnnouncingServer(uvicorn.Server):
    """Says on standard output when it listens, so that whoever started it need not poll."""

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        host, port = (sockets or [])[0].getsockname()[:2]
        sys.stdout.write(f"sandbox ready http://{host}:{port}\n")
        sys.stdout.flush()


def serve(options: Options, host: str, port: int) -> None:
    """Serves until SIGTERM or SIGINT. Raises OSError when the port is taken."""
    # asyncio sets TCP_NODELAY only where the protocol is named; without it each answer waits 40 ms for an acknowledgement.
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind((host, port))
    logging.basicConfig(level=logging.WARNING, stream=sys.stderr)
    config = uvicorn.Config(
        build(options),
        http=CuttableProtocol,
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_keep_alive=75,
        timeout_graceful_shutdown=_GRACE_SECONDS,
    )
    for stop in (signal.SIGTERM, signal.SIGINT):
        # uvicorn raises the signal once more when it has stopped; by then there is nothing left to end.
        signal.signal(stop, _stopped)
    AnnouncingServer(config).run(sockets=[listener])


def _stopped(number: int, frame: FrameType | None) -> None:
    return None
