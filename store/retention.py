"""Taking away what has had its time (``refunds/retention.py``), so many rows at a time: each batch is one transaction with one entry in the ledger.

Only what belongs to refunds that are over is touched, and never what the ledger or the accounts need. A sealed text goes with the salt of its commitment: that it
was there, when, and that nobody changed it can still be proven; what it said no more.
"""

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import delete, exists, func, literal_column, or_, select, tuple_, update
from sqlalchemy.ext.asyncio import AsyncConnection

from refunds.clock import rfc3339
from refunds.discrepancies import Standing
from refunds.events import EventState
from refunds.ids import Prefix, new_id
from refunds.retention import Kept, Period, kinds_of_text, periods
from refunds.settings import Settings
from store.changes import SYSTEM, enter
from store.db import Database
from store.tables import discrepancies, erasures, events, order_pulls, pulled_payments, refund_groups, refunds, texts

BATCH = 500
MOST_BATCHES = 40
"""So many of one kind in one run: what is left has to wait for the next one."""

_DEALT_WITH = (EventState.DONE.value, EventState.IGNORED.value)


@dataclass(frozen=True, slots=True)
class Run:
    """What a run took away, or would, by kind; ``more`` when it left something for the next. ``id`` is ``None`` for one that only counted."""

    id: str | None
    removed: dict[Kept, int]
    more: bool


@dataclass(frozen=True)
class Retention:
    """Applies the periods of the settings, over the login of the API or of the ``refunds`` role."""

    database: Database
    settings: Settings

    async def due(self) -> dict[Kept, int | None]:
        """How much of each kind has had its time by now; ``None`` for what has no period."""
        now = self.database.clock.now()
        counted: dict[Kept, int | None] = {}
        for period in periods(self.settings):
            before = period.before(now)
            async with self.database.read() as connection:
                counted[period.kind] = None if before is None else await _count(connection, period.kind, before)
        return counted

    async def run(self, *, actor: str = SYSTEM, dry_run: bool = False) -> Run:
        """Take away what has had its time. Safe to be cut short and to run in several places at once."""
        if dry_run:
            return Run(None, {kind: count for kind, count in (await self.due()).items() if count}, more=False)
        run_id, removed, more = new_id(Prefix.RETENTION), dict[Kept, int](), False
        for period in periods(self.settings):
            if (before := period.before(self.database.clock.now())) is None:
                continue
            for _ in range(MOST_BATCHES):
                taken = await self._batch(run_id, period, before, actor)
                if taken:
                    removed[period.kind] = removed.get(period.kind, 0) + taken
                if taken < BATCH:
                    break
            else:
                more = True
        return Run(run_id if removed else None, removed, more)

    async def _batch(self, run_id: str, period: Period, before: datetime, actor: str) -> int:
        async with self.database.begin() as connection:
            taken = await _remove(connection, period.kind, before)
            if taken:
                what: dict[str, Any] = {
                    "run": run_id,
                    "kind": period.kind.value,
                    "days": period.days,
                    "before": rfc3339(before),
                    "removed": taken,
                }
                await enter(connection, "retention_applied", self.database.clock.now(), actor=actor, **what)
        return taken


def _old(kind: Kept, before: datetime) -> list[Any]:
    """For each table that holds this kind, the keys of its rows that have had their time."""
    match kind:
        case Kept.EVENTS:
            worked_off = (events.c.state.in_(_DEALT_WITH), events.c.done_at < before, events.c.facts != literal_column("'{}'::jsonb"))
            return [select(events.c.id).where(*worked_off)]
        case Kept.PULLS:
            rows = select(pulled_payments.c.pull_id, pulled_payments.c.processor_payment)
            over = rows.join(order_pulls, order_pulls.c.id == pulled_payments.c.pull_id)
            return [over.where(order_pulls.c.finished_at < before, pulled_payments.c.order_lookup.is_not(None))]
        case Kept.FINGERPRINTS:
            under_way = exists().where(
                refunds.c.group_id == refund_groups.c.id, or_(refunds.c.final_at.is_(None), refunds.c.final_at >= before)
            )
            return [
                select(refunds.c.id).where(refunds.c.final_at < before, refunds.c.body_hash != literal_column("''")),
                select(refund_groups.c.id).where(
                    refund_groups.c.created_at < before, refund_groups.c.body_hash != literal_column("''"), ~under_way
                ),
            ]
        case Kept.ERASURE_MARKS:
            return [select(erasures.c.id).where(erasures.c.mark.is_not(None), erasures.c.forgotten_at < before)]
        case _:
            exact, beginnings = kinds_of_text(kind)
            named = or_(texts.c.kind.in_(exact), *(texts.c.kind.startswith(beginning, autoescape=True) for beginning in beginnings))
            over = select(texts.c.refund_id, texts.c.kind).join(refunds, refunds.c.id == texts.c.refund_id)
            found = [over.where(texts.c.recorded_at < before, refunds.c.final_at < before, named)]
            return found + ([_old_remarks(before)] if kind is Kept.NOTES else [])


def _old_remarks(before: datetime) -> Any:
    """What operators wrote about discrepancies that nobody has to look at any more."""
    settled = discrepancies.c.state != literal_column(f"'{Standing.OPEN.value}'")
    seen = func.greatest(discrepancies.c.closed_at, discrepancies.c.last_seen_at)
    return select(discrepancies.c.id).where(discrepancies.c.note.is_not(None), settled, seen < before)


async def _count(connection: AsyncConnection, kind: Kept, before: datetime) -> int:
    counts = [await connection.execute(select(func.count()).select_from(old.subquery())) for old in _old(kind, before)]
    return sum(count.scalar_one() for count in counts)


async def _remove(connection: AsyncConnection, kind: Kept, before: datetime) -> int:
    """Take away at most :data:`BATCH` of a kind; how many."""
    taken = 0
    for old in _old(kind, before):
        chosen = old.limit(BATCH - taken)
        match kind:
            case Kept.EVENTS:
                statement = update(events).where(events.c.id.in_(chosen)).values(facts={})
            case Kept.PULLS:
                one = tuple_(pulled_payments.c.pull_id, pulled_payments.c.processor_payment)
                statement = (
                    update(pulled_payments).where(one.in_(chosen)).values(order_lookup=None, order_sealed=None, customer_sealed=None)
                )
            case Kept.FINGERPRINTS:
                table = refunds if refunds in old.get_final_froms() else refund_groups
                statement = update(table).where(table.c.id.in_(chosen)).values(body_hash="")
            case Kept.ERASURE_MARKS:
                statement = update(erasures).where(erasures.c.id.in_(chosen)).values(mark=None)
            case Kept.NOTES if discrepancies in old.get_final_froms():
                statement = update(discrepancies).where(discrepancies.c.id.in_(chosen)).values(note=None)
            case _:
                statement = delete(texts).where(tuple_(texts.c.refund_id, texts.c.kind).in_(chosen))
        taken += (await connection.execute(statement)).rowcount
        if taken >= BATCH:
            break
    return taken
