"""Revision 0004 on a database that holds identifiers, texts and fingerprints as revision 0003 kept them."""

import base64
import json
from typing import Any

import psycopg
import pytest
from alembic import command
from psycopg.rows import dict_row

from store import grants, groups, judging, orders, pulling
from store.db import connect
from store.sealing import new_key, seal
from store.texts import Texts
from tests.conftest import FreshDatabase
from tests.store.older import at_revision, migrating, moving
from tests.store.world import TEXT_KEY, FixedClock, settings

KEY = base64.b64encode(TEXT_KEY).decode()
CLEAR = (
    "mail-of-ann@example.com",
    "order of ann",
    "A kettle for Ann",
    "idempotency key of ann",
    "Ann writes",
    "shop/42",
    "Ann called about it",
)
HASH = "ab" * 32


@pytest.fixture
def before(empty_database: FreshDatabase) -> FreshDatabase:
    """A database at revision 0003 with rows of every kind that is personal."""
    return at_revision(empty_database, "0003", _fill)


def _fill(connection: psycopg.Connection) -> None:
    body = {
        "customer_id": CLEAR[0],
        "currency": "USD",
        "lines": [{"id": "1", "title": CLEAR[2], "category": "", "quantity": 1, "amount": 500}],
        "payments": [{"processor": "stripe", "id": "pi_1", "amount": 500, "currency": "USD", "tender": None}],
    }
    key = new_key()
    run = connection.execute
    run("INSERT INTO principals (id, kind, handle, name, created_at) VALUES ('pr_1', 'service', 'shop', 'Shop', now())")
    run("INSERT INTO customers (id, external_ref, created_at) VALUES ('cu_1', %s, now()), ('cu_2', 'nobody wrote', now())", [CLEAR[0]])
    run("INSERT INTO customer_keys (customer_id, wrapped, created_at) VALUES ('cu_1', %s, now())", [seal(TEXT_KEY, key, "cu_1")])
    run(
        "INSERT INTO orders (id, external_ref, customer_id, version, body, updated_at) VALUES ('or_1', %s, 'cu_1', 2, %s, now())",
        [CLEAR[1], json.dumps(body)],
    )
    run(
        "INSERT INTO order_versions (order_id, version, body, recorded_at, recorded_by)"
        " SELECT 'or_1', v, jsonb_set(%s::jsonb, '{shipping}', to_jsonb(v)), now(), 'x' FROM generate_series(1, 2) v",
        [json.dumps(body)],
    )
    run(
        "INSERT INTO payments (id, order_id, processor, processor_payment, currency, amount) VALUES ('pay_1', 'or_1', 'stripe', 'pi_1', 'USD', 500)"
    )
    run(
        'INSERT INTO refund_groups (id, integration, idempotency_key, body_hash, requester_id, customer_id, order_id, order_version, "full", details,'
        " allocation, created_at) VALUES ('rg_1', 'shop', %s, %s, 'pr_1', 'cu_1', 'or_1', 1, true, '{}', '{}', now())",
        [CLEAR[3], HASH],
    )
    run(
        "INSERT INTO refunds (id, group_id, version, status, created_at, status_since, integration, idempotency_key, body_hash, requester_id, customer_id,"
        " order_id, payment_id, \"full\", details, sources, has_text, revision, rung, reminded) VALUES ('rf_1', 'rg_1', 1, 'received', now(), now(), 'shop',"
        " 'rg_1/pay_1', %s, 'pr_1', 'cu_1', 'or_1', 'pay_1', true, '{\"kind\": \"refund\"}', '{}', true, 0, 0, false)",
        [HASH],
    )
    run(
        "INSERT INTO texts (refund_id, kind, customer_id, sealed, recorded_at) VALUES ('rf_1', 'message', 'cu_1', %s, now())",
        [seal(key, CLEAR[4].encode(), "rf_1/message")],
    )
    run(
        "INSERT INTO ledger (at, type, refund_id, refund_version, actor, data) VALUES (now(), 'refund_received', 'rf_1', 1, 'pr_1', %s)",
        [json.dumps({"body_hash": HASH, "kind": "refund"})],
    )
    run(
        "INSERT INTO discrepancies (id, kind, processor, payment_id, evidence, state, note, first_seen_at, last_seen_at)"
        " VALUES ('dis_1', 'external_refund', 'stripe', 'pay_1', '{}', 'explained', %s, now(), now())",
        [CLEAR[6]],
    )
    run(
        "INSERT INTO order_pulls (id, processor, since, until, dry_run, order_field, customer_field, started_by, started_at, phase, progressed_at)"
        " VALUES ('pl_1', 'stripe', now(), now(), false, 'o', 'c', 'pr_1', now(), 'making', now())"
    )
    run(
        "INSERT INTO pulled_payments (pull_id, processor_payment, order_ref, customer_ref, captured, raw_status, outcome) VALUES"
        " ('pl_1', 'pi_1', %s, %s, 500, 'succeeded', 'created'), ('pl_1', 'pi_2', NULL, NULL, 0, 'canceled', 'skipped')",
        [CLEAR[5], CLEAR[0]],
    )


def everything(database: FreshDatabase) -> str:
    with database.connect("postgres") as connection:
        tables = connection.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'public'").fetchall()
        return "".join(str(connection.execute(f"SELECT t::text FROM {table} t".encode()).fetchall()) for (table,) in tables)


async def test_what_was_in_the_clear_is_sealed_and_reads_as_before(before: FreshDatabase) -> None:
    assert [word for word in (*CLEAR[:4], *CLEAR[5:], HASH) if word not in everything(before)] == [], "it is there and can be found"

    ended = migrating(before, REFUNDS_TEXT_KEY=KEY)

    assert (ended.returncode, ended.stderr) == (0, "")
    assert [word for word in (*CLEAR, HASH) if word in everything(before)] == []
    database = connect(before.url(grants.API), FixedClock(), settings(), name="test")
    async with database.begin() as connection:
        row, _ = await orders.get_order(connection, CLEAR[1])
        assert (row["id"], row["body"]["customer_id"], row["body"]["lines"][0]["title"]) == ("or_1", CLEAR[0], CLEAR[2])
        assert await orders.find_customer(connection, CLEAR[0]) == "cu_1"
        assert await orders.find_customer(connection, "nobody wrote") == "cu_2"
        assert await Texts(database.clock).read(connection, "rf_1") == {"message": CLEAR[4]}
        shown = await pulling.report(connection, "pl_1", outcome=None, after=None, limit=9)
        assert [one["order_ref"] for one in shown] == [CLEAR[5], None]
        [discrepancy] = await judging.page(connection, judging.Filters(), limit=9)
        assert discrepancy["note"] == CLEAR[6]
        group = await groups.visible(connection, "rg_1", integration=None)
        assert (group["customer_ref"], group["order_ref"]) == (CLEAR[0], CLEAR[1])
    await database.close()
    assert _rows(
        before, "SELECT body->>'customer_id' AS c, body->'lines'->0->>'title' AS t, version FROM order_versions ORDER BY version"
    ) == [
        {"c": "cu_1", "t": "", "version": 1},
        {"c": "cu_1", "t": "", "version": 2},
    ]
    assert _rows(before, "SELECT details->>'part' AS part FROM refunds") == [{"part": "pay_1"}]
    [entered] = _rows(before, "SELECT l.data->>'body_hash' AS entered, r.body_hash FROM ledger l JOIN refunds r ON r.id = l.refund_id")
    assert entered["entered"] == entered["body_hash"] != HASH


@pytest.mark.parametrize(
    ("env", "why"),
    [({}, "REFUNDS_TEXT_KEY"), ({"REFUNDS_TEXT_KEY": base64.b64encode(bytes(32)).decode()}, "another REFUNDS_TEXT_KEY")],
    ids=["no key", "another key"],
)
def test_without_the_key_nothing_is_changed_and_it_says_what_is_missing(before: FreshDatabase, env: dict[str, str], why: str) -> None:
    ended = migrating(before, **env)

    assert (ended.returncode, ended.stdout, len(ended.stderr.splitlines())) == (1, "", 1)
    assert why in ended.stderr and "Nothing was changed" in ended.stderr
    assert _rows(before, "SELECT version_num FROM alembic_version") == [{"version_num": "0003"}]
    assert CLEAR[0] in everything(before)


def test_an_empty_database_needs_no_key(empty_database: FreshDatabase) -> None:
    assert migrating(empty_database).returncode == 0


def test_what_is_sealed_is_not_put_in_the_clear_again(before: FreshDatabase) -> None:
    assert migrating(before, REFUNDS_TEXT_KEY=KEY).returncode == 0

    with pytest.raises(RuntimeError, match="not put in the clear again"):
        moving(before, command.downgrade, "0003")


def _rows(database: FreshDatabase, query: str) -> list[dict[str, Any]]:
    with database.connect("postgres") as connection, connection.cursor(row_factory=dict_row) as cursor:
        return cursor.execute(query.encode()).fetchall()
