"""What one quote is for: the request itself, the same wish again, or a reviewer's revision of it."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncConnection

from refunds.allocation import NO_UNITS, Units
from refunds.classification import Reading, Source
from refunds.errors import Code, RefundError
from refunds.marketplace import NO_WISH, Wish
from refunds.money import requested
from refunds.reasons import Reason
from refunds.sources import named_by
from store.changes import Change
from store.facts import StoredReading
from store.lines import units_of
from store.sql import Row
from store.tables import payments


@dataclass(frozen=True, slots=True)
class Asked:
    """What one quote is for. ``amount`` is ``None`` for what is left of the payment (``full``), or when nobody could tell how much.

    ``author`` wrote these terms; ``by_customer`` says that they are the request itself and not a reviewer's revision of it. ``units`` are the order's
    lines and shipping that the request names; ``by_lines`` says that they alone tell the amount. ``wish`` are the legs asked for beside the refund.
    ``named`` are the fields that a revision names, ``stated`` what was said of where they come from (:mod:`refunds.sources`).
    """

    payment_id: str
    amount: int | None
    full: bool
    reason: Reason | None
    author: str
    by_customer: bool
    reason_by_fraud_role: bool = False
    extracted: bool = False
    units: Units = NO_UNITS
    by_lines: bool = False
    wish: Wish = NO_WISH
    named: tuple[str, ...] = ()
    stated: Mapping[str, str] = field(default_factory=dict[str, str])


def asked_at_first(change: Change, stored: StoredReading | None, payment_id: str) -> Asked:
    """What the request itself asks for: the caller's fields, or for a ticket what the reader found."""
    row, units = change.row, units_of(change["details"])
    asked = Asked(
        payment_id=payment_id,
        amount=row["amount"],
        full=row["full"],
        reason=Reason(row["reason"]) if row["reason"] else None,
        author=row["requester_id"],
        by_customer=True,
        units=units,
        by_lines=bool(units) and row["amount"] is None and not row["full"],
        wish=wish_of(row),
    )
    if row["details"]["kind"] != "ticket":
        return asked
    reading = stored.reading if stored else None
    return replace(asked, amount=_amount_read(reading, change["currency"]), reason=reading.reason if reading else None, extracted=True)


def _amount_read(reading: Reading | None, currency: str | None) -> int | None:
    """The amount a reader found, if it can be meant: in the payment's currency and sendable; otherwise a person states it."""
    if reading is None or reading.amount is None or currency is None or (reading.currency or currency).upper() != currency:
        return None
    try:
        return requested(reading.amount, currency).amount
    except RefundError:
        return None


def asked_again(change: Change, revision: Row) -> Asked:
    """What to quote when terms lapsed or the payment changed meanwhile: the same wish by the same author."""
    row, by_lines = change.row, _priced_by_lines(change)
    return Asked(
        payment_id=row["payment_id"],
        amount=None if row["full"] or by_lines else row["amount"],
        full=row["full"],
        reason=Reason(row["reason"]) if row["reason"] else None,
        author=revision["author_id"],
        by_customer=revision["author_id"] == row["requester_id"],
        reason_by_fraud_role=row["reason_by_fraud_role"],
        extracted=row["details"]["kind"] == "ticket",
        units=NO_UNITS if row["full"] else units_of(row["details"]),
        by_lines=by_lines,
        wish=wish_of(row),
    )


def wish_of(row: Row) -> Wish:
    """Which legs a refund is to have by now."""
    return Wish(row["reverse_transfer"], row["refund_application_fee"])


def _priced_by_lines(change: Change) -> bool:
    """Whether the present amount was worked out from lines: then it is worked out again with every quote, until a person states another."""
    return change["sources"].get("amount") == Source.SYSTEM_OF_RECORD.value


async def resolve_revision(connection: AsyncConnection, change: Change, body: dict[str, Any], *, author: str, by_fraud_role: bool) -> Asked:
    """What a reviewer's recorded revision asks for: what it names, the rest as before. Raises what makes it impossible."""
    payment_id = body.get("payment") or change["payment_id"]
    if payment_id is None:
        raise RefundError(Code.PAYMENT_NOT_FOUND, "Name the payment_id this refund is about.", field="payment_id")
    payment = (await connection.execute(select(payments).where(payments.c.id == payment_id))).mappings().one()
    if body.get("currency") and body["currency"] != payment["currency"]:
        raise RefundError(Code.CURRENCY_MISMATCH, f"The payment is in {payment['currency']}.", field="currency")
    full = bool(body.get("full")) or (body.get("amount") is None and bool(change["full"]))
    reason = body.get("reason") or change["reason"]
    by_lines = body.get("amount") is None and not full and _priced_by_lines(change)
    return Asked(
        payment_id=payment_id,
        amount=None if full or by_lines else body.get("amount") or change["amount"],
        full=full,
        reason=Reason(reason) if reason else None,
        author=author,
        by_customer=False,
        reason_by_fraud_role=by_fraud_role if body.get("reason") else bool(change["reason_by_fraud_role"]),
        units=NO_UNITS if full else units_of(change["details"]),
        by_lines=by_lines,
        wish=revised_wish(change.row, body),
        named=tuple(named_by(body)),
        stated=body.get("sources") or {},
    )


def revised_wish(row: Row, body: Mapping[str, Any]) -> Wish:
    """Which legs the refund is to have after a recorded revision; what it does not name stays."""
    named = {name: row[name] if body.get(name) is None else body[name] for name in ("reverse_transfer", "refund_application_fee")}
    return Wish(**named)
