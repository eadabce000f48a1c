"""The reconciliation sweep: a window of the processor's refunds compared with our record, both ways.

What differs leads to a live look at its payment, by the same code that any hint leads to; what no rule covers becomes a discrepancy for a person. Reading moves
nothing, so everything here may be repeated, and a processor that cannot be asked changes nothing but the time of the next try.
"""

from collections.abc import Sequence
from datetime import timedelta
from typing import Protocol

from temporalio import activity
from temporalio.exceptions import ApplicationError

from activities.figures import Figures
from activities.heartbeat import heartbeating
from activities.keys import halting_without_key
from activities.processors.base import Processor
from activities.processors.error_map import SHAPE
from refunds.discrepancies import Kind
from refunds.logs import logger
from refunds.messages import ReconciliationProgress, ReconciliationStep, Step
from refunds.processor import NotSent
from store.comparing import Finding, Verdict
from store.reconciling import CLOCKS_APART, Page, Phase, Place, Reconciling, Run

log = logger(__name__)

PAGES_A_STEP = 200
"""After so many pages a step ends, so that the run shows how far it has come and a worker that is told to stop can."""

UNREADABLE_AFTER = 5
"""So often a step is tried before a payment counts as unreadable."""

WAITS_ITS_TURN = timedelta(seconds=5)
"""How soon a run asks again whether the one before it is over."""

_PAGE = 100
_OURS_A_PAGE = 50
_NOT_THERE = "resource_missing"


class Observes(Protocol):
    """Looks at a payment live and records what it says."""

    async def observe(self, payment_id: str) -> object:
        """Read the payment with all its refunds and record it. Raises ``NotSent`` when the processor cannot be asked."""
        ...


class ReconcileAll:
    """The sweep of the ``payments`` role."""

    def __init__(
        self,
        reconciling: Reconciling,
        processor: Processor,
        observer: Observes,
        figures: Figures | None = None,
        *,
        pages_a_step: int = PAGES_A_STEP,
    ) -> None:
        self._figures = figures
        self._store = reconciling
        self._processor = processor
        self._observer = observer
        self._pages_a_step = pages_a_step

    @activity.defn(name=Step.RECONCILE_BEGIN)
    async def begin(self, step: ReconciliationStep) -> ReconciliationProgress:
        """Store a run over the last ``window_s`` seconds; called again it is the same run."""
        return _progress(
            await self._store.begin(step.run, window=timedelta(seconds=step.window_s), started_by=step.begun_by or "somebody in Temporal")
        )

    @activity.defn(name=Step.RECONCILE_PAGES)
    async def pages(self, step: ReconciliationStep) -> ReconciliationProgress:
        """Carry the run on by some pages, from where it stands. When the processor cannot be asked, the run says so and is tried again."""
        run = await self._store.read(step.run)
        if not run.is_over and (other := await self._store.ahead_of(run)) is not None:
            await self._store.failed(run.id, f"waits for {other}, which began before")
            raise ApplicationError("another_is_under_way", type="Waits", next_retry_delay=WAITS_ITS_TURN) from None
        async with heartbeating():
            for _ in range(self._pages_a_step):
                if run.is_over:
                    break
                try:
                    async with halting_without_key(self._store):
                        run = await self._page(run)
                except NotSent as error:
                    await self._store.failed(run.id, f"the processor cannot be asked ({error.reason})")
                    log.warning("reconciliation_waits", run=run.id, reason=error.reason)
                    delay = None if error.retry_after is None else timedelta(seconds=error.retry_after)
                    raise ApplicationError(error.reason, type="NotSent", next_retry_delay=delay) from None
            if run.is_over and self._figures is not None:
                await self._figures.of_window(run.since, run.until)
        return _progress(run)

    @activity.defn(name=Step.RECONCILE_CANCEL)
    async def cancel(self, step: ReconciliationStep) -> None:
        """End a run that an operator has cancelled in Temporal."""
        await self._store.cancel(step.run)

    async def _page(self, run: Run) -> Run:
        """One page: compare, look at what differs, and go on behind it."""
        page = await (self._their_page(run) if run.phase is Phase.THEIRS else self._our_page(run))
        if page is None:
            return await self._store.restart(run)
        compared = await self._store.compare(run, page)
        if compared is None:
            return await self._store.read(run.id)  # another worker is further
        run, findings = compared
        if not findings:
            return run
        await self._settle(run, findings)
        return await self._store.advance(run, page)

    async def _their_page(self, run: Run) -> Page | None:
        """The next page of the processor's list, newest first; ``None`` when it does not know any more where we were."""
        try:
            listed = await self._processor.list_refunds(
                created_from=run.since - CLOCKS_APART, created_to=run.until + CLOCKS_APART, after=run.place.after, limit=_PAGE
            )
        except NotSent as error:
            if run.place.after is not None and error.code == _NOT_THERE:
                return None
            raise
        reached = listed.refunds[-1].created_at if listed.refunds else None
        return Page(listed.refunds, Place(listed.next_after, reached), listed.charges, last=listed.next_after is None)

    async def _our_page(self, run: Run) -> Page:
        """Recorded refunds that the list did not show, each read by its id: one that is not there either is missing."""
        rows = await self._store.unseen(run, limit=_OURS_A_PAGE)
        if not rows:
            return Page((), Place(), {}, last=True)
        read = [(row, await self._processor.retrieve(row["id"])) for row in rows]
        # Read by its id a refund names the PaymentIntent; we may know the payment by its charge.
        charges = {row["id"]: row["processor_payment"] for row in rows if row["processor_payment"].startswith(("ch_", "py_"))}
        return Page(
            [seen for _, seen in read if seen is not None],
            Place(rows[-1]["id"], rows[-1]["moment"]),
            charges,
            [row for row, seen in read if seen is None],
            last=len(rows) < _OURS_A_PAGE,
        )

    # --- what differs ------------------------------------------------------------------------------------------------------------------

    async def _settle(self, run: Run, findings: Sequence[Finding]) -> None:
        """Look at the payments of what differs, then record what still does.

        After the look the record says what the processor says: what was made without us is imported, and what moved is recorded. A difference that is left
        may be younger than the page, so the refund is read once more by itself before a person is told.
        """
        for payment_id in sorted({finding.payment_id for finding in findings if finding.payment_id is not None and finding.moved}):
            await self._look(payment_id)
        for finding in await self._store.compare_again(run, findings):
            if (kind := _LASTING.get(finding.verdict)) is not None:
                await self._store.note(run, finding, kind)
            elif (fresh := await self._processor.retrieve(finding.refund.id)) is not None:
                for still in await self._store.compare_again(run, [finding.now(fresh)]):
                    kind = Kind.EXTERNAL if still.verdict is Verdict.EXTERNAL else Kind.STATUS
                    await self._store.note(run, still.unexplained(), _LASTING.get(still.verdict, kind))

    async def _look(self, payment_id: str) -> None:
        """Look at a payment live. One whose answer stays unreadable must not keep the run from all the others: what differs is left to a person."""
        try:
            await self._observer.observe(payment_id)
        except NotSent as error:
            if error.reason != SHAPE or activity.info().attempt < UNREADABLE_AFTER:
                raise
            log.error("payment_unreadable", payment=payment_id)


_LASTING = {
    Verdict.UNKNOWN_OPERATION: Kind.UNKNOWN_OPERATION,
    Verdict.UNKNOWN_PAYMENT: Kind.UNKNOWN_PAYMENT,
    Verdict.DUPLICATE: Kind.DUPLICATE,
    Verdict.PAYMENT: Kind.PAYMENT,
    Verdict.CURRENCY: Kind.CURRENCY,
    Verdict.AMOUNT: Kind.AMOUNT,
}
"""Differences that no look can resolve: they are discrepancies at once."""


def _progress(run: Run) -> ReconciliationProgress:
    return ReconciliationProgress(run.id, run.phase.value, run.pages, run.compared, run.differences, run.is_over)
