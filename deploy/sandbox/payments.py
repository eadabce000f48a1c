"""PaymentIntents and their charges: create, confirm, capture, cancel."""

from typing import Any

from deploy.sandbox import disputes, lives, objects
from deploy.sandbox.currency import LARGEST_AMOUNT, check_currency, check_granularity
from deploy.sandbox.errors import StripeError, invalid, missing_parameter, no_such
from deploy.sandbox.objects import Body
from deploy.sandbox.params import boolean, integer, items, metadata, reject_unknown, required_text, text
from deploy.sandbox.words import words
from deploy.sandbox.work import Call, Work

_CREATE = words("""amount automatic_payment_methods capture_method confirm confirmation_method currency customer description expand
    metadata off_session payment_method payment_method_types receipt_email return_url""")
CAPTURE_METHODS = ("automatic", "automatic_async", "manual")
CANCELABLE = ("requires_payment_method", "requires_capture", "requires_confirmation", "requires_action", "processing")
CANCELLATION_REASONS = ("duplicate", "fraudulent", "requested_by_customer", "abandoned")
RISK_SCORES = {"normal": 12, "elevated": 70, "highest": 92, "not_assessed": 0, "unknown": 0}

TEST_METHODS: dict[str, dict[str, Any]] = {
    "pm_card_createDispute": {"dispute": "needs_response"},
    "pm_card_createDisputeInquiry": {"dispute": "warning_needs_response"},
    "pm_card_chargeDeclined": {"decline": "generic_decline"},
    "pm_card_visa_chargeDeclined": {"decline": "generic_decline"},
    "pm_card_pendingRefund": {"refund_outcome": {"initial": "pending", "then": "succeeded", "after_ms": 3000}},
    "pm_card_refundFail": {"refund_outcome": {"initial": "succeeded", "then": "failed", "after_ms": 3000}},
    "pm_card_riskLevelElevated": {"risk_level": "elevated"},
    "pm_card_riskLevelHighest": {"risk_level": "highest"},
}
"""Stripe's test PaymentMethods and what they make happen; any other one simply succeeds."""


def create(call: Call) -> Body:
    """POST /v1/payment_intents, confirmed at once where asked for."""
    reject_unknown(call.params, _CREATE)
    amount = integer(call.params, "amount", least=1)
    if amount is None:
        raise missing_parameter("amount")
    currency = check_currency(required_text(call.params, "currency"))
    if amount > LARGEST_AMOUNT:
        raise invalid("Amount must be no more than $999,999.99", code="amount_too_large", param="amount")
    check_granularity(amount, currency)
    capture_method = text(call.params, "capture_method") or "automatic_async"
    if capture_method not in CAPTURE_METHODS:
        allowed = f"{', '.join(CAPTURE_METHODS[:-1])}, or {CAPTURE_METHODS[-1]}"
        raise invalid(f"Invalid capture_method: must be one of {allowed}", param="capture_method")
    given = text(call.params, "payment_method")
    effect = TEST_METHODS.get(given or "", {})
    intent = objects.payment_intent(
        intent_id=objects.new_id("pi_"),
        amount=amount,
        currency=currency,
        capture_method=capture_method,
        customer=text(call.params, "customer"),
        description=text(call.params, "description"),
        metadata=metadata(call.params, {}),
        method_types=items(call.params, "payment_method_types") or ["card"],
        payment_method=None if given is None else _method_id(given),
        receipt_email=text(call.params, "receipt_email"),
        now=call.now,
    )
    call.state.insert(intent, effect, customer=intent["customer"])
    if boolean(call.params, "confirm"):
        if given is None:
            raise missing_parameter("payment_method")
        _confirm(call, intent, effect)
    return intent


def _method_id(given: str) -> str:
    """A test PaymentMethod's name stands for a fresh PaymentMethod."""
    return objects.new_id("pm_") if given.startswith("pm_card_") else given


def _confirm(work: Work, intent: Body, effect: dict[str, Any]) -> None:
    if "decline" in effect:
        _decline(work, intent, effect["decline"])
    authorise(work, intent, effect)
    if intent["capture_method"] != "manual":
        take(work, intent, intent["amount"])


def authorise(work: Work, intent: Body, effect: dict[str, Any], charge_id: str | None = None, method: str = "card") -> Body:
    """Makes the charge of a PaymentIntent, authorised and not captured. `effect` is kept with it and acts later."""
    level = effect.get("risk_level", "normal")
    charge = objects.charge(
        charge_id=charge_id or objects.new_id("ch_"),
        intent=intent,
        captured=False,
        method=method,
        risk_level=level,
        risk_score=effect.get("risk_score", RISK_SCORES.get(level, 12)),
        transaction=None,
    )
    work.state.insert(charge, effect, payment_intent=intent["id"], customer=intent["customer"])
    intent.update(latest_charge=charge["id"], status="requires_capture", amount_capturable=intent["amount"])
    work.state.save(intent)
    return charge


def take(work: Work, intent: Body, amount: int) -> None:
    """Captures `amount`; the rest of the authorisation is released, which is no refund. Late effects start here."""
    stored = work.state.find("charge", intent["latest_charge"])
    assert stored is not None
    charge = stored.body
    value, settlement = objects.settled(amount, intent["currency"])
    row = objects.balance_transaction(
        kind="charge",
        category="charge",
        amount=value,
        fee=value * 29 // 1000 + 30,
        currency=settlement,
        source=charge["id"],
        description=intent["description"] or "",
        now=work.now,
        status="pending",
    )
    work.state.insert(row, type="charge", source=charge["id"])
    charge.update(captured=True, amount_captured=amount, balance_transaction=row["id"])
    intent.update(status="succeeded", amount_received=amount, amount_capturable=0)
    work.state.save(charge)
    work.state.save(intent)
    work.emit("payment_intent.succeeded", intent)
    if "dispute" in stored.extra:
        disputes.open_on(work, charge, stored.extra["dispute"])


def _decline(work: Work, intent: Body, decline_code: str) -> None:
    charge = authorise(work, intent, {})
    message = "Your card was declined."
    charge.update(status="failed", paid=False, failure_code="card_declined", failure_message=message)
    charge["outcome"].update(network_status="declined_by_network", reason=decline_code, type="issuer_declined")
    error = {"charge": charge["id"], "code": "card_declined", "decline_code": decline_code, "message": message}
    error.update(doc_url="https://stripe.com/docs/error-codes/card-declined", type="card_error")
    intent.update(status="requires_payment_method", amount_capturable=0, payment_method=None, last_payment_error=error)
    work.state.save(charge)
    work.state.save(intent)
    work.emit("payment_intent.payment_failed", intent)
    extra = {"charge": charge["id"], "decline_code": decline_code, "payment_intent": intent}
    raise StripeError(402, message, error_type="card_error", code="card_declined", keep_work=True, extra=extra)


def _by_path(call: Call) -> Body:
    intent = call.state.get("payment_intent", call.args[0])
    if intent is None:
        raise no_such("payment_intent", call.args[0], param="intent")
    return intent


def retrieve(call: Call) -> Body:
    reject_unknown(call.params, ("client_secret", "expand"))
    return _by_path(call)


def confirm(call: Call) -> Body:
    reject_unknown(call.params, ("expand", "off_session", "payment_method", "receipt_email", "return_url"))
    intent = _by_path(call)
    if intent["status"] not in ("requires_confirmation", "requires_payment_method"):
        message = f"You cannot confirm this PaymentIntent because it has a status of {intent['status']}."
        raise _unexpected_state(message, intent)
    given = text(call.params, "payment_method")
    stored = call.state.find("payment_intent", intent["id"])
    effect = {} if stored is None else stored.extra
    if given is not None:
        effect, intent["payment_method"] = TEST_METHODS.get(given, {}), _method_id(given)
    if intent["payment_method"] is None:
        raise missing_parameter("payment_method")
    _confirm(call, intent, effect)
    return intent


def _unexpected_state(message: str, intent: Body) -> StripeError:
    return StripeError(400, message, code="payment_intent_unexpected_state", extra={"payment_intent": intent})


def capture(call: Call) -> Body:
    """POST .../capture: the whole, or `amount_to_capture`, which releases the rest."""
    reject_unknown(call.params, ("amount_to_capture", "expand", "metadata"))
    asked = integer(call.params, "amount_to_capture", least=1)
    intent = _by_path(call)
    if intent["status"] != "requires_capture":
        raise _unexpected_state(
            f"This PaymentIntent could not be captured because it has a status of {intent['status']}. Only a PaymentIntent "
            "with one of the following statuses may be captured: requires_capture.",
            intent,
        )
    if asked is not None and asked > intent["amount_capturable"]:
        message = "The amount to capture is greater than the amount that can be captured."
        raise invalid(message, code="amount_too_large", param="amount_to_capture")
    if asked is not None:
        check_granularity(asked, intent["currency"])
    intent["metadata"] = metadata(call.params, intent["metadata"])
    take(call, intent, intent["amount_capturable"] if asked is None else asked)
    return intent


def cancel(call: Call) -> Body:
    """POST .../cancel: releases the whole authorisation, which is no refund object here; see docs/sandbox.md."""
    reject_unknown(call.params, ("cancellation_reason", "expand"))
    reason = text(call.params, "cancellation_reason")
    if reason is not None and reason not in CANCELLATION_REASONS:
        raise invalid(
            f"Invalid cancellation_reason: must be one of {', '.join(CANCELLATION_REASONS[:-1])}, or {CANCELLATION_REASONS[-1]}",
            param="cancellation_reason",
        )
    intent = _by_path(call)
    if intent["status"] not in CANCELABLE:
        raise _unexpected_state(
            f"You cannot cancel this PaymentIntent because it has a status of {intent['status']}. Only a PaymentIntent with "
            f"one of the following statuses may be canceled: {', '.join(CANCELABLE)}.",
            intent,
        )
    release(call, intent, reason)
    return intent


def release(work: Work, intent: Body, reason: str | None) -> None:
    """Cancels a PaymentIntent. Its authorised charge then reads as wholly refunded though nothing had been taken."""
    if intent["status"] == "requires_capture":
        charge = work.state.expect("charge", intent["latest_charge"])
        charge.update(amount_refunded=charge["amount"], refunded=True)
        work.state.save(charge)
        work.emit("charge.refunded", charge, {"amount_refunded": 0, "refunded": False})
    intent.update(status="canceled", amount_capturable=0, canceled_at=work.now, cancellation_reason=reason)
    work.state.save(intent)
    work.emit("payment_intent.canceled", intent)


def retrieve_charge(call: Call) -> Body:
    reject_unknown(call.params, ("expand",))
    charge = call.state.get("charge", call.args[0])
    if charge is None:
        raise no_such("charge", call.args[0], param="id")
    return charge


def place(work: Work, wanted: dict[str, Any]) -> tuple[Body, Body | None]:
    """A payment as the control API asks for it, in any status, without a customer who pays.

    Raises ValueError for what cannot be, and sqlite3.IntegrityError where an id is taken.
    """
    amount, currency, captured = wanted["amount"], check_currency(wanted["currency"]), wanted.get("captured")
    status, intent_id = wanted.get("status"), wanted.get("id") or objects.new_id("pi_")
    method = wanted.get("payment_method_type") or "card"
    if not isinstance(amount, int) or amount < 1 or (captured is not None and not 0 <= captured <= amount):
        raise ValueError("amount is a positive whole number of minor units, captured between 0 and amount or null")
    check_granularity(amount, currency)
    if not all(isinstance(value, str) for value in (wanted.get("metadata") or {}).values()):
        raise ValueError("metadata values are strings")
    if wanted.get("refund_outcome"):
        lives.check(wanted["refund_outcome"])
    whole = captured is None
    intent = objects.payment_intent(
        intent_id=intent_id,
        amount=amount,
        currency=currency,
        capture_method="automatic_async" if whole else "manual",
        customer=wanted.get("customer"),
        description=wanted.get("description"),
        metadata=wanted.get("metadata") or {},
        method_types=[method],
        payment_method=objects.new_id("pm_"),
        receipt_email=None,
        now=wanted.get("created") or work.now,
    )
    work.state.insert(intent, customer=intent["customer"])
    if status not in (None, "succeeded", "requires_capture"):
        intent["status"] = status
        if status == "canceled":
            intent["canceled_at"] = work.now
        work.state.save(intent)
        return intent, None
    effect = {name: wanted[name] for name in ("refund_outcome", "risk_level", "risk_score") if wanted.get(name) is not None}
    charge_id = wanted.get("charge") or "ch_" + intent_id.removeprefix("pi_")
    charge = authorise(work, intent, effect, charge_id, method)
    if captured != 0 and status != "requires_capture":
        take(work, intent, amount if whole else captured)
        charge = work.state.expect("charge", charge_id)
    return intent, charge
