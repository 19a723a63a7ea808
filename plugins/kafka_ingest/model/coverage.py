"""Where each offset of a partition is: committed, pending, in a gap, or missing. Pure; computed from the control rows.

Live batches hold [first, stored) minus the gaps, so years of them need not be read (invariant 11). Only offsets of the
topic's current id count: offsets of a deleted topic mean other records.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from typing import Any, TypeVar
from uuid import UUID

from kafka_ingest.model.batch import BatchKind, BatchState
from kafka_ingest.model.control_rows import FeedSnapshot
from kafka_ingest.model.folded import FoldedRange
from kafka_ingest.model.gap import Event, Gap, GapCause, LostRange, RemovedRange
from kafka_ingest.model.offsets import (
    OffsetRange,
    StoredOffset,
    TopicPartition,
    by_partition,
    intersect,
    listing,
    shared,
    subtract,
    union,
)
from kafka_ingest.model.place import OutputLocation
from kafka_ingest.model.read_again import Replacement, Replay


@dataclass(frozen=True, slots=True)
class BackfillRange:
    """One range of a backfill or copy that is open or committed."""

    batch_id: UUID
    state: BatchState
    offset_range: OffsetRange
    topic_id: str | None
    cut_off_at: int | None = None
    """Where its log was truncated after it was planned, as an operator decided: above it are other records."""

    @property
    def held(self) -> list[OffsetRange]:
        """The part of the range that covers the topic's current records; empty where all of them are others."""
        tp, start, end = self.offset_range.topic_partition, self.offset_range.start_offset, self.offset_range.end_offset
        if self.cut_off_at is None or self.cut_off_at >= end:
            return [self.offset_range]
        return [OffsetRange(tp, start, self.cut_off_at)] if self.cut_off_at > start else []


@dataclass(frozen=True, slots=True)
class Rewind:
    """An interval that an operator let the feed read again: the stored offset went from its end back to its start.

    ``same_records``: the interval held the same records then; not so where a log was truncated.
    """

    offset_range: OffsetRange
    topic_id: str | None
    at: datetime
    actor: str
    reason: str
    same_records: bool = True


@dataclass(frozen=True, slots=True)
class DeadLetters:
    """How many records of a committed range are dead letters, and how many of these replays have decoded since."""

    batch_id: UUID
    offset_range: OffsetRange
    topic_id: str | None
    count: int
    replayed: int = 0

    @property
    def left(self) -> int:
        """How many no replay has decoded again."""
        return self.count - self.replayed


@dataclass(frozen=True, slots=True)
class CoverageRows:
    """All that a feed's control rows say about where each offset is, at one instant.

    What live batches have committed follows from it: [first, stored) minus the gaps. Their ranges, years of them, are
    therefore not loaded.
    """

    feed: FeedSnapshot
    gaps: Sequence[Gap] = ()
    backfills: Sequence[BackfillRange] = ()
    rewinds: Sequence[Rewind] = ()
    dead_letters: Sequence[DeadLetters] = ()
    committed_ahead: Sequence[OffsetRange] = ()
    """What was committed at or above the stored offsets before an operator went back."""

    lost: Sequence[LostRange] = ()
    """What published files held that were lost since; a gap is filed of what no other batch holds."""

    removed: Sequence[RemovedRange] = ()
    """What has expired from the output: still committed, no longer visible to readers."""

    folded: Sequence[FoldedRange] = ()
    """What old live batches have read, of which the control tables keep no ranges any more."""

    replacements: Sequence[Replacement] = ()
    """Whose rows another batch has replaced, or is about to. The offsets stay committed by the batch that read them."""

    replays: Sequence[Replay] = ()
    """Which dead letters other batches have decoded again, or are about to."""

    filtered: Mapping[TopicPartition, int] = field(default_factory=dict)
    """How many records the feed has filtered of the topics' current ids, where it has filtered some."""

    ids_before: Mapping[tuple[str, str | None], str | None] = field(default_factory=dict)
    """(topic, id) → the current id of the same records, where an operator confirmed that they are the same."""

    def id_now(self, topic: str, topic_id: str | None) -> str | None:
        """Return the topic id under which the records of an earlier one are counted now."""
        return self.ids_before.get((topic, topic_id), topic_id)


T = TypeVar("T")

LAST_OFFSET = 2**63 - 1


@dataclass(frozen=True)
class PartitionCoverage:
    """One partition's offsets. ``pending`` are open batches' ranges: live, or of a backfill."""

    stored: StoredOffset
    gaps: Sequence[Gap] = ()
    backfills: Sequence[BackfillRange] = ()
    pending_live: Sequence[OffsetRange] = ()
    rewinds: Sequence[Rewind] = ()
    dead_letters: Sequence[DeadLetters] = ()
    committed_ahead: Sequence[OffsetRange] = ()
    lost: Sequence[LostRange] = ()
    removed: Sequence[RemovedRange] = ()
    folded: Sequence[FoldedRange] = ()
    replacements: Sequence[Replacement] = ()
    replays: Sequence[Replay] = ()
    filtered: int = 0
    """How many records its committed ranges have filtered, replays included."""

    @property
    def topic_partition(self) -> TopicPartition:
        return self.stored.topic_partition

    @cached_property
    def read_through(self) -> list[OffsetRange]:
        """[first, stored): what the stored offset has passed, reading or jumping."""
        first, stored = self.stored.first_offset, self.stored.next_offset
        return union([OffsetRange(self.topic_partition, first, stored)]) if first is not None and stored else []

    @cached_property
    def live(self) -> list[OffsetRange]:
        """What live batches have committed: everything below the stored offset minus the gaps, closed ones included."""
        return subtract(self.read_through, [gap.offset_range for gap in self.gaps if gap.applied_at is not None])

    @cached_property
    def kept_of_backfills(self) -> list[OffsetRange]:
        """What each backfill has committed, minus what was lost or truncated; what two committed appears twice."""
        return [
            left
            for each in self.backfills
            if each.state is BatchState.COMMITTED
            for lost in [[part.offset_range for part in self.lost if part.batch_id == each.batch_id]]
            for left in (subtract(each.held, lost) if lost else each.held)
        ]

    @cached_property
    def backfilled(self) -> list[OffsetRange]:
        return union(self.kept_of_backfills)

    @cached_property
    def before_first(self) -> list[OffsetRange]:
        """What backfills have committed of the offsets before the feed's first one."""
        return intersect(self.backfilled, [OffsetRange(self.topic_partition, 0, self.stored.first_offset or 0)])

    @cached_property
    def claimed(self) -> list[OffsetRange]:
        """What backfills that are open are about to commit."""
        return union(each.offset_range for each in self.backfills if each.state.is_open)

    @cached_property
    def committed(self) -> list[OffsetRange]:
        return union([*self.live, *self.backfilled, *self.committed_ahead])

    @cached_property
    def expired(self) -> list[OffsetRange]:
        """What was committed and has expired from the output: it stays committed, no reader sees it."""
        return intersect(self.committed, [each.offset_range for each in self.removed])

    @cached_property
    def replaced(self) -> list[OffsetRange]:
        """Whose rows a later batch has replaced: they stay committed by the batch that read them first."""
        return union(each.replaced.offset_range for each in self.replacements if not each.is_open)

    @cached_property
    def rewound(self) -> list[OffsetRange]:
        """Which of the topic's current records operators let the feed read again.

        Where a log was truncated and the feed rewound to its end, other records have replaced those that were read.
        """
        ends = [each.offset_range.start_offset for each in self.rewinds if not each.same_records]
        cut_off = [OffsetRange(self.topic_partition, end, LAST_OFFSET) for end in ends]
        return subtract([each.offset_range for each in self.rewinds if each.same_records], cut_off)

    @cached_property
    def open_gaps(self) -> list[Gap]:
        """Gaps below the stored offset that no batch has read since."""
        return [gap for gap in self.gaps if gap.is_open]

    @cached_property
    def problems(self) -> list[str]:
        """What contradicts invariant 11: every offset that was passed is committed once, or in an open gap."""
        reread = [rewind.offset_range for rewind in self.rewinds]
        committed = self.kept_of_backfills
        found = [f"{twice} is committed twice" for twice in subtract(shared([*self.live, *committed]), reread)]
        open_gaps = [gap.offset_range for gap in self.open_gaps]
        found += [
            f"{both} is committed and in an open gap" for both in subtract(intersect(open_gaps, committed), reread)
        ]
        found += self._closed_without_being_read()
        beyond = [*committed, *open_gaps]
        end = self.stored.next_offset or 0
        below = [OffsetRange(self.topic_partition, 0, end), *reread]
        found += [f"{each} is beyond the stored offset {end:,}" for each in subtract(beyond, below)]
        return [*found, *self._folded_elsewhere(reread)]

    @property
    def is_accounted(self) -> bool:
        """Whether every offset that the stored one has passed is committed, once, or in an open gap."""
        return not self.problems

    def _folded_elsewhere(self, reread: Sequence[OffsetRange]) -> Iterator[str]:
        """Yield folded ranges that are beyond the stored offset, were read twice, or overlap a gap."""
        folded = [each.offset_range for each in self.folded]
        for each in subtract(union(folded), [*self.read_through, *reread]):
            yield f"{each} is folded, and is outside what the stored offset has passed"
        for twice in subtract(shared(folded), reread):
            yield f"{twice} is folded twice, and no reset reads it again"
        # Records of lost files were committed all the same.
        passed = [gap.offset_range for gap in self.gaps if gap.applied_at and gap.cause is not GapCause.OUTPUT_LOST]
        for both in subtract(intersect(passed, folded), reread):
            yield f"{both} is folded and in a gap"

    def _closed_without_being_read(self) -> Iterator[str]:
        committed = [each for each in self.backfills if each.state is BatchState.COMMITTED]
        read = {each.batch_id: each.offset_range for each in committed}  # a batch holds one range of a partition
        for gap in self.gaps:
            if gap.closed_by_batch is None:
                continue
            by = read.get(gap.closed_by_batch)
            if left := subtract([gap.offset_range], [by] if by is not None else []):
                yield f"gap {gap.offset_range} is closed by batch {gap.closed_by_batch}, which lacks {listing(left)}"


def coverage_of(rows: CoverageRows) -> dict[TopicPartition, PartitionCoverage]:
    """Return the coverage of each partition that has a stored offset, in order."""
    batch = rows.feed.open_batch
    pending: dict[TopicPartition, list[OffsetRange]] = {}
    for planned in batch.ranges_read if batch is not None else ():
        pending.setdefault(planned.topic_partition, []).append(planned)
    replaced = by_topic_partition(
        rows, ((each.replaced.offset_range, each.topic_id, each) for each in rows.replacements)
    )
    replays = by_topic_partition(rows, ((each.letters.offset_range, each.topic_id, each) for each in rows.replays))
    ahead = by_partition(rows.committed_ahead)
    others: dict[str, dict[TopicPartition, list[Any]]] = {
        name: by_topic_partition(rows, ((each.offset_range, each.topic_id, each) for each in getattr(rows, name)))
        for name in ("gaps", "backfills", "rewinds", "dead_letters", "lost", "removed", "folded")
    }
    return {
        tp: PartitionCoverage(
            stored=row,
            pending_live=pending.get(tp, ()),
            committed_ahead=ahead.get(tp, ()),
            replacements=replaced.get(tp, ()),
            replays=replays.get(tp, ()),
            filtered=rows.filtered.get(tp, 0),
            **{name: found.get(tp, ()) for name, found in others.items()},
        )
        for tp, row in rows.feed.stored.items()
    }


def by_topic_partition(
    rows: CoverageRows, found: Iterable[tuple[OffsetRange, str | None, T]]
) -> dict[TopicPartition, list[T]]:
    """Return what was counted in the topics as they are now, by partition."""
    of_partition: dict[TopicPartition, list[T]] = {}
    for offset_range, topic_id, each in found:
        row = rows.feed.stored.get(offset_range.topic_partition)
        if row is not None and row.topic_id == rows.id_now(offset_range.topic, topic_id):
            of_partition.setdefault(offset_range.topic_partition, []).append(each)
    return of_partition


def kept_of(rows: CoverageRows, batch_id: UUID, committed: OffsetRange) -> list[OffsetRange]:
    """Return what a batch still holds of a range that it committed."""
    lost = [each.offset_range for each in rows.lost if each.batch_id == batch_id]
    return subtract([committed], lost) if lost else [committed]


def dead_letters_in(partition: PartitionCoverage) -> int:
    """Return how many records of a partition's committed ranges are dead letters that no replay has decoded again."""
    return sum(each.left for each in partition.dead_letters)


def replayed_in(partition: PartitionCoverage) -> int:
    """Return how many of a partition's records were dead letters, and are rows, or were filtered, since a replay."""
    taken_up = sum(each.letters.number for each in partition.replays if not each.is_open)
    by = {each.by for each in partition.replays if not each.is_open}
    return taken_up - sum(each.count for each in partition.dead_letters if each.batch_id in by)


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
