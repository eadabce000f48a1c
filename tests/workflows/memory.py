"""A store in memory that answers the workflow's steps: small, but it keeps the rules that a run depends on.

It moves refunds by the real table of statuses, counts versions as the real one does, records before anything is delivered, and believes no message that it
has not recorded. What each refund will meet (consent, review, the processor's answers) is planned beforehand in a :class:`Plan`.
"""

import asyncio
import contextlib
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from temporalio import activity
from temporalio.exceptions import ApplicationError

from refunds.clock import SystemClock
from refunds.errors import Code
from refunds.ids import Prefix, new_id
from refunds.messages import UNREAD, UNRECORDED, Situation, Step, StepInput
from refunds.status import FINAL, Event, Status, advance, allows

DAY = timedelta(days=1)
PROCESSOR = {
    "succeeded": Event.PROCESSOR_SUCCEEDED,
    "pending": Event.PROCESSOR_PENDING,
    "failed": Event.PROCESSOR_FAILED,
    "released": Event.AUTHORISATION_RELEASED,
    "park": Event.PARK,
    "hold": Event.HOLD,
}


@dataclass
class Plan:
    """What a refund will meet. ``answers`` are the processor's, one for each submit; ``polls`` one for each time it is asked again; with ``legs`` it has some."""

    text: bool = False
    unreadable: bool = False  # whoever reads the text fails every time
    reading: bool = False
    consent: bool = False
    people: int = 0
    rungs: tuple[tuple[str, timedelta], ...] = (("team", DAY), ("managers", DAY))
    remind_after: timedelta = timedelta(hours=4)
    amount: int = 3000
    answers: list[str] = field(default_factory=lambda: ["succeeded"])
    polls: list[str] = field(default_factory=list)
    legs: list[str] = field(default_factory=list)  # what each step comes to that sends its legs: done, later or parked
    gate: asyncio.Event | None = None  # a submit waits for it before it answers
    detail: str = ""


@dataclass
class Row:
    """One refund as stored."""

    id: str
    plan: Plan
    shift: timedelta = timedelta(0)
    status: Status = Status.RECEIVED
    version: int = 1
    revision: int = 0
    classified: bool = False
    read: bool = False
    consented: bool = False
    approvals: list[str] = field(default_factory=list)
    pending_revision: str | None = None
    rung: int = 0
    queue: str = ""
    since: datetime = datetime(2026, 1, 1, tzinfo=UTC)
    wake_at: datetime | None = None
    review_by: datetime | None = None
    reminded: bool = False
    stopped: bool = False
    legs_at: datetime | None = None
    code: str = ""
    ledger: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    calls: Counter[str] = field(default_factory=Counter)

    def now(self) -> datetime:
        """This refund's time: the machine's, moved by as much as its run was."""
        return SystemClock().now() + self.shift

    def note(self, type_: str, **data: Any) -> None:
        self.version += 1
        self.ledger.append((type_, data))

    def move(self, event: Event, code: str = "") -> None:
        self.status, self.since, self.code = advance(self.status, event), self.now(), code
        if self.status in FINAL:
            self.queue, self.wake_at, self.review_by = "", None, None
        self.note(self.status.value)

    def entries(self, type_: str) -> int:
        """How many ledger entries of a type there are."""
        return sum(1 for found, _ in self.ledger if found == type_)


class MemoryStore:
    """All refunds of a test session, and what was recorded about them."""

    def __init__(self) -> None:
        self.rows: dict[str, Row] = {}
        self._recorded: dict[str, tuple[str, str, str]] = {}  # id -> refund, kind, verdict or outcome

    def add(self, plan: Plan | None = None) -> Row:
        """Accept a refund."""
        row = Row(new_id(Prefix.REFUND), plan or Plan())
        self.rows[row.id] = row
        return row

    # --- what the API records before it delivers anything ------------------------------------------------------------------------

    def decide(self, row: Row, verdict: str, person: str = "ann") -> str:
        """Record a reviewer's decision and let it count; returns its id."""
        self._climb(row)
        assert row.status is Status.AWAITING_REVIEW, row.status
        row.note("decision_recorded", verdict=verdict)
        if verdict == "deny":
            row.move(Event.DENY, Code.REVIEWER_DENIED)
        else:
            assert person not in row.approvals
            row.approvals.append(person)
            self._advance(row)
        return self._record(row, "review", verdict)

    def consent(self, row: Row, *, agreed: bool = True) -> str:
        """Record what the customer said to the terms."""
        assert row.status is Status.AWAITING_CONSENT
        row.consented = agreed
        if agreed:
            self._advance(row)
        else:
            row.move(Event.WITHDRAW, Code.CONSENT_DECLINED)
        return self._record(row, "consent", "approve" if agreed else "deny")

    def withdraw(self, row: Row) -> str:
        """Record a withdrawal."""
        row.move(Event.WITHDRAW)
        return self._record(row, "withdraw", "")

    def revise(self, row: Row, amount: int) -> str:
        """Record that other terms are wanted."""
        row.note("revise_recorded")
        row.pending_revision = self._record(row, "revise", str(amount))
        return row.pending_revision

    def settle(self, row: Row, outcome: str) -> str:
        """Record how a person settles a parked refund."""
        row.note("settle_recorded")
        return self._record(row, "settle", outcome)

    def _record(self, row: Row, kind: str, what: str) -> str:
        message = new_id(Prefix.DECISION if kind in ("review", "consent") else Prefix.INSTRUCTION)
        self._recorded[message] = (row.id, kind, what)
        return message

    def _backed(self, row: Row, kind: str, message: str) -> str | None:
        found = self._recorded.get(message)
        kinds = {"approve": "review", "deny": "review", "decide": "review"}
        fits = found is not None and found[:2] == (row.id, kinds.get(kind, kind))
        return found[2] if found is not None and fits and (kind not in ("approve", "deny") or found[2] == kind) else None

    # --- the steps -----------------------------------------------------------------------------------------------------------------

    @property
    def database_steps(self) -> list[Callable[..., Any]]:
        """The steps of the refunds role."""
        return [self.prepare, self.apply_message, self.pass_deadline, self.resume_held, self.refuse_message]

    @property
    def payment_steps(self) -> list[Callable[..., Any]]:
        """The steps of the payments role."""
        return [self.submit, self.reconcile, self.settle_step, self.read_payment, self.send_legs]

    def _row(self, step: StepInput, name: str) -> Row:
        row = self.rows[step.refund]
        row.calls[name] += 1
        return row

    @activity.defn(name=Step.PREPARE)
    async def prepare(self, step: StepInput) -> Situation:
        row = self._row(step, Step.PREPARE)
        if row.status is not Status.RECEIVED:
            return self.situation(row)
        if step.detail == UNREAD:
            row.plan.people = max(1, row.plan.people)
        elif row.plan.text and not row.classified:
            return self.situation(row, needs=Step.CLASSIFY)
        if row.plan.reading and not row.read:
            return self.situation(row, needs=Step.READ_PAYMENT)
        row.revision = 1
        row.move(Event.READ)
        self._advance(row)
        return self.situation(row)

    @activity.defn(name=Step.CLASSIFY)
    async def classify(self, step: StepInput) -> None:
        row = self._row(step, Step.CLASSIFY)
        if row.plan.unreadable:
            raise ApplicationError("the reader itself failed", next_retry_delay=timedelta(milliseconds=10))
        row.classified = True

    @activity.defn(name=Step.READ_PAYMENT)
    async def read_payment(self, step: StepInput) -> None:
        row = self._row(step, Step.READ_PAYMENT)
        assert step.message == "pay_surrogate"
        row.read = True

    @activity.defn(name=Step.APPLY)
    async def apply_message(self, step: StepInput) -> Situation:
        row = self._row(step, Step.APPLY)
        what = self._backed(row, step.kind, step.message)
        if what is None:
            return self._refused(row, step.kind, Code.MESSAGE_UNBACKED, step.message, enter=step.detail != UNRECORDED)
        if step.kind == "revise" and row.pending_revision == step.message:
            if row.plan.reading and not row.read:
                return self.situation(row, needs=Step.READ_PAYMENT)
            row.pending_revision = None
            row.plan.amount = int(what)
            row.revision += 1
            row.approvals, row.consented = [], False
            self._advance(row)
        return self.situation(row)

    @activity.defn(name=Step.REFUSE)
    async def refuse_message(self, step: StepInput) -> Situation:
        return self._refused(self._row(step, Step.REFUSE), step.kind, Code.MESSAGE_MALFORMED, step.detail)

    @activity.defn(name=Step.DEADLINE)
    async def pass_deadline(self, step: StepInput) -> Situation:
        row = self._row(step, Step.DEADLINE)
        self._climb(row)
        if row.status is Status.PARKED and row.wake_at is not None and row.now() >= row.wake_at:
            row.wake_at = row.now() + DAY
            row.note("reminded")
        return self.situation(row)

    @activity.defn(name=Step.RESUME)
    async def resume_held(self, step: StepInput) -> Situation:
        row = self._row(step, Step.RESUME)
        if row.status is not Status.HELD:
            return self.situation(row)
        if row.stopped:
            row.wake_at = row.now() + timedelta(minutes=1)
        else:
            row.move(Event.APPROVE)
            row.wake_at = None
        return self.situation(row)

    @activity.defn(name=Step.SUBMIT)
    async def submit(self, step: StepInput) -> Situation:
        row = self._row(step, Step.SUBMIT)
        if row.status is Status.APPROVED and row.stopped:
            row.move(Event.SUBMIT)
            return self._processor(row, "hold")
        if row.status is Status.APPROVED:
            row.move(Event.SUBMIT)
        if row.status is not Status.SUBMITTING:
            return self.situation(row)
        await _pass(row.plan.gate)
        answer = row.plan.answers.pop(0)
        if answer == "unknown":
            raise ApplicationError("no answer", type="Unknown", next_retry_delay=timedelta(milliseconds=10))
        return self._processor(row, answer)

    @activity.defn(name=Step.RECONCILE)
    async def reconcile(self, step: StepInput) -> Situation:
        row = self._row(step, Step.RECONCILE)
        answer = row.plan.polls.pop(0)
        if answer != "pending" and row.status is Status.PENDING:
            return self._processor(row, answer)
        row.wake_at = row.now() + timedelta(hours=12)
        return self.situation(row)

    @activity.defn(name=Step.LEGS)
    async def send_legs(self, step: StepInput) -> Situation:
        row = self._row(step, Step.LEGS)
        if row.legs_at is not None and row.plan.legs:
            self._leg(row, row.plan.legs.pop(0))
        return self.situation(row)

    @activity.defn(name=Step.SETTLE)
    async def settle_step(self, step: StepInput) -> Situation:
        row = self._row(step, Step.SETTLE)
        outcome = self._backed(row, "settle", step.message)
        if outcome is None:
            return self._refused(row, "settle", Code.MESSAGE_UNBACKED, step.message, enter=step.detail != UNRECORDED)
        if outcome == "leg" and row.legs_at is not None:
            self._leg(row, "done")
            return self.situation(row)
        if row.status is not Status.PARKED:
            return self.situation(row, refused=Code.NOT_PARKED)
        not_there = self.situation(row, refused=Code.SETTLEMENT_NOT_FOUND)  # as it stands now: it may be old news when the gate opens
        await _pass(row.plan.gate)
        if outcome == "not_there":
            return not_there
        return self._processor(row, outcome)

    # --- rules -----------------------------------------------------------------------------------------------------------------------

    def _processor(self, row: Row, answer: str) -> Situation:
        event = PROCESSOR[answer]
        if allows(row.status, event):
            row.move(event, {"park": Code.OUTCOME_UNKNOWN, "hold": Code.EMERGENCY_STOP}.get(answer, ""))
            row.wake_at = {
                "park": row.now() + DAY,
                "hold": row.now() + timedelta(minutes=1),
                "pending": row.now() + timedelta(seconds=30),
            }.get(answer)
            row.queue = "settle" if answer == "park" else ""
            if row.plan.legs and row.legs_at is None and row.status in (Status.PENDING, Status.SUCCEEDED) and not row.entries("leg_done"):
                row.legs_at = row.now()
        return self.situation(row)

    def _leg(self, row: Row, comes_to: str) -> None:
        row.legs_at = {"later": row.now() + timedelta(minutes=1), "parked": row.now() + DAY}.get(comes_to)
        row.note(f"leg_{comes_to}")

    def _advance(self, row: Row) -> None:
        if row.plan.consent and not row.consented:
            row.review_by = row.wake_at = row.now() + DAY
            row.move(Event.ASK_CONSENT)
        elif len(row.approvals) < row.plan.people:
            if not row.approvals:
                self._stand_on(row, 0)
                row.move(Event.ASK_REVIEW)
        else:
            row.queue, row.review_by, row.wake_at = "", None, None
            row.move(Event.APPROVE)

    def _stand_on(self, row: Row, rung: int) -> None:
        row.rung = rung
        row.queue, within = row.plan.rungs[rung]
        row.review_by = row.now() + within
        row.reminded = row.plan.remind_after >= within
        row.wake_at = row.review_by if row.reminded else row.now() + row.plan.remind_after

    def _climb(self, row: Row) -> None:
        if row.status is Status.AWAITING_CONSENT and row.review_by and row.now() >= row.review_by:
            row.move(Event.EXPIRE, Code.CONSENT_EXPIRED)
        if row.status is not Status.AWAITING_REVIEW or row.review_by is None or row.wake_at is None:
            return
        if row.now() < row.review_by:
            if not row.reminded and row.now() >= row.wake_at:
                row.reminded, row.wake_at = True, row.review_by
                row.note("reminded")
        elif row.rung + 1 < len(row.plan.rungs):
            self._stand_on(row, row.rung + 1)
            row.note("escalated")
        else:
            row.move(Event.EXPIRE, Code.REVIEW_EXPIRED)

    def _refused(self, row: Row, kind: str, code: Code, detail: str, *, enter: bool = True) -> Situation:
        if enter:
            row.note("message_refused", kind=kind, code=code, detail=detail)
        return self.situation(row, refused=code, refused_detail=detail[:80])

    def situation(self, row: Row, *, needs: str = "", refused: str = "", refused_detail: str = "") -> Situation:
        """The row as the workflow gets it."""
        return Situation(
            refund=row.id,
            status=row.status.value,
            version=row.version,
            revision=row.revision,
            needs=needs,
            waits_for=row.plan.detail or f"what {row.status} waits for",
            runbook="docs/runbooks/review.md",
            tier="3" if row.plan.people else "2",
            queue=row.queue,
            amount=row.plan.amount,
            currency="USD",
            order="or_surrogate",
            payment="pay_surrogate",
            terms_hash=f"{row.revision:064x}",
            since=row.since,
            wake_at=row.wake_at,
            review_by=row.review_by,
            code=row.code,
            refused=refused,
            refused_detail=refused_detail,
            legs_at=row.legs_at,
        )


async def _pass(gate: asyncio.Event | None) -> None:
    """Wait until the test opens the gate, and show that this worker lives meanwhile."""
    while gate is not None and not gate.is_set():
        activity.heartbeat()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(gate.wait(), timeout=1)
