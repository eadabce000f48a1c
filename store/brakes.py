"""What keeps an approved refund back just now: the stop, draft mode, a halt of its processor, or its payment. Read anew whenever it matters."""

from sqlalchemy.ext.asyncio import AsyncConnection

from refunds.errors import Code
from refunds.ids import Prefix, is_id
from store import controls, halts
from store.sql import Row, pipelined

Brake = tuple[Code, str]
"""Why something is kept back: the code and words for people."""


async def of_everything(connection: AsyncConnection, processor: str) -> Brake | None:
    """What keeps every refund of a processor back, or ``None``. What cannot be read raises, and then nothing is sent."""
    async with pipelined(connection):
        controlling, halting = await controls.READ.ask(connection), await halts.IN_FORCE.ask(connection, processor=processor)
    control, halt = controls.Control(**await controlling.one()), await halting.first()
    if control.stopped:
        return Code.EMERGENCY_STOP, "an operator has stopped all refunds"
    if control.mode == "draft":
        return Code.DRAFT_MODE, "the installation is in draft mode, in which nothing is sent"
    return None if halt is None else (Code.PROCESSOR_HALTED, f"submitting is halted ({halt['code']}): {halt['reason']}")


def of_payment(payment: Row, refund_id: str) -> Brake | None:
    """What keeps back every refund of a payment but the one that it is held for, or ``None``."""
    held_for = payment["held_for"]
    if held_for in (None, refund_id):
        return None
    if is_id(held_for, Prefix.DISCREPANCY):
        return Code.PAYMENT_HELD, f"the processor shows a refund of this payment that the database had forgotten; close {held_for} first"
    return Code.PAYMENT_HELD, f"{held_for} of the same payment came back different from what was approved"
