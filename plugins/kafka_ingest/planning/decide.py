"""Decide a plan from stored offsets, Kafka's answers and settings: seeds, gaps and ranges, or a named error. Pure."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import datetime

from kafka_ingest.model.control_rows import FeedSnapshot
from kafka_ingest.model.gap import Gap, Jump, NewGap
from kafka_ingest.model.hold import Hold, HoldCause, dated
from kafka_ingest.model.offsets import OffsetRange, StoredOffset, TopicPartition
from kafka_ingest.model.topics import check_cluster
from kafka_ingest.planning.limits import cut_ranges, is_too_little
from kafka_ingest.planning.positions import (
    check_not_beyond,
    check_nothing_lost,
    held_beyond_log,
    held_by_loss,
    holds_of,
    positions_of,
    still_unreadable,
)
from kafka_ingest.planning.settings import EndPositions, FeedPlanSettings, OnDataLoss
from kafka_ingest.planning.starts import starts_of
from kafka_ingest.planning.topics import KafkaAnswers, topics_of_feed


@dataclass(frozen=True, slots=True)
class PlanDecision:
    """What to write down: seeds of partitions without a stored offset, gaps, holds, and the ranges of the batch.

    There are no ranges where nothing is new, or where ``waiting_records`` are too few, ``waiting_since`` then.
    ``left_out`` says which partitions take no part although they should, and why. ``answered`` counts the partitions
    that take part. ``capped`` says whether ``max_records`` or another limit, a gap ahead, or the turn of
    others left records behind that could be read at once. ``lag`` counts the offsets that Kafka would let the feed
    read, whatever its limits.
    """

    cluster_id: str
    topics: Collection[str]
    topic_ids: Mapping[str, str | None]
    seeds: tuple[StoredOffset, ...]
    jumps: tuple[Jump, ...]
    ranges: tuple[OffsetRange, ...]
    leader_epochs: Mapping[TopicPartition, int]
    capped: bool
    answered: int
    holds: tuple[Hold, ...] = ()
    left_out: Mapping[TopicPartition, str] = field(default_factory=dict)
    waiting_since: datetime | None = None
    waiting_records: int = 0
    max_records: int | None = None
    lag: int = 0

    @property
    def gaps(self) -> list[NewGap | Gap]:
        """The gaps that are passed over, new ones and those that were filed ahead."""
        found: list[NewGap | Gap] = []
        for jump in self.jumps:
            found += [*jump.gaps, *jump.passed]
        return found


def decide(
    feed: FeedSnapshot,
    answers: KafkaAnswers,
    settings: FeedPlanSettings,
    *,
    now: datetime,
    end: EndPositions = None,
) -> PlanDecision:
    """Return what the feed's next batch is.

    Stored offsets always win; the start rule counts only where there is none. The feed may hold partitions of topics
    that it no longer names: they keep their rows and take no part.
    """
    check_cluster(feed.cluster_id or None, answers.cluster_id, settings.name)
    topics = topics_of_feed(feed, settings, answers.topics, answers.cluster_id, now)
    starts = starts_of(feed, topics.present, answers, settings, now, end)
    unreadable = still_unreadable(feed, answers)
    positions = positions_of(starts.offsets, feed, unreadable, answers, settings, end)
    beyond = held_beyond_log(feed)
    losses = held_by_loss(positions, beyond, now) if settings.on_data_loss is OnDataLoss.HOLD else []
    lost = {hold.topic_partition for hold in losses}
    others = [position for position in positions if position.topic_partition not in lost]
    if not others or settings.on_data_loss is not OnDataLoss.HOLD:
        # Where no other partition takes part, a hold would be a successful run that never reads anything.
        check_not_beyond(positions, beyond, answers.cluster_id, settings.name)
        if settings.on_data_loss is not OnDataLoss.RECORD_GAP:
            check_nothing_lost(positions, starts.seeds, settings.name, answers.cluster_id)

    ranges, capped = cut_ranges(others, feed, settings)
    waiting_since: datetime | None = None
    waiting_records = 0
    # What a limit cut off, or a gap ahead, would not grow by waiting.
    if end is not None:
        # A run with a requested end says nothing about how long the other records wait.
        waiting_since = feed.waiting_since
    elif not capped and is_too_little(ranges, feed, settings, now):
        waiting_since = feed.waiting_since or now
        waiting_records, ranges, capped = sum(offset_range.span for offset_range in ranges), (), False
    unreadable = {tp: hold for tp, hold in unreadable.items() if tp.topic in topics.names}
    held = [*starts.holds, *holds_of(positions, unreadable, settings.isolation, now), *losses]
    holds = [*topics.holds, *held, *(hold for tp, hold in sorted(beyond.items()) if tp not in lost)]
    return PlanDecision(
        cluster_id=answers.cluster_id,
        topics=topics.names,
        topic_ids=starts.topic_ids,
        seeds=tuple(starts.seeds),
        jumps=tuple(position.jump for position in others if position.jump is not None),
        ranges=ranges,
        leader_epochs={
            position.topic_partition: position.bounds.leader_epoch
            for position in others
            if position.bounds.leader_epoch is not None
        },
        capped=capped,
        answered=len(positions),
        holds=dated(holds, feed.holds),
        left_out={
            hold.topic_partition: hold.reason
            for hold in held
            if hold.topic_partition is not None and hold.cause is not HoldCause.OPEN_TRANSACTION
        },
        waiting_since=waiting_since,
        waiting_records=waiting_records,
        max_records=settings.max_records,
        lag=sum(max(0, each.bounds.readable_end(settings.isolation) - each.offset) for each in positions),
    )
