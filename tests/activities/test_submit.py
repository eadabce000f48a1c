"""Submitting against the real sandbox and the real database: one operation, at most one refund, and unknown is never guessed (promises P1, P2, P7)."""

from datetime import timedelta

import pytest
from temporalio.exceptions import ApplicationError

from tests.activities.shop import MakeShop, Shop

LOST = {"kind": "lose_request"}
FOR_EVER = None


async def test_an_approved_refund_is_sent_once_and_succeeds(shop: Shop) -> None:
    intent = await shop.paid()
    refund_id = await shop.approved(intent)

    found = await shop.submit(refund_id)

    assert found.status == "succeeded"
    truth = await shop.truth(intent)
    [request] = truth["create_requests"]
    [refund] = truth["refunds"]
    assert (refund["amount"], refund["currency"], refund["payment_intent"]) == (3_000, "usd", intent)
    assert request["made"] == refund["id"]
    [operation] = await shop.query("SELECT * FROM operations WHERE refund_id = :r", r=refund_id)
    assert request["key"] == operation["idempotency_key"]
    assert refund["metadata"] == {
        "refunds_operation": operation["id"],
        "refunds_refund": refund_id,
        "refunds_terms": operation["terms_hash"],
    }
    assert await shop.outcomes(refund_id) == ["answered"]
    assert await shop.remaining(intent) == 7_000


async def test_submitting_again_changes_nothing(shop: Shop) -> None:
    intent = await shop.paid()
    refund_id = await shop.approved(intent)
    first = await shop.submit(refund_id)

    again = await shop.submit(refund_id, attempt=2)

    assert (again.status, again.version) == (first.status, first.version)
    assert await shop.asked_and_made(intent) == (1, 1)


@pytest.mark.parametrize("status", ["received", "awaiting_review"])
async def test_what_is_not_approved_is_not_sent(shop: Shop, status: str) -> None:
    intent = await shop.paid(100_000)
    refund_id = await shop.received(intent, 20_000)
    if status != "received":
        await shop.prepared(refund_id)

    assert (await shop.submit(refund_id)).status == status
    assert await shop.asked_and_made(intent) == (0, 0)
    assert await shop.query("SELECT id FROM operations WHERE refund_id = :r", r=refund_id) == []


# --- answers that are lost ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "fault",
    [
        {"kind": "lose_answer"},
        {"kind": "malformed"},
        {"kind": "status", "status": 500, "after_work": True},
        {"kind": "status", "status": 502, "after_work": True},
        {"kind": "status", "status": 200, "body": {"object": "charge", "id": "ch_1"}, "after_work": True},
    ],
)
async def test_field_7_a_lost_answer_is_found_by_looking_it_up(shop: Shop, fault: dict[str, object]) -> None:
    intent = await shop.paid()
    refund_id = await shop.approved(intent)
    await shop.fault("refund.create", fault)

    found = await shop.submit(refund_id)

    assert found.status == "succeeded"
    assert await shop.asked_and_made(intent) == (1, 1)
    assert await shop.outcomes(refund_id) == ["answered"]
    entries = await shop.entries(refund_id)
    assert entries.count("adopted") == 1
    assert "receipt" not in entries
    [kept] = await shop.query(
        "SELECT * FROM processor_refunds p JOIN operations o ON o.id = p.operation_id WHERE refund_id = :r", r=refund_id
    )
    assert kept["raw_state"] == "succeeded"


async def test_field_7_a_read_timeout_is_found_by_looking_it_up(make_shop: MakeShop) -> None:
    shop = await make_shop(stripe_read_timeout_s=1)
    intent = await shop.paid()
    refund_id = await shop.approved(intent)
    await shop.fault("refund.create", {"kind": "hang", "ms": 60_000})

    found = await shop.submitted(refund_id)

    assert found.status == "succeeded"
    assert await shop.asked_and_made(intent) == (1, 1)


async def test_a_lost_request_is_repeated_with_the_same_key_and_bytes(shop: Shop) -> None:
    intent = await shop.paid()
    refund_id = await shop.approved(intent)
    await shop.fault("refund.create", LOST)

    with pytest.raises(ApplicationError) as caught:
        await shop.submit(refund_id)
    assert caught.value.type == "Unknown"
    assert (await shop.row(refund_id))["status"] == "submitting"
    assert await shop.remaining(intent) == 7_000, "unknown money stays reserved"
    found = await shop.submit(refund_id, attempt=2)

    assert found.status == "succeeded"
    truth = await shop.truth(intent)
    first, second = truth["create_requests"]
    assert (first["key"], first["params"]) == (second["key"], second["params"])
    assert len(truth["refunds"]) == 1
    # The first attempt is uncertain for ever: nobody saw what became of it.
    assert await shop.outcomes(refund_id) == ["unknown", "answered"]


@pytest.mark.parametrize("fault", [LOST, {"kind": "status", "status": 500}, {"kind": "status", "status": 503}, {"kind": "key_in_use"}])
async def test_no_answer_for_ever_is_parked_and_never_failed(shop: Shop, fault: dict[str, object]) -> None:
    intent = await shop.paid()
    refund_id = await shop.approved(intent)
    await shop.fault("refund.create", fault, times=FOR_EVER, intent=intent)

    found = await shop.submitted(refund_id)

    assert (found.status, found.code) == ("parked", "OUTCOME_UNKNOWN")
    assert (await shop.row(refund_id))["queue"] == "settle"
    assert await shop.outcomes(refund_id) == ["unknown"] * shop.settings.submit_max_attempts
    assert (await shop.asked_and_made(intent))[1] == 0
    assert await shop.remaining(intent) == 7_000, "parked money stays reserved"
    notices = await shop.query("SELECT body FROM outbox WHERE refund_id = :r AND kind = 'notice'", r=refund_id)
    assert [n["body"]["kind"] for n in notices] == ["parked"]


async def test_a_look_up_that_fails_concludes_nothing(shop: Shop) -> None:
    """The refund was made, the answer lost, and the list cannot be had, however often: that is no look in vain. With the list it is found."""
    intent = await shop.paid()
    refund_id = await shop.approved(intent)
    await shop.fault("refund.create", {"kind": "lose_answer"})
    # The state is read before the attempt, so that first list must come through.
    await shop.fault("refund.list", {"kind": "delay", "ms": 1})
    await shop.fault("refund.list", {"kind": "status", "status": 503}, times=FOR_EVER)
    for attempt in range(1, 2 * shop.settings.submit_max_attempts):
        with pytest.raises(ApplicationError):
            await shop.submit(refund_id, attempt=attempt)
        await shop.let_attempts_lapse(refund_id)

    row = await shop.row(refund_id)
    assert row["status"] == "submitting"
    assert row["detail"].startswith("the processor cannot be asked (server_error); parked for a person at ")
    assert await shop.asked_and_made(intent) == (1, 1)
    assert await shop.outcomes(refund_id) == ["unknown"]
    await shop.control("DELETE", "/faults")
    assert (await shop.submit(refund_id)).status == "succeeded"


async def test_what_cannot_be_looked_up_until_the_window_is_over_is_parked(shop: Shop) -> None:
    intent = await shop.paid()
    refund_id = await shop.approved(intent)
    await shop.fault("refund.create", {"kind": "lose_answer"})
    await shop.fault("refund.list", {"kind": "delay", "ms": 1})
    await shop.fault("refund.list", {"kind": "status", "status": 503}, times=FOR_EVER)
    with pytest.raises(ApplicationError):
        await shop.submit(refund_id)
    shop.clock.advance(timedelta(hours=23, minutes=1))

    assert (await shop.submit(refund_id, attempt=2)).status == "parked"
    row = await shop.row(refund_id)
    assert row["detail"] == "it could not be looked up (server_error), and the safe window is over"
    assert await shop.asked_and_made(intent) == (1, 1)


async def test_only_looks_that_had_to_find_it_count(shop: Shop) -> None:
    """The request was sent a moment ago and may still be under way: a list without it says nothing, and so it is not parked for that."""
    intent = await shop.paid()
    refund_id = await shop.approved(intent)
    await shop.fault("refund.create", {"kind": "lose_request"}, intent=intent)
    with pytest.raises(ApplicationError):
        await shop.submit(refund_id)
    await shop.control("POST", "/refunds", {"payment_intent": intent, "amount": 8_000})  # it does not fit any more, so it is not sent again
    for attempt in range(2, 2 * shop.settings.submit_max_attempts):
        with pytest.raises(ApplicationError, match="terms_expired"):
            await shop.submit(refund_id, attempt=attempt)
    await shop.let_attempts_lapse(refund_id)

    assert (await shop.submitted(refund_id)).status == "parked"
    [operation] = await shop.query("SELECT looks FROM operations WHERE refund_id = :r", r=refund_id)
    assert operation["looks"] == shop.settings.submit_max_attempts


# --- refusals ----------------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "error", "code"),
    [
        (400, {"code": "amount_too_large"}, "PROCESSOR_REFUSED"),
        (400, {"code": "charge_already_refunded"}, "ALREADY_REFUNDED"),
        (400, {"code": "charge_disputed"}, "PAYMENT_DISPUTED"),
        (402, {"code": "insufficient_funds", "type": "card_error"}, "PROCESSOR_REFUSED"),
        (404, {"code": "resource_missing"}, "PROCESSOR_REFUSED"),
    ],
)
async def test_field_7_a_definite_refusal_fails_and_releases_the_money(shop: Shop, status: int, error: dict[str, str], code: str) -> None:
    intent = await shop.paid()
    refund_id = await shop.approved(intent)
    body = {"error": {"type": "invalid_request_error", "message": "No."} | error}
    await shop.fault("refund.create", {"kind": "status", "status": status, "body": body})

    found = await shop.submit(refund_id)

    assert (found.status, found.code) == ("failed", code)
    assert await shop.outcomes(refund_id) == ["refused"]
    assert await shop.asked_and_made(intent) == (1, 0)
    assert await shop.remaining(intent) == 10_000


async def test_once_unknown_no_later_refusal_concludes_anything(shop: Shop) -> None:
    """The first request made the refund, hidden from lists; the second is told the payment was already refunded. It was: by us."""
    intent = await shop.paid(3_000)
    refund_id = await shop.approved(intent)
    await shop.fault("refund.create", {"kind": "lose_answer"}, {"kind": "hide"})
    refusal = {"error": {"type": "invalid_request_error", "code": "charge_already_refunded", "message": "Already refunded."}}
    await shop.fault("refund.create", {"kind": "status", "status": 400, "body": refusal}, times=FOR_EVER)

    found = await shop.submitted(refund_id)

    assert (found.status, found.code) == ("parked", "OUTCOME_UNKNOWN")
    assert await shop.outcomes(refund_id) == ["unknown", "refused", "refused", "refused"]
    assert len((await shop.truth(intent))["refunds"]) == 1


async def test_what_was_certainly_not_sent_is_held_and_never_failed(shop: Shop) -> None:
    intent = await shop.paid()
    refund_id = await shop.approved(intent)
    await shop.fault("refund.create", {"kind": "rate_limit"}, times=FOR_EVER, intent=intent)

    found = await shop.submitted(refund_id)

    assert (found.status, found.code) == ("held", "PROCESSOR_UNREACHABLE")
    assert "rate_limited" in (await shop.row(refund_id))["detail"]
    assert await shop.outcomes(refund_id) == ["not_sent"] * shop.settings.submit_max_attempts
    assert await shop.remaining(intent) == 7_000

    await shop.control("DELETE", "/faults")
    shop.clock.advance(timedelta(seconds=shop.settings.held_recheck_s))
    assert (await shop.steps.resume_held(refund_id)).status == "approved"
    assert (await shop.submit(refund_id)).status == "succeeded"
    truth = await shop.truth(intent)
    assert len(truth["refunds"]) == 1
    assert len({request["key"] for request in truth["create_requests"]}) == 1, "the same operation for ever"


async def test_a_processor_that_cannot_be_reached_holds_the_refund(make_shop: MakeShop) -> None:
    shop = await make_shop()
    refund_id = await shop.approved(await shop.paid())
    away = await make_shop(stripe_connect_timeout_s=1)
    from activities.processors.stripe import StripeProcessor
    from tests.activities.shop import settings_for

    nowhere = StripeProcessor(settings_for("http://127.0.0.1:1"), away.clock)
    try:
        found = await shop.submitted(refund_id, step=shop.submitting(nowhere))
    finally:
        await nowhere.close()

    assert (found.status, found.code) == ("held", "PROCESSOR_UNREACHABLE")
    assert await shop.outcomes(refund_id) == []


async def test_a_wait_the_processor_asks_for_is_passed_on(shop: Shop) -> None:
    refund_id = await shop.approved()
    await shop.fault("refund.create", {"kind": "rate_limit"})

    with pytest.raises(ApplicationError) as caught:
        await shop.submit(refund_id)

    assert caught.value.type == "NotSent"
    assert caught.value.next_retry_delay is not None
    assert timedelta(0) < caught.value.next_retry_delay <= timedelta(seconds=shop.settings.submit_retry_max_s)


@pytest.mark.parametrize("fault", [{"kind": "rate_limit", "lock_timeout": True}, {"kind": "key_in_use"}])
async def test_busy_answers_are_unknown_and_end_in_one_refund(shop: Shop, fault: dict[str, object]) -> None:
    intent = await shop.paid()
    refund_id = await shop.approved(intent)
    await shop.fault("refund.create", fault, times=2)

    assert (await shop.submitted(refund_id)).status == "succeeded"
    assert await shop.outcomes(refund_id) == ["unknown", "unknown", "answered"]
    assert await shop.asked_and_made(intent) == (3, 1)


# --- answers that do not fit ---------------------------------------------------------------------------------------------------------------


async def test_field_5_another_content_under_our_key_is_parked(shop: Shop) -> None:
    """Somebody used the key with other content: an earlier attempt exists. It is looked up, and no new key is ever made."""
    intent = await shop.paid()
    refund_id = await shop.approved(intent)
    body = {"error": {"type": "idempotency_error", "message": "Keys for idempotent requests can only be used with the same parameters."}}
    await shop.fault("refund.create", {"kind": "status", "status": 400, "body": body}, times=FOR_EVER, intent=intent)

    found = await shop.submit(refund_id)

    assert (found.status, found.code) == ("parked", "IDEMPOTENCY_CONFLICT")
    truth = await shop.truth(intent)
    assert len({request["key"] for request in truth["create_requests"]}) == 1
    assert await shop.remaining(intent) == 7_000


async def test_field_5_the_request_is_frozen_before_the_first_attempt(
    shop: Shop, make_shop: MakeShop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between two attempts a deploy changes how requests are written: the first bytes are sent again."""
    intent = await shop.paid()
    refund_id = await shop.approved(intent)
    await shop.fault("refund.create", LOST)
    with pytest.raises(ApplicationError):
        await shop.submit(refund_id)
    deployed = await make_shop()
    monkeypatch.setattr("store.operations.freeze", lambda *_: pytest.fail("a second request was written"))
    await deployed.query_nothing("UPDATE revisions SET terms = terms || '{\"amount\": 9999}' WHERE refund_id = :r", r=refund_id)

    assert (await deployed.submit(refund_id, attempt=2)).status == "succeeded"
    first, second = (await shop.truth(intent))["create_requests"]
    assert (first["key"], first["params"]) == (second["key"], second["params"])


@pytest.mark.parametrize("fields", [{"amount": 10_000}, {"amount": 2_999}])
async def test_field_29_an_answer_that_differs_is_parked_with_its_id(shop: Shop, fields: dict[str, object]) -> None:
    intent = await shop.paid()
    refund_id = await shop.approved(intent)
    await shop.fault("refund.create", {"kind": "alter", "fields": fields})

    found = await shop.submit(refund_id)

    assert (found.status, found.code) == ("parked", "RESPONSE_MISMATCH")
    [made] = (await shop.truth(intent))["refunds"]
    [kept] = await shop.query("SELECT * FROM processor_refunds WHERE id = :i", i=made["id"])
    assert kept["amount"] == fields["amount"]
    assert str(fields["amount"]) in (await shop.row(refund_id))["detail"]
    assert await shop.remaining(intent) == 10_000 - made["amount"]


@pytest.mark.parametrize("status", ["pending", "requires_action"])
async def test_field_16_an_accepted_refund_is_pending(shop: Shop, status: str) -> None:
    intent = await shop.paid(refund_outcome={"initial": status})
    refund_id = await shop.approved(intent)

    assert (await shop.submit(refund_id)).status == "pending"
    assert await shop.remaining(intent) == 7_000
    row = await shop.row(refund_id)
    assert row["wake_at"] is not None
    assert row["final_at"] is None


@pytest.mark.parametrize("status", ["failed", "canceled"])
async def test_field_16_a_refund_that_fails_at_once(shop: Shop, status: str) -> None:
    intent = await shop.paid(refund_outcome={"initial": status})
    refund_id = await shop.approved(intent)

    assert await shop.submit(refund_id) is not None
    assert await shop.ended(refund_id) == ("failed", "PROCESSOR_FAILED")
    assert await shop.remaining(intent) == 10_000


@pytest.mark.parametrize("status", ["something_new", None])
async def test_field_16_a_status_nobody_knows_is_parked_with_the_raw_value(shop: Shop, status: str | None) -> None:
    intent = await shop.paid()
    refund_id = await shop.approved(intent)
    await shop.fault("refund.create", {"kind": "alter", "fields": {"status": status}})

    assert await shop.submit(refund_id) is not None
    assert await shop.ended(refund_id) == ("parked", "STATUS_UNKNOWN")
    [kept] = await shop.query(
        "SELECT raw_state, state FROM processor_refunds p JOIN operations o ON o.id = p.operation_id WHERE refund_id = :r", r=refund_id
    )
    assert kept["state"] == "unknown"
    assert status is None or kept["raw_state"] == status
    assert await shop.remaining(intent) == 7_000


# --- keys --------------------------------------------------------------------------------------------------------------------------------


async def test_field_1_two_honest_equal_partial_refunds_are_two(shop: Shop) -> None:
    intent = await shop.paid()
    first = await shop.approved(intent)
    await shop.fault("refund.create", {"kind": "lose_answer"})
    await shop.submitted(first)
    await shop.submitted(first)
    assert await shop.asked_and_made(intent) == (1, 1)

    second = await shop.approved(intent)
    assert (await shop.submit(second)).status == "succeeded"

    truth = await shop.truth(intent)
    assert [refund["amount"] for refund in truth["refunds"]] == [3_000, 3_000]
    assert len({request["key"] for request in truth["create_requests"]}) == 2
    assert await shop.remaining(intent) == 4_000


async def test_field_3_refunds_and_releases_never_share_a_key(shop: Shop) -> None:
    refunded, authorised = await shop.paid(), await shop.paid(3_000, captured=0)
    for intent in (refunded, authorised):
        await shop.submit(await shop.approved(intent))

    [refund] = (await shop.truth(refunded))["create_requests"]
    [release] = (await shop.truth(authorised))["cancel_requests"]
    assert refund["key"].startswith("refunds-refund-test-op_")
    assert release["key"].startswith("refunds-release-test-op_")
