"""What lists show of feeds and batches."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from kafka_ingest.model.batch import BatchState
from kafka_ingest.model.documents import Documented
from kafka_ingest.model.gap import GapCause
from kafka_ingest.model.hold import Hold
from kafka_ingest.model.offsets import StoredOffset, TopicPartition
from kafka_ingest.model.omissions import LeftOut
from kafka_ingest.model.place import Place


@dataclass(frozen=True, slots=True)
class ReadCounts(Documented):
    """What the records of a batch became."""

    rows: int = 0
    filtered: int = 0
    dead_letters: int = 0

    @property
    def records(self) -> int:
        return self.rows + self.filtered + self.dead_letters

    def plus(self, other: "ReadCounts") -> "ReadCounts":
        return ReadCounts(
            self.rows + other.rows, self.filtered + other.filtered, self.dead_letters + other.dead_letters
        )

    @property
    def filtered_percent(self) -> float | None:
        """How many of a hundred were filtered; None of a batch without a record."""
        return self.filtered * 100 / self.records if self.records else None


@dataclass(frozen=True, slots=True)
class NotRows:
    """The records of a feed that became no row.

    ``filtered``: of its partitions as they are now. ``dead_letters``: those that are neither replayed nor given up.
    ``newest``: what the records of the newest live batch became that is committed, and not folded.
    """

    filtered: int = 0
    dead_letters: int = 0
    newest: ReadCounts = ReadCounts()

    def as_document(self) -> dict[str, Any]:
        newest = self.newest.as_document() if self.newest.records else None
        return {"filtered": self.filtered, "dead_letters": self.dead_letters, "newest_batch": newest}


NONE_LEFT_OUT = NotRows()


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
    not_rows: NotRows = NONE_LEFT_OUT


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
class OpenGaps:
    """How many gaps of a feed are not closed, and how many offsets are in them.

    ``undecided``: how many of them no operator has decided, see :data:`kafka_ingest.model.gap.DECIDED`.
    """

    gaps: int = 0
    offsets: int = 0
    undecided: int = 0


@dataclass(frozen=True, slots=True)
class GapDecision:
    """What is not closed of the gaps that one decision made: over how many partitions, and how many offsets."""

    cause: GapCause
    decided_at: datetime
    decided_by: str
    reason: str
    partitions: int
    offsets: int


@dataclass(frozen=True, slots=True)
class FeedOverview:
    """What the control tables hold of one feed among all, at one instant: its history left out.

    ``topics`` are the last plan's. ``open_since`` is when its open live batch came into its state.
    ``start_position`` and ``start_asked_at``: see :class:`kafka_ingest.model.waiting.Standing`.
    """

    feed_id: UUID
    name: str
    cluster_id: str
    topics: Collection[str]
    stored: Mapping[TopicPartition, StoredOffset]
    rows_committed: int
    planned_at: datetime | None = None
    waiting_since: datetime | None = None
    last_committed_at: datetime | None = None
    open_batch: UUID | None = None
    open_batch_state: BatchState | None = None
    open_since: datetime | None = None
    holds: tuple[Hold, ...] = ()
    open_gaps: OpenGaps = OpenGaps()
    not_rows: NotRows = NONE_LEFT_OUT
    start_position: str | None = None
    start_asked_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class BatchLine:
    """A batch without its ranges: a list of them stays short whatever the number of partitions."""

    batch_id: UUID
    kind: str
    state: BatchState
    planned_at: datetime
    planned_by: str
    updated_at: datetime
    written_at: datetime | None
    committed_at: datetime | None
    committed_by: str | None
    rows: int | None
    size_bytes: int | None
    reason: str | None
    abandoned_by: str | None
    attempt: int | None
    """The attempt whose receipt counts."""
    folded: bool
    lag: int | None = None
    """How many offsets the feed could read when this was planned; of live batches, since it is recorded."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchSummary(BatchLine):
    """One line of ``kafka-ingest batches``: a batch with its ranges, none once it is folded."""

    feed: str
    output: Place
    ranges: tuple[BatchRange, ...]
    left_out: tuple[LeftOut, ...] = ()
    """Planned ranges of which Kafka had deleted records when the batch was read; they are not among ``ranges``."""
