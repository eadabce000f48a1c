"""A refund of the API in words: which fields are shown, and how."""

from collections.abc import Mapping
from typing import Any

from cli.output import Output, age

Refund = Mapping[str, Any]

_NOTE = "note:"
"""What the name of a text begins with that somebody left with a decision or instruction; its id follows."""

_EVIDENCE = "evidence:"
"""The same of evidence; it is shown with what it belongs to."""


def amount_of(values: Mapping[str, Any]) -> str:
    """An amount as people write it (the API writes it, so that every client shows the same), or ``-`` while nobody could tell it."""
    return str(values["amount_text"]) if values.get("amount") and values.get("amount_text") else "-"


def customer_gone(of: Mapping[str, Any]) -> str | None:
    """What is shown in a forgotten customer's place; ``None`` for one who is not."""
    return f"forgotten {of['customer_forgotten_at']}" if of.get("customer_forgotten_at") else None


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
            *[("and", _leg_words(leg)) for leg in terms.get("legs") or ()],
            *[("but not", words) for words in _left_out(terms, refund.get("context") or {})],
            ("reason", terms["reason"]),
            ("sent as", terms["processor_reason"]),
            ("account", f"{terms['processor']} {terms['processor_account']} ({terms['mode']})"),
            ("policy", _versions(terms, refund.get("policy") or {})),
            ("valid until", terms["expires_at"]),
            ("revision", refund.get("revision")),
            ("terms hash", refund.get("terms_hash")),
        ]
    )


def _versions(terms: dict[str, Any], policy: dict[str, Any]) -> str:
    """Which version judged it, and whose return rules the order kept where those are another's."""
    version, kept = terms["policy_version"], policy.get("return_rules") or {}
    another = kept.get("version", version) != version
    return f"version {version}" + (f", with the return rules of version {kept['version']} the order was placed under" if another else "")


def _leg_words(leg: Mapping[str, Any]) -> str:
    """A leg of the terms: what comes back from which connected account, or goes back to it."""
    if leg["kind"] == "refund_fee":
        return f"{leg['amount_text']} of the fee {leg['target']} back to {leg['account']}"
    return f"{leg['amount_text']} of {leg['target']} back from {leg['account']}"


def _left_out(terms: Mapping[str, Any], context: Mapping[str, Any]) -> list[str]:
    """What of a marketplace the payment itself names and these terms return nothing of."""
    kinds = {leg["kind"] for leg in terms.get("legs") or ()}
    words = {
        "transfer": ("reverse_transfer", "any of {} back from the connected account"),
        "application_fee": ("refund_fee", "any of the fee {} back to it"),
    }
    return [text.format(context[name]) for name, (kind, text) in words.items() if context.get(name) and kind not in kinds]


def show_leg(out: Output, leg: Mapping[str, Any]) -> None:
    """One leg, for the person who settles it."""
    out.fields(
        [
            ("leg", leg["id"]),
            ("what", _leg_words(leg)),
            ("state", leg["state"]),
            ("code", leg.get("code")),
            ("meaning", leg.get("meaning")),
            ("remedy", leg.get("remedy")),
            ("detail", leg.get("detail")),
            ("made as", leg.get("reversal_id")),
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
            ("mode", "test: no money moves" if (refund.get("terms") or {}).get("mode") == "test" else None),
            ("order", refund.get("order_id")),
            ("group", refund.get("group_id")),
            ("customer", refund.get("customer_id") or customer_gone(refund)),
            ("requested by", asked.get("requested_by")),
            ("through", (asked.get("requester") or {}).get("name")),
            ("tier", refund.get("tier")),
            ("queue", refund.get("queue")),
            ("given to", refund.get("assigned_to")),
            ("created", refund.get("created_at")),
            ("for the customer", refund.get("for_customer")),
            ("runbook", refund.get("runbook")),
            ("run", (refund.get("run") or {}).get("url")),
        ]
    )
    texts = {name: text for name, text in (refund.get("texts") or {}).items() if text}
    out.fields([(f"their {name.replace('_', ' ')}", text) for name, text in texts.items() if not name.startswith((_NOTE, _EVIDENCE))])
    _section(out, "Looks like another request again", _both(refund), _ALIKE, fold="requested_by")
    if refund.get("terms"):
        out.heading("Exact terms")
        show_terms(out, refund)
    show_changes(out, refund)
    show_review(out, refund)
    _section(out, "Lines", _lines(refund.get("breakdown")), ("line", "units", "amount", "of_it_tax", "discount"), fold="line")
    checks = [check | {"seen": _seen(check)} for check in (refund.get("policy") or {}).get("checks") or ()]
    _section(out, "Checks", checks, ("id", "result", "seen"), fold="seen")
    _section(out, "Limits over time", _limits(refund), ("limit", "used", "left", "opens_at", "rule"), fold="rule")
    _show_recorded(out, refund.get("policy") or {})
    _show_said(out, refund, {name.removeprefix(_NOTE): text for name, text in texts.items() if name.startswith(_NOTE)})
    _show_processor(out, refund)


_ALIKE = ("refund", "status", "amount_text", "payment_id", "channel", "agent_id", "requested_by", "requester", "created_at")


def _both(refund: Refund) -> list[Mapping[str, Any]]:
    """The refund beside the one that it may repeat, column by column."""
    other = refund.get("possible_duplicate")
    if other is None:
        return []
    asked = refund.get("request") or {}
    this = {name: refund.get(name) or asked.get(name) for name in _ALIKE} | {"requester": (asked.get("requester") or {}).get("handle")}
    return [this | {"refund": refund["id"]}, other | {"refund": other["id"]}]


def _limits(refund: Refund) -> list[Mapping[str, Any]]:
    """What is used and left of each limit over time, the one that says no marked."""
    no = (refund.get("limit") or {}).get("name")
    shown = (refund.get("context") or {}).get("limits") or ()
    return [
        one
        | {"limit": f"{one['name']} ({one['stage']})" + (" says no" if one["name"] == no and one["exceeded"] else "")}
        | {"used": one["used_text"], "left": one["left_text"], "opens_at": one["opens_at"] or "-"}
        for one in shown
    ]


def show_changes(out: Output, refund: Refund) -> None:
    """What is not as it was in the terms before these, for whoever decides again."""
    revision = next((one for one in refund.get("revisions") or () if one["revision"] == refund.get("revision")), {})
    rows = [{"what": one["field"].replace("_", " "), "changed": one["words"]} for one in revision.get("changes") or ()]
    _section(out, "Since the terms before", rows, ("what", "changed"), fold="changed")


def show_review(out: Output, refund: Refund) -> None:
    """The review that is waited for: who may decide, what is missing, and what silence will do; and the evidence there is."""
    review = refund.get("review")
    if review:
        out.heading("Review")
        out.fields(
            [
                ("queue", review["queue"]),
                ("given to", review["assigned_to"]),
                ("role", review["role"]),
                ("people", f"{review['people']}, approved by {', '.join(review['approved_by']) or 'nobody yet'}"),
                ("specialists", ", ".join(review["specialists"]) or None),
                ("reasons", "everybody who decides says why" if review["reasons_required"] else None),
                ("evidence missing", ", ".join(review["evidence_missing"]) or None),
                ("rung", f"{review['rung']} of {review['rungs']}" + (f", hours {review['hours']}" if review["hours"] else "")),
                ("reminder", "sent" if review["reminded"] else review["remind_at"]),
                ("decide by", review["decide_by"]),
                ("then", f"to queue {review['then_to']}" if review["then_to"] else "it expires, and nothing is paid"),
            ]
        )
    texts = refund.get("texts") or {}
    rows = [
        one | {"by": one["by"]["handle"], "counts": "yes" if one["counts"] else "no", "words": texts.get(f"evidence:{one['id']}")}
        for one in refund.get("evidence") or ()
    ]
    _section(out, "Evidence", rows, ("kind", "by", "recorded_at", "counts", "digest", "words"), fold="words")


def _show_recorded(out: Output, policy: Mapping[str, Any]) -> None:
    """What is recorded beside the checks: what good governance asks for, whose words were quoted, and whom the review is for."""
    stated, review = policy.get("governance") or {}, (policy.get("needs") or {}).get("review") or {}
    if not stated:
        return
    out.heading("Recorded with it")
    out.fields(
        [
            ("policy text", policy.get("text")),
            ("answer", policy.get("answer")),
            ("appeal", policy.get("appeal")),
            ("only a draft", "yes: prepared and never sent" if policy.get("draft") else None),
            ("specialists", ", ".join(review.get("specialists") or ())),
            ("reasons", "everybody who decides says why" if review.get("reasons_required") else None),
            ("evidence", ", ".join(stated.get("required_evidence") or ())),
            ("system of record", stated.get("system_of_record")),
            ("legal entity", stated.get("legal_entity")),
            ("customer type", stated.get("customer_type")),
            ("geography", stated.get("geography")),
            ("data involved", ", ".join(stated.get("data_involved") or ())),
            ("financial ceiling", stated.get("financial_ceiling")),
            ("reversibility", stated.get("reversibility")),
            ("approval owner", stated.get("approval_owner")),
        ]
    )


def _lines(breakdown: Mapping[str, Any] | None) -> list[Mapping[str, Any]]:
    """What the amount is made of, line by line and the shipping, in the processor's unit: the parts sum to exactly it."""
    if not breakdown:
        return []
    lines = [{"line": line["id"], "units": f"{line['quantity']} of {line['ordered']}", **line} for line in breakdown["lines"]]
    shipping = [{"line": "shipping", "units": None, **breakdown["shipping"]}] if breakdown["shipping"] else []
    return [part | {"of_it_tax": part["tax"]} for part in (*lines, *shipping)]


def _seen(check: Mapping[str, Any]) -> str:
    """What a check saw beside its limit, in one cell: two columns of sentences fit no terminal."""
    return f"{check.get('observed') or '-'}; limit: {check.get('limit') or '-'}"


def _show_said(out: Output, refund: Refund, notes: Mapping[str, str]) -> None:
    """What persons decided and asked for, each with the words they left with it, so that whoever comes second sees what the first one said."""
    decisions = [decision | {"by": _who(decision), "note": notes.get(decision.get("id", ""))} for decision in refund.get("decisions") or ()]
    _section(out, "Decisions", decisions, ("kind", "verdict", "revision", "by", "role", "recorded_at", "note"), fold="note")
    asked = [
        {
            "what": _asked(instruction["kind"], instruction.get("body") or {}),
            "by": f"{instruction['by']['name']} ({instruction['by']['handle']})",
            "recorded_at": instruction.get("recorded_at"),
            "came_of_it": _came_of(instruction, refund["status"]),
            "note": notes.get(instruction["id"]),
        }
        for instruction in refund.get("instructions") or ()
    ]
    _section(out, "Revisions, withdrawals, settlements", asked, ("what", "by", "recorded_at", "came_of_it", "note"), fold="note")


def _asked(kind: str, body: Mapping[str, Any]) -> str:
    """What somebody asked for, in a few words: ``settle: not refunded``, ``revise: 2500 USD, reason goodwill``."""
    if kind == "settle" and body.get("leg"):
        by = f" by {body['reversal_id']}" if body.get("reversal_id") else ""
        return f"settle {body['leg']}: {str(body.get('outcome')).replace('_', ' ')}{by}"
    if kind == "settle":
        by = f" by {body['processor_refund_id']}" if body.get("processor_refund_id") else ""
        return f"settle: {str(body.get('outcome')).replace('_', ' ')}{by}"
    if kind == "assign":
        return f"assign: {'given to a person' if body.get('to') else 'given to nobody'}, queue {body.get('queue')}"
    wanted = [f"{body['amount']} {body.get('currency') or ''}".strip()] if body.get("amount") is not None else []
    wanted += ["in full"] if body.get("full") else []
    wanted += [f"{name} {body[name]}" for name in ("reason", "payment") if body.get(name)]
    return f"{kind}: {', '.join(wanted)}" if wanted else kind


def _came_of(instruction: Mapping[str, Any], status: str) -> str:
    if instruction.get("refused"):
        return f"refused: {instruction['refused']} {instruction.get('detail') or ''}".strip()
    if instruction.get("applied_at"):
        return f"applied at {instruction['applied_at']}"
    body = instruction.get("body") or {}
    of_leg = body.get("outcome") == "not_reversed"
    if (of_leg or (status == "parked" and body.get("outcome") == "not_refunded")) and not body.get("first_person"):
        return "waits for a second person who says the same"
    return "not applied by itself"


def _show_processor(out: Output, refund: Refund) -> None:
    """Each operation, and below it every call that was made for it."""
    operations = (refund.get("processor") or {}).get("operations") or ()
    _section(out, "At the processor", operations, ("id", "kind", "amount_text", "refund_id", "refund_state", "outcome"), fold="outcome")
    attempts = [
        {
            "operation": operation["id"],
            "attempt": attempt.get("number"),
            "outcome": attempt.get("outcome") or "no answer recorded",
            "reason": attempt.get("reason"),
            "opened_at": attempt.get("opened_at"),
            "answered_at": attempt.get("answered_at"),
        }
        for operation in operations
        for attempt in operation["attempts"]
    ]
    _show_settlement(out, (refund.get("processor") or {}).get("settlement"))
    legs = [
        leg | {"what": leg["kind"].replace("_", " "), "attempts": len(leg["attempts"]), "why": leg.get("detail") or leg.get("code")}
        for leg in (refund.get("processor") or {}).get("legs") or ()
    ]
    shown = ("id", "what", "amount_text", "target", "account", "state", "reversal_id", "attempts", "why")
    _section(out, "Legs", legs, shown, fold="why")
    columns = ("attempt", "outcome", "reason", "opened_at", "answered_at")
    _section(out, "Attempts", attempts, columns if len(operations) < 2 else ("operation", *columns), fold="reason")


def _show_settlement(out: Output, figures: Refund | None) -> None:
    """What the customer receives and what left the balance, each with its own name."""
    if figures is None:
        return

    def some(name: str) -> str | None:
        return _written(figures[name]) if figures[name]["amount"] else None

    out.heading("Settlement")
    out.fields(
        [
            ("the customer receives", _written(figures["presentment"])),
            ("left the balance", _written(figures["settled"])),
            ("rate", figures.get("rate_text")),
            ("fee", some("fee")),
            ("came back", some("returned")),
            ("read at", figures.get("read_at")),
        ]
    )


def _written(amount: Mapping[str, Any]) -> str:
    """An amount with its code, because it stands beside one in another currency."""
    return f"{amount.get('amount_text') or amount['amount']} ({amount['currency']})"


def _who(decision: Mapping[str, Any]) -> str:
    by, of = decision.get("recorded_by"), decision.get("on_behalf_of")
    who = f"{by['name']} ({by['handle']})" if by else str(decision.get("person") or "")
    return f"{who} on behalf of {of['name']} ({of['handle']})" if of else who


def _section(out: Output, title: str, rows: Any, columns: tuple[str, ...], *, fold: str) -> None:
    """A titled table; a column in which nothing stands is left out."""
    if rows:
        out.heading(title)
        columns = tuple(name for name in columns if any(row.get(name) not in (None, "") for row in rows))
        headings = [name.removesuffix("_text").replace("_", " ") for name in columns]
        out.table(headings, [[row.get(name) for name in columns] for row in rows], fold=fold.replace("_", " "))
