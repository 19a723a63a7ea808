"""Find the data files of a Parquet directory, and which batch a file belongs to, by the places that its sink gives them."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import UUID

from kafka_ingest.offsets import TopicPartition
from kafka_ingest.output_location import OutputLocation
from kafka_ingest.receipt import Receipt, WrittenFile
from kafka_ingest.removal import Removal
from kafka_ingest.sinks.parquet_directory import ParquetDirectory

if TYPE_CHECKING:
    from kafka_ingest.sinks.parquet_contents import DataFile

PUBLISHED = "kafka_batch="
BESIDE = ".kafka-ingest"


@dataclass(frozen=True, slots=True)
class FilePlace:
    """Whose file lies at a place: of a published batch, or, where ``attempt`` is not None, staged by one of its attempts."""

    output: OutputLocation
    batch_id: UUID
    attempt: int | None


class PublishedParquet:
    """The published files of a Parquet directory, for whoever looks for a record in them."""

    def __init__(self, output: Path) -> None:
        self._sink = ParquetDirectory(output)

    def receipt(self, batch_id: UUID) -> Receipt | None:
        """Return what was published of a batch, None where no receipt is kept.

        Raises OutputUnavailableError and OutputConflictError, as the sink does.
        """
        kept = self._sink.kept_receipt(batch_id)
        return Receipt.from_bytes(kept) if kept is not None else None

    def removal(self, batch_id: UUID) -> Removal | None:
        """Return why readers see nothing of a batch any more, None where they are to see it; raises what the sink does."""
        return self._sink.removal(batch_id)

    def path(self, batch_id: UUID, file: WrittenFile) -> Path:
        """Return where readers find a file of a batch."""
        return self._sink.published_directory(batch_id) / file.name

    def holds(self, batch_id: UUID, file: WrittenFile, topic_partition: TopicPartition, offset: int) -> bool:
        """Whether the record of that partition and offset is in a published file.

        Raises NotADataFileError where it is damaged, OSError where it cannot be read or is not there.
        """
        return data_file(self.path(batch_id, file)).holds(topic_partition, offset)


def data_file(path: Path) -> "DataFile":
    """Return a data file, to be asked what is in it."""
    # A third of a second for pyarrow, which only a question about records should pay.
    from kafka_ingest.sinks.parquet_contents import DataFile  # noqa: PLC0415

    return DataFile(path)


def place_of(path: Path) -> FilePlace | None:
    """Return whose data file an absolute path names, None where it is no place that the sink gives to one."""
    guesses: list[FilePlace] = []
    match path.parts:
        case (*above, beside, "staging", batch_id, attempt, _, _) if beside.endswith(BESIDE) and attempt.isdecimal():
            guesses += guess(Path(*above, beside.removesuffix(BESIDE)), batch_id, int(attempt))
        case (*above, directory, _) if directory.startswith(PUBLISHED):
            guesses += guess(Path(*above), directory.removeprefix(PUBLISHED), None)
    return next((found for found in guesses if is_at(path, found)), None)


def guess(output: Path, batch_id: str, attempt: int | None) -> list[FilePlace]:
    """Return the place that names stand for; none where one of them is no batch's id."""
    try:
        return [FilePlace(OutputLocation.local("parquet", output), UUID(batch_id), attempt)]
    except ValueError:
        return []


def is_at(path: Path, place: FilePlace) -> bool:
    """Whether the sink puts files of that batch and attempt there."""
    sink = ParquetDirectory(place.output.path)
    if place.attempt is None:
        return path.parent == sink.published_directory(place.batch_id)
    return path.parent.parent == sink.attempt_directory(place.batch_id, place.attempt)
