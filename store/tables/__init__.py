"""The tables. Amounts are bigint minor units beside their currency; times are timestamptz; enums are text checked by the domain, not by PostgreSQL."""

from store.tables.chain import ledger_checkpoints, ledger_entries, ledger_exports, ledger_nodes
from store.tables.columns import metadata
from store.tables.forgetting import erasure_replays, erasures
from store.tables.governing import controls, exchange_rates, halts, ledger, outbox, pacing, policy_versions
from store.tables.limits import breakers, limit_uses, limit_warnings
from store.tables.merchant import customer_keys, customers, order_versions, orders, payment_snapshots, payments, sealing_keys
from store.tables.people import api_keys, delegations, principals
from store.tables.processor import (
    attempts,
    consumed_decisions,
    discrepancies,
    events,
    leg_attempts,
    legs,
    operations,
    order_pulls,
    processor_binding,
    processor_refunds,
    pulled_payments,
    reconciliations,
    settlements,
)
from store.tables.refunds import classifications, decisions, evidence, instructions, refund_groups, refunds, revisions, texts

__all__ = [
    "api_keys",
    "attempts",
    "breakers",
    "classifications",
    "consumed_decisions",
    "controls",
    "customer_keys",
    "customers",
    "decisions",
    "delegations",
    "discrepancies",
    "erasure_replays",
    "erasures",
    "events",
    "evidence",
    "exchange_rates",
    "halts",
    "instructions",
    "ledger",
    "ledger_checkpoints",
    "ledger_entries",
    "ledger_exports",
    "ledger_nodes",
    "leg_attempts",
    "legs",
    "limit_uses",
    "limit_warnings",
    "metadata",
    "operations",
    "order_pulls",
    "order_versions",
    "orders",
    "outbox",
    "pacing",
    "payment_snapshots",
    "payments",
    "policy_versions",
    "principals",
    "processor_binding",
    "processor_refunds",
    "pulled_payments",
    "reconciliations",
    "refund_groups",
    "refunds",
    "revisions",
    "sealing_keys",
    "settlements",
    "texts",
]
