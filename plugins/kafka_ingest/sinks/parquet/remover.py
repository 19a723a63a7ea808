"""Take batches out of readers' sight."""

from uuid import UUID

from kafka_ingest.model.removal import RemovalCause
from kafka_ingest.sinks.parquet.directory import ParquetDirectory
from kafka_ingest.sinks.storage_errors import storage_errors


class ParquetRemover:
    """Removes what was published in a Parquet directory."""

    def __init__(self, directory: ParquetDirectory) -> None:
        self._directory = directory
        self._batches = directory.batches

    def check_can_remove(self) -> None:
        """Do nothing: who may publish here may remove."""

    def hide(self, batch_id: UUID) -> None:
        """Hide a removed batch from readers, completely and durably; does nothing where nothing is visible."""
        if self._directory.archive.removal(batch_id) is None:
            raise ValueError(f"expected batch {batch_id} to be noted as removed before it is hidden")
        with storage_errors(self._batches.directory(batch_id)):
            self._directory.staging.check_mounted()
            with self._directory.listed.kept_up():
                self._batches.hide(batch_id)

    def unfinished(self) -> list[str]:
        """Return the removed batches that readers still see, or whose hidden or damaged files are not deleted yet."""
        archive = self._directory.archive
        with storage_errors(self._directory.beside):
            left = [
                batch_id
                for batch_id in map(UUID, archive.removed_batches())
                if self._batches.is_there(batch_id) or self._batches.has_set_aside(batch_id)
            ]
            removals = [removal for batch_id in left if (removal := archive.removal(batch_id)) is not None]
            expired = {str(removal.batch_id) for removal in removals if removal.cause is RemovalCause.EXPIRED}
            return sorted(expired | set(self._batches.hidden()))

    def delete_hidden(self, batch_id: UUID) -> None:
        """Delete what was hidden of a removed batch; does nothing where that was done."""
        with storage_errors(self._directory.beside):
            self._batches.delete_hidden(batch_id)
