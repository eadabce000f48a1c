"""Recording readings: what was made without us counts in the customer's limits, later days keep theirs, and a clock that is wrong keeps no truth out."""

import json
from datetime import datetime, timedelta
from typing import Any

from refunds.messages import Observed
from refunds.processor import PaymentState, ProcessorRefund, RefundState
from store.observing import Observing
from tests.store.world import START, World

OPERATION = "op_06f2wq1s8h9k3m5n7p9r2t4v6x"


def observing(world: World) -> Observing:
    return Observing(world.payments, world.settings, "test-worker")


def payment_of(world: World, name: str) -> str:
    return world.rows("SELECT id FROM payments WHERE processor_payment = %s", name)[0]["id"]


def outside(
    payment: str, number: int, amount: int = 2_000, *, at: datetime = START, state: RefundState = RefundState.SUCCEEDED
) -> ProcessorRefund:
    """A refund as somebody made it in the dashboard."""
    return ProcessorRefund(f"re_out{number}", payment, amount, "USD", state, state.value, created_at=at)


async def observe(world: World, payment: str, *refunds: ProcessorRefund, **reading: Any) -> Observed | None:
    """Read a payment and record the reading."""
    state = await _read(world, payment, *refunds, **reading)
    return await observing(world).observe(payment_of(world, payment), state)


async def _read(world: World, payment: str, *refunds: ProcessorRefund, **reading: Any) -> PaymentState:
    world.execute("DELETE FROM payment_snapshots")
    return await world.read(payment, refunds=refunds, **reading)


async def customer_facts(world: World, payment: str) -> dict[str, Any]:
    """What the policy is told of the customer, for a refund that is asked for now."""
    refund_id, _ = await world.quoted(order_id=None, payment_id=payment, amount=100, currency="USD")
    [revision] = world.rows("SELECT facts FROM revisions WHERE refund_id = %s", refund_id)
    world.execute("UPDATE refunds SET status = 'withdrawn', final_at = now() WHERE id = %s", refund_id)
    return revision["facts"]["customer"]


async def test_what_was_made_without_us_counts_in_the_customers_limits(world: World) -> None:
    payment = await world.ready()
    before = await customer_facts(world, payment)

    await observe(world, payment, outside(payment, 1), outside(payment, 2, 500, at=START - timedelta(days=3)))

    after = await customer_facts(world, payment)
    assert (before["refunds"], before["refunds_week"], before["amount_today"]) == (0, 0, 0)
    assert (after["refunds"], after["refunds_week"], after["amount_today"]) == (2, 2, 2_000)


async def test_an_outside_refund_that_failed_or_is_long_ago_counts_for_no_week(world: World) -> None:
    payment = await world.ready()

    await observe(
        world,
        payment,
        outside(payment, 1, state=RefundState.FAILED),
        outside(payment, 2, at=START - timedelta(days=8)),
        outside(payment, 3, state=RefundState.PENDING),
    )

    facts = await customer_facts(world, payment)
    assert (facts["refunds"], facts["refunds_week"], facts["amount_today"]) == (2, 1, 2_000)


async def test_another_customers_outside_refunds_do_not_count(world: World) -> None:
    [other] = await world.order("order-2", "customer-2")
    await observe(world, other, outside(other, 1))
    payment = await world.ready()

    assert (await customer_facts(world, payment))["refunds_week"] == 0


async def succeeded(world: World, payment: str) -> str:
    """A refund of ours that has succeeded; returns its id."""
    refund_id, _ = await world.quoted()
    world.execute("UPDATE refunds SET status = 'submitting' WHERE id = %s", refund_id)
    request = {
        "operation": OPERATION,
        "kind": "refund",
        "processor_payment": payment,
        "amount": 3_000,
        "currency": "USD",
        "idempotency_key": "key",
    }
    world.execute(
        "INSERT INTO operations (id, refund_id, revision, kind, terms_hash, payment_id, amount, currency, request, idempotency_key, created_at)"
        " SELECT %s, id, revision, 'refund', terms_hash, payment_id, amount, currency, %s::jsonb, 'key', now() FROM refunds WHERE id = %s",
        OPERATION,
        json.dumps(request),
        refund_id,
    )
    await observe(world, payment, ours(payment, RefundState.SUCCEEDED))
    assert world.row(refund_id)["status"] == "succeeded"
    return refund_id


def ours(payment: str, state: RefundState) -> ProcessorRefund:
    return ProcessorRefund("re_ours", payment, 3_000, "USD", state, state.value, OPERATION, "lost_or_stolen_card")


async def test_field_17_failing_on_a_later_day_gives_that_day_nothing_back(world: World) -> None:
    payment = await world.ready()
    refund_id = await succeeded(world, payment)
    world.clock.advance(days=5)
    await _read(world, payment, ours(payment, RefundState.SUCCEEDED))
    before = await customer_facts(world, payment)

    await observe(world, payment, ours(payment, RefundState.FAILED))

    assert world.row(refund_id)["status"] == "failed"
    after = await customer_facts(world, payment)
    assert (after["amount_today"], after["refunds_week"]) == (before["amount_today"], before["refunds_week"]) == (0, 1)


async def test_failing_on_the_same_day_gives_the_day_back(world: World) -> None:
    payment = await world.ready()
    await succeeded(world, payment)
    world.clock.advance(hours=1)

    await observe(world, payment, ours(payment, RefundState.FAILED))

    facts = await customer_facts(world, payment)
    assert (facts["amount_today"], facts["refunds_week"]) == (0, 0)


async def test_a_reading_of_before_the_last_one_is_refused_and_one_from_the_future_keeps_none_out(world: World) -> None:
    payment = await world.ready()
    old = await _read(world, payment)
    world.clock.advance(minutes=1)
    await world.read(payment)

    assert await observing(world).observe(payment_of(world, payment), old) is None

    await world.read(payment, read_at=world.clock.now() + timedelta(hours=1))
    now = await _read_only(world, payment)
    assert await observing(world).observe(payment_of(world, payment), now) == Observed(payment_of(world, payment))


async def _read_only(world: World, payment: str) -> PaymentState:
    """A reading that is kept nowhere yet."""
    state = await world.read(payment)
    world.execute("UPDATE payment_snapshots SET read_at = now() + interval '100 years'")
    return state


async def test_observing_the_same_reading_twice_writes_nothing_the_second_time(world: World) -> None:
    payment = await world.ready()
    refund_id = await succeeded(world, payment)
    await observe(world, payment, ours(payment, RefundState.SUCCEEDED), outside(payment, 1))
    before = [world.count(table) for table in ("ledger", "outbox", "discrepancies", "processor_refunds")], world.row(refund_id)

    found = await observe(world, payment, ours(payment, RefundState.SUCCEEDED), outside(payment, 1))

    assert found == Observed(payment_of(world, payment))
    assert ([world.count(table) for table in ("ledger", "outbox", "discrepancies", "processor_refunds")], world.row(refund_id)) == before


async def test_what_was_never_sent_by_our_record_and_is_there_halts_everything(world: World) -> None:
    payment = await world.ready()
    refund_id = await succeeded(world, payment)
    world.execute("DELETE FROM processor_refunds")
    world.execute("UPDATE refunds SET status = 'withdrawn' WHERE id = %s", refund_id)

    found = await observe(world, payment, ours(payment, RefundState.SUCCEEDED))

    assert found == Observed(payment_of(world, payment), imported=1, discrepancies=1)
    assert world.row(refund_id)["status"] == "withdrawn"
    [difference] = world.rows("SELECT kind, refund_id FROM discrepancies")
    assert (difference["kind"], difference["refund_id"]) == ("status", refund_id)
    assert [row["code"] for row in world.rows("SELECT code FROM halts WHERE lifted_at IS NULL")] == ["DATABASE_FORGOT"]
