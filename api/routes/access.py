"""Who may call: people, services and agents, and their keys."""

from datetime import datetime
from typing import Annotated, Any

from fastapi import APIRouter, Response
from pydantic import AfterValidator, AwareDatetime, Field, StringConstraints

from api import presenting
from api.bodies import parse
from api.calls import TheCall
from api.contract import errors, takes
from api.people_shapes import KeyList, KeyMade, PeopleList, PersonView
from refunds.errors import Code, RefundError
from refunds.ids import Prefix, is_id
from refunds.money import MAX_AMOUNT, currency
from refunds.orders import CleanText, ExternalId, Strict
from refunds.people import PrincipalKind, Role
from refunds.requests import PersonName
from store import principals
from store.approvers import find_person

router = APIRouter(prefix="/v1", tags=["access"])


class NewPrincipal(Strict):
    """A person, service or agent. The handle is how requests name a person in ``requested_by``."""

    kind: PrincipalKind
    handle: Annotated[CleanText, StringConstraints(pattern=r"^[A-Za-z0-9@._+-]{1,200}$")]
    name: PersonName


def _money(ceilings: dict[str, int]) -> dict[str, int]:
    read: dict[str, int] = {}
    for name, amount in ceilings.items():
        try:
            code = currency(name).code
        except RefundError as error:
            raise ValueError(error.detail) from None
        if code in read:  # usd and USD: nobody can tell which of the two is meant
            raise ValueError(f"{code} is there twice; keep one of them")
        read[code] = amount
    return read


class Approving(Strict):
    """What a person may approve at the most, by currency (`null`: no ceiling of their own; with ceilings, nothing in a currency that is not named); whether
    they choose or instruct the reader of free text; for an agent the person it acts for (handle or id)."""

    approves_up_to: (
        Annotated[dict[str, Annotated[int, Field(strict=True, ge=0, le=MAX_AMOUNT)]], Field(max_length=200), AfterValidator(_money)] | None
    ) = None
    operates_classifier: Annotated[bool, Field(strict=True)] = False
    owner: PersonName | None = None


class NewKey(Strict):
    """A key for somebody. ``integration`` is what idempotency keys belong to; give the old key's when a key is replaced."""

    principal_id: ExternalId
    roles: Annotated[list[Role], Field(min_length=1, max_length=len(Role))]
    integration: ExternalId | None = None
    expires_at: AwareDatetime | None = None


@router.post(
    "/people",
    status_code=201,
    summary="Add a person, service or agent",
    responses={201: {"model": PersonView}, **errors(body=True)},
    openapi_extra=takes(NewPrincipal),
)
async def add_person(call: TheCall) -> Response:
    """Rules about people compare persons: give each its own."""
    raw = await call.body()
    async with call.begin(Role.OPERATOR) as connection:
        new = parse(NewPrincipal, raw)
        row = await principals.create_principal(
            connection, call.services.database.clock, kind=new.kind, handle=new.handle, name=new.name, actor=call.actor.principal_id
        )
    return presenting.answer(dict(row), 201)


@router.put(
    "/people/{principal_id}/approving",
    summary="Say what somebody may approve, or for whom an agent acts",
    responses={200: {"model": PersonView}, **errors(Code.NOT_FOUND, Code.SELF_APPROVAL, body=True)},
    openapi_extra=takes(Approving),
)
async def set_approving(principal_id: str, call: TheCall) -> Response:
    """It replaces what was said before and counts from the next decision on. Nobody says it of themselves."""
    raw = await call.body()
    async with call.noting_refusal("approving_refused"), call.begin(Role.OPERATOR) as connection:
        said = parse(Approving, raw)
        if not is_id(principal_id, Prefix.PRINCIPAL):
            raise RefundError(Code.NOT_FOUND, "There is no such person, service or agent.")
        owner_id = await find_person(connection, said.owner, field="owner") if said.owner is not None else None
        row = await principals.set_approving(
            connection,
            call.services.database.clock,
            principal_id=principal_id,
            actor=call.actor,
            approves_up_to=said.approves_up_to,
            operates_classifier=said.operates_classifier,
            owner_id=owner_id,
        )
    return presenting.answer(dict(row))


@router.get("/people", summary="Everybody", responses={200: {"model": PeopleList}, **errors()})
async def list_people(call: TheCall) -> Response:
    """Oldest first."""
    async with call.begin(Role.OPERATOR, Role.AUDITOR) as connection:
        rows = await principals.list_principals(connection)
    return presenting.answer({"people": [dict(row) for row in rows]})


@router.post(
    "/keys",
    status_code=201,
    summary="Make a key",
    responses={201: {"model": KeyMade}, **errors(body=True)},
    openapi_extra=takes(NewKey),
)
async def make_key(call: TheCall) -> Response:
    """The key itself is in this answer only. Roles that judge are for persons only."""
    raw = await call.body()
    clock = call.services.database.clock
    async with call.begin(Role.OPERATOR) as connection:
        new = parse(NewKey, raw)
        _in_future(new.expires_at, clock.now())
        row, key = await principals.create_key(
            connection,
            clock,
            principal_id=new.principal_id,
            roles=new.roles,
            integration=new.integration,
            expires_at=new.expires_at,
            actor=call.actor.principal_id,
        )
    return presenting.answer(_shown(dict(row)) | {"key": key}, 201)


def _in_future(expires_at: datetime | None, now: datetime) -> None:
    if expires_at is not None and not now < expires_at:
        raise RefundError(Code.INVALID_FIELD, "A key expires in the future or never.", field="expires_at")


def _shown(row: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in row.items() if name != "hash"}


@router.get("/keys", summary="All keys", responses={200: {"model": KeyList}, **errors()})
async def list_keys(call: TheCall) -> Response:
    """Whose they are and what they may do; the keys themselves are not stored."""
    async with call.begin(Role.OPERATOR, Role.AUDITOR) as connection:
        rows = await principals.list_keys(connection)
    return presenting.answer({"keys": [_shown(dict(row)) for row in rows]})


@router.delete("/keys/{key_id}", status_code=204, summary="Revoke a key", responses=errors(Code.NOT_FOUND))
async def revoke_key(key_id: str, call: TheCall) -> Response:
    """At once: no call that begins after this has answered gets in with it. Repeating it changes nothing."""
    async with call.begin(Role.OPERATOR) as connection:
        if not key_id.isprintable():
            raise RefundError(Code.NOT_FOUND, "There is no such key.")
        await principals.revoke_key(connection, call.services.database.clock, key_id=key_id, actor=call.actor.principal_id)
    return Response(status_code=204)
