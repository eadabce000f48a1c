"""What a refund would come to, before anybody asks for it."""

import secrets
from dataclasses import asdict
from datetime import timedelta
from typing import Any

from fastapi import APIRouter, Response

from api import presenting
from api.calls import Call, TheCall
from api.contract import errors, takes
from api.quote_shapes import QuoteView
from api.routes.refunds import LINE_CODES, MONEY_CODES
from api.scoping import parse_asked
from refunds.errors import Code, RefundError
from refunds.payment_ids import TOLD_BY_ITSELF
from refunds.people import Role
from refunds.processor import PaymentState
from refunds.requests import RefundRequest
from store import intake, previews, snapshots
from store.previews import Preview

router = APIRouter(prefix="/v1", tags=["refunds"])
_READING_WITHIN_S = 2.0


class _NothingIsKept(Exception):
    """Ends a transaction that must leave nothing behind."""


@router.post(
    "/quotes",
    summary="What a refund would come to",
    responses={
        200: {"model": QuoteView},
        **errors(
            Code.ORDER_NOT_FOUND,
            Code.PAYMENT_NOT_FOUND,
            Code.PAYMENT_NAMED_OTHERWISE,
            *TOLD_BY_ITSELF,
            Code.AMBIGUOUS_PAYMENT,
            Code.PROCESSOR_UNAVAILABLE,
            *MONEY_CODES,
            *LINE_CODES,
            body=True,
        ),
    },
    openapi_extra=takes(RefundRequest),
)
async def quote(call: TheCall) -> Response:
    """Terms, checks and what they would need. Nothing is stored or reserved, and nobody is asked; a message is not read."""
    raw = await call.body()
    async with call.noticing_mismatch(), call.begin(Role.REQUESTER) as connection:
        request = await parse_asked(connection, call.services.database.clock, RefundRequest, raw)
        target = await intake.target_of(connection, request)
    state = await _reading(call, target.payment["id"], with_flow=request.reverse_transfer or request.refund_application_fee)
    preview = await _preview(call, request, state)
    return presenting.answer(_shown(request, preview, state))


async def _reading(call: Call, payment_id: str, *, with_flow: bool) -> PaymentState:
    """The last reading if it is young enough, else a new one. Raises ``PROCESSOR_UNAVAILABLE``."""
    if (state := await _latest(call, payment_id, with_flow=with_flow)) is not None:
        return state
    if await call.services.orchestrator.read_payment(payment_id, with_flow=with_flow, within_s=_READING_WITHIN_S):
        state = await _latest(call, payment_id, with_flow=with_flow)
    if state is None:
        raise RefundError(Code.PROCESSOR_UNAVAILABLE, "The payment could not be read from the processor in time; nothing was stored.")
    return state


async def _latest(call: Call, payment_id: str, *, with_flow: bool) -> PaymentState | None:
    database = call.services.database
    now, within = database.clock.now(), timedelta(seconds=call.services.settings.payment_snapshot_max_age_s)
    async with database.begin() as connection:
        return await snapshots.latest(connection, payment_id, now=now, within=within, with_flow=with_flow)


async def _preview(call: Call, request: RefundRequest, state: PaymentState) -> Preview:
    database = call.services.database
    found: list[Preview] = []
    try:
        async with database.begin() as connection:
            accepted = await intake.accept(
                connection,
                database.clock,
                call.services.texts,
                actor=call.actor,
                key=f"quote {secrets.token_hex(16)}",
                request=request.model_copy(update={"message": None, "agent_reasoning": None, "conversation_context": None}),
            )
            found.append(await previews.preview(connection, database.clock, accepted.refund_id, state))
            raise _NothingIsKept
    except _NothingIsKept:
        return found[0]


def _shown(request: RefundRequest, preview: Preview, state: PaymentState) -> dict[str, Any]:
    decision = preview.decision
    consent = decision.outcome == "proceed" and decision.consent and not preview.consented
    return {
        "outcome": decision.outcome,
        **presenting.code_in_words(decision.code),
        "detail": decision.explanation or None,
        "terms": {
            "operation": preview.operation.value,
            "payment_id": preview.processor_payment,
            "amount": preview.amount.amount,
            "currency": preview.amount.currency,
            "amount_text": str(preview.amount),
            "full": preview.full,
            "destination": preview.destination,
            "reverse_transfer": request.reverse_transfer,
            "refund_application_fee": request.refund_application_fee,
            "legs": [presenting.leg_quoted(leg) for leg in preview.legs],
            "reason": preview.reason,
            "processor_reason": preview.processor_reason,
        },
        "breakdown": presenting.breakdown(asdict(preview.breakdown) if preview.breakdown else None),
        "tier": decision.tier,
        "policy": preview.versions | {"text": decision.policy_text},
        "checks": [{"id": c.id, "text": c.text, "observed": c.observed, "limit": c.limit, "result": c.result} for c in decision.checks],
        "needs": {
            "consent": consent,
            "review": None if decision.review is None else {"role": decision.review.role, "people": decision.review.people},
        },
        "refundable": {"remaining": preview.figures.remaining, "currency": state.currency, "read_at": state.read_at},
        "not_considered": ["message"] if request.message else [],
    }
