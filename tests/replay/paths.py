"""The kinds of run that are kept in the replay corpus: one completed history of every path. A history that only waits proves little, so each one ends.

Each path is a function that drives a run from its start to its end; its name is the file's name.
"""

from collections.abc import Awaitable, Callable
from datetime import timedelta

from refunds.messages import Message
from tests.workflows.memory import DAY, Plan
from tests.workflows.running import Run, Runs, message

PATHS: dict[str, Callable[[Runs], Awaitable[Run]]] = {}
FORGED = "dec_01m8kwhm2paw1vv6wkbf2pdd9j"


def path(function: Callable[[Runs], Awaitable[Run]]) -> Callable[[Runs], Awaitable[Run]]:
    """Add a path to the corpus."""
    PATHS[function.__name__] = function
    return function


async def _at(runs: Runs, status: str, plan: Plan) -> Run:
    run = await runs.start(plan)
    await run.until(status)
    return run


@path
async def automatic(runs: Runs) -> Run:
    return await runs.start()


@path
async def text_and_reading(runs: Runs) -> Run:
    return await runs.start(Plan(text=True, reading=True))


@path
async def text_unread(runs: Runs) -> Run:
    run = await _at(runs, "awaiting_review", Plan(text=True, unreadable=True, reading=True))
    await run.ask("decide", message(runs.store.decide(run.row, "approve"), run))
    return run


@path
async def released(runs: Runs) -> Run:
    return await runs.start(Plan(answers=["released"]))


@path
async def refused_by_the_processor(runs: Runs) -> Run:
    return await runs.start(Plan(answers=["failed"]))


@path
async def retried(runs: Runs) -> Run:
    return await runs.start(Plan(answers=["unknown", "unknown", "succeeded"]))


@path
async def approved_by_signal(runs: Runs) -> Run:
    run = await _at(runs, "awaiting_review", Plan(people=1))
    await run.handle.signal("approve", message(runs.store.decide(run.row, "approve")))
    return run


@path
async def approved_by_update(runs: Runs) -> Run:
    run = await _at(runs, "awaiting_review", Plan(people=1))
    await run.ask("decide", message(runs.store.decide(run.row, "approve"), run))
    return run


@path
async def denied(runs: Runs) -> Run:
    run = await _at(runs, "awaiting_review", Plan(people=1))
    await run.handle.signal("deny", message(runs.store.decide(run.row, "deny")))
    return run


@path
async def consent_and_two_people(runs: Runs) -> Run:
    run = await _at(runs, "awaiting_consent", Plan(consent=True, people=2))
    await run.handle.signal("consent", message(runs.store.consent(run.row)))
    await run.until("awaiting_review")
    for person in ("ann", "bob"):
        await run.ask("decide", message(runs.store.decide(run.row, "approve", person)))
    return run


@path
async def consent_declined(runs: Runs) -> Run:
    run = await _at(runs, "awaiting_consent", Plan(consent=True))
    await run.handle.signal("consent", message(runs.store.consent(run.row, agreed=False)))
    return run


@path
async def revised_and_approved(runs: Runs) -> Run:
    run = await _at(runs, "awaiting_review", Plan(people=1, reading=True))
    run.row.read = False
    await run.ask("revise", message(runs.store.revise(run.row, 2000)))
    await run.handle.signal("revise", message(runs.store.revise(run.row, 1500)))
    await run.entry("awaiting_review", 3)
    await run.ask("decide", message(runs.store.decide(run.row, "approve")))
    return run


@path
async def withdrawn(runs: Runs) -> Run:
    run = await _at(runs, "awaiting_review", Plan(people=1))
    await run.handle.signal("withdraw", message(runs.store.withdraw(run.row)))
    return run


@path
async def escalated_and_expired(runs: Runs) -> Run:
    run = await _at(runs, "awaiting_review", Plan(people=1))
    for hours, entry, count in ((4, "reminded", 1), (20, "escalated", 1), (4, "reminded", 2)):
        await run.pass_time(timedelta(hours=hours, seconds=2))
        await run.entry(entry, count)
    await run.pass_time(timedelta(hours=20))
    return run


@path
async def escalated_and_approved(runs: Runs) -> Run:
    run = await _at(runs, "awaiting_review", Plan(people=1, remind_after=DAY))
    await run.pass_time(DAY + timedelta(seconds=2))
    await run.entry("escalated")
    await run.heard(run.row.version)
    await run.ask("decide", message(runs.store.decide(run.row, "approve")))
    return run


@path
async def found_at_the_deadline(runs: Runs) -> Run:
    run = await _at(runs, "awaiting_review", Plan(people=1, remind_after=DAY))
    runs.store.decide(run.row, "approve")
    await run.pass_time(DAY + timedelta(seconds=2))
    return run


@path
async def held_and_resumed(runs: Runs) -> Run:
    row = runs.store.add()
    row.stopped = True
    run = await runs.start_row(row)
    await run.until("held")
    await run.pass_time(timedelta(minutes=2))
    row.stopped = False
    await run.handle.signal("resume")
    return run


@path
async def pending_and_polled(runs: Runs) -> Run:
    run = await _at(runs, "pending", Plan(answers=["pending"], polls=["pending", "pending", "succeeded"]))
    await run.pass_time(timedelta(minutes=1))
    await run.pass_time(timedelta(hours=13))
    await run.handle.signal("payment_event")
    return run


@path
async def pending_too_long_and_settled(runs: Runs) -> Run:
    run = await _at(runs, "pending", Plan(answers=["pending"], polls=["park"]))
    await run.pass_time(timedelta(days=45))
    await run.until("parked")
    await run.ask("settle", message(runs.store.settle(run.row, "not_there")))
    await run.ask("settle", message(runs.store.settle(run.row, "succeeded")))
    return run


@path
async def parked_reminded_and_settled_by_signal(runs: Runs) -> Run:
    run = await _at(runs, "parked", Plan(answers=["park"]))
    await run.pass_time(DAY + timedelta(seconds=2))
    await run.entry("reminded")
    await run.handle.signal("settle", message(runs.store.settle(run.row, "failed")))
    return run


@path
async def with_legs(runs: Runs) -> Run:
    return await runs.start(Plan(legs=["done"]))


@path
async def with_legs_tried_again(runs: Runs) -> Run:
    run = await runs.start(Plan(legs=["later", "later", "done"]))
    await run.entry("leg_later")
    await run.pass_time(timedelta(seconds=62))
    await run.entry("leg_later", 2)
    await run.heard(run.row.version)
    await run.handle.signal("resume")
    return run


@path
async def with_legs_while_pending(runs: Runs) -> Run:
    run = await _at(runs, "pending", Plan(answers=["pending"], polls=["pending", "succeeded"], legs=["later", "done"]))
    await run.entry("leg_later")
    await run.pass_time(timedelta(seconds=62))
    await run.entry("leg_done")
    await run.pass_time(timedelta(hours=13))
    return run


@path
async def with_a_parked_leg_that_is_settled(runs: Runs) -> Run:
    run = await runs.start(Plan(legs=["parked", "parked"]))
    await run.entry("leg_parked")
    await run.pass_time(DAY + timedelta(seconds=2))
    await run.entry("leg_parked", 2)
    await run.heard(run.row.version)
    await run.ask("settle", Message(FORGED))
    await run.ask("settle", message(runs.store.settle(run.row, "leg")))
    return run


@path
async def refused_messages(runs: Runs) -> Run:
    run = await _at(runs, "awaiting_review", Plan(people=1))
    await run.handle.signal("approve", Message(FORGED))
    await run.handle.signal("approve")
    await run.handle.signal("nonsense", "?")
    await run.entry("message_refused", 3)
    for name in ("decide", "revise", "settle"):
        await run.ask(name, Message(FORGED))
    await run.ask("decide", Message(FORGED, revision=9))
    await run.handle.signal("approve", message(runs.store.decide(run.row, "approve")))
    return run


@path
async def cancelled(runs: Runs) -> Run:
    run = await _at(runs, "awaiting_review", Plan(people=1))
    await run.handle.cancel()
    return run


@path
async def final_at_the_start(runs: Runs) -> Run:
    row = runs.store.add(Plan(people=1))
    first = await runs.start_row(row)
    await first.until("awaiting_review")
    await first.handle.terminate("recording")
    runs.store.withdraw(row)
    return await runs.start_row(row)
