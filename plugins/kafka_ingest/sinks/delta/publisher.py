"""Publish in a Delta table: one commit adds a batch's files and its mark; an empty one with another mark revokes it."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from uuid import UUID

from kafka_ingest.errors import OutputConflictError, OutputNotUsableError, StagedOutputUnusableError
from kafka_ingest.foundation.s3_access import S3Access
from kafka_ingest.foundation.storage import flush, names_in, opened
from kafka_ingest.model.batch import DataNeeds
from kafka_ingest.model.place import Place, below
from kafka_ingest.model.published_output import FilesState, FoundFiles, PublishedReceipt
from kafka_ingest.model.receipt import Receipt
from kafka_ingest.sinks.delta.library import check_installed
from kafka_ingest.sinks.delta.parts import DeltaParts
from kafka_ingest.sinks.delta.places import LOG
from kafka_ingest.sinks.delta.staged_age import check_safe_from_clean_up
from kafka_ingest.sinks.delta.table_log import Mark, TableLog
from kafka_ingest.sinks.delta.table_rows import TableRows
from kafka_ingest.sinks.publish_or_revoke import being_abandoned, how_to_abandon, published_already
from kafka_ingest.sinks.staged_parquet import check_listing, folders_of
from kafka_ingest.sinks.storage_errors import storage_errors
from kafka_ingest.sinks.usable_places import make_usable


class DeltaPublisher:
    """Makes batches visible in a Delta table in a directory, or in a store."""

    def __init__(self, parts: DeltaParts) -> None:
        self._output = parts.output
        self._beside = parts.beside
        self._staging = parts.staging
        self._data = parts.data
        self._receipts = parts.receipts
        self._archive = parts.archive
        self._log = parts.log
        self._parts = parts

    def prepare(self) -> None:
        """Make the directories of table, staging and receipts; an existing table must be one that can be written."""
        check_installed()
        with storage_errors(self._output):
            make_usable(
                self._output,
                (self._beside, self._staging.folder, self._beside / "receipts"),
                self._parts.access,
            )
            check_no_other_files(self._output, self._log, self._parts.access)
            self._log.check_writable()

    def known_batches(self, since: UUID | None = None) -> list[str]:
        """Return the ids of the batches that were ever published here, oldest first; ``since``: from this id on.

        With ``since`` by the receipts: each is kept before its batch is committed to the table. Without it also by the
        table's files, so that a lost receipt shows.
        """
        with storage_errors(self._beside):
            kept = self._receipts.batch_ids(since)
        if since is not None or not self._log.is_there():
            return sorted(kept)
        with storage_errors(self._output):
            return sorted(kept | self._parts.rows().batches_of_files())

    def published_receipts(self) -> Iterator[PublishedReceipt]:
        """Return all that was ever published here, oldest first, with what the table has of it now.

        Raises OutputConflictError on a receipt that cannot be read: nothing else shows which offsets the batch holds.
        """
        names = self.known_batches()
        with storage_errors(self._output):
            rows = self._parts.rows() if names else None
        for name in names:
            published = self._archive.published_named(name)
            removal = self._archive.removal(published.plan.batch_id)
            if removal is not None or rows is None:
                files = FoundFiles(FilesState.EXPIRED, str(removal))
            else:
                with storage_errors(self._output):
                    files = self._found(rows, published.receipt)
            yield replace(published, files=files, removal=removal)

    def _found(self, rows: TableRows, receipt: Receipt) -> FoundFiles:
        place = self._parts.place_of(receipt)
        return rows.found(receipt, below(place, self._output), self._parts.opened(place))

    def data_needs(self, directory: Place) -> DataNeeds:
        """Return that Spark writes to the files' final place, with their batch's id in each row."""
        check_installed()
        return DataNeeds(self._data.place(directory), batch_column=True)

    def can_take(self, directory: Place, receipt: Receipt) -> None:
        """Check before COMMITTING whether table and files fit each other; the library itself checks neither."""
        from kafka_ingest.sinks.delta.add_actions import check_files  # noqa: PLC0415 - a third of a second, for commits only

        batch_id = receipt.batch_id
        with storage_errors(self._output):
            self._staging.check_mounted()
            self.prepare()
            if self._receipts.is_withdrawn(batch_id):
                raise being_abandoned(batch_id)
            if (mark := self._log.mark(batch_id)) is not None:
                raise OutputConflictError(
                    f"batch {batch_id} is WRITTEN, but the log of {self._output} says that it was {mark.name.lower()}. "
                    "Nothing was done. Were the control tables restored from an older backup?"
                )
            place = self._parts.opened(self._data.place(directory))
            check_listing(place, receipt)
            check_files(place, receipt)
            check_safe_from_clean_up([place / file.name for file in receipt.files], self._log.configuration())

    def publish(self, directory: Place, published: PublishedReceipt) -> None:
        """Keep the receipt, then add the files to the table in the commit that marks the batch as published."""
        receipt = published.receipt
        batch_id = receipt.batch_id
        with storage_errors(self._output):
            self._staging.check_mounted()
            if self._archive.removal(batch_id) is not None:
                return  # it was published, and removed since: older control tables may not know
            mark = self._log.mark(batch_id)
            if mark is Mark.REVOKED or self._receipts.is_withdrawn(batch_id):
                raise being_abandoned(batch_id)
            if mark is Mark.PUBLISHED and not self._receipts.is_kept(batch_id):
                raise OutputConflictError(
                    f"the log of {self._output} says that batch {batch_id} was published, but its receipt is not kept "
                    "beside it, so its plan is unknown. No offset was moved; restore the receipts from a backup."
                )
            # Where one is kept, this compares the two, by the plan's fingerprint among others.
            self._receipts.keep(published)
            if mark is None:
                mark = self._add(self._data.place(directory), published)
            if mark is Mark.REVOKED:
                raise being_abandoned(batch_id)
            self._log.sync()

    def _add(self, place: Place, published: PublishedReceipt) -> Mark:
        from kafka_ingest.sinks.delta.add_actions import add_actions  # noqa: PLC0415 - see above

        receipt, data = published.receipt, self._parts.opened(place)
        try:
            # Also after a crash: what was verified then may be missing now.
            check_listing(data, receipt)
            actions = add_actions(below(place, self._output), data, receipt) if receipt.files else []
        except StagedOutputUnusableError as error:
            mark = self._log.mark(receipt.batch_id)
            if mark is not None:
                return mark
            raise OutputConflictError(
                f"{error}; they were intact when the commit began. Nothing was published and no offset was moved. "
                f"Either restore them and run the commit again, or {how_to_abandon(receipt.batch_id)}."
            ) from error
        for folder in (*folders_of(data, receipt), data.parent, data.parent.parent):
            if receipt.files:
                flush(folder)
        return self._log.land(receipt.batch_id, Mark.PUBLISHED, actions, published.plan.fingerprint)

    def revoke(self, _directory: Place, batch_id: UUID, *, rows: int) -> None:
        """Mark a COMMITTING batch as never to be published; raises BatchStateError where it is published."""
        del rows  # the mark alone decides, also of a batch that has none
        with storage_errors(self._output):
            self._staging.check_mounted()
            if self._log.land(batch_id, Mark.REVOKED) is Mark.PUBLISHED:
                raise published_already(batch_id)
            self._log.sync()
            self._receipts.withdraw(batch_id)


def check_no_other_files(output: Place, log: TableLog, access: S3Access | None) -> None:
    """Raise OutputNotUsableError where a directory that is no table holds another output's files."""
    if isinstance(output, Path):
        if (output / LOG).exists() or not output.is_dir():
            return
    elif log.is_there():
        return
    names = names_in(opened(output, access))
    strange = next((name for name in names if name.endswith(".parquet") or "=" in name), None)
    if strange is not None:
        raise OutputNotUsableError(
            f"expected a Delta table in {output}, or an empty directory to make one in, found {strange}: files of "
            "another output, which VACUUM would delete. Give the feed another sink.path."
        )
