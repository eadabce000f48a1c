"""A small installation on real PostgreSQL: each function is called over the login of the process that calls it in production, so grants are proven by use."""

import base64
import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
from psycopg.rows import dict_row
from pydantic import SecretStr

from refunds.errors import Code, RefundError
from refunds.messages import Situation
from refunds.orders import Order
from refunds.people import Actor, PrincipalKind, Role
from refunds.processor import DisputeState, PaymentState, PaymentStatus, ProcessorRefund
from refunds.requests import RefundRequest, RevisionRequest, Ticket
from refunds.settings import Settings
from store import decisions, grants, intake, orders, policies, principals, snapshots
from store.bootstrap import bootstrap
from store.classifying import Classifying
from store.db import Database, connect
from store.decisions import Recorded
from store.operations import Attempt, Operation, Payments
from store.progress import Steps
from store.texts import Texts
from tests.conftest import FreshDatabase

START = datetime(2026, 6, 1, 12, 0, 0, tzinfo=UTC)
TEXT_KEY = bytes(range(32))
_numbers = itertools.count(1)


@dataclass
class FixedClock:
    """Stands still until it is moved."""

    at: datetime = START

    def now(self) -> datetime:
        return self.at

    def advance(self, **by: float) -> None:
        self.at += timedelta(**by)


def settings() -> Settings:
    """Settings of a test: generous waits, because twenty tasks share two cores."""
    return Settings(
        database_url=SecretStr("postgresql://unused"),
        database_lock_timeout_ms=5_000,
        database_pool_size=20,
        refunds_text_key=SecretStr(base64.b64encode(TEXT_KEY).decode()),
    )


@dataclass
class World:
    """One database with a policy, people, orders and readings of payments."""

    database: FreshDatabase
    clock: FixedClock
    settings: Settings = field(default_factory=settings)
    _pools: dict[str, Database] = field(default_factory=dict)

    async def open(self) -> None:
        owner = self._pool("refunds_owner")
        await bootstrap(owner)
        async with self.payments.begin() as connection:
            await snapshots.bind(connection, processor="stripe", account="acct_1", mode="test", at=self.clock.now())
        self.desk = await self.actor("desk", PrincipalKind.SERVICE, Role.REQUESTER)
        self.ann = await self.actor("ann", PrincipalKind.PERSON, Role.REVIEWER)
        self.bob = await self.actor("bob", PrincipalKind.PERSON, Role.REVIEWER)
        self.mia = await self.actor("mia", PrincipalKind.PERSON, Role.MANAGER)

    def take_up(self, founded: "World") -> None:
        """Go on in a copy of the database of one that was opened."""
        self.desk, self.ann, self.bob, self.mia = founded.desk, founded.ann, founded.bob, founded.mia

    async def close(self) -> None:
        for pool in self._pools.values():
            await pool.close()

    def _pool(self, login: str) -> Database:
        if login not in self._pools:
            self._pools[login] = connect(self.database.url(login), self.clock, self.settings, name="test")
        return self._pools[login]

    @property
    def api(self) -> Database:
        return self._pool(grants.API)

    @property
    def payments(self) -> Database:
        return self._pool(grants.PAYMENTS)

    @property
    def steps(self) -> Steps:
        return Steps(self._pool(grants.WORKER), self.settings)

    @property
    def submitting(self) -> Payments:
        return Payments(self.payments, self.settings, "test-worker")

    @property
    def classifying(self) -> Classifying:
        return Classifying(self._pool(grants.CLASSIFY), self.texts)

    @property
    def texts(self) -> Texts:
        return Texts(self.clock)

    def rows(self, query: str, *values: Any) -> list[dict[str, Any]]:
        """Read with every right there is."""
        with self.database.connect("postgres") as connection, connection.cursor(row_factory=dict_row) as cursor:
            return cursor.execute(query.encode(), values).fetchall()

    def execute(self, statement: str, *values: Any, login: str = "postgres") -> int:
        """Run one statement over a login; returns how many rows it touched."""
        with self.database.connect(login) as connection:
            return connection.execute(statement.encode(), values).rowcount

    def row(self, refund_id: str) -> dict[str, Any]:
        [found] = self.rows("SELECT * FROM refunds WHERE id = %s", refund_id)
        return found

    def ledger(self, refund_id: str) -> list[dict[str, Any]]:
        return self.rows("SELECT * FROM ledger WHERE refund_id = %s ORDER BY refund_version", refund_id)

    def count(self, table: str) -> int:
        return self.rows(f"SELECT count(*) AS n FROM {table}")[0]["n"]

    # --- people and policy -------------------------------------------------------------------------------------------------------

    async def actor(self, handle: str, kind: PrincipalKind, *roles: Role) -> Actor:
        """Make somebody with a key, and authenticate by it."""
        async with self.api.begin() as connection:
            owner = await principals.create_principal(connection, self.clock, kind=kind, handle=handle, name=handle.title(), actor="test")
            _, key = await principals.create_key(
                connection, self.clock, principal_id=owner["id"], roles=roles, integration=None, expires_at=None, actor="test"
            )
            return await principals.authenticate(connection, key, self.clock.now())

    async def policy(self, source: str) -> int:
        """Put another policy in force, a moment after the one before: two versions cannot take effect at one instant."""
        self.clock.advance(microseconds=1)
        async with self.api.begin() as connection:
            published = await policies.publish(connection, self.clock, source=source, effective_from=None, author_id=None, note="test")
            return published.row["version"]

    # --- the merchant's side -----------------------------------------------------------------------------------------------------

    async def order(
        self, ref: str = "order-1", customer: str = "customer-1", amounts: Sequence[int] = (10_000,), currency: str = "USD", **more: Any
    ) -> list[str]:
        """Store an order with one payment an amount; returns the processor's ids of the payments."""
        ids = [f"pi_test{next(_numbers)}" for _ in amounts]
        body = {
            "customer_id": customer,
            "customer_since": "2020-01-01T00:00:00Z",
            "placed_at": "2026-05-20T00:00:00Z",
            "delivered_at": "2026-05-25T00:00:00Z",
            "currency": currency,
            "payments": [{"id": i, "amount": a, "currency": currency} for i, a in zip(ids, amounts, strict=True)],
        }
        async with self.api.begin() as connection:
            await orders.put_order(connection, self.clock, external_ref=ref, order=Order.model_validate(body | more), actor="test")
        return ids

    async def read(self, processor_payment: str, captured: int = 10_000, **other: Any) -> PaymentState:
        """Keep a live reading of a payment, as the payments role does."""
        values: dict[str, Any] = {
            "processor_payment": processor_payment,
            "status": PaymentStatus.CAPTURED,
            "currency": "USD",
            "captured": captured,
            "capturable": 0,
            "refunds": tuple[ProcessorRefund](),
            "dispute": DisputeState.NONE,
            "risk_level": "normal",
            "read_at": self.clock.now(),
            "raw_status": "succeeded",
        }
        state = PaymentState(**(values | other))
        [payment] = self.rows("SELECT id FROM payments WHERE processor_payment = %s", processor_payment)
        await self.submitting.save_snapshot(payment["id"], state)
        return state

    # --- a refund's way ----------------------------------------------------------------------------------------------------------

    def request(self, **fields: Any) -> RefundRequest:
        """A request of the authenticated customer for an exact amount."""
        body = {
            "order_id": "order-1",
            "customer_id": "customer-1",
            "customer_authentication": {"method": "password", "at": "2026-06-01T11:59:00Z"},
            "reason": "product_issue",
        }
        if not fields.get("full"):
            body |= {"amount": 3_000, "currency": "USD"}
        return RefundRequest.model_validate({k: v for k, v in (body | fields).items() if v is not None})

    async def accept(self, request: RefundRequest | Ticket | None = None, key: str | None = None, actor: Actor | None = None) -> str:
        """Store a request; returns the refund's id."""
        async with self.api.begin() as connection:
            accepted = await intake.accept(
                connection,
                self.clock,
                self.texts,
                actor=actor or self.desk,
                key=key or f"key-{next(_numbers)}",
                request=request or self.request(),
            )
        return accepted.refund_id

    async def quoted(self, actor: Actor | None = None, **fields: Any) -> tuple[str, Situation]:
        """Store a request on a payment that was just read, and quote it."""
        refund_id = await self.accept(self.request(**fields), actor=actor)
        return refund_id, await self.steps.prepare(refund_id)

    async def ready(self, captured: int = 10_000, **reading: Any) -> str:
        """One order with one payment, just read; returns the processor's id of the payment."""
        [payment] = await self.order(amounts=(captured,))
        await self.read(payment, captured, **reading)
        return payment

    async def attempt(self, refund_id: str, captured: int = 10_000, **reading: Any) -> tuple[Operation, Attempt] | Situation:
        """Open an attempt on a payment that was just read, as submitting does."""
        seen = await self.submitting.standing(refund_id)
        return await self.submitting.open_attempt(seen, await self.read(seen.processor_payment, captured, **reading))

    async def attempted(self, refund_id: str, captured: int = 10_000, **reading: Any) -> tuple[Operation, Attempt]:
        """Open an attempt, which nothing may be in the way of."""
        opened = await self.attempt(refund_id, captured, **reading)
        assert not isinstance(opened, Situation), opened
        return opened

    async def kept(self, refund_id: str, captured: int = 10_000, **reading: Any) -> Situation:
        """Try to open an attempt, which something must be in the way of."""
        opened = await self.attempt(refund_id, captured, **reading)
        assert isinstance(opened, Situation), opened
        return opened

    async def decide(self, refund_id: str, actor: Actor, verdict: str = "approve", terms_hash: str | None = None) -> Recorded:
        """Record a decision on the present terms, or on others."""
        terms_hash = terms_hash or self.row(refund_id)["terms_hash"]
        async with self.api.begin() as connection:
            return await decisions.record_review(
                connection, self.clock, refund_id=refund_id, actor=actor, verdict=verdict, terms_hash=terms_hash, reason="looked at it"
            )

    async def refused(self, refund_id: str, actor: Actor, verdict: str = "approve", terms_hash: str | None = None) -> Code:
        """Have a decision refused; returns the code, and holds that nothing at all changed."""
        before = self.row(refund_id), len(self.ledger(refund_id)), self.count("decisions")
        try:
            await self.decide(refund_id, actor, verdict, terms_hash)
        except RefundError as error:
            assert (self.row(refund_id), len(self.ledger(refund_id)), self.count("decisions")) == before
            return error.code
        raise AssertionError("the decision was taken")

    async def consent(self, refund_id: str, *, agreed: bool = True, terms_hash: str | None = None) -> Recorded:
        async with self.api.begin() as connection:
            return await decisions.record_consent(
                connection,
                self.clock,
                refund_id=refund_id,
                actor=self.desk,
                agreed=agreed,
                terms_hash=terms_hash or self.row(refund_id)["terms_hash"],
            )

    async def withdraw(self, refund_id: str) -> Recorded:
        async with self.api.begin() as connection:
            return await decisions.record_withdrawal(connection, self.clock, refund_id=refund_id, actor=self.desk)

    async def record_revision(self, refund_id: str, actor: Actor, **fields: Any) -> Recorded:
        body = {"terms_hash": self.row(refund_id)["terms_hash"]} | fields
        if "amount" in body:
            body |= {"currency": body.get("currency", "USD")}
        async with self.api.begin() as connection:
            return await decisions.record_revision(
                connection, self.clock, refund_id=refund_id, actor=actor, request=RevisionRequest.model_validate(body)
            )

    async def revise(self, refund_id: str, actor: Actor, **fields: Any) -> Situation:
        """Record a revision and let it count."""
        recorded = await self.record_revision(refund_id, actor, **fields)
        return await self.steps.apply_message(refund_id, "revise", recorded.id)


def denied(error: psycopg.Error) -> bool:
    """Whether a login was not allowed to."""
    return isinstance(error, psycopg.errors.InsufficientPrivilege)
