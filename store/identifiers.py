"""Who somebody is to the merchant, and which order is which: the only module that seals, opens and looks up the merchant's ids of customers and orders.

An id is sealed under its customer's key (AES-256-GCM, bound to table, row and column) beside its look-up value (HMAC-SHA256 under a key outside the
database). What is found by an id is found by one indexed equality; what is shown of a row is opened with the customer's key, which comes with the row.
Of a forgotten customer there is nothing to open: their ids read as ``None``, and never as an error.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import bindparam, insert, select
from sqlalchemy.dialects import postgresql
from sqlalchemy.ext.asyncio import AsyncConnection

from refunds.apart import DETAILS, together
from refunds.ids import Prefix, new_id
from store.sealing import Opening, open_value, seal, seal_value, unseal
from store.sql import Query, Row
from store.tables import customer_keys, customers
from store.vault import customer_key, keys_of

CUSTOMER, ORDER = "customer", "order"
"""The kinds of identifiers: what each is looked up as, and how the ledger names its commitment."""

KEY_COLUMNS = (customer_keys.c.wrapped.label("key_wrapped"), customer_keys.c.wrapping.label("key_wrapping"))
"""A customer's key as it comes with a row, by an outer join: a forgotten customer has none."""

KEY_SQL = "k.wrapped AS key_wrapped, k.wrapping AS key_wrapping, c.ref_sealed AS customer_sealed"
"""The same in plain SQL, with the customer's id; ``k`` is ``customer_keys`` and ``c`` is ``customers``."""


@dataclass(frozen=True, slots=True)
class Customer:
    """A customer of the merchant's: our id, since when they have an account, and their key, ``None`` when they are forgotten.

    ``made`` is the commitment of their id when this call recorded them first.
    """

    id: str
    account_created_at: datetime | None
    key: bytes | None
    made: str | None = None


# --- customers -----------------------------------------------------------------------------------------------------------------------------

_WITH_KEY = select(customers.c.id, customers.c.account_created_at, customers.c.ref_lookup, *KEY_COLUMNS).outerjoin(
    customer_keys, customer_keys.c.customer_id == customers.c.id
)
_BY_LOOKUP = Query(_WITH_KEY.where(customers.c.ref_lookup == bindparam("lookup")))
_BY_ID = Query(_WITH_KEY.where(customers.c.id == bindparam("customer")))


def customer_lookup(connection: AsyncConnection, ref: str) -> bytes:
    """What a customer is found by."""
    return keys_of(connection).lookup(CUSTOMER, ref)


def order_lookup(connection: AsyncConnection, ref: str) -> bytes:
    """What an order is found by."""
    return keys_of(connection).lookup(ORDER, ref)


async def find_customer(connection: AsyncConnection, ref: str) -> Customer | None:
    """The customer with this id of the merchant's."""
    row = await _BY_LOOKUP.first(connection, lookup=customer_lookup(connection, ref))
    return None if row is None else await _customer(connection, row)


async def customer(connection: AsyncConnection, customer_id: str) -> Customer:
    """The customer with this id of ours, which must be there."""
    return await _customer(connection, await _BY_ID.one(connection, customer=customer_id))


async def put_customer(connection: AsyncConnection, ref: str, *, since: datetime | None, at: datetime) -> Customer:
    """The customer with this id of the merchant's, recorded with a key of their own if nobody has recorded them. Whoever comes second gets the first one's."""
    return (await put_customers(connection, {ref: since}, at=at))[ref]


async def put_customers(connection: AsyncConnection, refs: Mapping[str, datetime | None], *, at: datetime) -> dict[str, Customer]:
    """The same for many: what each is known since, by the merchant's ids. Customers that are there keep what is recorded of them.

    None of them is forgotten before the transaction is over; whoever is just being forgotten is waited for, and is somebody new then.
    """
    lookups = {customer_lookup(connection, ref): ref for ref in refs}
    found = await _known(connection, lookups)
    missing = {ref: since for ref, since in refs.items() if ref not in found}
    if missing:
        made = await _make(connection, missing, at)
        found |= await _known(connection, {lookup: ref for lookup, ref in lookups.items() if ref in missing}, made)
    return found


async def _known(connection: AsyncConnection, lookups: Mapping[bytes, str], made: Mapping[str, str] | None = None) -> dict[str, Customer]:
    known = _WITH_KEY.where(customers.c.ref_lookup.in_(list(lookups))).order_by(customers.c.id)
    rows = await connection.execute(known.with_for_update(read=True, key_share=True, of=customers))
    return {lookups[bytes(row["ref_lookup"])]: await _customer(connection, row, (made or {}).get(row["id"])) for row in rows.mappings()}


async def _make(connection: AsyncConnection, refs: Mapping[str, datetime | None], at: datetime) -> dict[str, str]:
    """Record customers with their keys; returns the commitments of those that nobody else recorded meanwhile, by our ids.

    A customer and the key are made in one transaction, so there is never one without the other, and of two processes that make the same customer at once
    the second waits for the first and finds theirs.
    """
    keys, rows, key_rows, commitments = keys_of(connection), [], {}, {}
    for ref, since in sorted(refs.items()):
        customer_id = new_id(Prefix.CUSTOMER)
        key = keys.new_customer_key(customer_id)
        sealed = seal_value(key.key, ref, customer_place(customer_id))
        rows.append({"id": customer_id, "ref_lookup": keys.lookup(CUSTOMER, ref), "ref_sealed": sealed.sealed, "account_created_at": since})
        key_rows[customer_id] = {"customer_id": customer_id, "wrapped": key.wrapped, "wrapping": key.wrapping, "created_at": at}
        commitments[customer_id] = sealed.commitment
    adding = postgresql.insert(customers).on_conflict_do_nothing().returning(customers.c.id)
    made = list((await connection.execute(adding, [row | {"created_at": at} for row in rows])).scalars())
    if made:
        await connection.execute(insert(customer_keys), [key_rows[customer_id] for customer_id in made])
    return {customer_id: commitments[customer_id] for customer_id in made}


async def _customer(connection: AsyncConnection, row: Row, made: str | None = None) -> Customer:
    key = await customer_key(connection, row["id"], row["key_wrapped"], row["key_wrapping"])
    return Customer(row["id"], row["account_created_at"], key, made)


# --- orders --------------------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SealedOrder:
    """The columns of an order that its id and content make, and the commitment of its id."""

    columns: dict[str, Any]
    commitment: str


def sealed_body(key: bytes, order_id: str, version: int, body: Mapping[str, Any], customer_id: str) -> dict[str, Any]:
    """The columns that hold an order's content: what refunds are worked out from in the clear, with our id of the customer and without the lines' titles,
    and the whole of it sealed."""
    return {"body": working_body(body, customer_id), "body_sealed": seal(key, json.dumps(body).encode(), body_place(order_id, version))}


def working_body(body: Mapping[str, Any], customer_id: str) -> dict[str, Any]:
    """An order's content without what is personal in it."""
    return {**body, "customer_id": customer_id, "lines": [{**line, "title": ""} for line in body["lines"]]}


def seal_order(connection: AsyncConnection, key: bytes, order_id: str, ref: str) -> SealedOrder:
    """The columns that hold an order's id."""
    sealed = seal_value(key, ref, order_place(order_id))
    return SealedOrder({"ref_lookup": order_lookup(connection, ref), "ref_sealed": sealed.sealed}, sealed.commitment)


def open_body(key: bytes | None, row: Row) -> dict[str, Any]:
    """An order's content as it was sent; of a forgotten customer what is left of it. Raises :class:`store.sealing.Unreadable`."""
    if key is None or row["body_sealed"] is None:
        return dict(row["body"])
    return json.loads(unseal(key, bytes(row["body_sealed"]), body_place(row["id"], row["version"])))


# --- staging -------------------------------------------------------------------------------------------------------------------------------


def stage(connection: AsyncConnection, row: str, column: str, value: str | None) -> bytes | None:
    """Seal an identifier that belongs to no customer of ours yet, bound to a row of ``pulled_payments`` and a column.

    The key comes from the look-up key: forgetting somebody takes these values out, because no key of theirs dies with them.
    """
    return None if value is None else seal(keys_of(connection).staging(), value.encode(), staging_place(row, column))


def staged(connection: AsyncConnection, row: str, column: str, sealed: bytes | None) -> str | None:
    """What :func:`stage` sealed. Raises :class:`store.sealing.Unreadable`."""
    return None if sealed is None else unseal(keys_of(connection).staging(), bytes(sealed), staging_place(row, column)).decode()


# --- showing -------------------------------------------------------------------------------------------------------------------------------


async def opened(connection: AsyncConnection, row: Row) -> dict[str, Any]:
    """A row with ``customer_ref`` and ``order_ref``, the merchant's ids, in place of what is sealed of them.

    The row has :data:`KEY_SQL`, ``customer_id``, and ``order_sealed`` with ``order_id`` where it has an order; with ``details_sealed`` it is a refund's, whose
    details as they were sent are then ``details_whole``. Raises :class:`store.sealing.Unreadable`.
    """
    shown = dict(row)
    wrapped, wrapping = shown.pop("key_wrapped"), shown.pop("key_wrapping")
    customer_sealed, order_sealed = shown.pop("customer_sealed"), shown.pop("order_sealed", None)
    key = await customer_key(connection, shown["customer_id"], wrapped, wrapping)
    if "details_sealed" in shown:
        personal = _text(key, shown.pop("details_sealed"), details_place(shown["id"]))
        shown["details_whole"] = together(shown["details"], json.loads(personal) if personal else {})
    shown["customer_ref"] = _text(key, customer_sealed, customer_place(shown["customer_id"]))
    shown["order_ref"] = _text(key, order_sealed, order_place(shown["order_id"])) if order_sealed is not None else None
    return shown


async def all_opened(connection: AsyncConnection, rows: Iterable[Row]) -> list[dict[str, Any]]:
    """The same for many rows."""
    return [await opened(connection, row) for row in rows]


def customer_opening(key: bytes | None, customer_id: str, sealed: bytes | None) -> Opening | None:
    """The merchant's id of a customer and its salt; ``None`` when they are forgotten. Raises :class:`store.sealing.Unreadable`."""
    return None if key is None or sealed is None else open_value(key, bytes(sealed), customer_place(customer_id))


def order_opening(key: bytes | None, order_id: str, sealed: bytes | None) -> Opening | None:
    """The merchant's id of an order and its salt; ``None`` when its customer is forgotten. Raises :class:`store.sealing.Unreadable`."""
    return None if key is None or sealed is None else open_value(key, bytes(sealed), order_place(order_id))


def _text(key: bytes | None, sealed: bytes | None, place: str) -> str | None:
    return None if key is None or sealed is None else open_value(key, bytes(sealed), place).value


def customer_place(customer_id: str) -> str:
    """Where a customer's id is bound to."""
    return f"customers/{customer_id}/ref"


def order_place(order_id: str) -> str:
    """Where an order's id is bound to."""
    return f"orders/{order_id}/ref"


def body_place(order_id: str, version: int) -> str:
    """Where an order's content is bound to; the present one and its version in the history are the same."""
    return f"orders/{order_id}/body/{version}"


def details_place(refund_id: str) -> str:
    """Where the personal part of a request's details is bound to: it is a text of the refund's."""
    return f"texts/{refund_id}/{DETAILS}"


def staging_place(row: str, column: str) -> str:
    """Where a staged id is bound to."""
    return f"pulled_payments/{row}/{column}"
