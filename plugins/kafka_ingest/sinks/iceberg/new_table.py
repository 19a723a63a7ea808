"""A new Iceberg table: its columns, how it is partitioned, and its properties. Importing this imports pyiceberg."""

from functools import partial

from pyiceberg.exceptions import NoSuchNamespaceError
from pyiceberg.schema import Schema

from kafka_ingest.model.written_columns import BATCH_COLUMN
from kafka_ingest.sinks.iceberg.columns import own_fields
from kafka_ingest.sinks.iceberg.old_snapshots import MAX_AGE_MS
from kafka_ingest.sinks.iceberg.places import location_of
from kafka_ingest.sinks.iceberg.table import IcebergTable
from kafka_ingest.sinks.iceberg.table_fit import spec_of

PROPERTIES_OF_NEW = {
    "format-version": "2",
    "commit.manifest-merge.enabled": "true",
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "100",
    MAX_AGE_MS: str(5 * 86_400_000),
    f"write.metadata.metrics.column.{BATCH_COLUMN}": "full",
    "write.metadata.metrics.column.key": "counts",
    "write.metadata.metrics.column.value": "counts",
}
"""Metadata stays small under many small commits; batches are found by their whole ids, and payloads are in no bound."""


def create(table: IcebergTable, columns: Schema | None = None) -> None:
    """Make the table, with its namespace only where there is none: that may need another right.

    ``columns`` are those of its first files, of decoded records.
    """
    schema = columns or Schema(*own_fields(table.form))
    make = partial(
        table.catalog.create_table,
        table.name,
        schema,
        location=location_of(table.output),
        partition_spec=spec_of(table.form, schema),
        properties={**PROPERTIES_OF_NEW, **dict(table.form.properties)},
    )
    try:
        make()
    except NoSuchNamespaceError:
        levels = table.name.split(".")[:-1]
        for number in range(1, len(levels) + 1):
            table.catalog.create_namespace_if_not_exists(".".join(levels[:number]))
        make()
