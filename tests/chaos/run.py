"""One run from beginning to end: the stack, the load with the faults beside it, the end, the checks."""

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime

from deploy.local.progress import Reporter
from refunds.clock import SystemClock
from tests.chaos.book import Book
from tests.chaos.doers import carry_out
from tests.chaos.ending import lift, loose_ends, reconcile, settle, unexplained
from tests.chaos.faults import Done, Faults
from tests.chaos.forgetting import EXPLAINED_BY_PEOPLE, FORGETFUL, Forgetting, Restored
from tests.chaos.gather import Gathering
from tests.chaos.people import GaveUp, People
from tests.chaos.plan import Errand, Plan
from tests.chaos.record import unverified
from tests.chaos.stand import Stand, running
from tests.chaos.truth import Violation

LEAST_TELL_S = 5.0
REFUNDS_A_LINE = 200
CALL_PATIENCE_S = 90.0
REMEMBERED = 300
"""How many of the payments that the restored database knows are held against the truth once more."""
KEY_HALTS = frozenset({"KEY_REFUSED", "KEY_NOT_PERMITTED"})


@dataclass(frozen=True)
class Bounds:
    """How much at once, and how long for."""

    lanes: int = 12
    load_within_s: float | None = None
    """After so long nothing more is asked for, and no more goes wrong; ``None`` means until the plan is done."""
    settle_within_s: float = 240
    agree_within_s: float = 30
    keep: bool = False


@dataclass
class Result:
    """What was done and found."""

    plan: Plan
    book: Book
    done: Done
    home: str
    began: datetime
    standing: Counter[str] = field(default_factory=Counter[str])
    settled: Counter[str] = field(default_factory=Counter[str])
    """What settlers said of parked refunds, and the HTTP status they got."""
    violations: list[Violation] = field(default_factory=list[Violation])
    late: list[Violation] = field(default_factory=list[Violation])
    """What only the reconciliation could find, because its events were lost."""
    reconciled: dict[str, int] = field(default_factory=dict[str, int])
    restored: Restored | None = None
    seconds: dict[str, float] = field(default_factory=dict[str, float])


async def run(plan: Plan, bounds: Bounds, reporter: Reporter, say: Callable[[str], None]) -> Result:
    """Carry the plan out. Raises what kept the stack from starting; what the product did wrong is in the result."""
    async with running(reporter, keep=bounds.keep) as stand:
        book = Book()
        people = People(stand, book, patience_s=CALL_PATIENCE_S)
        # Ids of one run do not depend on its seed alone: the sandbox and the store are new each time, and the seed's stream is the load's.
        faults = Faults(stand, people, book, say, run=f"c{plan.seed}")
        result = Result(plan, book, faults.done, str(stand.stack.home), SystemClock().now())
        try:
            await people.hire(plan.clients)
            await _storm(plan, bounds, faults, people, book, result, say)
            await _end(stand, people, faults, bounds, result, say)
        except (GaveUp, TimeoutError) as error:  # nothing more can be asked; what was found so far is the result
            seen = [Violation(check, "seen at once", what) for check, what in book.odd]
            result.violations += [each for each in seen if each not in result.violations]
            result.violations.append(Violation("did_not_recover", "after the load", str(error)))
        finally:
            await people.close()
        return result


async def _storm(
    plan: Plan, bounds: Bounds, faults: Faults, people: People, book: Book, result: Result, say: Callable[[str], None]
) -> None:
    over, errands = asyncio.Event(), plan.errands()
    async with _timed(result, "load"), _telling(plan, book, faults.done, say), asyncio.TaskGroup() as group:
        troubles = group.create_task(faults.carry_out(plan.troubles(), over))
        cutting = group.create_task(_cut_short(faults, bounds.load_within_s, say))
        lanes = [group.create_task(_lane(errands, faults, people, book, f"c{plan.seed}")) for _ in range(bounds.lanes)]
        await asyncio.gather(*lanes)
        cutting.cancel()
        over.set()
        await troubles


async def _lane(errands: Iterator[Errand], faults: Faults, people: People, book: Book, run_name: str) -> None:
    while not faults.cut_short and (errand := next(errands, None)) is not None:
        while not faults.let_in():
            await _pause()
        await carry_out(errand, people, book, run_name)


async def _cut_short(faults: Faults, after_s: float | None, say: Callable[[str], None]) -> None:
    if after_s is not None:
        await asyncio.sleep(after_s)
        say(f"{after_s:.0f} s are over: nothing more is asked for")
        faults.cut_short = True


async def _end(stand: Stand, people: People, faults: Faults, bounds: Bounds, result: Result, say: Callable[[str], None]) -> None:
    say("all faults are over: resuming, settling, waiting for the rest")
    async with _timed(result, "settling"):
        await lift(stand, people)
        result.standing = await settle(stand, people, result.book, result.settled, say, within_s=bounds.settle_within_s)
    say(f"killing a worker in mid-call, {2 * result.plan.mid_calls} times")
    async with _timed(result, "measuring"):
        await faults.measure(result.plan.mid_calls)
        result.standing = await settle(stand, people, result.book, result.settled, say, within_s=bounds.settle_within_s)
    say("checking against the sandbox's truth")
    async with _timed(result, "checking"):
        await _check(stand, people, bounds, result, say)
    if result.plan.restore:
        say("restoring an older database")
        async with _timed(result, "restoring"):
            await _restore(stand, people, bounds, result, say)


async def _check(stand: Stand, people: People, bounds: Bounds, result: Result, say: Callable[[str], None]) -> None:
    """Hold the record against the truth, first as events, polls and sweeps left it; what they could not know must be found by a reconciliation."""
    gathering = Gathering(stand, people, result.book)
    result.violations = [Violation(check, "seen at once", what) for check, what in result.book.odd]
    wrong, late = await gathering.judge_until(list(result.book.payments), say, within_s=bounds.agree_within_s)
    result.violations += wrong
    result.late = late
    if late and not result.plan.loses_events():
        result.violations += [Violation("told_and_not_heard", each.where, f"{each.check}: {each.what}") for each in late]
    say(f"reconciling; {len(late)} things are not as they are at the processor" if late else "reconciling")
    reconciled = await reconcile(people, result.began, within_s=bounds.settle_within_s)
    result.reconciled = {name: reconciled[name] for name in ("compared", "differences", "imported", "pages")}
    wrong, late = await gathering.judge_until(sorted({each.where for each in late}), say, within_s=bounds.agree_within_s)
    result.violations += [each for each in wrong + late if each not in result.violations]
    result.violations += await gathering.judge_groups()
    result.violations += await unexplained(people)
    result.violations += await loose_ends(stand, result.book, KEY_HALTS, within_s=bounds.agree_within_s)
    result.violations += await unverified(stand)


async def _restore(stand: Stand, people: People, bounds: Bounds, result: Result, say: Callable[[str], None]) -> None:
    """Last, because it takes the record back: what was true of everything else before must be true of it again."""
    plan, known = result.plan, list(result.book.payments)[-REMEMBERED:]
    forgetting = Forgetting(stand, people, result.book, say, run=f"c{plan.seed}", seed=plan.seed)
    try:
        result.restored = await forgetting.carry_out()
    except (TimeoutError, GaveUp) as error:
        result.restored = forgetting.found
        result.violations.append(Violation("did_not_recover", "restore", str(error)))
    result.standing = await settle(stand, people, result.book, result.settled, say, within_s=bounds.settle_within_s)
    await forgetting.count()
    result.violations += result.restored.violations
    wrong, late = await Gathering(stand, people, result.book).judge_until(
        [*known, *forgetting.payments], say, within_s=bounds.agree_within_s
    )
    result.violations += [each for each in wrong + late if each not in result.violations]
    explained = KEY_HALTS | FORGETFUL
    for each in [
        *await unexplained(people, EXPLAINED_BY_PEOPLE),
        *await loose_ends(stand, result.book, explained, within_s=bounds.agree_within_s),
        *await unverified(stand),
    ]:
        if each not in result.violations:
            result.violations.append(each)


@asynccontextmanager
async def _timed(result: Result, what: str) -> AsyncIterator[None]:
    began = time.monotonic()
    try:
        yield
    finally:
        result.seconds[what] = round(time.monotonic() - began, 1)


@asynccontextmanager
async def _telling(plan: Plan, book: Book, done: Done, say: Callable[[str], None]) -> AsyncIterator[None]:
    """A line every few seconds while the load runs, less often in a long one."""

    async def tell() -> None:
        while True:
            await asyncio.sleep(max(LEAST_TELL_S, plan.refunds / REFUNDS_A_LINE))
            carried = done.kinds.total()
            say(
                f"{book.begun:>6} of {plan.refunds} refunds asked for, {len(book.accepted)} accepted,"
                f" {carried} of {plan.faults} faults, last {done.last or 'none'}"
            )

    telling = asyncio.create_task(tell())
    try:
        yield
    finally:
        telling.cancel()
        await asyncio.gather(telling, return_exceptions=True)


async def _pause() -> None:
    await asyncio.sleep(0.05)
