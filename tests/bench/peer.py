"""The peer: the same requests over the same HTTP API, with a DBOS workflow in the place of Temporal. ``python -m tests.bench.peer``.

Everything but the engine is the product's own code: the API stores the request and answers it, the workflow calls the same store functions and makes the
same calls of the payment sandbox, with the same logins. DBOS keeps its records on the same PostgreSQL server. Its workflows run inside the process that serves
HTTP, as DBOS recommends; several such processes share the work as they would in production.

What is a step: DBOS asks that whatever a workflow calls that may answer differently the next time (an API such as Stripe's, a database) is a step, whose
answer it records. So each transaction of the store and each reading or call of the sandbox is one: six. With ``BENCH_DBOS_STEPS=2`` they are bundled as
the product's own activities bundle them, which is the least that can be recorded of a refund.
"""

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace

import uvicorn
from dbos import DBOS, DBOSConfig, SetWorkflowID
from fastapi import FastAPI
from temporalio.testing import ActivityEnvironment

from activities.prepare import Prepare
from activities.processors.base import uptime
from activities.processors.stripe import StripeProcessor
from activities.read_payment import PaymentReader
from activities.submit import Submit
from api.app import create_app
from api.orchestrator import Beginning, Orchestrator, from_environment
from refunds import logs
from refunds.clock import SystemClock
from refunds.ids import workflow_id
from refunds.messages import Situation, StepInput
from refunds.processor import PaymentState, ProcessorRefund
from refunds.settings import Settings
from refunds.status import FINAL, Status
from store import snapshots
from store.db import Database, connect
from store.observing import Observing
from store.operations import Attempt, Operation, Standing
from store.progress import Steps
from store.settling import Settling

SYSTEM_DATABASE_URL = "BENCH_DBOS_URL"
EXECUTOR = "BENCH_DBOS_EXECUTOR"
STEPS = "BENCH_DBOS_STEPS"
SINGLE, BUNDLED = 6, 2
"""How many steps a refund records."""


class NotMeasured(RuntimeError):
    """Only automatic refunds that succeed are measured here."""


class _Activities:
    """The product's own steps and what they are made of, made once a process."""

    steps: Steps
    reader: PaymentReader
    settling: Settling
    processor: StripeProcessor
    prepare: Prepare
    submit: Submit

    async def open(self, settings: Settings, stack: AsyncExitStack) -> None:
        """Open what the roles ``refunds`` and ``payments`` of a worker open."""
        clock = SystemClock()

        def database(role: str) -> Database:
            opened = connect(getattr(settings, f"database_url_{role}").get_secret_value(), clock, settings, name=f"dbos-{role}")
            stack.push_async_callback(opened.close)
            return opened

        processor = StripeProcessor(settings, clock)
        stack.push_async_callback(processor.close)
        settling = Settling(database("payments"), settings, f"dbos/{os.getpid()}")
        async with settling.database.begin() as connection:
            account = await processor.account()
            await snapshots.bind(connection, processor=processor.name, account=account, mode=settings.refunds_mode, at=clock.now())
        self.steps, self.reader = Steps(database("refunds"), settings), PaymentReader(settling, processor, clock)
        self.settling, self.processor = settling, processor
        self.prepare = Prepare(self.steps, self.reader)
        self.submit = Submit(settling, Observing(settling.database, settings, settling.worker), processor, settings)


activities = _Activities()


RETRIED = {"retries_allowed": True, "interval_seconds": 0.2, "backoff_rate": 2.0, "max_attempts": 10}
"""As the product's steps are: a lock that was not had in time, for one, is no end of a refund."""


@DBOS.step(**RETRIED)
async def read(refund: str) -> PaymentState:
    """Read the payment live, for the quote."""
    wanted = await activities.steps.payment_to_read(refund)
    if wanted is None:
        raise NotMeasured(f"{refund} needs something else first")
    return await activities.reader.look(*wanted)


@DBOS.step(**RETRIED)
async def quote(refund: str, state: PaymentState) -> Situation:
    """Judge the request and write its exact terms."""
    return await activities.steps.prepare(refund, state)


@DBOS.step(**RETRIED)
async def read_again(refund: str) -> tuple[Standing, PaymentState]:
    """Read the payment live, before anything is sent."""
    standing = await activities.settling.standing(refund)
    state = await activities.processor.read_payment(standing.processor_payment)
    if state is None:
        raise NotMeasured(f"the payment of {refund} is gone")
    return standing, state


@DBOS.step(**RETRIED)
async def intend(standing: Standing, state: PaymentState) -> tuple[Operation, Attempt, float]:
    """Write intent and attempt; until when the attempt may be sent."""
    began = uptime()
    opened = await activities.settling.open_attempt(standing, state)
    if isinstance(opened, Situation):
        raise NotMeasured(f"{opened.refund} is {opened.status}")
    return *opened, began + opened[1].send_within_s


@DBOS.step(**RETRIED)
async def send(operation: Operation, send_before: float) -> ProcessorRefund:
    """Send the refund."""
    return await activities.processor.refund(operation.request, send_before=send_before)


@DBOS.step(**RETRIED)
async def record(operation: Operation, attempt: Attempt, refund: ProcessorRefund) -> Situation:
    """Record the receipt."""
    return await activities.settling.receipt(operation, refund, attempt=attempt)


@DBOS.workflow()
async def carry(refund: str) -> str:
    """The automatic way of ``RefundWorkflow``, each store function and each call of the sandbox a step. Returns the status it ended in."""
    found = await quote(refund, await read(refund))
    if Status(found.status) is not Status.APPROVED:
        raise NotMeasured(f"{refund} waits for {found.waits_for}")
    operation, attempt, send_before = await intend(*await read_again(refund))
    found = await record(operation, attempt, await send(operation, send_before))
    if Status(found.status) not in FINAL:
        raise NotMeasured(f"{refund} waits for {found.waits_for}")
    return found.status


@DBOS.step(**RETRIED)
async def prepare(refund: str) -> Situation:
    """Read the payment live and quote."""
    return await activities.prepare.prepare(StepInput(refund))


@DBOS.step(**RETRIED)
async def submit(refund: str) -> Situation:
    """Send the refund. It asks its host which attempt this is, so it runs in the environment the SDK offers for activities outside a worker."""
    return await ActivityEnvironment().run(activities.submit.submit, StepInput(refund))


@DBOS.workflow()
async def carry_bundled(refund: str) -> str:
    """The same in two steps: prepare, and submit while that is what comes next. Returns the status it ended in."""
    found = await prepare(refund)
    while Status(found.status) in (Status.APPROVED, Status.SUBMITTING):
        found = await submit(refund)
    if Status(found.status) not in FINAL:
        raise NotMeasured(f"{refund} waits for {found.waits_for}")
    return found.status


WORKFLOWS = {SINGLE: carry, BUNDLED: carry_bundled}


class _Engine(Orchestrator):
    """Starts DBOS workflows where the API would start Temporal's."""

    async def start(self, beginning: Beginning, *, within_s: float) -> bool:
        """Start the refund's workflow: recorded when this returns."""
        # Without a bound: there is no sweep behind it that would start what was not started in time.
        with SetWorkflowID(workflow_id(beginning.refund)):
            await DBOS.start_workflow_async(WORKFLOWS[int(os.environ[STEPS])], beginning.refund)
        return True


def _with_dbos(app: FastAPI, settings: Settings) -> FastAPI:
    """The product's application with DBOS as its engine."""
    product_life = app.router.lifespan_context

    @asynccontextmanager
    async def life(app: FastAPI) -> AsyncIterator[None]:
        async with AsyncExitStack() as stack:
            await activities.open(settings, stack)
            await stack.enter_async_context(product_life(app))
            # The lazy client is only asked for its namespace, for the link in the answer; it connects nowhere.
            engine = _Engine(await from_environment(), settings.temporal_ui_url)
            app.state.services = replace(app.state.services, orchestrator=engine)
            DBOS.launch()
            stack.callback(DBOS.destroy, workflow_completion_timeout_sec=5)
            yield

    app.router.lifespan_context = life
    return app


async def _serve(settings: Settings) -> int:
    database = connect(settings.database_url.get_secret_value(), SystemClock(), settings, name="dbos-api")
    try:
        app = _with_dbos(create_app(settings, database), settings)
        config = uvicorn.Config(app, host=settings.api_host, port=settings.api_port, log_config=None, access_log=False)
        server = uvicorn.Server(config)
        await server.serve()
        return 0 if server.started else 1
    finally:
        await database.close()


def main() -> int:
    """Serve until stopped."""
    settings = Settings()
    logs.configure(settings, program="bench-peer")
    config: DBOSConfig = {
        "name": "refunds-bench",
        "system_database_url": os.environ[SYSTEM_DATABASE_URL],
        "executor_id": os.environ[EXECUTOR],
        "application_version": "1",
        "log_level": "WARNING",
    }
    DBOS(config=config)
    return asyncio.run(_serve(settings))


if __name__ == "__main__":
    sys.exit(main())
