"""What people say about a refund: decisions, revisions, consent, withdrawal, settlement. Recorded first, then delivered to its run."""

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Response
from pydantic import StringConstraints

from api import presenting
from api.answering import present_view
from api.bodies import parse
from api.calls import Call, TheCall, refund_id_in
from api.contract import errors, takes
from api.problems import RETRY_AFTER_S
from api.routes.refunds import MONEY_CODES
from api.schemas import DecisionView, RefundView, SettlementView
from api.scoping import parse_asked
from refunds.errors import Code, RefundError
from refunds.ids import Prefix, is_id
from refunds.messages import Message, Outcome
from refunds.orders import CleanText, Said, Strict
from refunds.payment_ids import TOLD_BY_ITSELF
from refunds.people import PrincipalKind, Role
from refunds.requests import PersonName, RevisionRequest
from store import decisions, leg_decisions, notes, views
from store.db import Connection
from store.decisions import Recorded

router = APIRouter(prefix="/v1/refunds/{refund_id}", tags=["decisions"])

TermsHash = Annotated[str, StringConstraints(pattern="^[0-9a-f]{64}$")]
Note = Annotated[CleanText, StringConstraints(max_length=5_000)]


class Decision(Strict):
    """A reviewer's decision. ``terms_hash`` as seen; only a denial of a request that has no exact terms yet leaves it out.

    ``note`` says why, which some reviews require. ``on_behalf_of`` names the person (handle or id) whose right is used by a delegation; without it the own
    right counts, or what suffices of what was delegated.
    """

    verdict: Literal["approve", "deny"]
    terms_hash: TermsHash | None = None
    note: Note = ""
    on_behalf_of: PersonName | None = None
    deliver: Literal["update", "signal"] = "update"


class Consent(Strict):
    """What the customer said to exactly these terms."""

    agreed: bool
    terms_hash: TermsHash


class LegSettlement(Strict):
    """What became of a parked leg, as a person found out. ``reversed`` names the reversal (or the refund of the fee) at the processor."""

    outcome: Literal["reversed", "not_reversed"]
    reversal_id: Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_]{1,100}$")] | None = None
    evidence: Annotated[Said, StringConstraints(max_length=5_000)]


class Withdrawal(Strict):
    """Nothing needs to be given."""

    note: Note = ""


class Settlement(Strict):
    """How a parked refund ended, as a person found out. ``refunded`` names the processor's refund; a manual part has none, so its evidence alone counts."""

    outcome: Literal["refunded", "not_refunded"]
    processor_refund_id: Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_]{1,100}$")] | None = None
    evidence: Annotated[Said, StringConstraints(max_length=5_000)]


DECISION_CODES = (
    Code.REFUND_NOT_FOUND,
    Code.TERMS_CHANGED,
    Code.ALREADY_DECIDED,
    Code.DECIDED_TOGETHER,
    Code.REVIEW_EXPIRED,
    Code.NOT_AWAITING_REVIEW,
    Code.SELF_APPROVAL,
    Code.ROLE_TOO_LOW,
    Code.PERSON_REQUIRED,
    Code.ABOVE_OWN_LIMIT,
    Code.REVIEWER_LIMIT,
    Code.SPECIALIST_REQUIRED,
    Code.DELEGATION_INVALID,
    Code.REASON_REQUIRED,
    Code.EVIDENCE_MISSING,
)


@router.post(
    "/decisions",
    summary="Approve or deny exact terms",
    responses={
        200: {"model": DecisionView, "description": "Recorded; `delivered` tells whether the run has it already."},
        202: {"model": DecisionView, "description": "Recorded, and sent as a signal."},
        **errors(*DECISION_CODES, body=True),
    },
    openapi_extra=takes(Decision),
)
async def decide(refund_id: str, call: TheCall) -> Response:
    """The decision counts from the moment it is recorded. The same decision again gets the same answer."""
    raw = await call.body()
    clock = call.services.database.clock
    async with call.auditing("decision", refund_id_in(refund_id)), call.begin(Role.REVIEWER) as connection:
        said = parse(Decision, raw)
        recorded = await decisions.record_review(
            connection,
            clock,
            refund_id=refund_id,
            actor=call.actor,
            verdict=said.verdict,
            terms_hash=said.terms_hash,
            reason=said.note,
            on_behalf_of=said.on_behalf_of,
        )
        if not recorded.replayed:
            await _keep_note(call, connection, recorded, said.note)
    message = Message(recorded.id, revision=recorded.row["revision"], terms_hash=said.terms_hash or "")
    if said.deliver == "signal":
        delivered = await _signal(call, refund_id, said.verdict, message)
    else:
        outcome = await _update(call, refund_id, "decide", message)
        delivered = outcome is not None and not outcome.refused
    view = await present_view(call, refund_id)
    own = next(d for d in view["decisions"] if d["id"] == recorded.id)
    body = {
        "decision": own,
        "status": view["status"],
        "delivered": delivered or own["delivered_at"] is not None,
        "replayed": recorded.replayed,
        "refund": view,
    }
    return presenting.answer(body, 202 if said.deliver == "signal" else 200)


@router.post(
    "/revisions",
    status_code=201,
    summary="Ask for other terms",
    responses={
        200: {"model": RefundView, "description": "The same revision again, which had counted: the refund as it stands."},
        201: {"model": RefundView, "description": "Quoted anew; these terms need their own decision."},
        202: {"model": RefundView, "description": "Recorded; the new quote is not ready yet."},
        **errors(
            Code.REFUND_NOT_FOUND,
            Code.PAYMENT_NOT_FOUND,
            Code.PAYMENT_NAMED_OTHERWISE,
            *TOLD_BY_ITSELF,
            Code.NOT_REVISABLE,
            Code.TERMS_CHANGED,
            Code.TERMS_UNCHANGED,
            Code.PERSON_REQUIRED,
            Code.EXCEEDS_REFUNDABLE,
            *MONEY_CODES,
            body=True,
        ),
    },
    openapi_extra=takes(RevisionRequest),
)
async def revise(refund_id: str, call: TheCall) -> Response:
    """Another amount, payment or reason. From now on the present terms can no longer be decided. The same revision again gets the same answer."""
    raw = await call.body()
    clock = call.services.database.clock
    async with (
        call.noticing_mismatch(),
        call.auditing("revision", refund_id_in(refund_id)),
        call.begin(Role.REVIEWER) as connection,
    ):
        request = await parse_asked(connection, call.services.database.clock, RevisionRequest, raw)
        recorded = await decisions.record_revision(connection, clock, refund_id=refund_id, actor=call.actor, request=request)
        if not recorded.replayed:
            await _keep_note(call, connection, recorded, request.note)
    if recorded.replayed and await _applied(call, recorded):
        return presenting.answer(await present_view(call, refund_id), 200, {"Idempotent-Replayed": "true"})
    message = Message(recorded.id, revision=recorded.row["revision"], terms_hash=request.terms_hash or "")
    await _update(call, refund_id, "revise", message)
    applied = await _applied(call, recorded)
    return presenting.answer(await present_view(call, refund_id), 201 if applied else 202)


@router.post(
    "/consent",
    summary="The customer agreed or declined",
    responses={
        200: {"model": RefundView},
        **errors(
            Code.REFUND_NOT_FOUND,
            Code.TERMS_CHANGED,
            Code.CONSENT_EXPIRED,
            Code.NOT_AWAITING_CONSENT,
            Code.DECIDED_TOGETHER,
            Code.PERSON_REQUIRED,
            body=True,
        ),
    },
    openapi_extra=takes(Consent),
)
async def consent(refund_id: str, call: TheCall) -> Response:
    """What the customer said to exactly these terms, as the support system that talked to the customer reports it."""
    raw = await call.body()
    clock = call.services.database.clock
    async with call.auditing("consent", refund_id_in(refund_id)), call.begin(Role.REQUESTER) as connection:
        said = parse(Consent, raw)
        await views.check_visible(connection, refund_id, integration=call.actor.integration)
        if call.actor.kind is PrincipalKind.AGENT:
            raise RefundError(Code.PERSON_REQUIRED, "An agent cannot say for a customer that the customer agreed.")
        recorded = await decisions.record_consent(
            connection, clock, refund_id=refund_id, actor=call.actor, agreed=said.agreed, terms_hash=said.terms_hash
        )
    await _signal(call, refund_id, "consent", Message(recorded.id, recorded.row["revision"], said.terms_hash))
    return presenting.answer(await present_view(call, refund_id))


@router.post(
    "/withdrawal",
    summary="Stop it while nothing was sent",
    responses={200: {"model": RefundView}, **errors(Code.REFUND_NOT_FOUND, Code.TOO_LATE, body=True)},
    openapi_extra=takes(Withdrawal),
)
async def withdraw(refund_id: str, call: TheCall) -> Response:
    """Once this has answered, nothing is ever sent for the refund. Repeating it changes nothing. An operator's key that is a requester's as well withdraws
    the refunds of every integration: that is how what a runaway requester left behind is cleared up."""
    raw = await call.body()
    clock = call.services.database.clock
    async with call.auditing("withdrawal", refund_id_in(refund_id)), call.begin(Role.REQUESTER) as connection:
        said = parse(Withdrawal, raw or b"{}")
        await views.check_visible(connection, refund_id, integration=call.withdraws)
        recorded = await decisions.record_withdrawal(connection, clock, refund_id=refund_id, actor=call.actor)
        if not recorded.replayed:
            await _keep_note(call, connection, recorded, said.note)
    if not recorded.replayed:
        await _signal(call, refund_id, "withdraw", Message(recorded.id, recorded.row["revision"]))
    return presenting.answer(await present_view(call, refund_id))


@router.post(
    "/settlement",
    summary="Settle a parked refund by hand",
    responses={
        200: {"model": SettlementView, "description": "Checked and settled."},
        202: {"model": SettlementView, "description": "Recorded; `waits_for` says what is missing."},
        **errors(
            Code.REFUND_NOT_FOUND,
            Code.NOT_PARKED,
            Code.PERSON_REQUIRED,
            Code.SETTLEMENT_NOT_FOUND,
            Code.SETTLEMENT_MISMATCH,
            Code.SETTLEMENT_CONTRADICTED,
            Code.SECOND_PERSON_REQUIRED,
            Code.ATTEMPT_OPEN,
            body=True,
        ),
    },
    openapi_extra=takes(Settlement),
)
async def settle(refund_id: str, call: TheCall) -> Response:
    """``refunded`` is checked live at the processor; ``not_refunded`` needs a second person who says the same."""
    raw = await call.body()
    clock = call.services.database.clock
    async with call.auditing("settlement", refund_id_in(refund_id)), call.begin(Role.SETTLER) as connection:
        said = parse(Settlement, raw)
        recorded = await decisions.record_settlement(
            connection, clock, refund_id=refund_id, actor=call.actor, outcome=said.outcome, processor_refund_id=said.processor_refund_id
        )
        await _keep_note(call, connection, recorded, said.evidence)
        instruction = await views.instruction(connection, recorded.id)
    if said.outcome == "not_refunded" and not instruction["body"]["first_person"]:
        return await _settlement(call, recorded, "a second person who says the same", 202)
    return await _checked(call, recorded)


@router.post(
    "/legs/{leg_id}/settlement",
    summary="Settle a parked leg by hand",
    responses={
        200: {"model": SettlementView, "description": "Checked and settled."},
        202: {"model": SettlementView, "description": "Recorded; `waits_for` says what is missing."},
        **errors(
            Code.REFUND_NOT_FOUND,
            Code.LEG_NOT_FOUND,
            Code.NOT_PARKED,
            Code.PERSON_REQUIRED,
            Code.SETTLEMENT_NOT_FOUND,
            Code.SETTLEMENT_MISMATCH,
            Code.SETTLEMENT_CONTRADICTED,
            Code.SECOND_PERSON_REQUIRED,
            Code.ATTEMPT_OPEN,
            body=True,
        ),
    },
    openapi_extra=takes(LegSettlement),
)
async def settle_leg(refund_id: str, leg_id: str, call: TheCall) -> Response:
    """``reversed`` is checked live at the processor; ``not_reversed`` needs a second person who says the same. The refund itself stays what it is."""
    raw = await call.body()
    clock = call.services.database.clock
    async with call.auditing("settlement", refund_id_in(refund_id)), call.begin(Role.SETTLER) as connection:
        said = parse(LegSettlement, raw)
        if not is_id(leg_id, Prefix.LEG):
            raise RefundError(Code.LEG_NOT_FOUND)
        given = {"refund_id": refund_id, "leg_id": leg_id, "actor": call.actor, "outcome": said.outcome, "receipt": said.reversal_id}
        recorded = await leg_decisions.record_leg_settlement(connection, clock, **given)
        await _keep_note(call, connection, recorded, said.evidence)
        instruction = await views.instruction(connection, recorded.id)
    if said.outcome == "not_reversed" and not instruction["body"]["first_person"]:
        return await _settlement(call, recorded, "a second person who says the same", 202)
    return await _checked(call, recorded)


async def _checked(call: Call, recorded: Recorded) -> Response:
    """Have a recorded settlement checked at the processor, and answer with what that came to."""
    refund_id = recorded.row["id"]
    outcome = await _update(call, refund_id, "settle", Message(recorded.id, recorded.row["revision"]))
    if outcome is not None and outcome.refused:
        raise _refusal(outcome.refused, outcome.detail, refund_id)
    if await _applied(call, recorded):
        return await _settlement(call, recorded, None, 200)
    by_hand = recorded.row["code"] == Code.MANUAL_PART
    return await _settlement(call, recorded, "its run, which hears of it soon" if by_hand else "the check at the processor", 202)


async def _settlement(call: Call, recorded: Recorded, waits_for: str | None, status: int) -> Response:
    view = await present_view(call, recorded.row["id"])
    body: dict[str, Any] = {"settlement": recorded.id, "status": view["status"], "waits_for": waits_for, "refund": view}
    return presenting.answer(body, status)


async def _keep_note(call: Call, connection: Connection, recorded: Recorded, note: str) -> None:
    given = {"refund_id": recorded.row["id"], "actor": call.actor.principal_id, "about": recorded.id, "note": note}
    await notes.keep(connection, call.services.texts, **given)


async def _signal(call: Call, refund_id: str, name: str, message: Message) -> bool:
    return await call.services.orchestrator.signal(refund_id, name, message, within_s=call.services.settings.api_quote_wait_s)


async def _update(call: Call, refund_id: str, name: str, message: Message) -> Outcome | None:
    return await call.services.orchestrator.update(refund_id, name, message, within_s=call.services.settings.api_decision_wait_s)


async def _applied(call: Call, recorded: Recorded) -> bool:
    """Whether an instruction was carried out. Raises its code when it was refused; the store is believed, whatever came of the delivery."""
    async with call.services.database.begin() as connection:
        row = await views.instruction(connection, recorded.id)
    if row["outcome"]:
        raise _refusal(row["outcome"], row["detail"], recorded.row["id"])
    return row["applied_at"] is not None


def _refusal(code: str, detail: str | None, refund_id: str) -> RefundError:
    ids: dict[str, Any] = {"refund": refund_id}
    if code == Code.ATTEMPT_OPEN:
        ids["retry_after"] = RETRY_AFTER_S
    return RefundError(Code(code), detail or None, **ids)
