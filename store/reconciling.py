"""Reconciliations: the processor's refunds of a window of time compared with our record, both ways, a page at a time.

``theirs`` holds each page of the processor's list against the record in one statement; ``ours`` takes what the record has of that window and the list did not
show. Where a run stands is stored with every page, so a run that is killed goes on where it was, and every page counts once.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, Self

from sqlalchemy import Text, bindparam, literal, select, text, tuple_, update
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncConnection

from refunds.clock import parse_rfc3339, rfc3339
from refunds.discrepancies import Kind
from refunds.errors import Code, RefundError
from refunds.processor import ProcessorRefund
from refunds.settings import Settings
from store import halts
from store.changes import SYSTEM, enter
from store.comparing import FORGOTTEN, IMPORTED, NO_DIFFERENCE, Finding, Verdict, compare
from store.db import Database
from store.discrepancies import note
from store.sql import Query, Row
from store.tables import discrepancies, reconciliations

CLOCKS_APART = timedelta(minutes=5)
"""How far the processor's clock may be from ours: its list is read this much beyond both ends of the window."""

FULL = timedelta(days=45)
"""A run that reaches back so far is full: it also reads what is older and has changed since, so that whatever succeeded within it is seen failing late."""


class Phase(StrEnum):
    """Which way a run compares just now; ``canceled``: an operator ended it before it was done."""

    THEIRS = "theirs"
    OURS = "ours"
    DONE = "done"
    CANCELED = "canceled"


@dataclass(frozen=True, slots=True)
class Place:
    """How far a run has come in its phase: the last refund of the page before, and when that was made. ``counted``: the page that is being worked on is in
    the figures already. ``elsewhere`` counts refunds of payments that are not ours."""

    after: str | None = None
    reached: datetime | None = None
    counted: bool = False
    elsewhere: int = 0

    @classmethod
    def read(cls, stored: str | None) -> Self:
        """Read what :meth:`written` made."""
        found = json.loads(stored or "{}")
        reached = found.get("reached")
        return cls(found.get("after"), parse_rfc3339(reached) if reached else None, found.get("counted", False), found.get("elsewhere", 0))

    def written(self) -> str:
        """As it is stored."""
        shown = {
            "after": self.after,
            "reached": rfc3339(self.reached) if self.reached else None,
            "counted": self.counted,
            "elsewhere": self.elsewhere,
        }
        return json.dumps({name: value for name, value in shown.items() if value})


@dataclass(frozen=True, slots=True)
class Run:
    """One reconciliation as it stands."""

    id: str
    processor: str
    since: datetime
    until: datetime
    started_by: str
    started_at: datetime
    phase: Phase
    place: Place
    pages: int
    compared: int
    differences: int
    imported: int
    progressed_at: datetime
    finished_at: datetime | None
    last_error: str | None

    @classmethod
    def of(cls, row: Row) -> Self:
        """Read a row."""
        named = {name: row[name] for name in cls.__dataclass_fields__ if name not in ("phase", "place")}
        return cls(**named, phase=Phase(row["phase"]), place=Place.read(row["cursor"]))

    @property
    def is_over(self) -> bool:
        """Whether nothing more is done about it."""
        return self.finished_at is not None


@dataclass(frozen=True, slots=True)
class Page:
    """What a page of a run is about: refunds as the processor shows them, the recorded ones it does not know, and where the run stands after it."""

    refunds: Sequence[ProcessorRefund]
    then: Place
    charges: dict[str, str]
    missing: Sequence[Row] = ()
    last: bool = False


_HERE = Query(select(reconciliations).where(reconciliations.c.id == bindparam("run")).with_for_update())


def _unseen(moment: str) -> Query:
    return Query(
        text(
            f"""
    SELECT p.id, p.payment_id, p.operation_id, p.amount, p.currency, p.raw_state, p.{moment} AS moment, o.refund_id, y.processor_payment
      FROM processor_refunds p
      JOIN payments y ON y.id = p.payment_id
      LEFT JOIN operations o ON o.id = p.operation_id
     WHERE p.processor = :processor AND p.{moment} >= :since AND p.{moment} < :until AND p.compared_in IS DISTINCT FROM :run
       AND (p.{moment}, p.id) > (coalesce(CAST(:reached AS timestamptz), '-infinity'), coalesce(CAST(:after AS text), ''))
     ORDER BY p.{moment}, p.id LIMIT :limit
    """
        ).bindparams(bindparam("run", type_=Text))
    )


_UNSEEN_FIRST, _UNSEEN_CHANGED = _unseen("first_seen_at"), _unseen("updated_at")


async def begin(
    connection: AsyncConnection, at: datetime, *, run_id: str, processor: str, since: datetime, until: datetime, started_by: str
) -> Run:
    """Store a reconciliation that is to be carried out; called again it returns the one there is."""
    await connection.execute(
        insert(reconciliations)
        .values(
            id=run_id,
            processor=processor,
            since=since,
            until=until,
            started_by=started_by,
            started_at=at,
            phase=Phase.THEIRS.value,
            progressed_at=at,
        )
        .on_conflict_do_nothing()
    )
    return await read(connection, run_id)


async def read(connection: AsyncConnection, run_id: str) -> Run:
    """A reconciliation as it stands. Raises ``NOT_FOUND``."""
    row = (await connection.execute(select(reconciliations).where(reconciliations.c.id == run_id))).mappings().one_or_none()
    if row is None:
        raise RefundError(Code.NOT_FOUND, "There is no such reconciliation.")
    return Run.of(row)


class Reconciling:
    """The database's side of reconciliations, over the login of the ``payments`` role.

    Two workers may carry out the same run at once (one that froze, and its heir): each page is taken by whoever stands where the run stands; the other one
    finds that it has moved on.
    """

    def __init__(self, database: Database, settings: Settings, processor: str) -> None:
        self.database = database
        self.settings = settings
        self.processor = processor

    async def begin(self, run_id: str, *, window: timedelta, started_by: str) -> Run:
        """Begin a run over the window that ends now; called again it returns the one there is."""
        now = self.database.clock.now()
        async with self.database.begin() as connection:
            return await begin(
                connection, now, run_id=run_id, processor=self.processor, since=now - window, until=now, started_by=started_by
            )

    async def read(self, run_id: str) -> Run:
        """The run as it stands. Raises ``NOT_FOUND``."""
        async with self.database.begin() as connection:
            return await read(connection, run_id)

    async def unseen(self, run: Run, *, limit: int) -> list[Row]:
        """Recorded refunds of the window that the list did not show, from where the run stands. Those the run first saw itself are not among them.

        A refund is of the window when it was first seen in it; for a full run when it last changed in it. The processor lists by when a refund was made, and
        one that was pending or parked for weeks has only just begun the days in which it may still fail. Short runs leave those to the full ones, because each
        is a call.
        """
        full = run.until - run.since >= FULL
        async with self.database.begin() as connection:
            return list(
                await (_UNSEEN_CHANGED if full else _UNSEEN_FIRST).all(
                    connection,
                    run=run.id,
                    processor=run.processor,
                    since=run.since,
                    until=min(run.until, run.started_at),
                    reached=run.place.reached,
                    after=run.place.after,
                    limit=limit,
                )
            )

    async def compare(self, run: Run, page: Page) -> tuple[Run, list[Finding]] | None:
        """Hold a page against the record and count it; ``None`` when the run has moved on meanwhile.

        Without a finding the run stands behind the page afterwards; with some it stays on it until :meth:`advance`, and repeating the page counts nothing.
        """
        async with self.database.begin() as connection:
            now = Run.of(await _HERE.one(connection, run=run.id))
            if (now.phase, now.place) != (run.phase, run.place) or now.is_over:
                return None
            at = self.database.clock.now()
            young = at - timedelta(seconds=self.settings.reconcile_grace_s)
            found = await compare(connection, page.refunds, page.charges, run=run.id, processor=run.processor, young=young)
            for row in sorted(page.missing, key=lambda row: row["id"]):  # the order in which everybody locks
                await self._note_missing(connection, at, run, row)
            kinds = [finding.verdict for finding in found]
            counted: dict[str, Any] = {}
            elsewhere = now.place.elsewhere
            if not now.place.counted:
                elsewhere += kinds.count(Verdict.ELSEWHERE)
                counted = {
                    "pages": now.pages + 1,
                    "compared": now.compared + len(page.refunds) + len(page.missing) - kinds.count(Verdict.ELSEWHERE),
                    "differences": now.differences + sum(kind not in NO_DIFFERENCE for kind in kinds) + len(page.missing),
                    "imported": now.imported + sum(kind in IMPORTED for kind in kinds),
                }
            differing = [finding for finding in found if finding.verdict not in NO_DIFFERENCE]
            if differing:
                stands = await self._put(connection, at, now, place=replace(now.place, counted=True, elsewhere=elsewhere), **counted)
            else:
                stands = await self._onward(connection, at, now, page, elsewhere, counted)
            return stands, differing

    async def compare_again(self, run: Run, findings: Sequence[Finding]) -> list[Finding]:
        """What of these findings still differs, after their payments were looked at. What the look recorded is shown as found by this run."""
        async with self.database.begin() as connection:
            await connection.execute(
                update(discrepancies)
                .where(
                    discrepancies.c.processor_refund.in_([finding.refund.id for finding in findings]),
                    discrepancies.c.reconciliation_id.is_(None),
                    discrepancies.c.first_seen_at >= run.started_at,
                )
                .values(reconciliation_id=run.id)
            )
            refunds = [finding.refund for finding in findings]
            charges = {finding.refund.id: finding.charge for finding in findings if finding.charge is not None}
            found = await compare(connection, refunds, charges, run=run.id, processor=run.processor, young=self.database.clock.now())
            return [finding for finding in found if finding.verdict not in NO_DIFFERENCE]

    async def advance(self, run: Run, page: Page) -> Run:
        """Go on behind a page whose findings have been dealt with; a run that has moved on meanwhile stays where it is."""
        async with self.database.begin() as connection:
            now = Run.of(await _HERE.one(connection, run=run.id))
            if (now.phase, now.place) != (run.phase, run.place) or now.is_over:
                return now
            return await self._onward(connection, self.database.clock.now(), now, page, now.place.elsewhere, {})

    async def note(self, run: Run, finding: Finding, kind: Kind) -> bool:
        """Record a finding as a discrepancy. One that says that the database has forgotten something halts the processor."""
        at = self.database.clock.now()
        async with self.database.begin() as connection:
            first = await note(
                connection,
                at,
                kind=kind,
                processor=run.processor,
                payment_id=finding.payment_id,
                refund_id=finding.refund_id,
                operation_id=finding.refund.operation,
                processor_refund=finding.refund.id,
                evidence=finding.evidence,
                reconciliation_id=run.id,
            )
            if first and finding.verdict in FORGOTTEN:
                why = f"the processor shows {finding.refund.id}, a refund of ours that the database does not know"
                await halts.open_halt(connection, at, processor=run.processor, code=Code.DATABASE_FORGOT, reason=why)
            return first

    async def failed(self, run_id: str, why: str) -> None:
        """Show why a run does not get on just now. It stays where it is."""
        async with self.database.begin() as connection:
            await connection.execute(
                update(reconciliations)
                .where(reconciliations.c.id == run_id, reconciliations.c.finished_at.is_(None))
                .values(last_error=f"{rfc3339(self.database.clock.now())} {why}"[:500])
            )

    async def cancel(self, run_id: str) -> None:
        """End a run that an operator has cancelled."""
        async with self.database.begin() as connection:
            now = Run.of(await _HERE.one(connection, run=run_id))
            if not now.is_over:
                await self._end(connection, self.database.clock.now(), now, Phase.CANCELED)

    async def restart(self, run: Run) -> Run:
        """Read the window from its beginning: the processor does not know where the run stands any more. What was counted stays counted."""
        async with self.database.begin() as connection:
            now = Run.of(await _HERE.one(connection, run=run.id))
            if (now.phase, now.place) != (run.phase, run.place) or now.is_over:
                return now
            place = Place(elsewhere=now.place.elsewhere)
            return await self._put(connection, self.database.clock.now(), now, place=place)

    async def halt(self, code: Code, reason: str) -> None:
        """Halt submitting until an operator lifts it, and tell people; nothing more if it is halted already."""
        async with self.database.begin() as connection:
            await halts.open_halt(connection, self.database.clock.now(), processor=self.processor, code=code, reason=reason)

    async def ahead_of(self, run: Run) -> str | None:
        """The run that began before this one and is not over, or ``None``. One at a time: each marks what it has seen, and two would wipe out each other's marks."""
        before = tuple_(reconciliations.c.started_at, reconciliations.c.id) < tuple_(literal(run.started_at), literal(run.id))
        query = (
            select(reconciliations.c.id)
            .where(reconciliations.c.processor == run.processor, reconciliations.c.finished_at.is_(None), before)
            .order_by(reconciliations.c.started_at, reconciliations.c.id)
            .limit(1)
        )
        async with self.database.read() as connection:
            return (await connection.execute(query)).scalar_one_or_none()

    async def unfinished(self, *, grace: timedelta, limit: int = 20) -> list[Run]:
        """Runs that are not over and have not got on lately: each is to be started again if it is not at work."""
        async with self.database.begin() as connection:
            rows = await connection.execute(
                select(reconciliations)
                .where(reconciliations.c.finished_at.is_(None), reconciliations.c.progressed_at < self.database.clock.now() - grace)
                .order_by(reconciliations.c.started_at)
                .limit(limit)
            )
            return [Run.of(row) for row in rows.mappings()]

    # --- within a transaction ----------------------------------------------------------------------------------------------------------

    async def _note_missing(self, connection: AsyncConnection, at: datetime, run: Run, row: Row) -> None:
        ours = {
            "processor_refund": row["id"],
            "refund": row["refund_id"],
            "payment": row["processor_payment"],
            "amount": row["amount"],
            "currency": row["currency"],
            "state": row["raw_state"],
        }
        await note(
            connection,
            at,
            kind=Kind.OURS_MISSING,
            processor=run.processor,
            payment_id=row["payment_id"],
            refund_id=row["refund_id"],
            operation_id=row["operation_id"],
            processor_refund=row["id"],
            evidence={"ours": ours, "theirs": {"refund": "not known there"}},
            reconciliation_id=run.id,
        )

    async def _onward(
        self, connection: AsyncConnection, at: datetime, now: Run, page: Page, elsewhere: int, counted: Mapping[str, Any]
    ) -> Run:
        if not page.last:
            return await self._put(connection, at, now, place=replace(page.then, elsewhere=elsewhere), **counted)
        if now.phase is Phase.THEIRS:
            return await self._put(connection, at, now, place=Place(elsewhere=elsewhere), phase=Phase.OURS.value, **counted)
        return await self._end(connection, at, now, Phase.DONE, place=Place(elsewhere=elsewhere), **counted)

    async def _end(self, connection: AsyncConnection, at: datetime, now: Run, phase: Phase, **values: Any) -> Run:
        ended = await self._put(connection, at, now, phase=phase.value, finished_at=at, **({"place": now.place} | values))
        await enter(
            connection,
            "reconciliation_finished",
            at,
            actor=SYSTEM,
            reconciliation=now.id,
            phase=phase.value,
            since=ended.since,
            until=ended.until,
            pages=ended.pages,
            compared=ended.compared,
            elsewhere=ended.place.elsewhere,
            differences=ended.differences,
            imported=ended.imported,
        )
        return ended

    async def _put(self, connection: AsyncConnection, at: datetime, now: Run, *, place: Place, **values: Any) -> Run:
        rows = await connection.execute(
            update(reconciliations)
            .where(reconciliations.c.id == now.id)
            .values({"cursor": place.written(), "progressed_at": at, "last_error": None} | values)
            .returning(reconciliations)
        )
        return Run.of(rows.mappings().one())
