"""A refund of the API in words: which fields are shown, and how."""

from collections.abc import Mapping
from typing import Any

from cli.output import Output, age
from refunds.errors import RefundError
from refunds.money import Money, format_money

Refund = Mapping[str, Any]


def amount_of(values: Mapping[str, Any]) -> str:
    """An amount as people write it, or ``-`` while there is none. One in a currency this version does not know is shown as it is."""
    amount, currency = values.get("amount"), values.get("currency")
    if not isinstance(amount, int) or not isinstance(currency, str):
        return "-"
    try:
        return format_money(Money(amount, currency))
    except RefundError:
        return f"{amount} {currency}"


def ended(refund: Refund) -> str:
    """How it ended, with the code where there is one: ``denied PAYMENT_DISPUTED``; empty while it has not."""
    if not refund.get("final"):
        return ""
    return f"{refund['status']} {refund.get('code') or ''}".strip()


def waiting(refund: Refund) -> str:
    """What it waits for, or how it ended."""
    return ended(refund) or str(refund.get("waits_for") or "")


def show_list(out: Output, refunds: list[Any]) -> None:
    """A table of refunds."""
    rows = [(r["id"], r.get("order_id"), amount_of(r), r["status"], r.get("queue"), waiting(r), age(r.get("created_at"))) for r in refunds]
    out.table(("refund", "order", "amount", "status", "queue", "waits for", "age"), rows, fold="waits for")


def show_terms(out: Output, refund: Refund) -> None:
    """The exact terms that a decision is about: everything that would be sent, and their hash."""
    terms = refund.get("terms")
    if not terms:
        out.fields([("terms", "none yet"), ("because", refund.get("waits_for"))])
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
    """Everything about one refund."""
    out.fields(
        [
            ("refund", refund["id"]),
            ("status", refund["status"]),
            ("ended", ended(refund)),
            ("waits for", refund.get("waits_for")),
            ("next step", refund.get("next_step")),
            ("code", refund.get("code")),
            ("detail", refund.get("detail")),
            ("amount", amount_of(refund)),
            ("order", refund.get("order_id")),
            ("customer", refund.get("customer_id")),
            ("requested by", refund.get("requested_by")),
            ("tier", refund.get("tier")),
            ("queue", refund.get("queue")),
            ("decide by", refund.get("review_by")),
            ("created", refund.get("created_at")),
            ("for the customer", refund.get("customer_message")),
        ]
    )
    if refund.get("terms"):
        out.heading("Exact terms")
        show_terms(out, refund)
    _section(out, "Checks", refund.get("checks"), ("id", "result", "observed", "limit"), fold="limit")
    _section(out, "Decisions", refund.get("decisions"), ("kind", "verdict", "revision", "by", "role", "recorded_at"), fold="by")
    _section(out, "Processor", refund.get("processor_refunds"), ("id", "state", "amount", "currency"), fold="state")


def _section(out: Output, title: str, rows: Any, columns: tuple[str, ...], *, fold: str) -> None:
    if rows:
        out.heading(title)
        out.table([name.replace("_", " ") for name in columns], [[row.get(name) for name in columns] for row in rows], fold=fold)
