"""Stripe's objects as plain dictionaries, keys in the order in which they were recorded.

Sources: keys and their order recorded against Stripe test mode 2026-09, API version 2026-08-26.dahlia; types from Stripe's
OpenAPI document of that version.
"""

import hashlib
import secrets
from typing import Any

API_VERSION = "2026-08-26.dahlia"
Body = dict[str, Any]

SETTLEMENT_CURRENCY = "cad"
SETTLEMENT_RATE = (13985, 10000)
"""CAD for one USD: the recorded account settles USD in CAD, and 60.00, 44.00 and 26.00 USD gave 83.91, 61.53, 36.36."""
REFERENCE_AFTER_SECONDS = 1
"""The acquirer's reference was `pending` in the first answer and there seconds later (recorded)."""


def new_id(prefix: str) -> str:
    return prefix + "3" + secrets.token_hex(12)


def settled(amount: int, currency: str) -> tuple[int, str]:
    """The amount and currency that reach the account's balance."""
    if currency != "usd":
        return amount, currency
    numerator, denominator = SETTLEMENT_RATE
    sign = -1 if amount < 0 else 1
    return sign * ((abs(amount) * numerator + denominator // 2) // denominator), SETTLEMENT_CURRENCY


def rate(currency: str) -> float | None:
    """The exchange rate that a balance transaction shows (a number in Stripe's JSON): settlement currency for one of this; None where nothing was exchanged."""
    numerator, denominator = SETTLEMENT_RATE
    return numerator / denominator if currency == "usd" else None


def balance_transaction(
    *,
    kind: str,
    category: str,
    amount: int,
    fee: int,
    currency: str,
    source: str,
    description: str,
    now: int,
    status: str,
    rate: float | None = None,
) -> Body:
    """`amount` and `fee` are already in the settlement currency."""
    details = {"amount": fee, "application": None, "currency": currency, "description": "", "type": "stripe_fee"}
    details["description"] = "Dispute fee" if category == "dispute" else "Stripe processing fees"
    return {
        "id": new_id("txn_"),
        "object": "balance_transaction",
        "amount": amount,
        "available_on": now,
        "balance_type": "payments",
        "created": now,
        "currency": currency,
        "description": description,
        "exchange_rate": rate,
        "fee": fee,
        "fee_details": [details] if fee else [],
        "net": amount - fee,
        "reporting_category": category,
        "source": source,
        "status": status,
        "type": kind,
    }


def refund(
    *,
    charge: Body,
    amount: int,
    reason: str | None,
    metadata: dict[str, str],
    status: str,
    transaction: str | None,
    now: int,
) -> Body:
    method = charge["payment_method_details"]["type"]
    destination: Body = {"type": method}
    if method == "card":
        card = {"reference_status": "pending", "reference_type": "acquirer_reference_number", "type": "refund"}
        destination = {"card": card, "type": "card"}
    else:
        destination = {method: {}, "type": method}
    return {
        "id": new_id("re_"),
        "object": "refund",
        "amount": amount,
        "balance_transaction": transaction,
        "charge": charge["id"],
        "created": now,
        "currency": charge["currency"],
        "customer": charge["customer"],
        "customer_account": None,
        "destination_details": destination,
        "metadata": metadata,
        "payment_intent": charge["payment_intent"],
        "payment_method": charge["payment_method"],
        "reason": reason,
        "receipt_number": None,
        "source_transfer_reversal": None,
        "status": status,
        "transfer_reversal": None,
    }


def reveal_reference(body: Body, now: int) -> None:
    """Fills in the card network's reference once it would be known. Depends on time alone, so nothing is stored."""
    card = body["destination_details"].get("card")
    waiting = card is not None and card["reference_status"] == "pending"
    if waiting and body["status"] == "succeeded" and now - body["created"] >= REFERENCE_AFTER_SECONDS:
        digest = int(hashlib.sha256(body["id"].encode()).hexdigest(), 16)
        body["destination_details"]["card"] = {
            "reference": str(digest % 10**16).zfill(16),
            "reference_status": "available",
            "reference_type": "acquirer_reference_number",
            "type": "refund",
        }


def _card(amount: int) -> Body:
    return {
        "amount_authorized": amount,
        "authorization_code": None,
        "brand": "visa",
        "checks": {"address_line1_check": None, "address_postal_code_check": None, "cvc_check": None},
        "country": "US",
        "exp_month": 12,
        "exp_year": 2034,
        "fingerprint": "sandboxfingerprint",
        "funding": "credit",
        "installments": None,
        "last4": "4242",
        "mandate": None,
        "network": "visa",
        "network_token": {"used": False},
        "network_transaction_id": None,
        "regulated_status": "unregulated",
        "three_d_secure": None,
        "wallet": None,
    }


def _billing_details() -> Body:
    address = dict.fromkeys(("city", "country", "line1", "line2", "postal_code", "state"))
    return {"address": address, "email": None, "name": None, "phone": None, "tax_id": None}


def _authorised_outcome(risk_level: str, risk_score: int) -> Body:
    return {
        "advice_code": None,
        "network_advice_code": None,
        "network_decline_code": None,
        "network_status": "approved_by_network",
        "reason": None,
        "risk_level": risk_level,
        "risk_score": risk_score,
        "seller_message": "Payment complete.",
        "type": "authorized",
    }


def charge(*, charge_id: str, intent: Body, captured: bool, method: str, risk_level: str, risk_score: int, transaction: str | None) -> Body:
    """A charge for the whole of its PaymentIntent, authorised or captured, nothing refunded."""
    amount = intent["amount"]
    return {
        "id": charge_id,
        "object": "charge",
        "amount": amount,
        "amount_captured": amount if captured else 0,
        "amount_refunded": 0,
        "application": None,
        "application_fee": None,
        "application_fee_amount": None,
        "balance_transaction": transaction,
        "billing_details": _billing_details(),
        "calculated_statement_descriptor": "SANDBOX",
        "captured": captured,
        "created": intent["created"],
        "currency": intent["currency"],
        "customer": intent["customer"],
        "description": intent["description"],
        "destination": None,
        "dispute": None,
        "disputed": False,
        "failure_balance_transaction": None,
        "failure_code": None,
        "failure_message": None,
        "fraud_details": {},
        "livemode": False,
        "metadata": intent["metadata"],
        "on_behalf_of": None,
        "order": None,
        "outcome": _authorised_outcome(risk_level, risk_score),
        "paid": True,
        "payment_intent": intent["id"],
        "payment_method": intent["payment_method"],
        "payment_method_details": {"card": _card(amount), "type": "card"} if method == "card" else {method: {}, "type": method},
        "radar_options": {},
        "receipt_email": intent["receipt_email"],
        "receipt_number": None,
        "receipt_url": f"https://pay.stripe.com/receipts/sandbox/{charge_id}",
        "refunded": False,
        "review": None,
        "shipping": None,
        "source": None,
        "source_transfer": None,
        "statement_descriptor": None,
        "statement_descriptor_suffix": None,
        "status": "succeeded",
        "transfer_data": None,
        "transfer_group": None,
    }


def payment_intent(
    *,
    intent_id: str,
    amount: int,
    currency: str,
    capture_method: str,
    customer: str | None,
    description: str | None,
    metadata: dict[str, str],
    method_types: list[str],
    payment_method: str | None,
    receipt_email: str | None,
    now: int,
) -> Body:
    """A PaymentIntent that nothing has happened to yet."""
    return {
        "id": intent_id,
        "object": "payment_intent",
        "amount": amount,
        "amount_capturable": 0,
        "amount_details": {"tip": {}},
        "amount_received": 0,
        "application": None,
        "application_fee_amount": None,
        "automatic_payment_methods": None,
        "canceled_at": None,
        "cancellation_reason": None,
        "capture_method": capture_method,
        "client_secret": f"{intent_id}_secret_sandbox",
        "confirmation_method": "automatic",
        "created": now,
        "currency": currency,
        "customer": customer,
        "customer_account": None,
        "description": description,
        "excluded_payment_method_types": None,
        "last_payment_error": None,
        "latest_charge": None,
        "livemode": False,
        "metadata": metadata,
        "next_action": None,
        "on_behalf_of": None,
        "payment_method": payment_method,
        "payment_method_configuration_details": None,
        "payment_method_options": {"card": {"request_three_d_secure": "automatic"}} if "card" in method_types else {},
        "payment_method_types": method_types,
        "processing": None,
        "receipt_email": receipt_email,
        "review": None,
        "setup_future_usage": None,
        "shipping": None,
        "source": None,
        "statement_descriptor": None,
        "statement_descriptor_suffix": None,
        "status": "requires_confirmation" if payment_method else "requires_payment_method",
        "transfer_data": None,
        "transfer_group": None,
    }


_EVIDENCE = (
    "access_activity_log billing_address cancellation_policy cancellation_policy_disclosure cancellation_rebuttal "
    "customer_communication customer_email_address customer_name customer_purchase_ip customer_signature "
    "duplicate_charge_documentation duplicate_charge_explanation duplicate_charge_id product_description receipt "
    "refund_policy refund_policy_disclosure refund_refusal_explanation service_date service_documentation shipping_address "
    "shipping_carrier shipping_date shipping_documentation shipping_tracking_number uncategorized_file uncategorized_text"
)
EVIDENCE_FIELDS = frozenset(_EVIDENCE.split())


def dispute(*, charge: Body, amount: int, status: str, inquiry: bool, now: int) -> Body:
    """A dispute before any money moved for it."""
    evidence: Body = dict.fromkeys(sorted(EVIDENCE_FIELDS))
    evidence["enhanced_evidence"] = {}
    return {
        "id": new_id("du_"),
        "object": "dispute",
        "amount": amount,
        "balance_transaction": None,
        "balance_transactions": [],
        "charge": charge["id"],
        "created": now,
        "currency": charge["currency"],
        "enhanced_eligibility_types": [],
        "evidence": evidence,
        "evidence_details": {
            "due_by": now + 7 * 86400,
            "enhanced_eligibility": {},
            "has_evidence": False,
            "past_due": False,
            "submission_count": 0,
        },
        "is_charge_refundable": inquiry,
        "livemode": False,
        "metadata": {},
        "payment_intent": charge["payment_intent"],
        "payment_method_details": {
            "card": {
                "brand": "visa",
                "case_type": "inquiry" if inquiry else "chargeback",
                "network": "visa",
                "network_reason_code": "10" if inquiry else "10.4",
            },
            "type": "card",
        },
        "reason": "fraudulent",
        "status": status,
    }


def event(*, kind: str, subject: Body, previous: Body | None, request: Body, pending_webhooks: int, now: int) -> Body:
    data: Body = {"object": subject}
    if previous is not None:
        data["previous_attributes"] = previous
    return {
        "id": new_id("evt_"),
        "object": "event",
        "api_version": API_VERSION,
        "created": now,
        "data": data,
        "livemode": False,
        "pending_webhooks": pending_webhooks,
        "request": request,
        "type": kind,
    }


def customer(*, given: Body, metadata: dict[str, str], now: int) -> Body:
    return {
        "id": new_id("cus_"),
        "object": "customer",
        "address": None,
        "balance": 0,
        "created": now,
        "currency": None,
        "default_source": None,
        "delinquent": False,
        "description": given.get("description"),
        "email": given.get("email"),
        "invoice_settings": {
            "custom_fields": None,
            "default_payment_method": None,
            "footer": None,
            "rendering_options": None,
        },
        "livemode": False,
        "metadata": metadata,
        "name": given.get("name"),
        "phone": given.get("phone"),
        "shipping": None,
        "tax_exempt": "none",
    }
