"""Find the sink of an output: one entry for each format."""

from pathlib import Path

from kafka_ingest.errors import OutputNotUsableError
from kafka_ingest.model.output_location import OutputLocation
from kafka_ingest.ports.outputs import Sink
from kafka_ingest.sinks.data_file import FilePlace
from kafka_ingest.sinks.parquet import parquet_sink
from kafka_ingest.sinks.parquet.file_places import IN_WORDS, place_of

SINKS = {"parquet": parquet_sink}
PLACES_OF_FILES = {"parquet": (place_of, IN_WORDS)}


def sink_of(output: OutputLocation) -> Sink:
    """Return the sink; raises OutputNotUsableError where the format is not known."""
    sink = SINKS.get(output.format)
    if sink is None:
        raise OutputNotUsableError(
            f"expected a sink format out of {', '.join(SINKS)}, found {output.format!r}; the batch was planned by "
            "another version of kafka_ingest"
        )
    return sink(output.path)


def place_of_file(path: Path) -> FilePlace | None:
    """Return whose data file an absolute path names, None where no sink puts one there."""
    found = (place(path) for place, _ in PLACES_OF_FILES.values())
    return next((place for place in found if place is not None), None)


def where_files_lie() -> str:
    """Return the places of data files, for a message."""
    return "; ".join(in_words for _, in_words in PLACES_OF_FILES.values())
