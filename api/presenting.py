"""A refund as the API shows it: everything the contract names, from one stored row, in words people and programs can act on."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import datetime
from typing import Any

from fastapi import Response

from api import approving, governing
from api.limit_shapes import limit_view, refused
from refunds.apart import DETAILS
from refunds.clock import parse_rfc3339, rfc3339
from refunds.errors import CATALOGUE, Code
from refunds.ids import workflow_id
from refunds.limits import Stage
from refunds.marketplace import PlannedLeg
from refunds.money import CURRENCIES, Money
from refunds.processor import MANUAL
from refunds.status import FINAL, Status
from store.classifying import SEALED
from store.lines import breakdown_of
from store.situations import runbook_of, to_the_second, waits_for
from store.sql import Row
from store.views import Seen

_FOR_CUSTOMER: dict[Status, str] = {
    Status.RECEIVED: "We have your request and are looking at it.",
    Status.CLASSIFIED: "We have your request and are looking at it.",
    Status.AWAITING_CONSENT: "Please tell us whether you agree to a refund of {money}.",
    Status.AWAITING_REVIEW: "A colleague is looking at your request for {money}.",
    Status.APPROVED: "Your refund of {money} is approved and will be sent shortly.",
    Status.HELD: "Your refund of {money} is approved and will be sent as soon as it can be.",
    Status.SUBMITTING: "Your refund of {money} is being sent.",
    Status.PENDING: "Your refund of {money} was sent; your bank has not finished it yet.",
    Status.PARKED: "Your refund of {money} needs a closer look by a colleague.",
    Status.SUCCEEDED: "Your refund of {money} is on its way; banks usually show it within 5 to 10 days.",
    Status.FAILED: "Your refund of {money} could not be made.",
    Status.RELEASED: "The hold of {money} on your card was released; nothing was charged.",
    Status.DENIED: "We cannot refund this request.",
    Status.EXPIRED: "Your request for {money} ran out before it was decided; please ask again.",
    Status.WITHDRAWN: "Your request for {money} was withdrawn.",
    Status.ANSWERED: "We have answered your question; no refund was asked for.",
    Status.DRAFTED: "Your request for {money} was prepared; nothing was sent.",
}

_BY_HAND: dict[Status, str] = {
    Status.APPROVED: "Your refund of {money} is approved; a colleague will give it back the way it was paid.",
    Status.HELD: "Your refund of {money} is approved; a colleague will give it back the way it was paid.",
    Status.PARKED: "A colleague is giving {money} back to you the way it was paid.",
    Status.SUCCEEDED: "Your refund of {money} was given back the way it was paid.",
}
"""What is said of a manual part, which no bank will show."""


def answer(body: Mapping[str, Any], status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """A JSON answer; instants are written as RFC 3339 in UTC."""
    content = json.dumps(body, ensure_ascii=False, separators=(",", ":"), default=_plain)
    return Response(content.encode("utf-8", "replace"), status, headers, "application/json")


def _plain(value: object) -> str:
    if isinstance(value, datetime):
        return rfc3339(value)
    raise TypeError(f"{type(value).__name__} cannot be shown")


def _moment(stored: str | None) -> str | None:
    """An instant inside a JSON value of PostgreSQL, in our form."""
    return None if stored is None else rfc3339(parse_rfc3339(stored))


def _amount(amount: int | None, currency: str | None) -> dict[str, Any]:
    in_words = str(Money(amount, currency)) if amount is not None and currency is not None else None
    return {"amount": amount, "currency": currency, "amount_text": in_words}


def for_customer(row: Row) -> str:
    """The one sentence that may be said to the customer."""
    known = row["amount"] and row["currency"]
    by_hand = _BY_HAND.get(Status(row["status"])) if row["processor"] == MANUAL else None
    return (by_hand or _FOR_CUSTOMER[Status(row["status"])]).format(
        money=Money(row["amount"], row["currency"]) if known else "your payment"
    )


def code_in_words(code: str | None) -> dict[str, Any]:
    """A stored code with what it means and what can be done, from the catalogue."""
    meaning = CATALOGUE.get(Code(code)) if code else None
    return {"code": code, "meaning": meaning.meaning if meaning else None, "remedy": meaning.remedy if meaning else None}


def summary(row: Row) -> dict[str, Any]:
    """A refund in a list."""
    return {
        "id": row["id"],
        "status": row["status"],
        "status_since": row["status_since"],
        "created_at": row["created_at"],
        "final": Status(row["status"]) in FINAL and row["legs_at"] is None,
        **_amount(row["amount"], row["currency"]),
        "order_id": row["order_ref"],
        "customer_id": row["customer_ref"],
        "customer_forgotten_at": row["customer_forgotten_at"],
        "payment_id": row["processor_payment"],
        "agent_id": row["agent_id"],
        "group_id": row["group_id"],
        "tender": row["tender"],
        "revision": row["revision"],
        "terms_hash": row["terms_hash"],
        "tier": row["tier"],
        "queue": row["queue"],
        "assigned_to": row["assigned_handle"],
        "answer_by": row["review_by"],
        **code_in_words(row["code"]),
        "detail": row["detail"],
        "next_step": waits_for(dict(row)) or None,
    }


def refund(seen: Seen, *, run_url: str, texts: Mapping[str, str] | None, reads_text: bool) -> dict[str, Any]:
    """Everything about a refund. ``texts`` are what people wrote, for those who may read it; ``None`` when they cannot be read."""
    row = seen.row
    shown = summary(row) | {
        "version": row["version"],
        "final_at": row["final_at"],
        "request": _request(row),
        "terms": row["terms"],
        "breakdown": breakdown(breakdown_of(row["facts"], row["details"])) if row["facts"] else None,
        "sources": row["sources"],
        "policy": _policy(row),
        "decisions": [_decision(d) for d in row["decisions"] or ()],
        "review": approving.review(row),
        "evidence": [approving.evidence(e) for e in row["evidence"] or ()],
        "instructions": [_instruction(i) for i in row["instructions"] or ()],
        "revisions": [_revision(r) for r in row["revisions"] or ()],
        "deadlines": _deadlines(row),
        "held_by": row["held_by"],
        "runbook": runbook_of(row),
        "for_customer": governing.said(for_customer(row), Status(row["status"]), row["tier"], row["policy_decision"]),
        "processor": {
            "name": row["processor"],
            "payment_id": row["processor_payment"],
            "operations": [_operation(o) for o in row["operations"] or ()],
            "settlement": settlement(row["settlement"]),
            "legs": [_leg(leg) for leg in row["legs"] or ()],
        },
        "context": _context(seen),
        "limit": _limit(seen),
        "reading": _reading(row["classification"], texts.get(SEALED) if texts else None),
        "possible_duplicate_of": row["possible_duplicate_of"],
        "possible_duplicate": _looks_like(row["looks_like"]),
        "run": {"workflow_id": workflow_id(row["id"]), "url": run_url},
    }
    shown["next_step"] = "; ".join(filter(None, (shown["next_step"], *map(_stopped, row["held_by"])))) or None
    if reads_text:
        shown["texts"] = None if texts is None else {kind: words for kind, words in texts.items() if kind not in (SEALED, DETAILS)}
    return shown


def _looks_like(other: Row | None) -> dict[str, Any] | None:
    """The refund that this one may repeat, so that a person sees both; ``None`` also for who may not see that one."""
    if other is None:
        return None
    return {**other, **_amount(other["amount"], other["currency"]), "created_at": _moment(other["created_at"])}


def _stopped(stop: Mapping[str, Any]) -> str:
    """Which stop keeps it back, in words that are for people alone: they quote who stopped it."""
    since = to_the_second(stop["since"]) if stop["since"] else "an unknown time"
    who = f"{stop['name']} ({stop['by']})" if stop["by"] else "the orchestrator"
    return f"{stop['scope']} stopped by {who} since {since}: {stop['reason']}"


def _request(row: Row) -> dict[str, Any]:
    """What was asked for, in the caller's own ids. The figures stay as asked although a revision changed the refund's own."""
    asked_in_words = row["details"]["kind"] == "ticket"
    asked: Row = row["first_facts"] or row
    given: Row = dict.fromkeys(("amount", "currency", "full", "reason")) if asked_in_words else asked
    return {
        "kind": row["details"]["kind"],
        "order_id": row["order_ref"],
        "customer_id": row["customer_ref"],
        "payment_id": row["processor_payment"],
        "amount": None if given["full"] or given.get("by_lines") else given["amount"],
        "currency": given["currency"],
        "full": given["full"],
        "reason": given["reason"],
        "channel": row["channel"],
        "requested_by": row["requested_by"],
        "requester": {"id": row["requester_id"], "handle": row["requester_handle"], "name": row["requester_name"]}
        | {"kind": row["requester_kind"]},
        "agent_id": row["agent_id"],
        "lines": row["details"].get("lines", []),
        "shipping": row["details"].get("shipping", False),
        "metadata": row["details_whole"].get("metadata", {}),
        "customer_authentication": row["details_whole"].get("customer_authentication"),
        "has_message": row["has_text"],
    }


def breakdown(parts: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """What the named lines and shipping come to, part by part; ``None`` when none are named."""
    if parts is None:
        return None
    lines = [line | {"amount_text": str(Money(line["amount"], parts["currency"]))} for line in parts["lines"]]
    return {**parts, **_amount(parts["amount"], parts["currency"]), "lines": lines}


def leg_quoted(leg: PlannedLeg) -> dict[str, Any]:
    """A leg that would be sent beside the refund."""
    return {"kind": leg.kind.value, "target": leg.target, "account": leg.account, **_amount(leg.amount, leg.currency)}


def _policy(row: Row) -> dict[str, Any] | None:
    decision = row["policy_decision"]
    if decision is None:
        return None
    return {
        "version": row["policy_version"],
        "hash": row["policy_hash"],
        "return_rules": (decision.get("versions") or {}).get("return_rules"),
        "outcome": decision["outcome"],
        "explanation": decision["explanation"],
        "text": decision["policy_text"],
        "signals": decision["signals"],
        "checks": decision["checks"],
        "needs": {
            "consent": decision["consent"],
            "review": governing.review_needed(decision["review"]),
        },
        **governing.recorded(decision),
    }


def _decision(stored: Mapping[str, Any]) -> dict[str, Any]:
    who = {"id": stored["principal_id"], "handle": stored["handle"], "name": stored["name"]} if stored["principal_id"] else None
    return {
        "id": stored["id"],
        "kind": stored["kind"],
        "step": stored["step"],
        "revision": stored["revision"],
        "verdict": stored["verdict"],
        "terms_hash": stored["terms_hash"] or None,
        "person": stored["person"],
        "recorded_by": who,
        "on_behalf_of": approving.on_behalf_of(stored),
        "delegation": stored["delegation"],
        "role": stored["role"],
        "recorded_at": _moment(stored["recorded_at"]),
        "delivered_at": _moment(stored["delivered_at"]),
    }


def _instruction(stored: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "id": stored["id"],
        "kind": stored["kind"],
        "body": stored["body"],
        "by": {"id": stored["principal_id"], "handle": stored["handle"], "name": stored["name"]},
        "recorded_at": _moment(stored["recorded_at"]),
        "applied_at": _moment(stored["applied_at"]),
        "refused": stored["outcome"],
        "detail": stored["detail"],
    }


def _revision(stored: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "revision": stored["revision"],
        **_amount(stored["amount"], stored["currency"]),
        "terms_hash": stored["terms_hash"],
        "author": stored["author"],
        "changes": stored["changes"] or [],
        "created_at": _moment(stored["created_at"]),
    }


def _attempts(stored: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [
        {
            "number": a["number"],
            "opened_at": _moment(a["opened_at"]),
            "send_by": _moment(a["send_by"]),
            "answered_at": _moment(a["answered_at"]),
            "outcome": a["outcome"],
            "reason": a["reason"],
        }
        for a in stored["attempts"]
    ]


def _leg(stored: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "id": stored["id"],
        "kind": stored["kind"],
        "operation": stored["operation"],
        "target": stored["target"],
        "account": stored["account"],
        **_amount(stored["amount"], stored["currency"]),
        "state": stored["state"],
        "state_since": _moment(stored["state_since"]),
        "due_at": _moment(stored["due_at"]),
        **code_in_words(stored["code"]),
        "detail": stored["detail"],
        "reversal_id": stored["receipt_id"],
        "attempts": _attempts(stored),
    }


def _operation(stored: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "id": stored["id"],
        "kind": stored["kind"],
        "revision": stored["revision"],
        **_amount(stored["amount"], stored["currency"]),
        "created_at": _moment(stored["created_at"]),
        "settled_at": _moment(stored["settled_at"]),
        "outcome": stored["outcome"],
        "refund_id": stored["processor_refund_id"],
        "refund_state": stored["processor_refund_state"],
        "attempts": _attempts(stored),
    }


def settlement(stored: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """What a refund took from the balance, beside what the customer receives; ``None`` while nobody has read it."""
    if stored is None:
        return None
    presentment, settled, rate = stored["presentment_currency"], stored["settlement_currency"], stored["rate"]
    return {
        "refund_id": stored["processor_refund_id"],
        "presentment": _any_amount(stored["presentment_amount"], presentment),
        "settled": _any_amount(stored["settlement_amount"], settled),
        "rate": rate,
        "rate_text": None if rate is None else f"1 {presentment} = {rate} {settled}",
        "fee": _any_amount(stored["fee"], settled),
        "returned": _any_amount(stored["returned"], settled),
        "read_at": _moment(stored["read_at"]),
    }


def _any_amount(amount: int, currency: str) -> dict[str, Any]:
    """An amount as the processor settles it; in a currency whose decimals nobody here knows it is not put into words."""
    return _amount(amount, currency) if currency in CURRENCIES else {"amount": amount, "currency": currency, "amount_text": None}


def _deadlines(row: Row) -> dict[str, Any]:
    waiting_for_consent = row["status"] == Status.AWAITING_CONSENT
    return {
        "consent_by": row["review_by"] if waiting_for_consent else None,
        "review_by": None if waiting_for_consent else row["review_by"],
        "next_due_at": row["wake_at"],
        "terms_expire_at": row["terms_expire_at"],
    }


def _limits(seen: Seen) -> list[dict[str, Any]]:
    """How the limits over time stand, or stood when it was quoted."""
    if seen.limits is not None:
        return [limit_view(standing, stage) for stage, standing in seen.limits]
    return [limit_view(standing) for standing in (seen.row["policy_decision"] or {}).get("limits", ())]


def _limit(seen: Seen) -> dict[str, Any] | None:
    """The limit that says no: when it was denied as it stood then, while it is held as it stands."""
    row = seen.row
    if row["code"] != Code.LIMIT_EXCEEDED:
        return None
    if row["status"] == Status.HELD:
        standings = seen.limits or ()
        sent = [limit_view(standing, stage) for stage, standing in standings if stage is Stage.SENT]
        # What nobody can count does not go either, whenever the limit is taken.
        return refused(sent) or refused([limit_view(standing, stage) for stage, standing in standings if standing.own is None])
    return refused([limit_view(standing) for standing in (row["policy_decision"] or {}).get("limits", ())])


def _context(seen: Seen) -> dict[str, Any]:
    row, figures, snapshot = seen.row, seen.figures, seen.row["snapshot"]
    currency = snapshot["currency"] if snapshot else None
    refundable = None
    if figures is not None and snapshot is not None:
        remaining = Money(figures.remaining, snapshot["currency"])
        refundable = asdict(figures) | {"currency": currency, "remaining_text": str(remaining), "read_at": snapshot["read_at"]}
    earlier: Sequence[Mapping[str, Any]] = row["earlier"] or ()
    return {
        "refundable_besides_this": refundable,
        "earlier_refunds": [
            {"id": e["id"], "status": e["status"], **_amount(e["amount"], e["currency"]), "created_at": _moment(e["created_at"])}
            for e in earlier
        ],
        "customer": row["facts"]["customer"] if row["facts"] else None,
        "limits": _limits(seen),
        **{name: snapshot.get(name) if snapshot else None for name in ("transfer", "application_fee")},
    }


def _reading(classification: Mapping[str, Any] | None, sealed: str | None) -> dict[str, Any] | None:
    """What the reader of free text made of it. Its own words may repeat the customer's: they are sealed, and only for those who may read these."""
    if classification is None:
        return None
    shown: dict[str, Any] = {name: classification[name] for name in ("source", "classifier", "model", "version", "prompt_hash", "failure")}
    if classification["reading"] is not None:
        kept = ("intent", "reason", "amount", "currency", "proposal", "confidence", "manipulation")
        shown |= {name: classification["reading"][name] for name in kept}
    return shown if sealed is None else shown | json.loads(sealed)
