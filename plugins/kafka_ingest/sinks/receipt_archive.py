"""The permanent archive of an output's receipts: :mod:`.kept_receipts`, with named storage errors."""

from collections.abc import Callable
from uuid import UUID

from kafka_ingest.errors import OutputConflictError
from kafka_ingest.model.published_output import PublishedReceipt
from kafka_ingest.model.receipt import Receipt
from kafka_ingest.model.removal import Removal, RemovalCause
from kafka_ingest.sinks.kept_receipts import KeptReceipts
from kafka_ingest.sinks.storage_errors import storage_errors


class ArchivedReceipts:
    """The receipts and marks beside one output.

    ``check_mounted`` raises FileNotFoundError where the storage is not available; ``is_visible``: whether readers see
    anything of a batch.
    """

    def __init__(
        self, kept: KeptReceipts, check_mounted: Callable[[], None], is_visible: Callable[[UUID], bool]
    ) -> None:
        self._kept = kept
        self._check_mounted = check_mounted
        self._is_visible = is_visible

    def is_kept(self, batch_id: UUID) -> bool:
        """Whether a receipt of the batch is kept here."""
        with storage_errors(self._kept.folder):
            return self._kept.is_kept(batch_id)

    def receipt(self, batch_id: UUID) -> Receipt | None:
        """Return the receipt of a batch as published, None where there is none."""
        with storage_errors(self._kept.folder):
            return self._kept.receipt(batch_id)

    def published_receipt(self, batch_id: UUID) -> PublishedReceipt | None:
        """Return what is kept of one batch, None where nothing is; its files are not checked."""
        with storage_errors(self._kept.folder):
            is_kept = self._kept.is_kept(batch_id)
        return self.published_named(str(batch_id)) if is_kept else None

    def published_named(self, batch_id: str) -> PublishedReceipt:
        """Return all that is kept of a batch, by the name found; raises OutputConflictError where it cannot be used."""
        with storage_errors(self._kept.folder):
            path = self._kept.path(batch_id)
        try:
            with storage_errors(path):
                return self._kept.published(batch_id)
        except ValueError as error:
            raise OutputConflictError(
                f"the output holds batch {batch_id}, expected its receipt in {path}, found that it cannot be used: "
                f"{error}. Restore that file from a backup; without it, it is unknown which offsets the batch holds."
            ) from error

    def removal(self, batch_id: UUID) -> Removal | None:
        """Return why readers no longer see a published batch, None where they should see it.

        Files that were only found missing may have come back since.
        """
        with storage_errors(self._kept.folder):
            removal = self._kept.removal(batch_id)
            is_back = removal is not None and removal.cause is RemovalCause.GONE and self._is_visible(batch_id)
            return None if is_back else removal

    def removed_batches(self) -> list[str]:
        """Return the ids of the published batches that were removed, oldest first."""
        with storage_errors(self._kept.folder):
            return sorted(self._kept.removed())

    def note_removal(self, removal: Removal) -> None:
        """Note that a batch is removed, durably and before it is.

        Does nothing where that was recorded before, except for a batch that was found missing and expires now.
        """
        with storage_errors(self._kept.folder):
            self._check_mounted()
            self._kept.note_removal(removal)
