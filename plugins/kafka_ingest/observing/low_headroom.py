"""Asks Kafka which partitions of a feed retention is about to reach before they are read."""

from kafka_ingest.model.control_rows import FeedSnapshot
from kafka_ingest.model.headroom import LowHeadroom, in_danger
from kafka_ingest.model.identity import check_cluster, is_other_topic
from kafka_ingest.model.offsets import Isolation
from kafka_ingest.ports.cluster import KafkaCluster


def low_headroom(feed: FeedSnapshot, kafka: KafkaCluster, isolation: Isolation) -> list[LowHeadroom]:
    """Ask Kafka; return the partitions in danger: none where nothing was ever deleted, or there is nothing to read.

    A recreated topic is left out: its offsets mean other records. A quiet topic whose log was emptied by retention is
    reported once it has new records. Raises WrongClusterError, KafkaUnavailableError.
    """
    check_cluster(feed.cluster_id, kafka.cluster_id(), feed.name)
    described = kafka.describe_topics(feed.topics)
    asked = [
        row
        for tp, row in feed.stored.items()
        if not row.is_pending
        and tp.topic in described
        and not is_other_topic(row.topic_id, described[tp.topic].topic_id)
    ]
    return in_danger(asked, kafka.log_bounds([row.topic_partition for row in asked]), isolation)
