"""A merchant's shop on real parts, for tests of the steps: PostgreSQL with each role's own login, the payment sandbox over HTTP, and the steps as a worker
builds them. Only Temporal is played: :meth:`Shop.submit` runs one activity attempt, :meth:`Shop.submitted` repeats it as the server would, without its waits.
"""

import asyncio
import base64
import itertools
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

from sqlalchemy import text
from temporalio.exceptions import ApplicationError
from temporalio.testing import ActivityEnvironment

from activities.legs import SendLegs
from activities.prepare import Prepare
from activities.processors.stripe import StripeProcessor
from activities.read_payment import PaymentReader
from activities.reconcile import Reconcile
from activities.settle import Settle
from activities.settle_legs import SettleLegs
from activities.submit import Submit
from refunds.clock import ShiftedClock
from refunds.messages import Situation, StepInput
from refunds.orders import Order
from refunds.people import Actor, PrincipalKind, Role
from refunds.requests import RefundRequest
from refunds.settings import Settings
from store import controls, decisions, intake, orders, principals, scopes, snapshots
from store.bootstrap import bootstrap
from store.db import Database, connect
from store.leg_settling import LegSettling
from store.observing import Observing
from store.progress import Steps
from store.settling import Settling
from store.texts import Texts
from tests.conftest import FreshDatabase, Sandbox

API_KEY = "sk_test_activities"
TEXT_KEY = base64.b64encode(b"k" * 32).decode()
LONG_AGO = "2020-01-01T00:00:00Z"
_numbers = itertools.count(1)


def settings_for(sandbox_url: str, **changed: Any) -> Settings:
    """Settings that nothing of the tester's environment reaches."""
    given: dict[str, Any] = {
        "stripe_api_key": API_KEY,
        "stripe_api_base": sandbox_url,
        "stripe_read_timeout_s": 8,
        "submit_max_attempts": 4,
        "submit_send_within_s": 5,
        "refunds_text_key": TEXT_KEY,
    }
    return Settings(**(given | changed))


def retried(error: ApplicationError) -> str:
    """The kind of failure Temporal is told, which it repeats after the delay it is told."""
    assert error.next_retry_delay is not None
    assert error.type is not None
    return error.type


@dataclass
class Shop:
    """One merchant. The tables are shared by the tests of a module; orders, customers and payments are each test's own."""

    sandbox: Sandbox
    settings: Settings
    clock: ShiftedClock
    owner: Database
    api: Database
    steps: Steps
    payments: Settling
    processor: StripeProcessor
    people: dict[str, Actor]

    # --- before anything is sent -----------------------------------------------------------------------------------------------------

    async def paid(self, amount: int = 10_000, currency: str = "usd", **more: Any) -> str:
        """A payment at the sandbox, captured unless said otherwise; returns the PaymentIntent's id."""
        intent = f"pi_act{next(_numbers)}"
        await self.control("POST", "/payments", {"id": intent, "amount": amount, "currency": currency} | more)
        return intent

    async def control(self, method: str, path: str, json: Any = None) -> Any:
        """Call the sandbox's own address."""
        return await asyncio.to_thread(self.sandbox.control, method, path, json)

    async def fault(self, on: str, *faults: dict[str, Any], times: int | None = 1, intent: str | None = None) -> None:
        """Order a fault for the next calls; several hit the same call together."""
        match = {} if intent is None else {"payment_intent": intent}
        await self.control("POST", "/faults", {"on": on, "match": match, "times": times, "fault": list(faults)})

    async def ordered(self, intent: str, amount: int = 10_000, currency: str = "USD") -> str:
        """The merchant's order that was paid with it, by a customer of its own; returns the order's reference."""
        number = next(_numbers)
        yesterday = self.clock.now() - timedelta(days=1)
        body = {
            "customer_id": f"customer of {intent}",
            "customer_since": LONG_AGO,
            "placed_at": LONG_AGO,
            "delivered_at": yesterday.isoformat(),
            "currency": currency,
            "lines": [{"id": "line", "amount": amount}],
            "payments": [{"id": intent, "amount": amount, "currency": currency}],
        }
        async with self.owner.begin() as connection:
            order = Order.model_validate_json(json.dumps(body))
            await orders.put_order(connection, self.clock, external_ref=f"order-{number}", order=order, actor="test")
        return f"order-{number}"

    async def received(
        self, intent: str, amount: int | None = 3_000, currency: str = "USD", *, key: str | None = None, by: str = "shop", **more: Any
    ) -> str:
        """A refund that was accepted ``by`` somebody and not yet read. An order is made for a payment that has none."""
        if not await self.query("SELECT id FROM payments WHERE processor_payment = :p", p=intent):
            await self.ordered(intent, currency=currency)
        body: dict[str, Any] = {
            "payment_id": intent,
            "customer_id": f"customer of {intent}",
            "reason": "product_issue",
            "channel": "email",
            "customer_authentication": {"method": "password", "at": LONG_AGO},
        }
        body |= {"full": True} if amount is None else {"amount": amount, "currency": currency}
        request = RefundRequest.model_validate_json(json.dumps(body | more))
        async with self.api.begin() as connection:
            texts = Texts(self.clock)
            key = key or f"key-{next(_numbers)}"
            accepted = await intake.accept(connection, self.clock, texts, actor=self.people[by], key=key, request=request)
        return accepted.refund_id

    async def prepared(self, refund_id: str) -> Situation:
        """Quote it, as a process that also hosts the payments role does."""
        step = Prepare(self.steps, PaymentReader(self.payments, self.processor, self.clock, self.observing, self.processor))
        return await ActivityEnvironment().run(step.prepare, StepInput(refund_id))

    async def approved(self, intent: str | None = None, amount: int | None = 3_000, **more: Any) -> str:
        """A refund that may be submitted; the customer agrees and a person approves where the policy wants it."""
        refund_id = await self.received(intent or await self.paid(), amount, **more)
        await self.prepared(refund_id)
        return await self.agreed(refund_id)

    async def goes_on(self, refund_id: str) -> Situation:
        """Look at a held refund again, as its run does: with its payment read anew when that is called for."""
        found = await self.steps.resume_held(refund_id)
        if not found.needs:
            return found
        reader = PaymentReader(self.payments, self.processor, self.clock, self.observing, self.processor)
        await ActivityEnvironment().run(reader.read_payment, StepInput(refund_id, message=found.payment))
        return await self.steps.resume_held(refund_id)

    async def agreed(self, refund_id: str) -> str:
        """Give a quoted refund everything it waits for."""
        row = await self.row(refund_id)
        if row["status"] == "awaiting_consent":
            async with self.api.begin() as connection:
                given = {"refund_id": refund_id, "actor": self.people["shop"], "agreed": True, "terms_hash": row["terms_hash"]}
                await decisions.record_consent(connection, self.clock, **given)
        if (await self.row(refund_id))["status"] == "awaiting_review":
            await self.decide(refund_id, "rita")
        row = await self.row(refund_id)
        assert row["status"] == "approved", (row["status"], row["code"], row["detail"])
        return refund_id

    async def decide(self, refund_id: str, who: str, verdict: str = "approve") -> None:
        """A person decides on the present terms."""
        terms = (await self.row(refund_id))["terms_hash"]
        async with self.api.begin() as connection:
            given = {"refund_id": refund_id, "actor": self.people[who], "verdict": verdict, "terms_hash": terms}
            await decisions.record_review(connection, self.clock, reason="looked at it", **given)

    # --- the steps -------------------------------------------------------------------------------------------------------------------

    @property
    def observing(self) -> Observing:
        """What every reading goes through, as a worker builds it."""
        return Observing(self.payments.database, self.settings, self.payments.worker)

    def submitting(self, processor: Any = None, payments: Any = None) -> Submit:
        """The step, with its processor or store replaced by one that a test has tampered with."""
        return Submit(payments or self.payments, self.observing, processor or self.processor, self.settings, processor or self.processor)

    async def submit(self, refund_id: str, *, attempt: int = 1, step: Submit | None = None) -> Situation:
        """One attempt of the activity. Raises what Temporal would be told."""
        environment = ActivityEnvironment()
        environment.info = replace(ActivityEnvironment.default_info(), attempt=attempt)
        return await environment.run((step or self.submitting()).submit, StepInput(refund_id))

    async def submitted(self, refund_id: str, *, step: Submit | None = None) -> Situation:
        """Repeat the activity until it ends, as Temporal does, without its waits."""
        for attempt in itertools.count(1):
            try:
                return await self.submit(refund_id, attempt=attempt, step=step)
            except ApplicationError as error:
                retried(error)
                assert attempt <= self.settings.submit_max_attempts, "it never gave up"
        raise AssertionError("not reached")

    async def reconciled(self, refund_id: str) -> Situation:
        """One poll of a pending refund."""
        return await ActivityEnvironment().run(Reconcile(self.payments, self.processor).reconcile, StepInput(refund_id))

    async def settled(self, refund_id: str, message: str) -> Situation:
        """Deliver a settlement."""
        step = Settle(self.payments, self.processor, SettleLegs(self.legs, self.processor))
        return await ActivityEnvironment().run(step.settle, StepInput(refund_id, "settle", message))

    @property
    def legs(self) -> LegSettling:
        """The store's side of legs, as a worker builds it."""
        return LegSettling(self.payments.database, self.settings, self.payments.worker)

    async def send_legs(self, refund_id: str, *, processor: Any = None, legs: Any = None) -> Situation:
        """The step that sends legs, once."""
        step = SendLegs(legs or self.legs, processor or self.processor)
        return await ActivityEnvironment().run(step.send_legs, StepInput(refund_id))

    async def says(self, refund_id: str, who: str, outcome: str, processor_refund: str | None = None) -> str:
        """A person records how a parked refund is to be settled; returns the id of the record."""
        async with self.api.begin() as connection:
            recorded = await decisions.record_settlement(
                connection, self.clock, refund_id=refund_id, actor=self.people[who], outcome=outcome, processor_refund_id=processor_refund
            )
        return recorded.id

    async def parked(self, intent: str | None = None, amount: int = 3_000) -> str:
        """A refund that was sent, made nothing, and whose outcome we do not know."""
        refund_id = await self.approved(intent, amount)
        [pi] = await self.query(
            "SELECT processor_payment FROM payments JOIN refunds r ON payment_id = payments.id WHERE r.id = :r", r=refund_id
        )
        await self.fault("refund.create", {"kind": "lose_request"}, times=self.settings.submit_max_attempts, intent=pi["processor_payment"])
        assert (await self.submitted(refund_id)).status == "parked"
        return refund_id

    async def stop(self, *, stopped: bool = True, mode: str = "live") -> None:
        """Flip the emergency stop, as the API does."""
        async with self.api.begin() as connection:
            await controls.change(connection, self.clock, stopped=stopped, mode=mode, reason="test", actor="test")

    async def control_scope(self, scope: str, state: str, who: str, *, mode: str | None = None, reason: str = "test") -> dict[str, Any]:
        """Stop or resume a scope as somebody, as the API does."""
        async with self.api.begin() as connection:
            wanted = scopes.Wanted(scope, state == "stopped", mode, reason)
            return await scopes.change(connection, self.clock, wanted, self.people[who])

    # --- what became of it -----------------------------------------------------------------------------------------------------------

    async def query(self, statement: str, **values: Any) -> list[dict[str, Any]]:
        """Rows, read as the owner."""
        async with self.owner.read() as connection:
            return [dict(row) for row in (await connection.execute(text(statement), values)).mappings()]

    async def row(self, refund_id: str) -> dict[str, Any]:
        """The refund's row."""
        [row] = await self.query("SELECT * FROM refunds WHERE id = :r", r=refund_id)
        return row

    async def ended(self, refund_id: str) -> tuple[str, str | None]:
        """Its status and code."""
        row = await self.row(refund_id)
        return row["status"], row["code"]

    async def outcomes(self, refund_id: str) -> list[str | None]:
        """The outcomes of its attempts, in their order."""
        rows = await self.query(
            "SELECT a.outcome FROM attempts a JOIN operations o ON o.id = a.operation_id WHERE refund_id = :r ORDER BY o.created_at, number",
            r=refund_id,
        )
        return [row["outcome"] for row in rows]

    async def entries(self, refund_id: str) -> list[str]:
        """The types of its ledger entries, in their order."""
        rows = await self.query("SELECT type FROM ledger WHERE refund_id = :r ORDER BY refund_version", r=refund_id)
        return [row["type"] for row in rows]

    async def moves(self, refund_id: str) -> list[str]:
        """The statuses it went through, as its ledger tells them."""
        rows = await self.query(
            "SELECT data->>'to' AS status FROM ledger WHERE refund_id = :r AND type = 'status_changed' ORDER BY refund_version", r=refund_id
        )
        return [row["status"] for row in rows]

    async def let_attempts_lapse(self, refund_id: str) -> None:
        """Let the time pass in which open attempts may still be sent and answered."""
        await self.query_nothing(
            "UPDATE attempts SET send_by = clock_timestamp() - interval '1 hour' WHERE (outcome IS NULL OR outcome = 'unknown')"
            " AND operation_id IN (SELECT id FROM operations WHERE refund_id = :r)",
            r=refund_id,
        )

    async def truth(self, intent: str) -> dict[str, Any]:
        """What the sandbox was asked and really did for a payment."""
        return await self.control("GET", f"/truth?payment_intent={intent}")

    async def asked_and_made(self, intent: str) -> tuple[int, int]:
        """How many requests to refund arrived, and how many refunds there really are."""
        truth = await self.truth(intent)
        return len(truth["create_requests"]), len(truth["refunds"])

    async def remaining(self, intent: str) -> int:
        """What could still be promised to somebody else, as a new quote would see it."""
        refund_id = await self.received(intent, amount=None)
        await self.prepared(refund_id)
        [found] = await self.query("SELECT facts FROM revisions WHERE refund_id = :r", r=refund_id)
        await self.query_nothing("UPDATE refunds SET status = 'withdrawn', final_at = now() WHERE id = :r", r=refund_id)
        return found["facts"]["payment"]["remaining"]

    async def query_nothing(self, statement: str, **values: Any) -> None:
        """Change something behind the program's back, as the owner."""
        async with self.owner.begin() as connection:
            await connection.execute(text(statement), values)


class Crash(Exception):
    """The process ends here."""


async def crash() -> None:
    """Something to happen in a :class:`Tampered` part."""
    raise Crash


Happening = Callable[[], Awaitable[None]]


class Tampered:
    """A store or processor in which something happens before or after named calls: a pause, somebody else's doing, a crash."""

    def __init__(self, inner: Any, *, before: dict[str, Happening] | None = None, after: dict[str, Happening] | None = None) -> None:
        self._inner = inner
        self._before = before or {}
        self._after = after or {}

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._inner, name)
        if name not in self._before and name not in self._after:
            return found

        async def call(*arguments: Any, **options: Any) -> Any:
            if name in self._before:
                await self._before[name]()
            result = await found(*arguments, **options)
            if name in self._after:
                await self._after[name]()
            return result

        return call


async def all_of(calls: Sequence[Awaitable[Any]]) -> list[Any]:
    """The results of calls made at once; an exception is a result."""
    return await asyncio.gather(*calls, return_exceptions=True)


MakeShop = Callable[..., Awaitable[Shop]]


@asynccontextmanager
async def opening(fresh: FreshDatabase, sandbox: Sandbox) -> AsyncIterator[MakeShop]:
    """A function that opens shops on one database; all are closed at the end."""
    async with AsyncExitStack() as stack:

        async def open_shop(**changed: Any) -> Shop:
            settings, clock = settings_for(sandbox.url, **changed), ShiftedClock()
            pools: dict[str, Database] = {}
            for login in ("owner", "api", "worker", "payments"):
                pools[login] = connect(fresh.url(f"refunds_{login}"), clock, settings, name=f"test-{login}")
                stack.push_async_callback(pools[login].close)
            processor = StripeProcessor(settings, clock)
            stack.push_async_callback(processor.close)
            await bootstrap(pools["owner"])
            await _let_go(pools["owner"])
            async with pools["payments"].begin() as connection:
                account = await processor.account()
                await snapshots.bind(connection, processor="stripe", account=account, mode=settings.refunds_mode, at=clock.now())
            return Shop(
                sandbox=sandbox,
                settings=settings,
                clock=clock,
                owner=pools["owner"],
                api=pools["api"],
                steps=Steps(pools["worker"], settings),
                payments=Settling(pools["payments"], settings, "worker-1"),
                processor=processor,
                people=await _people(pools["owner"], clock),
            )

        yield open_shop


async def _let_go(owner: Database) -> None:
    """Undo what keeps everything back: the tests of a module share one database, and none begins with another's halt or breaker."""
    async with owner.begin() as connection:
        await connection.execute(text("UPDATE halts SET lifted_at = now() WHERE lifted_at IS NULL"))
        await connection.execute(text("UPDATE pacing SET open_until = NULL, next_at = '1970-01-01T00:00:00Z'"))


async def _people(owner: Database, clock: ShiftedClock) -> dict[str, Actor]:
    wanted = {
        "shop": (PrincipalKind.SERVICE, {Role.REQUESTER}),
        "bot": (PrincipalKind.AGENT, {Role.REQUESTER}),
        "other-bot": (PrincipalKind.AGENT, {Role.REQUESTER}),
        "rita": (PrincipalKind.PERSON, {Role.REVIEWER, Role.MANAGER}),
        "olga": (PrincipalKind.PERSON, {Role.OPERATOR}),
        "omar": (PrincipalKind.PERSON, {Role.OPERATOR}),
        "sam": (PrincipalKind.PERSON, {Role.SETTLER}),
        "tess": (PrincipalKind.PERSON, {Role.SETTLER}),
    }
    people: dict[str, Actor] = {}
    for name, (kind, roles) in wanted.items():
        async with owner.begin() as connection:
            found = await connection.execute(text("SELECT id FROM principals WHERE handle = :h"), {"h": name})
            person = found.scalar_one_or_none()
            if person is None:
                row = await principals.create_principal(connection, clock, kind=kind, handle=name, name=name.title(), actor="test")
                person = row["id"]
                if kind is PrincipalKind.PERSON:  # what somebody may approve is what a key of theirs carries
                    given = {"principal_id": person, "roles": tuple(roles), "integration": None, "expires_at": None, "actor": "test"}
                    await principals.create_key(connection, clock, **given)
        people[name] = Actor(person, name, name.title(), kind, frozenset(roles), "shop")
    return people
