"""A Delta table as the shared roles of tables need it: its log decides (:mod:`.table_log`)."""

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import UUID

from kafka_ingest.errors import OutputNotUsableError
from kafka_ingest.foundation.storage import Opened, names_in, opened
from kafka_ingest.foundation.stores.access import StoreAccess
from kafka_ingest.model.place import Place, below
from kafka_ingest.model.receipt import Receipt
from kafka_ingest.model.replaced import ReplacedRange
from kafka_ingest.model.table_options import NO_TABLE_OPTIONS, TableOptions
from kafka_ingest.model.written_columns import WrittenColumns
from kafka_ingest.sinks.delta.columns import differences_of_file
from kafka_ingest.sinks.delta.library import check_installed
from kafka_ingest.sinks.delta.mended_statistics import DeltaStatistics
from kafka_ingest.sinks.delta.places import BATCHES, LOG, NOT_IN_PATHS
from kafka_ingest.sinks.delta.staged_age import check_safe_from_clean_up
from kafka_ingest.sinks.delta.table_log import TableLog
from kafka_ingest.sinks.delta.table_rows import DeltaRows
from kafka_ingest.sinks.tables.marks import Mark
from kafka_ingest.sinks.tables.output import ReplacedFile, TableReplacement

if TYPE_CHECKING:
    import pyarrow as pa

    from kafka_ingest.ports.outputs import Statistics
    from kafka_ingest.sinks.delta.decoded_columns import Fields
    from kafka_ingest.sinks.delta.log_entry import AddedFile


class DeltaOutput:
    """The table in a directory, or in a store that ``access`` leads to."""

    def __init__(
        self, output: Place, access: StoreAccess | None = None, options: TableOptions = NO_TABLE_OPTIONS
    ) -> None:
        self.output = output
        self.data_folder = output / BATCHES
        self.says = f"the log of {output} says"
        self.replacement: TableReplacement | None = self
        self._access = access
        self.options = options
        self.own_columns = any(term.is_of_time for term in options.partition_by)
        self._log = TableLog(output, access, options)
        self.statistics: Statistics | None = DeltaStatistics(self._log)

    def check_installed(self) -> None:
        """Raise InstallationError where the library is missing; imports nothing."""
        check_installed()

    def one_reading(self) -> AbstractContextManager[None]:
        """Read the whole log once within this; each further look reads what came since."""
        return self._log.one_reading()

    def check_usable(self) -> None:
        """Raise OutputNotUsableError where batches cannot be added to what is there; creates nothing."""
        if isinstance(self.output, Path) and (wrong := NOT_IN_PATHS.search(str(self.output))) is not None:
            raise OutputNotUsableError(
                "expected a path without '\\' and without '%' before two hexadecimal digits, which Delta's library "
                f"reads as another path, found {wrong[0]!r} in {self.output}. Give the feed another sink.path."
            )
        self._check_no_other_files()
        self._log.check_writable()

    def _check_no_other_files(self) -> None:
        """Raise OutputNotUsableError where a directory that is no table holds another output's files."""
        if isinstance(self.output, Path):
            if (self.output / LOG).exists() or not self.output.is_dir():
                return
        elif self._log.is_there():
            return
        names = names_in(opened(self.output, self._access))
        strange = next((name for name in names if name.endswith(".parquet") or "=" in name), None)
        if strange is not None:
            raise OutputNotUsableError(
                f"expected a Delta table in {self.output}, or an empty directory to make one in, found {strange}: "
                "files of another output, which VACUUM would delete. Give the feed another sink.path."
            )

    def check_can_remove(self) -> None:
        """Raise OutputNotUsableError on a table that cannot be written, or only appended to."""
        self._log.check_writable()
        if self._log.configuration().get("delta.appendOnly", "false").lower() == "true":
            raise OutputNotUsableError(
                f"{self.output}: expected a Delta table whose rows may be deleted, found delta.appendOnly=true. "
                "Nothing was changed; unset that property where rows are to be removed."
            )

    def mark(self, batch_id: UUID) -> Mark | None:
        """Return a batch's mark in the newest version, None where it has none."""
        return self._log.mark(batch_id)

    def rows(self) -> DeltaRows:
        """Return what the newest version holds."""
        return DeltaRows(self._log)

    def published(self) -> set[str]:
        """Return the ids of the batches that the table knows as published."""
        return self.rows().published()

    def columns_left_out(self) -> tuple[str, ...]:
        """Return the columns of the raw format that files leave out, since the table has no such columns."""
        return self._log.columns_left_out()

    def check_files(self, data: Opened, receipt: Receipt) -> None:
        """Raise StagedOutputUnusableError unless the files have the table's columns, and rows of this batch alone."""
        # A third of a second, for commits.
        from kafka_ingest.sinks.delta.file_columns import columns_of_files, schema_of  # noqa: PLC0415
        from kafka_ingest.sinks.tables.staged_checks import check_files  # noqa: PLC0415 - see above

        unknown = self._log.columns_left_out()

        def differences(found: "pa.Schema") -> list[str]:
            return list(differences_of_file(schema_of(found), self.options, unknown))

        terms, decoded = self.options.partition_by, self.options.decoded
        check_files(data, receipt, differences, terms, own_columns=self.own_columns, alike=decoded)
        if decoded:
            self._log.check_columns(columns_of_files(data, receipt))

    def columns(self, written: WrittenColumns) -> WrittenColumns:
        """Return the table's columns beside Kafka's own, as receipts list them; none where there is no table yet."""
        del written  # every type has a name of its own
        return self._log.columns()

    def misfits(self, written: WrittenColumns) -> Iterator[str]:
        """Yield which columns that are to be written the table cannot have, or has otherwise than by their type."""
        return self._log.misfits(written)

    def check_safe_from_clean_up(self, files: Sequence[Opened]) -> None:
        """Raise OutputUnavailableError where a VACUUM could take staged files."""
        if files:
            check_safe_from_clean_up(files, self._log.configuration())

    def check_can_replace(self) -> None:
        """Raise OutputNotUsableError on a table whose rows cannot be replaced."""
        self.check_can_remove()
        if self._log.configuration().get("delta.enableChangeDataFeed", "false").lower() == "true":
            raise OutputNotUsableError(
                f"{self.output}: expected a Delta table without a change data feed, found "
                "delta.enableChangeDataFeed=true: its readers would take rows that only move to another file for "
                "changed ones. Nothing was changed; unset that property, or copy the ranges elsewhere."
            )

    def replaced_files(self, replaced: Sequence[ReplacedRange]) -> Iterator[ReplacedFile]:
        """Yield the files with rows of some ranges."""
        from kafka_ingest.sinks.delta.replaced_files import replaced_files  # noqa: PLC0415 - see above
        from kafka_ingest.sinks.tables.replaced_rows import ReplacedRows  # noqa: PLC0415 - see above

        if self._log.is_there():
            yield from replaced_files(self.rows(), ReplacedRows.of(replaced))

    def publish(self, mark: Mark, data: Place, receipt: Receipt) -> Mark:
        """Commit a batch's mark with its files; return the first writer's mark."""
        return self._log.land(mark, self._added(data, receipt), columns=self._columns(data, receipt))

    def publish_in_place_of(self, replaced: Sequence[ReplacedRange], mark: Mark, data: Place, receipt: Receipt) -> Mark:
        """Commit a batch's mark with its files, and without the rows of some ranges; return the first writer's mark."""
        from kafka_ingest.sinks.delta.replaced_files import actions_for  # noqa: PLC0415 - see above
        from kafka_ingest.sinks.tables.replaced_rows import ReplacedRows  # noqa: PLC0415 - see above

        wanted, added, columns = ReplacedRows.of(replaced), self._added(data, receipt), self._columns(data, receipt)
        self.check_can_replace()
        return self._log.land(mark, added, lambda table: actions_for(DeltaRows(self._log, table), wanted), columns)

    def _columns(self, data: Place, receipt: Receipt) -> "Fields":
        """Return the columns of files of decoded records; none of raw ones, which have those of the raw format."""
        if not (receipt.files and self.options.decoded):
            return ()
        from kafka_ingest.sinks.delta.file_columns import columns_of_files  # noqa: PLC0415 - see above

        return columns_of_files(opened(data, self._access), receipt)

    def _added(self, data: Place, receipt: Receipt) -> "list[AddedFile]":
        if not receipt.files:
            return []
        from kafka_ingest.sinks.delta.add_actions import added_files  # noqa: PLC0415 - see above

        return added_files(below(data, self.output), opened(data, self._access), receipt, self.options.partition_by)

    def revoke(self, mark: Mark) -> Mark:
        """Commit the mark alone; return the first writer's mark."""
        return self._log.land(mark)

    def delete_rows(self, batch_id: UUID) -> None:
        """Delete a batch's rows in one commit; a file that OPTIMIZE made of several batches is rewritten without."""

        def is_visible() -> bool:
            rows = self.rows()
            rows.refuse_links_of(batch_id)  # the library reads them, and keeps what is not of the batch
            return rows.is_visible(batch_id)

        self._log.delete_rows(batch_id, is_visible)

    def make_durable(self) -> None:
        """Flush the log, which the library does not."""
        self._log.sync()
