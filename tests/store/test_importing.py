"""Many orders at once: as if each was put alone, in one transaction."""

from datetime import UTC, datetime
from typing import Any

import pytest

from refunds.errors import Code, RefundError
from refunds.orders import Order
from store import importing, orders
from store.importing import Imported, import_orders
from store.orders import Put
from tests.store.world import World

SINCE = datetime(2020, 1, 1, tzinfo=UTC)


def order(payment: str = "", amount: int = 3_000, currency: str = "USD", **more: Any) -> Order:
    """An order of customer c-1, paid by one payment."""
    paid = [{"id": payment, "amount": amount, "currency": currency}] if payment else []
    return Order.model_validate({"customer_id": "c-1", "currency": currency, "payments": paid} | more)


async def send(world: World, *wanted: tuple[str, Order]) -> list[Imported]:
    async with world.api.begin() as connection:
        return await import_orders(connection, world.clock, wanted, actor="test")


def said(results: list[Imported]) -> list[tuple[Put | None, int | None, str | None]]:
    """What became of each, at which version, and the field that was refused."""
    return [(one.put, one.version, one.error.field if one.error else None) for one in results]


async def shown(world: World, ref: str) -> dict[str, Any]:
    """An order as it was sent, opened by whoever may."""
    async with world.api.begin() as connection:
        row, _ = await orders.get_order(connection, ref)
    return row["body"]


def tables(world: World) -> dict[str, int]:
    return {table: world.count(table) for table in ("customers", "orders", "order_versions", "payments", "ledger")}


def grown(world: World, before: dict[str, int]) -> dict[str, int]:
    return {table: count - before[table] for table, count in tables(world).items()}


async def test_new_orders_are_stored_with_their_versions_payments_and_entries(world: World) -> None:
    before = tables(world)

    results = await send(world, ("o-1", order("pi_1", customer_since=SINCE)), ("o-2", order("pi_2")), ("o-3", order(customer_id="c-2")))

    assert said(results) == [(Put.CREATED, 1, None)] * 3
    assert grown(world, before) == {"customers": 2, "orders": 3, "order_versions": 3, "payments": 2, "ledger": 3}
    rows = world.rows(
        "SELECT o.body = v.body AND o.body_sealed = v.body_sealed AS same, v.recorded_by, c.account_created_at FROM orders o"
        " JOIN customers c ON c.id = o.customer_id JOIN order_versions v ON v.order_id = o.id ORDER BY c.account_created_at NULLS LAST"
    )
    assert [tuple(row.values()) for row in rows] == [(True, "test", SINCE), (True, "test", SINCE), (True, "test", None)]
    assert [(await shown(world, ref))["customer_id"] for ref in ("o-1", "o-2", "o-3")] == ["c-1", "c-1", "c-2"]
    entries = world.rows("SELECT data FROM ledger WHERE type = 'order_recorded' ORDER BY id DESC LIMIT 3")
    assert {entry["data"]["version"] for entry in entries} == {1}
    assert {entry["data"]["order"] for entry in entries} == {row["id"] for row in world.rows("SELECT id FROM orders")}


async def test_the_same_again_changes_nothing(world: World) -> None:
    wanted = (("o-1", order("pi_1", customer_since=SINCE)), ("o-2", order("pi_2")))
    await send(world, *wanted)
    before = tables(world)

    assert said(await send(world, *wanted)) == [(Put.UNCHANGED, 1, None)] * 2
    assert grown(world, before) == dict.fromkeys(before, 0)


async def test_an_import_means_what_putting_each_alone_means(world: World) -> None:
    async with world.api.begin() as connection:
        await importing.record_order(connection, world.clock, external_ref="o-1", order=order("pi_1"), actor="test")
    changed = order("pi_1", amount=4_000, customer_since=SINCE)

    assert said(await send(world, ("o-1", order("pi_1")))) == [(Put.UNCHANGED, 1, None)]
    assert said(await send(world, ("o-1", changed))) == [(Put.NEW_VERSION, 2, None)]
    assert world.rows("SELECT amount FROM payments") == [{"amount": 4_000}]
    assert world.rows("SELECT account_created_at FROM customers") == [{"account_created_at": SINCE}]
    assert [row["version"] for row in world.rows("SELECT version FROM order_versions ORDER BY version")] == [1, 2]


async def test_a_refused_order_leaves_nothing_and_undoes_nothing(world: World) -> None:
    await send(world, ("o-1", order("pi_1")), ("o-2", order("pi_2")))
    before = tables(world)

    results = await send(
        world,
        ("o-3", order("pi_3")),
        ("o-4", order("pi_1", customer_id="c-new")),
        ("o-1", order("pi_1", customer_id="c-9")),
        ("o-2", order("pi_2", currency="EUR")),
        ("o-5", order("pi_5")),
    )

    assert said(results) == [
        (Put.CREATED, 1, None),
        (None, None, "payments.0.id"),
        (None, None, "customer_id"),
        (None, None, "payments.0.currency"),
        (Put.CREATED, 1, None),
    ]
    assert {one.error.code for one in results if one.error} == {Code.ORDER_CONFLICT}
    assert grown(world, before) == {"customers": 0, "orders": 2, "order_versions": 2, "payments": 2, "ledger": 2}
    assert world.rows("SELECT version FROM orders WHERE id = (SELECT order_id FROM payments WHERE processor_payment = 'pi_2')") == [
        {"version": 1}
    ]


async def test_of_two_new_orders_with_one_payment_the_first_keeps_it(world: World) -> None:
    results = await send(world, ("o-1", order("pi_1")), ("o-2", order("pi_1")), ("o-3", order("pi_3")))

    assert said(results) == [(Put.CREATED, 1, None), (None, None, "payments.0.id"), (Put.CREATED, 1, None)]
    assert world.count("orders") == 2


async def test_the_last_word_on_since_when_somebody_is_a_customer_counts(world: World) -> None:
    later = datetime(2021, 1, 1, tzinfo=UTC)

    await send(world, ("o-1", order(customer_since=SINCE)), ("o-2", order()), ("o-3", order(customer_since=later)))

    assert world.rows("SELECT account_created_at FROM customers") == [{"account_created_at": later}]


async def test_orders_that_somebody_else_stores_meanwhile_go_one_by_one(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    await send(world, ("o-0", order("pi_0")), ("o-1", order("pi_1")))
    before = tables(world)

    async def nothing(*_: Any) -> Any:
        return {}

    monkeypatch.setattr(importing, "_known", nothing)
    monkeypatch.setattr(importing, "_taken", nothing)
    results = await send(world, ("o-1", order("pi_1")), ("o-2", order("pi_0")), ("o-3", order("pi_3")))

    assert said(results) == [(Put.UNCHANGED, 1, None), (None, None, "payments.0.id"), (Put.CREATED, 1, None)]
    assert grown(world, before) == {"customers": 0, "orders": 1, "order_versions": 1, "payments": 1, "ledger": 1}


async def test_a_lock_that_is_not_had_stores_nothing_of_the_whole(world: World) -> None:
    await send(world, ("o-1", order("pi_1")))
    world.settings = world.settings.model_copy(update={"database_lock_timeout_ms": 50})
    before = tables(world)
    importer = World(world.database, world.clock, world.settings)

    async with world.payments.begin() as other:
        await other.exec_driver_sql("SELECT 1 FROM payments FOR UPDATE")
        with pytest.raises(RefundError) as refused:
            await send(importer, ("o-2", order("pi_2")), ("o-1", order("pi_1", amount=4_000)))
    await importer.close()

    assert refused.value.code is Code.STORE_UNAVAILABLE
    assert grown(world, before) == dict.fromkeys(before, 0)
