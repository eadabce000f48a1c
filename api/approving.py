"""How the API shows the review that a refund waits for, evidence, and delegations (the shapes are in ``api/approving_shapes.py``)."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from refunds.approving import roles_needed
from refunds.clock import parse_rfc3339, rfc3339
from refunds.facts import Review
from refunds.policy.model import ReviewRole
from refunds.status import Status
from store.sql import Row


def review(row: Row) -> dict[str, Any] | None:
    """The review that a refund waits for, and what silence will do; ``None`` while it waits for none."""
    if row["status"] != Status.AWAITING_REVIEW or row["review"] is None:
        return None
    wanted, rung = Review.from_plain(row["review"]), row["rung"]
    approved = [d for d in row["decisions"] or () if (d["kind"], d["verdict"], d["terms_hash"]) == ("review", "approve", row["terms_hash"])]
    given = {e["kind"] for e in row["evidence"] or () if not e["by_agent"]}
    follows = wanted.ladder[rung + 1] if rung + 1 < len(wanted.ladder) else None
    return {
        "queue": row["queue"],
        "role": max(roles_needed(wanted, rung, row["queue"]), key=lambda role: ReviewRole(role).rank),
        "people": wanted.people,
        "approved_by": [d["handle"] for d in approved],
        "assigned_to": row["assigned_handle"],
        "specialists": list(wanted.specialists),
        "reasons_required": wanted.reasons_required,
        "evidence_required": list(wanted.evidence),
        "evidence_missing": [kind for kind in wanted.evidence if kind not in given],
        "rung": rung + 1,
        "rungs": len(wanted.ladder),
        "hours": wanted.ladder[rung].hours,
        "reminded": row["reminded"],
        "remind_at": None if row["reminded"] else row["wake_at"],
        "decide_by": row["review_by"],
        "then": "expires" if follows is None else "escalates",
        "then_to": follows.queue if follows else None,
    }


def evidence(stored: Mapping[str, Any]) -> dict[str, Any]:
    """Evidence as it is listed; its words are among the texts."""
    return {
        "id": stored["id"],
        "kind": stored["kind"],
        "digest": stored["digest"],
        "by": {"id": stored["by"], "handle": stored["handle"], "name": stored["name"]},
        "counts": not stored["by_agent"],
        "recorded_at": rfc3339(parse_rfc3339(stored["recorded_at"])),
    }


def on_behalf_of(stored: Mapping[str, Any]) -> dict[str, Any] | None:
    """The person whose delegated right was used in a decision."""
    if stored["on_behalf_of"] is None:
        return None
    return {"id": stored["on_behalf_of"], "handle": stored["of_handle"], "name": stored["of_name"]}


def delegation(row: Row, now: datetime) -> dict[str, Any]:
    """A delegation, and whether it is in force."""
    ended = row["ended_at"] is not None
    state = "ended" if ended else "over" if row["ends_at"] <= now else "in_force" if row["starts_at"] <= now else "to_come"
    shown = {name: row[name] for name in ("id", "role", "queue", "starts_at", "ends_at", "created_at", "ended_at")}
    by = {"id": row["ended_by"], "handle": row["ender_handle"], "name": row["ender_name"]} if ended else None
    return shown | {
        "from": {"id": row["delegator_id"], "handle": row["delegator_handle"], "name": row["delegator_name"]},
        "to": {"id": row["delegate_id"], "handle": row["delegate_handle"], "name": row["delegate_name"]},
        "ended_by": by,
        "state": state,
    }
