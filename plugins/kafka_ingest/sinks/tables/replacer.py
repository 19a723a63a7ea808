"""Whether rows of a table can be replaced by those that were read again, and which they are."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from kafka_ingest.errors import (
    OffsetsMovedError,
    OutputConflictError,
    OutputNotUsableError,
    RecordsDeletedError,
)
from kafka_ingest.model.batch import BatchPlan
from kafka_ingest.model.offset_sets import by_partition, intersect, span_of, subtract, union
from kafka_ingest.model.offsets import OffsetRange, TopicPartition, listing
from kafka_ingest.model.place import Place
from kafka_ingest.model.receipt import Receipt
from kafka_ingest.model.replaced import ReplacedRange, RowsReplaced
from kafka_ingest.sinks.storage_errors import storage_errors
from kafka_ingest.sinks.tables.output import TableReplacement
from kafka_ingest.sinks.tables.parts import TableParts

NOT_OF_DECODED = (
    "{output}: expected a table of raw records, found one of decoded records, whose rows are not replaced: of a record "
    "without a row it is not known whether it is filtered or was never read again, and rows of replayed dead letters "
    "are in batches of their own. Nothing was changed. Copy the ranges into another table (`--copy-to`)."
)


class TableReplacer:
    """Examines a replacement before its batch is published; the publisher's commit makes it."""

    def __init__(self, parts: TableParts, table: TableReplacement) -> None:
        self._parts = parts
        self._table = table

    def check_can_replace(self) -> None:
        """Raise OutputNotUsableError on a table whose rows cannot be replaced."""
        if self._parts.table.options.decoded:
            raise OutputNotUsableError(NOT_OF_DECODED.format(output=self._parts.output))
        with storage_errors(self._parts.output):
            self._table.check_can_replace()

    def rows_of(self, replaced: tuple[ReplacedRange, ...]) -> RowsReplaced:
        """Return what readers see of some ranges, and in how many files; raises OffsetsMovedError on removed ones."""
        with storage_errors(self._parts.output):
            self._check_raw(replaced)
            self._check_not_removed(replaced)
            files = list(self._table.replaced_files(replaced))
        return RowsReplaced(
            rows=sum(file.leaving.num_rows for file in files),
            files=len(files),
            rewritten=sum(file.stays for file in files),
        )

    def _check_raw(self, replaced: tuple[ReplacedRange, ...]) -> None:
        """Raise OutputNotUsableError where a batch was written when the feed decoded its records."""
        for batch_id in {each.batch_id for each in replaced}:
            receipt = self._parts.archive.receipt(batch_id)
            if receipt is not None and receipt.is_decoded:
                raise OutputNotUsableError(NOT_OF_DECODED.format(output=self._parts.output))

    def can_take(self, directory: Place, plan: BatchPlan, receipt: Receipt) -> None:
        """Raise the error that names why these ranges' rows cannot be replaced by what was read.

        RecordsDeletedError where fewer records were read again than were committed, or not one whose row would leave
        the table; OffsetsMovedError where a range's batch was removed.
        """
        # A third of a second, for replacements only.
        from kafka_ingest.sinks.tables.counts import contents_by_partition, contents_of_files  # noqa: PLC0415

        self.check_can_replace()
        with storage_errors(self._parts.output):
            self._check_not_removed(plan.replaces)
            leaving = contents_by_partition(file.leaving for file in self._table.replaced_files(plan.replaces))
            data = self._parts.opened(self._parts.data.place(directory))
            read = contents_of_files(data / file.name for file in receipt.files)
        found = union(each for held in read for each in held.intervals)
        if lost := subtract(union(each for held in leaving.values() for each in held.intervals), found):
            raise records_not_read(plan, lost)
        # Rows that were lost before are no longer among those that leave.
        with storage_errors(self._parts.output):
            fewer = list(self._fewer_than_committed(plan, by_partition(found)))
        if fewer:
            raise fewer_than_committed(plan, fewer)

    def _check_not_removed(self, replaced: tuple[ReplacedRange, ...]) -> None:
        """Raise OffsetsMovedError where a batch is being removed: until that is done, its rows may be there or not."""
        of_batches = {each.batch_id: self._parts.archive.removal(each.batch_id) for each in replaced}
        removed = [
            f"{each.offset_range} of batch {each.batch_id}, {removal}"
            for each in replaced
            if (removal := of_batches[each.batch_id]) is not None
        ]
        if removed:
            raise OffsetsMovedError(
                f"expected to replace rows of batches that are in {self._parts.output}, found that some were removed: "
                f"{listing(removed)}. Nothing was changed. Run `expire` again, which finishes what it has begun; "
                "`abandon` a replacement that is planned already; and leave these ranges out."
            )

    def _fewer_than_committed(
        self, plan: BatchPlan, found: Mapping[TopicPartition, Sequence[OffsetRange]]
    ) -> Iterator[str]:
        """Say of which ranges fewer records were read again than their batches committed rows."""
        committed = {}
        for each in plan.replaces:
            if each.batch_id not in committed:
                committed[each.batch_id] = self._committed_rows(each)
            rows = committed[each.batch_id].get(each.topic_partition, 0)
            again = span_of(intersect(found.get(each.topic_partition, ()), [each.offset_range]))
            if again < rows:
                yield f"{each.offset_range}: {rows:,} rows committed by batch {each.batch_id}, {again:,} read again"

    def _committed_rows(self, replaced: ReplacedRange) -> Mapping[TopicPartition, int]:
        """Return how many rows a range's batch committed of each partition, whatever became of them since."""
        receipt = self._parts.archive.receipt(replaced.batch_id)
        if receipt is None:
            raise OutputConflictError(
                f"expected the receipt of batch {replaced.batch_id} beside {self._parts.output}, which says how many "
                f"rows it committed of {replaced.offset_range}; found none. Nothing was changed; restore the receipts "
                "from a backup."
            )
        rows: Counter[TopicPartition] = Counter()
        for file in receipt.files:
            for held in file.partitions:
                rows[held.topic_partition] += held.rows
        return rows


def fewer_than_committed(plan: BatchPlan, fewer: list[str]) -> RecordsDeletedError:
    """Return the error of ranges that would have fewer rows than were committed."""
    return RecordsDeletedError(
        f"batch {plan.batch_id}: expected to read as many records again as were committed, found fewer: "
        f"{listing(fewer, limit=20)}. Rows of these ranges were lost, or read with another kafka.isolation, and Kafka "
        "does not have their records any more; replacing would hide that: nothing was changed. Abandon it: "
        f"`kafka-ingest abandon {plan.batch_id} --reason …`, and replace the other ranges."
    )


def records_not_read(plan: BatchPlan, lost: list[OffsetRange]) -> RecordsDeletedError:
    """Return the error of rows whose records Kafka did not return again."""
    return RecordsDeletedError(
        f"batch {plan.batch_id}: expected to read the record of each row again that it replaces, found none for "
        f"{span_of(lost):,} of them: {listing(lost, limit=20)}. Compaction has deleted them, or they were read with "
        "another kafka.isolation. Replacing would lose these rows: nothing was changed. Abandon it: `kafka-ingest "
        f"abandon {plan.batch_id} --reason …`, and replace the ranges without them, if there are such."
    )
