"""Clocks that are wrong: the safe window is over when either the worker's or the database's clock says so (promise P1)."""

import pytest
from temporalio.exceptions import ApplicationError

from tests.activities.shop import Shop


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
