"""What is measured of one feed: where it stands in its logs, its holds and its gaps, as numbers alone."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from kafka_ingest.errors import RetryableError, WrongUseError
from kafka_ingest.model.control_rows import FeedSnapshot
from kafka_ingest.model.headroom import in_danger
from kafka_ingest.model.identity import is_other_topic
from kafka_ingest.model.offsets import Isolation, TopicPartition
from kafka_ingest.model.summaries import FeedOverview
from kafka_ingest.observing.feed_lines import ClusterLogs, Distances, distances
from kafka_ingest.observing.feed_status import ask
from kafka_ingest.observing.record_ages import oldest_ages, waiting
from kafka_ingest.ports.cluster import KafkaCluster
from kafka_ingest.ports.control import ControlObserver

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
    """Return a feed's measures; a topic that is another one now counts among what Kafka said nothing about."""
    answers = ask(snapshot, kafka, None)
    gaps = [gap for gap in control.gaps(snapshot.feed_id) if gap.closed_by_batch is None]
    read = [row for row in snapshot.stored.values() if row.topic_partition.topic in snapshot.topics]
    answered = answers.error is None
    logs = distances(read, answers.bounds, isolation) if answered else None
    # Nothing waits in logs of which nothing is known.
    is_known = logs is not None and logs.lag is not None
    return FeedMeasures(
        holds=len(snapshot.holds),
        open_gaps=len(gaps),
        gap_offsets=sum(gap.offset_range.span for gap in gaps),
        logs=logs,
        low_headroom=len(in_danger(read, answers.bounds, isolation)) if answered else None,
        freshness=freshness(kafka, waiting(read, answers.bounds, isolation)) if is_known else None,
        kafka_error=answers.error,
    )


def freshness(kafka: KafkaCluster, places: Mapping[TopicPartition, tuple[int, int]]) -> timedelta | None:
    """Return how old the oldest record is that waits; None where Kafka does not give it."""
    try:
        return oldest_ages(kafka, {"": places}, datetime.now(UTC), most=MOST_READ)[""]
    except (RetryableError, WrongUseError):
        return None


def measures_among_all(
    overview: FeedOverview, logs: ClusterLogs | None, isolation: Isolation, *, why_not: str | None = None
) -> FeedMeasures:
    """Return the same measures of one feed, where Kafka was asked about the logs of many at once.

    ``logs`` are None where it did not answer; ``why_not`` says why. A cluster that is another one now has not, either.
    """
    read = [row for partition, row in overview.stored.items() if partition.topic in overview.topics]
    if logs is not None and logs.cluster_id != overview.cluster_id:
        why_not = f"expected cluster {overview.cluster_id}, found {logs.cluster_id}"
        logs = None
    found, low = None, None
    if logs is not None:
        bounds = {
            row.topic_partition: logs.bounds[row.topic_partition]
            for row in read
            if row.topic_partition in logs.bounds
            and not is_other_topic(row.topic_id, logs.topic_ids.get(row.topic_partition.topic))
        }
        found, low = distances(read, bounds, isolation), len(in_danger(read, bounds, isolation))
    return FeedMeasures(
        holds=len(overview.holds),
        open_gaps=overview.open_gaps.gaps,
        gap_offsets=overview.open_gaps.offsets,
        logs=found,
        low_headroom=low,
        freshness=None,
        kafka_error=why_not,
    )
