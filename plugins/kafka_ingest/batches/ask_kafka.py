"""Ask Kafka everything that a decision needs, in bulk."""

from collections.abc import Collection, Mapping

from kafka_ingest.batches.ask_topic_ages import topic_ages
from kafka_ingest.batches.truncation import Counted, counted, cut_off_at
from kafka_ingest.model.control_rows import FeedSnapshot
from kafka_ingest.model.hold import HoldCause
from kafka_ingest.model.identity import is_other_topic
from kafka_ingest.model.offsets import LogBounds, StoredOffset, TopicDescription, TopicPartition, Unavailable
from kafka_ingest.planning.end_positions import EndPositions, ToTimestamp
from kafka_ingest.planning.kafka_answers import KafkaAnswers
from kafka_ingest.planning.settings import FeedPlanSettings
from kafka_ingest.planning.start_rules import AtTimestamp, FromGroup, PartitionRule
from kafka_ingest.planning.topics import rules_to_resolve, topics_wanted
from kafka_ingest.ports.cluster import KafkaCluster


def ask_kafka(
    feed: FeedSnapshot | None, settings: FeedPlanSettings, kafka: KafkaCluster, end: EndPositions = None
) -> KafkaAnswers:
    """Return Kafka's answers for a feed's next batch; raises KafkaUnavailableError where it does not answer.

    Group offsets are read before the log bounds, so that a group that advances in between is not beyond the log; the
    log bounds are read before the offsets at a time, so that a record that arrives in between is read, not skipped.
    """
    there = kafka.topic_names() if settings.topic_pattern is not None else []
    present = kafka.describe_topics(topics_wanted(feed, settings, there))
    partitions = [tp for description in present.values() for tp in description.topic_partitions()]
    ages = topic_ages(feed, settings, present, kafka)
    rules = rules_to_resolve(feed, settings, present, ages)
    group_offsets = start_groups(rules, kafka)
    bounds = kafka.log_bounds(partitions)
    cut_off: dict[TopicPartition, int] = {}
    for tp, end_offset in cut_off_at(known_logs(feed, present), bounds, kafka).items():
        if isinstance(end_offset, Unavailable):
            bounds[tp] = end_offset
        else:
            cut_off[tp] = end_offset

    start_times = {tp: rule.timestamp for tp, rule in rules.items() if isinstance(rule, AtTimestamp)}
    end_times = dict.fromkeys(partitions, end.timestamp) if isinstance(end, ToTimestamp) else {}
    unreadable = unreadable_offsets(feed)
    held = {
        tp: at
        for tp, at in unreadable.items()
        # In a recreated topic the offset means another record.
        if isinstance(bounds.get(tp), LogBounds) and not was_made_again(tp, feed, present)
    }
    return KafkaAnswers(
        cluster_id=kafka.cluster_id(),
        topics=present,
        bounds=bounds,
        start_offsets_at=kafka.offsets_at(start_times) if start_times else {},
        group_offsets=group_offsets,
        end_offsets_at=kafka.offsets_at(end_times) if end_times else {},
        cut_off_at=cut_off,
        unreadable=kafka.unreadable_at(held, settings.surely_fits).keys() if held else (),
        ages=ages,
    )


def where_cut_off(
    rows: Collection[StoredOffset], bounds: Mapping[TopicPartition, LogBounds | Unavailable], kafka: KafkaCluster
) -> dict[TopicPartition, int | Unavailable]:
    """Return where logs were truncated below their stored offsets, or why that is unknown; others are left out."""
    return cut_off_at(counted(rows), bounds, kafka)


def known_logs(feed: FeedSnapshot | None, present: Mapping[str, TopicDescription]) -> Mapping[TopicPartition, Counted]:
    """Return what is known about the logs of present topics whose ids have not changed."""
    rows = feed.stored.values() if feed is not None else ()
    known = counted(row for row in rows if row.topic_partition.topic in present)
    return {tp: was for tp, was in known.items() if not was_made_again(tp, feed, present)}


def was_made_again(
    topic_partition: TopicPartition, feed: FeedSnapshot | None, present: Mapping[str, TopicDescription]
) -> bool:
    """Whether a partition's topic was recreated since its stored offset was recorded."""
    row = feed.stored.get(topic_partition) if feed is not None else None
    return row is not None and is_other_topic(row.topic_id, present[topic_partition.topic].topic_id)


def start_groups(
    rules: Mapping[TopicPartition, PartitionRule], kafka: KafkaCluster
) -> Mapping[TopicPartition, int | None]:
    """Return the consumer groups' offsets for the partitions that start from a group."""
    of_group: dict[str, list[TopicPartition]] = {}
    for topic_partition, rule in rules.items():
        if isinstance(rule, FromGroup):
            of_group.setdefault(rule.group, []).append(topic_partition)
    offsets: dict[TopicPartition, int | None] = {}
    for group, members in of_group.items():
        offsets |= kafka.group_offsets(group, members)
    return offsets


def unreadable_offsets(feed: FeedSnapshot | None) -> Mapping[TopicPartition, int]:
    """Return the offsets at which partitions have been unreadable so far."""
    return {
        hold.topic_partition: hold.at_offset
        for hold in (feed.holds if feed is not None else [])
        if hold.cause is HoldCause.UNREADABLE and hold.topic_partition is not None and hold.at_offset is not None
    }
