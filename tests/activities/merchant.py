"""A merchant for the model: two payments at a processor that knows the truth, the real steps over PostgreSQL, and the record as it was last looked at."""

import asyncio
import itertools
from collections.abc import Awaitable
from contextlib import ExitStack
from dataclasses import replace
from datetime import timedelta
from typing import Any, ClassVar, TypeVar

from hypothesis.stateful import RuleBasedStateMachine
from psycopg.rows import dict_row
from temporalio.exceptions import ApplicationError
from temporalio.testing import ActivityEnvironment

from activities.observe import Observer
from activities.submit import Submit
from deploy.local.postgres import PostgresServer
from refunds.errors import Code, RefundError
from refunds.messages import StepInput
from refunds.points import Crashed
from refunds.processor import PaymentStatus
from refunds.status import Status
from store import claims, controls, decisions, intake, previews
from store.observing import Observing
from store.settling import Settling
from tests.activities.memory_processor import Held, MemoryProcessor
from tests.conftest import FreshDatabase
from tests.store.world import FixedClock, World

T = TypeVar("T")
CAPTURED = 10_000
SENT_WITHIN = timedelta(seconds=60)
"""Long enough that it does not pass by itself, for attempts are judged by the database's clock."""
_databases = itertools.count(1)


class Watched(World):
    """The world over one connection that stays open, because it is looked at after every step."""

    def watch(self) -> None:
        self._open = ExitStack()
        self.eye = self._open.enter_context(self.database.connect("postgres"))

    def look_away(self) -> None:
        self._open.close()

    def rows(self, query: str, *values: Any) -> list[dict[str, Any]]:
        with self.eye.cursor(row_factory=dict_row) as cursor:
            return cursor.execute(query.encode(), values).fetchall()

    def execute(self, statement: str, *values: Any, login: str = "postgres") -> int:
        return self.eye.execute(statement.encode(), values).rowcount


class Merchant(RuleBasedStateMachine):
    """One merchant with two payments, one captured and one only authorised: what it knows, and what can be done."""

    server: ClassVar[PostgresServer]
    origin: ClassVar[World]
    paid_with: ClassVar[tuple[str, ...]]

    @classmethod
    def found(cls, server: PostgresServer, template: str) -> None:
        """Open the shop once: two customers with an order each. Every example begins with a copy of it."""
        database = FreshDatabase(server, f"model_{next(_databases)}")
        server.create_database(database.name, template)

        async def opening() -> World:
            world = World(database, FixedClock())
            await world.open()
            orders = [await world.order(f"order-{number}", f"customer-{number}", amounts=(CAPTURED,)) for number in (1, 2)]
            cls.paid_with = tuple(name for [name] in orders)
            await world.close()
            return world

        with asyncio.Runner() as runner:
            cls.server, cls.origin = server, runner.run(opening())

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.database = FreshDatabase(self.server, f"model_{next(_databases)}")
        self.server.create_database(self.database.name, self.origin.database.name)
        self.clock = FixedClock()
        self.world = Watched(self.database, self.clock)
        self.world.watch()
        self.world.settings = self.world.settings.model_copy(
            update={"submit_max_attempts": 3, "submit_send_within_s": SENT_WITHIN.total_seconds()}
        )
        self.world.take_up(self.origin)
        first, second = self.paid_with
        self.processor = MemoryProcessor(self.clock)
        self.processor.payments = {
            first: Held(first, CAPTURED, 0, PaymentStatus.CAPTURED),
            second: Held(second, 0, CAPTURED, PaymentStatus.AUTHORISED),
        }
        self.names = {row["processor_payment"]: row["id"] for row in self.world.rows("SELECT id, processor_payment FROM payments")}
        self.rows: list[dict[str, Any]] = []
        self.asked: list[str] = []
        self.known: list[dict[str, Any]] = []
        self.dispute_began = False

    def close(self) -> None:
        """Leave nothing behind."""
        self.world.look_away()
        self.run(self.world.close())
        self.runner.close()
        self.server.drop_database(self.database.name)

    def run(self, work: Awaitable[T]) -> T:
        async def wait() -> T:
            return await work

        return self.runner.run(wait())

    def look(self) -> None:
        """Read the refunds, in the order they were asked for, and what was ever to be sent for them."""
        self.rows = sorted(self.world.rows("SELECT * FROM refunds"), key=lambda row: self.asked.index(row["id"]))
        self.known = self.world.rows("SELECT id, refund_id FROM operations")

    @property
    def captured(self) -> Held:
        """The captured payment."""
        return next(iter(self.processor.payments.values()))

    @property
    def settling(self) -> Settling:
        return Settling(self.world.payments, self.world.settings, "worker")

    def free(self) -> int:
        """What the processor would still let go of the captured payment, with what is under way to it already taken."""
        on_the_way = {request.idempotency_key: request.amount for _, request in self.processor.under_way}
        return CAPTURED - self.captured.returned - sum(amount for key, amount in on_the_way.items() if key not in self.processor.by_key)

    def row(self, refund: str) -> dict[str, Any]:
        return next(row for row in self.rows if row["id"] == refund)

    def status(self, refund: str) -> Status:
        return Status(self.world.row(refund)["status"])

    def having(self, *statuses: Status) -> list[str]:
        """The refunds of these statuses, in their order."""
        return [row["id"] for row in self.rows if row["status"] in statuses]

    def pick(self, which: int, *statuses: Status) -> str:
        found = self.having(*statuses)
        return found[which % len(found)]

    def operations(self, refund: str) -> list[str]:
        """What was ever to be sent for a refund, as read with the record."""
        return [row["id"] for row in self.known if row["refund_id"] == refund]

    def says(self, recording: Awaitable[Any]) -> None:
        """Record what somebody says; the store may refuse it, and nothing else may go wrong."""
        try:
            self.run(recording)
        except RefundError as error:
            assert error.code is not Code.STORE_UNAVAILABLE

    def submit(self, refund: str, *, attempt: int = 1) -> None:
        self.step(
            Submit(
                self.settling,
                Observing(self.settling.database, self.settling.settings, self.settling.worker),
                self.processor,
                self.world.settings,
            ).submit,
            refund,
            attempt=attempt,
        )

    def step(self, step: Any, refund: str, *, message: str = "", attempt: int = 1) -> None:
        """One attempt of an activity, as the engine makes it: it ends, is to be repeated, or its process dies."""
        environment = ActivityEnvironment()
        environment.info = replace(ActivityEnvironment.default_info(), attempt=attempt)
        try:
            self.run(environment.run(step, StepInput(refund, message=message)))
        except (ApplicationError, Crashed):
            return

    def read_again(self, refund: str) -> None:
        """Keep a fresh reading of a refund's payment, as the run has done when a step needs it."""
        name = next(name for name, payment in self.names.items() if payment == self.row(refund)["payment_id"])
        self.run(self.settling.save_snapshot(self.names[name], self.processor.state(name)))

    def look_at(self, name: str) -> None:
        observing = Observing(self.world.payments, self.world.settings, "worker")
        self.run(Observer(observing, self.processor, self.clock).observe(self.names[name]))

    async def refundable(self) -> int:
        async with self.world.payments.begin() as connection:
            state = self.processor.state(self.captured.id)
            return (await claims.refundable_of(connection, self.names[self.captured.id], state)).remaining

    async def quoted(self, amount: int) -> str | None:
        """What a quote of that amount would be denied for; nothing of it is kept."""
        request = self.world.request(order_id="order-1", customer_id="customer-1", amount=amount)
        async with self.world.api.engine.connect() as connection:
            given = {"actor": self.world.desk, "key": f"quote-{amount}-{len(self.rows)}", "request": request}
            accepted = await intake.accept(connection, self.clock, self.world.texts, **given)
            found = await previews.preview(connection, self.clock, accepted.refund_id, self.processor.state(self.captured.id))
            await connection.rollback()
        return found.decision.code

    async def said(self, refund: str, person: Any, outcome: str, named: str | None) -> str:
        async with self.world.api.begin() as connection:
            recorded = await decisions.record_settlement(
                connection, self.clock, refund_id=refund, actor=person, outcome=outcome, processor_refund_id=named
            )
        return recorded.id

    async def control(self, stopped: bool) -> None:
        async with self.world.api.begin() as connection:
            await controls.change(connection, self.clock, stopped=stopped, mode=None, reason="model", actor="test")
