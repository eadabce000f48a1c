"""The audit view of a refund as a page: in the order in which an auditor asks."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, cast

from cli.output import Output
from refunds.money import CURRENCIES, Money, format_money

Plain = Mapping[str, Any]


def show(out: Output, view: Plain) -> None:
    """The whole page; ``--json`` has also the facts, the salts and every entry's data."""
    out.fields(
        [
            ("refund", view["refund"]),
            ("status", view["status"]),
            ("order", view["order_id"]),
            ("customer", view["customer_id"] or _gone(view)),
            ("unreadable", None if view["readable"] else "what is sealed cannot be opened with the key of the API"),
            *[(name, at) for name, at in view["times"].items()],
        ]
    )
    _asked(out, view["asked"])
    _reading(out, view["reading"])
    for revision in view["revisions"]:
        _revision(out, revision)
    _decisions(out, view)
    _processor(out, view["processor"])
    out.heading("Ledger")
    entries = [(entry["seq"], entry["refund_version"], entry["at"], entry["type"], _who(entry)) for entry in view["entries"]]
    out.table(("number", "version", "at", "type", "by"), entries)
    if view["commitments"]:
        out.heading("Commitments (SHA-256 over salt and value)")
        rows = [
            (one["seq"], one["name"], one["commitment"], "opened" if one["value"] is not None else "forgotten")
            for one in view["commitments"]
        ]
        out.table(("entry", "of", "commitment", "value"), rows)


def _gone(view: Plain) -> str | None:
    return f"forgotten {view['customer_forgotten_at']}" if view["customer_forgotten_at"] else None


def _asked(out: Output, asked: Plain) -> None:
    out.heading("Asked")
    requester, request, agent = asked["requester"], asked["request"], asked["agent"]
    out.fields(
        [
            ("by", f"{requester['name']} ({requester['kind']} {requester['handle']})"),
            ("requested by", asked["requested_by"]),
            ("channel", asked["channel"]),
            ("part of", asked.get("group")),
            ("amount", "all that is left" if request["full"] else _amount(request)),
            ("reason", request["reason"]),
            ("message", asked["message"]),
        ]
    )
    if agent:
        out.heading("The agent, in its own words")
        out.fields([(name, agent[name]) for name in ("id", "session", "model", "reasoning", "conversation")])
    _sources(out, asked["sources"])


def _amount(shown: Plain) -> str | None:
    if shown.get("amount_text") or shown["amount"] is None:
        return shown.get("amount_text")
    amount, code = shown["amount"], shown["currency"]
    return format_money(Money(amount, code)) if code in CURRENCIES else f"{amount} {code or ''}".strip()


def _sources(out: Output, sources: Plain | None) -> None:
    if sources:
        out.heading("Where fields came from")
        out.fields([(name, str(source).replace("_", " ")) for name, source in sorted(sources.items())])


def _reading(out: Output, reading: Plain | None) -> None:
    if reading is None:
        return
    out.heading("Our classifier (advice; it decides nothing)")
    cost = None if reading["cost_micros"] is None else f"{reading['cost_micros']} millionths of {reading['cost_currency']}"
    out.fields(
        [
            ("model", reading["model"]),
            ("version", reading["version"]),
            ("prompt hash", reading["prompt_hash"]),
            ("read at", reading["recorded_at"]),
            ("answer", "; ".join(f"{name} {value}" for name, value in (reading["answer"] or {}).items() if value not in (None, "", []))),
            ("failure", reading["failure"]),
            ("tokens", f"{reading['input_tokens']} in, {reading['output_tokens']} out"),
            ("cost", cost or "not known: no price is set"),
        ]
    )


def _revision(out: Output, revision: Plain) -> None:
    policy = revision["policy"]
    out.heading(f"Revision {revision['revision']}")
    out.fields(
        [
            ("amount", _amount(revision)),
            ("terms hash", revision["terms_hash"] or "no terms"),
            ("author", revision["author"]["name"]),
            ("at", revision["created_at"]),
            ("valid until", revision["expires_at"]),
            ("policy", f"version {policy['version']}, {policy['hash']}"),
            ("outcome", f"{policy['outcome']}: {policy['explanation']}" if policy["explanation"] else policy["outcome"]),
            *[("changed", change["words"]) for change in revision["changes"]],
        ]
    )
    checks = [(check["id"], check["result"], check["observed"], check["limit"]) for check in policy["checks"]]
    out.table(("check", "result", "observed", "limit"), checks, fold="observed")
    if revision["revision"] > 1:
        _sources(out, revision["sources"])


def _decisions(out: Output, view: Plain) -> None:
    rows = [
        (
            *(one["kind"], one["verdict"], (one["recorded_by"] or {}).get("name") or one["person"], one["role"]),
            *((one["on_behalf_of"] or {}).get("name"), one["revision"], one["recorded_at"]),
        )
        for one in view["decisions"]
    ]
    if rows:
        out.heading("Consents and decisions")
        out.table(("kind", "verdict", "by", "as", "for", "revision", "at"), rows)
    told = [(one["kind"], one["by"]["name"], one["recorded_at"], one["refused"] or "applied") for one in view["instructions"]]
    if told:
        out.heading("Instructions")
        out.table(("kind", "by", "at", "outcome"), told)


def _processor(out: Output, processor: Plain) -> None:
    requests: Sequence[Plain] = [*processor["operations"], *processor["legs"]]
    for one in requests:
        out.heading(f"Sent to {processor['name']}: {one['kind']} {one['id']}")
        out.fields(
            [
                ("amount", _amount(one)),
                ("terms hash", one["terms_hash"]),
                ("approved by", ", ".join(one["approvals"])),
                *_flat("request", one["request"]),
                ("idempotency key", one["idempotency_key"]),
                *[(f"attempt {a['number']}", f"{a['opened_at']}: {a['outcome'] or 'open'} {a['reason'] or ''}") for a in one["attempts"]],
                *_flat("answer", one["answer"] or {}),
                ("outcome", one["outcome"]),
            ]
        )


def _flat(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    """A value as a field, or each of its parts under its own name, to the last."""
    parts = value.items() if isinstance(value, Mapping) else enumerate(value) if isinstance(value, list) else None
    if parts is None:
        yield name, value
        return
    for part, inner in cast("Iterable[tuple[Any, Any]]", parts):
        yield from _flat(f"{name}.{part}", inner)


def _who(entry: Plain) -> str:
    return entry["actor"] + (f" for {entry['on_behalf_of']}" if entry["on_behalf_of"] else "")
