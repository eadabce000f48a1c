"""What refunds took from the merchant's balance, as the processor says: kept beside what customers receive, never in its place (field report 36).

Nothing is decided by these figures. They are read when they are worth a call: where a currency is settled in another one, or nobody knows yet in which.
"""

from datetime import datetime
from typing import Any

from sqlalchemy import Select, and_, bindparam, exists, literal, or_, select
from sqlalchemy.dialects.postgresql import insert

from refunds.processor import RefundState, Settlement
from store.changes import enter
from store.db import Database
from store.sql import Query
from store.tables import operations, payments, processor_refunds, settlements

PROCESSOR = "processor"
"""The actor of what the processor says."""

_FIGURES = ("settlement_amount", "settlement_currency", "rate", "fee", "returned")
_this, _known = processor_refunds, settlements.alias("known")
_FAILED = [literal(state.value) for state in RefundState if not state.counts]


def _elsewhere() -> Any:
    """Whether the currency is not known to settle in itself alone."""
    same = exists().where(_known.c.presentment_currency == _this.c.currency, _known.c.settlement_currency == _this.c.currency)
    other = exists().where(_known.c.presentment_currency == _this.c.currency, _known.c.settlement_currency != _this.c.currency)
    return or_(~same, other)


def _wanted() -> Select[Any]:
    """The processor's refunds of which something is not known: they succeeded and nothing was read yet, or they failed and may have come back since."""
    unread = and_(settlements.c.processor_refund_id.is_(None), _this.c.state == literal(RefundState.SUCCEEDED.value))
    came_back = and_(settlements.c.returned == literal(0), _this.c.state.in_(_FAILED))
    return (
        select(_this.c.id)
        .select_from(_this.outerjoin(settlements, settlements.c.processor_refund_id == _this.c.id))
        .where(_this.c.processor == bindparam("processor"), or_(unread, came_back))
    )


_LATELY = Query(
    _wanted()
    .where(_this.c.updated_at >= bindparam("since"), _elsewhere())
    .order_by(_this.c.updated_at.desc(), _this.c.id)
    .limit(bindparam("most"))
)
_IN_WINDOW = Query(
    _wanted()
    .where(_this.c.first_seen_at >= bindparam("since"), _this.c.first_seen_at < bindparam("until"))
    .order_by(_elsewhere().desc(), _this.c.first_seen_at.desc(), _this.c.id)
    .limit(bindparam("most"))
)


class Settlements:
    """The figures of one processor, over the login of the ``payments`` role."""

    def __init__(self, database: Database, processor: str) -> None:
        self.database = database
        self.processor = processor

    async def wanted_since(self, since: datetime, *, most: int) -> list[str]:
        """Refunds that have changed since then and whose figures are worth a call: in a currency that is not known to settle in itself. The latest first."""
        async with self.database.read() as connection:
            return [row["id"] for row in await _LATELY.all(connection, since=since, most=most, processor=self.processor)]

    async def wanted_in(self, since: datetime, until: datetime, *, most: int) -> list[str]:
        """Refunds of a window of time without figures, at most so many: those in currencies that settle in another first, then the newest."""
        async with self.database.read() as connection:
            rows = await _IN_WINDOW.all(connection, since=since, until=until, most=most, processor=self.processor)
            return [row["id"] for row in rows]

    async def keep(self, found: Settlement) -> bool:
        """Keep the figures of a refund and enter both amounts and the rate in the ledger; true when that changed anything.

        The entry is one of its own, whoever made the refund: nothing about a refund of ours changes by it, so its row and its version stay as they are.
        Figures of a refund that is recorded with another amount or currency are not kept: which of the two is wrong, the reconciliation says.
        """
        async with self.database.begin() as connection:
            query = (
                select(
                    _this.c.amount,
                    _this.c.currency,
                    payments.c.id.label("payment"),
                    operations.c.id.label("operation"),
                    operations.c.refund_id,
                )
                .select_from(_this)
                .join(payments, payments.c.id == _this.c.payment_id)
                .outerjoin(operations, operations.c.id == _this.c.operation_id)
                .where(_this.c.id == found.processor_refund)
            )
            row = (await connection.execute(query)).mappings().one_or_none()
            if row is None or (row["amount"], row["currency"]) != (found.presentment_amount, found.presentment_currency):
                return False
            at = self.database.clock.now()
            figures = {name: getattr(found, name) for name in _FIGURES}
            new = insert(settlements).values(
                processor_refund_id=found.processor_refund,
                presentment_amount=found.presentment_amount,
                presentment_currency=found.presentment_currency,
                **figures,
                first_read_at=at,
                read_at=at,
            )
            differs = or_(*(settlements.c[name].is_distinct_from(new.excluded[name]) for name in ("rate", "fee", "returned")))
            fresher = {name: new.excluded[name] for name in ("rate", "fee", "returned", "read_at")}
            kept = await connection.execute(new.on_conflict_do_update(index_elements=["processor_refund_id"], set_=fresher, where=differs))
            if kept.rowcount == 0:
                return False
            await enter(
                connection,
                "settlement_figures",
                at,
                actor=PROCESSOR,
                refund=row["refund_id"],
                operation=row["operation"],
                payment=row["payment"],
                processor_refund=found.processor_refund,
                presentment_amount=found.presentment_amount,
                presentment_currency=found.presentment_currency,
                **figures,
            )
            return True
