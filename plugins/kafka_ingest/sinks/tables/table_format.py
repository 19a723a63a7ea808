"""What a table format brings: its table in one place, as the roles of a sink need it.

A :class:`TableFormat` answers what a plan asks, without imports for which a plan would wait. Its ``commits`` are what
decides: the class that writes the log or the snapshot.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import cached_property
from typing import TYPE_CHECKING, Final, Protocol
from uuid import UUID

from kafka_ingest.errors import OutputNotUsableError
from kafka_ingest.foundation.storage import Opened, names_in
from kafka_ingest.model.offsets import TopicPartition
from kafka_ingest.model.place import Place
from kafka_ingest.model.published_output import PublishedReceipt
from kafka_ingest.model.read_again import ReplacedRange
from kafka_ingest.model.receipt import Receipt
from kafka_ingest.model.table_options import TableOptions
from kafka_ingest.model.written_columns import BATCH_COLUMN, POSITION, WrittenColumns
from kafka_ingest.sinks.contents import RowsAndCommits

if TYPE_CHECKING:
    import pyarrow as pa


REMOVED_KEY = "kafka_ingest.removed_batch_id"
"""What the commit that takes a removed batch's rows out of a table calls that batch."""


class Outcome(Enum):
    """The state of a batch in a table. The first mark that is committed is final."""

    PUBLISHED = "published"
    REVOKED = "revoked"


@dataclass(frozen=True, slots=True)
class Mark:
    """The mark of one batch; with the fingerprint of its plan where it is published and the table can say it.

    ``proof``: what the commit says of the batch besides, as :meth:`.Proof.as_text` has it; it is no part of the mark.
    """

    batch_id: UUID
    outcome: Outcome
    fingerprint: str = ""
    proof: str = field(default="", compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Staged:
    """The files of an attempt at their final place: ``folder`` is its name relative to the table's, if it is there."""

    folder: str
    data: Opened
    receipt: Receipt

    def part(self, *, late: bool) -> "Staged":
        """Return the late rows alone, or the others."""
        return replace(self, receipt=self.receipt.part(late=late))


@dataclass(frozen=True, slots=True)
class CleanUp:
    """What deletes files that a table does not name. Files of more than ``oldest_s`` seconds may be taken by it."""

    program: str
    oldest_s: float


@dataclass(frozen=True, slots=True)
class ReplacedFile:
    """A file of a table with rows that a batch replaces, and the positions of these rows."""

    path: str
    size_bytes: int
    rows: int
    leaving: "pa.Table"

    @property
    def stays(self) -> bool:
        """Whether it holds other rows, too, which stay."""
        return self.leaving.num_rows < self.rows


class OwnFiles:
    """The files of many attempts, by their names below the folder of batches: ``<batch>/<attempt>/<file>``.

    They are put in order once: there may be one for every five minutes of years.
    """

    def __init__(self, names: Iterable[str]) -> None:
        self._by_attempt: dict[tuple[str, str], set[str]] = {}
        for name in names:
            batch, _, rest = name.partition("/")
            attempt, _, file = rest.partition("/")
            self._by_attempt.setdefault((batch, attempt), set()).add(file)

    def of(self, batch_id: UUID, attempt: int) -> set[str]:
        return self._by_attempt.get((str(batch_id), str(attempt)), set())


class TableRows(RowsAndCommits, Protocol):
    """What one reading of a table holds of batches: files as they were published, or rows that others have moved.

    I/O errors are left to the caller.
    """

    def mark(self, batch_id: UUID) -> Mark | None:
        """Return a batch's mark, None where it has none."""

    def published(self) -> set[str]:
        """Return the ids of the batches that the table knows as published, by its marks or by their own files."""

    def visible(self, batch_ids: set[str]) -> set[str]:
        """Return which of some batches readers see a row of."""

    def is_visible(self, batch_id: UUID) -> bool:
        """Whether readers see a row of a batch."""

    def names_files_of(self, batch_id: UUID, attempt: int) -> bool:
        """Whether readers see a file of an attempt."""

    def own_files(self, batch_id: UUID, attempt: int) -> set[str]:
        """Return the names of an attempt's files that readers see as they were published."""

    @property
    def own_files_of_all(self) -> OwnFiles:
        """The same of all attempts, read once."""

    def count_elsewhere(self, batch_id: UUID) -> int:
        """Return how many rows of a batch readers see that are not in a file as it was published."""

    def read_elsewhere(self, columns: list[str], batch_id: UUID) -> "Iterator[pa.Table]":
        """Yield some columns of these rows, a piece at a time."""

    def rows_elsewhere(self, batch_id: UUID) -> "Iterator[pa.Table]":
        """Yield the positions of these rows, a piece at a time."""

    def holds_elsewhere(self, batch_id: UUID, topic_partition: TopicPartition, offset: int) -> bool:
        """Whether one of these rows is that record."""


class RowsOfTable:
    """What a :class:`TableRows` says by its marks, its own files, and the rows that are in none of these."""

    def mark(self, batch_id: UUID) -> Mark | None:
        raise NotImplementedError

    def read_elsewhere(
        self, columns: list[str], batch_id: UUID | None = None, at: tuple[TopicPartition, int] | None = None
    ) -> "Iterator[pa.Table]":
        """Yield some columns of the rows that are in no file as it was published, of one batch or of all.

        ``at``: only rows of that position are needed; others may come, too.
        """
        raise NotImplementedError

    def was_published(self, published: PublishedReceipt) -> bool:
        mark = self.mark(published.plan.batch_id)
        return mark is not None and mark.outcome is Outcome.PUBLISHED

    def names_files_of(self, batch_id: UUID, attempt: int) -> bool:
        return bool(self.own_files(batch_id, attempt))

    def own_files(self, batch_id: UUID, attempt: int) -> set[str]:
        return self.own_files_of_all.of(batch_id, attempt)

    @property
    def own_files_of_all(self) -> OwnFiles:
        return OwnFiles(())

    def count_elsewhere(self, batch_id: UUID) -> int:
        return self.counted_elsewhere.get(str(batch_id), 0)

    @cached_property
    def counted_elsewhere(self) -> Mapping[str, int]:
        """How many rows of each batch are in no file as it was published."""
        counts: Counter[str] = Counter()
        for piece in self.read_elsewhere([BATCH_COLUMN]):
            for row in piece.group_by(BATCH_COLUMN).aggregate([([], "count_all")]).to_pylist():
                counts[row[BATCH_COLUMN]] += row["count_all"]
        return counts

    def rows_elsewhere(self, batch_id: UUID) -> "Iterator[pa.Table]":
        return self.read_elsewhere(list(POSITION), batch_id)

    def holds_elsewhere(self, batch_id: UUID, topic_partition: TopicPartition, offset: int) -> bool:
        # A third of a second for pyarrow, which only a question about records should pay.
        from kafka_ingest.sinks.parquet_contents import holds  # noqa: PLC0415

        found = self.read_elsewhere(list(POSITION), batch_id, (topic_partition, offset))
        return any(holds(rows, topic_partition, offset) for rows in found)


class RowsByMarks(RowsOfTable):
    """The same where readers see rows or records and no files."""

    @property
    def marks(self) -> Mapping[UUID, Mark]:
        raise NotImplementedError

    def mark(self, batch_id: UUID) -> Mark | None:
        return self.marks.get(batch_id)

    def published(self) -> set[str]:
        return {str(mark.batch_id) for mark in self.marks.values() if mark.outcome is Outcome.PUBLISHED}


OF_TABLES: Final = ("_delta_log", "metadata")
"""The folders of a Delta and an Iceberg table, whose clean-up deletes files that they do not name."""


def folder_of_table(place: Opened) -> str | None:
    """Return which of these is in a place, None where no table is."""
    try:
        names = names_in(place)
    except (FileNotFoundError, NotADirectoryError):
        return None
    return next((name for name in OF_TABLES if name in names), None)


def refuse_strangers(names: Iterable[str], output: Opened | Place, kind: str, clean_up: str) -> None:
    """Raise OutputNotUsableError where a directory that is no table holds another output's files."""
    strange = next((name for name in names if name.endswith(".parquet") or "=" in name or name == "_delta_log"), None)
    if strange is not None:
        raise OutputNotUsableError(
            f"expected {kind} table in {output}, or an empty directory to make one in, found {strange}: files of "
            f"another output, which {clean_up} would delete. Give the feed another sink.path."
        )


class TableCommits(Protocol):
    """Looks at one table and commits to it: the first mark of a batch is final."""

    @property
    def says(self) -> str:
        """The beginning of a sentence on what it says of a batch, such as "the log of /data/orders says"."""

    def mark(self, batch_id: UUID) -> Mark | None:
        """Return a batch's mark as of now, None where it has none."""

    def rows(self) -> TableRows:
        """Return what the table holds now."""

    def clean_up(self) -> CleanUp:
        """Return what another program's clean-up of this table takes."""

    def check_can_remove(self, *, replacing: bool = False) -> None:
        """Raise OutputNotUsableError on a table whose rows cannot be taken out, or not ``replacing`` them by others."""

    def check_files(self, staged: Staged) -> None:
        """Raise StagedOutputUnusableError where staged files cannot be part of the table as their receipt says.

        ColumnsChangedError where columns of decoded records would be misread in it.
        """

    def replaced_files(self, replaced: Sequence[ReplacedRange]) -> Iterator[ReplacedFile]:
        """Yield the files in which readers see rows of some ranges."""

    def land(self, mark: Mark, staged: Staged | None = None, replaced: Sequence[ReplacedRange] = ()) -> Mark:
        """Commit a batch's mark with its files; return the mark that it then has, which is the first writer's.

        The rows of the ``replaced`` ranges leave the table in the same commit; they are found in what it follows,
        wherever they are by then, and all other rows stay. Raises StagedOutputUnusableError, before anything is
        committed, where files are not as staged.
        """

    def delete_rows(self, batch_id: UUID) -> None:
        """Take a batch's rows out of the table in one commit; does nothing where there are none."""

    def make_durable(self) -> None:
        """Flush what was committed, where commits are not durable when they return."""


class TableFormat(Protocol):
    """One table of a format, which need not be there yet."""

    output: Place
    options: TableOptions
    own_columns: bool
    """Whether a day or an hour that the table is partitioned by needs a column of its own."""

    @property
    def data_folder(self) -> Place | None:
        """Where the data files of batches are, published or not; None where their rows are copied into the table."""

    @property
    def commits(self) -> TableCommits:
        """What looks at the table and commits to it."""

    def check_installed(self) -> None:
        """Raise InstallationError where the format's library is missing; imports nothing."""

    def one_reading(self) -> AbstractContextManager[None]:
        """Spare further looks within this the reading of the whole table.

        They may see it as it was at the first one: a commit is bound to what was read.
        """

    def check_usable(self) -> None:
        """Raise OutputNotUsableError where batches cannot be added to what is there; creates nothing."""

    def published(self) -> set[str]:
        """Return the ids of the batches that the table knows as published, by its marks or by their own files."""

    def columns_left_out(self) -> tuple[str, ...]:
        """Return the columns of the raw format that files leave out, since the table has no such columns."""

    def columns(self, written: WrittenColumns) -> WrittenColumns:
        """Return the table's columns beside Kafka's own, as receipts list them; none where there is no table yet.

        ``written`` are those that are to be written: a type that the format does not know is called as there, where it
        is stored as the table has it.
        """

    def misfits(self, written: WrittenColumns) -> Iterator[str]:
        """Yield which columns that are to be written the table cannot have, or has otherwise than by their type."""
