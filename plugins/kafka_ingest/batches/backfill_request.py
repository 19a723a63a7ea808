"""What a backfill is asked for."""

import itertools
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any
from uuid import UUID

from kafka_ingest.errors import InvalidBackfillError, KafkaUnavailableError
from kafka_ingest.foundation.counting import grouped
from kafka_ingest.model.batch import BatchKind, BatchPlan
from kafka_ingest.model.coverage import PartitionCoverage
from kafka_ingest.model.offsets import Isolation, LogBounds, OffsetRange, TopicPartition, Unavailable, listing, union
from kafka_ingest.model.place import OutputLocation

MAX_RECORDS = 5_000_000
"""The default size of a chunk."""


class Mode(StrEnum):
    """Where a backfill writes, and so what it may read."""

    FILL = "fill"
    """Into the feed's own output: only offsets below the stored ones that no batch has committed."""

    COPY = "copy"
    """Into another output, no matter what the feed has done with those offsets."""

    REPLACE = "replace"
    """Into the feed's own output: only whole ranges of committed batches, whose rows it takes the place of."""

    REPLAY = "replay"
    """Into the feed's own output: dead letters of committed batches, from their files, by the current decoding."""

    @property
    def kind(self) -> BatchKind:
        """What its batches are to the feed."""
        return BatchKind.BACKFILL if self is Mode.FILL else BatchKind(self.value)


class OnOverlap(StrEnum):
    """What to do with offsets that are in the output already, or that another backfill has claimed."""

    CUT = "cut"
    """They are left out."""

    REFUSE = "refuse"
    """Nothing is planned."""


class OnMissing(StrEnum):
    """What to do with offsets whose records Kafka has deleted."""

    REFUSE = "refuse"
    """Nothing is planned."""

    RECORD_GAP = "record_gap"
    """The rest is read; what is missing becomes a gap. (A copy only leaves it out: gaps belong to the feed.)"""


@dataclass(frozen=True, slots=True)
class OffsetRanges:
    """These ranges."""

    ranges: Sequence[OffsetRange]


@dataclass(frozen=True, slots=True)
class BetweenTimestamps:
    """From the first offset of a time or later to before the first of another; None: from the log's start, to its end.

    Kafka's ListOffsets by timestamp (KIP-79): records need not be in the order of their times.
    """

    start: datetime | None
    end: datetime | None


@dataclass(frozen=True, slots=True)
class OfBatch:
    """What an earlier batch was planned to read."""

    batch_id: UUID


@dataclass(frozen=True, slots=True)
class OfDagRun:
    """What the batches were planned to read that an earlier DAG run planned or committed."""

    run_id: str


@dataclass(frozen=True, slots=True)
class OpenGaps:
    """Every open gap."""


@dataclass(frozen=True, slots=True)
class OpenChunks:
    """No new ranges: all chunks that are open already."""


@dataclass(frozen=True, slots=True)
class StoredDeadLetters:
    """The dead letters that committed batches have published and no replay has claimed.

    Only those of one batch, of batches committed at a time or later, of some causes; None and empty: of all.
    """

    batch_id: UUID | None = None
    since: datetime | None = None
    causes: frozenset[str] = frozenset()


Selection = OffsetRanges | BetweenTimestamps | OfBatch | OfDagRun | OpenGaps | OpenChunks | StoredDeadLetters


@dataclass(frozen=True, slots=True)
class Place:
    """A topic, or one partition of it: what a selection is narrowed to."""

    topic: str
    partition: int | None = None

    def holds(self, topic_partition: TopicPartition) -> bool:
        return self.topic == topic_partition.topic and self.partition in {None, topic_partition.partition}

    def __str__(self) -> str:
        return self.topic if self.partition is None else f"{self.topic}:{self.partition}"


@dataclass(frozen=True, slots=True)
class BackfillRequest:
    """What to read, and how. ``output`` is a copy's; ``only`` restricts unless empty; ``max_records`` is per chunk.

    ``asked`` is the request as it was made, for the audit journal.
    """

    selection: Selection
    asked: dict[str, Any]
    mode: Mode = Mode.FILL
    on_overlap: OnOverlap = OnOverlap.CUT
    on_missing: OnMissing = OnMissing.REFUSE
    output: OutputLocation | None = None
    only: Sequence[Place] = ()
    max_records: int = MAX_RECORDS

    def __post_init__(self) -> None:
        if (self.output is not None) != (self.mode is Mode.COPY):
            raise ValueError(f"a copy names its output, and nothing else does; found {self.mode} with {self.output}")
        if self.mode is Mode.REPLACE and (self.on_overlap, self.on_missing) != (OnOverlap.CUT, OnMissing.REFUSE):
            raise ValueError(f"replacing leaves nothing out; found {self.on_overlap}, {self.on_missing}")
        of_letters = isinstance(self.selection, StoredDeadLetters)
        if of_letters != (self.mode is Mode.REPLAY) and not isinstance(self.selection, OpenChunks):
            raise ValueError(f"a replay is of dead letters, and nothing else is; found {self.mode}, {self.selection}")

    def takes(self, topic_partition: TopicPartition) -> bool:
        return not self.only or any(place.holds(topic_partition) for place in self.only)


NOTHING_DONE = "Nothing was planned."

Times = Mapping[TopicPartition, int | Unavailable | None]


@dataclass(frozen=True, slots=True)
class LogAnswers:
    """Kafka's answers for the partitions that a backfill may read; offsets at times only where it asks for them."""

    bounds: Mapping[TopicPartition, LogBounds]
    starts_at: Times = field(default_factory=dict)
    ends_at: Times = field(default_factory=dict)
    cut_off: Collection[TopicPartition] = ()
    """Where logs were truncated below their stored offsets."""


def partitions_meant(
    request: BackfillRequest,
    coverage: Mapping[TopicPartition, PartitionCoverage],
    topics: Iterable[str],
    earlier: Iterable[BatchPlan],
) -> list[TopicPartition]:
    """Return the partitions that a request is about: those that it names, or all of the feed's topics.

    Raises InvalidBackfillError on one that the feed does not have, or whose start is not decided yet.
    """
    for place in request.only:
        if not any(place.holds(topic_partition) for topic_partition in coverage):
            raise unknown(str(place), coverage)
    named = named_by(request, coverage, topics, earlier)
    meant = sorted({tp for tp in named if request.takes(tp)})
    for topic_partition in meant:
        if topic_partition not in coverage:
            raise unknown(str(topic_partition), coverage)
        if coverage[topic_partition].stored.is_pending:
            rule = coverage[topic_partition].stored.seeded_by
            raise InvalidBackfillError(
                f"{topic_partition}: expected a partition that was planned before, found that its start is not decided "
                f"yet ({rule}). {NOTHING_DONE} Run the feed first."
            )
    return meant


def named_by(
    request: BackfillRequest,
    coverage: Mapping[TopicPartition, PartitionCoverage],
    topics: Iterable[str],
    earlier: Iterable[BatchPlan],
) -> list[TopicPartition]:
    """Return the partitions that a selection is about, whether the feed has them or not."""
    match request.selection:
        case OffsetRanges(ranges):
            return [offset_range.topic_partition for offset_range in ranges]
        case OfBatch() | OfDagRun():
            return [planned.topic_partition for plan in earlier for planned in plan.ranges]
        case OpenGaps():
            return [tp for tp, partition in coverage.items() if partition.open_gaps]
        case BetweenTimestamps():
            known = set(topics)
            named = [tp for tp in coverage if (request.only or tp.topic in known)]
            return [tp for tp in named if not coverage[tp].stored.is_pending]
        case OpenChunks() | StoredDeadLetters():
            return []


def unknown(place: str, coverage: Iterable[TopicPartition]) -> InvalidBackfillError:
    partitions = grouped((topic_partition.topic, topic_partition.partition) for topic_partition in coverage)
    there = listing(f"{topic}: {described(numbers)}" for topic, numbers in sorted(partitions.items()))
    return InvalidBackfillError(
        f"expected a topic and partition that the feed has stored offsets of ({there or 'it has none'}), found "
        f"{place}. {NOTHING_DONE} The feed itself reads new partitions."
    )


def described(numbers: list[int]) -> str:
    return f"0 to {max(numbers)}" if len(numbers) == max(numbers) + 1 else listing(sorted(numbers), limit=20)


def select(
    request: BackfillRequest,
    meant: Iterable[TopicPartition],
    coverage: Mapping[TopicPartition, PartitionCoverage],
    answers: LogAnswers,
    isolation: Isolation,
    earlier: Iterable[BatchPlan],
) -> list[OffsetRange]:
    """Return the offsets that a request means, as few ranges as can be."""
    taken = set(meant)
    match request.selection:
        case OffsetRanges(ranges):
            check_each_once(ranges)
            found = list(ranges)
        case OfBatch() | OfDagRun():
            found = [planned for plan in earlier for planned in plan.ranges]
        case OpenChunks() | StoredDeadLetters():
            found = []
        case OpenGaps():
            found = [gap.offset_range for tp in taken for gap in coverage[tp].open_gaps]
        case BetweenTimestamps():
            limits = {tp: limit_of(request.mode, coverage[tp], answers.bounds[tp], isolation) for tp in taken}
            found = [between(tp, answers, limits[tp], request.selection) for tp in taken]
    return union(offset_range for offset_range in found if offset_range.topic_partition in taken)


def check_each_once(ranges: Iterable[OffsetRange]) -> None:
    """Raise InvalidBackfillError where two ranges share an offset: one of them is a mistake."""
    for earlier, later in itertools.pairwise(sorted(ranges)):
        if earlier.topic_partition == later.topic_partition and later.start_offset < earlier.end_offset:
            raise InvalidBackfillError(
                f"expected ranges that share no offset, found {earlier} and {later}. {NOTHING_DONE} Correct one of "
                "them."
            )


def limit_of(mode: Mode, partition: PartitionCoverage, bounds: LogBounds, isolation: Isolation) -> int:
    """Return how far a partition may be read: below the stored offset, or, for a copy, as far as the log can be."""
    readable = bounds.readable_end(isolation)
    stored = partition.stored.next_offset
    return readable if mode is Mode.COPY or stored is None else min(stored, readable)


def between(
    topic_partition: TopicPartition, answers: LogAnswers, limit: int, selection: BetweenTimestamps
) -> OffsetRange:
    """Return a partition's offsets between two times, within what may be read; empty where there are none."""
    start, end = answers.bounds[topic_partition].log_start_offset, limit
    if selection.start is not None:
        start = offset_at(topic_partition, answers.starts_at, limit)
    if selection.end is not None:
        end = min(limit, offset_at(topic_partition, answers.ends_at, limit))
    return OffsetRange(topic_partition, min(start, end), end)


def offset_at(topic_partition: TopicPartition, times: Times, otherwise: int) -> int:
    """Return the first offset of a time or later; ``otherwise`` where no record has that timestamp or a later one."""
    found = times[topic_partition]
    if isinstance(found, Unavailable):
        raise KafkaUnavailableError(
            f"{topic_partition}: Kafka cannot report now which offset is of that time ({found.reason}). {NOTHING_DONE} "
            "Try again, or leave the partition out."
        )
    return otherwise if found is None else found
