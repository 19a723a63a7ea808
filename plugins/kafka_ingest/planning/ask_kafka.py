"""Ask Kafka all that a decision needs, in bulk."""

from collections.abc import Mapping

from kafka_ingest.boundaries import FeedSnapshot, KafkaCluster
from kafka_ingest.hold import HoldCause
from kafka_ingest.offsets import LogBounds, TopicPartition
from kafka_ingest.planning.end_positions import EndPositions, ToTimestamp
from kafka_ingest.planning.kafka_answers import KafkaAnswers
from kafka_ingest.planning.settings import FeedPlanSettings
from kafka_ingest.planning.start_rules import AtTimestamp, FromGroup, PartitionRule
from kafka_ingest.planning.topics import rules_to_resolve, topics_wanted


def ask_kafka(
    feed: FeedSnapshot | None, settings: FeedPlanSettings, kafka: KafkaCluster, end: EndPositions = None
) -> KafkaAnswers:
    """Return Kafka's answers for a feed's next batch; raises KafkaUnavailableError where there are none.

    Groups are asked first, so that one that moves on meanwhile does not stand beyond the log; the log's bounds before the
    offsets at a time, so that a record that arrives in between is read, not passed over.
    """
    there = kafka.topic_names() if settings.topic_pattern is not None else []
    present = kafka.describe_topics(topics_wanted(feed, settings, there))
    partitions = [tp for description in present.values() for tp in description.topic_partitions()]
    rules = rules_to_resolve(feed, settings, present)
    group_offsets = start_groups(rules, kafka)
    bounds = kafka.log_bounds(partitions)

    start_times = {tp: rule.timestamp for tp, rule in rules.items() if isinstance(rule, AtTimestamp)}
    end_times = dict.fromkeys(partitions, end.timestamp) if isinstance(end, ToTimestamp) else {}
    held = {tp: at for tp, at in unreadable_offsets(feed).items() if isinstance(bounds.get(tp), LogBounds)}
    return KafkaAnswers(
        cluster_id=kafka.cluster_id(),
        topics=present,
        bounds=bounds,
        start_offsets_at=kafka.offsets_at(start_times) if start_times else {},
        group_offsets=group_offsets,
        end_offsets_at=kafka.offsets_at(end_times) if end_times else {},
        unreadable=kafka.unreadable_at(held).keys() if held else (),
    )


def start_groups(
    rules: Mapping[TopicPartition, PartitionRule], kafka: KafkaCluster
) -> Mapping[TopicPartition, int | None]:
    """Return where consumer groups stand on the partitions that begin there."""
    of_group: dict[str, list[TopicPartition]] = {}
    for topic_partition, rule in rules.items():
        if isinstance(rule, FromGroup):
            of_group.setdefault(rule.group, []).append(topic_partition)
    offsets: dict[TopicPartition, int | None] = {}
    for group, members in of_group.items():
        offsets |= kafka.group_offsets(group, members)
    return offsets


def unreadable_offsets(feed: FeedSnapshot | None) -> Mapping[TopicPartition, int]:
    """Return where partitions could not be read so far."""
    return {
        hold.topic_partition: hold.at_offset
        for hold in (feed.holds if feed is not None else [])
        if hold.cause is HoldCause.UNREADABLE and hold.topic_partition is not None and hold.at_offset is not None
    }
