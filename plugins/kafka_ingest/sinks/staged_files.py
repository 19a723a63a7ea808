"""The place of attempts on a local or mounted disk: what Spark is handed, what it writes, and its receipt.

Every sink stages plain Parquet, so there is one implementation, whatever publishing does with the files. For an output ``P``::

    P.kafka-ingest/staging/<batch>/<attempt>/     plan.json, kafka_ingest.zip, data/, receipt.json, failure.txt
"""

import contextlib
import errno
import shutil
from collections.abc import Sequence
from pathlib import Path
from uuid import UUID

from kafka_ingest.foundation.durable_files import make_directory_durably, sync, write_durably
from kafka_ingest.model.attempt_directory import DOCUMENT, FAILURE, RECEIPT
from kafka_ingest.model.offsets import OffsetRange
from kafka_ingest.model.receipt import Receipt, WrittenFile
from kafka_ingest.sinks.staged_data import DataInAttempt, StagedData
from kafka_ingest.sinks.staged_parquet import check_listing, file_size, folders_of, verify_footer
from kafka_ingest.sinks.storage_errors import storage_errors

REMOVE_TRIES = 10


class StagedFiles:
    """The folder ``staging`` of one output, and the data of its attempts wherever the sink has it written."""

    def __init__(self, folder: Path, data: StagedData | None = None) -> None:
        self.folder = folder
        self._data = data or DataInAttempt()

    def attempt_directory(self, batch_id: UUID, attempt: int) -> Path:
        """Return the absolute directory that belongs to one attempt alone."""
        return self.folder / str(batch_id) / str(attempt)

    def check_mounted(self) -> None:
        """Raise FileNotFoundError where the folder is away: then what is missing below says nothing about the files."""
        # The first plan made it, before the first attempt.
        if not self.folder.is_dir():
            raise FileNotFoundError(
                errno.ENOENT,
                "expected it since the feed's first plan; mount it, or make it again if it is gone for good",
                str(self.folder),
            )

    def open_attempt(self, directory: Path, document: bytes) -> None:
        """Make the attempt's directory with its document in it, durably."""
        with storage_errors(directory):
            self.check_mounted()
            make_directory_durably(directory)
            write_durably(directory / DOCUMENT, document)

    def read_receipt(self, directory: Path) -> bytes | None:
        """Return the attempt's receipt as it lies there, None where there is none."""
        with storage_errors(directory):
            self.check_mounted()
            try:
                return (directory / RECEIPT).read_bytes()
            except FileNotFoundError:
                return None

    def write_receipt(self, directory: Path, content: bytes) -> None:
        """Write the receipt of an attempt whose files were staged again, durably; the last thing of it."""
        with storage_errors(directory):
            write_durably(directory / RECEIPT, content)

    def read_failure(self, directory: Path) -> str | None:
        """Return what Spark said when the attempt failed, None where it said nothing."""
        with storage_errors(directory):
            try:
                return (directory / FAILURE).read_text(encoding="utf-8", errors="replace")
            except FileNotFoundError:
                return None

    def verify(self, directory: Path, receipt: Receipt) -> None:
        """Check the staged files against their receipt; they are on the disk when this returns."""
        data = self._data.place(directory)
        with storage_errors(data):
            self.check_mounted()
            check_listing(data, receipt)
            for file in receipt.files:
                verify_footer(data / file.name, file)
                sync(data / file.name)
            for folder in folders_of(data, receipt):
                sync(folder)

    def check_restageable(self, directory: Path, receipt: Receipt) -> None:
        """Raise StagedOutputUnusableError unless an attempt's files, revoked or not, are what its receipt says."""
        from kafka_ingest.sinks.restaged_parquet import staged_data  # noqa: PLC0415

        with storage_errors(directory):
            self.check_mounted()
            staged_data(self._data.places(directory), receipt)

    def restage(self, source: Path, receipt: Receipt, target: Path, ranges: Sequence[OffsetRange]) -> list[WrittenFile]:
        """Stage the records of ranges, out of the files of an earlier attempt, revoked or not, in another one's directory."""
        # A third of a second for pyarrow, which only a restore should pay.
        from kafka_ingest.sinks.restaged_parquet import restage, staged_data  # noqa: PLC0415

        with storage_errors(target):
            self.check_mounted()
            data = staged_data(self._data.places(source), receipt)
            batch_id = target.parent.name if self._data.batch_column else None
            return restage(data, receipt, self._data.place(target), ranges, batch_id=batch_id)

    def size_bytes(self, directory: Path) -> int:
        """Return how large an attempt's directory is, with its data that is not published; 0 where there is none."""
        with storage_errors(directory):
            self.check_mounted()
            elsewhere = self._data.to_remove(directory)
            found = [directory, *([elsewhere] if elsewhere is not None else [])]
            return sum(file_size(path) for folder in found for path in folder.rglob("*"))

    def remove(self, directory: Path) -> None:
        """Remove an attempt's directory, and its data that is not published.

        Raises ValueError on a directory that is none of this output's attempts.
        """
        if directory.parent.parent != self.folder:
            raise ValueError(f"expected the directory of an attempt below {self.folder}, found {directory}")
        with storage_errors(directory):
            self.check_mounted()
            # The data first: without its attempt nobody would look for it.
            if (elsewhere := self._data.to_remove(directory)) is not None:
                remove_all(elsewhere)
            remove_all(directory)


def remove_all(directory: Path) -> None:
    """Remove a directory with all that is in it, and the one that it lies in where that is empty then."""
    for _ in range(REMOVE_TRIES):
        # It stops at the first name that somebody else removed: another clean-up, or a Spark that goes on.
        with contextlib.suppress(FileNotFoundError):
            shutil.rmtree(directory)
        if not directory.exists():
            break
    else:
        raise OSError(errno.EBUSY, "somebody writes to it all the time", str(directory))
    with contextlib.suppress(OSError):
        directory.parent.rmdir()  # only where no other attempt is left
