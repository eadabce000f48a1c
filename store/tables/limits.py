"""Limits over time: what counts towards them, and the breakers."""

from sqlalchemy import BigInteger, Boolean, Column, ForeignKey, Index, Integer, Numeric, Table, text
from sqlalchemy.dialects.postgresql import JSONB

from store.tables.columns import at, metadata, text_column

_COUNTS = ["refund_id", "amount", "currency", "base", "worth", "given_back_at"]

limit_uses = Table(
    "limit_uses",
    metadata,
    # What one refund counts as, once when its terms were reserved and once when its money was about to move. However often either is done again it is
    # this one row (field report 52); a revision replaces it in one step. Whether it counts follows the refund's status, in the same statement.
    text_column("refund_id", ForeignKey("refunds.id"), primary_key=True),
    text_column("stage", primary_key=True),  # reserved or sent
    Column("revision", Integer, nullable=False),
    text_column("customer_id", ForeignKey("customers.id")),
    text_column("agent_id", nullable=True),
    Column("by_agent", Boolean, nullable=False),
    text_column("session", nullable=True),  # a hash: what agents call their sessions stays with the refund
    text_column("processor"),
    Column("amount", BigInteger, nullable=False),  # nothing for a release: no money moves
    text_column("currency"),
    text_column("base", nullable=True),
    Column("worth", Numeric, nullable=True),  # in the base currency, at the rate recorded with the terms
    at("taken_at"),
    at("given_back_at", nullable=True),
    Index("ix_limit_uses_taken", "stage", "taken_at", postgresql_include=_COUNTS),
    Index("ix_limit_uses_customer", "customer_id", "stage", "taken_at"),
    Index("ix_limit_uses_agent", "agent_id", "stage", "taken_at", postgresql_where=text("agent_id IS NOT NULL")),
    Index("ix_limit_uses_session", "session", "stage", "taken_at", postgresql_where=text("session IS NOT NULL")),
)

breakers = Table(
    "breakers",
    metadata,
    # Each time a breaker of the policy opened; what it kept back meanwhile is a halt of its scope.
    text_column("id", primary_key=True),
    text_column("name"),
    text_column("scope"),
    text_column("state"),  # open, half_open or closed
    at("since"),
    text_column("reason"),
    Column("figures", JSONB, nullable=False),
    at("opened_at"),
    at("cool_until"),
    Column("per_hour", Integer, nullable=False),  # what it lets through in an hour while it is half-open
    at("closed_at", nullable=True),
    text_column("closed_by", ForeignKey("principals.id"), nullable=True),  # nobody: by itself
    text_column("closed_reason", nullable=True),
    Index("ix_breakers_open", "name", "scope", unique=True, postgresql_where=text("closed_at IS NULL")),
    Index("ix_breakers_list", "opened_at", "id"),
)

limit_warnings = Table(
    "limit_warnings",
    metadata,
    # That people were told of a limit that fills up: once for each of whom it counts, in each window.
    text_column("name", primary_key=True),
    text_column("subject", primary_key=True),
    at("told_at"),
)
