"""A directory of Parquet files: one sub-directory per batch, made visible by one rename.

Beside an output ``P`` lies ``P.kafka-ingest/``, on the same file system and never under ``P``, because DuckDB and Polars read
hidden directories too::

    P/kafka_batch=<batch>/*.parquet               published, all that readers see
    P.kafka-ingest/staging/<batch>/<attempt>/     plan.json, kafka_ingest.zip, data/, receipt.json
    P.kafka-ingest/receipts/<day>/<batch>.json    what was published, for ever
    P.kafka-ingest/receipts/<day>/<batch>.revoked what never will be, for ever
    P.kafka-ingest/receipts/<day>/<batch>.removed what was, and was removed since: who, when and why
    P.kafka-ingest/removed/, lost/                what was taken out of readers' sight
    P.kafka-ingest/listed.json                    since when P's names need no reading (:mod:`.listed_output`)
"""

import contextlib
import errno
import os
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from uuid import UUID

from kafka_ingest.attempt_directory import DATA, DATA_PUBLISHED, DATA_REVOKED, DOCUMENT, FAILURE, RECEIPT
from kafka_ingest.boundaries import FilesState, FoundFiles, PublishedCount, PublishedLook, PublishedReceipt
from kafka_ingest.durable_files import make_directory_durably, sync, write_durably
from kafka_ingest.errors import (
    BatchRevokedError,
    BatchStateError,
    OutputConflictError,
    OutputNotUsableError,
    OutputUnavailableError,
    StagedOutputUnusableError,
)
from kafka_ingest.offsets import OffsetRange
from kafka_ingest.receipt import Receipt, WrittenFile
from kafka_ingest.removal import Removal, RemovalCause
from kafka_ingest.sinks.kept_receipts import KeptReceipts
from kafka_ingest.sinks.listed_output import ListedOutput
from kafka_ingest.sinks.published_batches import PublishedBatches
from kafka_ingest.sinks.staged_parquet import check_listing, difference, file_size, file_sizes, verify_footer

REMOVE_TRIES = 10
OF_THE_PATH = frozenset(
    {
        errno.EACCES,
        errno.EPERM,
        errno.ENOENT,
        errno.ENOTDIR,
        errno.EEXIST,
        errno.ENAMETOOLONG,
        errno.ELOOP,
        errno.EINVAL,
    }
)
"""What is wrong with a path, or with who may use it; other input/output errors pass."""


class ParquetDirectory:
    """The sink of ``format: parquet``, for local and mounted paths."""

    def __init__(self, output: Path) -> None:
        self._output = output
        self._beside = output.with_name(f"{output.name}.kafka-ingest")
        self._staging = self._beside / "staging"
        self._receipts = KeptReceipts(self._beside / "receipts")
        self._batches = PublishedBatches(output, self._beside)
        self._listed = ListedOutput(output, self._beside / "listed.json")

    def attempt_directory(self, batch_id: UUID, attempt: int) -> Path:
        """Return the absolute directory that belongs to one attempt alone."""
        return self._staging / str(batch_id) / str(attempt)

    def published_directory(self, batch_id: UUID) -> Path:
        """Return where a batch's files are once it is published; readers get ``kafka_batch`` from this name."""
        return self._batches.directory(batch_id)

    def prepare(self) -> None:
        """Make output, staging and receipts; raises OutputNotUsableError where that cannot be, whoever tries again."""
        with storage_errors(self._output):
            try:
                for directory in (self._output, self._staging, self._receipts.folder):
                    make_directory_durably(directory)
            except OSError as error:
                if error.errno not in OF_THE_PATH:
                    raise
                raise OutputNotUsableError(
                    f"expected to be able to make and write the output directory {self._output}, found: {error}. "
                    "Correct sink.path, or give this user the right to write there."
                ) from error
            self._check_places()

    def _check_places(self) -> None:
        for directory in (self._output, self._beside, self._staging, self._receipts.folder):
            if not os.access(directory, os.W_OK | os.X_OK):
                if os.statvfs(directory).f_flag & os.ST_RDONLY:
                    raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(directory))
                raise OutputNotUsableError(
                    f"expected a directory this user can write, found {directory} without that right. "
                    "Correct sink.path, or the directory's owner and mode."
                )
        if self._output.stat().st_dev != self._beside.stat().st_dev:
            raise OutputNotUsableError(
                f"expected {self._output} and {self._beside} on one file system, found two: a batch is published by one "
                "rename. Mount their parent directory instead of the output itself."
            )

    def known_batches(self, since: UUID | None = None) -> list[str]:
        """Return the ids of the batches that were ever published here, oldest first; ``since``: from this id on.

        Receipts and visible files: either may have been lost, or left behind by a backup, without the other. With ``since`` the
        output's names are read only where it changed since each had its receipt.
        """
        with storage_errors(self._output):
            is_unchanged = since is not None and self._listed.is_unchanged()
        if is_unchanged:
            with storage_errors(self._receipts.folder):
                return sorted(self._receipts.batch_ids(since))
        with storage_errors(self._output):
            # In this order: a batch's receipt is kept before it is visible.
            listing = self._listed.read()
        with storage_errors(self._receipts.folder):
            kept = self._receipts.batch_ids()
        if since is not None and listing.batch_ids <= kept:
            self._listed.note(listing)
        least = str(since) if since is not None else ""
        return sorted(batch_id for batch_id in kept | listing.batch_ids if batch_id >= least)

    def sort_receipts(self, now: datetime) -> int:
        """Move receipts that an earlier version kept in one folder into the days' folders; return how many moved."""
        with storage_errors(self._receipts.folder):
            return self._receipts.sort(now)

    def open_attempt(self, directory: Path, document: bytes) -> None:
        """Make the attempt's directory with its document in it, durably."""
        with storage_errors(directory):
            self._check_mounted()
            make_directory_durably(directory)
            write_durably(directory / DOCUMENT, document)

    def read_receipt(self, directory: Path) -> bytes | None:
        """Return the attempt's receipt as it lies there, None where there is none."""
        with storage_errors(directory):
            self._check_mounted()
            try:
                return (directory / RECEIPT).read_bytes()
            except FileNotFoundError:
                return None

    def _check_mounted(self) -> None:
        # `prepare` made it before the first attempt: without it, what is missing below says nothing about the files.
        if not self._staging.is_dir():
            raise FileNotFoundError(
                errno.ENOENT,
                "expected it since the feed's first plan; mount it, or make it again if it is gone for good",
                str(self._staging),
            )

    def read_failure(self, directory: Path) -> str | None:
        """Return what Spark said when the attempt failed, None where it said nothing."""
        with storage_errors(directory):
            try:
                return (directory / FAILURE).read_text(encoding="utf-8", errors="replace")
            except FileNotFoundError:
                return None

    def published_receipts(self) -> Iterator[PublishedReceipt]:
        """Return all that was ever published here, oldest first, with what is there of it now.

        Raises OutputConflictError on a receipt that cannot be read: nobody else says which offsets the batch holds.
        """
        for name in self.known_batches():
            path = self._receipts.path(name)
            try:
                with storage_errors(path):
                    published = self._receipts.published(name)
            except (ValueError, KeyError, TypeError, AttributeError) as error:
                raise OutputConflictError(
                    f"{self._output} holds batch {name}, expected its receipt in {path}, found that it cannot be used: {error}. "
                    "Restore that file from a backup; without it nobody can say which offsets the batch holds."
                ) from error
            batch_id = published.plan.batch_id
            removal = self.removal(batch_id)
            if removal is not None:
                files = FoundFiles(FilesState.EXPIRED, str(removal))
            else:
                with storage_errors(self.published_directory(batch_id)):
                    directory = self.attempt_directory(batch_id, published.receipt.attempt)
                    files = self._batches.found(published.receipt, directory)
            yield replace(published, files=files, removal=removal)

    def removal(self, batch_id: UUID) -> Removal | None:
        """Return why readers see nothing of a published batch any more, None where they are to see it.

        What was only found gone may have been brought back since.
        """
        with storage_errors(self._receipts.folder):
            removal = self._receipts.removal(batch_id)
            is_back = removal is not None and removal.cause is RemovalCause.GONE and self._batches.is_there(batch_id)
            return None if is_back else removal

    def removed_batches(self) -> list[str]:
        """Return the ids of the published batches that were removed, oldest first."""
        with storage_errors(self._receipts.folder):
            return sorted(self._receipts.removed())

    def note_removal(self, removal: Removal) -> None:
        """Note that a batch is removed, durably and before it is.

        Does nothing where that was noted before, unless it was only found gone, and expires now.
        """
        with storage_errors(self._receipts.folder):
            self._check_mounted()
            self._receipts.note_removal(removal)

    def hide(self, batch_id: UUID) -> None:
        """Take a removed batch out of readers' sight, whole and durably; does nothing where there is nothing to be seen."""
        if self.removal(batch_id) is None:
            raise ValueError(f"expected batch {batch_id} to be noted as removed before it is hidden")
        with storage_errors(self.published_directory(batch_id)):
            self._check_mounted()
            with self._listed.kept_up():
                self._batches.hide(batch_id)

    def unfinished_removals(self) -> list[str]:
        """Return the removed batches that readers still see, or whose hidden or damaged files are not deleted yet."""
        with storage_errors(self._beside):
            left = [
                batch_id
                for batch_id in map(UUID, self.removed_batches())
                if self._batches.is_there(batch_id) or self._batches.has_set_aside(batch_id)
            ]
            removals = [removal for batch_id in left if (removal := self.removal(batch_id)) is not None]
            expired = {str(removal.batch_id) for removal in removals if removal.cause is RemovalCause.EXPIRED}
            return sorted(expired | set(self._batches.hidden()))

    def delete_hidden(self, batch_id: UUID) -> None:
        """Delete what was hidden of a removed batch; does nothing where that was done."""
        with storage_errors(self._beside):
            self._batches.delete_hidden(batch_id)

    def set_aside(self, batch_id: UUID, names: list[str]) -> None:
        """Move files of a batch out of readers' sight, durably, and keep them; does nothing for those that are not there."""
        with storage_errors(self.published_directory(batch_id)):
            self._check_mounted()
            with self._listed.kept_up():
                self._batches.set_aside(batch_id, names)

    def look_at(self, batch_id: UUID, *, closely: bool = False) -> PublishedLook:
        """Read what readers see of a batch file by file, so that one that is damaged keeps none of the others from it."""
        # A third of a second for pyarrow, which only somebody who counts should pay.
        from kafka_ingest.sinks.published_counts import look_at_files  # noqa: PLC0415

        target = self.published_directory(batch_id)
        with storage_errors(target):
            return look_at_files(target, self._receipts.receipt(batch_id), closely=closely)

    def count_published(self, batch_id: UUID) -> list[PublishedCount]:
        """Read the positions of all that readers see of a batch, by partition; none where they see nothing of it."""
        # A third of a second for pyarrow, which only somebody who counts should pay.
        from kafka_ingest.sinks.published_counts import published_counts  # noqa: PLC0415

        target = self.published_directory(batch_id)
        with storage_errors(target):
            return published_counts(target)

    def can_take(self, batch_id: UUID) -> None:
        """Ask before COMMITTING whether the batch can be published; raises OutputNotUsable- or OutputConflictError."""
        with storage_errors(self._output):
            self._check_mounted()
        self.prepare()
        if self._receipts.is_withdrawn(batch_id):
            raise being_given_up(batch_id)
        target = self.published_directory(batch_id)
        if os.path.lexists(target):
            raise OutputConflictError(
                f"batch {batch_id} was never published, but {target} exists. Nothing was moved into it; move it away and "
                "run the commit again."
            )

    def verify_staged(self, directory: Path, receipt: Receipt) -> None:
        """Check the staged files against their receipt; they are on the disk when this returns."""
        data = directory / DATA
        with storage_errors(data):
            self._check_mounted()
            check_listing(data, receipt)
            for file in receipt.files:
                verify_footer(data / file.name, file)
                sync(data / file.name)
            if receipt.files:
                sync(data)

    def publish(self, directory: Path, published: PublishedReceipt) -> None:
        """Copy the receipt to where it is kept, then make the files visible by one rename.

        A rename gives one winner whoever tries; the loser finds the source gone, and the target in place or the files revoked.
        """
        receipt = published.receipt
        target = self._target(directory, receipt.batch_id, rows=receipt.rows)
        with storage_errors(self._output):
            self._check_mounted()
            if self.removal(receipt.batch_id) is not None:
                return  # it was published, and removed since: older control tables may not know
            if not self._is_published(target, receipt):
                self._refuse_revoked(directory, receipt.batch_id)
            self._receipts.keep(published)
            if not receipt.files and not directory.exists():
                return  # the receipt is all that there is of it, and the rest was cleaned up
            if not self._is_published(target, receipt):
                self._move(directory, target, receipt)
            # Once more where readers see it: a task of Spark's that was late may have added a file meanwhile.
            self._is_published(target, receipt)
            sync(target)
            sync(target.parent)

    def _target(self, directory: Path, batch_id: UUID, *, rows: int) -> Path:
        # Without rows nothing becomes visible, but publishing and revoking have to agree who was first.
        return self.published_directory(batch_id) if rows else directory / DATA_PUBLISHED

    def _move(self, directory: Path, target: Path, receipt: Receipt) -> None:
        data = directory / DATA
        put_back = f"put them back and run the commit again, or {give_up(receipt.batch_id)}"
        try:
            # Also after a crash: what was verified then may be gone now.
            check_listing(data, receipt)
            self._refuse_revoked(directory, receipt.batch_id)
            with self._listed.kept_up():
                data.rename(target)
        except (FileNotFoundError, StagedOutputUnusableError) as error:
            if self._is_published(target, receipt):
                return
            self._refuse_revoked(directory, receipt.batch_id)
            if not data.exists():
                raise OutputConflictError(
                    f"batch {receipt.batch_id}: neither its staged files ({data}) nor its published ones ({target}) are there. "
                    f"Somebody removed them; no offset was moved. Either {put_back}."
                ) from error
            if isinstance(error, FileNotFoundError):
                raise
            raise OutputConflictError(
                f"{error}; they were whole when the commit began. Nothing was published and no offset was moved. Either "
                f"{put_back}."
            ) from error

    def revoke(self, directory: Path, batch_id: UUID, *, rows: int) -> None:
        """Take a COMMITTING batch's staged files from every publisher, for ever; raises BatchStateError where it is published.

        Publishing renames the same source, so exactly one of the two wins.
        """
        target = self._target(directory, batch_id, rows=rows)
        revoked = directory / DATA_REVOKED
        with storage_errors(directory):
            self._check_mounted()
            self._refuse_published(directory, target, batch_id)
            make_directory_durably(directory)
            try:
                (directory / DATA).rename(revoked)
            except FileNotFoundError:
                if os.path.lexists(target):
                    raise published_already(batch_id) from None
                revoked.mkdir(exist_ok=True)  # somebody removed the files, or this was done before
            except OSError as error:
                if error.errno not in {errno.ENOTEMPTY, errno.EEXIST}:
                    raise
                # Done before; a task of Spark's that was late made the source again.
            # Again: what was renamed may have been such a task's, and the files published just before.
            self._refuse_published(directory, target, batch_id)
            sync(directory)
            self._receipts.withdraw(batch_id)

    def _refuse_published(self, directory: Path, target: Path, batch_id: UUID) -> None:
        kept = self._receipts.receipt(batch_id)
        if kept is None:
            return  # it is kept before anything is published
        names = {file.name for file in kept.files}
        if names & file_sizes(target).keys() or (not names and (target.exists() or not directory.exists())):
            raise published_already(batch_id)

    def _refuse_revoked(self, directory: Path, batch_id: UUID) -> None:
        if (directory / DATA_REVOKED).exists() or self._receipts.is_withdrawn(batch_id):
            raise being_given_up(batch_id)

    def staged_bytes(self, directory: Path) -> int:
        """Return how large an attempt's directory is, 0 where there is none."""
        with storage_errors(directory):
            self._check_mounted()
            return sum(file_size(path) for path in directory.rglob("*"))

    def check_restageable(self, directory: Path, receipt: Receipt) -> None:
        """Raise StagedOutputUnusableError unless an attempt's files, revoked or not, are what its receipt says."""
        from kafka_ingest.sinks.restaged_parquet import staged_data  # noqa: PLC0415

        with storage_errors(directory):
            self._check_mounted()
            staged_data(directory, receipt)

    def restage(self, source: Path, receipt: Receipt, target: Path, ranges: Sequence[OffsetRange]) -> list[WrittenFile]:
        """Stage the records of ranges, out of the files of an earlier attempt, revoked or not, in another one's directory."""
        # A third of a second for pyarrow, which only somebody who restores should pay.
        from kafka_ingest.sinks.restaged_parquet import restage  # noqa: PLC0415

        with storage_errors(target):
            self._check_mounted()
            return restage(source, receipt, target, ranges)

    def stage_receipt(self, directory: Path, content: bytes) -> None:
        """Write the receipt of an attempt whose files were staged again, durably; the last thing of it."""
        with storage_errors(directory):
            write_durably(directory / RECEIPT, content)

    def remove_attempt(self, directory: Path) -> None:
        """Remove an attempt's directory; raises ValueError on a directory that is none of this output's attempts."""
        if directory.parent.parent != self._staging:
            raise ValueError(f"expected the directory of an attempt below {self._staging}, found {directory}")
        with storage_errors(directory):
            self._check_mounted()
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

    def is_kept(self, batch_id: UUID) -> bool:
        """Whether a receipt of the batch is kept here."""
        with storage_errors(self._receipts.folder):
            return self._receipts.is_kept(batch_id)

    def published_receipt(self, batch_id: UUID) -> PublishedReceipt | None:
        """Return what is kept of one batch, None where nothing is; what is there of its files is not looked at."""
        path = self._receipts.path(str(batch_id))
        try:
            with storage_errors(path):
                return self._receipts.published(str(batch_id)) if self._receipts.is_kept(batch_id) else None
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise OutputConflictError(
                f"{path}: expected the receipt of batch {batch_id}, found that it cannot be used: {error}. Restore that file "
                "from a backup; without it nobody can say which offsets the batch holds."
            ) from error

    def kept_receipt(self, batch_id: UUID) -> bytes | None:
        """Return the receipt of a batch as it was published, None where none was."""
        with storage_errors(self._receipts.folder):
            kept = self._receipts.receipt(batch_id)
        return kept.as_bytes() if kept is not None else None

    def _is_published(self, target: Path, receipt: Receipt) -> bool:
        # Look first: a rename onto an empty directory would succeed.
        if not os.path.lexists(target):
            return False
        if target.is_symlink() or not target.is_dir():
            raise OutputConflictError(
                f"batch {receipt.batch_id} is to be published as {target}, where something lies that is not a directory. "
                "Nothing was moved; move it away and run the commit again."
            )
        expected = {file.name: file.size_bytes for file in receipt.files}
        found = file_sizes(target)
        if receipt.files and found.items() > expected.items():
            raise OutputConflictError(
                f"batch {receipt.batch_id} is published as {target}, where other files lie beside its own: "
                f"{difference(expected, found)}. Readers see them, and no offset was moved. Remove those that are not in the "
                "receipt, and run the commit again."
            )
        if found != expected:
            raise OutputConflictError(
                f"batch {receipt.batch_id} is to be published as {target}, which exists with other content: "
                f"{difference(expected, found)}. Nothing was moved into it; move it away and run the commit again."
            )
        return True


def give_up(batch_id: UUID) -> str:
    """Say how a batch that cannot be published is ended."""
    return f"give the batch up: `kafka-ingest abandon {batch_id} --reason …`, and the next run reads its ranges anew"


def being_given_up(batch_id: UUID) -> BatchRevokedError:
    """Return the error of publishing too late."""
    return BatchRevokedError(
        f"batch {batch_id} is being given up: an operator revoked its staged files. Nothing of it is visible and no offset was "
        f"moved. To finish that, {give_up(batch_id)}."
    )


def published_already(batch_id: UUID) -> BatchStateError:
    """Return the error of revoking too late."""
    return BatchStateError(
        f"batch {batch_id} is published already, so it cannot be given up any more: it only rolls forward. Run the feed, or its "
        "commit task, again. Nothing was changed."
    )


@contextlib.contextmanager
def storage_errors(path: Path) -> Iterator[None]:
    """Give an I/O error its name: it proves nothing about the data, so the step can be tried again."""
    try:
        yield
    except OSError as error:
        raise OutputUnavailableError(
            f"{path} could not be read or written: {error}. No offset was moved; run this again once the storage is well."
        ) from error
