"""Dead letters of a table: a table of its format beside it. Its commit follows the one that adds the batch's rows.

Spark stages them below the attempt's own directory; publishing copies them to where the table has its files, and one
commit adds them, with the batch's mark. An output with dead letters of an earlier version, which are files in a folder
for each batch, keeps to those: clean-ups of a table in their place would delete them::

    P.kafka-ingest/staging/<batch>/<attempt>/dead_letters/data/    staged
    P_dead_letters/batches/<batch>/<attempt>/                      a Delta table's; an Iceberg table's are below data/
    P_dead_letters.kafka-ingest/receipts/<day>/<batch>.json        what was published, and which were given up
"""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import UUID

from kafka_ingest.errors import NotADataFileError, OutputConflictError, StagedOutputUnusableError
from kafka_ingest.foundation.counting import counted
from kafka_ingest.foundation.storage import names_in, opened
from kafka_ingest.foundation.stores.access import StoreAccess
from kafka_ingest.model.place import DATA, Place
from kafka_ingest.model.published_output import PublishedReceipt
from kafka_ingest.model.receipt import Receipt
from kafka_ingest.model.written_columns import BATCH_COLUMN
from kafka_ingest.ports.outputs import Sink
from kafka_ingest.sinks.batch_folders import PUBLISHED, BroughtLetters, are_missing, data_file
from kafka_ingest.sinks.staged_files import check_listing, staged_sizes
from kafka_ingest.sinks.tables.decoded_columns import names_of_columns
from kafka_ingest.sinks.tables.late_files import copy_at_once
from kafka_ingest.sinks.tables.publisher import TableParts, TablePublisher
from kafka_ingest.sinks.tables.sink import table_sink
from kafka_ingest.sinks.tables.table_format import OF_TABLES, Staged, TableFormat, folder_of_table
from kafka_ingest.sinks.usable_places import beside, storage_errors

if TYPE_CHECKING:
    from kafka_ingest.sinks.dead_letter_files import Letters


def are_files(output: Place, access: StoreAccess | None) -> bool:
    """Whether dead letters in a place are those of an earlier version."""
    place = opened(output, access)
    with storage_errors(output):
        try:
            # What an operator gave up, until it is deleted.
            if isinstance(place, Path) and any((beside(place) / "removed").glob("*")):
                return True
            names = names_in(place)
        except (FileNotFoundError, NotADirectoryError):
            return False
    return not set(OF_TABLES).intersection(names) and any(name.startswith(PUBLISHED) for name in names)


class LettersPublisher(TablePublisher):
    """Publishes the dead letters of published batches; those that an earlier version has staged, ``as_files``."""

    def __init__(self, parts: TableParts, make: Callable[[Staged], object], as_files: Sink) -> None:
        super().__init__(parts)
        self._make = make
        self._as_files = as_files.publisher

    def can_take(self, directory: Place, receipt: Receipt) -> None:
        """Raise what the port says, also where the table is not there and cannot be made."""
        with storage_errors(self._output):
            is_of_before = self._is_of_before(directory, receipt)
        if is_of_before and not self._is_there():
            self._as_files.can_take(directory, receipt)
            return
        self.prepare()
        if is_of_before:
            return
        super().can_take(directory, receipt)
        with storage_errors(self._output):
            self._make(self._parts.staged(directory, receipt))

    def publish(self, directory: Place, published: PublishedReceipt) -> None:
        batch_id, receipt = published.receipt.batch_id, published.receipt
        own = self._staging.attempt_directory(batch_id, receipt.attempt)
        with storage_errors(self._output), self._table.one_reading():
            if self._receipts.removal(batch_id) is not None or self._table.commits.mark(batch_id) is not None:
                kept = self._receipts.receipt(batch_id)
                if kept is not None and kept.attempt == receipt.attempt:
                    published = replace(published, receipt=kept)  # its copies may have other sizes
                super().publish(own, published)
                return
            try:
                is_of_before = self._is_of_before(directory, receipt)
                if is_of_before and not self._is_there():
                    self._as_files.prepare()
                    self._as_files.publish(directory, published)
                    return
                source, target = self._parts.staged(directory, receipt), self._parts.staged(own, receipt)
                if is_of_before:
                    receipt = self._receipts.receipt(batch_id) or with_batch(source, target)
                else:
                    copy_at_once(source.data, target.data, receipt)
            except StagedOutputUnusableError as error:
                raise OutputConflictError(f"{error}; they were intact when the commit began.") from error
            super().publish(own, replace(published, receipt=receipt))

    def _is_there(self) -> bool:
        return folder_of_table(self._parts.opened(self._output)) is not None

    def _is_of_before(self, directory: Place, receipt: Receipt) -> bool:
        """Whether an earlier version has staged them, without their batch's id; raises StagedOutputUnusableError."""
        staged = self._parts.opened(directory / DATA)
        check_listing(staged, receipt)
        try:
            return BATCH_COLUMN not in data_file(staged / receipt.files[0].name).columns().names
        except NotADataFileError as error:
            raise StagedOutputUnusableError(str(error)) from error


def with_batch(source: Staged, target: Staged) -> Receipt:
    """Copy files of an earlier version with their batch's id in each row; return the receipt of the copies."""
    from kafka_ingest.sinks.restaged_parquet import copy_with_batch  # noqa: PLC0415 - pyarrow, for commits only

    receipt = source.receipt
    copy_at_once(source.data, target.data, receipt, partial(copy_with_batch, str(receipt.batch_id)))
    sizes = staged_sizes(target.data, receipt)
    return replace(receipt, files=tuple(replace(file, size_bytes=sizes[file.name]) for file in receipt.files))


class LettersReader(BroughtLetters):
    """Finds dead letters again, in the table's own files of a batch or in others."""

    def __init__(self, parts: TableParts) -> None:
        super().__init__(parts.receipts, lambda _: parts.output, parts.opened)
        self._parts = parts

    def _sources(self, batch_id: UUID) -> "Sequence[tuple[Place, Callable[[], AbstractContextManager[Letters]]]]":
        # A third of a second for pyarrow, which only questions about letters should pay.
        from kafka_ingest.sinks.dead_letter_files import LettersInTable, letters_in  # noqa: PLC0415

        parts, receipt = self._parts, self._receipt(batch_id)
        with storage_errors(parts.output):
            rows, files = parts.table.commits.rows(), parts.files_there(receipt)
            named = rows.own_files(batch_id, receipt.attempt)
            own = [file for file in receipt.files if file.name in named]
            if lost := [parts.path(receipt, file.name) for file in own if file.name not in files]:
                raise are_missing(batch_id, f"its dead letters in {lost[0]}, found no file there")
            found: list[tuple[Place, Callable[[], AbstractContextManager[Letters]]]] = [
                (path, partial(letters_in, parts.opened(path)))
                for path in (parts.path(receipt, file.name) for file in own)
            ]
            count = sum(file.rows for file in own)
            if count < receipt.rows:
                if (count := count + rows.count_elsewhere(batch_id)) != receipt.rows:
                    letters = counted(receipt.rows, "dead letter")
                    raise are_missing(batch_id, f"{letters} in {parts.output}, found {count:,}")
                others = names_of_columns(parts.table.columns({}))
                found.append((parts.output, lambda: nullcontext(LettersInTable(rows, batch_id, others))))
        return found


def letters_sink(
    table: TableFormat, access: StoreAccess | None, make: Callable[[Staged], object], as_files: Sink
) -> Sink:
    """Return the roles of the dead letters in a table.

    ``make`` makes it for what is staged, where it is not there; ``as_files`` are the roles of an earlier version.
    """
    if are_files(table.output, access):
        return as_files
    parts = TableParts.of(table, access)
    publisher = LettersPublisher(parts, make, as_files)
    return replace(table_sink(parts), publisher=publisher, replacer=None, dead_letters=LettersReader(parts))
