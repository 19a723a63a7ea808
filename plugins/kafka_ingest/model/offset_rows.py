"""What the control rows say about one offset."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from kafka_ingest.model.batch import BatchKind, BatchState
from kafka_ingest.model.event import Event
from kafka_ingest.model.folded import FoldedRange
from kafka_ingest.model.gap import Gap
from kafka_ingest.model.offsets import OffsetRange, StoredOffset
from kafka_ingest.model.output_location import OutputLocation
from kafka_ingest.model.read_again import Replacement
from kafka_ingest.model.removal import LostRange


@dataclass(frozen=True, slots=True)
class BatchOfOffset:
    """A batch whose range of a partition holds an offset. ``dead_letters`` and ``filtered`` are None before WRITTEN."""

    batch_id: UUID
    kind: BatchKind
    state: BatchState
    planned_at: datetime
    planned_by: str
    committed_at: datetime | None
    committed_by: str | None
    reason: str | None
    """Why it was abandoned."""
    offset_range: OffsetRange
    topic_id: str | None
    dead_letters: int | None
    filtered: int | None
    output: OutputLocation


@dataclass(frozen=True, slots=True)
class OffsetRows:
    """All that a feed's control rows say about one offset, at one instant.

    ``stored`` is None where the feed has no such partition now; ``largest_partitions`` has the largest that it has, by
    topic. ``topics`` are the last plan's. ``batches`` and ``gaps`` are those that hold the offset, newest first, under
    any topic id. ``resets`` are the feed's, newest first: they show which topic ids mean the same records.
    """

    feed_id: UUID
    stored: StoredOffset | None
    topics: Collection[str]
    largest_partitions: Mapping[str, int]
    batches: Sequence[BatchOfOffset]
    gaps: Sequence[Gap]
    resets: Sequence[Event]
    lost: Sequence[LostRange] = ()
    """Published files that held the offset and were lost."""

    folded: Sequence[FoldedRange] = ()
    """What old batches have read that holds the offset: each is of a batch that only its receipt names."""

    replacements: Sequence[Replacement] = ()
    """Of the partition: whose rows other batches have replaced, or are about to."""
