"""What is in a Parquet file of ours: which partition, which offsets exactly. Importing this imports pyarrow."""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet

from kafka_ingest.errors import NotADataFileError
from kafka_ingest.offsets import OffsetRange, TopicPartition, listing

POSITION = ("kafka_topic", "kafka_partition", "kafka_offset")

NO_NEIGHBOUR = -2
"""Next to no offset: those are 0 or more."""


@dataclass(frozen=True, slots=True)
class FileContents:
    """What a data file holds. ``topic_partition`` and the offsets are None where it has no rows.

    ``intervals`` are the contiguous runs of its offsets, as many as were asked for; ``interval_count`` says how many there are.
    ``distinct_offsets`` equals ``rows`` unless a record comes twice.
    """

    size_bytes: int
    rows: int
    topic_partition: TopicPartition | None
    smallest_offset: int | None
    largest_offset: int | None
    distinct_offsets: int
    intervals: tuple[OffsetRange, ...]
    interval_count: int
    columns: tuple[tuple[str, str], ...]
    """Name and type of each, as Arrow calls it."""


class DataFile:
    """One data file, published or staged.

    Its questions raise NotADataFileError where it is not Parquet, or not of this project's form, and OSError where the system
    cannot read it, or it is not there.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    def contents(self, *, intervals: int) -> FileContents:
        """Return what it holds, with its first intervals of offsets."""
        with self._open() as file:
            schema = file.schema_arrow
            partitions, offsets = positions(file)
            rows = file.metadata.num_rows
        if len(partitions) > 1:
            raise NotADataFileError(
                f"{self._path}: expected the records of one partition, as this project writes them, found "
                f"{listing(sorted(partitions))}"
            )
        topic_partition = next(iter(partitions), None)
        in_order = offsets.unique().sort()
        starts, ends = runs(in_order)
        first: tuple[list[Any], list[Any]] = starts[:intervals].to_pylist(), ends[:intervals].to_pylist()
        return FileContents(
            size_bytes=self._path.stat().st_size,
            rows=rows,
            topic_partition=topic_partition,
            smallest_offset=in_order[0].as_py() if len(in_order) else None,
            largest_offset=in_order[-1].as_py() if len(in_order) else None,
            distinct_offsets=len(in_order),
            intervals=tuple(OffsetRange(topic_partition, *run) for run in zip(*first, strict=True) if topic_partition),
            interval_count=len(starts),
            columns=tuple((field.name, str(field.type)) for field in schema),
        )

    def holds(self, offset: int) -> bool:
        """Whether the record of an offset is in it; reads no more than the row groups whose statistics allow for it."""
        with self._open() as file:
            return any(
                pc.index(file.read_row_group(group, columns=["kafka_offset"])["kafka_offset"], offset).as_py() >= 0
                for group in range(file.num_row_groups)
                if may_hold(file.metadata.row_group(group), offset)
            )

    @contextlib.contextmanager
    def _open(self) -> Iterator[pyarrow.parquet.ParquetFile]:
        try:
            with pyarrow.parquet.ParquetFile(self._path) as file:
                check_columns(file)
                yield file
        except (pa.ArrowException, ValueError, TypeError, OSError) as error:
            # Arrow says OSError of damage, too, but only the system's own has a number.
            if isinstance(error, OSError) and error.errno is not None:
                raise
            raise NotADataFileError(
                f"{self._path}: expected a data file of this project, found a damaged one, or another: {error}"
            ) from error


def check_columns(file: pyarrow.parquet.ParquetFile) -> None:
    """Raise ValueError unless a file's records have a position."""
    names = file.schema_arrow.names
    if missing := [name for name in POSITION if name not in names]:
        raise ValueError(f"no column {', '.join(missing)} among {listing(names)}")


def may_hold(group: pyarrow.parquet.RowGroupMetaData, offset: int) -> bool:
    """Whether a row group's statistics allow for an offset in it."""
    for number in range(group.num_columns):
        column = group.column(number)
        if column.path_in_schema == "kafka_offset":
            found: Any = column.statistics
            return found is None or not found.has_min_max or bool(found.min <= offset <= found.max)
    return True


def positions(file: pyarrow.parquet.ParquetFile) -> tuple[set[TopicPartition], "pa.Array[Any]"]:
    """Return which partitions a file has records of, and all offsets in it; one row group at a time is in memory besides."""
    partitions: set[TopicPartition] = set()
    offsets: list[pa.Array[Any]] = [pa.array([], pa.int64())]
    for group in range(file.num_row_groups):
        table = file.read_row_group(group, columns=list(POSITION))
        by_partition = table.group_by(["kafka_topic", "kafka_partition"]).aggregate([])
        partitions |= {TopicPartition(row["kafka_topic"], row["kafka_partition"]) for row in by_partition.to_pylist()}
        offsets += table["kafka_offset"].chunks
    return partitions, pa.concat_arrays(offsets)


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
