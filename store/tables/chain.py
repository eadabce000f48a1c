"""The chained ledger: the numbered entries, the Merkle tree over them, the signed checkpoints and where copies of those go.

Only the sequencer's login may write here, and nobody may change or delete what it wrote (a trigger refuses it to the owner as well).
"""

from sqlalchemy import BigInteger, Column, ForeignKey, Identity, Index, Integer, LargeBinary, SmallInteger, Table, text
from sqlalchemy.dialects.postgresql import JSONB

from store.tables.columns import at, metadata, text_column
from store.tables.governing import ledger

ledger_entries = Table(
    "ledger_entries",
    metadata,
    # One row a row of the ledger. Unique three times over: a number, a row and a parent are each used once, so that the chain cannot fork.
    Column("seq", BigInteger, primary_key=True, autoincrement=False),
    Column("ledger_id", BigInteger, ForeignKey(ledger.c.id), nullable=False, unique=True),
    text_column("entry"),  # RFC 8785 canonical JSON
    Column("hash", LargeBinary, nullable=False),  # the leaf of the tree: RFC 9162, SHA-256 over 0x00 and the entry
    Column("previous", LargeBinary, nullable=False, unique=True),
)

ledger_nodes = Table(
    "ledger_nodes",
    metadata,
    # Complete subtrees of the tree: every fourth level (refunds.ledger.merkle.STORED_EVERY) of those above the leaves. A proof reads some dozens.
    Column("level", SmallInteger, primary_key=True, autoincrement=False),
    Column("position", BigInteger, primary_key=True, autoincrement=False),
    Column("hash", LargeBinary, nullable=False),
)

ledger_checkpoints = Table(
    "ledger_checkpoints",
    metadata,
    Column("id", BigInteger, Identity(always=True), primary_key=True),
    Column("size", BigInteger, nullable=False),
    Column("root", LargeBinary, nullable=False),
    text_column("origin"),
    Column("keys", JSONB, nullable=False),  # the verifier keys of the signatures that were made here
    text_column("note"),
    at("made_at"),
    Index("ix_ledger_checkpoints_size", "size", "id"),
)

ledger_exports = Table(
    "ledger_exports",
    metadata,
    # One row for each checkpoint and each place that a copy goes to. Not done is not lost: it is tried again until it is.
    Column("checkpoint_id", BigInteger, ForeignKey(ledger_checkpoints.c.id), primary_key=True),
    text_column("target", primary_key=True),
    at("due_at"),
    Column("tries", Integer, nullable=False, server_default=text("0")),
    at("done_at", nullable=True),
    text_column("last_error", nullable=True),
    Index("ix_ledger_exports_due", "due_at", postgresql_where=text("done_at IS NULL")),
)
