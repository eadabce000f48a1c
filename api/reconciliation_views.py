"""Reconciliations and discrepancies as the API shows them: their shapes, and a table for spreadsheets."""

import csv
import io
from collections.abc import Iterable
from datetime import datetime
from typing import Annotated, Any

from pydantic import AwareDatetime, Field

from api.schemas import Shape, Who
from refunds.clock import rfc3339
from refunds.discrepancies import Kind, Standing
from refunds.ids import reconciliation_workflow_id
from store.reconciling import Phase, Run
from store.sql import Row


class RunView(Shape):
    """A reconciliation. ``reached``: how far back in time, or through our record, its phase has come; ``elsewhere``: refunds of payments not ours."""

    id: str
    processor: str
    since: AwareDatetime
    until: AwareDatetime
    started_by: Annotated[str, Field(description="A principal's id, the scheduled run in Temporal, or the system.")]
    started_at: AwareDatetime
    phase: Phase
    reached: AwareDatetime | None
    pages: int
    compared: int
    elsewhere: int
    differences: int
    imported: int
    progressed_at: AwareDatetime
    finished_at: AwareDatetime | None
    last_error: Annotated[str | None, Field(description="Why it does not get on just now; it is tried again.")]
    workflow_id: str


class DiscrepancyView(Shape):
    """A difference between the processor and our record."""

    id: str
    kind: Kind
    meaning: str
    state: Standing
    processor: str
    payment_id: str | None
    refund_id: str | None
    operation_id: str | None
    processor_refund_id: str | None
    evidence: dict[str, Any]
    owner: Who | None
    note: str | None
    first_seen_at: AwareDatetime
    last_seen_at: AwareDatetime
    reconciliation_id: str | None
    closed_at: AwareDatetime | None
    closed_by: Who | None
    runbook: str


class ReconciliationView(Shape):
    """The latest runs, and a page of discrepancies."""

    runs: list[RunView]
    counts: Annotated[dict[Standing, int], Field(description="Discrepancies by state, whatever the filters.")]
    discrepancies: list[DiscrepancyView]
    next_cursor: str | None


class DatabaseDoubted(Shape):
    """Submitting is halted, and the full reconciliation that must be done before it can be resumed has begun."""

    halted: bool
    reconciliation: RunView


def run(found: Run, *, by_person: bool) -> dict[str, Any]:
    """A reconciliation. ``by_person``: it was asked for by somebody, so it has a workflow of its own name."""
    return {
        "id": found.id,
        "processor": found.processor,
        "since": found.since,
        "until": found.until,
        "started_by": found.started_by,
        "started_at": found.started_at,
        "phase": found.phase.value,
        "reached": found.place.reached,
        "pages": found.pages,
        "compared": found.compared,
        "elsewhere": found.place.elsewhere,
        "differences": found.differences,
        "imported": found.imported,
        "progressed_at": found.progressed_at,
        "finished_at": found.finished_at,
        "last_error": found.last_error,
        "workflow_id": reconciliation_workflow_id(found.id) if by_person else found.started_by,
    }


def discrepancy(row: Row) -> dict[str, Any]:
    """A discrepancy with what its kind means and where it says what to do."""
    kind = Kind(row["kind"])
    return {
        "id": row["id"],
        "kind": kind.value,
        "meaning": kind.meaning,
        "state": row["state"],
        "processor": row["processor"],
        "payment_id": row["processor_payment"],
        "refund_id": row["refund_id"],
        "operation_id": row["operation_id"],
        "processor_refund_id": row["processor_refund"],
        "evidence": row["evidence"],
        "owner": _who(row["owner_id"], row["owner_handle"], row["owner_name"]),
        "note": row["note"],
        "first_seen_at": row["first_seen_at"],
        "last_seen_at": row["last_seen_at"],
        "reconciliation_id": row["reconciliation_id"],
        "closed_at": row["closed_at"],
        "closed_by": _who(row["closed_by"], row["closer_handle"], row["closer_name"]),
        "runbook": kind.runbook,
    }


def _who(identifier: str | None, handle: str | None, name: str | None) -> dict[str, Any] | None:
    return None if identifier is None else {"id": identifier, "handle": handle, "name": name}


COLUMNS = (
    "id",
    "kind",
    "state",
    "processor",
    "processor_refund_id",
    "payment_id",
    "refund_id",
    "operation_id",
    "our_amount",
    "our_currency",
    "our_state",
    "their_amount",
    "their_currency",
    "their_state",
    "owner",
    "note",
    "first_seen_at",
    "last_seen_at",
    "reconciliation_id",
    "closed_at",
    "closed_by",
    "runbook",
)


def table(rows: Iterable[Row], *, header: bool = False) -> str:
    """Discrepancies as lines of CSV (RFC 4180)."""
    written = io.StringIO()
    writer = csv.writer(written)
    if header:
        writer.writerow(COLUMNS)
    for row in rows:
        writer.writerow([safe(value) for value in _cells(row)])
    return written.getvalue()


def _cells(row: Row) -> list[Any]:
    shown = discrepancy(row)
    for side, name in (("ours", "our"), ("theirs", "their")):
        said = shown["evidence"].get(side) or {}
        shown |= {f"{name}_{field}": said.get(field) for field in ("amount", "currency", "state")}
    shown |= {name: shown[name] and shown[name]["handle"] for name in ("owner", "closed_by")}
    return [shown[column] for column in COLUMNS]


def safe(value: object) -> str:
    """A cell that no spreadsheet takes for a formula: text that begins like one gets an apostrophe in front (OWASP, "CSV Injection")."""
    if value is None:
        return ""
    if isinstance(value, datetime):
        return rfc3339(value)
    text = str(value)
    risky = not isinstance(value, int) and text.lstrip(" ")[:1] in tuple("=+-@\t\r\n|%＝＋－＠")
    return f"'{text}" if risky else text
