"""Read a table through its own list of files: a batch is counted wherever its rows are now."""

from uuid import UUID

from kafka_ingest.errors import OutputConflictError
from kafka_ingest.model.offsets import TopicPartition
from kafka_ingest.model.place import Place
from kafka_ingest.model.published_output import PublishedLook
from kafka_ingest.model.receipt import Receipt, WrittenFile
from kafka_ingest.sinks.data_file import data_file
from kafka_ingest.sinks.storage_errors import storage_errors
from kafka_ingest.sinks.tables.parts import TableParts


class TableInspector:
    """Answers what readers see of a batch, row by row."""

    def __init__(self, parts: TableParts) -> None:
        self._parts = parts

    def look_at(self, batch_id: UUID, *, closely: bool = False) -> PublishedLook:
        """Read what readers see of a batch: its own files one by one, and its rows in files that were rewritten."""
        # A third of a second for pyarrow, which only a count should pay.
        from kafka_ingest.sinks.tables.counts import look_at_batch  # noqa: PLC0415

        with storage_errors(self._parts.output):
            receipt = self._parts.receipts.receipt(batch_id)
            if receipt is None:
                return PublishedLook()
            rows = self._parts.table.rows()
            named, moved = rows.own_files(batch_id, receipt.attempt), rows.rows_elsewhere(batch_id)
            data = self._parts.opened(self._parts.place_of(receipt))
            return look_at_batch(data, receipt, named, moved, closely=closely)

    def path(self, batch_id: UUID, file: WrittenFile) -> Place:
        """Return where a file of a batch was published; readers find its rows elsewhere once it was rewritten."""
        return self._parts.place_of(self._receipt(batch_id)) / file.name

    def holds(self, batch_id: UUID, file: WrittenFile, topic_partition: TopicPartition, offset: int) -> bool:
        """Whether readers see the record of that partition and offset, in the file or, if it was rewritten, anywhere.

        Raises NotADataFileError where the file is damaged, OSError where it cannot be read or does not exist.
        """
        receipt, rows = self._receipt(batch_id), self._parts.table.rows()
        if file.name in rows.own_files(batch_id, receipt.attempt):
            path = self._parts.opened(self._parts.place_of(receipt) / file.name)
            return data_file(path).holds(topic_partition, offset)
        return rows.holds_elsewhere(batch_id, topic_partition, offset)

    def _receipt(self, batch_id: UUID) -> Receipt:
        receipt = self._parts.archive.receipt(batch_id)
        if receipt is None:
            raise OutputConflictError(
                f"batch {batch_id}: expected its receipt beside {self._parts.output}, found none."
            )
        return receipt
