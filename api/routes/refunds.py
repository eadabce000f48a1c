"""Asking for refunds and reading them."""

import base64
import binascii
import json
from datetime import datetime
from typing import Annotated, Any

from fastapi import APIRouter, Query, Response
from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, StringConstraints

from api import presenting
from api.answering import first_answer, refund_view
from api.bodies import check_instants
from api.calls import SEE_ALL, Call, TheCall, idempotency_key, refund_id_in
from api.contract import KEY_HEADER, errors, takes
from api.schemas import RefundPage, RefundView
from api.scoping import parse_asked
from refunds.clock import parse_rfc3339, rfc3339
from refunds.errors import Code, RefundError
from refunds.payment_ids import TOLD_BY_ITSELF
from refunds.people import Role
from refunds.requests import RefundRequest, Ticket
from refunds.status import Status
from store import intake, views

router = APIRouter(prefix="/v1", tags=["refunds"])
SEES_REFUNDS = (Role.REQUESTER, *SEE_ALL)

_ASKING = (
    Code.IDEMPOTENCY_KEY_REQUIRED,
    Code.IDEMPOTENCY_KEY_REUSED,
    Code.ORDER_NOT_FOUND,
    Code.PAYMENT_NOT_FOUND,
    Code.PAYMENT_NAMED_OTHERWISE,
    *TOLD_BY_ITSELF,
    Code.AMBIGUOUS_PAYMENT,
)
_FIRST_ANSWERS: dict[int | str, dict[str, Any]] = {
    200: {"model": RefundView, "description": "The same request again: the refund it made (`Idempotent-Replayed: true`)."},
    201: {"model": RefundView, "description": "Accepted and quoted."},
    202: {"model": RefundView, "description": "Accepted; the quote is not ready yet."},
}
MONEY_CODES = (
    Code.CURRENCY_MISMATCH,
    Code.UNKNOWN_CURRENCY,
    Code.AMOUNT_REQUIRED,
    Code.AMOUNT_AND_FULL,
    Code.AMOUNT_NOT_INTEGER,
    Code.AMOUNT_NOT_POSITIVE,
    Code.AMOUNT_TOO_LARGE,
    Code.AMOUNT_NOT_SENDABLE,
    Code.OUT_OF_SCOPE,
)
LINE_CODES = (
    Code.LINES_AND_FULL,
    Code.LINE_TWICE,
    Code.LINE_NOT_FOUND,
    Code.LINE_NOT_LEFT,
    Code.LINES_OF_SEVERAL_PAYMENTS,
)


@router.post(
    "/refunds",
    status_code=201,
    summary="Ask for a refund of one payment",
    responses={**_FIRST_ANSWERS, **errors(*_ASKING, *MONEY_CODES, *LINE_CODES, body=True)},
    openapi_extra=takes(RefundRequest) | KEY_HEADER,
)
async def ask(call: TheCall) -> Response:
    """Store the request whole, start its run, and answer with the first quote if it is ready within a second or so."""
    return await _accept(call, RefundRequest, "refund")


@router.post(
    "/tickets",
    status_code=201,
    summary="Ask for a refund in plain words",
    responses={**_FIRST_ANSWERS, **errors(*_ASKING, body=True)},
    openapi_extra=takes(Ticket) | KEY_HEADER,
)
async def ask_in_words(call: TheCall) -> Response:
    """The same from free text: a reader finds order, amount and reason, or a person does."""
    return await _accept(call, Ticket, "ticket")


async def _accept(call: Call, model: type[RefundRequest] | type[Ticket], kind: str) -> Response:
    services = call.services
    raw = await call.body()
    async with call.noticing_mismatch(), call.begin(Role.REQUESTER) as connection:
        key = idempotency_key(call.request.headers)
        request = await parse_asked(connection, services.database.clock, model, raw)
        accepted = await intake.accept(connection, services.database.clock, services.texts, actor=call.actor, key=key, request=request)
    if not accepted.replayed:
        services.metrics.accepted(kind)
    return await first_answer(call, accepted)


@router.get(
    "/refunds/{refund_id}",
    summary="Everything about a refund",
    responses={200: {"model": RefundView}, **errors(Code.REFUND_NOT_FOUND)},
)
async def show(refund_id: str, call: TheCall) -> Response:
    """Status, exact terms, checks, decisions, deadlines, what it waits for, and the record at the processor."""
    async with call.begin(*SEES_REFUNDS) as connection:
        return presenting.answer(await refund_view(call, connection, refund_id_in(refund_id), limits_now=True))


Filter = Annotated[str, StringConstraints(min_length=1, max_length=200, pattern="^[^\\x00]*$")]


class ListQuery(BaseModel):
    """Filters of a list; each may be left out."""

    model_config = ConfigDict(extra="forbid")

    status: Status | None = None
    queue: Filter | None = None
    order_id: Filter | None = None
    customer_id: Filter | None = None
    agent_id: Filter | None = None
    group_id: Filter | None = None
    assigned_to: Filter | None = None
    created_after: AwareDatetime | None = None
    cursor: Filter | None = None
    limit: Annotated[int, Field(ge=1, le=100)] = 50


@router.get(
    "/refunds",
    summary="Refunds, newest first, a page at a time",
    responses={200: {"model": RefundPage}, **errors(Code.INVALID_FIELD, Code.UNKNOWN_FIELD)},
)
async def listing(query: Annotated[ListQuery, Query()], call: TheCall) -> Response:
    """Give ``next_cursor`` as ``cursor`` for the next page. A queue's list leaves out what can no longer be decided in time."""
    check_instants(query)
    after = None if query.cursor is None else _read_cursor(query.cursor)
    async with call.begin(*SEES_REFUNDS) as connection:
        filters = views.Filters(
            integration=call.sees,
            status=query.status,
            queue=query.queue,
            order_ref=query.order_id,
            customer_ref=query.customer_id,
            agent_id=query.agent_id,
            group_id=query.group_id,
            assigned_to=query.assigned_to,
            created_after=query.created_after,
            after=after,
        )
        rows = await views.page(connection, filters, limit=query.limit + 1, now=call.services.database.clock.now())
    shown, more = rows[: query.limit], len(rows) > query.limit
    cursor = _write_cursor(shown[-1]["created_at"], shown[-1]["id"]) if more else None
    return presenting.answer({"refunds": [presenting.summary(row) for row in shown], "next_cursor": cursor})


def _write_cursor(at: datetime, refund_id: str) -> str:
    return base64.urlsafe_b64encode(json.dumps([rfc3339(at), refund_id]).encode()).decode().rstrip("=")


def _read_cursor(cursor: str) -> tuple[datetime, str]:
    try:
        at, refund_id = json.loads(base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)))
        return parse_rfc3339(at), refund_id_in(refund_id)
    except (binascii.Error, ValueError, TypeError, AttributeError, OverflowError, RefundError):
        raise RefundError(Code.INVALID_FIELD, "This cursor is not one that a page named as its next.", field="cursor") from None
