"""Where a batch ends, if not at the end of the log: what a manual run may ask for."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from kafka_ingest.errors import EndOutsideLogError
from kafka_ingest.model.offsets import TopicPartition, listing


@dataclass(frozen=True, slots=True)
class ToTimestamp:
    """End before the first record of that time or later (KIP-79); at the end of the log where there is none."""

    timestamp: datetime


@dataclass(frozen=True, slots=True)
class ToOffsets:
    """End at explicit offsets, which are not read; partitions that are not named are not read at all.

    One that is passed already has nothing left to read: the same run can be asked for twice.
    """

    offsets: Mapping[TopicPartition, int]

    def check(self, readable_ends: Mapping[TopicPartition, int]) -> None:
        """Raise EndOutsideLogError where an end is of an unknown partition, or above what can be read of the log."""
        wrong = [
            f"{tp}: it takes no part: there is no such partition, or Kafka cannot answer for it now"
            if tp not in readable_ends
            else f"{tp}: asked to end at {end:,}, readable up to {readable_ends[tp]:,}"
            for tp, end in sorted(self.offsets.items())
            if tp not in readable_ends or end > readable_ends[tp]
        ]
        if wrong:
            raise EndOutsideLogError(
                f"expected ends up to what can be read of the log, found {listing(wrong)}. Nothing was planned."
            )


EndPositions = ToTimestamp | ToOffsets | None
"""None: as far as the log can be read."""
