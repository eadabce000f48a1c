"""What keeps an approved refund back at the last moment: the emergency stop, and terms that no longer fit (promises P2, P3, P4)."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta

import pytest
from sqlalchemy import text
from temporalio.exceptions import ApplicationError

from refunds.errors import Code, RefundError
from store import controls
from tests.activities.shop import MakeShop, Shop, Tampered, all_of

FOR_EVER = None


@asynccontextmanager
async def stopped(shop: Shop, mode: str = "live") -> AsyncIterator[None]:
    """Within, an operator has stopped everything."""
    await shop.stop(stopped=mode == "live", mode=mode)
    try:
        yield
    finally:
        await shop.stop(stopped=False)


async def read_again(shop: Shop, refund_id: str) -> None:
    """Have the payment read again, as the workflow does for a held refund whose reading is old."""
    [row] = await shop.query(
        "SELECT p.id, processor_payment FROM payments p JOIN refunds r ON r.payment_id = p.id WHERE r.id = :r", r=refund_id
    )
    state = await shop.processor.read_payment(row["processor_payment"])
    assert state is not None
    await shop.payments.save_snapshot(row["id"], state)


# --- the emergency stop ----------------------------------------------------------------------------------------------------------------


async def test_a_stop_before_the_attempt_holds_the_refund(shop: Shop) -> None:
    intent = await shop.paid()
    refund_id = await shop.approved(intent)
    async with stopped(shop):
        found = await shop.submit(refund_id)
        assert (found.status, found.code) == ("held", "EMERGENCY_STOP")
        assert (await shop.steps.resume_held(refund_id)).status == "held"
        assert await shop.outcomes(refund_id) == []
        assert await shop.remaining(intent) == 7_000

    assert (await shop.steps.resume_held(refund_id)).status == "approved"
    assert (await shop.submit(refund_id)).status == "succeeded"
    assert await shop.asked_and_made(intent) == (1, 1)


async def test_draft_mode_sends_nothing_that_was_approved_before(shop: Shop) -> None:
    intent = await shop.paid()
    refund_id = await shop.approved(intent)
    async with stopped(shop, "draft"):
        found = await shop.submit(refund_id)
        assert (found.status, found.code) == ("held", "DRAFT_MODE")
        assert (await shop.steps.resume_held(refund_id)).status == "held"

    assert await shop.asked_and_made(intent) == (0, 0)


async def test_a_stop_between_attempts_leaves_only_looking_up(shop: Shop) -> None:
    """The first attempt may have gone out: after the stop it is looked up, and nothing is posted again."""
    intent = await shop.paid()
    refund_id = await shop.approved(intent)
    await shop.fault("refund.create", {"kind": "lose_answer"}, {"kind": "hide"})
    with pytest.raises(ApplicationError):
        await shop.submit(refund_id)
    async with stopped(shop):
        with pytest.raises(ApplicationError, match="emergency_stop"):
            await shop.submit(refund_id, attempt=2)
        assert await shop.asked_and_made(intent) == (1, 1)
        await shop.control("DELETE", "/faults")  # the list shows it again
        assert (await shop.submit(refund_id, attempt=3)).status == "succeeded", "looking is allowed"

    assert await shop.asked_and_made(intent) == (1, 1)
    assert "held" not in await shop.moves(refund_id)


async def test_a_stop_while_the_answer_is_awaited_lists_the_attempt(shop: Shop) -> None:
    intent = await shop.paid()
    refund_id = await shop.approved(intent)
    opened, go_on = asyncio.Event(), asyncio.Event()

    async def wait() -> None:
        opened.set()
        await go_on.wait()

    sending = asyncio.create_task(shop.submit(refund_id, step=shop.submitting(Tampered(shop.processor, before={"refund": wait}))))
    await opened.wait()
    async with stopped(shop):
        async with shop.api.begin() as connection:
            listed = [row["refund_id"] for row in await controls.open_attempts(connection)]
        go_on.set()
        found = await sending

    assert listed == [refund_id]
    assert found.status == "succeeded", "a call that had begun ends, and its answer is recorded"
    async with shop.api.begin() as connection:
        assert await controls.open_attempts(connection) == []


async def test_a_stop_during_thirty_submitters_lets_no_attempt_open_after_its_answer(make_shop: MakeShop) -> None:
    """Ten are on their way, ten race with the stop for its lock, and ten come to their attempt when it has answered."""
    shop = await make_shop(database_lock_timeout_ms=5_000, database_pool_size=30)
    refunds = [await shop.approved() for _ in range(30)]
    stopping, answered, sending = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def one_is_sent() -> None:
        sending.set()

    async def submit(number: int, refund_id: str) -> object:
        gate = (None, stopping, answered)[number // 10]

        async def at_the_gate() -> None:
            if gate is not None:
                await gate.wait()

        processor = Tampered(shop.processor, before={"refund": one_is_sent}, after={"read_payment": at_the_gate})
        return await shop.submit(refund_id, step=shop.submitting(processor))

    async def opened() -> int:
        count = "SELECT count(*) AS n FROM attempts a JOIN operations o ON o.id = a.operation_id WHERE o.refund_id = ANY(:ids)"
        return (await shop.query(count, ids=refunds))[0]["n"]

    submitting = [asyncio.create_task(submit(number, refund_id)) for number, refund_id in enumerate(refunds)]
    await sending.wait()
    stopping.set()
    async with stopped(shop):
        at_the_answer = await opened()
        answered.set()
        results = await all_of(submitting)
        afterwards = await opened()
        for refund_id, result in zip(refunds, results, strict=True):
            if isinstance(result, RefundError):  # a lock that was not had in time: nothing was stored, the activity is repeated
                await shop.submit(refund_id, attempt=2)

    assert 1 <= at_the_answer == afterwards <= 20
    ends = [await shop.ended(refund_id) for refund_id in refunds]
    assert set(ends) == {("held", "EMERGENCY_STOP"), ("succeeded", None)}
    assert ends.count(("succeeded", None)) == at_the_answer


async def test_a_stop_that_cannot_be_read_counts_as_stopped(shop: Shop) -> None:
    intent = await shop.paid()
    refund_id = await shop.approved(intent)
    async with shop.owner.begin() as connection:
        [kept] = (await connection.execute(text("DELETE FROM controls RETURNING *"))).mappings().all()
    try:
        [result] = await all_of([shop.submit(refund_id)])
    finally:
        async with shop.owner.begin() as connection:
            columns, values = ", ".join(kept), ", ".join(f":{name}" for name in kept)
            await connection.execute(text(f"INSERT INTO controls ({columns}) VALUES ({values})"), dict(kept))

    assert isinstance(result, Exception)
    assert await shop.asked_and_made(intent) == (0, 0)
    assert await shop.outcomes(refund_id) == []
    assert (await shop.submit(refund_id, attempt=2)).status == "succeeded"


async def test_while_the_stop_s_lock_is_held_no_attempt_opens(make_shop: MakeShop) -> None:
    shop = await make_shop(database_lock_timeout_ms=100)
    intent = await shop.paid()
    refund_id = await shop.approved(intent)
    async with shop.api.begin() as connection:
        await connection.execute(text(f"SELECT pg_advisory_xact_lock({controls.STOP_LOCK})"))
        with pytest.raises(RefundError) as caught:
            await shop.submit(refund_id)

    assert caught.value.code is Code.STORE_UNAVAILABLE
    assert await shop.asked_and_made(intent) == (0, 0)


# --- terms that no longer fit ----------------------------------------------------------------------------------------------------------


async def test_refunded_past_us_meanwhile_is_judged_again(shop: Shop) -> None:
    intent = await shop.paid()
    refund_id = await shop.approved(intent)
    await shop.control("POST", "/refunds", {"payment_intent": intent, "amount": 8_000})

    found = await shop.submit(refund_id)
    assert (found.status, found.code) == ("held", "TERMS_EXPIRED")
    assert "$20.00" in (await shop.row(refund_id))["detail"]
    assert (await shop.steps.resume_held(refund_id)).status == "denied"

    assert await shop.ended(refund_id) == ("denied", "EXCEEDS_REFUNDABLE")
    assert await shop.asked_and_made(intent) == (0, 1)
    assert await shop.remaining(intent) == 2_000


async def test_a_full_refund_is_quoted_again_for_what_is_left(shop: Shop) -> None:
    intent = await shop.paid()
    refund_id = await shop.approved(intent, amount=None)
    first = await shop.row(refund_id)
    await shop.control("POST", "/refunds", {"payment_intent": intent, "amount": 4_000})

    assert (await shop.submit(refund_id)).status == "held"
    again = await shop.steps.resume_held(refund_id)

    assert (again.status, again.amount, again.revision) == ("awaiting_consent", 6_000, 2)
    assert again.terms_hash != first["terms_hash"]
    await shop.agreed(refund_id)
    assert (await shop.submit(refund_id)).status == "succeeded"
    assert [refund["amount"] for refund in (await shop.truth(intent))["refunds"] if refund["metadata"]] == [6_000]


@pytest.mark.parametrize(
    ("dispute", "status", "code"),
    [
        ("needs_response", "denied", "PAYMENT_DISPUTED"),
        ("under_review", "denied", "PAYMENT_DISPUTED"),
        ("lost", "denied", "ALREADY_RETURNED"),
        ("warning_needs_response", "awaiting_review", None),
    ],
)
async def test_a_dispute_opened_meanwhile_stops_it(shop: Shop, dispute: str, status: str, code: str | None) -> None:
    intent = await shop.paid()
    refund_id = await shop.approved(intent)
    await shop.control("POST", "/disputes", {"payment_intent": intent, "status": dispute, "amount": 100})

    assert (await shop.submit(refund_id)).status == "held"
    await shop.steps.resume_held(refund_id)

    assert await shop.ended(refund_id) == (status, code)
    assert await shop.asked_and_made(intent) == (0, 0)


async def test_an_inquiry_that_a_person_has_seen_does_not_stop_it(shop: Shop) -> None:
    intent = await shop.paid()
    await shop.control("POST", "/disputes", {"payment_intent": intent, "status": "warning_needs_response", "amount": 100})
    refund_id = await shop.approved(intent)

    assert (await shop.submit(refund_id)).status == "succeeded"


@pytest.mark.parametrize("dispute", ["won", "prevented", "warning_closed"])
async def test_a_dispute_that_ended_well_is_as_if_none(shop: Shop, dispute: str) -> None:
    refund_id = await shop.approved(intent := await shop.paid())
    await shop.control("POST", "/disputes", {"payment_intent": intent, "status": dispute, "amount": 100})

    assert (await shop.submit(refund_id)).status == "succeeded"


async def test_expired_terms_are_quoted_again_and_reviewed_again(shop: Shop) -> None:
    """A person had approved: the new terms need a new decision, and the old one is not spent."""
    intent = await shop.paid(50_000)
    refund_id = await shop.approved(intent, 20_000)
    shop.clock.advance(timedelta(days=10))

    found = await shop.submit(refund_id)
    assert (found.status, found.code) == ("held", "TERMS_EXPIRED")
    again = await shop.steps.resume_held(refund_id)

    assert (again.status, again.revision) == ("awaiting_review", 2)
    spent = await shop.query("SELECT 1 FROM consumed_decisions c JOIN decisions d ON d.id = decision_id WHERE refund_id = :r", r=refund_id)
    assert spent == []
    await shop.decide(refund_id, "rita")
    assert (await shop.submit(refund_id)).status == "succeeded"
    assert await shop.asked_and_made(intent) == (1, 1)


async def test_the_database_is_asked_for_the_remaining_money_under_its_lock(shop: Shop) -> None:
    """Two approved refunds whose sum is the whole: together with one past us only one of them still fits, whoever comes first."""
    intent = await shop.paid()
    first, second = await shop.approved(intent, 4_000), await shop.approved(intent, 6_000)
    await shop.control("POST", "/refunds", {"payment_intent": intent, "amount": 3_000})

    await all_of([shop.submit(first), shop.submit(second)])

    # 10000 - 3000 - 6000 < 4000 and 10000 - 3000 - 4000 < 6000: each one's reservation leaves too little for the other.
    assert {(await shop.ended(refund_id))[1] for refund_id in (first, second)} == {"TERMS_EXPIRED"}
    assert sum(refund["amount"] for refund in (await shop.truth(intent))["refunds"]) == 3_000
