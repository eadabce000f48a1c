"""What keeps every refund back: a key that is not accepted, a processor that cannot be reached, a payment of which something came back different. Nothing fails
for it, nothing is sent meanwhile, and what was held goes on in its turn."""

from datetime import timedelta
from typing import Any

import pytest
from temporalio.exceptions import ApplicationError
from temporalio.testing import ActivityEnvironment

from activities.read_payment import PaymentReader
from refunds.errors import Code
from refunds.messages import StepInput
from store import halts, pacing
from store.situations import runbook_of, waits_for
from tests.activities.shop import Crash, MakeShop, Shop, Tampered, crash

FOR_EVER = None
REVOKED = {"kind": "status", "status": 401, "body": {"error": {"type": "invalid_request_error", "message": "Invalid API Key provided"}}}
FORBIDDEN = {"kind": "status", "status": 403, "body": {"error": {"type": "invalid_request_error", "message": "not permitted"}}}


async def notices(shop: Shop, kind: str) -> int:
    [row] = await shop.query("SELECT count(*) AS n FROM outbox WHERE kind = 'notice' AND body ->> 'kind' = :k", k=kind)
    return row["n"]


async def lift(shop: Shop) -> Any:
    async with shop.api.begin() as connection:
        return await halts.lift(connection, shop.clock.now(), processor="stripe", reason="repaired", actor=shop.people["rita"].principal_id)


# --- a key that is not accepted ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("fault", "code"), [(REVOKED, "KEY_REFUSED"), (FORBIDDEN, "KEY_NOT_PERMITTED")])
@pytest.mark.parametrize("on", ["refund.create", "payment_intent.retrieve"])
async def test_a_key_that_is_not_accepted_halts_everything_and_fails_nothing(shop: Shop, on: str, fault: dict[str, Any], code: str) -> None:
    intent, other = await shop.paid(), await shop.paid()
    first, second = await shop.approved(intent), await shop.approved(other)
    told = await notices(shop, "processor_halted")
    await shop.fault(on, fault, intent=intent)

    assert (await shop.submit(first)).status == "held"
    assert (await shop.submit(second)).status == "held", "the halt is everybody's"

    assert await shop.ended(first) == await shop.ended(second) == ("held", "PROCESSOR_HALTED")
    [halt] = await shop.query("SELECT code, opened_by FROM halts WHERE lifted_at IS NULL")
    assert halt == {"code": code, "opened_by": None}
    assert await notices(shop, "processor_halted") == told + 1
    assert (await shop.truth(other))["create_requests"] == []
    assert (await shop.steps.resume_held(first)).status == "held"

    assert (await lift(shop))["code"] == code
    for refund_id in (first, second):
        shop.clock.advance(timedelta(seconds=1))
        assert (await shop.steps.resume_held(refund_id)).status == "approved"
        assert (await shop.submit(refund_id)).status == "succeeded"
    assert len((await shop.truth(intent))["refunds"]) == len((await shop.truth(other))["refunds"]) == 1


async def test_a_revoked_key_concludes_nothing_about_what_may_have_been_sent(shop: Shop) -> None:
    """Unknown, then 401 for ever: it is neither parked nor failed nor held, it waits for the key; with the key it is found."""
    intent = await shop.paid()
    refund_id = await shop.approved(intent)
    await shop.fault("refund.create", {"kind": "lose_answer"}, intent=intent)

    async def revoke() -> None:
        await shop.fault("refund.list", REVOKED, times=FOR_EVER)

    with pytest.raises(ApplicationError):
        await shop.submit(refund_id, step=shop.submitting(Tampered(shop.processor, before={"find": revoke})))
    for tried in range(2, 2 * shop.settings.submit_max_attempts):
        with pytest.raises(ApplicationError):
            await shop.submit(refund_id, attempt=tried)
    assert (await shop.row(refund_id))["status"] == "submitting"
    await shop.control("DELETE", "/faults")

    assert (await shop.submit(refund_id)).status == "succeeded"
    assert await shop.asked_and_made(intent) == (1, 1)


# --- what may have been sent when a brake comes ----------------------------------------------------------------------------------------------


async def unknown(shop: Shop, fault: str = "lose_request") -> tuple[str, str]:
    """A refund of which an attempt had no answer and can have none any more, and its payment."""
    intent = await shop.paid()
    refund_id = await shop.approved(intent)
    await shop.fault("refund.create", {"kind": fault}, intent=intent)

    with pytest.raises((ApplicationError, Crash)):
        await shop.submit(refund_id, step=shop.submitting(Tampered(shop.processor, before={"find": crash})))
    await shop.let_attempts_lapse(refund_id)
    return intent, refund_id


async def braked(shop: Shop, brake: str, *, on: bool = True) -> None:
    if brake == "halt":
        await (shop.payments.halt(Code.HALTED_BY_OPERATOR, "a test") if on else lift(shop))
    else:
        await shop.stop(stopped=on and brake == "stop", mode="draft" if on and brake == "draft" else "live")


BRAKES = {"stop": "an operator has stopped all refunds", "draft": "the installation is in draft mode", "halt": "submitting is halted"}


@pytest.mark.parametrize("brake", sorted(BRAKES))
async def test_a_brake_parks_nothing_that_may_have_been_sent(shop: Shop, brake: str) -> None:
    """It is looked for as long as the brake lasts, says what it waits for and until when, and is sent again afterwards with the same key."""
    intent, refund_id = await unknown(shop)
    await braked(shop, brake)
    try:
        entries, delay = await shop.entries(refund_id), None
        for tried in range(2, 3 * shop.settings.submit_max_attempts):
            with pytest.raises(ApplicationError) as caught:
                await shop.submit(refund_id, attempt=tried)
            delay = caught.value.next_retry_delay
        row = await shop.row(refund_id)
    finally:
        await braked(shop, brake, on=False)

    assert row["status"] == "submitting"
    assert row["detail"].startswith(BRAKES[brake])
    assert "meanwhile it is looked for and not sent again; parked for a person at " in waits_for(row)
    assert delay is not None
    assert timedelta(seconds=30) <= delay <= timedelta(seconds=60), "no hot loop, and soon after the brake"
    assert await shop.entries(refund_id) == entries, "looking writes no history"
    [operation] = await shop.query("SELECT looks FROM operations WHERE refund_id = :r", r=refund_id)
    assert operation["looks"] == 0
    assert (await shop.submit(refund_id)).status == "succeeded"
    assert await shop.asked_and_made(intent) == (2, 1)
    assert (await shop.row(refund_id))["detail"] is None


@pytest.mark.parametrize("brake", sorted(BRAKES))
async def test_what_was_sent_is_adopted_while_a_brake_is_on(shop: Shop, brake: str) -> None:
    intent, refund_id = await unknown(shop, "lose_answer")
    await braked(shop, brake)
    try:
        assert (await shop.submit(refund_id, attempt=2)).status == "succeeded"
    finally:
        await braked(shop, brake, on=False)
    assert await shop.asked_and_made(intent) == (1, 1)


async def test_a_stop_that_outlasts_the_safe_window_leaves_it_to_a_person(shop: Shop) -> None:
    intent, refund_id = await unknown(shop)
    await shop.stop()
    try:
        with pytest.raises(ApplicationError, match="emergency_stop"):
            await shop.submit(refund_id, attempt=2)
        shop.clock.advance(timedelta(hours=23, minutes=1))
        assert (await shop.submit(refund_id, attempt=3)).status == "parked"
    finally:
        await shop.stop(stopped=False)
    assert await shop.asked_and_made(intent) == (1, 0)


async def test_a_key_that_is_refused_while_quoting_halts_as_well(shop: Shop) -> None:
    intent = await shop.paid()
    refund_id = await shop.received(intent)
    told = await notices(shop, "processor_halted")
    await shop.fault("payment_intent.retrieve", REVOKED, intent=intent)

    found = await shop.prepared(refund_id)

    assert (found.status, found.needs) == ("received", "read_payment"), "it is read again, with patience"
    await shop.fault("payment_intent.retrieve", REVOKED, intent=intent)
    reader = PaymentReader(shop.payments, shop.processor, shop.clock, shop.observing)
    with pytest.raises(ApplicationError, match="key_refused"):
        await ActivityEnvironment().run(reader.read_payment, StepInput(refund_id, message=found.payment))
    row = await shop.row(refund_id)
    assert (row["status"], row["code"], runbook_of(row)) == ("received", "PROCESSOR_HALTED", "docs/runbooks/received.md")
    assert waits_for(row).startswith("to be read and quoted: the processor does not accept our key (key_refused) until an operator")
    [halt] = await shop.query("SELECT code FROM halts WHERE lifted_at IS NULL")
    assert (halt["code"], await notices(shop, "processor_halted")) == ("KEY_REFUSED", told + 1)

    await shop.prepared(refund_id)  # with the right key
    row = await shop.row(refund_id)
    assert (row["status"], row["code"], row["detail"]) == ("approved", None, None)


async def test_a_processor_that_cannot_be_read_is_what_a_refund_says_it_waits_for(shop: Shop) -> None:
    intent = await shop.paid()
    refund_id = await shop.received(intent)
    [payment] = await shop.query("SELECT id FROM payments WHERE processor_payment = :p", p=intent)
    await shop.fault("payment_intent.retrieve", {"kind": "status", "status": 503}, intent=intent)
    reader = PaymentReader(shop.payments, shop.processor, shop.clock, shop.observing)
    with pytest.raises(ApplicationError, match="server_error"):
        await ActivityEnvironment().run(reader.read_payment, StepInput(refund_id, message=payment["id"]))
    row = await shop.row(refund_id)
    assert (row["code"], waits_for(row)) == (
        None,
        "to be read and quoted: the processor cannot be asked (server_error); it is tried again by itself, at most five minutes apart",
    )


async def test_a_halt_is_opened_once_and_lifted_once(shop: Shop) -> None:
    async with shop.owner.begin() as connection:
        opened = [
            await halts.open_halt(connection, shop.clock.now(), processor="stripe", code=Code.HALTED_BY_OPERATOR, reason="r", actor="pr_1")
            for _ in range(2)
        ]

    assert opened == [True, False]
    assert (await lift(shop))["lifted_reason"] == "repaired"
    assert await lift(shop) is None


async def test_the_payments_role_cannot_lift_what_it_has_halted(shop: Shop) -> None:
    await shop.payments.halt(Code.KEY_REFUSED, "a test")

    with pytest.raises(Exception, match="permission denied"):
        async with shop.payments.database.begin() as connection:
            await halts.lift(connection, shop.clock.now(), processor="stripe", reason="r", actor="pr_1")

    [halt] = await shop.query("SELECT count(*) AS n FROM halts WHERE lifted_at IS NULL")
    assert halt["n"] == 1


async def test_a_refund_of_ours_that_the_database_does_not_know_halts_everything(shop: Shop) -> None:
    """Yesterday's database: its operation is gone, and the refund stands at the processor. Another would be the second."""
    intent = await shop.paid()
    refund_id = await shop.approved(intent)
    forgotten = {"refunds_operation": "op_0000000000000000000000000f", "refunds_refund": refund_id}
    await shop.control("POST", "/refunds", {"payment_intent": intent, "amount": 3_000, "metadata": forgotten})

    found = await shop.submit(refund_id)

    assert (found.status, found.code) == ("held", "PROCESSOR_HALTED")
    [halt] = await shop.query("SELECT code FROM halts WHERE lifted_at IS NULL")
    assert halt["code"] == "DATABASE_FORGOT"
    assert (await shop.truth(intent))["create_requests"] == []


# --- a processor that cannot be reached ----------------------------------------------------------------------------------------------------


async def test_while_the_breaker_is_open_one_refund_probes_and_the_others_stay_held(shop: Shop) -> None:
    intents = [await shop.paid() for _ in range(3)]
    down, waiting, later = [await shop.approved(intent) for intent in intents]
    await shop.fault("payment_intent.retrieve", {"kind": "status", "status": 503}, times=shop.settings.submit_max_attempts)

    assert (await shop.submitted(down)).code == "PROCESSOR_UNREACHABLE"
    assert (await shop.submit(waiting)).code == "PROCESSOR_UNREACHABLE", "nobody tries it"
    estimate = (await shop.submit(waiting)).waits_for
    assert "tried again at" in estimate
    assert (await shop.truth(intents[1]))["create_requests"] == []

    shop.clock.advance(timedelta(seconds=shop.settings.held_recheck_s))
    assert (await shop.submit(later)).status == "succeeded", "the probe"
    for refund_id in (down, waiting):
        shop.clock.advance(timedelta(seconds=1))
        assert (await shop.steps.resume_held(refund_id)).status == "approved"
        assert (await shop.submit(refund_id)).status == "succeeded"
    assert [len((await shop.truth(intent))["refunds"]) for intent in intents] == [1, 1, 1]


async def test_the_breaker_is_probed_by_one_at_a_time(shop: Shop) -> None:
    now = shop.clock.now()
    async with shop.payments.database.begin() as connection:
        assert not await pacing.may_probe(connection, "stripe", now, again_s=60), "a closed breaker needs no probe"
        await pacing.trip(connection, "stripe", now, again_s=60)
        later = now + timedelta(seconds=60)
        probing = [await pacing.may_probe(connection, "stripe", at, again_s=60) for at in (now, later, later)]
        assert probing == [False, True, False]
        assert [await pacing.reset(connection, "stripe") for _ in range(2)] == [True, False]


async def test_what_was_held_is_let_go_one_after_the_other(make_shop: MakeShop) -> None:
    shop = await make_shop(held_release_per_s=2)
    await shop.stop()
    held = [await shop.approved() for _ in range(4)]
    assert {(await shop.submit(refund_id)).status for refund_id in held} == {"held"}
    await shop.stop(stopped=False)

    found = [await shop.steps.resume_held(refund_id) for refund_id in held]

    assert [f.status for f in found] == ["approved", "held", "held", "held"]
    turns = [(await shop.row(refund_id))["slot_at"] for refund_id in held[1:]]
    assert all("its turn comes at" in f.waits_for for f in found[1:])
    assert [f.wake_at for f in found[1:]] == turns
    assert turns == sorted(set(turns))
    assert (turns[2] - turns[0]).total_seconds() == 1.0, "two a second"
    again = await shop.steps.resume_held(held[1])
    assert (again.status, again.wake_at) == ("held", turns[0]), "asking again does not lose the turn"
    shop.clock.advance(timedelta(seconds=2))
    assert {(await shop.steps.resume_held(refund_id)).status for refund_id in held[1:]} == {"approved"}


# --- a payment of which something came back different --------------------------------------------------------------------------------------


async def test_field_29_an_answer_that_differs_holds_its_payment_until_a_person_has_settled_it(shop: Shop) -> None:
    intent = await shop.paid()
    first, second = await shop.approved(intent, 2_500), await shop.approved(intent, 1_000)
    await shop.fault("refund.create", {"kind": "alter", "fields": {"amount": 3_500}}, intent=intent)
    assert (await shop.submit(first)).code == "RESPONSE_MISMATCH"

    held = await shop.submit(second)

    assert (held.status, held.code) == ("held", "PAYMENT_HELD")
    assert first in held.waits_for
    shop.clock.advance(timedelta(seconds=shop.settings.held_recheck_s))
    assert (await shop.steps.resume_held(second)).status == "held"
    [made] = (await shop.truth(intent))["refunds"]
    assert (await shop.settled(first, await shop.says(first, "sam", "refunded", made["id"]))).status == "succeeded"
    assert (await shop.goes_on(second)).status == "approved"
    assert (await shop.submit(second)).status == "succeeded"
    assert [r["amount"] for r in (await shop.truth(intent))["refunds"]] == [3_500, 1_000]
