"""What revision 0004 does to the rows that are there: whatever is personal in them is sealed, with the master key of whoever migrates.

Identifiers and order contents get keys of their customers, texts get a salt, fingerprints become keyed. All in the migration's one transaction.
"""

import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from sqlalchemy import Connection, text

from refunds.apart import DETAILS, apart
from refunds.settings import Settings
from store import master_keys
from store.identifiers import CUSTOMER, ORDER, body_place, customer_place, order_place, staging_place, working_body
from store.master_keys import KeysMissing, MasterKeys
from store.remarks import sealed_remark
from store.sealing import Unreadable, new_key, seal, seal_value, unseal
from store.texts import place_of
from store.vault import LOOKUP, WRAPPING, Keys, name_of

_BATCH = 1_000


def seal_all(connection: Connection) -> None:
    """Seal what is there. An empty database needs no key; one with customers does: raises :class:`store.master_keys.KeysMissing` without."""
    written = text("SELECT 1 FROM customers UNION ALL SELECT 1 FROM discrepancies WHERE note IS NOT NULL LIMIT 1")
    if connection.execute(written).first() is None:
        return
    settings = Settings.load()
    masters = master_keys.of(settings)
    if masters is None:
        raise KeysMissing(
            "This database holds identifiers of customers and orders in the clear, and this migration seals them: run it again with the master key that the"
            " API uses (REFUNDS_TEXT_KEY, REFUNDS_TEXT_KEYS_FILE or REFUNDS_TEXT_KMS_URL). Nothing was changed."
        )
    local = master_keys.local_keys(settings)
    keys = _make_keys(connection, masters)
    customer_keys = _customers(connection, keys, () if local is None else local.held)
    _orders(connection, keys, customer_keys)
    _texts(connection, customer_keys)
    _details(connection, keys, customer_keys)
    _pulled(connection, keys)
    _remarks(connection, keys)
    _fingerprints(connection, keys)


def refuse_to_unseal(connection: Connection) -> None:
    """Going back would put in the clear what is sealed: only an empty database may."""
    if connection.execute(text("SELECT 1 FROM customers LIMIT 1")).first() is not None:
        raise KeysMissing(
            "What is personal in this database is sealed and is not put in the clear again: restore a backup of before instead."
        )


def _make_keys(connection: Connection, masters: MasterKeys) -> Keys:
    made = {LOOKUP: new_key(), WRAPPING: new_key()}
    adding = text("INSERT INTO sealing_keys (purpose, number, master, wrapped, created_at) VALUES (:purpose, 1, :master, :wrapped, now())")
    for purpose, key in made.items():
        wrapped = masters.wrap(key, name_of(purpose, 1))
        connection.execute(adding, {"purpose": purpose, "master": masters.current, "wrapped": wrapped})
    return Keys(made[LOOKUP], {1: made[WRAPPING]})


def _customers(connection: Connection, keys: Keys, held: Sequence[bytes]) -> dict[str, bytes]:
    """Every customer gets a key, the old one where there is one; returns them all."""
    found: dict[str, bytes] = {}
    reading = "SELECT c.id, c.external_ref, k.wrapped FROM customers c LEFT JOIN customer_keys k ON k.customer_id = c.id WHERE c.id > :after ORDER BY c.id"
    for rows in _batches(connection, reading, "id"):
        for row in rows:
            key = new_key() if row.wrapped is None else _old(held, bytes(row.wrapped), row.id)
            found[row.id] = key
        put = "UPDATE customers SET ref_lookup = :lookup, ref_sealed = :sealed WHERE id = :id"
        _do(connection, put, rows, lambda row: _ref(keys, CUSTOMER, found[row.id], row.external_ref, row.id, customer_place(row.id)))
        put = (
            "INSERT INTO customer_keys (customer_id, wrapped, wrapping, created_at) VALUES (:id, :wrapped, 1, now())"
            " ON CONFLICT (customer_id) DO UPDATE SET wrapped = excluded.wrapped, wrapping = 1"
        )
        _do(connection, put, rows, lambda row: {"id": row.id, "wrapped": keys.wrap(row.id, found[row.id])})
    return found


def _orders(connection: Connection, keys: Keys, customer_keys: dict[str, bytes]) -> None:
    for rows in _batches(connection, "SELECT id, external_ref, customer_id FROM orders WHERE id > :after ORDER BY id", "id"):
        put = "UPDATE orders SET ref_lookup = :lookup, ref_sealed = :sealed WHERE id = :id"
        _do(
            connection,
            put,
            rows,
            lambda row: _ref(keys, ORDER, customer_keys[row.customer_id], row.external_ref, row.id, order_place(row.id)),
        )
    for table, key in (("orders", "id"), ("order_versions", "order_id")):
        # All versions of an order are in one batch of the joined ones or are read again by the next: each is written from what it is, once more at worst.
        reading = (
            f"SELECT o.id, o.customer_id, v.version, v.body FROM {table} v JOIN orders o ON o.id = v.{key}"
            " WHERE (o.id > :after OR :after = '') AND v.body_sealed IS NULL ORDER BY o.id, v.version"
        )
        for rows in _batches(connection, reading, "id", again=table == "order_versions"):
            put = f"UPDATE {table} SET body = CAST(:body AS jsonb), body_sealed = :sealed WHERE {key} = :id AND version = :version"
            _do(connection, put, rows, lambda row: _body(customer_keys[row.customer_id], row))


def _texts(connection: Connection, customer_keys: dict[str, bytes]) -> None:
    reading = "SELECT refund_id || '/' || kind AS at, refund_id, kind, customer_id, sealed FROM texts WHERE refund_id || '/' || kind > :after ORDER BY 1"
    for rows in _batches(connection, reading, "at"):
        put = "UPDATE texts SET sealed = :sealed WHERE refund_id = :refund AND kind = :kind"
        _do(connection, put, rows, lambda row: _text(customer_keys[row.customer_id], row))


def _details(connection: Connection, keys: Keys, customer_keys: dict[str, bytes]) -> None:
    """What is personal in requests goes to the texts."""
    for table in ("refunds", "refund_groups"):
        for rows in _batches(connection, f"SELECT id, customer_id, created_at, details FROM {table} WHERE id > :after ORDER BY id", "id"):
            taken = [(row, *apart(row.details, keys.fingerprint)) for row in rows]
            _do(
                connection,
                f"UPDATE {table} SET details = CAST(:details AS jsonb) WHERE id = :id",
                taken,
                lambda one: {"id": one[0].id, "details": json.dumps(one[1])},
            )
            # A group's own is sealed with each of its parts.
            if personal := [one for one in taken if one[2] and table == "refunds"]:
                put = "INSERT INTO texts (refund_id, kind, customer_id, sealed, recorded_at) VALUES (:id, :kind, :customer, :sealed, :at)"
                _do(connection, put, personal, lambda one: _personal(customer_keys[one[0].customer_id], one[0], one[2]))


def _pulled(connection: Connection, keys: Keys) -> None:
    reading = (
        "SELECT pull_id || '/' || processor_payment AS at, order_ref, customer_ref FROM pulled_payments"
        " WHERE pull_id || '/' || processor_payment > :after ORDER BY 1"
    )
    for rows in _batches(connection, reading, "at"):
        put = (
            "UPDATE pulled_payments SET order_lookup = :lookup, order_sealed = :order, customer_sealed = :customer"
            " WHERE pull_id || '/' || processor_payment = :at"
        )
        _do(connection, put, rows, lambda row: _staged(keys, row))


def _remarks(connection: Connection, keys: Keys) -> None:
    for rows in _batches(connection, "SELECT id, note FROM discrepancies WHERE note IS NOT NULL AND id > :after ORDER BY id", "id"):
        put = "UPDATE discrepancies SET note = :note WHERE id = :id"
        _do(connection, put, rows, lambda row: {"id": row.id, "note": sealed_remark(keys, row.id, row.note).kept})


def _fingerprints(connection: Connection, keys: Keys) -> None:
    """Idempotency keys and hashes of bodies, also in the entries of the ledger, which is not chained before this revision."""
    for table in ("refunds", "refund_groups"):
        if table == "refunds":
            connection.execute(
                text(
                    "UPDATE refunds SET details = details || jsonb_build_object('part', split_part(idempotency_key, '/', 2)) WHERE group_id IS NOT NULL"
                )
            )
        for rows in _batches(connection, f"SELECT id, idempotency_key, body_hash FROM {table} WHERE id > :after ORDER BY id", "id"):
            put = f"UPDATE {table} SET idempotency_key = :key, body_hash = :body WHERE id = :id"
            _do(connection, put, rows, lambda row: _keyed(keys, row))
    connection.execute(text("ALTER TABLE ledger DISABLE TRIGGER USER"))
    for rows in _batches(
        connection, "SELECT id, data->>'body_hash' AS body_hash FROM ledger WHERE data ? 'body_hash' AND id > :after ORDER BY id", "id", 0
    ):
        put = "UPDATE ledger SET data = jsonb_set(data, '{body_hash}', to_jsonb(CAST(:body AS text))) WHERE id = :id"
        _do(connection, put, rows, lambda row: {"id": row.id, "body": keys.fingerprint("body", row.body_hash)})
    connection.execute(text("ALTER TABLE ledger ENABLE TRIGGER USER"))


def _ref(keys: Keys, kind: str, key: bytes, ref: str, row_id: str, place: str) -> dict[str, Any]:
    return {"id": row_id, "lookup": keys.lookup(kind, ref), "sealed": seal_value(key, ref, place).sealed}


def _body(key: bytes, row: Any) -> dict[str, Any]:
    sealed = seal(key, json.dumps(row.body).encode(), body_place(row.id, row.version))
    return {"id": row.id, "version": row.version, "body": json.dumps(working_body(row.body, row.customer_id)), "sealed": sealed}


def _text(key: bytes, row: Any) -> dict[str, Any]:
    # How texts were sealed before: without a salt, bound to refund and kind.
    words = unseal(key, bytes(row.sealed), f"{row.refund_id}/{row.kind}").decode()
    return {"refund": row.refund_id, "kind": row.kind, "sealed": seal_value(key, words, place_of(row.refund_id, row.kind)).sealed}


def _personal(key: bytes, row: Any, personal: dict[str, Any]) -> dict[str, Any]:
    sealed = seal_value(key, json.dumps(personal, ensure_ascii=False), place_of(row.id, DETAILS)).sealed
    return {"id": row.id, "kind": DETAILS, "customer": row.customer_id, "sealed": sealed, "at": row.created_at}


def _staged(keys: Keys, row: Any) -> dict[str, Any]:
    def sealed(column: str, value: str | None) -> bytes | None:
        return None if value is None else seal(keys.staging(), value.encode(), staging_place(row.at, column))

    order, customer = sealed("order", row.order_ref), sealed("customer", row.customer_ref)
    return {"at": row.at, "lookup": row.order_ref and keys.lookup(ORDER, row.order_ref), "order": order, "customer": customer}


def _keyed(keys: Keys, row: Any) -> dict[str, Any]:
    return {"id": row.id, "key": keys.fingerprint("idempotency key", row.idempotency_key), "body": keys.fingerprint("body", row.body_hash)}


def _old(held: Sequence[bytes], wrapped: bytes, customer_id: str) -> bytes:
    """A customer's key as it was wrapped before: by the setting's key itself, bound to our id."""
    for key in held:
        try:
            return unseal(key, wrapped, customer_id)
        except Unreadable:
            continue
    raise KeysMissing(
        "The texts in this database were sealed with another REFUNDS_TEXT_KEY than the one given: run the migration with that one. Nothing was changed."
    )


def _batches(connection: Connection, reading: str, by: str, after: Any = "", *, again: bool = False) -> Iterator[Sequence[Any]]:
    """A query's rows, a thousand at a time, each batch behind the one before; with ``again`` the query itself leaves out what is done."""
    while rows := connection.execute(text(f"{reading} LIMIT {_BATCH}"), {"after": "" if again else after}).all():
        yield rows
        after = getattr(rows[-1], by)


def _do(connection: Connection, statement: str, rows: Sequence[Any], values: Callable[[Any], dict[str, Any]]) -> None:
    connection.execute(text(statement), [values(row) for row in rows])
