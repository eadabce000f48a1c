"""Accepting requests: once per key for ever, whole or not at all (promise P6)."""

import asyncio

import pytest

from refunds import points
from refunds.errors import Code, RefundError
from refunds.people import PrincipalKind, Role
from refunds.requests import Ticket
from store import orders
from tests.store.world import World


async def test_field_59_twenty_tasks_with_one_key_make_one_refund(world: World) -> None:
    await world.order()

    ids = await asyncio.gather(*(world.accept(world.request(message="It broke."), key="same") for _ in range(20)))

    assert len(set(ids)) == 1
    assert (world.count("refunds"), world.count("texts")) == (1, 1)
    assert [e["type"] for e in world.ledger(ids[0])] == ["refund_received"]


async def test_requests_are_accepted_while_a_quote_of_the_same_payment_holds_its_locks(world: World) -> None:
    """A new refund names its payment, order and customer, which locks their keys: a quote must not hold those, or everybody waits for it and gives up."""
    await world.ready(captured=100_000)
    quoting, go_on = asyncio.Event(), asyncio.Event()

    async def held(point: str) -> None:
        if point.startswith("before:") and "quoted" in point:
            quoting.set()
            await go_on.wait()

    with points.watched_by(held):
        quote = asyncio.create_task(world.steps.prepare(await world.accept(world.request(amount=2_000))))
        await quoting.wait()
        try:
            accepted = await asyncio.gather(*(world.accept(world.request(amount=1_000 + n)) for n in range(20)), return_exceptions=True)
        finally:
            go_on.set()
        seen = await quote

    assert [found for found in accepted if not isinstance(found, str)] == []
    assert (len(set(accepted)), seen.status) == (20, "approved")


async def test_the_same_key_with_another_body_is_refused(world: World) -> None:
    await world.order()
    first = await world.accept(key="same")

    with pytest.raises(RefundError) as refusal:
        await world.accept(world.request(amount=3_001), key="same")

    assert (refusal.value.code, refusal.value.ids) == (Code.IDEMPOTENCY_KEY_REUSED, {"refund": first})
    assert (world.count("refunds"), len(world.ledger(first))) == (1, 1)


async def test_racing_bodies_under_one_key_keep_exactly_one(world: World) -> None:
    await world.order()

    ended = await asyncio.gather(
        *(world.accept(world.request(amount=amount), key="same") for amount in range(3_000, 3_010)), return_exceptions=True
    )

    kept = [e for e in ended if isinstance(e, str)]
    refused = [e.code for e in ended if isinstance(e, RefundError)]
    assert (len(kept), refused) == (1, [Code.IDEMPOTENCY_KEY_REUSED] * 9)
    assert world.count("refunds") == 1


async def test_the_same_key_of_another_integration_is_another_request(world: World) -> None:
    await world.order()
    other = await world.actor("other-desk", PrincipalKind.SERVICE, Role.REQUESTER)

    assert await world.accept(key="same") != await world.accept(key="same", actor=other)


async def test_field_1_and_12_equal_requests_with_different_keys_are_different_refunds(world: World) -> None:
    await world.order()

    assert await world.accept(key="one") != await world.accept(key="two")


async def test_field_26_an_order_with_several_payments_and_none_named(world: World) -> None:
    first, second = await world.order(amounts=(4_000, 2_000))

    with pytest.raises(RefundError) as refusal:
        await world.accept(world.request(amount=2_000))

    assert refusal.value.code is Code.AMBIGUOUS_PAYMENT
    assert [(p["payment_id"], p["amount"], p["text"]) for p in refusal.value.ids["payments"]] == [
        (first, 4_000, "$40.00"),
        (second, 2_000, "$20.00"),
    ]
    assert world.count("refunds") == 0


async def test_field_26_only_the_named_payment_is_meant(world: World) -> None:
    _, second = await world.order(amounts=(4_000, 2_000))

    refund = await world.accept(world.request(payment_id=second, amount=2_000))

    [payment] = world.rows("SELECT id FROM payments WHERE processor_payment = %s", second)
    assert world.row(refund)["payment_id"] == payment["id"]


@pytest.mark.parametrize("named", ["pi_nowhere", "pi_other_order"])
async def test_field_26_a_payment_of_another_order_is_refused(world: World, named: str) -> None:
    await world.order()
    if named == "pi_other_order":
        [named] = await world.order("order-2")

    with pytest.raises(RefundError) as refusal:
        await world.accept(world.request(payment_id=named))

    assert refusal.value.code is Code.PAYMENT_NOT_FOUND
    assert world.count("refunds") == 0


async def test_field_34_the_currency_is_the_payment_s(world: World) -> None:
    await world.order(amounts=(9_650_000,), currency="INR")

    with pytest.raises(RefundError) as refusal:
        await world.accept(world.request(amount=100_000, currency="GBP"))
    refund = await world.accept(world.request(amount=100_000, currency="inr"))

    assert (refusal.value.code, refusal.value.ids["payment_currency"]) == (Code.CURRENCY_MISMATCH, "INR")
    assert (world.row(refund)["amount"], world.row(refund)["currency"]) == (100_000, "INR")


@pytest.mark.parametrize("amount", [0, -1, 10**20])
async def test_field_45_amounts_that_are_none_leave_no_row(world: World, amount: int) -> None:
    await world.order()

    with pytest.raises(RefundError):
        await world.accept(world.request(amount=amount))

    assert world.count("refunds") == 0


async def test_field_53_a_long_message_is_kept_whole_and_encrypted(world: World) -> None:
    await world.order()
    text = "Ä reason with ☂ in it. " * 870 + "end"
    refund = await world.accept(world.request(message=text))

    async with world.api.begin() as connection:
        kept = await world.texts.read(connection, refund)

    assert (len(text) > 20_000, kept) == (True, {"message": text})
    [row] = world.rows("SELECT sealed FROM texts")
    assert b"reason" not in bytes(row["sealed"])
    assert "reason with" not in str(world.rows("SELECT * FROM refunds")) + str(world.rows("SELECT * FROM ledger"))


@pytest.mark.parametrize("field", ["order_id", "payment_id"])
async def test_field_62_somebody_else_s_order_or_payment_is_not_there(world: World, field: str) -> None:
    await world.order()
    [theirs] = await world.order("order-2", "customer-2")

    with pytest.raises(orders.OwnershipMismatch) as refusal:
        await world.accept(world.request(**{"order_id": None, field: {"order_id": "order-2", "payment_id": theirs}[field]}))
    with pytest.raises(RefundError) as missing:
        await world.accept(world.request(**{"order_id": None, field: "pi_none" if field == "payment_id" else "none"}))

    # Somebody else's looks to the caller exactly like one that does not exist.
    assert (refusal.value.code, refusal.value.detail) == (missing.value.code, missing.value.detail)
    assert world.count("refunds") == 0


@pytest.mark.parametrize("customer", ["Customer-1", "customer-1 +tag", "CUSTOMER-1"])
async def test_field_62_almost_the_same_customer_is_another_one(world: World, customer: str) -> None:
    await world.order()

    with pytest.raises(orders.OwnershipMismatch):
        await world.accept(world.request(customer_id=customer))


async def test_a_ticket_with_several_payments_waits_for_the_person_who_reads_it(world: World) -> None:
    await world.order(amounts=(4_000, 2_000))

    refund = await world.accept(Ticket(customer_id="customer-1", order_id="order-1", message="Money back please."))

    row = world.row(refund)
    assert (row["payment_id"], row["order_id"] is not None, row["has_text"]) == (None, True, True)


async def test_a_ticket_of_a_customer_nobody_knows(world: World) -> None:
    refund = await world.accept(Ticket(customer_id="new", message="Hello?"))

    assert world.row(refund)["order_id"] is None
    assert world.count("customers") == 1


async def test_an_order_is_versioned_and_the_same_content_makes_no_version(world: World) -> None:
    async def version() -> int:
        return world.rows("SELECT version FROM orders")[0]["version"]

    await world.order(amounts=())
    await world.order(amounts=())
    assert (await version(), world.count("order_versions")) == (1, 1)
    await world.order(amounts=(), shipping=500)
    assert (await version(), world.count("order_versions")) == (2, 2)


async def test_an_order_never_changes_its_customer_nor_a_payment_its_order(world: World) -> None:
    [payment] = await world.order()

    with pytest.raises(RefundError) as stolen:
        await world.order("order-1", "customer-2")
    with pytest.raises(RefundError) as moved:
        await world.order("order-2", amounts=(), payments=[{"id": payment, "amount": 10_000, "currency": "USD"}])

    assert [(e.value.code, e.value.field) for e in (stolen, moved)] == [
        (Code.ORDER_CONFLICT, "customer_id"),
        (Code.ORDER_CONFLICT, "payments.0.id"),
    ]
    assert world.count("orders") == 1
