"""``sink: {format: delta, path: …}``, and what a table has."""

from typing import ClassVar, Literal

from kafka_ingest.settings.sink_settings.table import TableSink


class DeltaSink(TableSink):
    """A Delta table."""

    not_on_object_stores: ClassVar[str] = "Delta tables are written on disks and in s3://…"
    on_object_stores: ClassVar[bool] = True

    format: Literal["delta"]
