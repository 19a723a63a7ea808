"""The dead letters of a table in PostgreSQL: rows of a table beside it, added by the transaction that adds the rows.

For a table ``shop.orders`` it is ``shop.orders_dead_letters``; the batch's mark is that of ``shop.orders``. Earlier
versions have published files (:mod:`kafka_ingest.sinks.batch_folders`) whose receipts are kept beside them: they stay
there, and are found by these.
"""

import base64
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from sqlalchemy import Connection, Table, Uuid, cast, delete, func, insert, literal, select, text
from sqlalchemy.dialects.postgresql import JSONB

from kafka_ingest.errors import (
    BatchStateError,
    OutputConflictError,
    OutputUnavailableError,
    StagedOutputUnusableError,
)
from kafka_ingest.foundation.counting import counted
from kafka_ingest.foundation.storage import copy_file, make_folder, open_to_write
from kafka_ingest.foundation.stores.access import StoreAccess
from kafka_ingest.model.dead_letters import staged_dead_letters
from kafka_ingest.model.gap import Removal
from kafka_ingest.model.offsets import TopicPartition
from kafka_ingest.model.place import DATA, DEAD_LETTERS, Place
from kafka_ingest.model.published_output import FilesState, FoundFiles, PublishedLook, PublishedReceipt
from kafka_ingest.model.receipt import Receipt, WrittenFile
from kafka_ingest.model.table_options import OnNewColumns, TableOptions
from kafka_ingest.model.written_columns import BATCH_COLUMN
from kafka_ingest.ports.outputs import Sink
from kafka_ingest.sinks.batch_folders import PUBLISHED, DeadLetterObjects, FolderInspector, PublishedDeadLetters
from kafka_ingest.sinks.kept_receipts import KeptReceipts, published_document
from kafka_ingest.sinks.parquet import parquet_sink
from kafka_ingest.sinks.postgresql import columns as its
from kafka_ingest.sinks.postgresql.named_table import NamedTable
from kafka_ingest.sinks.postgresql.table_rows import POSITION, PostgresqlRows
from kafka_ingest.sinks.staged_files import StagedFiles
from kafka_ingest.sinks.staged_parquet import check_listing
from kafka_ingest.sinks.tables.table_format import Staged
from kafka_ingest.sinks.usable_places import beside, storage_errors

if TYPE_CHECKING:
    import pyarrow as pa

OPTIONS: Final = TableOptions(OnNewColumns.ADD)
REPLAYED: Final = "replayed"
"""The folder of a replay's attempt into which the letters are brought that it decodes again."""


HEADERS: Final = "kafka_headers"
BROUGHT_AT_ONCE: Final = 100
"""Rows, whose values may be large."""


class OtherCountError(Exception):
    """A transaction inserted another number of rows than the receipt says; it was undone."""


class LettersTable:
    """The table itself. ``given_up``: whether an operator gave the letters of a batch up."""

    def __init__(self, find: Callable[[], NamedTable], given_up: Callable[[UUID], bool]) -> None:
        self._find = find
        self._given_up = given_up

    @cached_property
    def table(self) -> NamedTable:
        return self._find()

    def check_usable(self) -> None:
        """Raise OutputNotUsableError where letters cannot be added."""
        self.table.check_usable()

    def copy(self, staged: Staged) -> None:
        """Bring an attempt's letters to the server, where they are not yet, and make the table or its columns."""
        from kafka_ingest.sinks.postgresql import copied_rows  # noqa: PLC0415 - a driver, for commits only

        letters = copied_rows.Letters(copied_rows.schema_of_files(staged))
        kinds = copied_rows.columns_of(letters.schema)
        self.check_usable()
        self.table.fit(kinds)
        table = copied_rows.copied_table(staged, kinds, self.table)
        with self.table.transaction() as connection:
            if self.table.has(connection, table):
                return
        copied_rows.copy_rows(staged, table, self.table.database.settings, letters)

    def copy_of(self, staged: Staged) -> None:
        """Do the same for an attempt at the rows, where it has letters."""
        if (of_letters := self._beside(staged)) is not None:
            self.copy(of_letters)

    def add_of(self, connection: Connection, staged: Staged) -> None:
        """Add the copied letters of an attempt at the rows, in the transaction that adds these."""
        if (of_letters := self._beside(staged)) is not None:
            self.add(connection, of_letters)

    def _beside(self, staged: Staged) -> Staged | None:
        receipt = staged.receipt
        if not receipt.dead_letters or self._given_up(receipt.batch_id):
            return None
        return Staged("", staged.data.parent / DEAD_LETTERS / DATA, receipt.of_dead_letters())

    def add(self, connection: Connection, staged: Staged) -> None:
        """Add copied letters; raises OtherCountError where not all are there."""
        from kafka_ingest.sinks.postgresql import copied_rows  # noqa: PLC0415 - see copy

        there = self.table.columns_in(connection)
        kinds = copied_rows.columns_of(copied_rows.schema_of_files(staged))
        copied = copied_rows.copied_table(staged, kinds, self.table)
        values = [cast(each, JSONB) if there[each.key].type == its.JSON else each for each in copied.c]
        insertion = insert(self.table.with_columns(there)).from_select(
            [*copied.c.keys(), BATCH_COLUMN], select(*values, literal(staged.receipt.batch_id, Uuid()))
        )
        found = connection.execution_options(preserve_rowcount=True).execute(insertion).rowcount
        if found != staged.receipt.rows:
            expected = counted(staged.receipt.rows, "dead letter")
            raise OtherCountError(f"expected to add {expected} to {self.table}, found that {found:,} were added")

    def add_alone(self, staged: Staged) -> None:
        """Add the letters of a batch whose rows an earlier version has published, or `adopt`; safe to repeat."""
        self.copy(staged)
        try:
            with self.table.database.one_at_a_time(str(self.table)) as connection:
                if not self.count(connection, staged.receipt.batch_id):
                    self.add(connection, staged)
                self.table.drop_copies(connection, staged.receipt.batch_id)
        except OtherCountError as error:
            with self.table.transaction() as connection:
                self.table.drop_copies(connection, staged.receipt.batch_id)
            raise OutputUnavailableError(
                f"{self.table}: {error}. No offset was moved; run this again. Where that does not help, a trigger, a "
                "rule or a policy keeps rows out: take it away."
            ) from error

    def count(self, connection: Connection, batch_id: UUID) -> int:
        if (table := self._there(connection)) is None:
            return 0
        of_batch = select(func.count()).select_from(table).where(table.c[BATCH_COLUMN] == batch_id)
        return connection.execute(of_batch).scalar_one()

    def rows(self) -> PostgresqlRows:
        with self.table.transaction() as connection:
            there = self._there(connection)
        return PostgresqlRows(self.table.database, str(self.table), [] if there is None else [there], None)

    def batches(self) -> set[str]:
        with self.table.transaction() as connection:
            if (table := self._there(connection)) is None:
                return set()
            return set(map(str, connection.execute(select(table.c[BATCH_COLUMN]).distinct()).scalars()))

    def delete(self, batch_id: UUID) -> None:
        with self.table.transaction() as connection:
            if (table := self._there(connection)) is not None:
                connection.execute(delete(table).where(table.c[BATCH_COLUMN] == batch_id))

    @contextmanager
    def letters(self, batch_id: UUID) -> Iterator["LettersOfBatch"]:
        with self.table.transaction() as connection:
            # Python knows no year after 9999, which the last hours of that one are in zones east of this.
            connection.execute(text("SET LOCAL timezone = 'UTC'"))
            yield LettersOfBatch(connection, self._there(connection), batch_id)

    def _there(self, connection: Connection) -> Table | None:
        there = self.table.columns_in(connection)
        return self.table.with_columns(there) if there else None


class LettersOfBatch:
    """The rows of one batch, read as a file of dead letters is."""

    def __init__(self, connection: Connection, table: Table | None, batch_id: UUID) -> None:
        self._connection = connection
        self._table = table
        self._batch_id = batch_id

    def iter_batches(
        self, batch_size: int = BROUGHT_AT_ONCE, *, columns: list[Any] | None = None
    ) -> Iterator["pa.RecordBatch"]:
        """Yield so many rows at a time, of some columns or of all, by position."""
        import pyarrow as pa  # noqa: PLC0415 - a third of a second, for questions about letters only

        kinds = arrow_types()
        if (table := self._table) is None:
            return
        names = [name for name in kinds if name in (columns or table.c)]
        query = select(*(table.c[name] for name in names)).where(table.c[BATCH_COLUMN] == self._batch_id)
        query = query.order_by(*(table.c[name] for name in POSITION))
        found = self._connection.execution_options(yield_per=batch_size).execute(query)
        for rows in found.partitions():
            by_column = zip(names, zip(*rows, strict=True), strict=True)
            arrays = [
                pa.array(map(headers, each) if name == HEADERS else each, kinds[name]) for name, each in by_column
            ]
            yield pa.record_batch(arrays, names)


def headers(found: Any) -> list[dict[str, Any]] | None:  # noqa: ANN401 - JSON
    """Return headers as a file has them, whose values are in base64 here."""
    values = json.loads(found) if isinstance(found, str) else found
    if values is None:
        return None
    decoded = (None if each["value"] is None else base64.b64decode(each["value"]) for each in values)
    return [{"key": each["key"], "value": value} for each, value in zip(values, decoded, strict=True)]


def arrow_types() -> dict[str, "pa.DataType"]:
    """Return the columns of a file of dead letters."""
    import pyarrow as pa  # noqa: PLC0415 - see LettersOfBatch

    return {
        **dict.fromkeys(("kafka_topic", "kafka_topic_id", "error_part", "error_class", "error"), pa.string()),
        **dict.fromkeys(("kafka_offset", "kafka_timestamp_ms", "schema_id"), pa.int64()),
        **dict.fromkeys(("kafka_partition", "attempt"), pa.int32()),
        **dict.fromkeys(("key", "value"), pa.binary()),
        "kafka_timestamp": pa.timestamp("us", "UTC"),
        HEADERS: pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())])),
    }


class LetterReceipts(KeptReceipts):
    """The receipts of letters: those of files are kept here, of rows the batch's own receipt says it."""

    def __init__(self, folder: Any, check_mounted: Callable[[], None], of_rows: KeptReceipts) -> None:  # noqa: ANN401
        super().__init__(folder, check_mounted)
        self._of_rows = of_rows

    def is_of_files(self, batch_id: UUID) -> bool:
        return self.is_kept(batch_id)

    def _read(self, batch_id: UUID) -> dict[str, Any] | None:
        if (kept := super()._read(batch_id)) is not None:
            return kept
        found = self._of_rows.published_receipt(batch_id)
        if found is None or not found.receipt.dead_letters:
            return None
        letters = PublishedReceipt(found.plan, found.receipt.of_dead_letters(), ())
        document: dict[str, Any] = json.loads(published_document(letters))
        return document


class LetterRows(DeadLetterObjects):
    """Publishes letters that the transaction of their rows has not added, and deletes given up ones, files as well."""

    def __init__(self, output: Place, of_rows: Place, letters: LettersTable, access: StoreAccess | None) -> None:
        super().__init__(output, access)
        self._letters = letters
        self.staging = StagedFiles(beside(of_rows) / "staging", access)
        kept = KeptReceipts(self.opened(beside(of_rows) / "receipts"))
        self.receipts: LetterReceipts = LetterReceipts(
            self.opened(beside(output) / "receipts"), self.staging.check_mounted, kept
        )

    def examine(self) -> None:
        self._letters.check_usable()

    def known_batches(self, since: UUID | None = None) -> list[str]:
        least = str(since) if since is not None else ""
        found = {*super().known_batches(since), *self._letters.batches()}
        return sorted(each for each in found if each >= least)

    def _found(self, published: PublishedReceipt, removal: Removal | None) -> FoundFiles:
        batch_id = published.plan.batch_id
        if removal is not None or self.receipts.is_of_files(batch_id):
            return super()._found(published, removal)
        expected = published.receipt.rows
        with self._letters.table.transaction() as connection:
            there = self._letters.count(connection, batch_id)
        if there == expected:
            return FoundFiles(FilesState.INTACT, rows=there)
        said = f"{self._letters.table} holds {there:,} of its {counted(expected, 'dead letter')}"
        return FoundFiles(FilesState.CHANGED if there else FilesState.GONE, said, there)

    def publish(self, directory: Place, published: PublishedReceipt) -> None:
        batch_id = published.receipt.batch_id
        if self.receipts.removal(batch_id) is not None:
            return
        if self.receipts.is_of_files(batch_id):
            if isinstance(self._output, Path):  # there an earlier version kept the receipt before it moved the files
                files = parquet_sink(self._output).publisher
                files.prepare()
                files.publish(directory, published)
            return
        with self._letters.table.transaction() as connection:
            if self._letters.count(connection, batch_id):
                return
        with storage_errors(self._output):
            data = self.opened(directory / DATA)
            try:
                check_listing(data, published.receipt)
                self._letters.add_alone(Staged("", data, published.receipt))
            except StagedOutputUnusableError as error:
                raise OutputConflictError(f"{error}; they were intact when the commit began.") from error

    def hide(self, batch_id: UUID) -> None:
        super().hide(batch_id)
        self._letters.delete(batch_id)

    def delete_hidden(self, batch_id: UUID) -> None:
        if isinstance(self._output, Path) and (remover := parquet_sink(self._output).remover) is not None:
            remover.delete_hidden(batch_id)  # an earlier version hid files there, and may have died before this

    def unfinished(self) -> list[str]:
        left = self._letters.rows().visible(set(self.receipts.removed_batches()))
        return sorted({*super().unfinished(), *left})


class LettersInspector(FolderInspector):
    """Answers what readers see of a batch's letters."""

    def __init__(self, rows: LetterRows, letters: LettersTable) -> None:
        super().__init__(rows.receipts, rows.place_of, rows.opened)
        self._rows = rows
        self._letters = letters

    def look_at(self, batch_id: UUID, *, closely: bool = False) -> PublishedLook:
        receipt = self._receipts.receipt(batch_id)
        if receipt is None or self._rows.receipts.is_of_files(batch_id):
            return super().look_at(batch_id, closely=closely)
        # A third of a second for pyarrow, which only a count should pay.
        from kafka_ingest.sinks.file_counts import look_at_batch  # noqa: PLC0415

        moved = self._letters.rows().rows_elsewhere(batch_id)
        return look_at_batch(self._rows.opened(staged_place(self._rows, receipt)), receipt, (), moved, closely=closely)

    def path(self, batch_id: UUID, file: WrittenFile) -> Place:
        """Return where a file of a batch is or, of letters that are rows, where it was staged."""
        receipt = None if self._rows.receipts.is_of_files(batch_id) else self._receipts.receipt(batch_id)
        return super().path(batch_id, file) if receipt is None else staged_place(self._rows, receipt) / file.name

    def holds(self, batch_id: UUID, file: WrittenFile, topic_partition: TopicPartition, offset: int) -> bool:
        if self._rows.receipts.is_of_files(batch_id):
            return super().holds(batch_id, file, topic_partition, offset)
        return self._letters.rows().holds_elsewhere(batch_id, topic_partition, offset)


def staged_place(rows: LetterRows, receipt: Receipt) -> Place:
    return staged_dead_letters(rows.staging.attempt_directory(receipt.batch_id, receipt.attempt)) / DATA


class LettersReader(PublishedDeadLetters):
    """Finds letters again; those that are rows are brought to the attempt that decodes them again, as a file."""

    def __init__(self, rows: LetterRows, letters: LettersTable) -> None:
        super().__init__(rows.receipts, rows.place_of, rows.opened)
        self._rows = rows
        self._letters = letters

    def files(self, batch_id: UUID, attempt: Place) -> tuple[Place, ...]:
        # All in one folder, which Spark needs, those of an earlier version, too.
        names = [path.name for path, _ in self._sources(batch_id)]
        return tuple(attempt / REPLAYED / f"{PUBLISHED}{batch_id}" / name for name in names)

    def bring(self, batch_id: UUID, attempt: Place) -> None:
        import pyarrow.parquet  # noqa: PLC0415 - see LettersOfBatch

        kinds = arrow_types()
        for path, source in self._sources(batch_id):
            target = self._opened(attempt / REPLAYED / f"{PUBLISHED}{batch_id}" / path.name)
            with storage_errors(attempt):
                make_folder(target.parent)
                if self._rows.receipts.is_of_files(batch_id):
                    copy_file(self._opened(path), target)
                    continue
                with source() as letters, open_to_write(target) as file:
                    batches = letters.iter_batches()
                    first = next(batches)
                    schema = pyarrow.schema([(name, kinds[name]) for name in first.schema.names])
                    with pyarrow.parquet.ParquetWriter(file, schema) as writer:
                        for batch in (first, *batches):
                            writer.write_batch(batch)

    def _sources(self, batch_id: UUID) -> Sequence[tuple[Place, Callable[[], AbstractContextManager[Any]]]]:
        if self._rows.receipts.is_of_files(batch_id):
            return super()._sources(batch_id)
        if (removal := self._receipts.removal(batch_id)) is not None:
            raise BatchStateError(f"batch {batch_id}: its dead letters were given up: {removal}")
        table, receipt = self._letters.table, self._receipts.receipt(batch_id)
        with table.transaction() as connection:
            found = self._letters.count(connection, batch_id)
        expected = receipt.rows if receipt is not None else 0
        if found != expected or not expected:
            raise OutputUnavailableError(
                f"batch {batch_id}: expected {counted(expected, 'dead letter')} in {table}, found {found:,}. Restore "
                "them from a backup; or give the letters up, for good: `kafka-ingest dead-letters FEED --batch "
                f"{batch_id} --give-up --reason …`."
            )
        return [(Path("/", table.name, "letters.parquet"), lambda: self._letters.letters(batch_id))]


def letters_sink(output: Place, of_rows: Place, letters: LettersTable, access: StoreAccess | None) -> Sink:
    """Return the roles of the letters of the output ``of_rows``; ``output`` is where earlier versions have files."""
    rows = LetterRows(output, of_rows, letters, access)
    return Sink(
        staging=rows.staging,
        publisher=rows,
        archive=rows.receipts,
        inspector=LettersInspector(rows, letters),
        remover=rows,
        salvage=None,
        places=(output, beside(output)),
        dead_letters=LettersReader(rows, letters),
    )
