"""Operations as the store reads them: one per approved revision, with what its attempts say."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Protocol

from sqlalchemy import Interval, bindparam, func, select
from sqlalchemy.ext.asyncio import AsyncConnection

from refunds.errors import Code
from refunds.messages import Situation
from refunds.money import Money
from refunds.processor import STRIPE, FrozenRequest
from refunds.settings import Settings
from refunds.terms import OperationKind
from store import brakes, controls, halts
from store.changes import Change, ask_locks, lock_with_payment, read_refund
from store.db import Database
from store.situations import situation
from store.sql import Answer, Query, Row, pipelined
from store.tables import attempts, operations, revisions

ANSWERED, REFUSED, NOT_SENT, UNKNOWN, LAPSED = "answered", "refused", "not_sent", "unknown", "lapsed"
_CERTAIN = (ANSWERED, REFUSED, NOT_SENT, LAPSED)


@dataclass(frozen=True, slots=True)
class Operation:
    """One operation with what its attempts say.

    ``in_flight``: an attempt is open that may still be sent, perhaps by another worker; ``may_answer``: one may still be under way, also one that we have
    heard nothing of: the connection broke, and the processor may work on.
    ``first_sent_at``: the opening of the first attempt that may have been sent, by the clock of the worker that opened it; ``first_sent_ago``: how long its
    ``send_by`` lies back, by the database's clock.
    """

    id: str
    refund_id: str
    revision: int
    payment_id: str
    kind: OperationKind
    amount: Money
    request: FrozenRequest
    attempts: int
    uncertain: bool
    in_flight: bool
    may_answer: bool
    first_sent_at: datetime | None
    first_sent_ago: timedelta | None
    last_reason: str | None
    terms_expire_at: datetime
    quoted_dispute: str
    api_version: str
    created_at: datetime


@dataclass(frozen=True, slots=True)
class Attempt:
    """An open attempt: it may leave this machine for ``send_within_s`` from the moment the transaction that opened it was begun, and not later."""

    id: str
    number: int
    send_within_s: float


class MaybeSent(Protocol):
    """What is to be sent once, and what its attempts say: an operation, or a leg of one."""

    @property
    def attempts(self) -> int:
        """How many there were."""
        ...

    @property
    def first_sent_at(self) -> datetime | None:
        """When the first attempt was opened that may have been sent."""
        ...

    @property
    def first_sent_ago(self) -> timedelta | None:
        """How long its ``send_by`` lies back."""
        ...

    @property
    def last_reason(self) -> str | None:
        """Why the last one had no answer."""
        ...

    @property
    def api_version(self) -> str:
        """The processor's version it was approved for."""
        ...


def said_by(tried: Sequence[Any]) -> dict[str, Any]:
    """What attempts say together, from their rows in their order: as uncertain as the worst of them."""
    maybe_sent = [a for a in tried if a["attempt_outcome"] not in (NOT_SENT, LAPSED)]
    return {
        "attempts": len(tried),
        "uncertain": any(a["attempt_outcome"] not in _CERTAIN for a in tried),
        "in_flight": any(a["attempt_outcome"] is None and a["sendable"] for a in tried),
        "may_answer": any(a["attempt_outcome"] in (None, UNKNOWN) and a["answerable"] for a in tried),
        "first_sent_at": min((a["opened_at"] for a in maybe_sent), default=None),
        "first_sent_ago": max((a["since_send_by"] for a in maybe_sent), default=None),
        "last_reason": tried[-1]["reason"] if tried else None,
    }


def operation_from(row: Any, tried: Sequence[Any]) -> Operation:
    """Build an operation from its row (with what was quoted) and the rows of its attempts in their order."""
    return Operation(
        id=row["id"],
        refund_id=row["refund_id"],
        revision=row["revision"],
        payment_id=row["payment_id"],
        kind=OperationKind(row["kind"]),
        amount=Money(row["amount"], row["currency"]),
        request=FrozenRequest(**row["request"]),
        **said_by(tried),
        terms_expire_at=row["expires_at"],
        quoted_dispute=row["dispute"],
        api_version=row["api_version"],
        created_at=row["created_at"],
    )


_NOW = func.clock_timestamp()
_OPERATION = Query(
    select(
        operations,
        revisions.c.expires_at,
        revisions.c.facts["payment"]["dispute"].astext.label("dispute"),
        revisions.c.terms["api_version"].astext.label("api_version"),
        attempts.c.outcome.label("attempt_outcome"),
        attempts.c.reason,
        attempts.c.opened_at,
        (attempts.c.id.is_not(None)).label("attempted"),
        (attempts.c.send_by > _NOW).label("sendable"),
        (attempts.c.send_by + bindparam("longest", type_=Interval) > _NOW).label("answerable"),
        (_NOW - attempts.c.send_by).label("since_send_by"),
    )
    .join(revisions, (revisions.c.refund_id == operations.c.refund_id) & (revisions.c.revision == operations.c.revision))
    .outerjoin(attempts, attempts.c.operation_id == operations.c.id)
    .where(operations.c.refund_id == bindparam("refund"), operations.c.revision == bindparam("number"))
    .order_by(attempts.c.number)
)


@dataclass(frozen=True)
class OperationRows:
    """What everything that works on operations shares: the login of the ``payments`` role, the locks, and reading an operation."""

    database: Database
    settings: Settings
    worker: str

    @property
    def _longest_call(self) -> timedelta:
        """How long after its ``send_by`` a call can still be under way."""
        return timedelta(seconds=self.settings.stripe_connect_timeout_s + self.settings.stripe_read_timeout_s)

    def no_more_posts(self, sent: MaybeSent, now: datetime) -> str | None:
        """Why nothing may be posted again for what may already have been sent, or ``None``.

        Processors forget idempotency keys; after the safe window a repeated request could be a second refund (field report 4).
        """
        if sent.api_version != self.settings.stripe_api_version:
            return f"it was approved for API version {sent.api_version}"
        if self.window_is_over(sent, now):
            return f"the safe window of {self.settings.submit_safe_window_s / 3600:g} h is over"
        if sent.attempts >= self.settings.submit_max_attempts:
            return f"{sent.attempts} attempts had no answer ({sent.last_reason})"
        return None

    def window_is_over(self, sent: MaybeSent, now: datetime) -> bool:
        """Whether either clock says so: a worker whose clock was ahead must not make an old attempt look young."""
        window = timedelta(seconds=self.settings.submit_safe_window_s)
        ages = [sent.first_sent_ago, now - sent.first_sent_at if sent.first_sent_at else None]
        return any(age is not None and age >= window for age in ages)

    async def halt(self, code: Code, reason: str) -> None:
        """Halt submitting until an operator lifts it, and tell people; nothing more if it is halted already."""
        async with self.database.begin() as connection:
            await halts.open_halt(connection, self.database.clock.now(), processor=STRIPE, code=code, reason=reason)

    async def operation_of(self, refund_id: str) -> Operation | None:
        """The operation of a refund's present revision, or ``None``."""
        async with self.database.read() as connection:
            return await self._operation(connection, Change(await read_refund(connection, refund_id), self.database.clock.now()))

    async def _operation(self, connection: AsyncConnection, change: Change) -> Operation | None:
        """Read the operation of the present revision with its attempts, and judge their timing by the database's clock."""
        return self._read_operation(
            await _OPERATION.all(connection, refund=change.id, number=change["revision"], longest=self._longest_call)
        )

    async def _ask_operation(self, connection: AsyncConnection, change: Change) -> Answer:
        """Ask for it in a pipeline; :meth:`_read_operation` reads the rows."""
        return await _OPERATION.ask(connection, refund=change.id, number=change["revision"], longest=self._longest_call)

    def _read_operation(self, rows: list[dict[str, Any]]) -> Operation | None:
        return operation_from(rows[0], [row for row in rows if row["attempted"]]) if rows else None

    async def _locked(self, connection: AsyncConnection, operation: Operation) -> Change:
        """Lock the operation's payment, then its refund."""
        _, change = await lock_with_payment(connection, operation.refund_id, self.database.clock.now, payment_id=operation.payment_id)
        return change

    async def _locked_to_send(
        self, connection: AsyncConnection, processor: str, refund_id: str
    ) -> tuple[brakes.Brake | None, Row | None, Change]:
        """Share the stop's lock, read what keeps the refund back whatever its own merits, and lock its payment (``None`` without one) and the refund.

        One trip, but a statement each: what is read is as it was after the lock before it was had. Raises ``REFUND_NOT_FOUND``.
        """
        async with pipelined(connection):
            await controls.share_stop_lock(connection)
            asked = await brakes.CONTROLS.ask(connection, refund=refund_id, processor=processor)
            locks = await ask_locks(connection, refund_id)
        payment, change = await locks.taken(self.database.clock.now)
        return brakes.from_controls(await asked.one()), payment, change

    async def _saved(self, connection: AsyncConnection, change: Change) -> Situation:
        await change.save(connection, announce=True)
        return situation(change.row)
