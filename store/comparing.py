"""The comparison itself: a page of the processor's refunds against our record, in one statement, whatever the page's size."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum
from typing import Any

from sqlalchemy import DateTime, Text, bindparam, text
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.ext.asyncio import AsyncConnection

from refunds.clock import rfc3339
from refunds.ids import Prefix, is_id
from refunds.processor import ProcessorRefund
from store.sql import Query, Row


class Verdict(StrEnum):
    """How one refund of the processor compares with the record."""

    EQUAL = "equal"
    ELSEWHERE = "elsewhere"  # of a payment that is not ours
    YOUNG = "young"  # being submitted just now: its receipt is on its way
    UNRECORDED = "unrecorded"  # of an operation of ours whose outcome we have not heard
    EXTERNAL = "external"
    UNKNOWN_OPERATION = "unknown_operation"
    UNKNOWN_PAYMENT = "unknown_payment"
    DUPLICATE = "duplicate"
    PAYMENT = "payment"
    CURRENCY = "currency"
    AMOUNT = "amount"
    STATUS = "status"


NO_DIFFERENCE = frozenset({Verdict.EQUAL, Verdict.ELSEWHERE, Verdict.YOUNG})
IMPORTED = frozenset({Verdict.EXTERNAL, Verdict.UNKNOWN_OPERATION})
FORGOTTEN = frozenset({Verdict.UNKNOWN_OPERATION, Verdict.UNKNOWN_PAYMENT})


@dataclass(frozen=True, slots=True)
class Finding:
    """A refund that is not simply as recorded. ``payment_id``, ``refund_id``: ours, where they are known. ``moved``: its state is not the one that our record
    shows, so the payment is worth a live look whatever else differs."""

    verdict: Verdict
    refund: ProcessorRefund
    payment_id: str | None
    refund_id: str | None
    moved: bool
    ours: dict[str, Any]
    charge: str | None = None
    look: str | None = None

    @property
    def evidence(self) -> dict[str, Any]:
        """What either side says, for a discrepancy."""
        return {"ours": self.ours, "theirs": theirs(self.refund), "look": self.look}

    def now(self, refund: ProcessorRefund) -> "Finding":
        """The same finding with the refund as it was read later."""
        return replace(self, refund=refund)

    def unexplained(self) -> "Finding":
        """The same finding after a live look at its payment that did not resolve it."""
        return replace(self, look="a live look at the payment did not bring the two together")


def theirs(refund: ProcessorRefund) -> dict[str, Any]:
    """The processor's side of a discrepancy's evidence."""
    return {
        "refund": refund.id,
        "payment": refund.processor_payment,
        "amount": refund.amount,
        "currency": refund.currency.upper(),
        "state": refund.raw_state,
        "operation": refund.operation,
        "created_at": refund.created_at,
    }


# A refund's operation is the recorded one, or, without a receipt, the one it names. What was approved counts, not only what the receipt said: a refund that
# came back different stays different. Every recorded refund that the list shows is marked, equal or not: it is not missing there.
_COMPARE = Query(
    text(
        """
    WITH theirs AS (
        SELECT * FROM jsonb_to_recordset(:page) AS t (place int, id text, operation text, ours_by_name boolean, payment text, charge text,
                                                      amount bigint, currency text, state text, raw_state text, created_at timestamptz)
    ), seen AS (
        SELECT t.*, p.id AS recorded, p.payment_id AS recorded_payment, p.raw_state AS recorded_state,
               coalesce(o.amount, p.amount) AS our_amount, coalesce(o.currency, p.currency) AS our_currency,
               coalesce(o.payment_id, p.payment_id) AS our_payment,
               o.id AS known_operation, o.refund_id, r.status AS refund_status, y.id AS their_payment,
               EXISTS (SELECT FROM processor_refunds q WHERE q.operation_id = t.operation AND q.id <> t.id) AS another,
               o.id IS NOT NULL AND o.kind = 'refund' AND r.revision = o.revision
                   AND r.status <> 'parked' AND r.status <> CASE t.state WHEN 'succeeded' THEN 'succeeded' WHEN 'failed' THEN 'failed'
                           WHEN 'canceled' THEN 'failed' WHEN 'unknown' THEN 'parked' ELSE 'pending' END AS status_differs
          FROM theirs t
          LEFT JOIN processor_refunds p ON p.id = t.id
          LEFT JOIN operations o ON o.id = coalesce(p.operation_id, t.operation)
          LEFT JOIN refunds r ON r.id = o.refund_id
          LEFT JOIN LATERAL (
              SELECT y.id FROM payments y WHERE y.processor = :processor AND y.processor_payment IN (t.payment, t.charge)
               ORDER BY y.id = coalesce(o.payment_id, p.payment_id) DESC NULLS LAST LIMIT 1) y ON true
    ), marked AS (
        UPDATE processor_refunds p SET compared_in = :run FROM seen WHERE p.id = seen.recorded AND p.compared_in IS DISTINCT FROM :run
    ), judged AS (
        SELECT seen.*,
               CASE WHEN recorded IS NULL AND known_operation IS NULL AND their_payment IS NULL
                         THEN CASE WHEN ours_by_name THEN 'unknown_payment' ELSE 'elsewhere' END
                    WHEN recorded IS NULL AND known_operation IS NULL
                         THEN CASE WHEN ours_by_name THEN 'unknown_operation' ELSE 'external' END
                    WHEN their_payment IS DISTINCT FROM our_payment THEN 'payment'
                    WHEN another THEN 'duplicate'
                    WHEN recorded IS NULL AND created_at > :young THEN 'young'
                    WHEN recorded IS NULL THEN 'unrecorded'
                    WHEN currency <> our_currency THEN 'currency'
                    WHEN amount <> our_amount THEN 'amount'
                    WHEN raw_state <> recorded_state OR status_differs THEN 'status'
                    ELSE 'equal' END AS verdict
          FROM seen
    )
    SELECT place, verdict, coalesce(their_payment, our_payment) AS payment_id, refund_id, our_amount, our_currency, recorded, recorded_state, refund_status,
           (SELECT processor_payment FROM payments WHERE payments.id = our_payment) AS our_processor_payment,
           recorded IS NULL OR raw_state <> recorded_state OR status_differs AS moved
      FROM judged WHERE verdict <> 'equal' ORDER BY place
    """
    ).bindparams(
        bindparam("page", type_=JSONB),
        bindparam("run", type_=Text),
        bindparam("processor", type_=Text),
        bindparam("young", type_=DateTime(timezone=True)),
    )
)


async def compare(
    connection: AsyncConnection,
    refunds: Sequence[ProcessorRefund],
    charges: dict[str, str],
    *,
    run: str,
    processor: str,
    young: datetime,
) -> list[Finding]:
    """Compare refunds as the processor shows them with the record, mark those that are recorded as seen in this run, and return what is not equal.

    ``charges`` gives the charge of a refund by the refund's id. A refund of ours without a receipt that was created after ``young`` is left to whoever is
    submitting it.
    """
    page = [
        {
            "place": place,
            "id": refund.id,
            "operation": refund.operation,
            "ours_by_name": is_id(refund.operation, Prefix.OPERATION),
            "payment": refund.processor_payment,
            "charge": charges.get(refund.id),
            "amount": refund.amount,
            "currency": refund.currency.upper(),
            "state": refund.state.value,
            "raw_state": refund.raw_state,
            "created_at": rfc3339(refund.created_at) if refund.created_at else None,
        }
        for place, refund in enumerate(refunds)
    ]
    rows = await _COMPARE.all(connection, page=page, run=run, processor=processor, young=young)
    return [_finding(row, refunds[row["place"]], charges.get(refunds[row["place"]].id)) for row in rows]


def _finding(row: Row, refund: ProcessorRefund, charge: str | None) -> Finding:
    ours = {
        "refund": row["refund_id"],
        "status": row["refund_status"],
        "payment": row["our_processor_payment"],
        "amount": row["our_amount"],
        "currency": row["our_currency"],
        "state": row["recorded_state"],
    }
    return Finding(Verdict(row["verdict"]), refund, row["payment_id"], row["refund_id"], bool(row["moved"]), ours, charge)
