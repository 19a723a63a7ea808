"""Ask Kafka everything that a decision needs, in bulk; and which logs were truncated below known offsets.

That is found by leader epochs, even after the logs have grown again (KIP-320).
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime

from kafka_ingest.model.batch import BatchPlan
from kafka_ingest.model.control_rows import FeedSnapshot
from kafka_ingest.model.offsets import LogBounds, StoredOffset, TopicDescription, TopicPartition, Unavailable
from kafka_ingest.model.topics import is_other_topic
from kafka_ingest.planning.open_batch import PlanAnswers
from kafka_ingest.planning.positions import unreadable_offsets
from kafka_ingest.planning.settings import (
    AtTimestamp,
    EndPositions,
    FeedPlanSettings,
    FromGroup,
    PartitionRule,
    ToTimestamp,
)
from kafka_ingest.planning.topics import (
    KafkaAnswers,
    TopicAge,
    age_of_topic,
    appeared_since,
    begins_alike,
    rules_to_resolve,
    topics_wanted,
)
from kafka_ingest.ports.cluster import KafkaCluster


@dataclass(frozen=True, slots=True)
class Reached:
    """An offset up to which a log reached, and the leader epoch at that time, None where unknown."""

    offset: int
    leader_epoch: int | None


def reached(rows: Iterable[StoredOffset]) -> dict[TopicPartition, Reached]:
    """Return how far the logs of stored offsets reached."""
    return {
        row.topic_partition: Reached(row.next_offset, row.leader_epoch) for row in rows if row.next_offset is not None
    }


def cut_off_at(
    known: Mapping[TopicPartition, Reached],
    bounds: Mapping[TopicPartition, LogBounds | Unavailable],
    kafka: KafkaCluster,
) -> dict[TopicPartition, int | Unavailable]:
    """Return where logs were truncated below known offsets, or why that is unknown; the others are left out.

    Logs are only truncated when the leader changes, so nothing is asked where the epoch is the same. Where the epoch
    went back, the log comes from an older copy of unknown end: all of it may be other records.
    """
    epochs: dict[TopicPartition, int] = {}
    for tp, was in known.items():
        log = bounds.get(tp)
        if was.leader_epoch is None or not isinstance(log, LogBounds) or log.leader_epoch is None:
            continue
        if log.leader_epoch != was.leader_epoch and log.log_start_offset < was.offset:
            epochs[tp] = was.leader_epoch
    found: dict[TopicPartition, int | Unavailable] = {}
    for tp, end in (kafka.epoch_ends(epochs) if epochs else {}).items():
        log = bounds[tp]
        if isinstance(end, Unavailable) or (end is not None and end < known[tp].offset):
            found[tp] = end
        elif end is None and isinstance(log, LogBounds) and (log.leader_epoch or 0) < epochs[tp]:
            found[tp] = log.log_start_offset
    return found


def bounds_as_planned(
    plan: BatchPlan, bounds: Mapping[TopicPartition, LogBounds | Unavailable], kafka: KafkaCluster
) -> dict[TopicPartition, LogBounds | Unavailable]:
    """Return the bounds of a plan's logs; one truncated below its range's end ends there: other records follow."""
    ends = {
        planned.topic_partition: Reached(planned.end_offset, plan.leader_epochs.get(planned.topic_partition))
        for planned in plan.ranges
    }
    cut_off = cut_off_at(ends, bounds, kafka)
    return {tp: ending_at(log, cut_off[tp]) if tp in cut_off else log for tp, log in bounds.items()}


def ending_at(log: LogBounds | Unavailable, end: int | Unavailable) -> LogBounds | Unavailable:
    """Return a log's bounds as if it ended at an offset."""
    if isinstance(log, Unavailable) or isinstance(end, Unavailable):
        return end if isinstance(end, Unavailable) else log
    return replace(
        log,
        log_start_offset=min(log.log_start_offset, end),
        last_stable_offset=min(log.last_stable_offset, end),
        high_watermark=min(log.high_watermark, end),
    )


def topic_ages(
    appeared: Mapping[str, datetime],
    settings: FeedPlanSettings,
    present: Mapping[str, TopicDescription],
    kafka: KafkaCluster,
) -> dict[str, TopicAge]:
    """Ask how old topics are that appeared, each after a plan that would have read it but did not find it."""
    partitions = {topic: present[topic].topic_partitions() for topic in appeared}
    bounds = kafka.log_bounds([tp for found in partitions.values() for tp in found])
    logs = {topic: {tp: bounds[tp] for tp in found} for topic, found in partitions.items()}
    log_starts = {
        tp: log.log_start_offset
        for topic, of_topic in logs.items()
        if not begins_alike(of_topic.values(), settings.start_rule(topic))
        for tp, log in of_topic.items()
        if isinstance(log, LogBounds) and not log.is_empty
    }
    firsts = kafka.first_records(log_starts) if log_starts else {}
    return {topic: age_of_topic(topic, logs[topic], firsts, when, settings) for topic, when in appeared.items()}


def ask_kafka(
    feed: FeedSnapshot, settings: FeedPlanSettings, kafka: KafkaCluster, end: EndPositions = None
) -> KafkaAnswers:
    """Return Kafka's answers for a feed's next batch; raises KafkaUnavailableError where it does not answer.

    Group offsets are read before the log bounds, so that a group that advances in between is not beyond the log; the
    log bounds are read before the offsets at a time, so that a record that arrives in between is read, not skipped.
    """
    there = kafka.topic_names() if settings.topic_pattern is not None else []
    present = kafka.describe_topics(topics_wanted(feed, settings, there))
    partitions = [tp for description in present.values() for tp in description.topic_partitions()]
    appeared = appeared_since(feed, present)
    ages = topic_ages(appeared, settings, present, kafka) if appeared else {}
    rules = rules_to_resolve(feed, settings, present, ages)
    group_offsets = start_groups(rules, kafka)
    bounds = kafka.log_bounds(partitions)
    found = {tp: row for tp, row in feed.stored.items() if tp.topic in present}
    # In a recreated topic an offset means another record.
    recreated = {tp for tp, row in found.items() if is_other_topic(row.topic_id, present[tp.topic].topic_id)}
    known = reached(row for tp, row in found.items() if tp not in recreated)
    cut_off: dict[TopicPartition, int] = {}
    for tp, end_offset in cut_off_at(known, bounds, kafka).items():
        if isinstance(end_offset, Unavailable):
            bounds[tp] = end_offset
        else:
            cut_off[tp] = end_offset

    start_times = {tp: rule.timestamp for tp, rule in rules.items() if isinstance(rule, AtTimestamp)}
    end_times = dict.fromkeys(partitions, end.timestamp) if isinstance(end, ToTimestamp) else {}
    held = {
        tp: at
        for tp, at in unreadable_offsets(feed).items()
        if isinstance(bounds.get(tp), LogBounds) and tp not in recreated
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


def ask_about_plan(plan: BatchPlan, kafka: KafkaCluster) -> PlanAnswers:
    bounds = kafka.log_bounds([offset_range.topic_partition for offset_range in plan.ranges])
    # Asked after the bounds: of a topic that was recreated in between the id differs. After Spark the client is new,
    # and asking for the cluster's id first would take 50 ms.
    topics = kafka.describe_topics(plan.topic_ids.keys())
    return PlanAnswers(kafka.cluster_id(), topics, bounds_as_planned(plan, bounds, kafka))


def ask_about_batch(
    feed: FeedSnapshot, plan: BatchPlan, settings: FeedPlanSettings, kafka: KafkaCluster
) -> PlanAnswers:
    """Return the same of a feed's open batch, with what is unreadable in it, and whether Kafka answers at all."""
    answers = ask_about_plan(plan, kafka)
    held = unreadable_offsets(feed)
    inside = {
        tp: held[tp]
        for tp, offset_range in ((each.topic_partition, each) for each in plan.ranges)
        if offset_range.start_offset <= held.get(tp, -1) < offset_range.end_offset
    }
    found = kafka.unreadable_at(inside, settings.surely_fits) if inside else {}
    unreadable = [f"{tp}: {why.reason if isinstance(why, Unavailable) else why}" for tp, why in found.items()]
    any_answered = any(isinstance(log, LogBounds) for log in answers.bounds.values())
    if not any_answered:
        others = [tp for tp in feed.stored if tp not in answers.bounds and settings.selects(tp.topic)]
        any_answered = any(isinstance(log, LogBounds) for log in kafka.log_bounds(others).values())
    return replace(answers, unreadable=unreadable, any_answered=any_answered)


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
