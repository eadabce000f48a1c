"""What each login may do: as little as its process needs (design, "Least privilege by process"). Applied by every migration run.

Nobody but the owner may change a ledger row, a policy version, a decision's verdict or a key's hash; nobody may delete anything but
what is personal: a customer's key, and sealed texts.
"""

from sqlalchemy import Connection, text

API = "refunds_api"
WORKER = "refunds_worker"
CLASSIFY = "refunds_classify"
PAYMENTS = "refunds_payments"
LEDGER = "refunds_ledger"
AUDITOR = "refunds_auditor"

READ, ADD, CHANGE, REMOVE = "SELECT", "INSERT", "UPDATE", "DELETE"

GRANTS: dict[str, dict[str, tuple[str, ...]]] = {
    API: {
        "principals": (READ, ADD, CHANGE),
        "api_keys": (READ, ADD, "UPDATE (revoked_at)"),
        "delegations": (READ, ADD, "UPDATE (ended_at, ended_by)"),
        "customers": (READ, ADD, "UPDATE (ref_lookup, ref_sealed, account_created_at, forgotten_at)"),
        "sealing_keys": (READ, ADD, "UPDATE (master, wrapped)"),
        "customer_keys": (READ, ADD, "UPDATE (wrapped, wrapping)", REMOVE),
        "texts": (READ, ADD, REMOVE),
        "erasures": (READ, ADD, "UPDATE (mark)"),
        "erasure_replays": (READ, ADD),
        "orders": (READ, ADD, CHANGE),
        "order_versions": (READ, ADD, "UPDATE (body, body_sealed)"),
        "payments": (READ, ADD, CHANGE),
        "payment_snapshots": (READ,),
        "refund_groups": (READ, ADD, "UPDATE (details, body_hash)"),
        "refunds": (READ, ADD, CHANGE),
        "revisions": (READ,),
        "decisions": (READ, ADD),
        "evidence": (READ, ADD),
        "instructions": (READ, ADD),
        "classifications": (READ,),
        "operations": (READ,),
        "attempts": (READ,),
        "consumed_decisions": (READ,),
        "legs": (READ,),
        "leg_attempts": (READ,),
        "processor_refunds": (READ,),
        "processor_binding": (READ,),
        "limit_uses": (READ, "UPDATE (given_back_at)"),
        "breakers": (READ, "UPDATE (state, since, closed_at, closed_by, closed_reason)"),
        "events": (READ, ADD, CHANGE),
        "reconciliations": (READ, ADD),
        "discrepancies": (READ, "UPDATE (state, owner_id, note, closed_at, closed_by)"),
        "order_pulls": (READ, ADD),
        "pulled_payments": (READ, "UPDATE (order_lookup, order_sealed, customer_sealed)"),
        "controls": (READ, CHANGE),
        "halts": (READ, ADD, "UPDATE (lifted_at, lifted_by, lifted_reason)"),
        "policy_versions": (READ, ADD),
        "exchange_rates": (READ, ADD),
        "settlements": (READ,),
        "ledger": (READ, ADD),
        "ledger_entries": (READ,),
        "ledger_nodes": (READ,),
        "ledger_checkpoints": (READ,),
        "ledger_exports": (READ,),
        "outbox": (READ, ADD),
    },
    WORKER: {
        "principals": ("SELECT (id, kind, created_at, disabled_at)",),  # of who asked, what is judged and no name
        "customers": (READ, "UPDATE (account_created_at)"),  # the right to change one column is what locking the row needs
        "orders": (READ,),
        "payments": (READ, "UPDATE (amount)"),
        "payment_snapshots": (READ, ADD, CHANGE),
        "refund_groups": (READ, "UPDATE (body_hash)"),
        "refunds": (READ, CHANGE),
        # Retention takes away what is old enough, and can read nothing of what it takes away.
        "texts": ("SELECT (refund_id, kind, recorded_at)", REMOVE),
        "events": ("SELECT (id, state, done_at, facts)", "UPDATE (facts)"),
        "order_pulls": ("SELECT (id, finished_at)",),
        "pulled_payments": ("SELECT (pull_id, processor_payment, order_lookup)", "UPDATE (order_lookup, order_sealed, customer_sealed)"),
        "erasures": ("SELECT (id, forgotten_at, mark)", "UPDATE (mark)"),
        "revisions": (READ, ADD),
        "decisions": (READ, ADD, "UPDATE (delivered_at)"),
        "instructions": (READ, "UPDATE (applied_at, outcome, detail)"),
        "classifications": (READ,),
        "operations": (READ,),
        "attempts": (READ,),
        "legs": (READ,),
        "processor_refunds": (READ,),
        "processor_binding": (READ,),
        "limit_uses": (READ, ADD, CHANGE),
        "limit_warnings": (READ, ADD, CHANGE),
        "breakers": (READ, ADD, "UPDATE (state, since, cool_until, reason, figures, per_hour, closed_at, closed_reason)"),
        "controls": (READ,),
        "discrepancies": (READ, "UPDATE (note)"),
        "reconciliations": (READ,),
        "halts": (READ, ADD, "UPDATE (lifted_at, lifted_by, lifted_reason)"),  # breakers open and close by themselves
        "pacing": (READ, "UPDATE (next_at)"),
        "policy_versions": (READ,),
        "exchange_rates": (READ,),
        "ledger": (ADD,),
        "outbox": (READ, ADD, CHANGE),
    },
    CLASSIFY: {
        "refunds": (READ, "UPDATE (version, run_checked_at)"),
        "texts": (READ, ADD),
        "sealing_keys": (READ, ADD),
        "customers": (READ,),
        "customer_keys": (READ,),
        "orders": (READ,),
        "classifications": (READ, ADD),
        "ledger": (ADD,),
        "outbox": (ADD,),
    },
    PAYMENTS: {
        # A pull makes orders of payments, and seals whose they are; it reads no text. Whoever holds the processor's key could return their money anyway.
        "sealing_keys": (READ, ADD),
        "customers": (READ, ADD, "UPDATE (created_at)"),  # what locking the row needs; nothing is worked out from it
        "customer_keys": (READ, ADD),
        "orders": (READ, ADD, CHANGE),
        "order_versions": (ADD,),
        "payments": (READ, ADD, "UPDATE (amount)"),
        "order_pulls": (READ, ADD, CHANGE),
        "pulled_payments": (READ, ADD, CHANGE),
        "payment_snapshots": (READ, ADD, CHANGE),
        "refunds": (READ, CHANGE),
        "revisions": (READ,),
        "decisions": (READ,),
        "instructions": (READ, "UPDATE (applied_at, outcome, detail)"),
        "operations": (READ, ADD, "UPDATE (settled_at, outcome, looks)"),
        "attempts": (READ, ADD, CHANGE),
        "consumed_decisions": (READ, ADD),
        "legs": (READ, ADD, "UPDATE (state, state_since, due_at, code, detail, looks, receipt_id)"),
        "leg_attempts": (READ, ADD, CHANGE),
        "processor_refunds": (READ, ADD, CHANGE),
        "settlements": (READ, ADD, "UPDATE (returned, rate, fee, read_at)"),
        "processor_binding": (READ, ADD),
        "policy_versions": (READ,),
        "exchange_rates": (READ,),
        "limit_uses": (READ, ADD, CHANGE),
        "limit_warnings": (READ, ADD, CHANGE),
        "breakers": (READ,),
        "events": (READ, "UPDATE (state, due_at, tries, done_at, outcome, last_error, told_at)"),
        "reconciliations": (READ, ADD, CHANGE),
        "discrepancies": (READ, ADD, CHANGE),
        "controls": (READ,),
        "halts": (READ, ADD),
        "pacing": (READ, "UPDATE (open_until)"),
        "ledger": (ADD, "SELECT (id)"),
        "outbox": (ADD,),
    },
    LEDGER: {
        # The sequencer reads what others entered, and alone writes the chain. It moves nothing and reads nothing else.
        "ledger": (READ, ADD),
        "ledger_entries": (READ, ADD),
        "ledger_nodes": (READ, ADD),
        "ledger_checkpoints": (READ, ADD),
        "ledger_exports": (READ, ADD, "UPDATE (due_at, tries, done_at, last_error)"),
        "outbox": (ADD,),
    },
    AUDITOR: {
        # Whoever verifies the ledger from the outside: what it consists of, and where the refunds stand. Nobody's text, and nothing to write.
        "ledger": (READ,),
        "ledger_entries": (READ,),
        "ledger_nodes": (READ,),
        "ledger_checkpoints": (READ,),
        "refunds": (
            "SELECT (id, status, version, revision, terms_hash, payment_id, amount, currency, requester_id, customer_id, body_hash)",
        ),
        # The records that entries stand behind, without a word of anybody's.
        "revisions": (
            "SELECT (refund_id, revision, payment_id, amount, currency, terms, terms_hash, policy_version, policy_hash, facts, decision)",
        ),
        "decisions": (READ,),
        "operations": ("SELECT (id, refund_id, revision, kind, terms_hash, payment_id, amount, currency, request)",),
        "classifications": (READ,),
        "consumed_decisions": (READ,),
        "attempts": ("SELECT (id, operation_id, number, outcome)",),
        "processor_refunds": ("SELECT (id, operation_id, amount, currency)",),
        "policy_versions": (READ,),
        "api_keys": ("SELECT (id, principal_id, roles, revoked_at)",),
        "principals": ("SELECT (id, kind)",),
        "order_versions": ("SELECT (order_id, version)",),
        "controls": ("SELECT (scope, stopped, mode)",),
    },
}


def apply(connection: Connection) -> list[str]:
    """Grant each login that exists exactly this, taking away anything else; returns the logins that do not exist here.

    A small installation may use one login for everything; it then owns the tables and needs no grants.
    """
    present = set(connection.execute(text("SELECT rolname FROM pg_roles")).scalars())
    schema = connection.execute(text("SELECT current_schema()")).scalar_one()
    for role, tables in GRANTS.items():
        if role not in present:
            continue
        connection.execute(text(f'REVOKE ALL ON ALL TABLES IN SCHEMA "{schema}" FROM {role}'))
        connection.execute(text(f'GRANT USAGE ON SCHEMA "{schema}" TO {role}'))
        connection.execute(text(f"GRANT SELECT ON alembic_version TO {role}"))
        for table, rights in tables.items():
            connection.execute(text(f"GRANT {', '.join(rights)} ON {table} TO {role}"))
    return sorted(set(GRANTS) - present)
