"""Dead letters in a store: Parquet files beside a table that is there.

They follow a batch that is published already, so nothing decides here. The files of a batch are copied to their place,
and then its receipt is kept: this project's readers read what a receipt names. A program that lists the store may
see some of a batch's files for a moment before the others::

    P/kafka_batch=<batch>/*.parquet               published
    P.kafka-ingest/receipts/<day>/<batch>.json    what was published, kept (:mod:`kafka_ingest.sinks.kept_receipts`)
"""

from collections.abc import Iterator
from uuid import UUID

from kafka_ingest.errors import OutputConflictError, StagedOutputUnusableError
from kafka_ingest.foundation.storage import Opened, copy_file, opened, remove_tree
from kafka_ingest.foundation.stores.access import StoreAccess
from kafka_ingest.model.attempt_directory import DATA
from kafka_ingest.model.place import Place
from kafka_ingest.model.published_output import FilesState, FoundFiles, PublishedReceipt
from kafka_ingest.model.receipt import Receipt
from kafka_ingest.model.removal import Removal
from kafka_ingest.ports.outputs import Sink
from kafka_ingest.sinks.batch_folders import PUBLISHED, AnyColumns, FolderInspector, PublishedDeadLetters, sizes_in
from kafka_ingest.sinks.kept_receipts import KeptReceipts, being_abandoned, published_already
from kafka_ingest.sinks.staged_files import StagedFiles
from kafka_ingest.sinks.staged_parquet import check_listing, difference
from kafka_ingest.sinks.usable_places import beside, check_usable, storage_errors


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
        """Check that the store refuses to overwrite what should only be created."""
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
        """Check before COMMITTING whether the staged files are as their receipt says."""
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

    def revoke(self, _directory: Place, batch_id: UUID, *, rows: int) -> None:
        """Withdraw what is not published yet; raises BatchStateError where it is."""
        del rows
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
