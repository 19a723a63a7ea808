"""Dead letters in a store: Parquet files beside a table that is there.

They follow a batch that is published already, so nothing decides here. The files of a batch are copied to their place,
and then its receipt is kept: whoever asks this project reads what a receipt names. A program that lists the store may
see some of a batch's files for a moment before the others::

    P/kafka_batch=<batch>/*.parquet               published
    P.kafka-ingest/receipts/<day>/<batch>.json    what was published, kept (:mod:`kafka_ingest.sinks.kept_receipts`)
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from uuid import UUID

from kafka_ingest.errors import BatchStateError, OutputConflictError, OutputUnavailableError, StagedOutputUnusableError
from kafka_ingest.foundation.storage import Opened, copy_file, opened, remote_sizes, remove_tree
from kafka_ingest.foundation.stores.access import StoreAccess
from kafka_ingest.model.attempt_directory import DATA
from kafka_ingest.model.batch import DataNeeds
from kafka_ingest.model.offset_sets import union
from kafka_ingest.model.offsets import OffsetRange, TopicPartition
from kafka_ingest.model.place import Place
from kafka_ingest.model.published_output import FilesState, FoundFiles, PublishedLook, PublishedReceipt
from kafka_ingest.model.receipt import Receipt, WrittenFile
from kafka_ingest.model.replayed import ReplayedLetters
from kafka_ingest.model.written_columns import WrittenColumns
from kafka_ingest.ports.outputs import ReceiptArchive, Sink
from kafka_ingest.sinks.beside_output import beside
from kafka_ingest.sinks.data_file import data_file
from kafka_ingest.sinks.kept_receipts import KeptReceipts
from kafka_ingest.sinks.publish_or_revoke import being_abandoned, published_already
from kafka_ingest.sinks.receipt_archive import ArchivedReceipts
from kafka_ingest.sinks.staged_files import StagedFiles
from kafka_ingest.sinks.staged_parquet import check_listing, difference
from kafka_ingest.sinks.storage_errors import storage_errors
from kafka_ingest.sinks.usable_places import check_usable


class PublishedDeadLetters:
    """Finds and counts them by the receipts that are kept beside the output.

    ``place_of``: where the files of a batch are; ``opened`` is what reads a place.
    """

    def __init__(
        self, archive: ReceiptArchive, place_of: Callable[[UUID], Place], opened: Callable[[Place], Opened]
    ) -> None:
        self._archive = archive
        self._place_of = place_of
        self._opened = opened

    def files(self, batch_id: UUID) -> tuple[Place, ...]:
        """Return where readers find the files of a batch's dead letters, all that its receipt names."""
        target = self._place_of(batch_id)
        with storage_errors(target):
            if (removal := self._archive.removal(batch_id)) is not None:
                raise BatchStateError(f"batch {batch_id}: its dead letters were given up: {removal}")
            receipt = self._archive.receipt(batch_id)
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
        """Return how many letters of a batch there are in each range, by the names of their causes."""
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
        """Return the offsets of some of a batch's letters, merged and sorted."""
        from kafka_ingest.sinks.dead_letter_files import offsets_of  # noqa: PLC0415

        found: list[OffsetRange] = []
        for path in self.files(batch_id):
            with storage_errors(path):
                found += offsets_of(self._opened(path), letters)
        return union(found)


@dataclass(frozen=True, slots=True)
class DeadLetterObjects:
    """The output, and the folder beside it; ``access`` leads to the store."""

    output: Place
    access: StoreAccess | None
    staging: StagedFiles
    receipts: KeptReceipts

    @classmethod
    def at(cls, output: Place, access: StoreAccess | None) -> "DeadLetterObjects":
        """Return the output at a place."""
        folder: Place = beside(output)
        receipts = KeptReceipts(opened(folder / "receipts", access))
        return cls(output, access, StagedFiles(folder / "staging", access), receipts)

    def opened(self, place: Place) -> Opened:
        """Return what reads a place."""
        return opened(place, self.access)

    def place_of(self, batch_id: UUID) -> Place:
        """Return where readers find the files of a batch."""
        return self.output / f"kafka_batch={batch_id}"

    def sizes(self, batch_id: UUID) -> dict[str, int]:
        """Return the names of a batch's files, with their sizes; none where there are no files."""
        found = self.opened(self.place_of(batch_id))
        if isinstance(found, Path):
            raise TypeError(f"expected an output in a store, found {found}")
        return remote_sizes(found)

    def is_there(self, batch_id: UUID) -> bool:
        """Whether readers see a file of a batch."""
        return bool(self.sizes(batch_id))


class Publisher:
    """Copies the dead letters of published batches to where readers find them."""

    def __init__(self, objects: DeadLetterObjects, archive: ArchivedReceipts) -> None:
        self._objects = objects
        self._archive = archive

    def prepare(self) -> None:
        """Check that the store can be used."""
        self.examine()

    def examine(self) -> None:
        """Check that the store refuses to overwrite what should only be created."""
        check_usable(self._objects.output, self._objects.access)

    def known_batches(self, since: UUID | None = None) -> list[str]:
        """Return the ids of the batches whose dead letters were published, oldest first."""
        with storage_errors(self._objects.output):
            return sorted(self._objects.receipts.batch_ids(since))

    def published_receipts(self) -> Iterator[PublishedReceipt]:
        """Return all that was ever published here, oldest first, with what exists of it now."""
        for name in self.known_batches():
            published = self._archive.published_named(name)
            removal = self._archive.removal(published.plan.batch_id)
            files = FoundFiles(FilesState.EXPIRED, str(removal)) if removal is not None else self._found(published)
            yield replace(published, files=files, removal=removal)

    def _found(self, published: PublishedReceipt) -> FoundFiles:
        batch_id, expected = published.plan.batch_id, sizes_in(published.receipt)
        with storage_errors(self._objects.output):
            there = self._objects.sizes(batch_id)
        if there == expected:
            return FoundFiles(FilesState.INTACT, rows=published.receipt.rows)
        return FoundFiles(FilesState.CHANGED if there else FilesState.GONE, difference(expected, there))

    def data_needs(self, _directory: Place) -> DataNeeds:
        """Return that dead letters are staged inside their attempt's directory."""
        return DataNeeds()

    def check_records(self, *, decoded: bool) -> None:
        """Do nothing: there are files with any columns."""

    def columns_there(self, _written: WrittenColumns) -> None:
        """Return that the output has no columns of its own."""
        return

    def misfits(self, _written: WrittenColumns) -> tuple[str, ...]:
        """Return that there are none."""
        return ()

    def can_take(self, directory: Place, receipt: Receipt) -> None:
        """Check before COMMITTING whether the staged files are as their receipt says."""
        with storage_errors(self._objects.output):
            if self._objects.receipts.is_withdrawn(receipt.batch_id):
                raise being_abandoned(receipt.batch_id)
            check_listing(self._objects.opened(directory / DATA), receipt)

    def publish(self, directory: Place, published: PublishedReceipt) -> None:
        """Copy the files, each as a whole, then keep the receipt that names them; safe to repeat after any crash."""
        receipt, objects = published.receipt, self._objects
        with storage_errors(objects.output):
            if self._archive.removal(receipt.batch_id) is not None:
                return  # they were published, and given up since
            if not objects.receipts.is_kept(receipt.batch_id):
                staged, target = objects.opened(directory / DATA), objects.opened(objects.place_of(receipt.batch_id))
                try:
                    check_listing(staged, receipt)
                except StagedOutputUnusableError as error:
                    raise OutputConflictError(f"{error}; they were intact when the commit began.") from error
                for file in receipt.files:
                    copy_file(staged / file.name, target / file.name)
            objects.receipts.keep(published)

    def revoke(self, _directory: Place, batch_id: UUID, *, rows: int) -> None:
        """Withdraw what is not published yet; raises BatchStateError where it is."""
        del rows
        with storage_errors(self._objects.output):
            if self._objects.receipts.is_kept(batch_id):
                raise published_already(batch_id)
            self._objects.receipts.withdraw(batch_id)


class Inspector:
    """Reads published dead letters."""

    def __init__(self, objects: DeadLetterObjects) -> None:
        self._objects = objects

    def look_at(self, batch_id: UUID, *, closely: bool = False) -> PublishedLook:
        """Read what readers see of a batch file by file, so that a damaged one does not hide the others."""
        # A third of a second for pyarrow, which only a count should pay.
        from kafka_ingest.sinks.file_counts import look_at_named  # noqa: PLC0415

        with storage_errors(self._objects.output):
            receipt = self._objects.receipts.receipt(batch_id)
            there = self._objects.sizes(batch_id)
            return look_at_named(
                self._objects.opened(self._objects.place_of(batch_id)), there, receipt, closely=closely
            )

    def path(self, batch_id: UUID, file: WrittenFile) -> Place:
        """Return where readers find a file of a batch."""
        return self._objects.place_of(batch_id) / file.name

    def holds(self, batch_id: UUID, file: WrittenFile, topic_partition: TopicPartition, offset: int) -> bool:
        """Whether the record of that partition and offset is in a published file."""
        return data_file(self._objects.opened(self.path(batch_id, file))).holds(topic_partition, offset)


class Remover:
    """Deletes dead letters that were given up."""

    def __init__(self, objects: DeadLetterObjects) -> None:
        self._objects = objects

    def check_can_remove(self) -> None:
        """Do nothing: what was given up may always be deleted."""

    def hide(self, batch_id: UUID) -> None:
        """Delete the files of a batch; does nothing where there are none."""
        if self._objects.receipts.removal(batch_id) is None:
            raise ValueError(f"expected batch {batch_id} to be noted as removed before it is deleted")
        with storage_errors(self._objects.output):
            remove_tree(self._objects.opened(self._objects.place_of(batch_id)))

    def unfinished(self) -> list[str]:
        """Return the removed batches of which there still are files."""
        with storage_errors(self._objects.output):
            return sorted(name for name in self._objects.receipts.removed() if self._objects.is_there(UUID(name)))

    def delete_hidden(self, batch_id: UUID) -> None:
        """Do nothing: it is deleted when it is hidden."""


def sizes_in(receipt: Receipt) -> dict[str, int]:
    """Return a receipt's files with their sizes."""
    return {file.name: file.size_bytes for file in receipt.files}


def dead_letter_objects_sink(output: Place, access: StoreAccess | None) -> Sink:
    """Return the roles of the output of dead letters in a store."""
    objects = DeadLetterObjects.at(output, access)
    archive = ArchivedReceipts(objects.receipts, objects.staging.check_mounted, objects.is_there)
    return Sink(
        staging=objects.staging,
        publisher=Publisher(objects, archive),
        archive=archive,
        inspector=Inspector(objects),
        remover=Remover(objects),
        salvage=None,
        places=(output, beside(output)),
        dead_letters=PublishedDeadLetters(archive, objects.place_of, objects.opened),
    )
