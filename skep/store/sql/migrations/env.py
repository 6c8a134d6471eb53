"""Entry point of Alembic: runs the scripts on the connection that `migrate` passes."""

from alembic import context

from skep.store.sql.schema import metadata

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=metadata,
    transaction_per_migration=True,
)
with context.begin_transaction():
    context.run_migrations()
