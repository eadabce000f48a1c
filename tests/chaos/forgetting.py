"""The database is restored: PostgreSQL is down, files of an hour ago are put in its place, and everything starts again (docs/runbooks/restore.md).

The suite has then asked for things that the database does not remember, and knows what the sandbox did of them. A refund that was paid and forgotten is the
danger: its request comes again, or it is recorded as waiting for a decision, and nothing in the database speaks against paying it once more.
"""

import asyncio
import subprocess
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from tests.chaos.book import Book, Payment
from tests.chaos.load import LARGE, SMALL, Doing
from tests.chaos.people import LIFT, People
from tests.chaos.plan import Errand
from tests.chaos.stand import Stand
from tests.chaos.truth import OUT, Violation

ERRANDS_FROM = 40_000_000
ROUNDS = 3
"""How many refunds there are of each :class:`Memory`."""
CALL_MS = 2_500
"""How long the processor takes over the call that is under way when the copy is made; shorter than the time-out of reading its answer."""
LOOK_EVERY_S = 0.2
WITHIN_S = 120.0
FORGETFUL = frozenset({"DATABASE_RESTORED", "DATABASE_FORGOT"})
UNKNOWN = "unknown_operation"
EXPLAINED_BY_PEOPLE = frozenset({UNKNOWN, "unknown_payment"})
"""Kinds of difference that there are after a restore, and only then."""
IN_HAND = ("approved", "held", "submitting", "succeeded")


@dataclass
class Memory:
    """One refund of this part of a run: how often money may go back for it, and where it stood when the copy was made."""

    kind: str
    doing: Doing
    payment: Payment
    amount: int
    due: int
    refund: str | None = None
    forgotten: str | None = None
    """The refund as it was called before the database forgot it."""


@dataclass
class Restored:
    """What was done and found."""

    seconds: dict[str, float] = field(default_factory=dict[str, float])
    workers_live_on: bool = False
    refunds: Counter[str] = field(default_factory=Counter[str])
    discrepancies: Counter[str] = field(default_factory=Counter[str])
    violations: list[Violation] = field(default_factory=list[Violation])


class Forgetting:
    """Makes the copy, lets the world go on, puts the copy back, and does what people do then."""

    def __init__(self, stand: Stand, people: People, book: Book, say: Callable[[str], None], *, run: str, seed: int) -> None:
        self._stand = stand
        self._people = people
        self._book = book
        self._say = say
        self._run = run
        self._stream = Random(f"{seed}/restore")
        self._memories: list[Memory] = []
        self.found = Restored(workers_live_on=self._stream.random() < 0.5)

    @property
    def payments(self) -> list[str]:
        """The payments of this part of the run whose record can be held against the truth: nothing of them was forgotten."""
        return [memory.payment.intent for memory in self._memories if memory.kind in ("open", "in_mid_call", "paid_before")]

    async def carry_out(self) -> Restored:
        """All of it. Raises ``TimeoutError`` when the product does not come back."""
        await self._before()
        began = time.monotonic()
        copy = await self._back_up()
        await self._meanwhile()
        down_at = await self._restore(copy)
        halted_at = await self._until_halted()
        self.found.seconds["until_halted"] = round(halted_at - down_at, 1)
        await self._ask_again()
        await self._refused_until_compared()
        lifted_at = await self._resume()
        self.found.seconds["until_resumed"] = round(lifted_at - down_at, 1)
        self._nothing_left(halted_at if self.found.workers_live_on else down_at, lifted_at)
        await self._judge_discrepancies()
        self.found.seconds["all"] = round(time.monotonic() - began, 1)
        return self.found

    # --- what the copy knows, and what it does not ------------------------------------------------------------------------------------

    async def _new(self, kind: str, due: int, between: tuple[int, int], *, times: int = 3) -> Memory:
        number = ERRANDS_FROM + len(self._memories)
        errand = Errand(number, f"restored_{kind}", 1, 0, f"{self._run}/restored/{number}")
        doing = Doing(errand, self._people, self._book, self._run)
        amount = doing.amount(between)
        payment = await doing.pay(amount * times)  # a refund made twice would not be stopped by the processor
        memory = Memory(kind, doing, payment, amount, due)
        self._memories.append(memory)
        return memory

    async def _ask(self, memory: Memory) -> None:
        memory.refund = await memory.doing.ask(memory.payment, memory.doing.body(memory.payment, memory.amount))

    async def _reaches(self, memory: Memory, *wanted: str) -> str:
        until, status = time.monotonic() + WITHIN_S, ""
        while status not in wanted:
            if time.monotonic() > until:
                raise TimeoutError(f"{memory.refund} ({memory.kind}) is {status or 'not there'} and not {' or '.join(wanted)}")
            await asyncio.sleep(LOOK_EVERY_S)
            view = None if memory.refund is None else await self._people.view(memory.refund)
            status = "" if view is None else view["status"]
        return status

    async def _before(self) -> None:
        """In the copy: refunds that are paid, that wait for a decision, and one whose call is under way."""
        for _ in range(ROUNDS):
            for kind, between in (("paid_before", SMALL), ("decided_since", LARGE), ("open", LARGE)):
                await self._ask(await self._new(kind, 1, between))
        for memory in self._memories:
            await self._reaches(memory, "succeeded" if memory.kind == "paid_before" else "awaiting_review")
        calling = await self._new("in_mid_call", 1, SMALL)
        match = {"payment_intent": calling.payment.intent}
        slow = {"on": "refund.create", "match": match, "times": 1, "fault": {"kind": "delay", "ms": CALL_MS}}
        await self._people.control("POST", "/faults", slow)
        await self._ask(calling)
        until = time.monotonic() + WITHIN_S
        while not (await self._people.truth(calling.payment.intent))["create_requests"]:
            if time.monotonic() > until:
                raise TimeoutError(f"{calling.refund} is not sent")
            await asyncio.sleep(LOOK_EVERY_S)

    async def _meanwhile(self) -> None:
        """Not in the copy: decisions and payments of refunds that it knows, and refunds that it does not know."""
        for _ in range(ROUNDS):
            await self._ask(await self._new("forgotten", 1, SMALL))
            denied = await self._new("denied_and_forgotten", 0, LARGE)
            denied.doing.minds.verdict = "deny"
            await self._ask(denied)
        for memory in self._of("decided_since", "denied_and_forgotten"):
            await memory.doing.see_through(memory.refund, hasty=0)
        for memory in self._of("decided_since", "in_mid_call", "forgotten"):
            await self._reaches(memory, "succeeded")

    def _of(self, *kinds: str) -> list[Memory]:
        return [memory for memory in self._memories if memory.kind in kinds]

    # --- files --------------------------------------------------------------------------------------------------------------------------

    async def _back_up(self) -> Path:
        """Files of a server that was killed: what a snapshot of its disk holds."""
        assert self._stand.stack.context.postgres is not None
        data = self._stand.stack.context.postgres.data
        copy = data.with_name("yesterday")
        async with self._stand.down("postgres"):
            await _files(data, copy)
        await self._stand.ready("postgres", "api", "worker", "worker-2")
        return copy

    async def _restore(self, copy: Path) -> float:
        """Put the copy in its place; when everything was down, in seconds since the epoch."""
        self._say(f"restoring an older database; the workers {'live on' if self.found.workers_live_on else 'are stopped meanwhile'}")
        data = copy.with_name("data")
        stopped = ("postgres",) if self.found.workers_live_on else ("worker", "worker-2", "api", "postgres")
        async with self._stand.down(*stopped):
            down_at = time.time()
            await asyncio.to_thread(subprocess.run, ["rm", "-rf", str(data)], check=True)
            await _files(copy, data)
        await self._stand.ready("postgres", "api", "worker", "worker-2")
        return down_at

    # --- what people do -----------------------------------------------------------------------------------------------------------------

    async def _until_halted(self) -> float:
        until = time.monotonic() + WITHIN_S
        while time.monotonic() < until:
            controls = (await self._people.call("olga", "GET", "/v1/controls")).json()["controls"]
            if any(each["scope"] == LIFT["scope"] and each["code"] in FORGETFUL for each in controls):
                return time.time()
            await asyncio.sleep(LOOK_EVERY_S)
        raise TimeoutError(f"nothing was halted within {WITHIN_S:.0f} s after the database was restored")

    async def _ask_again(self) -> None:
        """Whoever has no answer repeats the request, whoever has to decide decides: all of it is taken, and nothing is sent."""
        for memory in self._of("forgotten", "denied_and_forgotten"):
            memory.forgotten = memory.refund
            assert memory.forgotten is not None
            accepted = self._book.accepted.pop(memory.forgotten)
            del self._book.keys[accepted.key]
            self._book.told_no.pop(memory.forgotten, None)
            memory.payment.refunds.remove(memory.forgotten)
            await memory.doing.order(memory.payment)  # forgotten as well
            await self._ask(memory)
        seeing = (
            memory.doing.see_through(memory.refund, within_s=15, hasty=0)
            for memory in self._of("decided_since", "open", "denied_and_forgotten")
        )
        await asyncio.gather(*seeing)

    async def _refused_until_compared(self) -> None:
        """An operator who resumes too early is told what is missing; then the reconciliation is done."""
        early = await self._lift()
        until = time.monotonic() + WITHIN_S
        while early.status_code == 409 and early.json()["code"] == "RECONCILIATION_REQUIRED":
            if time.monotonic() > until:
                raise TimeoutError("the reconciliation after the restore is not done")
            if all(run["finished_at"] for run in (await self._people.call("olga", "GET", "/v1/reconciliation")).json()["runs"]):
                return
            await asyncio.sleep(LOOK_EVERY_S)

    async def _resume(self) -> float:
        """Returns when the call was begun that resumed: from its commit on, which is before its answer, calls may leave."""
        until, began = time.monotonic() + WITHIN_S, time.time()
        while (answer := await self._lift()).status_code != 200:
            if time.monotonic() > until:
                raise TimeoutError(f"resuming was answered {answer.status_code}: {answer.text[:300]}")
            await asyncio.sleep(LOOK_EVERY_S)
            began = time.time()
        return began

    async def _lift(self) -> Any:
        return await self._people.call("olga", "PUT", "/v1/controls", LIFT | {"reason": "compared after the restore"})

    async def _judge_discrepancies(self) -> None:
        """What was paid and forgotten is found, and held beyond the halt; a person takes the second request back, and closes it."""
        doubted = self._of("forgotten", "decided_since")
        for memory in self._of("open"):
            await self._reaches(memory, "succeeded")
        for memory in doubted:
            status = await self._reaches(memory, *IN_HAND, "denied", "failed", "withdrawn", "awaiting_review", "awaiting_consent")
            self.found.refunds[f"{memory.kind} {status}"] += 1
        shown = (await self._people.call("olga", "GET", "/v1/reconciliation?limit=100")).json()["discrepancies"]
        for row in (row for row in shown if row["kind"] in EXPLAINED_BY_PEOPLE):
            self.found.discrepancies[row["kind"]] += 1
            for memory in (memory for memory in doubted if row["kind"] == UNKNOWN and memory.payment.intent == row["payment_id"]):
                taken_back = await self._people.call(memory.doing.shop, "POST", f"/v1/refunds/{memory.refund}/withdrawal", {})
                self.found.refunds[f"{memory.kind} taken back: {taken_back.status_code}"] += 1
            if row["state"] == "closed":
                continue  # by itself: the order was sent again, and what was said of it there is said of its payment now
            closed = {"state": "closed", "note": "paid before the restore; what was asked for again is taken back"}
            answer = await self._people.call("olga", "POST", f"/v1/reconciliation/discrepancies/{row['id']}", closed)
            if answer.status_code != 200 and answer.json()["code"] != "DISCREPANCY_CLOSED":  # by the first of two tries, that is
                self._wrong("unexpected_answer", row["id"], f"closing was answered {answer.status_code}: {answer.text[:200]}")
        said = {row["payment_id"] for row in shown if row["kind"] == UNKNOWN}
        for memory in (memory for memory in doubted if memory.payment.intent not in said):
            self._wrong("forgotten", memory.payment.intent, f"{memory.kind}: paid, forgotten, and nothing says so")

    # --- what must be true ----------------------------------------------------------------------------------------------------------------

    def _nothing_left(self, since: float, until: float) -> None:
        """From the restore (or the halt, where workers went on meanwhile) until the operator resumed no call left."""
        for key, times in self._stand.links["worker-sandbox"].posts.items():
            for sent in (sent for sent in times if since < sent < until):
                self._wrong(
                    "sent_while_halted",
                    key,
                    f"a call left {sent - since:.2f} s after the restore, and {until - sent:.2f} s before it was resumed",
                )

    async def count(self) -> None:
        """Once everything has come to its end, money went back as often as it was due: whatever the database forgot, the processor's truth counts."""
        for memory in self._memories:
            truth = await self._people.truth(memory.payment.intent)
            out = [made["id"] for made in truth["refunds"] if made["status"] in OUT]
            if len(out) != memory.due:
                self._wrong("twice_after_restore", memory.payment.intent, f"{memory.kind}: due {memory.due} times, made {out}")

    def _wrong(self, check: str, where: str, what: str) -> None:
        self.found.violations.append(Violation(check, where, what))


async def _files(source: Path, target: Path) -> None:
    """Copy a directory with owners and times; as a whole, or not at all."""
    await asyncio.to_thread(subprocess.run, ["cp", "-a", str(source), str(target)], check=True)
