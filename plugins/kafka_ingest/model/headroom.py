"""Which partitions retention is about to reach before they are read."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from kafka_ingest.foundation.counting import counted, were
from kafka_ingest.model.offsets import Isolation, LogBounds, StoredOffset, TopicPartition, Unavailable

OLDEST_PART = 10
"""A stored offset in the oldest tenth of a log is near its end, whether time or size decides what Kafka deletes."""


@dataclass(frozen=True, slots=True)
class LowHeadroom:
    """A partition with records to read whose stored offset is close above a moving log start, or below it."""

    topic_partition: TopicPartition
    stored_offset: int
    bounds: LogBounds

    def __str__(self) -> str:
        bounds, headroom = self.bounds, self.stored_offset - self.bounds.log_start_offset
        if headroom < 0:
            return (
                f"{self.topic_partition}: {counted(-headroom, 'offset')} from the stored offset "
                f"{self.stored_offset:,} on "
                f"{were(-headroom)} deleted before they were read; the log starts at "
                f"{bounds.log_start_offset:,}. The next plan stops, "
                "or records a gap, as on_data_loss says."
            )
        return (
            f"{self.topic_partition}: the stored offset {self.stored_offset:,} is {headroom:,} above the log start "
            f"{bounds.log_start_offset:,}, in the oldest tenth of what Kafka holds (up to {bounds.high_watermark:,}). "
            "Read faster, or keep more, before records are deleted unread."
        )


def in_danger(
    rows: Iterable[StoredOffset], bounds: Mapping[TopicPartition, LogBounds | Unavailable], isolation: Isolation
) -> list[LowHeadroom]:
    """Return the partitions whose stored offset is in the oldest tenth of their log, with records to read above it.

    Without those of whose logs Kafka said nothing.
    """
    found: list[LowHeadroom] = []
    for row in rows:
        log, offset = bounds.get(row.topic_partition), row.next_offset
        if offset is None or not isinstance(log, LogBounds) or not log.log_start_offset:
            continue
        is_in_oldest = (offset - log.log_start_offset) * OLDEST_PART < log.high_watermark - log.log_start_offset
        if is_in_oldest and offset < log.readable_end(isolation):
            found.append(LowHeadroom(row.topic_partition, offset, log))
    return found
