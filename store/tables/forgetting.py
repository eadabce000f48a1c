"""Who was forgotten, and when the list of it outside the database was gone through after a restore."""

from sqlalchemy import Column, ForeignKey, Index, Integer, LargeBinary, Table, text

from store.tables.columns import at, metadata, text_column

erasures = Table(
    "erasures",
    metadata,
    # One row for a customer who was forgotten, by our surrogate. The merchant's id is in no column: the mark is a keyed hash of it, kept for some days
    # so that forgetting twice answers the same, and then NULL.
    text_column("id", primary_key=True),
    text_column("customer_id", ForeignKey("customers.id"), unique=True),
    at("forgotten_at"),
    text_column("forgotten_by"),
    text_column("reason"),
    text_column("reference", nullable=True),
    Column("mark", LargeBinary, nullable=True),
    Index("ix_erasures_mark", "mark", postgresql_where=text("mark IS NOT NULL")),
)

erasure_replays = Table(
    "erasure_replays",
    metadata,
    text_column("id", primary_key=True),
    at("at"),
    text_column("by"),
    Column("lines", Integer, nullable=False),
    Column("forgotten", Integer, nullable=False),
    Column("absent", Integer, nullable=False),
    Index("ix_erasure_replays_at", "at"),
)
