"""Take batches out of readers' sight, or single damaged files of them: by one rename.

Beside the output ``P``, on its file system::

    P.kafka-ingest/removed/<batch>/         an expired batch, until it is deleted
    P.kafka-ingest/lost/<batch>/<file>      damaged files, kept for repair until their batch expires
"""

import contextlib
import shutil
from pathlib import Path
from uuid import UUID

from kafka_ingest.foundation.durable_files import make_directory_durably, sync
from kafka_ingest.model.removal import RemovalCause
from kafka_ingest.sinks.parquet.directory import ParquetDirectory
from kafka_ingest.sinks.usable_places import storage_errors


class ParquetRemover:
    """Removes what was published in a Parquet directory, and sets damaged files of it aside."""

    def __init__(self, directory: ParquetDirectory) -> None:
        self._directory = directory
        self._removed = directory.beside / "removed"
        self._lost = directory.beside / "lost"

    def check_can_remove(self) -> None:
        """Do nothing: who may publish here may remove."""

    def hide(self, batch_id: UUID) -> None:
        directory, target, hidden = self._directory, self._directory.place_of(batch_id), self._removed / str(batch_id)
        if directory.receipts.removal(batch_id) is None:
            raise ValueError(f"expected batch {batch_id} to be noted as removed before it is hidden")
        with storage_errors(target):
            directory.staging.check_mounted()
            with directory.listed.kept_up():
                make_directory_durably(self._removed)
                # What an earlier try moved there is of the same batch, and to be deleted all the same.
                if target.is_dir() and hidden.exists():
                    shutil.rmtree(hidden)
                with contextlib.suppress(FileNotFoundError):
                    target.rename(hidden)
                sync(self._removed)
                if directory.output.is_dir():
                    sync(directory.output)

    def unfinished(self) -> list[str]:
        receipts = self._directory.receipts
        with storage_errors(self._directory.beside):
            left = [
                batch_id
                for batch_id in map(UUID, receipts.removed_batches())
                if self._directory.is_there(batch_id) or self.aside(batch_id).exists()
            ]
            removals = [removal for batch_id in left if (removal := receipts.removal(batch_id)) is not None]
            expired = {str(removal.batch_id) for removal in removals if removal.cause is RemovalCause.EXPIRED}
            hidden = {path.name for path in self._removed.iterdir()} if self._removed.exists() else set()
            return sorted(expired | hidden)

    def delete_hidden(self, batch_id: UUID) -> None:
        with storage_errors(self._directory.beside):
            for folder in (self._lost, self._removed):
                with contextlib.suppress(FileNotFoundError):
                    shutil.rmtree(folder / str(batch_id))

    def aside(self, batch_id: UUID) -> Path:
        return self._lost / str(batch_id)

    def set_aside(self, batch_id: UUID, names: list[str]) -> None:
        directory, target, aside = self._directory, self._directory.place_of(batch_id), self.aside(batch_id)
        with storage_errors(target):
            directory.staging.check_mounted()
            with directory.listed.kept_up():
                for name in names:
                    source, hidden = target / name, aside / name
                    make_directory_durably(hidden.parent)
                    with contextlib.suppress(FileNotFoundError):
                        source.rename(hidden)
                    sync(hidden.parent)
                    # Polars refuses a directory that holds no file.
                    for folder in source.parents[: len(Path(name).parts)]:
                        if folder.is_dir():
                            sync(folder)
                        with contextlib.suppress(OSError):
                            folder.rmdir()
                            sync(folder.parent)
