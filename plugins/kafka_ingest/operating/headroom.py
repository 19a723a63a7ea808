"""Which partitions retention is about to reach before they are read."""

from collections.abc import Mapping
from dataclasses import dataclass

from kafka_ingest.boundaries import FeedSnapshot
from kafka_ingest.offsets import Isolation, LogBounds, TopicPartition, Unavailable

OLDEST_PART = 10
"""A stored offset in the oldest tenth of a log is near its end, whether time or size decides what Kafka deletes."""


@dataclass(frozen=True, slots=True)
class LowHeadroom:
    """A partition with records to read, whose stored offset lies close above a log start that moves."""

    topic_partition: TopicPartition
    stored_offset: int
    bounds: LogBounds

    def __str__(self) -> str:
        bounds = self.bounds
        headroom = self.stored_offset - bounds.log_start_offset
        return (
            f"{self.topic_partition}: the stored offset {self.stored_offset:,} lies {headroom:,} above the log start "
            f"{bounds.log_start_offset:,}, in the oldest tenth of what Kafka holds (up to {bounds.high_watermark:,}). Read "
            "faster, or keep more, before records are deleted unread."
        )


def low_headroom(
    feed: FeedSnapshot, bounds: Mapping[TopicPartition, LogBounds | Unavailable], isolation: Isolation
) -> list[LowHeadroom]:
    """Return the partitions in danger; none where nothing was ever deleted, or nothing is there to read."""
    found: list[LowHeadroom] = []
    for topic_partition, row in feed.stored.items():
        log = bounds[topic_partition]
        if topic_partition.topic not in feed.topics or row.next_offset is None or not isinstance(log, LogBounds):
            continue
        is_behind = row.next_offset < log.readable_end(isolation)
        held, headroom = log.high_watermark - log.log_start_offset, row.next_offset - log.log_start_offset
        if log.log_start_offset and is_behind and headroom * OLDEST_PART < held:
            found.append(LowHeadroom(topic_partition, row.next_offset, log))
    return found
