"""Where a feed stands: stored offsets beside Kafka's answers. With the broker down the stored offsets are still told."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kafka_ingest.boundaries import FeedSnapshot, KafkaCluster
from kafka_ingest.control.reader import SqlControlReader
from kafka_ingest.errors import RetryableError, WrongClusterError, WrongUseError
from kafka_ingest.identity import check_cluster
from kafka_ingest.offsets import Isolation, LogBounds, StoredOffset, TopicPartition, Unavailable


@dataclass(frozen=True, slots=True)
class PartitionStatus:
    """One partition: offsets are None where Kafka did not answer, ``unavailable`` then says why."""

    stored: StoredOffset
    rows: int
    bounds: LogBounds | None
    unavailable: str | None
    group_offset: int | None
    isolation: Isolation

    @property
    def lag(self) -> int | None:
        """How many offsets are there to read now."""
        if self.bounds is None or self.stored.next_offset is None:
            return None
        return max(0, self.bounds.readable_end(self.isolation) - self.stored.next_offset)

    @property
    def headroom(self) -> int | None:
        """How many offsets lie between the log start and the stored offset: how far retention is away."""
        if self.bounds is None or self.stored.next_offset is None:
            return None
        return self.stored.next_offset - self.bounds.log_start_offset

    def as_document(self) -> dict[str, Any]:
        """Return the partition as ``--json`` shows it."""
        bounds = self.bounds
        return {
            "topic": self.stored.topic_partition.topic,
            "topic_id": self.stored.topic_id,
            "partition": self.stored.topic_partition.partition,
            "first_offset": self.stored.first_offset,
            "stored_offset": self.stored.next_offset,
            "seeded_by": self.stored.seeded_by,
            "log_start_offset": bounds.log_start_offset if bounds else None,
            "last_stable_offset": bounds.last_stable_offset if bounds else None,
            "high_watermark": bounds.high_watermark if bounds else None,
            "lag": self.lag,
            "headroom": self.headroom,
            "group_offset": self.group_offset,
            "rows": self.rows,
            "unavailable": {"reason": self.unavailable, "since": None} if self.unavailable else None,
        }


@dataclass(frozen=True, slots=True)
class FeedStatus:
    """One feed: its partitions and its open batch. ``kafka_error`` says why Kafka's columns are empty."""

    feed: str
    cluster_id: str | None
    group: str | None
    open_batch: Mapping[str, Any] | None
    partitions: tuple[PartitionStatus, ...]
    kafka_error: str | None

    def as_document(self) -> dict[str, Any]:
        """Return the status as ``--json`` shows it, without the version."""
        return {
            "feed": self.feed,
            "cluster_id": self.cluster_id,
            "group": self.group,
            "open_batch": dict(self.open_batch) if self.open_batch else None,
            "kafka": {"error": self.kafka_error} if self.kafka_error else None,
            "partitions": [partition.as_document() for partition in self.partitions],
        }


def feed_status(
    name: str, control: SqlControlReader, kafka: KafkaCluster, *, group: str | None, isolation: Isolation
) -> FeedStatus:
    """Return a feed's status; a feed that was never planned has no partitions."""
    snapshot = control.feed(name)
    if snapshot is None:
        return FeedStatus(name, None, group, None, (), None)
    rows = control.rows_by_partition(snapshot.feed_id)
    bounds: dict[TopicPartition, LogBounds | Unavailable] = {}
    group_offsets: dict[TopicPartition, int | None] = {}
    kafka_error: str | None = None
    try:
        check_cluster(snapshot.cluster_id, kafka.cluster_id(), name)
        bounds = kafka.log_bounds(snapshot.stored.keys())
        if group is not None:
            group_offsets = kafka.group_offsets(group, snapshot.stored.keys())
    except (RetryableError, WrongUseError, WrongClusterError) as error:
        kafka_error = str(error)
    return FeedStatus(
        feed=name,
        cluster_id=snapshot.cluster_id,
        group=group,
        open_batch=open_batch(snapshot, control),
        partitions=tuple(
            PartitionStatus(
                stored=stored,
                rows=rows.get(topic_partition, 0),
                bounds=found if isinstance(found, LogBounds) else None,
                unavailable=found.reason if isinstance(found, Unavailable) else None,
                group_offset=group_offsets.get(topic_partition),
                isolation=isolation,
            )
            for topic_partition, stored in snapshot.stored.items()
            for found in [bounds.get(topic_partition)]
        ),
        kafka_error=kafka_error,
    )


def open_batch(snapshot: FeedSnapshot, control: SqlControlReader) -> dict[str, Any] | None:
    """Return what is told of the feed's open batch; its attempt is the pinned one, or the newest."""
    batch = snapshot.open_batch
    if batch is None:
        return None
    attempts = control.attempts(batch.batch_id)
    return {
        "batch_id": str(batch.batch_id),
        "state": batch.state.value,
        "attempt": batch.pinned_attempt or (attempts[-1].attempt if attempts else None),
        "since": batch.updated_at.isoformat(),
    }
