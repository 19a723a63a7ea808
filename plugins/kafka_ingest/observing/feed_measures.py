"""What is measured of one feed: where it stands in its logs, its holds and its gaps, as numbers alone."""

from dataclasses import dataclass

from kafka_ingest.model.control_rows import FeedSnapshot
from kafka_ingest.model.offsets import Isolation
from kafka_ingest.observing.feed_lines import Distances, distances
from kafka_ingest.observing.feed_status import ask
from kafka_ingest.operating.headroom import in_danger
from kafka_ingest.ports.cluster import KafkaCluster
from kafka_ingest.ports.control import ControlObserver


@dataclass(frozen=True, slots=True)
class FeedMeasures:
    """One feed in numbers. ``logs`` and ``low_headroom`` are None where Kafka did not answer, ``kafka_error`` why.

    ``low_headroom``: how many partitions retention is about to reach before they are read.
    """

    holds: int
    open_gaps: int
    gap_offsets: int
    logs: Distances | None
    low_headroom: int | None
    kafka_error: str | None


def feed_measures(
    snapshot: FeedSnapshot, control: ControlObserver, kafka: KafkaCluster, isolation: Isolation
) -> FeedMeasures:
    """Return a feed's measures; a topic that is another one now counts among what Kafka said nothing about."""
    answers = ask(snapshot, kafka, None)
    gaps = [gap for gap in control.gaps(snapshot.feed_id) if gap.closed_by_batch is None]
    read = [row for row in snapshot.stored.values() if row.topic_partition.topic in snapshot.topics]
    answered = answers.error is None
    offsets = {
        row.topic_partition: row.next_offset
        for row in read
        if row.next_offset is not None and row.topic_partition in answers.bounds
    }
    return FeedMeasures(
        holds=len(snapshot.holds),
        open_gaps=len(gaps),
        gap_offsets=sum(gap.offset_range.span for gap in gaps),
        logs=distances(read, answers.bounds, isolation) if answered else None,
        low_headroom=len(in_danger(offsets, answers.bounds, isolation)) if answered else None,
        kafka_error=answers.error,
    )
