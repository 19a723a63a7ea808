"""Ask Kafka for the age of topics that the last plan would have read but did not find."""

from collections.abc import Mapping
from datetime import datetime

from kafka_ingest.model.control_rows import FeedSnapshot
from kafka_ingest.model.offsets import LogBounds, TopicDescription
from kafka_ingest.planning.settings import FeedPlanSettings
from kafka_ingest.planning.start_rules import NewOrOlder
from kafka_ingest.planning.topic_age import Age, TopicAge, age_of, begins_alike, reads_alike
from kafka_ingest.planning.topics import was_selected
from kafka_ingest.ports.cluster import KafkaCluster


def topic_ages(
    feed: FeedSnapshot | None,
    settings: FeedPlanSettings,
    present: Mapping[str, TopicDescription],
    kafka: KafkaCluster,
) -> dict[str, TopicAge]:
    """Return the age of each topic that the last plan would have read but did not find; asks nothing if there is none.

    Without a last plan (tables rebuilt from the output) every such topic counts as new, so that no record is skipped.
    """
    appeared = appeared_since(feed, present) if feed is not None else {}
    if not appeared:
        return {}
    partitions = {topic: present[topic].topic_partitions() for topic in appeared}
    bounds = kafka.log_bounds([tp for found in partitions.values() for tp in found])
    alike = {
        topic
        for topic, found in partitions.items()
        if begins_alike([bounds[tp] for tp in found], settings.start_rule(topic))
    }
    log_starts = {
        tp: log.log_start_offset
        for topic in partitions.keys() - alike
        for tp in partitions[topic]
        if isinstance(log := bounds[tp], LogBounds) and not log.is_empty
    }
    firsts = kafka.first_records(log_starts) if log_starts else {}
    found: dict[str, TopicAge] = {}
    for topic, last_plan in appeared.items():
        logs = {tp: bounds[tp] for tp in partitions[topic]}
        age = TopicAge(Age.NEW, last_plan) if topic in alike else age_of(logs, firsts, last_plan)
        is_read_alike = reads_alike(logs.values(), settings.start_rule(topic), settings.on_data_loss)
        found[topic] = TopicAge(Age.NEW, last_plan) if age.age is Age.UNDECIDED and is_read_alike else age
    return found


def appeared_since(feed: FeedSnapshot, present: Mapping[str, TopicDescription]) -> dict[str, datetime]:
    """Return the topics to judge, each with the last plan before it appeared; an undecided topic keeps that plan.

    Only a pattern can overlook a topic: when asked by name, Kafka reports whether a topic is missing or not allowed.
    """
    planned_at = feed.planned_at if feed.topic_pattern is not None else None
    rows_of: dict[str, list[str]] = {}
    for tp, row in feed.stored.items():
        rows_of.setdefault(tp.topic, []).append(row.seeded_by if row.is_pending else "")
    found: dict[str, datetime] = {}
    for topic in present:
        rules = [rule for noted in rows_of.get(topic, ()) if (rule := NewOrOlder.noted(noted)) is not None]
        if rules:
            found[topic] = rules[0].last_plan
        elif topic not in rows_of and planned_at is not None and was_selected(feed, topic):
            found[topic] = planned_at
    return found
