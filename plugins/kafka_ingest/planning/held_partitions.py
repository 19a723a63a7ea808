"""Which partitions are held: by an open transaction, an unreadable or deleted record, or a truncated log. Pure."""

from collections.abc import Collection, Mapping
from datetime import datetime

from kafka_ingest.foundation.counting import counted
from kafka_ingest.model.control_rows import FeedSnapshot
from kafka_ingest.model.hold import Hold, HoldCause, beyond_log, offsets_lost
from kafka_ingest.model.identity import is_other_topic
from kafka_ingest.model.offsets import Isolation, LogBounds, TopicPartition
from kafka_ingest.planning.positions import Position, after_gaps, gaps_by_partition
from kafka_ingest.planning.topic_age import KafkaAnswers


def still_unreadable(feed: FeedSnapshot, answers: KafkaAnswers) -> dict[TopicPartition, Hold]:
    """Return the holds on records that no consumer can read: tried again for this plan, unless Kafka cannot answer."""
    return {
        hold.topic_partition: hold
        for hold in feed.holds
        if hold.cause is HoldCause.UNREADABLE
        and hold.topic_partition is not None
        and (
            hold.topic_partition in answers.unreadable
            or not isinstance(answers.bounds.get(hold.topic_partition), LogBounds)
        )
    }


def newly_beyond_log(feed: FeedSnapshot, answers: KafkaAnswers, now: datetime) -> list[Hold]:
    """Return a hold for each stored offset above the log's end, or above an offset where the log was truncated.

    Not where an end as low was seen before. Only where the log is the one that the stored offsets belong to: the same
    cluster and topic.
    """
    if answers.cluster_id != feed.cluster_id:
        return []
    seen, ahead = held_beyond_log(feed), gaps_by_partition(feed)
    found: list[Hold] = []
    for tp, row in sorted(feed.stored.items()):
        bounds, described = answers.bounds.get(tp), answers.topics.get(tp.topic)
        if row.next_offset is None or described is None or not isinstance(bounds, LogBounds):
            continue
        known_end = seen[tp].at_offset if tp in seen else None
        end = min(bounds.high_watermark, answers.cut_off_at.get(tp, bounds.high_watermark))
        is_seen = known_end is not None and known_end <= end
        is_inside = (
            tp not in answers.cut_off_at and after_gaps(row.next_offset, ahead.get(tp, ())) <= bounds.high_watermark
        )
        if is_inside or is_seen or is_other_topic(row.topic_id, described.topic_id):
            continue
        found.append(beyond_log(tp, row.next_offset, end, now))
    return found


def held_beyond_log(feed: FeedSnapshot) -> dict[TopicPartition, Hold]:
    """Return the lowest log end that was seen below each stored offset, where no operator has decided yet."""
    lowest: dict[TopicPartition, Hold] = {}
    for hold in feed.holds:
        tp = hold.topic_partition
        if hold.cause is not HoldCause.BEYOND_LOG or tp is None or hold.at_offset is None:
            continue
        known = lowest.get(tp)
        if known is None or known.at_offset is None or hold.at_offset < known.at_offset:
            lowest[tp] = hold
    return lowest


def held_by_loss(positions: Collection[Position], beyond: Mapping[TopicPartition, Hold], now: datetime) -> list[Hold]:
    """Return a hold for each partition that lost records, or whose log ends, or ended once, below its stored offset."""
    holds: list[Hold] = []
    for position in positions:
        tp, bounds = position.topic_partition, position.bounds
        if tp in beyond:
            holds.append(beyond[tp])
        elif position.is_beyond_log:
            holds.append(beyond_log(tp, position.offset, bounds.high_watermark, now))
        elif position.lost:
            holds.append(offsets_lost(position.lost[0], bounds.log_start_offset, now))
    return holds


def holds_of(
    positions: Collection[Position],
    unreadable: Mapping[TopicPartition, Hold],
    isolation: Isolation,
    now: datetime,
) -> list[Hold]:
    """Return the partitions held by an open transaction, and those that are still unreadable and not passed over."""
    at = {position.topic_partition: position.offset for position in positions}
    # One that takes no part now (it has no leader) is as unreadable as before when it is back.
    holds = [
        hold for tp, hold in sorted(unreadable.items()) if hold.at_offset is None or hold.at_offset >= at.get(tp, 0)
    ]
    if isolation is not Isolation.READ_COMMITTED:
        return holds
    for position in positions:
        tp, bounds = position.topic_partition, position.bounds
        if bounds.last_stable_offset < bounds.high_watermark:
            behind = bounds.high_watermark - bounds.last_stable_offset
            reason = (
                f"an open transaction begins at offset {bounds.last_stable_offset:,}: "
                f"{counted(behind, 'offset')} behind it"
            )
            at_offset = bounds.last_stable_offset
            holds.append(Hold(tp.topic, tp.partition, HoldCause.OPEN_TRANSACTION, reason, now, at_offset))
    return holds
