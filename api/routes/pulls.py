"""The merchant's orders, pulled from the processor's payments by what their metadata names."""

from typing import Annotated

from fastapi import APIRouter, Query, Response

from api import presenting
from api.bodies import parse
from api.calls import TheCall
from api.contract import errors, takes
from api.pulling import NewPull, PullReport, PullView, ReportQuery, pull_view, report_view
from refunds.errors import Code, RefundError
from refunds.ids import Prefix, is_id
from refunds.people import Role
from store import pulling
from store.db import Connection
from store.pulling import Pull

router = APIRouter(prefix="/v1/orders/pull", tags=["orders"])
_MAY = (Role.INTEGRATOR, Role.OPERATOR)


@router.post(
    "",
    status_code=202,
    summary="Pull orders from the processor's payments",
    responses={202: {"model": PullView}, **errors(body=True)},
    openapi_extra=takes(NewPull),
)
async def begin(call: TheCall) -> Response:
    """The pull is stored; it is carried out while the workers are there, whatever is killed meanwhile. Read it under its id.

    Payments with the same order id in their metadata make one order. An order that is there keeps all it says: payments are added to it and nothing
    else. With `dry_run` nothing but the report is stored.
    """
    raw = await call.body()
    async with call.begin(*_MAY) as connection:
        wanted = parse(NewPull, raw)
        services = call.services
        clock = services.database.clock
        pull = await pulling.request(connection, clock, services.settings, call.actor, since=wanted.since, dry_run=wanted.dry_run)
        view = pull_view(pull, await pulling.counts(connection, pull.id))
    await services.orchestrator.pull_orders(pull.id, within_s=services.settings.api_quote_wait_s)  # or the worker does, in a moment
    return presenting.answer(view, 202, {"Location": f"/v1/orders/pull/{pull.id}"})


@router.get("/{pull_id}", summary="A pull of orders", responses={200: {"model": PullView}, **errors(Code.NOT_FOUND)})
async def show(pull_id: str, call: TheCall) -> Response:
    """How far it has come, and how many payments have which outcome so far."""
    async with call.begin(*_MAY) as connection:
        pull = await _pull(connection, pull_id)
        counted = await pulling.counts(connection, pull.id)
    return presenting.answer(pull_view(pull, counted))


@router.get(
    "/{pull_id}/payments",
    summary="What became of the payments of a pull",
    responses={200: {"model": PullReport}, **errors(Code.NOT_FOUND, Code.INVALID_FIELD, Code.UNKNOWN_FIELD)},
)
async def payments(pull_id: str, query: Annotated[ReportQuery, Query()], call: TheCall) -> Response:
    """By payment: its order and what became of it, or why it made none, a page at a time."""
    async with call.begin(*_MAY) as connection:
        pull = await _pull(connection, pull_id)
        rows = await pulling.report(connection, pull.id, outcome=query.outcome, after=query.cursor, limit=query.limit + 1)
    return presenting.answer(report_view(rows[: query.limit], more=len(rows) > query.limit))


async def _pull(connection: Connection, pull_id: str) -> Pull:
    if not is_id(pull_id, Prefix.PULL):
        raise RefundError(Code.NOT_FOUND, "There is no such pull.")
    return await pulling.read(connection, pull_id)
