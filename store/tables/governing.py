"""Governing: controls, policy, rates, the ledger and what must reach the outside."""

from sqlalchemy import BigInteger, Boolean, CheckConstraint, Column, ForeignKey, Identity, Index, Integer, Table, UniqueConstraint, text
from sqlalchemy.dialects.postgresql import JSONB

from store.tables.columns import at, metadata, text_column

controls = Table(
    "controls",
    metadata,
    text_column("scope", primary_key=True),
    Column("stopped", Boolean, nullable=False),
    text_column("mode"),
    text_column("reason"),
    text_column("changed_by", nullable=True),
    at("changed_at"),
    # Whose the present stop is: whoever stopped first. The columns before tell of the last change, which may be of the mode alone.
    text_column("stopped_by", nullable=True),
    at("stopped_at", nullable=True),
    text_column("stop_reason", nullable=True),
    CheckConstraint("mode IN ('live', 'draft')", name="mode"),
)

halts = Table(
    "halts",
    metadata,
    # Nothing is sent within this scope (agents, agent:<handle>, processor:<name>, everything) while a halt of it is not lifted. The payments role may add
    # one and never lift it.
    text_column("id", primary_key=True),
    text_column("scope"),
    text_column("processor", nullable=True),  # of which it is the scope, if it is one's
    text_column("code"),
    text_column("reason"),
    at("opened_at"),
    text_column("opened_by", nullable=True),  # nobody: the orchestrator itself
    at("lifted_at", nullable=True),
    text_column("lifted_by", nullable=True),
    text_column("lifted_reason", nullable=True),
    CheckConstraint(
        "CASE WHEN processor IS NULL THEN scope IN ('everything', 'agents') OR scope LIKE 'agent:_%' ELSE scope = 'processor:' || processor END",
        name="scope",
    ),
    Index("ix_halts_in_force", "scope", "code", unique=True, postgresql_where=text("lifted_at IS NULL")),
)

pacing = Table(
    "pacing",
    metadata,
    # What was held back is let go one after the other: the next may go at next_at. Until open_until the cut-out is open: the
    # processor counts as unreachable, and nobody tries it.
    text_column("processor", primary_key=True),
    at("next_at"),
    at("open_until", nullable=True),
)

policy_versions = Table(
    "policy_versions",
    metadata,
    Column("version", Integer, Identity(always=True), primary_key=True),
    text_column("hash"),
    text_column("source"),
    at("effective_from"),
    text_column("author_id", nullable=True),
    text_column("note"),
    at("created_at"),
    UniqueConstraint("effective_from"),
)

exchange_rates = Table(
    "exchange_rates",
    metadata,
    # One currency is worth so much of the base currency, in major units: a decimal as text, never edited.
    text_column("id", primary_key=True),
    text_column("base"),
    text_column("currency"),
    text_column("rate"),
    at("effective_at"),
    text_column("source"),
    text_column("recorded_by", ForeignKey("principals.id")),
    at("recorded_at"),
    Index("ix_exchange_rates_newest", "base", "currency", "effective_at", "id"),
)

ledger = Table(
    "ledger",
    metadata,
    Column("id", BigInteger, Identity(always=True), primary_key=True),
    at("at"),
    text_column("type"),
    text_column("refund_id", nullable=True),
    Column("refund_version", Integer, nullable=True),
    text_column("actor"),
    text_column("on_behalf_of", nullable=True),
    Column("data", JSONB, nullable=False),
    Column("commitments", JSONB(none_as_null=True)),
    UniqueConstraint("refund_id", "refund_version"),
    CheckConstraint("(refund_id IS NULL) = (refund_version IS NULL)", name="refund_and_version"),
)

outbox = Table(
    "outbox",
    metadata,
    Column("id", BigInteger, Identity(always=True), primary_key=True),
    text_column("kind"),  # signal or notice
    text_column("refund_id", nullable=True),
    Column("body", JSONB, nullable=False),
    at("created_at"),
    at("due_at"),
    at("done_at", nullable=True),
    Column("tries", Integer, nullable=False, server_default=text("0")),
    text_column("last_error", nullable=True),
    Index("ix_outbox_due", "due_at", postgresql_where=text("done_at IS NULL")),
)
