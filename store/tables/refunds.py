"""Refunds: what was asked for, the terms, and what people and models said of them."""

from sqlalchemy import BigInteger, Boolean, Column, ForeignKey, Index, Integer, LargeBinary, Table, UniqueConstraint, text
from sqlalchemy.dialects.postgresql import JSONB

from store.tables.columns import at, metadata, text_column

refund_groups = Table(
    "refund_groups",
    metadata,
    # An order-wide refund: what was asked for, and how it was allocated. How it stands is what its refunds say.
    text_column("id", primary_key=True),
    text_column("integration"),
    text_column("idempotency_key"),
    text_column("body_hash"),
    text_column("requester_id", ForeignKey("principals.id")),
    text_column("requested_by", nullable=True),
    text_column("customer_id", ForeignKey("customers.id")),
    text_column("order_id", ForeignKey("orders.id"), index=True),
    Column("order_version", Integer, nullable=False),
    Column("amount", BigInteger, nullable=True),
    text_column("currency", nullable=True),
    Column("full", Boolean, nullable=False),
    Column("details", JSONB, nullable=False),
    Column("allocation", JSONB, nullable=False),
    Column("breakdown", JSONB, nullable=True),  # of a group by lines; without the lines' ids, which stand in the details
    at("created_at"),
    UniqueConstraint("integration", "idempotency_key"),
    Index("ix_refund_groups_list", "created_at", "id"),
    Index("ix_refund_groups_fingerprints", "created_at", postgresql_where=text("body_hash <> ''")),
)

refunds = Table(
    "refunds",
    metadata,
    text_column("id", primary_key=True),
    text_column("group_id", ForeignKey("refund_groups.id"), nullable=True),
    Column("version", Integer, nullable=False),
    text_column("status"),
    at("created_at"),
    at("status_since"),
    at("final_at", nullable=True),
    # the request
    text_column("integration"),
    text_column("idempotency_key"),
    text_column("body_hash"),
    text_column("requester_id", ForeignKey("principals.id")),
    text_column("requested_by", nullable=True),
    text_column("agent_id", nullable=True),
    text_column("customer_id", ForeignKey("customers.id")),
    text_column("order_id", ForeignKey("orders.id"), nullable=True),
    text_column("payment_id", ForeignKey("payments.id"), nullable=True),
    Column("amount", BigInteger, nullable=True),
    text_column("currency", nullable=True),
    Column("full", Boolean, nullable=False),
    text_column("reason", nullable=True),
    Column("reason_by_fraud_role", Boolean, nullable=False, server_default=text("false")),
    Column("reverse_transfer", Boolean, nullable=False, server_default=text("false")),
    Column("refund_application_fee", Boolean, nullable=False, server_default=text("false")),
    text_column("channel", nullable=True),
    Column("details", JSONB, nullable=False),
    Column("sources", JSONB, nullable=False),
    Column("has_text", Boolean, nullable=False),
    text_column("possible_duplicate_of", nullable=True),
    # where it stands
    Column("revision", Integer, nullable=False),
    text_column("terms_hash", nullable=True),
    Column("tier", Integer, nullable=True),
    text_column("queue", nullable=True),
    Column("rung", Integer, nullable=False),
    Column("reminded", Boolean, nullable=False),
    at("rung_since", nullable=True),
    Column("review", JSONB, nullable=True),  # the review now asked for: role, people, ladder
    text_column("assigned_to", ForeignKey("principals.id"), nullable=True),
    at("review_by", nullable=True),
    at("wake_at", nullable=True),
    at("slot_at", nullable=True),  # its turn among the held refunds that are let go
    text_column("pending_revision", nullable=True),
    text_column("code", nullable=True),
    text_column("detail", nullable=True),
    at("legs_at", nullable=True),  # when its open legs are due next; a refund with open legs has no final_at
    text_column("legs_detail", nullable=True),
    # the run
    at("run_seen_at", nullable=True),
    at("run_checked_at", nullable=True),
    UniqueConstraint("integration", "idempotency_key"),
    Index("ix_refunds_payment", "payment_id", "status"),
    Index("ix_refunds_customer", "customer_id", "created_at"),
    Index("ix_refunds_order", "order_id"),
    Index("ix_refunds_group", "group_id", postgresql_where=text("group_id IS NOT NULL")),
    Index("ix_refunds_open", "run_checked_at", postgresql_where=text("final_at IS NULL")),
    Index("ix_refunds_list", "created_at", "id"),
    Index("ix_refunds_assigned", "assigned_to", postgresql_where=text("assigned_to IS NOT NULL")),
    Index("ix_refunds_fingerprints", "final_at", postgresql_where=text("body_hash <> ''")),
)

revisions = Table(
    "revisions",
    metadata,
    text_column("refund_id", ForeignKey("refunds.id"), primary_key=True),
    Column("revision", Integer, primary_key=True),
    text_column("payment_id", ForeignKey("payments.id")),
    Column("amount", BigInteger, nullable=False),
    text_column("currency"),
    Column("terms", JSONB, nullable=True),
    text_column("terms_hash", nullable=True),
    Column("policy_version", Integer, nullable=False),
    text_column("policy_hash"),
    Column("facts", JSONB, nullable=False),
    Column("decision", JSONB, nullable=False),
    # Who authored these terms: the requester for revision 1, whoever revised later. loosened: more money or another payment than before.
    text_column("author_id", ForeignKey("principals.id")),
    Column("loosened", Boolean, nullable=False),
    # What is not as it was in the revision before: field, before, after, and both in words.
    Column("changes", JSONB, nullable=True),
    Column("sources", JSONB, nullable=True),  # where each field came from; null in revisions older than the column
    at("created_at"),
    at("expires_at", nullable=True),
)

decisions = Table(
    "decisions",
    metadata,
    text_column("id", primary_key=True),
    text_column("refund_id", ForeignKey("refunds.id")),
    Column("revision", Integer, nullable=False),
    text_column("kind"),  # consent, review or policy
    Column("step", Integer, nullable=False),
    text_column("verdict"),  # approve or deny
    text_column("terms_hash"),
    text_column("principal_id", nullable=True),
    text_column("person"),
    # Whose right a delegate used, and by which delegation.
    text_column("on_behalf_of", ForeignKey("principals.id"), nullable=True),
    text_column("delegation_id", ForeignKey("delegations.id"), nullable=True),
    text_column("role"),
    at("recorded_at"),
    at("delivered_at", nullable=True),
    UniqueConstraint("refund_id", "revision", "kind", "step"),
    Index("ix_decisions_reviewer", "principal_id", "recorded_at", postgresql_where=text("kind = 'review'")),
)

instructions = Table(
    "instructions",
    metadata,
    text_column("id", primary_key=True),
    text_column("refund_id", ForeignKey("refunds.id"), index=True),
    text_column("kind"),  # revise, withdraw or settle
    Column("body", JSONB, nullable=False),
    text_column("principal_id", ForeignKey("principals.id")),
    text_column("role"),
    at("recorded_at"),
    at("applied_at", nullable=True),
    text_column("outcome", nullable=True),
    text_column("detail", nullable=True),
)

classifications = Table(
    "classifications",
    metadata,
    text_column("refund_id", ForeignKey("refunds.id"), primary_key=True),
    # Without the words it quotes: those are sealed among the texts, under the kind "reading".
    Column("body", JSONB, nullable=False),
    # The order of this customer that the text names, if it names one at all.
    Column("names_an_order", Boolean, nullable=False),
    text_column("order_id", ForeignKey("orders.id"), nullable=True),
    at("recorded_at"),
)

evidence = Table(
    "evidence",
    metadata,
    # What was attached to a refund for whoever decides. Its words, or the reference, are sealed among the texts, under the kind "evidence:<id>".
    text_column("id", primary_key=True),
    text_column("refund_id", ForeignKey("refunds.id"), index=True),
    text_column("kind"),  # as the policy asks for it
    text_column("digest", nullable=True),  # SHA-256 of what a reference leads to
    text_column("given_by", ForeignKey("principals.id")),
    at("recorded_at"),
)

texts = Table(
    "texts",
    metadata,
    text_column("refund_id", ForeignKey("refunds.id"), primary_key=True),
    text_column("kind", primary_key=True),  # message, agent_reasoning, conversation, note:<decision or instruction id>, evidence:<id>
    text_column("customer_id", ForeignKey("customers.id"), index=True),
    Column("sealed", LargeBinary, nullable=False),
    at("recorded_at"),
    Index("ix_texts_recorded_at", "recorded_at"),
)
