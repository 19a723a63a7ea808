"""What the control tables hold, and what a step writes down in them."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from uuid import UUID

from kafka_ingest.model.batch import NOBODY, Batch, BatchKind, BatchPlan
from kafka_ingest.model.gap import Gap, Jump, NewGap
from kafka_ingest.model.hold import Hold
from kafka_ingest.model.offsets import OffsetRange, StoredOffset, TopicPartition
from kafka_ingest.model.place import OutputLocation
from kafka_ingest.model.receipt import RangeCount

RECENT_BATCHES = 100
"""How many of a feed's newest batches a plan compares with its output; maintenance compares all of them daily."""


RESTORED_BY = "restore:"
"""The first part of ``planned_by`` for batches that restore an abandoned one's staged files, not from Kafka."""


@dataclass(frozen=True, slots=True)
class PublishedBatch:
    """A batch that was committed, and the output that it was published in."""

    batch_id: UUID
    output: OutputLocation


@dataclass(frozen=True, slots=True)
class FeedSnapshot:
    """A feed's control rows at one instant. ``revision`` changes with every write to them.

    ``topics`` and ``topic_pattern`` are the last plan's; ``planned_at`` is when it asked Kafka, None where that is
    unknown. ``gaps_ahead`` are ahead of the stored offsets. ``behind_losses`` are the partitions of which Kafka deleted
    records twice since something was read: each stored offset is where the second of two adjoining gaps of cause
    ``retention`` ends. ``waiting_since``: since when fewer records than the feed's ``min_records`` wait to be read.
    ``newest_batch`` has the largest id of all batches ever planned; ``recent_batch`` is the oldest of the
    :data:`RECENT_BATCHES` newest, None where there are fewer. ``published_to`` is the output of the newest committed
    live batch.
    """

    feed_id: UUID
    name: str
    cluster_id: str
    revision: int
    topics: Collection[str]
    stored: Mapping[TopicPartition, StoredOffset]
    open_batch: Batch | None
    topic_pattern: str | None = None
    gaps_ahead: Collection[Gap] = ()
    behind_losses: Collection[TopicPartition] = ()
    holds: Collection[Hold] = ()
    waiting_since: datetime | None = None
    newest_batch: UUID | None = None
    published_to: OutputLocation | None = None
    recent_batch: UUID | None = None
    planned_at: datetime | None = None


NEVER_PLANNED = FeedSnapshot(NOBODY, "", "", 0, (), {}, None)
"""What planning knows of a feed that is not in the control tables."""


@dataclass(frozen=True, slots=True)
class HeldRange:
    """A range of a committed batch whose rows are in the feed's output, unless they expired since."""

    batch_id: UUID
    offset_range: OffsetRange
    output: OutputLocation
    cut_off_at: int | None = None
    """Where its log was truncated since, as an operator decided: of the offsets above it, other records exist now."""


@dataclass(frozen=True, slots=True)
class CommittedRange:
    """One range of a committed batch, with its counts from the receipt."""

    count: RangeCount
    topic_id: str | None


@dataclass(frozen=True, slots=True)
class CommittedBatch:
    """A committed batch with its ranges and where it was published.

    ``folded`` is its plan's fingerprint where the control tables keep no ranges of it: then its receipt has them.
    """

    batch_id: UUID
    kind: BatchKind
    output: OutputLocation
    ranges: Sequence[CommittedRange]
    folded: str | None = None


@dataclass(frozen=True, slots=True)
class NewFeed:
    """A feed that is not in the control tables yet."""

    feed_id: UUID
    name: str


@dataclass(frozen=True, slots=True)
class PlanRecord:
    """What one plan records, in one transaction: the batch, if any, and everything else that was decided."""

    cluster_id: str
    topics: Collection[str]
    topic_pattern: str | None = None
    seeds: Sequence[StoredOffset] = ()
    jumps: Sequence[Jump] = ()
    holds: Sequence[Hold] = ()
    waiting_since: datetime | None = None
    plan: BatchPlan | None = None
    leader_epochs: Mapping[TopicPartition, int] = field(default_factory=dict)
    """The new leader epochs, for logs that reach their stored offsets in another epoch than before."""

    planned_at: datetime | None = None
    """When Kafka was asked which topics there are."""

    lag: int | None = None
    """How many offsets the feed could read then, of which its limits may leave a part to later batches."""


@dataclass(frozen=True, slots=True)
class BackfillRecord:
    """What planning a backfill records in one transaction: its chunks, each a batch, and gaps over deleted records.

    ``request`` is what was asked for, for the audit journal.
    """

    chunks: Sequence[BatchPlan]
    gaps: Sequence[NewGap]
    request: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ResetMove:
    """One partition's stored offset is moved by an operator: back to an offset, or forward over a jump's gaps.

    Forward without a jump passes only what was committed before an operator went back.
    """

    topic_partition: TopicPartition
    from_offset: int
    to_offset: int
    jump: Jump | None = None


@dataclass(frozen=True, slots=True)
class StartOver:
    """How the rows of a recreated topic change: the old ones end, new ones begin; none where the topic is deleted.

    ``same_records``: the records keep their offsets, so gaps ahead stay; otherwise these are dropped, except those of
    ``untouched`` partitions.
    """

    topic: str
    topic_id: str | None
    rows: Sequence[StoredOffset]
    same_records: bool = False
    untouched: Collection[TopicPartition] = ()
