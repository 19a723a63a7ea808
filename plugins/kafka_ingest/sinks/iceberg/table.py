"""One Iceberg table in a catalog: its commits decide what was published, and what was revoked.

A commit carries a batch's mark (:mod:`.marks`) together with its files and a snapshot, so all are there or none. A
commit is bound to the snapshot that was the newest when the table was read: where another one came first, the catalog
refuses it. Revoking adds a snapshot, too, so that of a publisher and an operator exactly one wins. Importing this
imports pyiceberg.
"""

import logging
import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property, partial
from typing import TypeVar
from uuid import UUID

from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError
from pyiceberg.expressions import AlwaysTrue
from pyiceberg.io.pyarrow import parquet_file_to_data_file
from pyiceberg.table import Table, TableProperties
from pyiceberg.typedef import EMPTY_DICT

from kafka_ingest.errors import OutputNotUsableError, OutputUnavailableError
from kafka_ingest.foundation.s3_access import S3Access
from kafka_ingest.foundation.storage import Opened, opened
from kafka_ingest.model.offsets import listing
from kafka_ingest.model.place import Place
from kafka_ingest.model.table_options import HOW_TO_TAKE_IT, NO_TABLE_OPTIONS, TableOptions
from kafka_ingest.sinks.iceberg.catalog_settings import CatalogSettings
from kafka_ingest.sinks.iceberg.catalogs import catalog_of
from kafka_ingest.sinks.iceberg.columns import RAW, RAW_NAMES
from kafka_ingest.sinks.iceberg.filed_partitions import check_filed
from kafka_ingest.sinks.iceberg.library_errors import brief, is_a_failure, named_errors
from kafka_ingest.sinks.iceberg.marks import MOST, STAY, OlderMarks, key_of, marks_in, text_of
from kafka_ingest.sinks.iceberg.old_snapshots import MAX_AGE_MS
from kafka_ingest.sinks.iceberg.one_try import OneTry, drop_old_snapshots
from kafka_ingest.sinks.iceberg.places import METADATA, location_of
from kafka_ingest.sinks.iceberg.table_fit import is_elsewhere, spec_of, was_committed_to, why_not_written
from kafka_ingest.sinks.iceberg.table_rows import IcebergRows, of_batch
from kafka_ingest.sinks.tables.batch_column import BATCH_COLUMN
from kafka_ingest.sinks.tables.file_partition import partition_values
from kafka_ingest.sinks.tables.marks import Mark
from kafka_ingest.sinks.tables.output import ReplacedFile
from kafka_ingest.sinks.tables.replaced_rows import ReplacedRows
from kafka_ingest.sinks.tables.staged_checks import footer

log = logging.getLogger(__name__)

Done = TypeVar("Done")

TRIES = 10
LONGEST_PAUSE_S = 0.2
PROPERTIES_OF_NEW = {
    "format-version": "2",
    "commit.manifest-merge.enabled": "true",
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "100",
    MAX_AGE_MS: str(5 * 86_400_000),
    f"write.metadata.metrics.column.{BATCH_COLUMN}": "full",
    "write.metadata.metrics.column.key": "counts",
    "write.metadata.metrics.column.value": "counts",
}
"""Metadata stays small under many small commits; batches are found by their whole ids, and payloads are in no bound."""


class IcebergTable:
    """The table of one output, by its catalog and name, in a directory, or in a store that ``access`` leads to."""

    def __init__(
        self,
        output: Place,
        settings: CatalogSettings,
        name: str,
        older: OlderMarks,
        access: S3Access | None = None,
        form: TableOptions = NO_TABLE_OPTIONS,
    ) -> None:
        self._output = output
        self._access = access
        self._settings = settings
        self._name = name
        self._older = older
        self._form = form
        self._keeps_reading = False
        self._kept: Table | None = None

    @cached_property
    def _catalog(self) -> Catalog:
        return catalog_of(self._settings, self._access)

    def __str__(self) -> str:
        """Return the table for a message."""
        return f"Iceberg table {self._name} in {self._output}"

    @contextmanager
    def one_reading(self) -> Iterator[None]:
        """Read the table once within this, until a try to commit fails: a try is bound to what was read."""
        self._keeps_reading = True
        try:
            yield
        finally:
            self._keeps_reading, self._kept = False, None

    def open(self) -> Table | None:
        """Return the table as it is now, or was when it was first read within one reading; None where there is none."""
        if self._kept is None:
            table = self._as_it_is()
            if not self._keeps_reading:
                return table
            self._kept = table
        return self._kept

    def _as_it_is(self) -> Table | None:
        table = self._loaded()
        if table is None:
            if not was_committed_to(opened(self._output / METADATA, self._access)):
                return None
            # Another committer may have made it since, and committed to it.
            if (table := self._loaded()) is None:
                raise OutputUnavailableError(
                    f"the catalog of connection {self._settings.conn_id!r} knows no table {self._name}, but "
                    f"{self._output / METADATA} shows that one was written. Is it the right catalog? Nothing was done "
                    "and no offset was moved. Register the table's newest metadata file in the catalog, or correct "
                    "sink.catalog and sink.table; if it was dropped on purpose, give the feed another sink.path."
                )
        if is_elsewhere(table, self._output):
            raise OutputNotUsableError(
                f"expected the Iceberg table {self._name} in {self._output}, found it at {table.location()}. Nothing "
                "was written and no offset was moved. Set sink.path to the table's location, or sink.table to another."
            )
        return table

    def _loaded(self) -> Table | None:
        """Return the table as the catalog has it now, None where it has none."""
        with named_errors(str(self), self._settings):
            try:
                return self._catalog.load_table(self._name)
            except (NoSuchTableError, NoSuchNamespaceError):
                return None

    def mark(self, batch_id: UUID) -> Mark | None:
        """Return a batch's mark, None where it has none."""
        return self.rows().mark(batch_id)

    def check_writable(self) -> None:
        """Raise OutputNotUsableError where batches cannot be added to an existing table."""
        if (table := self.open()) is not None:
            self._check_fits(table)

    def columns_left_out(self) -> tuple[str, ...]:
        """Return the columns of the raw format that files leave out, since the table has no such columns."""
        if not self._form.may_lack or (table := self.open()) is None:
            return ()
        return self._form.left_out(names_of(table))

    def rows(self) -> IcebergRows:
        """Return what the table holds now."""
        return self._rows_of(self.open())

    def _rows_of(self, table: Table | None) -> IcebergRows:
        return IcebergRows(self._output, table, self._settings, self._older)

    def replaced_files(self, wanted: ReplacedRows) -> Iterator[ReplacedFile]:
        """Yield the files with rows that a batch replaces; raises OutputNotUsableError as :meth:`land` does."""
        for _, file in self.rows().files_with(wanted):
            self._check_leaves(file)
            yield file

    def _check_leaves(self, file: ReplacedFile) -> None:
        """Raise OutputNotUsableError where other rows of a file would have to be copied: see :meth:`delete_rows`."""
        if file.stays:
            raise OutputNotUsableError(
                f"{self}: expected files with rows of these ranges alone, found {file.path}, which holds other rows, "
                "too, and the library would not copy those unchanged. Nothing was changed. Replace all ranges of the "
                "batch in one chunk. Where another program has put several batches into one file, delete the old rows "
                f"by {BATCH_COLUMN} with an engine that copies the others, such as Spark, and run this again."
            )

    def land(self, mark: Mark, files: Mapping[str, Opened] = EMPTY_DICT, wanted: ReplacedRows | None = None) -> Mark:
        """Commit a batch's mark with its files, and return the mark that the batch then has: the first writer's.

        ``files`` by their names relative to the table's place. The files with rows that are ``wanted`` leave the table
        in the same snapshot. Raises OutputNotUsableError where one holds other rows, too, and
        StagedOutputUnusableError where a file's rows are not of the one partition that the table would say.
        """
        terms = self._form.partition_by
        partitions = {
            name: partition_values(path, footer(path), terms, own_columns=False) if terms else ()
            for name, path in files.items()
        }

        def add(table: Table, change: OneTry) -> None:
            summary = {"kafka_ingest.batch_id": str(mark.batch_id), "kafka_ingest.outcome": mark.outcome.value}
            if files and (missing := self._form.to_add(RAW_NAMES, names_of(table))):
                # In the same commit; where the table has a mapping of names, it gets these, too.
                with change.update_schema() as update:
                    for column in missing:
                        update.add_column(column, RAW.find_type(column))
            places = {f"{table.location().rstrip('/')}/{name}": values for name, values in partitions.items()}
            named = list(places)
            if wanted is not None:
                self._overwrite(table, change, named, wanted, summary)
            elif files:
                # That no snapshot has them follows from the mark, which is not there.
                change.add_files(named, snapshot_properties=summary, check_duplicate_files=False)
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

        landed = self._commit(f"to commit batch {mark.batch_id}", self._open_or_create, done, add)
        self._drop_old_snapshots()
        return landed

    def _drop_old_snapshots(self) -> None:
        """Keep the metadata small; the batch does not depend on it: where it fails, a later one tries it again."""
        try:
            if (table := self.open()) is not None:
                drop_old_snapshots(table)
        except Exception as error:
            if not is_a_failure(error) and not isinstance(error, OutputUnavailableError):
                raise
            cause = brief(error, self._settings).partition(". No offset was moved")[0]
            log.warning("Old snapshots may have stayed in %s: %s. A later commit tries it again.", self, cause)
        self._kept = None

    def _overwrite(
        self, table: Table, change: OneTry, named: Sequence[str], wanted: ReplacedRows, summary: dict[str, str]
    ) -> None:
        """Add files and take others out, in one snapshot, as the library's own overwriting does with new ones."""
        leaving = list(self._rows_of(table).files_with(wanted))
        for _, file in leaving:
            self._check_leaves(file)
        if change.table_metadata.name_mapping() is None:
            mapping = change.table_metadata.schema().name_mapping.model_dump_json()
            change.set_properties({TableProperties.DEFAULT_NAME_MAPPING: mapping})
        added = [parquet_file_to_data_file(table.io, change.table_metadata, path) for path in named]
        with change.update_snapshot(snapshot_properties=summary).overwrite() as update:
            # In which manifests the files are looked for; without it, in those without partitions, in none.
            update.delete_by_predicate(AlwaysTrue())
            for data_file, _ in leaving:
                update.delete_data_file(data_file)
            for data_file in added:
                update.append_data_file(data_file)

    def delete_rows(self, batch_id: UUID) -> None:
        """Take the files with a batch's rows out of the table in one commit; does nothing where there are none.

        Raises OutputNotUsableError where a file holds rows of other batches, too.
        """

        def delete(table: Table, change: OneTry) -> None:
            alone, shared = self._rows_of(table).files_with_rows_of(batch_id)
            if shared:
                raise OutputNotUsableError(
                    f"{self}: another program has put rows of batch {batch_id} into files with rows of other batches, "
                    f"such as {shared[0]}, and the library would not copy those unchanged. Delete the rows whose "
                    f"{BATCH_COLUMN} is {batch_id} with an engine that does, such as Spark. The batch is recorded as "
                    "removed; run this again then."
                )
            summary = {"kafka_ingest.removed_batch_id": str(batch_id)}
            with change.update_snapshot(snapshot_properties=summary).overwrite() as update:
                update.delete_by_predicate(of_batch(batch_id))
                for file in alone:
                    update.delete_data_file(file)

        def done(table: Table) -> bool | None:
            return None if self._rows_of(table).is_visible(batch_id) else True

        table = self.open()
        if table is not None:
            self._commit(f"to delete the rows of batch {batch_id}", self._open_or_create, done, delete)

    def _commit(
        self,
        what: str,
        opened: Callable[[], Table],
        done: Callable[[Table], Done | None],
        stage: Callable[[Table, OneTry], None],
    ) -> Done:
        """Read the table, look whether it is done, try once; after any failure, again.

        Each try is bound to the reading that ``done`` looked at.
        """
        failure: Exception | None = None
        for number in range(TRIES + 1):
            table = opened()
            if (found := done(table)) is not None:
                return found
            if number == TRIES:
                break
            self._check_fits(table)
            try:
                change = OneTry(table)
                stage(table, change)
                change.commit_once()
            except Exception as error:
                if not is_a_failure(error):
                    raise
                failure = error
                pause(number)
            self._kept = None
        raise OutputUnavailableError(
            f"{self}: {TRIES} tries {what} failed, and the table does not have it: {brief(failure, self._settings)}. "
            "No offset was moved; run this again."
        )

    def _marks_to_remove(self, table: Table) -> list[str]:
        """Return the oldest marks' properties where there are many, after keeping the marks beside the table."""
        marks = list(marks_in(table.properties).values())
        if len(marks) < MOST:
            return []
        for mark in marks[:-STAY]:
            self._older.keep(mark)
        return [key_of(mark.batch_id) for mark in marks[:-STAY]]

    def _open_or_create(self) -> Table:
        failure: Exception | None = None
        for number in range(TRIES):
            if (table := self.open()) is not None:
                return table
            try:
                self._create()
            except Exception as error:
                if not is_a_failure(error):
                    raise
                failure = error  # another committer may have made it, or its namespace
                pause(number)
        if (made := self.open()) is not None:
            return made
        raise OutputUnavailableError(
            f"{self} could not be made: {brief(failure, self._settings)}. No offset was moved; run this again."
        )

    def _create(self) -> None:
        """Make the table, with its namespace only where there is none: that may need another right."""
        make = partial(
            self._catalog.create_table,
            self._name,
            RAW,
            location=location_of(self._output),
            partition_spec=spec_of(self._form),
            properties={**PROPERTIES_OF_NEW, **dict(self._form.properties)},
        )
        try:
            make()
        except NoSuchNamespaceError:
            levels = self._name.split(".")[:-1]
            for number in range(1, len(levels) + 1):
                self._catalog.create_namespace_if_not_exists(".".join(levels[:number]))
            make()

    def _check_fits(self, table: Table) -> None:
        if problems := list(why_not_written(table, self._form)):
            lacks = f" {HOW_TO_TAKE_IT}" if set(RAW_NAMES) - set(names_of(table)) else ""
            raise OutputNotUsableError(
                f"{self}: expected a table that files of the raw format can be added to, found {listing(problems)}. "
                "Nothing was written and no offset was moved. Change the table, or give the feed another one; "
                f"docs/sinks.md says which tables can be used.{lacks}"
            )


def names_of(table: Table) -> list[str]:
    """Return the names of a table's columns."""
    return [field.name for field in table.schema().fields]


def pause(number: int) -> None:
    """Wait after a failed try, a little longer each time; by chance, so that rivals do not keep in step."""
    time.sleep(random.uniform(0, LONGEST_PAUSE_S * (number + 1)))  # noqa: S311 - no secret
