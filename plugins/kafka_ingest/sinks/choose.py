"""Find the sink of a plan or a feed."""

from kafka_ingest.boundaries import Sink, SinkTarget
from kafka_ingest.errors import OutputNotUsableError
from kafka_ingest.sinks.parquet_directory import ParquetDirectory
from kafka_ingest.sinks.published_parquet import PublishedParquet

SINKS = {"parquet": ParquetDirectory}
PUBLISHED_FILES = {"parquet": PublishedParquet}


def sink_of(target: SinkTarget) -> Sink:
    """Return the sink; raises OutputNotUsableError where the format is not known."""
    sink = SINKS.get(target.sink_format)
    if sink is None:
        raise OutputNotUsableError(
            f"expected a sink format out of {', '.join(SINKS)}, found {target.sink_format!r}; the batch was planned by "
            "another version of kafka_ingest"
        )
    return sink(target.output_path)


def published_files_of(target: SinkTarget) -> PublishedParquet:
    """Return what reads an output's published files; raises OutputNotUsableError where the format is not known."""
    sink_of(target)
    return PUBLISHED_FILES[target.sink_format](target.output_path)
