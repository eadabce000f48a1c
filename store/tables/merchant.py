"""The merchant's side: customers, orders and their payments.

Who somebody is stands here sealed under their own key (``*_sealed``, AES-256-GCM, bound to table, row and column), and beside it what it is found by
(``*_lookup``, HMAC-SHA256 under a key outside the database). Both are gone when they are forgotten; the rows stay.
"""

from sqlalchemy import BigInteger, Column, ForeignKey, Index, Integer, LargeBinary, Table, UniqueConstraint
from sqlalchemy.dialects.postgresql import JSONB

from store.tables.columns import at, metadata, text_column

sealing_keys = Table(
    "sealing_keys",
    metadata,
    # Our own keys, wrapped by a master key outside the database (store/vault.py): one that look-ups are made with, and numbered ones that wrap customers' keys.
    text_column("purpose", primary_key=True),  # lookup or wrapping
    Column("number", Integer, primary_key=True, autoincrement=False),
    text_column("master"),  # which master key wrapped it
    Column("wrapped", LargeBinary, nullable=False),
    at("created_at"),
)

customers = Table(
    "customers",
    metadata,
    text_column("id", primary_key=True),
    Column("ref_lookup", LargeBinary, nullable=True, unique=True),
    Column("ref_sealed", LargeBinary, nullable=True),
    at("account_created_at", nullable=True),
    at("created_at"),
    at("forgotten_at", nullable=True),
)

customer_keys = Table(
    "customer_keys",
    metadata,
    text_column("customer_id", ForeignKey("customers.id"), primary_key=True),
    Column("wrapped", LargeBinary, nullable=False),
    Column("wrapping", Integer, nullable=False),  # the number of the sealing key that wraps it
    at("created_at"),
    Index("ix_customer_keys_wrapping", "wrapping", "customer_id"),
)

orders = Table(
    "orders",
    metadata,
    text_column("id", primary_key=True),
    Column("ref_lookup", LargeBinary, nullable=True, unique=True),
    Column("ref_sealed", LargeBinary, nullable=True),
    text_column("customer_id", ForeignKey("customers.id"), index=True),
    Column("version", Integer, nullable=False),
    at("placed_at", nullable=True),
    at("delivered_at", nullable=True),
    Column("body", JSONB, nullable=False),  # what refunds are worked out from: with our id of the customer, and without the lines' titles
    Column("body_sealed", LargeBinary, nullable=True),  # the whole of it, as it was sent
    at("updated_at"),
)

order_versions = Table(
    "order_versions",
    metadata,
    text_column("order_id", ForeignKey("orders.id"), primary_key=True),
    Column("version", Integer, primary_key=True),
    Column("body", JSONB, nullable=False),
    Column("body_sealed", LargeBinary, nullable=True),
    at("recorded_at"),
    text_column("recorded_by"),
)

payments = Table(
    "payments",
    metadata,
    text_column("id", primary_key=True),
    text_column("order_id", ForeignKey("orders.id"), index=True),
    text_column("processor"),
    text_column("processor_payment"),
    text_column("currency"),
    Column("amount", BigInteger, nullable=False),  # as the merchant records it; zero of a manual one that the order names no more
    text_column("tender", nullable=True),  # of a manual payment: what a person gives back
    UniqueConstraint("processor", "processor_payment"),
)

payment_snapshots = Table(
    "payment_snapshots",
    metadata,
    text_column("payment_id", ForeignKey("payments.id"), primary_key=True),
    at("read_at"),
    Column("body", JSONB, nullable=False),
)
