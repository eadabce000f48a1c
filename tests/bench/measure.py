"""One round of each contestant, and the single runs: what is done and timed, nothing about how it is shown."""

import asyncio
import itertools
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import TypeVar

import httpx
from temporalio.client import Client

from refunds.ids import workflow_id
from tests.bench import bare, usage
from tests.bench.goods import LARGE, SMALL, Goods
from tests.bench.http import Answer, Line
from tests.bench.stand import BARE, PEERS, Stand
from tests.bench.watch import Watch

WITHIN_S = 60
REFUNDS, DBOS = "refunds", "dbos"
"""The contestants beside ``BARE``."""

Lane = TypeVar("Lane")
Item = TypeVar("Item")
_keys = itertools.count(1)


class DidNotWork(RuntimeError):
    """Something that is measured did not do its work; there is no figure for that."""


@dataclass
class Round:
    """One round: how many a second, and for refunds the milliseconds of each."""

    per_second: float
    first_answer_ms: list[float] = field(default_factory=list[float])
    final_ms: list[float] = field(default_factory=list[float])
    cpu_ms: dict[str, float] = field(default_factory=dict[str, float])
    """Processor time of each part for one refund or run."""


@dataclass(frozen=True)
class Alone:
    """Single runs, one after the other, in milliseconds."""

    first_answer_ms: list[float]
    final_ms: list[float]
    bare_ms: list[float]


@dataclass(frozen=True)
class History:
    """The size of one refund's history in Temporal."""

    events: int
    bytes: int


@dataclass(frozen=True)
class Contest:
    """What all measurements need."""

    stand: Stand
    client: Client
    watch: Watch
    concurrency: int

    async def refunds(self, goods: Sequence[Goods], doors: Sequence[str]) -> Round:
        """Refunds through ``POST /v1/refunds`` to their final status, so many at once; ``doors`` are the parts whose API takes them, in turn."""
        result = Round(0)
        before = usage.cpu_seconds(self.stand.pids)
        async with AsyncExitStack() as stack:
            lanes = [
                await stack.enter_async_context(Line(self.stand.url(doors[n % len(doors)]), self.stand.requester))
                for n in range(self.concurrency)
            ]

            async def one(line: Line, item: Goods) -> None:
                first, final = await self.refund(line, item)
                result.first_answer_ms.append(first)
                result.final_ms.append(final)

            result.per_second = len(goods) / await _in_lanes(lanes, goods, one)
        result.cpu_ms = await self._cost(before, len(goods))
        return result

    async def bare(self, count: int) -> Round:
        """Bare workflows, so many at once."""

        async def one(_lane: int, _item: int) -> None:
            await self.bare_run()

        before = usage.cpu_seconds(self.stand.pids)
        seconds = await _in_lanes(range(self.concurrency), range(count), one)
        return Round(count / seconds, cpu_ms=await self._cost(before, count))

    async def _cost(self, before: usage.Seconds, count: int) -> dict[str, float]:
        """Processor milliseconds of each part for each of so many, counted to the end of the last run."""
        await self.quiet()
        after = usage.cpu_seconds(self.stand.pids)
        return {name: (after[name] - before[name]) * 1000 / count for name in after}

    async def alone(self, goods: Sequence[Goods]) -> Alone:
        """Single refunds and single bare runs in turn, nothing else under way."""
        result = Alone([], [], [])
        for item in goods:
            await self.quiet()
            async with Line(self.stand.url("api"), self.stand.requester) as line:
                await line.connect()
                first, final = await self.refund(line, item)
            result.first_answer_ms.append(first)
            result.final_ms.append(final)
            await self.quiet()  # its run still ends, and its events come, after it is final: neither is the bare run's burden
            began = time.perf_counter()
            await self.bare_run()
            result.bare_ms.append((time.perf_counter() - began) * 1000)
        return result

    async def refund(self, line: Line, item: Goods) -> tuple[float, float]:
        """One automatic refund: milliseconds to the first answer with its quote, and to the final status."""
        began = time.perf_counter()
        answer = await line.post("/v1/refunds", item.request(SMALL), key=f"bench-{next(_keys)}")
        answered = time.perf_counter()
        refund = _id(answer)
        status, seen = await self.watch.final(refund, within_s=WITHIN_S)
        if status != "succeeded":
            raise DidNotWork(f"{refund} ended {status} instead of succeeded")
        if answer.body["terms_hash"] is None:  # 202: a caller would have to ask again and could have the quote from then on
            answered = max(answered, self.watch.quoted(refund))
        return (answered - began) * 1000, (seen - began) * 1000

    async def bare_run(self) -> None:
        """One bare workflow from start to result."""
        done = await self.client.execute_workflow(bare.WORKFLOW, id=f"bench-bare-{next(_keys)}", task_queue=bare.QUEUE)
        if done != bare.STEPS:
            raise DidNotWork(f"a bare workflow returned {done!r}")

    async def approved(self, item: Goods) -> str:
        """One refund that a reviewer approves; returns its id."""
        async with (
            Line(self.stand.url("api"), self.stand.requester) as requester,
            Line(self.stand.url("api"), self.stand.reviewer) as reviewer,
        ):
            answer = await requester.post("/v1/refunds", item.request(LARGE), key=f"bench-{next(_keys)}")
            refund = _id(answer)
            if answer.body["status"] != "awaiting_review":
                raise DidNotWork(f"{refund} is {answer.body['status']} instead of awaiting_review")
            body = {"verdict": "approve", "terms_hash": answer.body["terms_hash"], "note": "bench"}
            decided = await reviewer.post(f"/v1/refunds/{refund}/decisions", body)
            if decided.status != 200:
                raise DidNotWork(f"the decision on {refund} was answered {decided.status}: {decided.body}")
        status, _ = await self.watch.final(refund, within_s=WITHIN_S)
        if status != "succeeded":
            raise DidNotWork(f"{refund} ended {status} instead of succeeded")
        return refund

    async def automatic(self, item: Goods) -> str:
        """One automatic refund; returns its id."""
        async with Line(self.stand.url("api"), self.stand.requester) as line:
            refund = _id(await line.post("/v1/refunds", item.request(SMALL), key=f"bench-{next(_keys)}"))
        await self.watch.final(refund, within_s=WITHIN_S)
        return refund

    async def history(self, refund: str) -> History:
        """How large the refund's history is, once its run has ended."""
        handle = self.client.get_workflow_handle(workflow_id(refund))
        await handle.result()
        history = await handle.fetch_history()
        return History(len(history.events), sum(event.ByteSize() for event in history.events))

    async def quiet(self) -> None:
        """Wait until no run is open, every event of the processor's has come and is dealt with, so that the end of one round is no load for the next.

        Raises ``DidNotWork`` after a while.
        """
        until = time.monotonic() + WITHIN_S
        async with httpx.AsyncClient(base_url=self.stand.url("sandbox"), trust_env=False) as sandbox:

            async def left() -> str:
                if (await self.client.count_workflows("ExecutionStatus='Running'")).count:
                    return "runs are still open"
                if (await sandbox.get("/_sandbox/webhooks")).raise_for_status().json().get("due"):
                    return "events are still to come"
                return "events still wait" if await self.watch.events_waiting() else ""

            while why := await left():
                if time.monotonic() > until:
                    raise DidNotWork(f"{why} a minute after their round")
                await asyncio.sleep(0.1)


def _id(answer: Answer) -> str:
    if answer.status not in (201, 202):
        raise DidNotWork(f"a refund was answered {answer.status}: {answer.body}")
    return answer.body["id"]


async def _in_lanes(lanes: Sequence[Lane], items: Sequence[Item], one: Callable[[Lane, Item], Awaitable[None]]) -> float:
    """Do all items, each lane one after the other; returns the seconds that took."""
    left = iter(items)

    async def lane(mine: Lane) -> None:
        for item in left:
            await one(mine, item)

    began = time.perf_counter()
    async with asyncio.TaskGroup() as group:
        for mine in lanes:
            group.create_task(lane(mine))
    return time.perf_counter() - began


async def contest(contest: Contest, goods: Callable[[int], Awaitable[Sequence[Goods]]], size: int, number: int) -> dict[str, Round]:
    """One round of every contestant. Who begins changes from round to round, so that no place in it is anybody's."""
    turns: dict[str, Callable[[], Awaitable[Round]]] = {
        REFUNDS: lambda: _prepared(lambda items: contest.refunds(items, ["api"])),
        BARE: lambda: contest.bare(size),
        DBOS: lambda: _prepared(lambda items: contest.refunds(items, PEERS)),
    }

    async def _prepared(run: Callable[[Sequence[Goods]], Awaitable[Round]]) -> Round:
        return await run(await goods(size))

    first = number % len(turns)
    order = [*turns][first:] + [*turns][:first]
    return {name: await turns[name]() for name in order}
