"""The tables. Amounts are bigint minor units beside their currency; times are timestamptz; enums are text checked by the domain, not by PostgreSQL."""

from datetime import datetime

from sqlalchemy import (
    ARRAY,
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    DateTime,
    ForeignKey,
    Identity,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    Table,
    Text,
    UniqueConstraint,
    text,
)
from sqlalchemy.dialects.postgresql import JSONB

metadata = MetaData(
    naming_convention={
        "pk": "pk_%(table_name)s",
        "fk": "fk_%(table_name)s_%(column_0_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "ck": "ck_%(table_name)s_%(constraint_name)s",
    }
)


def _at(name: str, *, nullable: bool = False) -> Column[datetime]:
    return Column(name, DateTime(timezone=True), nullable=nullable)


def _text(
    name: str,
    reference: ForeignKey | None = None,
    *,
    nullable: bool = False,
    primary_key: bool = False,
    unique: bool = False,
    index: bool = False,
) -> Column[str]:
    extra = [] if reference is None else [reference]
    return Column(name, Text, *extra, nullable=nullable, primary_key=primary_key, unique=unique or None, index=index or None)


# --- who ---------------------------------------------------------------------------------------------------------------------------------

principals = Table(
    "principals",
    metadata,
    _text("id", primary_key=True),
    _text("kind"),
    # How requests name this person in requested_by, and how people recognise each other; unique without regard to case.
    _text("handle"),
    _text("name"),
    _at("created_at"),
    _at("disabled_at", nullable=True),
    Index("uq_principals_handle", text("lower(handle)"), unique=True),
)

api_keys = Table(
    "api_keys",
    metadata,
    _text("id", primary_key=True),
    _text("principal_id", ForeignKey("principals.id")),
    # SHA-256 of a key of 256 random bits: nothing slower is needed for what cannot be guessed.
    Column("hash", LargeBinary, nullable=False, unique=True),
    _text("hint"),
    Column("roles", ARRAY(Text), nullable=False),
    _text("integration"),
    _at("created_at"),
    _at("expires_at", nullable=True),
    _at("revoked_at", nullable=True),
)

# --- the merchant's side -----------------------------------------------------------------------------------------------------------------

customers = Table(
    "customers",
    metadata,
    _text("id", primary_key=True),
    _text("external_ref", unique=True),
    _at("account_created_at", nullable=True),
    _at("created_at"),
)

customer_keys = Table(
    "customer_keys",
    metadata,
    _text("customer_id", ForeignKey("customers.id"), primary_key=True),
    Column("wrapped", LargeBinary, nullable=False),
    _at("created_at"),
)

orders = Table(
    "orders",
    metadata,
    _text("id", primary_key=True),
    _text("external_ref", unique=True),
    _text("customer_id", ForeignKey("customers.id"), index=True),
    Column("version", Integer, nullable=False),
    _at("placed_at", nullable=True),
    _at("delivered_at", nullable=True),
    Column("body", JSONB, nullable=False),
    _at("updated_at"),
)

order_versions = Table(
    "order_versions",
    metadata,
    _text("order_id", ForeignKey("orders.id"), primary_key=True),
    Column("version", Integer, primary_key=True),
    Column("body", JSONB, nullable=False),
    _at("recorded_at"),
    _text("recorded_by"),
)

payments = Table(
    "payments",
    metadata,
    _text("id", primary_key=True),
    _text("order_id", ForeignKey("orders.id"), index=True),
    _text("processor"),
    _text("processor_payment"),
    _text("currency"),
    Column("amount", BigInteger, nullable=False),  # as the merchant records it; zero of a manual one that the order names no more
    _text("tender", nullable=True),  # of a manual payment: what a person gives back
    UniqueConstraint("processor", "processor_payment"),
)

payment_snapshots = Table(
    "payment_snapshots",
    metadata,
    _text("payment_id", ForeignKey("payments.id"), primary_key=True),
    _at("read_at"),
    Column("body", JSONB, nullable=False),
)

# --- refunds -----------------------------------------------------------------------------------------------------------------------------

refund_groups = Table(
    "refund_groups",
    metadata,
    # An order-wide refund: what was asked for, and how it was allocated. How it stands is what its refunds say.
    _text("id", primary_key=True),
    _text("integration"),
    _text("idempotency_key"),
    _text("body_hash"),
    _text("requester_id", ForeignKey("principals.id")),
    _text("requested_by", nullable=True),
    _text("customer_id", ForeignKey("customers.id")),
    _text("order_id", ForeignKey("orders.id"), index=True),
    Column("order_version", Integer, nullable=False),
    Column("amount", BigInteger, nullable=True),
    _text("currency", nullable=True),
    Column("full", Boolean, nullable=False),
    Column("details", JSONB, nullable=False),
    Column("allocation", JSONB, nullable=False),
    Column("breakdown", JSONB, nullable=True),  # of a group by lines; without the lines' ids, which stand in the details
    _at("created_at"),
    UniqueConstraint("integration", "idempotency_key"),
    Index("ix_refund_groups_list", "created_at", "id"),
)

refunds = Table(
    "refunds",
    metadata,
    _text("id", primary_key=True),
    _text("group_id", ForeignKey("refund_groups.id"), nullable=True),
    Column("version", Integer, nullable=False),
    _text("status"),
    _at("created_at"),
    _at("status_since"),
    _at("final_at", nullable=True),
    # the request
    _text("integration"),
    _text("idempotency_key"),
    _text("body_hash"),
    _text("requester_id", ForeignKey("principals.id")),
    _text("requested_by", nullable=True),
    _text("agent_id", nullable=True),
    _text("customer_id", ForeignKey("customers.id")),
    _text("order_id", ForeignKey("orders.id"), nullable=True),
    _text("payment_id", ForeignKey("payments.id"), nullable=True),
    Column("amount", BigInteger, nullable=True),
    _text("currency", nullable=True),
    Column("full", Boolean, nullable=False),
    _text("reason", nullable=True),
    Column("reason_by_fraud_role", Boolean, nullable=False, server_default=text("false")),
    Column("reverse_transfer", Boolean, nullable=False, server_default=text("false")),
    Column("refund_application_fee", Boolean, nullable=False, server_default=text("false")),
    _text("channel", nullable=True),
    Column("details", JSONB, nullable=False),
    Column("sources", JSONB, nullable=False),
    Column("has_text", Boolean, nullable=False),
    _text("possible_duplicate_of", nullable=True),
    # where it stands
    Column("revision", Integer, nullable=False),
    _text("terms_hash", nullable=True),
    Column("tier", Integer, nullable=True),
    _text("queue", nullable=True),
    Column("rung", Integer, nullable=False),
    Column("reminded", Boolean, nullable=False),
    _at("rung_since", nullable=True),
    Column("review", JSONB, nullable=True),  # the review now asked for: role, people, ladder
    _at("review_by", nullable=True),
    _at("wake_at", nullable=True),
    _at("slot_at", nullable=True),  # its turn among the held refunds that are let go
    _text("pending_revision", nullable=True),
    _text("code", nullable=True),
    _text("detail", nullable=True),
    _at("legs_at", nullable=True),  # when its open legs are due next; a refund with open legs has no final_at
    _text("legs_detail", nullable=True),
    # the run
    _at("run_seen_at", nullable=True),
    _at("run_checked_at", nullable=True),
    UniqueConstraint("integration", "idempotency_key"),
    Index("ix_refunds_payment", "payment_id", "status"),
    Index("ix_refunds_customer", "customer_id", "created_at"),
    Index("ix_refunds_order", "order_id"),
    Index("ix_refunds_group", "group_id", postgresql_where=text("group_id IS NOT NULL")),
    Index("ix_refunds_open", "run_checked_at", postgresql_where=text("final_at IS NULL")),
    Index("ix_refunds_list", "created_at", "id"),
)

revisions = Table(
    "revisions",
    metadata,
    _text("refund_id", ForeignKey("refunds.id"), primary_key=True),
    Column("revision", Integer, primary_key=True),
    _text("payment_id", ForeignKey("payments.id")),
    Column("amount", BigInteger, nullable=False),
    _text("currency"),
    Column("terms", JSONB, nullable=True),
    _text("terms_hash", nullable=True),
    Column("policy_version", Integer, nullable=False),
    _text("policy_hash"),
    Column("facts", JSONB, nullable=False),
    Column("decision", JSONB, nullable=False),
    # Who authored these terms: the requester for revision 1, whoever revised later. loosened: more money or another payment than before.
    _text("author_id", ForeignKey("principals.id")),
    Column("loosened", Boolean, nullable=False),
    _at("created_at"),
    _at("expires_at", nullable=True),
)

decisions = Table(
    "decisions",
    metadata,
    _text("id", primary_key=True),
    _text("refund_id", ForeignKey("refunds.id")),
    Column("revision", Integer, nullable=False),
    _text("kind"),  # consent, review or policy
    Column("step", Integer, nullable=False),
    _text("verdict"),  # approve or deny
    _text("terms_hash"),
    _text("principal_id", nullable=True),
    _text("person"),
    _text("role"),
    _at("recorded_at"),
    _at("delivered_at", nullable=True),
    UniqueConstraint("refund_id", "revision", "kind", "step"),
)

instructions = Table(
    "instructions",
    metadata,
    _text("id", primary_key=True),
    _text("refund_id", ForeignKey("refunds.id"), index=True),
    _text("kind"),  # revise, withdraw or settle
    Column("body", JSONB, nullable=False),
    _text("principal_id", ForeignKey("principals.id")),
    _text("role"),
    _at("recorded_at"),
    _at("applied_at", nullable=True),
    _text("outcome", nullable=True),
    _text("detail", nullable=True),
)

classifications = Table(
    "classifications",
    metadata,
    _text("refund_id", ForeignKey("refunds.id"), primary_key=True),
    # Without the words it quotes: those are sealed among the texts, under the kind "reading".
    Column("body", JSONB, nullable=False),
    # The order of this customer that the text names, if it names one at all.
    Column("names_an_order", Boolean, nullable=False),
    _text("order_id", ForeignKey("orders.id"), nullable=True),
    _at("recorded_at"),
)

texts = Table(
    "texts",
    metadata,
    _text("refund_id", ForeignKey("refunds.id"), primary_key=True),
    _text("kind", primary_key=True),  # message, agent_reasoning, conversation, note:<decision or instruction id>
    _text("customer_id", ForeignKey("customers.id"), index=True),
    Column("sealed", LargeBinary, nullable=False),
    _at("recorded_at"),
)

# --- money at the processor --------------------------------------------------------------------------------------------------------------

operations = Table(
    "operations",
    metadata,
    _text("id", primary_key=True),
    _text("refund_id", ForeignKey("refunds.id")),
    Column("revision", Integer, nullable=False),
    _text("kind"),
    _text("terms_hash"),
    _text("payment_id", ForeignKey("payments.id")),
    Column("amount", BigInteger, nullable=False),
    _text("currency"),
    Column("request", JSONB, nullable=False),
    _text("idempotency_key", unique=True),
    Column("looks", Integer, nullable=False, server_default=text("0")),  # how often it was looked for in vain
    _at("created_at"),
    _at("settled_at", nullable=True),
    _text("outcome", nullable=True),
    UniqueConstraint("refund_id", "revision"),
)

consumed_decisions = Table(
    "consumed_decisions",
    metadata,
    _text("decision_id", ForeignKey("decisions.id"), primary_key=True),
    _text("operation_id", ForeignKey("operations.id"), index=True),
    _at("consumed_at"),
)

attempts = Table(
    "attempts",
    metadata,
    _text("id", primary_key=True),
    _text("operation_id", ForeignKey("operations.id")),
    Column("number", Integer, nullable=False),
    _text("worker"),
    _at("opened_at"),
    _at("send_by"),
    _at("answered_at", nullable=True),
    _text("outcome", nullable=True),  # answered, refused, not_sent, unknown or lapsed
    _text("reason", nullable=True),
    _text("detail", nullable=True),
    UniqueConstraint("operation_id", "number"),
    Index("ix_attempts_open", "send_by", postgresql_where=text("outcome IS NULL")),
)

legs = Table(
    "legs",
    metadata,
    _text("id", primary_key=True),
    _text("refund_id", ForeignKey("refunds.id"), index=True),
    _text("operation_id", ForeignKey("operations.id")),
    Column("number", Integer, nullable=False),
    _text("kind"),  # reverse_transfer or refund_fee
    _text("target", index=True),
    _text("account"),
    Column("amount", BigInteger, nullable=False),
    _text("currency"),
    Column("request", JSONB, nullable=False),
    _text("idempotency_key", unique=True),
    _text("state"),  # waiting, done, parked, not_done or void
    _at("state_since"),
    _at("due_at", nullable=True),  # when it is tried, looked at or reminded of next
    _text("code", nullable=True),
    _text("detail", nullable=True),
    Column("looks", Integer, nullable=False, server_default=text("0")),  # how often it was looked for in vain
    _text("receipt_id", nullable=True, unique=True),  # the processor's reversal, or its refund of a fee
    _at("created_at"),
    UniqueConstraint("operation_id", "kind", "target"),
)

leg_attempts = Table(
    "leg_attempts",
    metadata,
    _text("id", primary_key=True),
    _text("leg_id", ForeignKey("legs.id")),
    Column("number", Integer, nullable=False),
    _text("worker"),
    _at("opened_at"),
    _at("send_by"),
    _at("answered_at", nullable=True),
    _text("outcome", nullable=True),  # as in attempts
    _text("reason", nullable=True),
    _text("detail", nullable=True),
    UniqueConstraint("leg_id", "number"),
    Index("ix_leg_attempts_open", "send_by", postgresql_where=text("outcome IS NULL")),
)

processor_refunds = Table(
    "processor_refunds",
    metadata,
    _text("id", primary_key=True),
    _text("processor"),
    _text("payment_id", ForeignKey("payments.id"), index=True),
    _text("operation_id", ForeignKey("operations.id"), nullable=True, unique=True),
    Column("amount", BigInteger, nullable=False),
    _text("currency"),
    _text("state"),
    _text("raw_state"),
    _text("failure_reason", nullable=True),
    _at("created_at", nullable=True),  # by the processor
    _at("first_seen_at"),
    _at("updated_at"),
    _text("compared_in", nullable=True),  # the last reconciliation that saw it in the processor's list
    Index("ix_processor_refunds_first_seen", "first_seen_at", "id"),
    Index("ix_processor_refunds_changed", "updated_at", "id"),
)

settlements = Table(
    "settlements",
    metadata,
    # What a refund took from the merchant's balance: a figure of its own beside what the customer receives (field report 36).
    _text("processor_refund_id", ForeignKey("processor_refunds.id"), primary_key=True),
    Column("presentment_amount", BigInteger, nullable=False),
    _text("presentment_currency"),
    Column("settlement_amount", BigInteger, nullable=False),
    _text("settlement_currency"),
    _text("rate", nullable=True),  # as the processor wrote it: settlement for one of presentment, in major units
    Column("fee", BigInteger, nullable=False),  # what the refund itself cost, in the settlement currency
    Column("returned", BigInteger, nullable=False),  # what came back when the refund failed later
    _at("first_read_at"),
    _at("read_at"),
    Index("ix_settlements_currencies", "presentment_currency", "settlement_currency"),
)

processor_binding = Table(
    "processor_binding",
    metadata,
    _text("processor", primary_key=True),
    _text("account"),
    _text("mode"),
    _at("bound_at"),
)

events = Table(
    "events",
    metadata,
    # The processor's id of the event: it is stored once, however often it is delivered. Of its content only what is needed, never the whole:
    # an event is a hint, and what it is about is read from the processor.
    _text("id", primary_key=True),
    _text("processor"),
    _text("type"),
    _text("account", nullable=True),
    Column("livemode", Boolean, nullable=False),
    _text("api_version", nullable=True),
    _text("object_id", nullable=True),
    _text("processor_payment", nullable=True),
    _text("operation_id", nullable=True),
    Column("facts", JSONB, nullable=False),
    _at("created_at"),
    _at("received_at"),
    _text("state"),  # waiting, done, ignored or unmatched
    _at("due_at"),
    Column("tries", Integer, nullable=False, server_default=text("0")),
    _at("done_at", nullable=True),
    _text("outcome", nullable=True),
    _text("last_error", nullable=True),
    _at("told_at", nullable=True),  # when a person was told that it is unmatched
    Index("ix_events_waiting", "due_at", postgresql_where=text("state = 'waiting'")),
    Index("ix_events_unmatched", "told_at", postgresql_where=text("state = 'unmatched'")),
)

reconciliations = Table(
    "reconciliations",
    metadata,
    _text("id", primary_key=True),
    _text("processor"),
    _at("since"),
    _at("until"),
    _text("started_by"),
    _at("started_at"),
    _text("phase"),  # theirs (their list against our record), ours (our record against their list), done
    _text("cursor", nullable=True),
    Column("pages", Integer, nullable=False, server_default=text("0")),
    Column("compared", BigInteger, nullable=False, server_default=text("0")),
    Column("differences", Integer, nullable=False, server_default=text("0")),
    Column("imported", Integer, nullable=False, server_default=text("0")),
    _at("progressed_at"),
    _at("finished_at", nullable=True),
    _text("last_error", nullable=True),
)

discrepancies = Table(
    "discrepancies",
    metadata,
    _text("id", primary_key=True),
    _text("kind"),
    _text("processor"),
    _text("payment_id", ForeignKey("payments.id"), nullable=True, index=True),
    _text("refund_id", ForeignKey("refunds.id"), nullable=True, index=True),
    _text("operation_id", nullable=True),  # as the processor's object names it; it may be none of ours
    _text("processor_refund", nullable=True),
    Column("evidence", JSONB, nullable=False),
    _text("state"),  # open, explained or closed
    _text("owner_id", ForeignKey("principals.id"), nullable=True),
    _text("note", nullable=True),
    _at("first_seen_at"),
    _at("last_seen_at"),
    _text("reconciliation_id", ForeignKey("reconciliations.id"), nullable=True),
    _at("closed_at", nullable=True),
    _text("closed_by", ForeignKey("principals.id"), nullable=True),
    # One row for one difference, however often it is seen, until somebody has closed it.
    Index(
        "uq_discrepancies_open",
        "kind",
        text("coalesce(processor_refund, '')"),
        text("coalesce(operation_id, '')"),
        unique=True,
        postgresql_where=text("state <> 'closed'"),
    ),
    Index("ix_discrepancies_list", "first_seen_at", "id"),
    Index("ix_discrepancies_open_of", "processor_refund", postgresql_where=text("state = 'open'")),
)

order_pulls = Table(
    "order_pulls",
    metadata,
    _text("id", primary_key=True),
    _text("processor"),
    _at("since"),
    _at("until"),
    Column("dry_run", Boolean, nullable=False),
    _text("order_field"),  # the names in the processor's metadata
    _text("customer_field"),
    _text("started_by"),
    _at("started_at"),
    _text("phase"),  # reading (the processor's list), making (orders of what was read), done, canceled
    _text("cursor", nullable=True),
    Column("pages", Integer, nullable=False, server_default=text("0")),
    Column("payments", Integer, nullable=False, server_default=text("0")),
    Column("judged", Integer, nullable=False, server_default=text("0")),
    _at("progressed_at"),
    _at("finished_at", nullable=True),
    _text("last_error", nullable=True),
)

pulled_payments = Table(
    "pulled_payments",
    metadata,
    _text("pull_id", ForeignKey("order_pulls.id"), primary_key=True),
    _text("processor_payment", primary_key=True),
    _text("order_ref", nullable=True),
    _text("customer_ref", nullable=True),  # forgotten again once it is judged
    _text("currency", nullable=True),
    Column("captured", BigInteger, nullable=False),
    _text("raw_status"),
    _at("created_at", nullable=True),
    _text("outcome", nullable=True),  # until it is judged there is none
    _text("code", nullable=True),
    _text("detail", nullable=True),
    Column("version", Integer, nullable=True),  # of the order, with this payment on it
    Index("ix_pulled_payments_waiting", "pull_id", "order_ref", postgresql_where=text("outcome IS NULL")),
)

# --- governing ---------------------------------------------------------------------------------------------------------------------------

controls = Table(
    "controls",
    metadata,
    _text("scope", primary_key=True),
    Column("stopped", Boolean, nullable=False),
    _text("mode"),
    _text("reason"),
    _text("changed_by", nullable=True),
    _at("changed_at"),
)

halts = Table(
    "halts",
    metadata,
    # Nothing is sent to this processor while a halt of it is not lifted. The payments role may add one and never lift it.
    _text("id", primary_key=True),
    _text("processor"),
    _text("code"),
    _text("reason"),
    _at("opened_at"),
    _text("opened_by", nullable=True),  # nobody: the orchestrator itself
    _at("lifted_at", nullable=True),
    _text("lifted_by", nullable=True),
    _text("lifted_reason", nullable=True),
    Index("ix_halts_in_force", "processor", unique=True, postgresql_where=text("lifted_at IS NULL")),
)

pacing = Table(
    "pacing",
    metadata,
    # What was held back is let go one after the other: the next may go at next_at. Until open_until the breaker is open: the
    # processor counts as unreachable, and nobody tries it.
    _text("processor", primary_key=True),
    _at("next_at"),
    _at("open_until", nullable=True),
)

policy_versions = Table(
    "policy_versions",
    metadata,
    Column("version", Integer, Identity(always=True), primary_key=True),
    _text("hash"),
    _text("source"),
    _at("effective_from"),
    _text("author_id", nullable=True),
    _text("note"),
    _at("created_at"),
)

exchange_rates = Table(
    "exchange_rates",
    metadata,
    # One currency is worth so much of the base currency, in major units: a decimal as text, never edited.
    _text("id", primary_key=True),
    _text("base"),
    _text("currency"),
    _text("rate"),
    _at("effective_at"),
    _text("source"),
    _text("recorded_by", ForeignKey("principals.id")),
    _at("recorded_at"),
    Index("ix_exchange_rates_newest", "base", "currency", "effective_at", "id"),
)

ledger = Table(
    "ledger",
    metadata,
    Column("id", BigInteger, Identity(always=True), primary_key=True),
    _at("at"),
    _text("type"),
    _text("refund_id", nullable=True),
    Column("refund_version", Integer, nullable=True),
    _text("actor"),
    _text("on_behalf_of", nullable=True),
    Column("data", JSONB, nullable=False),
    UniqueConstraint("refund_id", "refund_version"),
    CheckConstraint("(refund_id IS NULL) = (refund_version IS NULL)", name="refund_and_version"),
)

outbox = Table(
    "outbox",
    metadata,
    Column("id", BigInteger, Identity(always=True), primary_key=True),
    _text("kind"),  # signal or notice
    _text("refund_id", nullable=True),
    Column("body", JSONB, nullable=False),
    _at("created_at"),
    _at("due_at"),
    _at("done_at", nullable=True),
    Column("tries", Integer, nullable=False, server_default=text("0")),
    _text("last_error", nullable=True),
    Index("ix_outbox_due", "due_at", postgresql_where=text("done_at IS NULL")),
)
