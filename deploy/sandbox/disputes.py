"""Disputes: chargebacks take the money out and block refunds; inquiries do neither (recorded)."""

from deploy.sandbox import objects
from deploy.sandbox.errors import StripeError, invalid, no_such
from deploy.sandbox.objects import Body
from deploy.sandbox.params import metadata, reject_unknown
from deploy.sandbox.work import Call, Work

INQUIRY = frozenset({"warning_needs_response", "warning_under_review", "warning_closed"})
CHARGEBACK = frozenset({"needs_response", "under_review", "lost", "won", "prevented"})
STATUSES = INQUIRY | CHARGEBACK
CLOSED = frozenset({"lost", "won", "prevented", "warning_closed"})
REFUNDABLE = INQUIRY | {"won", "prevented"}
DISPUTE_FEE = 1500
EVIDENCE_DELAY_MS = 1000
_AFTER_EVIDENCE = {
    "winning_evidence": "won",
    "losing_evidence": "lost",
    "escalate_inquiry_evidence": "needs_response",
}
"""Stripe's test-mode texts that decide what comes of submitted evidence some seconds later."""


def open_on(work: Work, charge: Body, status: str, amount: int | None = None) -> Body:
    """Opens a dispute on a captured charge. Raises ValueError for an unknown status."""
    if status not in STATUSES:
        raise ValueError(f"a dispute's status is one of {', '.join(sorted(STATUSES))}")
    inquiry = status in INQUIRY
    start = "warning_needs_response" if inquiry else "needs_response"
    body = objects.dispute(
        charge=charge,
        amount=charge["amount_captured"] if amount is None else amount,
        status=start,
        inquiry=inquiry,
        now=work.now,
    )
    if not inquiry and status != "prevented":
        _withdraw(work, body, charge)
    work.state.insert(body, charge=charge["id"], payment_intent=charge["payment_intent"])
    charge["disputed"], charge["dispute"] = True, body["id"]
    work.state.save(charge)
    work.emit("charge.dispute.created", body)
    return body if status == start else move(work, body["id"], status)


def _transact(work: Work, body: Body, charge: Body, amount: int, fee: int, category: str, status: str) -> Body:
    value, settlement = objects.settled(amount, body["currency"])
    words = "withdrawal" if amount < 0 else "reversal"
    row = objects.balance_transaction(
        kind="adjustment",
        category=category,
        amount=value,
        fee=fee,
        currency=settlement,
        source=body["id"],
        description=f"Chargeback {words} for {charge['id']}",
        now=work.now,
        status=status,
    )
    work.state.insert(row, type="adjustment", source=body["id"])
    body["balance_transactions"].append(row)
    return row


def _withdraw(work: Work, body: Body, charge: Body) -> None:
    """Takes the amount and the fee. The row is `pending` after a manual capture, `available` otherwise (recorded)."""
    intent = None if charge["payment_intent"] is None else work.state.expect("payment_intent", charge["payment_intent"])
    status = "pending" if intent is not None and intent["capture_method"] == "manual" else "available"
    row = _transact(work, body, charge, -body["amount"], DISPUTE_FEE, "dispute", status)
    body["balance_transaction"] = row["id"]


def move(work: Work, dispute_id: str, status: str) -> Body:
    """Moves a dispute, with its money and whether the charge may be refunded.

    Won and prevented give the amount back and keep the fee; an inquiry that becomes a chargeback takes the amount.
    Raises LookupError for an unknown dispute, ValueError for an unknown status.
    """
    if status not in STATUSES:
        raise ValueError(f"a dispute's status is one of {', '.join(sorted(STATUSES))}")
    body = work.state.expect("dispute", dispute_id)
    charge = work.state.expect("charge", body["charge"])
    previous = {"status": body["status"]}
    withdrawn = sum(1 if row["reporting_category"] == "dispute" else -1 for row in body["balance_transactions"]) > 0
    if status in CHARGEBACK - {"won", "prevented"} and not withdrawn:
        _withdraw(work, body, charge)
    if status in REFUNDABLE and withdrawn:
        _transact(work, body, charge, body["amount"], 0, "dispute_reversal", "pending")
    card = body["payment_method_details"]["card"]
    card["case_type"], card["network_reason_code"] = ("inquiry", "10") if status in INQUIRY else ("chargeback", "10.4")
    body["status"], body["is_charge_refundable"] = status, status in REFUNDABLE
    work.state.save(body)
    work.emit("charge.dispute.closed" if status in CLOSED else "charge.dispute.updated", body, previous)
    return body


def _by_path(call: Call) -> Body:
    body = call.state.get("dispute", call.args[0])
    if body is None:
        raise no_such("dispute", call.args[0], param="dispute")
    return body


def _open_by_path(call: Call) -> Body:
    body = _by_path(call)
    if body["status"] in CLOSED:
        raise StripeError(400, "This dispute is already closed")
    return body


def retrieve(call: Call) -> Body:
    reject_unknown(call.params, ("expand",))
    return _by_path(call)


def of_charge(call: Call) -> Body:
    """GET /v1/charges/{charge}/dispute; its 404 has no code (recorded)."""
    reject_unknown(call.params, ("expand",))
    found = call.state.every("dispute", charge=call.args[0])
    if not found:
        raise StripeError(404, f"No dispute for charge: {call.args[0]}")
    return found[-1]


def update(call: Call) -> Body:
    """Evidence moves the dispute under review at once; Stripe's test texts then decide it a second later."""
    reject_unknown(call.params, ("evidence", "metadata", "submit", "expand"))
    evidence = call.params.get("evidence") or {}
    if not isinstance(evidence, dict):
        raise invalid("Invalid object", param="evidence")
    reject_unknown(evidence, objects.EVIDENCE_FIELDS, "evidence")
    submit = call.params.get("submit", "true") == "true"
    body = _open_by_path(call)
    previous = {"evidence": dict(body["evidence"]), "status": body["status"]}
    body["metadata"] = metadata(call.params, body["metadata"])
    body["evidence"].update({name: value or None for name, value in evidence.items()})
    if evidence:
        body["evidence_details"]["has_evidence"] = True
    if evidence and submit:
        body["evidence_details"]["submission_count"] += 1
        body["status"] = "warning_under_review" if body["status"] in INQUIRY else "under_review"
        after = _AFTER_EVIDENCE.get(evidence.get("uncategorized_text", ""))
        if after is not None:
            call.state.plan(call.state.clock.now_ms() + EVIDENCE_DELAY_MS, body["id"], {"status": after})
    call.state.save(body)
    call.emit("charge.dispute.updated", body, previous)
    return body


def close(call: Call) -> Body:
    """Accepting a chargeback loses it."""
    reject_unknown(call.params, ("expand",))
    body = _open_by_path(call)
    return move(call, body["id"], "warning_closed" if body["status"] in INQUIRY else "lost")
