"""Refunds that the processor accepted and has not finished: age only ever causes a look, never a conclusion (field reports 8 and 16)."""

from datetime import timedelta

import pytest

from tests.activities.shop import Shop


async def pending(shop: Shop, intent: str, state: str = "pending") -> tuple[str, str]:
    """A pending refund and the processor's id of it."""
    refund_id = await shop.approved(intent)
    assert (await shop.submit(refund_id)).status == "pending"
    [made] = (await shop.truth(intent))["refunds"]
    return refund_id, made["id"]


@pytest.mark.parametrize("first", ["pending", "requires_action"])
@pytest.mark.parametrize(
    ("then", "status", "code", "remaining"),
    [
        ("succeeded", "succeeded", None, 7_000),
        ("failed", "failed", "PROCESSOR_FAILED", 10_000),
        ("canceled", "failed", "PROCESSOR_FAILED", 10_000),
    ],
)
async def test_field_8_what_the_processor_says_after_25_hours_counts(
    shop: Shop, first: str, then: str, status: str, code: str | None, remaining: int
) -> None:
    intent = await shop.paid(refund_outcome={"initial": first})
    refund_id, made = await pending(shop, intent)
    shop.clock.advance(timedelta(hours=25))
    await shop.control("POST", f"/refunds/{made}", {"status": then})

    await shop.reconciled(refund_id)

    assert await shop.ended(refund_id) == (status, code)
    assert await shop.asked_and_made(intent) == (1, 1), "nothing is sent again by itself"
    assert await shop.remaining(intent) == remaining


@pytest.mark.parametrize(
    "fault",
    [
        {"kind": "lose_answer"},
        {"kind": "malformed"},
        {"kind": "rate_limit"},
        {"kind": "status", "status": 503},
        {"kind": "status", "status": 401},
        {"kind": "status", "status": 404, "body": "<html>nginx</html>"},
        {"kind": "status", "status": 200, "body": "[]"},
    ],
)
async def test_field_8_a_processor_that_cannot_be_asked_changes_nothing(shop: Shop, fault: dict[str, object]) -> None:
    intent = await shop.paid(refund_outcome={"initial": "pending"})
    refund_id, _ = await pending(shop, intent)
    shop.clock.advance(timedelta(hours=25))
    before = await shop.row(refund_id)
    await shop.fault("refund.retrieve", fault)

    found = await shop.reconciled(refund_id)

    after = await shop.row(refund_id)
    assert (found.status, after["version"]) == ("pending", before["version"])
    assert after["wake_at"] > shop.clock.now()
    assert await shop.remaining(intent) == 7_000


async def test_a_refund_the_processor_forgot_is_no_evidence(shop: Shop) -> None:
    intent = await shop.paid(refund_outcome={"initial": "pending"})
    refund_id, _ = await pending(shop, intent)
    body = {"error": {"type": "invalid_request_error", "code": "resource_missing", "message": "No such refund."}}
    await shop.fault("refund.retrieve", {"kind": "status", "status": 404, "body": body})

    assert (await shop.reconciled(refund_id)).status == "pending"


@pytest.mark.parametrize("reachable", [True, False])
async def test_after_45_days_a_person_looks(shop: Shop, reachable: bool) -> None:
    intent = await shop.paid(refund_outcome={"initial": "pending"})
    refund_id, made = await pending(shop, intent)
    if not reachable:
        await shop.fault("refund.retrieve", {"kind": "status", "status": 503}, times=None)
    shop.clock.advance(timedelta(days=44, hours=23))
    assert (await shop.reconciled(refund_id)).status == "pending"
    shop.clock.advance(timedelta(hours=2))

    await shop.reconciled(refund_id)

    assert await shop.ended(refund_id) == ("parked", "PENDING_TOO_LONG")
    assert await shop.remaining(intent) == 7_000
    if reachable:
        await shop.control("POST", f"/refunds/{made}", {"status": "succeeded"})
        assert (await shop.settled(refund_id, await shop.says(refund_id, "sam", "refunded", made))).status == "succeeded"


async def test_it_is_asked_ever_more_seldom_and_at_least_twice_a_day(shop: Shop) -> None:
    refund_id, _ = await pending(shop, await shop.paid(refund_outcome={"initial": "pending"}))
    waits: list[float] = []
    for day in (0, 0.01, 1, 20):
        shop.clock.advance(timedelta(days=day))
        found = await shop.reconciled(refund_id)
        assert found.wake_at is not None
        waits.append((found.wake_at - shop.clock.now()).total_seconds())

    assert [round(wait / 10) for wait in waits] == [3, 43, 4_320, 4_320]


@pytest.mark.parametrize("status", ["something_new", None])
async def test_field_16_a_status_nobody_knows_is_parked(shop: Shop, status: str | None) -> None:
    intent = await shop.paid(refund_outcome={"initial": "pending"})
    refund_id, _ = await pending(shop, intent)
    await shop.fault("refund.retrieve", {"kind": "alter", "fields": {"status": status}})

    await shop.reconciled(refund_id)

    assert await shop.ended(refund_id) == ("parked", "STATUS_UNKNOWN")
    assert await shop.remaining(intent) == 7_000


@pytest.mark.parametrize("fields", [{"amount": 2_000}, {"currency": "eur"}, {"payment_intent": "pi_other"}])
async def test_field_29_a_difference_that_shows_later_is_parked(shop: Shop, fields: dict[str, object]) -> None:
    refund_id, _ = await pending(shop, await shop.paid(refund_outcome={"initial": "pending"}))
    await shop.fault("refund.retrieve", {"kind": "alter", "fields": fields})

    await shop.reconciled(refund_id)

    assert await shop.ended(refund_id) == ("parked", "RESPONSE_MISMATCH")


async def test_a_poll_that_comes_twice_or_late_changes_nothing(shop: Shop) -> None:
    intent = await shop.paid(refund_outcome={"initial": "pending"})
    refund_id, made = await pending(shop, intent)
    await shop.control("POST", f"/refunds/{made}", {"status": "succeeded"})
    first = await shop.reconciled(refund_id)
    await shop.fault("refund.retrieve", {"kind": "alter", "fields": {"status": "pending"}})

    again = await shop.reconciled(refund_id)

    assert (first.status, again.status) == ("succeeded", "succeeded")
    assert (await shop.moves(refund_id)).count("succeeded") == 1


async def test_a_success_that_bounces_restores_what_can_be_refunded(shop: Shop) -> None:
    intent = await shop.paid()
    refund_id = await shop.approved(intent)
    await shop.submit(refund_id)
    [made] = (await shop.truth(intent))["refunds"]
    await shop.control("POST", f"/refunds/{made['id']}", {"status": "failed", "failure_reason": "expired_or_canceled_card"})

    await shop.reconciled(refund_id)

    assert await shop.ended(refund_id) == ("failed", "PROCESSOR_FAILED")
    assert await shop.remaining(intent) == 10_000
    assert await shop.asked_and_made(intent) == (1, 1)
