"""For machines: is it alive, can it work, how is it doing."""

from typing import Any

from fastapi import APIRouter, Response

from api import ledger as ledger_shapes
from api import presenting
from api.services import Services, TheServices
from refunds.errors import RefundError
from store import breakers, chain, events, views
from store.db import SchemaMismatch

router = APIRouter(tags=["machines"])
_TEMPORAL_WITHIN_S = 1.0


@router.get("/healthz", summary="Whether the process is alive")
async def alive() -> dict[str, str]:
    """Answers as long as the process can; nothing else is asked."""
    return {"status": "ok"}


@router.get("/readyz", summary="Whether it can do its work", responses={503: {"description": "The database cannot be used."}})
async def ready(services: TheServices) -> Response:
    """503 while the database cannot be used. Temporal is reported and not required: without it requests are stored and started later. So is the chain of the
    ledger: nothing waits for its numbers, and people are told when it falls behind."""
    database = "ok"
    try:
        await services.database.check_revision()
    except RefundError:
        database = "unreachable"
    except SchemaMismatch:
        database = "wrong revision"
    ledger = await _ledger_in_words(services) if database == "ok" else "unknown"
    temporal = "ok" if await services.orchestrator.reachable(within_s=_TEMPORAL_WITHIN_S) else "unreachable"
    body: dict[str, Any] = {
        "status": "ok" if database == "ok" else "unavailable",
        "database": database,
        "temporal": temporal,
        "ledger": ledger,
    }
    return presenting.answer(body, 200 if database == "ok" else 503)


@router.get("/metrics", summary="Prometheus metrics", response_class=Response)
async def metrics(services: TheServices) -> Response:
    """Counters of this process, how many refunds are open by status, how many events wait or are unmatched, and how the ledger's chain stands."""
    counts = inbox = ledger = opened = None
    try:
        async with services.database.begin() as connection:
            counts, inbox = await views.open_by_status(connection), await events.open_by_state(connection)
            opened = await breakers.by_state(connection)
            ledger = (await chain.standing(connection)).figures(services.database.clock.now())
    except RefundError:
        counts = None
    return Response(services.metrics.render(counts, inbox, ledger, opened), media_type="text/plain; version=0.0.4; charset=utf-8")


async def _ledger_in_words(services: Services) -> str:
    settings = services.settings
    try:
        async with services.database.read() as connection:
            standing = await chain.standing(connection)
    except RefundError:
        return "unknown"
    now = services.database.clock.now()
    return ledger_shapes.in_words(standing, now, rows=settings.ledger_behind_rows, seconds=settings.ledger_behind_s)
