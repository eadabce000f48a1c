"""A refund of the API in words: which fields are shown, and how."""

from collections.abc import Mapping
from typing import Any

from cli.output import Output, age

Refund = Mapping[str, Any]


def amount_of(values: Mapping[str, Any]) -> str:
    """An amount as people write it (the API writes it, so that every client shows the same), or ``-`` while nobody could tell it."""
    return str(values["amount_text"]) if values.get("amount") and values.get("amount_text") else "-"


def ended(refund: Refund) -> str:
    """How it ended, with the code where there is one: ``denied PAYMENT_DISPUTED``; empty while it has not."""
    if not refund.get("final"):
        return ""
    return f"{refund['status']} {refund.get('code') or ''}".strip()


def waiting(refund: Refund) -> str:
    """What it waits for, or how it ended."""
    return ended(refund) or str(refund.get("next_step") or "")


def show_list(out: Output, refunds: list[Any]) -> None:
    """A table of refunds."""
    rows = [(r["id"], r.get("order_id"), amount_of(r), r["status"], r.get("queue"), waiting(r), age(r.get("created_at"))) for r in refunds]
    out.table(
        ("refund", "order", "amount", "status", "queue", "waits for, or how it ended", "age"), rows, fold="waits for, or how it ended"
    )


def show_terms(out: Output, refund: Refund) -> None:
    """The exact terms that a decision is about: everything that would be sent, and their hash."""
    terms = refund.get("terms")
    if not terms:
        out.fields([("terms", "none yet"), ("because", refund.get("next_step"))])
        return
    out.fields(
        [
            ("refund", refund["id"]),
            ("operation", terms["operation"]),
            ("amount", f"{terms['amount_text']} ({terms['amount']} {terms['currency']} in the processor's unit)"),
            ("order", refund.get("order_id")),
            ("payment", terms["processor_payment"]),
            ("to", str(terms["destination"]).replace("_", " ")),
            ("reason", terms["reason"]),
            ("sent as", terms["processor_reason"]),
            ("account", f"{terms['processor']} {terms['processor_account']} ({terms['mode']})"),
            ("policy", f"version {terms['policy_version']}"),
            ("valid until", terms["expires_at"]),
            ("revision", refund.get("revision")),
            ("terms hash", refund.get("terms_hash")),
        ]
    )


def show(out: Output, refund: Refund) -> None:
    """Everything about one refund that a person needs; ``--json`` has the rest."""
    asked, deadlines = refund.get("request") or {}, refund.get("deadlines") or {}
    out.fields(
        [
            ("refund", refund["id"]),
            ("status", refund["status"]),
            ("since", refund.get("status_since")),
            ("waits for", refund.get("next_step")),
            ("decide by", deadlines.get("review_by")),
            ("consent by", deadlines.get("consent_by")),
            ("code", refund.get("code")),
            ("meaning", refund.get("meaning")),
            ("remedy", refund.get("remedy")),
            ("detail", refund.get("detail")),
            ("amount", amount_of(refund)),
            ("order", refund.get("order_id")),
            ("customer", refund.get("customer_id")),
            ("requested by", asked.get("requested_by")),
            ("through", (asked.get("requester") or {}).get("name")),
            ("tier", refund.get("tier")),
            ("queue", refund.get("queue")),
            ("created", refund.get("created_at")),
            ("for the customer", refund.get("for_customer")),
            ("runbook", refund.get("runbook")),
            ("run", (refund.get("run") or {}).get("url")),
        ]
    )
    for name, text in (refund.get("texts") or {}).items():
        if text:
            out.fields([(f"their {name}", text)])
    if refund.get("terms"):
        out.heading("Exact terms")
        show_terms(out, refund)
    _section(out, "Checks", (refund.get("policy") or {}).get("checks"), ("id", "result", "observed", "limit"), fold="limit")
    decisions = [decision | {"by": _who(decision)} for decision in refund.get("decisions") or ()]
    _section(out, "Decisions", decisions, ("kind", "verdict", "revision", "by", "role", "recorded_at"), fold="by")
    operations = (refund.get("processor") or {}).get("operations") or ()
    tried = [operation | {"attempts": len(operation["attempts"])} for operation in operations]
    _section(out, "At the processor", tried, ("id", "kind", "amount_text", "attempts", "refund_id", "refund_state"), fold="refund_state")


def _who(decision: Mapping[str, Any]) -> str:
    by = decision.get("recorded_by")
    return f"{by['name']} ({by['handle']})" if by else str(decision.get("person") or "")


def _section(out: Output, title: str, rows: Any, columns: tuple[str, ...], *, fold: str) -> None:
    if rows:
        out.heading(title)
        headings = [name.replace("_", " ") for name in columns]
        out.table(headings, [[row.get(name) for name in columns] for row in rows], fold=fold.replace("_", " "))
