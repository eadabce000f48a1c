"""The inbox of events: each is stored once by the processor's id before it is acknowledged, and worked off separately, as often as it takes.

Most events say what the record says already: our own answer was first. Those are closed many at once, in one statement; only the rest is looked at one by one.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import (
    ARRAY,
    DateTime,
    Double,
    Integer,
    Interval,
    Text,
    and_,
    any_,
    bindparam,
    exists,
    func,
    literal,
    literal_column,
    null,
    or_,
    select,
    text,
    update,
)
from sqlalchemy.dialects.postgresql import insert as upsert
from sqlalchemy.ext.asyncio import AsyncConnection

from refunds.events import CHARGE_EVENTS, DISPUTE_EVENTS, REFUND_EVENTS, EventState, ProcessorEvent, WhyIgnored
from refunds.processor import RefundState
from refunds.status import Status
from store.changes import tell
from store.sql import Query
from store.tables import events, operations, payments, processor_refunds, refunds

RUNBOOK = "docs/runbooks/webhooks.md"
ALERT_AFTER = 8
"""How often an event about a payment of ours may come to nothing before a person is told; told again each time that number doubles."""

_MADE = upsert(events)
_KEEP = Query(
    _MADE.on_conflict_do_update(
        index_elements=["id"],
        set_={column.name: _MADE.excluded[column.name] for column in events.c if column.name != "id"},
        # The same event comes once to each endpoint, in the shape of that endpoint's API version: one that we can use replaces one that we could not.
        where=(events.c.state == literal(EventState.IGNORED.value)) & (_MADE.excluded.state == literal(EventState.WAITING.value)),
    ).returning(literal_column("1"))
)


async def keep(connection: AsyncConnection, at: datetime, event: ProcessorEvent, *, processor: str, ignored: WhyIgnored | None) -> bool:
    """Store an event; false when it is stored already, and then nothing changes. An ``ignored`` one is kept for the record and never worked on, unless it
    comes again in a shape that we can use."""
    kept = await _KEEP.first(
        connection,
        id=event.id,
        processor=processor,
        type=event.type,
        account=event.account,
        livemode=event.livemode,
        api_version=event.api_version,
        object_id=event.object_id,
        processor_payment=event.processor_payment,
        operation_id=event.operation,
        facts=event.facts,
        created_at=event.created_at,
        received_at=at,
        state=(EventState.IGNORED if ignored else EventState.WAITING).value,
        due_at=at,
        done_at=at if ignored else None,
        outcome=ignored.value if ignored else None,
        tries=0,
        last_error=None,
        told_at=None,
    )
    return kept is not None


@dataclass(frozen=True, slots=True)
class Taken:
    """An event that is due. ``tries`` counts this one."""

    id: str
    processor: str
    type: str
    object_id: str | None
    processor_payment: str | None
    operation_id: str | None
    facts: dict[str, Any]
    tries: int


# Written out, not a parameter, so that the index of what waits is used however many events there are.
_IS_WAITING = events.c.state == literal_column(f"'{EventState.WAITING}'")
_DUE = (
    select(events.c.id)
    .where(_IS_WAITING, events.c.due_at <= bindparam("now", type_=DateTime(timezone=True)))
    .order_by(events.c.due_at, events.c.id)
    .limit(bindparam("limit", type_=Integer))
    .with_for_update(skip_locked=True)
)
_ZERO = literal_column("0")
_WAIT = func.make_interval(
    *[_ZERO] * 6,
    func.least(
        bindparam("first", type_=Double) * func.power(literal_column("2", Double), func.least(events.c.tries, literal_column("30"))),
        bindparam("longest", type_=Double),
    ),
)
_TAKE = Query(
    update(events)
    .where(events.c.id.in_(_DUE.scalar_subquery()))
    .values(
        tries=events.c.tries + literal_column("1"),
        due_at=bindparam("now", type_=DateTime(timezone=True)) + _WAIT,
    )
    .returning(
        events.c.id,
        events.c.processor,
        events.c.type,
        events.c.object_id,
        events.c.processor_payment,
        events.c.operation_id,
        events.c.facts,
        events.c.tries,
    )
)


async def take_due(connection: AsyncConnection, now: datetime, *, first: timedelta, longest: timedelta, limit: int = 100) -> list[Taken]:
    """Take what is due, oldest first, leaving to others what they hold.

    Each is due again by itself after ``first``, then twice as long each time, up to ``longest``: whoever dies over one has lost nothing, and one that nobody
    can get done is no crash loop.
    """
    rows = await _TAKE.all(connection, now=now, first=first.total_seconds(), longest=longest.total_seconds(), limit=limit)
    return [Taken(**row) for row in sorted(rows, key=lambda row: row["id"])]


_PAYMENTS = Query(
    select(payments.c.id)
    .where(
        payments.c.processor == bindparam("processor"),
        payments.c.processor_payment == any_(bindparam("names", type_=ARRAY(Text))),
    )
    .union(select(operations.c.payment_id).where(operations.c.id == bindparam("operation", type_=Text)))
    .order_by("id")
)


async def payments_of(connection: AsyncConnection, event: Taken) -> list[str]:
    """The payments of ours that an event is about: by the processor's ids of payment or charge, and by our operation (field report 19)."""
    names = [name for name in (event.processor_payment, event.facts.get("charge")) if name]
    rows = await _PAYMENTS.all(connection, processor=event.processor, names=names, operation=event.operation_id)
    return [row["id"] for row in rows]


_STANDING = {
    RefundState.PENDING.value: (Status.PENDING,),
    RefundState.REQUIRES_ACTION.value: (Status.PENDING,),
    RefundState.SUCCEEDED.value: (Status.SUCCEEDED,),
    RefundState.FAILED.value: (Status.FAILED,),
    RefundState.CANCELED.value: (Status.FAILED,),
}
_SAYS_THE_SAME = " OR ".join(
    f"(pr.raw_state = '{said}' AND r.status IN ({', '.join(repr(status.value) for status in standing)}))"
    for said, standing in _STANDING.items()
)
_COUNTS = ", ".join(repr(state.value) for state in RefundState if state.counts)
_CLOSE = Query(
    # What an event says is compared as text: whatever somebody signed, no value of it can make the statement fail for the others.
    text(
        f"""
    WITH due AS MATERIALIZED (
        SELECT id, processor, type, object_id, processor_payment, facts FROM events
         WHERE state = '{EventState.WAITING}' AND due_at <= :now
         ORDER BY due_at, id LIMIT :limit FOR UPDATE SKIP LOCKED
    ), recorded AS (
        SELECT due.id FROM due
          JOIN processor_refunds pr ON pr.id = due.object_id AND pr.processor = due.processor
          LEFT JOIN operations o ON o.id = pr.operation_id
          LEFT JOIN refunds r ON r.id = o.refund_id
         WHERE due.type = ANY(:about_refunds)
           AND pr.raw_state = due.facts ->> 'status'
           AND pr.amount::text = due.facts ->> 'amount' AND pr.currency = due.facts ->> 'currency'
           AND (pr.operation_id IS NULL OR {_SAYS_THE_SAME})
        UNION ALL
        SELECT due.id FROM due
         WHERE due.type = ANY(:about_charges)
           AND due.facts ->> 'amount_refunded' = (
               SELECT sum(pr.amount)::text FROM payments p JOIN processor_refunds pr ON pr.payment_id = p.id
                WHERE p.processor = due.processor AND p.processor_payment IN (due.processor_payment, due.facts ->> 'charge')
                  AND pr.state IN ({_COUNTS}))
    )
    UPDATE events SET state = '{EventState.DONE}', done_at = :now, outcome = 'recorded', last_error = NULL, tries = events.tries + 1
      FROM recorded WHERE events.id = recorded.id
    """
    ).bindparams(
        bindparam("now", type_=DateTime(timezone=True)),
        bindparam("limit", type_=Integer),
        bindparam("about_refunds", sorted(REFUND_EVENTS), type_=ARRAY(Text)),
        bindparam("about_charges", sorted(CHARGE_EVENTS), type_=ARRAY(Text)),
    )
)


async def close_recorded(connection: AsyncConnection, now: datetime, *, limit: int) -> int:
    """Close what is due and says nothing new, as :func:`says_nothing_new` judges it, among the ``limit`` oldest; returns how many.

    What another inbox holds is left to it; what this one looked at stays locked until the transaction ends, and :func:`take_due` takes the rest of it.
    """
    return await _CLOSE.do(connection, now=now, limit=limit)


_RECORDED = Query(
    select(processor_refunds.c.raw_state, processor_refunds.c.amount, processor_refunds.c.currency, refunds.c.status, operations.c.id)
    .outerjoin(operations, operations.c.id == processor_refunds.c.operation_id)
    .outerjoin(refunds, refunds.c.id == operations.c.refund_id)
    .where(processor_refunds.c.id == bindparam("refund"))
)
_COUNTED = Query(
    select(func.coalesce(func.sum(processor_refunds.c.amount), literal_column("0"))).where(
        processor_refunds.c.payment_id == any_(bindparam("payments", type_=ARRAY(Text))),
        processor_refunds.c.state.not_in([literal(state.value) for state in RefundState if not state.counts]),
    )
)
_UNDER_WAY = Query(
    select(literal_column("1"))
    .select_from(refunds)
    .join(operations, and_(operations.c.refund_id == refunds.c.id, operations.c.revision == refunds.c.revision))
    .where(
        refunds.c.payment_id == any_(bindparam("payments", type_=ARRAY(Text))),
        refunds.c.status == literal(Status.SUBMITTING.value),
        func.coalesce(bindparam("operation", type_=Text), operations.c.id) == operations.c.id,
    )
)


async def says_nothing_new(connection: AsyncConnection, event: Taken, found: Sequence[str]) -> bool:
    """Whether the record already says what an event of these payments says, so that nothing needs to be read.

    ``charge.refunded`` names no refund; the refunds themselves come with events of their own, by id. It is only asked whether all that it counts is recorded.
    """
    if event.type not in REFUND_EVENTS:
        total = event.facts.get("amount_refunded")
        return total is not None and total == await _COUNTED.value(connection, payments=list(found))
    row = await _RECORDED.first(connection, refund=event.object_id)
    if row is None or any(row[name] != event.facts.get(name) for name in ("amount", "currency")):
        return False
    if row["raw_state"] != event.facts.get("status"):
        return False
    return row["id"] is None or row["status"] in _STANDING.get(row["raw_state"], ())


async def awaits_a_receipt(connection: AsyncConnection, event: Taken, found: Sequence[str]) -> bool:
    """Whether an event may be about a refund of ours whose own answer is probably being recorded this moment."""
    if event.type in DISPUTE_EVENTS or (event.type in REFUND_EVENTS and event.operation_id is None):
        return False
    return await _UNDER_WAY.first(connection, payments=list(found), operation=event.operation_id) is not None


_END = Query(
    update(events)
    .where(events.c.id == any_(bindparam("ids", type_=ARRAY(Text))), events.c.state != literal(EventState.DONE.value))
    .values(state=bindparam("to"), done_at=bindparam("at"), outcome=bindparam("how"), last_error=null())
)
_FAILED = Query(update(events).where(events.c.id == bindparam("event")).values(last_error=bindparam("error")))


async def done(connection: AsyncConnection, ids: Sequence[str], now: datetime, outcome: str) -> None:
    """Mark events as dealt with."""
    if ids:
        await _END.do(connection, ids=list(ids), to=EventState.DONE.value, at=now, how=outcome)


async def give_up(connection: AsyncConnection, event: Taken, now: datetime) -> None:
    """Keep an event whose payment never became known as ``unmatched`` (field report 21); :func:`tell_of_unmatched` tells people."""
    await _END.do(connection, ids=[event.id], to=EventState.UNMATCHED.value, at=now, how="no such payment")


_TOLD = Query(
    update(events)
    .where(events.c.id == bindparam("event"), events.c.told_at.is_(None))
    .values(told_at=func.clock_timestamp())
    .returning(literal_column("1"))
)


async def tell_of_ours(connection: AsyncConnection, event: Taken, now: datetime) -> None:
    """Tell a person at once, and once, of an event that carries an operation of ours which is not known here, as its payment is not.

    Operations are recorded before anything is sent, so no patience makes it known: the database is older than what was sent, or another installation uses
    the same account.
    """
    if await _TOLD.first(connection, event=event.id) is not None:
        ours = {"processor_event": event.id, "type": event.type, "tries": event.tries, "operation": event.operation_id}
        await tell(connection, "event_unmatched", now, **ours, processor_refund=event.object_id, runbook=RUNBOOK)


_SHOWN = 5
_TELLING_LOCK = 0x5245_4655_4E45  # any fixed number that no other lock of ours has
_TELL_UNMATCHED = Query(
    text(
        f"""
    WITH told AS (
        UPDATE events SET told_at = clock_timestamp()
         WHERE state = '{EventState.UNMATCHED}' AND told_at IS NULL
           AND NOT EXISTS (SELECT 1 FROM events e WHERE e.state = '{EventState.UNMATCHED}' AND e.told_at > clock_timestamp() - :every)
           AND pg_try_advisory_xact_lock({_TELLING_LOCK})
        RETURNING id, done_at
    )
    INSERT INTO outbox (kind, body, created_at, due_at)
    SELECT 'notice', jsonb_build_object('kind', 'events_unmatched', 'events', count(*), 'some', to_jsonb((array_agg(id ORDER BY done_at, id))[1:{_SHOWN}]),
                                        'runbook', CAST(:runbook AS text)), :now, :now
      FROM told HAVING count(*) > 0
    """
    ).bindparams(
        bindparam("every", type_=Interval), bindparam("now", type_=DateTime(timezone=True)), bindparam("runbook", RUNBOOK, type_=Text)
    )
)


async def tell_of_unmatched(connection: AsyncConnection, now: datetime, *, every: timedelta) -> bool:
    """Tell people of all events that were given up since they were told last: how many, and the ids of a few; whether there was anything to tell.

    At most once in ``every``, by the database's clock, however many inboxes there are: events of payments that were never ours, of another application on the
    same account, are many and mean nothing one by one.
    """
    return await _TELL_UNMATCHED.do(connection, now=now, every=every, runbook=RUNBOOK) == 1


_BY_STATE = Query(
    text(
        " UNION ALL ".join(
            f"SELECT '{state}' AS state, (SELECT count(*) FROM events WHERE state = '{state}') AS events"
            for state in (EventState.WAITING, EventState.UNMATCHED)
        )
    )
)


async def open_by_state(connection: AsyncConnection) -> dict[str, int]:
    """How many events wait to be dealt with, and how many were given up as unmatched."""
    return {row["state"]: row["events"] for row in await _BY_STATE.all(connection)}


async def went_wrong(connection: AsyncConnection, event: Taken, now: datetime, error: str) -> None:
    """Note what kept an event from being done, and tell a person when that goes on: it is tried again by itself, ever less often (field report 24)."""
    await _FAILED.do(connection, event=event.id, error=error[:200])
    if event.tries >= ALERT_AFTER and event.tries % ALERT_AFTER == 0 and (event.tries // ALERT_AFTER).bit_count() == 1:
        await tell(
            connection,
            "event_failing",
            now,
            processor_event=event.id,
            type=event.type,
            tries=event.tries,
            error=error[:200],
            runbook=RUNBOOK,
        )


_HINTS = Query(
    select(events.c.id)
    .where(
        _IS_WAITING,
        events.c.processor == bindparam("processor"),
        or_(
            events.c.processor_payment == bindparam("name"),
            events.c.facts["charge"].astext == bindparam("name"),
            exists().where(and_(operations.c.id == events.c.operation_id, operations.c.payment_id == bindparam("payment"))),
        ),
    )
    .order_by(events.c.id)
)
_MATCHED = Query(
    update(events)
    .where(
        events.c.state == literal(EventState.UNMATCHED.value),
        events.c.processor == bindparam("processor"),
        or_(events.c.processor_payment == bindparam("name"), events.c.object_id == any_(bindparam("objects", type_=ARRAY(Text)))),
    )
    .values(state=literal(EventState.DONE.value), done_at=bindparam("at"), outcome=bindparam("how"))
)


async def hints_of(connection: AsyncConnection, *, processor: str, payment_id: str, name: str) -> list[str]:
    """The events about a payment that wait: a reading that begins after this answers them all, whatever any clock says."""
    return [row["id"] for row in await _HINTS.all(connection, processor=processor, name=name, payment=payment_id)]


async def matched_at_last(connection: AsyncConnection, now: datetime, *, processor: str, name: str, objects: Sequence[str]) -> None:
    """Close events that had been given up, now that what they were about is recorded."""
    await _MATCHED.do(connection, processor=processor, name=name, objects=list(objects), at=now, how="observed late")
