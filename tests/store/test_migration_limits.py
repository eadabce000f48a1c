"""Revision 0004 on a database with refunds: what was used before there were limits counts towards them, by the same rule as from then on."""

import base64
from datetime import UTC, datetime
from typing import Any

import psycopg
import pytest
from psycopg.rows import dict_row

from tests.conftest import FreshDatabase
from tests.store.older import at_revision, migrating
from tests.store.world import TEXT_KEY

AT = datetime(2026, 6, 1, 12, tzinfo=UTC)
STATUSES = ("received", "awaiting_review", "withdrawn", "succeeded", "failed", "parked")


@pytest.fixture
def before(empty_database: FreshDatabase) -> FreshDatabase:
    """A database at revision 0003 with a refund in each of these statuses; the last three were sent an hour after they were quoted."""
    return at_revision(empty_database, "0003", _fill)


def _fill(connection: psycopg.Connection) -> None:
    run = connection.execute
    run("INSERT INTO principals (id, kind, handle, name, created_at) VALUES ('pr_1', 'service', 'shop', 'Shop', now())")
    run("INSERT INTO customers (id, external_ref, created_at) VALUES ('cu_1', 'c', now())")
    body = '{"customer_id": "c", "currency": "EUR", "lines": [], "payments": []}'
    run("INSERT INTO orders (id, external_ref, customer_id, version, body, updated_at) VALUES ('or_1', 'o', 'cu_1', 1, %s, now())", [body])
    run(
        "INSERT INTO payments (id, order_id, processor, processor_payment, currency, amount) VALUES ('pay_1', 'or_1', 'stripe', 'pi_1', 'EUR', 9000)"
    )
    for number, status in enumerate(STATUSES):
        refund, revision = f"rf_{number}", int(status != "received")
        run(
            "INSERT INTO refunds (id, version, status, created_at, status_since, integration, idempotency_key, body_hash, requester_id, agent_id, customer_id,"
            ' order_id, payment_id, amount, currency, "full", details, sources, has_text, revision, rung, reminded)'
            " VALUES (%s, 1, %s, %s, %s, 'shop', %s, '', 'pr_1', 'bot', 'cu_1', 'or_1', 'pay_1', 100, 'EUR', false, '{\"kind\": \"refund\"}', '{}', false,"
            " %s, 0, false)",
            [refund, status, AT, AT, refund, revision],
        )
        if not revision:
            continue
        run(
            "INSERT INTO revisions (refund_id, revision, payment_id, amount, currency, terms, policy_version, policy_hash, facts, decision, author_id,"
            " loosened, created_at) VALUES (%s, 1, 'pay_1', 100, 'EUR', '{\"operation\": \"refund\"}', 1, '', "
            '\'{"base": {"currency": "USD", "amount": 110}}\', \'{}\', \'pr_1\', false, %s)',
            [refund, AT],
        )
        if status in ("succeeded", "failed", "parked"):
            run(
                "INSERT INTO operations (id, refund_id, revision, kind, terms_hash, payment_id, amount, currency, request, idempotency_key, created_at)"
                " VALUES (%s, %s, 1, 'refund', '', 'pay_1', 100, 'EUR', '{}', %s, %s + interval '59 minutes')",
                [f"op_{number}", refund, f"key-{number}", AT],
            )
            run(
                "INSERT INTO attempts (id, operation_id, number, worker, opened_at, send_by) SELECT %s || n, %s, n, 'w', %s + n * interval '1 hour', now()"
                " FROM generate_series(1, 2) n",
                [f"att_{number}_", f"op_{number}", AT],
            )


def uses(database: FreshDatabase) -> list[dict[str, Any]]:
    with database.connect("postgres") as connection, connection.cursor(row_factory=dict_row) as cursor:
        return cursor.execute("SELECT * FROM limit_uses ORDER BY refund_id, stage").fetchall()


def test_what_was_used_before_there_were_limits_counts(before: FreshDatabase) -> None:
    ended = migrating(before, REFUNDS_TEXT_KEY=base64.b64encode(TEXT_KEY).decode())

    assert (ended.returncode, ended.stderr) == (0, "")
    rows = uses(before)
    assert [(row["refund_id"], row["stage"], row["given_back_at"] is None) for row in rows] == [
        ("rf_1", "reserved", True),
        ("rf_2", "reserved", False),
        ("rf_3", "reserved", True),
        ("rf_3", "sent", True),
        ("rf_4", "reserved", False),
        ("rf_4", "sent", False),
        ("rf_5", "reserved", True),
        ("rf_5", "sent", True),
    ]
    for row in rows:
        assert (row["customer_id"], row["agent_id"], row["by_agent"], row["session"], row["processor"]) == (
            "cu_1",
            "bot",
            True,
            None,
            "stripe",
        )
        assert (row["amount"], row["currency"], row["base"], row["worth"]) == (100, "EUR", "USD", 110)
        assert row["taken_at"] == (AT if row["stage"] == "reserved" else AT.replace(hour=13))
