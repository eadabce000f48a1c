"""Puts the sandbox together: Stripe's paths, the control API, health, and what runs in the background."""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from deploy.sandbox import schedule
from deploy.sandbox.api import StripeApi
from deploy.sandbox.apikeys import ApiKeys
from deploy.sandbox.control import Control
from deploy.sandbox.faults import Faults
from deploy.sandbox.idempotency import Keys
from deploy.sandbox.options import Options
from deploy.sandbox.routes import OPERATIONS
from deploy.sandbox.state import State
from deploy.sandbox.webhooks import Outbox

_log = logging.getLogger("sandbox")


def _loud(task: asyncio.Task[None]) -> None:
    """A background task that dies would leave webhooks or late refunds undone without a word."""
    if not task.cancelled() and task.exception() is not None:
        _log.critical("the sandbox's background work has died", exc_info=task.exception())


async def _health(request: Request) -> Response:
    return JSONResponse({"status": "ok"})


def build(options: Options) -> ASGIApp:
    """The ASGI application. It expects to be served by deploy.sandbox.server, which lets it cut connections."""
    state = State(options.data)
    faults = Faults(state, OPERATIONS)
    outbox = Outbox(state, faults, options.webhook_lanes)
    api_keys = ApiKeys(state)
    api = StripeApi(state, faults, outbox, Keys(state, options.key_seconds), api_keys)
    control = Control(state, faults, outbox, api_keys, api, options)

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        tasks = [asyncio.create_task(outbox.run()), asyncio.create_task(schedule.run(state, outbox))]
        for task in tasks:
            task.add_done_callback(_loud)
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
                with suppress(asyncio.CancelledError):
                    await task
            state.close()

    rest = Starlette(routes=[Route("/healthz", _health), *control.routes()], lifespan=lifespan)

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        # Stripe's paths go past the router and its middleware: they are the hot path of the benchmark.
        if scope["type"] == "http" and not scope["path"].startswith(("/_sandbox", "/healthz")):
            await api(scope, receive, send)
        else:
            await rest(scope, receive, send)

    return app
