"""Legs as the store keeps them: what is returned beside a refund on a marketplace, each with its own state, key and attempts.

Written with the intent of the refund's operation, due once the processor has accepted the refund, and open until each is done or a person has settled it. All of it
is read and changed under the lock of the refund.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import groupby
from typing import Any

from sqlalchemy import ARRAY, DateTime, Interval, Text, any_, bindparam, func, insert, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from refunds.errors import Code
from refunds.ids import Prefix, is_id, new_id
from refunds.marketplace import LegKind, LegReceipt, LegRequest
from refunds.money import Money
from refunds.processor import made_before
from refunds.status import FINAL, Status
from refunds.submission import freeze_leg
from refunds.terms import Terms
from store.changes import SYSTEM, Change
from store.operation_rows import said_by
from store.sql import Query, Row
from store.tables import leg_attempts, legs, operations, processor_refunds, revisions

WAITING, DONE, PARKED, NOT_DONE, VOID = "waiting", "done", "parked", "not_done", "void"
"""``waiting``: to be sent, or not known yet; ``parked``: a person settles it; ``done``, ``not_done`` (two persons said so) and ``void`` (never sent) are final."""

OPEN = (WAITING, PARKED)
ACCEPTED = (Status.PENDING, Status.SUCCEEDED)
"""Statuses of a refund whose legs may be sent: the processor has taken it."""

IN_WORDS = {
    LegKind.REVERSE_TRANSFER: "the reversal of {amount} of {target}",
    LegKind.REFUND_FEE: "the return of {amount} of the fee {target}",
}


@dataclass(frozen=True, slots=True)
class Leg:
    """One leg with what its attempts say (the fields as in :class:`store.operation_rows.Operation`)."""

    id: str
    refund_id: str
    operation_id: str
    number: int
    account: str
    request: LegRequest
    state: str
    state_since: datetime
    due_at: datetime | None
    code: str | None
    detail: str | None
    receipt_id: str | None
    api_version: str
    attempts: int
    uncertain: bool
    in_flight: bool
    may_answer: bool
    first_sent_at: datetime | None
    first_sent_ago: timedelta | None
    last_reason: str | None
    created_at: datetime
    processor_refund: str | None
    """The processor's refund that this leg goes with, once a receipt names it."""

    def __str__(self) -> str:
        request = self.request
        return IN_WORDS[request.kind].format(amount=Money(request.amount, request.currency), target=request.target)


_NOW = func.clock_timestamp()
_LEGS = Query(
    select(
        legs,
        revisions.c.terms["api_version"].astext.label("api_version"),
        processor_refunds.c.id.label("processor_refund"),
        leg_attempts.c.outcome.label("attempt_outcome"),
        leg_attempts.c.reason,
        leg_attempts.c.opened_at,
        (leg_attempts.c.id.is_not(None)).label("attempted"),
        (leg_attempts.c.send_by > _NOW).label("sendable"),
        (leg_attempts.c.send_by + bindparam("longest", type_=Interval) > _NOW).label("answerable"),
        (_NOW - leg_attempts.c.send_by).label("since_send_by"),
    )
    .join(operations, operations.c.id == legs.c.operation_id)
    .join(revisions, (revisions.c.refund_id == operations.c.refund_id) & (revisions.c.revision == operations.c.revision))
    .outerjoin(processor_refunds, processor_refunds.c.operation_id == operations.c.id)
    .outerjoin(leg_attempts, leg_attempts.c.leg_id == legs.c.id)
    .where(legs.c.refund_id == bindparam("refund"))
    .order_by(legs.c.created_at, legs.c.number, legs.c.id, leg_attempts.c.number)
)


_GIVEN = (
    *("id", "refund_id", "operation_id", "number", "kind", "target", "account", "amount", "currency"),
    *("request", "idempotency_key", "state", "state_since", "created_at"),
)
_WRITE = Query(insert(legs).values({name: bindparam(name) for name in _GIVEN}))
_DUE = {
    "due_at": bindparam("due", type_=DateTime(timezone=True)),
    "code": bindparam("why", type_=Text),
    "detail": bindparam("what", type_=Text),
}
_MOVE = Query(
    update(legs)
    .where(legs.c.id == bindparam("leg"))
    .values(
        state=bindparam("to"),
        state_since=bindparam("at"),
        receipt_id=func.coalesce(bindparam("receipt", type_=Text), legs.c.receipt_id),
        **_DUE,
    )
)
_POSTPONE = Query(update(legs).where(legs.c.id == bindparam("leg")).values(_DUE))

_OTHERS = Query(
    select(legs.c.receipt_id).where(legs.c.receipt_id == any_(bindparam("shown", type_=ARRAY(Text))), legs.c.id != bindparam("leg"))
)


async def of_refund(connection: AsyncConnection, refund_id: str, *, longest: timedelta) -> list[Leg]:
    """All legs of a refund in their order; ``longest`` is how long after its ``send_by`` a call can still be under way."""
    rows = await _LEGS.all(connection, refund=refund_id, longest=longest)
    return [_leg(list(of_leg)) for _, of_leg in groupby(rows, key=lambda row: row["id"])]


def _leg(rows: Sequence[Row]) -> Leg:
    row, kept = (
        rows[0],
        (
            "id",
            "refund_id",
            "operation_id",
            "number",
            "account",
            "state",
            "state_since",
            "due_at",
            "code",
            "detail",
            "receipt_id",
            "api_version",
            "created_at",
            "processor_refund",
        ),
    )
    request = LegRequest(**(row["request"] | {"kind": LegKind(row["kind"])}))
    return Leg(request=request, **{name: row[name] for name in kept}, **said_by([row for row in rows if row["attempted"]]))


async def not_its(connection: AsyncConnection, leg: Leg, made: Sequence[LegReceipt]) -> dict[str, str]:
    """Which of what the processor shows cannot be a leg's, each with why, by its id: it is another leg's, was made for another refund, or is older than the leg."""
    held = {row["receipt_id"] for row in await _OTHERS.all(connection, leg=leg.id, shown=[receipt.id for receipt in made])}
    why: dict[str, str] = {}
    for receipt in made:
        # Made by hand it carries no id of ours; one that carries another leg's is that leg's, also where this database has forgotten it.
        if receipt.id in held or (receipt.operation != leg.id and is_id(receipt.operation, Prefix.LEG)):
            why[receipt.id] = "that belongs to another leg of ours"
        elif receipt.source_refund not in (None, leg.processor_refund):
            why[receipt.id] = f"the processor made it for another refund, {receipt.source_refund}"
        elif made_before(receipt.created_at, leg.created_at):
            why[receipt.id] = "it was made before this refund was sent"
    return why


async def write(connection: AsyncConnection, change: Change, approved: Mapping[str, Any], *, operation: str) -> None:
    """Write the legs of an operation with its intent, each frozen with a key of its own; those of an operation that was never sent are void."""
    if not (change["reverse_transfer"] or change["refund_application_fee"]):
        return
    terms = Terms.from_stored(dict(approved))
    for leg in await of_refund(connection, change.id, longest=timedelta(0)):
        if leg.state == WAITING:
            await become(connection, change, leg, VOID, detail="its refund was quoted again before it was sent")
    for number, wanted in enumerate(terms.legs, 1):
        leg_id = new_id(Prefix.LEG)
        request = freeze_leg(
            wanted.kind,
            operation_id=leg_id,
            refund=change.id,
            terms_hash=terms.hash,
            mode=terms.mode,
            processor_payment=terms.processor_payment,
            target=wanted.target,
            amount=wanted.amount,
            currency=wanted.currency,
        )
        await _WRITE.do(
            connection,
            id=leg_id,
            refund_id=change.id,
            operation_id=operation,
            number=number,
            kind=wanted.kind.value,
            target=wanted.target,
            account=wanted.account,
            amount=wanted.amount,
            currency=wanted.currency,
            request=_plain(request),
            idempotency_key=request.idempotency_key,
            state=WAITING,
            state_since=change.at,
            created_at=change.at,
        )
        change.note("leg_intended", operation=operation, leg=leg_id, **of_request(request))


def _plain(request: LegRequest) -> dict[str, Any]:
    names = ("operation", "processor_payment", "target", "amount", "currency", "idempotency_key", "params")
    return {name: getattr(request, name) for name in names} | {"kind": request.kind.value}


def of_request(request: LegRequest) -> dict[str, Any]:
    """What the ledger keeps of a leg's request."""
    return {"kind": request.kind.value, "target": request.target, "amount": request.amount, "currency": request.currency}


async def become(
    connection: AsyncConnection,
    change: Change,
    leg: Leg,
    state: str,
    *,
    actor: str = SYSTEM,
    code: Code | None = None,
    detail: str = "",
    due_at: datetime | None = None,
    receipt: str | None = None,
    **data: Any,
) -> None:
    """Move a leg and enter it in the ledger, once. ``receipt`` is what the processor has made; without one it stays what it was."""
    why = {"due": due_at, "why": code and code.value, "what": detail or None}
    await _MOVE.do(connection, leg=leg.id, to=state, at=change.at, receipt=receipt, **why)
    change.note(f"leg_{state}", actor=actor, leg=leg.id, code=code and code.value, receipt=receipt, detail=detail or None, **data)


async def postpone(connection: AsyncConnection, leg: Leg, due_at: datetime, *, code: Code | None = None, detail: str = "") -> None:
    """Set when an open leg is looked at next, and what it waits for meanwhile; nothing about it has changed."""
    await _POSTPONE.do(connection, leg=leg.id, due=due_at, why=code and code.value, what=detail or None)


def stand(change: Change, found: Iterable[Leg]) -> None:
    """Put on the refund what its open legs come to: when they are due, in words, and that it is not over while one is open."""
    open_legs = [leg for leg in found if leg.state in OPEN]
    if not open_legs or change.status not in (*ACCEPTED, Status.FAILED):
        _put(change, legs_at=None, legs_detail=None)
        if change.status in FINAL and change["final_at"] is None:
            change.put(final_at=change.at, queue=None)
        return
    due = [leg.due_at for leg in open_legs if leg.due_at is not None]
    _put(change, legs_at=min(due, default=change.at), legs_detail="; ".join(_words(leg) for leg in open_legs))
    if change.status in FINAL:
        _put(change, final_at=None, queue="settle" if any(leg.state == PARKED for leg in open_legs) else None)


def _put(change: Change, **columns: Any) -> None:
    if changed := {name: value for name, value in columns.items() if change[name] != value}:
        change.put(**changed)


def _words(leg: Leg) -> str:
    why = f": {leg.detail or leg.code}" if leg.detail or leg.code else ""
    return f"a person to settle {leg}{why}" if leg.state == PARKED else f"{leg}{why}"


async def follow(connection: AsyncConnection, change: Change, *, longest: timedelta, escalate: timedelta) -> None:
    """Let the legs follow a refund that has moved: due once it is accepted, given up once it has failed without any of them sent. People are told of the rest."""
    if not (change["reverse_transfer"] or change["refund_application_fee"]):
        return
    for leg in await of_refund(connection, change.id, longest=longest):
        if change.status in ACCEPTED and leg.state == WAITING and leg.due_at is None:
            await postpone(connection, leg, change.at)
        elif change.status is Status.SUCCEEDED and leg.state == VOID and leg.code == Code.PROCESSOR_FAILED:
            why = "its refund had counted as failed, and was made after all"
            await become(connection, change, leg, PARKED, code=Code.LEG_GIVEN_UP, detail=why, due_at=change.at + escalate)
            change.notice("leg_parked", code=Code.LEG_GIVEN_UP, leg=leg.id)
        elif change.status is Status.FAILED and leg.state == WAITING and not leg.uncertain:
            await become(connection, change, leg, VOID, code=Code.PROCESSOR_FAILED, detail="its refund failed; nothing was sent for it")
        elif change.status is Status.FAILED and leg.state == WAITING:
            await postpone(connection, leg, change.at, detail="its refund failed while it may have been sent")
        elif change.status is Status.FAILED and leg.state == DONE:
            outlived(change, leg)
    stand(change, await of_refund(connection, change.id, longest=longest))


def outlived(change: Change, leg: Leg) -> None:
    """Tell people that a leg is done of a refund that failed: the connected account has paid for what the customer did not get. Nothing is undone by itself."""
    change.note("leg_outlived_refund", leg=leg.id, **of_request(leg.request))
    change.notice("leg_of_failed_refund", leg=leg.id)
