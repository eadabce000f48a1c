"""Refunds by the thousand, as an account has them that is years old: what a sweep of the whole account is tried on.

They are the truth like any other (lists, charges and totals show them), but they were made before anybody looked: no request is logged, no webhook is
sent and no balance is touched.
"""

from typing import Any

from deploy.sandbox import charges, lives, objects, placing, refunds
from deploy.sandbox.objects import Body
from deploy.sandbox.words import words
from deploy.sandbox.work import Work

FIELDS = words("id payment_intent amount currency created metadata status failure_reason")


def refunds_of_old(work: Work, wanted: list[dict[str, Any]]) -> list[str]:
    """Makes all refunds of the list, or none; in the caller's transaction. Returns their ids, in order.

    A payment that is not there yet is placed, captured, with exactly what this list refunds of it and at the time of its first one. Raises
    ValueError for what cannot be (more than is left of a payment), and sqlite3.IntegrityError where an id is taken.
    """
    firsts: dict[str, dict[str, Any]] = {}
    totals: dict[str, int] = {}
    for item in wanted:
        _check(item)
        intent = item["payment_intent"]
        firsts.setdefault(intent, item)
        totals[intent] = totals.get(intent, 0) + item["amount"]
    charges = {intent: _charge(work, first, totals[intent]) for intent, first in firsts.items()}
    made = [_made(work, charges[item["payment_intent"]], item) for item in wanted]
    for charge in charges.values():
        charge["refunded"] = charge["amount_refunded"] >= charge["amount_captured"]
        work.state.save(charge)
    return made


def _check(item: dict[str, Any]) -> None:
    amount, metadata, status = item.get("amount"), item.get("metadata") or {}, item.get("status", "succeeded")
    unknown = set(item) - FIELDS
    if unknown or not isinstance(item.get("payment_intent"), str):
        raise ValueError(f"a refund has a payment_intent and of {sorted(FIELDS)}; unknown: {sorted(unknown)}")
    if type(amount) is not int or amount < 1 or type(item.get("created", 0)) is not int:
        raise ValueError("amount is a positive whole number of minor units, created a whole number of seconds")
    if status not in lives.STATUSES or not all(isinstance(value, str) for value in metadata.values()):
        raise ValueError(f"status is one of {sorted(lives.STATUSES)}, metadata values are strings")


def _charge(work: Work, first: dict[str, Any], total: int) -> Body:
    intent_id = first["payment_intent"]
    intent = work.state.get("payment_intent", intent_id)
    if intent is None:
        payment = {"id": intent_id, "amount": total, "currency": first.get("currency", "usd"), "created": first.get("created")}
        _, charge = placing.place(work, payment)
        assert charge is not None
        return charge
    charge_id = charges.of_intent(work.state, intent)
    if charge_id is None:
        raise ValueError(f"{intent_id} has no charge")
    return work.state.expect("charge", charge_id)


def _made(work: Work, charge: Body, item: dict[str, Any]) -> str:
    status = item.get("status", "succeeded")
    body = objects.refund(
        charge=charge,
        amount=item["amount"],
        reason=None,
        metadata=item.get("metadata") or {},
        status=status,
        transaction=None,
        now=item.get("created", work.now),
    )
    body["id"] = item.get("id") or body["id"]
    refunds.describe(body, item.get("failure_reason"))
    if status in lives.COUNTED:
        charge["amount_refunded"] += item["amount"]
    if charge["amount_refunded"] > charge["amount_captured"]:
        raise ValueError(f"charge {charge['id']} has less than {item['amount']} left")
    work.state.insert(body, charge=charge["id"], payment_intent=charge["payment_intent"], customer=charge["customer"])
    return body["id"]
