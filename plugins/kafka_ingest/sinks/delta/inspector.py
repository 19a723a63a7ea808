"""Read a Delta table through its own list of files: a batch is counted wherever its rows are now."""

from uuid import UUID

from kafka_ingest.errors import OutputConflictError
from kafka_ingest.model.offsets import TopicPartition
from kafka_ingest.model.place import Place, below
from kafka_ingest.model.published_output import PublishedLook
from kafka_ingest.model.receipt import WrittenFile
from kafka_ingest.sinks.data_file import data_file
from kafka_ingest.sinks.delta.parts import DeltaParts
from kafka_ingest.sinks.storage_errors import storage_errors


class DeltaInspector:
    """Answers what readers see of a batch, row by row."""

    def __init__(self, parts: DeltaParts) -> None:
        self._parts = parts

    def look_at(self, batch_id: UUID, *, closely: bool = False) -> PublishedLook:
        """Read what readers see of a batch: its own files one by one, and its rows in files that were rewritten."""
        # A third of a second for pyarrow, which only a count should pay.
        from kafka_ingest.sinks.delta.batch_counts import look_at_batch  # noqa: PLC0415

        with storage_errors(self._parts.output):
            receipt = self._parts.receipts.receipt(batch_id)
            if receipt is None:
                return PublishedLook()
            place = self._place(batch_id)
            return look_at_batch(
                below(place, self._parts.output),
                self._parts.opened(place),
                receipt,
                self._parts.rows(),
                closely=closely,
            )

    def path(self, batch_id: UUID, file: WrittenFile) -> Place:
        """Return where a file of a batch was published; readers find its rows elsewhere once it was rewritten."""
        return self._place(batch_id) / file.name

    def holds(self, batch_id: UUID, file: WrittenFile, topic_partition: TopicPartition, offset: int) -> bool:
        """Whether readers see the record of that partition and offset, in the file or, if it was rewritten, anywhere.

        Raises NotADataFileError where the file is damaged, OSError where it cannot be read or does not exist.
        """
        path, rows = self.path(batch_id, file), self._parts.rows()
        if below(path, self._parts.output) in rows.files:
            return data_file(self._parts.opened(path)).holds(topic_partition, offset)
        from kafka_ingest.sinks.delta.batch_counts import is_in_rewritten  # noqa: PLC0415 - pyarrow, see above

        return is_in_rewritten(rows, batch_id, topic_partition, offset)

    def _place(self, batch_id: UUID) -> Place:
        receipt = self._parts.archive.receipt(batch_id)
        if receipt is None:
            raise OutputConflictError(
                f"batch {batch_id}: expected its receipt beside {self._parts.output}, found none."
            )
        return self._parts.place_of(receipt)
