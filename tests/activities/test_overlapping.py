"""Crashes, freezes and two workers at once: whatever overlaps, one refund and a right end (promises P1, P2; field reports 4, 11, 61)."""

import asyncio
import itertools
from datetime import timedelta
from typing import Any

import pytest
from temporalio.exceptions import ApplicationError

from tests.activities.shop import Crash, MakeShop, Shop, Tampered, all_of, crash, settings_for

FOR_EVER = None


async def both_clocks(shop: Shop, by: timedelta) -> None:
    """Time passes here and at the processor."""
    shop.clock.advance(by)
    await shop.control("POST", "/clock", {"advance_seconds": int(by.total_seconds())})


# --- the process ends somewhere ------------------------------------------------------------------------------------------------------------

POINTS: list[tuple[str, str, str]] = [
    ("payments", "after", "standing"),
    ("processor", "before", "read_payment"),
    ("processor", "after", "read_payment"),
    ("payments", "before", "open_attempt"),
    ("payments", "after", "open_attempt"),
    ("processor", "after", "refund"),
    ("payments", "before", "receipt"),
    ("payments", "after", "receipt"),
]


@pytest.mark.parametrize(("part", "when", "call"), POINTS)
async def test_a_crash_anywhere_leaves_one_refund_and_a_right_end(shop: Shop, part: str, when: str, call: str) -> None:
    intent = await shop.paid()
    refund_id = await shop.approved(intent)
    dying: dict[str, Any] = {part: Tampered(getattr(shop, part), **{when: {call: crash}})}
    with pytest.raises(Crash):
        await shop.submit(refund_id, step=shop.submitting(**dying))
    await shop.let_attempts_lapse(refund_id)

    found = await shop.submitted(refund_id)

    assert found.status == "succeeded"
    assert await shop.asked_and_made(intent) == (1, 1)
    assert (await shop.moves(refund_id)).count("succeeded") == 1
    assert await shop.remaining(intent) == 7_000


LOST_POINTS: list[tuple[str, str, str, str]] = [
    ("lose_answer", "payments", "before", "failed_attempt"),
    ("lose_answer", "payments", "after", "failed_attempt"),
    ("lose_answer", "processor", "before", "find"),
    ("lose_answer", "payments", "before", "receipt"),
    ("lose_request", "payments", "before", "failed_attempt"),
    ("lose_request", "processor", "after", "find"),
]


@pytest.mark.parametrize(("fault", "part", "when", "call"), LOST_POINTS)
async def test_a_crash_after_a_lost_answer(shop: Shop, fault: str, part: str, when: str, call: str) -> None:
    intent = await shop.paid()
    refund_id = await shop.approved(intent)
    await shop.fault("refund.create", {"kind": fault})
    dying: dict[str, Any] = {part: Tampered(getattr(shop, part), **{when: {call: crash}})}
    with pytest.raises(Crash):
        await shop.submit(refund_id, step=shop.submitting(**dying))
    await shop.let_attempts_lapse(refund_id)

    found = await shop.submitted(refund_id)

    assert found.status == "succeeded"
    assert (await shop.asked_and_made(intent)) == ((1, 1) if fault == "lose_answer" else (2, 1))
    truth = await shop.truth(intent)
    assert len({request["key"] for request in truth["create_requests"]}) == 1


async def test_crashes_at_every_point_one_after_the_other(shop: Shop) -> None:
    intent = await shop.paid()
    refund_id = await shop.approved(intent)
    for part, when, call in POINTS[:5]:
        dying: dict[str, Any] = {part: Tampered(getattr(shop, part), **{when: {call: crash}})}
        with pytest.raises(Crash):
            await shop.submit(refund_id, step=shop.submitting(**dying))
        await shop.let_attempts_lapse(refund_id)

    assert (await shop.submitted(refund_id)).status == "succeeded"
    assert await shop.asked_and_made(intent) == (1, 1)
    assert len(await shop.query("SELECT 1 FROM operations WHERE refund_id = :r", r=refund_id)) == 1


async def test_a_refund_that_our_database_forgot_is_seen_before_the_first_attempt(shop: Shop) -> None:
    """After a restore the attempts are gone and the refund is there: it is adopted and not made again."""
    intent = await shop.paid()
    refund_id = await shop.approved(intent)
    with pytest.raises(Crash):
        await shop.submit(refund_id, step=shop.submitting(payments=Tampered(shop.payments, before={"receipt": crash})))
    await shop.query_nothing("DELETE FROM attempts WHERE operation_id IN (SELECT id FROM operations WHERE refund_id = :r)", r=refund_id)

    assert (await shop.submit(refund_id)).status == "succeeded"
    assert await shop.asked_and_made(intent) == (1, 1)


# --- the safe window -----------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("fault", "end", "code"), [("lose_answer", "succeeded", None), ("lose_request", "parked", "OUTCOME_UNKNOWN")])
async def test_field_4_after_the_window_nothing_is_posted_again(shop: Shop, fault: str, end: str, code: str | None) -> None:
    """The attempt at t0 had no answer, the workers were away for 30 hours, and the processor has forgotten the key."""
    intent = await shop.paid()
    refund_id = await shop.approved(intent)
    await shop.fault("refund.create", {"kind": fault})
    with pytest.raises(Crash):
        await shop.submit(refund_id, step=shop.submitting(Tampered(shop.processor, before={"find": crash})))
    await both_clocks(shop, timedelta(hours=30))

    await shop.submit(refund_id)

    assert await shop.ended(refund_id) == (end, code)
    assert await shop.asked_and_made(intent) == (1, 1 if fault == "lose_answer" else 0)
    assert await shop.remaining(intent) == 7_000


async def test_field_4_a_refund_that_no_list_shows_is_parked_and_never_sent_again(shop: Shop) -> None:
    intent = await shop.paid()
    refund_id = await shop.approved(intent)
    await shop.fault("refund.create", {"kind": "lose_answer"}, {"kind": "hide"})
    with pytest.raises(ApplicationError):
        await shop.submit(refund_id)
    await both_clocks(shop, timedelta(hours=24, minutes=1))

    assert (await shop.submit(refund_id, attempt=2)).status == "parked"
    assert await shop.asked_and_made(intent) == (1, 1)


async def test_field_4_inside_the_window_the_same_key_is_repeated(shop: Shop) -> None:
    intent = await shop.paid()
    refund_id = await shop.approved(intent)
    await shop.fault("refund.create", {"kind": "lose_answer"}, {"kind": "hide"})
    with pytest.raises(ApplicationError):
        await shop.submit(refund_id)
    await both_clocks(shop, timedelta(hours=22))

    assert (await shop.submit(refund_id, attempt=2)).status == "succeeded"
    assert await shop.asked_and_made(intent) == (2, 1)


@pytest.mark.parametrize("where", ["find", "read_payment"])
async def test_field_4_a_worker_that_freezes_past_the_window_does_not_post(shop: Shop, where: str) -> None:
    """It looked, found nothing, was inside the window, and froze for two hours before it opened its attempt."""
    intent = await shop.paid(3_000)
    refund_id = await shop.approved(intent, amount=None)  # its terms hold for days, so only the window can be what stops it
    await shop.fault("refund.create", {"kind": "lose_answer"}, {"kind": "hide"})
    with pytest.raises(ApplicationError):
        await shop.submit(refund_id)
    await both_clocks(shop, timedelta(hours=22, minutes=30))

    async def freeze() -> None:
        await both_clocks(shop, timedelta(hours=2))

    frozen = shop.submitting(Tampered(shop.processor, after={where: freeze}))
    await all_of([shop.submit(refund_id, attempt=2, step=frozen)])
    await shop.submitted(refund_id)

    assert await shop.ended(refund_id) == ("parked", "OUTCOME_UNKNOWN")
    assert await shop.asked_and_made(intent) == (1, 1)


# --- two workers ---------------------------------------------------------------------------------------------------------------------------


async def test_eight_workers_at_once_make_one_request(make_shop: MakeShop) -> None:
    shop = await make_shop(database_lock_timeout_ms=5_000)
    intent = await shop.paid()
    refund_id = await shop.approved(intent)

    results = await all_of([shop.submit(refund_id, attempt=1) for _ in range(8)])

    assert [r for r in results if isinstance(r, BaseException) and not isinstance(r, ApplicationError)] == []
    assert (await shop.submitted(refund_id)).status == "succeeded"
    assert await shop.asked_and_made(intent) == (1, 1)
    assert await shop.outcomes(refund_id) == ["answered"]
    assert (await shop.moves(refund_id)).count("succeeded") == 1
    consumed = await shop.query(
        "SELECT decision_id FROM consumed_decisions c JOIN operations o ON o.id = c.operation_id WHERE refund_id = :r", r=refund_id
    )
    assert len(consumed) == 2, "the customer's consent and the policy's approval, each once"


async def test_field_11_a_frozen_first_attempt_and_the_second_converge(shop: Shop) -> None:
    """The first worker freezes between opening its attempt and sending; another one takes over; then the first thaws and sends, too."""
    intent = await shop.paid()
    refund_id = await shop.approved(intent)
    opened, thaw = asyncio.Event(), asyncio.Event()

    async def freeze() -> None:
        opened.set()
        await thaw.wait()

    first = asyncio.create_task(shop.submit(refund_id, step=shop.submitting(Tampered(shop.processor, before={"refund": freeze}))))
    await opened.wait()
    with pytest.raises(ApplicationError, match="attempt_in_flight"):
        await shop.submit(refund_id, attempt=2)
    await shop.let_attempts_lapse(refund_id)
    second = await shop.submit(refund_id, attempt=3)
    thaw.set()
    late = await first

    assert (second.status, late.status) == ("succeeded", "succeeded")
    assert await shop.asked_and_made(intent) == (2, 1)
    assert len({request["key"] for request in (await shop.truth(intent))["create_requests"]}) == 1
    assert (await shop.moves(refund_id)).count("succeeded") == 1
    assert (await shop.entries(refund_id)).count("attempt_opened") == 2
    assert (
        len(
            await shop.query("SELECT 1 FROM processor_refunds p JOIN operations o ON o.id = operation_id WHERE refund_id = :r", r=refund_id)
        )
        == 1
    )


async def test_field_11_a_late_refusal_undoes_nothing(shop: Shop) -> None:
    """The frozen worker's request is refused, because the other one's made the refund: the refund stays succeeded."""
    intent = await shop.paid(3_000)
    refund_id = await shop.approved(intent)
    opened, thaw = asyncio.Event(), asyncio.Event()

    async def freeze() -> None:
        opened.set()
        await thaw.wait()

    first = asyncio.create_task(shop.submit(refund_id, step=shop.submitting(Tampered(shop.processor, before={"refund": freeze}))))
    await opened.wait()
    await shop.let_attempts_lapse(refund_id)
    await shop.submit(refund_id, attempt=2)
    body = {"error": {"type": "invalid_request_error", "code": "charge_already_refunded", "message": "No."}}
    await shop.fault("refund.create", {"kind": "status", "status": 400, "body": body})
    thaw.set()
    await first

    assert (await shop.row(refund_id))["status"] == "succeeded"
    assert (await shop.asked_and_made(intent))[1] == 1


async def test_an_attempt_that_thaws_too_late_is_void(make_shop: MakeShop) -> None:
    """Past its send_by nothing of the frozen attempt leaves, so it is certain: it lapsed."""
    shop = await make_shop(submit_send_within_s=0.2)
    intent = await shop.paid()
    refund_id = await shop.approved(intent)

    async def freeze() -> None:
        await asyncio.sleep(0.25)  # longer than the attempt may take to leave: this is the freeze itself

    with pytest.raises(ApplicationError) as caught:
        await shop.submit(refund_id, step=shop.submitting(Tampered(shop.processor, before={"refund": freeze})))

    assert caught.value.type == "NotSent"
    assert await shop.asked_and_made(intent) == (0, 0)
    assert await shop.outcomes(refund_id) == ["lapsed"]
    usual = await make_shop()
    assert (await usual.submit(refund_id, attempt=2)).status == "succeeded"


async def test_a_worker_with_an_old_operation_never_sends_it(shop: Shop) -> None:
    """Frozen before its attempt while the refund was held, quoted again and approved anew: only the new terms may be sent."""
    intent = await shop.paid()
    refund_id = await shop.approved(intent)
    read, thaw = asyncio.Event(), asyncio.Event()

    async def freeze() -> None:
        read.set()
        await thaw.wait()

    first = asyncio.create_task(shop.submit(refund_id, step=shop.submitting(Tampered(shop.processor, after={"read_payment": freeze}))))
    await read.wait()
    await shop.stop()
    assert (await shop.submit(refund_id, attempt=2)).status == "held"
    await shop.stop(stopped=False)
    shop.clock.advance(timedelta(days=5))
    assert (await shop.steps.resume_held(refund_id)).needs == "read_payment"
    state = await shop.processor.read_payment(intent)
    assert state is not None
    [payment] = await shop.query("SELECT id FROM payments WHERE processor_payment = :p", p=intent)
    await shop.payments.save_snapshot(payment["id"], state)
    assert (await shop.steps.resume_held(refund_id)).revision == 2
    await shop.agreed(refund_id)
    thaw.set()
    [late] = await all_of([first])

    assert (late.status, late.refused) == ("approved", "ATTEMPT_OPEN")
    assert await shop.asked_and_made(intent) == (0, 0)
    assert (await shop.submit(refund_id, attempt=1)).status == "succeeded"
    truth = await shop.truth(intent)
    operation = (await shop.payments.standing(refund_id)).operation
    assert operation is not None
    assert [request["key"] for request in truth["create_requests"]] == [operation.request.idempotency_key]
    assert len(truth["refunds"]) == 1


@pytest.mark.parametrize("why", ["stop", "refundable", "dispute", "expiry"])
async def test_what_may_have_been_sent_is_never_held(shop: Shop, why: str) -> None:
    """A worker that began when nothing was sent meets, at its attempt, another worker's unknown attempt and a reason to hold.

    What does not fit any more is parked after looks in vain. A stop proves nothing and ends: it is looked for meanwhile, and sent again afterwards.
    """
    intent = await shop.paid()
    refund_id = await shop.approved(intent)

    async def another_worker_sends_and_hears_nothing() -> None:
        lost = [{"kind": "lose_request"}] if why == "refundable" else [{"kind": "lose_answer"}, {"kind": "hide"}]
        await shop.fault("refund.create", *lost)
        [result] = await all_of([shop.submit(refund_id, attempt=2)])
        assert isinstance(result, ApplicationError)
        if why == "stop":
            await shop.stop()
        elif why == "refundable":
            await shop.control("POST", "/refunds", {"payment_intent": intent, "amount": 8_000})
        elif why == "dispute":
            await shop.control("POST", "/disputes", {"payment_intent": intent, "status": "needs_response", "amount": 100})
        else:
            shop.clock.advance(timedelta(days=5))

    hooks = {"read_payment": another_worker_sends_and_hears_nothing}
    moment = {"before": hooks} if why in ("refundable", "dispute") else {"after": hooks}
    try:
        [result] = await all_of([shop.submit(refund_id, step=shop.submitting(Tampered(shop.processor, **moment)))])
        assert isinstance(result, ApplicationError)
        await shop.let_attempts_lapse(refund_id)
        if why == "stop":
            for tried in range(1, 2 * shop.settings.submit_max_attempts):
                with pytest.raises(ApplicationError, match="emergency_stop"):
                    await shop.submit(refund_id, attempt=tried)
            await shop.stop(stopped=False)
        await shop.submitted(refund_id)
    finally:
        await shop.stop(stopped=False)

    assert await shop.ended(refund_id) == (("succeeded", None) if why == "stop" else ("parked", "OUTCOME_UNKNOWN"))
    assert "held" not in await shop.moves(refund_id)
    assert len([r for r in (await shop.truth(intent))["refunds"] if r["metadata"]]) == (0 if why == "refundable" else 1)


# --- approvals -----------------------------------------------------------------------------------------------------------------------------


async def test_field_61_an_approval_is_spent_once(shop: Shop) -> None:
    """Retries of the operation need no new decision; after a definite failure nothing is ever sent again on the old one."""
    intent = await shop.paid(50_000)
    refund_id = await shop.approved(intent, 20_000)
    await shop.fault("refund.create", {"kind": "rate_limit"})
    with pytest.raises(ApplicationError, match="rate_limited"):
        await shop.submit(refund_id)
    body = {"error": {"type": "invalid_request_error", "message": "No."}}
    await shop.fault("refund.create", {"kind": "status", "status": 400, "body": body})
    assert (await shop.submit(refund_id, attempt=2)).status == "failed"

    for attempt in itertools.islice(itertools.count(3), 3):
        assert (await shop.submit(refund_id, attempt=attempt)).status == "failed"

    assert await shop.asked_and_made(intent) == (2, 0)
    spent = await shop.query(
        "SELECT d.kind FROM consumed_decisions c JOIN decisions d ON d.id = decision_id WHERE refund_id = :r", r=refund_id
    )
    assert sorted(row["kind"] for row in spent) == ["consent", "review"]


@pytest.mark.parametrize(
    "tampered",
    [
        "UPDATE revisions SET terms = jsonb_set(terms, '{amount}', '9000') WHERE refund_id = :r",
        "UPDATE revisions SET terms = jsonb_set(terms, '{processor_payment}', '\"pi_other\"') WHERE refund_id = :r",
        "UPDATE decisions SET terms_hash = repeat('0', 64) WHERE refund_id = :r AND kind = 'review'",
        "UPDATE decisions SET verdict = 'deny' WHERE refund_id = :r AND kind = 'review'",
    ],
)
async def test_nothing_is_sent_without_approvals_of_exactly_these_terms(shop: Shop, tampered: str) -> None:
    intent = await shop.paid(50_000)
    refund_id = await shop.approved(intent, 20_000)
    await shop.query_nothing(tampered, r=refund_id)

    with pytest.raises(RuntimeError):
        await shop.submit(refund_id)

    assert await shop.asked_and_made(intent) == (0, 0)
    assert await shop.query("SELECT 1 FROM operations WHERE refund_id = :r", r=refund_id) == []


async def test_nothing_is_sent_without_the_consent_that_was_asked_for(shop: Shop) -> None:
    intent = await shop.paid(3_000)
    refund_id = await shop.approved(intent, amount=None)
    await shop.query_nothing("UPDATE decisions SET terms_hash = repeat('0', 64) WHERE refund_id = :r AND kind = 'consent'", r=refund_id)

    with pytest.raises(RuntimeError):
        await shop.submit(refund_id)

    assert await shop.asked_and_made(intent) == (0, 0)


async def test_terms_approved_for_another_api_version_are_not_sent(shop: Shop) -> None:
    intent = await shop.paid()
    refund_id = await shop.approved(intent)
    deployed = type(shop.payments)(shop.payments.database, settings_for(shop.sandbox.url, stripe_api_version="2027-01-01.next"), "w")

    found = await shop.submit(refund_id, step=shop.submitting(payments=deployed))

    assert (found.status, found.code) == ("held", "TERMS_EXPIRED")
    assert await shop.asked_and_made(intent) == (0, 0)
