"""Settling a parked refund by hand: what a person says is checked live before it counts (promise P7)."""

import asyncio
from datetime import UTC, datetime, timedelta

import pytest
from temporalio.exceptions import ApplicationError

from refunds.errors import Code
from refunds.processor import CLOCKS_OF_A_PERSON, made_before
from tests.activities.shop import Crash, MakeShop, Shop, Tampered, all_of, crash


@pytest.fixture
async def shop(make_shop: MakeShop) -> Shop:
    """A shop that gives up soon, because what is parked is where these tests begin."""
    return await make_shop(submit_max_attempts=2)


async def parked_though_made(shop: Shop, intent: str) -> tuple[str, str]:
    """A refund that is parked because its answer was lost and no list shows it; returns it and the processor's id."""
    refund_id = await shop.approved(intent)
    await shop.fault("refund.create", {"kind": "lose_answer"}, {"kind": "hide"})
    await shop.fault("refund.create", {"kind": "lose_request"}, times=shop.settings.submit_max_attempts, intent=intent)
    assert (await shop.submitted(refund_id)).status == "parked"
    [made] = (await shop.truth(intent))["refunds"]
    return refund_id, made["id"]


async def refused(shop: Shop, refund_id: str, message: str, code: str) -> None:
    """The settlement is refused with that code, and the refund stays parked with its money reserved."""
    before = await shop.ended(refund_id)
    found = await shop.settled(refund_id, message)
    assert (found.status, found.refused) == ("parked", code)
    assert await shop.ended(refund_id) == before
    assert "instruction_refused" in await shop.entries(refund_id)


# --- refunded ------------------------------------------------------------------------------------------------------------------------------


async def test_refunded_counts_when_the_processor_shows_it(shop: Shop) -> None:
    intent = await shop.paid()
    refund_id, made = await parked_though_made(shop, intent)

    found = await shop.settled(refund_id, await shop.says(refund_id, "sam", "refunded", made))

    assert (found.status, found.refused) == ("succeeded", "")
    assert await shop.remaining(intent) == 7_000
    [entry] = await shop.query(
        "SELECT actor FROM ledger WHERE refund_id = :r AND type = 'status_changed' AND data->>'to' = 'succeeded'", r=refund_id
    )
    assert entry["actor"] == shop.people["sam"].principal_id


async def test_the_same_settlement_twice_has_the_same_answer(shop: Shop) -> None:
    """A signal and an update both deliver it, or the activity is repeated after its answer was lost."""
    intent = await shop.paid()
    refund_id, made = await parked_though_made(shop, intent)
    message = await shop.says(refund_id, "sam", "refunded", made)
    first = await shop.settled(refund_id, message)

    again = await shop.settled(refund_id, message)

    assert (again.status, again.refused) == (first.status, first.refused) == ("succeeded", "")
    assert (await shop.moves(refund_id)).count("succeeded") == 1
    assert (await shop.entries(refund_id)).count("adopted") == 1, "what the processor says of the refund that was named is entered"


async def test_a_refused_settlement_twice_has_the_same_answer(shop: Shop) -> None:
    refund_id = await shop.parked()
    message = await shop.says(refund_id, "sam", "refunded", "re_unknown")
    await refused(shop, refund_id, message, "SETTLEMENT_NOT_FOUND")

    assert (await shop.settled(refund_id, message)).refused == "SETTLEMENT_NOT_FOUND"
    assert (await shop.entries(refund_id)).count("instruction_refused") == 1


@pytest.mark.parametrize("named", ["re_unknown", "", "pi_1", "../accounts", "re_" + "x" * 300])
async def test_an_id_the_processor_does_not_know(shop: Shop, named: str) -> None:
    refund_id = await shop.parked()
    await refused(shop, refund_id, await shop.says(refund_id, "sam", "refunded", named), "SETTLEMENT_NOT_FOUND")


@pytest.mark.parametrize("amount", [2_999, 3_001])
async def test_a_refund_of_another_amount(shop: Shop, amount: int) -> None:
    intent = await shop.paid()
    refund_id = await shop.parked(intent)
    other = await shop.control("POST", "/refunds", {"payment_intent": intent, "amount": amount})
    await refused(shop, refund_id, await shop.says(refund_id, "sam", "refunded", other["id"]), "SETTLEMENT_MISMATCH")


async def test_a_refund_from_before_ours_was_sent(shop: Shop) -> None:
    """Somebody had made it at the processor for something else: it would be one payment for two."""
    intent = await shop.paid()
    older = await shop.control("POST", "/refunds", {"payment_intent": intent, "amount": 3_000})
    shop.clock.advance(timedelta(seconds=30))
    refund_id = await shop.parked(intent)

    await refused(shop, refund_id, await shop.says(refund_id, "sam", "refunded", older["id"]), "SETTLEMENT_MISMATCH")


async def test_a_refund_that_was_seen_before_ours_was_sent_whatever_the_clocks_say(shop: Shop) -> None:
    """A second before, the reading that ours was quoted by shows it."""
    intent = await shop.paid()
    older = await shop.control("POST", "/refunds", {"payment_intent": intent, "amount": 3_000})
    refund_id = await shop.parked(intent)
    [made] = await shop.query("SELECT created_at FROM operations WHERE refund_id = :r", r=refund_id)
    assert not made_before(datetime.fromtimestamp(older["created"], UTC), made["created_at"], CLOCKS_OF_A_PERSON), "as if at once"

    await refused(shop, refund_id, await shop.says(refund_id, "sam", "refunded", older["id"]), "SETTLEMENT_MISMATCH")


async def test_a_refund_of_another_payment(shop: Shop) -> None:
    refund_id = await shop.parked()
    other = await shop.control("POST", "/refunds", {"payment_intent": await shop.paid(), "amount": 3_000})
    await refused(shop, refund_id, await shop.says(refund_id, "sam", "refunded", other["id"]), "SETTLEMENT_MISMATCH")


async def test_another_refund_s_refund(shop: Shop) -> None:
    """The same payment and amount, but it is what became of another refund of ours."""
    intent = await shop.paid()
    other = await shop.approved(intent)
    await shop.submit(other)
    [made] = (await shop.truth(intent))["refunds"]
    refund_id = await shop.parked(intent)

    await refused(shop, refund_id, await shop.says(refund_id, "sam", "refunded", made["id"]), "SETTLEMENT_MISMATCH")


async def test_one_refund_made_past_us_settles_one_of_ours(shop: Shop) -> None:
    """Somebody made it good in the processor's dashboard. That stands for one parked refund, not for two."""
    intent = await shop.paid()
    first, second = await shop.parked(intent), await shop.parked(intent)
    by_hand = await shop.control("POST", "/refunds", {"payment_intent": intent, "amount": 3_000})

    assert (await shop.settled(first, await shop.says(first, "sam", "refunded", by_hand["id"]))).status == "succeeded"
    await refused(shop, second, await shop.says(second, "sam", "refunded", by_hand["id"]), "SETTLEMENT_MISMATCH")


@pytest.mark.parametrize(
    ("state", "status", "code"),
    [
        ("succeeded", "succeeded", None),
        ("pending", "pending", None),
        ("requires_action", "pending", None),
        ("failed", "failed", "PROCESSOR_FAILED"),
        ("canceled", "failed", "PROCESSOR_FAILED"),
    ],
)
async def test_the_state_of_the_refund_decides(shop: Shop, state: str, status: str, code: str | None) -> None:
    intent = await shop.paid()
    refund_id, made = await parked_though_made(shop, intent)
    await shop.fault("refund.retrieve", {"kind": "alter", "fields": {"status": state}})

    await shop.settled(refund_id, await shop.says(refund_id, "sam", "refunded", made))

    assert await shop.ended(refund_id) == (status, code)


async def test_a_state_nobody_knows_settles_nothing(shop: Shop) -> None:
    intent = await shop.paid()
    refund_id, made = await parked_though_made(shop, intent)
    await shop.fault("refund.retrieve", {"kind": "alter", "fields": {"status": "something_new"}})

    await refused(shop, refund_id, await shop.says(refund_id, "sam", "refunded", made), "STATUS_UNKNOWN")


async def test_a_difference_that_a_person_has_judged_counts(shop: Shop) -> None:
    """Field report 29: parked because more was returned than approved; the person settles it with that very refund."""
    intent = await shop.paid()
    refund_id = await shop.approved(intent)
    await shop.fault("refund.create", {"kind": "alter", "fields": {"amount": 4_000}})
    assert (await shop.submit(refund_id)).code == "RESPONSE_MISMATCH"
    [made] = (await shop.truth(intent))["refunds"]

    found = await shop.settled(refund_id, await shop.says(refund_id, "sam", "refunded", made["id"]))

    assert (found.status, found.refused) == ("succeeded", "")
    assert await shop.remaining(intent) == 6_000, "what really went out counts"


@pytest.mark.parametrize("amount", [3_000, 500])
async def test_a_difference_is_not_settled_with_another_refund(shop: Shop, amount: int) -> None:
    intent = await shop.paid()
    refund_id = await shop.approved(intent)
    await shop.fault("refund.create", {"kind": "alter", "fields": {"amount": 4_000}})
    await shop.submit(refund_id)
    other = await shop.control("POST", "/refunds", {"payment_intent": intent, "amount": amount})

    await refused(shop, refund_id, await shop.says(refund_id, "sam", "refunded", other["id"]), "SETTLEMENT_MISMATCH")


async def test_what_is_not_parked_any_more_is_not_settled(shop: Shop) -> None:
    intent = await shop.paid()
    refund_id, made = await parked_though_made(shop, intent)
    first, second = [await shop.says(refund_id, who, "refunded", made) for who in ("sam", "tess")]
    await shop.settled(refund_id, first)

    found = await shop.settled(refund_id, second)

    assert (found.status, found.refused) == ("succeeded", "NOT_PARKED")


async def test_a_processor_that_cannot_be_asked_settles_nothing(shop: Shop) -> None:
    refund_id = await shop.parked()
    message = await shop.says(refund_id, "sam", "refunded", "re_1")
    await shop.fault("refund.retrieve", {"kind": "status", "status": 503})

    with pytest.raises(ApplicationError) as caught:
        await shop.settled(refund_id, message)

    assert caught.value.type == "NotSent"
    assert await shop.ended(refund_id) == ("parked", "OUTCOME_UNKNOWN")


# --- not refunded --------------------------------------------------------------------------------------------------------------------------


async def test_not_refunded_needs_two_people(shop: Shop) -> None:
    intent = await shop.paid()
    refund_id = await shop.parked(intent)
    first = await shop.says(refund_id, "sam", "not_refunded")
    await refused(shop, refund_id, first, "SECOND_PERSON_REQUIRED")
    again = await shop.says(refund_id, "sam", "not_refunded")
    await refused(shop, refund_id, again, "SECOND_PERSON_REQUIRED")
    assert await shop.remaining(intent) == 7_000

    await shop.let_attempts_lapse(refund_id)
    found = await shop.settled(refund_id, await shop.says(refund_id, "tess", "not_refunded"))

    assert (found.status, found.code, found.refused) == ("failed", "SETTLED_NOT_REFUNDED", "")
    assert await shop.remaining(intent) == 10_000


async def test_a_request_that_nobody_has_heard_of_may_still_arrive(shop: Shop) -> None:
    """The connection broke after the bytes had left: the processor may work on for as long as any request may."""
    refund_id = await shop.parked()
    await shop.says(refund_id, "sam", "not_refunded")
    second = await shop.says(refund_id, "tess", "not_refunded")

    assert (await shop.settled(refund_id, second)).refused == "ATTEMPT_OPEN"
    await shop.let_attempts_lapse(refund_id)
    assert (await shop.settled(refund_id, second)).status == "failed"


async def test_an_attempt_that_may_still_be_under_way_is_waited_for(shop: Shop) -> None:
    """The worker died in its call: nobody knows whether the request is still on its way."""
    intent = await shop.paid()
    refund_id = await shop.approved(intent)
    with pytest.raises(Crash):
        await shop.submit(refund_id, step=shop.submitting(Tampered(shop.processor, before={"refund": crash})))
    operation = await shop.payments.operation_of(refund_id)
    assert operation is not None
    await shop.payments.park(operation, Code.OUTCOME_UNKNOWN, "test")
    await shop.says(refund_id, "sam", "not_refunded")
    second = await shop.says(refund_id, "tess", "not_refunded")

    found = await shop.settled(refund_id, second)
    assert (found.status, found.refused) == ("parked", "ATTEMPT_OPEN")
    await shop.let_attempts_lapse(refund_id)

    assert (await shop.settled(refund_id, second)).status == "failed", "said once, counted when it can"


async def test_two_people_against_the_processor_s_list_lose(shop: Shop) -> None:
    """Both say that nothing was refunded, and the list shows it: it is adopted."""
    intent = await shop.paid()
    refund_id, made = await parked_though_made(shop, intent)
    await shop.control("DELETE", "/faults")
    await shop.says(refund_id, "sam", "not_refunded")

    found = await shop.settled(refund_id, await shop.says(refund_id, "tess", "not_refunded"))

    assert (found.status, found.refused) == ("succeeded", "SETTLEMENT_CONTRADICTED")
    assert made in found.refused_detail
    assert await shop.remaining(intent) == 7_000


async def test_a_list_that_cannot_be_had_settles_nothing(shop: Shop) -> None:
    refund_id = await shop.parked()
    await shop.says(refund_id, "sam", "not_refunded")
    message = await shop.says(refund_id, "tess", "not_refunded")
    await shop.fault("refund.list", {"kind": "malformed"})

    with pytest.raises(ApplicationError):
        await shop.settled(refund_id, message)

    assert (await shop.row(refund_id))["status"] == "parked"


@pytest.mark.parametrize(("state", "status"), [("succeeded", "succeeded"), ("pending", "parked"), ("requires_action", "parked")])
async def test_money_that_turns_up_after_all_moves_even_a_failed_refund(shop: Shop, state: str, status: str) -> None:
    """Settled as not refunded; then the frozen worker thaws, and its request goes out with the old key. Pending money needs a person, too."""
    intent = await shop.paid(refund_outcome={"initial": state})
    refund_id = await shop.approved(intent)
    opened, thaw = asyncio.Event(), asyncio.Event()

    async def freeze() -> None:
        opened.set()
        await thaw.wait()

    sending = asyncio.create_task(shop.submit(refund_id, step=shop.submitting(Tampered(shop.processor, before={"refund": freeze}))))
    await opened.wait()
    await shop.let_attempts_lapse(refund_id)
    await shop.fault("refund.create", {"kind": "lose_request"}, times=shop.settings.submit_max_attempts - 1)
    for attempt in range(2, shop.settings.submit_max_attempts + 2):
        await all_of([shop.submit(refund_id, attempt=attempt)])
    assert (await shop.row(refund_id))["status"] == "parked"
    await shop.let_attempts_lapse(refund_id)
    await shop.says(refund_id, "sam", "not_refunded")
    await shop.settled(refund_id, await shop.says(refund_id, "tess", "not_refunded"))
    assert (await shop.row(refund_id))["status"] == "failed"
    thaw.set()
    await sending

    assert await shop.moves(refund_id) == ["classified", "approved", "submitting", "parked", "failed", status]
    assert await shop.remaining(intent) == 7_000


# --- releases ------------------------------------------------------------------------------------------------------------------------------


async def parked_release(shop: Shop, fault: str) -> tuple[str, str]:
    """The release of an authorisation that nobody knows the end of; ``lose_answer`` means that it was cancelled."""
    intent = await shop.paid(3_000, captured=0)
    refund_id = await shop.approved(intent, amount=None)
    await shop.fault("payment_intent.cancel", {"kind": fault})
    await shop.fault("payment_intent.cancel", {"kind": "lose_request"}, times=shop.settings.submit_max_attempts)
    fields = {"status": "requires_capture", "amount_capturable": 3_000}
    await shop.control(
        "POST",
        "/faults",
        {
            "on": "payment_intent.retrieve",
            "times": None,
            "match": {"payment_intent": intent},
            "fault": {"kind": "alter", "fields": fields},
        },
    )
    assert (await shop.submitted(refund_id)).status == "parked"
    await shop.control("DELETE", "/faults")
    return refund_id, intent


async def test_a_release_that_happened_is_settled_as_done(shop: Shop) -> None:
    refund_id, _ = await parked_release(shop, "lose_answer")

    found = await shop.settled(refund_id, await shop.says(refund_id, "sam", "refunded", "pi_whatever"))

    assert (found.status, found.refused) == ("released", "")


async def test_a_release_that_did_not_happen_is_not_settled_as_done(shop: Shop) -> None:
    refund_id, _ = await parked_release(shop, "lose_request")

    await refused(shop, refund_id, await shop.says(refund_id, "sam", "refunded", "pi_whatever"), "SETTLEMENT_MISMATCH")


async def test_two_people_cannot_deny_a_release_that_happened(shop: Shop) -> None:
    refund_id, _ = await parked_release(shop, "lose_answer")
    await shop.says(refund_id, "sam", "not_refunded")

    found = await shop.settled(refund_id, await shop.says(refund_id, "tess", "not_refunded"))

    assert (found.status, found.refused) == ("released", "SETTLEMENT_CONTRADICTED")


async def test_a_release_that_did_not_happen_is_settled_by_two(shop: Shop) -> None:
    refund_id, intent = await parked_release(shop, "lose_request")
    await shop.let_attempts_lapse(refund_id)
    await shop.says(refund_id, "sam", "not_refunded")

    found = await shop.settled(refund_id, await shop.says(refund_id, "tess", "not_refunded"))

    assert (found.status, found.code) == ("failed", "SETTLED_NOT_REFUNDED")
    assert {request["made"] for request in (await shop.truth(intent))["cancel_requests"]} == {None}


# --- messages --------------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("message", ["ins_00000000000000000000000000", "", "nonsense", "another refund's", "a withdrawal"])
async def test_a_settlement_that_nothing_recorded_backs_changes_nothing(shop: Shop, message: str) -> None:
    intent = await shop.paid()
    refund_id, made = await parked_though_made(shop, intent)
    if message == "another refund's":
        other = await shop.parked()
        message = await shop.says(other, "sam", "refunded", made)
    elif message == "a withdrawal":
        message = await shop.says(refund_id, "sam", "refunded", made)
        await shop.query_nothing("UPDATE instructions SET kind = 'withdraw' WHERE id = :i", i=message)

    found = await shop.settled(refund_id, message)

    assert (found.status, found.refused) == ("parked", "MESSAGE_UNBACKED")
    assert await shop.ended(refund_id) == ("parked", "OUTCOME_UNKNOWN")
    assert "message_refused" in await shop.entries(refund_id)
