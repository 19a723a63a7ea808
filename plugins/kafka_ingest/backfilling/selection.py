"""Which offsets a selection means, before it is checked whether they may be read. Pure; Kafka was asked before."""

import itertools
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from kafka_ingest.backfilling.request import (
    BackfillRequest,
    BetweenTimestamps,
    Mode,
    OfBatch,
    OfDagRun,
    OffsetRanges,
    OpenChunks,
    OpenGaps,
    StoredDeadLetters,
)
from kafka_ingest.errors import InvalidBackfillError, KafkaUnavailableError
from kafka_ingest.foundation.counting import grouped
from kafka_ingest.model.batch import BatchPlan
from kafka_ingest.model.coverage import PartitionCoverage
from kafka_ingest.model.offset_sets import union
from kafka_ingest.model.offsets import Isolation, LogBounds, OffsetRange, TopicPartition, Unavailable, listing

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
