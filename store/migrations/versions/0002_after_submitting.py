"""What arrives after submitting: the processor's events, reconciliations and what they find; halts of a processor, and the pace of letting go"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "events",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("processor", sa.Text(), nullable=False),
        sa.Column("type", sa.Text(), nullable=False),
        sa.Column("account", sa.Text(), nullable=True),
        sa.Column("livemode", sa.Boolean(), nullable=False),
        sa.Column("api_version", sa.Text(), nullable=True),
        sa.Column("object_id", sa.Text(), nullable=True),
        sa.Column("processor_payment", sa.Text(), nullable=True),
        sa.Column("operation_id", sa.Text(), nullable=True),
        sa.Column("facts", postgresql.JSONB(astext_type=sa.Text()), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("received_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("due_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("tries", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("done_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("outcome", sa.Text(), nullable=True),
        sa.Column("last_error", sa.Text(), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_events")),
    )
    op.create_index("ix_events_waiting", "events", ["due_at"], unique=False, postgresql_where=sa.text("state = 'waiting'"))
    op.create_table(
        "halts",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("processor", sa.Text(), nullable=False),
        sa.Column("code", sa.Text(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("opened_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("opened_by", sa.Text(), nullable=True),
        sa.Column("lifted_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("lifted_by", sa.Text(), nullable=True),
        sa.Column("lifted_reason", sa.Text(), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_halts")),
    )
    op.create_index("ix_halts_in_force", "halts", ["processor"], unique=True, postgresql_where=sa.text("lifted_at IS NULL"))
    op.create_table(
        "pacing",
        sa.Column("processor", sa.Text(), nullable=False),
        sa.Column("next_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("open_until", sa.DateTime(timezone=True), nullable=True),
        sa.PrimaryKeyConstraint("processor", name=op.f("pk_pacing")),
    )
    op.execute("INSERT INTO pacing (processor, next_at) VALUES ('stripe', '1970-01-01T00:00:00Z')")
    op.create_table(
        "reconciliations",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("processor", sa.Text(), nullable=False),
        sa.Column("since", sa.DateTime(timezone=True), nullable=False),
        sa.Column("until", sa.DateTime(timezone=True), nullable=False),
        sa.Column("started_by", sa.Text(), nullable=False),
        sa.Column("started_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("phase", sa.Text(), nullable=False),
        sa.Column("cursor", sa.Text(), nullable=True),
        sa.Column("pages", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("compared", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("differences", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("imported", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("progressed_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("finished_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("last_error", sa.Text(), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_reconciliations")),
    )
    op.create_table(
        "discrepancies",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("processor", sa.Text(), nullable=False),
        sa.Column("payment_id", sa.Text(), nullable=True),
        sa.Column("refund_id", sa.Text(), nullable=True),
        sa.Column("operation_id", sa.Text(), nullable=True),
        sa.Column("processor_refund", sa.Text(), nullable=True),
        sa.Column("evidence", postgresql.JSONB(astext_type=sa.Text()), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("owner_id", sa.Text(), nullable=True),
        sa.Column("note", sa.Text(), nullable=True),
        sa.Column("first_seen_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("last_seen_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("reconciliation_id", sa.Text(), nullable=True),
        sa.Column("closed_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("closed_by", sa.Text(), nullable=True),
        sa.ForeignKeyConstraint(["closed_by"], ["principals.id"], name=op.f("fk_discrepancies_closed_by")),
        sa.ForeignKeyConstraint(["owner_id"], ["principals.id"], name=op.f("fk_discrepancies_owner_id")),
        sa.ForeignKeyConstraint(["payment_id"], ["payments.id"], name=op.f("fk_discrepancies_payment_id")),
        sa.ForeignKeyConstraint(["reconciliation_id"], ["reconciliations.id"], name=op.f("fk_discrepancies_reconciliation_id")),
        sa.ForeignKeyConstraint(["refund_id"], ["refunds.id"], name=op.f("fk_discrepancies_refund_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_discrepancies")),
    )
    op.create_index("ix_discrepancies_list", "discrepancies", ["first_seen_at", "id"], unique=False)
    op.create_index(op.f("ix_discrepancies_payment_id"), "discrepancies", ["payment_id"], unique=False)
    op.create_index(op.f("ix_discrepancies_refund_id"), "discrepancies", ["refund_id"], unique=False)
    op.create_index(
        "uq_discrepancies_open",
        "discrepancies",
        ["kind", sa.literal_column("coalesce(processor_refund, '')"), sa.literal_column("coalesce(operation_id, '')")],
        unique=True,
        postgresql_where=sa.text("state <> 'closed'"),
    )
    op.add_column("operations", sa.Column("looks", sa.Integer(), server_default=sa.text("0"), nullable=False))
    op.add_column("processor_refunds", sa.Column("created_at", sa.DateTime(timezone=True), nullable=True))
    op.add_column("processor_refunds", sa.Column("compared_in", sa.Text(), nullable=True))
    op.create_index("ix_processor_refunds_first_seen", "processor_refunds", ["first_seen_at", "id"], unique=False)
    op.add_column("refunds", sa.Column("slot_at", sa.DateTime(timezone=True), nullable=True))


def downgrade() -> None:
    op.drop_column("refunds", "slot_at")
    op.drop_index("ix_processor_refunds_first_seen", table_name="processor_refunds")
    op.drop_column("processor_refunds", "compared_in")
    op.drop_column("processor_refunds", "created_at")
    op.drop_column("operations", "looks")
    op.drop_index("uq_discrepancies_open", table_name="discrepancies", postgresql_where=sa.text("state <> 'closed'"))
    op.drop_index(op.f("ix_discrepancies_refund_id"), table_name="discrepancies")
    op.drop_index(op.f("ix_discrepancies_payment_id"), table_name="discrepancies")
    op.drop_index("ix_discrepancies_list", table_name="discrepancies")
    op.drop_table("discrepancies")
    op.drop_table("reconciliations")
    op.drop_table("pacing")
    op.drop_index("ix_halts_in_force", table_name="halts", postgresql_where=sa.text("lifted_at IS NULL"))
    op.drop_table("halts")
    op.drop_index("ix_events_waiting", table_name="events", postgresql_where=sa.text("state = 'waiting'"))
    op.drop_table("events")
