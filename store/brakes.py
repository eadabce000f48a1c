"""What keeps an approved refund back just now: the stop, draft mode, a halt of its processor, or its payment. Read anew whenever it matters."""

from dataclasses import dataclass
from datetime import timedelta

from sqlalchemy import Interval, Text, bindparam, func, literal, literal_column, or_, select, true
from sqlalchemy.ext.asyncio import AsyncConnection

from refunds.discrepancies import Kind, Standing
from refunds.errors import Code
from refunds.ids import Prefix, is_id
from refunds.processor import MANUAL
from refunds.status import Status
from store import halts, restoring
from store.sql import Answer, Query, Row
from store.tables import attempts, discrepancies, operations, principals, refunds
from store.tables import controls as controls_table
from store.tables import halts as halted

_NOT_AS_APPROVED = [literal(code.value) for code in (Code.RESPONSE_MISMATCH, Code.REFUNDED_TWICE)]
_DOUBTING = (
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
_DOUBTS = Query(_DOUBTING)

_SENDING = (
    select(refunds.c.id)
    .join(operations, operations.c.refund_id == refunds.c.id)
    .join(attempts, attempts.c.operation_id == operations.c.id)
    .where(
        refunds.c.payment_id == bindparam("payment"),
        refunds.c.status == literal(Status.SUBMITTING.value),
        refunds.c.id != bindparam("besides"),
        or_(attempts.c.outcome.is_(None), attempts.c.outcome == literal("unknown")),
        attempts.c.send_by + bindparam("longest", type_=Interval) > func.clock_timestamp(),
    )
    .order_by(attempts.c.opened_at)
    .limit(literal_column("1"))
)
_doubting, _sending = _DOUBTING.subquery("doubting"), _SENDING.subquery("sending")
_NOW = Query(select(select(_doubting.c.id).scalar_subquery().label("doubting"), select(_sending.c.id).scalar_subquery().label("sending")))

_PROCESSOR = bindparam("processor", type_=Text)
_HALT = (
    select(halted.c.scope, halted.c.code, halted.c.reason, halted.c.opened_by)
    .where(
        halted.c.lifted_at.is_(None),
        or_(halts.covers(halted.c.scope, _PROCESSOR), (literal(MANUAL) == _PROCESSOR) & restoring.IN_DOUBT),
    )
    .order_by(halted.c.opened_by.is_(None), halted.c.opened_at, halted.c.id)  # what a person did comes first
    .limit(literal_column("1"))
    .correlate(refunds)
    .lateral("halt")
)
CONTROLS = Query(
    select(controls_table.c.stopped, controls_table.c.mode, *_HALT.c)
    .select_from(controls_table.join(refunds, refunds.c.id == bindparam("refund", type_=Text)).outerjoin(_HALT, true()))
    .where(controls_table.c.scope == literal(halts.EVERYTHING))
)
"""The first stop, halt or mode that covers a refund, for :func:`from_controls`."""

STOPS = Query(
    select(
        halted.c.scope,
        halted.c.code,
        halted.c.reason,
        halted.c.opened_at.label("since"),
        principals.c.handle.label("by"),
        principals.c.name,
    )
    .select_from(
        halted.join(refunds, refunds.c.id == bindparam("refund", type_=Text)).outerjoin(principals, principals.c.id == halted.c.opened_by)
    )
    .where(
        halted.c.lifted_at.is_(None),
        or_(halts.covers(halted.c.scope, _PROCESSOR), (literal(MANUAL) == _PROCESSOR) & restoring.IN_DOUBT),
    )
    .union_all(
        select(
            controls_table.c.scope,
            literal(Code.EMERGENCY_STOP.value),
            controls_table.c.stop_reason,
            controls_table.c.stopped_at,
            principals.c.handle,
            principals.c.name,
        )
        .outerjoin(principals, principals.c.id == controls_table.c.stopped_by)
        .where(controls_table.c.stopped)
    )
    .order_by(literal_column("since"))
)
"""Every stop and halt that covers a refund now, the oldest first, for people: its scope, code and reason, since when, and who (``None``: the orchestrator)."""

CODES = frozenset({Code.EMERGENCY_STOP, Code.DRAFT_MODE, Code.PROCESSOR_HALTED, Code.PAYMENT_HELD, Code.BREAKER_OPEN})
"""The codes of all of them."""

Brake = tuple[Code, str]
"""Why something is kept back: the code and words for people."""


async def of_everything(connection: AsyncConnection, processor: str, refund_id: str) -> Brake | None:
    """What keeps a refund back whatever its own merits, or ``None``: the stop of a scope that covers it, draft mode, a halt. One statement reads them all.

    What cannot be read raises, and then nothing is sent. Manual parts have no processor to be halted, but a database that may have forgotten something may
    have forgotten who was told to give money back, too.
    """
    return from_controls(await CONTROLS.one(connection, refund=refund_id, processor=processor))


def from_controls(found: Row) -> Brake | None:
    """The same from what :data:`CONTROLS` has read."""
    if found["stopped"]:
        return Code.EMERGENCY_STOP, "an operator has stopped all refunds"
    if found["mode"] != "live":
        return Code.DRAFT_MODE, "the installation is in draft mode, in which nothing is sent"
    return None if found["code"] is None else _halted(found)


def _halted(halt: Row) -> Brake:
    """The words go where nothing personal may: what an operator wrote is not among them, and is read from the controls by whoever is shown the refund."""
    code, scope = Code(halt["code"]), halt["scope"]
    if code is Code.HALTED_BY_OPERATOR and not scope.startswith(halts.PROCESSOR):
        return Code.EMERGENCY_STOP, f"an operator has stopped all refunds{_OF.get(scope) or _of_agent(scope)}"
    reason = f": {halt['reason']}" if halt["opened_by"] is None else ""
    held_as = Code.PROCESSOR_HALTED if scope.startswith(halts.PROCESSOR) else code
    return held_as, f"submitting is halted ({code}){reason}"


_OF = {halts.EVERYTHING: "", halts.AGENTS: " that agents asked for"}


def _of_agent(scope: str) -> str:
    return f" that the agent {scope.removeprefix(halts.AGENT)} asked for"


async def of_payment(connection: AsyncConnection, payment_id: str, *, besides: str) -> Brake | None:
    """What keeps back every refund of a payment but the one ``besides``, or ``None``: another that is parked because it is not what was approved, or one that
    the database had forgotten and nobody has judged."""
    return _doubt(await _DOUBTS.value(connection, payment=payment_id, besides=besides))


@dataclass(frozen=True, slots=True)
class Asked:
    """What :func:`ask_of_payment_now` asked, to be read after the pipeline's end."""

    now: Answer

    async def read(self) -> Brake | None:
        """What keeps the refund back, or ``None``."""
        now = await self.now.one()
        if now["doubting"] is None and now["sending"] is not None:
            return Code.PAYMENT_BUSY, f"{now['sending']} of the same payment is being sent; this one comes after it"
        return _doubt(now["doubting"])


async def ask_of_payment_now(connection: AsyncConnection, payment_id: str, *, besides: str, longest: timedelta) -> Asked:
    """Ask the same right before a call, in a pipeline; and for another of the payment that may be under way, for at most ``longest`` after it had to be sent.
    Each waits its turn (``PAYMENT_BUSY``), because the processor takes one call of a payment at a time."""
    return Asked(await _NOW.ask(connection, payment=payment_id, besides=besides, longest=longest))


def _doubt(found: str | None) -> Brake | None:
    if found is None:
        return None
    if is_id(found, Prefix.DISCREPANCY):
        return Code.PAYMENT_HELD, f"the processor shows a refund of this payment that the database had forgotten; close {found} first"
    return Code.PAYMENT_HELD, f"{found} of the same payment is not what was approved; it has to be settled first"
