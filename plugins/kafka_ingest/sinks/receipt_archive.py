"""The archive of an output's receipts, kept for ever: :mod:`.kept_receipts`, with the storage's errors by their names."""

from collections.abc import Callable
from datetime import datetime
from uuid import UUID

from kafka_ingest.errors import OutputConflictError
from kafka_ingest.model.published_output import PublishedReceipt
from kafka_ingest.model.receipt import Receipt
from kafka_ingest.model.removal import Removal, RemovalCause
from kafka_ingest.sinks.kept_receipts import KeptReceipts
from kafka_ingest.sinks.storage_errors import storage_errors


class ArchivedReceipts:
    """The receipts and marks beside one output.

    ``check_mounted`` raises FileNotFoundError where the storage is away, ``is_visible`` says whether readers see something of a
    batch.
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
        """Return the receipt of a batch as it was published, None where none was."""
        with storage_errors(self._kept.folder):
            return self._kept.receipt(batch_id)

    def published_receipt(self, batch_id: UUID) -> PublishedReceipt | None:
        """Return what is kept of one batch, None where nothing is; what is there of its files is not looked at."""
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
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise OutputConflictError(
                f"the output holds batch {batch_id}, expected its receipt in {path}, found that it cannot be used: {error}. "
                "Restore that file from a backup; without it nobody can say which offsets the batch holds."
            ) from error

    def removal(self, batch_id: UUID) -> Removal | None:
        """Return why readers see nothing of a published batch any more, None where they are to see it.

        What was only found gone may have been brought back since.
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

        Does nothing where that was noted before, unless it was only found gone, and expires now.
        """
        with storage_errors(self._kept.folder):
            self._check_mounted()
            self._kept.note_removal(removal)

    def sort(self, now: datetime) -> int:
        """Move receipts that an earlier version kept in one folder into the days' folders; return how many moved."""
        with storage_errors(self._kept.folder):
            return self._kept.sort(now)
