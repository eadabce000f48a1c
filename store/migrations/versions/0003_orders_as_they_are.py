"""Orders as they really are: groups of refunds and manual tenders, the legs of a marketplace, exchange rates and settlement figures"""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_index("ix_processor_refunds_changed", "processor_refunds", ["updated_at", "id"], unique=False)
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


def downgrade() -> None:
    op.drop_table("pulled_payments")
    op.drop_table("order_pulls")
    op.drop_index("ix_processor_refunds_changed", table_name="processor_refunds")
