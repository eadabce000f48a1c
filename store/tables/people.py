"""Who: people, services, agents and their keys, and whom they let decide for them."""

from sqlalchemy import ARRAY, Boolean, Column, ForeignKey, Index, LargeBinary, Table, Text, text
from sqlalchemy.dialects.postgresql import JSONB

from store.tables.columns import at, metadata, text_column

principals = Table(
    "principals",
    metadata,
    text_column("id", primary_key=True),
    text_column("kind"),
    # How requests name this person in requested_by, and how people recognise each other; unique without regard to case.
    text_column("handle"),
    text_column("name"),
    at("created_at"),
    at("disabled_at", nullable=True),
    # The person an agent acts for, and answers for it.
    text_column("owner_id", ForeignKey("principals.id"), nullable=True),
    # Whoever chooses or instructs the reader of free text approves nothing that it read.
    Column("operates_classifier", Boolean, nullable=False, server_default=text("false")),
    # A reviewer's own ceilings, by currency, in its API unit; none: only the roles bound them.
    Column("approves_up_to", JSONB, nullable=True),
    Index("uq_principals_handle", text("lower(handle)"), unique=True),
)

api_keys = Table(
    "api_keys",
    metadata,
    text_column("id", primary_key=True),
    text_column("principal_id", ForeignKey("principals.id")),
    # SHA-256 of a key of 256 random bits: nothing slower is needed for what cannot be guessed.
    Column("hash", LargeBinary, nullable=False, unique=True),
    text_column("hint"),
    Column("roles", ARRAY(Text), nullable=False),
    text_column("integration"),
    at("created_at"),
    at("expires_at", nullable=True),
    at("revoked_at", nullable=True),
)

delegations = Table(
    "delegations",
    metadata,
    # The right to decide that a person has handed to another for a while; the first instant belongs to it, the last does not.
    text_column("id", primary_key=True),
    text_column("delegator_id", ForeignKey("principals.id")),
    text_column("delegate_id", ForeignKey("principals.id")),
    text_column("role"),
    text_column("queue", nullable=True),
    at("starts_at"),
    at("ends_at"),
    at("created_at"),
    at("ended_at", nullable=True),
    text_column("ended_by", ForeignKey("principals.id"), nullable=True),
    Index("ix_delegations_delegate", "delegate_id", "ends_at"),
)
