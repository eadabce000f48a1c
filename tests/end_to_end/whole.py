"""The whole product as real processes, and what people and systems do with it: everything over HTTP, trouble only at the sandbox's control address."""

import asyncio
import itertools
import json
import os
import secrets
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest
from temporalio.client import Client, WorkflowExecutionStatus

from api.schemas import RefundView
from deploy.local import ports
from deploy.local.progress import Silent
from deploy.local.stack import LocalStack
from refunds.clock import SystemClock, rfc3339
from tests.conftest import open_directory

POLICY = Path(__file__).with_name("policy.yaml")
PATIENCE_S = 30.0
POLL_S = 0.05
LONG_AGO = "2020-01-01T00:00:00Z"
# What is tried again, looked after or given up by itself is so within a moment, because nobody here waits for minutes.
SETTINGS = {
    "SUBMIT_MAX_ATTEMPTS": "3",
    "SUBMIT_RETRY_INITIAL_S": "0.3",
    "SUBMIT_RETRY_MAX_S": "1",
    "STRIPE_READ_TIMEOUT_S": "2",
    "HELD_RECHECK_S": "2",
    "PENDING_POLL_INITIAL_S": "0.5",
    "SWEEP_EVERY_S": "0.5",
    "SWEEP_GRACE_S": "0.5",
    "API_QUOTE_WAIT_S": "10",
}
PEOPLE: dict[str, tuple[str, tuple[str, ...]]] = {
    "shop": ("service", ("requester", "integrator")),
    "rival": ("service", ("requester", "integrator")),
    # An agent, and the help desk it works for, which passes on what customers say: one integration.
    "bot": ("agent", ("requester",)),
    "desk": ("service", ("requester",)),
    "rita": ("person", ("reviewer",)),
    "ravi": ("person", ("reviewer",)),
    "mona": ("person", ("manager",)),
    # Holds every role a person can hold: no combination of roles lets anybody approve what they asked for.
    "uma": ("person", ("requester", "reviewer", "manager", "settler", "fraud")),
    "fred": ("person", ("reviewer", "fraud")),
    "sven": ("person", ("settler",)),
    "sara": ("person", ("settler",)),
    "olga": ("person", ("operator",)),
    "anna": ("person", ("auditor",)),
}


@dataclass(frozen=True)
class Goods:
    """An order with its customer and its first payment. ``amount`` is what was paid, in the currency's API unit."""

    order: str
    customer: str
    intent: str
    amount: int
    currency: str


@dataclass(frozen=True)
class Truth:
    """What really happened at the processor: every request to create a refund and to cancel a payment, and the refunds that exist."""

    creates: list[dict[str, Any]]
    cancels: list[dict[str, Any]]
    refunds: list[dict[str, Any]]

    @property
    def amounts(self) -> list[int]:
        """What went back, sorted."""
        return sorted(refund["amount"] for refund in self.refunds if refund["status"] in ("succeeded", "pending"))


@asynccontextmanager
async def started(**overrides: str) -> AsyncIterator[LocalStack]:
    """A stack of its own, in a new directory, on unused ports, that knows nothing of the tester's environment."""
    machine = {name: os.environ[name] for name in ("PATH", "HOME", "LANG", "TMPDIR") if name in os.environ}
    with open_directory() as home:
        own_ports = dict(zip(ports.DEFAULTS, ports.unused(len(ports.DEFAULTS)), strict=True))
        stack = LocalStack(home / "stack", ports=own_ports, environment=machine, overrides=SETTINGS | overrides, reporter=Silent())
        # In threads, because the stack waits for its parts and must not keep the loop from anything else meanwhile.
        await asyncio.to_thread(stack.start)
        try:
            yield stack
        finally:
            await asyncio.to_thread(stack.stop)


@asynccontextmanager
async def staffed(**overrides: str) -> AsyncIterator["Whole"]:
    """Such a stack with its people and its policy."""
    async with started(**overrides) as stack:
        whole = Whole(stack)
        try:
            yield await whole.prepare()
        finally:
            await whole.close()


class Whole:
    """A running stack, the keys of the people in it, and the ways to see what became of a refund."""

    def __init__(self, stack: LocalStack) -> None:
        self.stack = stack
        self.keys = {"administrator": stack.admin_key}
        self.ids: dict[str, str] = {}
        self._run = secrets.token_hex(3)
        self._numbers = itertools.count(1)
        limits = httpx.Limits(max_connections=64)
        self.http = httpx.AsyncClient(base_url=stack.addresses["api"], timeout=30, trust_env=False, limits=limits)
        self._sandbox = httpx.AsyncClient(base_url=f"{stack.addresses['sandbox']}/_sandbox", timeout=30, trust_env=False)

    async def prepare(self) -> "Whole":
        """Hire everybody and publish the policy, over the API."""
        for handle, (kind, roles) in PEOPLE.items():
            await self.hire(handle, kind, roles, **({"integration": "help-desk"} if handle in ("bot", "desk") else {}))
        published = await self.call(
            "administrator", "POST", "/v1/policy/versions", {"source": POLICY.read_text(), "note": "end-to-end tests"}
        )
        assert published.status_code == 201, published.text
        return self

    async def close(self) -> None:
        """Let go of the connections."""
        await self.http.aclose()
        await self._sandbox.aclose()

    async def hire(self, handle: str, kind: str, roles: tuple[str, ...], **key: Any) -> str:
        """A person, service or agent with a key."""
        name = f"{handle.title()} of the tests"
        person = await self.call("administrator", "POST", "/v1/people", {"kind": kind, "handle": handle, "name": name})
        assert person.status_code == 201, person.text
        self.ids[handle] = person.json()["id"]
        made = await self.call("administrator", "POST", "/v1/keys", {"principal_id": self.ids[handle], "roles": list(roles), **key})
        assert made.status_code == 201, made.text
        self.keys[handle] = made.json()["key"]
        return self.keys[handle]

    # --- calls -----------------------------------------------------------------------------------------------------------------------

    async def call(self, who: str | None, method: str, path: str, body: Any = None, **headers: str) -> httpx.Response:
        """A call with somebody's key; a body that is bytes is sent as it is."""
        given = {"Content-Type": "application/json"} | {name.replace("_", "-"): value for name, value in headers.items()}
        if who is not None:
            given["Authorization"] = f"Bearer {self.keys.get(who, who)}"
        content = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
        return await self.http.request(method, path, content=content, headers=given)

    def number(self) -> str:
        """Part of an id that nothing else has."""
        return f"{self._run}{next(self._numbers)}"

    async def goods(self, amount: int = 3_000, currency: str = "USD", *, category: str = "household", **payment: Any) -> Goods:
        """An order of a new customer, delivered two days ago and paid with one payment; ``payment`` is what is special about it in the sandbox."""
        number = self.number()
        goods = Goods(f"order-{number}", f"customer-{number}", f"pi_{number}", amount, currency)
        await self.control("POST", "/payments", {"id": goods.intent, "amount": amount, "currency": currency.lower(), **payment})
        answer = await self.call("shop", "PUT", f"/v1/orders/{goods.order}", order_of(goods, category=category))
        assert answer.status_code == 201, answer.text[:300]
        return goods

    async def ask(
        self, goods: Goods, amount: int | None = None, *, who: str = "shop", key: str | None = None, **changed: Any
    ) -> httpx.Response:
        """Ask for a refund whose amount the customer, who was logged in, named."""
        body = self.asked(goods, amount) | changed
        return await self.call(who, "POST", "/v1/refunds", body, Idempotency_Key=key or self.number())

    def asked(self, goods: Goods, amount: int | None = None) -> dict[str, Any]:
        """The body of such a request."""
        paid = {"order_id": goods.order, "amount": goods.amount if amount is None else amount, "currency": goods.currency}
        return paid | {"reason": "product_issue"} | self.asked_by(goods.customer)

    def asked_by(self, customer: str) -> dict[str, Any]:
        """What every way of asking tells: the customer, who was logged in, came through a chat with Sam."""
        authentication = {"method": "password", "at": rfc3339(SystemClock().now())}
        return {"customer_id": customer, "channel": "chat", "requested_by": "sam", "customer_authentication": authentication}

    async def asked_for(self, goods: Goods, amount: int | None = None, **more: Any) -> str:
        """The id of a refund that was accepted with its quote."""
        answer = await self.ask(goods, amount, **more)
        assert answer.status_code == 201, answer.text[:300]
        return answer.json()["id"]

    async def in_review(self, amount: int = 20_000, *, category: str = "household", **more: Any) -> tuple[Goods, str]:
        """A refund that waits for a reviewer."""
        goods = await self.goods(amount, category=category)
        refund = await self.asked_for(goods, **more)
        await self.until(refund, "awaiting_review")
        return goods, refund

    async def view(self, refund: str, who: str = "anna") -> dict[str, Any]:
        """A refund as it is shown, held against the shape that the API promises."""
        answer = await self.call(who, "GET", f"/v1/refunds/{refund}")
        assert answer.status_code == 200, answer.text
        RefundView.model_validate_json(answer.content)
        return answer.json()

    async def act(self, who: str, refund: str, what: str, body: dict[str, Any]) -> httpx.Response:
        """Say something about a refund: ``decisions``, ``revisions``, ``consent``, ``withdrawal``, ``settlement``."""
        return await self.call(who, "POST", f"/v1/refunds/{refund}/{what}", body)

    async def decide(self, who: str, refund: str, verdict: str = "approve", **more: Any) -> httpx.Response:
        """Decide on the terms as they are now."""
        seen = more.pop("terms_hash", None) or (await self.view(refund))["terms_hash"]
        return await self.act(who, refund, "decisions", {"verdict": verdict, "terms_hash": seen, "note": "looked at it"} | more)

    async def agree(self, refund: str, who: str = "shop") -> httpx.Response:
        """The shop passes on that the customer agreed to the terms as they are now."""
        return await self.act(who, refund, "consent", {"agreed": True, "terms_hash": (await self.view(refund))["terms_hash"]})

    async def control(self, method: str, path: str, body: Any = None, **query: str) -> Any:
        """The sandbox's own address; a mistake raises."""
        answer = await self._sandbox.request(method, path, json=body, params=query)
        assert answer.is_success, answer.text
        return answer.json()

    async def disturb(self, intent: str, *kinds: str | dict[str, Any], times: int | None = 1, on: str = "refund.create") -> None:
        """Have the next calls about a payment hit by these faults together; ``times=None`` means all."""
        faults = [{"kind": kind} if isinstance(kind, str) else kind for kind in kinds]
        await self.control("POST", "/faults", {"on": on, "match": {"payment_intent": intent}, "times": times, "fault": faults})

    async def stop(self, reason: str = "test") -> dict[str, Any]:
        """The emergency stop, answered."""
        answer = await self.call("olga", "PUT", "/v1/controls", {"state": "stopped", "reason": reason})
        assert answer.status_code == 200, answer.text
        return answer.json()

    async def resume(self, reason: str = "test") -> dict[str, Any]:
        """The end of the stop, by another person than who stopped."""
        answer = await self.call("administrator", "PUT", "/v1/controls", {"state": "running", "reason": reason})
        assert answer.status_code == 200, answer.text
        return answer.json()

    # --- seeing ----------------------------------------------------------------------------------------------------------------------

    async def until(self, refund: str, status: str, *, within_s: float = PATIENCE_S, **also: Any) -> dict[str, Any]:
        """The refund, once it has that status and whatever else is named. Fails at once when it has ended otherwise."""
        deadline = time.monotonic() + within_s
        while True:
            view = await self.view(refund)
            if view["status"] == status and all(view[name] == value for name, value in also.items()):
                return view
            assert not view["final"], f"{refund} ended as {view['status']} {view['code']} ({view['detail']}), not {status} {also}"
            assert time.monotonic() < deadline, f"{refund} is {view['status']} {view['code']} ({view['detail']}), not {status} {also}"
            await pause()

    async def truth(self, intent: str) -> Truth:
        """What the sandbox received and did about a payment."""
        found = await self.control("GET", "/truth", payment_intent=intent)
        return Truth(found["create_requests"], found["cancel_requests"], found["refunds"])

    async def ledger(self, refund: str) -> list[dict[str, Any]]:
        """A refund's ledger entries, in order."""
        answer = await self.call("anna", "GET", f"/v1/refunds/{refund}/ledger")
        assert answer.status_code == 200, answer.text
        return answer.json()["entries"]

    async def temporal(self) -> Client:
        """A client of the stack's Temporal, as an operator has one."""
        return await Client.connect(self.stack.addresses["temporal"], namespace="default")

    async def assert_run_completed(self, refund: str) -> None:
        """The refund has exactly one run, and that has completed."""
        client = await self.temporal()

        async def runs() -> list[WorkflowExecutionStatus | None]:
            query = f"WorkflowId = 'refund-{refund}'"
            return [run.status async for run in client.list_workflows(query)]

        await eventually(runs, lambda found: found == [WorkflowExecutionStatus.COMPLETED])

    async def assert_ended(
        self, refund: str, status: str, code: str | None = None, *, goods: Goods, creates: int, returned: list[int], cancels: int = 0
    ) -> dict[str, Any]:
        """The refund has ended so, its run is over, and the processor got exactly so many requests and returned exactly these amounts of the payment."""
        view = await self.until(refund, status, code=code)
        assert view["final"]
        truth = await self.truth(goods.intent)
        assert (len(truth.creates), truth.amounts, len(truth.cancels)) == (creates, returned, cancels), truth
        await self.assert_run_completed(refund)

        async def record() -> tuple[list[int], int]:
            entries = await self.ledger(refund)
            return [entry["refund_version"] for entry in entries], (await self.view(refund))["version"]

        # A message that was on its way when it ended is entered as refused; then the two are read again.
        versions, version = await eventually(record, lambda found: found[0][-1:] == [found[1]])
        assert versions == list(range(1, version + 1)), "every change has exactly one entry"
        return view

    async def story(self, refund: str) -> list[str]:
        """The refund's ledger in short: the types of its entries, with what was decided and where it went."""
        return [_in_short(entry["type"], entry["data"]) for entry in await self.ledger(refund)]


def _in_short(kind: str, data: Mapping[str, Any]) -> str:
    if kind == "status_changed":
        return f"to {data['to']}"
    if kind == "decision_recorded":
        return f"{data['kind']} {data['verdict']}"
    if kind == "attempt_ended":
        return f"attempt {data['outcome']}"
    return kind


def order_of(goods: Goods, *, category: str = "household", **changed: Any) -> dict[str, Any]:
    """The order as the shop sends it."""
    now = SystemClock().now()
    return {
        "customer_id": goods.customer,
        "customer_since": LONG_AGO,
        "placed_at": rfc3339(now - timedelta(days=5)),
        "delivered_at": rfc3339(now - timedelta(days=2)),
        "currency": goods.currency,
        "lines": [{"id": "1", "title": "Goods", "category": category, "amount": goods.amount}],
        "payments": [{"id": goods.intent, "amount": goods.amount, "currency": goods.currency}],
    } | changed


async def eventually(look: Callable[[], Awaitable[Any]], holds: Callable[[Any], bool], within_s: float = PATIENCE_S) -> Any:
    """What was seen, once it is as wanted. Fails with what was seen last."""
    deadline = time.monotonic() + within_s
    while not holds(seen := await look()):
        assert time.monotonic() < deadline, f"still {seen}"
        await pause()
    return seen


async def pause() -> None:
    """Between two looks."""
    await asyncio.sleep(POLL_S)


def only(answer: httpx.Response, status: int, code: str, field: str | None = None) -> dict[str, Any]:
    """A problem of exactly this kind."""
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    body: Mapping[str, Any] = answer.json()
    assert (body["code"], body.get("field")) == (code, field), body
    return dict(body)


_SHARED = pytest.StashKey[Whole]()


@asynccontextmanager
async def shared(stash: pytest.Stash) -> AsyncIterator[Whole]:
    """The one stack of the session: tests/end_to_end and tests/field_cases have a fixture each, and whoever comes first starts it."""
    if _SHARED in stash:
        yield stash[_SHARED]
        return
    async with staffed() as running:
        stash[_SHARED] = running
        yield running
