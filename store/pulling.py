"""Pulls of the merchant's orders from the processor's payments: read a page at a time, then made into orders a hundred at a time.

Where a pull stands is stored with every step, so one that is killed goes on where it was. An order and the report of its payments are stored in one
transaction, so nothing is half done, and a pull that is repeated finds everything as it is. The order of locks: the pull, then each order.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import UTC, datetime, timedelta
from typing import Any, Self

from pydantic import ValidationError
from sqlalchemy import func, select, update
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncConnection

from refunds.clock import Clock, rfc3339
from refunds.errors import Code, RefundError
from refunds.ids import Prefix, new_id
from refunds.orders import Order
from refunds.people import Actor
from refunds.processor import STRIPE
from refunds.pulls import Judgement, KnownOrder, ListedPayment, PaymentPage, PullOutcome, PullPhase, judge_together
from refunds.settings import Settings
from store import halts, identifiers, pulled
from store.changes import SYSTEM, enter
from store.db import Database
from store.identifiers import KEY_COLUMNS
from store.orders import Put, key_of_owner, record_order
from store.sql import Row
from store.tables import customer_keys, customers, order_pulls, orders, payments, pulled_payments

EVERYTHING = datetime(1970, 1, 1, tzinfo=UTC)
"""Since when a pull reads unless it is told."""


@dataclass(frozen=True, slots=True)
class Pull:
    """One pull as it stands. ``payments`` were read, ``judged`` of them have their outcome. ``after`` and ``reached`` are where the reading stands."""

    id: str
    processor: str
    since: datetime
    until: datetime
    dry_run: bool
    order_field: str
    customer_field: str
    started_by: str
    started_at: datetime
    phase: PullPhase
    cursor: str | None
    pages: int
    payments: int
    judged: int
    progressed_at: datetime
    finished_at: datetime | None
    last_error: str | None

    @classmethod
    def of(cls, row: Row) -> Self:
        """Read a row."""
        return cls(**{one.name: row[one.name] for one in fields(cls) if one.name != "phase"}, phase=PullPhase(row["phase"]))

    @property
    def is_over(self) -> bool:
        """Whether nothing more is done about it."""
        return self.finished_at is not None

    @property
    def after(self) -> str | None:
        """The last payment that was read; ``None`` at the beginning."""
        return json.loads(self.cursor or "{}").get("after")

    @property
    def reached(self) -> str | None:
        """When that payment was made."""
        return json.loads(self.cursor or "{}").get("reached")


async def request(
    connection: AsyncConnection, clock: Clock, settings: Settings, actor: Actor, *, since: datetime | None, dry_run: bool
) -> Pull:
    """Store a pull that somebody asked for, of everything until now. Raises ``INVALID_FIELD`` for a time that is not past."""
    now = clock.now()
    if since is not None and since >= now:
        raise RefundError(Code.INVALID_FIELD, "A pull looks back: give a time that is past.", field="since")
    row = {
        "id": new_id(Prefix.PULL),
        "processor": STRIPE,
        "since": since or EVERYTHING,
        "until": now,
        "dry_run": dry_run,
        "order_field": settings.orders_pull_order_field,
        "customer_field": settings.orders_pull_customer_field,
        "started_by": actor.principal_id,
        "started_at": now,
        "phase": PullPhase.READING.value,
        "progressed_at": now,
    }
    await connection.execute(insert(order_pulls).values(row))
    await enter(connection, "orders_pull_requested", now, actor=actor.principal_id, pull=row["id"], since=row["since"], dry_run=dry_run)
    return await read(connection, row["id"])


async def read(connection: AsyncConnection, pull_id: str) -> Pull:
    """A pull as it stands. Raises ``NOT_FOUND``."""
    row = (await connection.execute(select(order_pulls).where(order_pulls.c.id == pull_id))).mappings().one_or_none()
    if row is None:
        raise RefundError(Code.NOT_FOUND, "There is no such pull.")
    return Pull.of(row)


async def counts(connection: AsyncConnection, pull_id: str) -> Mapping[str, int]:
    """How many payments have each outcome so far."""
    query = select(pulled_payments.c.outcome, func.count()).where(pulled_payments.c.pull_id == pull_id).group_by(pulled_payments.c.outcome)
    found = {row[0]: row[1] for row in (await connection.execute(query)).all()}
    return {outcome.value: found.get(outcome.value, 0) for outcome in PullOutcome}


async def report(connection: AsyncConnection, pull_id: str, *, outcome: PullOutcome | None, after: str | None, limit: int) -> Sequence[Row]:
    """One page of what became of the payments, by the processor's id. Those that have no outcome yet are not in it."""
    query = select(pulled_payments).where(pulled_payments.c.pull_id == pull_id, pulled_payments.c.outcome.is_not(None))
    if outcome is not None:
        query = query.where(pulled_payments.c.outcome == outcome.value)
    if after is not None:
        query = query.where(pulled_payments.c.processor_payment > after)
    found = (await connection.execute(query.order_by(pulled_payments.c.processor_payment).limit(limit))).mappings()
    return [{**row, "order_ref": pulled.order_ref(connection, row)} for row in found]


class Pulling:
    """The database's side of pulls, over the login of the ``payments`` role.

    Two workers may carry out the same pull at once (one that froze, and its heir): each step is done by whoever stands where the pull stands.
    """

    def __init__(self, database: Database, processor: str = STRIPE) -> None:
        self.database = database
        self.processor = processor

    @property
    def may_seal(self) -> bool:
        """Whether this process holds a master key: a pull stores identifiers, which are never stored in the clear."""
        return self.database.vault is not None

    async def read(self, pull_id: str) -> Pull:
        """The pull as it stands. Raises ``NOT_FOUND``."""
        async with self.database.begin() as connection:
            return await read(connection, pull_id)

    async def keep(self, pull: Pull, page: PaymentPage) -> Pull:
        """Keep a page that was read behind ``pull.after``, with what can be said of each payment by itself; nothing when the pull has moved on meanwhile."""
        async with self.database.begin() as connection:
            now, at = await _locked(connection, pull.id), self.database.clock.now()
            if (now.phase, now.cursor) != (pull.phase, pull.cursor) or now.is_over:
                return now
            rows = [pulled.row_of(connection, pull.id, payment) for payment in page.payments]
            added = 0
            if rows:
                adding = insert(pulled_payments).on_conflict_do_nothing().returning(pulled_payments.c.outcome)
                outcomes = list((await connection.execute(adding, rows)).scalars())
                added, judged = len(outcomes), sum(outcome is not None for outcome in outcomes)
            else:
                judged = 0
            values: dict[str, Any] = {"pages": now.pages + 1, "payments": now.payments + added, "judged": now.judged + judged}
            if page.next_after is None:
                values |= {"phase": PullPhase.MAKING.value, "cursor": None}
            else:
                values |= {"cursor": json.dumps({"after": page.next_after, "reached": _reached(page)})}
            return await _put(connection, at, now, values)

    async def make(self, pull: Pull) -> Pull:
        """Make the next orders of what was read, each whole or not at all, and end the pull after the last one."""
        async with self.database.begin() as connection:
            now, at = await _locked(connection, pull.id), self.database.clock.now()
            if now.phase is not PullPhase.MAKING or now.is_over:
                return now
            waiting = await pulled.waiting(connection, pull.id)
            judged = 0
            for order_ref, listed in waiting.items():
                for payment_id, found in (await _make(connection, self.database.clock, now, order_ref, listed)).items():
                    await _judged(connection, pull.id, payment_id, found)
                    judged += 1
            if waiting:
                return await _put(connection, at, now, {"judged": now.judged + judged})
            return await _end(connection, at, now, PullPhase.DONE)

    async def restart(self, pull: Pull) -> Pull:
        """Read from the beginning: the processor does not know where the pull stands any more. What was kept stays kept."""
        async with self.database.begin() as connection:
            now = await _locked(connection, pull.id)
            if (now.phase, now.cursor) != (pull.phase, pull.cursor) or now.is_over:
                return now
            return await _put(connection, self.database.clock.now(), now, {"cursor": None})

    async def failed(self, pull_id: str, why: str) -> None:
        """Show why a pull does not get on just now. It stays where it is."""
        async with self.database.begin() as connection:
            await connection.execute(
                update(order_pulls)
                .where(order_pulls.c.id == pull_id, order_pulls.c.finished_at.is_(None))
                .values(last_error=f"{rfc3339(self.database.clock.now())} {why}"[:500])
            )

    async def cancel(self, pull_id: str) -> None:
        """End a pull that an operator has cancelled. Orders that were made stay."""
        async with self.database.begin() as connection:
            now = await _locked(connection, pull_id)
            if not now.is_over:
                await _end(connection, self.database.clock.now(), now, PullPhase.CANCELED)

    async def halt(self, code: Code, reason: str) -> None:
        """Halt submitting until an operator lifts it; nothing more if it is halted already."""
        async with self.database.begin() as connection:
            await halts.open_halt(connection, self.database.clock.now(), processor=self.processor, code=code, reason=reason)

    async def unfinished(self, *, grace: timedelta, limit: int = 20) -> list[Pull]:
        """Pulls that are not over and have not got on lately: each is to be started again if it is not at work."""
        async with self.database.begin() as connection:
            rows = await connection.execute(
                select(order_pulls)
                .where(order_pulls.c.finished_at.is_(None), order_pulls.c.progressed_at < self.database.clock.now() - grace)
                .order_by(order_pulls.c.started_at)
                .limit(limit)
            )
            return [Pull.of(row) for row in rows.mappings()]


# --- within a transaction ----------------------------------------------------------------------------------------------------------------


class _Overtaken(Exception):
    """Somebody else stored the order since it was looked for: it is judged again, as it now is."""


async def _locked(connection: AsyncConnection, pull_id: str) -> Pull:
    row = (await connection.execute(select(order_pulls).where(order_pulls.c.id == pull_id).with_for_update())).mappings().one()
    return Pull.of(row)


def _reached(page: PaymentPage) -> str | None:
    known = [payment.created_at for payment in page.payments if payment.created_at is not None]
    return rfc3339(known[-1]) if known else None


async def _make(
    connection: AsyncConnection, clock: Clock, pull: Pull, order_ref: str, listed: Sequence[ListedPayment]
) -> dict[str, Judgement]:
    """Make one order of its payments, or add them to it, and say what became of each."""
    while True:
        row, known, elsewhere = await _known(connection, order_ref, [payment.id for payment in listed])
        judged, adding = judge_together(listed, known, elsewhere)
        if not adding:
            return judged
        ids = [payment.id for payment in adding]
        try:
            order = _order(row, adding)
        except ValidationError as error:
            # Such as more payments than an order may have. The sentence names the rule and no value: ids are the merchant's.
            why = error.errors(include_input=False, include_url=False)[0]["msg"].removeprefix("Value error, ")
            return judged | dict.fromkeys(ids, Judgement.failed(Code.INVALID_FIELD, why))
        outcome = PullOutcome.NEW_VERSION if known is not None else PullOutcome.CREATED
        if pull.dry_run:
            return judged | dict.fromkeys(ids, Judgement(outcome))
        try:
            async with connection.begin_nested():
                stored, put, _ = await record_order(connection, clock, external_ref=order_ref, order=order, actor=pull.started_by)
                if known is None and put is not Put.CREATED:
                    raise _Overtaken
        except _Overtaken:
            continue
        except RefundError as error:
            return judged | dict.fromkeys(ids, Judgement.failed(error.code, error.detail))
        return judged | dict.fromkeys(ids, Judgement(outcome, version=stored["version"]))


async def _known(connection: AsyncConnection, order_ref: str, ids: Sequence[str]) -> tuple[Row | None, KnownOrder | None, set[str]]:
    """The order, locked so that nobody's newer version is overwritten, and which of the payments are on an order already."""
    query = (
        select(orders, customers.c.ref_sealed.label("owner_sealed"), *KEY_COLUMNS)
        .join(customers, customers.c.id == orders.c.customer_id)
        .outerjoin(customer_keys, customer_keys.c.customer_id == orders.c.customer_id)
        .where(orders.c.ref_lookup == identifiers.order_lookup(connection, order_ref))
        .with_for_update(key_share=True, of=orders)
    )
    found = (await connection.execute(query)).mappings().one_or_none()
    row, owner = None, None
    if found is not None:
        key = await key_of_owner(connection, found)
        row = {**found, "body": identifiers.open_body(key, found)}
        owner = identifiers.customer_opening(key, found["customer_id"], found["owner_sealed"])
    there = await connection.execute(
        select(payments.c.processor_payment, payments.c.order_id).where(
            payments.c.processor == STRIPE, payments.c.processor_payment.in_(ids)
        )
    )
    on = {row[0]: row[1] for row in there.all()}
    mine = {payment for payment, order_id in on.items() if row is not None and order_id == row["id"]}
    known = None if row is None or owner is None else KnownOrder(owner.value, row["body"]["currency"], row["version"], mine)
    return row, known, set(on) - mine


def _order(row: Row | None, adding: Sequence[ListedPayment]) -> Order:
    """The order with these payments on it: as it is recorded and with nothing else changed, or with what the processor knows and nothing else."""
    added = [{"id": payment.id, "amount": payment.captured, "currency": payment.currency} for payment in adding]
    if row is None:
        return Order.model_validate({"customer_id": adding[0].customer_ref, "currency": adding[0].currency, "payments": added})
    there = [payment["id"] for payment in row["body"]["payments"]]
    return Order.model_validate(
        row["body"] | {"payments": [*row["body"]["payments"], *(payment for payment in added if payment["id"] not in there)]}
    )


async def _judged(connection: AsyncConnection, pull_id: str, payment_id: str, found: Judgement) -> None:
    await connection.execute(
        update(pulled_payments)
        .where(pulled_payments.c.pull_id == pull_id, pulled_payments.c.processor_payment == payment_id)
        .values(
            outcome=found.outcome.value,
            code=found.code.value if found.code else None,
            detail=found.detail,
            version=found.version,
            customer_sealed=None,
        )
    )


async def _end(connection: AsyncConnection, at: datetime, now: Pull, phase: PullPhase) -> Pull:
    # What was read and not made needs no customer any more; and whoever was forgotten is known to the processor still, and must not be to us again.
    of_this = update(pulled_payments).where(pulled_payments.c.pull_id == now.id)
    await connection.execute(of_this.where(pulled_payments.c.customer_sealed.is_not(None)).values(customer_sealed=None))
    forgotten = payments.join(orders, orders.c.id == payments.c.order_id).join(customers, customers.c.id == orders.c.customer_id)
    theirs = select(payments.c.processor_payment).select_from(forgotten).where(customers.c.forgotten_at.is_not(None))
    named_again = pulled_payments.c.processor_payment.in_(theirs)
    await connection.execute(of_this.where(named_again).values(order_lookup=None, order_sealed=None))
    ended = await _put(connection, at, now, {"phase": phase.value, "finished_at": at, "cursor": None})
    found = await counts(connection, now.id)
    await enter(
        connection,
        "orders_pull_finished",
        at,
        actor=SYSTEM,
        pull=now.id,
        phase=phase.value,
        dry_run=now.dry_run,
        payments=ended.payments,
        created=found["created"],
        new_version=found["new_version"],
        unchanged=found["unchanged"],
        skipped=found["skipped"],
        errors=found["error"],
    )
    return ended


async def _put(connection: AsyncConnection, at: datetime, now: Pull, values: Mapping[str, Any]) -> Pull:
    rows = await connection.execute(
        update(order_pulls)
        .where(order_pulls.c.id == now.id)
        .values({"progressed_at": at, "last_error": None} | dict(values))
        .returning(order_pulls)
    )
    return Pull.of(rows.mappings().one())
