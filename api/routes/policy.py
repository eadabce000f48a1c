"""The policy in force, and new versions of it."""

from typing import Annotated, Any

from fastapi import APIRouter, Response
from pydantic import AwareDatetime, StringConstraints

from api import presenting
from api.bodies import parse
from api.calls import TheCall
from api.contract import errors, takes
from api.problems import InvalidBody
from api.schemas import PolicyView
from refunds.errors import Code, RefundError
from refunds.orders import CleanText, Strict
from refunds.people import Role
from refunds.policy import LARGEST_BYTES, PolicyError
from store import policies

router = APIRouter(prefix="/v1/policy", tags=["policy"])


class NewVersion(Strict):
    """A policy as YAML, from when it holds (now, when left out), and why."""

    source: Annotated[str, StringConstraints(min_length=1, max_length=LARGEST_BYTES)]
    effective_from: AwareDatetime | None = None
    note: Annotated[CleanText, StringConstraints(max_length=500, strip_whitespace=True, pattern=r"\S")]


@router.get("", summary="The policy in force", responses={200: {"model": PolicyView}, **errors()})
async def show(call: TheCall) -> Response:
    """Its source, version, hash and since when it holds."""
    async with call.begin(Role.OPERATOR, Role.AUDITOR, Role.REVIEWER) as connection:
        row = await policies.version_in_force(connection, call.services.database.clock.now())
    return presenting.answer(dict(row))


@router.post(
    "/versions",
    status_code=201,
    summary="Publish a version",
    responses={201: {"model": PolicyView}, **errors(body=True)},
    openapi_extra=takes(NewVersion),
)
async def publish(call: TheCall) -> Response:
    """Checked whole before it is stored. Refunds that were quoted keep the version they were quoted under."""
    raw = await call.body()
    clock = call.services.database.clock
    async with call.begin(Role.OPERATOR) as connection:
        new = parse(NewVersion, raw)
        if new.effective_from is not None and new.effective_from < clock.now():
            raise RefundError(Code.INVALID_FIELD, "A version cannot take effect in the past.", field="effective_from")
        try:
            row = await policies.publish(
                connection,
                clock,
                source=new.source,
                effective_from=new.effective_from,
                author_id=call.actor.principal_id,
                note=new.note,
            )
        except PolicyError as error:
            raise InvalidBody(_problems(error)) from None
    return presenting.answer(dict(row), 201)


def _problems(error: PolicyError) -> list[dict[str, Any]]:
    return [
        {
            "field": "source",
            "code": Code.INVALID_FIELD.value,
            "detail": f"line {p.line}, {p.path or 'the whole'}: {p.problem} {p.remedy}",
            "line": p.line,
            "column": p.column,
            "path": p.path,
        }
        for p in error.problems
    ]
