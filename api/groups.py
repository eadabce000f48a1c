"""A group of refunds from outside: its shape for ``/openapi.json``, and how it is written from what is stored."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

from pydantic import AwareDatetime, Field

from api import presenting
from api.schemas import Amounts, BreakdownView, RefundSummary, Shape
from refunds.errors import Code
from refunds.groups import LeftOut
from refunds.money import Money
from refunds.orders import Tender
from refunds.status import FINAL, Status
from store.groups import PART
from store.lines import with_ids
from store.sql import Row


class PartView(Amounts):
    """What one payment gives by the rule, and the refund that returns it."""

    payment_id: str
    tender: Tender | None
    refund_id: str | None


class LeftOutView(Shape):
    """A payment that gives nothing, and why."""

    payment_id: str
    why: LeftOut
    words: str
    remaining: Annotated[int, Field(description="What is still refundable of it all the same, in its currency's unit.")]
    currency: str


class AllocationView(Shape):
    """How the money was divided when the group was made; what became of each part is in `refunds`."""

    parts: list[PartView]
    left_out: list[LeftOutView]


class AskedOfOrder(Amounts):
    """What was asked for."""

    full: bool
    lines: list[dict[str, Any]]
    shipping: bool
    reason: str | None
    requested_by: str | None


class SumsView(Shape):
    """Where the group's money of one currency stands, in its unit. The five sum to `asked`, unless the processor made more of a part than
    was approved; in full, `asked` is what the parts come to."""

    currency: str
    asked: int
    returned: Annotated[int, Field(description="Gone back, or on its way.")]
    released: Annotated[int, Field(description="Of authorisations that were released: never taken.")]
    under_way: int
    by_hand: Annotated[int, Field(description="Waits for a person to give it back.")]
    not_given: Annotated[int, Field(description="Of parts that ended without anything, or hold less than was asked.")]
    in_words: str


class GroupView(Shape):
    """An order-wide refund: one refund a payment, shown and decided together."""

    id: str
    created_at: AwareDatetime
    order_id: str | None
    order_version: int
    customer_id: str | None
    customer_forgotten_at: AwareDatetime | None
    asked: AskedOfOrder
    allocation: AllocationView
    breakdown: BreakdownView | None
    sums: list[SumsView]
    final: bool
    next_step: Annotated[str | None, Field(description="What it waits for, in words.")]
    decide: Annotated[
        dict[str, str | None], Field(description="The parts that wait for a decision, with their `terms_hash`: the `terms` of one.")
    ]
    agree: Annotated[dict[str, str | None], Field(description="The parts that wait for consent, with their `terms_hash`.")]
    refunds: list[RefundSummary]


class GroupPage(Shape):
    """A page of a list."""

    groups: list[GroupView]
    next_cursor: str | None


class GroupDecisionView(Shape):
    """What became of a decision or consent: recorded for every part, or this is an error."""

    verdict: Literal["approve", "deny"]
    refunds: list[str]
    delivered: bool
    replayed: bool
    group: GroupView


class PartWithdrawn(Shape):
    """What a withdrawal came to for one part."""

    refund_id: str
    outcome: Literal["withdrawn", "over", "too_late"]
    status: Status
    code: Code | None


class GroupWithdrawalView(Shape):
    """What a withdrawal came to, part by part."""

    parts: list[PartWithdrawn]
    group: GroupView


def view(group: Row, members: Sequence[Row], payments: Sequence[Row], made: Mapping[str, int]) -> dict[str, Any]:
    """A group as it is shown. ``members`` are the rows of a list of refunds, ``payments`` those of the order, ``made`` what succeeded of each member."""
    members = sorted(members, key=lambda row: row["id"])
    details, named = group["details"], {p["id"]: p for p in payments}
    of_payment = {
        p["payment"]: next((m for m in members if m["details"][PART] == p["payment"]), None) for p in group["allocation"]["parts"]
    }
    breakdown = None if group["breakdown"] is None else presenting.breakdown(with_ids(group["breakdown"], details.get("lines")))
    open_members = [m for m in members if Status(m["status"]) not in FINAL]
    return {
        "id": group["id"],
        "created_at": group["created_at"],
        "order_id": group["order_ref"],
        "order_version": group["order_version"],
        "customer_id": group["customer_ref"],
        "customer_forgotten_at": group["customer_forgotten_at"],
        "asked": {
            **_amount(group["amount"], group["currency"]),
            "full": group["full"],
            "lines": details.get("lines", []),
            "shipping": details.get("shipping", False),
            "reason": details.get("reason"),
            "requested_by": group["requested_by"],
        },
        "allocation": {
            "parts": [_part(part, named[part["payment"]], of_payment[part["payment"]]) for part in group["allocation"]["parts"]],
            "left_out": [_left_out(one, named[one["payment"]]) for one in group["allocation"]["left_out"]],
        },
        "breakdown": breakdown,
        "sums": sums(group, members, made),
        "final": not open_members,
        "next_step": _next_step(open_members),
        "decide": _waiting(members, Status.AWAITING_REVIEW),
        "agree": _waiting(members, Status.AWAITING_CONSENT),
        "refunds": [presenting.summary(row) for row in members],
    }


def _amount(amount: int | None, currency: str | None) -> dict[str, Any]:
    text = str(Money(amount, currency)) if amount is not None and currency is not None else None
    return {"amount": amount, "currency": currency, "amount_text": text}


def _part(part: Mapping[str, Any], payment: Row, member: Row | None) -> dict[str, Any]:
    named = {"payment_id": payment["processor_payment"], "tender": payment["tender"], "refund_id": member["id"] if member else None}
    return named | _amount(part["amount"], part["currency"])


def _left_out(one: Mapping[str, Any], payment: Row) -> dict[str, Any]:
    why = LeftOut(one["why"])
    named = {"payment_id": payment["processor_payment"], "why": why.value, "words": why.words}
    return named | {"remaining": one["remaining"], "currency": one["currency"]}


def _waiting(members: Sequence[Row], status: Status) -> dict[str, str | None]:
    return {row["id"]: row["terms_hash"] for row in members if row["status"] == status}


_SUM_OF: dict[Status, str] = {
    Status.SUCCEEDED: "returned",
    Status.RELEASED: "released",
} | dict.fromkeys(FINAL - {Status.SUCCEEDED, Status.RELEASED}, "not_given")
_WORDS = {
    "returned": "went back",
    "released": "was released",
    "under_way": "is under way",
    "by_hand": "waits for a person to give it back",
    "not_given": "was not given",
}


def sums(group: Row, members: Sequence[Row], made: Mapping[str, int]) -> list[dict[str, Any]]:
    """What became of the money, by currency: each part by its present terms, or by the allocation while it has none; and what went back by what was ``made``,
    where a person settled a part of which the processor had made another amount."""
    allocated = {part["payment"]: part["amount"] for part in group["allocation"]["parts"]}
    found: dict[str, dict[str, int]] = {}
    for row in members:
        of = found.setdefault(row["currency"], dict.fromkeys(_WORDS, 0))
        manual = row["status"] == Status.PARKED and row["code"] == Code.MANUAL_PART
        amount = row["amount"] or allocated.get(row["payment_id"], 0)
        went = made.get(row["id"], amount) if row["status"] == Status.SUCCEEDED else amount
        of["by_hand" if manual else _SUM_OF.get(Status(row["status"]), "under_way")] += went
        of["not_given"] += max(0, amount - went)
    shown: list[dict[str, Any]] = []
    for code, of in sorted(found.items()):
        asked = group["amount"] if group["amount"] is not None else sum(of.values())
        # What a reviewer made less of a part, or a payment held less than the allocation said, is not given either.
        of["not_given"] += max(0, asked - sum(of.values()))
        words = [f"{Money(amount, code)} {_WORDS[name]}" for name, amount in of.items() if amount]
        shown.append({"currency": code, "asked": asked, **of, "in_words": "; ".join(words) or f"nothing of {Money(asked, code)} moved"})
    return shown


def _next_step(waiting: Sequence[Row]) -> str | None:
    if not waiting:
        return None
    return "; ".join(f"{row['id']}: {presenting.summary(row)['next_step'] or row['status']}" for row in waiting)
