"""Clocks that are wrong: the safe window is over when either the worker's or the database's clock says so (promise P1), and what a worker whose clock was ahead
held back goes on when the others' clocks say so (promise P6)."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import pytest
from temporalio.exceptions import ApplicationError

from refunds.ids import workflow_id
from store import pacing
from tests.activities.shop import Shop
from worker.sweep import Sweep

AHEAD = timedelta(hours=11)


@asynccontextmanager
async def a_clock_ahead(shop: Shop) -> AsyncIterator[None]:
    """What is done in here is done by a worker whose clock is ahead; afterwards it is gone."""
    shop.clock.advance(AHEAD)
    try:
        yield
    finally:
        shop.clock.advance(-AHEAD)


class Runs:
    """Temporal, as the sweep needs it here: it notes the signals to runs of refunds, of which all are there."""

    def __init__(self) -> None:
        self.signals: list[tuple[str, str]] = []

    def get_workflow_handle(self, run: str) -> Any:
        told = self.signals

        class Handle:
            async def signal(self, name: str, _message: Any, **_options: Any) -> None:
                told.append((run, name))

        return Handle()


async def woken(shop: Shop, *refund_ids: str) -> list[str]:
    """Which of these refunds the sweep wakes in two rounds."""
    runs = Runs()
    sweep = Sweep(runs, shop.steps.database, shop.settings)  # pyright: ignore[reportArgumentType]
    await shop.query_nothing("UPDATE refunds SET run_checked_at = now() + interval '1 day', run_seen_at = now()")
    for _ in range(2):
        await sweep.once()
    return [refund_id for run, name in runs.signals for refund_id in refund_ids if (run, name) == (workflow_id(refund_id), "resume")]


async def test_what_a_clock_that_was_ahead_put_off_is_looked_at_by_the_right_one(shop: Shop) -> None:
    refund_id, usual = await shop.approved(), await shop.approved()
    async with a_clock_ahead(shop):
        await shop.stop()
        assert (await shop.submit(refund_id)).status == "held"
        await shop.stop(stopped=False)
    await shop.stop()
    assert (await shop.submit(usual)).status == "held"
    await shop.stop(stopped=False)

    assert await woken(shop, refund_id, usual) == [refund_id], "the other one comes round by itself"
    assert (await shop.row(refund_id))["wake_at"] <= shop.clock.now()
    shop.clock.advance(timedelta(seconds=1))
    assert (await shop.goes_on(refund_id)).status == "approved"


async def test_a_turn_that_a_clock_ahead_took_keeps_nobody_waiting(shop: Shop) -> None:
    first, second = await shop.approved(), await shop.approved()
    await shop.stop()
    for refund_id in (first, second):
        assert (await shop.submit(refund_id)).status == "held"
    await shop.stop(stopped=False)
    async with a_clock_ahead(shop):
        async with shop.steps.database.begin() as connection:
            await pacing.take_slot(connection, "stripe", shop.clock.now(), shop.settings)
        assert (await shop.steps.resume_held(first)).status == "held", "its turn is 11 hours ahead by now"

    shop.clock.advance(timedelta(seconds=2))
    assert (await shop.steps.resume_held(second)).status == "approved"
    assert await woken(shop, first) == [first]
    shop.clock.advance(timedelta(seconds=2))
    assert (await shop.steps.resume_held(first)).status == "approved"


async def test_a_breaker_that_a_clock_ahead_tripped_is_probed_at_once(shop: Shop) -> None:
    async with a_clock_ahead(shop):
        await shop.payments.trip_breaker()
    refund_id = await shop.approved()
    assert (await shop.submit(refund_id)).status == "succeeded"
    await shop.payments.trip_breaker()
    refund_id = await shop.approved()
    assert (await shop.submit(refund_id)).status == "held", "a breaker of now keeps everybody waiting"
    await shop.payments.reached()


async def test_terms_that_only_a_clock_ahead_took_for_expired_are_judged_again(shop: Shop) -> None:
    """Two days ahead for a moment: what the policy approved has lapsed by that clock. By the right one it is quoted again and sent."""
    intent = await shop.paid()
    refund_id = await shop.approved(intent)
    shop.clock.advance(timedelta(days=8))
    assert (await shop.submit(refund_id)).code == "TERMS_EXPIRED"
    shop.clock.advance(timedelta(days=-8))

    assert await woken(shop, refund_id) == [refund_id]
    found = await shop.steps.resume_held(refund_id)
    assert found.needs == "read_payment"
    state = await shop.processor.read_payment(intent)
    assert state is not None
    await shop.payments.save_snapshot(found.payment, state)
    assert (await shop.steps.resume_held(refund_id)).status == "approved"
    assert (await shop.submit(refund_id)).status == "succeeded"


async def test_an_attempt_of_a_worker_that_was_ahead_is_as_old_as_the_database_says(shop: Shop) -> None:
    intent = await shop.paid()
    refund_id = await shop.approved(intent)
    await shop.fault("refund.create", {"kind": "lose_answer"}, {"kind": "hide"})
    with pytest.raises(ApplicationError):
        await shop.submit(refund_id)
    # Opened 25 hours ago by a worker whose clock was two days ahead: by opened_at it lies in the future.
    await shop.query_nothing("UPDATE attempts SET opened_at = now() + interval '1 day', send_by = now() - interval '25 hours'")
    await shop.control("POST", "/clock", {"advance_seconds": 25 * 3_600})

    assert (await shop.submit(refund_id, attempt=2)).status == "parked"
    assert await shop.asked_and_made(intent) == (1, 1)
