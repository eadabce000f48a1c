"""Lives of a refund on real parts, each of which may be cut short at one of the points it reaches and goes on as it would in production.

What goes on is what stands around the process that died: the caller repeats its call with the same key or decision, Temporal repeats the step in another
worker once the attempts of the dead one have lapsed. The stories are lists of acts; between two acts something happens to everybody, such as a stop.
"""

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from temporalio.exceptions import ApplicationError

from refunds import points
from refunds.errors import Code, RefundError
from refunds.requests import RevisionRequest
from store import decisions
from tests.activities.shop import Shop, retried

_numbers = itertools.count(1)
_living: ContextVar["Life | None"] = ContextVar("living", default=None)


@dataclass
class Life:
    """One refund. ``dies_at`` is the number of the point it dies at (from 0), or ``None`` for a life without trouble; ``reached`` are the points so far,
    ``acts`` how many there were when each act began."""

    shop: Shop
    dies_at: int | None = None
    reached: list[str] = field(default_factory=list)
    acts: list[int] = field(default_factory=list)
    of_callers: set[str] = field(default_factory=set)
    died: str = ""
    intent: str = ""
    refund: str = ""

    async def reach(self, point: str) -> None:
        """Note a point, and die there if this is the one."""
        self.reached.append(point)
        if self.dies_at == len(self.reached) - 1:
            self.died = point
            raise points.Crashed(point)

    async def mortal(self, call: Callable[[], Awaitable[Any]]) -> Any:
        """The call's result, if the process that makes it does not die."""
        _living.set(self)
        try:
            return await call()
        finally:
            _living.set(None)

    async def survive(self, call: Callable[[], Awaitable[Any]], *, of_caller: bool = False) -> Any:
        """The call's result, repeated by whoever made it if the process died in it: the API's for a caller, else a worker."""
        reached = len(self.reached)
        try:
            return await self.mortal(call)
        except points.Crashed:
            return await self.mortal(call)
        finally:
            if of_caller:
                self.of_callers |= set(self.reached[reached:])

    @property
    def died_unanswered(self) -> bool:
        """Whether it died while an attempt was open whose answer was not recorded: then that attempt may have been sent."""
        steps = [point.partition(":")[2].split("+") for point in self.reached[: (self.dies_at or 0) + 1] if point.startswith("after:")]
        opened = sum("attempt_opened" in step for step in steps)
        return opened > sum(bool({"attempt_ended", "receipt", "adopted"} & set(step)) for step in steps)

    # --- what can happen to it -------------------------------------------------------------------------------------------------------

    async def asked_for(self, *, amount: int | None = 3_000, payment: dict[str, Any] | None = None, **more: Any) -> None:
        """The customer asks, and the run reads and quotes the request."""
        self.intent = await self.shop.paid(**(payment or {}))
        await self.shop.ordered(self.intent)
        key = f"life-{next(_numbers)}"
        self.refund = await self.survive(lambda: self.shop.received(self.intent, amount, key=key, **more), of_caller=True)
        await self.survive(lambda: self.shop.prepared(self.refund))

    async def sent(self) -> None:
        """The run submits it, again and again until that ends."""
        for attempt in itertools.count(1):
            try:
                await self.mortal(lambda attempt=attempt: self.shop.submit(self.refund, attempt=attempt))
            except points.Crashed:
                await self.shop.let_attempts_lapse(self.refund)
            except ApplicationError as error:
                retried(error)
            else:
                return
            assert attempt <= self.shop.settings.submit_max_attempts + 1, "it never gave up"

    async def consented(self) -> None:
        """The customer agrees to the terms."""
        terms = (await self.shop.row(self.refund))["terms_hash"]

        async def say() -> None:
            async with self.shop.api.begin() as connection:
                await decisions.record_consent(
                    connection,
                    self.shop.clock,
                    refund_id=self.refund,
                    actor=self.shop.people["shop"],
                    agreed=True,
                    terms_hash=terms,
                )

        await self.survive(say, of_caller=True)
        await self._told("consent", "decisions")

    async def decided(self, verdict: str = "approve") -> None:
        """A reviewer decides, and the run hears of it."""
        await self.survive(lambda: self.shop.decide(self.refund, "rita", verdict), of_caller=True)
        await self._told(verdict, "decisions")

    async def withdrawn(self) -> None:
        """The requester takes it back."""

        async def say() -> None:
            async with self.shop.api.begin() as connection:
                await decisions.record_withdrawal(connection, self.shop.clock, refund_id=self.refund, actor=self.shop.people["shop"])

        await self.survive(say, of_caller=True)
        await self._told("withdraw", "instructions")

    async def revised(self, amount: int) -> None:
        """A reviewer asks for other terms, and the run quotes them."""
        seen = (await self.shop.row(self.refund))["terms_hash"]
        request = RevisionRequest(terms_hash=seen, amount=amount, currency="USD")

        async def say() -> None:
            try:
                async with self.shop.api.begin() as connection:
                    await decisions.record_revision(
                        connection, self.shop.clock, refund_id=self.refund, actor=self.shop.people["rita"], request=request
                    )
            except RefundError as error:  # what a reviewer hears who says it again
                assert (error.code, self.died) == (Code.TERMS_CHANGED, self.reached[-1])

        await self.survive(say, of_caller=True)
        await self._told("revise", "instructions")

    async def _told(self, kind: str, table: str) -> None:
        rows = await self.shop.query(f"SELECT id FROM {table} WHERE refund_id = :r ORDER BY recorded_at DESC LIMIT 1", r=self.refund)
        await self.survive(lambda: self.shop.steps.apply_message(self.refund, kind, rows[0]["id"]))

    async def settled(self, outcome: str, *people: str) -> None:
        """Persons say what became of it, and the run has that checked."""
        made = (await self.shop.truth(self.intent))["refunds"]
        named = made[0]["id"] if outcome == "refunded" else None
        for who in people:
            message = await self.survive(lambda who=who: self.shop.says(self.refund, who, outcome, named), of_caller=True)
        await self.survive(lambda: self.shop.settled(self.refund, message))

    async def finished_there(self, status: str) -> None:
        """The processor finishes it, and the run asks."""
        [made] = (await self.shop.truth(self.intent))["refunds"]
        await self.shop.control("POST", f"/refunds/{made['id']}", {"status": status})
        await self.survive(lambda: self.shop.reconciled(self.refund))

    async def resumed(self) -> None:
        """The run looks whether it may go on, and again when its turn has come."""
        await self.survive(lambda: self.shop.steps.resume_held(self.refund))
        while (row := await self.shop.row(self.refund))["status"] == "held":
            assert row["slot_at"] is not None, (row["code"], row["detail"])
            self.shop.clock.advance(max(row["slot_at"] - self.shop.clock.now(), timedelta(0)))
            await self.survive(lambda: self.shop.steps.resume_held(self.refund))

    # --- what became of it -----------------------------------------------------------------------------------------------------------

    async def record(self) -> "Record":
        """Everything about it that must be the same wherever the process died."""
        row = await self.shop.row(self.refund)
        ledger = await self.shop.query(
            "SELECT type, refund_version AS version, data->>'operation' AS operation FROM ledger WHERE refund_id = :r ORDER BY refund_version",
            r=self.refund,
        )
        assert [entry["version"] for entry in ledger] == list(range(1, row["version"] + 1)), "the ledger has gaps"
        truth = await self.shop.truth(self.intent)
        asked = truth["create_requests"] + truth["cancel_requests"]
        [counts] = await self.shop.query(
            "SELECT (SELECT count(*) FROM operations WHERE refund_id = :r) AS operations,"
            " (SELECT count(*) FROM consumed_decisions c JOIN operations o ON o.id = c.operation_id WHERE refund_id = :r) AS consumed,"
            " (SELECT count(*) FROM outbox WHERE refund_id = :r AND kind = 'notice') AS notices",
            r=self.refund,
        )
        return Record(
            status=row["status"],
            code=row["code"],
            moves=tuple(await self.shop.moves(self.refund)),
            made=tuple(sorted((refund["amount"], refund["status"]) for refund in truth["refunds"])),
            keys=len({request["key"] for request in asked}),
            operations=counts["operations"],
            consumed=counts["consumed"],
            notices=counts["notices"],
        )


@dataclass(frozen=True)
class Record:
    """How a life ended: status and code, every change of status, what was really made, and how much of it was done how often."""

    status: str
    code: str | None
    moves: tuple[str, ...]
    made: tuple[tuple[int, str], ...]
    keys: int
    operations: int
    consumed: int
    notices: int


Act = Callable[[Life], Awaitable[None]]
Event = Callable[[Shop], Awaitable[None]]


@dataclass(frozen=True)
class Story:
    """What happens to a refund, act by act; ``between`` happens once to the whole shop after the act of the same number.

    ``fresh``: the first act that no other story has. The shop gives up after so many ``attempts``, because many lives end with that. In a ``doubtful`` story
    the processor refuses: after a crash between sending and recording that, nobody can know that the refusal was the only answer.
    """

    name: str
    acts: tuple[Act, ...]
    between: dict[int, Event] = field(default_factory=dict)
    fresh: int = 1
    attempts: int = 2
    doubtful: bool = False

    async def told(self, lives: list[Life], *, at_once: int = 8) -> None:
        """Play it for all lives: several at a time, or one after the other when what happens to everybody makes them wait for their turn."""
        room = asyncio.Semaphore(1 if self.between else at_once)

        async def play(act: Act, life: Life) -> None:
            async with room:
                life.acts.append(len(life.reached))
                await act(life)

        for number, act in enumerate(self.acts):
            async with asyncio.TaskGroup() as group:
                for life in lives:
                    group.create_task(play(act, life))
            if number in self.between:
                await self.between[number](lives[0].shop)


@contextmanager
def mortality() -> Iterator[None]:
    """Within, every life meets its points."""

    async def met(point: str) -> None:
        life = _living.get()
        if life is not None:
            await life.reach(point)

    with points.watched_by(met):
        yield


LOSE_ANSWER, LOSE_REQUEST, HIDE = {"kind": "lose_answer"}, {"kind": "lose_request"}, {"kind": "hide"}
REFUSAL = {"error": {"type": "invalid_request_error", "code": "charge_disputed", "message": "It has been charged back."}}
REFUSE = {"kind": "status", "status": 400, "body": REFUSAL}


def asked(**request: Any) -> Act:
    """The act in which it is asked for."""

    async def act(life: Life) -> None:
        await life.asked_for(**request)

    return act


def with_trouble(*faults: dict[str, Any], times: int = 1, **request: Any) -> Act:
    """The same, and the processor has these faults in store for the call that will send it."""

    async def act(life: Life) -> None:
        await life.asked_for(**request)
        await life.shop.fault("refund.create", *faults, times=times, intent=life.intent)

    return act


async def _in_review(life: Life) -> None:
    await life.asked_for(reason="other")


async def _approved_and_sent(life: Life) -> None:
    await life.decided()
    await life.sent()


async def _denied(life: Life) -> None:
    await life.decided("deny")


async def _consented_and_sent(life: Life) -> None:
    await life.consented()
    await life.sent()


async def _revised_and_sent(life: Life) -> None:
    await life.revised(2_000)
    if (await life.shop.row(life.refund))["status"] == "awaiting_consent":
        await life.consented()
    await life.decided()
    await life.sent()


async def _resumed_and_sent(life: Life) -> None:
    life.shop.clock.advance(timedelta(seconds=1))  # everybody before has had their turn
    await life.resumed()
    await life.sent()


async def _settled_as_refunded(life: Life) -> None:
    await life.settled("refunded", "sam")


async def _settled_as_not_refunded(life: Life) -> None:
    await life.shop.let_attempts_lapse(life.refund)
    await life.settled("not_refunded", "sam", "tess")


def finished(status: str) -> Act:
    """The act in which the processor finishes a pending refund."""

    async def act(life: Life) -> None:
        await life.finished_there(status)

    return act


async def _stopped(shop: Shop) -> None:
    await shop.stop()


async def _resumed(shop: Shop) -> None:
    await shop.stop(stopped=False)


STORIES = (
    Story("automatic", (asked(), Life.sent), fresh=0),
    Story("consented", (asked(amount=None), _consented_and_sent), fresh=0),
    Story("reviewed", (_in_review, _approved_and_sent), fresh=0),
    Story("denied", (_in_review, _denied)),
    Story("revised", (_in_review, _revised_and_sent)),
    Story("withdrawn", (_in_review, Life.withdrawn)),
    Story("held by a stop", (asked(), Life.sent, _resumed_and_sent), {0: _stopped, 1: _resumed}),
    Story("lost answer found", (with_trouble(LOSE_ANSWER), Life.sent)),
    Story("lost request repeated", (with_trouble(LOSE_REQUEST), Life.sent), attempts=3),
    Story("parked and settled as refunded", (with_trouble(LOSE_ANSWER, HIDE, times=9), Life.sent, _settled_as_refunded)),
    Story("parked and settled as not refunded", (with_trouble(LOSE_REQUEST, times=9), Life.sent, _settled_as_not_refunded), fresh=2),
    Story("refused by the processor", (with_trouble(REFUSE, times=9), Life.sent), doubtful=True),
    Story("pending, then succeeded", (asked(payment={"refund_outcome": {"initial": "pending"}}), Life.sent, finished("succeeded"))),
    Story("pending, then failed", (asked(payment={"refund_outcome": {"initial": "pending"}}), Life.sent, finished("failed")), fresh=2),
    Story("failed at once", (asked(payment={"refund_outcome": {"initial": "failed"}}), Life.sent)),
    Story("released", (asked(payment={"captured": 0, "amount": 3_000}), Life.sent)),
)
