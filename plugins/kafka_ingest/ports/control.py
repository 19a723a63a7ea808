"""What is asked of the control tables, and the steps taken on them: one role for each kind of caller."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, Protocol
from uuid import UUID

from kafka_ingest.model.batch import ABANDONABLE, Attempt, Batch, BatchKind, BatchState
from kafka_ingest.model.control_rows import (
    Adoption,
    BackfillRange,
    BackfillRecord,
    CommittedBatch,
    CoverageRows,
    FeedSnapshot,
    Foldable,
    FoldCut,
    Folded,
    FoldedBatch,
    FoldedFeed,
    NewFeed,
    PlanRecord,
    PublishedBatch,
    ResetMove,
    StartOver,
)
from kafka_ingest.model.event import Event
from kafka_ingest.model.gap import Gap, Jump, NewGap
from kafka_ingest.model.hold import Hold
from kafka_ingest.model.offset_rows import OffsetRows
from kafka_ingest.model.offsets import OffsetRange, StoredOffset, TopicPartition
from kafka_ingest.model.output_location import OutputLocation
from kafka_ingest.model.receipt import RangeCount, Receipt
from kafka_ingest.model.removal import LostRange, RemovedRange
from kafka_ingest.model.summaries import BatchSummary, FeedSummary


class ControlReader(Protocol):
    """What is stored. Reading changes nothing and takes no lock."""

    def feed(self, name: str) -> FeedSnapshot | None:
        """Return the feed's control rows as of one instant, None where it was never planned."""

    def feed_of_id(self, feed_id: UUID) -> FeedSnapshot | None:
        """Return the same by the feed's own id, whatever it is called now."""

    def batch(self, batch_id: UUID) -> Batch:
        """Return a batch; raises UnknownBatchError."""

    def newest_published(self, feed_id: UUID, kind: BatchKind = BatchKind.LIVE) -> PublishedBatch | None:
        """Return the feed's newest batch of a kind that was committed, None where none was."""

    def batch_states(self, feed_id: UUID, since: UUID | None = None) -> dict[UUID, BatchState]:
        """Return every batch of a feed with its state.

        ``since`` is a batch: only those from its id on, and older ones that are open, or were given up since it was planned.
        """

    def speeds(self, feed_id: UUID) -> list[float]:
        """Return how many offsets a second the committed ones of the feed's twenty newest batches read; newest first.

        From the beginning of the attempt that counts to its receipt, Spark's start included. What was restored is left out:
        its files were copied, and no records read.
        """

    def attempts(self, batch_id: UUID) -> list[Attempt]:
        """Return a batch's attempts, in order."""

    def ended_attempts(self, feed_id: UUID, *, ended_before: datetime) -> list[Attempt]:
        """Return the attempts that are over since before then: of ended batches, and discarded ones; oldest first.

        Those that were cleaned up before then are left out.
        """

    def coverage(self, feed_name: str) -> CoverageRows | None:
        """Return what the control rows say of which offset is where; None where the feed was never planned."""

    def copied_ranges(self, feed_id: UUID, output: OutputLocation) -> list[BackfillRange]:
        """Return what the feed's copies into another output hold, or are about to."""

    def copy_outputs(self) -> list[tuple[UUID, OutputLocation]]:
        """Return where copies of all feeds lie, or are about to, with the feeds' ids."""

    def backfill_of(self, feed_id: UUID, actor: str) -> list[Batch]:
        """Return the backfills and copies that somebody planned, in the order of their ids."""

    def backfill_request(self, feed_id: UUID, actor: str) -> Mapping[str, Any] | None:
        """Return what ``actor`` asked for with the newest backfill that it planned, None where that is not known."""

    def to_announce(self, feed_id: UUID) -> list[Batch]:
        """Return the batches that DAG runs committed and whose Asset event may be lost, oldest first, a hundred at most."""

    def open_backfills(self, feed_id: UUID) -> list[Batch]:
        """Return the backfills and copies that are open, in the order of their ids."""

    def batches_of_run(self, feed_id: UUID, run_id: str) -> list[Batch]:
        """Return the batches that a DAG run planned or committed, oldest first."""

    def starts_since(self, batch_id: UUID) -> dict[TopicPartition, int]:
        """Return where a live batch began in each partition, or the first one after it that read the partition.

        Only committed live batches count, and only topics that are the ones the offsets are stored of now. Raises
        BatchFoldedError where the batch, or a later one, is folded.
        """

    def committed_within(
        self, feed_id: UUID, intervals: Sequence[OffsetRange], *, apart_from: UUID | None = None
    ) -> list[OffsetRange]:
        """Return what committed batches hold of intervals of the topics as they are now: of the feed's output, no copies.

        What was lost of them is not held. ``apart_from`` is a batch that is not asked.
        """

    def committed_ahead(self, feed_id: UUID) -> list[OffsetRange]:
        """Return what committed batches hold at or above the stored offsets, sorted: something once an operator went back.

        Only topics that are the ones the offsets are stored of now; a copy into another output does not count.
        """

    def committed_batches(self, feed_id: UUID) -> Iterator[CommittedBatch]:
        """Yield the feed's committed batches with all their ranges, oldest first; copies are not among them."""

    def folded(self, feed_id: UUID) -> FoldedFeed:
        """Return which of the feed's batches are folded, and what they have read."""

    def committed_ranges(self, batch_id: UUID) -> list[OffsetRange]:
        """Return what the feed's output holds of this batch's topics and partitions, where committed batches overlap it."""

    def range_counts(self, batch_id: UUID) -> list[RangeCount]:
        """Return what a written batch's receipt says of each range, in the plan's order."""

    def ledger_of_feed(self, feed_id: UUID) -> list[Event]:
        """Return all seeds, gaps and resets of a feed, oldest first."""

    def ledger(self, batch_id: UUID) -> list[Event]:
        """Return the seeds, gaps and resets between the feed's previous published batch and this COMMITTING one.

        For the first batch in another output all there ever were, ending with the stored offsets as the old output left them.
        """


class ControlObserver(ControlReader, Protocol):
    """What people ask besides: summaries, the journal, where an offset is. No step of the protocol rests on it."""

    def feed_summaries(self) -> list[FeedSummary]:
        """Return a line for each feed that was ever planned, by name."""

    def batch_summaries(
        self,
        feed_name: str | None = None,
        *,
        kinds: Collection[BatchKind] = (),
        states: Collection[BatchState] = (),
        since: datetime | None = None,
        limit: int | None = None,
    ) -> list[BatchSummary]:
        """Return batches with their ranges, newest first; of all kinds and states where none is named."""

    def rows_by_partition(self, feed_id: UUID) -> dict[TopicPartition, int]:
        """Return how many rows the feed's output was given of the topics as they are now, by partition; backfills included."""

    def gaps(self, feed_id: UUID) -> list[Gap]:
        """Return a feed's gaps, by partition and offset."""

    def events(self, feed_id: UUID, kind: str, limit: int = 1) -> list[Event]:
        """Return the feed's newest events of a kind, newest first."""

    def journal(
        self,
        feed_id: UUID,
        *,
        kinds: Collection[str] = (),
        since: datetime | None = None,
        limit: int | None = None,
    ) -> list[Event]:
        """Return a feed's events, newest first; of all kinds where none is named."""

    def offset_rows(self, feed_name: str, topic_partition: TopicPartition, offset: int) -> OffsetRows | None:
        """Return what the control rows say of one offset; None where the feed was never planned."""

    def folded_batches(self, feed_id: UUID, oldest: datetime, newest: datetime) -> list[FoldedBatch]:
        """Return the folded batches that were committed between two times, in the order of their commits."""


class ControlTables(ControlReader, Protocol):
    """What is stored, and the steps that change it: each one transaction under the feed's lock."""

    def record_plan(self, feed: FeedSnapshot | NewFeed, record: PlanRecord, *, actor: str) -> None:
        """Write what a plan decided; raises FeedChangedError where the feed is not as in the snapshot any more."""

    def record_backfill(self, feed: FeedSnapshot, record: BackfillRecord, *, actor: str) -> None:
        """Write a backfill's chunks, all or none; no stored offset moves.

        Raises FeedChangedError where the feed is not as in the snapshot any more, RangesTakenError where an offset is another
        backfill's, and OffsetsMovedError where one is not below the stored offset.
        """

    def open_attempt(self, attempt: Attempt) -> None:
        """Add an attempt to a PLANNED batch; raises FeedChangedError where its number is taken, BatchStateError otherwise."""

    def pin(
        self, batch_id: UUID, attempt: int, receipt: Receipt, receipt_sha256: str, counts: Sequence[RangeCount]
    ) -> None:
        """PLANNED → WRITTEN by compare-and-set on batch and OPEN attempt; raises BatchStateError where it lost."""

    def discard_written(self, batch_id: UUID, attempt: int, *, reason: str, actor: str) -> None:
        """WRITTEN by this attempt → PLANNED, and every attempt so far DISCARDED, so that none can be pinned later."""

    def begin_commit(self, batch_id: UUID, attempt: int) -> None:
        """WRITTEN by this attempt → COMMITTING; does nothing where it is COMMITTING or COMMITTED already."""

    def complete_commit(self, batch_id: UUID, *, actor: str) -> Batch:
        """Move all the batch's stored offsets and COMMITTING → COMMITTED, or neither; raises OffsetsMovedError.

        A backfill moves none, and closes the gaps that it read. Does nothing where the batch is COMMITTED already. Returns the
        batch as it is then.
        """

    def abandon(
        self,
        batch_id: UUID,
        *,
        reason: str,
        actor: str,
        only_from: Collection[BatchState] = ABANDONABLE,
        jumps: Sequence[Jump] = (),
    ) -> None:
        """→ ABANDONED, from one of these states; raises BatchStateError from any other.

        Stored offsets move only over gaps, where some of the batch's offsets are lost: both happen or neither.
        """

    def note_announced(self, feed_id: UUID, batch_ids: Collection[UUID]) -> None:
        """Note that Airflow has recorded the Asset events of batches."""

    def note_cleaned(self, attempt: Attempt) -> None:
        """Note that an attempt's directory was removed."""

    def hold(self, feed_id: UUID, hold: Hold) -> None:
        """Add a hold that was found between two plans."""

    def note_holds(self, feed: FeedSnapshot, holds: Sequence[Hold]) -> None:
        """Add holds that a plan found and stops at; raises FeedChangedError where the feed is not as in the snapshot any more."""

    def record_event(
        self, feed_id: UUID, kind: str, *, actor: str, batch_id: UUID | None, detail: Mapping[str, Any]
    ) -> None:
        """Append a line to the audit journal."""


class FoldingTables(ControlTables, Protocol):
    """The step that keeps the control tables small after years."""

    def foldable(self, feed_id: UUID, cut: FoldCut) -> Foldable:
        """Return what may be folded now, and what stays that is as old."""

    def fold(self, feed_id: UUID, cut: FoldCut) -> Folded:
        """Fold the next old live batches and lines of the journal, and return how many; nothing where none is left.

        A batch's ranges become part of the feed's folded ranges, and its attempts go. Only of COMMITTED ones that were
        announced and whose staged output is removed. No decision rests on where a range is kept, so the feed's revision
        stays.
        """


class OperatorTables(FoldingTables, Protocol):
    """The steps that only an operator takes. Each names who and why, and is refused where the feed changed meanwhile."""

    def file_gap(self, feed: FeedSnapshot, new_gap: NewGap, *, seed: StoredOffset | None, actor: str) -> Gap:
        """File a gap, and move the stored offset over it where it begins there; ``seed`` is the row of a new partition."""

    def start_over(
        self,
        feed: FeedSnapshot,
        cluster_id: str,
        topics: Sequence[StartOver],
        *,
        reason: str,
        actor: str,
        abandoned: UUID | None = None,
    ) -> None:
        """Replace the stored offsets of topics that are not the ones they were counted in any more, and end their holds.

        ``abandoned`` is a PLANNED batch that read one of them: it is given up with them, or nothing happens.
        """

    def reset_offsets(self, feed: FeedSnapshot, moves: Sequence[ResetMove], *, reason: str, actor: str) -> None:
        """Move stored offsets, all or none; raises FeedChangedError, or BatchStateError where a batch is open.

        Forward a gap is filed. Backward open gaps above the new offset end, since what they hold is read now.
        """

    def record_lost(
        self,
        feed: FeedSnapshot,
        lost: Sequence[LostRange],
        gaps: Sequence[NewGap],
        *,
        reason: str,
        actor: str,
    ) -> None:
        """Write that published files were lost, and the gaps of what no other batch holds; no stored offset moves.

        Raises FeedChangedError where the feed is not as in the snapshot any more.
        """

    def record_removed(
        self, feed_id: UUID, batches: Sequence[UUID], ranges: Sequence[RemovedRange], *, reason: str, actor: str
    ) -> None:
        """Write which committed offsets were let expire; again changes nothing but the audit journal."""

    def rename_feed(self, feed: FeedSnapshot, new_name: str, *, reason: str, actor: str) -> None:
        """Give the feed another name; raises FeedChangedError where it is taken."""

    def adopt(self, feed: FeedSnapshot | NewFeed, adoption: Adoption, *, reason: str, actor: str) -> None:
        """Write what the output tells of a feed."""
