"""The rules and the record: limits over time, stops by scope, approvals; the chained ledger; what is personal, sealed"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

from store.migrations import sealing

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


_SEALED = {
    "customers": ("ref_lookup", "ref_sealed"),
    "orders": ("ref_lookup", "ref_sealed", "body_sealed"),
    "order_versions": ("body_sealed",),
    "pulled_payments": ("order_lookup", "order_sealed", "customer_sealed"),
}
_IN_THE_CLEAR = {"customers": ("external_ref",), "orders": ("external_ref",), "pulled_payments": ("order_ref", "customer_ref")}


def _personal() -> None:
    op.create_table(
        "sealing_keys",
        sa.Column("purpose", sa.Text(), nullable=False),
        sa.Column("number", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("master", sa.Text(), nullable=False),
        sa.Column("wrapped", sa.LargeBinary(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("purpose", "number", name=op.f("pk_sealing_keys")),
    )
    op.add_column("customer_keys", sa.Column("wrapping", sa.Integer(), nullable=True))
    for table, columns in _SEALED.items():
        for column in columns:
            op.add_column(table, sa.Column(column, sa.LargeBinary(), nullable=True))
    sealing.seal_all(op.get_bind())
    op.alter_column("customer_keys", "wrapping", nullable=False)
    op.create_index("ix_customer_keys_wrapping", "customer_keys", ["wrapping", "customer_id"], unique=False)
    op.drop_index("ix_pulled_payments_waiting", table_name="pulled_payments")
    for table, columns in _IN_THE_CLEAR.items():
        for column in columns:
            op.drop_column(table, column)
    for table in ("customers", "orders"):
        op.create_unique_constraint(op.f(f"uq_{table}_ref_lookup"), table, ["ref_lookup"])
    waiting = sa.text("outcome IS NULL")
    op.create_index("ix_pulled_payments_waiting", "pulled_payments", ["pull_id", "order_lookup"], unique=False, postgresql_where=waiting)
    _forgetting()


def _without_personal() -> None:
    sealing.refuse_to_unseal(op.get_bind())
    _without_forgetting()
    op.drop_index("ix_pulled_payments_waiting", table_name="pulled_payments")
    for table, columns in _SEALED.items():
        for column in columns:
            op.drop_column(table, column)
    for table, columns in _IN_THE_CLEAR.items():
        for column in columns:
            op.add_column(table, sa.Column(column, sa.Text(), nullable=table == "pulled_payments"))
    for table in ("customers", "orders"):
        op.create_unique_constraint(op.f(f"uq_{table}_external_ref"), table, ["external_ref"])
    waiting = sa.text("outcome IS NULL")
    op.create_index("ix_pulled_payments_waiting", "pulled_payments", ["pull_id", "order_ref"], unique=False, postgresql_where=waiting)
    op.drop_index("ix_customer_keys_wrapping", table_name="customer_keys")
    op.drop_column("customer_keys", "wrapping")
    op.drop_table("sealing_keys")


# --- forgetting and retention


def _forgetting() -> None:
    op.add_column("customers", sa.Column("forgotten_at", sa.DateTime(timezone=True), nullable=True))
    op.create_table(
        "erasures",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("customer_id", sa.Text(), nullable=False),
        sa.Column("forgotten_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("forgotten_by", sa.Text(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("reference", sa.Text(), nullable=True),
        sa.Column("mark", sa.LargeBinary(), nullable=True),
        sa.ForeignKeyConstraint(["customer_id"], ["customers.id"], name=op.f("fk_erasures_customer_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_erasures")),
        sa.UniqueConstraint("customer_id", name=op.f("uq_erasures_customer_id")),
    )
    op.create_index("ix_erasures_mark", "erasures", ["mark"], unique=False, postgresql_where=sa.text("mark IS NOT NULL"))
    op.create_table(
        "erasure_replays",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("by", sa.Text(), nullable=False),
        sa.Column("lines", sa.Integer(), nullable=False),
        sa.Column("forgotten", sa.Integer(), nullable=False),
        sa.Column("absent", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_erasure_replays")),
    )
    op.create_index("ix_erasure_replays_at", "erasure_replays", ["at"], unique=False)
    # What a retention period looks for, so that a run reads only what is old enough.
    op.create_index("ix_texts_recorded_at", "texts", ["recorded_at"], unique=False)
    for table, column in (("refunds", "final_at"), ("refund_groups", "created_at")):
        op.create_index(f"ix_{table}_fingerprints", table, [column], unique=False, postgresql_where=sa.text("body_hash <> ''"))
    op.create_index("ix_events_bodies", "events", ["done_at"], unique=False, postgresql_where=sa.text("facts <> '{}'::jsonb"))


def _without_forgetting() -> None:
    op.drop_index("ix_events_bodies", table_name="events")
    for table in ("refund_groups", "refunds"):
        op.drop_index(f"ix_{table}_fingerprints", table_name=table)
    op.drop_index("ix_texts_recorded_at", table_name="texts")
    op.drop_table("erasure_replays")
    op.drop_table("erasures")
    op.drop_column("customers", "forgotten_at")


# --- policy versions and what a judgement records


def _policy() -> None:
    # Of two versions with one date, the one published last was in force and still is: those before it get a date so much earlier that nothing else changes.
    op.execute(
        "UPDATE policy_versions v SET effective_from = v.effective_from - later.n * interval '1 microsecond' FROM (SELECT version, row_number()"
        " OVER (PARTITION BY effective_from ORDER BY version DESC) - 1 AS n FROM policy_versions) later WHERE later.version = v.version AND later.n > 0"
    )
    op.create_unique_constraint(op.f("uq_policy_versions_effective_from"), "policy_versions", ["effective_from"])


def _without_policy() -> None:
    op.drop_constraint(op.f("uq_policy_versions_effective_from"), "policy_versions", type_="unique")


# --- limits over time and the breaker


def _limits() -> None:
    op.create_table(
        "limit_uses",
        sa.Column("refund_id", sa.Text(), nullable=False),
        sa.Column("stage", sa.Text(), nullable=False),
        sa.Column("revision", sa.Integer(), nullable=False),
        sa.Column("customer_id", sa.Text(), nullable=False),
        sa.Column("agent_id", sa.Text(), nullable=True),
        sa.Column("by_agent", sa.Boolean(), nullable=False),
        sa.Column("session", sa.Text(), nullable=True),
        sa.Column("processor", sa.Text(), nullable=False),
        sa.Column("amount", sa.BigInteger(), nullable=False),
        sa.Column("currency", sa.Text(), nullable=False),
        sa.Column("base", sa.Text(), nullable=True),
        sa.Column("worth", sa.Numeric(), nullable=True),
        sa.Column("taken_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("given_back_at", sa.DateTime(timezone=True), nullable=True),
        sa.ForeignKeyConstraint(["customer_id"], ["customers.id"], name=op.f("fk_limit_uses_customer_id")),
        sa.ForeignKeyConstraint(["refund_id"], ["refunds.id"], name=op.f("fk_limit_uses_refund_id")),
        sa.PrimaryKeyConstraint("refund_id", "stage", name=op.f("pk_limit_uses")),
    )
    counts = ["refund_id", "amount", "currency", "base", "worth", "given_back_at"]
    op.create_index("ix_limit_uses_taken", "limit_uses", ["stage", "taken_at"], postgresql_include=counts)
    op.create_index("ix_limit_uses_customer", "limit_uses", ["customer_id", "stage", "taken_at"])
    for column in ("agent", "session"):
        name = "agent_id" if column == "agent" else column
        where = sa.text(f"{name} IS NOT NULL")
        op.create_index(f"ix_limit_uses_{column}", "limit_uses", [name, "stage", "taken_at"], postgresql_where=where)
    outside = sa.text("operation_id IS NULL")
    op.create_index("ix_processor_refunds_outside", "processor_refunds", ["first_seen_at"], postgresql_where=outside)
    op.create_index("ix_decisions_reviewer", "decisions", ["principal_id", "recorded_at"], postgresql_where=sa.text("kind = 'review'"))
    # What was reserved or sent before there were limits counts towards them, by the same rule as from now on.
    op.execute(_USED_BEFORE.format(stage="reserved", taken="v.created_at", counting=f"'{_RESERVING}', {_SENT}", among=""))
    sent = " JOIN operations x ON x.refund_id = r.id AND x.revision = r.revision"
    first = "coalesce((SELECT min(a.opened_at) FROM attempts a WHERE a.operation_id = x.id), x.created_at)"
    op.execute(_USED_BEFORE.format(stage="sent", taken=first, counting=_SENT, among=sent))
    op.create_table(
        "breakers",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("scope", sa.Text(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("since", sa.DateTime(timezone=True), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("figures", postgresql.JSONB(astext_type=sa.Text()), nullable=False),
        sa.Column("opened_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("cool_until", sa.DateTime(timezone=True), nullable=False),
        sa.Column("per_hour", sa.Integer(), nullable=False),
        sa.Column("closed_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("closed_by", sa.Text(), nullable=True),
        sa.Column("closed_reason", sa.Text(), nullable=True),
        sa.ForeignKeyConstraint(["closed_by"], ["principals.id"], name=op.f("fk_breakers_closed_by")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_breakers")),
    )
    op.create_index("ix_breakers_list", "breakers", ["opened_at", "id"])
    op.create_index("ix_breakers_open", "breakers", ["name", "scope"], unique=True, postgresql_where=sa.text("closed_at IS NULL"))
    op.create_table(
        "limit_warnings",
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("subject", sa.Text(), nullable=False),
        sa.Column("told_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("name", "subject", name=op.f("pk_limit_warnings")),
    )


_RESERVING = "awaiting_consent', 'awaiting_review', 'approved', 'held"
_SENT = "'submitting', 'pending', 'parked', 'succeeded'"
_USED_BEFORE = """
    INSERT INTO limit_uses (refund_id, stage, revision, customer_id, agent_id, by_agent, session, processor, amount, currency, base, worth, taken_at,
                            given_back_at)
    SELECT r.id, '{stage}', r.revision, r.customer_id, r.agent_id,
           r.agent_id IS NOT NULL OR r.details ->> 'agent_session_id' IS NOT NULL OR r.details ->> 'agent_model' IS NOT NULL,
           NULL,  -- sessions end sooner than an upgrade takes, and what agents called theirs is no longer in the clear
           p.processor,
           CASE WHEN v.terms ->> 'operation' = 'release' THEN 0 ELSE v.amount END, v.currency,
           v.facts #>> '{{base,currency}}',
           CASE WHEN v.terms ->> 'operation' = 'release' THEN 0 ELSE CAST(v.facts #>> '{{base,amount}}' AS numeric) END,
           {taken}, CASE WHEN r.status IN ({counting}) THEN NULL ELSE r.status_since END
      FROM refunds r
      JOIN revisions v ON v.refund_id = r.id AND v.revision = r.revision
      JOIN payments p ON p.id = v.payment_id{among}
     WHERE r.status NOT IN ('received', 'classified')
"""


def _without_limits() -> None:
    op.drop_table("limit_warnings")
    op.drop_table("breakers")
    op.drop_index("ix_decisions_reviewer", table_name="decisions", postgresql_where=sa.text("kind = 'review'"))
    op.drop_index("ix_processor_refunds_outside", table_name="processor_refunds", postgresql_where=sa.text("operation_id IS NULL"))
    op.drop_table("limit_uses")


# --- stops by scope, and modes


_SCOPE = (
    "CASE WHEN processor IS NULL THEN scope IN ('everything', 'agents') OR scope LIKE 'agent:_%' ELSE scope = 'processor:' || processor END"
)


def _controls() -> None:
    op.add_column("controls", sa.Column("stopped_by", sa.Text(), nullable=True))
    op.add_column("controls", sa.Column("stopped_at", sa.DateTime(timezone=True), nullable=True))
    op.add_column("controls", sa.Column("stop_reason", sa.Text(), nullable=True))
    op.execute("UPDATE controls SET stopped_by = changed_by, stopped_at = changed_at, stop_reason = reason WHERE stopped")
    op.create_check_constraint(op.f("ck_controls_mode"), "controls", "mode IN ('live', 'draft')")
    op.add_column("halts", sa.Column("scope", sa.Text(), nullable=True))
    op.execute("UPDATE halts SET scope = 'processor:' || processor")
    op.alter_column("halts", "scope", nullable=False)
    op.alter_column("halts", "processor", nullable=True)
    op.create_check_constraint(op.f("ck_halts_scope"), "halts", _SCOPE)
    op.drop_index("ix_halts_in_force", table_name="halts", postgresql_where=sa.text("lifted_at IS NULL"))
    op.create_index("ix_halts_in_force", "halts", ["scope", "code"], unique=True, postgresql_where=sa.text("lifted_at IS NULL"))


def _without_controls() -> None:
    op.drop_index("ix_halts_in_force", table_name="halts", postgresql_where=sa.text("lifted_at IS NULL"))
    # What the schema before cannot say must not be forgotten: a halt of any scope becomes a stop of everything, and of several halts one stays.
    op.execute(
        "UPDATE controls SET stopped = true, reason = 'a halt of a narrower scope was in force'"
        " WHERE EXISTS (SELECT 1 FROM halts WHERE processor IS NULL AND lifted_at IS NULL)"
    )
    op.execute("DELETE FROM halts WHERE processor IS NULL")
    op.execute(
        "UPDATE halts h SET lifted_at = now(), lifted_reason = 'another halt stays in force' WHERE lifted_at IS NULL"
        " AND EXISTS (SELECT 1 FROM halts o WHERE o.processor = h.processor AND o.lifted_at IS NULL AND (o.opened_at, o.id) < (h.opened_at, h.id))"
    )
    op.drop_constraint(op.f("ck_halts_scope"), "halts", type_="check")
    op.alter_column("halts", "processor", nullable=False)
    op.drop_column("halts", "scope")
    op.create_index("ix_halts_in_force", "halts", ["processor"], unique=True, postgresql_where=sa.text("lifted_at IS NULL"))
    op.drop_constraint(op.f("ck_controls_mode"), "controls", type_="check")
    op.drop_column("controls", "stop_reason")
    op.drop_column("controls", "stopped_at")
    op.drop_column("controls", "stopped_by")


# --- approvals


def _approvals() -> None:
    op.add_column("principals", sa.Column("owner_id", sa.Text(), nullable=True))
    op.add_column("principals", sa.Column("operates_classifier", sa.Boolean(), server_default=sa.text("false"), nullable=False))
    op.add_column("principals", sa.Column("approves_up_to", postgresql.JSONB(astext_type=sa.Text()), nullable=True))
    op.create_foreign_key(op.f("fk_principals_owner_id"), "principals", "principals", ["owner_id"], ["id"])
    op.create_table(
        "delegations",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("delegator_id", sa.Text(), nullable=False),
        sa.Column("delegate_id", sa.Text(), nullable=False),
        sa.Column("role", sa.Text(), nullable=False),
        sa.Column("queue", sa.Text(), nullable=True),
        sa.Column("starts_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("ends_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("ended_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("ended_by", sa.Text(), nullable=True),
        sa.ForeignKeyConstraint(["delegate_id"], ["principals.id"], name=op.f("fk_delegations_delegate_id")),
        sa.ForeignKeyConstraint(["delegator_id"], ["principals.id"], name=op.f("fk_delegations_delegator_id")),
        sa.ForeignKeyConstraint(["ended_by"], ["principals.id"], name=op.f("fk_delegations_ended_by")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_delegations")),
    )
    op.create_index("ix_delegations_delegate", "delegations", ["delegate_id", "ends_at"], unique=False)
    op.create_table(
        "evidence",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("refund_id", sa.Text(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("digest", sa.Text(), nullable=True),
        sa.Column("given_by", sa.Text(), nullable=False),
        sa.Column("recorded_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(["given_by"], ["principals.id"], name=op.f("fk_evidence_given_by")),
        sa.ForeignKeyConstraint(["refund_id"], ["refunds.id"], name=op.f("fk_evidence_refund_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_evidence")),
    )
    op.create_index(op.f("ix_evidence_refund_id"), "evidence", ["refund_id"], unique=False)
    op.add_column("decisions", sa.Column("on_behalf_of", sa.Text(), nullable=True))
    op.add_column("decisions", sa.Column("delegation_id", sa.Text(), nullable=True))
    op.create_foreign_key(op.f("fk_decisions_on_behalf_of"), "decisions", "principals", ["on_behalf_of"], ["id"])
    op.create_foreign_key(op.f("fk_decisions_delegation_id"), "decisions", "delegations", ["delegation_id"], ["id"])
    op.add_column("refunds", sa.Column("assigned_to", sa.Text(), nullable=True))
    op.create_foreign_key(op.f("fk_refunds_assigned_to"), "refunds", "principals", ["assigned_to"], ["id"])
    op.create_index("ix_refunds_assigned", "refunds", ["assigned_to"], unique=False, postgresql_where=sa.text("assigned_to IS NOT NULL"))
    op.add_column("revisions", sa.Column("changes", postgresql.JSONB(astext_type=sa.Text()), nullable=True))
    op.add_column("revisions", sa.Column("sources", postgresql.JSONB(astext_type=sa.Text()), nullable=True))


def _without_approvals() -> None:
    op.drop_column("revisions", "sources")
    op.drop_column("revisions", "changes")
    op.drop_index("ix_refunds_assigned", table_name="refunds")
    op.drop_column("refunds", "assigned_to")
    op.drop_column("decisions", "delegation_id")
    op.drop_column("decisions", "on_behalf_of")
    op.drop_table("evidence")
    op.drop_table("delegations")
    for column in ("approves_up_to", "operates_classifier", "owner_id"):
        op.drop_column("principals", column)
