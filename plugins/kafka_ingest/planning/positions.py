"""Where each partition stands and how far it can be read: seeds, gaps and holds. Pure."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import datetime

from kafka_ingest.errors import OffsetsLostError, StoredOffsetBeyondLogError
from kafka_ingest.foundation.counting import counted
from kafka_ingest.model.control_rows import FeedSnapshot
from kafka_ingest.model.gap import Gap, GapCause, Jump, NewGap
from kafka_ingest.model.hold import Hold, HoldCause, beyond_log, offsets_lost
from kafka_ingest.model.offsets import Isolation, LogBounds, OffsetRange, StoredOffset, TopicPartition, listing
from kafka_ingest.model.topics import is_other_topic
from kafka_ingest.planning.settings import EndPositions, FeedPlanSettings, NewPartition, ToOffsets, ToTimestamp
from kafka_ingest.planning.topics import KafkaAnswers


@dataclass(frozen=True, slots=True)
class Position:
    """One partition that takes part: the next offset to read, where reading has to end, and what was passed over.

    ``cut_short``: there is more to read after a gap ahead.
    """

    topic_partition: TopicPartition
    offset: int
    end_offset: int
    bounds: LogBounds
    jump: Jump | None = None
    cut_short: bool = False

    @property
    def lag(self) -> int:
        """How many offsets can be read now; none where an open transaction begins before the stored offset."""
        return max(0, self.end_offset - self.offset)

    @property
    def lost(self) -> list[OffsetRange]:
        """What Kafka deleted before it was read."""
        gaps = self.jump.gaps if self.jump is not None else ()
        return [gap.offset_range for gap in gaps if gap.cause is GapCause.RETENTION]

    @property
    def is_beyond_log(self) -> bool:
        return self.offset > self.bounds.high_watermark

    @property
    def headroom(self) -> int:
        """How many offsets retention can delete before it reaches one that was not read."""
        return self.offset - self.bounds.log_start_offset


@dataclass(slots=True)
class Way:
    """The way of a stored offset over gaps; it only goes forward."""

    topic_partition: TopicPartition
    offset: int
    ahead: list[Gap]
    gaps: list[NewGap] = field(default_factory=list)
    passed: list[Gap] = field(default_factory=list)

    def pass_to(self, target: int, cause: GapCause, reason: str) -> None:
        """Go to an offset, filing what is in between, apart from gaps that are filed there already."""
        while self.ahead and self.ahead[0].offset_range.start_offset <= max(self.offset, target):
            gap = self.ahead.pop(0)
            self._file(gap.offset_range.start_offset, cause, reason)
            self.passed.append(gap)
            self.offset = max(self.offset, gap.offset_range.end_offset)
        self._file(target, cause, reason)

    def _file(self, upto: int, cause: GapCause, reason: str) -> None:
        if self.offset < upto:
            self.gaps.append(NewGap(OffsetRange(self.topic_partition, self.offset, upto), cause, reason))
            self.offset = upto

    def jump_from(self, start: int) -> Jump | None:
        """Return what moved the stored offset, or was found behind it; None where nothing did."""
        if self.offset == start and not self.passed:
            return None
        return Jump(self.topic_partition, start, self.offset, tuple(self.gaps), tuple(self.passed))


def gaps_by_partition(feed: FeedSnapshot) -> dict[TopicPartition, list[Gap]]:
    found: dict[TopicPartition, list[Gap]] = {}
    for gap in feed.gaps_ahead:
        found.setdefault(gap.offset_range.topic_partition, []).append(gap)
    return found


def after_gaps(offset: int, gaps_ahead: Collection[Gap]) -> int:
    """Return where a stored offset stands once it has passed the gaps that begin there."""
    for gap in sorted(gaps_ahead, key=lambda gap: gap.offset_range.start_offset):
        if gap.offset_range.start_offset <= offset:
            offset = max(offset, gap.offset_range.end_offset)
    return offset


def position_of(
    topic_partition: TopicPartition,
    offset: int,
    bounds: LogBounds,
    end_offset: int,
    gaps_ahead: Collection[Gap],
    skip_to_latest_when_behind: int | None,
    unreadable_at: int | None,
) -> Position:
    """Return a partition's position after it passed over deleted records, gaps filed ahead, and what is too far behind.

    ``end_offset`` is how far it may be read; ranges also end where a gap is ahead, and at an offset that no consumer
    can read.
    """
    way = Way(topic_partition, offset, sorted(gaps_ahead, key=lambda gap: gap.offset_range.start_offset))
    log_start = bounds.log_start_offset
    way.pass_to(log_start, GapCause.RETENTION, f"the log starts at {log_start:,}: Kafka deleted what lies before")
    lag = end_offset - way.offset
    if skip_to_latest_when_behind is not None and lag > skip_to_latest_when_behind:
        reason = f"{lag:,} behind, more than skip_to_latest_when_behind: {skip_to_latest_when_behind:,}"
        way.pass_to(end_offset, GapCause.BEHIND, reason)
    end, cut_short = end_offset, False
    if way.ahead and way.ahead[0].offset_range.start_offset < end:
        end, cut_short = way.ahead[0].offset_range.start_offset, way.ahead[0].offset_range.end_offset < end
    if unreadable_at is not None and way.offset <= unreadable_at < end:
        end, cut_short = unreadable_at, False
    return Position(topic_partition, way.offset, end, bounds, way.jump_from(offset), cut_short)


def positions_of(
    offsets: Mapping[TopicPartition, tuple[int, LogBounds]],
    feed: FeedSnapshot,
    unreadable: Mapping[TopicPartition, Hold],
    answers: KafkaAnswers,
    settings: FeedPlanSettings,
    end: EndPositions,
) -> list[Position]:
    gaps_ahead = gaps_by_partition(feed)
    ends = {tp: end_of(tp, bounds, answers, settings, end) for tp, (_, bounds) in offsets.items()}
    if isinstance(end, ToOffsets):
        end.check(ends)
        ends = {tp: max(offset, end.offsets.get(tp, offset)) for tp, (offset, _) in offsets.items()}
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


def end_of(
    topic_partition: TopicPartition,
    bounds: LogBounds,
    answers: KafkaAnswers,
    settings: FeedPlanSettings,
    end: EndPositions,
) -> int:
    readable = bounds.readable_end(settings.isolation)
    at_timestamp = answers.end_offsets_at.get(topic_partition) if isinstance(end, ToTimestamp) else None
    return min(readable, at_timestamp) if isinstance(at_timestamp, int) else readable


def check_nothing_lost(
    positions: Collection[Position], seeds: Collection[StoredOffset], feed_name: str, cluster_id: str
) -> None:
    """Raise OffsetsLostError where unread records are deleted, naming every such partition with both numbers."""
    lost = [(offset_range, position) for position in positions for offset_range in position.lost]
    if not lost:
        return
    rule_of = {seed.topic_partition: seed.seeded_by for seed in seeds}
    texts: list[str] = []
    for offset_range, position in lost:
        tp, start = offset_range.topic_partition, f"{offset_range.start_offset:,}"
        begins = f"begins at {start} ({rule_of[tp]})" if tp in rule_of else f"stored offset {start}"
        gone = f"log start {position.bounds.log_start_offset:,} ({counted(offset_range.span, 'offset')} gone)"
        texts.append(f"{tp}: {begins}, {gone}")
    # Where a start rule decides, the feed file is what to change; a new partition begins at 0 and can be skipped from
    # there.
    by_rule = {tp for tp, rule in rule_of.items() if rule != str(NewPartition())}
    first = next((offset_range for offset_range, _ in lost if offset_range.topic_partition not in by_rule), None)
    one_by_one = (
        f", or partition by partition: `kafka-ingest skip {feed_name} {first.topic} {first.partition} "
        f"{first.start_offset}-{first.end_offset} --reason …`"
        if first is not None
        else ""
    )
    raise OffsetsLostError(
        f"feed {feed_name}: records were deleted by retention before they were read (cluster {cluster_id}): "
        f"{listing(texts)}. Nothing was planned and no offset moved. To continue from the log start with a gap on "
        f"record: on_data_loss: record_gap in the feed file{one_by_one}. With on_data_loss: hold the feed's other "
        "partitions continue."
    )


def check_not_beyond(
    positions: Collection[Position], held: Mapping[TopicPartition, Hold], cluster_id: str, feed_name: str
) -> None:
    """Raise StoredOffsetBeyondLogError where a position is, or once was, above the log's end; never rewind silently."""
    beyond: list[str] = []
    for position in positions:
        seen = held.get(position.topic_partition)
        if seen is not None or position.is_beyond_log:
            log_end = position.bounds.high_watermark
            text = f"{position.topic_partition}: stored offset {position.offset:,}, log end {log_end:,}"
            seen_end = f", and {seen.at_offset:,} on {seen.since:%Y-%m-%d %H:%M} UTC" if seen is not None else ""
            beyond.append(text + seen_end)
    if beyond:
        raise StoredOffsetBeyondLogError(
            f"stored offsets are beyond the end of the log (cluster {cluster_id}): {listing(beyond)}. The log was "
            "truncated (an unclean leader election), or this is not the cluster they were read from. Nothing was "
            "planned; the feed stays stopped, also when the log grows past them, since other records are there now: "
            f"`kafka-ingest topic-changed {feed_name}` shows what can be done. With on_data_loss: hold the feed's "
            "other partitions continue."
        )


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


def unreadable_offsets(feed: FeedSnapshot) -> Mapping[TopicPartition, int]:
    """Return the offsets at which partitions have been unreadable so far."""
    return {
        hold.topic_partition: hold.at_offset
        for hold in feed.holds
        if hold.cause is HoldCause.UNREADABLE and hold.topic_partition is not None and hold.at_offset is not None
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
