"""What our own refunds already claim of a payment: the store's half of promise P2. Read it only with the payment locked."""

from collections.abc import Sequence
from typing import Any

from sqlalchemy import ARRAY, Text, any_, bindparam, select
from sqlalchemy.ext.asyncio import AsyncConnection

from refunds.processor import PaymentState
from refunds.refundable import Claim, Refundable, refundable
from refunds.status import RESERVING, Status
from store.sql import Query, Row
from store.tables import operations, processor_refunds, refunds, revisions

_CLAIMING = sorted(status.value for status in RESERVING | {Status.SUCCEEDED})


CLAIMS = Query(
    select(refunds.c.id, revisions.c.amount, operations.c.id.label("operation"), processor_refunds.c.id.label("processor_refund"))
    .join(revisions, (revisions.c.refund_id == refunds.c.id) & (revisions.c.revision == refunds.c.revision))
    .outerjoin(operations, (operations.c.refund_id == refunds.c.id) & (operations.c.revision == refunds.c.revision))
    .outerjoin(processor_refunds, processor_refunds.c.operation_id == operations.c.id)
    .where(
        refunds.c.payment_id == bindparam("payment"),  # the present revision's, and indexed
        refunds.c.status == any_(bindparam("claiming", type_=ARRAY(Text))),
        refunds.c.id != bindparam("besides"),
    )
    .order_by(refunds.c.id)
)


async def refundable_of(connection: AsyncConnection, payment_id: str, state: PaymentState, *, besides: str | None = None) -> Refundable:
    """What is still refundable of a payment, leaving out the refund ``besides`` itself.

    Succeeded refunds claim too: a reading taken just before they succeeded does not show them yet, and they must not be counted as free.
    """
    return fold(state, await CLAIMS.all(connection, **claiming(payment_id, besides=besides)))


def claiming(payment_id: str, *, besides: str | None = None) -> dict[str, Any]:
    """What :data:`CLAIMS` is asked for one payment, leaving out the refund ``besides``."""
    return {"payment": payment_id, "claiming": _CLAIMING, "besides": besides or ""}


def fold(state: PaymentState, rows: Sequence[Row]) -> Refundable:
    """Fold a reading and the rows of :data:`CLAIMS` to what is still refundable."""
    return refundable(state, [Claim(row["id"], row["amount"], row["operation"], row["processor_refund"]) for row in rows])
