"""What lists show of feeds and batches."""

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from kafka_ingest.model.batch import BatchState
from kafka_ingest.model.left_out import LeftOut
from kafka_ingest.model.place import Place


@dataclass(frozen=True, slots=True)
class FeedSummary:
    """One line of ``kafka-ingest status``."""

    name: str
    cluster_id: str
    partitions: int
    open_batch: UUID | None
    open_batch_state: BatchState | None
    last_committed_at: datetime | None
    rows_committed: int


@dataclass(frozen=True, slots=True)
class BatchRange:
    """One range of a batch as the control tables hold it; the counts are None before WRITTEN."""

    topic: str
    partition: int
    topic_id: str | None
    start_offset: int
    end_offset: int
    rows: int | None
    filtered: int | None
    dead_letters: int | None
    invisible: int | None


@dataclass(frozen=True, slots=True)
class BatchSummary:
    """One line of ``kafka-ingest batches``."""

    batch_id: UUID
    feed: str
    kind: str
    state: BatchState
    planned_at: datetime
    planned_by: str
    written_at: datetime | None
    committed_at: datetime | None
    committed_by: str | None
    rows: int | None
    size_bytes: int | None
    reason: str | None
    abandoned_by: str | None
    attempt: int | None
    """The attempt whose receipt counts."""
    output: Place
    ranges: tuple[BatchRange, ...]
    """None once the batch is folded."""
    folded: bool = False
    left_out: tuple[LeftOut, ...] = ()
    """Planned ranges of which Kafka had deleted records when the batch was read; they are not among ``ranges``."""
