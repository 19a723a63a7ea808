"""The roles of a table."""

from collections.abc import Callable, Mapping
from datetime import datetime
from uuid import UUID

from kafka_ingest.errors import NotADataFileError, OutputConflictError
from kafka_ingest.foundation.stores.access import StoreAccess
from kafka_ingest.model.offsets import TopicPartition
from kafka_ingest.model.place import Place
from kafka_ingest.model.published_output import PublishedCount, PublishedLook
from kafka_ingest.model.receipt import Receipt, WrittenFile, WrittenPartition
from kafka_ingest.model.removal import RemovalCause
from kafka_ingest.ports.outputs import Sink, Statistics
from kafka_ingest.sinks.batch_folders import data_file
from kafka_ingest.sinks.contents import OutputContents
from kafka_ingest.sinks.tables.parts import TableParts
from kafka_ingest.sinks.tables.publisher import TablePublisher
from kafka_ingest.sinks.tables.replacer import TableReplacer
from kafka_ingest.sinks.tables.table_format import Mark, Outcome, TableFormat, TableRows
from kafka_ingest.sinks.usable_places import storage_errors


class TableInspector:
    """Answers what readers see of a batch, row by row."""

    def __init__(self, parts: TableParts) -> None:
        self._parts = parts

    def look_at(self, batch_id: UUID, *, closely: bool = False) -> PublishedLook:
        # A third of a second for pyarrow, which only a count should pay.
        from kafka_ingest.sinks.file_counts import look_at_batch  # noqa: PLC0415

        with storage_errors(self._parts.output):
            receipt = self._parts.receipts.receipt(batch_id)
            if receipt is None:
                return PublishedLook()
            rows = self._parts.table.commits.rows()
            if rows.are_newest_states:
                mark = self._parts.table.commits.mark(batch_id)
                is_there = mark == Mark(batch_id, Outcome.PUBLISHED, receipt.plan_fingerprint)
                return PublishedLook(counts_of(receipt) if is_there else ())
            named, moved = rows.own_files(batch_id, receipt.attempt), rows.rows_elsewhere(batch_id)
            data = self._parts.opened(self._parts.place_of(receipt))
            return look_at_batch(data, receipt, named, moved, closely=closely)

    def path(self, batch_id: UUID, file: WrittenFile) -> Place:
        """Return where a file of a batch was published; readers find its rows elsewhere once it was rewritten."""
        return self._parts.place_of(self._receipt(batch_id)) / file.name

    def holds(self, batch_id: UUID, file: WrittenFile, topic_partition: TopicPartition, offset: int) -> bool:
        receipt, rows = self._receipt(batch_id), self._parts.table.commits.rows()
        if file.name in rows.own_files(batch_id, receipt.attempt):
            path = self._parts.opened(self._parts.place_of(receipt) / file.name)
            return data_file(path).holds(topic_partition, offset)
        is_there = rows.holds_elsewhere(batch_id, topic_partition, offset)
        if rows.are_newest_states and not is_there:
            raise NotADataFileError(
                "the table has the newest state of each key, which is not from this record: a newer one has the row, "
                "or it has deleted it, or was no event of a row"
            )
        return is_there

    def rows_by_hour(self, receipt: Receipt, file: WrittenFile, before: datetime) -> Mapping[datetime, int]:
        path = self._parts.opened(self._parts.place_of(receipt) / file.name)
        return data_file(path).rows_by_hour(before)

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

    def unfinished(self) -> list[str]:
        archive = self._parts.receipts
        with storage_errors(self._parts.output):
            removals = [archive.removal(UUID(batch_id)) for batch_id in archive.removed_batches()]
            expired = {str(each.batch_id) for each in removals if each and each.cause is RemovalCause.EXPIRED}
            return sorted(self._parts.table.commits.rows().visible(expired)) if expired else []

    def delete_hidden(self, batch_id: UUID) -> None:
        """Do nothing: the format's clean-up deletes them later; readers of older versions may need them."""


def table_sink(
    table: TableFormat,
    access: StoreAccess | None = None,
    statistics: Statistics | None = None,
    forget: Callable[[UUID, int], None] = lambda *_: None,
    lacks: Callable[[UUID], str] | None = None,
) -> Sink:
    """Return the roles of a table; ``access`` leads to its store, None on a disk.

    ``statistics`` is None where readers take none that are missing for others. ``forget`` removes what the table keeps
    of an attempt elsewhere, and ``lacks`` says where a published batch is not known.
    """
    parts = TableParts.of(table, access, forget)

    def rows() -> TableRows:
        return table.commits.rows()

    return Sink(
        staging=parts.staging,
        publisher=TablePublisher(parts),
        archive=parts.receipts,
        inspector=TableInspector(parts),
        remover=TableRemover(parts),
        # A file that a table names cannot be moved; and rows are deleted by batch, not by file.
        salvage=None,
        replacer=TableReplacer(parts),
        places=(parts.output, parts.beside),
        statistics=statistics,
        contents=OutputContents(parts.output, parts.receipts, rows),
        lacks=lacks,
    )
