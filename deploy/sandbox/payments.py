"""PaymentIntents and their charges: create, confirm, capture (once, more than was authorised, or several times), cancel.

Several captures: https://docs.stripe.com/payments/multicapture. More than was authorised: https://docs.stripe.com/payments/overcapture. What is released leaves no
refund: https://docs.stripe.com/changelog/basil/2025-03-31/remove-refund-from-partial-capture-and-payment-cancellation-flow.
"""

from typing import Any

from deploy.sandbox import connect, disputes, objects
from deploy.sandbox.currency import LARGEST_AMOUNT, check_currency, check_granularity
from deploy.sandbox.errors import StripeError, invalid, missing_parameter, no_such
from deploy.sandbox.objects import Body
from deploy.sandbox.params import boolean, integer, items, metadata, reject_unknown, required_text, text
from deploy.sandbox.scopes import account_of
from deploy.sandbox.words import words
from deploy.sandbox.work import Call, Work

_CREATE = words("""amount application_fee_amount automatic_payment_methods capture_method confirm confirmation_method currency customer description expand
    metadata off_session on_behalf_of payment_method payment_method_options payment_method_types receipt_email return_url transfer_data transfer_group""")
_CARD_OPTIONS = words("request_multicapture request_overcapture request_three_d_secure")
OVERCAPTURE_PERCENT = 20
"""How much more than the authorised amount may be captured where that was asked for; card networks and trades differ."""
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
    effect = effect | _card_options(call)
    connect_terms(call, intent)
    call.state.insert(intent, effect, customer=intent["customer"])
    if boolean(call.params, "confirm"):
        if given is None:
            raise missing_parameter("payment_method")
        _confirm(call, intent, effect)
    return intent


def _card_options(call: Call) -> dict[str, Any]:
    """What was asked for of the card, as an effect: it is there where it was asked for."""
    options = call.params.get("payment_method_options") or {}
    if not isinstance(options, dict) or not isinstance(options.get("card", {}), dict):
        raise invalid("Invalid object", param="payment_method_options")
    card = options.get("card", {})
    reject_unknown(options, ("card",), "payment_method_options")
    reject_unknown(card, _CARD_OPTIONS, "payment_method_options[card]")
    return {name: True for name in ("multicapture", "overcapture") if card.get(f"request_{name}") == "if_available"}


def connect_terms(call: Call, intent: Body) -> None:
    """Reads what a marketplace adds: where the money goes, and what the platform keeps."""
    data, fee = call.params.get("transfer_data"), integer(call.params, "application_fee_amount", least=0)
    if data is not None:
        if not isinstance(data, dict):
            raise invalid("Invalid object", param="transfer_data")
        reject_unknown(data, ("amount", "destination"), "transfer_data")
        amount = integer(data, "amount", least=1, most=intent["amount"])
        destination = required_text(data, "destination")
        connect.require_account(call.state, destination, "transfer_data[destination]")
        if amount is not None and fee is not None:
            raise invalid("You may only specify one of these parameters: transfer_data[amount], application_fee_amount.")
        intent["transfer_data"] = {"destination": destination} | ({} if amount is None else {"amount": amount})
    if fee is not None and data is None and account_of(call.state.scope) is None:
        raise invalid(
            "Can only apply an application_fee_amount when the PaymentIntent is attempting a direct payment (using an OAuth key or Stripe-Account header) or "
            "destination payment (using `transfer_data[destination]`).",
            param="application_fee_amount",
        )
    if fee is not None and fee > intent["amount"]:
        raise invalid("The application fee cannot be larger than the amount.", param="application_fee_amount")
    intent["application_fee_amount"] = fee
    intent["on_behalf_of"], intent["transfer_group"] = text(call.params, "on_behalf_of"), text(call.params, "transfer_group")


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
    card = charge["payment_method_details"].get("card")
    if card is not None and "multicapture" in effect:
        card["multicapture"] = {"status": "available"}
    if card is not None and "overcapture" in effect:
        card["overcapture"] = {"maximum_amount_capturable": overcapturable(intent["amount"]), "status": "available"}
    charge.update(
        destination=(intent["transfer_data"] or {}).get("destination"),
        on_behalf_of=intent["on_behalf_of"],
        transfer_data=None if intent["transfer_data"] is None else {"amount": None} | intent["transfer_data"],
        transfer_group=intent["transfer_group"],
    )
    work.state.insert(charge, effect, payment_intent=intent["id"], customer=intent["customer"])
    intent.update(latest_charge=charge["id"], status="requires_capture", amount_capturable=intent["amount"])
    work.state.save(intent)
    return charge


def overcapturable(amount: int) -> int:
    return amount + amount * OVERCAPTURE_PERCENT // 100


def take(work: Work, intent: Body, amount: int, *, final: bool = True) -> None:
    """Captures `amount`. The last capture releases the rest of the authorisation, which is no refund and shows in none of the refund fields.

    Late effects (disputes, transfers, fees) start with the last one.
    """
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
        rate=objects.rate(intent["currency"]),
    )
    work.state.insert(row, type="charge", source=charge["id"])
    left = max(intent["amount_capturable"] - amount, 0)
    final = final or left == 0
    charge.update(captured=True, amount_captured=charge["amount_captured"] + amount, balance_transaction=row["id"])
    intent.update(amount_received=intent["amount_received"] + amount, amount_capturable=0 if final else left)
    work.state.save(charge)
    if not final:
        work.state.save(intent)
        work.emit("charge.updated", charge)
        return
    finish(work, intent, charge, stored.extra)


def finish(work: Work, intent: Body, charge: Body, effect: dict[str, Any]) -> None:
    """Nothing more is captured: what a captured payment sets in motion starts."""
    intent.update(status="succeeded", amount_capturable=0)
    if intent["amount_received"]:
        connect.settle_capture(work, intent, charge)
    charge["refunded"] = 0 < charge["amount_captured"] <= charge["amount_refunded"]
    work.state.save(charge)
    work.state.save(intent)
    work.emit("payment_intent.succeeded", intent)
    if "dispute" in effect:
        disputes.open_on(work, charge, effect["dispute"])


def fail(work: Work, intent: Body, decline_code: str, charge_id: str | None = None) -> Body:
    """An attempt that the issuer declined: a failed charge, which becomes the latest one."""
    charge = authorise(work, intent, {}, charge_id)
    message = "Your card was declined."
    charge.update(status="failed", paid=False, failure_code="card_declined", failure_message=message)
    charge["outcome"].update(network_status="declined_by_network", reason=decline_code, type="issuer_declined")
    error = {"charge": charge["id"], "code": "card_declined", "decline_code": decline_code, "message": message}
    error.update(doc_url="https://stripe.com/docs/error-codes/card-declined", type="card_error")
    intent.update(status="requires_payment_method", amount_capturable=0, payment_method=None, last_payment_error=error)
    work.state.save(charge)
    work.state.save(intent)
    work.emit("payment_intent.payment_failed", intent)
    return charge


def _decline(work: Work, intent: Body, decline_code: str) -> None:
    charge, message = fail(work, intent, decline_code), "Your card was declined."
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
    """POST .../capture: the whole, or `amount_to_capture`, which releases the rest unless `final_capture` is false."""
    reject_unknown(call.params, ("amount_to_capture", "application_fee_amount", "expand", "final_capture", "metadata"))
    asked, final = integer(call.params, "amount_to_capture", least=1), call.params.get("final_capture", "true") != "false"
    fee = integer(call.params, "application_fee_amount", least=0)
    intent = _by_path(call)
    if intent["status"] != "requires_capture":
        raise _unexpected_state(
            f"This PaymentIntent could not be captured because it has a status of {intent['status']}. Only a PaymentIntent "
            "with one of the following statuses may be captured: requires_capture.",
            intent,
        )
    stored = call.state.find("charge", intent["latest_charge"])
    card = {} if stored is None else stored.body["payment_method_details"].get("card") or {}
    if not final and "multicapture" not in card:
        raise invalid("final_capture can only be false where multicapture is available for this PaymentIntent.", param="final_capture")
    most = intent["amount_capturable"]
    if "overcapture" in card and not intent["amount_received"]:
        most = card["overcapture"]["maximum_amount_capturable"]
    if asked is not None and asked > most:
        message = "The amount to capture is greater than the amount that can be captured."
        raise invalid(message, code="amount_too_large", param="amount_to_capture")
    if asked is not None:
        check_granularity(asked, intent["currency"])
    if fee is not None:
        intent["application_fee_amount"] = fee
    intent["metadata"] = metadata(call.params, intent["metadata"])
    take(call, intent, intent["amount_capturable"] if asked is None else asked, final=final)
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
    """Cancels a PaymentIntent. Its charge is left as it was, not captured and not refunded; the event of it is `charge.expired`.

    Where a part was captured already (several captures), only what is left is released and the PaymentIntent has succeeded.
    """
    stored = work.state.find("charge", intent["latest_charge"] or "")
    if stored is not None and intent["status"] == "requires_capture":
        if intent["amount_received"]:
            finish(work, intent, stored.body, stored.extra)
            return
        work.emit("charge.expired", stored.body)
    intent.update(status="canceled", amount_capturable=0, canceled_at=work.now, cancellation_reason=reason)
    work.state.save(intent)
    work.emit("payment_intent.canceled", intent)
