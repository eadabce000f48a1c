"""Alembic's entry: runs the migrations over the connection that ``store.migrate`` opened."""

from alembic import context

from store.tables import metadata

context.configure(connection=context.config.attributes["connection"], target_metadata=metadata, transaction_per_migration=False)
with context.begin_transaction():
    context.run_migrations()
