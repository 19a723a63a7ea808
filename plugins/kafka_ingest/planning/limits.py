"""How large the next batch is: its limit, whose turn it is, and what each partition gets of it. Pure.

Where the feed names no limit, a batch is what this machine reads in minutes. The whole backlog at once would take
hours, and a failure or retention would waste them all. Small batches cost little: some seconds each.

Where retention threatens some partitions, their loss must not cost the others their work. A batch that loses a part of
one range while it is read leaves that range out, and reads the others again. A partition that lost records twice may
lose more: read together, it would cost the others that again and again, and none of it would ever be read. So such
partitions are read apart from the others until something was read of them, in small batches, which are quicker than
retention; whichever waited longer comes first. Of an endangered batch, too, what lost nothing is committed.
"""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from kafka_ingest.model.control_rows import FeedSnapshot
from kafka_ingest.model.offsets import OffsetRange, TopicPartition
from kafka_ingest.planning.positions import Position
from kafka_ingest.planning.settings import FeedPlanSettings

TIME_OF_A_BATCH = timedelta(minutes=10)
LEAST_RECORDS = 500_000
"""Also the limit of a feed's first batch, whose speed is unknown: seconds for small records, minutes at 100 KB each."""


def with_default_limit(settings: FeedPlanSettings, speeds: Collection[float]) -> FeedPlanSettings:
    """Return the settings with the next batch's limit, where the feed file names none and the limit follows the speed.

    ``max_records`` in such settings is the limit of one run: it makes the batch smaller, never larger. ``speeds`` are
    offsets per second, from an attempt's beginning to its receipt. The highest one counts: in small batches Spark's
    start dominates, and a batch that waited for a busy cluster says nothing about the next.
    """
    in_time = round(max(speeds, default=0.0) * TIME_OF_A_BATCH.total_seconds())
    default = max(LEAST_RECORDS, settings.min_records or 0, in_time)
    return replace(settings, max_records=min(default, settings.max_records or default))


def within(limit: int | None, most_rows: int | None) -> int | None:
    """Return a batch's limit in records, where its output takes ``most_rows`` in one commit; None stands for no limit.

    A record is one row at most, so the batch fits.
    """
    return min((each for each in (limit, most_rows) if each is not None), default=None)


SHARE_OF_A_BATCH = 10


@dataclass(frozen=True, slots=True)
class Turn:
    """What the next batch reads. ``is_endangered``: these partitions lost records twice, and were not read since."""

    positions: Sequence[Position]
    is_endangered: bool = False

    def max_records(self, of_feed: int | None) -> int | None:
        """Return the batch's largest number of records: few of endangered partitions, to be faster than retention."""
        if not self.is_endangered:
            return of_feed
        return LEAST_RECORDS if of_feed is None else max(1, of_feed // SHARE_OF_A_BATCH)


def cut_ranges(
    positions: Collection[Position], feed: FeedSnapshot, settings: FeedPlanSettings
) -> tuple[tuple[OffsetRange, ...], bool]:
    """Return the non-empty ranges within the feed's limits, sorted, and whether records were left behind."""
    turn = turn_of(positions, feed)
    lags = {position.topic_partition: position.lag for position in turn.positions}
    headroom = {position.topic_partition: position.headroom for position in turn.positions}
    unmoved_since = {tp: row.updated_at for tp, row in feed.stored.items() if row.updated_at is not None}
    max_records = turn.max_records(settings.max_records)
    shares = share_fairly(lags, headroom, unmoved_since, max_records, settings.max_records_per_partition)
    ranges = tuple(
        OffsetRange(position.topic_partition, position.offset, position.offset + shares[position.topic_partition])
        for position in positions
        if position.topic_partition in shares
    )
    to_read = sum(position.lag for position in positions)
    left_behind = sum(shares.values()) < to_read or any(position.cut_short for position in positions)
    return ranges, bool(ranges) and left_behind


def is_too_little(
    ranges: Collection[OffsetRange], feed: FeedSnapshot, settings: FeedPlanSettings, now: datetime
) -> bool:
    """Whether a batch would be smaller than the feed wants, and has not waited long enough yet.

    Offsets are counted, which on compacted topics are more than the records: such a batch may come earlier than asked
    for.
    """
    found = sum(offset_range.span for offset_range in ranges)
    if settings.min_records is None or settings.max_wait is None or not 0 < found < settings.min_records:
        return False
    return feed.waiting_since is None or now - feed.waiting_since < settings.max_wait


def turn_of(positions: Collection[Position], feed: FeedSnapshot) -> Turn:
    """Return whose turn it is, of the partitions that have something to read."""
    endangered = [position for position in positions if position.topic_partition in feed.behind_losses]
    others = [position for position in positions if position.topic_partition not in feed.behind_losses]
    both = (Turn(endangered, is_endangered=True), Turn(others))
    turns = [turn for turn in both if any(each.lag for each in turn.positions)]
    # Of those that waited equally long the endangered come first.
    return min(turns, key=lambda turn: (last_moved(turn, feed), not turn.is_endangered), default=Turn(()))


def last_moved(turn: Turn, feed: FeedSnapshot) -> float:
    """Return when the newest of some stored offsets was moved, by a commit or over a gap."""
    return max(moved_at(position, feed) for position in turn.positions)


def moved_at(position: Position, feed: FeedSnapshot) -> float:
    """Return when a stored offset was moved, in seconds: the latest time where this plan moves it, 0 for never."""
    if position.jump is not None:
        return math.inf
    row = feed.stored.get(position.topic_partition)
    return row.updated_at.timestamp() if row is not None and row.updated_at is not None else 0.0


def share_fairly(
    lags: Mapping[TopicPartition, int],
    headroom: Mapping[TopicPartition, int],
    unmoved_since: Mapping[TopicPartition, datetime],
    max_records: int | None,
    max_records_per_partition: int | None,
) -> dict[TopicPartition, int]:
    """Return how many offsets to take of each partition, 0 left out.

    Where the limit is too small for all, one each, so that a small partition next to a huge one is not starved (of as
    many as it allows: see ``some_of``); of the rest one half in order of headroom (offsets between log start and
    stored offset), least first, since retention reaches those partitions first; the other half, and all of it where
    the headroom is the same everywhere, proportional to lag, so that all reach their ends together. The shares add up
    to exactly ``max_records`` whenever there is that much to read, and do not depend on the order of the input.
    """
    wanted = {
        topic_partition: min(lag, max_records_per_partition or lag)
        for topic_partition, lag in sorted(lags.items())
        if lag > 0
    }
    if max_records is None or sum(wanted.values()) <= max_records:
        return wanted
    if max_records <= len(wanted):
        return dict.fromkeys(some_of(wanted, headroom, unmoved_since, max_records), 1)

    shares = dict.fromkeys(wanted, 1)
    spare = max_records - len(wanted)
    by_headroom: dict[int, list[TopicPartition]] = {}
    for topic_partition in wanted:
        by_headroom.setdefault(headroom[topic_partition], []).append(topic_partition)
    for_the_urgent = spare // 2 if len(by_headroom) > 1 else 0
    for level in sorted(by_headroom):
        of_level = {topic_partition: wanted[topic_partition] - 1 for topic_partition in by_headroom[level]}
        for topic_partition, share in in_proportion(of_level, for_the_urgent).items():
            shares[topic_partition] += share
        for_the_urgent -= min(for_the_urgent, sum(of_level.values()))
        if not for_the_urgent:
            break
    left = {topic_partition: wanted[topic_partition] - share for topic_partition, share in shares.items()}
    for topic_partition, share in in_proportion(left, max_records - sum(shares.values())).items():
        shares[topic_partition] += share
    return shares


def some_of(
    partitions: Collection[TopicPartition],
    headroom: Mapping[TopicPartition, int],
    unmoved_since: Mapping[TopicPartition, datetime],
    count: int,
) -> list[TopicPartition]:
    """Return ``count`` of the partitions: half by headroom, half those that waited longest.

    Each partition has its turn, whatever the others' headroom is. One without a stored offset has waited longest.
    """
    by_headroom = sorted(partitions, key=lambda topic_partition: (headroom[topic_partition], topic_partition))
    most_urgent = set(by_headroom[: count // 2])
    by_waiting = sorted(
        set(partitions) - most_urgent,
        key=lambda topic_partition: (
            unmoved_since[topic_partition].timestamp() if topic_partition in unmoved_since else 0.0,
            headroom[topic_partition],
            topic_partition,
        ),
    )
    return sorted(most_urgent.union(by_waiting[: count - len(most_urgent)]))


def in_proportion(amounts: Mapping[TopicPartition, int], budget: int) -> dict[TopicPartition, int]:
    """Return a share of each amount, together exactly the budget or all there is; rounded by largest remainder."""
    total = sum(amounts.values())
    if total <= budget:
        return dict(amounts)
    shares: dict[TopicPartition, int] = {}
    remainders: list[tuple[int, TopicPartition]] = []
    for topic_partition, amount in amounts.items():
        shares[topic_partition], remainder = divmod(budget * amount, total)
        remainders.append((-remainder, topic_partition))
    for _, topic_partition in sorted(remainders)[: budget - sum(shares.values())]:
        shares[topic_partition] += 1
    return shares
