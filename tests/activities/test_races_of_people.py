"""People who say something just when something else happens: withdrawn while approved, decided while expiring; each in both orders."""

from datetime import timedelta

import pytest

from refunds.errors import Code
from refunds.messages import Situation
from store import decisions
from tests.activities.shop import MakeShop, Shop
from tests.activities.staging import DONE, during, record, told


@pytest.fixture
async def shop(make_shop: MakeShop) -> Shop:
    """A shop in which a lock is waited for as long as a test needs it."""
    return await make_shop(database_lock_timeout_ms=5_000, submit_max_attempts=2)


# --- approve and withdraw --------------------------------------------------------------------------------------------------------------


async def withdrawing(shop: Shop, refund: str) -> None:
    async with shop.api.begin() as connection:
        await decisions.record_withdrawal(connection, shop.clock, refund_id=refund, actor=shop.people["shop"])


async def in_review(shop: Shop) -> tuple[str, str]:
    """A refund that waits for a reviewer, and its payment."""
    intent = await shop.paid()
    refund = await shop.received(intent, reason="other")
    assert (await shop.prepared(refund)).status == "awaiting_review"
    return refund, intent


async def test_withdrawn_while_it_is_approved(shop: Shop) -> None:
    refund, intent = await in_review(shop)

    done = await during(shop, lambda: shop.decide(refund, "rita"), "before:approved", lambda: withdrawing(shop, refund))

    assert (told(done[0]), told(done[1])) == (None, None)
    assert (await shop.moves(refund))[-2:] == ["approved", "withdrawn"]
    assert (await shop.submit(refund)).status == "withdrawn"
    assert await shop.asked_and_made(intent) == (0, 0)


async def test_approved_while_it_is_withdrawn(shop: Shop) -> None:
    refund, intent = await in_review(shop)

    done = await during(shop, lambda: withdrawing(shop, refund), "before:withdrawn", lambda: shop.decide(refund, "rita"))

    assert (told(done[0]), told(done[1])) == (None, Code.NOT_AWAITING_REVIEW)
    assert (await shop.submit(refund)).status == "withdrawn"
    assert await shop.asked_and_made(intent) == (0, 0)


async def test_withdrawn_while_the_attempt_is_opened(shop: Shop) -> None:
    intent = await shop.paid()
    refund = await shop.approved(intent)

    done = await during(shop, lambda: shop.submit(refund), "before:attempt_opened", lambda: withdrawing(shop, refund))

    assert (told(done[0]), told(done[1])) == ("succeeded", Code.TOO_LATE)
    assert await record(shop, refund, intent) == DONE


async def test_the_attempt_is_opened_while_it_is_withdrawn(shop: Shop) -> None:
    intent = await shop.paid()
    refund = await shop.approved(intent)

    done = await during(shop, lambda: withdrawing(shop, refund), "before:withdrawn", lambda: shop.submit(refund))

    assert told(done[0]) is None
    assert told(done[1]) == "ATTEMPT_OPEN"
    assert await record(shop, refund, intent) == ("withdrawn", 1, 0, 0)


# --- deadline and decision -------------------------------------------------------------------------------------------------------------


async def at_the_last_rung(shop: Shop) -> tuple[str, timedelta]:
    """A refund whose last deadline is near, and how long it still has."""
    refund, _ = await in_review(shop)
    while True:
        row = await shop.row(refund)
        left = row["review_by"] - shop.clock.now()
        if row["rung"] == 1:
            return refund, left
        shop.clock.advance(left + timedelta(seconds=1))
        await shop.steps.pass_deadline(refund)


async def test_decided_while_it_expires(shop: Shop) -> None:
    refund, left = await at_the_last_rung(shop)
    shop.clock.advance(left + timedelta(seconds=1))

    done = await during(shop, lambda: shop.steps.pass_deadline(refund), "before:expired", lambda: shop.decide(refund, "rita"))

    assert (told(done[0]), told(done[1])) == ("expired", Code.REVIEW_EXPIRED)
    assert (await shop.moves(refund))[-1] == "expired"


async def test_it_expires_while_it_is_decided(shop: Shop) -> None:
    """Recorded in time, committed after the deadline: it counts."""
    refund, left = await at_the_last_rung(shop)

    async def deadline() -> Situation:
        shop.clock.advance(left + timedelta(seconds=1))
        return await shop.steps.pass_deadline(refund)

    done = await during(shop, lambda: shop.decide(refund, "rita"), "before:approved", deadline)

    assert (told(done[0]), told(done[1])) == (None, "approved")
    assert (await shop.moves(refund))[-1] == "approved"
