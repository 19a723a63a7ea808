"""What changes an Iceberg table, and what its rows show: its commits decide what was published, and what was revoked.

A commit carries a batch's mark (:mod:`.marks`) together with its files and a snapshot, so all are there or none. A
commit is bound to the snapshot that was the newest when the table was read: where another one came first, the catalog
refuses it. Revoking adds a snapshot, too, so that of a publisher and an operator exactly one wins. Importing this
imports pyiceberg and pyarrow.
"""

import logging
import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import TypeVar
from uuid import UUID

import pyarrow as pa
from pyiceberg.expressions import AlwaysTrue
from pyiceberg.io.pyarrow import parquet_file_to_data_file
from pyiceberg.manifest import DataFile
from pyiceberg.schema import Schema
from pyiceberg.table import Table, TableProperties
from pyiceberg.utils.concurrent import ExecutorFactory
from pyiceberg.utils.properties import property_as_bool

from kafka_ingest.errors import ColumnsChangedError, OutputNotUsableError, OutputUnavailableError
from kafka_ingest.foundation.storage import Opened
from kafka_ingest.model.read_again import ReplacedRange
from kafka_ingest.model.written_columns import BATCH_COLUMN
from kafka_ingest.sinks.iceberg.added_files import added_files, check_filed, differences_of_file, schema_of
from kafka_ingest.sinks.iceberg.catalog_settings import brief, is_a_failure
from kafka_ingest.sinks.iceberg.columns import RAW, listed, misfits, own_fields
from kafka_ingest.sinks.iceberg.marks import MOST, PROOF_KEY, STAY, OlderMarks, key_of, marks_in, text_of
from kafka_ingest.sinks.iceberg.one_try import OneTry, drop_old_snapshots
from kafka_ingest.sinks.iceberg.places import NOT_IN_NAMES
from kafka_ingest.sinks.iceberg.table import IcebergTable, create, names_of
from kafka_ingest.sinks.iceberg.table_rows import IcebergRows, of_batch
from kafka_ingest.sinks.tables.decoded_columns import is_own, last_names, refuse_misfits, wrong_names
from kafka_ingest.sinks.tables.replaced_rows import ReplacedRows
from kafka_ingest.sinks.tables.staged_checks import check_files, footer, partition_values, schema_of_files
from kafka_ingest.sinks.tables.table_format import REMOVED_KEY, CleanUp, Mark, ReplacedFile, Staged

log = logging.getLogger(__name__)

Done = TypeVar("Done")

TRIES = 10
LONGEST_PAUSE_S = 0.2

ORPHANS = CleanUp("remove_orphan_files", 2 * 86_400.0)
"""It deletes files that no snapshot names and that are older than three days, unless it is asked for another age."""


class IcebergCommits:
    """The commits to one table, and its rows."""

    def __init__(self, table: IcebergTable, older: OlderMarks) -> None:
        self.says = f"the marks of {table} say"
        self._table = table
        self._older = older

    def mark(self, batch_id: UUID) -> Mark | None:
        return self.rows().mark(batch_id)

    def rows(self) -> IcebergRows:
        return self._rows_of(self._table.open())

    def _rows_of(self, table: Table | None) -> IcebergRows:
        return IcebergRows(self._table.output, table, self._table.settings, self._older)

    def clean_up(self) -> CleanUp:
        return ORPHANS

    def check_can_remove(self, *, replacing: bool = False) -> None:
        del replacing  # a file that holds other rows, too, is refused when it is found
        self._table.check_writable()

    def replaced_files(self, replaced: Sequence[ReplacedRange]) -> Iterator[ReplacedFile]:
        for _, file in self.rows().files_with(ReplacedRows.of(replaced)):
            self._check_leaves(file)
            yield file

    def check_files(self, staged: Staged) -> None:
        form, unknown = self._table.form, self._table.columns_left_out()

        def differences(found: pa.Schema) -> Iterator[str]:
            return differences_of_file(found, form, unknown)

        check_files(staged.data, staged.receipt, differences, form.partition_by, alike=form.decoded)
        if (columns := self._columns_of(staged)) is not None:
            self._check_columns(self._table.open(), columns)

    def _columns_of(self, staged: Staged) -> Schema | None:
        """Return the columns of files of decoded records; None of raw ones, and where there are no files.

        Raises ColumnsChangedError for a type that Iceberg has not.
        """
        files = schema_of_files(staged.data, staged.receipt) if self._table.form.decoded else None
        try:
            return None if files is None else schema_of(files)
        except ValueError as error:
            raise ColumnsChangedError(f"{self._table}: expected fields of other types, found {error}") from error

    def _check_columns(self, table: Table | None, columns: Schema) -> None:
        """Raise ColumnsChangedError where files with these columns would be misread in the table as it was read."""
        there, found = {} if table is None else listed(table.schema()), listed(columns)
        wrong = [*wrong_names(last_names(found), NOT_IN_NAMES), *(misfits(table, found) if table is not None else ())]
        refuse_misfits(str(self._table), there, found, wrong)

    def _check_leaves(self, file: ReplacedFile) -> None:
        """Raise OutputNotUsableError where other rows of a file would have to be copied: see :meth:`delete_rows`."""
        if file.stays:
            raise OutputNotUsableError(
                f"{self._table}: expected files with rows of these ranges alone, found {file.path}, which holds other "
                "rows, too, and the library would not copy those unchanged. Nothing was changed. Replace all ranges of "
                "the batch in one chunk. Where another program has put several batches into one file, delete the old "
                f"rows by {BATCH_COLUMN} with an engine that copies the others, such as Spark, and run this again."
            )

    def land(self, mark: Mark, staged: Staged | None = None, replaced: Sequence[ReplacedRange] = ()) -> Mark:
        """Commit as the port says; raises OutputNotUsableError where a file with replaced rows holds others, too."""
        terms, columns = self._table.form.partition_by, self._columns_of(staged) if staged is not None else None
        wanted = ReplacedRows.of(replaced) if replaced else None
        # By their names relative to the table's place.
        files = (
            {f"{staged.folder}/{each.name}": staged.data / each.name for each in staged.receipt.files} if staged else {}
        )
        partitions = {
            name: partition_values(path, footer(path), terms, own_columns=False) if terms else ()
            for name, path in files.items()
        }

        def add(table: Table, change: OneTry) -> None:
            summary = {"kafka_ingest.batch_id": str(mark.batch_id), "kafka_ingest.outcome": mark.outcome.value}
            summary |= {PROOF_KEY: mark.proof} if mark.proof else {}
            if columns is not None:
                self._check_columns(table, columns)
            if files:
                self._add_columns(table, change, columns)
            places = {f"{table.location().rstrip('/')}/{name}": values for name, values in partitions.items()}
            by_place = dict(zip(places, files.values(), strict=True))
            if wanted is not None:
                self._overwrite(table, change, by_place, wanted, summary)
            elif files:
                self._append(table, change, by_place, summary)
            else:
                with change.update_snapshot(snapshot_properties=summary).fast_append():
                    pass
            if files and terms and (snapshot := change.table_metadata.current_snapshot()) is not None:
                check_filed(snapshot, table.io, places, terms)
            # These last: what came before was computed on the table as it was read, without a copy of it.
            if leaving := self._marks_to_remove(table):
                change.remove_properties(*leaving)
            change.set_properties({key_of(mark.batch_id): text_of(mark)})

        def done(table: Table) -> Mark | None:
            return self._rows_of(table).mark(mark.batch_id)

        landed = self._commit(f"to commit batch {mark.batch_id}", lambda: self._open_or_create(columns), done, add)
        self._drop_old_snapshots()
        return landed

    def _drop_old_snapshots(self) -> None:
        """Keep the metadata small; the batch does not depend on it: where it fails, a later one tries it again."""
        try:
            if (table := self._table.open()) is not None:
                drop_old_snapshots(table)
        except Exception as error:
            if not is_a_failure(error) and not isinstance(error, OutputUnavailableError):
                raise
            cause = brief(error, self._table.settings).partition(". No offset was moved")[0]
            log.warning("Old snapshots may have stayed in %s: %s. A later commit tries it again.", self._table, cause)
        self._table.read_again()

    def _add_columns(self, table: Table, change: OneTry, columns: Schema | None) -> None:
        """Add what the table lacks, in the same commit; where it has a mapping of names, that gets these, too."""
        own = [field.name for field in own_fields(self._table.form)]
        missing = self._table.form.to_add(own, names_of(table))
        more = columns is not None and not listed(columns).keys() <= listed(table.schema()).keys()
        if not (missing or more):
            return
        with change.update_schema() as update:
            for column in missing:
                update.add_column(column, RAW.find_type(column))
            if columns is not None and more:
                update.union_by_name(Schema(*(field for field in columns.fields if not is_own(field.name))))

    def _append(self, table: Table, change: OneTry, files: Mapping[str, Opened], summary: dict[str, str]) -> None:
        """Add files in one snapshot, as the library does; those of decoded records with bounds that hold for all rows.

        That no snapshot has them follows from the mark, which is not there.
        """
        added = self._entries(table, change, files)
        update = change.update_snapshot(snapshot_properties=summary)
        with update.merge_append() if merges(table) else update.fast_append() as append:
            for data_file in added:
                append.append_data_file(data_file)

    def _entries(self, table: Table, change: OneTry, files: Mapping[str, Opened]) -> list[DataFile]:
        set_mapping(change)
        if self._table.form.decoded:
            return added_files(table.io, change.table_metadata, files)
        entry = partial(parquet_file_to_data_file, table.io, change.table_metadata)
        return list(ExecutorFactory.get_or_create().map(entry, files))

    def _overwrite(
        self, table: Table, change: OneTry, files: Mapping[str, Opened], wanted: ReplacedRows, summary: dict[str, str]
    ) -> None:
        """Add files and take others out, in one snapshot, as the library's own overwriting does with new ones."""
        leaving = list(self._rows_of(table).files_with(wanted))
        for _, file in leaving:
            self._check_leaves(file)
        added = self._entries(table, change, files)
        with change.update_snapshot(snapshot_properties=summary).overwrite() as update:
            # In which manifests the files are looked for; without it, in those without partitions, in none.
            update.delete_by_predicate(AlwaysTrue())
            for data_file, _ in leaving:
                update.delete_data_file(data_file)
            for data_file in added:
                update.append_data_file(data_file)

    def delete_rows(self, batch_id: UUID) -> None:
        """Take its files out; raises OutputNotUsableError where a compaction has put its rows into others' files.

        PyIceberg 0.12.0 reads a null list of headers as an empty one, so it must not copy other batches' rows.
        """

        def delete(table: Table, change: OneTry) -> None:
            alone, shared = self._rows_of(table).files_with_rows_of(batch_id)
            if shared:
                raise OutputNotUsableError(
                    f"{self._table}: another program has put rows of batch {batch_id} into files with rows of other "
                    f"batches, such as {shared[0]}, and the library would not copy those unchanged. Delete the rows "
                    f"whose {BATCH_COLUMN} is {batch_id} with an engine that does, such as Spark. The batch is "
                    "recorded as removed; run this again then."
                )
            summary = {REMOVED_KEY: str(batch_id)}
            with change.update_snapshot(snapshot_properties=summary).overwrite() as update:
                update.delete_by_predicate(of_batch(batch_id))
                for file in alone:
                    update.delete_data_file(file)

        def done(table: Table) -> bool | None:
            return None if self._rows_of(table).is_visible(batch_id) else True

        table = self._table.open()
        if table is not None:
            self._commit(f"to delete the rows of batch {batch_id}", self._open_or_create, done, delete)

    def make_durable(self) -> None:
        """Do nothing: all that a catalog names was flushed before (:mod:`.table_io`), or put into the store."""

    def _commit(
        self,
        what: str,
        opened: Callable[[], Table],
        done: Callable[[Table], Done | None],
        stage: Callable[[Table, OneTry], None],
    ) -> Done:
        """Read the table, look whether it is done, try once; after any failure, again.

        Each try is bound to the reading that ``done`` was given.
        """
        failure: Exception | None = None
        for number in range(TRIES + 1):
            table = opened()
            if (found := done(table)) is not None:
                return found
            if number == TRIES:
                break
            self._table.check_fits(table)
            try:
                change = OneTry(table)
                stage(table, change)
                change.commit_once()
            except Exception as error:
                if not is_a_failure(error):
                    raise
                failure = error
                pause(number)
            self._table.read_again()
        raise OutputUnavailableError(
            f"{self._table}: {TRIES} tries {what} failed, and the table does not have it: "
            f"{brief(failure, self._table.settings)}. No offset was moved; run this again."
        )

    def _marks_to_remove(self, table: Table) -> list[str]:
        """Return the oldest marks' properties where there are many, after keeping the marks beside the table."""
        marks = list(marks_in(table.properties).values())
        if len(marks) < MOST:
            return []
        for mark in marks[:-STAY]:
            self._older.keep(mark)
        return [key_of(mark.batch_id) for mark in marks[:-STAY]]

    def open_or_create(self, staged: Staged) -> None:
        """Make the table for staged files, where it is not there."""
        self._open_or_create(self._columns_of(staged))

    def _open_or_create(self, columns: Schema | None = None) -> Table:
        failure: Exception | None = None
        for number in range(TRIES):
            if (table := self._table.open()) is not None:
                return table
            try:
                create(self._table, columns)
            except Exception as error:
                if not is_a_failure(error):
                    raise
                failure = error  # another committer may have made it, or its namespace
                pause(number)
        if (made := self._table.open()) is not None:
            return made
        raise OutputUnavailableError(
            f"{self._table} could not be made: {brief(failure, self._table.settings)}. No offset was moved; run this "
            "again."
        )


def set_mapping(change: OneTry) -> None:
    """Let names lead to the table's fields where nothing does: files that Spark writes have no ids of them."""
    if change.table_metadata.name_mapping() is None:
        mapping = change.table_metadata.schema().name_mapping.model_dump_json()
        change.set_properties({TableProperties.DEFAULT_NAME_MAPPING: mapping})


def merges(table: Table) -> bool:
    name, default = TableProperties.MANIFEST_MERGE_ENABLED, TableProperties.MANIFEST_MERGE_ENABLED_DEFAULT
    return property_as_bool(table.properties, name, default)


def pause(number: int) -> None:
    """Wait after a failed try, a little longer each time; by chance, so that rivals do not keep in step."""
    time.sleep(random.uniform(0, LONGEST_PAUSE_S * (number + 1)))  # noqa: S311 - no secret
