"""Decide: stored offsets, Kafka's answers and the feed's settings in; seeds, gaps and ranges out, or a named error. Pure."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import datetime

from kafka_ingest.boundaries import FeedSnapshot
from kafka_ingest.gap import Gap, Jump, NewGap
from kafka_ingest.hold import Hold, HoldCause, dated
from kafka_ingest.identity import check_cluster
from kafka_ingest.offsets import (
    Isolation,
    LogBounds,
    OffsetRange,
    StoredOffset,
    TopicDescription,
    TopicPartition,
    Unavailable,
)
from kafka_ingest.planning.end_positions import EndPositions, ToOffsets, ToTimestamp
from kafka_ingest.planning.limits import share_fairly
from kafka_ingest.planning.positions import Position, check_not_beyond, check_nothing_lost, position_of
from kafka_ingest.planning.settings import FeedPlanSettings, OnDataLoss
from kafka_ingest.planning.start_rules import PartitionAnswers
from kafka_ingest.planning.topics import rules_to_resolve, topics_of_feed


@dataclass(frozen=True, slots=True)
class KafkaAnswers:
    """What Kafka said when it was asked for this plan. A topic it does not have is not in ``topics``.

    ``start_offsets_at`` and ``group_offsets`` are of partitions whose start rule asks for them, ``end_offsets_at`` is there
    where a manual run ends at a time. ``unreadable`` says which held offsets still cannot be read.
    """

    cluster_id: str
    topics: Mapping[str, TopicDescription]
    bounds: Mapping[TopicPartition, LogBounds | Unavailable]
    start_offsets_at: Mapping[TopicPartition, int | Unavailable | None] = field(default_factory=dict)
    group_offsets: Mapping[TopicPartition, int | None] = field(default_factory=dict)
    end_offsets_at: Mapping[TopicPartition, int | Unavailable | None] = field(default_factory=dict)
    unreadable: Collection[TopicPartition] = ()


@dataclass(frozen=True, slots=True)
class PlanDecision:
    """What to write down: seeds of partitions without a stored offset, gaps, holds, and the ranges of the batch.

    There are no ranges where nothing is new, or where ``waiting_since`` says that too little is. ``left_out`` says which
    partitions take no part although they should, and why. ``answered`` counts the partitions that take part. ``capped`` says
    whether a limit, or a gap that lies ahead, left records behind that could be read at once.
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

    @property
    def gaps(self) -> list[NewGap | Gap]:
        """The gaps that are passed over, new ones and those that were filed ahead."""
        found: list[NewGap | Gap] = []
        for jump in self.jumps:
            found += [*jump.gaps, *jump.passed]
        return found


def decide(
    feed: FeedSnapshot | None,
    answers: KafkaAnswers,
    settings: FeedPlanSettings,
    *,
    now: datetime,
    end: EndPositions = None,
) -> PlanDecision:
    """Return what the feed's next batch is.

    Stored offsets always win; the start rule counts only where there is none. The feed may hold partitions of topics that it
    no longer names: they keep their rows and take no part.
    """
    check_cluster(feed.cluster_id if feed is not None else None, answers.cluster_id, settings.name)
    topics = topics_of_feed(feed, settings, answers.topics, answers.cluster_id, now)
    starts = starts_of(feed, topics.present, answers, settings, now, end)
    unreadable = still_unreadable(feed, answers)
    positions = positions_of(starts.offsets, feed, unreadable, answers, settings, end)
    check_not_beyond(positions, answers.cluster_id)
    if settings.on_data_loss is OnDataLoss.FAIL:
        seeded = {seed.topic_partition for seed in starts.seeds}
        check_nothing_lost(positions, seeded, settings.name, answers.cluster_id)

    ranges, capped = cut_ranges(positions, settings)
    waiting_since, waiting_records = None, 0
    # What a limit cut off, or a gap ahead, would not grow by waiting.
    if end is None and not capped and is_too_little(ranges, feed, settings, now):
        waiting_since = (feed.waiting_since if feed is not None else None) or now
        waiting_records, ranges, capped = sum(offset_range.span for offset_range in ranges), (), False
    holds = [*topics.holds, *starts.holds, *holds_of(positions, unreadable, settings.isolation, now)]
    return PlanDecision(
        cluster_id=answers.cluster_id,
        topics=topics.names,
        topic_ids=starts.topic_ids,
        seeds=tuple(starts.seeds),
        jumps=tuple(position.jump for position in positions if position.jump is not None),
        ranges=ranges,
        leader_epochs={
            position.topic_partition: position.bounds.leader_epoch
            for position in positions
            if position.bounds.leader_epoch is not None
        },
        capped=capped,
        answered=len(positions),
        holds=dated(holds, feed.holds if feed is not None else []),
        left_out={
            hold.topic_partition: hold.reason
            for hold in holds
            if hold.topic_partition is not None and hold.cause in {HoldCause.NO_ANSWER, HoldCause.UNREADABLE}
        },
        waiting_since=waiting_since,
        waiting_records=waiting_records,
    )


@dataclass(slots=True)
class Starts:
    """Where partitions begin: stored offsets and new seeds, and holds on those for which Kafka cannot answer now."""

    topic_ids: Mapping[str, str | None]
    offsets: dict[TopicPartition, tuple[int, LogBounds]] = field(default_factory=dict)
    seeds: list[StoredOffset] = field(default_factory=list)
    holds: list[Hold] = field(default_factory=list)


def starts_of(
    feed: FeedSnapshot | None,
    present: Mapping[str, TopicDescription],
    answers: KafkaAnswers,
    settings: FeedPlanSettings,
    now: datetime,
    end: EndPositions,
) -> Starts:
    """Return the next offset to read of each partition: the stored one, or where its start rule begins."""
    stored = feed.stored if feed is not None else {}
    # A topic keeps the identity its first row was stored with, also where that is "not known": the commit compares it.
    known_ids = {topic_partition.topic: row.topic_id for topic_partition, row in stored.items()}
    starts = Starts({name: known_ids.get(name, found.topic_id) for name, found in sorted(present.items())})
    rules = rules_to_resolve(feed, settings, present)
    partitions = sorted(tp for description in present.values() for tp in description.topic_partitions())
    for topic_partition in partitions:
        rule, row = rules.get(topic_partition), stored.get(topic_partition)
        topic_id = starts.topic_ids[topic_partition.topic]
        bounds = bounds_of(topic_partition, answers, end)
        if isinstance(bounds, Unavailable):
            topic, number = topic_partition.topic, topic_partition.partition
            starts.holds.append(Hold(topic, number, HoldCause.NO_ANSWER, bounds.reason, now))
            if rule is not None and row is None:
                # Its start cannot be said yet; it counts as known from now on.
                starts.seeds.append(StoredOffset(topic_partition, topic_id, None, None, str(rule)))
        elif rule is not None:
            start = rule.resolve(topic_partition, answers_for(topic_partition, bounds, answers, settings.isolation))
            starts.seeds.append(
                StoredOffset(topic_partition, topic_id, start.offset, start.offset, start.note, bounds.leader_epoch)
            )
            starts.offsets[topic_partition] = (start.offset, bounds)
        elif row is not None and row.next_offset is not None:
            starts.offsets[topic_partition] = (row.next_offset, bounds)
    return starts


def positions_of(
    offsets: Mapping[TopicPartition, tuple[int, LogBounds]],
    feed: FeedSnapshot | None,
    unreadable: Mapping[TopicPartition, Hold],
    answers: KafkaAnswers,
    settings: FeedPlanSettings,
    end: EndPositions,
) -> list[Position]:
    """Return where each partition stands and how far it is read."""
    gaps_ahead: dict[TopicPartition, list[Gap]] = {}
    for gap in feed.gaps_ahead if feed is not None else []:
        gaps_ahead.setdefault(gap.offset_range.topic_partition, []).append(gap)
    ends = {tp: end_of(tp, bounds, answers, settings, end) for tp, (_, bounds) in offsets.items()}
    if isinstance(end, ToOffsets):
        end.check({tp: offset for tp, (offset, _) in offsets.items()}, ends)
        ends = {tp: end.offsets.get(tp, offset) for tp, (offset, _) in offsets.items()}
    return [
        position_of(
            topic_partition,
            offset,
            bounds,
            ends[topic_partition],
            gaps_ahead.get(topic_partition, ()),
            settings.skip_to_latest_when_behind if end is None else None,
            held.at_offset if (held := unreadable.get(topic_partition)) is not None else None,
        )
        for topic_partition, (offset, bounds) in sorted(offsets.items())
    ]


def still_unreadable(feed: FeedSnapshot | None, answers: KafkaAnswers) -> dict[TopicPartition, Hold]:
    """Return the holds on records that nobody could read when they were tried again for this plan."""
    return {
        hold.topic_partition: hold
        for hold in (feed.holds if feed is not None else [])
        if hold.cause is HoldCause.UNREADABLE
        and hold.topic_partition is not None
        and hold.topic_partition in answers.unreadable
    }


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
    """Return what a start rule may ask of one partition."""
    at_timestamp = answers.start_offsets_at.get(topic_partition)
    return PartitionAnswers(
        bounds,
        isolation,
        offset_at_timestamp=None if isinstance(at_timestamp, Unavailable) else at_timestamp,
        group_offset=answers.group_offsets.get(topic_partition),
    )


def end_of(
    topic_partition: TopicPartition,
    bounds: LogBounds,
    answers: KafkaAnswers,
    settings: FeedPlanSettings,
    end: EndPositions,
) -> int:
    """Return how far a partition may be read."""
    readable = bounds.readable_end(settings.isolation)
    at_timestamp = answers.end_offsets_at.get(topic_partition) if isinstance(end, ToTimestamp) else None
    return min(readable, at_timestamp) if isinstance(at_timestamp, int) else readable


def holds_of(
    positions: Collection[Position],
    unreadable: Mapping[TopicPartition, Hold],
    isolation: Isolation,
    now: datetime,
) -> list[Hold]:
    """Return the partitions that an open transaction holds back, and those that are still unreadable and not passed over."""
    holds: list[Hold] = []
    for position in positions:
        tp, bounds = position.topic_partition, position.bounds
        held = unreadable.get(tp)
        if held is not None and held.at_offset is not None and held.at_offset >= position.offset:
            holds.append(held)
        if isolation is Isolation.READ_COMMITTED and bounds.last_stable_offset < bounds.high_watermark:
            behind = bounds.high_watermark - bounds.last_stable_offset
            reason = (
                f"an open transaction begins at offset {bounds.last_stable_offset:,}: {behind:,} offsets wait behind it"
            )
            at_offset = bounds.last_stable_offset
            holds.append(Hold(tp.topic, tp.partition, HoldCause.OPEN_TRANSACTION, reason, now, at_offset))
    return holds


def cut_ranges(positions: Collection[Position], settings: FeedPlanSettings) -> tuple[tuple[OffsetRange, ...], bool]:
    """Return the non-empty ranges within the feed's limits, sorted, and whether records were left behind."""
    lags = {position.topic_partition: position.lag for position in positions}
    headroom = {position.topic_partition: position.headroom for position in positions}
    shares = share_fairly(lags, headroom, settings.max_records, settings.max_records_per_partition)
    ranges = tuple(
        OffsetRange(position.topic_partition, position.offset, position.offset + shares[position.topic_partition])
        for position in positions
        if position.topic_partition in shares
    )
    left_behind = sum(shares.values()) < sum(lags.values()) or any(position.cut_short for position in positions)
    return ranges, bool(ranges) and left_behind


def is_too_little(
    ranges: Collection[OffsetRange], feed: FeedSnapshot | None, settings: FeedPlanSettings, now: datetime
) -> bool:
    """Whether a batch would be smaller than the feed wants, and has not waited long enough yet.

    Offsets are counted, which on compacted topics are more than the records: such a batch may come earlier than asked for.
    """
    found = sum(offset_range.span for offset_range in ranges)
    if settings.min_records is None or settings.max_wait is None or not 0 < found < settings.min_records:
        return False
    since = feed.waiting_since if feed is not None else None
    return since is None or now - since < settings.max_wait
