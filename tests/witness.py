"""A witness in every test's database: a change of the business record that was not entered in the ledger by the same transaction fails the test that made it.

Triggers, which exist in tests only, note for each transaction what it changed and what it entered. When a test's database is dropped, the two are held against
each other (:func:`unentered`): what is of a refund needs an entry about that refund, or one about none, which stands for many. So promise P8 is no list of places
that somebody has to remember: whatever any test makes any login do is looked at. Tests themselves use the logins ``postgres`` and ``refunds_owner`` to bring about
what no program could; that is not looked at.

A new table must be named in :data:`NO_RECORD` or :data:`RECORD`: the sum is held against the tables there are.
"""

from collections.abc import Mapping

import psycopg
from psycopg import sql

NO_RECORD: Mapping[str, str] = {
    "alembic_version": "the migrations' own",
    "events": "the inbox: an event is a hint, and what is believed because of it is entered",
    "ledger": "the entries themselves",
    "ledger_checkpoints": "made of entries",
    "ledger_entries": "made of entries",
    "ledger_exports": "copies that wait",
    "ledger_nodes": "made of entries",
    "outbox": "messages that wait; what they say is entered where it was decided",
    "pacing": "when the processor may be called next",
    "pulled_payments": "what a pull has read, until an order is made of it, which is entered",
    "reconciliations": "how far a comparison is; who asked for one is entered, and every discrepancy it finds",
    "payment_snapshots": "a cache of the processor's answers; the reading that terms rest on is kept in the revision",
}
"""Tables that are no business record, and why."""

RECORD: Mapping[str, tuple[str, ...]] = {
    "api_keys": (),
    "attempts": (),
    "breakers": ("figures", "per_hour"),
    "classifications": (),
    "consumed_decisions": (),
    "controls": (),
    "customer_keys": (),
    "customers": (),
    "decisions": ("delivered_at",),
    "delegations": (),
    "discrepancies": ("last_seen_at", "reconciliation_id"),
    "erasure_replays": (),
    "erasures": (),
    "evidence": (),
    "exchange_rates": (),
    "halts": (),
    "instructions": ("applied_at",),
    "leg_attempts": (),
    "legs": ("looks", "due_at", "detail"),
    "limit_uses": (),
    "limit_warnings": (),
    "operations": ("looks",),
    "order_pulls": ("cursor", "pages", "payments", "judged", "phase", "progressed_at", "last_error"),
    "order_versions": (),
    "orders": (),
    "payments": (),
    "policy_versions": (),
    "principals": (),
    "processor_binding": (),
    "processor_refunds": ("compared_in", "updated_at"),
    "refund_groups": (),
    "refunds": ("run_checked_at", "wake_at", "slot_at", "detail", "legs_at", "legs_detail"),
    "revisions": (),
    "sealing_keys": (),
    "settlements": (),
    "texts": (),
}
"""Tables of the business record, each with the columns that are none of it: when something is looked at next, counts of looks, how far a pull or a comparison is (its
beginning and its end have entries), that the run has heard, and the words beside a code that say it for people. The code, why something waits, is of the record."""

BROUGHT_ABOUT = "BROUGHT_ABOUT"
"""The name under which a module of tests lists what it brings about itself over a program's login, as :func:`unentered` words it."""

_BASE = """
    CREATE SCHEMA witness;
    CREATE TABLE witness.changed (xid xid8 NOT NULL, relation text NOT NULL, what text NOT NULL, login text NOT NULL, columns text, refund text);
    CREATE TABLE witness.entered (xid xid8 NOT NULL, refund text, UNIQUE NULLS NOT DISTINCT (xid, refund));
    CREATE FUNCTION witness.changes() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog AS $$
    DECLARE before jsonb; after jsonb; names text; whole jsonb := to_jsonb(CASE WHEN TG_OP = 'DELETE' THEN OLD ELSE NEW END);
    BEGIN
        IF TG_OP = 'UPDATE' THEN
            before := to_jsonb(OLD) - coalesce(TG_ARGV, '{}'::text[]); after := to_jsonb(NEW) - coalesce(TG_ARGV, '{}'::text[]);
            IF before = after THEN RETURN NULL; END IF;
            SELECT string_agg(key, ', ' ORDER BY key) INTO names FROM jsonb_each(after) WHERE before -> key IS DISTINCT FROM value;
        END IF;
        INSERT INTO witness.changed VALUES (
            pg_current_xact_id(), TG_TABLE_NAME, lower(TG_OP), session_user, names,
            CASE WHEN TG_TABLE_NAME = 'refunds' THEN whole ->> 'id' ELSE whole ->> 'refund_id' END
        );
        RETURN NULL;
    END $$;
    CREATE FUNCTION witness.enters() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog AS $$
    BEGIN
        INSERT INTO witness.entered VALUES (pg_current_xact_id(), NEW.refund_id) ON CONFLICT DO NOTHING;
        RETURN NULL;
    END $$;
    CREATE TRIGGER witness AFTER INSERT ON public.ledger FOR EACH ROW EXECUTE FUNCTION witness.enters();
"""
_TRIGGER = (
    "CREATE TRIGGER witness AFTER INSERT OR UPDATE OR DELETE ON public.{table} FOR EACH ROW EXECUTE FUNCTION witness.changes({ignored})"
)
_UNENTERED = """
    SELECT DISTINCT relation, what, login, columns FROM witness.changed c
     WHERE login NOT IN ('postgres', 'refunds_owner')
       AND NOT EXISTS (SELECT 1 FROM witness.entered e WHERE e.xid = c.xid AND (c.refund IS NULL OR e.refund IS NULL OR e.refund = c.refund))
     ORDER BY 1, 2, 3, 4
"""


def watch(connection: psycopg.Connection) -> None:
    """Set the witness up in a migrated database. ``connection`` is the superuser's."""
    connection.execute(_BASE.encode())
    for table, ignored in RECORD.items():
        arguments = sql.SQL(", ").join(sql.Literal(name) for name in ignored)
        connection.execute(sql.SQL(_TRIGGER).format(table=sql.Identifier(table), ignored=arguments))


def unentered(connection: psycopg.Connection) -> list[str]:
    """What was changed without an entry in the same transaction, in words; empty also for a database that has no witness."""
    if connection.execute("SELECT to_regclass('witness.changed')").fetchone() == (None,):
        return []
    found = connection.execute(_UNENTERED).fetchall()
    return [f"{login}: {what} {relation}" + (f" ({columns})" if columns else "") for relation, what, login, columns in found]
