"""The application: its parts, its routes and its life."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.metadata import version

from fastapi import FastAPI
from fastapi.routing import APIRoute

from api import contract, manual, problems
from api.erasure_list import erasure_list
from api.limits import Limits
from api.metrics import Metrics
from api.middleware import Observed
from api.orchestrator import Connect, Orchestrator, from_environment
from api.routes import (
    access,
    auditing,
    controls,
    customers,
    deciding,
    delegations,
    groups,
    health,
    ledger,
    master_key,
    orders,
    periods,
    policy,
    pulls,
    quotes,
    rates,
    reconciliation,
    refunds,
    retention,
    reviewing,
    webhooks,
)
from api.services import Services
from refunds.settings import Settings
from store.db import Database, Listener
from store.master_keys import KeysMissing
from store.texts import Texts

ROUTERS = tuple(
    part.router
    for part in (
        refunds,
        auditing,
        ledger,
        periods,
        webhooks,
        quotes,
        deciding,
        reviewing,
        groups,
        orders,
        pulls,
        controls,
        customers,
        retention,
        access,
        master_key,
        delegations,
        policy,
        rates,
        reconciliation,
        health,
    )
)
ROUTES = [route for router in ROUTERS for route in router.routes if isinstance(route, APIRoute)]
"""Every call there is."""

_DESCRIPTION = """Refunds that are approved by people, sent once, and recorded.

Amounts are integers in the unit Stripe's API takes for the currency, always with their currency. Times are RFC 3339 in UTC. Errors are
`application/problem+json` with a stable `code`. Unknown fields are refused."""


def create_app(settings: Settings, database: Database, temporal: Connect = from_environment) -> FastAPI:
    """Build the application on a database and a way to get a Temporal client (by default from the environment).

    The caller keeps the database and closes it. Starting raises :class:`store.db.SchemaMismatch` on another schema revision, ``STORE_UNAVAILABLE``
    without a database; Temporal may be down. Raises :class:`store.master_keys.KeysMissing` without a master key.
    """
    if database.vault is None:
        raise KeysMissing("the API needs a master key, because it takes and shows what is personal: set REFUNDS_TEXT_KEY")
    texts = Texts(database.clock)
    erasures = erasure_list(settings)
    metrics = Metrics()

    @asynccontextmanager
    async def life(app: FastAPI) -> AsyncIterator[None]:
        await database.check_revision()
        client = await temporal()
        listener = Listener(database, "refund")
        await listener.start()
        app.state.services = Services(
            settings=settings,
            database=database,
            texts=texts,
            listener=listener,
            orchestrator=Orchestrator(client, settings.temporal_ui_url),
            metrics=metrics,
            limits=Limits(settings.api_rate_per_minute),
            erasures=erasures,
        )
        try:
            yield
        finally:
            await listener.stop()

    app = FastAPI(
        title="Durable refunds",
        version=version("durable-refunds"),
        description=_DESCRIPTION,
        lifespan=life,
        redirect_slashes=False,
        # The framework's own pages fetch their scripts from another host.
        docs_url=None,
        redoc_url=None,
        # Its spans and logs would carry whole addresses, and with their queries the merchant's ids of customers.
        telemetry={"tracing": False, "metrics": False, "logs": False},
    )
    app.add_middleware(Observed, metrics=metrics)
    problems.install(app, ROUTES)
    for router in ROUTERS:
        app.include_router(router)
    contract.describe(app)
    manual.install(app)
    return app
