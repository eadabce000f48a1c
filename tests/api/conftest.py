"""The API over real HTTP semantics on a real PostgreSQL. Temporal is away unless a test asks for it, and the worker's part is played through the store.

Every answer of every test is held against what ``/openapi.json`` promises for that call and status.
"""

import asyncio
import base64
import itertools
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from pydantic import BaseModel
from sqlalchemy import text
from starlette.routing import Match
from temporalio.client import Client

from api.app import ROUTES, create_app
from api.contract import Problem
from api.orchestrator import Connect
from refunds.clock import ShiftedClock
from refunds.people import PrincipalKind, Role
from refunds.processor import DisputeState, PaymentState, PaymentStatus
from refunds.settings import Settings
from store import principals, snapshots
from store.bootstrap import bootstrap
from store.db import Database, connect
from store.progress import Steps
from tests.conftest import FreshDatabase

TEXT_KEY = base64.b64encode(b"k" * 32).decode()
LONG_AGO = "2020-01-01T00:00:00Z"
_numbers = itertools.count(1)


async def no_temporal() -> Client:
    """A client of a port where nothing listens."""
    return await Client.connect("127.0.0.1:1", lazy=True)


def settings_for(**changed: Any) -> Settings:
    """Settings that nothing of the tester's environment reaches, with short waits."""
    return Settings(**({"refunds_text_key": TEXT_KEY, "api_quote_wait_s": 0.3, "api_decision_wait_s": 0.3} | changed))


@dataclass(frozen=True)
class Caller:
    """Somebody with a key."""

    id: str
    handle: str
    key: str


@dataclass
class Api:
    """A running application and everything around it."""

    app: FastAPI
    http: httpx.AsyncClient
    fresh: FreshDatabase
    settings: Settings
    clock: ShiftedClock
    owner: Database
    worker: Database
    payments: Database
    administrator: str
    callers: dict[str, Caller] = field(default_factory=dict)

    async def caller(self, name: str, *roles: Role, kind: PrincipalKind = PrincipalKind.PERSON, integration: str | None = None) -> Caller:
        """Somebody called that, with a key for these roles; the same one when asked again."""
        if name not in self.callers:
            async with self.owner.begin() as connection:
                person = await principals.create_principal(connection, self.clock, kind=kind, handle=name, name=name.title(), actor="test")
                _, key = await principals.create_key(
                    connection,
                    self.clock,
                    principal_id=person["id"],
                    roles=roles,
                    integration=integration,
                    expires_at=None,
                    actor="test",
                )
            self.callers[name] = Caller(person["id"], name, key)
        return self.callers[name]

    async def shop(self) -> Caller:
        """The support system."""
        return await self.caller("shop", Role.REQUESTER, Role.INTEGRATOR, kind=PrincipalKind.SERVICE)

    async def reviewer(self, name: str = "rita") -> Caller:
        """A reviewer."""
        return await self.caller(name, Role.REVIEWER)

    async def call(self, method: str, path: str, caller: Caller | str | None, body: Any = None, **headers: str) -> httpx.Response:
        """Make a call; a body that is bytes is sent as it is."""
        key = caller.key if isinstance(caller, Caller) else caller
        sent: dict[str, Any] = {"content": body} if isinstance(body, bytes) else {} if body is None else {"json": body}
        given = {name.replace("_", "-"): value for name, value in headers.items()}
        if key is not None:
            given["Authorization"] = f"Bearer {key}"
        if body is not None:
            given.setdefault("Content-Type", "application/json")
        return await self.http.request(method, path, headers=given, **sent)

    async def order(self, **changed: Any) -> dict[str, Any]:
        """Send an order of a customer with a payment of $300.00, delivered yesterday."""
        number = next(_numbers)
        yesterday = (self.clock.now() - timedelta(days=1)).isoformat()
        order = {
            "customer_id": f"customer-{number}",
            "customer_since": LONG_AGO,
            "placed_at": LONG_AGO,
            "delivered_at": yesterday,
            "currency": "USD",
            "payments": [{"id": f"pi_{number}", "amount": 30_000, "currency": "USD"}],
        } | changed
        answer = await self.call("PUT", f"/v1/orders/order-{number}", await self.shop(), order)
        assert answer.status_code == 201, answer.text
        return order | {"order_id": f"order-{number}"}

    def asked(self, order: dict[str, Any], **changed: Any) -> dict[str, Any]:
        """A request for $200.00 of an order, made sure of by password: consent is given by it, a reviewer decides."""
        return {
            "order_id": order["order_id"],
            "customer_id": order["customer_id"],
            "amount": 20_000,
            "currency": "USD",
            "reason": "product_issue",
            "channel": "email",
            "customer_authentication": {"method": "password", "at": "2026-09-01T10:00:00Z"},
        } | changed

    async def ask(self, body: dict[str, Any], *, caller: Caller | None = None, key: str | None = None) -> httpx.Response:
        """Ask for a refund under a key of its own."""
        key = key or f"key-{next(_numbers)}"
        return await self.call("POST", "/v1/refunds", caller or await self.shop(), body, Idempotency_Key=key)

    async def received(self, order: dict[str, Any] | None = None, **changed: Any) -> str:
        """The id of a refund that was just accepted."""
        answer = await self.ask(self.asked(order or await self.order(), **changed))
        assert answer.status_code == 202, answer.text
        return answer.json()["id"]

    async def in_review(self, order: dict[str, Any] | None = None, **changed: Any) -> dict[str, Any]:
        """A refund that waits for a reviewer, as the reviewer sees it."""
        refund_id = await self.received(order, **changed)
        await self.quote(refund_id)
        view = (await self.call("GET", f"/v1/refunds/{refund_id}", await self.reviewer())).json()
        assert view["status"] == "awaiting_review", view
        return view

    async def reading(self, refund_id: str, **changed: Any) -> None:
        """Keep a live reading of the refund's payment, as the payments role does."""
        async with self.payments.begin() as connection:
            await snapshots.bind(connection, processor="stripe", account="acct_1", mode="test", at=self.clock.now())
            query = text("SELECT p.* FROM payments p JOIN refunds r ON r.payment_id = p.id WHERE r.id = :id")
            payment = (await connection.execute(query, {"id": refund_id})).mappings().one()
            await self.keep_reading(
                connection, payment["id"], payment["processor_payment"], payment["amount"], payment["currency"], **changed
            )

    async def keep_reading(self, connection: Any, payment_id: str, name: str, amount: int, currency: str, **changed: Any) -> None:
        """Keep a reading of a payment that was captured whole, with what is ``changed``."""
        state = PaymentState(
            processor_payment=name,
            status=PaymentStatus.CAPTURED,
            currency=currency,
            captured=amount,
            capturable=0,
            refunds=(),
            dispute=DisputeState.NONE,
            risk_level="normal",
            read_at=self.clock.now(),
        )
        await snapshots.save(connection, payment_id, replace(state, **changed), now=state.read_at)

    async def quote(self, refund_id: str) -> None:
        """Play the worker: read the payment and quote."""
        await self.reading(refund_id)
        await Steps(self.worker, self.settings).prepare(refund_id)

    async def revise(self, refund_id: str, instruction: str) -> None:
        """Play the worker that hears of a recorded revision."""
        await self.reading(refund_id)
        await Steps(self.worker, self.settings).apply_message(refund_id, "revise", instruction)

    async def expire(self, refund_id: str) -> None:
        """Play the worker's timer."""
        await Steps(self.worker, self.settings).pass_deadline(refund_id)

    async def rows(self, query: str, **values: Any) -> list[Any]:
        """What is stored."""
        async with self.owner.begin() as connection:
            return list((await connection.execute(text(query), values)).mappings())

    async def ledger(self, refund_id: str) -> list[str]:
        """The kinds of ledger entries of a refund, in order."""
        rows = await self.rows("SELECT type FROM ledger WHERE refund_id = :id ORDER BY refund_version", id=refund_id)
        return [row["type"] for row in rows]

    async def count(self, table: str) -> int:
        """How many rows a table has."""
        return (await self.rows(f"SELECT count(*) AS n FROM {table}"))[0]["n"]


def held_to_contract() -> Any:
    """A hook that holds each answer against the model its route promises for that status, and each error against ``Problem``."""

    async def check(answer: httpx.Response) -> None:
        await answer.aread()
        assert answer.headers["X-Request-Id"], "every answer has an id"
        if answer.status_code >= 400 and answer.request.url.path.startswith("/v1/"):
            assert answer.headers["content-type"] == "application/problem+json", answer.text
            problem = Problem.model_validate_json(answer.content)
            assert problem.status == answer.status_code
            assert problem.request_id == answer.headers["X-Request-Id"]
        scope = {"type": "http", "method": answer.request.method, "path": answer.request.url.path, "headers": [], "root_path": ""}
        for route in ROUTES:
            if route.matches(scope)[0] is not Match.FULL:
                continue
            if route.path.startswith("/v1/") and answer.status_code not in (204, 404, 405):
                assert answer.status_code in route.responses, f"{route.path} does not promise {answer.status_code}: {answer.text}"
            model = route.responses.get(answer.status_code, {}).get("model")
            if model is not None:
                assert issubclass(model, BaseModel)
                model.model_validate_json(answer.content)

    return check


async def listening(fresh: FreshDatabase) -> None:
    """Wait until the application listens. Told to stop while it still connects, it would leave a half-open connection, for which a server that
    drops the database waits a minute."""
    query = "SELECT count(*) FROM pg_stat_activity WHERE datname = %s AND query LIKE 'LISTEN%%'"
    async with asyncio.timeout(20):
        with fresh.server.connect("postgres", "postgres") as connection:
            while connection.execute(query, [fresh.name]).fetchone() == (0,):  # noqa: ASYNC110 - the server is what is asked
                await asyncio.sleep(0.01)


@asynccontextmanager
async def running(fresh: FreshDatabase, temporal: Connect = no_temporal, **changed: Any) -> AsyncIterator[Api]:
    """The application on a database of the test's own, bootstrapped, with the logins the processes have."""
    settings = settings_for(**changed)
    clock = ShiftedClock()
    async with AsyncExitStack() as stack:

        def login(role: str) -> Database:
            database = connect(fresh.url(role), clock, settings, name=role)
            stack.push_async_callback(database.close)
            return database

        owner = login("refunds_owner")
        administrator = await bootstrap(owner)
        assert administrator is not None
        app = create_app(settings, login("refunds_api"), temporal)
        await stack.enter_async_context(app.router.lifespan_context(app))
        await listening(fresh)
        transport = httpx.ASGITransport(app, raise_app_exceptions=False)
        hooks = {"response": [held_to_contract()]}
        http = await stack.enter_async_context(httpx.AsyncClient(transport=transport, base_url="http://api", event_hooks=hooks))
        yield Api(app, http, fresh, settings, clock, owner, login("refunds_worker"), login("refunds_payments"), administrator)


@pytest.fixture
async def api(database: FreshDatabase) -> AsyncIterator[Api]:
    """A running application that cannot reach Temporal."""
    async with running(database) as started:
        yield started


@pytest.fixture(scope="module")
async def shared_api(module_database: FreshDatabase) -> AsyncIterator[Api]:
    """The same, one for a module whose tests leave each other alone."""
    async with running(module_database) as started:
        yield started
