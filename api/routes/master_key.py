"""The master key: which one protects what is personal, and changing over to another."""

from dataclasses import asdict
from typing import Annotated

from fastapi import APIRouter, Response
from pydantic import Field

from api import presenting
from api.bodies import parse
from api.calls import TheCall
from api.contract import errors, takes
from api.schemas import Shape
from refunds.orders import Strict
from refunds.people import Role
from store import rotation

router = APIRouter(prefix="/v1/master-key", tags=["access"])


class MasterKeyView(Shape):
    """Names say nothing about a key. ``number`` is that of the newest wrapping key; ``left`` counts the keys of customers that an older one wraps."""

    master: str
    number: int
    customers: int
    left: int
    under_other_masters: int = Field(
        description="Sealing keys that need another master key than the present one: 0 when no older one is needed."
    )


class Rotation(Strict):
    """``anew`` begins a rotation when none is under way; without it only one that is under way is carried on."""

    anew: Annotated[bool, Field(strict=True)] = False


class RotationStep(Shape):
    """What this call did."""

    master: str
    number: int
    began: bool
    rewrapped: int
    done: bool = Field(description="No key of a customer is left under an older wrapping key.")


@router.get("", summary="The master key that protects what is personal", responses={200: {"model": MasterKeyView}, **errors()})
async def show(call: TheCall) -> Response:
    """By its name, and how far a rotation is."""
    async with call.begin(Role.OPERATOR, Role.AUDITOR) as connection:
        found = await rotation.standing(connection)
    return presenting.answer(asdict(found))


@router.post(
    "/rotation",
    summary="Begin or carry on a rotation, some hundred customers a call",
    responses={200: {"model": RotationStep}, **errors(body=True)},
    openapi_extra=takes(Rotation),
)
async def rotate(call: TheCall) -> Response:
    """Give the API the new master key first, and the old one beside it. Call it until it says `done`; stopping in between loses nothing."""
    raw = await call.body()
    async with call.begin(Role.OPERATOR) as connection:
        wanted = parse(Rotation, raw)
        stepped = await rotation.step(connection, call.services.database.clock, actor=call.actor.principal_id, anew=wanted.anew)
    return presenting.answer(asdict(stepped))
