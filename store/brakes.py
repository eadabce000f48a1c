"""What keeps an approved refund back just now: the stop, draft mode, a halt of its processor, or its payment. Read anew whenever it matters."""

from sqlalchemy import bindparam, literal, literal_column, select
from sqlalchemy.ext.asyncio import AsyncConnection

from refunds.discrepancies import Kind, Standing
from refunds.errors import Code
from refunds.ids import Prefix, is_id
from refunds.processor import MANUAL
from refunds.status import Status
from store import controls, halts, restoring
from store.sql import Query, pipelined
from store.tables import discrepancies, refunds

_NOT_AS_APPROVED = [literal(code.value) for code in (Code.RESPONSE_MISMATCH, Code.REFUNDED_TWICE)]
_DOUBTS = Query(
    select(refunds.c.id)
    .where(
        refunds.c.payment_id == bindparam("payment"),
        refunds.c.status == literal(Status.PARKED.value),
        refunds.c.code.in_(_NOT_AS_APPROVED),
        refunds.c.id != bindparam("besides"),
    )
    .union_all(
        select(discrepancies.c.id).where(
            discrepancies.c.payment_id == bindparam("payment"),
            discrepancies.c.kind == literal(Kind.UNKNOWN_OPERATION.value),
            discrepancies.c.state != literal(Standing.CLOSED.value),
        )
    )
    .order_by("id")
    .limit(literal_column("1"))
)

CODES = frozenset({Code.EMERGENCY_STOP, Code.DRAFT_MODE, Code.PROCESSOR_HALTED, Code.PAYMENT_HELD})
"""The codes of all of them."""

Brake = tuple[Code, str]
"""Why something is kept back: the code and words for people."""


async def of_everything(connection: AsyncConnection, processor: str) -> Brake | None:
    """What keeps every refund of a processor back, or ``None``. What cannot be read raises, and then nothing is sent.

    Manual parts have no processor to be halted, but a database that may have forgotten something may have forgotten who was told to give money back, too.
    """
    async with pipelined(connection):
        controlling = await controls.READ.ask(connection)
        by_hand = processor == MANUAL
        halting = await (restoring.IN_DOUBT.ask(connection) if by_hand else halts.IN_FORCE.ask(connection, processor=processor))
    control, halt = controls.Control(**await controlling.one()), await halting.first()
    if control.stopped:
        return Code.EMERGENCY_STOP, "an operator has stopped all refunds"
    if control.mode == "draft":
        return Code.DRAFT_MODE, "the installation is in draft mode, in which nothing is sent"
    return None if halt is None else (Code.PROCESSOR_HALTED, f"submitting is halted ({halt['code']}): {halt['reason']}")


async def of_payment(connection: AsyncConnection, payment_id: str, *, besides: str) -> Brake | None:
    """What keeps back every refund of a payment but the one ``besides``, or ``None``: another that is parked because it is not what was approved, or one that
    the database had forgotten and nobody has judged."""
    found = await _DOUBTS.first(connection, payment=payment_id, besides=besides)
    if found is None:
        return None
    if is_id(found["id"], Prefix.DISCREPANCY):
        return Code.PAYMENT_HELD, f"the processor shows a refund of this payment that the database had forgotten; close {found['id']} first"
    return Code.PAYMENT_HELD, f"{found['id']} of the same payment is not what was approved; it has to be settled first"
