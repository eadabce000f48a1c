"""Pulls of the merchant's orders as the API takes and shows them."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, StringConstraints

from api.schemas import Shape
from refunds.errors import CATALOGUE, Code
from refunds.orders import Instant, Strict
from refunds.pulls import PullOutcome, PullPhase
from store.pulling import EVERYTHING, Pull


class NewPull(Strict):
    """What is to be pulled: the payments made since then (all of them unless it is said), and whether anything is to be stored."""

    since: Instant | None = None
    dry_run: Annotated[bool, Field(strict=True)] = False


class ReportQuery(BaseModel):
    """Which payments of a pull are shown; each may be left out."""

    model_config = ConfigDict(extra="forbid")

    outcome: PullOutcome | None = None
    cursor: Annotated[str, StringConstraints(min_length=1, max_length=255, pattern=r"^[^\x00]*$")] | None = None
    limit: Annotated[int, Field(ge=1, le=500)] = 100


class PullCounts(Shape):
    """How many payments have each outcome so far."""

    created: int
    new_version: int
    unchanged: int
    skipped: int
    error: int


class PullView(Shape):
    """A pull and how far it has come. ``reached`` is when the last payment that was read had been made, newest first."""

    id: str
    phase: PullPhase
    since: AwareDatetime | None = Field(description="null: everything there is.")
    until: AwareDatetime
    dry_run: bool
    order_field: str = Field(description="The name in the payments' metadata that an order's id is read from.")
    customer_field: str
    started_at: AwareDatetime
    reached: AwareDatetime | None
    pages: int
    payments: int = Field(description="Read so far.")
    judged: int = Field(description="Of these, those whose outcome is known.")
    counts: PullCounts
    progressed_at: AwareDatetime
    finished_at: AwareDatetime | None
    last_error: str | None = Field(description="Why it does not get on just now.")


class PulledPayment(Shape):
    """What became of one payment. ``version`` is that of its order with this payment on it; in a dry run there is none."""

    payment_id: str
    order_id: str | None
    captured: int
    currency: str | None
    status: str = Field(description="The processor's own word.")
    outcome: PullOutcome
    version: int | None
    code: Code | None
    detail: str | None
    remedy: str | None


class PullReport(Shape):
    """One page of the payments of a pull, by their ids."""

    payments: list[PulledPayment]
    next_cursor: str | None


def pull_view(pull: Pull, counted: Mapping[str, int]) -> dict[str, Any]:
    """A pull as the API shows it."""
    return {
        "id": pull.id,
        "phase": pull.phase,
        "since": None if pull.since == EVERYTHING else pull.since,
        "until": pull.until,
        "dry_run": pull.dry_run,
        "order_field": pull.order_field,
        "customer_field": pull.customer_field,
        "started_at": pull.started_at,
        "reached": pull.reached,
        "pages": pull.pages,
        "payments": pull.payments,
        "judged": pull.judged,
        "counts": dict(counted),
        "progressed_at": pull.progressed_at,
        "finished_at": pull.finished_at,
        "last_error": pull.last_error,
    }


def report_view(rows: Sequence[Mapping[str, Any]], *, more: bool) -> dict[str, Any]:
    """A page of the report as the API shows it."""
    return {"payments": [_payment(row) for row in rows], "next_cursor": rows[-1]["processor_payment"] if more else None}


def _payment(row: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "payment_id": row["processor_payment"],
        "order_id": row["order_ref"],
        "captured": row["captured"],
        "currency": row["currency"],
        "status": row["raw_status"],
        "outcome": row["outcome"],
        "version": row["version"],
        "code": row["code"],
        "detail": row["detail"],
        "remedy": CATALOGUE[Code(row["code"])].remedy if row["code"] else None,
    }
