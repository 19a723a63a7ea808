"""Outputs that are files in a folder of each batch: a directory of Parquet files, and dead letters in a store."""

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import UUID

from kafka_ingest.errors import BatchStateError, OutputUnavailableError
from kafka_ingest.foundation.storage import Opened, remote_sizes
from kafka_ingest.model.batch import DataNeeds
from kafka_ingest.model.offset_sets import union
from kafka_ingest.model.offsets import OffsetRange, TopicPartition
from kafka_ingest.model.place import Place
from kafka_ingest.model.published_output import PublishedLook
from kafka_ingest.model.read_again import ReplayedLetters
from kafka_ingest.model.receipt import Receipt, WrittenFile
from kafka_ingest.model.written_columns import WrittenColumns
from kafka_ingest.sinks.kept_receipts import KeptReceipts
from kafka_ingest.sinks.staged_parquet import batch_sizes
from kafka_ingest.sinks.usable_places import storage_errors

if TYPE_CHECKING:
    from kafka_ingest.sinks.parquet_contents import DataFile


def data_file(path: Opened) -> "DataFile":
    """Return a data file, to read what is in it."""
    # A third of a second for pyarrow, which only a question about records should pay.
    from kafka_ingest.sinks.parquet_contents import DataFile  # noqa: PLC0415

    return DataFile(path)


PUBLISHED = "kafka_batch="
"""How the name of a batch's folder begins, from which readers get the column."""


def sizes_in(folder: Opened, receipt: Receipt | None = None) -> dict[str, int]:
    """Return the names of a batch's files, with their sizes; none where there is no folder."""
    if isinstance(folder, Path):
        return batch_sizes(folder, receipt) if folder.is_dir() else {}
    return remote_sizes(folder)


class AnyColumns:
    """What a publisher of files with any columns answers, which Spark writes into the attempt's own directory."""

    def data_needs(self, _directory: Place) -> DataNeeds:
        return DataNeeds()

    def check_records(self, *, decoded: bool) -> None:
        """Do nothing: there are files with any columns."""

    def columns_there(self, _written: WrittenColumns) -> None:
        return

    def misfits(self, _written: WrittenColumns) -> tuple[str, ...]:
        return ()


class BatchFolders:
    """The folders of batches. ``place_of``: where a batch's files are; ``opened`` is what reads a place."""

    def __init__(
        self, receipts: KeptReceipts, place_of: Callable[[UUID], Place], opened: Callable[[Place], Opened]
    ) -> None:
        self._receipts = receipts
        self._place_of = place_of
        self._opened = opened


class FolderInspector(BatchFolders):
    """Answers what readers see of a batch."""

    def look_at(self, batch_id: UUID, *, closely: bool = False) -> PublishedLook:
        # A third of a second for pyarrow, which only a count should pay.
        from kafka_ingest.sinks.file_counts import look_at_named  # noqa: PLC0415

        target = self._place_of(batch_id)
        with storage_errors(target):
            folder = self._opened(target)
            receipt = self._receipts.receipt(batch_id)
            return look_at_named(folder, sizes_in(folder, receipt), receipt, closely=closely)

    def path(self, batch_id: UUID, file: WrittenFile) -> Place:
        return self._place_of(batch_id) / file.name

    def holds(self, batch_id: UUID, file: WrittenFile, topic_partition: TopicPartition, offset: int) -> bool:
        return data_file(self._opened(self.path(batch_id, file))).holds(topic_partition, offset)

    def rows_by_hour(self, receipt: Receipt, file: WrittenFile, before: datetime) -> Mapping[datetime, int]:
        return data_file(self._opened(self.path(receipt.batch_id, file))).rows_by_hour(before)


class PublishedDeadLetters(BatchFolders):
    """Finds and counts dead letters by the receipts that are kept beside the output."""

    def files(self, batch_id: UUID) -> tuple[Place, ...]:
        target = self._place_of(batch_id)
        with storage_errors(target):
            if (removal := self._receipts.removal(batch_id)) is not None:
                raise BatchStateError(f"batch {batch_id}: its dead letters were given up: {removal}")
            receipt = self._receipts.receipt(batch_id)
            if receipt is None:
                raise OutputUnavailableError(
                    f"batch {batch_id}: expected the receipt of its dead letters beside {target.parent}, "
                    "found none: is its storage mounted?"
                )
            found = tuple(target / file.name for file in receipt.files)
            if missing := [path for path in found if not self._opened(path).is_file()]:
                raise OutputUnavailableError(
                    f"batch {batch_id}: expected its dead letters in {missing[0]}, found no file there. Restore it "
                    "from a backup; or give the letters up, for good: `kafka-ingest dead-letters FEED --batch "
                    f"{batch_id} --give-up --reason …`."
                )
        return found

    def count(self, batch_id: UUID, ranges: Sequence[OffsetRange]) -> Mapping[OffsetRange, Mapping[str, int]]:
        # A third of a second for pyarrow, which only a replay should pay.
        from kafka_ingest.sinks.dead_letter_files import count_in_ranges  # noqa: PLC0415

        files = self.files(batch_id)
        found: dict[OffsetRange, Counter[str]] = {each: Counter() for each in ranges}
        for path in files:
            with storage_errors(path):
                for offset_range, counts in count_in_ranges(self._opened(path), ranges).items():
                    found[offset_range].update(counts)
        return found

    def offsets(self, batch_id: UUID, letters: Collection[ReplayedLetters]) -> list[OffsetRange]:
        from kafka_ingest.sinks.dead_letter_files import offsets_of  # noqa: PLC0415

        found: list[OffsetRange] = []
        for path in self.files(batch_id):
            with storage_errors(path):
                found += offsets_of(self._opened(path), letters)
        return union(found)
