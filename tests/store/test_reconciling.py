"""Reconciliations against the real store: what is compared, what is found, how often, and what a kill leaves behind."""

import random
import time
from collections import Counter
from dataclasses import replace
from datetime import timedelta

import psutil
import pytest
from temporalio.exceptions import ApplicationError
from temporalio.testing import ActivityEnvironment

from activities.reconcile_all import ReconcileAll
from refunds.messages import ReconciliationProgress, ReconciliationStep
from refunds.processor import NotSent, RefundState
from store.reconciling import Phase, Reconciling, Run
from tests.store.books import Books, Watched, external, operation_id, record, theirs, unreachable
from tests.store.world import START, World

RUN = "rec_00000000000000000000000001"
WEEK = timedelta(days=7)


def sweep(world: World, books: Books, watched: Watched | None = None, *, pages_a_step: int = 1_000_000) -> ReconcileAll:
    return ReconcileAll(
        Reconciling(world.payments, world.settings, "stripe"),
        books,  # pyright: ignore[reportArgumentType]
        watched or Watched(),
        pages_a_step=pages_a_step,
    )


async def begun(world: World, run: str = RUN, window: timedelta = WEEK) -> Run:
    return await Reconciling(world.payments, world.settings, "stripe").begin(run, window=window, started_by="test")


async def carried(step: ReconcileAll, run: str = RUN) -> ReconciliationProgress:
    """Carry the run on by one step of the activity."""
    return await ActivityEnvironment().run(step.pages, ReconciliationStep(run))


async def reconciled(world: World, books: Books, watched: Watched | None = None, run: str = RUN) -> Run:
    """A whole run."""
    await begun(world, run)
    assert (await carried(sweep(world, books, watched), run)).over
    return await Reconciling(world.payments, world.settings, "stripe").read(run)


def figures(run: Run) -> tuple[int, int, int, int, int]:
    """Pages, compared, elsewhere, differences, imported."""
    return run.pages, run.compared, run.place.elsewhere, run.differences, run.imported


def found(world: World) -> list[tuple[str, str | None, str]]:
    """Kind, processor's refund and standing of every discrepancy."""
    rows = world.rows("SELECT kind, processor_refund, state FROM discrepancies ORDER BY kind, processor_refund")
    return [(row["kind"], row["processor_refund"], row["state"]) for row in rows]


def refunds_of(world: World) -> str:
    """Everything there is about money, as one value: to see that nothing of it changed."""
    [row] = world.rows(
        "SELECT md5(string_agg(r::text, '|' ORDER BY id)) AS refunds, (SELECT count(*) FROM outbox WHERE refund_id IS NOT NULL) AS told,"
        " (SELECT count(*) FROM ledger WHERE refund_id IS NOT NULL) AS entries FROM refunds r"
    )
    return str(row)


async def test_books_that_agree_leave_nothing_but_the_run(world: World) -> None:
    record(world, 250)
    run = await reconciled(world, Books(250))
    assert figures(run) == (4, 250, 0, 0, 0)  # three pages of theirs, one of ours that has nothing left
    assert (run.phase, run.last_error, run.is_over) == (Phase.DONE, None, True)
    assert world.rows("SELECT count(*) AS n FROM processor_refunds WHERE compared_in = %s", RUN) == [{"n": 250}]
    assert (world.count("discrepancies"), world.count("outbox")) == (0, 0)
    [entry] = world.rows("SELECT * FROM ledger WHERE type LIKE 'reconciliation%%'")
    assert (entry["type"], entry["data"]["compared"], entry["data"]["differences"]) == ("reconciliation_finished", 250, 0)


async def test_every_kind_is_found_once_and_only_what_moved_is_looked_at(world: World) -> None:
    record(world, 250)
    changed = {
        3: replace(theirs(3), amount=2_999),
        7: replace(theirs(7), currency="EUR"),
        110: replace(theirs(110), processor_payment="pi_111"),
        120: replace(theirs(120), state=RefundState.FAILED, raw_state="failed"),
        130: None,
    }
    extra = [
        replace(external(9), id="re_twin", operation=operation_id(9)),
        external(200),
        replace(external(201), id="re_forgot", operation=operation_id(777_777)),
        replace(external(201), id="re_lost", operation=operation_id(888_888), processor_payment="pi_unknown"),
        replace(external(1), id="re_other", processor_payment="pi_somebody_elses"),
    ]
    before = refunds_of(world)
    watched = Watched()
    run = await reconciled(world, Books(250, dict(changed), extra), watched)
    assert found(world) == [
        ("amount", "re_3", "open"),
        ("currency", "re_7", "open"),
        ("duplicate", "re_twin", "open"),
        ("external", "re_x200", "open"),  # nobody imported it: the watcher of this test does nothing
        ("ours_missing", "re_130", "open"),
        ("payment", "re_110", "open"),
        ("status", "re_120", "open"),
        ("unknown_operation", "re_forgot", "open"),
        ("unknown_payment", "re_lost", "open"),
    ]
    assert figures(run) == (4, 254, 1, 9, 2)
    assert sorted(set(watched.asked)) == ["pay_120", "pay_200", "pay_201", "pay_9"]
    assert refunds_of(world) == before
    [halt] = world.rows("SELECT code, lifted_at FROM halts")
    assert halt == {"code": "DATABASE_FORGOT", "lifted_at": None}
    told = Counter(row["body"]["kind"] for row in world.rows("SELECT body FROM outbox"))
    assert told == {"discrepancy_found": 9, "processor_halted": 1}


async def test_a_second_run_finds_the_same_differences_and_makes_no_second_rows(world: World) -> None:
    record(world, 20)
    books = Books(20, {3: replace(theirs(3), amount=2_999), 5: None})
    await reconciled(world, books)
    told = world.count("outbox")
    world.clock.advance(minutes=30)
    second = await reconciled(world, books, run="rec_00000000000000000000000002")
    assert (second.differences, found(world)) == (2, [("amount", "re_3", "open"), ("ours_missing", "re_5", "open")])
    assert world.count("outbox") == told
    assert world.rows("SELECT count(*) AS n FROM ledger WHERE type = 'discrepancy_found'") == [{"n": 2}]


async def test_what_the_look_resolves_is_no_discrepancy(world: World) -> None:
    """Missed the event of a late failure: the sweep's look records it, and nothing is left to explain."""
    record(world, 5)
    fail = "UPDATE processor_refunds SET state = 'failed', raw_state = 'failed' WHERE id = 're_2'"

    def look(_payment: str) -> None:
        world.execute(fail)
        world.execute("UPDATE refunds SET status = 'failed' WHERE id LIKE '%%2'")

    watched = Watched(look)
    run = await reconciled(world, Books(5, {2: replace(theirs(2), state=RefundState.FAILED, raw_state="failed")}), watched)
    assert (watched.asked, run.differences, found(world)) == (["pay_2"], 1, [])


async def test_a_refund_that_moved_between_page_and_look_is_no_discrepancy(world: World) -> None:
    """The page is older than the look: what still differs is read once more before anybody is told."""
    record(world, 5)
    books = Books(5, {2: replace(theirs(2), state=RefundState.PENDING, raw_state="pending")})

    def finish(_payment: str) -> None:
        books.changed.clear()

    watched = Watched(finish)
    run = await reconciled(world, books, watched)
    assert (watched.asked, run.differences, found(world), books.retrieved) == (["pay_2"], 1, [], ["re_2"])


async def test_field_19_a_refund_being_submitted_just_now_is_left_alone(world: World) -> None:
    """Our own refund, seen before its receipt was stored, is not recorded as somebody else's; a minute later it is worth a look."""
    record(world, 3)
    world.execute("DELETE FROM processor_refunds WHERE id = 're_0'")
    world.execute("UPDATE refunds SET status = 'submitting', final_at = NULL WHERE payment_id = 'pay_0'")
    books, watched = Books(3, {0: replace(theirs(0), created_at=START - timedelta(seconds=5))}), Watched()
    run = await reconciled(world, books, watched)
    assert (watched.asked, run.differences, found(world)) == ([], 0, [])
    world.clock.advance(minutes=2)
    run = await reconciled(world, books, watched, run="rec_00000000000000000000000002")
    assert (watched.asked, run.differences) == (["pay_0"], 1)


async def test_refunds_that_appear_while_it_pages_are_not_missed_or_mistaken(world: World) -> None:
    """Newest first: what is made meanwhile stands before the first page. It is neither found twice nor reported as missing."""
    record(world, 250)
    books = Books(250)

    def appear(number: int) -> None:
        if number == 1:
            books.extra.insert(0, external(200, created_at=START + timedelta(seconds=1)))
            world.clock.advance(seconds=2)
            world.execute(
                "INSERT INTO processor_refunds (id, processor, payment_id, amount, currency, state, raw_state, first_seen_at, updated_at)"
                " VALUES ('re_new', 'stripe', 'pay_1', 5, 'USD', 'succeeded', 'succeeded', %s, now())",
                world.clock.now(),
            )

    books.before_page = appear
    run = await reconciled(world, books)
    assert (figures(run), found(world), books.retrieved) == ((4, 250, 0, 0, 0), [], [])


async def test_an_old_refund_that_was_adopted_lately_is_asked_for_by_its_id(world: World) -> None:
    """Its processor made it before the window, so the list does not show it; that is no evidence that it is missing."""
    record(world, 3)
    world.execute("UPDATE processor_refunds SET created_at = created_at - interval '30 days' WHERE id = 're_1'")
    books = Books(3, {1: replace(theirs(1), created_at=START - timedelta(days=30))})
    run = await reconciled(world, books)
    assert (books.retrieved, run.compared, run.differences, found(world)) == (["re_1"], 3, 0, [])


@pytest.mark.parametrize(("changed_ago", "window", "asked"), [(40, 46, True), (44, 46, True), (50, 46, False), (1, 2, False)])
async def test_field_17_the_days_in_which_a_refund_may_fail_count_from_its_success(
    world: World, changed_ago: int, window: int, asked: bool
) -> None:
    """Made 100 days ago and pending, or parked, until lately: the processor's list of the window does not show it, and a full run asks for it."""
    record(world, 3)
    world.execute(
        "UPDATE processor_refunds SET created_at = created_at - interval '100 days', first_seen_at = first_seen_at - interval '100 days',"
        " updated_at = updated_at - %s * interval '1 day' WHERE id = 're_1'",
        changed_ago,
    )
    old = replace(theirs(1), created_at=START - timedelta(days=100), state=RefundState.FAILED, raw_state="failed")
    books, watched = Books(3, {1: old}), Watched()
    await begun(world, window=timedelta(days=window))

    assert (await carried(sweep(world, books, watched))).over

    assert (set(books.retrieved), watched.asked) == (({"re_1"}, ["pay_1"]) if asked else (set[str](), []))


@pytest.mark.parametrize("reason", ["connection_refused", "key_refused", "rate_limited", "unexpected_shape"])
async def test_field_8_a_processor_that_cannot_be_asked_changes_nothing_but_what_the_run_says(world: World, reason: str) -> None:
    record(world, 250)
    await begun(world)
    before = refunds_of(world)
    books = Books(250, {130: None})
    books.before_page = lambda number: unreachable(reason)(number) if number == 1 else None
    with pytest.raises(ApplicationError) as raised:
        await carried(sweep(world, books))
    assert (raised.value.type, raised.value.non_retryable) == ("NotSent", False)
    stands = await Reconciling(world.payments, world.settings, "stripe").read(RUN)
    assert (stands.phase, stands.place.after, stands.compared) == (Phase.THEIRS, "re_99", 100)
    assert stands.last_error is not None and reason in stands.last_error
    assert (refunds_of(world), found(world)) == (before, [])
    books.before_page = lambda number: None
    assert (await carried(sweep(world, books))).over
    ended = await Reconciling(world.payments, world.settings, "stripe").read(RUN)
    assert (figures(ended), ended.last_error, found(world)) == ((4, 250, 0, 1, 0), None, [("ours_missing", "re_130", "open")])


async def test_a_payment_that_cannot_be_read_does_not_keep_the_run_from_the_others(world: World) -> None:
    record(world, 250)
    books = Books(250, {n: replace(theirs(n), state=RefundState.FAILED, raw_state="failed") for n in (20, 240)})
    await begun(world)

    def unreadable(payment: str) -> None:
        if payment == "pay_20":
            raise NotSent("unexpected_shape")

    watched = Watched(unreadable)
    environment = ActivityEnvironment()
    for attempt in range(1, 5):
        environment.info = replace(ActivityEnvironment.default_info(), attempt=attempt)
        with pytest.raises(ApplicationError, match="unexpected_shape"):
            await environment.run(sweep(world, books, watched).pages, ReconciliationStep(RUN))
    environment.info = replace(ActivityEnvironment.default_info(), attempt=5)
    assert (await environment.run(sweep(world, books, watched).pages, ReconciliationStep(RUN))).over
    assert (watched.asked, found(world)) == (["pay_20"] * 5 + ["pay_240"], [("status", "re_20", "open"), ("status", "re_240", "open")])


class Killed(BaseException):
    """The process is gone."""


async def test_a_kill_at_any_page_and_in_any_look_counts_everything_once(world: World) -> None:
    record(world, 450)
    changed = {number: replace(theirs(number), state=RefundState.FAILED, raw_state="failed") for number in (20, 140, 300)} | {400: None}
    books, watched = Books(450, dict(changed)), Watched()
    await begun(world)
    fate = random.Random(8)

    def die(_payment: object) -> None:
        if fate.random() < 0.5:
            raise Killed

    watched.does = books.before_page = die
    killed = 0
    while True:
        try:
            if (await carried(sweep(world, books, watched, pages_a_step=1))).over:
                break
        except Killed:
            killed += 1
    run = await Reconciling(world.payments, world.settings, "stripe").read(RUN)
    assert killed > 5
    assert figures(run) == (6, 450, 0, 4, 0)
    assert found(world) == [("ours_missing", "re_400", "open"), *(("status", f"re_{n}", "open") for n in (140, 20, 300))]
    assert world.rows("SELECT count(*) AS n FROM ledger WHERE type = 'discrepancy_found'") == [{"n": 4}]
    assert world.rows("SELECT count(*) AS n FROM ledger WHERE type = 'reconciliation_finished'") == [{"n": 1}]
    assert world.count("outbox") == 4


async def test_two_workers_at_the_same_run_count_everything_once(world: World) -> None:
    """One that froze in the middle of a page and its heir: whoever comes second finds that the run has moved on."""
    record(world, 250)
    await begun(world)
    books = Books(250, {3: replace(theirs(3), amount=1)})
    frozen, heir = sweep(world, books), sweep(world, Books(250, dict(books.changed)))
    store = Reconciling(world.payments, world.settings, "stripe")
    stale = await store.read(RUN)
    page = await frozen._their_page(stale)
    assert page is not None
    assert (await carried(heir)).over
    assert await store.compare(stale, page) is None
    assert (await store.advance(stale, page)).is_over
    run = await store.read(RUN)
    assert (figures(run), found(world)) == ((4, 250, 0, 1, 0), [("amount", "re_3", "open")])


async def test_a_run_that_is_begun_again_is_the_same_run(world: World) -> None:
    first = await begun(world)
    world.clock.advance(hours=3)
    assert await begun(world, window=timedelta(days=1)) == first
    assert world.count("reconciliations") == 1


async def test_cancelled_it_is_over_and_stays_where_it_was(world: World) -> None:
    record(world, 250)
    await begun(world)
    step = sweep(world, Books(250), pages_a_step=1)
    await carried(step)
    await ActivityEnvironment().run(step.cancel, ReconciliationStep(RUN))
    await ActivityEnvironment().run(step.cancel, ReconciliationStep(RUN))
    run = await Reconciling(world.payments, world.settings, "stripe").read(RUN)
    assert (run.phase, run.compared, run.is_over) == (Phase.CANCELED, 100, True)
    assert (await carried(step)).over
    assert world.rows("SELECT count(*) AS n FROM ledger WHERE type = 'reconciliation_finished'") == [{"n": 1}]


@pytest.mark.timeout(300)
async def test_a_hundred_thousand_refunds_in_bounded_memory(world: World) -> None:
    count = 100_000
    record(world, count)
    changed = {
        77: replace(theirs(77), amount=2_999),
        50_000: None,
        99_999: replace(theirs(99_999), state=RefundState.FAILED, raw_state="failed"),
    }
    books = Books(count, dict(changed), [external(42_000)])
    await begun(world)
    step = sweep(world, books, pages_a_step=200)
    process, began, steps = psutil.Process(), time.monotonic(), 0
    await carried(step)
    settled = highest = process.memory_info().rss  # after the first 20,000: what it needs at all is there by now
    while not (await carried(step)).over:
        steps += 1
        highest = max(highest, process.memory_info().rss)
    took = time.monotonic() - began
    run = await Reconciling(world.payments, world.settings, "stripe").read(RUN)
    assert (figures(run), steps) == ((1_001, count + 1, 0, 4, 1), 4)
    assert found(world) == [
        ("amount", "re_77", "open"),
        ("external", "re_x42000", "open"),
        ("ours_missing", "re_50000", "open"),
        ("status", "re_99999", "open"),
    ]
    assert len(books.listed) == 1_000
    assert highest - settled < 20_000_000, f"{highest - settled} bytes more, in {took:.1f} s"
