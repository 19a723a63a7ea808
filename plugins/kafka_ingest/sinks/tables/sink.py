"""The roles of a table."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from uuid import UUID

from kafka_ingest.errors import (
    InvalidBackfillError,
    NotADataFileError,
    OffsetsMovedError,
    OutputConflictError,
    RecordsDeletedError,
    RecordsFilteredError,
    TooManyDeadLettersError,
)
from kafka_ingest.foundation.counting import counted
from kafka_ingest.model.batch import BatchPlan
from kafka_ingest.model.gap import RemovalCause
from kafka_ingest.model.offsets import (
    OffsetRange,
    TopicPartition,
    by_partition,
    intersect,
    listing,
    span_of,
    subtract,
    union,
)
from kafka_ingest.model.place import Place
from kafka_ingest.model.published_output import PublishedCount, PublishedLook
from kafka_ingest.model.read_again import ReplacedRange, RowsReplaced
from kafka_ingest.model.receipt import RangeCount, Receipt, WrittenFile, WrittenPartition
from kafka_ingest.ports.outputs import Sink, Statistics
from kafka_ingest.sinks.batch_folders import data_file
from kafka_ingest.sinks.contents import OutputContents
from kafka_ingest.sinks.tables.publisher import TableParts, TablePublisher
from kafka_ingest.sinks.tables.table_format import Mark, Outcome, TableRows
from kafka_ingest.sinks.usable_places import storage_errors

GOES_BACK = (
    "Nothing was changed. Mend what the feed says of its records, and run the batch again (`kafka-ingest backfill FEED "
    "open`, or clear its task): it is written again. Or abandon it, and copy the ranges elsewhere (`--copy-to`)."
)


class TableReplacer:
    """Examines a replacement before its batch is published; the publisher's commit makes it.

    Rows are replaced one by one: each record that was a row is one again, and as many as before are filtered. Then all
    counts of the earlier batches stay true. Ranges with dead letters are left alone, since rows of replayed ones are in
    batches of their own.
    """

    def __init__(self, parts: TableParts) -> None:
        self._parts = parts
        self._receipts: dict[UUID, Receipt | None] = {}

    def check_can_replace(self) -> None:
        with storage_errors(self._parts.output):
            self._parts.table.commits.check_can_remove(replacing=True)

    def rows_of(self, replaced: tuple[ReplacedRange, ...]) -> RowsReplaced:
        """Return what the port says; raises InvalidBackfillError, too, on ranges with dead letters."""
        with storage_errors(self._parts.output):
            self._check_without_dead_letters(replaced)
            self._check_without_late_rows(replaced)
            self._check_not_removed(replaced)
            files = list(self._parts.table.commits.replaced_files(replaced))
        return RowsReplaced(
            rows=sum(file.leaving.num_rows for file in files),
            files=len(files),
            rewritten=sum(file.stays for file in files),
        )

    def _check_without_dead_letters(self, replaced: tuple[ReplacedRange, ...]) -> None:
        """Raise InvalidBackfillError where records of a range were dead letters: a replay may have made rows of them.

        Those are in a batch of the replay, and would be in the table a second time.
        """
        found = [f"{each.offset_range} of batch {each.batch_id}" for each in replaced if self._count(each).dead_letters]
        if found:
            raise InvalidBackfillError(
                f"expected ranges without dead letters, found some in {listing(found)}: what replays have made of them "
                "is in batches of their own. Nothing was planned. Leave these ranges out, and `replay` what is left of "
                "their dead letters; or copy the ranges into another table (`--copy-to`)."
            )

    def _check_without_late_rows(self, replaced: tuple[ReplacedRange, ...]) -> None:
        """Raise InvalidBackfillError where late rows of a range are files: they cannot leave in the table's commit."""
        found = [f"{each.offset_range} of batch {each.batch_id}" for each in replaced if self._has_late_rows(each)]
        if found:
            raise InvalidBackfillError(
                f"expected ranges whose rows are all in the table, found some with late rows in {listing(found)}, "
                "which are files beside it. Nothing was planned. Leave these ranges out, or copy them into another "
                "table (`--copy-to`)."
            )

    def _has_late_rows(self, replaced: ReplacedRange) -> bool:
        receipt = self._receipt(replaced)
        late = receipt.part(late=True).files if self._parts.late is not None else ()
        return any(file.of_partition(replaced.topic_partition) for file in late)

    def can_take(self, directory: Place, plan: BatchPlan, receipt: Receipt) -> None:
        """Raise the error that names why these ranges' rows cannot be replaced by what was read.

        RecordsDeletedError where fewer records were read again than were committed, or not one whose row would leave
        the table; OffsetsMovedError where a range's batch was removed. TooManyDeadLetters- or RecordsFilteredError
        where records that were rows are none now, or the other way round.
        """
        # A third of a second, for replacements only.
        from kafka_ingest.sinks.parquet_contents import contents_by_partition, contents_of_files  # noqa: PLC0415

        self.check_can_replace()
        with storage_errors(self._parts.output):
            self._check_not_removed(plan.replaces)
            self._check_one_by_one(plan, receipt)
            leaving = contents_by_partition(
                file.leaving for file in self._parts.table.commits.replaced_files(plan.replaces)
            )
            data = self._parts.staged(directory, receipt).data
            read = contents_of_files(data / file.name for file in receipt.files)
        found = union(each for held in read for each in held.intervals)
        if lost := subtract(union(each for held in leaving.values() for each in held.intervals), found):
            raise records_not_read(plan, lost)
        # Rows that were lost before are no longer among those that leave.
        with storage_errors(self._parts.output):
            fewer = list(self._fewer_than_committed(plan, by_partition(found)))
        if fewer:
            raise fewer_than_committed(plan, fewer)

    def _check_one_by_one(self, plan: BatchPlan, receipt: Receipt) -> None:
        """Raise the error that names records which became dead letters, or are filtered where others were."""
        if receipt.dead_letters:
            raise TooManyDeadLettersError(
                f"batch {plan.batch_id}: expected a row for each record whose row it replaces, found "
                f"{receipt.dead_letter_rows:,} that cannot be decoded. {GOES_BACK}"
            )
        before: Counter[TopicPartition] = Counter()
        for each in plan.replaces:
            before[each.topic_partition] += self._count(each).filtered
        now = {count.offset_range.topic_partition: count.filtered for count in receipt.range_counts(plan)}
        others = [f"{tp}: {before[tp]:,} before, {number:,} now" for tp, number in now.items() if number != before[tp]]
        if others:
            raise RecordsFilteredError(
                f"batch {plan.batch_id}: expected as many filtered records as in the batches whose rows it replaces, "
                f"found others: {listing(others)}. {GOES_BACK}"
            )

    def _check_not_removed(self, replaced: tuple[ReplacedRange, ...]) -> None:
        """Raise OffsetsMovedError where a batch is being removed: until that is done, its rows may be there or not."""
        of_batches = {each.batch_id: self._parts.receipts.removal(each.batch_id) for each in replaced}
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
        for each in plan.replaces:
            rows = self._count(each).rows
            again = span_of(intersect(found.get(each.topic_partition, ()), [each.offset_range]))
            if again < rows:
                yield (
                    f"{each.offset_range}: {counted(rows, 'row')} committed by batch {each.batch_id}, "
                    f"{again:,} read again"
                )

    def _count(self, replaced: ReplacedRange) -> RangeCount:
        """Return what a range's batch committed of it, replaced since or not."""
        [count] = self._receipt(replaced).counts_of([replaced.offset_range])
        return count

    def _receipt(self, replaced: ReplacedRange) -> Receipt:
        if replaced.batch_id not in self._receipts:
            self._receipts[replaced.batch_id] = self._parts.receipts.receipt(replaced.batch_id)
        receipt = self._receipts[replaced.batch_id]
        if receipt is None:
            raise OutputConflictError(
                f"expected the receipt of batch {replaced.batch_id} beside {self._parts.output}, which says how many "
                f"rows it committed of {replaced.offset_range}; found none. Nothing was changed; restore the receipts "
                "from a backup."
            )
        return receipt


def fewer_than_committed(plan: BatchPlan, fewer: list[str]) -> RecordsDeletedError:
    return RecordsDeletedError(
        f"batch {plan.batch_id}: expected to read as many records again as were committed, found fewer: "
        f"{listing(fewer, limit=20)}. Rows of these ranges were lost, or read with another kafka.isolation, and Kafka "
        "does not have their records any more; replacing would hide that: nothing was changed. Abandon it: "
        f"`kafka-ingest abandon {plan.batch_id} --reason …`, and replace the other ranges."
    )


def records_not_read(plan: BatchPlan, lost: list[OffsetRange]) -> RecordsDeletedError:
    return RecordsDeletedError(
        f"batch {plan.batch_id}: expected to read the record of each row again that it replaces, found none for "
        f"{span_of(lost):,} of them: {listing(lost, limit=20)}. Compaction has deleted them, they were read with "
        "another kafka.isolation, or the feed filters them now, and others not. Replacing would lose these rows: "
        f"nothing was changed. Abandon it: `kafka-ingest abandon {plan.batch_id} --reason …`, and replace the ranges "
        "without them, if there are such."
    )


class TableInspector:
    """Answers what readers see of a batch, row by row."""

    def __init__(self, parts: TableParts) -> None:
        self._parts = parts

    def look_at(self, batch_id: UUID, *, closely: bool = False) -> PublishedLook:
        # A third of a second for pyarrow, which only a count should pay.
        from kafka_ingest.sinks.parquet_contents import look_at_batch  # noqa: PLC0415

        with storage_errors(self._parts.output):
            receipt = self._parts.receipts.receipt(batch_id)
            if receipt is None:
                return PublishedLook()
            rows = self._parts.table.commits.rows()
            if rows.are_newest_states:
                mark = self._parts.table.commits.mark(batch_id)
                is_there = mark == Mark(batch_id, Outcome.PUBLISHED, receipt.plan_fingerprint)
                return PublishedLook(counts_of(receipt) if is_there else ())
            named = rows.own_files(batch_id, receipt.attempt) | self._parts.late_files(receipt)
            return look_at_batch(
                lambda name: self._parts.opened(self._parts.path(receipt, name)),
                self._parts.files_there(receipt),
                receipt,
                named,
                rows.rows_elsewhere(batch_id),
                closely=closely,
            )

    def path(self, batch_id: UUID, file: WrittenFile) -> Place:
        """Return where a file of a batch was published; readers find its rows elsewhere once it was rewritten."""
        return self._parts.path(self._receipt(batch_id), file.name)

    def holds(self, batch_id: UUID, file: WrittenFile, topic_partition: TopicPartition, offset: int) -> bool:
        receipt, rows = self._receipt(batch_id), self._parts.table.commits.rows()
        if file.name in self._parts.late_files(receipt) | rows.own_files(batch_id, receipt.attempt):
            path = self._parts.opened(self._parts.path(receipt, file.name))
            return data_file(path).holds(topic_partition, offset)
        is_there = rows.holds_elsewhere(batch_id, topic_partition, offset)
        if rows.are_newest_states and not is_there:
            raise NotADataFileError(
                "the table has the newest state of each key, which is not from this record: a newer one has the row, "
                "or it has deleted it, or was no event of a row"
            )
        return is_there

    def rows_by_hour(self, receipt: Receipt, file: WrittenFile, before: datetime) -> Mapping[datetime, int]:
        return data_file(self._parts.opened(self._parts.path(receipt, file.name))).rows_by_hour(before)

    def _receipt(self, batch_id: UUID) -> Receipt:
        receipt = self._parts.receipts.receipt(batch_id)
        if receipt is None:
            raise OutputConflictError(
                f"batch {batch_id}: expected its receipt beside {self._parts.output}, found none."
            )
        return receipt


def counts_of(receipt: Receipt) -> list[PublishedCount]:
    held: dict[TopicPartition, list[WrittenPartition]] = {}
    for each in (each for file in receipt.files for each in file.partitions):
        held.setdefault(each.topic_partition, []).append(each)
    return [
        PublishedCount(
            topic_partition,
            rows := sum(each.rows for each in parts),
            rows,
            min(each.smallest_offset for each in parts),
            max(each.largest_offset for each in parts),
        )
        for topic_partition, parts in sorted(held.items())
    ]


class TableRemover:
    """Removes what was published in a table."""

    def __init__(self, parts: TableParts) -> None:
        self._parts = parts

    def check_can_remove(self) -> None:
        self._parts.table.commits.check_can_remove()

    def hide(self, batch_id: UUID) -> None:
        if self._parts.receipts.removal(batch_id) is None:
            raise ValueError(f"expected batch {batch_id} to be noted as removed before it is hidden")
        with storage_errors(self._parts.output):
            self._parts.staging.check_mounted()
            self.check_can_remove()
            self._parts.table.commits.delete_rows(batch_id)
            self._parts.table.commits.make_durable()
            receipt = self._parts.receipts.receipt(batch_id)
            if self._parts.late is not None and (receipt is None or receipt.late_rows):
                self._parts.late.remove(batch_id)

    def unfinished(self) -> list[str]:
        archive = self._parts.receipts
        with storage_errors(self._parts.output):
            removals = [archive.removal(UUID(batch_id)) for batch_id in archive.removed_batches()]
            expired = {str(each.batch_id) for each in removals if each and each.cause is RemovalCause.EXPIRED}
            if not expired:
                return []
            late = self._parts.late.visible(expired) if self._parts.late is not None else set()
            return sorted(self._parts.table.commits.rows().visible(expired) | late)

    def delete_hidden(self, batch_id: UUID) -> None:
        """Do nothing: the format's clean-up deletes them later; readers of older versions may need them."""


def table_sink(
    parts: TableParts, statistics: Statistics | None = None, lacks: Callable[[UUID], str] | None = None
) -> Sink:
    """Return the roles of a table.

    ``statistics`` is None where readers take none that are missing for others. ``lacks`` says where a published batch
    is not known.
    """
    late = parts.late

    def rows() -> TableRows:
        return parts.table.commits.rows()

    return Sink(
        staging=parts.staging,
        publisher=TablePublisher(parts),
        archive=parts.receipts,
        inspector=TableInspector(parts),
        remover=TableRemover(parts),
        # A file that a table names cannot be moved; and rows are deleted by batch, not by file.
        salvage=None,
        replacer=TableReplacer(parts),
        places=(parts.output, parts.beside, *([late.place] if late is not None else [])),
        statistics=statistics,
        contents=OutputContents(parts.output, parts.receipts, rows, *([late.add_to] if late is not None else [])),
        lacks=lacks,
        check_late=late.check_usable if late is not None else None,
    )
