"""The peer: the same requests over the same HTTP API, with a DBOS workflow in the place of Temporal. ``python -m tests.bench.peer``.

Everything but the engine is the product's own code: the API stores the request and answers it, the steps are the product's own, over the same store,
logins and payment sandbox. DBOS keeps its records on the same PostgreSQL server. Its workflows run inside the process that serves HTTP, as DBOS recommends;
several such processes share the work as they would in production.
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
from activities.processors.stripe import StripeProcessor
from activities.read_payment import PaymentReader
from activities.submit import Submit
from api.app import create_app
from api.orchestrator import Beginning, Orchestrator, from_environment
from refunds import logs
from refunds.clock import SystemClock
from refunds.ids import workflow_id
from refunds.messages import Situation, StepInput
from refunds.settings import Settings
from refunds.status import FINAL, Status
from store import snapshots
from store.db import Database, connect
from store.observing import Observing
from store.progress import Steps
from store.settling import Settling

SYSTEM_DATABASE_URL = "BENCH_DBOS_URL"
EXECUTOR = "BENCH_DBOS_EXECUTOR"


class _Activities:
    """The product's own steps, made once a process."""

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
        self.prepare = Prepare(Steps(database("refunds"), settings), PaymentReader(settling, processor, clock))
        self.submit = Submit(settling, Observing(settling.database, settings, settling.worker), processor, settings)


activities = _Activities()


@DBOS.step()
async def prepare(refund: str) -> Situation:
    """Read the payment live and quote."""
    return await activities.prepare.prepare(StepInput(refund))


@DBOS.step()
async def submit(refund: str) -> Situation:
    """Send the refund. It asks its host which attempt this is, so it runs in the environment the SDK offers for activities outside a worker."""
    return await ActivityEnvironment().run(activities.submit.submit, StepInput(refund))


@DBOS.workflow()
async def carry(refund: str) -> str:
    """The automatic way of ``RefundWorkflow``: prepare, and submit while that is what comes next. Returns the status it ended in."""
    found = await prepare(refund)
    while Status(found.status) in (Status.APPROVED, Status.SUBMITTING):
        found = await submit(refund)
    if Status(found.status) not in FINAL:
        raise RuntimeError(f"{refund} waits for {found.waits_for}; only automatic refunds are measured here")
    return found.status


class _Engine(Orchestrator):
    """Starts DBOS workflows where the API would start Temporal's."""

    async def start(self, beginning: Beginning, *, within_s: float) -> bool:
        """Start the refund's workflow: recorded when this returns."""
        async with asyncio.timeout(within_s):
            with SetWorkflowID(workflow_id(beginning.refund)):
                await DBOS.start_workflow_async(carry, beginning.refund)
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
