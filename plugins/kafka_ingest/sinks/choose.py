"""Find the sink of an output."""

from kafka_ingest.boundaries import Sink
from kafka_ingest.errors import OutputNotUsableError
from kafka_ingest.output_location import OutputLocation
from kafka_ingest.sinks.parquet_directory import ParquetDirectory
from kafka_ingest.sinks.published_parquet import PublishedParquet

SINKS = {"parquet": ParquetDirectory}
PUBLISHED_FILES = {"parquet": PublishedParquet}


def sink_of(output: OutputLocation) -> Sink:
    """Return the sink; raises OutputNotUsableError where the format is not known."""
    sink = SINKS.get(output.format)
    if sink is None:
        raise OutputNotUsableError(
            f"expected a sink format out of {', '.join(SINKS)}, found {output.format!r}; the batch was planned by "
            "another version of kafka_ingest"
        )
    return sink(output.path)


def published_files_of(output: OutputLocation) -> PublishedParquet:
    """Return what reads an output's published files; raises OutputNotUsableError where the format is not known."""
    sink_of(output)
    return PUBLISHED_FILES[output.format](output.path)
