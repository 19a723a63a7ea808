"""Publish in an Iceberg table: one commit adds a batch's files and its mark; an empty one with another mark revokes."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from uuid import UUID

from kafka_ingest.errors import OutputConflictError, OutputNotUsableError, StagedOutputUnusableError
from kafka_ingest.foundation.storage import flush
from kafka_ingest.model.batch import DataNeeds
from kafka_ingest.model.place import Place, local
from kafka_ingest.model.published_output import FilesState, FoundFiles, PublishedReceipt
from kafka_ingest.model.receipt import Receipt
from kafka_ingest.sinks.iceberg.library import check_installed
from kafka_ingest.sinks.iceberg.marks import Mark, Outcome
from kafka_ingest.sinks.iceberg.parts import IcebergParts
from kafka_ingest.sinks.iceberg.places import BATCHES, DATA, METADATA, NOT_IN_LOCATIONS
from kafka_ingest.sinks.iceberg.staged_age import check_safe_from_clean_up
from kafka_ingest.sinks.publish_or_revoke import being_abandoned, how_to_abandon, published_already
from kafka_ingest.sinks.staged_parquet import check_listing, folders_of
from kafka_ingest.sinks.storage_errors import storage_errors
from kafka_ingest.sinks.usable_places import make_usable


class IcebergPublisher:
    """Makes batches visible in an Iceberg table in a local or mounted directory."""

    def __init__(self, parts: IcebergParts) -> None:
        self._parts = parts
        self._output = parts.output
        self._staging = parts.staging
        self._receipts = parts.receipts

    def prepare(self) -> None:
        """Make the directories of table, staging and receipts; an existing table must be one that can be written."""
        check_usable(self._parts)
        with storage_errors(self._output):
            beside = self._parts.beside
            make_usable(self._output, (beside, local(self._staging.folder), self._receipts.folder))

    def known_batches(self, since: UUID | None = None) -> list[str]:
        """Return the ids of the batches that were ever published here, oldest first; ``since``: from this id on.

        With ``since`` by the receipts: each is kept before its batch is committed to the table. Without it also by the
        table's marks and files, so that a lost receipt shows.
        """
        with storage_errors(self._receipts.folder):
            kept = self._receipts.batch_ids(since)
        if since is not None:
            return sorted(kept)
        with storage_errors(self._output):
            return sorted(kept | self._parts.table.rows().published())

    def published_receipts(self) -> Iterator[PublishedReceipt]:
        """Return all that was ever published here, oldest first, with what the table has of it now.

        Raises OutputConflictError on a receipt that cannot be read: nothing else shows which offsets the batch holds.
        """
        names = self.known_batches()
        with storage_errors(self._output):
            rows = self._parts.table.rows() if names else None
        for name in names:
            published = self._parts.archive.published_named(name)
            removal = self._parts.archive.removal(published.plan.batch_id)
            if removal is not None or rows is None:
                files = FoundFiles(FilesState.EXPIRED, str(removal))
            else:
                with storage_errors(self._output):
                    files = rows.found(published.receipt, self._parts.place_of(published.receipt))
            yield replace(published, files=files, removal=removal)

    def data_needs(self, directory: Place) -> DataNeeds:
        """Return that Spark writes to the files' final place, with their batch's id in each row."""
        check_installed()
        return DataNeeds(self._parts.data_of(directory), batch_column=True)

    def can_take(self, directory: Place, receipt: Receipt) -> None:
        """Check before COMMITTING whether table and files fit each other."""
        check_installed()
        from kafka_ingest.sinks.iceberg.staged_checks import check_files  # noqa: PLC0415 - see .library

        batch_id = receipt.batch_id
        with storage_errors(self._output):
            self._staging.check_mounted()
            self.prepare()
            if self._receipts.is_withdrawn(batch_id):
                raise being_abandoned(batch_id)
            if (mark := self._parts.table.mark(batch_id)) is not None:
                raise OutputConflictError(
                    f"batch {batch_id} is WRITTEN, but the marks of {self._parts.table} say that it was "
                    f"{mark.outcome.value}. Nothing was done. Were the control tables restored from an older backup?"
                )
            place = self._parts.data_of(directory)
            check_listing(place, receipt)
            check_files(place, receipt)
            check_safe_from_clean_up(place / file.name for file in receipt.files)

    def publish(self, directory: Place, published: PublishedReceipt) -> None:
        """Keep the receipt, then add the files to the table in the commit that marks the batch as published."""
        batch_id = published.receipt.batch_id
        with storage_errors(self._output):
            self._staging.check_mounted()
            if self._parts.archive.removal(batch_id) is not None:
                return  # it was published, and removed since: older control tables may not know
            mark = self._parts.table.mark(batch_id)
            if (mark is not None and mark.outcome is Outcome.REVOKED) or self._receipts.is_withdrawn(batch_id):
                raise being_abandoned(batch_id)
            if mark is not None and not self._receipts.is_kept(batch_id):
                raise OutputConflictError(
                    f"the marks of {self._parts.table} say that batch {batch_id} was published, but its receipt is not "
                    "kept beside it, so its plan is unknown. No offset was moved; restore the receipts from a backup."
                )
            # Where one is kept, this compares the two, by the plan's fingerprint among others.
            self._receipts.keep(published)
            if mark is None:
                mark = self._add(self._parts.data_of(directory), published)
            if mark.outcome is Outcome.REVOKED:
                raise being_abandoned(batch_id)
            if mark.fingerprint != published.plan.fingerprint:
                raise OutputConflictError(
                    f"{self._parts.table}: expected batch {batch_id} published by plan {published.plan.fingerprint}, "
                    f"found plan {mark.fingerprint}. No offset was moved; find what else writes to this table."
                )

    def _add(self, data: Path, published: PublishedReceipt) -> Mark:
        receipt = published.receipt
        try:
            # Also after a crash: what was verified then may be missing now, or nearly so old that it soon is.
            check_listing(data, receipt)
            check_safe_from_clean_up(data / file.name for file in receipt.files)
        except StagedOutputUnusableError as error:
            mark = self._parts.table.mark(receipt.batch_id)
            if mark is not None:
                return mark
            raise OutputConflictError(
                f"{error}; they were intact when the commit began. Nothing was published and no offset was moved. "
                f"Either restore them and run the commit again, or {how_to_abandon(receipt.batch_id)}."
            ) from error
        for folder in (*folders_of(data, receipt), data.parent, data.parent.parent, data.parent.parent.parent):
            if receipt.files:
                flush(folder)
        mark = Mark(receipt.batch_id, Outcome.PUBLISHED, published.plan.fingerprint)
        return self._parts.table.land(mark, [data / file.name for file in receipt.files])

    def revoke(self, _directory: Place, batch_id: UUID, *, rows: int) -> None:
        """Mark a COMMITTING batch as never to be published; raises BatchStateError where it is published."""
        del rows  # the mark alone decides, also of a batch that has none
        with storage_errors(self._output):
            self._staging.check_mounted()
            if self._parts.table.land(Mark(batch_id, Outcome.REVOKED)).outcome is Outcome.PUBLISHED:
                raise published_already(batch_id)
            self._receipts.withdraw(batch_id)


def check_usable(parts: IcebergParts) -> None:
    """Raise InstallationError without the library, OutputNotUsableError for an unusable table; creates nothing."""
    check_installed()
    if wrong := [character for character in str(parts.output) if character in NOT_IN_LOCATIONS]:
        raise OutputNotUsableError(
            f"expected a path without {' '.join(NOT_IN_LOCATIONS)}, which end the path in an Iceberg location, found "
            f"{wrong[0]!r} in {parts.output}. Give the feed another sink.path."
        )
    with storage_errors(parts.output):
        parts.table.check_writable()
        check_no_other_files(parts.output)


def check_no_other_files(output: Path) -> None:
    """Raise OutputNotUsableError where a directory that is no table holds another output's files."""
    if (output / METADATA).exists() or not output.is_dir():
        return
    names = [each.name for each in output.iterdir() if each.name != DATA]
    data = output / DATA
    names += [f"{DATA}/{each.name}" for each in data.iterdir() if each.name != BATCHES] if data.is_dir() else []
    strange = next((name for name in names if name.endswith(".parquet") or "=" in name or name == "_delta_log"), None)
    if strange is not None:
        raise OutputNotUsableError(
            f"expected an Iceberg table in {output}, or an empty directory to make one in, found {strange}: files of "
            "another output, which remove_orphan_files would delete. Give the feed another sink.path."
        )
