"""After the storm: faults are lifted, people settle what is parked, and everything that was accepted comes to its end."""

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Any

import psycopg
from temporalio.client import Client

from deploy.local.parts import SANDBOX_KEY
from refunds.clock import rfc3339
from refunds.ids import workflow_id
from tests.chaos.book import Book
from tests.chaos.people import LIFT, People
from tests.chaos.settlers import settle_legs, settle_one
from tests.chaos.stand import Stand
from tests.chaos.truth import Violation

LOOK_EVERY_S = 0.5
UNSETTLED = ("received", "classified", "approved", "held", "submitting", "parked")
"""Statuses in which nothing may stay once all faults are lifted."""
EXPECTED_DISCREPANCIES = frozenset({"external", "amount"})
"""Kinds of difference that the suite makes itself: in the dashboard, and by having the processor make another amount."""
_PAGE = 500
_PARKED = "SELECT id FROM refunds WHERE status = 'parked' AND id = ANY(%s)"
_WITH_LEGS = "SELECT id FROM refunds WHERE legs_at IS NOT NULL AND id = ANY(%s)"
_WITH_PARKED_LEGS = "SELECT DISTINCT refund_id FROM legs WHERE state = 'parked' AND refund_id = ANY(%s)"


async def lift(stand: Stand, people: People) -> None:
    """No fault is left: everything runs, the sandbox disturbs nothing and sends what it held back, nothing is stopped."""
    await stand.calm()
    await people.control("DELETE", "/faults")
    await people.control("POST", "/webhooks/release", {})
    await people.control("PUT", "/keys", {"key": SANDBOX_KEY})
    for scope in ({"state": "running"}, LIFT):
        answer = await people.call("administrator", "PUT", "/v1/controls", scope | {"reason": "the faults are over"})
        if answer.status_code != 200:
            raise RuntimeError(f"resuming was answered {answer.status_code}: {answer.text[:300]}")


async def settle(
    stand: Stand, people: People, book: Book, settled: Counter[str], say: Callable[[str], None], *, within_s: float
) -> Counter[str]:
    """Wait until nothing is under way, settling what is parked; how many are in which status then."""
    until, told = time.monotonic() + within_s, 0.0
    while True:
        standing = await standing_of(stand, book)
        left = {status: count for status, count in standing.items() if status in UNSETTLED or status is None}
        if legs := await _refunds(stand, book, _WITH_LEGS):
            left["with legs under way"] = len(legs)
        if not left or time.monotonic() > until:
            return standing
        if time.monotonic() - told > 5:
            told = time.monotonic()
            say("waiting for " + ", ".join(f"{count} {status}" for status, count in sorted(left.items())))
        for refund in await _refunds(stand, book, _PARKED):
            settled[await settle_one(people, refund)] += 1
        for refund in await _refunds(stand, book, _WITH_PARKED_LEGS):
            settled.update(await settle_legs(people, refund))
        await asyncio.sleep(LOOK_EVERY_S)


async def standing_of(stand: Stand, book: Book) -> Counter[str]:
    """How many accepted refunds are in which status; one that does not exist is counted as ``missing``."""
    found: Counter[str] = Counter()
    for some in batches(list(book.accepted), _PAGE):
        rows = await _rows(stand, "SELECT status, count(*) FROM refunds WHERE id = ANY(%s) GROUP BY status", some)
        known = dict(rows)
        found.update(known)
        if missing := len(some) - sum(known.values()):
            found["missing"] += missing
    return found


async def _refunds(stand: Stand, book: Book, query: str) -> list[str]:
    rows = await _rows(stand, query, list(book.accepted))
    return [refund for (refund,) in rows]


async def _rows(stand: Stand, query: str, *values: Any) -> list[tuple[Any, ...]]:
    try:
        return await asyncio.to_thread(stand.rows, query, *values)
    except psycopg.OperationalError:
        await stand.ready("postgres")
        return await asyncio.to_thread(stand.rows, query, *values)


async def reconcile(people: People, since: datetime, *, within_s: float) -> dict[str, Any]:
    """Have everything since then compared with the processor, as an operator does; the run as it ended. Raises ``TimeoutError``."""
    began = await people.call("olga", "POST", "/v1/reconciliation/runs", {"since": rfc3339(since)})
    until, shown = time.monotonic() + within_s, began.json()
    while shown["finished_at"] is None:
        if time.monotonic() > until:
            raise TimeoutError(
                f"the reconciliation {shown['id']} is in its phase {shown['phase']} after {within_s:.0f} s: {shown['last_error']}"
            )
        await asyncio.sleep(LOOK_EVERY_S)
        shown = (await people.call("olga", "GET", f"/v1/reconciliation/runs/{shown['id']}")).json()
    return shown


async def unexplained(people: People, besides: frozenset[str] = frozenset()) -> list[Violation]:
    """Differences that nothing the suite did explains: refunds past us and refunds that came back altered are to be found, nothing else is. ``besides`` are
    kinds that are to be found as well, if somebody has closed them."""
    found: list[Violation] = []
    cursor: str | None = None
    while True:
        page = (await people.call("olga", "GET", "/v1/reconciliation?limit=100" + (f"&cursor={cursor}" if cursor else ""))).json()
        found += [
            Violation("discrepancy", row["id"], f"{row['kind']}: {row['evidence']}")
            for row in page["discrepancies"]
            if row["kind"] not in EXPECTED_DISCREPANCIES and not (row["kind"] in besides and row["state"] == "closed")
        ]
        cursor = page["next_cursor"]
        if cursor is None:
            return found


async def loose_ends(stand: Stand, book: Book, halts: frozenset[str], *, within_s: float) -> list[Violation]:
    """Runs and messages that do not fit the record: every open refund has one run under way, an ended one has none, and nothing waits to be delivered.

    ``halts`` are the codes for which the processor may have been halted meanwhile.
    """
    until = time.monotonic() + within_s
    client = await Client.connect(stand.url("temporal"))
    while True:
        wrong = await _loose_runs(stand, book, client) + await _undelivered(stand) + await _halted(stand, halts)
        if not wrong or time.monotonic() > until:
            return wrong
        await asyncio.sleep(1)


async def _loose_runs(stand: Stand, book: Book, client: Client) -> list[Violation]:
    rows = await _rows(stand, "SELECT id FROM refunds WHERE final_at IS NULL AND id = ANY(%s)", list(book.accepted))
    still_open = {workflow_id(refund) for (refund,) in rows}
    runs = {run.id async for run in client.list_workflows("WorkflowType = 'RefundWorkflow' AND ExecutionStatus = 'Running'")}
    return [
        *(Violation("run_missing", run, "the refund is open and has no run") for run in sorted(still_open - runs)),
        *(Violation("run_left_open", run, "the refund is final and its run goes on") for run in sorted(runs - still_open)),
    ]


async def _undelivered(stand: Stand) -> list[Violation]:
    overdue = "SELECT kind, refund_id, body::text, tries FROM outbox WHERE done_at IS NULL AND due_at < now() - interval '10 s' LIMIT 20"
    rows = await _rows(stand, overdue)
    return [Violation("undelivered", str(refund), f"{kind} {body} after {tries} tries") for kind, refund, body, tries in rows]


async def _halted(stand: Stand, reasons: frozenset[str]) -> list[Violation]:
    """The processor was halted for nothing but what was done to it, people were told of each halt, and none is in force."""
    told = "SELECT 1 FROM outbox o WHERE o.kind = 'notice' AND o.body ->> 'halt' = h.id"
    rows = await _rows(stand, f"SELECT id, code, reason, lifted_at, EXISTS ({told}) FROM halts h")
    return [
        Violation("halted", halt, f"{code}: {reason}{'' if lifted_at else ', still in force'}{'' if told else ', nobody was told'}")
        for halt, code, reason, lifted_at, told in rows
        if code not in reasons or lifted_at is None or not told
    ]


def batches(items: list[str], size: int) -> Iterator[list[str]]:
    """The items, so many at a time."""
    for first in range(0, len(items), size):
        yield items[first : first + size]
