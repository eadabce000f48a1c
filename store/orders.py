"""The merchant's orders, versioned, and which payment of which order a request means. Every look-up is scoped by the customer."""

from datetime import datetime
from enum import StrEnum
from typing import Any

from sqlalchemy import bindparam, select, update
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncConnection

from refunds.clock import Clock
from refunds.errors import Code, RefundError
from refunds.ids import Prefix, new_id
from refunds.money import Money
from refunds.orders import Order
from refunds.payment_ids import check_kind, names_a_charge
from refunds.processor import MANUAL
from store.changes import enter
from store.sql import Query, Row
from store.tables import customers, order_versions, orders, payments

_WITH_OWNER = select(orders, customers.c.external_ref.label("owner")).join(customers, customers.c.id == orders.c.customer_id)
_BY_REF = Query(_WITH_OWNER.where(orders.c.external_ref == bindparam("ref")))
_BY_ID = Query(_WITH_OWNER.where(orders.c.id == bindparam("order")))
_PAYMENTS_OF = Query(select(payments).where(payments.c.order_id == bindparam("order")).order_by(payments.c.id))
_PAYMENT = Query(select(payments).where((payments.c.processor_payment == bindparam("ref")) | (payments.c.id == bindparam("ref"))))


class Put(StrEnum):
    """What became of an order that was sent."""

    CREATED = "created"
    NEW_VERSION = "new_version"
    UNCHANGED = "unchanged"


async def put_order(connection: AsyncConnection, clock: Clock, *, external_ref: str, order: Order, actor: str) -> tuple[Row, bool]:
    """Store an order and return its row and whether it is new. The same content again makes no new version.

    Raises ``ORDER_CONFLICT`` when the order belongs to another customer, or a payment to another order: neither is ever moved.
    """
    row, put, customer = await record_order(connection, clock, external_ref=external_ref, order=order, actor=actor)
    if put is not Put.UNCHANGED and order.customer_since not in (None, customer["account_created_at"]):
        await note_since(connection, customer["id"], order.customer_since)
    return row, put is Put.CREATED


async def record_order(connection: AsyncConnection, clock: Clock, *, external_ref: str, order: Order, actor: str) -> tuple[Row, Put, Row]:
    """Store an order and return its row, what became of it, and its customer, whose ``account_created_at`` is left as it was.

    Raises as :func:`put_order` does.
    """
    now = clock.now()
    customer = await _customer(connection, clock, order)
    body = order.model_dump(mode="json")
    times = {"placed_at": order.placed_at, "delivered_at": order.delivered_at}
    values = {"customer_id": customer["id"], "body": body, "updated_at": now} | times
    adding = insert(orders).values(id=new_id(Prefix.ORDER), external_ref=external_ref, version=1, **values)
    made = (await connection.execute(adding.on_conflict_do_nothing().returning(orders.c.id))).scalar_one_or_none()
    reading = select(orders).where(orders.c.external_ref == external_ref).with_for_update(key_share=True)
    row = (await connection.execute(reading)).mappings().one()
    if row["customer_id"] != customer["id"]:
        raise RefundError(Code.ORDER_CONFLICT, "This order belongs to another customer.", field="customer_id")
    if made is None:
        if row["body"] == body:
            return row, Put.UNCHANGED, customer
        changing = update(orders).where(orders.c.id == row["id"]).values(version=row["version"] + 1, **values).returning(orders)
        row = (await connection.execute(changing)).mappings().one()
    await connection.execute(
        insert(order_versions).values(order_id=row["id"], version=row["version"], body=body, recorded_at=now, recorded_by=actor)
    )
    await _put_payments(connection, row["id"], order)
    await enter(connection, "order_recorded", now, actor=actor, order=row["id"], version=row["version"])
    return row, Put.NEW_VERSION if made is None else Put.CREATED, customer


async def note_since(connection: AsyncConnection, customer_id: str, since: datetime | None) -> None:
    """Record since when somebody is a customer. Do it last: the customer's lock comes last in the order of locks."""
    await connection.execute(update(customers).where(customers.c.id == customer_id).values(account_created_at=since))


async def _customer(connection: AsyncConnection, clock: Clock, order: Order) -> Row:
    made = insert(customers).values(
        id=new_id(Prefix.CUSTOMER), external_ref=order.customer_id, account_created_at=order.customer_since, created_at=clock.now()
    )
    await connection.execute(made.on_conflict_do_nothing())
    return (await connection.execute(select(customers).where(customers.c.external_ref == order.customer_id))).mappings().one()


async def _put_payments(connection: AsyncConnection, order_id: str, order: Order) -> None:
    for index, payment in enumerate(order.payments):
        await connection.execute(
            insert(payments)
            .values(
                id=new_id(Prefix.PAYMENT),
                order_id=order_id,
                processor=payment.processor,
                processor_payment=payment.id,
                currency=payment.currency,
                amount=payment.amount,
                tender=payment.tender,
            )
            .on_conflict_do_nothing()
        )
        row = (
            await connection.execute(
                select(payments).where(payments.c.processor == payment.processor, payments.c.processor_payment == payment.id)
            )
        ).one()
        if row.order_id != order_id:
            raise RefundError(Code.ORDER_CONFLICT, "This payment belongs to another order.", field=f"payments.{index}.id")
        for name in ("currency", "tender"):
            if getattr(row, name) != getattr(payment, name):
                raise RefundError(Code.ORDER_CONFLICT, f"A payment's {name} never changes.", field=f"payments.{index}.{name}")
        if row.amount != payment.amount:
            await connection.execute(update(payments).where(payments.c.id == row.id).values(amount=payment.amount))
    await _take_off(connection, order_id, [payment.id for payment in order.payments if payment.processor == MANUAL])


async def _take_off(connection: AsyncConnection, order_id: str, named: list[str]) -> None:
    """Record that nothing was taken by the manual payments that an order names no more: its record is all there is of them, and is so corrected."""
    gone = (payments.c.order_id == order_id, payments.c.processor == MANUAL, payments.c.processor_payment.not_in(named))
    await connection.execute(update(payments).where(*gone, payments.c.amount > 0).values(amount=0))


async def get_order(connection: AsyncConnection, external_ref: str) -> tuple[Row, list[Row]]:
    """An order and its payments by the merchant's id. Raises ``ORDER_NOT_FOUND``."""
    row = (await connection.execute(select(orders).where(orders.c.external_ref == external_ref))).mappings().one_or_none()
    if row is None:
        raise RefundError(Code.ORDER_NOT_FOUND, f"There is no order {external_ref[:80]!r}.", field="order_id")
    return row, await payments_of(connection, row["id"])


async def payments_of(connection: AsyncConnection, order_id: str) -> list[Row]:
    """The payments of an order, oldest first."""
    return list(await _PAYMENTS_OF.all(connection, order=order_id))


async def taken_for(connection: AsyncConnection, order_id: str) -> list[Row]:
    """The payments of an order, oldest first, without manual ones that it names no more: nothing was taken by those."""
    return [payment for payment in await payments_of(connection, order_id) if payment["amount"]]


class Target:
    """What a request is about: the customer, the order and the one payment, all ours, and checked to belong together."""

    def __init__(self, customer_id: str, order: Row, payment: Row) -> None:
        self.customer_id = customer_id
        self.order = order
        self.payment = payment


async def find_customer(connection: AsyncConnection, external_ref: str) -> str | None:
    """Our surrogate for the merchant's customer id, or ``None``."""
    return (await connection.execute(select(customers.c.id).where(customers.c.external_ref == external_ref))).scalar_one_or_none()


class OwnershipMismatch(RefundError):
    """The order or payment exists but is somebody else's. To the caller it is simply not there; the ledger knows better (field report 62)."""


async def find_target(connection: AsyncConnection, *, customer_ref: str, order_ref: str | None, payment_ref: str | None) -> Target:
    """Find the payment a request names, within the customer's own orders only.

    Raises ``ORDER_NOT_FOUND`` or ``PAYMENT_NOT_FOUND`` (as :class:`OwnershipMismatch` when it exists but is another customer's), and
    ``AMBIGUOUS_PAYMENT`` with the candidates when the order has several payments and none is named (field report 26).
    """
    if payment_ref is not None:
        return await _target_by_payment(connection, customer_ref, order_ref, payment_ref)
    order = await find_order(connection, customer_ref=customer_ref, order_ref=order_ref)
    candidates = await taken_for(connection, order["id"])
    if not candidates:
        raise RefundError(Code.PAYMENT_NOT_FOUND, "The order has no payment that could be refunded.", field="order_id")
    if len(candidates) > 1:
        raise RefundError(
            Code.AMBIGUOUS_PAYMENT,
            field="payment_id",
            payments=[
                {"payment_id": p["processor_payment"], "amount": p["amount"], "currency": p["currency"], "text": _money_text(p)}
                | ({"tender": p["tender"]} if p["tender"] else {})
                for p in candidates
            ],
            whole_order="POST /v1/refund-groups",
        )
    return Target(order["customer_id"], order, candidates[0])


async def find_order(connection: AsyncConnection, *, customer_ref: str, order_ref: str | None) -> Row:
    """An order of this customer. Raises ``ORDER_NOT_FOUND`` (as :class:`OwnershipMismatch` when it exists but is another customer's)."""
    order = await _BY_REF.first(connection, ref=order_ref)
    if order is None or order["owner"] != customer_ref:
        kind = RefundError if order is None else OwnershipMismatch
        raise kind(Code.ORDER_NOT_FOUND, field="order_id")
    return order


async def in_sequence(connection: AsyncConnection, order: Row) -> list[Row]:
    """The payments of an order in the sequence in which its version in force names them, then any it names no more, oldest first."""
    named = {(p["processor"], p["id"]): at for at, p in enumerate(order["body"]["payments"])}
    found = await payments_of(connection, order["id"])
    return sorted(found, key=lambda p: (named.get((p["processor"], p["processor_payment"]), len(named)), p["id"]))


async def _target_by_payment(connection: AsyncConnection, customer_ref: str, order_ref: str | None, payment_ref: str) -> Target:
    payment = await _PAYMENT.first(connection, ref=payment_ref)
    if payment is None:
        check_kind(payment_ref, "payment_id")
        raise await _not_found(connection, customer_ref, order_ref, payment_ref)
    order = await _BY_ID.one(connection, order=payment["order_id"])
    if order["owner"] != customer_ref:
        raise OwnershipMismatch(Code.PAYMENT_NOT_FOUND, field="payment_id")
    if order_ref is not None and order["external_ref"] != order_ref:
        raise RefundError(Code.PAYMENT_NOT_FOUND, "The named order has no such payment.", field="payment_id")
    return Target(order["customer_id"], order, payment)


async def _not_found(connection: AsyncConnection, customer_ref: str, order_ref: str | None, payment_ref: str) -> RefundError:
    """The answer for a payment that is not recorded. Of the customer's own order it is said when it names its payments by the other kind of id."""
    order = None if order_ref is None else await _BY_REF.first(connection, ref=order_ref)
    if order is not None and order["owner"] == customer_ref and (asked := names_a_charge(payment_ref)) is not None:
        recorded = {names_a_charge(payment["processor_payment"]) for payment in await payments_of(connection, order["id"])}
        if recorded == {not asked}:
            return RefundError(Code.PAYMENT_NAMED_OTHERWISE, field="payment_id")
    return RefundError(Code.PAYMENT_NOT_FOUND, field="payment_id")


def _money_text(payment: Row) -> str:
    return str(Money(payment["amount"], payment["currency"]))


def order_view(row: Row, its_payments: list[Row]) -> dict[str, Any]:
    """The order as the API shows it."""
    return {
        "order_id": row["external_ref"],
        "id": row["id"],
        "version": row["version"],
        "updated_at": row["updated_at"],
        "order": row["body"],
        "payments": [
            {"id": p["id"], "payment_id": p["processor_payment"]} | {name: p[name] for name in ("currency", "processor", "tender")}
            for p in its_payments
        ],
    }
