"""Which batch a file of a Parquet directory belongs to, by the places that the sink gives to files."""

from pathlib import Path
from uuid import UUID

from kafka_ingest.model.data_file import FilePlace
from kafka_ingest.model.output_location import OutputLocation
from kafka_ingest.sinks.beside_output import BESIDE_OUTPUT
from kafka_ingest.sinks.parquet.directory import ParquetDirectory
from kafka_ingest.sinks.parquet.published_batches import PUBLISHED

IN_WORDS = (
    f"OUTPUT/{PUBLISHED}<batch>/<file>, or staged by an attempt, "
    f"OUTPUT{BESIDE_OUTPUT}/staging/<batch>/<attempt>/data/<file>"
)
"""Where data files are, for a message."""


def place_of(path: Path) -> FilePlace | None:
    """Return which batch's data file an absolute path names, None where the sink stores none there."""
    guesses: list[FilePlace] = []
    match path.parts:
        case (*above, name, "staging", batch_id, attempt, _, _) if name.endswith(BESIDE_OUTPUT) and attempt.isdecimal():
            guesses += guess(Path(*above, name.removesuffix(BESIDE_OUTPUT)), batch_id, int(attempt))
        case (*above, directory, _) if directory.startswith(PUBLISHED):
            guesses += guess(Path(*above), directory.removeprefix(PUBLISHED), None)
    return next((found for found in guesses if is_at(path, found)), None)


def guess(output: Path, batch_id: str, attempt: int | None) -> list[FilePlace]:
    """Return the place for these names; none where one of them is no batch id."""
    try:
        return [FilePlace(OutputLocation.local("parquet", output), UUID(batch_id), attempt)]
    except ValueError:
        return []


def is_at(path: Path, place: FilePlace) -> bool:
    """Whether the sink puts files of that batch and attempt there."""
    directory = ParquetDirectory.at(place.output.path)
    if place.attempt is None:
        return path.parent == directory.batches.directory(place.batch_id)
    return path.parent.parent == directory.staging.attempt_directory(place.batch_id, place.attempt)
