"""The right to decide, handed to another person for a while."""

from datetime import datetime
from typing import Annotated, Literal

from fastapi import APIRouter, Query, Response
from pydantic import AwareDatetime, BaseModel, ConfigDict, StringConstraints

from api import approving, presenting
from api.approving_shapes import DelegationList, DelegationView
from api.bodies import parse
from api.calls import TheCall
from api.contract import errors, takes
from refunds.errors import Code, RefundError
from refunds.ids import Prefix, is_id
from refunds.orders import CleanText, Strict
from refunds.people import Role
from refunds.requests import PersonName
from store import delegations

router = APIRouter(prefix="/v1/delegations", tags=["access"])

QueueName = Annotated[CleanText, StringConstraints(pattern=r"^[a-z][a-z0-9_-]{0,63}$")]
MOST = 200


class NewDelegation(Strict):
    """To whom, which role, in one queue or in all, from when (now when left out) until before when."""

    to: PersonName
    role: Literal["reviewer", "manager"]
    queue: QueueName | None = None
    starts_at: AwareDatetime | None = None
    ends_at: AwareDatetime


class DelegationQuery(BaseModel):
    """Filters of the list; each may be left out."""

    model_config = ConfigDict(extra="forbid")

    mine: bool = False
    in_force: bool = False


@router.post(
    "",
    status_code=201,
    summary="Hand one's right to decide to another person",
    responses={201: {"model": DelegationView}, **errors(Code.PERSON_REQUIRED, Code.ROLE_TOO_LOW, body=True)},
    openapi_extra=takes(NewDelegation),
)
async def delegate(call: TheCall) -> Response:
    """They decide in their own name and on behalf of the caller, never more than the caller may at that moment, and hand nothing on."""
    raw, clock = await call.body(), call.services.database.clock
    async with call.noting_refusal("delegation_refused"), call.begin(Role.REVIEWER) as connection:
        new = parse(NewDelegation, raw)
        row = await delegations.delegate(
            connection,
            clock,
            actor=call.actor,
            to=new.to,
            role=Role(new.role),
            queue=new.queue,
            starts_at=new.starts_at,
            ends_at=new.ends_at,
        )
    return _answer(call, row, 201)


@router.get(
    "", summary="Who decides for whom", responses={200: {"model": DelegationList}, **errors(Code.INVALID_FIELD, Code.UNKNOWN_FIELD)}
)
async def listing(query: Annotated[DelegationQuery, Query()], call: TheCall) -> Response:
    """The latest first; `mine` leaves those that the caller gave or has, `in_force` those that are in force now."""
    async with call.begin(Role.REVIEWER, Role.OPERATOR, Role.AUDITOR) as connection:
        now = call.services.database.clock.now()
        of = call.actor.principal_id if query.mine else None
        rows = await delegations.listed(connection, of=of, in_force_at=now if query.in_force else None, limit=MOST)
    return presenting.answer({"delegations": [approving.delegation(row, now) for row in rows]})


@router.delete("/{delegation_id}", summary="End a delegation early", responses={200: {"model": DelegationView}, **errors(Code.NOT_FOUND)})
async def end(delegation_id: str, call: TheCall) -> Response:
    """At once, by who gave it, who has it, or an operator. What was decided before stands. Repeating it changes nothing."""
    async with call.noting_refusal("delegation_refused"), call.begin(Role.REVIEWER, Role.OPERATOR) as connection:
        if not is_id(delegation_id, Prefix.DELEGATION):
            raise RefundError(Code.NOT_FOUND, "There is no such delegation.")
        row = await delegations.end(connection, call.services.database.clock, actor=call.actor, delegation_id=delegation_id)
    return _answer(call, row, 200)


def _answer(call: TheCall, row: delegations.Row, status: int) -> Response:
    now: datetime = call.services.database.clock.now()
    return presenting.answer(approving.delegation(row, now), status)
