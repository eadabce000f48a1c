"""The rules and the record: limits over time, stops by scope, approvals; the chained ledger; what is personal, sealed"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    _ledger()
    _personal()
    _policy()
    _limits()
    _controls()
    _approvals()


def downgrade() -> None:
    _without_approvals()
    _without_controls()
    _without_limits()
    _without_policy()
    _without_personal()
    _without_ledger()


# --- the chained ledger


_RECORD = ("ledger", "ledger_entries", "ledger_nodes", "ledger_checkpoints")


def _ledger() -> None:
    op.add_column("ledger", sa.Column("commitments", postgresql.JSONB(astext_type=sa.Text()), nullable=True))
    op.create_table(
        "ledger_entries",
        sa.Column("seq", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("ledger_id", sa.BigInteger(), nullable=False),
        sa.Column("entry", sa.Text(), nullable=False),
        sa.Column("hash", sa.LargeBinary(), nullable=False),
        sa.Column("previous", sa.LargeBinary(), nullable=False),
        sa.ForeignKeyConstraint(["ledger_id"], ["ledger.id"], name=op.f("fk_ledger_entries_ledger_id")),
        sa.PrimaryKeyConstraint("seq", name=op.f("pk_ledger_entries")),
        sa.UniqueConstraint("ledger_id", name=op.f("uq_ledger_entries_ledger_id")),
        sa.UniqueConstraint("previous", name=op.f("uq_ledger_entries_previous")),
    )
    op.create_table(
        "ledger_nodes",
        sa.Column("level", sa.SmallInteger(), autoincrement=False, nullable=False),
        sa.Column("position", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("hash", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("level", "position", name=op.f("pk_ledger_nodes")),
    )
    op.create_table(
        "ledger_checkpoints",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=True), nullable=False),
        sa.Column("size", sa.BigInteger(), nullable=False),
        sa.Column("root", sa.LargeBinary(), nullable=False),
        sa.Column("origin", sa.Text(), nullable=False),
        sa.Column("keys", postgresql.JSONB(astext_type=sa.Text()), nullable=False),
        sa.Column("note", sa.Text(), nullable=False),
        sa.Column("made_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_ledger_checkpoints")),
    )
    op.create_index("ix_ledger_checkpoints_size", "ledger_checkpoints", ["size", "id"], unique=False)
    op.create_table(
        "ledger_exports",
        sa.Column("checkpoint_id", sa.BigInteger(), nullable=False),
        sa.Column("target", sa.Text(), nullable=False),
        sa.Column("due_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("tries", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("done_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("last_error", sa.Text(), nullable=True),
        sa.ForeignKeyConstraint(["checkpoint_id"], ["ledger_checkpoints.id"], name=op.f("fk_ledger_exports_checkpoint_id")),
        sa.PrimaryKeyConstraint("checkpoint_id", "target", name=op.f("pk_ledger_exports")),
    )
    op.create_index("ix_ledger_exports_due", "ledger_exports", ["due_at"], unique=False, postgresql_where=sa.text("done_at IS NULL"))
    # Grants bind every login but the owner's, and a small installation has no other. This binds the owner to saying what they do (DISABLE TRIGGER): it is
    # no proof (that is the chain and its copies elsewhere), but no slip, and no statement of ours, changes the record.
    op.execute(
        "CREATE FUNCTION refuse_changing_the_record() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN"
        " RAISE EXCEPTION 'the record is only ever added to: % of % is refused', TG_OP, TG_TABLE_NAME; END $$"
    )
    for table in _RECORD:
        op.execute(
            f"CREATE TRIGGER only_added_to BEFORE UPDATE OR DELETE OR TRUNCATE ON {table}"
            " FOR EACH STATEMENT EXECUTE FUNCTION refuse_changing_the_record()"
        )


def _without_ledger() -> None:
    for table in ("ledger_exports", "ledger_checkpoints", "ledger_nodes", "ledger_entries"):
        op.drop_table(table)
    op.execute("DROP TRIGGER only_added_to ON ledger")
    op.execute("DROP FUNCTION refuse_changing_the_record()")
    op.drop_column("ledger", "commitments")


# --- what is personal


def _personal() -> None:
    pass


def _without_personal() -> None:
    pass


# --- policy versions and what a judgement records


def _policy() -> None:
    pass


def _without_policy() -> None:
    pass


# --- limits over time and the breaker


def _limits() -> None:
    pass


def _without_limits() -> None:
    pass


# --- stops by scope, and modes


def _controls() -> None:
    pass


def _without_controls() -> None:
    pass


# --- approvals


def _approvals() -> None:
    pass


def _without_approvals() -> None:
    pass
