"""Orders as they really are: groups of refunds and manual tenders, the legs of a marketplace, exchange rates and settlement figures"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("payments", sa.Column("tender", sa.Text(), nullable=True))
    # What is held of manual parts is let go in turns like everything else.
    op.execute("INSERT INTO pacing (processor, next_at) VALUES ('manual', '1970-01-01T00:00:00Z')")
    op.create_table(
        "refund_groups",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("integration", sa.Text(), nullable=False),
        sa.Column("idempotency_key", sa.Text(), nullable=False),
        sa.Column("body_hash", sa.Text(), nullable=False),
        sa.Column("requester_id", sa.Text(), nullable=False),
        sa.Column("requested_by", sa.Text(), nullable=True),
        sa.Column("customer_id", sa.Text(), nullable=False),
        sa.Column("order_id", sa.Text(), nullable=False),
        sa.Column("order_version", sa.Integer(), nullable=False),
        sa.Column("amount", sa.BigInteger(), nullable=True),
        sa.Column("currency", sa.Text(), nullable=True),
        sa.Column("full", sa.Boolean(), nullable=False),
        sa.Column("details", postgresql.JSONB(astext_type=sa.Text()), nullable=False),
        sa.Column("allocation", postgresql.JSONB(astext_type=sa.Text()), nullable=False),
        sa.Column("breakdown", postgresql.JSONB(astext_type=sa.Text()), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(["customer_id"], ["customers.id"], name=op.f("fk_refund_groups_customer_id")),
        sa.ForeignKeyConstraint(["order_id"], ["orders.id"], name=op.f("fk_refund_groups_order_id")),
        sa.ForeignKeyConstraint(["requester_id"], ["principals.id"], name=op.f("fk_refund_groups_requester_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_refund_groups")),
        sa.UniqueConstraint("integration", "idempotency_key", name=op.f("uq_refund_groups_integration_idempotency_key")),
    )
    op.create_index(op.f("ix_refund_groups_order_id"), "refund_groups", ["order_id"], unique=False)
    op.create_index("ix_refund_groups_list", "refund_groups", ["created_at", "id"], unique=False)
    op.add_column("refunds", sa.Column("group_id", sa.Text(), nullable=True))
    op.create_foreign_key(op.f("fk_refunds_group_id"), "refunds", "refund_groups", ["group_id"], ["id"])
    op.create_index("ix_refunds_group", "refunds", ["group_id"], unique=False, postgresql_where=sa.text("group_id IS NOT NULL"))
    op.create_index("ix_processor_refunds_changed", "processor_refunds", ["updated_at", "id"], unique=False)
    op.create_index(
        "ix_discrepancies_open_of", "discrepancies", ["processor_refund"], unique=False, postgresql_where=sa.text("state = 'open'")
    )
    op.create_table(
        "order_pulls",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("processor", sa.Text(), nullable=False),
        sa.Column("since", sa.DateTime(timezone=True), nullable=False),
        sa.Column("until", sa.DateTime(timezone=True), nullable=False),
        sa.Column("dry_run", sa.Boolean(), nullable=False),
        sa.Column("order_field", sa.Text(), nullable=False),
        sa.Column("customer_field", sa.Text(), nullable=False),
        sa.Column("started_by", sa.Text(), nullable=False),
        sa.Column("started_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("phase", sa.Text(), nullable=False),
        sa.Column("cursor", sa.Text(), nullable=True),
        sa.Column("pages", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("payments", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("judged", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("progressed_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("finished_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("last_error", sa.Text(), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_order_pulls")),
    )
    op.create_table(
        "pulled_payments",
        sa.Column("pull_id", sa.Text(), nullable=False),
        sa.Column("processor_payment", sa.Text(), nullable=False),
        sa.Column("order_ref", sa.Text(), nullable=True),
        sa.Column("customer_ref", sa.Text(), nullable=True),
        sa.Column("currency", sa.Text(), nullable=True),
        sa.Column("captured", sa.BigInteger(), nullable=False),
        sa.Column("raw_status", sa.Text(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("outcome", sa.Text(), nullable=True),
        sa.Column("code", sa.Text(), nullable=True),
        sa.Column("detail", sa.Text(), nullable=True),
        sa.Column("version", sa.Integer(), nullable=True),
        sa.ForeignKeyConstraint(["pull_id"], ["order_pulls.id"], name=op.f("fk_pulled_payments_pull_id")),
        sa.PrimaryKeyConstraint("pull_id", "processor_payment", name=op.f("pk_pulled_payments")),
    )
    op.create_index(
        "ix_pulled_payments_waiting", "pulled_payments", ["pull_id", "order_ref"], unique=False, postgresql_where=sa.text("outcome IS NULL")
    )
    op.add_column("refunds", sa.Column("reverse_transfer", sa.Boolean(), server_default=sa.text("false"), nullable=False))
    op.add_column("refunds", sa.Column("refund_application_fee", sa.Boolean(), server_default=sa.text("false"), nullable=False))
    op.add_column("refunds", sa.Column("legs_at", sa.DateTime(timezone=True), nullable=True))
    op.add_column("refunds", sa.Column("legs_detail", sa.Text(), nullable=True))
    op.create_table(
        "legs",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("refund_id", sa.Text(), nullable=False),
        sa.Column("operation_id", sa.Text(), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("target", sa.Text(), nullable=False),
        sa.Column("account", sa.Text(), nullable=False),
        sa.Column("amount", sa.BigInteger(), nullable=False),
        sa.Column("currency", sa.Text(), nullable=False),
        sa.Column("request", postgresql.JSONB(astext_type=sa.Text()), nullable=False),
        sa.Column("idempotency_key", sa.Text(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("state_since", sa.DateTime(timezone=True), nullable=False),
        sa.Column("due_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("code", sa.Text(), nullable=True),
        sa.Column("detail", sa.Text(), nullable=True),
        sa.Column("looks", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("receipt_id", sa.Text(), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(["operation_id"], ["operations.id"], name=op.f("fk_legs_operation_id")),
        sa.ForeignKeyConstraint(["refund_id"], ["refunds.id"], name=op.f("fk_legs_refund_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_legs")),
        sa.UniqueConstraint("idempotency_key", name=op.f("uq_legs_idempotency_key")),
        sa.UniqueConstraint("operation_id", "kind", "target", name=op.f("uq_legs_operation_id_kind_target")),
        sa.UniqueConstraint("receipt_id", name=op.f("uq_legs_receipt_id")),
    )
    op.create_index(op.f("ix_legs_refund_id"), "legs", ["refund_id"], unique=False)
    op.create_index(op.f("ix_legs_target"), "legs", ["target"], unique=False)
    op.create_table(
        "leg_attempts",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("leg_id", sa.Text(), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("worker", sa.Text(), nullable=False),
        sa.Column("opened_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("send_by", sa.DateTime(timezone=True), nullable=False),
        sa.Column("answered_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("outcome", sa.Text(), nullable=True),
        sa.Column("reason", sa.Text(), nullable=True),
        sa.Column("detail", sa.Text(), nullable=True),
        sa.ForeignKeyConstraint(["leg_id"], ["legs.id"], name=op.f("fk_leg_attempts_leg_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_leg_attempts")),
        sa.UniqueConstraint("leg_id", "number", name=op.f("uq_leg_attempts_leg_id_number")),
    )
    op.create_index("ix_leg_attempts_open", "leg_attempts", ["send_by"], unique=False, postgresql_where=sa.text("outcome IS NULL"))
    op.create_table(
        "settlements",
        sa.Column("processor_refund_id", sa.Text(), nullable=False),
        sa.Column("presentment_amount", sa.BigInteger(), nullable=False),
        sa.Column("presentment_currency", sa.Text(), nullable=False),
        sa.Column("settlement_amount", sa.BigInteger(), nullable=False),
        sa.Column("settlement_currency", sa.Text(), nullable=False),
        sa.Column("rate", sa.Text(), nullable=True),
        sa.Column("fee", sa.BigInteger(), nullable=False),
        sa.Column("returned", sa.BigInteger(), nullable=False),
        sa.Column("first_read_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("read_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(["processor_refund_id"], ["processor_refunds.id"], name=op.f("fk_settlements_processor_refund_id")),
        sa.PrimaryKeyConstraint("processor_refund_id", name=op.f("pk_settlements")),
    )
    op.create_index("ix_settlements_currencies", "settlements", ["presentment_currency", "settlement_currency"], unique=False)
    op.create_table(
        "exchange_rates",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("base", sa.Text(), nullable=False),
        sa.Column("currency", sa.Text(), nullable=False),
        sa.Column("rate", sa.Text(), nullable=False),
        sa.Column("effective_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("source", sa.Text(), nullable=False),
        sa.Column("recorded_by", sa.Text(), nullable=False),
        sa.Column("recorded_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(["recorded_by"], ["principals.id"], name=op.f("fk_exchange_rates_recorded_by")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_exchange_rates")),
    )
    op.create_index("ix_exchange_rates_newest", "exchange_rates", ["base", "currency", "effective_at", "id"], unique=False)
    op.add_column("events", sa.Column("told_at", sa.DateTime(timezone=True), nullable=True))
    # What is unmatched already has been told, each by itself.
    op.execute("UPDATE events SET told_at = done_at WHERE state = 'unmatched'")
    op.create_index("ix_events_unmatched", "events", ["told_at"], unique=False, postgresql_where=sa.text("state = 'unmatched'"))


def downgrade() -> None:
    op.drop_index("ix_events_unmatched", table_name="events")
    op.drop_column("events", "told_at")
    op.drop_table("exchange_rates")
    op.drop_table("settlements")
    op.drop_table("leg_attempts")
    op.drop_table("legs")
    op.drop_column("refunds", "legs_detail")
    op.drop_column("refunds", "legs_at")
    op.drop_column("refunds", "refund_application_fee")
    op.drop_column("refunds", "reverse_transfer")
    op.drop_table("pulled_payments")
    op.drop_table("order_pulls")
    op.drop_index("ix_discrepancies_open_of", table_name="discrepancies", postgresql_where=sa.text("state = 'open'"))
    op.drop_index("ix_processor_refunds_changed", table_name="processor_refunds")
    op.drop_index("ix_refunds_group", table_name="refunds")
    op.drop_constraint(op.f("fk_refunds_group_id"), "refunds", type_="foreignkey")
    op.drop_column("refunds", "group_id")
    op.drop_table("refund_groups")
    op.execute("DELETE FROM pacing WHERE processor = 'manual'")
    op.drop_column("payments", "tender")
