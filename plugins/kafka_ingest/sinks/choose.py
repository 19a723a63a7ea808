"""Find the sink of a plan or a feed."""

from kafka_ingest.boundaries import Sink, SinkTarget
from kafka_ingest.errors import OutputNotUsableError
from kafka_ingest.sinks.parquet_directory import ParquetDirectory

SINKS = {"parquet": ParquetDirectory}


def sink_of(target: SinkTarget) -> Sink:
    """Return the sink; raises OutputNotUsableError where the format is not known."""
    sink = SINKS.get(target.sink_format)
    if sink is None:
        raise OutputNotUsableError(
            f"expected a sink format out of {', '.join(SINKS)}, found {target.sink_format!r}; the batch was planned by "
            "another version of kafka_ingest"
        )
    return sink(target.output_path)
