"""Stop and resume (promise P4), and the mode."""

import asyncio
import time
from typing import Annotated, Any, Literal, Self

from fastapi import APIRouter, Response
from pydantic import Field, StringConstraints, model_validator

from api import presenting
from api.bodies import parse
from api.calls import Call, TheCall
from api.contract import errors, takes
from api.control_shapes import ControlChanged, ControlList
from api.erasure_list import check_replayed
from refunds.errors import Code, RefundError
from refunds.logs import logger
from refunds.messages import Message
from refunds.orders import CleanText, Said, Strict
from refunds.people import PrincipalKind, Role
from refunds.settings import Mode
from store import breakers, controls, outbox, scopes
from store.db import Database
from store.sql import Row

router = APIRouter(prefix="/v1/controls", tags=["controls"])
CONFIRM_WITHIN_S = 10.0
_LOOK_EVERY_S = 0.1
_RESUMED_AT_ONCE = 200
_log = logger(__name__)


class ControlChange(Strict):
    """The state wanted, of everything or of one scope, or the mode, or both. What is not named stays: a stop needs to know no mode, and a mode resumes nothing."""

    scope: Annotated[CleanText, StringConstraints(max_length=200)] = Field(
        default="everything", description="everything, agents, agent:<principal id or handle>, or processor:<name>"
    )
    state: Literal["stopped", "running"] | None = None
    mode: Literal["live", "draft"] | None = None
    reason: Annotated[Said, StringConstraints(max_length=500)]

    @model_validator(mode="after")
    def _mode_is_of_everything(self) -> Self:
        if self.mode is not None and self.scope != "everything":
            raise ValueError("mode belongs to the scope everything; leave it out")
        return self


@router.get("", summary="What is stopped, and the mode", responses={200: {"model": ControlList}, **errors()})
async def show(call: TheCall) -> Response:
    """Who changed it last, when and why, and whose each stop is. Every role may see it: a stop explains what is held."""
    async with call.begin(*Role) as connection:
        states, opened = await scopes.states(connection), await breakers.shown(connection, call.services.database.clock.now())
    money = call.services.settings.refunds_mode is Mode.LIVE
    return presenting.answer({"moves_money": money, "controls": [_plain(state) for state in states], "breakers": opened})


@router.put(
    "",
    summary="Stop or resume",
    responses={
        200: {"model": ControlChanged},
        **errors(
            Code.RECONCILIATION_REQUIRED,
            Code.ERASURES_NOT_REPLAYED,
            Code.ERASURE_LIST_UNREADABLE,
            Code.ERASURE_LIST_UNAVAILABLE,
            Code.RESUME_NEEDS_ANOTHER_PERSON,
            Code.PERSON_REQUIRED,
            body=True,
        ),
    },
    openapi_extra=takes(ControlChange),
)
async def change(call: TheCall) -> Response:
    """Once a stop has answered, no new call that moves money starts in its scope. Calls that had started are listed, with whether their end is known.

    An operator stops alone, and another person resumes. Whoever may not is refused, which is recorded.
    """
    raw = await call.body()
    database = call.services.database
    async with call.noting_refusal("control_refused"), call.begin(Role.OPERATOR) as connection:
        if call.actor.kind is PrincipalKind.AGENT:
            raise RefundError(Code.FORBIDDEN, "An agent can neither stop nor resume refunds, whatever its key allows.")
        asked = parse(ControlChange, raw)
        if asked.state is None and asked.mode is None:
            raise RefundError(Code.INVALID_FIELD, "Name the state that is wanted, stopped or running, or a mode.", field="state")
        wanted = scopes.Wanted(asked.scope, None if asked.state is None else asked.state == "stopped", asked.mode, asked.reason)
        if wanted.stopped is False:
            await check_replayed(connection, call.services.erasures, wanted.scope)
        state = await scopes.change(connection, database.clock, wanted, call.actor)
    answer = _plain(state) | {"calls_in_flight": [], "resumed": 0}
    if wanted.stopped:
        answer["calls_in_flight"] = await _confirm(call, state["scope"])
    elif not state["stopped"]:
        answer["resumed"] = await _wake_held(call, state["scope"])
    return presenting.answer(answer)


def _plain(state: dict[str, Any]) -> dict[str, Any]:
    return state | {"state": "stopped" if state["stopped"] else "running"}


async def _confirm(call: Call, scope: str) -> list[dict[str, Any]]:
    """Wait until every attempt of the scope that was open at the stop has answered or can no longer send anything, for a bounded time; then list them."""
    database = call.services.database
    until = time.monotonic() + CONFIRM_WITHIN_S
    still_open = seen = await _open(database, scope)
    while any(row["may_still_send"] for row in still_open.values()) and time.monotonic() < until:
        await asyncio.sleep(_LOOK_EVERY_S)
        still_open = await _open(database, scope)
    return [
        {
            "attempt": attempt_id,
            "refund": row["refund_id"],
            "opened_at": row["opened_at"],
            "send_by": row["send_by"],
            "confirmed": attempt_id not in still_open,
            "may_still_send": attempt_id in still_open and still_open[attempt_id]["may_still_send"],
        }
        for attempt_id, row in seen.items()
    ]


async def _open(database: Database, scope: str) -> dict[str, Row]:
    async with database.begin() as connection:
        return {row["id"]: row for row in await controls.open_attempts(connection, scope)}


async def _wake_held(call: Call, scope: str) -> int:
    """Tell held refunds to go on. Only a hint, and only while Temporal answers: each looks again by itself."""
    async with call.services.database.begin() as connection:
        held = await outbox.held_refunds(connection, scope)
    woken = 0
    for refund_id in held[:_RESUMED_AT_ONCE]:
        message = Message(id="resume")
        if not await call.services.orchestrator.signal(refund_id, "resume", message, within_s=call.services.settings.api_quote_wait_s):
            break
        woken += 1
    _log.info("resumed", held=len(held), woken=woken)
    return woken
