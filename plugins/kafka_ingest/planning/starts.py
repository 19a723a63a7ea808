"""Where partitions begin: at their stored offsets, or where their start rules lead; and which have to wait. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from kafka_ingest.model.control_rows import FeedSnapshot
from kafka_ingest.model.hold import Hold, HoldCause
from kafka_ingest.model.offsets import Isolation, LogBounds, StoredOffset, TopicDescription, TopicPartition, Unavailable
from kafka_ingest.planning.settings import EndPositions, FeedPlanSettings, NewOrOlder, PartitionAnswers, ToTimestamp
from kafka_ingest.planning.topics import Age, KafkaAnswers, rules_to_resolve


@dataclass(slots=True)
class Starts:
    """Where partitions begin: stored offsets and new seeds, and holds on those for which Kafka cannot answer now."""

    topic_ids: Mapping[str, str | None]
    offsets: dict[TopicPartition, tuple[int, LogBounds]] = field(default_factory=dict)
    seeds: list[StoredOffset] = field(default_factory=list)
    holds: list[Hold] = field(default_factory=list)


def starts_of(
    feed: FeedSnapshot,
    present: Mapping[str, TopicDescription],
    answers: KafkaAnswers,
    settings: FeedPlanSettings,
    now: datetime,
    end: EndPositions,
) -> Starts:
    """Return the next offset to read of each partition: the stored one, or where its start rule begins."""
    # A topic keeps the identity its first row was stored with, also where that is "not known": the commit compares it.
    known_ids = {topic_partition.topic: row.topic_id for topic_partition, row in feed.stored.items()}
    starts = Starts({name: known_ids.get(name, found.topic_id) for name, found in sorted(present.items())})
    rules = rules_to_resolve(feed, settings, present, answers.ages)
    partitions = sorted(tp for description in present.values() for tp in description.topic_partitions())
    for topic_partition in partitions:
        rule, row = rules.get(topic_partition), feed.stored.get(topic_partition)
        topic_id = starts.topic_ids[topic_partition.topic]
        bounds = bounds_of(topic_partition, answers, end)
        if isinstance(bounds, Unavailable):
            topic, number = topic_partition.topic, topic_partition.partition
            starts.holds.append(Hold(topic, number, HoldCause.NO_ANSWER, bounds.reason, now))
            if rule is not None and (row is None or row.seeded_by != str(rule)):
                # Its start is not known yet; it counts as known from now on.
                starts.seeds.append(StoredOffset(topic_partition, topic_id, None, None, str(rule)))
        elif isinstance(rule, NewOrOlder):
            topic, number = topic_partition.topic, topic_partition.partition
            reason = to_be_decided(rule, topic, settings.name)
            starts.holds.append(Hold(topic, number, HoldCause.NEW_OR_OLDER, reason, now))
            if row is None:
                starts.seeds.append(StoredOffset(topic_partition, topic_id, None, None, str(rule)))
        elif rule is not None:
            start = rule.resolve(topic_partition, answers_for(topic_partition, bounds, answers, settings.isolation))
            age = answers.ages.get(topic_partition.topic)
            is_older = age is not None and age.age is Age.OLDER
            note = f"{start.note}: the topic is older than the last plan" if is_older else start.note
            starts.seeds.append(
                StoredOffset(topic_partition, topic_id, start.offset, start.offset, note, bounds.leader_epoch)
            )
            starts.offsets[topic_partition] = (start.offset, bounds)
        elif row is not None and row.next_offset is not None:
            starts.offsets[topic_partition] = (row.next_offset, bounds)
    return starts


def to_be_decided(rule: NewOrOlder, topic: str, feed_name: str) -> str:
    """Return why a topic that appeared is held, and what decides."""
    return (
        f"the topic was not there at the plan of {rule.last_plan:%Y-%m-%d %H:%M} UTC, and nothing proves whether it "
        f"was made since or is older: {rule.why}. `kafka-ingest topic-changed {feed_name} --topic {topic}`: "
        "start-over reads it from offset 0, start-rule begins as the feed file's start says"
    )


def bounds_of(topic_partition: TopicPartition, answers: KafkaAnswers, end: EndPositions) -> LogBounds | Unavailable:
    """Return a partition's bounds, or why it takes no part: one question that was not answered is enough."""
    if isinstance(at_start := answers.start_offsets_at.get(topic_partition), Unavailable):
        return at_start
    if isinstance(end, ToTimestamp) and isinstance(at_end := answers.end_offsets_at[topic_partition], Unavailable):
        return at_end
    return answers.bounds[topic_partition]


def answers_for(
    topic_partition: TopicPartition, bounds: LogBounds, answers: KafkaAnswers, isolation: Isolation
) -> PartitionAnswers:
    at_timestamp = answers.start_offsets_at.get(topic_partition)
    return PartitionAnswers(
        bounds,
        isolation,
        offset_at_timestamp=None if isinstance(at_timestamp, Unavailable) else at_timestamp,
        group_offset=answers.group_offsets.get(topic_partition),
    )
