"""What was held by a stop is quoted again before it goes: as it was approved when nothing has changed, to a person or refused when something has."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import pytest

from refunds.messages import Situation
from tests.activities.shop import Shop

LARGE = 20_000
"""What a person had to approve."""


@asynccontextmanager
async def held(shop: Shop, refund: str, *, days: int = 0) -> AsyncIterator[None]:
    """Within, it is held by a stop that lasts this long; afterwards another operator has resumed."""
    await shop.control_scope("everything", "stopped", "olga")
    try:
        assert (await shop.submit(refund)).status == "held"
        yield
        shop.clock.advance(timedelta(days=days, minutes=5))
    finally:
        await shop.control_scope("everything", "running", "omar")


async def again(shop: Shop, refund: str) -> tuple[Situation, list[dict[str, Any]], list[str]]:
    """How it goes on, its revisions, and what its ledger says from then on."""
    before = len(await shop.entries(refund))
    found = await shop.goes_on(refund)
    revisions = await shop.query("SELECT revision, changes, decision FROM revisions WHERE refund_id = :r ORDER BY revision", r=refund)
    return found, revisions, (await shop.entries(refund))[before:]


@pytest.mark.parametrize("amount", [3_000, LARGE])
async def test_with_nothing_changed_it_goes_as_it_was_approved(shop: Shop, amount: int) -> None:
    intent = await shop.paid(50_000)
    refund = await shop.approved(intent, amount)
    approved = (await shop.row(refund))["terms_hash"]
    async with held(shop, refund):
        pass

    found, revisions, entries = await again(shop, refund)

    assert (found.status, found.revision, found.terms_hash, len(revisions), entries) == ("approved", 1, approved, 1, ["status_changed"])
    assert (await shop.submit(refund)).status == "succeeded"
    assert await shop.asked_and_made(intent) == (1, 1)


async def test_it_is_read_anew_before_it_goes(shop: Shop) -> None:
    """A reading from before the stop says nothing about now."""
    refund = await shop.approved()
    async with held(shop, refund):
        pass

    found = await shop.steps.resume_held(refund)

    assert (found.status, found.needs) == ("held", "read_payment")


async def test_what_still_fits_goes_though_something_was_refunded_past_us(shop: Shop) -> None:
    intent = await shop.paid()
    refund = await shop.approved(intent, 3_000)
    async with held(shop, refund):
        await shop.control("POST", "/refunds", {"payment_intent": intent, "amount": 6_000})

    assert (await again(shop, refund))[0].status == "approved"
    assert (await shop.submit(refund)).status == "succeeded"


async def test_what_others_took_of_a_limit_meanwhile_is_no_news(shop: Shop) -> None:
    """It has its place in the customer's day since it was quoted; the later one is the one that waits for a person."""
    intent = await shop.paid(50_000)
    refund = await shop.approved(intent, 9_000)
    async with held(shop, refund):
        later = await shop.received(intent, 8_000)
        assert (await shop.prepared(later)).status in ("awaiting_review", "awaiting_consent")

    found, revisions, _ = await again(shop, refund)

    assert (found.status, len(revisions)) == ("approved", 1)


async def test_with_less_left_a_person_sees_what_has_changed(shop: Shop) -> None:
    intent = await shop.paid(50_000)
    refund = await shop.approved(intent, None)
    async with held(shop, refund):
        await shop.control("POST", "/refunds", {"payment_intent": intent, "amount": 10_000})

    found, revisions, entries = await again(shop, refund)

    assert (found.status, found.revision, found.amount) == ("awaiting_consent", 2, 40_000), "to another amount; then a person looks"
    assert revisions[1]["decision"]["review"] is not None
    assert {change["field"] for change in revisions[1]["changes"]} >= {"refundable", "amount"}
    assert entries[0] == "terms_void"
    assert (await shop.submit(refund)).status == "awaiting_consent"
    assert await shop.asked_and_made(intent) == (0, 1)


async def test_with_too_little_left_it_is_denied(shop: Shop) -> None:
    intent = await shop.paid()
    refund = await shop.approved(intent, 3_000)
    async with held(shop, refund):
        await shop.control("POST", "/refunds", {"payment_intent": intent, "amount": 8_000})

    assert (await again(shop, refund))[0].status == "denied"
    assert await shop.ended(refund) == ("denied", "EXCEEDS_REFUNDABLE")
    assert await shop.asked_and_made(intent) == (0, 1)


@pytest.mark.parametrize(
    ("dispute", "status", "code"),
    [
        ("needs_response", "denied", "PAYMENT_DISPUTED"),
        ("lost", "denied", "ALREADY_RETURNED"),
        ("warning_needs_response", "awaiting_review", None),
    ],
)
async def test_a_dispute_that_appeared_denies_it_or_brings_a_person(shop: Shop, dispute: str, status: str, code: str | None) -> None:
    intent = await shop.paid()
    refund = await shop.approved(intent)
    async with held(shop, refund):
        await shop.control("POST", "/disputes", {"payment_intent": intent, "status": dispute, "amount": 100})

    found, revisions, _ = await again(shop, refund)

    assert await shop.ended(refund) == (status, code)
    assert found.revision == 2
    assert "dispute" in {change["field"] for change in revisions[1]["changes"]}
    assert await shop.asked_and_made(intent) == (0, 0)


async def test_an_order_that_changed_brings_a_person(shop: Shop) -> None:
    intent = await shop.paid()
    refund = await shop.approved(intent)
    async with held(shop, refund):
        await shop.query_nothing(
            "UPDATE orders SET version = version + 1 WHERE id = (SELECT order_id FROM payments WHERE processor_payment = :p)", p=intent
        )

    found, revisions, _ = await again(shop, refund)

    assert (found.status, found.revision) == ("awaiting_review", 2)
    assert "order_version" in {change["field"] for change in revisions[1]["changes"]}


@pytest.mark.parametrize(("amount", "status"), [(3_000, "approved"), (LARGE, "awaiting_review")])
async def test_expired_terms_are_quoted_again_and_a_person_decides_again_where_one_had(shop: Shop, amount: int, status: str) -> None:
    intent = await shop.paid(50_000)
    refund = await shop.approved(intent, amount)
    async with held(shop, refund, days=12):
        pass

    found, _, _ = await again(shop, refund)

    assert (found.status, found.revision) == (status, 2)
    spent = await shop.query("SELECT 1 FROM consumed_decisions c JOIN decisions d ON d.id = decision_id WHERE refund_id = :r", r=refund)
    assert spent == []


async def test_what_is_approved_in_draft_is_not_sent_by_a_move_to_live(shop: Shop) -> None:
    intent = await shop.paid()
    await shop.control_scope("everything", "running", "olga", mode="draft")
    try:
        drafted = await shop.received(intent)
        await shop.prepared(drafted)
        if (await shop.row(drafted))["status"] == "awaiting_review":
            await shop.decide(drafted, "rita")
        assert (await shop.row(drafted))["status"] == "drafted"
    finally:
        await shop.control_scope("everything", "running", "olga", mode="live")

    for step in (shop.submit, shop.steps.resume_held, shop.prepared):
        assert (await step(drafted)).status == "drafted"
    assert await shop.asked_and_made(intent) == (0, 0)
