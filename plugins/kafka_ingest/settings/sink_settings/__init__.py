"""The ``sink`` settings of a feed file: one model per format, selected by ``sink.format``.

Apart from ``sinks``, which does the work: feed files are read at the edge, by pydantic, and a task that publishes an
open batch must not depend on the current file.
"""

from typing import Annotated, Literal, get_args

from pydantic import Discriminator, Tag
from pydantic.json_schema import SkipJsonSchema

from kafka_ingest.settings.setting_types import SINK_TAG
from kafka_ingest.settings.sink_settings.local_directory import LocalDirectorySink, ParquetSink
from kafka_ingest.settings.sink_settings.of_connections import KafkaSink, PostgresqlSink
from kafka_ingest.settings.sink_settings.table import DeltaSink, IcebergSink


class UnknownSink(LocalDirectorySink):
    """An unknown format, so that the error names all known ones; no value of it ever exists."""

    format: Literal["parquet", "delta", "iceberg", "postgresql", "kafka"]


FORMATS = get_args(UnknownSink.model_fields["format"].annotation)


def kind_of_sink(value: object) -> str:
    found = value.get("format") if isinstance(value, dict) else getattr(value, "format", None)
    return f"{SINK_TAG}{found if found in FORMATS else 'format'}"


Sink = Annotated[
    Annotated[ParquetSink, Tag(f"{SINK_TAG}parquet")]
    | Annotated[DeltaSink, Tag(f"{SINK_TAG}delta")]
    | Annotated[IcebergSink, Tag(f"{SINK_TAG}iceberg")]
    | Annotated[PostgresqlSink, Tag(f"{SINK_TAG}postgresql")]
    | Annotated[KafkaSink, Tag(f"{SINK_TAG}kafka")]
    | Annotated[SkipJsonSchema[UnknownSink], Tag(f"{SINK_TAG}format")],
    Discriminator(kind_of_sink),
]
