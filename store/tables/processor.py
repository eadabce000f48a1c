"""Money at the processor: operations, attempts, legs, what it answered, its events, and what does not agree."""

from sqlalchemy import BigInteger, Boolean, Column, ForeignKey, Index, Integer, LargeBinary, Table, UniqueConstraint, text
from sqlalchemy.dialects.postgresql import JSONB

from store.tables.columns import at, metadata, text_column

operations = Table(
    "operations",
    metadata,
    text_column("id", primary_key=True),
    text_column("refund_id", ForeignKey("refunds.id")),
    Column("revision", Integer, nullable=False),
    text_column("kind"),
    text_column("terms_hash"),
    text_column("payment_id", ForeignKey("payments.id")),
    Column("amount", BigInteger, nullable=False),
    text_column("currency"),
    Column("request", JSONB, nullable=False),
    text_column("idempotency_key", unique=True),
    Column("looks", Integer, nullable=False, server_default=text("0")),  # how often it was looked for in vain
    at("created_at"),
    at("settled_at", nullable=True),
    text_column("outcome", nullable=True),
    UniqueConstraint("refund_id", "revision"),
)

consumed_decisions = Table(
    "consumed_decisions",
    metadata,
    text_column("decision_id", ForeignKey("decisions.id"), primary_key=True),
    text_column("operation_id", ForeignKey("operations.id"), index=True),
    at("consumed_at"),
)

attempts = Table(
    "attempts",
    metadata,
    text_column("id", primary_key=True),
    text_column("operation_id", ForeignKey("operations.id")),
    Column("number", Integer, nullable=False),
    text_column("worker"),
    at("opened_at"),
    at("send_by"),
    at("answered_at", nullable=True),
    text_column("outcome", nullable=True),  # answered, refused, not_sent, unknown or lapsed
    text_column("reason", nullable=True),
    text_column("detail", nullable=True),
    UniqueConstraint("operation_id", "number"),
    Index("ix_attempts_open", "send_by", postgresql_where=text("outcome IS NULL")),
)

legs = Table(
    "legs",
    metadata,
    text_column("id", primary_key=True),
    text_column("refund_id", ForeignKey("refunds.id"), index=True),
    text_column("operation_id", ForeignKey("operations.id")),
    Column("number", Integer, nullable=False),
    text_column("kind"),  # reverse_transfer or refund_fee
    text_column("target", index=True),
    text_column("account"),
    Column("amount", BigInteger, nullable=False),
    text_column("currency"),
    Column("request", JSONB, nullable=False),
    text_column("idempotency_key", unique=True),
    text_column("state"),  # waiting, done, parked, not_done or void
    at("state_since"),
    at("due_at", nullable=True),  # when it is tried, looked at or reminded of next
    text_column("code", nullable=True),
    text_column("detail", nullable=True),
    Column("looks", Integer, nullable=False, server_default=text("0")),  # how often it was looked for in vain
    text_column("receipt_id", nullable=True, unique=True),  # the processor's reversal, or its refund of a fee
    at("created_at"),
    UniqueConstraint("operation_id", "kind", "target"),
)

leg_attempts = Table(
    "leg_attempts",
    metadata,
    text_column("id", primary_key=True),
    text_column("leg_id", ForeignKey("legs.id")),
    Column("number", Integer, nullable=False),
    text_column("worker"),
    at("opened_at"),
    at("send_by"),
    at("answered_at", nullable=True),
    text_column("outcome", nullable=True),  # as in attempts
    text_column("reason", nullable=True),
    text_column("detail", nullable=True),
    UniqueConstraint("leg_id", "number"),
    Index("ix_leg_attempts_open", "send_by", postgresql_where=text("outcome IS NULL")),
)

processor_refunds = Table(
    "processor_refunds",
    metadata,
    text_column("id", primary_key=True),
    text_column("processor"),
    text_column("payment_id", ForeignKey("payments.id"), index=True),
    text_column("operation_id", ForeignKey("operations.id"), nullable=True, unique=True),
    Column("amount", BigInteger, nullable=False),
    text_column("currency"),
    text_column("state"),
    text_column("raw_state"),
    text_column("failure_reason", nullable=True),
    at("created_at", nullable=True),  # by the processor
    at("first_seen_at"),
    at("updated_at"),
    text_column("compared_in", nullable=True),  # the last reconciliation that saw it in the processor's list
    Index("ix_processor_refunds_first_seen", "first_seen_at", "id"),
    Index("ix_processor_refunds_changed", "updated_at", "id"),
    Index("ix_processor_refunds_outside", "first_seen_at", postgresql_where=text("operation_id IS NULL")),
)

settlements = Table(
    "settlements",
    metadata,
    # What a refund took from the merchant's balance: a figure of its own beside what the customer receives (field report 36).
    text_column("processor_refund_id", ForeignKey("processor_refunds.id"), primary_key=True),
    Column("presentment_amount", BigInteger, nullable=False),
    text_column("presentment_currency"),
    Column("settlement_amount", BigInteger, nullable=False),
    text_column("settlement_currency"),
    text_column("rate", nullable=True),  # as the processor wrote it: settlement for one of presentment, in major units
    Column("fee", BigInteger, nullable=False),  # what the refund itself cost, in the settlement currency
    Column("returned", BigInteger, nullable=False),  # what came back when the refund failed later
    at("first_read_at"),
    at("read_at"),
    Index("ix_settlements_currencies", "presentment_currency", "settlement_currency"),
)

processor_binding = Table(
    "processor_binding",
    metadata,
    text_column("processor", primary_key=True),
    text_column("account"),
    text_column("mode"),
    at("bound_at"),
)

events = Table(
    "events",
    metadata,
    # The processor's id of the event: it is stored once, however often it is delivered. Of its content only what is needed, never the whole:
    # an event is a hint, and what it is about is read from the processor.
    text_column("id", primary_key=True),
    text_column("processor"),
    text_column("type"),
    text_column("account", nullable=True),
    Column("livemode", Boolean, nullable=False),
    text_column("api_version", nullable=True),
    text_column("object_id", nullable=True),
    text_column("processor_payment", nullable=True),
    text_column("operation_id", nullable=True),
    Column("facts", JSONB, nullable=False),
    at("created_at"),
    at("received_at"),
    text_column("state"),  # waiting, done, ignored or unmatched
    at("due_at"),
    Column("tries", Integer, nullable=False, server_default=text("0")),
    at("done_at", nullable=True),
    text_column("outcome", nullable=True),
    text_column("last_error", nullable=True),
    at("told_at", nullable=True),  # when a person was told that it is unmatched
    Index("ix_events_waiting", "due_at", postgresql_where=text("state = 'waiting'")),
    Index("ix_events_bodies", "done_at", postgresql_where=text("facts <> '{}'::jsonb")),
    Index("ix_events_unmatched", "told_at", postgresql_where=text("state = 'unmatched'")),
)

reconciliations = Table(
    "reconciliations",
    metadata,
    text_column("id", primary_key=True),
    text_column("processor"),
    at("since"),
    at("until"),
    text_column("started_by"),
    at("started_at"),
    text_column("phase"),  # theirs (their list against our record), ours (our record against their list), done
    text_column("cursor", nullable=True),
    Column("pages", Integer, nullable=False, server_default=text("0")),
    Column("compared", BigInteger, nullable=False, server_default=text("0")),
    Column("differences", Integer, nullable=False, server_default=text("0")),
    Column("imported", Integer, nullable=False, server_default=text("0")),
    at("progressed_at"),
    at("finished_at", nullable=True),
    text_column("last_error", nullable=True),
)

discrepancies = Table(
    "discrepancies",
    metadata,
    text_column("id", primary_key=True),
    text_column("kind"),
    text_column("processor"),
    text_column("payment_id", ForeignKey("payments.id"), nullable=True, index=True),
    text_column("refund_id", ForeignKey("refunds.id"), nullable=True, index=True),
    text_column("operation_id", nullable=True),  # as the processor's object names it; it may be none of ours
    text_column("processor_refund", nullable=True),
    Column("evidence", JSONB, nullable=False),
    text_column("state"),  # open, explained or closed
    text_column("owner_id", ForeignKey("principals.id"), nullable=True),
    text_column("note", nullable=True),
    at("first_seen_at"),
    at("last_seen_at"),
    text_column("reconciliation_id", ForeignKey("reconciliations.id"), nullable=True),
    at("closed_at", nullable=True),
    text_column("closed_by", ForeignKey("principals.id"), nullable=True),
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
    text_column("id", primary_key=True),
    text_column("processor"),
    at("since"),
    at("until"),
    Column("dry_run", Boolean, nullable=False),
    text_column("order_field"),  # the names in the processor's metadata
    text_column("customer_field"),
    text_column("started_by"),
    at("started_at"),
    text_column("phase"),  # reading (the processor's list), making (orders of what was read), done, canceled
    text_column("cursor", nullable=True),
    Column("pages", Integer, nullable=False, server_default=text("0")),
    Column("payments", Integer, nullable=False, server_default=text("0")),
    Column("judged", Integer, nullable=False, server_default=text("0")),
    at("progressed_at"),
    at("finished_at", nullable=True),
    text_column("last_error", nullable=True),
)

pulled_payments = Table(
    "pulled_payments",
    metadata,
    text_column("pull_id", ForeignKey("order_pulls.id"), primary_key=True),
    text_column("processor_payment", primary_key=True),
    # The merchant's ids as the metadata has them, sealed until they are an order's and a customer's; what payments of one order are found by.
    Column("order_lookup", LargeBinary, nullable=True),
    Column("order_sealed", LargeBinary, nullable=True),
    Column("customer_sealed", LargeBinary, nullable=True),  # forgotten again once it is judged
    text_column("currency", nullable=True),
    Column("captured", BigInteger, nullable=False),
    text_column("raw_status"),
    at("created_at", nullable=True),
    text_column("outcome", nullable=True),  # until it is judged there is none
    text_column("code", nullable=True),
    text_column("detail", nullable=True),
    Column("version", Integer, nullable=True),  # of the order, with this payment on it
    Index("ix_pulled_payments_waiting", "pull_id", "order_lookup", postgresql_where=text("outcome IS NULL")),
)
