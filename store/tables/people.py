"""Who: people, services, agents and their keys."""

from sqlalchemy import ARRAY, Column, ForeignKey, Index, LargeBinary, Table, Text, text

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
