"""Hide damaged files from readers, and keep them for repair."""

from pathlib import Path
from uuid import UUID

from kafka_ingest.sinks.parquet.directory import ParquetDirectory
from kafka_ingest.sinks.storage_errors import storage_errors


class ParquetSalvage:
    """Moves single files out of a Parquet directory."""

    def __init__(self, directory: ParquetDirectory) -> None:
        self._directory = directory
        self._batches = directory.batches

    def aside(self, batch_id: UUID) -> Path:
        """Return where files of a batch are kept that were moved out of readers' sight."""
        return self._batches.aside(batch_id)

    def set_aside(self, batch_id: UUID, names: list[str]) -> None:
        """Hide files of a batch from readers, durably, and keep them; does nothing for missing ones."""
        with storage_errors(self._batches.directory(batch_id)):
            self._directory.staging.check_mounted()
            with self._directory.listed.kept_up():
                self._batches.set_aside(batch_id, names)
