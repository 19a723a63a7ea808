"""``sink: {format: parquet, path: …}``."""

from typing import ClassVar, Literal

from kafka_ingest.settings.sink_settings.local_directory import LocalDirectorySink


class ParquetSink(LocalDirectorySink):
    """A directory of Parquet files."""

    not_on_object_stores: ClassVar[str] = (
        "on an object store a directory of Parquet files would show readers half a batch"
    )

    format: Literal["parquet"]
