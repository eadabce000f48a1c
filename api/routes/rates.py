"""Exchange rates: what amounts of each currency count as where a limit counts all currencies together. No refund is ever converted."""

import base64
import binascii
import json
from datetime import datetime
from typing import Annotated

from fastapi import APIRouter, Query, Response
from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from api import presenting
from api import rates as views
from api.bodies import parse
from api.calls import TheCall
from api.contract import errors, takes
from refunds.clock import parse_rfc3339, rfc3339
from refunds.errors import Code, RefundError
from refunds.ids import Prefix, is_id
from refunds.orders import CurrencyCode
from refunds.people import Role
from refunds.rates import Rate
from store import policies, rates

router = APIRouter(prefix="/v1/rates", tags=["rates"])
READS = (Role.OPERATOR, Role.AUDITOR, Role.REVIEWER)


class RatesQuery(BaseModel):
    """Which rates: of each currency the one that holds, or with ``history`` every one there ever was."""

    model_config = ConfigDict(extra="forbid")

    base: views.BaseCode | None = None
    currency: CurrencyCode | None = None
    history: bool = False
    cursor: Annotated[str, StringConstraints(min_length=1, max_length=200)] | None = None
    limit: Annotated[int, Field(ge=1, le=200)] = 200


@router.get("", summary="Exchange rates", responses={200: {"model": views.RateList}, **errors(Code.INVALID_FIELD, Code.UNKNOWN_FIELD)})
async def show(query: Annotated[RatesQuery, Query()], call: TheCall) -> Response:
    """With who recorded each, when, and where it is from; and the currencies of the policy in force that a rate is missing for."""
    after = None if query.cursor is None else _read_cursor(query.cursor)
    async with call.begin(*READS) as connection:
        now = call.services.database.clock.now()
        policy = (await policies.in_force(connection, now)).policy
        rows = await rates.listed(
            connection,
            base=query.base,
            currency=query.currency,
            history=query.history,
            after=after,
            limit=query.limit + 1,
        )
        held = await rates.held(connection, policy.base, now) if policy.base else {}
    page, more = rows[: query.limit], len(rows) > query.limit
    return presenting.answer(
        {
            "base_currency": policy.base,
            "rates_at_most_days_old": policy.rates_at_most_days_old,
            "missing": views.missing(policy, held, now),
            "rates": [views.shown(row) for row in page],
            "next_cursor": _write_cursor(page[-1]["effective_at"], page[-1]["id"]) if more else None,
        }
    )


@router.put(
    "",
    summary="Record an exchange rate",
    responses={200: {"model": views.RateRecorded}, **errors(Code.UNKNOWN_CURRENCY, body=True)},
    openapi_extra=takes(views.NewRate),
)
async def put(call: TheCall) -> Response:
    """Recorded with who, when and where from, and entered in the ledger. Refunds that were quoted keep the rate they were quoted with."""
    raw = await call.body()
    clock = call.services.database.clock
    async with call.begin(Role.OPERATOR) as connection:
        new = parse(views.NewRate, raw)
        base = new.base or (await policies.in_force(connection, clock.now())).policy.base
        if base is None:
            what = "The policy in force names no base_currency, so say in which currency the rate is."
            raise RefundError(Code.INVALID_FIELD, what, field="base")
        row, before = await rates.record(
            connection,
            clock,
            rate=Rate(base, new.currency, new.rate),
            effective_at=new.effective_at,
            source=new.source,
            principal_id=call.actor.principal_id,
        )
    return presenting.answer(views.shown(row) | {"before": None if before is None else views.shown(before)})


def _write_cursor(at: datetime, rate_id: str) -> str:
    return base64.urlsafe_b64encode(json.dumps([rfc3339(at), rate_id]).encode()).decode().rstrip("=")


def _read_cursor(cursor: str) -> tuple[datetime, str]:
    try:
        at, rate_id = json.loads(base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)))
        moment = parse_rfc3339(at)
        if is_id(rate_id, Prefix.RATE):
            return moment, rate_id
    except (binascii.Error, ValueError, TypeError, AttributeError, OverflowError):
        pass
    raise RefundError(Code.INVALID_FIELD, "This cursor is not one that a page named as its next.", field="cursor")
