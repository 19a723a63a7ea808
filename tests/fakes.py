"""In-memory fakes of the protocols in :mod:`kafka_ingest.ports`, and a feed put together from them.

The fakes pass the same contract tests as the real parts. A rival is played by ``interleaved``: what is put there
happens once, at the next question that Kafka is asked, which is when no transaction is open and anyone may write.
"""

import copy
import itertools
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import uuid6
from tests.outputs import parquet_at

from kafka_ingest.batches.commit_batch import Committed, commit_batch
from kafka_ingest.batches.open_attempt import open_attempt
from kafka_ingest.batches.pin_receipt import pin_attempt
from kafka_ingest.batches.plan_batch import PlanOutcome, plan_batch
from kafka_ingest.control import log_cuts
from kafka_ingest.control.log_cuts import Cuts, PlannedOn, ids_before
from kafka_ingest.control.offset_statements import row_detail, seed_detail
from kafka_ingest.control.offset_store import reset_detail, reset_rows
from kafka_ingest.control.output_rows import union_of
from kafka_ingest.control.read_again import without_taken_over
from kafka_ingest.control.rows import is_dag_run, is_of_run
from kafka_ingest.control.schema import LEDGER_KINDS
from kafka_ingest.errors import (
    BatchRevokedError,
    BatchStateError,
    ColumnsChangedError,
    FeedChangedError,
    KafkaAccessDeniedError,
    KafkaUnavailableError,
    OffsetsMovedError,
    OutputConflictError,
    OutputNotUsableError,
    OutputUnavailableError,
    RangesTakenError,
    StagedOutputUnusableError,
    UnknownBatchError,
    UnknownFeedError,
)
from kafka_ingest.model.batch import (
    ABANDONABLE,
    ADOPTIONS,
    Attempt,
    AttemptDocument,
    AttemptState,
    Batch,
    BatchKind,
    BatchPlan,
    BatchState,
    DataNeeds,
    Transition,
)
from kafka_ingest.model.control_rows import (
    RECENT_BATCHES,
    RESTORED_BY,
    BackfillRecord,
    CommittedBatch,
    CommittedRange,
    FeedSnapshot,
    HeldRange,
    NewFeed,
    PlanRecord,
    PublishedBatch,
    ResetMove,
    StartOver,
)
from kafka_ingest.model.coverage import BackfillRange, CoverageRows, Rewind
from kafka_ingest.model.folded import Foldable, FoldCut, Folded, FoldedFeed
from kafka_ingest.model.gap import (
    Event,
    Gap,
    GapCause,
    Jump,
    LostRange,
    NewGap,
    Removal,
    RemovalCause,
    RemovedRange,
    ended_gaps,
)
from kafka_ingest.model.hold import DECIDED_BY_TOPIC, Hold
from kafka_ingest.model.offsets import (
    FirstRecord,
    Isolation,
    LogBounds,
    NewestRecord,
    OffsetRange,
    OffsetsPolicy,
    Retention,
    StoredOffset,
    TopicDescription,
    TopicPartition,
    Unavailable,
    intersect,
    listing,
    subtract,
)
from kafka_ingest.model.omissions import LeftOut, log_starts_of, ranges_read, to_leave_out
from kafka_ingest.model.place import DATA, OutputLocation
from kafka_ingest.model.published_output import (
    AdoptedBatch,
    Adoption,
    FileProblem,
    FilesState,
    FoundFiles,
    PublishedCount,
    PublishedLook,
    PublishedReceipt,
)
from kafka_ingest.model.read_again import Replacement
from kafka_ingest.model.receipt import RangeCount, Receipt, WrittenFile
from kafka_ingest.model.spark_settings import LargeRecord
from kafka_ingest.model.summaries import NotRows, ReadCounts
from kafka_ingest.model.written_columns import WrittenColumns
from kafka_ingest.planning.settings import Earliest, EndPositions, FeedPlanSettings
from kafka_ingest.ports.cluster import MirrorRefusedError
from kafka_ingest.ports.outputs import Sink, Sinks
from kafka_ingest.verbs.from_receipts import not_in

SOME_DAY = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
IN_LEDGER = (BatchKind.LIVE, BatchKind.BACKFILL)
CLUSTER = "cluster-A"
TOPIC_ID = "topic-id-1"
OUTPUT = Path("/data/orders")
GROUP = "orders-ingest"
BATCH_ID = UUID("01990000-0000-7000-8000-000000000001")
FEED_ID = UUID("01990000-0000-7000-8000-0000000000fe")


# ── Kafka ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


def log(start: int, end: int, *, lso: int | None = None, leader_epoch: int | None = None) -> LogBounds:
    """Return the bounds of a log that holds [start, end); without ``lso`` no transaction is open in it."""
    return LogBounds(start, end if lso is None else lso, end, leader_epoch)


@dataclass(frozen=True)
class FakeTopic:
    """A topic and its logs, by partition number."""

    logs: Mapping[int, LogBounds | Unavailable]
    topic_id: str | None = TOPIC_ID


def topic(*logs: LogBounds | Unavailable, topic_id: str | None = TOPIC_ID) -> FakeTopic:
    """Return a topic with these logs as its partitions 0, 1, …"""
    return FakeTopic(dict(enumerate(logs)), topic_id)


class FakeKafkaCluster:
    """A cluster that gives the answers it was given, and remembers what it was asked."""

    def __init__(self, topics: Mapping[str, FakeTopic] | None = None, *, cluster_id: str = CLUSTER) -> None:
        self.topics = dict(topics or {})
        self.id = cluster_id
        self.groups: dict[str, dict[TopicPartition, int]] = {}
        self.times: dict[TopicPartition, dict[int, datetime]] = {}
        self.epoch_starts: dict[TopicPartition, dict[int, int]] = {}
        self.damaged: dict[TopicPartition, int] = {}
        self.sizes: dict[TopicPartition, dict[int, int]] = {}
        self.firsts: dict[TopicPartition, FirstRecord | Unavailable | None] = {}
        self.kept: dict[str, Retention | Unavailable] = {}
        self.questions: list[str] = []
        self.is_down = False
        self.reads_nothing = False
        self.refusal: str | None = None
        self.denied: set[str] = set()
        self.interleaved: Callable[[], object] | None = None

    def cluster_id(self) -> str:
        self._asked("cluster_id")
        return self.id

    def topic_names(self) -> list[str]:
        self._asked("topic_names")
        return sorted(self.topics)

    def describe_topics(self, topics: Collection[str]) -> dict[str, TopicDescription]:
        self._asked("describe_topics")
        return {
            name: TopicDescription(name, self.topics[name].topic_id, tuple(sorted(self.topics[name].logs)))
            for name in topics
            if name in self.topics
        }

    def visible_topics(self, topics: Collection[str]) -> tuple[dict[str, TopicDescription], dict[str, str]]:
        denied = {name: f"refused access to topic {name}" for name in topics if name in self.denied}
        return self.describe_topics(set(topics) - denied.keys()), denied

    def log_bounds(self, topic_partitions: Collection[TopicPartition]) -> dict[TopicPartition, LogBounds | Unavailable]:
        self._asked("log_bounds")
        if refused := self.denied & {tp.topic for tp in topic_partitions}:
            raise KafkaAccessDeniedError(f"refused access to topic {min(refused)}")
        gone = Unavailable("UNKNOWN_TOPIC_OR_PART")
        return {
            tp: self.topics[tp.topic].logs.get(tp.partition, gone) if tp.topic in self.topics else gone
            for tp in topic_partitions
        }

    def offsets_at(
        self, timestamps: Mapping[TopicPartition, datetime]
    ) -> dict[TopicPartition, int | Unavailable | None]:
        self._asked("offsets_at")
        return {tp: self._offset_at(tp, timestamp) for tp, timestamp in timestamps.items()}

    def _offset_at(self, topic_partition: TopicPartition, timestamp: datetime) -> int | Unavailable | None:
        bounds = self.topics[topic_partition.topic].logs[topic_partition.partition]
        if isinstance(bounds, Unavailable):
            return bounds
        times = self.times.get(topic_partition, {})
        later = [offset for offset, at in times.items() if at >= timestamp and offset >= bounds.log_start_offset]
        return min(later, default=None)

    def records_from(
        self, timestamps: Mapping[TopicPartition, datetime]
    ) -> dict[TopicPartition, NewestRecord | Unavailable | None]:
        self._asked("records_from")
        return {tp: self._record_from(tp, round(timestamp.timestamp() * 1000)) for tp, timestamp in timestamps.items()}

    def _record_from(self, topic_partition: TopicPartition, timestamp_ms: int) -> NewestRecord | Unavailable | None:
        bounds = self.topics[topic_partition.topic].logs[topic_partition.partition]
        if isinstance(bounds, Unavailable):
            return bounds
        times = {offset: round(at.timestamp() * 1000) for offset, at in self.times.get(topic_partition, {}).items()}
        if topic_partition not in self.times:
            times = {bounds.log_start_offset: round(datetime.now(UTC).timestamp() * 1000) + 1}
        if isinstance(first := self.firsts.get(topic_partition), FirstRecord):
            times = {bounds.log_start_offset: first.timestamp_ms if first.timestamp_ms is not None else -1}
        later = [(offset, at) for offset, at in times.items() if at >= timestamp_ms]
        return NewestRecord(*min(later)) if later else None

    def newest_records(
        self, topic_partitions: Collection[TopicPartition]
    ) -> dict[TopicPartition, NewestRecord | Unavailable | None]:
        self._asked("newest_records")
        return {tp: self._newest_record(tp) for tp in topic_partitions}

    def _newest_record(self, topic_partition: TopicPartition) -> NewestRecord | Unavailable | None:
        bounds = self.topics[topic_partition.topic].logs[topic_partition.partition]
        if isinstance(bounds, Unavailable):
            return bounds
        newest = max(((at, offset) for offset, at in self.times.get(topic_partition, {}).items()), default=None)
        return None if newest is None else NewestRecord(newest[1], round(newest[0].timestamp() * 1000))

    def epoch_ends(self, epochs: Mapping[TopicPartition, int]) -> dict[TopicPartition, int | Unavailable | None]:
        self._asked("epoch_ends")
        return {tp: self._epoch_end(tp, epoch) for tp, epoch in epochs.items()}

    def _epoch_end(self, topic_partition: TopicPartition, epoch: int) -> int | Unavailable | None:
        bounds = self.topics[topic_partition.topic].logs[topic_partition.partition]
        if isinstance(bounds, Unavailable):
            return bounds
        if bounds.leader_epoch is None or epoch > bounds.leader_epoch:
            return None
        starts = self.epoch_starts.get(topic_partition, {})
        return min((start for later, start in starts.items() if later > epoch), default=bounds.high_watermark)

    def first_records(
        self, log_starts: Mapping[TopicPartition, int], isolation: Isolation = Isolation.READ_UNCOMMITTED
    ) -> dict[TopicPartition, FirstRecord | Unavailable | None]:
        del isolation
        self._asked("first_records")
        return {tp: self._first_record(tp, offset) for tp, offset in log_starts.items()}

    def _first_record(self, topic_partition: TopicPartition, start: int) -> FirstRecord | Unavailable | None:
        if topic_partition in self.firsts:
            return self.firsts[topic_partition]
        if (times := self.times.get(topic_partition)) is None:
            return FirstRecord(round(datetime.now(UTC).timestamp() * 1000) + 1, by_broker=True)
        first = min((offset for offset in times if offset >= start), default=None)
        return (
            None
            if first is None
            else FirstRecord(round(times[first].timestamp() * 1000), by_broker=False, offset=first)
        )

    def retentions(self, topics: Collection[str]) -> dict[str, Retention | Unavailable]:
        self._asked("retentions")
        return {topic: self.kept.get(topic, Retention(timedelta(days=7), by_size=False)) for topic in topics}

    def unreadable_at(
        self, offsets: Mapping[TopicPartition, int], at_most_bytes: int | None = None
    ) -> dict[TopicPartition, str | Unavailable]:
        self._asked("unreadable_at")
        if self.reads_nothing:
            return dict.fromkeys(offsets, Unavailable("no record within 15 s"))
        sizes = {tp: self.sizes.get(tp, {}).get(offset, 0) for tp, offset in offsets.items()}
        large = {tp: f"it has {size} bytes" for tp, size in sizes.items() if size > (at_most_bytes or size)}
        return large | {tp: "BAD_MSG: damaged" for tp, offset in offsets.items() if self.damaged.get(tp) == offset}

    def large_records(
        self,
        ranges: Collection[OffsetRange],
        isolation: Isolation,
    ) -> dict[TopicPartition, list[LargeRecord]]:
        self._asked("large_records")
        assert isolation in Isolation
        found: dict[TopicPartition, list[LargeRecord]] = {}
        for each in ranges:
            for offset, size in sorted(self.sizes.get(each.topic_partition, {}).items()):
                before = [record.size for record in found.get(each.topic_partition, [])]
                if each.start_offset <= offset < each.end_offset and size > max(before, default=0):
                    found.setdefault(each.topic_partition, []).append(LargeRecord(offset, size))
        return found

    def group_offsets(
        self, group: str, topic_partitions: Collection[TopicPartition]
    ) -> dict[TopicPartition, int | None]:
        self._asked("group_offsets")
        return {tp: self.groups.get(group, {}).get(tp) for tp in topic_partitions}

    def set_group_offsets(self, group: str, offsets: Mapping[TopicPartition, int], metadata: str) -> None:  # noqa: ARG002
        self._asked("set_group_offsets")
        if self.refusal is not None:
            raise MirrorRefusedError(self.refusal)
        self.groups.setdefault(group, {}).update(offsets)

    def _asked(self, question: str) -> None:
        self.questions.append(question)
        if self.is_down:
            raise KafkaUnavailableError("the brokers did not answer")
        if self.interleaved is not None:
            rival, self.interleaved = self.interleaved, None
            rival()


# ── The control tables ────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class FeedRow:
    """A feed's row in the control tables; its revision changes with every write below it."""

    feed_id: UUID
    name: str
    cluster_id: str
    topics: tuple[str, ...]
    revision: int
    topic_pattern: str | None = None
    waiting_since: datetime | None = None
    planned_at: datetime | None = None


@dataclass
class ControlState:
    """All control rows. A transaction works on a copy, which replaces the state when it ends well."""

    feeds: dict[UUID, FeedRow] = field(default_factory=dict)
    stored: dict[tuple[UUID, TopicPartition], StoredOffset] = field(default_factory=dict)
    batches: dict[UUID, Batch] = field(default_factory=dict)
    attempts: dict[tuple[UUID, int], Attempt] = field(default_factory=dict)
    counts: dict[UUID, list[RangeCount]] = field(default_factory=dict)
    written_at: dict[UUID, datetime] = field(default_factory=dict)
    ledgers: dict[UUID, tuple[int, int]] = field(default_factory=dict)
    planned_after: dict[UUID, int] = field(default_factory=dict)
    events: list[tuple[UUID, Event]] = field(default_factory=list)
    gaps: dict[UUID, tuple[UUID, Gap]] = field(default_factory=dict)
    holds: dict[UUID, tuple[Hold, ...]] = field(default_factory=dict)
    to_announce: set[UUID] = field(default_factory=set)
    lost: dict[UUID, tuple[LostRange, ...]] = field(default_factory=dict)
    removed: dict[UUID, tuple[RemovedRange, ...]] = field(default_factory=dict)

    def kept(self, feed_id: UUID, batch_id: UUID, offset_range: OffsetRange) -> list[OffsetRange]:
        """Return what a batch still holds of a range."""
        lost = [each.offset_range for each in self.lost.get(feed_id, ()) if each.batch_id == batch_id]
        return subtract([offset_range], lost)

    def copied(self) -> "ControlState":
        return ControlState(**{each.name: copy.copy(getattr(self, each.name)) for each in fields(self)})

    def batch(self, batch_id: UUID) -> Batch:
        if batch_id not in self.batches:
            raise UnknownBatchError(f"no batch {batch_id} in the control tables")
        return self.batches[batch_id]

    def feed_batches(self, feed_id: UUID) -> list[Batch]:
        return [batch for batch in self.batches.values() if batch.plan.feed_id == feed_id]

    def open_live_batch(self, feed_id: UUID) -> Batch | None:
        live = [batch for batch in self.feed_batches(feed_id) if batch.plan.kind is BatchKind.LIVE]
        return next((batch for batch in live if batch.state.is_open), None)

    def planned_on(self, batch: Batch) -> PlannedOn:
        return PlannedOn(self.planned_after.get(batch.batch_id), batch.plan.planned_at)

    def backfill_ranges(self, feed_id: UUID, kind: BatchKind) -> list[BackfillRange]:
        cuts = Cuts.of(resets_of(self, feed_id))
        found = [
            BackfillRange(
                batch.batch_id,
                batch.state,
                planned,
                batch.plan.topic_ids[planned.topic],
                cuts.at(planned.topic_partition, batch.plan.topic_ids[planned.topic], self.planned_on(batch)),
            )
            for batch in self.feed_batches(feed_id)
            if batch.plan.kind is kind and batch.state is not BatchState.ABANDONED
            for planned in batch.plan.ranges
        ]
        return sorted(found, key=lambda each: (each.offset_range, each.batch_id))

    def ledger_events(self, feed_id: UUID) -> list[Event]:
        return [event for owner, event in self.events if owner == feed_id and event.kind in LEDGER_KINDS]

    def touch(self, feed_id: UUID, **changes: Any) -> None:
        if feed_id not in self.feeds:
            raise UnknownFeedError(f"no feed with id {feed_id} in the control tables")
        row = self.feeds[feed_id]
        self.feeds[feed_id] = replace(row, revision=row.revision + 1, **changes)

    def change(self, batch_id: UUID, **changes: Any) -> None:
        self.batches[batch_id] = replace(self.batches[batch_id], updated_at=datetime.now(UTC), **changes)
        self.touch(self.batches[batch_id].plan.feed_id)

    def append_event(
        self, feed_id: UUID, kind: str, actor: str, batch_id: UUID | None, detail: Mapping[str, Any]
    ) -> None:
        self.events.append((feed_id, Event(self.next_event(), kind, datetime.now(UTC), actor, batch_id, dict(detail))))

    def next_event(self) -> int:
        """Return the number of the next line of the journal; old lines may be gone."""
        return max((event.event_id for _, event in self.events), default=0) + 1

    def check_offsets_in_place(self, plan: BatchPlan) -> None:
        if plan.kind is not BatchKind.LIVE:
            return
        moved: list[str] = []
        known = self.batches.get(plan.batch_id)
        for planned in known.ranges_read if known is not None else plan.ranges:
            row = self.stored.get((plan.feed_id, planned.topic_partition))
            expected, found = plan.topic_ids[planned.topic], row.topic_id if row is not None else None
            if row is None or row.next_offset != planned.start_offset:
                offset = row.next_offset if row is not None else None
                moved.append(f"{planned.topic_partition}: expected {planned.start_offset:,}, found {offset}")
            elif expected != found:
                moved.append(f"{planned.topic_partition}: expected topic id {expected}, found {found}")
        if moved:
            raise OffsetsMovedError(
                f"batch {plan.batch_id}: stored offsets are not where the batch starts: {listing(moved)}. None was "
                "moved."
            )


class InMemoryControlTables:
    """The control tables: a step takes full effect or none, and one that changes a row changes the feed's revision."""

    def __init__(self) -> None:
        self.state = ControlState()
        self._lock = threading.RLock()

    def copied(self) -> "InMemoryControlTables":
        """Return control tables of their own that hold what these hold now: each step replaces the state."""
        made = InMemoryControlTables()
        made.state = self.state
        return made

    @contextmanager
    def transaction(self) -> Iterator[ControlState]:
        with self._lock:
            state = self.state.copied()
            yield state
            self.state = state

    @contextmanager
    def _locked_batch(self, batch_id: UUID) -> Iterator[tuple[ControlState, Batch]]:
        with self.transaction() as state:
            yield state, state.batch(batch_id)

    def feed(self, name: str) -> FeedSnapshot | None:
        return self._snapshot(next((row for row in self.state.feeds.values() if row.name == name), None))

    def feeds(self, names: Collection[str]) -> dict[str, FeedSnapshot]:
        return {name: found for name in names if (found := self.feed(name)) is not None}

    def feed_of_id(self, feed_id: UUID) -> FeedSnapshot | None:
        return self._snapshot(self.state.feeds.get(feed_id))

    def _snapshot(self, row: FeedRow | None) -> FeedSnapshot | None:
        state = self.state
        if row is None:
            return None
        stored = {tp: offset for (owner, tp), offset in sorted(state.stored.items()) if owner == row.feed_id}
        return FeedSnapshot(
            feed_id=row.feed_id,
            name=row.name,
            cluster_id=row.cluster_id,
            revision=row.revision,
            topics=row.topics,
            stored=stored,
            open_batch=state.open_live_batch(row.feed_id),
            topic_pattern=row.topic_pattern,
            gaps_ahead=[gap for gap in self.gaps(row.feed_id) if gap.applied_at is None],
            behind_losses={
                gap.offset_range.topic_partition
                for before, gap in itertools.pairwise(
                    gap for gap in self.gaps(row.feed_id) if gap.cause is GapCause.RETENTION and gap.applied_at
                )
                if (before.topic_id, before.offset_range.topic_partition)
                == (gap.topic_id, gap.offset_range.topic_partition)
                if before.offset_range.end_offset == gap.offset_range.start_offset
                if (found := stored.get(gap.offset_range.topic_partition)) is not None
                and (found.topic_id, found.next_offset) == (gap.topic_id, gap.offset_range.end_offset)
            },
            holds=sorted_holds(state.holds.get(row.feed_id, ())),
            waiting_since=row.waiting_since,
            planned_at=row.planned_at,
            newest_batch=max((batch.batch_id for batch in state.feed_batches(row.feed_id)), default=None),
            published_to=output_of(newest_published(state, row.feed_id)),
            recent_batch=recent_batch([batch.batch_id for batch in state.feed_batches(row.feed_id)]),
        )

    def gaps(self, feed_id: UUID) -> list[Gap]:
        found = [gap for owner, gap in self.state.gaps.values() if owner == feed_id]
        return sorted(found, key=lambda gap: (gap.offset_range, gap.decided_at))

    def stored_offsets(self, feed_id: UUID) -> dict[TopicPartition, StoredOffset]:
        return {tp: offset for (owner, tp), offset in sorted(self.state.stored.items()) if owner == feed_id}

    def newest_published(self, feed_id: UUID) -> PublishedBatch | None:
        return self.newest_of_kinds(feed_id).get(BatchKind.LIVE)

    def newest_of_kinds(self, feed_id: UUID) -> dict[BatchKind, PublishedBatch]:
        plans = {kind: newest_published(self.state, feed_id, kind) for kind in BatchKind}
        return {kind: PublishedBatch(plan.batch_id, plan.output) for kind, plan in plans.items() if plan is not None}

    def not_rows(self, feed_id: UUID) -> NotRows:
        batches = [each for each in self.state.feed_batches(feed_id) if each.state is BatchState.COMMITTED]
        counts = [count for batch in batches for count in self.range_counts(batch.batch_id)]
        return NotRows(sum(each.filtered for each in counts), sum(each.dead_letters for each in counts))

    def committed_counts(self, feed_id: UUID, output: OutputLocation, least: int) -> ReadCounts:
        found = ReadCounts()
        for batch in self.state.feed_batches(feed_id):
            if batch.state is BatchState.COMMITTED and output_of(batch.plan) == output:
                for count in self.range_counts(batch.batch_id):
                    found = found.plus(ReadCounts(count.rows, count.filtered, count.dead_letters))
                if found.rows + found.filtered >= least:
                    break
        return found

    def batch_states(self, feed_id: UUID, since: UUID | None = None) -> dict[UUID, BatchState]:
        planned_at = self.state.batch(since).plan.planned_at if since is not None else None
        return {
            batch.batch_id: batch.state
            for batch in self.state.feed_batches(feed_id)
            if since is None
            or planned_at is None
            or batch.batch_id >= since
            or batch.state.is_open
            or (batch.state is BatchState.ABANDONED and batch.updated_at >= planned_at)
        }

    def batch(self, batch_id: UUID) -> Batch:
        return self.state.batch(batch_id)

    def speeds(self, feed_id: UUID) -> list[float]:
        state = self.state
        newest = sorted(state.feed_batches(feed_id), key=by_age, reverse=True)[:20]
        timed = [
            (
                sum(read.span for read in batch.ranges_read),
                state.written_at[batch.batch_id] - state.attempts[by_pin(batch)].opened_at,
            )
            for batch in newest
            if batch.state is BatchState.COMMITTED
            and not batch.planned_by.startswith(RESTORED_BY)
            and not state.attempts[by_pin(batch)].opened_by.startswith(RESTORED_BY)
        ]
        return [offsets / took.total_seconds() for offsets, took in timed if took > timedelta()]

    def attempts(self, batch_id: UUID) -> list[Attempt]:
        return [attempt for (owner, _), attempt in sorted(self.state.attempts.items()) if owner == batch_id]

    def ended_attempts(self, feed_id: UUID, *, ended_before: datetime) -> list[Attempt]:
        state = self.state
        batches = {batch.batch_id: batch for batch in state.feed_batches(feed_id) if batch.updated_at < ended_before}
        return [
            attempt
            for _, attempt in sorted(state.attempts.items())
            if (batch := batches.get(attempt.batch_id)) is not None
            and (attempt.cleaned_at is None or attempt.cleaned_at >= ended_before)
            and (not batch.state.is_open or attempt.state is AttemptState.DISCARDED)
        ]

    def committed_ranges(self, batch_id: UUID) -> list[OffsetRange]:
        plan = self.state.batch(batch_id).plan
        found = (
            kept
            for batch in self.state.feed_batches(plan.feed_id)
            if batch.state is BatchState.COMMITTED and batch.plan.kind is not BatchKind.COPY
            for theirs in batch.ranges_read
            for mine in self.state.batch(batch_id).ranges_read
            if theirs.topic_partition == mine.topic_partition
            and batch.plan.topic_ids[theirs.topic] == plan.topic_ids[mine.topic]
            and theirs.start_offset < mine.end_offset
            and mine.start_offset < theirs.end_offset
            for kept in self.state.kept(plan.feed_id, batch.batch_id, theirs)
        )
        return sorted(found)

    def starts_since(self, batch_id: UUID) -> dict[TopicPartition, int]:
        feed_id = self.state.batch(batch_id).plan.feed_id
        starts: dict[TopicPartition, int] = {}
        for batch in sorted(self.state.feed_batches(feed_id), key=lambda batch: batch.batch_id):
            if batch.batch_id >= batch_id and batch.plan.kind is BatchKind.LIVE:
                for read in read_of_topics_now(self.state, batch):
                    starts.setdefault(read.topic_partition, read.start_offset)
        return starts

    def committed_ahead(self, feed_id: UUID) -> list[OffsetRange]:
        found: list[OffsetRange] = []
        for batch in self.state.feed_batches(feed_id):
            for read in read_of_topics_now(self.state, batch) if batch.plan.kind in IN_LEDGER else []:
                stored = self.state.stored[feed_id, read.topic_partition].next_offset
                if stored is not None and read.end_offset > stored:
                    ahead = replace(read, start_offset=max(read.start_offset, stored))
                    found += self.state.kept(feed_id, batch.batch_id, ahead)
        return sorted(found)

    def coverage(self, feed_name: str) -> CoverageRows | None:
        feed = self.feed(feed_name)
        if feed is None:
            return None
        return CoverageRows(
            feed=feed,
            gaps=self.gaps(feed.feed_id),
            backfills=self.state.backfill_ranges(feed.feed_id, BatchKind.BACKFILL),
            rewinds=rewinds_of(self.state, feed.feed_id),
            ids_before=ids_before(resets_of(self.state, feed.feed_id)),
            committed_ahead=self.committed_ahead(feed.feed_id),
            lost=self.state.lost.get(feed.feed_id, ()),
            removed=self.state.removed.get(feed.feed_id, ()),
            replacements=replacements(self.state, feed.feed_id),
        )

    def held_ranges(self, feed_id: UUID, intervals: Sequence[OffsetRange]) -> list[HeldRange]:
        gone = {(each.replaced.batch_id, each.replaced.topic_partition) for each in replacements(self.state, feed_id)}
        found: list[HeldRange] = []
        for batch in self.state.feed_batches(feed_id):
            cuts = self.cut_off(batch.batch_id)
            now = {each.topic_partition for each in read_of_topics_now(self.state, batch)}
            is_there = batch.state is BatchState.COMMITTED and batch.plan.kind is not BatchKind.COPY
            for read in batch.ranges_read if is_there else ():
                tp = read.topic_partition
                cut = cuts.get(tp)
                is_cut_off = cut is not None and cut <= read.start_offset
                if tp in now and (batch.batch_id, tp) not in gone and not is_cut_off and intersect([read], intervals):
                    found.append(HeldRange(batch.batch_id, read, batch.plan.output, cut))
        return sorted(found, key=lambda each: (each.offset_range, each.batch_id))

    def cut_off(self, batch_id: UUID) -> dict[TopicPartition, int]:
        batch = self.state.batch(batch_id)
        plan, planned = batch.plan, self.state.planned_on(batch)
        cuts = Cuts.of(resets_of(self.state, plan.feed_id))
        logs = {each.topic_partition: plan.topic_ids[each.topic] for each in plan.ranges}
        found = {tp: cuts.at(tp, topic_id, planned) for tp, topic_id in logs.items()}
        return {tp: offset for tp, offset in found.items() if offset is not None}

    def committed_within(
        self, feed_id: UUID, intervals: Sequence[OffsetRange], *, apart_from: UUID | None = None
    ) -> list[OffsetRange]:
        batches = [batch for batch in self.state.feed_batches(feed_id) if batch.plan.kind in IN_LEDGER]
        return intersect(
            intervals,
            [
                kept
                for batch in batches
                if batch.batch_id != apart_from
                for read in read_of_topics_now(self.state, batch)
                for kept in self.state.kept(feed_id, batch.batch_id, read)
            ],
        )

    def committed_batches(self, feed_id: UUID) -> Iterator[CommittedBatch]:
        for batch in sorted(self.state.feed_batches(feed_id), key=lambda batch: batch.batch_id):
            if batch.state is BatchState.COMMITTED and batch.plan.kind is not BatchKind.COPY:
                counts = self.range_counts(batch.batch_id)
                ranges = [CommittedRange(count, batch.plan.topic_ids[count.offset_range.topic]) for count in counts]
                output = batch.plan.output
                yield CommittedBatch(batch.batch_id, batch.plan.kind, output, ranges, None)

    def folded(self, feed_id: UUID) -> FoldedFeed:
        """Nothing is: contract tests fold in databases alone."""
        del feed_id
        return FoldedFeed(frozenset(), [])

    def foldable(self, feed_id: UUID, cut: FoldCut) -> Foldable:
        raise AssertionError((feed_id, cut))

    def fold(self, feed_id: UUID, cut: FoldCut) -> Folded:
        raise AssertionError((feed_id, cut))

    def copied_ranges(self, feed_id: UUID, output: OutputLocation) -> list[BackfillRange]:
        copies = self.state.backfill_ranges(feed_id, BatchKind.COPY)
        return [each for each in copies if output_of(self.state.batch(each.batch_id).plan) == output]

    def copy_outputs(self) -> list[tuple[UUID, OutputLocation]]:
        copies = [batch for batch in self.state.batches.values() if batch.plan.kind is BatchKind.COPY]
        there = [batch for batch in copies if batch.state is not BatchState.ABANDONED]
        return [(batch.plan.feed_id, output_of(batch.plan)) for batch in there]

    def backfill_of(self, feed_id: UUID, actor: str) -> list[Batch]:
        found = [batch for batch in self.state.feed_batches(feed_id) if batch.plan.kind is not BatchKind.LIVE]
        return sorted((batch for batch in found if batch.planned_by == actor), key=lambda batch: batch.batch_id)

    def backfill_request(self, feed_id: UUID, actor: str) -> Mapping[str, Any] | None:
        events = [event for owner, event in self.state.events if owner == feed_id]
        mine = [event for event in events if (event.kind, event.actor) == ("backfill_planned", actor)]
        return mine[-1].detail["request"] if mine else None

    def to_announce(self, feed_id: UUID) -> list[Batch]:
        found = [batch for batch in self.state.feed_batches(feed_id) if batch.batch_id in self.state.to_announce]
        return sorted(found, key=lambda batch: batch.batch_id)[:100]

    def open_backfills(self, feed_id: UUID) -> list[Batch]:
        found = [batch for batch in self.state.feed_batches(feed_id) if batch.plan.kind is not BatchKind.LIVE]
        return sorted((batch for batch in found if batch.state.is_open), key=lambda batch: batch.batch_id)

    def batches_of_run(self, feed_id: UUID, run_id: str) -> list[Batch]:
        return [
            batch
            for batch in sorted(self.state.feed_batches(feed_id), key=lambda batch: batch.batch_id)
            if is_of_run(batch.planned_by, run_id) or is_of_run(batch.committed_by, run_id)
        ]

    def range_counts(self, batch_id: UUID) -> list[RangeCount]:
        return sorted(self.state.counts.get(batch_id, []), key=lambda count: count.offset_range)

    def ledger(self, batch_id: UUID) -> list[Event]:
        state = self.state
        batch = state.batch(batch_id)
        if batch_id not in state.ledgers:
            raise BatchStateError(f"batch {batch_id} is {batch.state}: only a COMMITTING one has a place in the ledger")
        after, upto = state.ledgers[batch_id]
        return [event for event in state.ledger_events(batch.plan.feed_id) if after < event.event_id <= upto]

    def ledger_of_feed(self, feed_id: UUID) -> list[Event]:
        return self.state.ledger_events(feed_id)

    def journal(self, feed_id: UUID, *, kinds: Collection[str], limit: int) -> list[Event]:
        found = [event for owner, event in self.state.events if owner == feed_id and event.kind in kinds]
        return found[::-1][:limit]

    def record_plan(self, feed: FeedSnapshot | NewFeed, record: PlanRecord, *, actor: str) -> None:
        values = {
            "topics": tuple(sorted(record.topics)),
            "topic_pattern": record.topic_pattern,
            "waiting_since": record.waiting_since,
            "planned_at": record.planned_at,
        }
        with self.transaction() as state:
            if isinstance(feed, NewFeed):
                insert_feed(state, feed, record.cluster_id, **values)
            else:
                require_revision(state, feed)
                state.touch(feed.feed_id, **values)
            for seed in record.seeds:
                record_seed(state, feed.feed_id, seed)
            if record.seeds:
                detail = {"partitions": [seed_detail(seed) for seed in record.seeds]}
                state.append_event(feed.feed_id, "seeded", actor, None, detail)
            apply_jumps(state, feed.feed_id, record.jumps, actor)
            for tp, epoch in record.leader_epochs.items():
                state.stored[feed.feed_id, tp] = replace(state.stored[feed.feed_id, tp], leader_epoch=epoch)
            state.holds[feed.feed_id] = tuple(record.holds)
            if record.plan is not None:
                insert_plan(state, record.plan, actor)

    def note_unchanged(self, feeds: Collection[FeedSnapshot], planned_at: datetime) -> set[UUID]:
        with self.transaction() as state:
            same = {each.feed_id for each in feeds if state.feeds[each.feed_id].revision == each.revision}
            for feed_id in same:
                state.touch(feed_id, planned_at=planned_at)
        return same

    def record_backfill(self, feed: FeedSnapshot, record: BackfillRecord, *, actor: str) -> None:
        with self.transaction() as state:
            require_revision(state, feed)
            state.touch(feed.feed_id)
            for chunk in record.chunks:
                insert_plan(state, chunk, actor)
            check_apart(state, feed.feed_id, record.chunks)
            for chunk in record.chunks:
                check_below_stored(state, chunk)
            now = datetime.now(UTC)
            gaps = [
                a_gap(new, feed.stored[new.offset_range.topic_partition].topic_id, actor, now) for new in record.gaps
            ]
            for gap in gaps:
                state.gaps[gap.gap_id] = (feed.feed_id, gap)
            if gaps:
                state.append_event(feed.feed_id, "gap", actor, None, {"gaps": [gap.as_document() for gap in gaps]})
            for chunk in record.chunks:
                note_ledger(state, chunk)
            detail = {"request": dict(record.request), "kind": record.chunks[0].kind.value if record.chunks else None}
            chunks = [str(chunk.batch_id) for chunk in record.chunks]
            state.append_event(feed.feed_id, "backfill_planned", actor, None, detail | {"chunks": chunks})

    def open_attempt(self, attempt: Attempt) -> None:
        with self._locked_batch(attempt.batch_id) as (state, batch):
            if batch.state is not BatchState.PLANNED:
                raise BatchStateError(
                    f"batch {batch.batch_id}: expected PLANNED to open an attempt, found {batch.state}"
                )
            if (attempt.batch_id, attempt.attempt) in state.attempts:
                raise FeedChangedError(
                    f"batch {batch.batch_id}: attempt {attempt.attempt} was opened by another process"
                )
            state.attempts[attempt.batch_id, attempt.attempt] = attempt
            state.touch(batch.plan.feed_id)

    def pin(
        self, batch_id: UUID, attempt: int, receipt: Receipt, receipt_sha256: str, counts: Sequence[RangeCount]
    ) -> None:
        with self._locked_batch(batch_id) as (state, batch):
            if batch.state is not BatchState.PLANNED:
                raise BatchStateError(
                    f"batch {batch_id} cannot become WRITTEN: expected it to be PLANNED, found {batch.state} "
                    f"(attempt {batch.pinned_attempt} is the pinned one)"
                )
            row = state.attempts.get((batch_id, attempt))
            if row is None or row.state is not AttemptState.OPEN:
                raise BatchStateError(
                    f"batch {batch_id}: attempt {attempt} is not open any more, its receipt is refused"
                )
            state.attempts[batch_id, attempt] = replace(row, state=AttemptState.PINNED, receipt_sha256=receipt_sha256)
            state.counts[batch_id] = list(counts)
            state.written_at[batch_id] = receipt.written_at
            state.change(
                batch_id,
                state=BatchState.WRITTEN,
                pinned_attempt=attempt,
                rows=receipt.rows,
                size_bytes=receipt.size_bytes,
                left_out=receipt.left_out,
            )
            if receipt.left_out:
                left_out = {"attempt": attempt, "ranges": [each.as_document() for each in receipt.left_out]}
                state.append_event(batch.plan.feed_id, "ranges_left_out", receipt.written_by, batch_id, left_out)
            if receipt.without_date:
                detail = {"attempt": attempt, "rows": receipt.without_date}
                state.append_event(batch.plan.feed_id, "no_dates", receipt.written_by, batch_id, detail)

    def discard_written(self, batch_id: UUID, attempt: int, *, reason: str, actor: str) -> None:
        with self._locked_batch(batch_id) as (state, batch):
            Transition(batch_id, batch.state, BatchState.PLANNED)
            require_pinned(batch, attempt)
            for key, row in state.attempts.items():
                if row.batch_id == batch_id and row.state is not AttemptState.DISCARDED:
                    state.attempts[key] = replace(row, state=AttemptState.DISCARDED, reason=reason)
            state.counts.pop(batch_id, None)
            state.change(
                batch_id, state=BatchState.PLANNED, pinned_attempt=None, rows=None, size_bytes=None, left_out=()
            )
            detail = {"attempt": attempt, "reason": reason}
            state.append_event(batch.plan.feed_id, "attempts_discarded", actor, batch_id, detail)

    def begin_commit(self, batch_id: UUID, attempt: int) -> None:
        with self._locked_batch(batch_id) as (state, batch):
            require_pinned(batch, attempt)
            if batch.state in {BatchState.COMMITTING, BatchState.COMMITTED}:
                return
            Transition(batch_id, batch.state, BatchState.COMMITTING)
            state.check_offsets_in_place(batch.plan)
            check_below_stored(state, batch.plan)
            check_not_overtaken(state, batch.plan)
            check_still_replaceable(state, batch.plan)
            if batch.plan.kind is BatchKind.LIVE:
                after = note_output_changed(state, batch)
                state.ledgers[batch_id] = (after, newest_ledger_event(state, batch.plan.feed_id))
            elif batch_id not in state.ledgers:
                newest = newest_ledger_event(state, batch.plan.feed_id)
                state.ledgers[batch_id] = (newest, newest)
            state.change(batch_id, state=BatchState.COMMITTING)

    def complete_commit(self, batch_id: UUID, *, actor: str) -> Batch:
        with self._locked_batch(batch_id) as (state, batch):
            if batch.state is not BatchState.COMMITTED:
                Transition(batch_id, batch.state, BatchState.COMMITTED)
                state.check_offsets_in_place(batch.plan)
                if batch.plan.kind is BatchKind.LIVE:
                    advance_stored_offsets(state, batch)
                elif batch.plan.kind is BatchKind.BACKFILL:
                    close_gaps(state, batch.plan, actor)
                state.change(batch_id, state=BatchState.COMMITTED, committed_at=datetime.now(UTC), committed_by=actor)
                if is_dag_run(actor):
                    state.to_announce.add(batch_id)
            return state.batches[batch_id]

    def are_in(self, transaction: object) -> bool:
        del transaction
        return False

    def complete_commit_within(self, transaction: object, batch_id: UUID, *, actor: str) -> bool:
        raise AssertionError((transaction, batch_id, actor))

    def abandon(
        self,
        batch_id: UUID,
        *,
        reason: str,
        actor: str,
        only_from: Collection[BatchState] = ABANDONABLE,
        jumps: Sequence[Jump] = (),
    ) -> None:
        with self._locked_batch(batch_id) as (state, batch):
            abandon_batch(state, batch, reason, actor, only_from)
            apply_jumps(state, batch.plan.feed_id, jumps, actor, batch_id)

    def note_announced(self, feed_id: UUID, batch_ids: Collection[UUID]) -> None:
        with self.transaction() as state:
            state.to_announce -= {each for each in batch_ids if state.batches[each].plan.feed_id == feed_id}

    def note_cleaned(self, attempt: Attempt) -> None:
        with self._locked_batch(attempt.batch_id) as (state, batch):
            key = (batch.batch_id, attempt.attempt)
            state.attempts[key] = replace(state.attempts[key], cleaned_at=datetime.now(UTC))

    def hold(self, feed_id: UUID, hold: Hold) -> None:
        with self.transaction() as state:
            state.holds[feed_id] = (*state.holds.get(feed_id, ()), hold)
            state.touch(feed_id)

    def file_gap(self, feed: FeedSnapshot, new_gap: NewGap, *, seed: StoredOffset | None, actor: str) -> Gap:
        with self.transaction() as state:
            require_revision(state, feed)
            state.touch(feed.feed_id)
            if seed is not None:
                record_seed(state, feed.feed_id, seed)
                state.append_event(feed.feed_id, "seeded", actor, None, {"partitions": [seed_detail(seed)]})
            span = new_gap.offset_range
            stored = state.stored[feed.feed_id, span.topic_partition]
            if stored.next_offset == span.start_offset:
                jump = Jump(span.topic_partition, span.start_offset, span.end_offset, (new_gap,))
                return apply_jumps(state, feed.feed_id, [jump], actor)[0]
            ahead = a_gap(new_gap, stored.topic_id, actor, None)
            state.gaps[ahead.gap_id] = (feed.feed_id, ahead)
            state.append_event(feed.feed_id, "gap", actor, None, {"gaps": [ahead.as_document()]})
            return ahead

    def acknowledge_gap(self, feed: FeedSnapshot, gap: Gap, reason: str, *, actor: str) -> None:
        with self.transaction() as state:
            require_revision(state, feed)
            state.touch(feed.feed_id)
            detail = {"gap": gap.as_document(), "reason": reason}
            state.append_event(feed.feed_id, "gap_acknowledged", actor, None, detail)

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
        names = {topic.topic for topic in topics}
        with self.transaction() as state:
            require_revision(state, feed)
            known = {} if cluster_id == feed.cluster_id else {"topics": (), "topic_pattern": None}
            state.touch(feed.feed_id, cluster_id=cluster_id, **known)
            if abandoned is not None:
                abandon_batch(state, state.batch(abandoned), reason, actor, {BatchState.PLANNED})
            old = [row for row in feed.stored.values() if row.topic_partition.topic in names]
            for row in old:
                del state.stored[feed.feed_id, row.topic_partition]
            for topic in topics:
                for row in topic.rows:
                    state.stored[feed.feed_id, row.topic_partition] = replace(row, updated_at=datetime.now(UTC))
                end_gaps(state, feed.feed_id, old, topic.rows)
                keep_gaps(state, feed, topic)
                state.holds[feed.feed_id] = tuple(
                    hold for hold in state.holds.get(feed.feed_id, ()) if outlives(hold, topic)
                )
            detail = {
                "reason": reason,
                "cluster_id": {"was": feed.cluster_id, "is": cluster_id},
                "same_records": [topic.topic for topic in topics if topic.same_records],
                "untouched": [str(tp) for topic in topics for tp in topic.untouched],
                "removed": [row_detail(row) for row in old],
                "partitions": [row_detail(row) for topic in topics for row in topic.rows],
            }
            state.append_event(feed.feed_id, "reset", actor, None, detail)

    def reset_offsets(self, feed: FeedSnapshot, moves: Sequence[ResetMove], *, reason: str, actor: str) -> None:
        with self.transaction() as state:
            require_revision(state, feed)
            for batch in state.feed_batches(feed.feed_id):
                if batch.plan.kind is not BatchKind.COPY and batch.state.is_open:
                    raise BatchStateError(
                        f"{batch.plan.kind} batch {batch.batch_id} is {batch.state}: it is in the way"
                    )
            state.touch(feed.feed_id)
            now = reset_rows(feed, moves)
            was = [feed.stored[move.topic_partition] for move in moves]
            for row, move in zip(now, moves, strict=True):
                next_offset = row.next_offset if move.jump is None else move.from_offset
                written = replace(row, next_offset=next_offset, updated_at=datetime.now(UTC))
                state.stored[feed.feed_id, row.topic_partition] = written
            end_gaps(state, feed.feed_id, was, now)
            state.append_event(feed.feed_id, "reset", actor, None, reset_detail(feed, was, now, reason))
            apply_jumps(state, feed.feed_id, [move.jump for move in moves if move.jump is not None], actor)

    def record_lost(
        self,
        feed: FeedSnapshot,
        lost: Sequence[LostRange],
        gaps: Sequence[NewGap],
        *,
        reason: str,
        actor: str,
    ) -> None:
        with self.transaction() as state:
            require_revision(state, feed)
            state.touch(feed.feed_id)
            state.lost[feed.feed_id] = tuple(dict.fromkeys([*state.lost.get(feed.feed_id, ()), *lost]))
            take_from_removed(state, feed.feed_id, lost)
            now = datetime.now(UTC)
            filed = [a_gap(new, feed.stored[new.offset_range.topic_partition].topic_id, actor, now) for new in gaps]
            for gap in filed:
                state.gaps[gap.gap_id] = (feed.feed_id, gap)
            detail = {"gaps": [gap.as_document() for gap in filed], "lost": [each.as_document() for each in lost]}
            state.append_event(feed.feed_id, "gap", actor, lost[0].batch_id, detail | {"reason": reason})

    def record_removed(
        self, feed_id: UUID, batches: Sequence[UUID], ranges: Sequence[RemovedRange], *, reason: str, actor: str
    ) -> None:
        with self.transaction() as state:
            state.touch(feed_id)
            landed = [
                each
                for each in replacements(state, feed_id)
                if state.batches[each.by].state in {BatchState.COMMITTING, BatchState.COMMITTED}
            ]
            left = without_taken_over(ranges, batches, landed, ids_before(resets_of(state, feed_id)))
            state.removed[feed_id] = tuple(union_of([*state.removed.get(feed_id, ()), *left]))
            detail = {"reason": reason, "batches": [str(batch_id) for batch_id in batches]}
            state.append_event(feed_id, "expired", actor, None, detail)

    def rename_feed(self, feed: FeedSnapshot, new_name: str, *, reason: str, actor: str) -> None:
        with self.transaction() as state:
            require_revision(state, feed)
            if new_name in {row.name for row in state.feeds.values()}:
                raise FeedChangedError(f"the control tables have another feed named {new_name!r}")
            state.touch(feed.feed_id, name=new_name)
            for batch in state.feed_batches(feed.feed_id):
                state.batches[batch.batch_id] = replace(batch, feed_name=new_name)
            detail = {"reason": reason, "was": feed.name, "is": new_name}
            state.append_event(feed.feed_id, "renamed", actor, None, detail)

    def adopt(self, feed: FeedSnapshot | NewFeed, adoption: Adoption, *, reason: str, actor: str) -> None:
        with self.transaction() as state:
            if isinstance(feed, NewFeed):
                values = {"topics": tuple(sorted(adoption.topics)), "topic_pattern": adoption.topic_pattern}
                insert_feed(state, feed, adoption.cluster_id, **values)
            else:
                require_revision(state, feed)
                state.touch(feed.feed_id, cluster_id=adoption.cluster_id)
            known = {(event.kind, event.at, event.actor) for event in state.ledger_events(feed.feed_id)}
            for recorded in adoption.ledger:
                if (recorded.kind, recorded.at, recorded.actor) not in known:
                    event = replace(recorded, event_id=state.next_event(), batch_id=None)
                    state.events.append((feed.feed_id, event))
            replace_gaps(state, feed.feed_id, adoption.gaps)
            drop_ended_gaps(state, feed.feed_id, adoption)
            holds = state.holds.get(feed.feed_id, ())
            state.holds[feed.feed_id] = tuple(hold for hold in holds if hold.topic not in adoption.reset)
            if adoption.abandoned is not None:
                Transition(adoption.abandoned, state.batches[adoption.abandoned].state, BatchState.ABANDONED)
                state.change(adoption.abandoned, state=BatchState.ABANDONED, reason=reason, abandoned_by=actor)
            upto = max((event.event_id for event in state.ledger_events(feed.feed_id)), default=0)
            for adopted in adoption.batches:
                adopt_batch(state, adopted, actor)
                state.ledgers[adopted.plan.batch_id] = (0, upto)
                state.planned_after.pop(adopted.plan.batch_id, None)
            for topic_partition in adoption.removed:
                state.stored.pop((feed.feed_id, topic_partition), None)
            for row in adoption.stored:
                state.stored[feed.feed_id, row.topic_partition] = replace(row, updated_at=datetime.now(UTC))
            detail = {
                "reason": reason,
                "batches": [str(adopted.plan.batch_id) for adopted in adoption.batches],
                "abandoned": str(adoption.abandoned) if adoption.abandoned else None,
                "partitions": [row_detail(row) for row in adoption.stored],
                "removed": [str(topic_partition) for topic_partition in adoption.removed],
            }
            expired = [*state.removed.get(feed.feed_id, ()), *adoption.expired]
            state.removed[feed.feed_id] = tuple(union_of(expired))
            take_from_removed(state, feed.feed_id, adoption.back)
            lost = [*state.lost.get(feed.feed_id, ()), *adoption.lost]
            state.lost[feed.feed_id] = tuple(dict.fromkeys(lost))
            if adoption.files:
                detail["files"] = {str(batch_id): found.state.value for batch_id, found in adoption.files.items()}
            state.append_event(feed.feed_id, "adopted", actor, None, detail)

    def note_holds(self, feed: FeedSnapshot, holds: Sequence[Hold]) -> None:
        with self.transaction() as state:
            require_revision(state, feed)
            state.touch(feed.feed_id)
            state.holds[feed.feed_id] = (*state.holds.get(feed.feed_id, ()), *holds)

    def record_event(
        self, feed_id: UUID, kind: str, *, actor: str, batch_id: UUID | None, detail: Mapping[str, Any]
    ) -> None:
        with self.transaction() as state:
            state.append_event(feed_id, kind, actor, batch_id, detail)


def take_from_removed(state: ControlState, feed_id: UUID, others: Iterable[LostRange | RemovedRange]) -> None:
    """What was lost, or is there again, was not removed on purpose."""
    taken = [RemovedRange(each.offset_range, each.topic_id) for each in others]
    state.removed[feed_id] = tuple(not_in(state.removed.get(feed_id, ()), taken))


def abandon_batch(
    state: ControlState, batch: Batch, reason: str, actor: str, only_from: Collection[BatchState]
) -> None:
    """→ ABANDONED, from one of these states."""
    Transition(batch.batch_id, batch.state, BatchState.ABANDONED)
    if batch.state not in only_from:
        expected = " or ".join(sorted(only_from))
        raise BatchStateError(
            f"batch {batch.batch_id} is {batch.state}: expected {expected} to abandon it; a COMMITTING one is "
            "revoked first: `kafka-ingest abandon`."
        )
    state.change(batch.batch_id, state=BatchState.ABANDONED, reason=reason, abandoned_by=actor)
    detail = {"reason": reason, "was": batch.state.value}
    state.append_event(batch.plan.feed_id, "abandoned", actor, batch.batch_id, detail)


def newest_ledger_event(state: ControlState, feed_id: UUID) -> int:
    """Return the number of a feed's newest seed, gap or reset."""
    return max((event.event_id for event in state.ledger_events(feed_id)), default=0)


def note_ledger(state: ControlState, chunk: BatchPlan) -> None:
    """Note which part of the ledger a chunk's receipt will carry.

    What it was planned on, since the newest live batch's.
    """
    upto, newest = newest_ledger_event(state, chunk.feed_id), newest_published(state, chunk.feed_id)
    if newest is None:
        after = 0 if chunk.kind is BatchKind.BACKFILL else upto
    else:
        after = state.ledgers[newest.batch_id][1] if newest.output == chunk.output else upto
    state.ledgers[chunk.batch_id] = (after, upto)


def check_apart(state: ControlState, feed_id: UUID, chunks: Sequence[BatchPlan]) -> None:
    """Raise where two backfills of a feed read one offset."""

    def kept_of(each: BackfillRange) -> list[OffsetRange]:
        return [left for held in each.held for left in state.kept(feed_id, each.batch_id, held)]

    ranges = state.backfill_ranges(feed_id, BatchKind.BACKFILL)
    taken = [
        later.offset_range
        for earlier, later in itertools.combinations(ranges, 2)
        if earlier.topic_id == later.topic_id and intersect(kept_of(earlier), kept_of(later))
    ]
    mine = [planned for chunk in chunks if chunk.kind is BatchKind.BACKFILL for planned in chunk.ranges]
    taken = intersect(mine, taken)
    if taken:
        raise RangesTakenError(f"expected offsets that no other backfill of the feed reads, found {listing(taken)}")


def replacements(state: ControlState, feed_id: UUID, apart_from: UUID | None = None) -> list[Replacement]:
    """Return what batches that are open or committed replace."""
    found = sorted(state.batches.values(), key=lambda batch: batch.batch_id)
    return [
        Replacement(each, plan.batch_id, plan.topic_ids[each.topic_partition.topic], batch.state.is_open)
        for batch in found
        for plan in [batch.plan]
        if plan.feed_id == feed_id and plan.batch_id != apart_from and batch.state is not BatchState.ABANDONED
        for each in plan.replaces
    ]


def check_still_replaceable(state: ControlState, plan: BatchPlan) -> None:
    """Raise OffsetsMovedError where what a batch replaces is not there any more."""
    if not plan.replaces:
        return
    known, ids = state.ledgers.get(plan.batch_id, (0, 0))[1], ids_before(resets_of(state, plan.feed_id))
    mine = {(each.batch_id, each.topic_partition) for each in plan.replaces}
    others = replacements(state, plan.feed_id, apart_from=plan.batch_id)
    taken = any((each.replaced.batch_id, each.replaced.topic_partition) in mine for each in others)
    elsewhere = [(each.offset_range, each.topic_id) for each in state.removed.get(plan.feed_id, ())]
    for reset in resets_of(state, plan.feed_id):
        if reset.event_id > known:
            elsewhere += [(each.offset_range, each.topic_id) for each in log_cuts.rewinds_of(reset)]
    for span, topic_id in elsewhere if plan.replaces else ():
        was = plan.topic_ids.get(span.topic)
        if ids.get((span.topic, topic_id), topic_id) == ids.get((span.topic, was), was):
            taken = taken or bool(intersect(plan.ranges, [span]))
    if taken and plan.replaces:
        raise OffsetsMovedError(f"batch {plan.batch_id} replaces rows that are not there any more")


def check_below_stored(state: ControlState, plan: BatchPlan) -> None:
    """Raise where a backfill reads at or beyond a stored offset."""
    for planned in plan.ranges if plan.kind in {BatchKind.BACKFILL, BatchKind.REPLACE} else ():
        row = state.stored.get((plan.feed_id, planned.topic_partition))
        if row is None or row.topic_id != plan.topic_ids[planned.topic]:
            continue
        if row.next_offset is None or planned.end_offset > row.next_offset:
            raise OffsetsMovedError(
                f"backfill {plan.batch_id} reads offsets that are not below the stored ones: {planned}, stored offset "
                f"{row.next_offset}. Abandon it: `kafka-ingest abandon {plan.batch_id} --reason …`."
            )


def check_not_overtaken(state: ControlState, plan: BatchPlan) -> None:
    """Raise where another backfill has read a backfill's offsets since, or a reset gave them to the live run."""
    if plan.kind is not BatchKind.BACKFILL:
        return
    ids = ids_before(resets_of(state, plan.feed_id))
    others = [
        (kept, each.topic_id)
        for each in state.backfill_ranges(plan.feed_id, BatchKind.BACKFILL)
        if each.batch_id != plan.batch_id and each.state is BatchState.COMMITTED
        for held in each.held
        for kept in state.kept(plan.feed_id, each.batch_id, held)
    ]
    _, known = state.ledgers.get(plan.batch_id, (0, 0))
    since = [event.at for event in resets_of(state, plan.feed_id) if event.event_id > known]
    rewinds = [(each.offset_range, each.topic_id) for each in rewinds_of(state, plan.feed_id) if each.at in since]
    for offset_range, topic_id in [*others, *rewinds]:
        topic = offset_range.topic
        id_then = plan.topic_ids.get(topic)
        is_same = ids.get((topic, id_then), id_then) == ids.get((topic, topic_id), topic_id)
        if is_same and (overtaken := intersect(plan.ranges, [offset_range])):
            raise OffsetsMovedError(
                f"backfill {plan.batch_id} reads offsets that another backfill has read, or that a reset gave to the "
                f"live run, since it was planned: {listing(overtaken)}. Abandon it: `kafka-ingest abandon "
                f"{plan.batch_id} --reason …`."
            )


def close_gaps(state: ControlState, plan: BatchPlan, actor: str) -> None:
    """Close the open gaps that a backfill has read."""
    closed: list[Gap] = []
    ids = ids_before(resets_of(state, plan.feed_id))
    ids_now = {topic: ids.get((topic, topic_id), topic_id) for topic, topic_id in plan.topic_ids.items()}
    for gap_id, (owner, gap) in list(state.gaps.items()):
        if owner != plan.feed_id or not gap.is_open or gap.topic_id != ids_now.get(gap.offset_range.topic):
            continue
        pieces = gap.read_by(plan.batch_id, plan.ranges)
        if pieces != [gap]:
            del state.gaps[gap_id]
            state.gaps |= {piece.gap_id: (owner, piece) for piece in pieces}
            closed += [piece for piece in pieces if piece.closed_by_batch]
    if closed:
        documents = [gap.as_document() for gap in sorted(closed, key=lambda gap: gap.offset_range)]
        state.append_event(plan.feed_id, "gap_closed", actor, plan.batch_id, {"gaps": documents})


def resets_of(state: ControlState, feed_id: UUID) -> list[Event]:
    """Return what operators decided on stored offsets, oldest first."""
    return [event for owner, event in state.events if owner == feed_id and event.kind == "reset"]


def rewinds_of(state: ControlState, feed_id: UUID) -> list[Rewind]:
    """Return the intervals that operators let the feed read again."""
    found: list[Rewind] = []
    for event in resets_of(state, feed_id):
        was = {(row["topic"], row["partition"]): row for row in event.detail["removed"]}
        for row in event.detail["partitions"]:
            before = was.get((row["topic"], row["partition"]), row)
            if None in {before["next_offset"], row["next_offset"]} or before["topic_id"] != row["topic_id"]:
                continue
            if row["next_offset"] < before["next_offset"]:
                interval = OffsetRange(
                    TopicPartition(row["topic"], row["partition"]), row["next_offset"], before["next_offset"]
                )
                same = row["topic"] in event.detail["same_records"]
                found.append(Rewind(interval, row["topic_id"], event.at, event.actor, event.detail["reason"], same))
    return found


def recent_batch(batch_ids: list[UUID]) -> UUID | None:
    newest_first = sorted(batch_ids, reverse=True)
    return newest_first[RECENT_BATCHES - 1] if len(newest_first) >= RECENT_BATCHES else None


def newest_published(state: ControlState, feed_id: UUID, kind: BatchKind = BatchKind.LIVE) -> BatchPlan | None:
    """Return the plan of the newest batch of a kind that was committed."""
    published = [
        batch.plan
        for batch in state.feed_batches(feed_id)
        if batch.state is BatchState.COMMITTED and batch.plan.kind is kind
    ]
    return max(published, key=lambda plan: plan.batch_id, default=None)


def output_of(plan: BatchPlan | None) -> OutputLocation | None:
    """Return where a batch was published."""
    return plan.output if plan is not None else None


def note_output_changed(state: ControlState, batch: Batch) -> int:
    """Return after which event a batch's ledger begins; the first in another output carries all of it."""
    plan = batch.plan
    newest = newest_published(state, plan.feed_id)
    if newest is None:
        return 0
    was, now = (each.as_document()["sink"] for each in (newest, plan))
    if newest.output == plan.output:
        return state.ledgers[newest.batch_id][1]
    rows = [row_detail(row) for (owner, _), row in sorted(state.stored.items()) if owner == plan.feed_id]
    detail = {"was": was, "is": now, "partitions": rows}
    state.append_event(plan.feed_id, "output_changed", batch.planned_by, batch.batch_id, detail)
    return 0


def sorted_holds(holds: Collection[Hold]) -> list[Hold]:
    """Return holds in the order of the control tables."""
    return sorted(holds, key=lambda hold: (hold.topic, -1 if hold.partition is None else hold.partition, hold.cause))


def insert_feed(state: ControlState, new: NewFeed, cluster_id: str, **values: Any) -> None:
    """Make the feed's row; of two first plans at once one wins."""
    if new.feed_id in state.feeds or new.name in {row.name for row in state.feeds.values()}:
        raise FeedChangedError(f"feed {new.name}: another first plan was faster. Nothing was written.")
    state.feeds[new.feed_id] = FeedRow(new.feed_id, new.name, cluster_id, revision=1, **values)


def require_revision(state: ControlState, known: FeedSnapshot) -> None:
    """Raise where another process wrote to the feed's control rows since they were read."""
    found = state.feeds[known.feed_id].revision
    if found != known.revision:
        raise FeedChangedError(
            f"feed {known.name}: another process wrote (expected revision {known.revision}, found {found})"
        )


def a_gap(new: NewGap, topic_id: str | None, actor: str, applied_at: datetime | None) -> Gap:
    """Return a new gap as it is stored."""
    decided_at = applied_at or datetime.now(UTC)
    return Gap(uuid6.uuid7(), new.offset_range, topic_id, new.cause, new.reason, actor, decided_at, applied_at)


def apply_jumps(
    state: ControlState, feed_id: UUID, jumps: Sequence[Jump], actor: str, batch_id: UUID | None = None
) -> list[Gap]:
    """Move stored offsets over gaps and file the new ones."""
    if not jumps:
        return []
    now = datetime.now(UTC)
    filed: list[Gap] = []
    passed: list[Gap] = []
    for jump in jumps:
        row = state.stored[feed_id, jump.topic_partition]
        if row.next_offset != jump.from_offset:
            raise OffsetsMovedError(
                f"stored offsets are not where a gap begins: {jump.topic_partition}: expected {jump.from_offset:,}, "
                f"found {row.next_offset}. None was moved; plan again."
            )
        state.stored[feed_id, jump.topic_partition] = replace(
            row, next_offset=jump.to_offset, leader_epoch=None, updated_at=now
        )
        filed += [a_gap(new, row.topic_id, actor, now) for new in jump.gaps]
        passed += [replace(gap, applied_at=now) for gap in jump.passed]
    for gap in [*filed, *passed]:
        state.gaps[gap.gap_id] = (feed_id, gap)
    state.append_event(feed_id, "gap", actor, batch_id, {"gaps": [gap.as_document() for gap in [*filed, *passed]]})
    return filed


def drop_ended_gaps(state: ControlState, feed_id: UUID, adoption: Adoption) -> None:
    """Drop what an older backup planned ahead in a topic that was made again since, or that a reset has ended."""
    ids = {row.topic_partition.topic: row.topic_id for row in adoption.stored}
    adopted = {gap.gap_id for gap in adoption.gaps}
    for gap_id, (owner, gap) in list(state.gaps.items()):
        of_older = gap.applied_at is None and ids.get(gap.offset_range.topic, gap.topic_id) != gap.topic_id
        ended = gap.closed_by_batch is None and gap.offset_range.topic in adoption.reset and gap_id not in adopted
        if owner == feed_id and (of_older or ended):
            del state.gaps[gap_id]


def read_of_topics_now(state: ControlState, batch: Batch) -> list[OffsetRange]:
    """Return what a batch committed of topics that are the ones the offsets are stored of now."""
    plan = batch.plan
    ids = ids_before(resets_of(state, plan.feed_id))
    return [
        planned
        for planned in batch.ranges_read
        if batch.state is BatchState.COMMITTED
        and (row := state.stored.get((plan.feed_id, planned.topic_partition))) is not None
        for topic_id in [plan.topic_ids[planned.topic]]
        if row.topic_id == ids.get((planned.topic, topic_id), topic_id)
    ]


def end_gaps(state: ControlState, feed_id: UUID, was: Collection[StoredOffset], now: Collection[StoredOffset]) -> None:
    """End the open gaps above stored offsets that went back."""
    gaps = [gap for owner, gap in state.gaps.values() if owner == feed_id]
    for gap_id, left in ended_gaps(gaps, was, now).items():
        del state.gaps[gap_id]
        if left is not None:
            state.gaps[left.gap_id] = (feed_id, left)


def span_of(batch: Batch) -> int:
    """Return how many offsets a batch has read."""
    return sum(read.span for read in batch.ranges_read)


def by_age(batch: Batch) -> tuple[datetime, UUID]:
    return batch.plan.planned_at, batch.batch_id


def by_pin(batch: Batch) -> tuple[UUID, int]:
    assert batch.pinned_attempt is not None
    return batch.batch_id, batch.pinned_attempt


def replace_gaps(state: ControlState, feed_id: UUID, gaps: Collection[Gap]) -> None:
    """Write gaps in place of all pieces of the same decisions."""
    decided = {gap.decision for gap in gaps}
    for gap_id, (owner, gap) in list(state.gaps.items()):
        if owner == feed_id and gap.decision in decided:
            del state.gaps[gap_id]
    state.gaps |= {gap.gap_id: (feed_id, gap) for gap in gaps}


def outlives(hold: Hold, topic: StartOver) -> bool:
    """Whether a hold outlives the decision on a topic."""
    if hold.topic != topic.topic:
        return True
    is_decided = hold.cause in DECIDED_BY_TOPIC
    return not is_decided and (topic.same_records or hold.topic_partition in topic.untouched)


def keep_gaps(state: ControlState, feed: FeedSnapshot, topic: StartOver) -> None:
    """Take gaps along where the records are the same; elsewhere those that lie ahead mean nothing any more."""
    ids = {row.topic_id for tp, row in feed.stored.items() if tp.topic == topic.topic}
    for gap_id, (owner, gap) in list(state.gaps.items()):
        if owner == feed.feed_id and gap.offset_range.topic == topic.topic:
            if topic.same_records:
                topic_id = topic.topic_id if gap.topic_id in ids else gap.topic_id
                state.gaps[gap_id] = (owner, replace(gap, topic_id=topic_id))
            elif gap.applied_at is None and gap.offset_range.topic_partition not in topic.untouched:
                del state.gaps[gap_id]


def adopt_batch(state: ControlState, adopted: AdoptedBatch, actor: str) -> None:
    """Write a batch as COMMITTED, whether it was known or not."""
    plan, receipt = adopted.plan, adopted.receipt
    if plan.batch_id in state.batches:
        Transition(plan.batch_id, state.batches[plan.batch_id].state, BatchState.COMMITTED, ADOPTIONS)
    for key, row in state.attempts.items():
        if row.batch_id == plan.batch_id and row.state is not AttemptState.DISCARDED:
            state.attempts[key] = replace(row, state=AttemptState.DISCARDED, reason="another attempt was published")
    state.attempts[plan.batch_id, receipt.attempt] = Attempt(
        batch_id=plan.batch_id,
        attempt=receipt.attempt,
        state=AttemptState.PINNED,
        directory=adopted.attempt_directory,
        document_sha256=receipt.document_sha256,
        opened_at=plan.planned_at,
        opened_by=receipt.written_by,
        receipt_sha256=adopted.receipt_sha256,
    )
    state.batches[plan.batch_id] = Batch(
        state.feeds[plan.feed_id].name,
        plan,
        BatchState.COMMITTED,
        planned_by=state.batches[plan.batch_id].planned_by if plan.batch_id in state.batches else actor,
        updated_at=datetime.now(UTC),
        pinned_attempt=receipt.attempt,
        committed_at=receipt.written_at,
        committed_by=actor,
        rows=receipt.rows,
        size_bytes=receipt.size_bytes,
        left_out=receipt.left_out,
    )
    state.counts[plan.batch_id] = receipt.range_counts(plan)
    state.written_at[plan.batch_id] = receipt.written_at


def record_seed(state: ControlState, feed_id: UUID, seed: StoredOffset) -> None:
    """Write the row of a partition that had none, or resolve a pending one; a row with an offset is never moved."""
    known = state.stored.get((feed_id, seed.topic_partition))
    if known is not None and known.next_offset is not None:
        raise FeedChangedError(f"{seed.topic_partition} has a stored offset already; a start rule never moves one")
    state.stored[feed_id, seed.topic_partition] = replace(
        known or seed,
        first_offset=seed.first_offset,
        next_offset=seed.next_offset,
        seeded_by=seed.seeded_by,
        leader_epoch=seed.leader_epoch,
        updated_at=datetime.now(UTC),
    )


def insert_plan(state: ControlState, plan: BatchPlan, actor: str) -> None:
    """Write a batch; a second open live one is refused."""
    open_batch = state.open_live_batch(plan.feed_id)
    if plan.batch_id in state.batches or (plan.kind is BatchKind.LIVE and open_batch is not None):
        raise FeedChangedError(f"feed {plan.feed_name}: another batch is open already. Nothing was written.")
    state.check_offsets_in_place(plan)
    name = state.feeds[plan.feed_id].name
    state.batches[plan.batch_id] = Batch(name, plan, BatchState.PLANNED, planned_by=actor, updated_at=plan.planned_at)
    state.planned_after[plan.batch_id] = newest_ledger_event(state, plan.feed_id)


def require_pinned(batch: Batch, attempt: int) -> None:
    """Raise unless this is the attempt whose receipt counts."""
    if batch.pinned_attempt != attempt:
        raise BatchStateError(
            f"batch {batch.batch_id}: expected attempt {attempt} to be the pinned one, found {batch.pinned_attempt} "
            f"in a {batch.state} batch"
        )


def advance_stored_offsets(state: ControlState, batch: Batch) -> None:
    """Move start → end of all partitions that a batch has read, whose place was checked before."""
    plan = batch.plan
    for planned in batch.ranges_read:
        key = (plan.feed_id, planned.topic_partition)
        state.stored[key] = replace(
            state.stored[key],
            next_offset=planned.end_offset,
            leader_epoch=plan.leader_epochs.get(planned.topic_partition),
            batch_id=plan.batch_id,
            updated_at=datetime.now(UTC),
        )


# ── The sink ──────────────────────────────────────────────────────────────────────────────────────────────────────────


class InMemorySink:
    """An output in memory. ``published`` is all that readers see."""

    def __init__(self, output_path: Path = OUTPUT) -> None:
        self.output_path = output_path
        self.documents: dict[Path, bytes] = {}
        self.receipts: dict[Path, bytes] = {}
        self.failures: dict[Path, str] = {}
        self.staged: set[Path] = set()
        self.damaged: set[Path] = set()
        self.published: dict[UUID, PublishedReceipt] = {}
        self.removals: dict[UUID, Removal] = {}
        self.visible: set[UUID] = set()
        self.gone: set[UUID] = set()
        self.hidden: set[UUID] = set()
        self.lost: dict[UUID, set[str]] = {}
        self.revoked: set[UUID] = set()
        self.foreign_batches: list[str] = []
        self.is_prepared = False
        self.is_down = False
        self.refusal: str | None = None
        self.only_decoded: bool | None = None
        self.columns_of_table: WrittenColumns | None = None
        self.not_in_table: list[str] = []
        self.interleaved: Callable[[], object] | None = None

    @property
    def staging(self) -> "InMemorySink":
        return self

    publisher = archive = inspector = remover = salvage = staging
    replacer = lacks = most_rows = in_transaction = publish_within = lost = refused = None

    def attempt_directory(self, batch_id: UUID, attempt: int) -> Path:
        return self.output_path.with_name(f"{self.output_path.name}.kafka-ingest") / str(batch_id) / str(attempt)

    def prepare(self) -> None:
        self._reachable()
        if self.refusal is not None:
            raise OutputNotUsableError(self.refusal)
        self.is_prepared = True

    def check_records(self, *, decoded: bool) -> None:
        if self.only_decoded not in {None, decoded}:
            raise ColumnsChangedError("expected other records")

    def columns_there(self, written: WrittenColumns) -> WrittenColumns | None:  # noqa: ARG002 - the sink's signature
        self._reachable()
        return self.columns_of_table

    def misfits(self, written: WrittenColumns) -> list[str]:
        return [each for each in self.not_in_table if each in written]

    def known_batches(self, since: UUID | None = None) -> list[str]:
        self._reachable()
        known = [*self.foreign_batches, *(str(batch_id) for batch_id in self.published)]
        return sorted(batch_id for batch_id in known if since is None or batch_id >= str(since))

    def open_attempt(self, directory: Path, document: bytes) -> None:
        self._reachable()
        self.documents[directory] = document

    @property
    def places(self) -> tuple[Path, ...]:
        return (self.output_path, self.output_path.with_name(f"{self.output_path.name}.kafka-ingest"))

    def read_receipt(self, directory: Path) -> bytes | None:
        self._reachable()
        return self.receipts.get(directory)

    def read_failure(self, directory: Path) -> str | None:
        self._reachable()
        return self.failures.get(directory)

    def note_failure(self, directory: Path, found: str) -> None:
        self._reachable()
        self.failures[directory] = found

    def end_of_failure(self, directory: Path, most: int) -> tuple[str, bool] | None:
        said = self.read_failure(directory)
        if said is None:
            return None
        return said.encode()[-most:].decode(errors="replace"), len(said.encode()) >= most

    def published_receipts(self) -> Iterator[PublishedReceipt]:
        self._reachable()
        for batch_id in sorted(self.published):
            removal = self.removal(batch_id)
            there = FoundFiles(FilesState.GONE, "its files are gone") if batch_id in self.gone else None
            files = FoundFiles(FilesState.EXPIRED, str(removal)) if removal else there or FoundFiles(FilesState.INTACT)
            yield replace(self.published[batch_id], files=files, removal=removal)

    def removal(self, batch_id: UUID) -> Removal | None:
        self._reachable()
        removal = self.removals.get(batch_id)
        is_back = removal is not None and removal.cause is RemovalCause.GONE and batch_id not in self.gone
        return None if is_back else removal

    def removed_batches(self) -> list[str]:
        self._reachable()
        return sorted(map(str, self.removals))

    def note_removal(self, removal: Removal) -> None:
        self._reachable()
        known = self.removals.get(removal.batch_id)
        if known is None or known.is_overruled_by(removal):
            self.removals[removal.batch_id] = removal
            if removal.cause is RemovalCause.EXPIRED and removal.batch_id not in self.gone:
                self.visible.add(removal.batch_id)

    def check_can_remove(self) -> None:
        self._reachable()

    def hide(self, batch_id: UUID) -> None:
        self._reachable()
        if self.removal(batch_id) is None:
            raise ValueError(f"expected batch {batch_id} to be noted as removed before it is hidden")
        if batch_id in self.visible:
            self.visible.discard(batch_id)
            self.hidden.add(batch_id)

    def unfinished(self) -> list[str]:
        self._reachable()
        return sorted(map(str, self.visible | self.hidden))

    def delete_hidden(self, batch_id: UUID) -> None:
        self._reachable()
        self.hidden.discard(batch_id)

    def set_aside(self, batch_id: UUID, names: list[str]) -> None:
        self._reachable()
        self.lost.setdefault(batch_id, set()).update(names)

    def look_at(self, batch_id: UUID, *, closely: bool = False) -> PublishedLook:  # noqa: ARG002 - nothing to be read
        kept, lost = self.published.get(batch_id), self.lost.get(batch_id, set())
        files = kept.receipt.files if kept is not None else ()
        return PublishedLook(
            counts=[] if lost else self._counts(batch_id),
            problems=[
                FileProblem(file.name, file, f"{file.name} is not there", is_there=False)
                for file in files
                if file.name in lost
            ],
        )

    def is_kept(self, batch_id: UUID) -> bool:
        self._reachable()
        return batch_id in self.published

    def published_receipt(self, batch_id: UUID) -> PublishedReceipt | None:
        self._reachable()
        return self.published.get(batch_id)

    def receipt(self, batch_id: UUID) -> Receipt | None:
        self._reachable()
        kept = self.published.get(batch_id)
        return kept.receipt if kept is not None else None

    def _counts(self, batch_id: UUID) -> list[PublishedCount]:
        self._reachable()
        kept = self.published.get(batch_id)
        counts = kept.receipt.range_counts(kept.plan) if kept is not None else []
        return [
            PublishedCount(count.offset_range.topic_partition, count.rows, count.rows, smallest, largest)
            for count in counts
            if (smallest := count.smallest_offset) is not None and (largest := count.largest_offset) is not None
        ]

    def data_needs(self, _directory: Path) -> DataNeeds:
        return DataNeeds()

    def can_take(self, _directory: Path, receipt: Receipt) -> None:
        self.prepare()
        if receipt.batch_id in self.published:
            raise OutputConflictError(f"batch {receipt.batch_id} is in {self.output_path} already")

    def verify(self, directory: Path, receipt: Receipt) -> None:
        self._reachable()
        if receipt.files and (directory not in self.staged or directory in self.damaged):
            raise StagedOutputUnusableError(f"part-00000.parquet is damaged in {directory / DATA}")

    def publish(self, directory: Path, published: PublishedReceipt) -> None:
        self._reachable()
        batch_id = published.receipt.batch_id
        if (known := self.published.get(batch_id)) is not None:
            if known != published:
                raise OutputConflictError(f"batch {batch_id} is in {self.output_path} with another receipt")
            return
        if batch_id in self.revoked:
            raise BatchRevokedError(f"batch {batch_id} is being abandoned: its staged files were revoked")
        if published.receipt.files and directory not in self.staged:
            raise OutputConflictError(f"batch {batch_id}: its staged files are gone from {directory / DATA}")
        self._publish(directory, published)

    def _publish(self, directory: Path, published: PublishedReceipt) -> None:
        self.staged.discard(directory)
        self.published[published.receipt.batch_id] = published

    def revoke(self, directory: Path, batch_id: UUID) -> None:
        self._reachable()
        if batch_id in self.published:
            raise BatchStateError(f"batch {batch_id} is published already, so it cannot be abandoned any more")
        self._revoke(directory, batch_id)

    def _revoke(self, directory: Path, batch_id: UUID) -> None:
        self.staged.discard(directory)
        self.revoked.add(batch_id)

    def check_restageable(self, directory: Path, receipt: Receipt) -> None:  # noqa: ARG002 - files are not in memory
        self._reachable()
        if directory in self.damaged or directory not in self.receipts:
            raise StagedOutputUnusableError(f"part-00000.parquet is damaged in {directory / DATA}")

    def restage(self, source: Path, receipt: Receipt, target: Path, ranges: Sequence[OffsetRange]) -> list[WrittenFile]:
        self.check_restageable(source, receipt)
        self.staged.add(target)
        return [a_file(kept) for file in receipt.files for span, _ in file.spans for kept in intersect([span], ranges)]

    def write_receipt(self, directory: Path, content: bytes) -> None:
        self._reachable()
        self.receipts[directory] = content

    def size_bytes(self, directory: Path) -> int:
        self._reachable()
        return 1_000 if directory in self.documents else 0

    def remove(self, directory: Path) -> None:
        self._reachable()
        for kept in (self.documents, self.receipts, self.failures):
            kept.pop(directory, None)
        self.staged.discard(directory)

    def published_ranges(self) -> list[OffsetRange]:
        """Return every range that readers see, sorted; one that was published twice comes twice."""
        return sorted(planned for kept in self.published.values() for planned in kept.ranges_read)

    def _reachable(self) -> None:
        if self.interleaved is not None:
            rival, self.interleaved = self.interleaved, None
            rival()
        if self.is_down:
            raise OutputUnavailableError(f"{self.output_path} could not be read or written: input/output error")


def sinks(*known: Sink) -> Sinks:
    """Return what finds the sink of a target among these in-memory ones, by its path."""
    by_path: dict[Path, Any] = {sink.output_path: sink for sink in known}

    def find(target: OutputLocation) -> Sink:
        return by_path.setdefault(target.path, InMemorySink(target.path))

    return find


# ── Builders of plans, settings and receipts ──────────────────────────────────────────────────────────────────────────


def partition(number: int, of: str = "orders") -> TopicPartition:
    """Return a partition of a topic."""
    return TopicPartition(of, number)


def span(number: int, start_offset: int, end_offset: int, of: str = "orders") -> OffsetRange:
    """Return an offset range of a partition of a topic."""
    return OffsetRange(TopicPartition(of, number), start_offset, end_offset)


def a_plan(*ranges: OffsetRange, **changes: Any) -> BatchPlan:
    """Return a plan of these ranges, or of ``orders-0[100, 200)`` and ``orders-1[0, 50)``."""
    plan = BatchPlan(
        batch_id=BATCH_ID,
        kind=BatchKind.LIVE,
        feed_id=FEED_ID,
        feed_name="orders",
        cluster_id=CLUSTER,
        topic_ids={planned.topic: TOPIC_ID for planned in ranges} or {"orders": TOPIC_ID},
        ranges=ranges or (span(0, 100, 200), span(1, 0, 50)),
        isolation=Isolation.READ_COMMITTED,
        offsets_policy=OffsetsPolicy.AUTO,
        output=parquet_at(OUTPUT),
        planned_at=SOME_DAY,
    )
    return replace(plan, **changes)


def partitions_of(plan: BatchPlan) -> list[TopicPartition]:
    """Return the partitions that a plan reads."""
    return [planned.topic_partition for planned in plan.ranges]


def a_file(planned: OffsetRange, rows: int | None = None, **changes: Any) -> WrittenFile:
    """Return a file that holds a range's first records, all of them unless ``rows`` says fewer."""
    rows = planned.span if rows is None else rows
    said = {
        "name": f"part-{planned.topic}-{planned.partition}.parquet",
        "size_bytes": 1_000,
        "rows": rows,
        "topic_partition": planned.topic_partition,
        "smallest_offset": planned.start_offset,
        "largest_offset": planned.start_offset + rows - 1,
    }
    return WrittenFile.of_one(**said | changes)


def a_receipt(plan: BatchPlan, *files: WrittenFile, document_sha256: str = "0" * 64, **changes: Any) -> Receipt:
    """Return the receipt of an attempt that wrote these files, or every record of the plan."""
    files = files or tuple(a_file(planned) for planned in plan.ranges)
    receipt = Receipt(
        batch_id=plan.batch_id,
        attempt=1,
        plan_fingerprint=plan.fingerprint,
        document_sha256=document_sha256,
        rows_read=sum(file.rows for file in files),
        files=files,
        written_at=SOME_DAY,
        written_by="spark local-1",
    )
    return replace(receipt, **changes)


def feed_settings(**changes: Any) -> FeedPlanSettings:
    """Return the planner's settings of a feed that reads topic ``orders`` from its earliest offset."""
    settings = FeedPlanSettings(
        name="orders",
        start_rules={"orders": Earliest()},
        isolation=Isolation.READ_COMMITTED,
        offsets_policy=OffsetsPolicy.AUTO,
        output=parquet_at(OUTPUT),
    )
    return replace(settings, **changes)


# ── A feed put together ───────────────────────────────────────────────────────────────────────────────────────────────


@dataclass
class FeedInMemory:
    """One feed with all its parts in memory: the tasks of its DAG as methods.

    The parts may be replaced by wrapped ones.
    """

    kafka: Any = field(default_factory=lambda: FakeKafkaCluster({"orders": topic(log(0, 100), log(0, 50))}))
    control: Any = field(default_factory=InMemoryControlTables)
    sink: Any = field(default_factory=InMemorySink)
    settings: FeedPlanSettings = field(default_factory=feed_settings)

    @property
    def sinks(self) -> Sinks:
        """Finds the one sink, whatever output is named."""
        return sinks(self.sink)

    @classmethod
    def of_two_batches(cls) -> "FeedInMemory":
        """Return a feed that committed two: orders-0[0, 100) with orders-1[0, 50), then orders-0[100, 130)."""
        feed = cls()
        feed.committed()
        feed.kafka.topics["orders"] = topic(log(0, 130), log(0, 50))
        feed.committed()
        return feed

    def copied(self) -> "FeedInMemory":
        """Return the same feed with parts of its own, which hold what these hold now."""
        return replace(
            self,
            kafka=with_own_collections(self.kafka),
            control=self.control.copied(),
            sink=with_own_collections(self.sink),
        )

    def plan(self, actor: str | None = "run 1", end: EndPositions = None) -> PlanOutcome:
        """Run the plan task."""
        return plan_batch(self.settings, self, actor=actor, end=end)

    def planned(self, actor: str = "run 1") -> BatchPlan:
        """Run the plan task, which has to come to a batch."""
        batch = self.plan(actor).batch
        assert batch is not None
        return batch

    def open_in(self, state: BatchState) -> BatchPlan:
        """Run the plan task, and bring its batch into a state in which it is open."""
        plan = self.planned()
        if state is not BatchState.PLANNED:
            self.write(plan.batch_id)
        if state is BatchState.COMMITTING:
            self.control.begin_commit(plan.batch_id, 1)
        return plan

    def open_attempt(self, batch_id: UUID, actor: str = "run 1") -> Attempt:
        """Run the first half of the write task, which has to need Spark."""
        attempt = self.ask_for_attempt(batch_id, actor)
        assert attempt is not None
        return attempt

    def ask_for_attempt(self, batch_id: UUID, actor: str = "run 1") -> Attempt | None:
        """Run the first half of the write task."""
        return open_attempt(batch_id, self, actor=actor)

    def lost_now(self, attempt: Attempt) -> tuple[LeftOut, ...]:
        """Return what the Spark job would leave out where it reads the attempt's ranges now."""
        plan = AttemptDocument.from_bytes(self.sink.documents[attempt.directory], attempt.document_sha256).plan
        bounds = {tp: self.kafka.topics[tp.topic].logs[tp.partition] for tp in partitions_of(plan)}
        return to_leave_out(plan.ranges, log_starts_of(bounds)) if plan.kind is BatchKind.LIVE else ()

    def spark_writes(self, attempt: Attempt, *, missing: int = 0, left_out: Sequence[LeftOut] = ()) -> Receipt:
        """Do what the Spark job does with the attempt; ``without`` records of each range are not in the log."""
        document = AttemptDocument.from_bytes(self.sink.documents[attempt.directory], attempt.document_sha256)
        read = ranges_read(document.plan.ranges, left_out)
        files = [a_file(planned, planned.span - missing) for planned in read if planned.span > missing]
        receipt = a_receipt(
            document.plan,
            document_sha256=attempt.document_sha256,
            attempt=document.attempt,
            files=tuple(files),
            rows_read=sum(file.rows for file in files),
            left_out=tuple(left_out),
            columns=document.columns,
        )
        self.sink.staged.add(attempt.directory)
        self.sink.receipts[attempt.directory] = receipt.as_bytes()
        return receipt

    def pin(self, attempt: Attempt) -> Batch:
        """Run the second half of the write task."""
        return pin_attempt(attempt.batch_id, attempt.attempt, self)

    def write(self, batch_id: UUID, *, missing: int = 0) -> None:
        """Run the whole write task, with Spark only where it is needed."""
        attempt = self.ask_for_attempt(batch_id)
        if attempt is not None:
            self.spark_writes(attempt, missing=missing, left_out=self.lost_now(attempt))
            self.pin(attempt)

    def written(self, *, missing: int = 0) -> BatchPlan:
        """Plan and write a batch."""
        plan = self.planned()
        self.write(plan.batch_id, missing=missing)
        return plan

    def commit(self, batch_id: UUID, *, group: str | None = GROUP, actor: str = "run 1") -> Committed:
        """Run the commit task."""
        return commit_batch(batch_id, self, group=group, actor=actor)

    def committed(self) -> BatchPlan:
        """Plan, write and commit a batch."""
        plan = self.written()
        self.commit(plan.batch_id)
        return plan

    def stored_offsets(self) -> dict[TopicPartition, int | None]:
        """Return the next offset of each partition that the control tables know."""
        feed = self.control.feed(self.settings.name)
        return {tp: row.next_offset for tp, row in feed.stored.items()} if feed is not None else {}


ROLES = frozenset({"staging", "publisher", "archive", "inspector", "remover", "salvage", "replacer", "dead_letters"})
"""The roles of a sink, each with calls of its own."""


def with_own_collections(part: Any) -> Any:
    """Return a copy of a part with collections of its own, and theirs; what those hold is not changed, but replaced."""
    made = copy.copy(part)
    vars(made).update({name: own_collection(value) for name, value in vars(part).items()})
    return made


def own_collection(value: Any) -> Any:
    """Return a copy of a collection, and anything else itself."""
    if isinstance(value, dict):
        return {key: own_collection(each) for key, each in value.items()}
    return copy.copy(value) if isinstance(value, list | set) else value


class Watched:
    """A part whose calls are noted, by name, before they are made and after they returned."""

    def __init__(
        self, part: object, called: Callable[[str], object], returned: Callable[[str], object] | None = None
    ) -> None:
        self._part = part
        self._called = called
        self._returned = returned

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._part, name)
        if name in ROLES:
            return Watched(found, self._called, self._returned)
        if not callable(found):
            return found

        def call(*arguments: Any, **named: Any) -> Any:
            self._called(name)
            answer = found(*arguments, **named)
            if self._returned is not None:
                self._returned(name)
            return answer

        return call


def watched(
    feed: FeedInMemory, called: Callable[[str], object], returned: Callable[[str], object] | None = None
) -> FeedInMemory:
    """Return the same feed with every call to its parts watched."""
    return replace(
        feed,
        kafka=Watched(feed.kafka, called, returned),
        control=Watched(feed.control, called, returned),
        sink=Watched(feed.sink, called, returned),
    )
