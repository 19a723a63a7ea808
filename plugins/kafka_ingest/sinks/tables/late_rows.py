"""A table of late rows beside a table: two tables of one format, which the roles of a sink see as one.

The feed's table decides whether a batch is published or revoked. The commit of its late rows follows with the same
mark, and is made again until it is there; of a batch without late rows the second table has nothing. So late rows are
seen only of batches that cannot be revoked any more. Their files are copied to their place in the table beside::

    P/batches/<batch>/<attempt>/kafka_late=true/<file>   as Spark stages them, until the format's clean-up deletes them
    P_late/batches/<batch>/<attempt>/<file>              of the table beside, which a property of it marks as such
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol
from uuid import UUID, uuid4

from kafka_ingest.errors import OutputConflictError, OutputNotUsableError
from kafka_ingest.foundation.storage import Opened, copy_file, flush, make_folder, opened
from kafka_ingest.foundation.stores.access import StoreAccess
from kafka_ingest.model.offsets import TopicPartition
from kafka_ingest.model.partition_term import LATE_FOLDER
from kafka_ingest.model.place import Place
from kafka_ingest.model.published_output import PublishedReceipt
from kafka_ingest.model.read_again import ReplacedRange
from kafka_ingest.model.receipt import Receipt
from kafka_ingest.model.table_options import TableOptions
from kafka_ingest.model.written_columns import WrittenColumns
from kafka_ingest.sinks.staged_parquet import folders_of, staged_sizes
from kafka_ingest.sinks.tables.table_format import (
    CleanUp,
    Mark,
    Outcome,
    OwnFiles,
    ReplacedFile,
    Staged,
    TableCommits,
    TableFormat,
    TableRows,
    check_safe_from,
)

if TYPE_CHECKING:
    import pyarrow as pa

    from kafka_ingest.sinks.found_offsets import FoundOffsets

PROPERTY: Final = "kafka_ingest.late_rows_of"
"""The property of the table beside, by which it is known; its value is the other one's name."""


def options_of_late(options: TableOptions, output: Place) -> TableOptions:
    """Return the options of the table beside that of an output."""
    return replace(options, properties=(*options.properties, (PROPERTY, output.name)))


class FormatWithProperties(TableFormat, Protocol):
    """A table that has properties."""

    def properties(self) -> Mapping[str, str] | None:
        """Return the properties of the table as it is now; None where there is none."""


def is_there(late: FormatWithProperties) -> bool:
    """Whether there is a table of late rows; another one by its name is none."""
    return PROPERTY in (late.properties() or {})


def check_late(late: FormatWithProperties, output: Place) -> None:
    """Raise OutputNotUsableError where late rows of an output cannot be added to what is there; makes nothing."""
    late.check_usable()
    if (found := late.properties()) is not None and PROPERTY not in found:
        raise OutputNotUsableError(
            f"expected no table in {late.output}, or that of the late rows of {output}, found one without the property "
            f"{PROPERTY}: another one. Nothing was written. Move it elsewhere, or give the feed another sink.path."
        )


class TableWithLate:
    """The feed's table and that of its late rows: a :class:`.TableFormat`."""

    def __init__(self, table: TableFormat, late: FormatWithProperties, access: StoreAccess | None) -> None:
        self._table = table
        self._late = late
        self._access = access
        self.output = table.output
        self.options = table.options
        self.own_columns = table.own_columns

    @property
    def data_folder(self) -> Place | None:
        return self._table.data_folder

    @cached_property
    def commits(self) -> "CommitsWithLate":
        return CommitsWithLate(self._table, self._late, self._access)

    def check_installed(self) -> None:
        self._table.check_installed()

    @contextmanager
    def one_reading(self) -> Iterator[None]:
        with ExitStack() as both:
            both.enter_context(self._table.one_reading())
            both.enter_context(self._late.one_reading())
            yield

    def check_usable(self) -> None:
        self._table.check_usable()

    def check_late(self) -> None:
        check_late(self._late, self.output)

    def published(self) -> set[str]:
        return self._table.published() | (self._late.published() if is_there(self._late) else set())

    def columns_left_out(self) -> tuple[str, ...]:
        return self._table.columns_left_out()

    def columns(self, written: WrittenColumns) -> WrittenColumns:
        return self._table.columns(written)

    def misfits(self, written: WrittenColumns) -> Iterator[str]:
        return self._table.misfits(written)

    def late_place(self, place: Place) -> Place:
        """Return where an attempt's late rows are published, whose files are staged in a place of the table."""
        assert self._table.data_folder is not None  # noqa: S101 - both have one
        assert self._late.data_folder is not None  # noqa: S101 - both have one
        return self._late.data_folder / place.parent.name / place.name


class CommitsWithLate:
    """Commits to both: a :class:`.TableCommits`, whose marks are those of the feed's table."""

    def __init__(self, table: TableFormat, late: FormatWithProperties, access: StoreAccess | None) -> None:
        self._table: TableCommits = table.commits
        self._late = late
        self._output = table.output
        self._access = access
        self.says = self._table.says

    def mark(self, batch_id: UUID) -> Mark | None:
        return self._table.mark(batch_id)

    def rows(self) -> "RowsWithLate":
        return RowsWithLate(self._table.rows(), self)

    def late_rows(self) -> TableRows | None:
        return self._late.commits.rows() if self._has_late() else None

    def _has_late(self) -> bool:
        return is_there(self._late)

    def clean_up(self) -> CleanUp:
        return self._table.clean_up()

    def check_can_remove(self, *, replacing: bool = False) -> None:
        self._table.check_can_remove(replacing=replacing)
        if self._has_late():
            self._late.commits.check_can_remove(replacing=replacing)

    def check_files(self, staged: Staged) -> None:
        self._table.check_files(staged.part(late=False))
        if staged.receipt.late_rows:
            check_late(self._late, self._output)
            self._late.commits.check_files(staged.part(late=True))

    def replaced_files(self, replaced: Sequence[ReplacedRange]) -> Iterator[ReplacedFile]:
        yield from self._table.replaced_files(replaced)
        if self._has_late():
            yield from self._late.commits.replaced_files(replaced)

    def land(self, mark: Mark, staged: Staged | None = None, replaced: Sequence[ReplacedRange] = ()) -> Mark:
        """Commit to the table, which decides, and then to that of late rows; safe to repeat."""
        landed = self._table.land(mark, staged.part(late=False) if staged is not None else None, replaced)
        is_ours = landed.outcome is mark.outcome is Outcome.PUBLISHED and landed.fingerprint in {"", mark.fingerprint}
        if staged is not None and is_ours and self.lacks(staged.receipt, replaced):
            self._land_late(mark, staged.part(late=True), replaced)
        return landed

    def lacks(self, receipt: Receipt, replaced: Sequence[ReplacedRange] = ()) -> bool:
        """Whether a published batch has late rows, or replaces some, and their table does not show that yet."""
        if not receipt.late_rows:
            return bool(replaced) and self._has_late() and any(self._late.commits.replaced_files(replaced))
        return not self._has_late() or self._late.commits.mark(receipt.batch_id) is None

    def _land_late(self, mark: Mark, staged: Staged, replaced: Sequence[ReplacedRange]) -> None:
        check_late(self._late, self._output)
        place = opened(self._late.output, self._access) / staged.folder
        receipt = staged.receipt.of_late_table()
        # What a run that died has left: a clean-up may have listed it.
        there = staged_sizes(place, receipt)
        check_safe_from(self._late.commits.clean_up(), [place / name for name in there])
        for file in staged.receipt.files:
            copy_whole(staged.data / file.name, place / own_name(file.name))
        for folder in folders_of(place, receipt):
            flush(folder)
        commits = self._late.commits
        found = commits.land(replace(mark, proof=""), Staged(staged.folder, place, receipt), replaced)
        if found.outcome is not Outcome.PUBLISHED:
            raise OutputConflictError(
                f"{commits.says} that the late rows of batch {mark.batch_id} were {found.outcome.value}, whose other "
                "rows are published. No offset was moved; find what else writes to this table."
            )
        commits.make_durable()

    def delete_rows(self, batch_id: UUID) -> None:
        self._table.delete_rows(batch_id)
        if self._has_late():
            self._late.commits.delete_rows(batch_id)
            self._late.commits.make_durable()

    def make_durable(self) -> None:
        self._table.make_durable()


def copy_whole(source: Opened, target: Opened) -> None:
    """Copy a file, durably; readers of one that is there see one of both, which are equal, and no part of it."""
    make_folder(target.parent)
    if not isinstance(target, Path):
        copy_file(source, target)
        return
    copy = target.with_name(f"{target.name}.{uuid4().hex}")
    copy_file(source, copy)
    flush(copy)
    copy.rename(target)


def own_name(name: str) -> str:
    """Return the name of a file of late rows in their own table."""
    return name.removeprefix(f"{LATE_FOLDER}/")


class RowsWithLate:
    """The rows of both: a :class:`.TableRows`. The table of late rows is read where it is asked about."""

    are_newest_states = False

    def __init__(self, rows: TableRows, commits: CommitsWithLate) -> None:
        self._rows = rows
        self._commits = commits

    def lacks(self, receipt: Receipt) -> bool:
        """Whether a published batch has late rows that are not there yet."""
        return bool(receipt.late_rows) and (self._late is None or self._late.mark(receipt.batch_id) is None)

    @cached_property
    def _late(self) -> TableRows | None:
        return self._commits.late_rows()

    @property
    def _both(self) -> list[TableRows]:
        return [self._rows, *([self._late] if self._late is not None else [])]

    def mark(self, batch_id: UUID) -> Mark | None:
        return self._rows.mark(batch_id)

    def published(self) -> set[str]:
        return set().union(*(each.published() for each in self._both))

    def visible(self, batch_ids: set[str]) -> set[str]:
        return set().union(*(each.visible(batch_ids) for each in self._both))

    def is_visible(self, batch_id: UUID) -> bool:
        return self._rows.is_visible(batch_id) or any(each.is_visible(batch_id) for each in self._both[1:])

    def names_files_of(self, batch_id: UUID, attempt: int) -> bool:
        found = self._rows.names_files_of(batch_id, attempt)
        return found or any(each.names_files_of(batch_id, attempt) for each in self._both[1:])

    def own_files(self, batch_id: UUID, attempt: int) -> set[str]:
        late = self._late.own_files(batch_id, attempt) if self._late is not None else set()
        return self._rows.own_files(batch_id, attempt) | {f"{LATE_FOLDER}/{name}" for name in late}

    @cached_property
    def own_files_of_all(self) -> OwnFiles:
        return self._rows.own_files_of_all.and_below(
            LATE_FOLDER, self._late.own_files_of_all if self._late is not None else OwnFiles(())
        )

    def count_elsewhere(self, batch_id: UUID) -> int:
        return sum(each.count_elsewhere(batch_id) for each in self._both)

    def rows_elsewhere(self, batch_id: UUID) -> "Iterator[pa.Table]":
        return chain.from_iterable(each.rows_elsewhere(batch_id) for each in self._both)

    def holds_elsewhere(self, batch_id: UUID, topic_partition: TopicPartition, offset: int) -> bool:
        return any(each.holds_elsewhere(batch_id, topic_partition, offset) for each in self._both)

    def said(self) -> Iterator[tuple[str | None, str | None]]:
        for each in self._both:
            yield from each.said()

    def add_to(self, found: "FoundOffsets") -> None:
        for each in self._both:
            each.add_to(found)

    def was_published(self, published: PublishedReceipt) -> bool:
        return self._rows.was_published(published)
