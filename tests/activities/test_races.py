"""Races that are staged, not hoped for (``staging.py``): submits, events, settlements, a capture, a stop; each in both orders."""

import asyncio
from typing import Any

import httpx
import pytest
from temporalio.exceptions import ApplicationError
from temporalio.testing import ActivityEnvironment

from activities.observe import Observer
from activities.settle import Settle
from refunds.errors import Code
from refunds.messages import Observed, Situation, StepInput
from store import controls
from store.observing import Observing
from store.situations import waits_for
from tests.activities.lives import HIDE, LOSE_ANSWER, LOSE_REQUEST
from tests.activities.shop import API_KEY, MakeShop, Shop, Tampered
from tests.activities.staging import DONE, during, record, told, until


@pytest.fixture
async def shop(make_shop: MakeShop) -> Shop:
    """A shop in which a lock is waited for as long as a test needs it."""
    return await make_shop(database_lock_timeout_ms=5_000, submit_max_attempts=2)


async def observed(shop: Shop, intent: str, processor: Any = None) -> Observed:
    """What a webhook or a sweep causes: the payment is read live and recorded."""
    [payment] = await shop.query("SELECT id FROM payments WHERE processor_payment = :p", p=intent)
    observing = Observing(shop.payments.database, shop.settings, "watch")
    return await Observer(observing, processor or shop.processor, shop.clock).observe(payment["id"])


# --- two submits -----------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("at", "second"),
    [
        ("before:attempt_opened", "attempt_open"),
        ("after:attempt_opened", "attempt_in_flight"),
        ("before:refund.create", "attempt_in_flight"),
        ("after:refund.create", "attempt_in_flight"),
        ("before:receipt", "attempt_in_flight"),
        ("after:receipt", "succeeded"),
    ],
)
async def test_field_11_two_submits_of_one_refund(shop: Shop, at: str, second: str) -> None:
    """The engine gave it to two workers: one of them sends, whichever is where."""
    intent = await shop.paid()
    refund = await shop.approved(intent)

    done = await during(shop, lambda: shop.submit(refund), at, lambda: shop.submit(refund))

    assert (told(done[0]), told(done[1])) == ("succeeded", second)
    assert await record(shop, refund, intent) == DONE
    assert await shop.outcomes(refund) == ["answered"]


async def test_field_11_two_retries_of_one_refund(make_shop: MakeShop) -> None:
    """Both found the first attempt without an answer and nothing in the list; only one of them may repeat it."""
    shop = await make_shop(database_lock_timeout_ms=5_000, submit_max_attempts=8)
    intent = await shop.paid()
    refund = await shop.approved(intent)
    await shop.fault("refund.create", LOSE_REQUEST, intent=intent)
    with pytest.raises(ApplicationError):
        await shop.submit(refund)

    done = await during(shop, lambda: shop.submit(refund, attempt=1), "before:attempt_opened", lambda: shop.submit(refund, attempt=1))

    assert (told(done[0]), told(done[1])) == ("succeeded", "attempt_open")
    assert await record(shop, refund, intent) == ("succeeded", 1, 2, 1)


@pytest.mark.parametrize("at", ["after:refund.create", "before:receipt"])
async def test_field_11_a_worker_that_froze_with_the_answer_in_its_hand(shop: Shop, at: str) -> None:
    """Its time is over, so another worker looks the refund up. Whoever records it first, the other one changes nothing."""
    intent = await shop.paid()
    refund = await shop.approved(intent)

    async def heir() -> Situation:
        await shop.let_attempts_lapse(refund)
        return await shop.submit(refund)

    done = await during(shop, lambda: shop.submit(refund), at, heir)

    assert (told(done[0]), told(done[1])) == ("succeeded", "succeeded")
    assert await record(shop, refund, intent) == DONE


async def test_field_11_a_worker_that_froze_before_it_sent(make_shop: MakeShop) -> None:
    """It comes back past its ``send_by``: another worker has sent, and its own attempt is void."""
    shop = await make_shop(submit_send_within_s=0.5)
    intent = await shop.paid()
    refund = await shop.approved(intent)

    async def heir() -> Situation:
        async def over() -> bool:
            rows = await shop.query("SELECT 1 FROM attempts WHERE send_by < clock_timestamp() AND outcome IS NULL")
            return bool(rows)

        await until(over)
        return await shop.submit(refund)

    done = await during(shop, lambda: shop.submit(refund), "before:refund.create", heir)

    assert told(done[1]) == "succeeded"
    assert told(done[0]) == "too_late_to_send"
    assert await record(shop, refund, intent) == DONE
    assert await shop.outcomes(refund) == ["lapsed", "answered"]


@pytest.mark.parametrize("at", ["before:attempt_opened", "after:attempt_opened", "after:refund.create", "before:receipt"])
async def test_field_12_two_refunds_of_one_payment_are_both_sent_and_no_more_than_was_taken(shop: Shop, at: str) -> None:
    intent = await shop.paid(6_000)
    first, second = await shop.approved(intent), await shop.approved(intent, reason="other")

    done = await during(shop, lambda: shop.submit(first), at, lambda: shop.submit(second))

    assert (told(done[0]), told(done[1])) == ("succeeded", "succeeded")
    assert await shop.asked_and_made(intent) == (2, 2)
    assert await shop.remaining(intent) == 0


@pytest.mark.parametrize("at", ["after:attempt_opened", "before:refund.create"])
async def test_one_submit_at_a_time_per_payment(shop: Shop, at: str) -> None:
    """The second refund of the payment waits for the call of the first to end, or to show in the payment, and says for what it waits; then it goes."""
    intent = await shop.paid(6_000)
    first, second = await shop.approved(intent), await shop.approved(intent, reason="other")
    waited: list[Any] = []

    async def behind() -> Situation:
        waiting = asyncio.ensure_future(shop.submit(second))

        async def says_so() -> bool:
            return (await shop.row(second))["code"] == "PAYMENT_BUSY"

        await until(says_so)
        row = await shop.row(second)
        waited.append((row["status"], waits_for(row), await shop.outcomes(second)))
        return await waiting

    done = await during(shop, lambda: shop.submit(first), at, behind)

    words = f"its turn to submit $30.00: {first} of the same payment is being sent; this one comes after it"
    assert waited == [("approved", words, [])]
    assert (told(done[0]), told(done[1])) == ("succeeded", "succeeded")
    assert (await shop.row(second))["code"] is None
    overlapping = """
        SELECT 1 FROM attempts a JOIN operations o ON o.id = a.operation_id JOIN attempts b ON b.id <> a.id JOIN operations p ON p.id = b.operation_id
        WHERE o.payment_id = p.payment_id AND o.refund_id = :first AND b.opened_at BETWEEN a.opened_at AND a.answered_at"""
    assert await shop.query(overlapping, first=first) == []
    assert await shop.outcomes(first) == await shop.outcomes(second) == ["answered"]


async def test_a_turn_comes_though_the_one_before_never_answers(make_shop: MakeShop) -> None:
    """The one before died in its call. It is waited for as long as that call can be under way, by the database's clock, and no longer."""
    shop = await make_shop(submit_send_within_s=0.5, stripe_connect_timeout_s=0.5, stripe_read_timeout_s=1)
    intent = await shop.paid(6_000)
    first, second = await shop.approved(intent), await shop.approved(intent, reason="other")
    await shop.fault("refund.create", LOSE_REQUEST, intent=intent)
    with pytest.raises(ApplicationError):
        await shop.submit(first)

    assert told(await shop.submit(second)) == "succeeded"

    [gap] = await shop.query(
        """SELECT b.opened_at - a.send_by AS since FROM attempts a JOIN operations o ON o.id = a.operation_id, attempts b JOIN operations p ON p.id = b.operation_id
           WHERE o.refund_id = :first AND p.refund_id = :second""",
        first=first,
        second=second,
    )
    assert gap["since"].total_seconds() >= 1.4
    assert [row["status"] for row in (await shop.row(first), await shop.row(second))] == ["submitting", "succeeded"]


@pytest.mark.parametrize("at", ["before:attempt_opened", "after:attempt_opened"])
async def test_field_12_money_that_somebody_else_takes_meanwhile_is_not_promised_twice(shop: Shop, at: str) -> None:
    """In the processor's dashboard, while the attempt is under way: the processor refuses ours, and nothing goes back twice."""
    intent = await shop.paid(4_000)
    refund = await shop.approved(intent)

    async def by_hand() -> Any:
        return await shop.control("POST", "/refunds", {"payment_intent": intent, "amount": 2_000})

    await during(shop, lambda: shop.submit(refund), at, by_hand)

    assert (await shop.ended(refund))[0] == "failed"
    assert [made["amount"] for made in (await shop.truth(intent))["refunds"]] == [2_000]
    assert await shop.remaining(intent) == 2_000


# --- submit and webhook ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("at", ["after:refund.create", "before:receipt", "after:receipt"])
async def test_an_event_comes_before_our_own_receipt(shop: Shop, at: str) -> None:
    """The refund is there, and the event of it overtakes the answer."""
    intent = await shop.paid()
    refund = await shop.approved(intent)

    done = await during(shop, lambda: shop.submit(refund), at, lambda: observed(shop, intent))

    assert told(done[0]) == "succeeded"
    assert isinstance(done[1], Observed)
    assert (done[1].imported, done[1].discrepancies) == (0, 0), "it is ours"
    assert await record(shop, refund, intent) == DONE
    assert await shop.outcomes(refund) == ["answered"]


@pytest.mark.parametrize("at", ["before:attempt_opened", "after:attempt_opened"])
async def test_an_event_comes_while_it_is_about_to_be_sent(shop: Shop, at: str) -> None:
    intent = await shop.paid()
    refund = await shop.approved(intent)

    done = await during(shop, lambda: shop.submit(refund), at, lambda: observed(shop, intent))

    assert told(done[0]) == "succeeded"
    assert done[1] == Observed(done[1].payment, 0, 0, 0)
    assert await record(shop, refund, intent) == DONE


async def test_a_receipt_comes_while_an_event_is_recorded(shop: Shop) -> None:
    intent = await shop.paid()
    refund = await shop.approved(intent)
    sent = asyncio.Event()

    async def send() -> Situation:
        with_pause = Tampered(shop.processor, after={"refund": sent.wait})
        return await shop.submit(refund, step=shop.submitting(with_pause))

    async def look() -> Observed:
        async def made() -> bool:
            return (await shop.asked_and_made(intent))[1] == 1

        await until(made)
        return await observed(shop, intent)

    async def receive() -> Situation:
        sent.set()
        return await sending

    sending = asyncio.ensure_future(send())
    done = await during(shop, look, "before:adopted", receive)

    assert isinstance(done[0], Observed)
    assert told(done[1]) == "succeeded"
    assert await record(shop, refund, intent) == DONE


async def test_a_reading_that_was_overtaken_by_the_receipt_concludes_nothing(shop: Shop) -> None:
    """The payment is read before the refund is made and recorded after the receipt: what the reading does not show is no news."""
    intent = await shop.paid()
    refund = await shop.approved(intent)

    async def send() -> None:
        if (await shop.row(refund))["status"] == "approved":
            await shop.submit(refund)

    found = await observed(shop, intent, Tampered(shop.processor, after={"read_payment": send}))

    assert (found.imported, found.moved, found.discrepancies) == (0, 0, 0)
    assert await record(shop, refund, intent) == DONE


async def test_an_old_reading_does_not_undo_a_newer_one(shop: Shop) -> None:
    """Read as succeeded; it fails there, another reading records that; then the first one comes to be recorded."""
    intent = await shop.paid()
    refund = await shop.approved(intent)
    await shop.submit(refund)
    [made] = (await shop.truth(intent))["refunds"]

    async def fails() -> None:
        if (await shop.row(refund))["status"] == "succeeded":
            await shop.control("POST", f"/refunds/{made['id']}", {"status": "failed"})
            await observed(shop, intent)

    await observed(shop, intent, Tampered(shop.processor, after={"read_payment": fails}))

    assert (await shop.moves(refund))[-2:] == ["succeeded", "failed"]
    assert await shop.remaining(intent) == 10_000


# --- settle and webhook ----------------------------------------------------------------------------------------------------------------


async def parked_though_made(shop: Shop) -> tuple[str, str, str]:
    """A refund that is parked though it was made, its payment and the processor's id; no list shows it until the fault is cleared."""
    intent = await shop.paid()
    refund = await shop.approved(intent)
    await shop.fault("refund.create", LOSE_ANSWER, HIDE, intent=intent)
    await shop.fault("refund.create", LOSE_REQUEST, times=9, intent=intent)
    assert (await shop.submitted(refund)).status == "parked"
    [made] = (await shop.truth(intent))["refunds"]
    return refund, intent, made["id"]


async def shown(shop: Shop, intent: str) -> Observed:
    """The processor shows it after all, and an event says so."""
    await shop.control("DELETE", "/faults")
    return await observed(shop, intent)


async def test_an_event_comes_while_a_person_settles_as_refunded(shop: Shop) -> None:
    refund, intent, made = await parked_though_made(shop)
    said = await shop.says(refund, "sam", "refunded", made)

    done = await during(shop, lambda: shop.settled(refund, said), "before:succeeded", lambda: shown(shop, intent))

    assert told(done[0]) == "succeeded"
    assert (done[1].imported, done[1].discrepancies) == (0, 0)
    assert (await record(shop, refund, intent))[:2] == ("succeeded", 1)


async def test_a_person_settles_as_refunded_while_an_event_comes(shop: Shop) -> None:
    refund, intent, made = await parked_though_made(shop)
    said = await shop.says(refund, "sam", "refunded", made)

    done = await during(shop, lambda: shown(shop, intent), "before:succeeded", lambda: shop.settled(refund, said))

    assert isinstance(done[0], Observed)
    assert told(done[1]) == "NOT_PARKED"
    assert (await record(shop, refund, intent))[:2] == ("succeeded", 1)


async def test_an_event_comes_between_the_look_and_the_word_of_two_persons(shop: Shop) -> None:
    """The list was empty when it was read for the settlement; the refund shows before the settlement is recorded."""
    refund, intent, _ = await parked_though_made(shop)
    await shop.says(refund, "sam", "not_refunded")
    await shop.let_attempts_lapse(refund)
    second = await shop.says(refund, "tess", "not_refunded")

    async def appears() -> None:
        await shown(shop, intent)

    step = Settle(shop.payments, Tampered(shop.processor, after={"find": appears}))
    done = await ActivityEnvironment().run(step.settle, StepInput(refund, "settle", second))

    assert done.refused == "SETTLEMENT_CONTRADICTED"
    assert (await record(shop, refund, intent))[:2] == ("succeeded", 1)


async def test_an_event_comes_after_two_persons_were_wrong(shop: Shop) -> None:
    """Truth that arrives later moves even a final status, and is recorded once however often it comes."""
    refund, intent, _ = await parked_though_made(shop)
    await shop.says(refund, "sam", "not_refunded")
    await shop.let_attempts_lapse(refund)
    second = await shop.says(refund, "tess", "not_refunded")

    done = await during(shop, lambda: shop.settled(refund, second), "before:failed", lambda: shown(shop, intent))

    assert told(done[0]) == "failed"
    assert isinstance(done[1], Observed)
    await observed(shop, intent)
    assert (await shop.moves(refund))[-2:] == ["failed", "succeeded"]
    assert await shop.remaining(intent) == 7_000


# --- capture and refund ----------------------------------------------------------------------------------------------------------------


async def authorised(shop: Shop) -> tuple[str, str]:
    """An approved release of a payment that was only authorised, and that payment."""
    intent = await shop.paid(3_000, captured=0)
    return await shop.approved(intent), intent


async def captured(shop: Shop, intent: str) -> None:
    """The merchant's own system captures the payment."""
    address = f"{shop.sandbox.url}/v1/payment_intents/{intent}/capture"
    async with httpx.AsyncClient(trust_env=False) as client:
        answer = await client.post(address, headers={"Authorization": f"Bearer {API_KEY}"})
    assert answer.status_code == 200, answer.text


@pytest.mark.parametrize("at", ["before:attempt_opened", "after:attempt_opened", "before:authorisation.cancel"])
async def test_captured_while_its_release_is_under_way(shop: Shop, at: str) -> None:
    """Read as authorised, captured before the cancellation arrives: the processor refuses it, and the money is as it was taken."""
    refund, intent = await authorised(shop)

    await during(shop, lambda: shop.submit(refund), at, lambda: captured(shop, intent))

    assert (await shop.ended(refund))[0] == "failed"
    assert (await shop.truth(intent))["refunds"] == []
    assert await shop.remaining(intent) == 3_000


async def test_captured_between_the_reading_and_the_attempt_s_reading(shop: Shop) -> None:
    refund, intent = await authorised(shop)
    await captured(shop, intent)

    assert (await shop.submit(refund)).code == Code.TERMS_EXPIRED
    assert (await shop.truth(intent))["cancel_requests"] == []


# --- stop and attempt ------------------------------------------------------------------------------------------------------------------


async def stopping(shop: Shop) -> list[Any]:
    """An operator stops everything; the answer names what could still be under way."""
    await shop.stop()
    async with shop.api.begin() as connection:
        return await controls.open_attempts(connection)


async def test_a_stop_while_an_attempt_is_opened_lists_it(shop: Shop) -> None:
    """It waits for the attempt to be opened, and its answer names it; what had begun ends."""
    intent = await shop.paid()
    refund = await shop.approved(intent)
    answered = asyncio.Event()

    async def stopped() -> list[Any]:
        try:
            return await stopping(shop)
        finally:
            answered.set()

    sending = shop.submitting(Tampered(shop.processor, before={"refund": answered.wait}))
    try:
        done = await during(shop, lambda: shop.submit(refund, step=sending), "before:attempt_opened", stopped)
        assert (told(done[0]), [listed["refund_id"] for listed in done[1]]) == ("succeeded", [refund])
        assert await record(shop, refund, intent) == DONE
    finally:
        await shop.stop(stopped=False)


async def test_an_attempt_that_waits_for_a_stop_is_not_opened(shop: Shop) -> None:
    intent = await shop.paid()
    refund = await shop.approved(intent)
    try:
        done = await during(shop, shop.stop, "before:control_changed", lambda: shop.submit(refund))
        assert (told(done[0]), told(done[1])) == (None, "held")
        assert await record(shop, refund, intent) == ("held", 1, 0, 0)
        assert await shop.outcomes(refund) == []
    finally:
        await shop.stop(stopped=False)
