"""Manual payments: quoted, approved and reserved like any other, never asked of a processor, handed to a person, and settled by one."""

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import pytest
from pydantic import ValidationError

from refunds.errors import Code, RefundError
from refunds.messages import Situation
from refunds.orders import Order, Tender
from refunds.people import Actor, PrincipalKind, Role
from refunds.requests import Ticket
from refunds.status import RESERVING, Status
from store import controls, decisions, orders, restoring
from store.importing import import_orders
from store.reconciling import Reconciling
from store.settling import Settling
from tests.store.world import World

CARD = {"processor": "manual", "tender": "gift_card", "id": "card-4711", "amount": 9_000, "currency": "USD"}


async def gift_card(world: World, **changed: Any) -> None:
    """An order that was paid with a gift card alone."""
    await world.order(amounts=(), payments=[CARD | changed])


def handing(world: World) -> Settling:
    return Settling(world.payments, world.settings, "test-worker")


async def approved(world: World, **fields: Any) -> str:
    """A refund of the order that was approved, by a reviewer where the policy asks for one."""
    refund_id, quoted = await world.quoted(**fields)
    if quoted.status == Status.AWAITING_REVIEW:
        await world.decide(refund_id, world.ann)
    assert world.row(refund_id)["status"] == Status.APPROVED
    return refund_id


async def parked(world: World, **fields: Any) -> str:
    """A manual part that waits for whoever gives it back."""
    refund_id = await approved(world, **fields)
    assert (await handing(world).hand_over(refund_id)).status == Status.PARKED
    return refund_id


async def settler(world: World, handle: str = "sven") -> Actor:
    return await world.actor(handle, PrincipalKind.PERSON, Role.SETTLER)


async def says(world: World, refund_id: str, actor: Actor, outcome: str = "refunded", named: str | None = None) -> str:
    """Record what a person says, and return its id."""
    async with world.api.begin() as connection:
        recorded = await decisions.record_settlement(
            connection, world.clock, refund_id=refund_id, actor=actor, outcome=outcome, processor_refund_id=named
        )
    return recorded.id


async def hear(world: World, refund_id: str, said: str) -> Situation:
    """Let what was recorded count, as the payments role does."""
    settling = handing(world)
    instruction, operation = await settling.instruction(refund_id, said), await settling.operation_of(refund_id)
    assert instruction is not None
    assert operation is not None
    if instruction["body"]["outcome"] == "refunded":
        return await settling.settle_by_hand(operation, instruction)
    return await settling.settle_not_refunded(operation, instruction, None)


async def settle(world: World, refund_id: str, actor: Actor, outcome: str = "refunded", named: str | None = None) -> Situation:
    """Record what a person says, and let it count."""
    return await hear(world, refund_id, await says(world, refund_id, actor, outcome, named))


def terms_of(world: World, refund_id: str) -> Mapping[str, Any]:
    return world.rows("SELECT terms FROM revisions WHERE refund_id = %s ORDER BY revision DESC LIMIT 1", refund_id)[0]["terms"]


def notices(world: World, refund_id: str) -> list[Mapping[str, Any]]:
    rows = world.rows("SELECT body FROM outbox WHERE kind = 'notice' AND refund_id = %s ORDER BY id", refund_id)
    return [row["body"] for row in rows]


async def test_field_48_an_order_paid_by_gift_card_alone_ends_parked_for_a_person(world: World) -> None:
    await gift_card(world, amount=20_000)
    refund_id, quoted = await world.quoted(amount=15_000)

    terms = terms_of(world, refund_id)
    assert (quoted.status, quoted.needs) == (Status.AWAITING_REVIEW, "")
    assert {name: terms[name] for name in ("operation", "processor", "processor_account", "destination", "amount", "processor_reason")} == {
        "operation": "manual",
        "processor": "manual",
        "processor_account": "manual",
        "destination": "gift_card",
        "amount": 15_000,
        "processor_reason": None,
    }
    assert terms["processor_payment"] == world.row(refund_id)["payment_id"], "a card's number is nothing for terms"

    await world.decide(refund_id, world.ann)
    handed = await handing(world).hand_over(refund_id)

    assert (handed.status, handed.code, handed.queue) == (Status.PARKED, Code.MANUAL_PART, "settle")
    assert handed.runbook == "docs/runbooks/manual.md"
    assert handed.waits_for == "a person to give $150.00 back on the gift card and say so: nothing was sent, and nothing will be"
    assert [n["kind"] for n in notices(world, refund_id)].count("manual_part") == 1
    assert (world.count("operations"), world.count("attempts"), world.count("processor_refunds")) == (1, 0, 0)
    assert world.rows("SELECT kind, settled_at FROM operations") == [{"kind": "manual", "settled_at": None}]
    assert world.count("consumed_decisions") == 2, "the consent and the review"


async def test_nothing_is_ever_read_or_kept_of_a_manual_payment(world: World) -> None:
    await gift_card(world)
    refund_id = await world.accept(world.request(amount=2_000))
    assert await world.steps.payment_to_read(refund_id) is None

    quoted = await world.steps.prepare(refund_id)

    assert (quoted.status, quoted.needs) == (Status.APPROVED, "")
    assert world.count("payment_snapshots") == 0


@pytest.mark.parametrize("tender", Tender)
async def test_what_a_person_must_do_says_how_it_was_paid(world: World, tender: Tender) -> None:
    await gift_card(world, tender=tender.value)
    refund_id = await parked(world, amount=1_250)
    assert world.row(refund_id)["detail"] == f"give $12.50 back {tender.how}"


async def test_handing_over_again_changes_nothing(world: World) -> None:
    await gift_card(world)
    refund_id = await parked(world, amount=2_000)
    before = world.row(refund_id), world.count("operations"), len(world.ledger(refund_id))

    again = await handing(world).hand_over(refund_id)

    assert again.status == Status.PARKED
    assert (world.row(refund_id), world.count("operations"), len(world.ledger(refund_id))) == before


async def test_what_is_parked_and_what_was_given_back_is_not_refundable_again(world: World) -> None:
    await gift_card(world)
    first = await parked(world, amount=7_000)
    beyond, denied = await world.quoted(amount=2_001)
    assert (denied.status, denied.code) == (Status.DENIED, Code.EXCEEDS_REFUNDABLE)

    assert (await settle(world, first, await settler(world))).status == Status.SUCCEEDED

    beyond, denied = await world.quoted(amount=2_001)
    assert (world.row(beyond)["status"], denied.code) == (Status.DENIED, Code.EXCEEDS_REFUNDABLE)
    assert (await world.quoted(amount=2_000))[1].status in RESERVING


async def test_two_persons_say_that_nothing_was_given_back_and_then_it_can_be_asked_for_again(world: World) -> None:
    await gift_card(world)
    refund_id = await parked(world, amount=9_000)
    sven, sara = await settler(world), await settler(world, "sara")

    alone = await settle(world, refund_id, sven, "not_refunded")
    assert (alone.status, alone.refused) == (Status.PARKED, Code.SECOND_PERSON_REQUIRED)
    both = await settle(world, refund_id, sara, "not_refunded")

    assert (both.status, both.code) == (Status.FAILED, Code.SETTLED_NOT_REFUNDED)
    assert (await world.quoted(amount=9_000))[1].status in RESERVING


async def test_nobody_can_say_that_nothing_was_given_back_once_somebody_said_that_they_gave_it(world: World) -> None:
    await gift_card(world)
    refund_id = await parked(world, amount=9_000)
    sven, sara = await settler(world), await settler(world, "sara")
    given = await says(world, refund_id, sven)

    for somebody in (sven, sara):
        with pytest.raises(RefundError) as raised:
            await says(world, refund_id, somebody, "not_refunded")
        assert (raised.value.code, raised.value.detail) == (Code.SETTLEMENT_CONTRADICTED, "sven has said that it was given back.")
    assert world.count("instructions") == 1
    assert (await hear(world, refund_id, given)).status == Status.SUCCEEDED


async def test_that_it_was_given_back_counts_in_whatever_order_it_is_heard(world: World) -> None:
    await gift_card(world)
    refund_id = await parked(world, amount=9_000)
    sven, sara = await settler(world), await settler(world, "sara")
    await says(world, refund_id, sven, "not_refunded")
    both = await says(world, refund_id, sara, "not_refunded")
    given = await says(world, refund_id, sven)

    first = await hear(world, refund_id, both)

    assert (first.status, first.refused, first.refused_detail) == (
        Status.PARKED,
        Code.SETTLEMENT_CONTRADICTED,
        f"{sven.principal_id} gave it back",
    )
    assert (await hear(world, refund_id, given)).status == Status.SUCCEEDED
    assert (await hear(world, refund_id, both)).status == Status.SUCCEEDED, "heard twice, refused once"
    assert (await world.quoted(amount=9_000))[1].code == Code.ALREADY_REFUNDED


async def test_whoever_asked_for_a_manual_part_cannot_settle_it(world: World) -> None:
    await gift_card(world)
    uma = await world.actor("uma", PrincipalKind.PERSON, Role.REQUESTER, Role.SETTLER)
    named = await world.actor("named", PrincipalKind.PERSON, Role.SETTLER)
    own = await world.accept(world.request(amount=2_000, requested_by="named"), actor=uma)
    await world.steps.prepare(own)
    await handing(world).hand_over(own)

    for somebody in (uma, named):
        with pytest.raises(RefundError) as raised:
            await settle(world, own, somebody)
        assert raised.value.code is Code.SELF_APPROVAL
    assert world.count("instructions") == 0
    assert (await settle(world, own, await settler(world))).status == Status.SUCCEEDED


async def test_a_manual_part_has_no_refund_at_a_processor_to_name(world: World) -> None:
    await gift_card(world)
    refund_id = await parked(world, amount=2_000)
    with pytest.raises(RefundError) as raised:
        await settle(world, refund_id, await settler(world), named="re_1")
    assert (raised.value.code, raised.value.field) == (Code.INVALID_FIELD, "processor_refund_id")


async def test_a_stop_keeps_people_from_being_told_to_pay_and_what_is_held_goes_on_in_its_turn(world: World) -> None:
    await gift_card(world)
    refund_id = await approved(world, amount=2_000)
    world.execute("UPDATE controls SET stopped = true, reason = 'test'")

    held = await handing(world).hand_over(refund_id)

    assert (held.status, held.code) == (Status.HELD, Code.EMERGENCY_STOP)
    assert world.count("operations") == 0
    world.execute("UPDATE controls SET stopped = false, reason = 'test'")
    world.clock.advance(minutes=1)
    resumed = await world.steps.resume_held(refund_id)
    if resumed.status == Status.HELD:
        world.clock.advance(minutes=1)
        resumed = await world.steps.resume_held(refund_id)
    assert resumed.status == Status.APPROVED
    assert (await handing(world).hand_over(refund_id)).status == Status.PARKED
    assert world.count("operations") == 1


async def test_a_halted_processor_does_not_keep_a_gift_card_back(world: World) -> None:
    await gift_card(world)
    refund_id = await approved(world, amount=2_000)
    await world.submitting.halt(Code.KEY_REFUSED, "the key is wrong")
    assert (await handing(world).hand_over(refund_id)).status == Status.PARKED


@pytest.mark.parametrize("halted_already", [False, True])
async def test_nobody_is_told_to_give_back_what_a_restored_database_may_have_forgotten(world: World, halted_already: bool) -> None:
    await gift_card(world)
    refund_id = await approved(world, amount=2_000)
    if halted_already:
        await world.submitting.halt(Code.KEY_REFUSED, "the key is wrong")
        world.clock.advance(minutes=1)
    async with world.payments.begin() as connection:
        await restoring.doubted(connection, world.clock.now(), processor="stripe", reason="restored to yesterday")

    held = await handing(world).hand_over(refund_id)
    world.clock.advance(minutes=1)
    still = await world.steps.resume_held(refund_id)

    assert (held.status, held.code, still.status) == (Status.HELD, Code.PROCESSOR_HALTED, Status.HELD)
    assert world.count("operations") == 0
    world.execute("UPDATE halts SET lifted_at = now(), lifted_by = 'test', lifted_reason = 'compared'")
    for _ in range(2):  # the first gives it its turn
        world.clock.advance(minutes=1)
        await world.steps.resume_held(refund_id)
    assert (await handing(world).hand_over(refund_id)).status == Status.PARKED


async def put(world: World, *payments: Mapping[str, Any]) -> None:
    """Another version of the order, which names these payments."""
    await world.order(amounts=(), payments=list(payments))


OTHER_CARD = CARD | {"id": "card-4712", "amount": 500}


async def test_what_was_recorded_by_mistake_is_corrected_by_naming_it_no_more(world: World) -> None:
    await put(world, CARD, OTHER_CARD)
    await put(world, OTHER_CARD)

    _, one_left = await world.quoted(amount=500)
    _, denied = await world.quoted(payment_id=CARD["id"], amount=2_000)

    assert one_left.status == Status.APPROVED, "the order has one payment, so none has to be named"
    assert (denied.status, denied.code) == (Status.DENIED, Code.PAYMENT_CANCELED)
    await put(world, CARD, OTHER_CARD)
    assert (await world.quoted(payment_id=CARD["id"], amount=9_000))[1].status in RESERVING


async def test_what_was_recorded_by_mistake_is_no_second_payment_for_lines_or_tickets(world: World) -> None:
    lines = [{"id": "mug", "amount": 500}]
    await world.order(amounts=(), payments=[CARD, OTHER_CARD], lines=lines)
    ticket = await world.accept(Ticket(customer_id="customer-1", order_id="order-1", message="Money back please."))
    await world.order(amounts=(), payments=[OTHER_CARD], lines=lines)

    _, by_line = await world.quoted(amount=None, currency=None, lines=[{"id": "mug", "quantity": 1}])

    await world.steps.prepare(ticket, unread=True)
    assert (by_line.status, by_line.amount) == (Status.AWAITING_CONSENT, 500)
    assert world.row(ticket)["payment_id"] == world.row(by_line.refund)["payment_id"]


async def test_an_order_that_names_none_of_its_manual_payments_has_none(world: World) -> None:
    await gift_card(world)
    await put(world)
    with pytest.raises(RefundError) as raised:
        await world.quoted(amount=500)
    assert raised.value.code is Code.PAYMENT_NOT_FOUND


async def test_a_payment_at_the_processor_stays_what_its_reading_says_whatever_the_order_names(world: World) -> None:
    await world.ready(9_000)
    await put(world)
    assert (await world.quoted(amount=2_000))[1].status in RESERVING


async def test_what_was_taken_off_the_order_is_noticed_before_anybody_is_told_to_pay(world: World) -> None:
    await put(world, CARD, OTHER_CARD)
    refund_id = await approved(world, payment_id=CARD["id"], amount=2_000)
    await put(world, OTHER_CARD)

    held = await handing(world).hand_over(refund_id)
    judged = await world.steps.resume_held(refund_id)

    assert (held.status, held.code) == (Status.HELD, Code.TERMS_EXPIRED)
    assert (judged.status, judged.code) == (Status.DENIED, Code.PAYMENT_CANCELED)


async def test_a_smaller_recorded_amount_is_noticed_before_anybody_is_told_to_pay(world: World) -> None:
    await gift_card(world)
    refund_id = await approved(world, amount=2_000)
    await world.order(amounts=(), payments=[CARD | {"amount": 1_500}])

    held = await handing(world).hand_over(refund_id)

    assert (held.status, held.code) == (Status.HELD, Code.TERMS_EXPIRED)
    assert "only $15.00 is still refundable" in str(world.row(refund_id)["detail"])
    judged = await world.steps.resume_held(refund_id)
    assert (judged.status, judged.code) == (Status.DENIED, Code.EXCEEDS_REFUNDABLE)


async def test_the_tender_of_a_payment_never_changes(world: World) -> None:
    await gift_card(world)
    with pytest.raises(RefundError) as raised:
        await gift_card(world, tender="cash")
    assert (raised.value.code, raised.value.field) == (Code.ORDER_CONFLICT, "payments.0.tender")


async def test_an_order_shows_what_a_person_would_give_back(world: World) -> None:
    await gift_card(world)
    async with world.api.begin() as connection:
        view = orders.order_view(*await orders.get_order(connection, "order-1"))
    assert [(p["payment_id"], p["processor"], p["tender"]) for p in view["payments"]] == [("card-4711", "manual", "gift_card")]


async def test_draft_mode_drafts_a_manual_part(world: World) -> None:
    async with world.api.begin() as connection:
        assert (await controls.read(connection)).mode == "live"
    world.execute("UPDATE controls SET mode = 'draft', reason = 'test'")
    await gift_card(world)
    assert (await world.quoted(amount=2_000))[1].status == Status.DRAFTED


ODD = {
    "no tender": {"tender": None},
    "a tender that nobody knows": {"tender": "shells"},
    "a processor that nobody knows": {"processor": "paypal"},
    "a tender at the processor": {"processor": "stripe", "id": "pi_1"},
    "a name like a payment's at the processor": {"id": "pi_123"},
    "a name like another object's at the processor": {"id": "re_123"},
    "a name like one of ours": {"id": "pay_06f2"},
    "an id of blanks": {"id": "  "},
    "a card's number": {"id": "4242424242424242"},
    "a card's number in groups": {"id": "4242 4242-4242 4242"},
    "a card's number behind a word": {"id": "card-4242424242424242"},
    "a client secret": {"id": "pi_123_secret_456"},
    "a name that turns the reading order": {"id": "card\u202e-1"},
    "a name like a payment's in wide letters": {"id": "\uff50\uff49_1"},
    "a name like a payment's in two alphabets": {"id": "\u0440i_1"},
    "a number that is too long": {"id": "4" * 121},
}


@pytest.mark.parametrize("changed", ODD.values(), ids=ODD)
def test_a_manual_payment_that_is_none_is_refused(changed: dict[str, Any]) -> None:
    body = {"customer_id": "c", "currency": "USD", "payments": [CARD | changed]}
    with pytest.raises(ValidationError):
        Order.model_validate(body)


@pytest.mark.parametrize("own", ["4711", "4242424242424243", "Gutschein Nr. 12/7", "ギフト-12", "card-4242424242424243"])
def test_any_plain_id_of_the_merchants_own_is_taken(own: str) -> None:
    order = Order.model_validate({"customer_id": "c", "currency": "USD", "payments": [CARD | {"id": own}]})
    assert order.payments[0].id == own


def test_what_an_order_with_payments_at_the_processor_is_stored_as_is_unchanged() -> None:
    order = Order.model_validate({"customer_id": "c", "currency": "USD", "payments": [{"id": "pi_1", "amount": 1, "currency": "usd"}]})
    assert order.model_dump(mode="json")["payments"] == [{"processor": "stripe", "id": "pi_1", "amount": 1, "currency": "USD"}]


async def test_orders_in_bulk_take_manual_tenders(world: World) -> None:
    body = {"customer_id": "customer-1", "currency": "USD", "payments": [CARD, {"id": "pi_9", "amount": 100, "currency": "USD"}]}
    async with world.api.begin() as connection:
        [imported] = await import_orders(connection, world.clock, [("order-1", Order.model_validate(body))], actor="test")
    rows = world.rows("SELECT processor, processor_payment, tender, amount FROM payments ORDER BY processor")
    assert imported.put == orders.Put.CREATED
    assert [tuple(row.values()) for row in rows] == [("manual", "card-4711", "gift_card", 9_000), ("stripe", "pi_9", None, 100)]


async def test_legs_of_a_marketplace_are_refused_by_name_for_a_manual_payment(world: World) -> None:
    await gift_card(world)
    _, denied = await world.quoted(amount=2_000, reverse_transfer=True)
    assert denied.status == Status.DENIED
    assert denied.code


async def test_a_reconciliation_has_nothing_to_say_of_what_a_person_gave_back(world: World) -> None:
    await gift_card(world)
    refund_id = await parked(world, amount=7_000)
    await settle(world, refund_id, await settler(world))
    reconciling = Reconciling(world.payments, world.settings, "stripe")

    run = await reconciling.begin("rec_00000000000000000000000000", window=timedelta(days=46), started_by="test")

    assert await reconciling.unseen(run, limit=100) == []
    assert (world.count("discrepancies"), world.row(refund_id)["status"]) == (0, Status.SUCCEEDED)
