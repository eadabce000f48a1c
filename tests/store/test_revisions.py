"""Revisions: other terms are another matter, decided anew, and nobody approves what they made looser themselves."""

from dataclasses import replace
from typing import Any

import pytest

from refunds.errors import Code, RefundError
from refunds.messages import Step
from refunds.people import PrincipalKind, Role
from refunds.processor import DisputeState
from refunds.requests import Ticket
from store import orders
from tests.store.world import World

ASKED = 20_000


@pytest.fixture
async def reviewed(world: World) -> str:
    await world.ready(captured=100_000)
    refund, seen = await world.quoted(amount=ASKED)
    assert seen.status == "awaiting_review"
    return refund


async def answered(world: World, refund: str) -> None:
    """Have the customer agree where new terms need that, so that a reviewer is next."""
    if world.row(refund)["status"] == "awaiting_consent":
        await world.consent(refund)
    assert world.row(refund)["status"] == "awaiting_review"


async def test_a_revision_is_a_new_one_that_needs_its_own_decision(world: World, reviewed: str) -> None:
    old = world.row(reviewed)

    seen = await world.revise(reviewed, world.ann, amount=15_000)

    assert (seen.revision, seen.amount, seen.refused) == (2, 15_000, "")
    # The customer named the old amount, not this one.
    assert seen.status == "awaiting_consent"
    await answered(world, reviewed)
    assert world.row(reviewed)["terms_hash"] != old["terms_hash"]
    assert (await world.decide(reviewed, world.bob)).row["status"] == "approved"
    assert [d["revision"] for d in world.rows("SELECT revision FROM decisions WHERE kind = 'review'")] == [2]


async def test_a_recorded_revision_blocks_the_old_terms_until_it_is_quoted(world: World, reviewed: str) -> None:
    recorded = await world.record_revision(reviewed, world.ann, amount=15_000)

    assert await world.refused(reviewed, world.bob) is Code.TERMS_CHANGED
    assert await world.refused(reviewed, world.bob, "deny") is Code.TERMS_CHANGED
    with pytest.raises(RefundError) as second:
        await world.record_revision(reviewed, world.bob, amount=14_000)
    assert second.value.code is Code.TERMS_CHANGED

    await world.steps.apply_message(reviewed, "revise", recorded.id)
    assert world.row(reviewed)["pending_revision"] is None


async def test_the_same_revision_by_the_same_person_is_the_same_one(world: World, reviewed: str) -> None:
    """The API died between recording and answering, so it is said again: before it is quoted, after, and after that was decided."""
    seen = world.row(reviewed)["terms_hash"]
    first = await world.record_revision(reviewed, world.ann, amount=15_000)
    again = await world.record_revision(reviewed, world.ann, amount=15_000)
    await world.steps.apply_message(reviewed, "revise", first.id)
    late = await world.record_revision(reviewed, world.ann, amount=15_000, terms_hash=seen)
    await answered(world, reviewed)
    await world.decide(reviewed, world.bob)
    later = await world.record_revision(reviewed, world.ann, amount=15_000, terms_hash=seen)

    assert [(found.id, found.replayed) for found in (again, late, later)] == [(first.id, True)] * 3
    assert (world.count("instructions"), world.row(reviewed)["revision"], world.row(reviewed)["status"]) == (1, 2, "approved")


async def test_another_revision_of_the_same_terms_is_not_the_same_one(world: World, reviewed: str) -> None:
    seen = world.row(reviewed)["terms_hash"]
    await world.revise(reviewed, world.ann, amount=15_000)

    for who, fields in ((world.bob, {"amount": 15_000}), (world.ann, {"amount": 14_000}), (world.ann, {"full": True})):
        with pytest.raises(RefundError) as refused:
            await world.record_revision(reviewed, who, terms_hash=seen, **fields)
        assert refused.value.code is Code.TERMS_CHANGED


async def test_a_revision_that_was_refused_may_be_asked_for_again(world: World, reviewed: str) -> None:
    """The terms are what they were, and what refused it may be different by now."""
    first = await world.revise(reviewed, world.ann, amount=200_000)
    assert first.refused != ""

    second = await world.record_revision(reviewed, world.ann, amount=200_000)

    assert (second.replayed, world.count("instructions")) == (False, 2)


async def test_a_revision_that_the_policy_denies_leaves_the_terms(world: World, reviewed: str) -> None:
    before = world.row(reviewed)

    seen = await world.revise(reviewed, world.ann, amount=200_000)

    assert (seen.refused, seen.status, seen.revision) == ("EXCEEDS_REFUNDABLE", "awaiting_review", 1)
    after = world.row(reviewed)
    assert {k: after[k] for k in ("terms_hash", "amount", "status", "revision", "pending_revision")} == {
        k: before[k] for k in ("terms_hash", "amount", "status", "revision", "pending_revision")
    }
    [instruction] = world.rows("SELECT outcome FROM instructions")
    assert instruction["outcome"] == "EXCEEDS_REFUNDABLE"
    assert (await world.decide(reviewed, world.bob)).row["status"] == "approved"


async def test_a_revision_applied_again_gives_the_first_answer(world: World, reviewed: str) -> None:
    recorded = await world.record_revision(reviewed, world.ann, amount=15_000)
    first = await world.steps.apply_message(reviewed, "revise", recorded.id)
    entries = len(world.ledger(reviewed))

    again = await world.steps.apply_message(reviewed, "revise", recorded.id)

    assert (again.revision, again.refused, len(world.ledger(reviewed))) == (first.revision, "", entries)


async def test_whoever_asks_for_more_cannot_approve_it(world: World, reviewed: str) -> None:
    await world.revise(reviewed, world.mia, amount=30_000)
    await answered(world, reviewed)

    assert await world.refused(reviewed, world.mia) is Code.SELF_APPROVAL
    assert (await world.decide(reviewed, world.bob)).row["status"] == "approved"


async def test_whoever_asks_for_less_can_approve_it(world: World, reviewed: str) -> None:
    await world.revise(reviewed, world.ann, amount=15_000)
    await answered(world, reviewed)

    assert (await world.decide(reviewed, world.ann)).row["status"] == "approved"


async def test_asking_for_much_more_and_then_for_a_little_less_is_still_more(world: World, reviewed: str) -> None:
    await world.revise(reviewed, world.mia, amount=40_000)
    await world.revise(reviewed, world.mia, amount=35_000)  # below 40000, and above what was asked for
    await answered(world, reviewed)

    assert await world.refused(reviewed, world.mia) is Code.SELF_APPROVAL


async def test_field_56_raising_under_one_account_and_lowering_a_little_under_another_is_still_one_persons_raise(
    world: World, reviewed: str
) -> None:
    second = await world.actor("mia.second@shop.example", PrincipalKind.PERSON, Role.MANAGER)
    world.execute("UPDATE principals SET name = 'Mia' WHERE id = %s", second.principal_id)
    second = replace(second, name="Mia")
    await world.revise(reviewed, world.mia, amount=40_000)
    await world.revise(reviewed, second, amount=39_999)  # less than her other account wrote, and more than was asked for
    await answered(world, reviewed)

    assert await world.refused(reviewed, second) is Code.SELF_APPROVAL
    assert await world.refused(reviewed, world.mia) is Code.SELF_APPROVAL
    assert (await world.decide(reviewed, world.bob)).row["status"] == "approved"


async def test_looser_terms_that_are_quoted_again_keep_their_author(world: World, reviewed: str) -> None:
    await world.revise(reviewed, world.mia, amount=30_000)
    await answered(world, reviewed)
    await world.decide(reviewed, world.bob)
    [revision] = world.rows("SELECT expires_at FROM revisions WHERE revision = 2")
    world.clock.at = revision["expires_at"]
    held = await world.kept(reviewed, 100_000)
    assert (held.status, held.code) == ("held", "TERMS_EXPIRED")

    again = await world.steps.resume_held(reviewed)

    assert again.revision == 3
    await answered(world, reviewed)
    assert await world.refused(reviewed, world.mia) is Code.SELF_APPROVAL


async def test_terms_that_expired_after_an_approval_are_reviewed_again(world: World, reviewed: str) -> None:
    await world.decide(reviewed, world.ann)
    [revision] = world.rows("SELECT expires_at FROM revisions")
    world.clock.at = revision["expires_at"]
    await world.kept(reviewed, 100_000)

    again = await world.steps.resume_held(reviewed)

    assert (again.status, again.revision, world.count("operations")) == ("awaiting_review", 2, 0)
    assert world.count("consumed_decisions") == 0


@pytest.mark.parametrize("fields", [{"amount": ASKED}, {"reason": "product_issue"}, {"amount": ASKED, "reason": "product_issue"}])
async def test_a_revision_that_changes_nothing_is_refused(world: World, reviewed: str, fields: dict[str, Any]) -> None:
    with pytest.raises(RefundError) as refusal:
        await world.record_revision(reviewed, world.ann, **fields)

    assert (refusal.value.code, world.count("instructions")) == (Code.TERMS_UNCHANGED, 0)


async def test_a_stale_revision_is_refused(world: World, reviewed: str) -> None:
    with pytest.raises(RefundError) as refusal:
        await world.record_revision(reviewed, world.ann, amount=1_000, terms_hash="0" * 64)

    assert refusal.value.code is Code.TERMS_CHANGED


async def test_only_persons_revise(world: World, reviewed: str) -> None:
    with pytest.raises(RefundError) as refusal:
        await world.record_revision(reviewed, world.desk, amount=1_000)

    assert refusal.value.code is Code.PERSON_REQUIRED


async def test_a_revision_to_another_payment_of_the_order_only(world: World) -> None:
    first, second = await world.order(amounts=(50_000, 50_000))
    [theirs] = await world.order("order-2", "customer-2")
    for payment in (first, second):
        await world.read(payment, captured=50_000)
    refund, _ = await world.quoted(payment_id=first, amount=ASKED)

    with pytest.raises(orders.OwnershipMismatch):
        await world.record_revision(refund, world.ann, payment_id=theirs)
    seen = await world.revise(refund, world.ann, payment_id=second)

    [payment] = world.rows("SELECT id FROM payments WHERE processor_payment = %s", second)
    assert (seen.payment, seen.amount, seen.refused) == (payment["id"], ASKED, "")
    await answered(world, refund)
    assert await world.refused(refund, world.ann) is Code.SELF_APPROVAL  # another payment is looser terms
    # What the first payment had reserved is free again.
    other, seen = await world.quoted(payment_id=first, amount=50_000)
    assert seen.code != "EXCEEDS_REFUNDABLE", other


async def test_a_revision_waits_for_a_fresh_reading(world: World, reviewed: str) -> None:
    world.clock.advance(minutes=5)
    recorded = await world.record_revision(reviewed, world.ann, amount=15_000)

    seen = await world.steps.apply_message(reviewed, "revise", recorded.id)

    assert (seen.needs, world.row(reviewed)["revision"]) == (Step.READ_PAYMENT, 1)


async def test_a_dispute_that_a_revision_meets_denies(world: World, reviewed: str) -> None:
    [payment] = world.rows("SELECT processor_payment FROM payments")
    world.clock.advance(seconds=1)
    await world.read(payment["processor_payment"], captured=100_000, dispute=DisputeState.OPEN)

    seen = await world.revise(reviewed, world.ann, amount=15_000)

    assert (seen.status, seen.code) == ("denied", Code.PAYMENT_DISPUTED)


async def test_a_revision_after_the_end_is_refused_and_says_so(world: World, reviewed: str) -> None:
    recorded = await world.record_revision(reviewed, world.ann, amount=15_000)
    await world.withdraw(reviewed)

    seen = await world.steps.apply_message(reviewed, "revise", recorded.id)

    assert (seen.refused, seen.status) == ("NOT_REVISABLE", "withdrawn")
    assert world.ledger(reviewed)[-1]["type"] == "instruction_refused"


async def test_fraud_is_told_to_the_processor_only_by_that_role(world: World, reviewed: str) -> None:
    fran = await world.actor("fran", PrincipalKind.PERSON, Role.REVIEWER, Role.FRAUD)

    async def told(actor: Any) -> str | None:
        await world.revise(reviewed, actor, reason="fraudulent" if world.row(reviewed)["reason"] != "fraudulent" else "wrong_item")
        if world.row(reviewed)["reason"] != "fraudulent":
            await world.revise(reviewed, actor, reason="fraudulent")
        [revision] = world.rows("SELECT terms FROM revisions ORDER BY revision DESC LIMIT 1")
        return revision["terms"]["processor_reason"]

    assert await told(world.ann) == "requested_by_customer"
    assert await told(fran) == "fraudulent"


async def test_the_first_terms_of_a_ticket_are_not_approved_by_the_reviewer_who_wrote_them(world: World) -> None:
    # Nobody could tell the payment, so there are no terms before: whatever a reviewer writes first is more than nothing.
    payment = await world.ready(captured=100_000)
    refund = await world.accept(Ticket(customer_id="customer-1", message="hello, my thing broke, I would like my money back please"))
    assert (await world.steps.prepare(refund, unread=True)).status == "awaiting_review"
    assert world.row(refund)["revision"] == 0

    await world.revise(refund, world.ann, payment_id=payment, amount=30_000)
    await answered(world, refund)

    assert await world.refused(refund, world.ann) is Code.SELF_APPROVAL
    assert (await world.decide(refund, world.bob)).row["status"] == "approved"
