"""What moves between an approval and the sending: quoted again, shown with the difference, and looked at by a person (promise P3, field report 61)."""

from datetime import timedelta
from typing import Any

import pytest

from refunds.processor import DisputeState, ProcessorRefund, RefundState
from tests.store.world import World


def external(payment: str, amount: int) -> ProcessorRefund:
    return ProcessorRefund("re_elsewhere", payment, amount, "USD", RefundState.SUCCEEDED, "succeeded")


async def moved(world: World, refund: str, captured: int = 10_000, **reading: Any) -> Any:
    """Try to send it on a payment that reads so by now, and let it be judged again."""
    held = await world.kept(refund, captured, read_at=world.clock.at + timedelta(seconds=1), **reading)
    assert (held.status, held.code) == ("held", "TERMS_EXPIRED")
    return await world.steps.resume_held(refund)


def changes(world: World, refund: str) -> list[str]:
    """What the latest revision says has changed, in words."""
    [row] = world.rows("SELECT changes FROM revisions WHERE refund_id = %s ORDER BY revision DESC LIMIT 1", refund)
    return [one["words"] for one in row["changes"]]


async def order_again(world: World, **changed: Any) -> None:
    """The merchant's order once more, with what is ``changed``."""
    [payment] = world.rows("SELECT processor_payment, amount FROM payments")
    card = {"id": payment["processor_payment"], "amount": payment["amount"], "currency": "USD"}
    await world.order(amounts=(), payments=[card], **changed)


async def test_an_order_that_changed_meanwhile_sends_even_a_small_refund_to_a_person_with_the_difference(world: World) -> None:
    await world.ready()
    refund, seen = await world.quoted(amount=2_000)
    assert seen.status == "approved"
    await order_again(world, delivered_at="2026-05-26T00:00:00Z")

    again = await moved(world, refund)

    assert (again.status, again.queue, again.revision, again.tier) == ("awaiting_review", "team", 2, "3")
    assert changes(world, refund) == [
        "The version of the order: 2; it was 1.",
        "When the order was delivered: 2026-05-26T00:00:00Z; it was 2026-05-25T00:00:00Z.",
    ]
    assert [e["data"].get("changed") for e in world.ledger(refund) if e["type"] == "quoted"] == [
        None,
        ["order_version", "order_delivered_at"],
    ]
    assert world.count("operations") == 0
    assert (await world.decide(refund, world.ann)).row["status"] == "approved"
    operation, _ = await world.attempted(refund)
    consumed = world.rows("SELECT d.revision, d.kind FROM consumed_decisions c JOIN decisions d ON d.id = c.decision_id ORDER BY d.kind")
    assert operation.revision == 2
    assert consumed == [{"revision": 2, "kind": "consent"}, {"revision": 2, "kind": "review"}]


async def test_the_same_order_sent_again_changes_nothing(world: World) -> None:
    await world.ready()
    refund, _ = await world.quoted(amount=2_000)
    await order_again(world)

    operation, _ = await world.attempted(refund)

    assert operation.revision == 1


async def test_an_inquiry_that_came_meanwhile_is_for_a_person_and_shown(world: World) -> None:
    await world.ready()
    refund, _ = await world.quoted(amount=2_000)

    again = await moved(world, refund, dispute=DisputeState.INQUIRY)

    assert again.status == "awaiting_review"
    assert changes(world, refund) == ["The dispute of the payment: inquiry; it was none."]


async def test_a_dispute_that_came_meanwhile_denies_and_is_shown(world: World) -> None:
    await world.ready()
    refund, _ = await world.quoted(amount=2_000)

    again = await moved(world, refund, dispute=DisputeState.OPEN)

    assert (again.status, again.code) == ("denied", "PAYMENT_DISPUTED")
    assert "The dispute of the payment: open; it was none." in changes(world, refund)


async def test_less_that_is_refundable_asks_the_customer_and_a_person_again(world: World) -> None:
    payment = await world.ready(captured=3_000)
    refund, _ = await world.quoted(full=True)
    await world.consent(refund)

    again = await moved(world, refund, 3_000, refunds=(external(payment, 1_000),))

    assert (again.status, again.amount) == ("awaiting_consent", 2_000)
    assert changes(world, refund) == ["What is still refundable: $20.00; it was $30.00.", "The amount is $20.00; it was $30.00."]
    assert (await world.consent(refund)).row["status"] == "awaiting_review"
    assert (await world.decide(refund, world.ann)).row["status"] == "approved"


async def test_all_of_a_payment_of_which_more_is_refundable_now_is_not_sent_as_it_was(world: World) -> None:
    [payment] = await world.order(amounts=(3_000,))
    await world.read(payment, 3_000, refunds=(external(payment, 1_000),))
    refund, seen = await world.quoted(full=True)
    assert seen.amount == 2_000
    await world.consent(refund)

    again = await moved(world, refund, 3_000)  # the refund made elsewhere failed

    assert (again.status, again.amount) == ("awaiting_consent", 3_000)
    assert changes(world, refund)[0] == "What is still refundable: $30.00; it was $20.00."


async def test_two_honest_refunds_of_one_payment_send_neither_back(world: World) -> None:
    await world.ready()
    first, _ = await world.quoted(amount=4_000)
    second, _ = await world.quoted(amount=3_000)

    one, _ = await world.attempted(first)

    assert (one.revision, world.row(second)["status"]) == (1, "approved")


async def test_what_a_person_revised_after_it_moved_shows_both(world: World) -> None:
    await world.ready(captured=100_000)
    refund, _ = await world.quoted(amount=20_000)
    await order_again(world, delivered_at="2026-05-26T00:00:00Z")

    await world.revise(refund, world.ann, amount=15_000)

    assert changes(world, refund) == [
        "The version of the order: 2; it was 1.",
        "When the order was delivered: 2026-05-26T00:00:00Z; it was 2026-05-25T00:00:00Z.",
        "The amount is $150.00; it was $200.00.",
    ]


@pytest.mark.parametrize("looks", [1, 3])
async def test_field_61_an_approval_of_what_has_moved_is_never_spent(world: World, looks: int) -> None:
    await world.ready(captured=100_000)
    refund, _ = await world.quoted(amount=20_000)
    await world.decide(refund, world.ann)
    for day in range(looks):
        await order_again(world, delivered_at=f"2026-05-2{6 + day}T00:00:00Z")
        again = await moved(world, refund, 100_000)
        assert again.status == "awaiting_review"
        await world.decide(refund, world.ann)

    operation, _ = await world.attempted(refund, 100_000)

    assert (operation.revision, world.count("operations")) == (looks + 1, 1)
    spent = world.rows("SELECT DISTINCT d.revision FROM consumed_decisions c JOIN decisions d ON d.id = c.decision_id")
    assert spent == [{"revision": looks + 1}]
