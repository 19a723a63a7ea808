"""Data files of an output: who wrote them, what they hold and where that differs from receipts, and what tables say."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from uuid import UUID

from kafka_ingest.model.offsets import OffsetRange, TopicPartition, listing
from kafka_ingest.model.output_location import OutputLocation
from kafka_ingest.model.receipt import WrittenFile


@dataclass(frozen=True, slots=True)
class FilePlace:
    """Which batch a file belongs to: published, or, where ``attempt`` is not None, staged by one of its attempts."""

    output: OutputLocation
    batch_id: UUID
    attempt: int | None


@dataclass(frozen=True, slots=True)
class PartitionContents:
    """What a data file holds of one partition, at least one row.

    ``intervals`` are the contiguous runs of its offsets, up to the number requested; ``interval_count`` is how many
    there are in all. ``distinct_offsets`` equals ``rows`` unless a record occurs twice.
    """

    topic_partition: TopicPartition
    rows: int
    smallest_offset: int
    largest_offset: int
    distinct_offsets: int
    intervals: tuple[OffsetRange, ...]
    interval_count: int


@dataclass(frozen=True, slots=True)
class FileContents:
    """What a data file holds: one partition, several where their ranges were small, none where it has no rows."""

    size_bytes: int
    rows: int
    partitions: tuple[PartitionContents, ...]
    columns: tuple[tuple[str, str], ...]
    """Name and type of each, as Arrow calls it."""

    @property
    def only(self) -> PartitionContents | None:
        """What it holds, where that is one partition."""
        return self.partitions[0] if len(self.partitions) == 1 else None

    @property
    def distinct_offsets(self) -> int:
        return sum(held.distinct_offsets for held in self.partitions)

    @property
    def intervals(self) -> tuple[OffsetRange, ...]:
        """The contiguous runs of offsets, as many as were asked for."""
        return tuple(interval for held in self.partitions for interval in held.intervals)

    @property
    def interval_count(self) -> int:
        return sum(held.interval_count for held in self.partitions)


def partitions_that_differ(written: WrittenFile, contents: FileContents) -> Iterator[str]:
    """Yield each difference between a file's partitions and offsets and those in its receipt."""
    said = {held.topic_partition: held for held in written.partitions}
    there = {held.topic_partition: held for held in contents.partitions}
    if said.keys() != there.keys():
        in_words = [listing(sorted(partitions)) or None for partitions in (said, there)]
        yield "partition: the receipt says {}, found {}".format(*in_words)
    several = len(said) > 1
    for topic_partition in sorted(said.keys() & there.keys()):
        expected, found = said[topic_partition], there[topic_partition]
        for what, says, holds in (
            *([("rows", expected.rows, found.rows)] if several else []),
            ("smallest offset", expected.smallest_offset, found.smallest_offset),
            ("largest offset", expected.largest_offset, found.largest_offset),
        ):
            if says != holds:
                yield f"{what}{f' of {topic_partition}' if several else ''}: the receipt says {says}, found {holds}"


@dataclass(frozen=True, slots=True)
class TableStatistics:
    """How many files it has, and in how many of them some reader takes a column's missing bounds for nulls.

    ``complete`` are the columns that the table can name as those with bounds, since each file has some.
    """

    files: int
    lacking: Mapping[str, int]
    complete: tuple[str, ...]
