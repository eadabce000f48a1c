"""Stripe's side: one request in, one answer out, with keys, faults and the log of truth in between."""

import asyncio
import contextlib
import secrets
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from starlette.types import Receive, Scope, Send

from deploy.sandbox import connect, errors, scopes
from deploy.sandbox.accounts import DEFAULT_ACCOUNT
from deploy.sandbox.apikeys import ApiKeys, is_live, masked, presented
from deploy.sandbox.errors import StripeError
from deploy.sandbox.expand import expanded
from deploy.sandbox.faults import Fault, Faults
from deploy.sandbox.idempotency import Kept, Keys
from deploy.sandbox.objects import API_VERSION, Body
from deploy.sandbox.params import Params, parse
from deploy.sandbox.routes import Route, match
from deploy.sandbox.state import State, dumps
from deploy.sandbox.truth import LOGGED, LOST, RETURNED, RETURNS, RequestLog
from deploy.sandbox.webhooks import Outbox
from deploy.sandbox.work import Call

LARGEST_BODY = 1_000_000
ABORT = "sandbox.abort"
"""The key in the ASGI scope under which the server puts a function that cuts the TCP connection."""
_JSON = b"application/json"


@dataclass(slots=True)
class Answer:
    """What goes back. `content` is already encoded."""

    status: int
    content: str
    request_id: str
    original: str | None = None
    replayed: bool = False
    content_type: bytes = _JSON
    made: str | None = None


@dataclass(slots=True)
class Incoming:
    """One request after its route is known."""

    method: str
    path: str
    route: Route
    args: tuple[str, ...]
    params: Params
    canonical: str
    key: str | None
    request_id: str
    scope: str


class StripeApi:
    """The ASGI application under /v1."""

    def __init__(self, state: State, faults: Faults, outbox: Outbox, keys: Keys, api_keys: ApiKeys) -> None:
        self._state = state
        self._faults = faults
        self._outbox = outbox
        self._keys = keys
        self._api_keys = api_keys
        self.log = RequestLog(state)
        self._in_use: set[str] = set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request_id = "req_" + secrets.token_hex(7)
        headers: dict[bytes, bytes] = dict(scope["headers"])
        key = headers.get(b"idempotency-key", b"").decode("latin-1") or None
        try:
            body = await _body(receive) if scope["method"] != "GET" else ""
            if body is None:
                return
            request = self._read(scope, headers, body, key, request_id)
            faults = self._faults.take(request.route.op, self._seen(request)) if self._faults else {}
            answer = await self._disturbed(request, faults, receive) if faults else self._answer(request)
        except StripeError as error:
            answer = self._refusal(error, request_id)
        except asyncio.CancelledError:
            # The sandbox stops while a call is held back. A 500 would be an answer, which nobody ordered.
            answer = None
        if answer is None:
            await _cut(scope, receive)
            return
        content = answer.content.encode()
        headers_out = _headers(answer, key, len(content))
        await send({"type": "http.response.start", "status": answer.status, "headers": headers_out})
        await send({"type": "http.response.body", "body": content})

    def _read(self, scope: Scope, headers: dict[bytes, bytes], body: str, key: str | None, request_id: str) -> Incoming:
        method, path = scope["method"], scope["path"]
        found = match(method, path)
        authorization = headers.get(b"authorization")
        resource = found[0].resource if found else ""
        self._api_keys.check(authorization.decode("latin-1") if authorization else None, resource, method)
        if found is None:
            raise errors.unrecognized_url(method, path)
        version = headers.get(b"stripe-version", b"").decode("latin-1")
        if version not in ("", API_VERSION):
            raise errors.invalid(f"Invalid Stripe API version: {version}. The sandbox answers in {API_VERSION} only.")
        params, canonical = parse(body if method == "POST" else scope["query_string"].decode("latin-1"))
        return Incoming(method, path, found[0], found[1], params, canonical, key, request_id, self._scope(headers))

    def _scope(self, headers: dict[bytes, bytes]) -> str:
        """Whose objects the call is about: the key's mode, and the connected account in `Stripe-Account`. Raises 403 for one that is not connected."""
        authorization = headers.get(b"authorization", b"").decode("latin-1")
        account = headers.get(b"stripe-account", b"").decode("latin-1") or None
        if account is not None:
            own = self._state.setting("account", DEFAULT_ACCOUNT)
            if account not in (own, *connect.accounts(self._state)):
                raise errors.no_access(masked(presented(authorization) or ""), account)
            account = None if account == own else account
        return scopes.scope(account, live=is_live(authorization))

    def _payment_intent(self, request: Incoming) -> str | None:
        """The PaymentIntent that a request is about, by whichever id it names."""
        for object_id in (request.params.get("payment_intent"), request.params.get("charge"), *request.args[:1]):
            if isinstance(object_id, str):
                return self._state.payment_intent_of(object_id)
        return None

    def _seen(self, request: Incoming) -> Callable[[str], str | None]:
        def value(name: str) -> str | None:
            return self._payment_intent(request) if name == "payment_intent" else request.key if name == "key" else None

        return value

    def _refusal(self, error: StripeError, request_id: str) -> Answer:
        account = self._state.setting("account", DEFAULT_ACCOUNT)
        log = None if error.status == 401 else f"https://dashboard.stripe.com/{account}/test/logs/{request_id}"
        return Answer(error.status, dumps(error.body(log)), request_id)

    def _answer(self, request: Incoming, faults: dict[str, Fault] | None = None, log: int | None = None) -> Answer:
        """Does the work and keeps its result. A POST is one transaction, with its key and its line in the log."""
        faults = faults or {}
        with self._state.acting_for(request.scope):
            if request.method == "GET":
                return self._work(request, faults)
            with self._state.transaction():
                return self._kept_or_done(request, faults, log)

    def _kept_or_done(self, request: Incoming, faults: dict[str, Fault], log: int | None) -> Answer:
        key = request.key
        if log is None and request.route.op in LOGGED:
            log = self._log(request)
        kept = None
        try:
            if key is not None and self._keys.stored_as(key) in self._in_use:
                raise errors.key_in_use(key)
            kept = None if key is None else self._keys.find(key, request.method, request.path, request.canonical)
        except StripeError as error:
            answer = self._refusal(error, request.request_id)
        else:
            answer = self._work(request, faults) if kept is None else _replay(kept, request.request_id)
        if key is not None and kept is None and answer.original is not None and "forget_key" not in faults:
            kept = Kept(answer.status, answer.content, request.request_id)
            self._keys.keep(key, request.method, request.path, request.canonical, kept)
        if log is not None:
            self.log.answered(log, answer.status, made=answer.made, replayed=answer.replayed)
        return answer

    def _log(self, request: Incoming) -> int:
        with self._state.acting_for(request.scope):
            return self.log.received(request.route.op, request.key, request.params, self._payment_intent(request))

    def _work(self, request: Incoming, faults: dict[str, Fault]) -> Answer:
        """Runs the endpoint. `original` is set on answers that are to be kept under the key."""
        state = self._state
        call = Call(
            state,
            self._outbox,
            state.clock.now(),
            {"id": request.request_id, "idempotency_key": request.key},
            request.params,
            request.args,
            "hide" in faults,
            faults.get("outcome"),
        )
        fields = faults["alter"]["fields"] if "alter" in faults else {}
        if request.route.op in RETURNS and "amount" in fields:
            call.params["amount"] = str(fields["amount"])
        if request.method == "POST":
            state.db.execute("SAVEPOINT endpoint")
        try:
            broken = faults["status"] if "status" in faults and faults["status"]["status"] == 500 else None
            if broken is not None and not broken.get("after_work"):
                return _failure(broken, request.request_id)
            body = request.route.handler(call)
            made = body["id"] if request.route.op in LOGGED else None
            if request.route.op in RETURNS:
                self._disturb_return(body, faults, fields)
            body = expanded(call, body) if "expand" in call.params else body
            if broken is not None:
                failed = _failure(broken, request.request_id)
                failed.made = made
                return failed
        except StripeError as error:
            if request.method == "POST" and not error.keep_work:
                state.db.execute("ROLLBACK TO endpoint")
            if error.missing is not None and state.is_known_in(scopes.other_mode(state.scope), error.missing):
                error.in_other_mode(live=scopes.is_live(state.scope))
            answer = self._refusal(error, request.request_id)
            answer.original = request.request_id if error.stored else None
            return answer
        if fields:
            for item in body["data"] if body["object"] == "list" else [body]:
                item.update(fields)
        return Answer(200, dumps(body), request.request_id, original=request.request_id, made=made)

    def _disturb_return(self, body: Body, faults: dict[str, Fault], fields: dict[str, Any]) -> None:
        """Makes an ordered difference the truth: altered fields are stored, a hidden refund (or reversal, or refund of a fee) is left out of lists."""
        if fields and body["object"] in RETURNED:
            body.update(fields)
            self._state.save(body)
        if "hide" in faults:
            self._state.db.execute("UPDATE objects SET hidden = 1 WHERE id = ?", (body["id"],))

    async def _disturbed(self, request: Incoming, faults: dict[str, Fault], receive: Receive) -> Answer | None:
        """Serves a call that an ordered fault hits; None means that the connection is to be cut."""
        log = self._log(request) if request.route.op in LOGGED else None
        try:
            answer = await self._delayed(request, faults, log)
        except StripeError as error:
            answer = self._refusal(error, request.request_id)
        lost = answer is None or "lose_answer" in faults
        if answer is not None and "malformed" in faults:
            answer.content = answer.content[: max(len(answer.content) // 2, 1)]
        if not lost and "hang" in faults:
            lost = await _gone_within(receive, faults["hang"]["ms"] / 1000)
        if log is not None:
            self.log.answered(log, LOST if lost or answer is None else answer.status)
        return None if lost else answer

    async def _delayed(self, request: Incoming, faults: dict[str, Fault], log: int | None) -> Answer | None:
        if "key_in_use" in faults:
            raise errors.key_in_use(request.key or "")
        if "rate_limit" in faults:
            raise errors.rate_limited(lock_timeout=bool(faults["rate_limit"].get("lock_timeout")))
        if "delay" in faults:
            key = request.key if request.method == "POST" else None
            await self._hold_key(key, request.scope, asyncio.sleep(faults["delay"]["ms"] / 1000))
        if "lose_request" in faults:
            return None
        gateway = faults["status"] if "status" in faults and faults["status"]["status"] != 500 else None
        if gateway is not None and not gateway.get("after_work"):
            return _failure(gateway, request.request_id)
        answer = self._answer(request, faults, log)
        if gateway is not None:
            # The result is kept under the key all the same: only its way back failed.
            answer = _failure(gateway, request.request_id)
        return answer

    async def _hold_key(self, key: str | None, scope: str, waiting: Awaitable[None]) -> None:
        """While a call with a key is being worked on, another one with the same key is told so (409)."""
        if key is None:
            await waiting
            return
        with self._state.acting_for(scope):
            held = self._keys.stored_as(key)
        if held in self._in_use:
            raise errors.key_in_use(key)
        self._in_use.add(held)
        try:
            await waiting
        finally:
            self._in_use.discard(held)


def _failure(fault: Fault, request_id: str) -> Answer:
    """A 5xx as ordered. A 500 comes from the API and is kept under the key; a 502 and its like come from in front."""
    status, body = fault["status"], fault.get("body")
    original = request_id if status == 500 else None
    if body is None and status in (502, 503, 504):
        page = f"<html><head><title>{status}</title></head><body>nginx</body></html>"
        return Answer(status, page, request_id, original=original, content_type=b"text/html")
    if body is None:
        body = errors.internal_error().body(None)
    content = body if isinstance(body, str) else dumps(body)
    return Answer(status, content, request_id, original=original)


def _replay(kept: Kept, request_id: str) -> Answer:
    return Answer(kept.status, kept.body, request_id, original=kept.request_id, replayed=True)


def _headers(answer: Answer, key: str | None, length: int) -> list[tuple[bytes, bytes]]:
    headers = [
        (b"content-type", answer.content_type),
        (b"request-id", answer.request_id.encode()),
        (b"stripe-version", API_VERSION.encode()),
        (b"content-length", str(length).encode()),
    ]
    if key is not None:
        headers.append((b"idempotency-key", key.encode("latin-1")))
        if answer.original is not None:
            headers.append((b"original-request", answer.original.encode()))
    if answer.replayed:
        headers.append((b"idempotent-replayed", b"true"))
    return headers


async def _body(receive: Receive) -> str | None:
    """The request's body; None when the caller left before it was whole. Raises 413."""
    whole = b""
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            return None
        whole += message.get("body", b"")
        if len(whole) > LARGEST_BODY:
            raise StripeError(413, "Request body is too large.", stored=False)
        if not message.get("more_body", False):
            return whole.decode("utf-8", "replace")


async def _cut(scope: Scope, receive: Receive) -> None:
    """Cuts the TCP connection without an answer, and returns once the server has noticed."""
    scope[ABORT]()
    while (await receive())["type"] != "http.disconnect":
        continue


async def _gone_within(receive: Receive, seconds: float) -> bool:
    """Waits; true when the caller hung up meanwhile, so that the answer is lost."""

    async def disconnected() -> None:
        while (await receive())["type"] != "http.disconnect":
            continue

    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(disconnected(), seconds)
        return True
    return False
