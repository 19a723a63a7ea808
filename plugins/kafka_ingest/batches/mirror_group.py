"""Set the consumer group to the stored offsets: level-triggered, so it repairs drift in either direction."""

import contextlib
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from uuid import UUID

from kafka_ingest.errors import KafkaIngestError, KafkaUnavailableError, OperatorDecisionError
from kafka_ingest.model.control_rows import FeedSnapshot
from kafka_ingest.model.hold import OF_WHOLE_TOPICS
from kafka_ingest.model.offsets import TopicPartition
from kafka_ingest.model.topics import check_cluster, check_topic_ids
from kafka_ingest.ports.cluster import KafkaCluster, MirrorRefusedError
from kafka_ingest.ports.parts import Parts

log = logging.getLogger(__name__)

TRIES = 3


@dataclass(frozen=True, slots=True)
class Mirrored:
    """The result of mirroring. ``failure`` is why the group is not at the stored offsets, None where it is."""

    group: str | None
    failure: str | None = None


def mirror_group(feed_id: UUID, group: str | None, parts: Parts, *, batch_id: UUID | None, actor: str) -> Mirrored:
    """Set the group to the stored offsets, and again if they moved since; Kafka's failure is recorded, never raised.

    Invariant 8: the commit does not need Kafka to be up. A stale task reads the stored offsets now, not those of its
    batch, so it can do no lasting harm.
    """
    if group is None:
        return Mirrored(None)
    failure: str | None = None
    for _ in range(TRIES):
        feed = parts.control.feed_of_id(feed_id)
        if feed is None:
            return Mirrored(group)
        try:
            offsets, failure = offsets_to_mirror(feed, parts.kafka)
            if offsets:
                metadata = f"kafka_ingest {batch_id}" if batch_id else "kafka_ingest"
                set_group_offsets(group, offsets, metadata, parts.kafka)
        except (KafkaIngestError, MirrorRefusedError) as error:
            failure = str(error)
            break
        # Not the revision: another process that plans and writes would use up the tries, and the group would silently
        # lag.
        if parts.control.stored_offsets(feed_id) == feed.stored:
            break
    else:
        moved = f"the stored offsets moved {TRIES} times while the group was set; the next commit sets it again"
        failure = failure or moved
    if failure is not None:
        log.info("consumer group %s was not set to the stored offsets: %s", group, failure)
        detail = {"group": group, "reason": failure}
        parts.control.record_event(feed_id, "mirror_failed", actor=actor, batch_id=batch_id, detail=detail)
    return Mirrored(group, failure)


def set_group_offsets(group: str, offsets: Mapping[TopicPartition, int], metadata: str, kafka: KafkaCluster) -> None:
    """Set the group's offsets; without an answer, read them back: perhaps only the answer was lost."""
    try:
        kafka.set_group_offsets(group, offsets, metadata=metadata)
    except KafkaUnavailableError:
        arrived = False
        with contextlib.suppress(KafkaUnavailableError):
            arrived = kafka.group_offsets(group, offsets.keys()) == offsets
        if not arrived:
            raise
        log.info("Kafka set consumer group %s, although its answer was lost", group)


def offsets_to_mirror(feed: FeedSnapshot, kafka: KafkaCluster) -> tuple[dict[TopicPartition, int], str | None]:
    """Return what the group is to be set to, and why some of it is left out.

    Offsets of another cluster, or of a recreated topic, would mislead users of the group. Topics that the feed no
    longer names are left alone: others may read them now. A held topic is not reported as a failure each time: the hold
    shows it.
    """
    check_cluster(feed.cluster_id, kafka.cluster_id(), feed.name)
    described = kafka.describe_topics(feed.topics)
    held = {hold.topic for hold in feed.holds if hold.cause in OF_WHOLE_TOPICS}
    problems: dict[str, str] = {}
    offsets: dict[TopicPartition, int] = {}
    for topic_partition, row in feed.stored.items():
        topic = topic_partition.topic
        if topic not in feed.topics or topic in problems or row.next_offset is None:
            continue
        try:
            check_topic_ids({topic: row.topic_id}, described, feed.name)
        except OperatorDecisionError as error:
            problems[topic] = str(error)
        else:
            offsets[topic_partition] = row.next_offset
    return offsets, "; ".join(problem for topic, problem in problems.items() if topic not in held) or None
