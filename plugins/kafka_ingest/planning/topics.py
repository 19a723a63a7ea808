"""Which topics take part in a batch, and by which rule their partitions without a stored offset begin. Pure."""

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime

from kafka_ingest.boundaries import FeedSnapshot
from kafka_ingest.errors import StartOutsideLogError, TopicGoneError, UnknownTopicError
from kafka_ingest.hold import Hold, HoldCause
from kafka_ingest.identity import check_topic_id
from kafka_ingest.offsets import StoredOffset, TopicDescription, TopicPartition, listing
from kafka_ingest.planning.settings import FeedPlanSettings, OnMissingTopic
from kafka_ingest.planning.start_rules import (
    AtOffsets,
    NewPartition,
    PartitionRule,
    StartRule,
    rule_of_partition,
)


@dataclass(frozen=True, slots=True)
class TopicsOfFeed:
    """The feed's topics now: those that take part, and holds on those that are missing."""

    names: Collection[str]
    present: Mapping[str, TopicDescription]
    holds: list[Hold] = field(default_factory=list)


def topics_wanted(feed: FeedSnapshot | None, settings: FeedPlanSettings, there: Iterable[str]) -> list[str]:
    """Return the names that the feed reads: its list, or what its pattern matches of what is there or was stored."""
    if settings.topic_pattern is None:
        return sorted(settings.start_rules)
    known = {topic_partition.topic for topic_partition in feed.stored} if feed is not None else set()
    return sorted(topic for topic in known.union(there) if settings.selects(topic))


def topics_of_feed(
    feed: FeedSnapshot | None,
    settings: FeedPlanSettings,
    described: Mapping[str, TopicDescription],
    cluster_id: str,
    now: datetime,
) -> TopicsOfFeed:
    """Return the topics that take part.

    Raises UnknownTopicError, TopicGoneError or TopicRecreatedError where a topic or partition is not there, or is not the one
    the stored offsets were counted in; under ``on_missing_topic: hold`` a missing one is held and the others go on.
    """
    rows_of: dict[str, list[StoredOffset]] = {}
    for row in feed.stored.values() if feed is not None else []:
        rows_of.setdefault(row.topic_partition.topic, []).append(row)

    wanted = topics_wanted(feed, settings, described)
    missing: dict[str, TopicGoneError | UnknownTopicError] = {}
    present: dict[str, TopicDescription] = {}
    for topic in wanted:
        description, rows = described.get(topic), rows_of.get(topic, [])
        problem = why_missing(topic, description, rows, settings.name, cluster_id)
        if problem is not None:
            missing[topic] = problem
        if description is not None:
            for row in rows[:1]:  # all rows of a topic carry one id
                check_topic_id(topic, row.topic_id, description.topic_id, settings.name)
            if problem is None:
                present[topic] = description
        if description is not None and not rows:
            check_named_partitions(settings.start_rule(topic), description)
    if not wanted:
        raise UnknownTopicError(
            f"feed {settings.name}: no topic on cluster {cluster_id} matches kafka.topic_pattern {settings.topic_pattern!r} as a "
            "whole. Correct the pattern, or create a topic; topics that begin with '__' are Kafka's own and never match."
        )
    if missing and (settings.on_missing_topic is OnMissingTopic.STOP or not present):
        raise next(iter(missing.values()))
    holds = [Hold(topic, None, HoldCause.TOPIC_MISSING, str(problem), now) for topic, problem in missing.items()]
    return TopicsOfFeed(wanted, present, holds)


def why_missing(
    topic: str, description: TopicDescription | None, rows: Collection[StoredOffset], feed_name: str, cluster_id: str
) -> TopicGoneError | UnknownTopicError | None:
    """Return the error where a topic, or a partition of it that was read, is not there."""
    if description is None and not rows:
        return UnknownTopicError(
            f"feed {feed_name}: topic {topic!r} does not exist on cluster {cluster_id}. Create it, correct kafka.topics in the "
            "feed file, or let the feed's other topics go on without it (on_missing_topic: hold)."
        )
    if description is None:
        return TopicGoneError(
            f"feed {feed_name}: topic {topic!r} has stored offsets for {len(rows):,} partitions, but cluster {cluster_id} has no "
            "such topic any more. Take it out of the feed file, let the feed's other topics go on (on_missing_topic: hold), or "
            f"end its offsets for good: `kafka-ingest topic-changed {feed_name} --topic {topic} --choice forget`."
        )
    partitions = set(description.partitions)
    gone = sorted(row.topic_partition for row in rows if row.topic_partition.partition not in partitions)
    if gone:
        return TopicGoneError(
            f"feed {feed_name}: {listing(gone)} have stored offsets, but topic {topic!r} has only {len(partitions):,} partitions "
            "now. Partitions never go away while a topic lives: it was made again. Nothing was moved; if it may start over: "
            f"`kafka-ingest topic-changed {feed_name} --topic {topic} --choice start-over`."
        )
    return None


def rules_to_resolve(
    feed: FeedSnapshot | None, settings: FeedPlanSettings, present: Mapping[str, TopicDescription]
) -> dict[TopicPartition, PartitionRule]:
    """Return the start rule of every partition that has no offset yet, also of those that were noted as pending.

    A new partition stays one. For the others the feed file counts as it is now: nothing of theirs was decided yet.
    """
    stored = feed.stored if feed is not None else {}
    known_topics = {topic_partition.topic for topic_partition in stored}
    rules: dict[TopicPartition, PartitionRule] = {}
    for topic, description in present.items():
        is_new = topic in known_topics or (feed is not None and was_selected(feed, topic))
        rule: StartRule = settings.start_rule(topic)
        for topic_partition in description.topic_partitions():
            row = stored.get(topic_partition)
            if row is not None and not row.is_pending:
                continue
            begins_at_0 = is_new if row is None else row.seeded_by == str(NewPartition())
            rules[topic_partition] = NewPartition() if begins_at_0 else rule_of_partition(rule, topic_partition)
    return rules


def was_selected(feed: FeedSnapshot, topic: str) -> bool:
    """Whether the last plan would have read the topic: then it was made since, and all of it is new."""
    return topic in feed.topics or (
        feed.topic_pattern is not None and re.fullmatch(feed.topic_pattern, topic) is not None
    )


def check_named_partitions(rule: StartRule, description: TopicDescription) -> None:
    """Raise where a start rule names a partition that its topic does not have."""
    if isinstance(rule, AtOffsets) and (unknown := sorted(rule.offsets.keys() - set(description.partitions))):
        raise StartOutsideLogError(
            f"the feed's start names {listing(TopicPartition(description.topic, number) for number in unknown)}, but topic "
            f"{description.topic!r} has partitions 0 to {len(description.partitions) - 1}. Correct the feed's start.offsets."
        )
