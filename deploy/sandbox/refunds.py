"""Refunds: what may be refunded, what a refund does to its charge, and how it moves afterwards.

Order of checks, error texts and objects recorded against Stripe test mode 2026-09, API version 2026-08-26.dahlia.
Statuses other than succeeded follow Stripe's documentation of asynchronous refunds.
"""

from typing import Any

from deploy.sandbox import charges, connect, currency, lives, objects
from deploy.sandbox.errors import StripeError, invalid, no_such
from deploy.sandbox.lives import COUNTED
from deploy.sandbox.objects import Body
from deploy.sandbox.params import boolean, integer, metadata, reject_unknown, text
from deploy.sandbox.state import Stored
from deploy.sandbox.words import words
from deploy.sandbox.work import Call, Work

REASONS = ("duplicate", "fraudulent", "requested_by_customer")
_CREATE = words("""amount charge currency customer expand instructions_email metadata origin payment_intent reason
    refund_application_fee reverse_transfer""")


def charge_to_refund(call: Call) -> Stored:
    """The charge that the parameters name, by itself or as its PaymentIntent's one that took money."""
    charge_id, intent_id = text(call.params, "charge"), text(call.params, "payment_intent")
    if charge_id is None and intent_id is None:
        raise invalid("One of the following params should be provided for this request: payment_intent or charge.")
    if charge_id is not None and intent_id is not None:
        raise invalid("You may only specify one of these parameters: charge, payment_intent.")
    if intent_id is not None:
        intent = call.state.get("payment_intent", intent_id)
        if intent is None:
            raise no_such("payment_intent", intent_id, param="payment_intent")
        charge_id = charges.of_intent(call.state, intent)
        if charge_id is None:
            raise StripeError(400, f"This PaymentIntent ({intent_id}) does not have a successful charge to refund.")
    assert charge_id is not None
    stored = call.state.find("charge", charge_id)
    if stored is None:
        raise no_such("charge", charge_id, param="id")
    return stored


def create(call: Call) -> Body:
    """POST /v1/refunds. Without an amount the rest is refunded."""
    reject_unknown(call.params, _CREATE)
    for name in ("customer", "origin", "currency"):
        if name in call.params:
            raise invalid(f"The sandbox does not model refunds from a customer's cash balance ({name}).", param=name)
    reverse, give_fee = boolean(call.params, "reverse_transfer"), boolean(call.params, "refund_application_fee")
    reason = text(call.params, "reason")
    if reason is not None and reason not in REASONS:
        raise invalid(f"Invalid reason: must be one of {', '.join(REASONS[:-1])}, or {REASONS[-1]}", param="reason")
    amount = integer(call.params, "amount", least=1)
    tags = metadata(call.params, {})
    stored = charge_to_refund(call)
    amount = refundable_amount(call, stored.body, amount)
    check_window(call, stored)
    connect.check_legs(call, stored.body, reverse=reverse, give_fee=give_fee)
    body = make(call, stored, amount, reason, tags, call.life)
    if reverse or give_fee:
        connect.refund_legs(call, stored.body, stored.extra, body, reverse=reverse, give_fee=give_fee)
    return body


def check_window(work: Work, stored: Stored) -> None:
    """Refuses a refund past the window of its payment method (text: woocommerce/woocommerce-gateway-stripe#4778, where no code is shown)."""
    days = stored.extra.get("refund_window_days")
    if days is not None and work.now - stored.body["created"] > days * 86_400:
        raise StripeError(400, f"This payment is too old to be refunded. It has passed its {days}-day refund window.")


def refundable_amount(work: Work, charge: Body, amount: int | None) -> int:
    """The amount to refund, or the refusal that Stripe gives; the order of the checks is part of what is recorded."""
    charge_id = charge["id"]
    if charge["status"] != "succeeded":
        raise StripeError(400, f"Charge {charge_id} cannot be refunded because it has not succeeded.")
    if not charge["captured"] and charge["payment_intent"] is None:
        raise StripeError(400, "The sandbox does not model how a refund releases a charge without a PaymentIntent that was never captured.")
    if not charge["captured"]:
        raise StripeError(
            400,
            f"This uncaptured Charge was created by a PaymentIntent ({charge['payment_intent']}). You must cancel the "
            "PaymentIntent to reverse the authorization instead of refunding the Charge directly. For more information, see "
            "https://stripe.com/docs/payments/place-a-hold-on-a-payment-method",
        )
    if charge["disputed"] and not all(d["is_charge_refundable"] for d in work.state.every("dispute", charge=charge_id)):
        message = f"Charge {charge_id} has been charged back; cannot issue a refund."
        raise StripeError(400, message, code="charge_disputed")
    left = charge["amount_captured"] - charge["amount_refunded"]
    if left <= 0:
        raise StripeError(400, f"Charge {charge_id} has already been refunded.", code="charge_already_refunded")
    if amount is None:
        return left
    currency.check_granularity(amount, charge["currency"])
    if amount > left:
        asked, rest = (currency.printed(value, charge["currency"]) for value in (amount, left))
        message = f"Refund amount ({asked}) is greater than unrefunded amount on charge ({rest})"
        raise StripeError(400, message, param="amount")
    return amount


def make(work: Work, stored: Stored, amount: int, reason: str | None, tags: dict[str, str], life: dict[str, Any] | None = None) -> Body:
    """Makes a refund of a checked amount: the refund, the charge's new total, the balance and the events.

    It lives as `life` says, else as its payment's refunds do (`deploy.sandbox.lives`).
    """
    charge, plan = stored.body, life or stored.extra.get("refund_outcome") or {}
    status, pending_reason = plan.get("initial", "succeeded"), plan.get("pending_reason")
    if status == "succeeded" and not _enough(work, charge["currency"], amount):
        card = charge["payment_method_details"]["type"] == "card"
        status, pending_reason = ("pending", "insufficient_funds") if card else ("failed", None)
    body = objects.refund(charge=charge, amount=amount, reason=reason, metadata=tags, status=status, transaction=None, now=work.now)
    describe(body, plan.get("failure_reason") or ("insufficient_funds" if status == "failed" else None), pending_reason)
    if _has_left(body):
        body["balance_transaction"] = _transact(work, body, -amount, "refund")
    work.state.insert(body, charge=charge["id"], payment_intent=charge["payment_intent"], customer=charge["customer"])
    work.emit("refund.created", body)
    if status in COUNTED:
        _count(work, charge, amount)
    if status == "failed":
        work.emit("refund.failed", body)
    plan_next(work, body["id"], lives.steps(plan))
    return body


def plan_next(work: Work, refund_id: str, steps: list[lives.Step]) -> None:
    """Plans the first of the steps that are left; what comes after it is planned when it has happened."""
    if steps:
        first, *rest = steps
        action = {"status": first["status"], "failure_reason": first.get("failure_reason"), "rest": rest}
        work.state.plan(work.state.clock.now_ms() + lives.delay_ms(first), refund_id, action)


def describe(body: Body, failure_reason: str | None, pending_reason: str | None = None) -> None:
    """Adds the fields that a refund has in its status and in no other."""
    status = body["status"]
    if status in ("failed", "canceled"):
        body["failure_reason"] = failure_reason or ("unknown" if status == "failed" else "merchant_request")
    elif status == "pending":
        body["pending_reason"] = pending_reason or "processing"
    elif status == "requires_action":
        body["next_action"] = {"type": "display_details"}


def _count(work: Work, charge: Body, amount: int) -> None:
    """Moves the charge's total by `amount` (negative gives back) and tells it where money was taken."""
    previous = {"amount_refunded": charge["amount_refunded"], "refunded": charge["refunded"]}
    charge["amount_refunded"] += amount
    charge["refunded"] = charge["amount_refunded"] >= charge["amount_captured"] and not _may_grow(work, charge)
    work.state.save(charge)
    changed = {name: value for name, value in previous.items() if charge[name] != value}
    work.emit("charge.refunded" if amount > 0 else "charge.updated", charge, changed)


def _may_grow(work: Work, charge: Body) -> bool:
    """Whether more may still be captured: such a charge is not yet wholly refunded, whatever was returned (several captures)."""
    intent = None if charge["payment_intent"] is None else work.state.get("payment_intent", charge["payment_intent"])
    return intent is not None and intent["amount_capturable"] > 0


def _enough(work: Work, code: str, amount: int) -> bool:
    """Whether the balance that the control API set for the currency covers the amount; without one there is always enough."""
    return work.balances().get(code, amount) >= amount


def _has_left(body: Body) -> bool:
    """Whether the refund's money has left the balance: not once it failed, nor while it waits for balance."""
    return body["status"] in COUNTED and body.get("pending_reason") != "insufficient_funds"


def _transact(work: Work, body: Body, amount: int, kind: str) -> str:
    """Books the amount (negative leaves) with the account, and with the balance that was set for the currency."""
    work.book(body["currency"], amount)
    value, settlement = objects.settled(amount, body["currency"])
    row = objects.balance_transaction(
        kind=kind,
        category=kind,
        amount=value,
        fee=0,
        currency=settlement,
        source=body["id"],
        description="REFUND FOR CHARGE" if kind == "refund" else "REFUND FAILURE",
        now=work.now,
        status="available" if amount < 0 else "pending",
        rate=objects.rate(body["currency"]),
    )
    work.state.insert(row, type=kind, source=body["id"])
    return row["id"]


def move(work: Work, refund_id: str, status: str, failure_reason: str | None = None, pending_reason: str | None = None) -> Body:
    """Moves a refund to another status, days later if need be, with its total, balance transactions and events.

    Raises LookupError for an unknown refund and ValueError where the charge has too little left to count it again.
    """
    body = work.state.expect("refund", refund_id)
    before, charge = body["status"], work.state.expect("charge", body["charge"])
    previous: Body = {"status": before}
    delta = body["amount"] * ((status in COUNTED) - (before in COUNTED))
    if charge["amount_refunded"] + delta > charge["amount_captured"]:
        raise ValueError(f"charge {charge['id']} has less than {body['amount']} left")
    had_left = _has_left(body)
    for name in ("failure_reason", "failure_balance_transaction", "pending_reason", "next_action"):
        if name in body:
            previous[name] = body.pop(name)
    body["status"] = status
    describe(body, failure_reason, pending_reason)
    if status in ("failed", "canceled") and "failure_balance_transaction" in previous:
        body["failure_balance_transaction"] = previous["failure_balance_transaction"]
    _book_change(work, body, had_left)
    work.state.save(body)
    if delta:
        _count(work, charge, delta)
    work.emit("refund.updated", body, previous)
    if status == "failed":
        work.emit("refund.failed", body)
    return body


def _book_change(work: Work, body: Body, had_left: bool) -> None:
    """The balance transaction of a move, where money left or came back by it."""
    if _has_left(body) and not had_left:
        body["balance_transaction"] = _transact(work, body, -body["amount"], "refund")
    elif had_left and not _has_left(body):
        returned = _transact(work, body, body["amount"], "refund_failure")
        if body["status"] in ("failed", "canceled"):
            body["failure_balance_transaction"] = returned


def pay_waiting(work: Work, code: str) -> None:
    """Pays the card refunds that waited for balance, oldest first, as far as the balance reaches."""
    for body in work.state.every("refund"):
        waits = body["status"] == "pending" and body.get("pending_reason") == "insufficient_funds"
        if waits and body["currency"] == code and _enough(work, code, body["amount"]):
            move(work, body["id"], "succeeded")


def _by_path(call: Call) -> Body:
    body = call.state.get("refund", call.args[-1])
    if body is None or (len(call.args) == 2 and body["charge"] != call.args[0]):
        raise no_such("refund", call.args[-1], param="refund")
    return body


def retrieve(call: Call) -> Body:
    """GET /v1/refunds/{refund}, and /v1/charges/{charge}/refunds/{refund}, which knows only its own charge's (recorded)."""
    reject_unknown(call.params, ("expand",))
    return _by_path(call)


def update(call: Call) -> Body:
    reject_unknown(call.params, ("expand", "metadata"))
    body = _by_path(call)
    previous = body["metadata"]
    body["metadata"] = metadata(call.params, previous)
    call.state.save(body)
    if body["metadata"] != previous:
        call.emit("refund.updated", body, {"metadata": previous})
    return body


def cancel(call: Call) -> Body:
    """Only a refund that waits for the customer's action can be cancelled; a card refund cannot (recorded)."""
    reject_unknown(call.params, ("expand",))
    body = _by_path(call)
    if body["status"] != "requires_action":
        raise StripeError(400, "Canceling this refund is unsupported.")
    return move(call, body["id"], "canceled")


def create_on_charge(call: Call) -> Body:
    """POST /v1/charges/{charge}/refunds: an older path that answers with the refund (recorded)."""
    call.params["charge"] = call.args[0]
    return create(call)


def refund_charge(call: Call) -> Body:
    """POST /v1/charges/{charge}/refund: the oldest path, which answers with the charge (recorded)."""
    create_on_charge(call)
    return call.state.expect("charge", call.args[0])
