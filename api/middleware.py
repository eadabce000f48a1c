"""Around every call: an id it is answered and logged under, a count, and one line of log. Plain ASGI: it sits on the hot path."""

import re
import secrets
import time

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from api.metrics import Metrics
from refunds.logs import logger

_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
_QUIET = frozenset({"/healthz", "/readyz", "/metrics"})
# Answers hold what customers own; no cache between us and the caller keeps them.
_EVERY_ANSWER = ((b"cache-control", b"no-store"), (b"x-content-type-options", b"nosniff"))
_log = logger("api")


class Observed:
    """Gives each call its ``X-Request-Id`` (the caller's own, when it is a plain one) and counts the answer under its route."""

    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        self._app = app
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the call on."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        state = scope.setdefault("state", {})
        state["request_id"] = request_id = _given(scope) or secrets.token_hex(8)
        began = time.perf_counter()
        status = 500

        async def answering(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message.get("headers", ()), (b"x-request-id", request_id.encode()), *_EVERY_ANSWER]
            await send(message)

        try:
            await self._app(scope, receive, answering)
        finally:
            seconds = time.perf_counter() - began
            route = getattr(scope.get("route"), "path", "unknown")
            method = scope["method"] if scope["method"] in _METHODS else "other"
            self._metrics.answered(route, method, status, seconds)
            if route not in _QUIET:
                log = _log.info if status < 500 else _log.warning
                log(
                    "answered",
                    request_id=request_id,
                    method=method,
                    route=route,
                    status=status,
                    code=state.get("code"),
                    ms=round(seconds * 1000),
                )


def _given(scope: Scope) -> str | None:
    for name, value in scope["headers"]:
        if name == b"x-request-id":
            text = value.decode("latin-1")
            return text if _ID.fullmatch(text) else None
    return None
