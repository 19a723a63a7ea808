"""What is in a Parquet file of this project: partitions, exact offsets, types, rows. Importing this imports pyarrow.

And what published files together hold of each partition, of a table with the rows that other programs have moved, and
where one differs from its receipt.
"""

import contextlib
import itertools
import sys
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet

from kafka_ingest.errors import NotADataFileError, StagedOutputUnusableError
from kafka_ingest.foundation.storage import Opened, open_to_read, size_of
from kafka_ingest.model.offsets import OffsetRange, TopicPartition, listing
from kafka_ingest.model.partition_term import TIME
from kafka_ingest.model.published_output import (
    FileContents,
    FileProblem,
    PartitionContents,
    PublishedCount,
    PublishedLook,
    partitions_that_differ,
)
from kafka_ingest.model.receipt import Receipt, WrittenFile
from kafka_ingest.model.record_schema import ArrayOf, Field, MapOf, RecordType, Scalar, Struct
from kafka_ingest.model.written_columns import POSITION

UTC_TIME = pa.timestamp("us", "UTC")

NO_NEIGHBOUR = -2
"""Next to no offset: those are 0 or more."""


class DataFile:
    """One data file, published or staged.

    Its questions raise NotADataFileError where it is not Parquet, or not of this project's form, and OSError where the
    system cannot read it or it does not exist.
    """

    def __init__(self, path: Opened) -> None:
        self._path = path

    def contents(self, *, intervals: int) -> FileContents:
        with self._open() as file:
            schema = file.schema_arrow
            offsets_of = positions(file)
            rows = file.metadata.num_rows
        partitions: list[PartitionContents] = []
        for topic_partition, offsets in sorted(offsets_of.items()):
            partitions.append(contents_of(topic_partition, offsets, intervals))
            intervals -= len(partitions[-1].intervals)
        return FileContents(
            size_bytes=size_of(self._path),
            rows=rows,
            partitions=tuple(partitions),
            columns=tuple((field.name, str(field.type)) for field in schema),
        )

    def offsets(self, topic_partition: TopicPartition) -> "pa.Array[Any]":
        with self._open() as file:
            return positions(file).get(topic_partition, pa.array([], pa.int64()))

    def columns(self) -> Struct:
        with self._open() as file:
            return struct_of(file.schema_arrow)

    def read_all(self) -> None:
        """Read every column of every row, as users of the file do; only that finds a damaged page."""
        with self._open() as file:
            for group in range(file.num_row_groups):
                for batch in file.iter_batches(row_groups=[group]):
                    del batch

    def holds(self, topic_partition: TopicPartition, offset: int) -> bool:
        """Whether the record of a position is in it; reads only the row groups whose statistics allow for it."""
        with self._open() as file:
            groups = (
                file.read_row_group(group, columns=list(POSITION))
                for group in range(file.num_row_groups)
                if may_hold(file.metadata.row_group(group), "kafka_offset", offset)
            )
            return any(holds(rows, topic_partition, offset) for rows in groups)

    def rows_by_hour(self, before: datetime) -> dict[datetime, int]:
        """Return how many rows are of each hour before a time; reads only row groups that may have any."""
        found: Counter[datetime] = Counter()
        with self._open() as file:
            for number in range(file.num_row_groups if TIME in file.schema_arrow.names else 0):
                if may_be_before(file.metadata.row_group(number), before):
                    read: Any = file.read_row_group(number, columns=[TIME])[TIME].cast(UTC_TIME, safe=False)
                    early = read.filter(pc.less(read, pa.scalar(before, UTC_TIME)))
                    hours: Any = pc.value_counts(pc.floor_temporal(early, unit="hour"))
                    found.update({each["values"]: each["counts"] for each in hours.to_pylist()})
        return dict(found)

    @contextlib.contextmanager
    def _open(self) -> Iterator[pyarrow.parquet.ParquetFile]:
        try:
            with (
                open_to_read(self._path) as source,
                pyarrow.parquet.ParquetFile(source, page_checksum_verification=True) as file,
            ):
                check_columns(file)
                yield file
        except (pa.ArrowException, ValueError, TypeError, OSError) as error:
            # Arrow raises OSError for damage, too, but only the system's errors have a number.
            if isinstance(error, OSError) and error.errno is not None:
                raise
            raise NotADataFileError(
                f"{self._path}: expected a data file of this project, found a damaged one, or another: {error}"
            ) from error


def holds(rows: "pa.Table", topic_partition: TopicPartition, offset: int) -> bool:
    """Whether the record of a position is among rows."""
    of_offset = rows.filter(pc.equal(rows["kafka_offset"], pa.scalar(offset, pa.int64())))
    return topic_partition in partitions_of(of_offset)


def check_columns(file: pyarrow.parquet.ParquetFile) -> None:
    """Raise ValueError unless a file's records have a position."""
    names = file.schema_arrow.names
    if missing := [name for name in POSITION if name not in names]:
        raise ValueError(f"no column {', '.join(missing)} among {listing(names)}")


def may_hold(group: pyarrow.parquet.RowGroupMetaData, name: str, value: int | str) -> bool:
    found = bounds_of(group, name)
    return found is None or bool(found[0] <= value <= found[1])


def may_be_before(group: pyarrow.parquet.RowGroupMetaData, before: datetime) -> bool:
    found = bounds_of(group, TIME)
    least = found[0] if found is not None else None
    return not isinstance(least, datetime) or least.replace(tzinfo=least.tzinfo or UTC) < before


def bounds_of(group: pyarrow.parquet.RowGroupMetaData, name: str) -> tuple[Any, Any] | None:
    """Return the smallest and largest value of a row group's column by its statistics, None where they do not say."""
    for number in range(group.num_columns):
        column = group.column(number)
        if column.path_in_schema == name:
            found: Any = column.statistics
            return (found.min, found.max) if found is not None and found.has_min_max else None
    return None


def contents_of(topic_partition: TopicPartition, offsets: "pa.Array[Any]", intervals: int) -> PartitionContents:
    """Return a summary of a partition's offsets, at least one, with their first intervals."""
    in_order = offsets.unique().sort()
    starts, ends = runs(in_order)
    first: tuple[list[Any], list[Any]] = starts[:intervals].to_pylist(), ends[:intervals].to_pylist()
    return PartitionContents(
        topic_partition=topic_partition,
        rows=len(offsets),
        smallest_offset=in_order[0].as_py(),
        largest_offset=in_order[-1].as_py(),
        distinct_offsets=len(in_order),
        intervals=tuple(OffsetRange(topic_partition, *run) for run in zip(*first, strict=True)),
        interval_count=len(starts),
    )


def positions(file: pyarrow.parquet.ParquetFile) -> dict[TopicPartition, "pa.Array[Any]"]:
    offsets: dict[TopicPartition, list[pa.Array[Any]]] = {}
    for group in range(file.num_row_groups):
        table = file.read_row_group(group, columns=list(POSITION))
        there = partitions_of(table)
        for topic_partition in there:
            # Where there is one, as in most files, nothing is compared.
            found = table if len(there) == 1 else rows_of(table, topic_partition)
            offsets.setdefault(topic_partition, []).extend(found["kafka_offset"].chunks)
    return {topic_partition: pa.concat_arrays(chunks) for topic_partition, chunks in offsets.items()}


def partitions_of(table: "pa.Table") -> set[TopicPartition]:
    by_partition = table.group_by(["kafka_topic", "kafka_partition"]).aggregate([])
    return {TopicPartition(row["kafka_topic"], row["kafka_partition"]) for row in by_partition.to_pylist()}


def rows_of(table: "pa.Table", topic_partition: TopicPartition) -> "pa.Table":
    of_topic = table.filter(pc.equal(table["kafka_topic"], pa.scalar(topic_partition.topic)))
    return of_topic.filter(pc.equal(of_topic["kafka_partition"], pa.scalar(topic_partition.partition, pa.int32())))


def runs(offsets: "pa.Array[Any]") -> tuple["pa.Array[Any]", "pa.Array[Any]"]:
    """Return where the contiguous runs of sorted offsets start and end; the end is not in the run."""
    if not len(offsets):
        return offsets, offsets
    outside = pa.array([NO_NEIGHBOUR], pa.int64())
    before = pa.concat_arrays([outside, offsets.slice(0, len(offsets) - 1)])
    after = pa.concat_arrays([offsets.slice(1), outside])
    one = pa.scalar(1, pa.int64())
    starts = offsets.filter(pc.not_equal(pc.subtract(offsets, before), one))
    last = offsets.filter(pc.not_equal(pc.subtract(after, offsets), one))
    return starts, pc.add(last, one)


ROWS_AT_ONCE = 10
LONGEST_VALUE = 200
MOST_VALUES = 20


def rows_in_short(path: Opened) -> list[dict[str, Any]]:
    """Return the rows by the names of their columns.

    Of a text or bytes the first 200 characters, of a list or map the first 20 values.
    """
    found: list[dict[str, Any]] = []
    with open_to_read(path) as file, pyarrow.parquet.ParquetFile(file) as rows:
        for batch in rows.iter_batches(ROWS_AT_ONCE):
            found += [{name: in_short(value) for name, value in row.items()} for row in batch.to_pylist()]
    return found


def in_short(value: object) -> object:
    match value:
        case str() if len(value) > LONGEST_VALUE:
            return f"{value[:LONGEST_VALUE]}…"
        case bytes():
            return value[: LONGEST_VALUE + 1]
        case list() | tuple():
            return [in_short(each) for each in value[:MOST_VALUES]]
        case Mapping():
            return {name: in_short(each) for name, each in value.items()}
        case _:
            return value


NAMES: Final = {
    pa.bool_(): "boolean",
    pa.int8(): "tinyint",
    pa.int16(): "smallint",
    pa.int32(): "int",
    pa.int64(): "bigint",
    pa.float32(): "float",
    pa.float64(): "double",
    pa.date32(): "date",
    pa.string(): "string",
    pa.large_string(): "string",
    pa.binary(): "binary",
    pa.large_binary(): "binary",
}


@contextlib.contextmanager
def staged_footer(path: Opened) -> Iterator[pyarrow.parquet.FileMetaData]:
    """Yield a staged file's footer; raises StagedOutputUnusableError where it is damaged or of unknown types."""
    try:
        with open_to_read(path) as file:
            yield pyarrow.parquet.read_metadata(file)
    except (pa.ArrowException, ValueError, OSError) as error:
        # Arrow raises OSError for a damaged footer, too, but only the system's errors have a number.
        if isinstance(error, OSError) and error.errno is not None:
            raise
        raise StagedOutputUnusableError(f"{path} is not a readable Parquet file: {error}") from error


def struct_of(fields: "pa.Schema | pa.StructType") -> Struct:
    """Return columns, or the fields of a struct; of a type without a name of ours, Arrow's own."""
    return Struct(tuple(Field(each.name, type_of(each.type)) for each in fields))


def type_of(found: Any) -> RecordType:  # noqa: ANN401 - Arrow's types have no class that has all that is read
    if pa.types.is_struct(found):
        return struct_of(found)
    if pa.types.is_map(found):
        key = type_of(found.key_type)
        return MapOf(type_of(found.item_type), key.ddl)
    if pa.types.is_list(found) or pa.types.is_large_list(found):
        return ArrayOf(type_of(found.value_type))
    if pa.types.is_timestamp(found) and found.unit == "us":
        return Scalar("timestamp" if found.tz is not None else "timestamp_ntz")
    if pa.types.is_decimal(found):
        return Scalar(f"decimal({found.precision},{found.scale})")
    return Scalar(NAMES.get(found, str(found)))


def look_into(
    path: Opened, name: str, written: WrittenFile | None, *, closely: bool
) -> tuple[Sequence[PartitionContents], FileProblem | None]:
    """Return what an existing file holds, and what is wrong with it; nothing of a damaged one.

    ``name`` is its name in a receipt, ``written`` its entry there, None where it has none. Raises OSError where the
    system cannot read it: that proves nothing about its content.
    """
    try:
        contents = DataFile(path).contents(intervals=0)
        if closely:
            DataFile(path).read_all()
    except NotADataFileError as error:
        return (), FileProblem(name, written, str(error), is_there=True)
    if written is not None and (differences := listing(other_than(written, contents))):
        return contents.partitions, FileProblem(name, written, f"{path}: {differences}", is_there=True)
    return contents.partitions, None


def other_than(written: WrittenFile, contents: FileContents) -> Iterator[str]:
    """Yield how the records of a file differ from its receipt; the size of a file of another writer does not count."""
    for what, expected, found in (
        ("rows", written.rows, contents.rows),
        ("different offsets", written.rows, contents.distinct_offsets),
    ):
        if expected != found:
            yield f"{what}: the receipt says {expected}, found {found}"
    yield from partitions_that_differ(written, contents)


Files = Iterable[tuple[str, Opened, WrittenFile | None]]
"""Existing files: the name, the place, and the entry in the receipt."""
Held = dict[TopicPartition, list[tuple[Opened, PartitionContents]]]
Offsets = Any
"""An array of Arrow's."""


def held_in(files: Files, *, closely: bool) -> tuple[Held, list[FileProblem]]:
    found: Held = {}
    problems: list[FileProblem] = []
    for name, path, written in files:
        partitions, problem = look_into(path, name, written, closely=closely)
        problems += [problem] if problem is not None else []
        for held in partitions:
            found.setdefault(held.topic_partition, []).append((path, held))
    return found, problems


def look_at_named(
    path_of: Callable[[str], Opened], there: Collection[str], receipt: Receipt | None, *, closely: bool
) -> PublishedLook:
    """Return what the files of a batch hold, by their names, and which differ from the receipt.

    A damaged one stops no other. Raises OSError where the system cannot read one: that proves nothing about its
    content.
    """
    expected = {file.name: file for file in receipt.files} if receipt is not None else {}
    found, problems = held_in(((name, path_of(name), expected.get(name)) for name in sorted(there)), closely=closely)
    problems += [
        FileProblem(name, written, f"{path_of(name)} is not there", is_there=False)
        for name, written in expected.items()
        if name not in there
    ]
    counts = [count_of(each, found[each]) for each in sorted(found)]
    return PublishedLook(counts, problems, sorted(set(there) - expected.keys()))


def look_at_batch(
    path_of: Callable[[str], Opened],
    there: Collection[str],
    receipt: Receipt,
    named: Collection[str],
    moved: Iterable[pa.Table],
    *,
    closely: bool,
) -> PublishedLook:
    """Return what readers see of a batch; a damaged file stops no other.

    ``named`` are those of the receipt's files that readers find as they were published, ``there`` the names of files
    that exist, ``moved`` the positions of the batch's rows that are elsewhere.
    """
    own, gone = ([file for file in receipt.files if (file.name in named) is is_named] for is_named in (True, False))
    found, problems = held_in(
        ((file.name, path_of(file.name), file) for file in own if file.name in there), closely=closely
    )
    problems += [
        FileProblem(file.name, file, f"{path_of(file.name)} is not there, and readers look for it", is_there=False)
        for file in own
        if file.name not in there
    ]
    elsewhere = offsets_by_partition(moved)
    if sum(map(len, elsewhere.values())) < sum(file.rows for file in gone):
        lost = "the table does not name it as it was published, nor hold all of its rows elsewhere"
        problems += [FileProblem(file.name, file, f"{path_of(file.name)}: {lost}", is_there=False) for file in gone]
    counts = [count_of(each, found.get(each, []), elsewhere.get(each)) for each in sorted(found.keys() | elsewhere)]
    return PublishedLook(counts, problems)


def count_of(
    topic_partition: TopicPartition, files: Sequence[tuple[Opened, PartitionContents]], moved: Offsets | None = None
) -> PublishedCount:
    """Return what files hold of a partition, and rows that are elsewhere, by their offsets."""
    parts = [held for _, held in files]
    parts += [contents_of(topic_partition, moved, 0)] if moved is not None else []
    bounds = sorted((each.smallest_offset, each.largest_offset) for each in parts)
    offsets = sum(each.distinct_offsets for each in parts)
    if any(later[0] <= earlier[1] for earlier, later in itertools.pairwise(bounds)):
        # They may share offsets: only reading all of them shows which are in both.
        every = [DataFile(path).offsets(topic_partition) for path, _ in files]
        offsets = len(pa.concat_arrays([*every, *([moved] if moved is not None else [])]).unique())
    rows = sum(each.rows for each in parts)
    return PublishedCount(topic_partition, rows, offsets, bounds[0][0], max(largest for _, largest in bounds))


def offsets_by_partition(positions: Iterable[pa.Table]) -> dict[TopicPartition, Offsets]:
    offsets: dict[TopicPartition, list[Offsets]] = {}
    for table in positions:
        for topic_partition in partitions_of(table):
            found = rows_of(table, topic_partition)["kafka_offset"].combine_chunks()
            offsets.setdefault(topic_partition, []).append(found)
    return {topic_partition: pa.concat_arrays(chunks) for topic_partition, chunks in offsets.items()}


def contents_by_partition(positions: Iterable[pa.Table]) -> dict[TopicPartition, PartitionContents]:
    found = offsets_by_partition(positions)
    return {each: contents_of(each, offsets, sys.maxsize) for each, offsets in found.items()}


def contents_of_files(files: Iterable[Opened]) -> list[PartitionContents]:
    """Return what staged files hold, one by one; raises StagedOutputUnusableError where one is damaged."""
    try:
        return [held for file in files for held in DataFile(file).contents(intervals=sys.maxsize).partitions]
    except NotADataFileError as error:
        raise StagedOutputUnusableError(str(error)) from error
