"""Reconciliation with the processor: what was compared, what differs, and what is done about it."""

import base64
import binascii
import json
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import datetime
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import StreamingResponse
from pydantic import BaseModel, ConfigDict, Field, StringConstraints, model_validator

from api import presenting
from api import reconciliation_views as views
from api.bodies import check_instants, parse
from api.calls import Call, TheCall
from api.contract import errors, shows, takes
from api.reconciliation_views import DatabaseDoubted, DiscrepancyView, ReconciliationView, RunView
from refunds.clock import parse_rfc3339, rfc3339
from refunds.discrepancies import Kind, Standing
from refunds.errors import Code, RefundError
from refunds.ids import Prefix, is_id
from refunds.orders import ExternalId, Instant, Said, Strict
from refunds.people import Role
from refunds.processor import STRIPE
from store import judging, reconciling, restoring
from store.judging import Filters
from store.reconciling import Run

router = APIRouter(prefix="/v1/reconciliation", tags=["reconciliation"])
READS = (Role.OPERATOR, Role.AUDITOR)
_RUNS = 10
_ROWS_AT_ONCE = 500
_CSV = "text/csv"
Words = Annotated[Said, StringConstraints(max_length=2_000)]


class ListQuery(BaseModel):
    """Filters of the list of discrepancies; each may be left out."""

    model_config = ConfigDict(extra="forbid")

    state: Standing | None = None
    kind: Kind | None = None
    run: Annotated[str, StringConstraints(min_length=1, max_length=60)] | None = None
    cursor: Annotated[str, StringConstraints(min_length=1, max_length=200)] | None = None
    limit: Annotated[int, Field(ge=1, le=100)] = 50
    format: Literal["json", "csv"] | None = None


class NewRun(Strict):
    """What is to be reconciled: everything since then."""

    since: Instant


class Judgement(Strict):
    """What somebody does about a discrepancy: give it an owner, explain it (it stays and is understood), close it (it is gone), or open it again."""

    owner: ExternalId | None = None
    state: Standing | None = None
    note: Words | None = None

    @model_validator(mode="after")
    def _says_something(self) -> "Judgement":
        if self.owner is None and self.state is None and self.note is None:
            raise ValueError("state or owner or note is needed: otherwise nothing is said")
        if self.state in (Standing.EXPLAINED, Standing.CLOSED) and self.note is None:
            raise ValueError("note is needed to explain or close a discrepancy: what you found, and where")
        return self


class Restored(Strict):
    """Why the database may have forgotten something: what was restored, and to which moment."""

    reason: Annotated[Said, StringConstraints(max_length=500)]


@router.get(
    "",
    summary="Reconciliations and what they found",
    responses={200: shows(ReconciliationView, _CSV), **errors(Code.INVALID_FIELD, Code.UNKNOWN_FIELD)},
)
async def show(query: Annotated[ListQuery, Query()], request: Request, call: TheCall) -> Response:
    """The latest runs with their progress, and discrepancies a page at a time, newest first.

    With `Accept: text/csv` or `format=csv` every discrepancy that matches, as a table for spreadsheets, from `cursor` on whatever the `limit`.
    """
    check_instants(query)
    filters = Filters(
        state=query.state, kind=query.kind, reconciliation=query.run, after=None if query.cursor is None else _read_cursor(query.cursor)
    )
    accepted = request.headers.get("accept", "")
    as_table = query.format == "csv" or (query.format is None and _CSV in accepted and "application/json" not in accepted)
    if as_table:
        async with call.begin(*READS) as connection:
            first = await judging.page(connection, filters, limit=_ROWS_AT_ONCE)
        name = {"Content-Disposition": 'attachment; filename="discrepancies.csv"'}
        return StreamingResponse(_table(call, filters, first), media_type=_CSV, headers=name)
    async with call.begin(*READS) as connection:
        rows = await judging.page(connection, filters, limit=query.limit + 1)
        runs = await judging.recent_runs(connection, limit=_RUNS)
        counts = await judging.counts(connection)
    shown, more = rows[: query.limit], len(rows) > query.limit
    return presenting.answer(
        {
            "runs": [_run(run) for run in runs],
            "counts": counts,
            "discrepancies": [views.discrepancy(row) for row in shown],
            "next_cursor": _write_cursor(shown[-1]["first_seen_at"], shown[-1]["id"]) if more else None,
        }
    )


async def _table(call: Call, filters: Filters, rows: list[Any]) -> AsyncIterator[str]:
    """The lines, so many at a time: each part is a short transaction of its own, and a slow reader holds none open."""
    yield views.table(rows, header=True)
    while len(rows) == _ROWS_AT_ONCE:
        filters = replace(filters, after=(rows[-1]["first_seen_at"], rows[-1]["id"]))
        async with call.services.database.begin() as connection:
            rows = await judging.page(connection, filters, limit=_ROWS_AT_ONCE)
        yield views.table(rows)


@router.post(
    "/runs",
    status_code=202,
    summary="Reconcile now",
    responses={202: {"model": RunView}, **errors(body=True)},
    openapi_extra=takes(NewRun),
)
async def begin(call: TheCall) -> Response:
    """The run is stored; it is carried out while the workers are there, whatever is killed meanwhile. Read it under its id."""
    raw = await call.body()
    async with call.begin(Role.OPERATOR) as connection:
        wanted = parse(NewRun, raw)
        run = await judging.request_run(connection, call.services.database.clock, call.actor, since=wanted.since)
    return await _begun(call, run)


async def _begun(call: Call, run: Run, **more: Any) -> Response:
    await call.services.orchestrator.reconcile(run.id, within_s=call.services.settings.api_quote_wait_s)  # or the worker does, in a moment
    shown = _run(run)
    return presenting.answer(more | {"reconciliation": shown} if more else shown, 202, {"Location": f"/v1/reconciliation/runs/{run.id}"})


@router.get("/runs/{run_id}", summary="A reconciliation", responses={200: {"model": RunView}, **errors(Code.NOT_FOUND)})
async def show_run(run_id: str, call: TheCall) -> Response:
    """How far it has come, and what it has found so far."""
    async with call.begin(*READS) as connection:
        if not is_id(run_id, Prefix.RECONCILIATION):
            raise RefundError(Code.NOT_FOUND, "There is no such reconciliation.")
        run = await reconciling.read(connection, run_id)
    return presenting.answer(_run(run))


@router.post(
    "/discrepancies/{discrepancy_id}",
    summary="Assign, explain or close a discrepancy",
    responses={200: {"model": DiscrepancyView}, **errors(Code.NOT_FOUND, Code.DISCREPANCY_CLOSED, body=True)},
    openapi_extra=takes(Judgement),
)
async def judge(discrepancy_id: str, call: TheCall) -> Response:
    """What is not given stays. Every change is entered in the ledger with who made it; the same again changes nothing. Money never moves by it."""
    raw = await call.body()
    async with call.begin(Role.OPERATOR) as connection:
        said = parse(Judgement, raw)
        if not is_id(discrepancy_id, Prefix.DISCREPANCY):
            raise RefundError(Code.NOT_FOUND, "There is no such discrepancy.")
        row = await judging.change(
            connection,
            call.services.database.clock,
            call.actor,
            discrepancy_id,
            owner=said.owner,
            standing=said.state,
            note=said.note,
        )
    return presenting.answer(views.discrepancy(row))


@router.post(
    "/restored",
    status_code=202,
    summary="Say that the database was restored",
    responses={202: {"model": DatabaseDoubted}, **errors(body=True)},
    openapi_extra=takes(Restored),
)
async def restored(call: TheCall) -> Response:
    """Halts submitting and begins a full reconciliation, which must be done before an operator can lift the halt. Workers notice most restores by
    themselves; who knows of one says so."""
    raw = await call.body()
    clock = call.services.database.clock
    async with call.begin(Role.OPERATOR) as connection:
        said = parse(Restored, raw)
        run = await restoring.doubted(connection, clock.now(), processor=STRIPE, reason=said.reason, actor=call.actor.principal_id)
    return await _begun(call, run, halted=True)


def _run(run: Run) -> dict[str, Any]:
    return views.run(run, by_person=is_id(run.started_by, Prefix.PRINCIPAL) or run.started_by == restoring.OWED)


def _write_cursor(at: datetime, discrepancy_id: str) -> str:
    return base64.urlsafe_b64encode(json.dumps([rfc3339(at), discrepancy_id]).encode()).decode().rstrip("=")


def _read_cursor(cursor: str) -> tuple[datetime, str]:
    try:
        at, discrepancy_id = json.loads(base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)))
        moment = parse_rfc3339(at)
        if is_id(discrepancy_id, Prefix.DISCREPANCY):
            return moment, discrepancy_id
    except (binascii.Error, ValueError, TypeError, AttributeError, OverflowError):
        pass
    raise RefundError(Code.INVALID_FIELD, "This cursor is not one that a page named as its next.", field="cursor")
