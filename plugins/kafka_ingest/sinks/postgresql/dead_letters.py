"""The dead letters of a table in PostgreSQL: rows of a table beside it, added by the transaction that adds the rows.

For a table ``shop.orders`` it is ``shop.orders_dead_letters``; the batch's mark, and its receipt, are those of
``shop.orders``.
"""

import base64
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from sqlalchemy import Connection, Table, func, select, text

from kafka_ingest.errors import (
    OutputConflictError,
    OutputUnavailableError,
    StagedOutputUnusableError,
)
from kafka_ingest.foundation.counting import counted
from kafka_ingest.foundation.stores.access import StoreAccess
from kafka_ingest.model.dead_letters import staged_dead_letters
from kafka_ingest.model.gap import Removal
from kafka_ingest.model.offsets import TopicPartition
from kafka_ingest.model.place import DATA, DEAD_LETTERS, Place
from kafka_ingest.model.published_output import FilesState, FoundFiles, PublishedLook, PublishedReceipt
from kafka_ingest.model.receipt import Receipt, WrittenFile
from kafka_ingest.model.table_options import OnNewColumns, TableOptions
from kafka_ingest.model.written_columns import BATCH_COLUMN, POSITION
from kafka_ingest.ports.outputs import Sink
from kafka_ingest.sinks.batch_folders import BroughtLetters, DeadLetterObjects, FolderInspector, are_missing
from kafka_ingest.sinks.kept_receipts import KeptReceipts, published_document
from kafka_ingest.sinks.postgresql.named_table import NamedTable, OtherCountError
from kafka_ingest.sinks.postgresql.table_rows import PostgresqlRows, delete_all, of_batch
from kafka_ingest.sinks.staged_files import StagedFiles, check_listing
from kafka_ingest.sinks.tables.table_format import Staged
from kafka_ingest.sinks.usable_places import beside, storage_errors

if TYPE_CHECKING:
    import pyarrow as pa

OPTIONS: Final = TableOptions(OnNewColumns.ADD)
HEADERS: Final = "kafka_headers"


class LettersTable:
    """The table itself. ``given_up``: whether an operator gave the letters of a batch up."""

    def __init__(self, find: Callable[[], NamedTable], given_up: Callable[[UUID], bool]) -> None:
        self._find = find
        self._given_up = given_up

    @cached_property
    def table(self) -> NamedTable:
        return self._find()

    def of(self, staged: Staged) -> Staged | None:
        """Return the letters of an attempt at the rows, None where it has none to be added."""
        receipt = staged.receipt
        if not receipt.dead_letters or self._given_up(receipt.batch_id):
            return None
        return Staged("", staged.data.parent / DEAD_LETTERS / DATA, receipt.of_dead_letters())

    def add_alone(self, staged: Staged) -> None:
        """Add the letters of a batch whose rows are published without them, as by `adopt`; safe to repeat."""
        from kafka_ingest.sinks.postgresql.copied_rows import copied  # noqa: PLC0415 - a driver, for commits only

        table, batch_id, rows = self.table, staged.receipt.batch_id, copied(staged, self.table)
        try:
            with table.database.one_at_a_time(str(table)) as connection:
                if not self.count(connection, batch_id):
                    table.add(connection, batch_id, rows, staged.receipt.rows)
                table.drop_copies(connection, batch_id)
        except OtherCountError as error:
            with table.transaction() as connection:
                table.drop_copies(connection, batch_id)
            raise OutputUnavailableError(
                f"{table}: {error}. No offset was moved; run this again. Where that does not help, a trigger, a rule "
                "or a policy keeps rows out: take it away."
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
                delete_all(connection, table, of_batch(table, batch_id))
                self.table.check_sees_all(connection)

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

    def iter_batches(self, batch_size: int = 100, *, columns: list[Any] | None = None) -> Iterator["pa.RecordBatch"]:
        """Yield so many rows at a time, of some columns or of all, by position."""
        # A third of a second for pyarrow, which only questions about letters should pay.
        from kafka_ingest.sinks.dead_letter_files import TYPES, batch_of  # noqa: PLC0415

        if (table := self._table) is None:
            return
        names = [name for name in TYPES if name in (columns or table.c)]
        query = select(*(table.c[name] for name in names)).where(table.c[BATCH_COLUMN] == self._batch_id)
        query = query.order_by(*(table.c[name] for name in POSITION))
        found = self._connection.execution_options(yield_per=batch_size).execute(query)
        for rows in found.partitions():
            by_column = zip(names, zip(*rows, strict=True), strict=True)
            yield batch_of(names, (map(headers, each) if name == HEADERS else each for name, each in by_column))


def headers(found: Any) -> list[dict[str, Any]] | None:  # noqa: ANN401 - JSON
    """Return headers as a file has them, whose values are in base64 here."""
    values = json.loads(found) if isinstance(found, str) else found
    if values is None:
        return None
    decoded = (None if each["value"] is None else base64.b64decode(each["value"]) for each in values)
    return [{"key": each["key"], "value": value} for each, value in zip(values, decoded, strict=True)]


class LetterReceipts(KeptReceipts):
    """The receipts of letters, of which the batch's own receipt says all; marks of those that were given up."""

    def __init__(self, folder: Any, check_mounted: Callable[[], None], of_rows: KeptReceipts) -> None:  # noqa: ANN401
        super().__init__(folder, check_mounted)
        self._of_rows = of_rows

    def _read(self, batch_id: UUID) -> dict[str, Any] | None:
        found = self._of_rows.published_receipt(batch_id)
        if found is None or not found.receipt.dead_letters:
            return None
        letters = PublishedReceipt(found.plan, found.receipt.of_dead_letters(), ())
        document: dict[str, Any] = json.loads(published_document(letters))
        return document


class LetterRows(DeadLetterObjects):
    """Publishes letters that the transaction of their rows has not added, and deletes given up ones."""

    def __init__(self, output: Place, of_rows: Place, letters: LettersTable, access: StoreAccess | None) -> None:
        super().__init__(output, access)
        self._letters = letters
        self.staging = StagedFiles(beside(of_rows) / "staging", access)
        kept = KeptReceipts(self.opened(beside(of_rows) / "receipts"))
        notes = self.opened(beside(output) / "receipts")
        self.receipts: LetterReceipts = LetterReceipts(notes, self.staging.check_mounted, kept)

    def staged_place(self, receipt: Receipt) -> Place:
        return staged_dead_letters(self.staging.attempt_directory(receipt.batch_id, receipt.attempt)) / DATA

    def examine(self) -> None:
        self._letters.table.check_usable()

    def known_batches(self, since: UUID | None = None) -> list[str]:
        least = str(since) if since is not None else ""
        return sorted(each for each in self._letters.batches() if each >= least)

    def _found(self, published: PublishedReceipt, removal: Removal | None) -> FoundFiles:
        if removal is not None:
            return super()._found(published, removal)
        expected = published.receipt.rows
        with self._letters.table.transaction() as connection:
            there = self._letters.count(connection, published.plan.batch_id)
        if there == expected:
            return FoundFiles(FilesState.INTACT, rows=there)
        said = f"{self._letters.table} holds {there:,} of its {counted(expected, 'dead letter')}"
        return FoundFiles(FilesState.CHANGED if there else FilesState.GONE, said, there)

    def publish(self, directory: Place, published: PublishedReceipt) -> None:
        batch_id = published.receipt.batch_id
        if self.receipts.removal(batch_id) is not None:
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

    def check_can_remove(self) -> None:
        with self._letters.table.transaction() as connection:
            self._letters.table.check_sees_all(connection)

    def _delete(self, batch_id: UUID) -> None:
        self._letters.delete(batch_id)

    def unfinished(self) -> list[str]:
        return sorted(self._letters.rows().visible(set(self.receipts.removed_batches())))


class LettersInspector(FolderInspector):
    """Answers what readers see of a batch's letters."""

    def __init__(self, rows: LetterRows, letters: LettersTable) -> None:
        super().__init__(rows.receipts, rows.place_of, rows.opened)
        self._rows = rows
        self._letters = letters

    def look_at(self, batch_id: UUID, *, closely: bool = False) -> PublishedLook:
        if (receipt := self._receipts.receipt(batch_id)) is None:
            return PublishedLook()
        # A third of a second for pyarrow, which only a count should pay.
        from kafka_ingest.sinks.parquet_contents import look_at_batch  # noqa: PLC0415

        moved, staged = self._letters.rows().rows_elsewhere(batch_id), self._opened(self._rows.staged_place(receipt))
        return look_at_batch(lambda name: staged / name, (), receipt, (), moved, closely=closely)

    def path(self, batch_id: UUID, file: WrittenFile) -> Place:
        """Return where a file of letters was staged, which are rows."""
        receipt = self._receipts.receipt(batch_id)
        return super().path(batch_id, file) if receipt is None else self._rows.staged_place(receipt) / file.name

    def holds(self, batch_id: UUID, file: WrittenFile, topic_partition: TopicPartition, offset: int) -> bool:
        del file
        return self._letters.rows().holds_elsewhere(batch_id, topic_partition, offset)


class LettersReader(BroughtLetters):
    """Finds letters again, and brings them to the attempt that decodes them again, as a file."""

    def __init__(self, rows: LetterRows, letters: LettersTable) -> None:
        super().__init__(rows.receipts, rows.place_of, rows.opened)
        self._letters = letters

    def _sources(self, batch_id: UUID) -> Sequence[tuple[Place, Callable[[], AbstractContextManager[Any]]]]:
        table, expected = self._letters.table, self._receipt(batch_id).rows
        with table.transaction() as connection:
            found = self._letters.count(connection, batch_id)
        if found != expected:
            raise are_missing(batch_id, f"{counted(expected, 'dead letter')} in {table}, found {found:,}")
        return [(Path("/", table.name, "letters.parquet"), lambda: self._letters.letters(batch_id))]


def letters_sink(output: Place, of_rows: Place, letters: LettersTable, access: StoreAccess | None) -> Sink:
    """Return the roles of the letters of the output ``of_rows``; beside ``output`` is noted which were given up."""
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
