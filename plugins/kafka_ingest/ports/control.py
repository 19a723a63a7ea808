"""Questions to the control tables and steps on them: one role for each kind of caller."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from kafka_ingest.model.batch import ABANDONABLE, Attempt, Batch, BatchKind, BatchState

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence
    from datetime import datetime
    from uuid import UUID

    from kafka_ingest.model.alert import Alert, Change, NewAlert, Said
    from kafka_ingest.model.completion import LateCount, OnLate, Period, Unit
    from kafka_ingest.model.control_rows import (
        BackfillRecord,
        CommittedBatch,
        FeedSnapshot,
        HeldRange,
        NewFeed,
        PlanRecord,
        PublishedBatch,
        ResetMove,
        StartOver,
    )
    from kafka_ingest.model.coverage import BackfillRange, CoverageRows, OffsetRows
    from kafka_ingest.model.folded import Foldable, FoldCut, Folded, FoldedBatch, FoldedFeed
    from kafka_ingest.model.gap import Event, Gap, Jump, LostRange, NewGap, RemovedRange
    from kafka_ingest.model.hold import Hold
    from kafka_ingest.model.offsets import OffsetRange, StoredOffset, TopicPartition
    from kafka_ingest.model.place import OutputLocation
    from kafka_ingest.model.published_output import Adoption
    from kafka_ingest.model.receipt import RangeCount, Receipt
    from kafka_ingest.model.summaries import (
        BatchLine,
        BatchSummary,
        FeedOverview,
        FeedSummary,
        GapDecision,
        NotRows,
        ReadCounts,
    )


class ControlReader(Protocol):
    """What is stored. Reading changes nothing and takes no lock."""

    def feed(self, name: str) -> FeedSnapshot | None:
        """Return the feed's control rows as of one instant, None where it was never planned."""

    def feeds(self, names: Collection[str]) -> dict[str, FeedSnapshot]:
        """Return the control rows of several feeds as of one instant; those that were never planned are left out."""

    def feed_of_id(self, feed_id: UUID) -> FeedSnapshot | None:
        """Return the same by the feed's id, also after the feed was renamed."""

    def batch(self, batch_id: UUID) -> Batch:
        """Return a batch; raises UnknownBatchError."""

    def stored_offsets(self, feed_id: UUID) -> dict[TopicPartition, StoredOffset]:
        """Return the feed's stored offsets, by partition."""

    def newest_published(self, feed_id: UUID) -> PublishedBatch | None:
        """Return the feed's newest committed live batch, None where there is none."""

    def newest_of_kinds(self, feed_id: UUID) -> dict[BatchKind, PublishedBatch]:
        """Return the feed's newest committed batch of each kind that has any."""

    def committed_counts(self, feed_id: UUID, output: OutputLocation, least: int) -> ReadCounts:
        """Return how many records of an output's batches are rows, filtered or dead letters: of all, or of enough.

        Dead letters of batches with nothing else are counted where fewer were decoded.
        """

    def batch_states(self, feed_id: UUID, since: UUID | None = None) -> dict[UUID, BatchState]:
        """Return every batch of a feed with its state.

        ``since`` is a batch: only those from its id on, and older ones that are open or were abandoned since it was
        planned.
        """

    def speeds(self, feed_id: UUID) -> list[float]:
        """Return how many offsets per second the committed ones of the feed's twenty newest batches read; newest first.

        Measured from the start of the pinned attempt to its receipt, Spark's start included. Restored batches are left
        out: their files were copied, no records were read.
        """

    def attempts(self, batch_id: UUID) -> list[Attempt]:
        """Return a batch's attempts, in order."""

    def complete_span(self, feed_id: UUID, unit: Unit) -> tuple[datetime, datetime] | None:
        """Return since when and before when all hours or days of a feed are complete, None where none is."""

    def ended_attempts(self, feed_id: UUID, *, ended_before: datetime) -> list[Attempt]:
        """Return the attempts that ended before then: those of ended batches, and discarded ones; oldest first.

        Attempts that were cleaned up before then are left out.
        """

    def coverage(self, feed_name: str) -> CoverageRows | None:
        """Return what the control rows say about where each offset is; None where the feed was never planned."""

    def copied_ranges(self, feed_id: UUID, output: OutputLocation) -> list[BackfillRange]:
        """Return what the feed's copies into another output hold, or will hold."""

    def copy_outputs(self) -> list[tuple[UUID, OutputLocation]]:
        """Return the outputs of all feeds' copies, open ones included, with the feeds' ids."""

    def backfill_of(self, feed_id: UUID, actor: str) -> list[Batch]:
        """Return the backfills and copies that ``actor`` planned, in the order of their ids."""

    def backfill_request(self, feed_id: UUID, actor: str) -> Mapping[str, Any] | None:
        """Return the request of the newest backfill that ``actor`` planned, None where it is unknown."""

    def to_announce(self, feed_id: UUID) -> list[Batch]:
        """Return up to a hundred batches that DAG runs committed and whose Asset event may be lost, oldest first."""

    def open_backfills(self, feed_id: UUID) -> list[Batch]:
        """Return the backfills and copies that are open, in the order of their ids."""

    def batches_of_run(self, feed_id: UUID, run_id: str) -> list[Batch]:
        """Return the batches that a DAG run planned or committed, oldest first."""

    def starts_since(self, batch_id: UUID) -> dict[TopicPartition, int]:
        """Return where a live batch, or the first one after it that read the partition, began in each partition.

        Only committed live batches count, and only topics with their current ids. Raises BatchFoldedError where the
        batch, or a later one, is folded.
        """

    def cut_off(self, batch_id: UUID) -> dict[TopicPartition, int]:
        """Return from which offset on logs hold other records now than when the batch was planned.

        Of the batch's partitions, those of whose log an operator decided since that it was truncated.
        """

    def committed_within(
        self, feed_id: UUID, intervals: Sequence[OffsetRange], *, apart_from: UUID | None = None
    ) -> list[OffsetRange]:
        """Return what committed batches in the feed's output hold of intervals of the topics with their current ids.

        Lost files do not count, and neither does the batch ``apart_from``.
        """

    def held_ranges(self, feed_id: UUID, intervals: Sequence[OffsetRange]) -> list[HeldRange]:
        """Return which committed batches' rows the feed's output holds of intervals of the topics as they are now.

        Whole ranges, sorted; without those that were replaced since, are folded, or were cut off by a truncation.
        """

    def committed_ahead(self, feed_id: UUID) -> list[OffsetRange]:
        """Return what committed batches hold at or above the stored offsets, sorted: not empty after a backward reset.

        Only topics with their current ids count; copies into another output do not.
        """

    def committed_batches(self, feed_id: UUID) -> Iterator[CommittedBatch]:
        """Yield the feed's committed batches with all their ranges, oldest first, without copies."""

    def folded(self, feed_id: UUID) -> FoldedFeed:
        """Return which of the feed's batches are folded, and what they have read."""

    def committed_ranges(self, batch_id: UUID) -> list[OffsetRange]:
        """Return what committed batches in the feed's output hold of this batch's topics, partitions and offsets."""

    def range_counts(self, batch_id: UUID) -> list[RangeCount]:
        """Return the counts of a written batch's receipt for each range, in the plan's order."""

    def ledger_of_feed(self, feed_id: UUID) -> list[Event]:
        """Return all seeds, gaps and resets of a feed, oldest first."""

    def ledger(self, batch_id: UUID) -> list[Event]:
        """Return the seeds, gaps and resets between the feed's previous published batch and this COMMITTING one.

        For the first batch in another output: all events, followed by the stored offsets as the old output left them.
        """

    def gaps(self, feed_id: UUID) -> list[Gap]:
        """Return a feed's gaps, by partition and offset."""


class ControlObserver(ControlReader, Protocol):
    """What users ask: summaries, the journal, where an offset is. No step of the protocol depends on it."""

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

    def feed_overviews(self) -> list[FeedOverview]:
        """Return where each feed stands that was ever planned, by name: all as of one instant."""

    def not_rows(self, feed_id: UUID) -> NotRows:
        """Return how many records of a feed became no row."""

    def batch_lines(self, feed_id: UUID, *, before: UUID | None = None, limit: int) -> list[BatchLine]:
        """Return a feed's batches without their ranges, newest first; ``before``: only those older than this one."""

    def rows_by_hour(self, feed_ids: Collection[UUID], since: datetime) -> dict[UUID, dict[datetime, int]]:
        """Return how many rows each feed committed in each hour, of batches that were planned since then.

        Live batches and backfills count. An hour is named by its beginning in UTC; hours without a commit are left out.
        """

    def periods(self, feed_id: UUID, unit: Unit, *, before: datetime | None = None, limit: int) -> list[Period]:
        """Return the newest hours or days, the one that is waited for first; ``before``: only earlier ones."""

    def lag_by_hour(self, feed_ids: Collection[UUID], since: datetime) -> dict[UUID, dict[datetime, int]]:
        """Return the largest lag that each feed's plans found in each hour; hours without a batch are left out."""

    def gap_decisions(self) -> dict[UUID, list[GapDecision]]:
        """Return what is not closed of each feed's gaps, summed up by the decisions that made them, oldest first.

        Without what an operator has acknowledged since.
        """

    def alerts(self) -> list[Alert]:
        """Return all alerts, oldest first: those that hold, and those whose end may have to be notified."""

    def rows_by_partition(self, feed_id: UUID) -> dict[TopicPartition, int]:
        """Return how many rows of the topics' current ids were published, by partition; backfills included."""

    def journal(
        self,
        feed_id: UUID,
        *,
        kinds: Collection[str] = (),
        since: datetime | None = None,
        before: int | None = None,
        limit: int | None = None,
    ) -> list[Event]:
        """Return a feed's events, newest first; of all kinds where none is named.

        ``before`` is the number of an event: only older ones.
        """

    def offset_rows(self, feed_name: str, topic_partition: TopicPartition, offset: int) -> OffsetRows | None:
        """Return what the control rows say about one offset; None where the feed was never planned."""

    def folded_batches(self, feed_id: UUID, oldest: datetime, newest: datetime) -> list[FoldedBatch]:
        """Return the folded batches that were committed between two times, in the order of their commits."""


class ControlTables(ControlReader, Protocol):
    """What is stored, and the steps that change it: each one transaction under the feed's lock."""

    def record_plan(self, feed: FeedSnapshot | NewFeed, record: PlanRecord, *, actor: str) -> None:
        """Write what a plan decided; raises FeedChangedError where the feed has changed since the snapshot."""

    def note_unchanged(self, feeds: Collection[FeedSnapshot], planned_at: datetime) -> set[UUID]:
        """Note when feeds were planned whose plans change nothing else; return those that are as in their snapshots."""

    def record_backfill(self, feed: FeedSnapshot, record: BackfillRecord, *, actor: str) -> None:
        """Write a backfill's chunks, all or none; no stored offset moves.

        Raises FeedChangedError where the feed has changed since the snapshot, RangesTakenError where another backfill
        has planned an offset, and OffsetsMovedError where one is not below the stored offset.
        """

    def open_attempt(self, attempt: Attempt) -> None:
        """Add an attempt; raises FeedChangedError if its number is taken, BatchStateError unless PLANNED."""

    def pin(
        self, batch_id: UUID, attempt: int, receipt: Receipt, receipt_sha256: str, counts: Sequence[RangeCount]
    ) -> None:
        """PLANNED → WRITTEN by compare-and-set on batch and OPEN attempt; raises BatchStateError if either differs."""

    def discard_written(self, batch_id: UUID, attempt: int, *, reason: str, actor: str) -> None:
        """WRITTEN by this attempt → PLANNED, and every attempt so far DISCARDED, so that none can be pinned later."""

    def begin_commit(self, batch_id: UUID, attempt: int) -> None:
        """WRITTEN by this attempt → COMMITTING; does nothing where it is COMMITTING or COMMITTED already."""

    def complete_commit(self, batch_id: UUID, *, actor: str) -> Batch:
        """Move all the batch's stored offsets and COMMITTING → COMMITTED, or neither; raises OffsetsMovedError.

        A backfill moves none, and closes the gaps that it read. Does nothing where the batch is COMMITTED already.
        Returns the batch in its new state.
        """

    def are_in(self, transaction: object) -> bool:
        """Whether an output's open transaction is in the database of the control tables, and sees them."""

    def complete_commit_within(self, transaction: object, batch_id: UUID, *, actor: str) -> bool:
        """Do the same in such a transaction, with which it takes effect; return whether its role may write them."""

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

        Where some of the batch's offsets are lost, stored offsets move over the gaps in the same transaction.
        """

    def note_announced(self, feed_id: UUID, batch_ids: Collection[UUID]) -> None:
        """Note that Airflow has recorded the Asset events of batches."""

    def note_cleaned(self, attempt: Attempt) -> None:
        """Note that an attempt's directory was removed."""

    def hold(self, feed_id: UUID, hold: Hold) -> None:
        """Add a hold that was found between two plans."""

    def note_holds(self, feed: FeedSnapshot, holds: Sequence[Hold]) -> None:
        """Add holds that stop a plan; raises FeedChangedError where the feed has changed since the snapshot."""

    def record_event(
        self, feed_id: UUID, kind: str, *, actor: str, batch_id: UUID | None, detail: Mapping[str, Any]
    ) -> None:
        """Append a line to the audit journal."""


class AlertTables(ControlObserver, Protocol):
    """What was found of feeds, and what notifiers were given of it. No step of the protocol depends on it."""

    def said(self) -> list[Said]:
        """Return how far the notifications of all alerts have come."""

    def note_alerts(self, begun: Sequence[NewAlert], ended: Collection[UUID], now: datetime) -> None:
        """Begin and end alerts; what another check has begun or ended already stays as that one said."""

    def forget_alerts(self, alert_ids: Collection[UUID]) -> None:
        """Remove alerts that have ended, with what was noted of their notifications."""

    def claim(self, alert_ids: Collection[UUID], notifier: str, change: Change, now: datetime) -> set[UUID]:
        """Claim notifications for this process, and return those of which no other process has one, or gave it.

        A claim expires some minutes later: the process that has not come back then is taken for dead.
        """

    def note_said(
        self, alert_ids: Collection[UUID], notifier: str, change: Change, now: datetime, *, error: str | None = None
    ) -> None:
        """Note that claimed notifications were given, or with an error that they failed: the next check tries again."""


class CompletionTables(ControlObserver, Protocol):
    """Which hours and days of a feed are complete, and who has heard of it. No step of the protocol depends on it."""

    def waiting_period(self, feed_id: UUID, unit: Unit) -> datetime | None:
        """Return when the hour or day began that is waited for; None where none was ever."""

    def begin_periods(self, feed_id: UUID, unit: Unit, first: datetime, *, counted: UUID | None) -> datetime:
        """Let the first hour or day be waited for, and return it; another one, where another process was faster.

        Rows of batches up to ``counted`` are late for none.
        """

    def complete_periods(
        self, feed_id: UUID, unit: Unit, periods: Sequence[datetime], now: datetime, *, actor: str
    ) -> bool:
        """Complete all of these but the last, which is waited for then; False where the first was not any more."""

    def counted_batch(self, feed_id: UUID, unit: Unit) -> UUID | None:
        """Return up to which batch late rows are counted."""

    def live_batches_after(self, feed_id: UUID, after: UUID | None, *, limit: int) -> list[UUID]:
        """Return a feed's committed live batches after one, oldest first."""

    def add_late_rows(
        self, feed_id: UUID, unit: Unit, rows: Mapping[datetime, LateCount], *, before: datetime, counted: UUID
    ) -> int:
        """Add a batch's rows to complete hours or days, and note the batch; return how many rows were added.

        Neither where it was noted before, or where no longer the hour or day that began at ``before`` is waited for:
        then rows of those that another process completed are not among them.
        """

    def periods_to_mark(self, feed_id: UUID, unit: Unit, *, limit: int) -> list[Period]:
        """Return the oldest complete ones without a success file."""

    def periods_to_announce(self, feed_id: UUID, unit: Unit, on_late: OnLate, *, limit: int) -> list[Period]:
        """Return the oldest complete ones that are not announced; with late rows since, where these are."""

    def note_success_files(self, feed_id: UUID, unit: Unit, periods: Collection[Period], now: datetime) -> None:
        """Note that their success files are written."""

    def note_periods_announced(self, feed_id: UUID, unit: Unit, periods: Collection[Period], now: datetime) -> None:
        """Note that Airflow has recorded an event of each, with the late rows that each has here; once of each."""


class FoldingTables(ControlTables, Protocol):
    """The step that keeps the control tables small after years."""

    def foldable(self, feed_id: UUID, cut: FoldCut) -> Foldable:
        """Return what may be folded now, and what is old enough but stays."""

    def fold(self, feed_id: UUID, cut: FoldCut) -> Folded:
        """Fold the next old live batches and lines of the journal, and return how many; zero where none is left.

        A batch's ranges become part of the feed's folded ranges, and its attempts are removed. Only COMMITTED batches
        are folded that were announced and whose staged output is removed. No decision depends on where a range is kept,
        so the feed's revision stays.
        """


class OperatorTables(FoldingTables, Protocol):
    """The steps that only an operator takes. Each records actor and reason; refused where the feed has changed."""

    def file_gap(self, feed: FeedSnapshot, new_gap: NewGap, *, seed: StoredOffset | None, actor: str) -> Gap:
        """File a gap, and move the stored offset over it if it begins there; ``seed`` is the row of a new partition."""

    def acknowledge_gap(self, feed: FeedSnapshot, gap: Gap, reason: str, *, actor: str) -> None:
        """Record that an operator has decided that a gap stays; the gap itself is not changed."""

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
        """Replace the stored offsets of topics whose ids have changed, and end their holds.

        ``abandoned`` is a PLANNED batch that reads one of them: it is abandoned in the same transaction.
        """

    def reset_offsets(self, feed: FeedSnapshot, moves: Sequence[ResetMove], *, reason: str, actor: str) -> None:
        """Move stored offsets, all or none; raises FeedChangedError, or BatchStateError where a batch is open.

        Moving forward files a gap. Moving backward ends open gaps above the new offset: their offsets are read now.
        """

    def record_lost(
        self, feed: FeedSnapshot, lost: Sequence[LostRange], gaps: Sequence[NewGap], *, reason: str, actor: str
    ) -> None:
        """Record that published files were lost, and gaps over what no other batch holds; no stored offset moves.

        Raises FeedChangedError where the feed has changed since the snapshot.
        """

    def record_removed(
        self, feed_id: UUID, batches: Sequence[UUID], ranges: Sequence[RemovedRange], *, reason: str, actor: str
    ) -> None:
        """Record which committed offsets have expired; repeating it adds only a line to the audit journal."""

    def rename_feed(self, feed: FeedSnapshot, new_name: str, *, reason: str, actor: str) -> None:
        """Give the feed another name; raises FeedChangedError where it is taken."""

    def adopt(self, feed: FeedSnapshot | NewFeed, adoption: Adoption, *, reason: str, actor: str) -> None:
        """Write a feed's control rows as rebuilt from its output."""
