"""The one way to change a refund: lock the row, move it by the table of statuses, and write the ledger in the same transaction.

Each refund's ledger rows carry the refund's own gapless version, so that a missing row cannot go unseen (promise P8).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cache
from typing import Any, Protocol

from sqlalchemy import ARRAY, Boolean, DateTime, Integer, Text, any_, bindparam, case, cast, column, func, insert, select, update
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.ext.asyncio import AsyncConnection

from refunds import points
from refunds.clock import rfc3339
from refunds.errors import Code, RefundError
from refunds.limits import given_back, taken_again
from refunds.status import FINAL, Event, Status, advance
from store.sql import Answer, Query, pipelined
from store.tables import ledger, limit_uses, outbox, payments, refunds

SYSTEM = "system"
"""The actor of what the orchestrator does by itself."""

SIGNAL_AFTER = timedelta(seconds=3)
"""The API delivers a message itself right after recording it; this long it is given before the sweep does."""

Commitments = Mapping[str, str]
"""What an entry commits to without showing it: the name of a personal value, and the hex SHA-256 over its random salt and its UTF-8 bytes."""


class Now(Protocol):
    """Tells the time, when called."""

    def __call__(self) -> datetime:
        """Return the present instant."""
        ...


class Change:
    """A locked refund and what is being changed about it. Nothing is written before :meth:`save`.

    Reading ``change["column"]`` shows the value as changed so far.
    """

    def __init__(self, row: Mapping[str, Any], at: datetime) -> None:
        self._row = dict(row)
        self._set: dict[str, Any] = {}
        self._entries: list[dict[str, Any]] = []
        self._outbox: list[dict[str, Any]] = []
        self.at = at

    def __getitem__(self, column: str) -> Any:
        return self._set[column] if column in self._set else self._row[column]

    @property
    def id(self) -> str:
        """The refund's id."""
        return self._row["id"]

    @property
    def status(self) -> Status:
        """The status as changed so far."""
        return Status(self["status"])

    @property
    def row(self) -> dict[str, Any]:
        """The whole row as changed so far."""
        return self._row | self._set

    def put(self, **columns: Any) -> None:
        """Set columns that are not the status."""
        self._set.update(columns)

    def move(
        self,
        event: Event,
        *,
        actor: str = SYSTEM,
        on_behalf_of: str | None = None,
        code: Code | None = None,
        commitments: Commitments | None = None,
        **data: Any,
    ) -> None:
        """Move by the table and enter it in the ledger. Raises :class:`refunds.status.IllegalTransition`."""
        before, after = self.status, advance(self.status, event)
        self.put(status=after.value, status_since=self.at, code=code.value if code else None)
        if after in FINAL:
            self.put(final_at=self.at, wake_at=None, queue=None, review_by=None)
        elif before in FINAL:
            self.put(final_at=None)
        entry = {"from": before.value, "to": after.value, "event": event.value} | data
        entry |= {"code": code.value} if code else {}
        self.note("status_changed", actor=actor, on_behalf_of=on_behalf_of, commitments=commitments, **entry)

    def note(
        self, type_: str, *, actor: str = SYSTEM, on_behalf_of: str | None = None, commitments: Commitments | None = None, **data: Any
    ) -> None:
        """Enter something in the ledger that is not a move.

        ``data`` is integers and strings, never anything personal: what a personal value was is committed to in ``commitments``.
        """
        version = self["version"] + 1
        self.put(version=version)
        self._entries.append(
            {
                "at": rfc3339(self.at),
                "type": type_,
                "refund_id": self.id,
                "refund_version": version,
                "actor": actor,
                "on_behalf_of": on_behalf_of,
                "data": plain(data),
                "commitments": dict(commitments) if commitments else None,
            }
        )

    def signal(self, name: str, message: str, *, after: timedelta = SIGNAL_AFTER) -> None:
        """Have a signal delivered to the run at least once, after whoever recorded the message has had ``after`` to deliver it; hearing twice changes nothing."""
        self._outbox.append(_out("signal", self.id, {"name": name, "message": message}, self.at, due_at=self.at + after))

    def notice(self, kind: str, **data: Any) -> None:
        """Tell people outside, at least once, after this transaction."""
        self._outbox.append(_out("notice", self.id, {"kind": kind} | plain(data), self.at))

    async def save(self, connection: AsyncConnection, *, announce: bool = False) -> None:
        """Write the row, its ledger entries and what must reach the outside, in one statement; ``announce`` wakes whoever waits for this refund."""
        if not (self._set or self._entries or self._outbox or announce):
            return
        values = {f"set_{name}": value for name, value in self._set.items()}
        uses = self._uses()
        await _saving(tuple(sorted(self._set)), counting=bool(uses)).do(
            connection, refund=self.id, entries=self._entries, messages=self._outbox, announce=announce, **values, **uses
        )
        points.writes(*(entry["data"].get("to", entry["type"]) for entry in self._entries))
        self._row |= self._set
        self._set, self._entries, self._outbox = {}, [], []

    def _uses(self) -> dict[str, Any]:
        """What the change gives back to limits over time, or takes again; nothing where it is neither. So whether something counts is what its status says."""
        before, after = Status(self._row["status"]), self.status
        back, again = given_back(before, after), taken_again(before, after)
        if not (back or again):
            return {}
        return {"stages": [stage.value for stage in back or again], "given_back_at": self.at if back else None}


@cache
def _saving(columns: tuple[str, ...], *, counting: bool) -> Query:
    """The statement that saves a change of these columns. Its parts all see the database as it was before it, and none reads what another writes."""
    entry = func.jsonb_to_recordset(bindparam("entries", type_=JSONB)).table_valued(
        column("at", DateTime(timezone=True)),
        column("type", Text),
        column("refund_id", Text),
        column("refund_version", Integer),
        column("actor", Text),
        column("on_behalf_of", Text),
        column("data", JSONB),
        column("commitments", JSONB),
        joins_implicitly=True,
    )
    message = func.jsonb_to_recordset(bindparam("messages", type_=JSONB)).table_valued(
        column("kind", Text),
        column("refund_id", Text),
        column("body", JSONB),
        column("created_at", DateTime(timezone=True)),
        column("due_at", DateTime(timezone=True)),
        joins_implicitly=True,
    )
    entry, message = entry.render_derived(with_types=True), message.render_derived(with_types=True)
    entered = insert(ledger).from_select(list(entry.c.keys()), select(*entry.c), include_defaults=False).cte("entered")
    sent = insert(outbox).from_select(list(message.c.keys()), select(*message.c), include_defaults=False).cte("sent")
    told = select(case((bindparam("announce", type_=Boolean), cast(func.pg_notify("refund", bindparam("refund", type_=Text)), Text))))
    told = told.add_cte(entered, sent)
    if counting:
        stages = bindparam("stages", type_=ARRAY(Text))
        uses = update(limit_uses).where(limit_uses.c.refund_id == bindparam("refund", type_=Text), limit_uses.c.stage == any_(stages))
        told = told.add_cte(uses.values(given_back_at=bindparam("given_back_at", type_=DateTime(timezone=True))).cte("counted"))
    if columns:
        values = {name: bindparam(f"set_{name}", type_=refunds.c[name].type) for name in columns}
        told = told.add_cte(update(refunds).where(refunds.c.id == bindparam("refund", type_=Text)).values(values).cte("moved"))
    return Query(told)


def _out(kind: str, refund_id: str | None, body: dict[str, Any], at: datetime, *, due_at: datetime | None = None) -> dict[str, Any]:
    return {"kind": kind, "refund_id": refund_id, "body": body, "created_at": rfc3339(at), "due_at": rfc3339(due_at or at)}


def plain(data: dict[str, Any]) -> dict[str, Any]:
    """Reduce ledger data to integers, strings, booleans and lists or maps of them; times as RFC 3339; nothing that is ``None``."""
    return {key: _plain(value) for key, value in data.items() if value is not None}


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        return rfc3339(value)
    if isinstance(value, dict):
        return plain(value)
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, float):
        raise TypeError("the ledger holds no floats")
    return value


_LOCK_PAYMENT = Query(select(payments).where(payments.c.id == bindparam("payment")).with_for_update(key_share=True))
_LOCK_PAYMENT_OF = Query(
    select(payments)
    .join(refunds, refunds.c.payment_id == payments.c.id)
    .where(refunds.c.id == bindparam("refund"))
    .with_for_update(of=payments, key_share=True)
)
_LOCK_REFUND = Query(select(refunds).where(refunds.c.id == bindparam("refund")).with_for_update(key_share=True))
_READ_REFUND = Query(select(refunds).where(refunds.c.id == bindparam("refund")))


async def lock_payment(connection: AsyncConnection, payment_id: str) -> Mapping[str, Any]:
    """Lock a payment: the second lock of the order (stop, payment, refund, customer). What is read afterwards is current."""
    return await _LOCK_PAYMENT.one(connection, payment=payment_id)


async def lock_refund(connection: AsyncConnection, refund_id: str, clock_now: Now) -> Change:
    """Lock a refund, then take the time. Raises ``REFUND_NOT_FOUND``."""
    return _locked(await _LOCK_REFUND.first(connection, refund=refund_id), refund_id, clock_now)


async def lock_with_payment(
    connection: AsyncConnection, refund_id: str, clock_now: Now, *, payment_id: str | None = None
) -> tuple[Mapping[str, Any] | None, Change]:
    """Lock a payment, then a refund, then take the time: the payment the refund is about (``None`` when it is about none yet), or the one that is named.

    Raises ``REFUND_NOT_FOUND``.
    """
    async with pipelined(connection):
        asked = await ask_locks(connection, refund_id, payment_id=payment_id)
    return await asked.taken(clock_now)


async def ask_locks(connection: AsyncConnection, refund_id: str, *, payment_id: str | None = None) -> "Locks":
    """Ask for the same locks in a pipeline."""
    if payment_id is None:
        payment = await _LOCK_PAYMENT_OF.ask(connection, refund=refund_id)
    else:
        payment = await _LOCK_PAYMENT.ask(connection, payment=payment_id)
    return Locks(refund_id, payment, await _LOCK_REFUND.ask(connection, refund=refund_id))


@dataclass(frozen=True, slots=True)
class Locks:
    """The locks that :func:`ask_locks` asked for, to be read after the pipeline's end."""

    refund_id: str
    payment: Answer
    refund: Answer

    async def taken(self, clock_now: Now) -> tuple[Mapping[str, Any] | None, Change]:
        """What :func:`lock_with_payment` returns and raises."""
        return await self.payment.first(), _locked(await self.refund.first(), self.refund_id, clock_now)


def _locked(row: Mapping[str, Any] | None, refund_id: str, clock_now: Now) -> Change:
    if row is None:
        raise RefundError(Code.REFUND_NOT_FOUND, refund=refund_id)
    return Change(row, clock_now())


async def read_refund(connection: AsyncConnection, refund_id: str) -> Mapping[str, Any]:
    """Read a refund without locking it. Raises ``REFUND_NOT_FOUND``."""
    row = await _READ_REFUND.first(connection, refund=refund_id)
    if row is None:
        raise RefundError(Code.REFUND_NOT_FOUND, refund=refund_id)
    return row


async def enter(
    connection: AsyncConnection,
    type_: str,
    at: datetime,
    *,
    actor: str,
    on_behalf_of: str | None = None,
    commitments: Commitments | None = None,
    **data: Any,
) -> None:
    """Enter something in the ledger that belongs to no refund. ``data`` and ``commitments`` are as :meth:`Change.note` takes them."""
    entry = {"at": at, "type": type_, "actor": actor, "on_behalf_of": on_behalf_of, "data": plain(data), "refund_id": None}
    await connection.execute(insert(ledger).inline().values(entry | ({"commitments": dict(commitments)} if commitments else {})))
    points.writes(type_)


async def tell(connection: AsyncConnection, kind: str, at: datetime, **data: Any) -> None:
    """Tell people outside of something that belongs to no refund, at least once, after this transaction."""
    body = {"kind": kind} | plain(data)
    await connection.execute(insert(outbox).inline().values(kind="notice", refund_id=None, body=body, created_at=at, due_at=at))
