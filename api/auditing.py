"""The audit view of a refund: the whole chain behind it, in the order in which an auditor asks for it."""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any

from pydantic import AwareDatetime, Field

from api import presenting
from api.ledger import Hash
from api.schemas import DecisionMade, EvidenceView, InstructionGiven
from api.shapes import Amounts, Requester, Shape
from refunds.classification import Source
from refunds.clock import parse_rfc3339, rfc3339
from refunds.money import CURRENCIES, Money
from store.auditing import Audited
from store.classifying import SEALED
from store.sealing import Opening

Plain = dict[str, Any]


class AgentSaid(Shape):
    """What an agent sent about itself: its own words, which nobody checked. None of it is our classifier's."""

    id: str
    session: str | None
    model: str | None
    reasoning: str | None
    conversation: str | None


class AuditAsked(Shape):
    """Who asked for what, and where each field came from."""

    kind: str
    group: Annotated[str | None, Field(description="The order-wide refund that it is a part of.")]
    requester: Requester
    integration: str
    requested_by: str | None
    channel: str | None
    request: Plain
    message: str | None
    agent: AgentSaid | None
    sources: dict[str, str]


class ReadingView(Shape):
    """What our own classifier made of the text: advice. ``answer`` is null when it gave none, and ``failure`` says why. Cost is null when nobody stated a price."""

    source: str
    classifier: str
    model: str
    version: str
    prompt_hash: str
    provider: str
    region: str | None
    sent: list[str]
    answer: Plain | None
    failure: str | None
    input_tokens: int
    output_tokens: int
    duration_ms: int
    cost_micros: Annotated[
        int | None, Field(description="In millionths of the currency's major unit, by the price that was set when it was read.")
    ]
    cost_currency: str | None
    recorded_at: AwareDatetime


class PolicyApplied(Shape):
    """The version that judged a revision, named by number and hash, and each of its checks."""

    version: int
    hash: str
    return_rules: Plain | None
    outcome: str
    explanation: str
    checks: list[Plain]
    needs: Plain
    signals: list[Any]


class AuditRevision(Amounts):
    """One revision: its exact terms and their hash, what it rested on, and who wrote it."""

    revision: int
    payment: str
    terms: Plain | None
    terms_hash: str | None
    policy: PolicyApplied
    facts: Plain
    sources: Annotated[dict[str, str] | None, Field(description="Null in revisions that are older than the record of it.")]
    changes: list[Plain]
    loosened: bool
    author: Requester
    created_at: AwareDatetime
    expires_at: AwareDatetime | None


class ProcessorRequest(Amounts):
    """A request to the processor, frozen before the first attempt, with the key it was sent under, every attempt, and what was answered."""

    id: str
    kind: str
    revision: int | None
    terms_hash: str | None
    approvals: list[str]
    request: Plain
    idempotency_key: str
    attempts: list[Plain]
    answer: Plain | None
    outcome: str | None
    created_at: AwareDatetime
    settled_at: AwareDatetime | None


class AuditProcessor(Shape):
    """What was sent to the processor, and what it said."""

    name: str | None
    payment_id: str | None
    operations: list[ProcessorRequest]
    legs: list[ProcessorRequest]
    settlement: Plain | None


class Times(Shape):
    """When things happened the first time, and when it ended; null for what has not happened."""

    requested: AwareDatetime
    read: AwareDatetime | None
    quoted: AwareDatetime | None
    consented: AwareDatetime | None
    decided: AwareDatetime | None
    submitted: AwareDatetime | None
    answered: AwareDatetime | None
    settled: AwareDatetime | None
    final: AwareDatetime | None


class AuditEntry(Shape):
    """One entry about the refund, about the order when it was recorded, or about the group when it was asked for. ``seq`` is its number in the chain, once it has one."""

    id: int
    seq: int | None
    at: AwareDatetime
    type: str
    refund_id: str | None
    refund_version: int | None
    actor: str
    on_behalf_of: str | None
    data: Plain
    commitments: dict[str, str] | None


class Opened(Shape):
    """A personal value that an entry commits to. SHA-256 over the salt's bytes and the value's UTF-8 bytes is the commitment; null once it is forgotten."""

    entry: int
    seq: int | None
    name: str
    commitment: Hash
    value: str | None
    salt: Annotated[str | None, Field(description="Hex.")]


class AuditView(Shape):
    """The whole chain behind one refund."""

    refund: str
    status: str
    order_id: str | None
    customer_id: str | None
    customer_forgotten_at: AwareDatetime | None
    asked: AuditAsked
    reading: ReadingView | None
    revisions: list[AuditRevision]
    decisions: list[DecisionMade]
    instructions: list[InstructionGiven]
    evidence: list[EvidenceView]
    processor: AuditProcessor
    times: Times
    entries: list[AuditEntry]
    commitments: list[Opened]
    readable: Annotated[bool, Field(description="False when what is sealed cannot be opened with the key of this process.")]


def view(audited: Audited) -> Plain:
    """Everything, as it is shown."""
    row, openings = audited.seen.row, audited.openings or {}
    seen = presenting.refund(audited.seen, run_url="", texts=None, reads_text=False)
    texts = {kind: one.value for kind, one in openings.items()}
    return {
        **{name: seen[name] for name in ("status", "order_id", "customer_id", "customer_forgotten_at")},
        "refund": row["id"],
        "asked": _asked(row, seen, texts, audited.revisions),
        "reading": _reading(audited.classification, texts.get(SEALED)),
        "revisions": [_revision(one) for one in audited.revisions],
        **{name: seen[name] for name in ("decisions", "instructions", "evidence")},
        "processor": {
            "name": row["processor"],
            "payment_id": row["processor_payment"],
            "operations": [_request(one) for one in audited.operations],
            "legs": [
                _request({"revision": None, "terms_hash": None, "approvals": [], "outcome": one["state"], **one}) for one in audited.legs
            ],
            "settlement": presenting.settlement(row["settlement"]),
        },
        "times": _times(row, audited),
        "entries": [{name: entry[name] for name in AuditEntry.model_fields} for entry in audited.entries],
        "commitments": list(_opened(audited.entries, openings)),
        "readable": audited.openings is not None,
    }


def _asked(row: Mapping[str, Any], seen: Plain, texts: Mapping[str, str], revisions: Sequence[Plain]) -> Plain:
    details = row["details_whole"]
    agent = None
    if row["agent_id"] is not None or details.get("agent_model") or texts.get("agent_reasoning"):
        agent = {
            "id": row["agent_id"] or row["requester_id"],
            "session": details.get("agent_session_id"),
            "model": details.get("agent_model"),
            "reasoning": texts.get("agent_reasoning"),
            "conversation": texts.get("conversation"),
        }
    first = (revisions[0]["sources"] if revisions else None) or row["sources"]
    request = {name: value for name, value in seen["request"].items() if name not in ("requester", "requested_by", "channel", "kind")}
    return {
        "kind": details["kind"],
        "group": row["group_id"],
        "requester": seen["request"]["requester"],
        "integration": row["integration"],
        "requested_by": row["requested_by"],
        "channel": row["channel"],
        "request": request,
        "message": texts.get("message"),
        "agent": agent,
        "sources": first,
    }


def _reading(stored: Plain | None, sealed: str | None) -> Plain | None:
    if stored is None:
        return None
    body = stored["body"]
    kept = ("classifier", "model", "version", "prompt_hash", "failure")
    later: Plain = {"provider": "", "region": None, "sent": [], "input_tokens": 0, "output_tokens": 0, "duration_ms": 0}
    later |= {"cost_micros": None, "cost_currency": None}  # what readings that are older do not have
    answer = json.loads(sealed) if sealed else body["reading"]
    return {
        "source": body.get("source", Source.MODEL.value),
        **{name: body[name] for name in kept},
        **{name: body.get(name, default) for name, default in later.items()},
        "answer": answer,
        "recorded_at": _moment(stored["recorded_at"]),
    }


def _revision(stored: Plain) -> Plain:
    decision = stored["decision"]
    return {
        **_amount(stored["amount"], stored["currency"]),
        **{name: stored[name] for name in ("revision", "payment", "terms", "terms_hash", "facts", "sources", "loosened", "author")},
        "policy": {
            "version": stored["policy_version"],
            "hash": stored["policy_hash"],
            "return_rules": (decision.get("versions") or {}).get("return_rules"),
            **{name: decision[name] for name in ("outcome", "explanation", "checks", "signals")},
            "needs": {"consent": decision["consent"], "review": decision["review"]},
        },
        "changes": stored["changes"] or [],
        "created_at": _moment(stored["created_at"]),
        "expires_at": _moment(stored["expires_at"]),
    }


def _request(stored: Plain) -> Plain:
    answer = stored["answer"]
    if isinstance(answer, str):
        answer = {"reversal_id": answer}
    return {
        **_amount(stored["amount"], stored["currency"]),
        **{name: stored[name] for name in ("id", "kind", "revision", "terms_hash", "request", "idempotency_key", "outcome")},
        "approvals": stored["approvals"] or [],
        "attempts": [_with_times(attempt) for attempt in stored["attempts"] or ()],
        "answer": _with_times(answer) if answer else None,
        "created_at": _moment(stored["created_at"]),
        "settled_at": _moment(stored.get("settled_at")),
    }


def _times(row: Mapping[str, Any], audited: Audited) -> Plain:
    """The first time of each. ``settled`` is when the processor's answer was final, or a person said how it ended."""
    decisions = row["decisions"] or ()
    attempts = [attempt for one in audited.operations for attempt in one["attempts"] or ()]
    return {
        "requested": row["created_at"],
        "read": audited.classification and _moment(audited.classification["recorded_at"]),
        "quoted": _first(one["created_at"] for one in audited.revisions),
        "consented": _first(d["recorded_at"] for d in decisions if (d["kind"], d["verdict"]) == ("consent", "approve")),
        "decided": _first(d["recorded_at"] for d in decisions if d["kind"] in ("review", "policy")),
        "submitted": _first(attempt["opened_at"] for attempt in attempts),
        "answered": _first(attempt["answered_at"] for attempt in attempts),
        "settled": _first(one["settled_at"] for one in audited.operations),
        "final": row["final_at"],
    }


def _opened(entries: Sequence[Plain], openings: Mapping[str, Opening]) -> Iterator[Plain]:
    for entry in entries:
        for name, commitment in sorted((entry["commitments"] or {}).items()):
            opening = openings.get(name)
            fits = opening is not None and opening.commitment == commitment
            shown = {"value": opening.value, "salt": opening.salt.hex()} if fits and opening else {"value": None, "salt": None}
            yield {"entry": entry["id"], "seq": entry["seq"], "name": name, "commitment": commitment, **shown}


_MOMENTS = frozenset({"opened_at", "send_by", "answered_at", "created_at", "first_seen_at", "updated_at"})


def _with_times(stored: Plain) -> Plain:
    return {name: _moment(value) if name in _MOMENTS else value for name, value in stored.items()}


def _amount(amount: int | None, currency: str | None) -> Plain:
    in_words = str(Money(amount, currency)) if amount is not None and currency in CURRENCIES else None
    return {"amount": amount, "currency": currency, "amount_text": in_words}


def _first(moments: Any) -> str | None:
    return min((_moment(one) or "" for one in moments if one is not None), default=None)


def _moment(stored: str | None) -> str | None:
    return None if stored is None else rfc3339(parse_rfc3339(stored))
