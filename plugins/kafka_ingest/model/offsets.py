"""Positions in Kafka's logs. ``start_offset`` is read, ``end_offset`` is the next to read, everywhere."""

from bisect import bisect_right
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any
from uuid import UUID

from kafka_ingest.foundation.foreign_json import said, whole


class Isolation(StrEnum):
    """Which records a batch may see, named as Kafka's consumer setting ``isolation.level`` (KIP-98)."""

    READ_COMMITTED = "read_committed"
    READ_UNCOMMITTED = "read_uncommitted"


class OffsetsPolicy(StrEnum):
    """What offsets without a record mean: normal (compaction, transactions), or an error."""

    AUTO = "auto"
    DENSE = "dense"


@dataclass(frozen=True, slots=True, order=True)
class TopicPartition:
    """One partition of one topic."""

    topic: str
    partition: int

    def __post_init__(self) -> None:
        if not self.topic:
            raise ValueError("a topic-partition needs a topic name, found an empty one")
        if self.partition < 0:
            raise ValueError(f"{self.topic}: partition numbers start at 0, found {self.partition}")

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> "TopicPartition":
        return cls(said(document, "topic"), whole(document, "partition"))

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


@dataclass(frozen=True, slots=True, order=True)
class OffsetRange:
    """``[start_offset, end_offset)`` of a partition. Never -1 or -2: earliest and latest are resolved in planning."""

    topic_partition: TopicPartition
    start_offset: int
    end_offset: int

    def __post_init__(self) -> None:
        if self.start_offset < 0:
            raise ValueError(f"{self.topic_partition}: a start offset is 0 or more, found {self.start_offset}")
        if self.end_offset < self.start_offset:
            raise ValueError(
                f"{self.topic_partition}: a range ends at or after its start, found [{self.start_offset}, "
                f"{self.end_offset})"
            )

    @property
    def topic(self) -> str:
        return self.topic_partition.topic

    @property
    def partition(self) -> int:
        return self.topic_partition.partition

    @property
    def span(self) -> int:
        """How many offsets the range covers: the upper bound of its records."""
        return self.end_offset - self.start_offset

    def __str__(self) -> str:
        return f"{self.topic_partition}[{self.start_offset}, {self.end_offset})"

    def as_document(self) -> dict[str, Any]:
        """Return it as JSON-able data: ``topic``, ``partition``, ``start_offset`` and ``end_offset``."""
        return {
            "topic": self.topic,
            "partition": self.partition,
            "start_offset": self.start_offset,
            "end_offset": self.end_offset,
        }

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> "OffsetRange":
        start, end = whole(document, "start_offset"), whole(document, "end_offset")
        return cls(TopicPartition.from_document(document), start, end)


@dataclass(frozen=True, slots=True)
class LogBounds:
    """What Kafka reports of one partition's log: ``log_start_offset ≤ last_stable_offset ≤ high_watermark``."""

    log_start_offset: int
    last_stable_offset: int
    high_watermark: int
    leader_epoch: int | None = None

    @property
    def is_empty(self) -> bool:
        return self.log_start_offset == self.high_watermark

    def readable_end(self, isolation: Isolation) -> int:
        """Return the end of what a reader of that isolation can see: the LSO under read_committed (KIP-98)."""
        return self.last_stable_offset if isolation is Isolation.READ_COMMITTED else self.high_watermark


@dataclass(frozen=True, slots=True)
class Unavailable:
    """Kafka could not answer for a partition now, and why."""

    reason: str


@dataclass(frozen=True, slots=True)
class FirstRecord:
    """The first record of a log: its time in milliseconds since 1970, None where it has none.

    ``by_broker``: the time is the broker's when it wrote the record (LogAppendTime), not the one its producer set
    (KIP-32).
    """

    timestamp_ms: int | None
    by_broker: bool
    offset: int | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class NewestRecord:
    """The record of a log that has the largest time (KIP-734), those of open transactions included."""

    offset: int
    timestamp_ms: int


@dataclass(frozen=True, slots=True)
class TopicDescription:
    """A topic as Kafka describes it. ``topic_id`` is None where the brokers have no topic ids (before KIP-516)."""

    topic: str
    topic_id: str | None
    partitions: tuple[int, ...]

    def topic_partitions(self) -> list[TopicPartition]:
        """Return the topic's partitions, in order."""
        return [TopicPartition(self.topic, partition) for partition in self.partitions]


@dataclass(frozen=True, slots=True)
class Retention:
    """When Kafka deletes a topic's records: once they are older than ``time``, None: never; or also ``by_size``.

    ``compacts``: it removes records besides that have a newer one of their key.
    """

    time: timedelta | None
    by_size: bool
    compacts: bool = False


@dataclass(frozen=True, slots=True)
class StoredOffset:
    """One row of the truth: the next offset to read of one partition.

    ``first_offset`` and ``next_offset`` are None together: the seed is pending, because Kafka could not yet resolve
    where ``seeded_by`` (the start rule) begins.
    """

    topic_partition: TopicPartition
    topic_id: str | None
    first_offset: int | None
    next_offset: int | None
    seeded_by: str
    leader_epoch: int | None = None
    batch_id: UUID | None = None
    updated_at: datetime | None = None

    def __post_init__(self) -> None:
        if (self.first_offset is None) != (self.next_offset is None):
            raise ValueError(f"{self.topic_partition}: first and next offset are known together, or both pending")
        if self.next_offset is not None and min(self.next_offset, self.first_offset or 0) < 0:
            raise ValueError(f"{self.topic_partition}: a stored offset is 0 or more, found {self.next_offset}")

    @property
    def is_pending(self) -> bool:
        return self.next_offset is None


def ranges_outside_log(
    ranges: Collection[OffsetRange], bounds: Mapping[TopicPartition, LogBounds | Unavailable], isolation: Isolation
) -> list[str]:
    """Return which of a plan's ranges can no longer be read, and why; partitions without an answer are not judged."""
    problems: list[str] = []
    for offset_range in ranges:
        found = bounds[offset_range.topic_partition]
        if isinstance(found, Unavailable):
            continue
        if offset_range.start_offset < found.log_start_offset:
            problems.append(f"{offset_range} begins below the log start {found.log_start_offset:,}")
        elif offset_range.end_offset > found.readable_end(isolation):
            problems.append(f"{offset_range} ends above the log end {found.readable_end(isolation):,}")
    return problems


def listing(items: Iterable[object], limit: int = 5) -> str:
    """Return the items for a message: the first few, and how many more there are."""
    texts = [str(item) for item in items]
    more = f" and {len(texts) - limit:,} more" if len(texts) > limit else ""
    return ", ".join(texts[:limit]) + more


def place(offset_range: OffsetRange) -> tuple[str, int, int, int]:
    """Return what ranges are sorted by; comparing ranges themselves takes ten times as long."""
    topic_partition = offset_range.topic_partition
    return topic_partition.topic, topic_partition.partition, offset_range.start_offset, offset_range.end_offset


def union(ranges: Iterable[OffsetRange]) -> list[OffsetRange]:
    """Return the same offsets in as few ranges as can be, without empty ones."""
    found: list[OffsetRange] = []
    for offset_range in sorted(ranges, key=place):
        last = found[-1] if found else None
        if not offset_range.span:
            continue
        if (
            last is None
            or last.topic_partition != offset_range.topic_partition
            or last.end_offset < offset_range.start_offset
        ):
            found.append(offset_range)
        elif offset_range.end_offset > last.end_offset:
            found[-1] = OffsetRange(last.topic_partition, last.start_offset, offset_range.end_offset)
    return found


class Lookup:
    """An index of ranges by what they overlap: a partition may have thousands, and a lookup reads only those."""

    def __init__(self, ranges: Iterable[OffsetRange]) -> None:
        self._of_partition = by_partition(union(ranges))
        self._ends = {tp: [each.end_offset for each in found] for tp, found in self._of_partition.items()}

    def touching(self, offset_range: OffsetRange) -> Iterator[OffsetRange]:
        """Yield those that share an offset with a range, merged and in order."""
        topic_partition = offset_range.topic_partition
        found = self._of_partition.get(topic_partition, [])
        first = bisect_right(self._ends.get(topic_partition, []), offset_range.start_offset)
        for number in range(first, len(found)):
            if found[number].start_offset >= offset_range.end_offset:
                return
            yield found[number]


def subtract(ranges: Iterable[OffsetRange], covered: Iterable[OffsetRange]) -> list[OffsetRange]:
    """Return what remains of ranges after others are taken out of them."""
    covers = Lookup(covered)
    left: list[OffsetRange] = []
    for offset_range in ranges:
        start = offset_range.start_offset
        for cover in covers.touching(offset_range):
            if start < (end := min(cover.start_offset, offset_range.end_offset)):
                left.append(OffsetRange(offset_range.topic_partition, start, end))
            start = max(start, cover.end_offset)
        if start < offset_range.end_offset:
            left.append(OffsetRange(offset_range.topic_partition, start, offset_range.end_offset))
    return sorted(left, key=place)


def intersect(ranges: Iterable[OffsetRange], others: Iterable[OffsetRange]) -> list[OffsetRange]:
    """Return the offsets of ranges that are also in others."""
    found: list[OffsetRange] = []
    lookup = Lookup(others)
    for offset_range in ranges:
        for other in lookup.touching(offset_range):
            start = max(offset_range.start_offset, other.start_offset)
            end = min(offset_range.end_offset, other.end_offset)
            if start < end:
                found.append(OffsetRange(offset_range.topic_partition, start, end))
    return sorted(found, key=place)


def shared(ranges: Iterable[OffsetRange]) -> list[OffsetRange]:
    """Return the offsets that are in more than one of the ranges."""
    found: list[OffsetRange] = []
    reached: OffsetRange | None = None
    for offset_range in sorted(ranges, key=place):
        if reached is None or reached.topic_partition != offset_range.topic_partition:
            reached = offset_range
            continue
        if offset_range.start_offset < (end := min(reached.end_offset, offset_range.end_offset)):
            found.append(OffsetRange(reached.topic_partition, offset_range.start_offset, end))
        if offset_range.end_offset > reached.end_offset:
            reached = offset_range
    return union(found)


def span_of(ranges: Iterable[OffsetRange]) -> int:
    return sum(offset_range.span for offset_range in ranges)


def by_partition(ranges: Iterable[OffsetRange]) -> dict[TopicPartition, list[OffsetRange]]:
    """Return ranges by partition, each in the given order."""
    found: dict[TopicPartition, list[OffsetRange]] = {}
    for offset_range in ranges:
        found.setdefault(offset_range.topic_partition, []).append(offset_range)
    return found
