"""What goes before a decision: who looks at a refund, and the evidence it needs."""

from typing import Annotated, Self

from fastapi import APIRouter, Response
from pydantic import StringConstraints, model_validator

from api import presenting
from api.answering import present_view
from api.bodies import parse
from api.calls import TheCall, refund_id_in
from api.contract import errors, takes
from api.routes.delegations import QueueName
from api.schemas import RefundView
from refunds.errors import Code
from refunds.orders import CleanText, Said, Strict
from refunds.people import Role
from refunds.requests import PersonName
from store import assigning, evidence, notes, views

router = APIRouter(prefix="/v1/refunds/{refund_id}", tags=["decisions"])

Why = Annotated[Said, StringConstraints(max_length=5_000)]


class Assignment(Strict):
    """To whom a refund in review is given (a handle or id; `null` for nobody), or to which queue of its ladder it is moved, or both, and why."""

    to: PersonName | None = None
    queue: QueueName | None = None
    reason: Why

    @model_validator(mode="after")
    def _something(self) -> Self:
        if self.queue is None and "to" not in self.model_fields_set:
            raise ValueError("to: name the person, the queue, or both")
        return self

    @property
    def person(self) -> str | None:
        """As the store takes it: ``None`` leaves it with whom it is."""
        return None if "to" not in self.model_fields_set else self.to or assigning.NOBODY


class Evidence(Strict):
    """Evidence of a kind that the policy names: a `statement`, or a `reference` to where it is kept with the `digest` (SHA-256, hex) of what is there."""

    kind: Annotated[CleanText, StringConstraints(pattern=r"^[a-z][a-z0-9_-]{0,63}$")]
    statement: Annotated[Said, StringConstraints(max_length=20_000)] | None = None
    reference: Annotated[Said, StringConstraints(max_length=2_000)] | None = None
    digest: Annotated[str, StringConstraints(pattern="^[0-9a-f]{64}$")] | None = None

    @model_validator(mode="after")
    def _one_of_both(self) -> Self:
        if (self.statement is None) == (self.reference is None):
            raise ValueError("statement: give a statement or a reference, one of the two")
        if (self.reference is None) != (self.digest is None):
            raise ValueError("digest: give it with a reference, and only then, so that nothing else can be put in its place")
        return self


@router.post(
    "/assignment",
    summary="Give a refund in review to a person or another queue",
    responses={
        200: {"model": RefundView},
        **errors(Code.REFUND_NOT_FOUND, Code.NOT_AWAITING_REVIEW, Code.REVIEW_EXPIRED, Code.PERSON_REQUIRED, body=True),
    },
    openapi_extra=takes(Assignment),
)
async def assign(refund_id: str, call: TheCall) -> Response:
    """By a manager. No deadline moves by it, and anybody whose right suffices may still decide. Repeating it changes nothing."""
    raw, clock = await call.body(), call.services.database.clock
    async with call.auditing("assignment", refund_id_in(refund_id)), call.begin(Role.MANAGER) as connection:
        said = parse(Assignment, raw)
        recorded = await assigning.record_assignment(
            connection, clock, refund_id=refund_id, actor=call.actor, to=said.person, queue=said.queue
        )
        if not recorded.replayed:
            given = {"actor": call.actor.principal_id, "about": recorded.id, "note": said.reason}
            await notes.keep(connection, call.services.texts, refund_id=refund_id, **given)
    return presenting.answer(await present_view(call, refund_id))


@router.post(
    "/evidence",
    status_code=201,
    summary="Attach evidence for whoever decides",
    responses={201: {"model": RefundView}, **errors(Code.REFUND_NOT_FOUND, Code.TOO_LATE, body=True)},
    openapi_extra=takes(Evidence),
)
async def attach(refund_id: str, call: TheCall) -> Response:
    """Its words are kept sealed. What an agent attaches is shown, and stands for nothing that the policy asks for."""
    raw, services = await call.body(), call.services
    async with (
        call.auditing("evidence", refund_id_in(refund_id)),
        call.begin(Role.REQUESTER, Role.REVIEWER, Role.FRAUD) as connection,
    ):
        said = parse(Evidence, raw)
        await views.check_visible(connection, refund_id, integration=call.sees)
        await evidence.attach(
            connection,
            services.database.clock,
            services.texts,
            refund_id=refund_id,
            actor=call.actor,
            kind=said.kind,
            words=said.statement or said.reference or "",
            digest=said.digest,
        )
    return presenting.answer(await present_view(call, refund_id), 201)
