"""Where an operator can move stored offsets, as with kafka-consumer-groups. Resolved to a number per partition."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from kafka_ingest.model.offsets import TopicPartition


@dataclass(frozen=True, slots=True)
class Place:
    """What is known about one partition; of the last three only what the target needs, and None means "there is none".

    ``end_offset`` is how far a stored offset may go.
    """

    topic_partition: TopicPartition
    stored_offset: int
    log_start_offset: int
    end_offset: int
    offset_at: int | None = None
    group_offset: int | None = None
    batch_start: int | None = None


@dataclass(frozen=True, slots=True)
class NewPosition:
    """Where one partition would move, None where it stays; with a remark."""

    offset: int | None
    remark: str = ""


@dataclass(frozen=True, slots=True)
class ToEarliest:
    """The log start."""

    def resolve(self, place: Place) -> NewPosition:
        """Return where the partition would go."""
        return NewPosition(place.log_start_offset)


@dataclass(frozen=True, slots=True)
class ToLatest:
    """The end of what the feed can read: the last stable offset under read_committed, else the high watermark."""

    def resolve(self, place: Place) -> NewPosition:
        """Return where the partition would go."""
        return NewPosition(place.end_offset)


@dataclass(frozen=True, slots=True)
class ToTimestamp:
    """The first offset whose record is of that time or later (KIP-79); the end where there is none."""

    timestamp: datetime

    def resolve(self, place: Place) -> NewPosition:
        """Return where the partition would go."""
        if place.offset_at is None:
            return NewPosition(place.end_offset, "no record is of that time or later")
        return NewPosition(place.offset_at)


@dataclass(frozen=True, slots=True)
class ToGroup:
    """A consumer group's committed offsets."""

    group: str

    def resolve(self, place: Place) -> NewPosition:
        """Return where the partition would go."""
        return NewPosition(place.group_offset)


@dataclass(frozen=True, slots=True)
class ToOffsets:
    """These offsets, which the logs have to hold. No other partition is moved."""

    offsets: Mapping[TopicPartition, int]

    @property
    def partitions(self) -> dict[str, list[int]]:
        """The partitions that are named, by topic."""
        found: dict[str, list[int]] = {}
        for tp in self.offsets:
            found.setdefault(tp.topic, []).append(tp.partition)
        return found

    def resolve(self, place: Place) -> NewPosition:
        """Return where the partition would go."""
        return NewPosition(self.offsets[place.topic_partition])


@dataclass(frozen=True, slots=True)
class ToBatch:
    """Where a batch began; a partition that it did not read goes to where the first batch after it began."""

    batch_id: UUID

    def resolve(self, place: Place) -> NewPosition:
        """Return where the partition would go."""
        return NewPosition(place.batch_start, "" if place.batch_start is not None else "not read since that batch")


@dataclass(frozen=True, slots=True)
class ShiftBy:
    """By a number of offsets: forward, or back where it is negative."""

    offsets: int

    def resolve(self, place: Place) -> NewPosition:
        """Return where the partition would move; it may be outside the log."""
        return NewPosition(place.stored_offset + self.offsets)


ResetTarget = ToEarliest | ToLatest | ToTimestamp | ToGroup | ToOffsets | ToBatch | ShiftBy


def cut_to_log(found: NewPosition, place: Place) -> NewPosition:
    """Return a position that the log holds, and that can be read: the nearest one, as kafka-consumer-groups does."""
    if found.offset is not None and found.offset < place.log_start_offset:
        return NewPosition(place.log_start_offset, "cut to the log start")
    if found.offset is not None and found.offset > place.end_offset:
        return NewPosition(place.end_offset, "cut to the end of what can be read")
    return found
