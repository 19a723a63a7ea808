"""``sink: {format: delta, path: …}``."""

from typing import ClassVar, Literal

from kafka_ingest.settings.sink_settings.local_directory import LocalDirectorySink


class DeltaSink(LocalDirectorySink):
    """A Delta table."""

    not_on_object_stores: ClassVar[str] = "Delta tables are written on disks and in s3://…"
    on_object_stores: ClassVar[bool] = True

    format: Literal["delta"]
