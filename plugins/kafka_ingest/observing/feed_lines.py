"""All feeds, a line each, the worst first: what is stored beside the bounds of all logs, asked for in bulk."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from enum import IntEnum
from typing import Final

from kafka_ingest.errors import RetryableError, WrongUseError
from kafka_ingest.model.control_rows import FeedSnapshot
from kafka_ingest.model.hold import HoldCause
from kafka_ingest.model.offsets import Isolation, LogBounds, StoredOffset, TopicPartition, Unavailable
from kafka_ingest.model.summaries import FeedOverview, OpenGaps
from kafka_ingest.model.topics import is_other_topic
from kafka_ingest.model.waiting import in_danger
from kafka_ingest.observing.feed_status import ask
from kafka_ingest.observing.group_drift import GroupDrift
from kafka_ingest.observing.record_ages import oldest_ages, waiting
from kafka_ingest.ports.cluster import KafkaCluster
from kafka_ingest.ports.control import ControlObserver

LOSSES = frozenset({HoldCause.OFFSETS_LOST, HoldCause.BEYOND_LOG})


class Standing(IntEnum):
    """How a feed stands, the worst first."""

    UNUSABLE = 0
    """Its file cannot be used: nothing is read."""
    LOST = 1
    """Kafka deleted records before they were read, or its log ended below the stored offset."""
    OTHER_RECORDS = 2
    """The cluster or a topic is another one than the stored offsets belong to."""
    HELD = 3
    """Some of its partitions or topics take no part."""
    GAPS = 4
    """Offsets were passed over, and no operator has decided that this is right."""
    DRIFTED = 5
    """Its consumer group stands elsewhere than its stored offsets."""
    BEHIND = 6
    """Records wait that a run which was due should have read."""
    ON_TIME = 7
    """Records wait for a run that is not due yet."""
    UP_TO_DATE = 8
    UNKNOWN = 9
    """Kafka has not answered."""
    NEVER_PLANNED = 10


@dataclass(frozen=True, slots=True)
class ClusterLogs:
    """Kafka's answers about many feeds' partitions. ``denied``: why some topics may not be seen."""

    cluster_id: str
    topic_ids: Mapping[str, str | None]
    bounds: Mapping[TopicPartition, LogBounds | Unavailable]
    denied: Mapping[str, str] = field(default_factory=dict)

    def is_gone(self, topic: str) -> bool:
        """Whether there is no such topic; one that may not be seen is not known to be gone."""
        return topic not in self.topic_ids and topic not in self.denied


@dataclass(frozen=True, slots=True)
class Distances:
    """How far stored offsets are from both ends of their logs, of those that Kafka answered about.

    ``lag``: how many offsets can be read now, None without any answer; ``headroom``: the fewest between a
    log's start and the stored offset, of partitions with something to read, None without one; ``lost``: how many were
    deleted before they were read; ``silent``: of how many partitions Kafka said nothing.
    """

    lag: int | None
    headroom: int | None
    lost: int
    silent: int


@dataclass(frozen=True, slots=True)
class FeedLine:
    """One feed among all. Numbers that need Kafka are None without its answer; they are those of its distances.

    ``overview`` is None where the feed was never planned. ``standings`` are all that hold, the worst first.
    """

    name: str
    overview: FeedOverview | None
    standings: tuple[Standing, ...]
    lag: int | None = None
    headroom: int | None = None
    lost: int = 0
    silent: int = 0
    denied: tuple[str, ...] = ()
    drift: GroupDrift | None = None
    file_error: str | None = field(default=None, compare=False)

    @property
    def urgency(self) -> tuple[int, int, str]:
        """What lists are sorted by: the worst first, among these the largest lag."""
        return self.standings[0], -(self.lag or 0), self.name


def ask_logs(kafka: KafkaCluster, partitions: Collection[TopicPartition]) -> ClusterLogs:
    """Return the bounds of all these logs; partitions that do not exist any more are left out."""
    described, denied = kafka.visible_topics({partition.topic for partition in partitions})
    existing = {partition for topic in described.values() for partition in topic.topic_partitions()}
    bounds = kafka.log_bounds(sorted(existing & set(partitions)))
    return ClusterLogs(kafka.cluster_id(), {name: topic.topic_id for name, topic in described.items()}, bounds, denied)


def line_of(
    overview: FeedOverview,
    logs: ClusterLogs | None,
    isolation: Isolation,
    *,
    drift: GroupDrift | None = None,
    file_error: str | None = None,
    is_late: bool = True,
) -> FeedLine:
    """Return a feed's line; of a topic that is another one now, or gone, no number is shown, as it would mislead.

    ``is_late``: where records wait, a run that was due should have read them.
    """
    if logs is None or logs.cluster_id != overview.cluster_id:
        is_other = logs is not None
        standings = _standings(overview, None, lost=0, is_other=is_other, file_error=file_error)
        return FeedLine(overview.name, overview, standings, file_error=file_error)
    known, other = known_rows(overview, logs)
    found = distances(known, logs.bounds, isolation)
    lag = found.lag if known or not other else None
    standings = _standings(
        overview,
        # Partitions without an answer have an unknown lag: with them, a lag of 0 is not "up to date".
        (lag or None) if found.silent else lag,
        lost=found.lost,
        is_other=bool(other),
        has_drifted=drift is not None and drift.total > 0,
        file_error=file_error,
        is_late=is_late,
    )
    return FeedLine(
        overview.name,
        overview,
        standings,
        lag=lag,
        headroom=found.headroom,
        lost=found.lost,
        silent=found.silent,
        denied=tuple(logs.denied[topic] for topic in overview.topics if topic in logs.denied),
        drift=drift,
        file_error=file_error,
    )


def known_rows(overview: FeedOverview, logs: ClusterLogs) -> tuple[list[StoredOffset], tuple[str, ...]]:
    """Return the stored offsets of what the feed reads, and which of its topics are gone, or are others now."""
    read = [row for partition, row in overview.stored.items() if partition.topic in overview.topics]
    other = {
        row.topic_partition.topic
        for row in read
        if logs.is_gone(row.topic_partition.topic)
        or is_other_topic(row.topic_id, logs.topic_ids.get(row.topic_partition.topic))
    }
    return [row for row in read if row.topic_partition.topic not in other], tuple(sorted(other))


def distances(
    rows: Collection[StoredOffset], bounds: Mapping[TopicPartition, LogBounds | Unavailable], isolation: Isolation
) -> Distances:
    """Return how far stored offsets are from both ends of their logs; a seed that is pending counts for nothing."""
    lag, lost, silent, headroom = None if rows else 0, 0, 0, None
    for row in rows:
        if row.next_offset is None:
            continue
        log = bounds.get(row.topic_partition)
        if not isinstance(log, LogBounds):
            silent += 1
            continue
        left = row.next_offset - log.log_start_offset
        waiting = max(0, log.readable_end(isolation) - max(row.next_offset, log.log_start_offset))
        lost, lag = lost + max(0, -left), (lag or 0) + waiting
        if waiting:
            headroom = left if headroom is None else min(headroom, left)
    return Distances(lag, headroom, lost, silent)


def worst_first(lines: Iterable[FeedLine]) -> list[FeedLine]:
    return sorted(lines, key=lambda line: line.urgency)


def _standings(
    overview: FeedOverview,
    lag: int | None,
    *,
    lost: int,
    is_other: bool,
    file_error: str | None,
    has_drifted: bool = False,
    is_late: bool = True,
) -> tuple[Standing, ...]:
    causes = {hold.cause for hold in overview.holds} - {HoldCause.OPEN_TRANSACTION}
    found = {
        Standing.UNUSABLE: file_error is not None,
        Standing.LOST: bool(lost or causes & LOSSES),
        Standing.OTHER_RECORDS: is_other,
        Standing.HELD: bool(causes),
        Standing.GAPS: overview.open_gaps.undecided > 0,
        Standing.DRIFTED: has_drifted,
        Standing.BEHIND: bool(lag) and is_late,
        Standing.ON_TIME: bool(lag) and not is_late,
        Standing.UP_TO_DATE: lag == 0,
        Standing.UNKNOWN: lag is None and not is_other,
    }
    return tuple(standing for standing, holds in found.items() if holds)


MOST_READ: Final = 100
"""Of how many partitions a record is read to say how old the oldest is."""


@dataclass(frozen=True, slots=True)
class FeedMeasures:
    """One feed in numbers. ``logs`` and ``low_headroom`` are None where Kafka did not answer, ``kafka_error`` why.

    ``low_headroom``: how many partitions retention is about to reach before they are read. ``freshness``: how old the
    oldest record is that waits to be read, zero where none does; None where that is not known.
    """

    holds: int
    open_gaps: int
    gap_offsets: int
    logs: Distances | None
    low_headroom: int | None
    freshness: timedelta | None
    kafka_error: str | None


def feed_measures(
    snapshot: FeedSnapshot, control: ControlObserver, kafka: KafkaCluster, isolation: Isolation
) -> FeedMeasures:
    answers = ask(snapshot, kafka, None)
    spans = [gap.offset_range.span for gap in control.gaps(snapshot.feed_id) if gap.closed_by_batch is None]
    # The cluster is the feed's own, or else there is an error.
    logs = ClusterLogs(snapshot.cluster_id, answers.topic_ids, answers.bounds) if answers.error is None else None
    return measures_of(snapshot, OpenGaps(len(spans), sum(spans)), logs, isolation, why_not=answers.error, kafka=kafka)


def freshness(kafka: KafkaCluster, places: Mapping[TopicPartition, tuple[int, int]]) -> timedelta | None:
    """Return how old the oldest record is that waits; None where Kafka does not give it."""
    try:
        return oldest_ages(kafka, {"": places}, datetime.now(UTC), most=MOST_READ)[""]
    except (RetryableError, WrongUseError):
        return None


def measures_of(
    feed: FeedSnapshot | FeedOverview,
    gaps: OpenGaps,
    logs: ClusterLogs | None,
    isolation: Isolation,
    *,
    why_not: str | None,
    kafka: KafkaCluster | None = None,
) -> FeedMeasures:
    """Return a feed's measures; a topic that is another one now counts among what Kafka said nothing about.

    ``logs`` are None where Kafka did not answer; ``why_not`` says why. A cluster that is another one now has not,
    either. ``kafka`` is asked how old the oldest record is; without it that is not known.
    """
    read = [row for partition, row in feed.stored.items() if partition.topic in feed.topics]
    if logs is not None and logs.cluster_id != feed.cluster_id:
        why_not = f"expected cluster {feed.cluster_id}, found {logs.cluster_id}"
        logs = None
    found, low, age = None, None, None
    if logs is not None:
        bounds = {
            row.topic_partition: logs.bounds[row.topic_partition]
            for row in read
            if row.topic_partition in logs.bounds
            and not is_other_topic(row.topic_id, logs.topic_ids.get(row.topic_partition.topic))
        }
        found, low = distances(read, bounds, isolation), len(in_danger(read, bounds, isolation))
        # Nothing waits in logs of which nothing is known.
        if kafka is not None and found.lag is not None:
            age = freshness(kafka, waiting(read, bounds, isolation))
    return FeedMeasures(
        holds=len(feed.holds),
        open_gaps=gaps.gaps,
        gap_offsets=gaps.offsets,
        logs=found,
        low_headroom=low,
        freshness=age,
        kafka_error=why_not,
    )
