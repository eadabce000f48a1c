"""Stripe's JSON in our words. Every field that is used is looked at strictly: its type, and which object it belongs to.

What is not of the expected shape raises ``KeyError``, ``TypeError`` or ``ValueError``; nothing is guessed. Shapes: Stripe's OpenAPI description of API version
2026-08-26.dahlia, and what its test mode was recorded to answer (2026-09).
"""

import json
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, cast

from refunds.fitting import payer_of
from refunds.processor import DisputeState, PaymentStatus, ProcessorRefund, RefundPage, RefundState, Settlement
from refunds.submission import METADATA_OPERATION

Json = dict[str, Any]

_PAYMENT_STATUS = {
    "succeeded": PaymentStatus.CAPTURED,
    "requires_capture": PaymentStatus.AUTHORISED,
    "processing": PaymentStatus.PROCESSING,
    "canceled": PaymentStatus.CANCELED,
    "requires_action": PaymentStatus.INCOMPLETE,
    "requires_confirmation": PaymentStatus.INCOMPLETE,
    "requires_payment_method": PaymentStatus.INCOMPLETE,
}
_DISPUTES = {
    "needs_response": DisputeState.OPEN,
    "under_review": DisputeState.OPEN,
    "lost": DisputeState.LOST,
    "warning_needs_response": DisputeState.INQUIRY,
    "warning_under_review": DisputeState.INQUIRY,
    "warning_closed": DisputeState.NONE,
    "won": DisputeState.NONE,
    "prevented": DisputeState.NONE,
}
_LONGEST = 500
"""Characters; Stripe's own bound for a value of metadata, and far above any id."""
_STRONGEST = (DisputeState.OPEN, DisputeState.LOST, DisputeState.UNKNOWN, DisputeState.INQUIRY, DisputeState.NONE)


def an_object(value: object, kind: str) -> Json:
    """The value, if it is an object of Stripe's of this kind."""
    if not isinstance(value, dict) or value.get("object") != kind:
        raise TypeError(f"not a {kind}")
    return cast(Json, value)


def text(found: Json, field: str) -> str:
    """A field that is a word: printable, and of a length that an id or a status has. Nothing else reaches a column or a path."""
    value = found[field]
    if not isinstance(value, str):
        raise TypeError(f"{field} is not text")
    if not value.isprintable() or len(value) > _LONGEST:
        raise ValueError(f"{field} is not a word")
    return value


def page(value: object, kind: str) -> tuple[list[Json], bool]:
    """The objects of one page of a list, and whether there are more behind it."""
    listed = an_object(value, "list")
    data, more = listed["data"], listed["has_more"]
    if not isinstance(data, list) or not isinstance(more, bool):
        raise TypeError("not a list")
    if more and not data:
        raise ValueError("an empty page that is not the last")
    return [an_object(one, kind) for one in cast(list[object], data)], more


def charges_shown(value: object, intent_id: str) -> list[Json] | None:
    """The charges that a PaymentIntent shows by itself, where they account for what was received: its latest one, or none.

    ``None``: another charge took the money, and all of them have to be listed.
    """
    found = _the(an_object(value, "payment_intent"), intent_id)
    latest, received = found["latest_charge"], amount(found, "amount_received")
    shown = [] if latest is None or isinstance(latest, str) else [an_object(latest, "charge")]
    return shown if sum(taken(charge) for charge in shown) == received else None


def intent(value: object, intent_id: str, charges: list[Json]) -> Json:
    """What a PaymentIntent and its charges say of the payment: fields of ``PaymentState``.

    There are several charges where attempts failed; the latest one need not be the one that took the money. Where the PaymentIntent and its charges say
    different sums, the smaller one counts: nobody is paid out of the difference. A reading in which no charge says that it took anything yet is one in the
    middle of a capture: then the PaymentIntent's word counts, and the processor refuses what is not there.
    """
    found = _the(an_object(value, "payment_intent"), intent_id)
    status, received = text(found, "status"), amount(found, "amount_received")
    if any(text_or_none(charge, "payment_intent") not in (None, intent_id) for charge in charges):
        raise ValueError("charges of another payment than the one asked for")
    taking = [charge for charge in charges if taken(charge)]
    captured = min(received, sum(taken(charge) for charge in taking)) or received
    charge = next(iter(taking or charges), None)
    meaning = _PAYMENT_STATUS.get(status, PaymentStatus.UNKNOWN)
    if captured and meaning in (PaymentStatus.AUTHORISED, PaymentStatus.CANCELED):
        # Several captures: a part was taken, and the rest may still be, or was let go.
        meaning = PaymentStatus.CAPTURED
    return {
        "status": meaning,
        "raw_status": status,
        "currency": text(found, "currency").upper(),
        "captured": captured,
        "capturable": amount(found, "amount_capturable"),
        "charge": text(charge, "id") if charge else None,
        "risk_level": _risk(charge),
        "payer": _payer(found),
        **_card(charge),
        **_sent_on(charge),
    }


def charge(value: object, charge_id: str) -> Json:
    """What a charge says of the payment: fields of ``PaymentState``."""
    found = _the(an_object(value, "charge"), charge_id)
    status, captured = text(found, "status"), taken(found)
    # An uncaptured charge without a PaymentIntent has no call that releases the whole and nothing else: a person looks.
    return {
        "status": PaymentStatus.CAPTURED if captured else PaymentStatus.UNKNOWN,
        "raw_status": status if captured else f"{status}, not captured",
        "currency": text(found, "currency").upper(),
        "captured": captured,
        "capturable": 0,
        "charge": charge_id,
        "risk_level": _risk(found),
        "payer": _payer(found),
        **_card(found),
        **_sent_on(found),
    }


def taken(charge: Json) -> int:
    """What a charge took: by its amount, because ``captured`` may mean the last of several captures."""
    if not isinstance(charge["captured"], bool):
        raise TypeError("captured is neither true nor false")
    return amount(charge, "amount_captured") if text(charge, "status") == "succeeded" else 0


def strongest(disputes: list[Json]) -> DisputeState:
    """The dispute that decides; one whose status is not known is unknown, never none."""
    found = {_DISPUTES.get(str(dispute["status"]), DisputeState.UNKNOWN) for dispute in disputes}
    return next(state for state in _STRONGEST if state in found or state is DisputeState.NONE)


def is_release(found: Json) -> bool:
    """Whether this says that an authorisation expired: no money was taken, so none was returned.

    Stripe made refunds of what it released until API version 2025-03-31.basil, and such old ones are still listed. One for the rest of a partial capture
    cannot be told from a refund; it counts as one, which makes the ceiling lower and never higher.
    """
    return found.get("reason") == "expired_uncaptured_charge"


def refund(value: object, processor_payment: str | None = None) -> ProcessorRefund:
    """A refund. Its payment is compared by the id that was asked with: the PaymentIntent or the charge."""
    found = an_object(value, "refund")
    refund_id = text(found, "id")
    if not refund_id.startswith(("re_", "pyr_")):
        raise ValueError("not a refund's id")
    shown = (text_or_none(found, "payment_intent"), text_or_none(found, "charge"))
    status = found["status"]  # null is a status of its own, and unknown
    try:
        state = RefundState(status)
    except ValueError:
        state = RefundState.UNKNOWN
    metadata = found["metadata"]
    if metadata is not None and not isinstance(metadata, dict):
        raise TypeError("metadata is not an object")
    return ProcessorRefund(
        id=refund_id,
        processor_payment=processor_payment if processor_payment in shown and processor_payment else shown[0] or shown[1] or "",
        amount=amount(found, "amount"),
        currency=text(found, "currency").upper(),
        state=state,
        raw_state=free_text(found, "status") or "" if isinstance(status, str) else json.dumps(status)[:_LONGEST],
        operation=free_text(cast(Json, metadata or {}), METADATA_OPERATION),
        failure_reason=free_text(found, "failure_reason"),
        created_at=datetime.fromtimestamp(whole(found, "created"), UTC),
    )


def settlement(value: object) -> Settlement | None:
    """What a refund took from the balance, of a refund whose balance transactions are expanded. ``None``: nothing yet. Fractions are ``Decimal``, not floats."""
    found = an_object(value, "refund")
    if found["balance_transaction"] is None:
        return None
    taken_out = an_object(found["balance_transaction"], "balance_transaction")
    back = found.get("failure_balance_transaction")
    rate = taken_out["exchange_rate"]
    if rate is not None and (isinstance(rate, bool) or not isinstance(rate, int | Decimal) or rate <= 0):
        raise TypeError("exchange_rate is not a number above zero")
    out = whole(taken_out, "amount")
    if out > 0:
        raise ValueError("a refund that brought money in")
    return Settlement(
        processor_refund=text(found, "id"),
        presentment_amount=amount(found, "amount"),
        presentment_currency=text(found, "currency").upper(),
        settlement_amount=-out,
        settlement_currency=text(taken_out, "currency").upper(),
        rate=None if rate is None else format(Decimal(rate), "f"),
        fee=whole(taken_out, "fee"),
        returned=0 if back is None else amount(an_object(back, "balance_transaction"), "amount"),
    )


def refund_page(value: object, *, first: int, end: int, after: str | None) -> RefundPage:
    """A page of the account's refunds created from ``first`` on and before ``end`` (seconds since 1970), behind the refund ``after``."""
    listed, more = page(value, "refund")
    refunds = tuple(refund(found) for found in listed if not is_release(found))
    if any(not first <= whole(found, "created") < end for found in listed):
        raise ValueError("refunds of another time than the one asked for")
    if after in {text(found, "id") for found in listed}:
        raise ValueError("a list that does not end")
    charges = {text(found, "id"): text(found, "charge") for found in listed if found.get("charge") is not None}
    return RefundPage(refunds, text(listed[-1], "id") if more else None, charges)


def _the(found: Json, asked: str) -> Json:
    if found["id"] != asked:
        raise ValueError("another object than the one asked for")
    return found


def whole(found: Json, field: str) -> int:
    value = found[field]
    if type(value) is not int:  # neither true, nor 30.0
        raise TypeError(f"{field} is not a whole number")
    return value


def amount(found: Json, field: str) -> int:
    value = whole(found, field)
    if value < 0:
        raise ValueError(f"{field} is below zero")
    return value


def free_text(found: Json, field: str) -> str | None:
    """A field that strangers may write (metadata), or whose words may grow: kept readable, never a reason not to read the rest."""
    value = found.get(field)
    if value is None:
        return None
    if not isinstance(value, str):
        raise TypeError(f"{field} is not text")
    return "".join(letter if letter.isprintable() else "?" for letter in value[:_LONGEST])


def text_or_none(found: Json, field: str) -> str | None:
    return None if found.get(field) is None else text(found, field)


def _sent_on(charge: Json | None) -> Json:
    """What a charge names of a marketplace: the transfer that was made together with it, and the platform's fee."""
    return {name: text_or_none(charge or {}, name) for name in ("transfer", "application_fee")}


def _risk(found: Json | None) -> str:
    return text_or_none(_inside(found, "outcome"), "risk_level") or "unknown"


def _payer(found: Json) -> str:
    """The hash of the customer at Stripe that a PaymentIntent or charge is of; empty for a guest. An expanded customer is asked for nowhere."""
    customer = text_or_none(found, "customer")
    return payer_of(customer) if customer else ""


def _inside(found: Json | None, field: str) -> Json:
    """An object inside another; an empty one where there is none."""
    value = found.get(field) if found else None
    if value is not None and not isinstance(value, dict):
        raise TypeError(f"{field} is not an object")
    return cast(Json, value or {})


def _card(charge: Json | None) -> Json:
    """What a charge says of its card that is nobody's name or number: the country that issued it, and which of the issuer's checks failed."""
    card = _inside(_inside(charge, "payment_method_details"), "card")
    checks = _inside(card, "checks")
    failed = [name for name in ("cvc", "address_line1", "address_postal_code") if text_or_none(checks, f"{name}_check") == "fail"]
    return {"country": text_or_none(card, "country") or "", "failed_checks": tuple(failed)}
