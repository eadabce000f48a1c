"""The control API under /_sandbox: JSON, the sandbox's own and no part of Stripe's."""

import json
import sqlite3
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from deploy.sandbox import charges, connect, disputes, lives, placing, refunds, schedule, seed, truth
from deploy.sandbox.api import StripeApi
from deploy.sandbox.apikeys import ApiKeys
from deploy.sandbox.currency import check_currency
from deploy.sandbox.errors import StripeError
from deploy.sandbox.faults import Faults
from deploy.sandbox.options import Options
from deploy.sandbox.scopes import PLATFORM
from deploy.sandbox.state import State, Stored
from deploy.sandbox.webhooks import Outbox
from deploy.sandbox.work import Work

PREFIX = "/_sandbox"


def _refused(status: int, message: str) -> JSONResponse:
    return JSONResponse({"error": message}, status_code=status)


def _strict(given: dict[str, Any], allowed: frozenset[str] | set[str], required: tuple[str, ...] = ()) -> None:
    unknown = set(given) - allowed
    missing = [name for name in required if name not in given]
    if unknown or missing:
        raise ValueError(f"unknown: {sorted(unknown)}, missing: {missing}; known: {sorted(allowed)}")


async def _json(request: Request) -> Any:
    raw = await request.body()
    return json.loads(raw) if raw else {}


class Control:
    """Endpoints for tests, demos and operators of the sandbox. A mistake in a request is a 400 that says what is wrong."""

    def __init__(self, state: State, faults: Faults, outbox: Outbox, api_keys: ApiKeys, api: StripeApi, options: Options) -> None:
        self._state = state
        self._faults = faults
        self._outbox = outbox
        self._api_keys = api_keys
        self._api = api
        self._options = options
        if options.account is not None:
            state.set_setting("account", options.account)
        self._aim()

    def _aim(self) -> None:
        """Webhooks go where the command line says, or where they went before a restart, until told otherwise."""
        if self._options.webhook_url is not None:
            self._outbox.aim(self._options.webhook_url, self._options.webhook_secret)
        else:
            self._outbox.load()

    def routes(self) -> list[Route]:
        table: list[tuple[str, str, Callable[[Request], Awaitable[Response]]]] = [
            ("POST", "/payments", self.payments),
            ("POST", "/accounts", self.connect_account),
            ("POST", "/refunds", self.make_refund),
            ("POST", "/refunds/{id}", self.move_refund),
            ("POST", "/seed", self.seed),
            ("POST", "/disputes", self.open_dispute),
            ("POST", "/disputes/{id}", self.move_dispute),
            ("GET", "/faults", self.read_faults),
            ("POST", "/faults", self.order_faults),
            ("DELETE", "/faults", self.clear_faults),
            ("GET", "/truth", self.truth),
            ("POST", "/clock", self.shift_clock),
            ("GET", "/clock", self.read_clock),
            ("POST", "/reset", self.reset),
            ("PUT", "/keys", self.put_key),
            ("PUT", "/balance", self.put_balance),
            ("PUT", "/webhook", self.put_webhook),
            ("GET", "/webhooks", self.read_webhooks),
            ("POST", "/webhooks/release", self.release_webhooks),
        ]
        return [Route(PREFIX + path, _guarded(handler), methods=[method]) for method, path, handler in table]

    def _work(self) -> Work:
        return Work(self._state, self._outbox, self._state.clock.now())

    async def payments(self, request: Request) -> Response:
        """One payment or a list of them; all are placed or none."""
        given = await _json(request)
        wanted = given if isinstance(given, list) else [given]
        for item in wanted:
            _strict(item, placing.FIELDS, ("amount", "currency"))
        with self._state.transaction():
            placed = [placing.place(self._work(), item) for item in wanted]
        answers = [{"payment_intent": intent, "charge": charge} for intent, charge in placed]
        return JSONResponse(answers if isinstance(given, list) else answers[0])

    def _meant(self, given: dict[str, Any]) -> AbstractContextManager[None]:
        """The scope of the payment that a request names."""
        return self._state.acting_for(self._state.scope_of(given.get("charge") or given.get("payment_intent") or ""))

    def _charge(self, given: dict[str, Any]) -> Stored:
        charge_id = given.get("charge")
        if charge_id is None:
            charge_id = charges.of_intent(self._state, self._state.expect("payment_intent", given.get("payment_intent") or ""))
        stored = self._state.find("charge", charge_id or "")
        if stored is None:
            raise LookupError(f"no such charge: {charge_id}")
        return stored

    async def connect_account(self, request: Request) -> Response:
        """A connected account. `available` sets its balance in some currencies; in any other it has always enough."""
        given = await _json(request)
        _strict(given, {"id", "available"}, ("id",))
        if not isinstance(given["id"], str) or not given["id"].startswith("acct_"):
            raise ValueError("id is an acct_...")
        with self._state.transaction():
            self._state.set_setting("connected", sorted({*connect.accounts(self._state), given["id"]}))
            with self._state.acting_for(given["id"]):
                self._work().set_balances({check_currency(code): int(value) for code, value in (given.get("available") or {}).items()})
        return JSONResponse({"id": given["id"]})

    async def make_refund(self, request: Request) -> Response:
        """A refund as somebody makes it in the dashboard: past our system, without its metadata."""
        given = await _json(request)
        _strict(given, {"payment_intent", "charge", "amount", "reason", "metadata", "status"})
        with self._state.transaction(), self._meant(given):
            work = self._work()
            stored = self._charge(given)
            amount = refunds.refundable_amount(work, stored.body, given.get("amount"))
            body = refunds.make(work, stored, amount, given.get("reason"), given.get("metadata") or {})
            if given.get("status") not in (None, body["status"]):
                body = refunds.move(work, body["id"], given["status"])
        return JSONResponse(body)

    async def move_refund(self, request: Request) -> Response:
        given = await _json(request)
        _strict(given, {"status", "failure_reason", "pending_reason"}, ("status",))
        if given["status"] not in lives.STATUSES:
            raise ValueError(f"status is one of {sorted(lives.STATUSES)}")
        with self._state.transaction(), self._state.acting_for(self._state.scope_of(request.path_params["id"])):
            reason, pending = given.get("failure_reason"), given.get("pending_reason")
            body = refunds.move(self._work(), request.path_params["id"], given["status"], reason, pending)
        return JSONResponse(body)

    async def seed(self, request: Request) -> Response:
        """A list of refunds made long ago; all or none. Thousands a second, one call at a time: nothing else is served meanwhile."""
        given = await _json(request)
        if not isinstance(given, list) or not all(isinstance(item, dict) for item in given):
            raise ValueError("a list of refunds")
        with self._state.transaction():
            return JSONResponse({"made": seed.refunds_of_old(self._work(), given)})

    async def open_dispute(self, request: Request) -> Response:
        given = await _json(request)
        _strict(given, {"payment_intent", "charge", "status", "amount"})
        with self._state.transaction(), self._meant(given):
            charge = self._charge(given).body
            if not charge["captured"]:
                raise ValueError("only a captured payment can be disputed")
            status = given.get("status", "needs_response")
            body = disputes.open_on(self._work(), charge, status, given.get("amount"))
        return JSONResponse(body)

    async def move_dispute(self, request: Request) -> Response:
        given = await _json(request)
        _strict(given, {"status"}, ("status",))
        with self._state.transaction(), self._state.acting_for(self._state.scope_of(request.path_params["id"])):
            body = disputes.move(self._work(), request.path_params["id"], given["status"])
        return JSONResponse(body)

    async def read_faults(self, request: Request) -> Response:
        return JSONResponse(self._faults.shown())

    async def order_faults(self, request: Request) -> Response:
        """One order or a list of them, which is served in that order. The answer is always the list."""
        given = await _json(request)
        orders = given if isinstance(given, list) else [given]
        for order in orders:
            self._faults.check(order)
        return JSONResponse([self._faults.order(order) for order in orders])

    async def clear_faults(self, request: Request) -> Response:
        self._faults.clear()
        return JSONResponse([])

    async def truth(self, request: Request) -> Response:
        return JSONResponse(truth.report(self._state, self._api.log, request.query_params.get("payment_intent")))

    async def shift_clock(self, request: Request) -> Response:
        """Moves the clock forward and carries out what is then due before it answers."""
        given = await _json(request)
        _strict(given, {"advance_seconds"}, ("advance_seconds",))
        if not isinstance(given["advance_seconds"], int) or given["advance_seconds"] < 0:
            raise ValueError("advance_seconds is a whole number, not negative")
        clock = self._state.clock
        clock.shift_ms += given["advance_seconds"] * 1000
        self._state.set_setting("clock_shift_ms", clock.shift_ms)
        schedule.run_due(self._state, self._outbox)
        self._outbox.wake.set()
        return await self.read_clock(request)

    async def read_clock(self, request: Request) -> Response:
        clock = self._state.clock
        return JSONResponse({"now": clock.now(), "shifted_seconds": clock.shift_ms // 1000})

    async def reset(self, request: Request) -> Response:
        """Forgets everything but the account and what the command line set."""
        with self._state.transaction():
            self._state.wipe()
        self._faults.clear()
        self._api_keys.forget()
        self._aim()
        self._state.clock.shift_ms = 0
        return JSONResponse({})

    async def put_key(self, request: Request) -> Response:
        given = await _json(request)
        _strict(given, {"key", "permissions", "revoked"}, ("key",))
        self._api_keys.register(given["key"], given.get("permissions"), bool(given.get("revoked")))
        return JSONResponse({"key": given["key"]})

    async def put_balance(self, request: Request) -> Response:
        """Sets what is available for refunds in a currency (null: always enough), and pays what waited for it."""
        given = await _json(request)
        _strict(given, {"currency", "available", "account"}, ("currency", "available"))
        code, work = check_currency(given["currency"]), self._work()
        if given.get("account") not in (None, *connect.accounts(self._state)):
            raise LookupError(f"no such connected account: {given['account']}")
        with self._state.transaction(), self._state.acting_for(given.get("account") or PLATFORM):
            others = {other: value for other, value in work.balances().items() if other != code}
            work.set_balances(others if given["available"] is None else others | {code: int(given["available"])})
            refunds.pay_waiting(work, code)
            return JSONResponse(work.balances())

    async def put_webhook(self, request: Request) -> Response:
        given = await _json(request)
        _strict(given, {"url", "secret"}, ("url",))
        self._outbox.aim(given["url"], given.get("secret", ""))
        return JSONResponse({"url": given["url"]})

    async def read_webhooks(self, request: Request) -> Response:
        """How many deliveries are due, held, done or failed."""
        return JSONResponse(self._outbox.outstanding())

    async def release_webhooks(self, request: Request) -> Response:
        given = await _json(request)
        _strict(given, {"reverse"})
        return JSONResponse({"released": self._outbox.release(bool(given.get("reverse")))})


def _guarded(handler: Callable[[Request], Awaitable[Response]]) -> Callable[[Request], Awaitable[Response]]:
    async def endpoint(request: Request) -> Response:
        try:
            return await handler(request)
        except StripeError as error:
            return _refused(400, error.message)
        except (ValueError, TypeError) as error:
            return _refused(400, str(error))
        except LookupError as error:
            return _refused(404, str(error))
        except sqlite3.IntegrityError as error:
            return _refused(409, f"exists already: {error}")

    return endpoint
