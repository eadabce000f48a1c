"""Things that happen by themselves: a pending refund succeeds or fails, a dispute is decided."""

import asyncio
import json
import logging
from typing import Any

from deploy.sandbox import disputes, lives, refunds
from deploy.sandbox.state import State
from deploy.sandbox.webhooks import Outbox
from deploy.sandbox.work import Work

TICK_SECONDS = 0.03
_log = logging.getLogger("sandbox.schedule")


def run_due(state: State, outbox: Outbox) -> int:
    """Carries out everything that is due, each in its own transaction. Returns how many."""
    done = 0
    while True:
        now = state.clock.now_ms()
        row = state.db.execute("SELECT seq, id, action FROM schedule WHERE due_ms <= ? ORDER BY due_ms, seq LIMIT 1", (now,)).fetchone()
        if row is None:
            state.settled()
            return done
        try:
            with state.transaction(), state.acting_for(state.scope_of(row[1])):
                state.db.execute("DELETE FROM schedule WHERE seq = ?", (row[0],))
                _act(Work(state, outbox, now // 1000), row[1], json.loads(row[2]))
        except (LookupError, ValueError) as error:
            # Overtaken by what was done since it was planned: it will never be possible, so it is not tried again.
            state.db.execute("DELETE FROM schedule WHERE seq = ?", (row[0],))
            _log.warning("%s did not happen: %s", row[1], error)
        done += 1


def _act(work: Work, object_id: str, action: dict[str, Any]) -> None:
    status = str(action["status"])
    body = work.state.by_id(object_id)
    if body is None or body["status"] == status:
        return
    if body["object"] == "dispute":
        if body["status"] not in disputes.CLOSED:
            disputes.move(work, object_id, status)
    elif body["status"] in lives.COUNTED:
        refunds.move(work, object_id, status, action.get("failure_reason"))
        refunds.plan_next(work, object_id, action.get("rest") or [])


async def run(state: State, outbox: Outbox) -> None:
    """Looks for due things, for ever."""
    while True:
        if state.is_due():
            run_due(state, outbox)
        await asyncio.sleep(TICK_SECONDS)
