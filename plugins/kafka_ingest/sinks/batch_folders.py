"""Outputs that are files in a folder of each batch: a directory of Parquet files, and dead letters in a store.

The latter are Parquet files beside a topic, and of an earlier version beside a table. They follow a batch that is
published already, so nothing decides here. The files of a batch are copied to their place, and then its receipt is
kept: this project's readers read what a receipt names. A program that lists the store may see some of a batch's files
for a moment before the others::

    P/kafka_batch=<batch>/*.parquet               published
    P.kafka-ingest/receipts/<day>/<batch>.json    what was published, kept (:mod:`kafka_ingest.sinks.kept_receipts`)
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final
from uuid import UUID

from kafka_ingest.errors import BatchStateError, OutputConflictError, OutputUnavailableError, StagedOutputUnusableError
from kafka_ingest.foundation.storage import (
    Opened,
    copy_file,
    make_folder,
    open_to_write,
    opened,
    remote_sizes,
    remove_tree,
)
from kafka_ingest.foundation.stores.access import StoreAccess
from kafka_ingest.model.batch import DataNeeds
from kafka_ingest.model.dead_letters import DeadLettersOfFile
from kafka_ingest.model.gap import Removal
from kafka_ingest.model.offsets import OffsetRange, TopicPartition, union
from kafka_ingest.model.place import DATA, Place
from kafka_ingest.model.published_output import FilesState, FoundFiles, PublishedLook, PublishedReceipt
from kafka_ingest.model.read_again import ReplayedLetters
from kafka_ingest.model.receipt import Receipt, WrittenFile
from kafka_ingest.model.written_columns import WrittenColumns
from kafka_ingest.ports.outputs import Sink
from kafka_ingest.sinks.kept_receipts import KeptReceipts, being_abandoned, published_already
from kafka_ingest.sinks.staged_files import StagedFiles, batch_sizes, check_listing, difference
from kafka_ingest.sinks.usable_places import beside, check_usable, storage_errors

if TYPE_CHECKING:
    from kafka_ingest.sinks.dead_letter_files import Letters
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
        from kafka_ingest.sinks.parquet_contents import look_at_named  # noqa: PLC0415

        with storage_errors(self._place_of(batch_id)):
            receipt = self._receipts.receipt(batch_id)
            there = self._there(batch_id, receipt)
            return look_at_named(lambda name: self._opened(self._file(batch_id, name)), there, receipt, closely=closely)

    def _there(self, batch_id: UUID, receipt: Receipt | None) -> Collection[str]:
        return sizes_in(self._opened(self._place_of(batch_id)), receipt)

    def _file(self, batch_id: UUID, name: str) -> Place:
        return self._place_of(batch_id) / name

    def path(self, batch_id: UUID, file: WrittenFile) -> Place:
        return self._file(batch_id, file.name)

    def holds(self, batch_id: UUID, file: WrittenFile, topic_partition: TopicPartition, offset: int) -> bool:
        return data_file(self._opened(self.path(batch_id, file))).holds(topic_partition, offset)

    def rows_by_hour(self, receipt: Receipt, file: WrittenFile, before: datetime) -> Mapping[datetime, int]:
        return data_file(self._opened(self.path(receipt.batch_id, file))).rows_by_hour(before)


class PublishedDeadLetters(BatchFolders):
    """Finds and counts dead letters by the receipts that are kept beside the output."""

    def files(self, batch_id: UUID, attempt: Place) -> tuple[Place, ...]:
        del attempt
        return tuple(path for path, _ in self._sources(batch_id))

    def bring(self, batch_id: UUID, attempt: Place) -> None:
        """Do nothing: Spark reads them where they are."""

    def _sources(self, batch_id: UUID) -> Sequence[tuple[Place, Callable[[], AbstractContextManager["Letters"]]]]:
        """Return the places of a batch's letters, and what opens them."""
        from kafka_ingest.sinks.dead_letter_files import letters_in  # noqa: PLC0415 - see count

        return [(path, partial(letters_in, self._opened(path))) for path in self._files(batch_id)]

    def of_batch(
        self, batch_id: UUID, *, samples: int, without: Collection[ReplayedLetters] = ()
    ) -> Iterator[DeadLettersOfFile]:
        from kafka_ingest.sinks.dead_letter_files import dead_letters_in  # noqa: PLC0415 - see count

        for path, source in self._sources(batch_id):
            with storage_errors(path), source() as letters:
                yield dead_letters_in(letters, samples=samples, without=without)

    def _receipt(self, batch_id: UUID) -> Receipt:
        """Return the receipt of a batch's letters; raises BatchStateError where they were given up."""
        place = self._place_of(batch_id)
        with storage_errors(place):
            if (removal := self._receipts.removal(batch_id)) is not None:
                raise BatchStateError(f"batch {batch_id}: its dead letters were given up: {removal}")
            if (receipt := self._receipts.receipt(batch_id)) is None:
                raise OutputUnavailableError(
                    f"batch {batch_id}: expected the receipt of its dead letters for {place}, found none: is its "
                    "storage mounted?"
                )
        return receipt

    def _files(self, batch_id: UUID) -> tuple[Place, ...]:
        receipt, target = self._receipt(batch_id), self._place_of(batch_id)
        with storage_errors(target):
            found = tuple(target / file.name for file in receipt.files)
            if missing := [path for path in found if not self._opened(path).is_file()]:
                raise are_missing(batch_id, f"its dead letters in {missing[0]}, found no file there")
        return found

    def count(self, batch_id: UUID, ranges: Sequence[OffsetRange]) -> Mapping[OffsetRange, Mapping[str, int]]:
        # A third of a second for pyarrow, which only a replay should pay.
        from kafka_ingest.sinks.dead_letter_files import count_in_ranges  # noqa: PLC0415

        found: dict[OffsetRange, Counter[str]] = {each: Counter() for each in ranges}
        for path, source in self._sources(batch_id):
            with storage_errors(path), source() as letters:
                for offset_range, counts in count_in_ranges(letters, ranges).items():
                    found[offset_range].update(counts)
        return found

    def offsets(self, batch_id: UUID, letters: Collection[ReplayedLetters]) -> list[OffsetRange]:
        from kafka_ingest.sinks.dead_letter_files import offsets_of  # noqa: PLC0415

        found: list[OffsetRange] = []
        for path, source in self._sources(batch_id):
            with storage_errors(path), source() as held:
                found += offsets_of(held, letters)
        return union(found)


REPLAYED: Final = "replayed"
"""The folder of a replay's attempt into which the letters are brought that it decodes again."""


class BroughtLetters(PublishedDeadLetters):
    """Letters that are rows of a table: they are brought to the attempt that decodes them again, as a file."""

    def files(self, batch_id: UUID, attempt: Place) -> tuple[Place, ...]:
        self._sources(batch_id)  # are they there?
        return (self._brought(batch_id, attempt),)

    def _brought(self, batch_id: UUID, attempt: Place) -> Place:
        """Return the place of the file, in a folder that says the batch, which Spark needs."""
        return attempt / REPLAYED / f"{PUBLISHED}{batch_id}" / "letters.parquet"

    def bring(self, batch_id: UUID, attempt: Place) -> None:
        from kafka_ingest.sinks.dead_letter_files import write_letters  # noqa: PLC0415 - see count

        sources, target = self._sources(batch_id), self._opened(self._brought(batch_id, attempt))
        with storage_errors(attempt), ExitStack() as stack:
            make_folder(target.parent)
            found = (stack.enter_context(source()) for _, source in sources)
            write_letters(found, stack.enter_context(open_to_write(target)))


def are_missing(batch_id: UUID, what: str) -> OutputUnavailableError:
    return OutputUnavailableError(
        f"batch {batch_id}: expected {what}. Restore from a backup; or give the letters up, for good: `kafka-ingest "
        f"dead-letters FEED --batch {batch_id} --give-up --reason …`."
    )


class DeadLetterObjects(AnyColumns):
    """The output and the folder beside it: publishes the dead letters of published batches, and deletes given up ones.

    ``access`` leads to the store.
    """

    def __init__(self, output: Place, access: StoreAccess | None) -> None:
        self._output = output
        self._access = access
        self.staging = StagedFiles(beside(output) / "staging", access)
        folder = self.opened(beside(output) / "receipts")
        self.receipts = KeptReceipts(folder, self.staging.check_mounted, lambda batch_id: bool(self._sizes(batch_id)))

    def opened(self, place: Place) -> Opened:
        return opened(place, self._access)

    def place_of(self, batch_id: UUID) -> Place:
        return self._output / f"{PUBLISHED}{batch_id}"

    def _sizes(self, batch_id: UUID) -> dict[str, int]:
        return sizes_in(self.opened(self.place_of(batch_id)))

    def examine(self) -> None:
        check_usable(self._output, self._access)

    def prepare(self) -> None:
        self.examine()

    def known_batches(self, since: UUID | None = None) -> list[str]:
        with storage_errors(self._output):
            return sorted(self.receipts.batch_ids(since))

    def published_receipts(self) -> Iterator[PublishedReceipt]:
        return self.receipts.published(self.known_batches(), self._found)

    def _found(self, published: PublishedReceipt, removal: Removal | None) -> FoundFiles:
        if removal is not None:
            return FoundFiles(FilesState.EXPIRED, str(removal))
        expected = {file.name: file.size_bytes for file in published.receipt.files}
        with storage_errors(self._output):
            there = self._sizes(published.plan.batch_id)
        if there == expected:
            return FoundFiles(FilesState.INTACT, rows=published.receipt.rows)
        return FoundFiles(FilesState.CHANGED if there else FilesState.GONE, difference(expected, there))

    def can_take(self, directory: Place, receipt: Receipt) -> None:
        with storage_errors(self._output):
            if self.receipts.is_withdrawn(receipt.batch_id):
                raise being_abandoned(receipt.batch_id)
            check_listing(self.opened(directory / DATA), receipt)

    def publish(self, directory: Place, published: PublishedReceipt) -> None:
        """Copy the files, each as a whole, then keep the receipt that names them; safe to repeat after any crash."""
        receipt = published.receipt
        with storage_errors(self._output):
            if self.receipts.removal(receipt.batch_id) is not None:
                return  # they were published, and given up since
            if not self.receipts.is_kept(receipt.batch_id):
                staged, target = self.opened(directory / DATA), self.opened(self.place_of(receipt.batch_id))
                try:
                    check_listing(staged, receipt)
                except StagedOutputUnusableError as error:
                    raise OutputConflictError(f"{error}; they were intact when the commit began.") from error
                for file in receipt.files:
                    copy_file(staged / file.name, target / file.name)
            self.receipts.keep(published)

    def revoke(self, _directory: Place, batch_id: UUID) -> None:
        with storage_errors(self._output):
            if self.receipts.is_kept(batch_id):
                raise published_already(batch_id)
            self.receipts.withdraw(batch_id)

    def check_can_remove(self) -> None:
        """Do nothing: what was given up may always be deleted."""

    def hide(self, batch_id: UUID) -> None:
        if self.receipts.removal(batch_id) is None:
            raise ValueError(f"expected batch {batch_id} to be noted as removed before it is deleted")
        with storage_errors(self._output):
            self._delete(batch_id)

    def _delete(self, batch_id: UUID) -> None:
        remove_tree(self.opened(self.place_of(batch_id)))

    def unfinished(self) -> list[str]:
        with storage_errors(self._output):
            return [name for name in self.receipts.removed_batches() if self._sizes(UUID(name))]

    def delete_hidden(self, batch_id: UUID) -> None:
        """Do nothing: it is deleted when it is hidden."""


def dead_letter_objects_sink(output: Place, access: StoreAccess | None) -> Sink:
    objects = DeadLetterObjects(output, access)
    return Sink(
        staging=objects.staging,
        publisher=objects,
        archive=objects.receipts,
        inspector=FolderInspector(objects.receipts, objects.place_of, objects.opened),
        remover=objects,
        salvage=None,
        places=(output, beside(output)),
        dead_letters=PublishedDeadLetters(objects.receipts, objects.place_of, objects.opened),
    )
