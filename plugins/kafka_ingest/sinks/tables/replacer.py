"""Whether rows of a table can be replaced by those that were read again, and which they are."""

from kafka_ingest.errors import RecordsDeletedError
from kafka_ingest.model.batch import BatchPlan
from kafka_ingest.model.offset_sets import span_of, subtract, union
from kafka_ingest.model.offsets import OffsetRange, listing
from kafka_ingest.model.place import Place
from kafka_ingest.model.receipt import Receipt
from kafka_ingest.model.replaced import ReplacedRange, RowsReplaced
from kafka_ingest.sinks.storage_errors import storage_errors
from kafka_ingest.sinks.tables.output import TableReplacement
from kafka_ingest.sinks.tables.parts import TableParts


class TableReplacer:
    """Examines a replacement before its batch is published; the publisher's commit makes it."""

    def __init__(self, parts: TableParts, table: TableReplacement) -> None:
        self._parts = parts
        self._table = table

    def check_can_replace(self) -> None:
        """Raise OutputNotUsableError on a table whose rows cannot be replaced."""
        with storage_errors(self._parts.output):
            self._table.check_can_replace()

    def rows_of(self, replaced: tuple[ReplacedRange, ...]) -> RowsReplaced:
        """Return what readers see of some ranges, and in how many files."""
        with storage_errors(self._parts.output):
            files = list(self._table.replaced_files(replaced))
        return RowsReplaced(
            rows=sum(file.leaving.num_rows for file in files),
            files=len(files),
            rewritten=sum(file.stays for file in files),
        )

    def can_take(self, directory: Place, plan: BatchPlan, receipt: Receipt) -> None:
        """Raise RecordsDeletedError where a row would leave the table whose record was not read again."""
        # A third of a second, for replacements only.
        from kafka_ingest.sinks.tables.counts import contents_by_partition, contents_of_files  # noqa: PLC0415

        self.check_can_replace()
        with storage_errors(self._parts.output):
            leaving = contents_by_partition(file.leaving for file in self._table.replaced_files(plan.replaces))
            data = self._parts.opened(self._parts.data.place(directory))
            read = contents_of_files(data / file.name for file in receipt.files)
        lost = subtract(
            union(each for held in leaving.values() for each in held.intervals),
            union(each for held in read for each in held.intervals),
        )
        if lost:
            raise records_not_read(plan, lost)


def records_not_read(plan: BatchPlan, lost: list[OffsetRange]) -> RecordsDeletedError:
    """Return the error of rows whose records Kafka did not return again."""
    return RecordsDeletedError(
        f"batch {plan.batch_id}: expected to read the record of each row again that it replaces, found none for "
        f"{span_of(lost):,} of them: {listing(lost, limit=20)}. Compaction has deleted them, or they were read with "
        "another kafka.isolation. Replacing would lose these rows: nothing was changed. Abandon it: `kafka-ingest "
        f"abandon {plan.batch_id} --reason …`, and replace the ranges without them, if there are such."
    )
