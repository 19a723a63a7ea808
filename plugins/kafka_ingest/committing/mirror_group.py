"""Bring the consumer group to the stored offsets: level-triggered, so it repairs drift in either direction."""

import logging
from dataclasses import dataclass
from uuid import UUID

from kafka_ingest.boundaries import ControlTables, KafkaCluster, MirrorRefusedError
from kafka_ingest.errors import KafkaIngestError
from kafka_ingest.identity import check_cluster, check_topic_ids

log = logging.getLogger(__name__)

TRIES = 3


@dataclass(frozen=True, slots=True)
class Mirrored:
    """What became of the mirror. ``failure`` says why the group is not where the stored offsets are, None where it is."""

    group: str | None
    failure: str | None = None


def mirror_group(
    feed_name: str, group: str | None, control: ControlTables, kafka: KafkaCluster, *, batch_id: UUID | None, who: str
) -> Mirrored:
    """Set the group to the stored offsets, and again if they moved meanwhile; a failure is recorded, never raised.

    Invariant 8: the commit does not need Kafka to be up. A stale task reads the stored offsets now, not those of its
    batch, so it can do no lasting harm. Topics that the feed no longer names are left to whoever reads them now.
    """
    if group is None:
        return Mirrored(None)
    for _ in range(TRIES):
        feed = control.feed(feed_name)
        if feed is None:
            return Mirrored(group)
        rows = [row for row in feed.stored.values() if row.topic_partition.topic in feed.topics]
        offsets = {row.topic_partition: row.next_offset for row in rows if row.next_offset is not None}
        try:
            # Numbers of one cluster, or of a topic that was made again, would mislead everybody who looks at the group.
            check_cluster(feed.cluster_id, kafka.cluster_id(), feed_name)
            check_topic_ids(
                {row.topic_partition.topic: row.topic_id for row in rows}, kafka.describe_topics(feed.topics)
            )
            kafka.set_group_offsets(group, offsets, metadata=f"kafka_ingest {batch_id}" if batch_id else "kafka_ingest")
        except (KafkaIngestError, MirrorRefusedError) as error:
            log.warning("consumer group %s was not brought to the stored offsets: %s", group, error)
            detail = {"group": group, "reason": str(error)}
            control.record_event(feed.feed_id, "mirror_failed", who=who, batch_id=batch_id, detail=detail)
            return Mirrored(group, str(error))
        after = control.feed(feed_name)
        if after is not None and after.revision == feed.revision:
            break
    return Mirrored(group)
