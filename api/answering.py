"""Reading a refund for an answer, and the first answer to a request: with its quote when that is ready in time."""

import asyncio
import time
from typing import Any

from fastapi import Response

from api import presenting
from api.calls import Call
from api.orchestrator import Beginning
from refunds.logs import logger
from refunds.money import Money
from refunds.status import Status
from store import views
from store.db import Connection
from store.intake import Accepted
from store.sql import Row
from store.texts import Unreadable

_log = logger(__name__)


async def refund_view(call: Call, connection: Connection, refund_id: str, *, limits_now: bool = False) -> dict[str, Any]:
    """Everything the caller may see of a refund. Limits are shown as they stood when it was quoted, with ``limits_now`` as they stand.

    Raises ``REFUND_NOT_FOUND``.
    """
    now = call.services.database.clock.now()
    seen = await views.refund(connection, refund_id, integration=call.sees, now=now, limits_now=limits_now)
    texts = None
    if call.reads_text:
        try:
            texts = await call.services.texts.read(connection, refund_id)
        except Unreadable:
            _log.error("text_unreadable", refund=refund_id)
    url = call.services.orchestrator.link(refund_id)
    return presenting.refund(seen, run_url=url, texts=texts, reads_text=call.reads_text)


async def present_view(call: Call, refund_id: str) -> dict[str, Any]:
    """The same over a connection of its own; each statement sees what is committed when it begins, as in a transaction here."""
    async with call.services.database.read() as connection:
        return await refund_view(call, connection, refund_id)


async def first_answer(call: Call, accepted: Accepted) -> Response:
    """Start the run of a request that was just stored and answer 201 with its first quote, or 202 when that is not ready in time.

    A repeated request is answered 200. Whatever happens to Temporal, the request is stored: a sweep starts what was not started here.
    """
    view = await _quoted(call, accepted.refund_id, accepted.row) if accepted.row["status"] == Status.RECEIVED else None
    if view is None:
        view = await present_view(call, accepted.refund_id)
    headers = {"Location": f"/v1/refunds/{accepted.refund_id}"}
    if accepted.replayed:
        return presenting.answer(view, 200, headers | {"Idempotent-Replayed": "true"})
    return presenting.answer(view, 202 if view["status"] == Status.RECEIVED else 201, headers)


async def quoted_in_time(call: Call, accepted: Accepted) -> bool:
    """Start the run of a request that was just stored, and tell whether its first quote came in time."""
    return accepted.row["status"] != Status.RECEIVED or await _quoted(call, accepted.refund_id, accepted.row) is not None


async def _quoted(call: Call, refund_id: str, row: Row) -> dict[str, Any] | None:
    services, wait_s = call.services, call.services.settings.api_quote_wait_s
    until = time.monotonic() + wait_s
    # Expected before the run starts: a notification that nobody waits for yet is gone.
    moved = services.listener.expect(refund_id)
    try:
        if not await services.orchestrator.start(_beginning(refund_id, row), within_s=wait_s):
            return None
        while (left := until - time.monotonic()) > 0:
            try:
                await asyncio.wait_for(moved.wait(), left)
            except TimeoutError:
                return None
            moved.clear()
            view = await present_view(call, refund_id)
            if view["status"] != Status.RECEIVED:
                return view
    finally:
        services.listener.forget(refund_id, moved)
    return None


def _beginning(refund_id: str, row: Row) -> Beginning:
    summary = "A refund asked for in words"
    if row["amount"] is not None and row["currency"] is not None:
        summary = f"Refund of {Money(row['amount'], row['currency'])}"
    elif row["full"]:
        summary = "Refund of all that is left of a payment"
    return Beginning(refund_id, row["status"], summary, row["currency"], row["amount"], row["order_id"], row["payment_id"])
