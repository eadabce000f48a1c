"""Stop and resume (promise P4), and the mode."""

import asyncio
import time
from typing import Annotated, Any, Literal, Self

from fastapi import APIRouter, Response
from pydantic import StringConstraints, model_validator

from api import presenting
from api.bodies import parse
from api.calls import Call, TheCall
from api.contract import errors, takes
from api.schemas import ControlChanged, ControlList
from refunds.errors import Code
from refunds.logs import logger
from refunds.messages import Message
from refunds.orders import CleanText, Strict
from refunds.people import Role
from store import controls, outbox, scopes
from store.db import Database
from store.sql import Row

router = APIRouter(prefix="/v1/controls", tags=["controls"])
CONFIRM_WITHIN_S = 10.0
_LOOK_EVERY_S = 0.1
_RESUMED_AT_ONCE = 200
_log = logger(__name__)


class ControlChange(Strict):
    """The state wanted, of everything or of one processor. Without ``mode`` that stays as it is: an emergency stop needs to know nothing else."""

    scope: Literal["everything", "processor:stripe"] = "everything"
    state: Literal["stopped", "running"]
    mode: Literal["live", "draft"] | None = None
    reason: Annotated[CleanText, StringConstraints(max_length=500, strip_whitespace=True, pattern=r"\S")]

    @model_validator(mode="after")
    def _mode_is_of_everything(self) -> Self:
        if self.mode is not None and self.scope != "everything":
            raise ValueError("mode belongs to the scope everything; leave it out")
        return self


@router.get("", summary="What is stopped, and the mode", responses={200: {"model": ControlList}, **errors()})
async def show(call: TheCall) -> Response:
    """Who changed it last, when and why. Every role may see it: a stop explains what is held."""
    async with call.begin(*Role) as connection:
        states = await scopes.states(connection)
    return presenting.answer({"controls": [_plain(state) for state in states]})


@router.put(
    "",
    summary="Stop or resume",
    responses={200: {"model": ControlChanged}, **errors(Code.RECONCILIATION_REQUIRED, body=True)},
    openapi_extra=takes(ControlChange),
)
async def change(call: TheCall) -> Response:
    """Once a stop has answered, no new call that moves money starts. Calls that had started are listed, with whether their end is known."""
    raw = await call.body()
    database = call.services.database
    async with call.begin(Role.OPERATOR) as connection:
        wanted = parse(ControlChange, raw)
        state = await scopes.change(
            connection,
            database.clock,
            scope=wanted.scope,
            stopped=wanted.state == "stopped",
            mode=wanted.mode,
            reason=wanted.reason,
            actor=call.actor.principal_id,
        )
    answer = _plain(state) | {"calls_in_flight": [], "resumed": 0}
    if state["stopped"]:
        answer["calls_in_flight"] = await _confirm(call)
    else:
        answer["resumed"] = await _wake_held(call)
    return presenting.answer(answer)


def _plain(state: dict[str, Any]) -> dict[str, Any]:
    return state | {"state": "stopped" if state["stopped"] else "running"}


async def _confirm(call: Call) -> list[dict[str, Any]]:
    """Wait until every attempt that was open at the stop has answered or can no longer send anything, for a bounded time; then list them."""
    database = call.services.database
    until = time.monotonic() + CONFIRM_WITHIN_S
    still_open = seen = await _open(database)
    while any(row["may_still_send"] for row in still_open.values()) and time.monotonic() < until:
        await asyncio.sleep(_LOOK_EVERY_S)
        still_open = await _open(database)
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


async def _open(database: Database) -> dict[str, Row]:
    async with database.begin() as connection:
        return {row["id"]: row for row in await controls.open_attempts(connection)}


async def _wake_held(call: Call) -> int:
    """Tell held refunds to go on. Only a hint, and only while Temporal answers: each looks again by itself."""
    async with call.services.database.begin() as connection:
        held = await outbox.held_refunds(connection)
    woken = 0
    for refund_id in held[:_RESUMED_AT_ONCE]:
        message = Message(id="resume")
        if not await call.services.orchestrator.signal(refund_id, "resume", message, within_s=call.services.settings.api_quote_wait_s):
            break
        woken += 1
    _log.info("resumed", held=len(held), woken=woken)
    return woken
