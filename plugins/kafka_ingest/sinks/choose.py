"""Find the sink of an output: one entry for each format."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from kafka_ingest.errors import OutputNotUsableError
from kafka_ingest.model.data_file import FileContents, FilePlace
from kafka_ingest.model.output_location import OutputLocation
from kafka_ingest.ports.outputs import Sink
from kafka_ingest.sinks import delta, parquet
from kafka_ingest.sinks.data_file import data_file
from kafka_ingest.sinks.delta import file_places as delta_places
from kafka_ingest.sinks.parquet import file_places as parquet_places


@dataclass(frozen=True, slots=True)
class Format:
    """The properties of a format.

    ``guarantee`` is one sentence on what readers see; ``examine`` checks whether it can be used here, without creating
    anything.
    """

    sink: Callable[[Path], Sink]
    place_of: Callable[[Path], FilePlace | None]
    places_in_words: str
    guarantee: str
    examine: Callable[[Path], None]


FORMATS: Mapping[str, Format] = {
    "parquet": Format(
        parquet.parquet_sink, parquet_places.place_of, parquet_places.IN_WORDS, parquet.GUARANTEE, parquet.examine
    ),
    "delta": Format(delta.delta_sink, delta_places.place_of, delta_places.IN_WORDS, delta.GUARANTEE, delta.examine),
}


def sink_of(output: OutputLocation) -> Sink:
    """Return the sink; raises OutputNotUsableError where the format is not known."""
    return format_of(output).sink(output.path)


def format_of(output: OutputLocation) -> Format:
    """Return the properties of an output's format; raises OutputNotUsableError where it is unknown."""
    found = FORMATS.get(output.format)
    if found is None:
        raise OutputNotUsableError(
            f"expected a sink format out of {', '.join(FORMATS)}, found {output.format!r}; the batch was planned by "
            "another version of kafka_ingest"
        )
    return found


class DataFilesOfAllFormats:
    """Data files by their paths alone: each format recognizes its own places."""

    def place_of(self, path: Path) -> FilePlace | None:
        """Return whose data file an absolute path names, None where no sink puts one there."""
        found = (each.place_of(path) for each in FORMATS.values())
        return next((place for place in found if place is not None), None)

    def where_they_lie(self) -> str:
        """Return the places of data files, for a message."""
        return "; ".join(each.places_in_words for each in FORMATS.values())

    def contents(self, path: Path, *, intervals: int) -> FileContents:
        """Return what a data file holds, with its first intervals of offsets; all formats write Parquet."""
        return data_file(path).contents(intervals=intervals)
