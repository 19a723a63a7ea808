"""What one snapshot of an Iceberg table holds of batches: files as published, or rows that others have rewritten.

A file below ``data/batches/`` that no delete file applies to holds one batch as it was published. Everything else is
read through the library, which applies deletes and finds columns by their ids. Importing this imports pyiceberg.
"""

from collections.abc import Iterable, Iterator
from functools import cached_property
from typing import TYPE_CHECKING, cast
from uuid import UUID

import pyarrow as pa
from pyiceberg.expressions import AlwaysTrue, And, BooleanExpression, EqualTo, Reference
from pyiceberg.expressions.literals import literal
from pyiceberg.io.pyarrow import ArrowScan
from pyiceberg.manifest import DataFile
from pyiceberg.table import FileScanTask, Table

from kafka_ingest.model.offsets import TopicPartition
from kafka_ingest.model.place import Place
from kafka_ingest.model.written_columns import BATCH_COLUMN, POSITION
from kafka_ingest.sinks.found_offsets import OFFSET, PARTS, FoundOffsets
from kafka_ingest.sinks.iceberg.catalog_settings import CatalogSettings, named_errors
from kafka_ingest.sinks.iceberg.marks import PROOF_KEY, OlderMarks, marks_in
from kafka_ingest.sinks.iceberg.places import BATCHES, DATA, comparable, location_of
from kafka_ingest.sinks.iceberg.table_io import check_inside
from kafka_ingest.sinks.tables.replaced_rows import ReplacedRows, read_to_replace, types_of
from kafka_ingest.sinks.tables.table_format import REMOVED_KEY, Mark, Outcome, OwnFiles, ReplacedFile, RowsOfTable

if TYPE_CHECKING:
    from kafka_ingest.sinks.iceberg.table_io import TableFileIO

NONE = types_of(POSITION).empty_table()


class IcebergRows(RowsOfTable):
    """One reading of the table; None where there is none. I/O errors are left to the caller.

    A question about one batch reads those manifests that may name it, one about all batches reads all, once.
    """

    are_newest_states = False

    def __init__(self, output: Place, table: Table | None, settings: CatalogSettings, older: OlderMarks) -> None:
        self._table = table
        self._settings = settings
        self._older = older
        # A table that was there may name its location by another name of the same directory.
        named = [location_of(output), *([table.location().rstrip("/")] if table is not None else [])]
        self._folders = [f"{each}/{DATA}/{BATCHES}/" for each in map(comparable, named) if each is not None]
        self._plans: dict[UUID, list[FileScanTask]] = {}

    @cached_property
    def _marks(self) -> dict[str, Mark]:
        return marks_in(self._table.properties) if self._table is not None else {}

    def mark(self, batch_id: UUID) -> Mark | None:
        # The folder of older marks is asked after the table was read: a mark is there before it leaves the table.
        return self._marks.get(str(batch_id)) or self._older.mark(batch_id)

    def published(self) -> set[str]:
        by_mark = {name for name, mark in self._marks.items() if mark.outcome is Outcome.PUBLISHED}
        return by_mark | {name for name in self._of_all if name}

    def visible(self, batch_ids: set[str]) -> set[str]:
        return batch_ids & (self._of_all.keys() | self.counted_elsewhere.keys())

    @cached_property
    def _of_all(self) -> dict[str, list[FileScanTask]]:
        """All files by the batch whose own they are; those that are none's, or not as they were published, at ''."""
        found: dict[str, list[FileScanTask]] = {"": []}
        for task in self._plan(AlwaysTrue()):
            name = "" if task.delete_files else (self._own_name(task) or "").partition("/")[0]
            found.setdefault(name, []).append(task)
        return found

    def own_files(self, batch_id: UUID, attempt: int) -> set[str]:
        below = f"{batch_id}/{attempt}/"
        names = (self._own_name(each) for each in self._planned(batch_id) if not each.delete_files)
        return {name.removeprefix(below) for name in names if name is not None and name.startswith(below)}

    @cached_property
    def own_files_of_all(self) -> OwnFiles:
        tasks = (task for name, found in self._of_all.items() if name for task in found)
        return OwnFiles(name for task in tasks if (name := self._own_name(task)) is not None)

    def names_files_of(self, batch_id: UUID, attempt: int) -> bool:
        """Whether readers see a file of an attempt, whatever else was deleted from it."""
        below = f"{batch_id}/{attempt}/"
        names = (self._own_name(each) for each in self._planned(batch_id))
        return any(name is not None and name.startswith(below) for name in names)

    def is_visible(self, batch_id: UUID) -> bool:
        planned = self._planned(batch_id)
        is_own = any(self._is_own(task, batch_id) for task in planned)
        return is_own or any(True for _ in self._read(planned, [BATCH_COLUMN], of_batch(batch_id)))

    def files_with_rows_of(self, batch_id: UUID) -> tuple[list[DataFile], list[str]]:
        """Return the files that hold rows of a batch alone, and the places of those that hold others' rows, too."""
        alone: list[DataFile] = []
        shared: list[str] = []
        for task in self._planned(batch_id):
            if (self._own_name(task) or "").startswith(f"{batch_id}/"):
                alone.append(task.file)
                continue
            pieces = self._read([task], [BATCH_COLUMN], AlwaysTrue())
            held = {name for piece in pieces for name in piece[BATCH_COLUMN].unique().to_pylist()}
            if held == {str(batch_id)}:
                alone.append(task.file)
            elif str(batch_id) in held:
                shared.append(task.file.file_path)
        return alone, shared

    def files_with(self, wanted: ReplacedRows) -> Iterator[tuple[DataFile, ReplacedFile]]:
        tasks = {task.file.file_path: task for each in wanted.batches for task in self._planned(each)}
        for path, task in sorted(tasks.items()):
            with named_errors("the table's rows", self._settings), read_to_replace(path):
                pieces = list(self._scan([task], [*POSITION, BATCH_COLUMN], AlwaysTrue()))
            leaving = pa.concat_tables(
                [each.filter(wanted.are(each)).select(list(POSITION)) for each in pieces] or [NONE]
            )
            if leaving.num_rows:
                rows = sum(each.num_rows for each in pieces)
                yield task.file, ReplacedFile(path, task.file.file_size_in_bytes, rows, leaving)

    def read_elsewhere(
        self, columns: list[str], batch_id: UUID | None = None, at: tuple[TopicPartition, int] | None = None
    ) -> Iterator[pa.Table]:
        if batch_id is None:
            return self._read(self._of_all[""], columns, AlwaysTrue())
        tasks = [each for each in self._planned(batch_id) if not self._is_own(each, batch_id)]
        wanted = of_batch(batch_id)
        if at is not None:
            log, offset = at
            of_log = And(equal("kafka_topic", log.topic), equal("kafka_partition", log.partition))
            wanted = And(wanted, of_log, equal("kafka_offset", offset))
        return self._read(tasks, columns, wanted)

    def said(self) -> Iterator[tuple[str | None, str | None]]:
        for snapshot in self._table.snapshots() if self._table is not None else ():
            summary = snapshot.summary.additional_properties if snapshot.summary is not None else {}
            yield summary.get(PROOF_KEY), summary.get(REMOVED_KEY)

    def add_to(self, found: FoundOffsets) -> None:
        if self._table is None:
            return
        columns = [name for name in (*PARTS, OFFSET) if name in self._table.schema().column_names]
        files = cast("TableFileIO", self._table.io)
        for batch, tasks in self._of_all.items():
            for task in tasks:
                name = task.file.file_path
                if batch:  # as it was published; the library takes five times as long
                    check_inside(name, files.properties)
                    found.add_file(name, files.opened(name), {})
                    continue
                with named_errors("the table's rows", self._settings), found.noted(name):
                    for piece in self._scan([task], columns, AlwaysTrue()):
                        found.add(name, piece, {})

    def _planned(self, batch_id: UUID) -> list[FileScanTask]:
        """Return the files that may hold rows of a batch; bounds may be shortened, so others may be there."""
        if batch_id not in self._plans:
            self._plans[batch_id] = self._plan(of_batch(batch_id))
        return self._plans[batch_id]

    @property
    def _has_batches(self) -> bool:
        """Whether a row can be a batch's: a table that is to get the column with the first commit has none."""
        return self._table is not None and BATCH_COLUMN in self._table.schema().column_names

    def _plan(self, wanted: BooleanExpression) -> list[FileScanTask]:
        if self._table is None or not self._has_batches:
            return []
        with named_errors("the table's files", self._settings):
            return list(self._table.scan(row_filter=wanted).plan_files())

    def _read(self, tasks: Iterable[FileScanTask], columns: list[str], wanted: BooleanExpression) -> Iterator[pa.Table]:
        with named_errors("the table's rows", self._settings):
            yield from self._scan(tasks, columns, wanted)

    def _scan(self, tasks: Iterable[FileScanTask], columns: list[str], wanted: BooleanExpression) -> Iterator[pa.Table]:
        """Yield rows a piece at a time; errors of the library are left to the caller."""
        chosen = list(tasks)
        if self._table is None or not chosen:
            return
        types = types_of(columns)
        projected = self._table.schema().select(*columns)
        scan = ArrowScan(self._table.metadata, self._table.io, projected, wanted)
        for batch in scan.to_record_batches(chosen):
            if batch.num_rows:
                yield pa.Table.from_batches([batch]).select(columns).cast(types)

    def _is_own(self, task: FileScanTask, batch_id: UUID) -> bool:
        name = self._own_name(task)
        return name is not None and name.startswith(f"{batch_id}/") and not task.delete_files

    def _own_name(self, task: FileScanTask) -> str | None:
        """Return a file's name below the folder of batches, None where it is elsewhere."""
        path = comparable(task.file.file_path) or ""
        return next((path.removeprefix(each) for each in self._folders if path.startswith(each)), None)


def of_batch(batch_id: UUID) -> BooleanExpression:
    return equal(BATCH_COLUMN, str(batch_id))


def equal(column: str, value: str | int) -> BooleanExpression:
    return EqualTo(term=Reference(column), value=literal(value))
