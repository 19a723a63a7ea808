"""Publish in a Parquet directory: the rename of an attempt's ``data`` makes a batch visible, or revokes it.

Another takes it out of readers' sight, or single damaged files of it. Beside the output ``P``, on its file system::

    P.kafka-ingest/removed/<batch>/         an expired batch, until it is deleted
    P.kafka-ingest/lost/<batch>/<file>      damaged files, kept for repair until their batch expires

Late rows are not in readers' sight with the others. They are set aside before the rename that decides, and follow it by
one of their own, so they are visible only of batches that cannot be revoked any more::

    staging/<batch>/<attempt>/data.late/    late rows, from just before that until they are published or revoked
"""

import contextlib
import errno
import os
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from uuid import UUID

from kafka_ingest.errors import OutputConflictError, OutputNotUsableError, StagedOutputUnusableError
from kafka_ingest.foundation.durable_files import make_directory_durably, sync
from kafka_ingest.model.batch import DataNeeds
from kafka_ingest.model.gap import Removal, RemovalCause
from kafka_ingest.model.partition_term import LATE_FOLDER, PartitionTerm, misfits
from kafka_ingest.model.place import DATA, Place, local
from kafka_ingest.model.published_output import FilesState, FoundFiles, PublishedReceipt
from kafka_ingest.model.receipt import Receipt
from kafka_ingest.model.written_columns import WrittenColumns
from kafka_ingest.sinks.batch_folders import AnyColumns
from kafka_ingest.sinks.kept_receipts import being_abandoned, how_to_abandon, published_already
from kafka_ingest.sinks.parquet.directory import ParquetDirectory
from kafka_ingest.sinks.staged_files import (
    DATA_LATE,
    DATA_PUBLISHED,
    DATA_REVOKED,
    batch_sizes,
    check_listing,
    difference,
)
from kafka_ingest.sinks.usable_places import check_one_file_system, make_usable, storage_errors


class ParquetPublisher(AnyColumns):
    """Makes batches visible in a local or mounted directory. ``terms``: by what a batch's files are divided."""

    def __init__(self, directory: ParquetDirectory, terms: Sequence[PartitionTerm] = ()) -> None:
        self._directory = directory
        self._terms = tuple(terms)
        self._output = directory.output
        self._staging = directory.staging
        self._receipts = directory.receipts

    def data_needs(self, _directory: Place) -> DataNeeds:
        return DataNeeds(partition_by=self._terms)

    def misfits(self, written: WrittenColumns) -> tuple[str, ...]:
        return tuple(misfits(self._terms, written))

    def examine(self) -> None:
        check_one_file_system(self._output)
        check_no_table(self._output)

    def prepare(self) -> None:
        with storage_errors(self._output):
            make_usable(self._output, (self._directory.beside, self._staging.folder, self._receipts.folder))
            self.examine()

    def known_batches(self, since: UUID | None = None) -> list[str]:
        """Return the ids of the batches that were ever published here, oldest first; ``since``: from this id on.

        By receipts and visible files: either may be missing, lost or not in a backup, without the other.
        """
        with storage_errors(self._output):
            try:
                # In this order: a batch's receipt is kept before it is visible.
                visible = self._directory.visible()
            except NotADirectoryError as error:
                raise OutputNotUsableError(
                    f"expected {self._output} to be below directories, found: {error}. Correct sink.path."
                ) from error
        with storage_errors(self._receipts.folder):
            kept = self._receipts.batch_ids(since)
        least = str(since) if since is not None else ""
        return sorted(batch_id for batch_id in kept | visible if batch_id >= least)

    def published_receipts(self) -> Iterator[PublishedReceipt]:
        return self._receipts.published(self.known_batches(), self._found)

    def _found(self, published: PublishedReceipt, removal: Removal | None) -> FoundFiles:
        batch_id = published.plan.batch_id
        if removal is not None:
            return FoundFiles(FilesState.EXPIRED, str(removal))
        with storage_errors(self._directory.place_of(batch_id)):
            attempt = local(self._staging.attempt_directory(batch_id, published.receipt.attempt))
            return self._directory.found(published.receipt, attempt)

    def can_take(self, place: Place, receipt: Receipt) -> None:
        batch_id = receipt.batch_id
        with storage_errors(self._output):
            self._staging.check_mounted()
        self.prepare()
        with storage_errors(self._output):
            directory = local(place)
            if receipt.late_rows:
                make_usable(self._directory.late, ())
            for target in (self._output, *([self._directory.late] if receipt.late_rows else [])):
                if directory.exists() and directory.stat().st_dev != target.stat().st_dev:
                    raise OutputNotUsableError(
                        f"expected {directory} and {target} on one file system, found two: a batch is published by "
                        "one rename. Nothing was published."
                    )
        if self._receipts.is_withdrawn(batch_id):
            raise being_abandoned(batch_id)
        for target in (self._directory.place_of(batch_id), self._directory.late_place_of(batch_id)):
            if os.path.lexists(target):
                raise OutputConflictError(
                    f"batch {batch_id} was never published, but {target} exists. Nothing was moved into it; move it "
                    "elsewhere and run the commit again."
                )

    def publish(self, place: Place, published: PublishedReceipt) -> None:
        # Of several renames one wins; the loser finds the source missing, and the target in place or the files revoked.
        directory, receipt = local(place), published.receipt
        target = self._target(directory, receipt)
        with storage_errors(self._output):
            self._staging.check_mounted()
            if self._receipts.removal(receipt.batch_id) is not None:
                return  # it was published, and removed since: older control tables may not know
            if not self._is_published(target, receipt):
                self._refuse_revoked(directory, receipt.batch_id)
            self._receipts.keep(published)
            # Without rows in the output the receipt, and late rows, are all that there is once it was cleaned up.
            if self._has_rows(receipt) or directory.exists():
                if not self._is_published(target, receipt):
                    self._move(directory, target, receipt)
                # Once more where readers see it: a late Spark task may have added a file in the meantime.
                self._is_published(target, receipt)
                sync(target)
                sync(target.parent)
            if receipt.late_rows:
                self._publish_late_rows(directory, receipt)

    def _has_rows(self, receipt: Receipt) -> bool:
        return any(not file.is_late for file in receipt.files)

    def _target(self, directory: Path, receipt: Receipt) -> Path:
        # Without rows nothing becomes visible, but publishing and revoking have to agree who was first.
        return self._directory.place_of(receipt.batch_id) if self._has_rows(receipt) else directory / DATA_PUBLISHED

    def _publish_late_rows(self, directory: Path, receipt: Receipt) -> None:
        """Make late rows visible in their own dataset; the batch is published, so nothing decides any more."""
        target, aside = self._directory.late_place_of(receipt.batch_id), directory / DATA_LATE
        if not os.path.lexists(target):
            make_directory_durably(target.parent)
            with contextlib.suppress(FileNotFoundError):
                aside.rename(target)
        expected = {file.name: file.size_bytes for file in receipt.files if file.is_late}
        if (found := batch_sizes(target, receipt)) != expected:
            raise OutputConflictError(
                f"batch {receipt.batch_id}: its other rows are published, but its late rows cannot be, and no offset "
                f"was moved. Expected them in {aside} or in {target}; found there: {difference(expected, found)}. "
                "Restore them from a backup, and run the commit again."
            )
        sync(target)
        sync(target.parent)

    def _move(self, directory: Path, target: Path, receipt: Receipt) -> None:
        data = directory / DATA
        put_back = f"restore them and run the commit again, or {how_to_abandon(receipt.batch_id)}"
        try:
            # Also after a crash: what was verified then may be missing now.
            check_listing(data, receipt, directory / DATA_LATE)
            self._refuse_revoked(directory, receipt.batch_id)
            if receipt.late_rows:
                move_late_rows(data, directory / DATA_LATE)
            data.rename(target)
        except (FileNotFoundError, StagedOutputUnusableError) as error:
            if self._is_published(target, receipt):
                return
            self._refuse_revoked(directory, receipt.batch_id)
            if not data.exists():
                raise OutputConflictError(
                    f"batch {receipt.batch_id}: neither its staged files ({data}) nor its published ones ({target}) "
                    f"exist. They were removed; no offset was moved. Either {put_back}."
                ) from error
            if isinstance(error, FileNotFoundError):
                raise
            raise OutputConflictError(
                f"{error}; they were intact when the commit began. Nothing was published and no offset was moved. "
                f"Either {put_back}."
            ) from error

    def revoke(self, place: Place, batch_id: UUID) -> None:
        # Publishing renames the same source, so exactly one of the two wins.
        directory = local(place)
        targets = self._directory.place_of(batch_id), directory / DATA_PUBLISHED
        revoked = directory / DATA_REVOKED
        with storage_errors(directory):
            self._staging.check_mounted()
            self._refuse_published(directory, batch_id)
            make_directory_durably(directory)
            try:
                (directory / DATA).rename(revoked)
            except FileNotFoundError:
                if any(map(os.path.lexists, targets)):
                    raise published_already(batch_id) from None
                revoked.mkdir(exist_ok=True)  # the files were removed, or this was done before
            except OSError as error:
                if error.errno not in {errno.ENOTEMPTY, errno.EEXIST}:
                    raise
                # Done before; a late Spark task created the source again.
            # Again: the renamed files may have been such a task's, and the batch's files published just before.
            self._refuse_published(directory, batch_id)
            if (directory / DATA_LATE).exists():
                move_late_rows(directory / DATA_LATE, revoked)
            sync(directory)
            self._receipts.withdraw(batch_id)

    def _refuse_published(self, directory: Path, batch_id: UUID) -> None:
        kept = self._receipts.receipt(batch_id)
        if kept is None:
            return  # it is kept before anything is published
        target, names = self._target(directory, kept), {file.name for file in kept.files if not file.is_late}
        if names & batch_sizes(target, kept).keys() or (not names and (target.exists() or not directory.exists())):
            raise published_already(batch_id)

    def _refuse_revoked(self, directory: Path, batch_id: UUID) -> None:
        if (directory / DATA_REVOKED).exists() or self._receipts.is_withdrawn(batch_id):
            raise being_abandoned(batch_id)

    def _is_published(self, target: Path, receipt: Receipt) -> bool:
        # Check first: a rename onto an empty directory would succeed.
        if not os.path.lexists(target):
            return False
        if target.is_symlink() or not target.is_dir():
            raise OutputConflictError(
                f"batch {receipt.batch_id} is to be published as {target}, which exists and is not a directory. "
                "Nothing was moved; move it elsewhere and run the commit again."
            )
        expected = {file.name: file.size_bytes for file in receipt.files if not file.is_late}
        found = batch_sizes(target, receipt)
        if expected and found.items() > expected.items():
            raise OutputConflictError(
                f"batch {receipt.batch_id} is published as {target}, which also has other files: "
                f"{difference(expected, found)}. Readers see them, and no offset was moved. Remove those that are not "
                "in the receipt, and run the commit again."
            )
        if found != expected:
            raise OutputConflictError(
                f"batch {receipt.batch_id} is to be published as {target}, which exists with other content: "
                f"{difference(expected, found)}. Nothing was moved into it; move it elsewhere and run the commit again."
            )
        return True


def move_late_rows(source: Path, target: Path) -> None:
    """Move the folder of late rows from one directory into another; does nothing where that was done."""
    make_directory_durably(target)
    with contextlib.suppress(FileNotFoundError):
        (source / LATE_FOLDER).rename(target / LATE_FOLDER)
    sync(target)


def check_no_table(output: Path) -> None:
    """Raise OutputNotUsableError where a Delta table is: its clean-up would delete files that its log does not name."""
    if os.path.lexists(output / "_delta_log"):
        raise OutputNotUsableError(
            f"expected {output} to hold Parquet files alone, found a Delta table, whose VACUUM would delete them. Set "
            "sink.format: delta, or give the feed another sink.path."
        )


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
            make_directory_durably(self._removed)
            # What an earlier try moved there is of the same batch, and to be deleted all the same.
            if target.is_dir() and hidden.exists():
                shutil.rmtree(hidden)
            with contextlib.suppress(FileNotFoundError):
                target.rename(hidden)
            sync(self._removed)
            if directory.output.is_dir():
                sync(directory.output)
            if (late := directory.late_place_of(batch_id)).is_dir():
                if (hidden / LATE_FOLDER).exists():
                    shutil.rmtree(hidden / LATE_FOLDER)
                move_late_rows(late, hidden)
                late.rmdir()
                sync(late.parent)

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
        directory, aside = self._directory, self.aside(batch_id)
        with storage_errors(directory.place_of(batch_id)):
            directory.staging.check_mounted()
            for name in names:
                source, hidden = directory.file(batch_id, name), aside / name
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
