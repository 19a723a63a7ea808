"""Read the published files of a Parquet directory."""

from pathlib import Path
from uuid import UUID

from kafka_ingest.model.offsets import TopicPartition
from kafka_ingest.model.published_output import PublishedLook
from kafka_ingest.model.receipt import WrittenFile
from kafka_ingest.sinks.data_file import data_file
from kafka_ingest.sinks.parquet.directory import ParquetDirectory
from kafka_ingest.sinks.storage_errors import storage_errors


class ParquetInspector:
    """Answers what readers see of a batch, row by row."""

    def __init__(self, directory: ParquetDirectory) -> None:
        self._directory = directory

    def look_at(self, batch_id: UUID, *, closely: bool = False) -> PublishedLook:
        """Read what readers see of a batch file by file, so that a damaged one does not hide the others."""
        # A third of a second for pyarrow, which only a count should pay.
        from kafka_ingest.sinks.file_counts import look_at_named  # noqa: PLC0415

        target = self._directory.batches.directory(batch_id)
        with storage_errors(target):
            there = [path.name for path in target.iterdir()] if target.is_dir() else []
            return look_at_named(target, there, self._directory.receipts.receipt(batch_id), closely=closely)

    def path(self, batch_id: UUID, file: WrittenFile) -> Path:
        """Return where readers find a file of a batch."""
        return self._directory.batches.directory(batch_id) / file.name

    def holds(self, batch_id: UUID, file: WrittenFile, topic_partition: TopicPartition, offset: int) -> bool:
        """Whether the record of that partition and offset is in a published file.

        Raises NotADataFileError where it is damaged, OSError where it cannot be read or does not exist.
        """
        return data_file(self.path(batch_id, file)).holds(topic_partition, offset)
