"""The merchant's orders, versioned, and which payment of which order a request means. Every look-up is scoped by the customer."""

from collections.abc import Sequence
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
from store import identifiers
from store.changes import enter
from store.identifiers import KEY_COLUMNS, Customer
from store.sql import Query, Row, pipelined
from store.tables import customer_keys, customers, order_versions, orders, payments
from store.vault import customer_key

_WITH_OWNER = (
    select(orders, customers.c.ref_lookup.label("owner"), *KEY_COLUMNS)
    .join(customers, customers.c.id == orders.c.customer_id)
    .outerjoin(customer_keys, customer_keys.c.customer_id == orders.c.customer_id)
)
_BY_REF = Query(_WITH_OWNER.where(orders.c.ref_lookup == bindparam("lookup")))
_BY_ID = Query(_WITH_OWNER.where(orders.c.id == bindparam("order")))
_PAYMENTS_OF = Query(select(payments).where(payments.c.order_id == bindparam("order")).order_by(payments.c.id))
_PAYMENTS_OF_REF = Query(
    select(payments)
    .join(orders, orders.c.id == payments.c.order_id)
    .where(orders.c.ref_lookup == bindparam("lookup"))
    .order_by(payments.c.id)
)
_PAYMENT = Query(select(payments).where((payments.c.processor_payment == bindparam("ref")) | (payments.c.id == bindparam("ref"))))


class Put(StrEnum):
    """What became of an order that was sent."""

    CREATED = "created"
    NEW_VERSION = "new_version"
    UNCHANGED = "unchanged"


async def put_order(connection: AsyncConnection, clock: Clock, *, external_ref: str, order: Order, actor: str) -> tuple[Row, bool]:
    """Store an order and return it as :func:`get_order` does, and whether it is new. The same content again makes no new version.

    Raises ``ORDER_CONFLICT`` when the order belongs to another customer, or a payment to another order: neither is ever moved.
    """
    row, put, customer = await record_order(connection, clock, external_ref=external_ref, order=order, actor=actor)
    if put is not Put.UNCHANGED and order.customer_since not in (None, customer.account_created_at):
        await note_since(connection, customer.id, order.customer_since)
    return _shown(row, external_ref, customer.key), put is Put.CREATED


async def record_order(
    connection: AsyncConnection, clock: Clock, *, external_ref: str, order: Order, actor: str
) -> tuple[Row, Put, Customer]:
    """Store an order and return its row, what became of it, and its customer, whose ``account_created_at`` is left as it was.

    Raises as :func:`put_order` does.
    """
    now = clock.now()
    customer = await identifiers.put_customer(connection, order.customer_id, since=order.customer_since, at=now)
    key, order_id = _key(customer), new_id(Prefix.ORDER)
    values = {"customer_id": customer.id, "updated_at": now, "placed_at": order.placed_at, "delivered_at": order.delivered_at}
    sealed = identifiers.seal_order(connection, key, order_id, external_ref)
    content = order.model_dump(mode="json")
    body = identifiers.sealed_body(key, order_id, 1, content, customer.id)
    adding = insert(orders).values(id=order_id, version=1, **sealed.columns, **body, **values)
    made = (await connection.execute(adding.on_conflict_do_nothing().returning(orders.c.id))).scalar_one_or_none()
    reading = select(orders).where(orders.c.ref_lookup == sealed.columns["ref_lookup"]).with_for_update(key_share=True)
    row = (await connection.execute(reading)).mappings().one()
    if row["customer_id"] != customer.id:
        raise RefundError(Code.ORDER_CONFLICT, "This order belongs to another customer.", field="customer_id")
    if made is None:
        if identifiers.open_body(key, row) == content:
            return row, Put.UNCHANGED, customer
        version = row["version"] + 1
        body = identifiers.sealed_body(key, row["id"], version, content, customer.id)
        changing = update(orders).where(orders.c.id == row["id"]).values(version=version, **body, **values).returning(orders)
        row = (await connection.execute(changing)).mappings().one()
    await connection.execute(
        insert(order_versions).values(order_id=row["id"], version=row["version"], recorded_at=now, recorded_by=actor, **body)
    )
    await _put_payments(connection, row["id"], order)
    first = made_of(customer, sealed.commitment) if made else None
    await enter(connection, "order_recorded", now, actor=actor, commitments=first, order=row["id"], version=row["version"])
    return row, Put.NEW_VERSION if made is None else Put.CREATED, customer


def made_of(customer: Customer, order_commitment: str) -> dict[str, str]:
    """The commitments that go with the entry of a new order: of its id, and of its customer's where that is new as well."""
    return {identifiers.ORDER: order_commitment} | ({identifiers.CUSTOMER: customer.made} if customer.made else {})


def _key(customer: Customer) -> bytes:
    assert customer.key is not None, "who is found by their id has a key"
    return customer.key


async def note_since(connection: AsyncConnection, customer_id: str, since: datetime | None) -> None:
    """Record since when somebody is a customer. Do it last: the customer's lock comes last in the order of locks."""
    await connection.execute(update(customers).where(customers.c.id == customer_id).values(account_created_at=since))


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
    """An order, with the merchant's id of it as ``external_ref`` and its content as it was sent, and its payments. Raises ``ORDER_NOT_FOUND``."""
    row = await _BY_REF.first(connection, lookup=identifiers.order_lookup(connection, external_ref))
    if row is None:
        raise RefundError(Code.ORDER_NOT_FOUND, "There is no such order.", field="order_id")
    key = await customer_key(connection, row["customer_id"], row["key_wrapped"], row["key_wrapping"])
    return _shown(row, external_ref, key), await payments_of(connection, row["id"])


def _shown(row: Row, external_ref: str, key: bytes | None) -> Row:
    return {**row, "external_ref": external_ref, "body": identifiers.open_body(key, row)}


async def payments_of(connection: AsyncConnection, order_id: str) -> list[Row]:
    """The payments of an order, oldest first."""
    return list(await _PAYMENTS_OF.all(connection, order=order_id))


async def taken_for(connection: AsyncConnection, order_id: str) -> list[Row]:
    """The payments of an order, oldest first, without manual ones that it names no more: nothing was taken by those."""
    return _taken(await payments_of(connection, order_id))


def _taken(found: Sequence[Row]) -> list[Row]:
    return [payment for payment in found if payment["amount"]]


class Target:
    """What a request is about: the customer with their key, the order and the one payment, all ours, and checked to belong together."""

    def __init__(self, key: bytes | None, order: Row, payment: Row) -> None:
        self.customer_id: str = order["customer_id"]
        self.key = key
        self.order = order
        self.payment = payment


async def find_customer(connection: AsyncConnection, external_ref: str) -> str | None:
    """Our surrogate for the merchant's customer id, or ``None``."""
    found = await identifiers.find_customer(connection, external_ref)
    return None if found is None else found.id


class OwnershipMismatch(RefundError):
    """The order or payment exists but is somebody else's. To the caller it is simply not there; the ledger knows better (field report 62)."""


async def find_target(connection: AsyncConnection, *, customer_ref: str, order_ref: str | None, payment_ref: str | None) -> Target:
    """Find the payment a request names, within the customer's own orders only.

    Raises ``ORDER_NOT_FOUND`` or ``PAYMENT_NOT_FOUND`` (as :class:`OwnershipMismatch` when it exists but is another customer's), and
    ``AMBIGUOUS_PAYMENT`` with the candidates when the order has several payments and none is named (field report 26).
    """
    if payment_ref is not None:
        owner = identifiers.customer_lookup(connection, customer_ref)
        named = None if order_ref is None else await _order_by_ref(connection, order_ref)
        return await _target_by_payment(connection, "owner", owner, payment_ref, named, names_an_order=order_ref is not None)
    lookup = None if order_ref is None else identifiers.order_lookup(connection, order_ref)
    async with pipelined(connection):
        named, paid = await _BY_REF.ask(connection, lookup=lookup), await _PAYMENTS_OF_REF.ask(connection, lookup=lookup)
    order = _owned(await named.first(), identifiers.customer_lookup(connection, customer_ref))
    candidates = _taken(await paid.all())
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
    return await _target(connection, order, candidates[0])


async def find_target_of(connection: AsyncConnection, *, customer_id: str, order_id: str | None, payment_ref: str) -> Target:
    """The same for a payment of a customer, and of an order, that are known by our ids. Raises ``PAYMENT_NOT_FOUND``."""
    named = None if order_id is None else await _BY_ID.one(connection, order=order_id)
    return await _target_by_payment(connection, "customer_id", customer_id, payment_ref, named, names_an_order=order_id is not None)


async def find_order(connection: AsyncConnection, *, customer_ref: str, order_ref: str | None) -> Row:
    """An order of this customer. Raises ``ORDER_NOT_FOUND`` (as :class:`OwnershipMismatch` when it exists but is another customer's)."""
    order = None if order_ref is None else await _order_by_ref(connection, order_ref)
    return _owned(order, identifiers.customer_lookup(connection, customer_ref))


def _owned(order: Row | None, owner: bytes) -> Row:
    if order is None or order["owner"] != owner:
        kind = RefundError if order is None else OwnershipMismatch
        raise kind(Code.ORDER_NOT_FOUND, field="order_id")
    return order


async def key_of_owner(connection: AsyncConnection, order: Row) -> bytes | None:
    """The key of the customer of an order that was found here; ``None`` when they are forgotten."""
    return await customer_key(connection, order["customer_id"], order["key_wrapped"], order["key_wrapping"])


async def _order_by_ref(connection: AsyncConnection, order_ref: str) -> Row | None:
    return await _BY_REF.first(connection, lookup=identifiers.order_lookup(connection, order_ref))


async def _target(connection: AsyncConnection, order: Row, payment: Row) -> Target:
    return Target(await key_of_owner(connection, order), order, payment)


async def in_sequence(connection: AsyncConnection, order: Row) -> list[Row]:
    """The payments of an order in the sequence in which its version in force names them, then any it names no more, oldest first."""
    named = {(p["processor"], p["id"]): at for at, p in enumerate(order["body"]["payments"])}
    found = await payments_of(connection, order["id"])
    return sorted(found, key=lambda p: (named.get((p["processor"], p["processor_payment"]), len(named)), p["id"]))


async def _target_by_payment(
    connection: AsyncConnection, by: str, owner: bytes | str, payment_ref: str, named: Row | None, *, names_an_order: bool
) -> Target:
    """The payment, when the column ``by`` of its order says that this is the owner, and when no other order is named than its own."""
    payment = await _PAYMENT.first(connection, ref=payment_ref)
    if payment is None:
        check_kind(payment_ref, "payment_id")
        mine = named if named is not None and named[by] == owner else None
        raise await _not_found(connection, mine, payment_ref)
    order = named if named is not None and named["id"] == payment["order_id"] else await _BY_ID.one(connection, order=payment["order_id"])
    if order[by] != owner:
        raise OwnershipMismatch(Code.PAYMENT_NOT_FOUND, field="payment_id")
    if names_an_order and order is not named:
        raise RefundError(Code.PAYMENT_NOT_FOUND, "The named order has no such payment.", field="payment_id")
    return await _target(connection, order, payment)


async def _not_found(connection: AsyncConnection, named: Row | None, payment_ref: str) -> RefundError:
    """The answer for a payment that is not recorded. Of the customer's own order it is said when it names its payments by the other kind of id."""
    if named is not None and (asked := names_a_charge(payment_ref)) is not None:
        recorded = {names_a_charge(payment["processor_payment"]) for payment in await payments_of(connection, named["id"])}
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
