"""What the next run does with a feed's open batch: resume it, or abandon it where its ranges left the log."""

import logging
from collections.abc import Mapping

from kafka_ingest.batches.ask_kafka import unreadable_offsets
from kafka_ingest.batches.check_readable import ranges_to_read
from kafka_ingest.batches.pin_receipt import pin_first_valid_receipt
from kafka_ingest.batches.truncation import bounds_as_planned
from kafka_ingest.errors import BatchStateError, TopicGoneError, TopicRecreatedError
from kafka_ingest.model.batch import Batch, BatchPlan, BatchState
from kafka_ingest.model.control_rows import FeedSnapshot
from kafka_ingest.model.gap import Jump
from kafka_ingest.model.identity import check_cluster, check_topic_ids
from kafka_ingest.model.offsets import LogBounds, TopicPartition, Unavailable, listing, ranges_outside_log
from kafka_ingest.planning.positions import gaps_by_partition, position_of
from kafka_ingest.planning.settings import FeedPlanSettings, OnDataLoss, OnMissingTopic, OnTopicChanged
from kafka_ingest.ports.cluster import KafkaCluster
from kafka_ingest.ports.control import ControlTables
from kafka_ingest.ports.outputs import Sinks

log = logging.getLogger(__name__)


def resume_open_batch(
    feed: FeedSnapshot,
    batch: Batch,
    settings: FeedPlanSettings,
    control: ControlTables,
    kafka: KafkaCluster,
    sinks: Sinks,
    *,
    actor: str | None,
) -> bool:
    """Return whether an open batch can be resumed; where it cannot be read any more, abandon it and return False.

    WRITTEN and COMMITTING batches are resumed without a question to Kafka. A PLANNED batch with a valid receipt is
    pinned; without one it is compared with the log, because its ranges will be read (again). Where only the beginning
    of some ranges was deleted it is resumed: the attempt leaves these ranges out, and the next plan decides on them.
    Without an actor nothing is written: raises what stops the feed at this batch until an operator decides.
    """
    if batch.state is not BatchState.PLANNED:
        return True
    if actor is None:
        held_topics(batch, settings, kafka)
        return True
    return resume_planned(feed, batch, settings, control, kafka, sinks, actor=actor)


def resume_planned(
    feed: FeedSnapshot,
    batch: Batch,
    settings: FeedPlanSettings,
    control: ControlTables,
    kafka: KafkaCluster,
    sinks: Sinks,
    *,
    actor: str,
) -> bool:
    """Return whether a batch that is PLANNED can be resumed, as above."""
    if pin_first_valid_receipt(batch, control, kafka, sinks, actor=actor):
        return True
    bounds = kafka.log_bounds([offset_range.topic_partition for offset_range in batch.plan.ranges])
    held = held_topics(batch, settings, kafka)
    bounds = bounds_as_planned(batch.plan, bounds, kafka)
    to_read = ranges_to_read(batch.plan, bounds)
    problems = list(held.values())
    problems += ranges_outside_log(to_read, bounds, batch.plan.isolation)
    problems += unreadable_ranges(batch.plan, feed, settings, kafka)
    unanswered = [f"{tp}: {found.reason}" for tp, found in sorted(bounds.items()) if isinstance(found, Unavailable)]
    if unanswered and any_answers(feed, bounds, settings, kafka):
        # Other partitions need not wait for one without a leader. Where Kafka answers for none, the batch waits.
        problems += unanswered
    lost = ranges_outside_log(set(batch.plan.ranges) - set(to_read), bounds, batch.plan.isolation)
    if problems:
        problems += sorted(lost)
        reason = f"its ranges can no longer be read: {listing(problems)}"
        # A Spark that ended while Kafka was asked may have written what the log has lost: check once more.
        if pin_first_valid_receipt(batch, control, kafka, sinks, actor=actor):
            return True
        jumps = [
            jump
            for jump in jumps_over_lost(batch.plan, bounds, feed, settings)
            if jump.topic_partition.topic not in held
        ]
        try:
            control.abandon(batch.batch_id, only_from={BatchState.PLANNED}, reason=reason, actor=actor, jumps=jumps)
        except BatchStateError as error:
            log.info("%s", error)
        else:
            log.warning("batch %s is abandoned: %s", batch.batch_id, reason)
            for gap in (gap for jump in jumps for gap in jump.gaps):
                log.warning("gap %s (%s): %s", gap.offset_range, gap.cause, gap.reason)
        return False
    if lost:
        log.warning("batch %s is resumed without what was deleted: %s", batch.batch_id, listing(sorted(lost)))
    # Kafka may take long to answer: an operator may have abandoned the batch in the meantime.
    return control.batch(batch.batch_id).state.is_open


def any_answers(
    feed: FeedSnapshot,
    of_batch: Mapping[TopicPartition, LogBounds | Unavailable],
    settings: FeedPlanSettings,
    kafka: KafkaCluster,
) -> bool:
    """Return whether Kafka can answer for any partition of the feed, in the batch or not."""
    if any(isinstance(found, LogBounds) for found in of_batch.values()):
        return True
    others = [tp for tp in feed.stored if tp not in of_batch and settings.selects(tp.topic)]
    return any(isinstance(found, LogBounds) for found in kafka.log_bounds(others).values())


def held_topics(batch: Batch, settings: FeedPlanSettings, kafka: KafkaCluster) -> dict[str, str]:
    """Return which topics of a batch are deleted or recreated, if the feed continues without them; otherwise raise."""
    topic_ids = batch.plan.topic_ids
    described = kafka.describe_topics(topic_ids.keys())
    check_cluster(batch.plan.cluster_id, kafka.cluster_id(), batch.feed_name)
    held: dict[str, str] = {}
    for topic, topic_id in sorted(topic_ids.items()):
        try:
            check_topic_ids({topic: topic_id}, described, batch.feed_name)
        except TopicGoneError as error:
            if settings.on_missing_topic is OnMissingTopic.STOP:
                raise
            held[topic] = str(error)
        except TopicRecreatedError as error:
            if settings.on_topic_changed is OnTopicChanged.STOP:
                raise
            held[topic] = str(error)
    return held


def unreadable_ranges(
    plan: BatchPlan, feed: FeedSnapshot, settings: FeedPlanSettings, kafka: KafkaCluster
) -> list[str]:
    """Return which of a plan's ranges hold an offset that an attempt found unreadable and Kafka still cannot read."""
    held = unreadable_offsets(feed)
    inside = {
        offset_range.topic_partition: held[offset_range.topic_partition]
        for offset_range in plan.ranges
        if offset_range.start_offset <= held.get(offset_range.topic_partition, -1) < offset_range.end_offset
    }
    found = kafka.unreadable_at(inside, settings.surely_fits) if inside else {}
    return [f"{tp}: {reason.reason if isinstance(reason, Unavailable) else reason}" for tp, reason in found.items()]


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
