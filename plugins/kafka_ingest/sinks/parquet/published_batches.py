"""What exists of published batches, and how a batch or one of its files is hidden from readers: by one rename.

Beside the output ``P``, on its file system::

    P.kafka-ingest/removed/<batch>/         an expired batch, until it is deleted
    P.kafka-ingest/lost/<batch>/<file>      damaged files, kept for repair until their batch expires
"""

import contextlib
import os
import shutil
from pathlib import Path
from uuid import UUID

from kafka_ingest.foundation.durable_files import make_directory_durably, sync
from kafka_ingest.model.attempt_directory import DATA
from kafka_ingest.model.published_output import FilesState, FoundFiles
from kafka_ingest.model.receipt import Receipt
from kafka_ingest.sinks.staged_files import DATA_REVOKED
from kafka_ingest.sinks.staged_parquet import difference, file_sizes

PUBLISHED = "kafka_batch="


class PublishedBatches:
    """The batches that readers see. I/O errors are left to the caller, which knows the step that failed."""

    def __init__(self, output: Path, beside: Path) -> None:
        self._output = output
        self._removed = beside / "removed"
        self._lost = beside / "lost"

    def directory(self, batch_id: UUID) -> Path:
        """Return where a batch's files are once it is published; readers get ``kafka_batch`` from this name."""
        return self._output / f"{PUBLISHED}{batch_id}"

    def is_there(self, batch_id: UUID) -> bool:
        """Whether readers see a directory of a batch."""
        return os.path.lexists(self.directory(batch_id))

    def found(self, receipt: Receipt, attempt_directory: Path) -> FoundFiles:
        """Return what exists of a batch whose receipt is kept, by names and sizes."""
        target = self.directory(receipt.batch_id)
        if not receipt.files:
            return FoundFiles(FilesState.INTACT)
        if os.path.lexists(target) and (target.is_symlink() or not target.is_dir()):
            return FoundFiles(FilesState.CHANGED, f"{target} is not a directory")
        expected = {file.name: file.size_bytes for file in receipt.files}
        sizes = file_sizes(target)
        if sizes:
            text = f"{difference(expected, sizes)} in {target}"
            return FoundFiles(FilesState.INTACT) if sizes == expected else FoundFiles(FilesState.CHANGED, text)
        return self._found_elsewhere(expected, target, attempt_directory)

    def _found_elsewhere(self, expected: dict[str, int], target: Path, attempt_directory: Path) -> FoundFiles:
        data, revoked = attempt_directory / DATA, attempt_directory / DATA_REVOKED
        if revoked.is_dir():
            return FoundFiles(FilesState.REVOKED, f"its files are in {revoked}")
        if data.is_dir():
            sizes = file_sizes(data)
            if sizes == expected:
                return FoundFiles(FilesState.STAGED, f"its files are in {data}")
            return FoundFiles(
                FilesState.BROKEN, f"its files are not in {target}, and {difference(expected, sizes)} in {data}"
            )
        return FoundFiles(FilesState.GONE, f"its files are not in {target}")

    def hide(self, batch_id: UUID) -> None:
        """Hide a whole batch from readers, durably; does nothing where none is visible."""
        target, hidden = self.directory(batch_id), self._removed / str(batch_id)
        make_directory_durably(self._removed)
        # What an earlier try moved there is of the same batch, and to be deleted all the same.
        if target.is_dir() and hidden.exists():
            shutil.rmtree(hidden)
        with contextlib.suppress(FileNotFoundError):
            target.rename(hidden)
        sync(self._removed)
        if self._output.is_dir():
            sync(self._output)

    def hidden(self) -> list[str]:
        """Return the batches that were taken out of sight and are not deleted yet."""
        return sorted(path.name for path in self._removed.iterdir()) if self._removed.exists() else []

    def has_set_aside(self, batch_id: UUID) -> bool:
        """Whether damaged files of a batch are kept."""
        return self.aside(batch_id).exists()

    def delete_hidden(self, batch_id: UUID) -> None:
        """Delete what was hidden, damaged files included; does nothing where that was done."""
        for folder in (self._lost, self._removed):
            with contextlib.suppress(FileNotFoundError):
                shutil.rmtree(folder / str(batch_id))

    def aside(self, batch_id: UUID) -> Path:
        """Return where damaged files of a batch are kept."""
        return self._lost / str(batch_id)

    def set_aside(self, batch_id: UUID, names: list[str]) -> None:
        """Hide files of a batch from readers, durably, and keep them; does nothing for missing ones."""
        target, aside = self.directory(batch_id), self.aside(batch_id)
        make_directory_durably(aside)
        for name in names:
            with contextlib.suppress(FileNotFoundError):
                (target / name).rename(aside / name)
        sync(aside)
        if target.is_dir():
            sync(target)
            # Polars refuses a directory that holds no file.
            with contextlib.suppress(OSError):
                target.rmdir()
                sync(self._output)
