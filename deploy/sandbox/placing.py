"""Payments as the control API asks for them: in any state and shape, without a customer who pays."""

from typing import Any

from deploy.sandbox import connect, lives, objects, payments
from deploy.sandbox.currency import check_currency, check_granularity
from deploy.sandbox.objects import Body
from deploy.sandbox.scopes import scope
from deploy.sandbox.words import words
from deploy.sandbox.work import Work

FIELDS = words("""account amount application_fee_amount captured captures charge created currency customer description failed_after failed_before id legacy
    livemode metadata on_behalf_of open overcapture payment_method_type refund_outcome refund_window_days risk_level risk_score status transfer_data transfer_group""")
STATUSES = words("""succeeded requires_capture processing requires_payment_method requires_confirmation requires_action canceled""")
_EFFECTS = ("refund_outcome", "refund_window_days", "risk_level", "risk_score")


def place(work: Work, wanted: dict[str, Any]) -> tuple[Body | None, Body | None]:
    """The PaymentIntent (None for a legacy charge) and the charge that counts (None where there is none).

    Raises ValueError for what cannot be, and sqlite3.IntegrityError where an id is taken.
    """
    check(work, wanted)
    with work.state.acting_for(scope(wanted.get("account"), live=bool(wanted.get("livemode")))):
        return _legacy(work, wanted) if wanted.get("legacy") else _placed(work, wanted)


def check(work: Work, wanted: dict[str, Any]) -> None:
    """Raises ValueError for a payment that cannot be."""
    amount, currency = wanted["amount"], check_currency(wanted["currency"])
    captures = captures_of(wanted)
    if type(amount) is not int or amount < 1 or any(not isinstance(part, int) or part < 0 for part in captures or ()):
        raise ValueError("amount is a positive whole number of minor units; captured and captures are whole numbers or null")
    most = payments.overcapturable(amount) if wanted.get("overcapture") else amount
    if sum(captures or ()) > most:
        raise ValueError(f"at most {most} can be captured; overcapture adds {payments.OVERCAPTURE_PERCENT} percent")
    if wanted.get("status") not in (None, *STATUSES):
        raise ValueError(f"status is one of {sorted(STATUSES)}")
    if wanted.get("failed_after") and (wanted.get("open") or captures == [0] or wanted.get("status") not in (None, "succeeded")):
        raise ValueError("failed_after: only a payment that is wholly captured can have later attempts")
    check_granularity(amount, currency)
    if not all(isinstance(value, str) for value in (wanted.get("metadata") or {}).values()):
        raise ValueError("metadata values are strings")
    if wanted.get("refund_outcome"):
        lives.check(wanted["refund_outcome"])
    for account in (wanted.get("account"), (wanted.get("transfer_data") or {}).get("destination")):
        if account is not None and account not in connect.accounts(work.state):
            raise ValueError(f"{account} is not a connected account; place it first")


def captures_of(wanted: dict[str, Any]) -> list[int] | None:
    """What was captured, one number a capture; None is the whole in one."""
    if wanted.get("captures") is not None:
        return list(wanted["captures"])
    return None if wanted.get("captured") is None else [wanted["captured"]]


def _placed(work: Work, wanted: dict[str, Any]) -> tuple[Body, Body | None]:
    status, captures = wanted.get("status"), captures_of(wanted)
    intent = _intent(work, wanted)
    work.state.insert(intent, customer=intent["customer"])
    if status not in (None, "succeeded", "requires_capture"):
        intent["status"] = status
        if status == "canceled":
            intent["canceled_at"] = work.now
        work.state.save(intent)
        return intent, None
    effect: dict[str, Any] = {name: wanted[name] for name in _EFFECTS if wanted.get(name) is not None}
    several = len(captures or ()) > 1 or bool(wanted.get("open"))
    effect |= {name: True for name, there in (("multicapture", several), ("overcapture", bool(wanted.get("overcapture")))) if there}
    charge_id = wanted.get("charge") or "ch_" + intent["id"].removeprefix("pi_")
    for number in range(wanted.get("failed_before", 0)):
        payments.fail(work, intent, "generic_decline", f"{charge_id}_failed{number + 1}")
    method = wanted.get("payment_method_type") or "card"
    intent.update(payment_method=objects.new_id("pm_"), last_payment_error=None)
    payments.authorise(work, intent, effect, charge_id, method)
    if status != "requires_capture":
        parts = [intent["amount"]] if captures is None else [part for part in captures if part]
        for number, part in enumerate(parts, 1):
            payments.take(work, intent, part, final=number == len(parts) and not wanted.get("open"))
    _fail_afterwards(work, intent, charge_id, wanted.get("failed_after", 0))
    return intent, work.state.expect("charge", charge_id)


def _fail_afterwards(work: Work, intent: Body, charge_id: str, times: int) -> None:
    """Attempts that the processor shows as later than the one that took the money: the payment stays as it is, but another charge is the latest."""
    kept = {name: intent[name] for name in ("status", "amount_capturable", "payment_method", "last_payment_error")}
    for number in range(times):
        payments.fail(work, intent, "generic_decline", f"{charge_id}_later{number + 1}")
    if times:
        intent.update(kept)
        work.state.save(intent)


def _intent(work: Work, wanted: dict[str, Any]) -> Body:
    whole = captures_of(wanted) is None and not wanted.get("open")
    intent = objects.payment_intent(
        intent_id=wanted.get("id") or objects.new_id("pi_"),
        amount=wanted["amount"],
        currency=check_currency(wanted["currency"]),
        capture_method="automatic_async" if whole else "manual",
        customer=wanted.get("customer"),
        description=wanted.get("description"),
        metadata=wanted.get("metadata") or {},
        method_types=[wanted.get("payment_method_type") or "card"],
        payment_method=objects.new_id("pm_"),
        receipt_email=None,
        now=wanted.get("created") or work.now,
    )
    for name in ("transfer_data", "application_fee_amount", "on_behalf_of", "transfer_group"):
        intent[name] = wanted.get(name)
    return intent


def _legacy(work: Work, wanted: dict[str, Any]) -> tuple[None, Body]:
    """A charge as it was made before there were PaymentIntents: captured at once or not at all."""
    intent = _intent(work, wanted | {"id": "pi_none"})
    intent["id"] = None
    charge = objects.charge(
        charge_id=wanted.get("charge") or wanted.get("id") or objects.new_id("ch_"),
        intent=intent,
        captured=False,
        method=wanted.get("payment_method_type") or "card",
        risk_level=wanted.get("risk_level") or "normal",
        risk_score=payments.RISK_SCORES["normal"],
        transaction=None,
    )
    parts = captures_of(wanted)
    taken = wanted["amount"] if parts is None else sum(parts)
    charge.update(captured=taken > 0, amount_captured=taken)
    work.state.insert(charge, {name: wanted[name] for name in _EFFECTS if wanted.get(name) is not None}, customer=charge["customer"])
    return None, charge
