"""The one way to change a refund: lock the row, move it by the table of statuses, and write the ledger in the same transaction.

Each refund's ledger rows carry the refund's own gapless version, so that a missing row cannot go unseen (promise P8).
"""

from datetime import datetime, timedelta
from typing import Any, Protocol

from sqlalchemy import func, insert, select, update
from sqlalchemy.engine import RowMapping
from sqlalchemy.ext.asyncio import AsyncConnection

from refunds.clock import rfc3339
from refunds.errors import Code, RefundError
from refunds.status import FINAL, Event, Status, advance
from store.tables import ledger, outbox, payments, refunds

SYSTEM = "system"
"""The actor of what the orchestrator does by itself."""

SIGNAL_AFTER = timedelta(seconds=3)
"""The API delivers a message itself right after recording it; this long it is given before the sweep does."""


class Now(Protocol):
    """Tells the time, when called."""

    def __call__(self) -> datetime:
        """Return the present instant."""
        ...


class Change:
    """A locked refund and what is being changed about it. Nothing is written before :meth:`save`.

    Reading ``change["column"]`` shows the value as changed so far.
    """

    def __init__(self, row: RowMapping, at: datetime) -> None:
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

    def move(self, event: Event, *, actor: str = SYSTEM, on_behalf_of: str | None = None, code: Code | None = None, **data: Any) -> None:
        """Move by the table and enter it in the ledger. Raises :class:`refunds.status.IllegalTransition`."""
        before, after = self.status, advance(self.status, event)
        self.put(status=after.value, status_since=self.at, code=code.value if code else None)
        if after in FINAL:
            self.put(final_at=self.at, wake_at=None, queue=None, review_by=None)
        elif before in FINAL:
            self.put(final_at=None)
        entry = {"from": before.value, "to": after.value, "event": event.value} | data
        self.note("status_changed", actor=actor, on_behalf_of=on_behalf_of, **(entry | ({"code": code.value} if code else {})))

    def note(self, type_: str, *, actor: str = SYSTEM, on_behalf_of: str | None = None, **data: Any) -> None:
        """Enter something in the ledger that is not a move. ``data`` is integers and strings; never customer text."""
        version = self["version"] + 1
        self.put(version=version)
        self._entries.append(
            {
                "at": self.at,
                "type": type_,
                "refund_id": self.id,
                "refund_version": version,
                "actor": actor,
                "on_behalf_of": on_behalf_of,
                "data": plain(data),
            }
        )

    def signal(self, name: str, message: str) -> None:
        """Have a signal delivered to the run, at least once, unless the run hears the message from whoever recorded it first."""
        self._outbox.append(_out("signal", self.id, {"name": name, "message": message}, self.at, due_at=self.at + SIGNAL_AFTER))

    def notice(self, kind: str, **data: Any) -> None:
        """Tell people outside, at least once, after this transaction."""
        self._outbox.append(_out("notice", self.id, {"kind": kind} | plain(data), self.at))

    async def save(self, connection: AsyncConnection) -> None:
        """Write the row, its ledger entries and what must reach the outside."""
        if self._set:
            await connection.execute(update(refunds).where(refunds.c.id == self.id).values(**self._set))
            self._row |= self._set
            self._set = {}
        if self._entries:
            await connection.execute(insert(ledger).inline(), self._entries)
            self._entries = []
        if self._outbox:
            await connection.execute(insert(outbox).inline(), self._outbox)
            self._outbox = []


def _out(kind: str, refund_id: str | None, body: dict[str, Any], at: datetime, *, due_at: datetime | None = None) -> dict[str, Any]:
    return {"kind": kind, "refund_id": refund_id, "body": body, "created_at": at, "due_at": due_at or at}


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


async def lock_payment(connection: AsyncConnection, payment_id: str) -> RowMapping:
    """Lock a payment: the second lock of the order (stop, payment, refund, customer). What is read afterwards is current."""
    return (await connection.execute(select(payments).where(payments.c.id == payment_id).with_for_update())).mappings().one()


async def lock_payment_of(connection: AsyncConnection, refund_id: str) -> RowMapping | None:
    """Lock the payment a refund is about, before the refund itself; ``None`` when it is about none yet. Raises ``REFUND_NOT_FOUND``."""
    query = select(payments).join(refunds, refunds.c.payment_id == payments.c.id).where(refunds.c.id == refund_id)
    row = (await connection.execute(query.with_for_update(of=payments))).mappings().one_or_none()
    if row is None:
        await read_refund(connection, refund_id)
    return row


async def lock_refund(connection: AsyncConnection, refund_id: str, clock_now: Now) -> Change:
    """Lock a refund, then take the time. Raises ``REFUND_NOT_FOUND``."""
    row = (await connection.execute(select(refunds).where(refunds.c.id == refund_id).with_for_update())).mappings().one_or_none()
    if row is None:
        raise RefundError(Code.REFUND_NOT_FOUND, refund=refund_id)
    return Change(row, clock_now())


async def read_refund(connection: AsyncConnection, refund_id: str) -> RowMapping:
    """Read a refund without locking it. Raises ``REFUND_NOT_FOUND``."""
    row = (await connection.execute(select(refunds).where(refunds.c.id == refund_id))).mappings().one_or_none()
    if row is None:
        raise RefundError(Code.REFUND_NOT_FOUND, refund=refund_id)
    return row


async def enter(connection: AsyncConnection, type_: str, at: datetime, *, actor: str, on_behalf_of: str | None = None, **data: Any) -> None:
    """Enter something in the ledger that belongs to no refund."""
    await connection.execute(
        insert(ledger).inline().values(at=at, type=type_, actor=actor, on_behalf_of=on_behalf_of, data=plain(data), refund_id=None)
    )


async def announce(connection: AsyncConnection, refund_id: str) -> None:
    """Wake whoever waits for this refund to move, when the transaction commits."""
    await connection.execute(select(func.pg_notify("refund", refund_id)))
