"""What a table in PostgreSQL holds of batches: rows and marks. No row is in a file as it was published."""

from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any
from uuid import UUID

from sqlalchemy import (
    ARRAY,
    Column,
    ColumnElement,
    Connection,
    Integer,
    Select,
    Table,
    Text,
    Uuid,
    any_,
    cast,
    delete,
    func,
    literal,
    select,
    true,
    tuple_,
)

from kafka_ingest.errors import OutputNotUsableError
from kafka_ingest.model.offsets import TopicPartition
from kafka_ingest.model.read_again import ReplacedRange
from kafka_ingest.model.table_options import IS_DELETED
from kafka_ingest.model.written_columns import BATCH_COLUMN, POSITION
from kafka_ingest.sinks.postgresql.database import Database
from kafka_ingest.sinks.postgresql.refused_rows import IMMEDIATE
from kafka_ingest.sinks.tables.table_format import Mark, Outcome, RowsByMarks

if TYPE_CHECKING:
    import pyarrow as pa

    from kafka_ingest.sinks.found_offsets import FoundOffsets

PIECE = 50_000


class PostgresqlRows(RowsByMarks):
    """The rows of the tables that exist, of the feed's and that beside it, and the marks; None where there are none."""

    def __init__(self, database: Database, name: str, tables: Sequence[Table], marks: Table | None) -> None:
        self._database = database
        self._name = name
        self._tables = tables
        self._marks_table = marks

    @cached_property
    def marks(self) -> dict[UUID, Mark]:
        if self._marks_table is None:
            return {}
        columns = self._marks_table.c
        query = select(columns.batch_id, columns.outcome, columns.plan_fingerprint)
        return {batch_id: Mark(batch_id, Outcome(outcome), print_) for batch_id, outcome, print_ in self._read(query)}

    def visible(self, batch_ids: set[str]) -> set[str]:
        some = cast(literal(sorted(map(UUID, batch_ids)), ARRAY(Uuid())), ARRAY(Uuid()))
        batches = [table.c[BATCH_COLUMN] for table in self._tables]
        return {
            str(found)
            for batch in batches
            for (found,) in self._read(select(batch).where(batch == any_(some)).distinct())
        }

    def is_visible(self, batch_id: UUID) -> bool:
        return any(self._read(select(1).where(of_batch(table, batch_id)).limit(1)) for table in self._tables)

    @property
    def are_newest_states(self) -> bool:
        return any(IS_DELETED in table.c for table in self._tables)

    def count_elsewhere(self, batch_id: UUID) -> int:
        """Where rows are the newest states of keys, how many records its mark says that have become them."""
        return self._counts.get(str(batch_id), 0)

    @cached_property
    def _counts(self) -> dict[str, int]:
        if self.are_newest_states and self._marks_table is not None:
            marks = self._marks_table.c
            said = select(marks.batch_id, marks.proof["rows"].as_integer()).where(marks.proof.is_not(None))
            return {str(batch_id): number for batch_id, number in self._read(said)}
        found: Counter[str] = Counter()
        for batch in (table.c[BATCH_COLUMN] for table in self._tables):
            counted = select(batch, func.count()).where(batch.is_not(None)).group_by(batch)
            found.update({str(batch_id): number for batch_id, number in self._read(counted)})
        return found

    def rows_elsewhere(self, batch_id: UUID) -> Iterator["pa.Table"]:
        for table in self._tables:
            yield from self._pieces(table, POSITION, of_batch(table, batch_id))

    def positions_of(self, replaced: Sequence[ReplacedRange]) -> Iterator["pa.Table"]:
        """Yield the positions of the rows of some ranges, a piece at a time."""
        for table in self._tables:
            yield from self._pieces(table, POSITION, of_ranges(table, replaced))

    def _pieces(self, table: Table, names: Sequence[str], condition: ColumnElement[bool]) -> Iterator["pa.Table"]:
        import pyarrow as pa  # noqa: PLC0415 - a third of a second, for questions about rows only

        from kafka_ingest.sinks.tables.replaced_rows import TYPES  # noqa: PLC0415

        # An id as text, as files have it.
        columns = [cast(table.c[name], Text) if name == BATCH_COLUMN else table.c[name] for name in names]
        with self._database.named_transaction(self._name) as connection:
            found = connection.execution_options(yield_per=PIECE).execute(select(*columns).where(condition))
            for rows in found.partitions():
                arrays = [
                    pa.array(values, TYPES[name]) for name, values in zip(names, zip(*rows, strict=True), strict=True)
                ]
                yield pa.table(arrays, list(names))

    def holds_elsewhere(self, batch_id: UUID, topic_partition: TopicPartition, offset: int) -> bool:
        wanted = (topic_partition.topic, topic_partition.partition, offset)
        return any(
            self._read(
                select(1).where(
                    of_batch(table, batch_id),
                    *(table.c[name] == value for name, value in zip(POSITION, wanted, strict=True)),
                )
            )
            for table in self._tables
        )

    def said(self) -> Iterator[tuple[str | None, str | None]]:
        """Yield the proofs beside the marks; rows that were removed are named by the receipts alone."""
        if self._marks_table is not None:
            proof = self._marks_table.c.proof
            yield from ((each, None) for (each,) in self._read(select(cast(proof, Text)).where(proof.is_not(None))))

    def add_to(self, found: "FoundOffsets") -> None:
        for table in self._tables:
            names = [name for name in ("kafka_topic_id", *POSITION, BATCH_COLUMN) if name in table.c]
            for piece in self._pieces(table, names, true()):
                found.add(self._name, piece, {})

    def _read(self, query: Select[Any]) -> Sequence[Any]:
        with self._database.named_transaction(self._name) as connection:
            return connection.execute(query).all()


def delete_all(connection: Connection, table: Table, which: ColumnElement[bool]) -> None:
    """Delete rows; raises OutputNotUsableError where one stays."""
    connection.execute(delete(table).where(which))
    check_gone(connection, table, which)


def check_gone(connection: Connection, table: Table, which: ColumnElement[bool]) -> None:
    """Raise OutputNotUsableError where rows that were deleted are there, also by triggers that wait for the commit."""
    connection.execute(IMMEDIATE)
    if connection.execute(select(1).select_from(table).where(which).limit(1)).first() is not None:
        raise OutputNotUsableError(
            f"table {table.fullname} in PostgreSQL: expected that rows leave it once they are deleted, found that some "
            "stay. A rule or a trigger of DELETE keeps them or adds them again. Nothing was changed. Take it away and "
            "run this again."
        )


def of_batch(table: Table, batch_id: UUID) -> ColumnElement[bool]:
    return table.c[BATCH_COLUMN] == batch_id


def of_ranges(table: Table, replaced: Sequence[ReplacedRange]) -> ColumnElement[bool]:
    """Return which rows are replaced: all of the ranges' batches in their partitions."""
    columns: list[Column[Any]] = [table.c[name] for name in (BATCH_COLUMN, "kafka_topic", "kafka_partition")]
    keys = {(each.batch_id, each.topic_partition.topic, each.topic_partition.partition) for each in replaced}
    # One parameter for each column: a statement has at most 65,535.
    kinds: tuple[ARRAY[Any], ...] = (ARRAY(Uuid()), ARRAY(Text()), ARRAY(Integer()))
    arrays = [cast(literal([key[number] for key in keys], kind), kind) for number, kind in enumerate(kinds)]
    return tuple_(*columns).in_(select(func.unnest(*arrays).table_valued("batch", "topic", "part").render_derived()))
