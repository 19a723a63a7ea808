"""Decide whether an open batch can be read as planned, from Kafka's answers about its topics and logs. Pure."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from kafka_ingest.errors import TopicGoneError, TopicRecreatedError
from kafka_ingest.model.batch import Batch, BatchKind, BatchPlan
from kafka_ingest.model.control_rows import FeedSnapshot
from kafka_ingest.model.gap import Jump
from kafka_ingest.model.offsets import (
    LogBounds,
    OffsetRange,
    TopicDescription,
    TopicPartition,
    Unavailable,
    ranges_outside_log,
)
from kafka_ingest.model.omissions import log_starts_of, ranges_read, to_leave_out
from kafka_ingest.model.topics import check_cluster, check_topic_ids
from kafka_ingest.planning.positions import gaps_by_partition, position_of
from kafka_ingest.planning.settings import FeedPlanSettings, OnDataLoss, OnMissingTopic, OnTopicChanged


@dataclass(frozen=True, slots=True)
class PlanAnswers:
    """Kafka's answers about the topics and logs of a plan; a log that was truncated since the plan ends there.

    ``unreadable``: the ranges that hold an offset which an attempt found unreadable and Kafka still cannot read, with
    the reason. ``any_answered``: whether Kafka can answer for any partition of the feed, in the batch or not.
    """

    cluster_id: str
    topics: Mapping[str, TopicDescription]
    bounds: Mapping[TopicPartition, LogBounds | Unavailable]
    unreadable: Collection[str] = ()
    any_answered: bool = True

    @property
    def unanswered(self) -> list[str]:
        """The partitions for which Kafka cannot answer, with the reason."""
        return [f"{tp}: {found.reason}" for tp, found in sorted(self.bounds.items()) if isinstance(found, Unavailable)]

    def ranges_to_read(self, plan: BatchPlan) -> tuple[OffsetRange, ...]:
        """Return the ranges that an attempt reads now: all, but for those a live batch may leave out (`rounds.py`)."""
        if plan.kind is not BatchKind.LIVE:
            return plan.ranges
        return ranges_read(plan.ranges, to_leave_out(plan.ranges, log_starts_of(self.bounds)))


@dataclass(frozen=True, slots=True)
class OpenBatchDecision:
    """``problems``: why the batch is abandoned, none where it is resumed; ``lost``: what it is resumed without.

    ``jumps`` are the gaps over what retention deleted, where it is abandoned.
    """

    problems: list[str]
    lost: list[str]
    jumps: list[Jump]


def decide_open_batch(
    feed: FeedSnapshot, batch: Batch, answers: PlanAnswers, settings: FeedPlanSettings
) -> OpenBatchDecision:
    """Return whether to resume a PLANNED batch without a receipt; raises what stops the feed until an operator decides.

    Where only the beginning of some ranges was deleted it is resumed: the attempt leaves these ranges out, and the next
    plan decides on them.
    """
    plan = batch.plan
    held = held_topics(batch, answers, settings)
    to_read = answers.ranges_to_read(plan)
    problems = [*held.values(), *ranges_outside_log(to_read, answers.bounds, plan.isolation), *answers.unreadable]
    if answers.any_answered:
        # Other partitions need not wait for one without a leader. Where Kafka answers for none, the batch waits.
        problems += answers.unanswered
    lost = sorted(ranges_outside_log(set(plan.ranges) - set(to_read), answers.bounds, plan.isolation))
    if not problems:
        return OpenBatchDecision([], lost, [])
    jumps = jumps_over_lost(plan, answers.bounds, feed, settings)
    return OpenBatchDecision(
        [*problems, *lost], lost, [jump for jump in jumps if jump.topic_partition.topic not in held]
    )


def held_topics(batch: Batch, answers: PlanAnswers, settings: FeedPlanSettings) -> dict[str, str]:
    """Return which topics of a batch are deleted or recreated, if the feed continues without them; otherwise raise."""
    check_cluster(batch.plan.cluster_id, answers.cluster_id, batch.feed_name)
    held: dict[str, str] = {}
    for topic, topic_id in sorted(batch.plan.topic_ids.items()):
        try:
            check_topic_ids({topic: topic_id}, answers.topics, batch.feed_name)
        except TopicGoneError as error:
            if settings.on_missing_topic is OnMissingTopic.STOP:
                raise
            held[topic] = str(error)
        except TopicRecreatedError as error:
            if settings.on_topic_changed is OnTopicChanged.STOP:
                raise
            held[topic] = str(error)
    return held


def jumps_over_lost(
    plan: BatchPlan,
    bounds: Mapping[TopicPartition, LogBounds | Unavailable],
    feed: FeedSnapshot,
    settings: FeedPlanSettings,
) -> list[Jump]:
    """Return the gaps over what retention deleted from a batch, where the feed has ``on_data_loss: record_gap``."""
    if settings.on_data_loss is not OnDataLoss.RECORD_GAP:
        return []
    ahead = gaps_by_partition(feed)
    positions = [
        position_of(tp, offset_range.start_offset, found, offset_range.end_offset, ahead.get(tp, ()), None, None)
        for offset_range in plan.ranges
        if isinstance(found := bounds[tp := offset_range.topic_partition], LogBounds)
    ]
    return [position.jump for position in positions if position.jump is not None]
