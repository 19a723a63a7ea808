"""What is in a file of dead letters.

Questions raise NotADataFileError where it is damaged or holds no dead letters, OSError where it cannot be read.
"""

import contextlib
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import IO, TYPE_CHECKING, Any, Protocol
from uuid import UUID

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet

from kafka_ingest.errors import NotADataFileError
from kafka_ingest.foundation.storage import Opened, open_to_read
from kafka_ingest.model.dead_letters import PREVIEW_BYTES, DeadLetter, DeadLettersOfFile, DecodingError
from kafka_ingest.model.offsets import OffsetRange, TopicPartition, by_partition, union
from kafka_ingest.model.read_again import ReplayedLetters
from kafka_ingest.model.written_columns import POSITION
from kafka_ingest.sinks.tables.decoded_columns import is_own

if TYPE_CHECKING:
    from kafka_ingest.sinks.tables.table_format import TableRows

CAUSE = ("error_part", "error_class")
RECORDS_AT_ONCE = 10_000
LARGE_RECORDS_AT_ONCE = 10
BROUGHT_AT_ONCE = 100
"""Rows, whose values may be large."""

TYPES: Mapping[str, pa.DataType] = {
    **dict.fromkeys(("kafka_topic", "kafka_topic_id", "error_part", "error_class", "error"), pa.string()),
    **dict.fromkeys(("kafka_offset", "kafka_timestamp_ms", "schema_id"), pa.int64()),
    **dict.fromkeys(("kafka_partition", "attempt"), pa.int32()),
    **dict.fromkeys(("key", "value"), pa.binary()),
    "kafka_timestamp": pa.timestamp("us", "UTC"),
    "kafka_headers": pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())])),
}
"""The columns of a file of dead letters; those of earlier versions lack some."""


class Letters(Protocol):
    """Dead letters, in a file or as rows of a table."""

    def iter_batches(self, batch_size: int = ..., *, columns: list[Any] | None = ...) -> Iterator[pa.RecordBatch]:
        """Yield so many at a time, of some columns."""


def dead_letters_in(letters: Letters, *, samples: int, without: Collection[ReplayedLetters] = ()) -> DeadLettersOfFile:
    """Return how many records there are of each cause, with the first ones of each.

    ``without``: letters of the file's batch that do not count, since they were replayed.

    Read in parts, since values may be large.
    """
    counts: Counter[DecodingError] = Counter()
    found: list[DeadLetter] = []
    columns = [*POSITION, "kafka_timestamp", "key", "value", *CAUSE, "error"]
    of_counts = [*CAUSE, *(POSITION if without else ())]
    for batch in letters.iter_batches(RECORDS_AT_ONCE, columns=of_counts):
        left = not_replayed(pa.table(batch), without)
        table = left.group_by(list(CAUSE)).aggregate([([], "count_all")])
        for row in table.to_pylist():
            counts[DecodingError(row["error_part"], row["error_class"])] += row["count_all"]
    wanted = Counter(dict.fromkeys(counts, samples))
    for batch in letters.iter_batches(LARGE_RECORDS_AT_ONCE, columns=columns):
        if not +wanted:
            break
        found += taken(not_replayed(pa.table(batch), without), wanted)
    return DeadLettersOfFile(counts, found)


class LettersInTable:
    """The dead letters of a batch that another program has put into other files of the table.

    ``others``: the names of the table's columns beside Kafka's own.
    """

    def __init__(self, rows: "TableRows", batch_id: UUID, others: Collection[str]) -> None:
        self._rows = rows
        self._batch_id = batch_id
        self._others = others

    def iter_batches(self, batch_size: int = 0, *, columns: list[Any] | None = None) -> Iterator[pa.RecordBatch]:
        """Yield at most so many rows at a time, of some columns or of all."""
        names = [name for name in TYPES if (name in columns if columns else is_own(name) or name in self._others)]
        for piece in self._rows.read_elsewhere(names, self._batch_id):
            yield from piece.to_batches(max_chunksize=batch_size or None)


@contextlib.contextmanager
def letters_in(path: Opened) -> Iterator[pyarrow.parquet.ParquetFile]:
    """Yield a file of dead letters, open; raises NotADataFileError where it is damaged or holds none."""
    try:
        with open_to_read(path) as file, pyarrow.parquet.ParquetFile(file) as letters:
            yield letters
    except (pa.ArrowException, KeyError, ValueError) as error:
        raise NotADataFileError(f"expected a file of dead letters, found {path}: {error}") from error


def batch_of(names: Sequence[str], columns: Iterable[Iterable[Any]]) -> pa.RecordBatch:
    """Return some columns of letters, with their types."""
    arrays = [pa.array(values, TYPES[name]) for name, values in zip(names, columns, strict=True)]
    return pa.record_batch(arrays, list(names))


def write_letters(sources: Iterable[Letters], target: IO[bytes]) -> None:
    """Write all letters of some sources, of one batch, into a Parquet file."""
    with contextlib.ExitStack() as stack:
        writer: pyarrow.parquet.ParquetWriter | None = None
        for batch in (each for source in sources for each in source.iter_batches(BROUGHT_AT_ONCE)):
            if writer is None:
                schema = pa.schema([(name, kind) for name, kind in TYPES.items() if name in batch.schema.names])
                writer = stack.enter_context(pyarrow.parquet.ParquetWriter(target, schema))
            # Buffered, which a table is not: a row group for each hundred rows would be small.
            for each in pa.table(batch).select(schema.names).cast(schema).to_batches():
                writer.write_batch(each)


def taken(rows: pa.Table, wanted: Counter[DecodingError]) -> list[DeadLetter]:
    """Return rows of the causes of which samples are wanted, and count them down."""
    found: list[DeadLetter] = []
    for cause in +wanted:
        of_cause = rows.filter(
            (pc.field("error_part") == cause.part) & (pc.field("error_class") == cause.error_class)
        ).slice(0, wanted[cause])
        for name in ("key", "value"):
            beginning = pc.binary_slice(of_cause[name], 0, PREVIEW_BYTES + 1)
            of_cause = of_cause.set_column(of_cause.schema.get_field_index(name), name, beginning)
        wanted[cause] -= len(of_cause)
        found += [
            DeadLetter(
                TopicPartition(row["kafka_topic"], row["kafka_partition"]),
                row["kafka_offset"],
                row["kafka_timestamp"],
                cause,
                row["error"],
                row["key"],
                row["value"],
            )
            for row in of_cause.to_pylist()
        ]
    return found


def count_in_ranges(letters: Letters, ranges: Sequence[OffsetRange]) -> dict[OffsetRange, Counter[str]]:
    """Return how many records of each error class a file holds in each of some ranges, which do not overlap."""
    pieces = by_partition(ranges)
    found: dict[OffsetRange, Counter[str]] = {}
    for batch in letters.iter_batches(RECORDS_AT_ONCE, columns=[*POSITION, "error_class"]):
        table = pa.table(batch)
        for at, error_class, smallest, largest, number in groups_of(table):
            for piece in pieces.get(at, ()):
                if piece.start_offset <= smallest and largest < piece.end_offset:
                    count = number
                elif largest < piece.start_offset or piece.end_offset <= smallest:
                    continue
                else:
                    count = len(table.filter(are_in(piece, [error_class])))
                found.setdefault(piece, Counter())[error_class] += count
    return found


def groups_of(table: pa.Table) -> Iterator[tuple[TopicPartition, str, int, int, int]]:
    """Yield each partition and error class of a table: with the smallest and largest offset, and the number of rows."""
    found = table.group_by(["kafka_topic", "kafka_partition", "error_class"]).aggregate(
        [("kafka_offset", "min"), ("kafka_offset", "max"), ("kafka_offset", "count")]
    )
    for row in found.to_pylist():
        at = TopicPartition(row["kafka_topic"], row["kafka_partition"])
        yield at, row["error_class"], row["kafka_offset_min"], row["kafka_offset_max"], row["kafka_offset_count"]


def are_in(piece: OffsetRange, causes: Collection[str]) -> pc.Expression:
    offset = pc.field("kafka_offset")
    return (
        (pc.field("kafka_topic") == piece.topic)
        & (pc.field("kafka_partition") == piece.partition)
        & (offset >= piece.start_offset)
        & (offset < piece.end_offset)
        & pc.field("error_class").isin(sorted(causes))
    )


def not_replayed(table: pa.Table, replayed: Collection[ReplayedLetters]) -> pa.Table:
    if not replayed:
        return table
    here = {at for at, *_ in groups_of(table)}
    for each in replayed:
        if each.topic_partition in here:
            table = table.filter(~are_in(each.offset_range, each.causes))
    return table


def offsets_of(held: Letters, letters: Collection[ReplayedLetters]) -> list[OffsetRange]:
    found: list[OffsetRange] = []
    for batch in held.iter_batches(RECORDS_AT_ONCE, columns=[*POSITION, "error_class"]):
        table = pa.table(batch)
        here = {at for at, *_ in groups_of(table)}
        for each in letters:
            if (at := each.topic_partition) in here:
                rows = table.filter(are_in(each.offset_range, each.causes)).to_pylist()
                found += [OffsetRange(at, row["kafka_offset"], row["kafka_offset"] + 1) for row in rows]
    return union(found)
