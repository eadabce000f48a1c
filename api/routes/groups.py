"""Order-wide refunds over all payments of an order: asked for, shown, decided and withdrawn together."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Response
from pydantic import BaseModel, ConfigDict, Field

from api import groups as shapes
from api import presenting
from api.answering import quoted_in_time
from api.bodies import parse
from api.calls import Call, TheCall, idempotency_key
from api.contract import KEY_HEADER, errors, takes
from api.routes.deciding import DECISION_CODES, Note, TermsHash, Withdrawal
from api.routes.refunds import LINE_CODES, MONEY_CODES, SEES_REFUNDS, Filter
from api.scoping import parse_asked
from refunds.errors import Code, RefundError
from refunds.groups import MOST_PARTS
from refunds.ids import Prefix, is_id
from refunds.messages import Message
from refunds.orders import Strict
from refunds.people import PrincipalKind, Role
from refunds.processor import PaymentState
from refunds.requests import GroupRequest, PersonName
from store import deciding_groups, group_views, groups, notes, snapshots
from store.db import Connection
from store.decisions import Recorded
from store.sql import Row

router = APIRouter(prefix="/v1/refund-groups", tags=["groups"])
_READING_WITHIN_S = 2.0
Terms = Annotated[dict[str, TermsHash | None], Field(min_length=1, max_length=MOST_PARTS)]


class GroupDecision(Strict):
    """One verdict on all parts that wait for a decision: `terms` names each by its id with its `terms_hash` as seen, as the group's `decide` shows them."""

    verdict: Literal["approve", "deny"]
    terms: Terms
    note: Note = ""
    on_behalf_of: PersonName | None = None
    deliver: Literal["update", "signal"] = "update"


class GroupConsent(Strict):
    """What the customer said to the exact terms of all parts that wait for consent, as the group's `agree` shows them."""

    agreed: bool
    terms: Annotated[dict[str, TermsHash], Field(min_length=1, max_length=MOST_PARTS)]


_ASKING = (
    Code.IDEMPOTENCY_KEY_REQUIRED,
    Code.IDEMPOTENCY_KEY_REUSED,
    Code.ORDER_NOT_FOUND,
    Code.PAYMENT_NOT_FOUND,
    Code.GROUP_NOT_COVERED,
    Code.GROUP_TOO_LARGE,
)


@router.post(
    "",
    status_code=201,
    summary="Ask for a refund over all payments of an order",
    responses={
        200: {"model": shapes.GroupView, "description": "The same request again: the group it made (`Idempotent-Replayed: true`)."},
        201: {"model": shapes.GroupView, "description": "Accepted, allocated, and every part quoted."},
        202: {"model": shapes.GroupView, "description": "Accepted and allocated; not every part is quoted yet."},
        **errors(*_ASKING, *MONEY_CODES, *LINE_CODES, Code.LINES_NOT_PRICED, Code.LINES_COME_TO_NOTHING, body=True),
    },
    openapi_extra=takes(GroupRequest) | KEY_HEADER,
)
async def ask(call: TheCall) -> Response:
    """Store the group and a refund for each part, all or nothing, start their runs, and answer with their quotes if they are ready within a second or so.

    The money is divided by one rule: authorisations that can be released whole, then payments at the processor, then manual tenders, each in the sequence of
    the order.
    """
    raw = await call.body()
    async with call.noticing_mismatch(), call.begin(Role.REQUESTER) as connection:
        key = idempotency_key(call.request.headers)
        request = await parse_asked(connection, call.services.database.clock, GroupRequest, raw)
        accepted = await groups.find_replay(connection, call.actor, key, request.body_hash())
        payments = [] if accepted else (await groups.order_of(connection, request))[1]
        known = await _latest(call, connection, payments)
        unread = [p["id"] for p in payments if p["id"] not in known]
        if accepted is None and not unread:
            accepted = await _accept(call, connection, key, request, known)
    if accepted is None:  # no transaction waits for the processor; the key is looked at again, since it may be revoked by now
        readings = known | await _read(call, unread)
        async with call.noticing_mismatch(), call.begin(Role.REQUESTER) as connection:
            accepted = await _accept(call, connection, key, request, readings)
    if not accepted.replayed:
        call.services.metrics.accepted("group")
    quoted = await asyncio.gather(*(quoted_in_time(call, part) for part in accepted.parts))
    headers = {"Location": f"/v1/refund-groups/{accepted.id}"}
    if accepted.replayed:
        return presenting.answer(await _present(call, accepted.id), 200, headers | {"Idempotent-Replayed": "true"})
    return presenting.answer(await _present(call, accepted.id), 201 if all(quoted) else 202, headers)


async def _accept(
    call: Call, connection: Connection, key: str, request: GroupRequest, readings: Mapping[str, PaymentState]
) -> groups.AcceptedGroup:
    clock, texts = call.services.database.clock, call.services.texts
    return await groups.accept(connection, clock, texts, actor=call.actor, key=key, request=request, readings=readings)


async def _latest(call: Call, connection: Connection, payments: list[Row]) -> dict[str, PaymentState]:
    """Readings that are young enough; a manual payment is always there."""
    now, within = call.services.database.clock.now(), timedelta(seconds=call.services.settings.payment_snapshot_max_age_s)
    found = {p["id"]: await snapshots.latest(connection, p["id"], now=now, within=within) for p in payments}
    return {payment: state for payment, state in found.items() if state is not None}


async def _read(call: Call, payments: list[str]) -> dict[str, PaymentState]:
    """Have payments read live; those that cannot be in time are left out, and what is known of them is allocated until their parts are quoted."""
    orchestrator = call.services.orchestrator
    await asyncio.gather(*(orchestrator.read_payment(payment, with_flow=False, within_s=_READING_WITHIN_S) for payment in payments))
    async with call.services.database.begin() as connection:
        return await _latest(call, connection, [{"id": payment} for payment in payments])


@router.get(
    "/{group_id}",
    summary="Everything about a group",
    responses={200: {"model": shapes.GroupView}, **errors(Code.GROUP_NOT_FOUND)},
)
async def show(group_id: str, call: TheCall) -> Response:
    """What was asked for, how it was divided, where each part stands, and the sums of it."""
    async with call.begin(*SEES_REFUNDS) as connection:
        return presenting.answer(await _view(call, connection, _group_id(group_id)))


class GroupQuery(BaseModel):
    """Filters of a list; each may be left out."""

    model_config = ConfigDict(extra="forbid")

    order_id: Filter | None = None
    customer_id: Filter | None = None
    cursor: Filter | None = None
    limit: Annotated[int, Field(ge=1, le=100)] = 20


@router.get(
    "",
    summary="Groups, newest first, a page at a time",
    responses={200: {"model": shapes.GroupPage}, **errors(Code.INVALID_FIELD, Code.UNKNOWN_FIELD)},
)
async def listing(query: Annotated[GroupQuery, Query()], call: TheCall) -> Response:
    """Give ``next_cursor`` as ``cursor`` for the next page."""
    if query.cursor is not None and not is_id(query.cursor, Prefix.GROUP):
        raise RefundError(Code.INVALID_FIELD, "This cursor is not one that a page named as its next.", field="cursor")
    async with call.begin(*SEES_REFUNDS) as connection:
        found = await group_views.page(
            connection,
            integration=call.sees,
            order_ref=query.order_id,
            customer_ref=query.customer_id,
            after=query.cursor,
            limit=query.limit + 1,
        )
        shown, more = found[: query.limit], len(found) > query.limit
        views = [await _view(call, connection, row["id"]) for row in shown]
    return presenting.answer({"groups": views, "next_cursor": shown[-1]["id"] if more else None})


@router.post(
    "/{group_id}/decisions",
    summary="Approve or deny all parts that wait",
    responses={
        200: {
            "model": shapes.GroupDecisionView,
            "description": "Recorded for every part; `delivered` tells whether every run has it already.",
        },
        202: {"model": shapes.GroupDecisionView, "description": "Recorded for every part, and sent as signals."},
        **errors(
            Code.GROUP_NOT_FOUND,
            *(code for code in DECISION_CODES if code not in (Code.REFUND_NOT_FOUND, Code.DECIDED_TOGETHER)),
            body=True,
        ),
    },
    openapi_extra=takes(GroupDecision),
)
async def decide(group_id: str, call: TheCall) -> Response:
    """Recorded for every part in one transaction, or, when one of them has moved on, for none: the answer names it. The same decision again gets the same
    answer."""
    raw, clock = await call.body(), call.services.database.clock
    async with _auditing(call, "decision", group_id), call.begin(Role.REVIEWER) as connection:
        said = parse(GroupDecision, raw)
        await groups.visible(connection, _group_id(group_id), integration=call.sees)
        recorded = await deciding_groups.record_reviews(
            connection,
            clock,
            group_id=group_id,
            actor=call.actor,
            verdict=said.verdict,
            terms=said.terms,
            reason=said.note,
            on_behalf_of=said.on_behalf_of,
        )
        await _keep_notes(call, connection, recorded, said.note)
    delivered = await _deliver(call, recorded, "decide" if said.deliver == "update" else said.verdict, said.deliver)
    return await _decided(call, group_id, said.verdict, recorded, delivered, 202 if said.deliver == "signal" else 200)


@router.post(
    "/{group_id}/consent",
    summary="The customer agreed or declined, to all parts that ask",
    responses={
        200: {"model": shapes.GroupDecisionView},
        **errors(
            Code.GROUP_NOT_FOUND, Code.TERMS_CHANGED, Code.CONSENT_EXPIRED, Code.NOT_AWAITING_CONSENT, Code.PERSON_REQUIRED, body=True
        ),
    },
    openapi_extra=takes(GroupConsent),
)
async def consent(group_id: str, call: TheCall) -> Response:
    """What the customer said to exactly these terms, recorded for every part in one transaction, or for none."""
    raw, clock = await call.body(), call.services.database.clock
    async with _auditing(call, "consent", group_id), call.begin(Role.REQUESTER) as connection:
        said = parse(GroupConsent, raw)
        await groups.visible(connection, _group_id(group_id), integration=call.actor.integration)
        if call.actor.kind is PrincipalKind.AGENT:
            raise RefundError(Code.PERSON_REQUIRED, "An agent cannot say for a customer that the customer agreed.")
        recorded = await deciding_groups.record_consents(
            connection, clock, group_id=group_id, actor=call.actor, agreed=said.agreed, terms=said.terms
        )
    delivered = await _deliver(call, recorded, "consent", "signal")
    return await _decided(call, group_id, "approve" if said.agreed else "deny", recorded, delivered, 200)


@router.post(
    "/{group_id}/withdrawal",
    summary="Stop every part of which nothing was sent",
    responses={200: {"model": shapes.GroupWithdrawalView}, **errors(Code.GROUP_NOT_FOUND, Code.TOO_LATE, body=True)},
    openapi_extra=takes(Withdrawal),
)
async def withdraw(group_id: str, call: TheCall) -> Response:
    """Once this has answered, nothing is ever sent for a part that is named as withdrawn; one that may have been sent is named as `too_late`."""
    raw, clock = await call.body(), call.services.database.clock
    async with _auditing(call, "withdrawal", group_id), call.begin(Role.REQUESTER) as connection:
        said = parse(Withdrawal, raw or b"{}")
        await groups.visible(connection, _group_id(group_id), integration=call.withdraws)
        parts = await deciding_groups.record_withdrawals(connection, clock, group_id=group_id, actor=call.actor)
        recorded = [part.recorded for part in parts if part.recorded is not None]
        await _keep_notes(call, connection, recorded, said.note)
    await _deliver(call, recorded, "withdraw", "signal")
    shown = [
        {"refund_id": p.refund_id, "outcome": p.outcome, "status": p.status.value, "code": "TOO_LATE" if p.outcome == "too_late" else None}
        for p in parts
    ]
    return presenting.answer({"parts": shown, "group": await _present(call, group_id)})


@asynccontextmanager
async def _auditing(call: Call, what: str, group_id: str) -> AsyncIterator[None]:
    """Enter a refusal in the ledger of each part that it names; one that names none, such as of a role, once for the group."""
    try:
        yield
    except RefundError as error:
        named = [error.ids["refund"]] if "refund" in error.ids else error.ids.get("refunds", ())
        for refund_id in named:
            await call.note_refusal(what, refund_id, error)
        if not named:
            await call.note_refusal_of_group(what, group_id, error)
        raise


def _group_id(path: str) -> str:
    """A group's id from the address. Raises ``GROUP_NOT_FOUND`` for what cannot be one."""
    if not is_id(path, Prefix.GROUP):
        raise RefundError(Code.GROUP_NOT_FOUND)
    return path


async def _view(call: Call, connection: Connection, group_id: str) -> dict[str, Any]:
    seen = await group_views.group(connection, group_id, integration=call.sees, now=call.services.database.clock.now())
    return shapes.view(seen.group, seen.members, seen.payments, seen.made)


async def _present(call: Call, group_id: str) -> dict[str, Any]:
    async with call.services.database.begin() as connection:
        return await _view(call, connection, group_id)


async def _keep_notes(call: Call, connection: Connection, recorded: list[Recorded], note: str) -> None:
    for one in recorded:
        if not one.replayed:
            given = {"refund_id": one.row["id"], "actor": call.actor.principal_id, "about": one.id, "note": note}
            await notes.keep(connection, call.services.texts, **given)


async def _deliver(call: Call, recorded: list[Recorded], name: str, how: str) -> bool:
    """Tell each run to look; what cannot be told now is told later by the sweep."""
    orchestrator, settings = call.services.orchestrator, call.services.settings

    async def one(said: Recorded) -> bool:
        message = Message(said.id, said.row["revision"], said.row["terms_hash"] or "")
        if how == "signal":
            return await orchestrator.signal(said.row["id"], name, message, within_s=settings.api_quote_wait_s)
        outcome = await orchestrator.update(said.row["id"], name, message, within_s=settings.api_decision_wait_s)
        return outcome is not None and not outcome.refused

    return all(await asyncio.gather(*(one(said) for said in recorded if not said.replayed)))


async def _decided(call: Call, group_id: str, verdict: str, recorded: list[Recorded], delivered: bool, status: int) -> Response:
    body = {
        "verdict": verdict,
        "refunds": [one.row["id"] for one in recorded],
        "delivered": delivered,
        "replayed": all(one.replayed for one in recorded),
        "group": await _present(call, group_id),
    }
    return presenting.answer(body, status)
