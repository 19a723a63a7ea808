"""Alembic's entry: run the migrations on the connection, and inside the transaction, that ``upgrade`` hands over."""

from alembic import context

from kafka_ingest.control.schema import VERSION_TABLE, metadata

context.configure(
    connection=context.config.attributes["connection"], target_metadata=metadata, version_table=VERSION_TABLE
)
context.run_migrations()
