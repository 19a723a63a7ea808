"""Read an Iceberg table through its own list of files: a batch is counted wherever its rows are now."""

from pathlib import Path
from uuid import UUID

from kafka_ingest.errors import OutputConflictError
from kafka_ingest.model.offsets import TopicPartition
from kafka_ingest.model.published_output import PublishedLook
from kafka_ingest.model.receipt import Receipt, WrittenFile
from kafka_ingest.sinks.data_file import data_file
from kafka_ingest.sinks.iceberg.parts import IcebergParts
from kafka_ingest.sinks.storage_errors import storage_errors


class IcebergInspector:
    """Answers what readers see of a batch, row by row."""

    def __init__(self, parts: IcebergParts) -> None:
        self._parts = parts

    def look_at(self, batch_id: UUID, *, closely: bool = False) -> PublishedLook:
        """Read what readers see of a batch: its own files one by one, and its rows in files that were rewritten."""
        # A third of a second for pyarrow, which only a count should pay.
        from kafka_ingest.sinks.table_counts import look_at_batch  # noqa: PLC0415

        with storage_errors(self._parts.output):
            receipt = self._parts.receipts.receipt(batch_id)
            if receipt is None:
                return PublishedLook()
            rows = self._parts.table.rows()
            named, moved = rows.own_files(batch_id, receipt.attempt), rows.rows_elsewhere(batch_id)
            lost = "the table does not name it as it was published, nor hold all of its rows elsewhere"
            return look_at_batch(self._parts.place_of(receipt), receipt, named, moved, lost=lost, closely=closely)

    def path(self, batch_id: UUID, file: WrittenFile) -> Path:
        """Return where a file of a batch was published; readers find its rows elsewhere once it was rewritten."""
        return self._parts.place_of(self._receipt(batch_id)) / file.name

    def holds(self, batch_id: UUID, file: WrittenFile, topic_partition: TopicPartition, offset: int) -> bool:
        """Whether readers see the record of that partition and offset, in the file or, if it was rewritten, anywhere.

        Raises NotADataFileError where the file is damaged, OSError where it cannot be read or does not exist.
        """
        receipt, rows = self._receipt(batch_id), self._parts.table.rows()
        if file.name in rows.own_files(batch_id, receipt.attempt):
            return data_file(self._parts.place_of(receipt) / file.name).holds(topic_partition, offset)
        return rows.holds(batch_id, topic_partition, offset)

    def _receipt(self, batch_id: UUID) -> Receipt:
        receipt = self._parts.archive.receipt(batch_id)
        if receipt is None:
            raise OutputConflictError(
                f"batch {batch_id}: expected its receipt beside {self._parts.output}, found none."
            )
        return receipt
