"""Where a refund stands, for the workflow and for people: what it waits for, since when, until when, and which runbook applies."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from refunds.clock import rfc3339
from refunds.errors import Code
from refunds.facts import Review
from refunds.groups import held_up
from refunds.messages import Situation
from refunds.money import Money
from refunds.status import FINAL, Status

RUNBOOKS: dict[Status, str] = {
    Status.RECEIVED: "docs/runbooks/received.md",
    Status.AWAITING_REVIEW: "docs/runbooks/review.md",
    Status.AWAITING_CONSENT: "docs/runbooks/consent.md",
    Status.HELD: "docs/runbooks/held.md",
    Status.SUBMITTING: "docs/runbooks/submitting.md",
    Status.PENDING: "docs/runbooks/pending.md",
    Status.PARKED: "docs/runbooks/parked.md",
}


MANUAL_RUNBOOK = "docs/runbooks/manual.md"
LEGS_RUNBOOK = "docs/runbooks/legs.md"


def runbook_of(row: Mapping[str, Any]) -> str | None:
    """The runbook of where a refund stands, ``None`` where there is nothing to do."""
    if row["code"] == Code.MANUAL_PART:
        return MANUAL_RUNBOOK
    return LEGS_RUNBOOK if row["legs_at"] and Status(row["status"]) in FINAL else RUNBOOKS.get(Status(row["status"]))


def situation(row: dict[str, Any], *, needs: str = "", refused: str = "", refused_detail: str = "") -> Situation:
    """Describe a refund's row to the workflow."""
    status = Status(row["status"])
    return Situation(
        refund=row["id"],
        version=row["version"],
        status=status.value,
        revision=row["revision"],
        needs=needs,
        waits_for=waits_for(row),
        runbook=runbook_of(row) or "",
        tier=str(row["tier"] or ""),
        queue=row["queue"] or "",
        amount=row["amount"] or 0,
        currency=row["currency"] or "",
        order=row["order_id"] or "",
        payment=row["payment_id"] or "",
        terms_hash=row["terms_hash"] or "",
        since=row["status_since"],
        wake_at=row["wake_at"],
        review_by=row["review_by"],
        code=row["code"] or "",
        refused=refused,
        refused_detail=refused_detail,
        legs_at=row["legs_at"],
        ladder=ladder(row),
    )


def ladder(row: Mapping[str, Any]) -> str:
    """What was done about silence in a review and what will be, in words; empty while nothing waits for a reviewer."""
    if row["status"] != Status.AWAITING_REVIEW or not row["review"]:
        return ""
    review, rung = Review.from_plain(row["review"]), row["rung"]
    told = "A reminder was sent." if row["reminded"] else f"A reminder comes at {to_the_second(row['wake_at'])}." if row["wake_at"] else ""
    follows = review.ladder[rung + 1].queue if rung + 1 < len(review.ladder) else None
    then = f"Then it goes to queue {follows}." if follows else "Then it expires; nothing is paid."
    hours = f", within the hours {review.ladder[rung].hours}" if review.ladder[rung].hours else ""
    given = "Given to a person." if row["assigned_to"] else ""
    return " ".join(filter(None, (f"Rung {rung + 1} of {len(review.ladder)}{hours}.", given, told, then)))


def waits_for(row: dict[str, Any]) -> str:
    """What the refund waits for, and its legs, in one sentence for operators and support. Contains nothing personal."""
    return "; ".join(filter(None, (_waits_for(row), row["legs_detail"])))


def _waits_for(row: dict[str, Any]) -> str:
    amount = str(Money(row["amount"], row["currency"])) if row["amount"] and row["currency"] else "the refund"
    until = _until(row["review_by"])
    match Status(row["status"]):
        case Status.RECEIVED | Status.CLASSIFIED:
            return "being read and quoted" if row["detail"] is None else f"to be read and quoted: {row['detail']}"
        case Status.AWAITING_CONSENT:
            return f"the customer's consent to {amount}{until}"
        case Status.AWAITING_REVIEW if row["terms_hash"] is None:
            return f"a person in queue {row['queue']}: {row['detail'] or 'no exact terms yet'}; revise it or deny it{until}"
        case Status.AWAITING_REVIEW:
            return f"a decision on {amount} in queue {row['queue']}{until}{_held_up(row.get('held_up_by'))}"
        case Status.APPROVED if row["code"] == Code.PAYMENT_BUSY:
            return f"its turn to submit {amount}: {row['detail']}"
        case Status.APPROVED:
            return f"{amount} approved, about to be submitted"
        case Status.HELD:
            return f"{amount} held back: {row['detail'] or row['code'] or 'see the ledger'}{_again(row)}"
        case Status.SUBMITTING:
            return f"the processor's answer to {amount}" + (f": {row['detail']}" if row["detail"] else "")
        case Status.PENDING:
            return f"the processor to finish {amount}"
        case Status.PARKED if row["code"] == Code.MANUAL_PART:
            return f"a person to {row['detail']} and say so: nothing was sent, and nothing will be"
        case Status.PARKED:
            return f"a person to settle {amount}: {row['detail'] or row['code']}"
        case _:
            return ""


def _held_up(by: Mapping[str, str] | None) -> str:
    return f" (only a denial yet: {held_up(by['id'], by['status'])})" if by else ""


def _again(row: Mapping[str, Any]) -> str:
    if row["slot_at"] is not None:
        return f"; its turn comes at {to_the_second(row['slot_at'])}"
    return f"; tried again at {to_the_second(row['wake_at'])}" if row["code"] == Code.PROCESSOR_UNREACHABLE and row["wake_at"] else ""


def _until(moment: datetime | None) -> str:
    return f" until {to_the_second(moment)}" if moment else ""


def to_the_second(moment: datetime) -> str:
    """A time as people read it here: RFC 3339 without parts of a second."""
    return rfc3339(moment.replace(microsecond=0)).replace(".000000", "")
