"""Positions in Kafka's logs. ``start_offset`` is read, ``end_offset`` is the next to read, everywhere."""

from collections.abc import Collection, Iterable, Mapping
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
