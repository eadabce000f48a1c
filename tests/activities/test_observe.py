"""Observing a payment live, on the real store and the sandbox: whatever the processor shows is recorded once, and nothing is ever sent for it."""

import asyncio
from datetime import timedelta
from typing import Any

import pytest
from temporalio.exceptions import ApplicationError
from temporalio.testing import ActivityEnvironment

from activities.observe import Observer
from activities.prepare import Prepare
from activities.read_payment import PaymentReader
from refunds.messages import Observed, StepInput
from refunds.processor import NotSent
from store import halts
from store.observing import Observing
from tests.activities.shop import Shop, Tampered

CARD_GONE = "expired_or_canceled_card"


def observing(shop: Shop) -> Observing:
    return Observing(shop.payments.database, shop.settings, "worker-2")


async def payment_of(shop: Shop, intent: str) -> str:
    [row] = await shop.query("SELECT id FROM payments WHERE processor_payment = :p", p=intent)
    return row["id"]


async def observed(shop: Shop, intent: str, processor: Any = None) -> Observed:
    """One observation, as the worker makes it."""
    observer = Observer(observing(shop), processor or shop.processor, shop.clock)
    return await ActivityEnvironment().run(observer.observe_payment, StepInput("", message=await payment_of(shop, intent)))


async def counted(shop: Shop, intent: str) -> tuple[int, int, int]:
    """How much an observation imported, moved and found different."""
    found = await observed(shop, intent)
    return found.imported, found.moved, found.discrepancies


async def at_the_processor(shop: Shop, intent: str) -> list[dict[str, Any]]:
    return (await shop.truth(intent))["refunds"]


async def recorded(shop: Shop, intent: str) -> list[tuple[str | None, int, str]]:
    rows = await shop.query(
        "SELECT operation_id, p.amount, state FROM processor_refunds p JOIN payments y ON y.id = payment_id WHERE processor_payment = :p ORDER BY p.id",
        p=intent,
    )
    return [(row["operation_id"], row["amount"], row["state"]) for row in rows]


async def notices(shop: Shop, **of: str) -> list[str]:
    rows = await shop.query("SELECT body FROM outbox WHERE kind = 'notice' ORDER BY id")
    return [row["body"]["kind"] for row in rows if all(row["body"].get(name) == value for name, value in of.items())]


async def told(shop: Shop, refund_id: str) -> tuple[list[str], list[str]]:
    """The notices about a refund, and the signals to its run."""
    rows = await shop.query("SELECT kind, body FROM outbox WHERE refund_id = :r ORDER BY id", r=refund_id)
    return [row["body"]["kind"] for row in rows if row["kind"] == "notice"], [
        row["body"]["name"] for row in rows if row["kind"] == "signal"
    ]


async def external_entries(shop: Shop, intent: str) -> list[dict[str, Any]]:
    return await shop.query(
        "SELECT * FROM ledger WHERE type = 'external_refund' AND data->>'payment' = :p", p=await payment_of(shop, intent)
    )


async def moves_to(shop: Shop, refund_id: str, status: str) -> int:
    return (await shop.moves(refund_id)).count(status)


# --- our own ---------------------------------------------------------------------------------------------------------------------------


async def test_field_19_seen_before_its_own_answer_it_attaches_once_and_the_answer_converges(shop: Shop) -> None:
    intent = await shop.paid()
    refund_id = await shop.approved(intent)

    async def meanwhile() -> None:
        for _ in range(2):
            await observed(shop, intent)

    early = shop.submitting(processor=Tampered(shop.processor, after={"refund": meanwhile}))
    found = await shop.submit(refund_id, step=early)

    assert found.status == "succeeded"
    assert await moves_to(shop, refund_id, "succeeded") == 1
    assert (await shop.entries(refund_id)).count("adopted") == 1
    assert await shop.asked_and_made(intent) == (1, 1)
    [(operation, amount, state)] = await recorded(shop, intent)
    assert (operation is not None, amount, state) == (True, 3_000, "succeeded")
    assert await external_entries(shop, intent) == []


async def test_field_19_seen_between_the_answer_and_its_record_or_after_it_nothing_is_made_twice(shop: Shop) -> None:
    intent = await shop.paid()
    refund_id = await shop.approved(intent)

    async def meanwhile() -> None:
        await observed(shop, intent)

    await shop.submit(refund_id, step=shop.submitting(payments=Tampered(shop.payments, before={"receipt": meanwhile})))
    before = await shop.row(refund_id)

    assert [await counted(shop, intent) for _ in range(2)] == [(0, 0, 0)] * 2

    assert await shop.row(refund_id) == before
    assert await moves_to(shop, refund_id, "succeeded") == 1
    assert len(await recorded(shop, intent)) == 1


async def test_a_parked_refund_that_is_found_is_adopted(shop: Shop) -> None:
    intent = await shop.paid()
    refund_id = await shop.approved(intent)
    await shop.fault("refund.create", {"kind": "lose_answer"}, {"kind": "hide"}, times=shop.settings.submit_max_attempts, intent=intent)
    assert (await shop.submitted(refund_id)).status == "parked"
    await shop.control("DELETE", "/faults")

    for _ in range(2):
        await observed(shop, intent)

    assert await shop.ended(refund_id) == ("succeeded", None)
    assert await moves_to(shop, refund_id, "succeeded") == 1
    assert (await told(shop, refund_id))[1] == ["payment_event"], "its run is told"
    assert set(await shop.outcomes(refund_id)) == {"answered"}


@pytest.mark.parametrize("state", ["pending", "requires_action"])
async def test_field_16_what_is_under_way_stays_pending_however_often_it_is_seen(shop: Shop, state: str) -> None:
    intent = await shop.paid(refund_outcome={"initial": state})
    refund_id = await shop.approved(intent)
    await shop.submit(refund_id)
    before = await shop.row(refund_id)

    assert [await counted(shop, intent) for _ in range(3)] == [(0, 0, 0)] * 3

    assert await shop.row(refund_id) == before


@pytest.mark.parametrize(
    ("then", "status", "code"),
    [("succeeded", "succeeded", None), ("failed", "failed", "PROCESSOR_FAILED"), ("canceled", "failed", "PROCESSOR_FAILED")],
)
async def test_field_16_what_became_of_a_pending_refund_is_seen_once(shop: Shop, then: str, status: str, code: str | None) -> None:
    intent = await shop.paid(refund_outcome={"initial": "pending"})
    refund_id = await shop.approved(intent)
    await shop.submit(refund_id)
    [made] = await at_the_processor(shop, intent)
    await shop.control("POST", f"/refunds/{made['id']}", {"status": then})

    for _ in range(2):
        await observed(shop, intent)

    assert await shop.ended(refund_id) == (status, code)
    assert await moves_to(shop, refund_id, status) == 1
    assert (await told(shop, refund_id))[1] == ["payment_event"]
    assert await shop.asked_and_made(intent) == (1, 1)


async def test_field_16_a_state_nobody_knows_is_parked_with_its_raw_value(shop: Shop) -> None:
    intent = await shop.paid(refund_outcome={"initial": "pending"})
    refund_id = await shop.approved(intent)
    await shop.submit(refund_id)
    await shop.fault("refund.list", {"kind": "alter", "fields": {"status": "something_new"}}, intent=intent)

    await observed(shop, intent)

    assert await shop.ended(refund_id) == ("parked", "STATUS_UNKNOWN")
    assert (await recorded(shop, intent))[0][2] == "unknown"

    await observed(shop, intent)
    assert await shop.ended(refund_id) == ("pending", None), "known again, and waited for again"


async def test_field_17_success_first_failure_days_later(shop: Shop) -> None:
    intent = await shop.paid()
    refund_id = await shop.approved(intent, 2_500)
    await shop.submit(refund_id)
    shop.clock.advance(timedelta(days=5))
    before = await shop.remaining(intent)
    [made] = await at_the_processor(shop, intent)
    await shop.control("POST", f"/refunds/{made['id']}", {"status": "failed", "failure_reason": CARD_GONE})

    for _ in range(2):
        await observed(shop, intent)

    assert await shop.ended(refund_id) == ("failed", "PROCESSOR_FAILED")
    assert (before, await shop.remaining(intent)) == (7_500, 10_000), "what can be refunded is restored"
    [entry] = await shop.query("SELECT data FROM ledger WHERE refund_id = :r AND type = 'compensated'", r=refund_id)
    assert (entry["data"]["amount"], entry["data"]["currency"], entry["data"]["reason"]) == (2_500, "USD", CARD_GONE)
    assert (await shop.moves(refund_id))[-2:] == ["succeeded", "failed"], "both stand in the ledger"
    notices, signals = await told(shop, refund_id)
    assert (notices.count("failed_after_success"), signals) == (1, []), "a person is told, and the run that has ended stays ended"
    assert await shop.asked_and_made(intent) == (1, 1), "nothing is sent again"


async def test_a_failure_that_was_none_is_corrected_and_told(shop: Shop) -> None:
    intent = await shop.paid(refund_outcome={"initial": "failed"})
    refund_id = await shop.approved(intent)
    await shop.submit(refund_id)
    [made] = await at_the_processor(shop, intent)
    assert await shop.ended(refund_id) == ("failed", "PROCESSOR_FAILED")
    await shop.fault("refund.list", {"kind": "alter", "fields": {"status": "succeeded", "failure_reason": None}}, times=None, intent=intent)

    for _ in range(2):
        await observed(shop, intent)

    assert await shop.ended(refund_id) == ("succeeded", None)
    assert (await told(shop, refund_id))[0].count("succeeded_after_failure") == 1
    assert made["id"] == (await at_the_processor(shop, intent))[0]["id"]


async def test_a_failure_that_is_under_way_after_all_is_parked(shop: Shop) -> None:
    intent = await shop.paid(refund_outcome={"initial": "failed"})
    refund_id = await shop.approved(intent)
    await shop.submit(refund_id)
    await shop.fault("refund.list", {"kind": "alter", "fields": {"status": "pending"}}, intent=intent)

    await observed(shop, intent)

    assert await shop.ended(refund_id) == ("parked", "OUTCOME_UNKNOWN")


async def test_field_22_whatever_the_order_of_the_hints_the_end_is_the_processors(shop: Shop) -> None:
    intent = await shop.paid(refund_outcome={"initial": "pending"})
    refund_id = await shop.approved(intent)
    await shop.submit(refund_id)
    [made] = await at_the_processor(shop, intent)
    for state in ("succeeded", "failed"):
        await shop.control("POST", f"/refunds/{made['id']}", {"status": state})

    for _ in range(4):  # succeeded, failed, pending, succeeded again: hints all, and each of them a look
        await observed(shop, intent)

    assert await shop.ended(refund_id) == ("failed", "PROCESSOR_FAILED")
    assert await moves_to(shop, refund_id, "failed") == 1


async def test_field_22_a_reading_that_was_overtaken_concludes_nothing(shop: Shop) -> None:
    """A worker reads, freezes, and comes back after another one has seen the refund fail."""
    intent = await shop.paid()
    refund_id = await shop.approved(intent)
    await shop.submit(refund_id)
    old = await shop.processor.read_payment(intent)
    assert old is not None
    [made] = await at_the_processor(shop, intent)
    await shop.control("POST", f"/refunds/{made['id']}", {"status": "failed", "failure_reason": CARD_GONE})
    await observed(shop, intent)
    before = await shop.row(refund_id)

    assert await observing(shop).observe(await payment_of(shop, intent), old) is None

    assert await shop.row(refund_id) == before
    assert await shop.ended(refund_id) == ("failed", "PROCESSOR_FAILED")


async def test_field_22_an_answer_that_waited_does_not_undo_what_was_seen_since(shop: Shop) -> None:
    """The processor answered that it had succeeded; before that was recorded it had failed, and that was seen."""
    intent = await shop.paid()
    refund_id = await shop.approved(intent)

    async def fails_meanwhile() -> None:
        [made] = await at_the_processor(shop, intent)
        await shop.control("POST", f"/refunds/{made['id']}", {"status": "failed", "failure_reason": CARD_GONE})
        await observed(shop, intent)

    found = await shop.submit(refund_id, step=shop.submitting(payments=Tampered(shop.payments, before={"receipt": fails_meanwhile})))

    assert found.status == "failed"
    assert await shop.moves(refund_id) == [*(await shop.moves(refund_id))[:-1], "failed"]
    assert await moves_to(shop, refund_id, "succeeded") == 0
    assert (await recorded(shop, intent))[0][2] == "failed"


async def test_it_reads_again_when_something_was_recorded_meanwhile(shop: Shop) -> None:
    intent = await shop.paid(refund_outcome={"initial": "pending"})
    refund_id = await shop.approved(intent)
    await shop.submit(refund_id)
    reads = 0

    async def another_reading() -> None:
        nonlocal reads
        reads += 1
        if reads == 1:
            await observed(shop, intent)

    await observed(shop, intent, Tampered(shop.processor, after={"read_payment": another_reading}))

    assert reads == 2


async def test_one_that_is_always_overtaken_is_tried_again_later(shop: Shop) -> None:
    intent = await shop.paid()
    await shop.submit(await shop.approved(intent))

    async def another_reading() -> None:
        await observed(shop, intent)

    with pytest.raises(ApplicationError) as told:
        await observed(shop, intent, Tampered(shop.processor, after={"read_payment": another_reading}))
    assert (told.value.type, told.value.message) == ("NotSent", "overtaken")


@pytest.mark.parametrize(
    "fault", [{"kind": "lose_answer"}, {"kind": "malformed"}, {"kind": "status", "status": 503}, {"kind": "rate_limit"}]
)
async def test_a_processor_that_cannot_be_asked_changes_nothing(shop: Shop, fault: dict[str, Any]) -> None:
    intent = await shop.paid(refund_outcome={"initial": "pending"})
    refund_id = await shop.approved(intent)
    await shop.submit(refund_id)
    before = await shop.row(refund_id)
    await shop.fault("refund.list", fault, intent=intent)

    with pytest.raises(ApplicationError) as told:
        await observed(shop, intent)

    assert told.value.type == "NotSent"
    assert await shop.row(refund_id) == before


async def test_a_payment_the_processor_does_not_know_concludes_nothing(shop: Shop) -> None:
    intent = await shop.paid(refund_outcome={"initial": "pending"})
    refund_id = await shop.approved(intent)
    await shop.submit(refund_id)
    body = {"error": {"type": "invalid_request_error", "code": "resource_missing", "message": "No such payment."}}
    await shop.fault("payment_intent.retrieve", {"kind": "status", "status": 404, "body": body}, intent=intent)

    assert await counted(shop, intent) == (0, 0, 0)

    assert (await shop.row(refund_id))["status"] == "pending"


async def test_a_release_whose_answer_was_lost_is_found(shop: Shop) -> None:
    intent = await shop.paid(captured=False)
    refund_id = await shop.approved(intent, None)
    await shop.fault("payment_intent.cancel", {"kind": "lose_answer"}, intent=intent)
    with pytest.raises(ApplicationError):
        await shop.submit(refund_id, step=shop.submitting(processor=Tampered(shop.processor, after={"read_payment": _gone(after=1)})))

    await observed(shop, intent)

    assert await shop.ended(refund_id) == ("released", None)
    assert len((await shop.truth(intent))["cancel_requests"]) == 1


def _gone(*, after: int) -> Any:
    """The processor cannot be asked any more after so many readings."""
    seen = 0

    async def happening() -> None:
        nonlocal seen
        seen += 1
        if seen > after:
            raise NotSent("connection_refused")

    return happening


# --- not ours ----------------------------------------------------------------------------------------------------------------------------


async def test_field_33_a_refund_from_the_dashboard_is_imported_once_and_counts(shop: Shop) -> None:
    intent = await shop.paid(5_000)
    await shop.ordered(intent, 5_000)
    made = await shop.control("POST", "/refunds", {"payment_intent": intent, "amount": 2_000})

    assert [await counted(shop, intent) for _ in range(3)] == [(1, 0, 1), (0, 0, 0), (0, 0, 0)]

    [entry] = await external_entries(shop, intent)
    assert (entry["actor"], entry["data"]["processor_refund"], entry["data"]["amount"]) == ("external", made["id"], 2_000)
    assert await recorded(shop, intent) == [(None, 2_000, "succeeded")]
    [found] = await shop.query("SELECT * FROM discrepancies WHERE processor_refund = :r", r=made["id"])
    assert (found["kind"], found["state"], found["owner_id"]) == ("external", "explained", None)

    refund_id = await shop.received(intent, 4_000)
    await shop.prepared(refund_id)
    assert await shop.ended(refund_id) == ("denied", "EXCEEDS_REFUNDABLE")
    [revision] = await shop.query("SELECT facts FROM revisions WHERE refund_id = :r", r=refund_id)
    assert revision["facts"]["payment"]["remaining"] == 3_000
    assert await shop.asked_and_made(intent) == (0, 1)


async def test_an_external_refund_that_fails_later_is_entered_again_and_free_again(shop: Shop) -> None:
    intent = await shop.paid()
    await shop.ordered(intent)
    made = await shop.control("POST", "/refunds", {"payment_intent": intent, "amount": 2_000})
    await observed(shop, intent)
    await shop.control("POST", f"/refunds/{made['id']}", {"status": "failed", "failure_reason": CARD_GONE})

    for _ in range(2):
        await observed(shop, intent)

    rows = await shop.query(
        "SELECT type FROM ledger WHERE data->>'processor_refund' = :r AND type LIKE 'external%' ORDER BY id", r=made["id"]
    )
    assert [row["type"] for row in rows] == ["external_refund", "external_refund_changed"]
    assert await shop.remaining(intent) == 10_000


async def test_field_33_a_reading_made_for_a_quote_imports_what_nobody_told_of(shop: Shop) -> None:
    intent = await shop.paid(5_000)
    await shop.ordered(intent, 5_000)
    await shop.control("POST", "/refunds", {"payment_intent": intent, "amount": 2_000})
    refund_id = await shop.received(intent, 4_000)

    for _ in range(2):
        step = Prepare(shop.steps, PaymentReader(shop.payments, shop.processor, shop.clock, observing(shop)))
        await ActivityEnvironment().run(step.prepare, StepInput(refund_id))
        await PaymentReader(shop.payments, shop.processor, shop.clock, observing(shop)).read(await payment_of(shop, intent))

    assert await shop.ended(refund_id) == ("denied", "EXCEEDS_REFUNDABLE")
    assert [entry["actor"] for entry in await external_entries(shop, intent)] == ["external"]


async def test_field_23_two_refunds_of_the_same_amount_are_told_apart_by_their_ids(shop: Shop) -> None:
    intent = await shop.paid()
    await shop.ordered(intent)
    made = [(await shop.control("POST", "/refunds", {"payment_intent": intent, "amount": 700}))["id"] for _ in range(2)]

    assert await counted(shop, intent) == (2, 0, 2)

    rows = await shop.query("SELECT id FROM processor_refunds WHERE id = ANY(:ids)", ids=made)
    assert len(rows) == 2
    assert len(await external_entries(shop, intent)) == 2


async def test_words_of_others_in_the_metadata_make_it_no_refund_of_ours(shop: Shop) -> None:
    intent = await shop.paid()
    await shop.ordered(intent)
    await shop.control("POST", "/refunds", {"payment_intent": intent, "amount": 700, "metadata": {"refunds_operation": "ticket 7"}})

    assert await counted(shop, intent) == (1, 0, 1)

    assert len(await external_entries(shop, intent)) == 1


FORGOTTEN = "op_06f2wq1s8h9k3m5n7p9r2t4v6x"


async def test_an_operation_the_database_has_forgotten_halts_everything(shop: Shop) -> None:
    intent = await shop.paid()
    await shop.ordered(intent)
    refund = {"payment_intent": intent, "amount": 700, "metadata": {"refunds_operation": FORGOTTEN}}
    made = await shop.control("POST", "/refunds", refund)

    try:
        assert [await counted(shop, intent) for _ in range(2)] == [(1, 0, 1), (0, 0, 0)]

        [found] = await shop.query("SELECT * FROM discrepancies WHERE processor_refund = :r", r=made["id"])
        assert (found["kind"], found["operation_id"], found["state"]) == ("unknown_operation", FORGOTTEN, "open")
        [halt] = await shop.query("SELECT code, opened_by FROM halts WHERE lifted_at IS NULL")
        assert (halt["code"], halt["opened_by"]) == ("DATABASE_FORGOT", None)
    finally:
        async with shop.owner.begin() as connection:
            await halts.lift(connection, shop.clock.now(), processor="stripe", reason="test", actor="test")

    await observed(shop, intent)
    assert await shop.query("SELECT id FROM halts WHERE lifted_at IS NULL") == [], "whoever lifted it has judged it"


async def test_two_refunds_of_one_operation_are_an_alarm_and_wait_for_a_person(shop: Shop) -> None:
    intent = await shop.paid()
    refund_id = await shop.approved(intent)
    await shop.submit(refund_id)
    [made] = await at_the_processor(shop, intent)
    again = await shop.control("POST", "/refunds", {"payment_intent": intent, "amount": 3_000, "metadata": made["metadata"]})

    assert [await counted(shop, intent) for _ in range(2)] == [(1, 1, 1), (0, 0, 0)]

    assert await shop.ended(refund_id) == ("parked", "REFUNDED_TWICE")
    assert (await told(shop, refund_id))[0].count("refunded_twice") == 1
    [found] = await shop.query("SELECT * FROM discrepancies WHERE processor_refund = :r", r=again["id"])
    assert (found["kind"], found["refund_id"]) == ("duplicate", refund_id)
    assert await shop.remaining(intent) == 4_000, "both count"

    settled = await shop.settled(refund_id, await shop.says(refund_id, "sam", "refunded", made["id"]))
    assert settled.status == "succeeded"
    await observed(shop, intent)
    assert await shop.ended(refund_id) == ("succeeded", None), "a person has judged it"


async def test_our_operation_on_another_payment_is_a_discrepancy_and_moves_neither(shop: Shop) -> None:
    intent, other = await shop.paid(), await shop.paid()
    await shop.ordered(other)
    refund_id = await shop.approved(intent)
    await shop.submit(refund_id)
    [made] = await at_the_processor(shop, intent)
    astray = await shop.control("POST", "/refunds", {"payment_intent": other, "amount": 3_000, "metadata": made["metadata"]})

    assert [await counted(shop, other) for _ in range(2)] == [(1, 0, 1), (0, 0, 0)]

    [found] = await shop.query("SELECT * FROM discrepancies WHERE processor_refund = :r", r=astray["id"])
    assert (found["kind"], found["refund_id"], found["payment_id"]) == ("payment", refund_id, await payment_of(shop, other))
    assert await shop.ended(refund_id) == ("succeeded", None)


async def test_many_observers_at_once_record_everything_once(shop: Shop) -> None:
    intent = await shop.paid()
    await shop.ordered(intent)
    for _ in range(3):
        await shop.control("POST", "/refunds", {"payment_intent": intent, "amount": 100})

    found = await asyncio.gather(*(observed(shop, intent) for _ in range(6)), return_exceptions=True)

    assert sum(one.imported for one in found if isinstance(one, Observed)) == 3
    assert len(await external_entries(shop, intent)) == 3


# --- disputes ------------------------------------------------------------------------------------------------------------------------------


async def waiting(shop: Shop, status: str) -> tuple[str, str]:
    """A refund in one of the statuses in which something is promised and nothing sent."""
    amount = {"awaiting_review": 20_000, "awaiting_consent": None}.get(status, 3_000)
    intent = await shop.paid(30_000 if amount else 3_000)
    refund_id = await shop.received(intent, amount)
    await shop.prepared(refund_id)
    if status == "held":
        await shop.stop()
        await shop.submit(refund_id)
        await shop.stop(stopped=False)
    row = await shop.row(refund_id)
    assert row["status"] == status, (row["status"], row["code"])
    return intent, refund_id


@pytest.mark.parametrize("status", ["awaiting_consent", "awaiting_review", "approved", "held"])
@pytest.mark.parametrize(
    ("dispute", "code"),
    [("needs_response", "PAYMENT_DISPUTED"), ("under_review", "PAYMENT_DISPUTED"), ("lost", "ALREADY_RETURNED")],
)
async def test_field_32_a_dispute_denies_what_was_not_sent(shop: Shop, status: str, dispute: str, code: str) -> None:
    intent, refund_id = await waiting(shop, status)
    await shop.control("POST", "/disputes", {"payment_intent": intent, "status": dispute})

    for _ in range(2):
        await observed(shop, intent)

    assert await shop.ended(refund_id) == ("denied", code)
    notices, signals = await told(shop, refund_id)
    assert (notices.count("disputed"), signals.count("payment_event")) == (1, 1)
    assert (await shop.submit(refund_id)).status == "denied"
    assert await shop.asked_and_made(intent) == (0, 0)


@pytest.mark.parametrize("status", ["awaiting_consent", "awaiting_review", "approved", "held"])
@pytest.mark.parametrize("dispute", ["won", "prevented", "warning_closed"])
async def test_field_32_a_dispute_that_is_over_changes_nothing(shop: Shop, status: str, dispute: str) -> None:
    intent, refund_id = await waiting(shop, status)
    await shop.control("POST", "/disputes", {"payment_intent": intent, "status": dispute})
    before = await shop.row(refund_id)

    await observed(shop, intent)

    assert await shop.row(refund_id) == before


async def test_field_32_an_inquiry_sends_what_is_approved_to_a_person(shop: Shop) -> None:
    intent, refund_id = await waiting(shop, "approved")
    await shop.control("POST", "/disputes", {"payment_intent": intent, "status": "warning_needs_response"})

    for _ in range(2):
        await observed(shop, intent)
    assert await shop.ended(refund_id) == ("held", "TERMS_EXPIRED")
    found = await shop.steps.resume_held(refund_id)

    assert found.status == "awaiting_review"
    await shop.agreed(refund_id)
    assert (await shop.submit(refund_id)).status == "succeeded", "a person has seen the inquiry and approved"
    await observed(shop, intent)
    assert await shop.ended(refund_id) == ("succeeded", None)


async def test_field_32_an_inquiry_is_told_to_whoever_reviews_and_blocks_terms_judged_without_it(shop: Shop) -> None:
    intent, refund_id = await waiting(shop, "awaiting_review")
    await shop.control("POST", "/disputes", {"payment_intent": intent, "status": "warning_under_review"})

    for _ in range(2):
        await observed(shop, intent)

    assert (await shop.row(refund_id))["status"] == "awaiting_review"
    assert "inquiry" in (await shop.row(refund_id))["detail"]
    assert (await shop.entries(refund_id)).count("dispute_noticed") == 1
    await shop.agreed(refund_id)
    assert (await shop.submit(refund_id)).status == "held"
    assert await shop.asked_and_made(intent) == (0, 0)


async def test_field_32_approved_at_ten_disputed_a_minute_later_and_submitted_after_that_nothing_is_sent(shop: Shop) -> None:
    intent, refund_id = await waiting(shop, "approved")
    await shop.control("POST", "/disputes", {"payment_intent": intent, "status": "needs_response"})

    held = await shop.submit(refund_id)
    found = await shop.steps.resume_held(refund_id)

    assert (held.status, held.code) == ("held", "TERMS_EXPIRED")
    assert (found.status, found.code) == ("denied", "PAYMENT_DISPUTED")
    assert await shop.asked_and_made(intent) == (0, 0)


async def test_what_is_being_submitted_is_not_denied_by_a_dispute(shop: Shop) -> None:
    intent = await shop.paid()
    refund_id = await shop.parked(intent)
    await shop.control("POST", "/disputes", {"payment_intent": intent, "status": "needs_response"})

    await observed(shop, intent)

    assert (await shop.row(refund_id))["status"] == "parked", "nobody knows whether it went out: only finding it says"
