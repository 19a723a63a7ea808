"""Where a batch ends, if not at the end of the log: what a manual run may ask for."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from kafka_ingest.errors import EndOutsideLogError
from kafka_ingest.offsets import TopicPartition, listing


@dataclass(frozen=True, slots=True)
class ToTimestamp:
    """End before the first record of that time or later (KIP-79); at the end of the log where there is none."""

    timestamp: datetime


@dataclass(frozen=True, slots=True)
class ToOffsets:
    """End at explicit offsets, which are not read; partitions that are not named are not read at all."""

    offsets: Mapping[TopicPartition, int]

    def check(self, positions: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]) -> None:
        """Raise EndOutsideLogError where an end is of an unknown partition, or not between stored offset and log end."""
        wrong = [
            f"{tp}: no such partition takes part"
            if tp not in positions
            else f"{tp}: asked to end at {end:,}, stored offset {positions[tp]:,}, readable up to {ends[tp]:,}"
            for tp, end in sorted(self.offsets.items())
            if tp not in positions or not positions[tp] <= end <= ends[tp]
        ]
        if wrong:
            raise EndOutsideLogError(
                f"expected ends between the stored offset and the end of the log, found {listing(wrong)}. Nothing was planned."
            )


EndPositions = ToTimestamp | ToOffsets | None
"""None: as far as the log can be read."""
