"""One refund, from its request to its end.

The store is believed, the run only carries: every step answers with the refund's situation as stored, the run acts on it, waits, and acts again. So a run can
be reset, terminated and started again, and always resumes from the stored status and absolute deadlines.
"""

import asyncio
from collections.abc import Sequence
from datetime import timedelta
from typing import Any, cast

from temporalio import workflow
from temporalio.common import RawValue, SearchAttributeKey, SearchAttributeUpdate
from temporalio.exceptions import ApplicationError

from refunds.errors import Code
from refunds.ids import Prefix, is_id
from refunds.messages import UNRECORDED, WORKFLOW_TYPE, Message, Outcome, RefundInput, Situation, Step, StepInput
from refunds.status import FINAL, Status
from workflows import steps

STATUS = SearchAttributeKey.for_keyword("RefundStatus")
TIER = SearchAttributeKey.for_keyword("RefundTier")
QUEUE = SearchAttributeKey.for_keyword("RefundQueue")
CURRENCY = SearchAttributeKey.for_keyword("RefundCurrency")
AMOUNT = SearchAttributeKey.for_int("RefundAmount")
REVIEW_BY = SearchAttributeKey.for_datetime("RefundReviewBy")
ORDER = SearchAttributeKey.for_keyword("RefundOrder")
PAYMENT = SearchAttributeKey.for_keyword("RefundPayment")

APPLIED = frozenset({"approve", "deny", "decide", "consent", "withdraw"})
HINTS = frozenset({"resume", "payment_event"})
HEARD_LIMIT = 100
"""Messages per run of which a refused one is entered in the ledger; of a flood beyond it only those that are backed have any effect."""


@workflow.defn(name=WORKFLOW_TYPE)
class RefundWorkflow:
    """The run of one refund."""

    @workflow.init
    def __init__(self, request: RefundInput) -> None:
        self._situation = Situation(
            refund=request.refund,
            status=Status.RECEIVED.value,
            waits_for="being read and quoted",
            runbook="docs/runbooks/received.md",
        )
        self._shown: dict[str, Any] = {}
        self._hinted = False
        self._heard = 0

    @workflow.run
    async def run(self, request: RefundInput) -> Outcome:
        """Carry the refund to a final status."""
        try:
            await self._carry()
            self._show()
        except (Exception, asyncio.CancelledError):
            await self._answered()
            raise
        await self._answered()
        return self._outcome()

    async def _answered(self) -> None:
        """A caller whose message is being handled gets its answer, never "workflow completed": also when the run ends because it is cancelled.

        Not in a ``finally``: a run that a stopped worker merely throws away (``GeneratorExit``) has nothing to wait in.
        """
        await workflow.wait_condition(workflow.all_handlers_finished)

    async def _carry(self) -> None:
        workflow.set_current_details(_words(self._situation))  # no event; and reading the payment or the text may take long
        self._adopt(await steps.with_needs(Step.PREPARE, self._given()))
        while self._open:
            if self._status in (Status.APPROVED, Status.SUBMITTING):
                # It said that it waits for somebody, and submitting may take long. A run that never waited spares the event.
                if self._shown:
                    self._show()
                self._adopt(await steps.payment_step(Step.SUBMIT, self._given(), summary=self._situation.waits_for))
            elif self._legs_due:
                await self._send_legs()
            else:
                await self._wait()

    @property
    def _status(self) -> Status:
        return Status(self._situation.status)

    @property
    def _open(self) -> bool:
        """Whether something is left to do: a refund that is over may have legs that are not."""
        return self._status not in FINAL or self._situation.legs_at is not None

    @property
    def _legs_due(self) -> bool:
        return self._situation.legs_at is not None and self._situation.legs_at <= workflow.now()

    async def _send_legs(self) -> None:
        """Have the legs of a marketplace refund sent, looked for or reminded of; which and when, the store knows."""
        seen = self._situation
        if self._shown:
            self._show()
        self._adopt(await steps.payment_step(Step.LEGS, self._given(), summary="Return what went to connected accounts"))
        if self._situation.legs_at == seen.legs_at and self._situation.version == seen.version:
            await workflow.sleep(timedelta(seconds=1))  # clocks that differ must not become a hot loop

    def _given(self, *, kind: str = "", message: str = "", detail: str = "") -> StepInput:
        return StepInput(self._situation.refund, kind, message, detail)

    def _adopt(self, found: Situation) -> None:
        """Keep a situation unless a newer one is known: steps that overlap may answer in any order."""
        if found.version >= self._situation.version:
            self._situation = found

    async def _wait(self) -> None:
        """Wait for a message or for the next instant at which something is due, then let the store say what that changes."""
        self._show()
        seen = self._situation
        due = min(filter(None, (seen.wake_at, seen.legs_at)), default=workflow.now() + timedelta(days=1))
        # A moment later than due: the store judges by its own clock, and must find the deadline passed.
        pause = max(due - workflow.now(), timedelta(0)) + timedelta(milliseconds=50)
        try:
            await workflow.wait_condition(
                lambda: self._situation is not seen or self._hinted, timeout=pause, timeout_summary=seen.waits_for
            )
        except TimeoutError:
            # What is due for the legs alone is no reason to ask how the refund stands.
            self._hinted = seen.legs_at is None or (seen.wake_at is not None and seen.wake_at <= workflow.now())
        if self._hinted:
            self._hinted = False
            await self._look()
            if self._situation.wake_at == seen.wake_at and self._situation.version == seen.version:
                await workflow.sleep(timedelta(seconds=1))  # clocks that differ must not become a hot loop

    async def _look(self) -> None:
        """Do what is due for the present status, and for legs that something kept back."""
        if self._situation.legs_at is not None:
            await self._send_legs()
        if self._status is Status.PENDING:
            self._adopt(await steps.payment_step(Step.RECONCILE, self._given(), summary="Ask the processor how it stands"))
        elif self._status is Status.HELD:
            self._adopt(await steps.with_needs(Step.RESUME, self._given()))
        elif self._status not in FINAL:
            self._adopt(await steps.database_step(Step.DEADLINE, self._given()))

    # --- messages --------------------------------------------------------------------------------------------------------------------

    @workflow.signal(dynamic=True)
    async def any_signal(self, name: str, arguments: Sequence[RawValue]) -> None:
        """Every signal, taken raw: the SDK drops one that it cannot decode, and a decision must never vanish (field report 64).

        Known are ``approve``, ``deny``, ``withdraw``, ``consent``, ``settle``, ``revise`` with one :class:`Message`, and the hints ``resume`` and
        ``payment_event``. Anything else is entered in the ledger as refused.
        """
        if name in HINTS:
            self._hinted = True
            return
        message, why = _read(name, arguments)
        if message is None:
            await self._refuse(name, why)
            return
        await self._deliver(name, message)

    @workflow.update(name="decide")
    async def decide(self, message: Message) -> Outcome:
        """Deliver a recorded decision and answer with how the refund stands."""
        return await self._deliver("decide", message)

    @decide.validator
    def _check_decide(self, message: Message) -> None:
        self._check(message)
        if message.revision and message.revision != self._situation.revision:
            raise ApplicationError("the terms are not the ones decided on", type=Code.TERMS_CHANGED, non_retryable=True)

    @workflow.update(name="revise")
    async def revise(self, message: Message) -> Outcome:
        """Deliver a recorded revision: quote it and answer with how the refund stands."""
        return await self._deliver("revise", message)

    @revise.validator
    def _check_revise(self, message: Message) -> None:
        self._check(message)

    @workflow.update(name="settle")
    async def settle(self, message: Message) -> Outcome:
        """Deliver a recorded settlement: check it at the processor and answer with how the refund stands."""
        return await self._deliver("settle", message)

    @settle.validator
    def _check_settle(self, message: Message) -> None:
        self._check(message)

    @workflow.query(name="view")
    def view(self) -> Situation:
        """How the refund stands, as this run last heard from the store."""
        return self._situation

    def _check(self, message: Message) -> None:
        """Refuse, without a trace in the history, what cannot count: no id, or a refund that is over."""
        if not _is_message(message):
            raise ApplicationError("the message names nothing recorded", type=Code.MESSAGE_MALFORMED, non_retryable=True)
        if not self._open:
            raise ApplicationError(f"the refund is {self._status}", type=Code.TOO_LATE, non_retryable=True)

    async def _deliver(self, name: str, message: Message) -> Outcome:
        self._heard += 1
        flooded = self._heard > HEARD_LIMIT
        given = self._given(kind=name, message=message.id, detail=UNRECORDED if flooded else "")
        if name == "revise":
            found = await steps.with_needs(Step.APPLY, given)
        elif name == "settle":
            found = await steps.payment_step(Step.SETTLE, given, summary="Check a settlement at the processor")
        else:
            found = await steps.database_step(Step.APPLY, given)
        self._adopt(found)
        return self._outcome(found.refused, found.refused_detail)

    async def _refuse(self, name: str, why: str) -> Outcome:
        self._heard += 1
        if self._heard <= HEARD_LIMIT:
            self._adopt(await steps.database_step(Step.REFUSE, self._given(kind=ascii(name[:50])[1:-1], detail=why)))
        return self._outcome(Code.MESSAGE_MALFORMED.value, why)

    def _outcome(self, refused: str = "", detail: str = "") -> Outcome:
        now = self._situation
        return Outcome(refund=now.refund, status=now.status, revision=now.revision, refused=refused, detail=detail)

    # --- what operators see ----------------------------------------------------------------------------------------------------------

    def _show(self) -> None:
        """Put the situation where an operator looks: search attributes to find runs by, and words in the run's page."""
        now = self._situation
        wanted: list[tuple[SearchAttributeKey[Any], Any]] = [
            (STATUS, now.status),
            (TIER, now.tier),
            (QUEUE, now.queue),
            (CURRENCY, now.currency),
            (AMOUNT, now.amount),
            (REVIEW_BY, now.review_by),
            (ORDER, now.order),
            (PAYMENT, now.payment),
        ]
        updates: list[SearchAttributeUpdate[Any]] = []
        for key, value in wanted:
            if (value or None) != self._shown.get(key.name):
                updates.append(key.value_set(value) if value else key.value_unset())
                self._shown[key.name] = value or None
        if updates:
            cast(Any, workflow).upsert_search_attributes(updates)
        workflow.set_current_details(_words(now))


def _is_message(value: object) -> bool:
    """Whether a decoded value is a message that names something we could have recorded: anybody may have sent anything, whatever the type says."""
    return isinstance(value, Message) and is_id(value.id, Prefix.DECISION, Prefix.INSTRUCTION)


def _read(name: str, arguments: Sequence[RawValue]) -> tuple[Message | None, str]:
    """Decode a raw signal, or say what is wrong with it. Unknown fields are tolerated; an id that is none of ours is not."""
    if name not in APPLIED | {"settle", "revise"}:
        return None, "there is no such message"
    if len(arguments) != 1:
        return None, f"{len(arguments)} arguments instead of one"
    payload = arguments[0].payload
    if payload.metadata.get("encoding") != b"json/plain":
        return None, "it is not JSON"
    try:
        message = workflow.payload_converter().from_payload(payload, Message)
    except (ValueError, TypeError, KeyError, RuntimeError) as error:
        return None, f"cannot be decoded: {type(error).__name__}"
    return (message, "") if _is_message(message) else (None, "it names nothing recorded")


def _words(now: Situation) -> str:
    """What the run's page says, in Markdown."""
    lines = [f"**{now.status}**" + (f" ({now.code})" if now.code else "")]
    if now.waits_for:
        lines.append(f"Waits for {now.waits_for}.")
    if now.since:
        lines.append(f"Since {now.since:%Y-%m-%d %H:%M:%S} UTC.")
    if now.review_by:
        lines.append(f"Until {now.review_by:%Y-%m-%d %H:%M:%S} UTC.")
    if now.ladder:
        lines.append(now.ladder)
    if now.runbook:
        lines.append(f"Runbook: `{now.runbook}`")
    return "\n\n".join(lines)
