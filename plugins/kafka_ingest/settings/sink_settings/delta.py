"""``sink: {format: delta, path: …}``."""

from typing import ClassVar, Literal

from kafka_ingest.settings.sink_settings.local_directory import LocalDirectorySink


class DeltaSink(LocalDirectorySink):
    """A Delta table."""

    not_on_object_stores: ClassVar[str] = "Delta tables on object stores are not written yet"

    format: Literal["delta"]
