"""What goes wrong: each planned fault is carried out once so many refunds have been asked for, whatever state the machine is in then."""

import asyncio
import time
from collections import Counter
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from datetime import timedelta
from random import Random
from typing import Any

from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.workflowservice.v1 import ResetWorkflowExecutionRequest
from temporalio.client import Client
from temporalio.service import RPCError

from deploy.local.parts import SANDBOX_KEY
from refunds.messages import Message
from tests.chaos.book import Book, Stop
from tests.chaos.links import Mood
from tests.chaos.load import SMALL, Doing
from tests.chaos.people import LIFT, GaveUp, People
from tests.chaos.plan import PARTS, WORKERS, Errand, Fault
from tests.chaos.stand import Stand

RECOVERY_S = 60.0
LOOK_EVERY_S = 0.05
RECENT = 10
AHEAD = 12
"""How many refunds the load may be ahead of the next fault's place."""
MIDWAY_ERRANDS = 10_000_000
"""Errands of the measurement are numbered from here, apart from those of the load."""
CALM_ERRANDS = 10_000_000
KEY_ERRANDS = 30_000_000
LATE_HALT_S = 10.0
"""How long after its repair a key's refusal may still be recorded: longer than anything stands still."""


@dataclass
class Recovery:
    """One worker killed while a call to the processor was under way: seconds until the refund had its receipt."""

    refund: str
    since_kill_s: float
    who: str
    """``one of two``: another was there. ``both of two``: one had to start. ``alone``: there was but one, as in the local stack, and it had to start."""
    calm: bool
    """Nothing else had gone wrong: measured when all faults were over."""


@dataclass
class Done:
    """What was carried out."""

    kinds: Counter[str] = field(default_factory=Counter[str])
    void: Counter[str] = field(default_factory=Counter[str])
    """Faults that met nothing: a crash point nobody reached, a run that was not there."""
    recoveries: list[Recovery] = field(default_factory=list[Recovery])
    last: str = ""


class Faults:
    """Carries faults out. Those that last go on beside the next ones; one part is hurt by one fault at a time."""

    def __init__(self, stand: Stand, people: People, book: Book, say: Callable[[str], None], *, run: str) -> None:
        self.stand = stand
        self.people = people
        self.book = book
        self.done = Done()
        self.workers: tuple[str, ...] = WORKERS
        """Those that run."""
        self.cut_short = False
        """Somebody has no more time: what was not begun is left out, and what was done is checked."""
        self._say = say
        self._run = run
        self._parts: dict[str, asyncio.Lock] = {}
        self._stop = asyncio.Lock()
        self._place: int | None = 0
        self._temporal: Client | None = None

    async def carry_out(self, faults: list[Fault], over: asyncio.Event) -> None:
        """All of them in order, each when the load has come to its place, or is over."""
        async with asyncio.TaskGroup() as lasting:
            for fault in faults:
                self._place = fault.at
                while self.book.begun < fault.at and not over.is_set() and not self.cut_short:
                    await _pause()
                if self.cut_short:
                    break
                self.done.last = str(fault)
                self.done.kinds[fault.kind] += 1
                task = lasting.create_task(self._one(fault))
                if fault.kind == "kill_in_mid_call":
                    await task  # measured in peace: nothing else goes wrong meanwhile
            self._place = None

    def let_in(self) -> bool:
        """Whether the next errand may begin: the load does not run away from the faults, or the last ones would meet nothing."""
        return self.cut_short or self._place is None or self.book.begun <= self._place + AHEAD

    async def _one(self, fault: Fault) -> None:
        try:
            await getattr(self, fault.kind)(fault, **fault.details)
        except (TimeoutError, GaveUp) as error:
            self.book.odd.append(("did_not_recover", f"after fault {fault}: {error or type(error).__name__}"))

    def _void(self, fault: Fault) -> None:
        self.done.void[fault.kind] += 1

    def _lock(self, part: str) -> asyncio.Lock:
        return self._parts.setdefault(part, asyncio.Lock())

    # --- processes -------------------------------------------------------------------------------------------------------------------

    async def kill(self, fault: Fault, part: str) -> None:
        """kill -9; it is started again by itself."""
        async with self._lock(part):
            await self.stand.kill(part)
            await self.stand.ready(part)

    async def kill_while_starting(self, fault: Fault, part: str, seconds: float) -> None:
        """Killed, and killed again on its way up."""
        async with self._lock(part):
            await self.stand.kill(part)
            await asyncio.sleep(seconds)
            await self.stand.kill(part)
            await self.stand.ready(part)

    async def freeze(self, fault: Fault, part: str, seconds: float) -> None:
        """Stands still, then goes on as if nothing had been."""
        async with self._lock(part):
            pid = self.stand.freeze(part)
            await asyncio.sleep(seconds)
            self.stand.thaw(part, pid)

    async def crash_at(self, fault: Fault, rule: str, seconds: float) -> None:
        """Whoever reaches the named point first dies there, or stands still for a while."""
        async with self._lock("points"):
            self.stand.arm(rule)
            until = time.monotonic() + seconds
            while self.stand.armed and time.monotonic() < until:
                await _pause()
            if not self.stand.disarm():
                self._void(fault)
            elif "=freeze" in rule:
                await asyncio.sleep(seconds)
                for part in (*WORKERS, "api"):
                    self.stand.thaw(part, self.stand.stack.pid(part))

    async def kill_everything(self, fault: Fault) -> None:
        """The whole stack dies at once, and comes back in any order."""
        async with AsyncExitStack() as locks:
            for part in PARTS:
                await locks.enter_async_context(self._lock(part))
            await asyncio.gather(*(self.stand.kill(part) for part in PARTS))
            await self.stand.ready(*PARTS)

    async def kill_in_mid_call(self, fault: Fault, ms: int, *, both: bool, calm: bool = False) -> None:
        """The worker that calls dies while the processor works, or all do; measured is how long it takes until the refund has its receipt."""
        async with AsyncExitStack() as locks:
            for worker in WORKERS:
                await locks.enter_async_context(self._lock(worker))
            await self.stand.ready(*(part for part in PARTS if part not in WORKERS or part in self.workers))
            refund = await self._in_mid_call(fault, ms)
            if refund is None:
                self._void(fault)  # another fault keeps it from being sent, such as a stop
                return
            doomed = self.workers if both else (await self._calling(refund),)
            killed = time.monotonic()
            await asyncio.gather(*(self.stand.kill(worker) for worker in doomed))
            while not await self._has_receipt(refund):
                if time.monotonic() > killed + RECOVERY_S:
                    raise TimeoutError(f"{refund} has no receipt {RECOVERY_S:.0f} s after its worker was killed in mid-call")
                await _pause()
            who = "alone" if len(self.workers) == 1 else "both of two" if both else "one of two"
            self.done.recoveries.append(Recovery(refund, round(time.monotonic() - killed, 3), who, calm))
            await self.stand.ready(*doomed)

    async def _in_mid_call(self, fault: Fault, ms: int) -> str | None:
        """A refund whose request the processor has got and not answered; ``None`` when it is not sent in time."""
        errand = Errand(MIDWAY_ERRANDS + fault.number, "kill_in_mid_call", 1, 0, f"{self._run}/{fault.number}")
        doing = Doing(errand, self.people, self.book, self._run)
        payment, asked = await doing.pay_more_than(doing.amount(SMALL))
        held = {"on": "refund.create", "match": {"payment_intent": payment.intent}, "times": 1, "fault": {"kind": "delay", "ms": ms}}
        await self.people.control("POST", "/faults", held)
        refund = await doing.ask(payment, doing.body(payment, asked))
        until = time.monotonic() + RECOVERY_S
        while not (await self.people.truth(payment.intent))["create_requests"]:
            if time.monotonic() > until:
                return None
            await _pause()
        return refund

    async def _calling(self, refund: str) -> str:
        """The worker that opened the last attempt."""
        last = "SELECT a.worker FROM attempts a JOIN operations o ON o.id = a.operation_id WHERE o.refund_id = %s ORDER BY a.opened_at DESC LIMIT 1"
        [(name,)] = await asyncio.to_thread(self.stand.rows, last, refund)
        pid = int(name.rpartition("/")[2])
        return next((worker for worker in WORKERS if self.stand.stack.pid(worker) == pid), WORKERS[0])

    async def measure(self, times: int) -> None:
        """The same so many times when nothing else goes wrong: each time with two workers, and with one alone."""
        for number in range(times):
            await self._one(_in_calm(number, both=False))
        async with self.stand.down(WORKERS[1]):
            self.workers = WORKERS[:1]
            for number in range(times, 2 * times):
                await self._one(_in_calm(number, both=True))
        self.workers = WORKERS
        await self.stand.ready(*WORKERS)

    async def _has_receipt(self, refund: str) -> bool:
        view = await self.people.view(refund)
        return view is not None and any(operation["refund_id"] for operation in view["processor"]["operations"])

    # --- connections -----------------------------------------------------------------------------------------------------------------

    async def cut(self, fault: Fault, link: str) -> None:
        """Every connection of a link is reset."""
        self.stand.links[link].cut()

    async def _for_a_while(self, link: str, mood: Mood, seconds: float) -> None:
        async with self._lock(link):
            self.stand.links[link].feel(mood)
            await asyncio.sleep(seconds)
            self.stand.links[link].feel(Mood.PASSING)

    async def refuse(self, fault: Fault, link: str, seconds: float) -> None:
        """Nobody gets through."""
        await self._for_a_while(link, Mood.REFUSING, seconds)

    async def stall(self, fault: Fault, link: str, seconds: float) -> None:
        """Everything is late."""
        await self._for_a_while(link, Mood.STALLING, seconds)

    async def swallow(self, fault: Fault, link: str, seconds: float) -> None:
        """What is asked arrives, what is answered does not."""
        await self._for_a_while(link, Mood.SWALLOWING, seconds)

    async def end_sessions(self, fault: Fault, login: str) -> None:
        """The database ends the sessions of one login."""
        await asyncio.to_thread(self.stand.end_sessions, login)

    # --- the processor ---------------------------------------------------------------------------------------------------------------

    async def disturb_create(self, fault: Fault, /, **ordered: Any) -> None:
        """The next requests to create a refund meet this."""
        await self._order("refund.create", ordered["fault"], ordered["times"])

    async def disturb_leg(self, fault: Fault, /, on: str, **ordered: Any) -> None:
        """The next requests to reverse a transfer, or to give a fee back, meet this."""
        await self._order(on, ordered["fault"], ordered["times"])

    async def disturb_reading(self, fault: Fault, /, on: str, **ordered: Any) -> None:
        """The next readings meet this."""
        await self._order(on, ordered["fault"], ordered["times"])

    async def disturb_webhooks(self, fault: Fault, /, seconds: float, *, reverse: bool, **ordered: Any) -> None:
        """The next events come twice, late, never, or after those that happened later."""
        await self._order("webhook", ordered["fault"], ordered["times"])
        await asyncio.sleep(seconds)
        await self.people.control("POST", "/webhooks/release", {"reverse": reverse})

    async def _order(self, on: str, fault: list[dict[str, Any]], times: int) -> None:
        await self.people.control("POST", "/faults", {"on": on, "times": times, "fault": fault})

    # --- operators -------------------------------------------------------------------------------------------------------------------

    async def stop(self, fault: Fault, seconds: float) -> None:
        """The emergency stop, and its end."""
        async with self._stop:
            said = {"state": "stopped", "reason": f"fault {fault.number}"}
            answer = await self.people.call("olga", "PUT", "/v1/controls", said)
            answered_at = time.time()
            if answer.status_code != 200:
                self.book.odd.append(("unexpected_answer", f"the stop was answered {answer.status_code}: {answer.text[:200]}"))
                return
            await asyncio.sleep(seconds)
            resumed_at = time.time()
            await self.people.call("administrator", "PUT", "/v1/controls", said | {"state": "running"})
            listed = frozenset(call["refund"] for call in answer.json()["calls_in_flight"])
            self.book.stops.append(Stop(answered_at, resumed_at, listed))

    async def refuse_key(self, fault: Fault, how: dict[str, Any], seconds: float) -> None:
        """The processor does not accept our key any more: submitting is halted, and goes on once the key is repaired and an operator says so."""
        async with self._stop, AsyncExitStack() as locks:  # while everything is stopped nothing would meet the key
            # Nor would a worker that has to start: with a key that is not accepted it does not.
            for each in ("points", *WORKERS):
                await locks.enter_async_context(self._lock(each))
            await self.stand.ready(*WORKERS)
            await self.people.control("PUT", "/keys", {"key": SANDBOX_KEY} | how)
            try:
                await self._meets_the_key(fault)
                await self._until_halted()
                halted_at = time.time()
                await asyncio.sleep(seconds)
            finally:
                await self.people.control("PUT", "/keys", {"key": SANDBOX_KEY})
            await locks.aclose()
            self.book.stops.append(Stop(halted_at, time.time(), None))
            # A call that was answered before the repair may be recorded after it, by a worker that stood still say, and then halts again: so an operator looks on.
            until = time.monotonic() + LATE_HALT_S
            while time.monotonic() < until:
                if await self._is_halted():
                    lifted = await self.people.call("olga", "PUT", "/v1/controls", LIFT | {"reason": f"fault {fault.number}"})
                    if lifted.status_code != 200:
                        self.book.odd.append(("unexpected_answer", f"lifting was answered {lifted.status_code}: {lifted.text[:200]}"))
                await asyncio.sleep(0.5)

    async def _meets_the_key(self, fault: Fault) -> None:
        """A refund that needs the processor now, whatever the others do."""
        errand = Errand(KEY_ERRANDS + fault.number, "refuse_key", 1, 0, f"{self._run}/{fault.number}")
        doing = Doing(errand, self.people, self.book, self._run)
        payment, asked = await doing.pay_more_than(doing.amount(SMALL))
        await doing.ask(payment, doing.body(payment, asked))

    async def _until_halted(self) -> None:
        until = time.monotonic() + RECOVERY_S
        while not await self._is_halted():
            if time.monotonic() > until:
                raise TimeoutError(f"nothing was halted within {RECOVERY_S:.0f} s after the key was refused")
            await _pause()

    async def _is_halted(self) -> bool:
        controls = (await self.people.call("olga", "GET", "/v1/controls")).json()["controls"]
        return any(control["scope"] == LIFT["scope"] and control["state"] == "stopped" for control in controls)

    async def end_run(self, fault: Fault, how: str, pick: float) -> None:
        """An operator terminates, cancels or resets a run that is under way."""
        try:
            client = await self._client()
            found = [run async for run in client.list_workflows("WorkflowType='RefundWorkflow' AND ExecutionStatus='Running'", limit=50)]
            if not found:
                self._void(fault)
                return
            run = found[int(pick * len(found))]
            handle = client.get_workflow_handle(run.id, run_id=run.run_id)
            if how == "terminate":
                await handle.terminate("chaos")
            elif how == "cancel":
                await handle.cancel(rpc_timeout=timedelta(seconds=5))
            else:
                await self._reset(client, run.id, run.run_id)
        except (RPCError, RuntimeError):
            self._void(fault)

    async def _reset(self, client: Client, workflow: str, run: str) -> None:
        history = await client.get_workflow_handle(workflow, run_id=run).fetch_history()
        completed = [event.event_id for event in history.events if event.HasField("workflow_task_completed_event_attributes")]
        if completed:
            await client.workflow_service.reset_workflow_execution(_reset_request(client.namespace, workflow, run, completed[0]))

    async def raw_signal(self, fault: Fault, name: str, pick: float) -> None:
        """Somebody with access to Temporal alone sends a message that nothing recorded backs."""
        refunds = list(self.book.accepted)[-RECENT:]  # the runs of earlier ones have ended
        if not refunds:
            self._void(fault)
            return
        refund = refunds[int(pick * len(refunds))]
        try:
            handle = (await self._client()).get_workflow_handle(f"refund-{refund}")
            await handle.signal(name, Message(id=f"dc_{Random(fault.number).randbytes(8).hex()}"), rpc_timeout=timedelta(seconds=5))
        except (RPCError, RuntimeError):
            self._void(fault)

    async def _client(self) -> Client:
        if self._temporal is None:
            self._temporal = await Client.connect(self.stand.url("temporal"))
        return self._temporal


def _in_calm(number: int, *, both: bool) -> Fault:
    return Fault(CALM_ERRANDS + number, 0, "kill_in_mid_call", {"ms": 400, "both": both, "calm": True})


def _reset_request(namespace: str, workflow: str, run: str, event: int) -> Any:
    return ResetWorkflowExecutionRequest(
        namespace=namespace,
        workflow_execution=WorkflowExecution(workflow_id=workflow, run_id=run),
        reason="chaos",
        workflow_task_finish_event_id=event,
        request_id=f"chaos-{run}",
    )


async def _pause() -> None:
    """Between two looks."""
    await asyncio.sleep(LOOK_EVERY_S)
