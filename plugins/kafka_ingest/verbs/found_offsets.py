"""The offsets that a reset's target leads to, and those of a feed in another cluster, which has copies of its records.

A mirror keeps each partition's order and the records' own times. So the copy of a record is at, or after, the first
record of its time or later; from there on nothing is missed, and what lies before the copy is read a second time.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final, TypeVar

from kafka_ingest.batches.ask_kafka import cut_off_at, reached
from kafka_ingest.errors import (
    BatchStateError,
    InvalidRangeError,
    KafkaUnavailableError,
    StoredOffsetBeyondLogError,
    TopicGoneError,
    WrongUseError,
)
from kafka_ingest.foundation.counting import counted
from kafka_ingest.model.batch import BatchKind, BatchState
from kafka_ingest.model.control_rows import FeedSnapshot
from kafka_ingest.model.offsets import (
    FirstRecord,
    Isolation,
    LogBounds,
    StoredOffset,
    TopicPartition,
    Unavailable,
    listing,
)
from kafka_ingest.model.topics import check_cluster, check_topic_ids
from kafka_ingest.planning.positions import held_beyond_log
from kafka_ingest.planning.settings import FeedPlanSettings
from kafka_ingest.ports.cluster import KafkaCluster
from kafka_ingest.ports.control import ControlReader
from kafka_ingest.verbs.reset_target import (
    NewPosition,
    Place,
    ResetTarget,
    ToBatch,
    ToGroup,
    ToOffsets,
    ToTimestamp,
    cut_to_log,
)

Answer = TypeVar("Answer")


def partitions_meant(
    feed: FeedSnapshot, named: Mapping[str, Collection[int]], target: ResetTarget, settings: FeedPlanSettings
) -> list[StoredOffset]:
    """Return the stored offsets that a reset is about: those named, or all of the topics that the feed selects now.

    Raises InvalidRangeError where a topic or partition has none.
    """
    named = target.partitions if isinstance(target, ToOffsets) else named
    of_topic: dict[str, dict[int, StoredOffset]] = {}
    for tp, row in feed.stored.items():
        of_topic.setdefault(tp.topic, {})[tp.partition] = row
    topics = sorted(named or (topic for topic in of_topic if settings.selects(topic)))
    unknown = [topic for topic in topics if topic not in of_topic]
    if unknown or not topics:
        raise InvalidRangeError(
            f"feed {feed.name}: expected topics with stored offsets, which are "
            f"{listing(sorted(of_topic)) or 'none yet'}; found "
            f"{listing(unknown) or 'that the feed file selects none of them'}. Nothing was changed."
        )
    for topic in topics:
        if missing := sorted(set(named.get(topic, ())) - of_topic[topic].keys()):
            raise InvalidRangeError(
                f"feed {feed.name}: expected partitions of topic {topic!r} with stored offsets, which are "
                f"{listing(sorted(of_topic[topic]), limit=20)}; found {listing(missing)}. Nothing was changed."
            )
    return [of_topic[topic][number] for topic in topics for number in sorted(named.get(topic) or of_topic[topic])]


def new_positions(
    target: ResetTarget,
    meant: Sequence[StoredOffset],
    feed: FeedSnapshot,
    isolation: Isolation,
    control: ControlReader,
    kafka: KafkaCluster,
) -> dict[TopicPartition, NewPosition]:
    """Return where each partition would go; nothing is written.

    The group is read before the logs, so that a group that advances in between is not beyond them, and the offsets at a
    time after them, so that a record that arrives in between is read, not skipped.
    """
    rows = {row.topic_partition: row.next_offset for row in meant if row.next_offset is not None}
    check_identity([row for row in meant if not row.is_pending], feed, kafka)
    batch_starts = starts_of_batch(target, feed, control) if isinstance(target, ToBatch) else {}
    group_offsets = kafka.group_offsets(target.group, rows.keys()) if isinstance(target, ToGroup) else {}
    bounds = bounds_of(rows, feed, kafka)
    at_time = dict.fromkeys(rows, target.timestamp) if isinstance(target, ToTimestamp) else {}
    offsets_at = all_answered(kafka.offsets_at(at_time)) if at_time else {}
    places = {
        tp: Place(
            topic_partition=tp,
            stored_offset=stored_offset,
            log_start_offset=bounds[tp].log_start_offset,
            # A stored offset may be above an open transaction, where no reader can see: latest never means back.
            end_offset=max(bounds[tp].readable_end(isolation), stored_offset),
            offset_at=offsets_at.get(tp),
            group_offset=group_offsets.get(tp),
            batch_start=batch_starts.get(tp),
        )
        for tp, stored_offset in rows.items()
    }
    check_places(target, places)
    pending = {
        row.topic_partition: NewPosition(None, f"start pending: {row.seeded_by}") for row in meant if row.is_pending
    }
    return pending | {tp: cut_to_log(target.resolve(place), place) for tp, place in places.items()}


def check_identity(rows: Collection[StoredOffset], feed: FeedSnapshot, kafka: KafkaCluster) -> None:
    """Raise where offsets do not mean the records any more that they were counted in."""
    check_cluster(feed.cluster_id, kafka.cluster_id(), feed.name)
    topic_ids = {row.topic_partition.topic: row.topic_id for row in rows}
    described = kafka.describe_topics(topic_ids.keys())
    check_topic_ids(topic_ids, described, feed.name)
    there = {tp for description in described.values() for tp in description.topic_partitions()}
    if gone := [row.topic_partition for row in rows if row.topic_partition not in there]:
        raise TopicGoneError(
            f"feed {feed.name}: partitions {listing(gone)} do not exist any more. Nothing was changed; `kafka-ingest "
            f"topic-changed {feed.name}` shows what can be done."
        )


def bounds_of(
    rows: Mapping[TopicPartition, int], feed: FeedSnapshot, kafka: KafkaCluster
) -> dict[TopicPartition, LogBounds]:
    """Return the logs' bounds; raises where Kafka has none for a partition, or a stored offset is beyond its log."""
    bounds = all_answered(kafka.log_bounds(rows.keys()))
    cut_off = all_answered(cut_off_at(reached(feed.stored[tp] for tp in rows), bounds, kafka))
    held = held_beyond_log(feed).keys() | cut_off.keys()
    beyond = [
        f"{tp}: stored offset {stored_offset:,}, log end {bounds[tp].high_watermark:,}"
        for tp, stored_offset in rows.items()
        if tp in held or stored_offset > bounds[tp].high_watermark
    ]
    if beyond:
        raise StoredOffsetBeyondLogError(
            f"feed {feed.name}: logs ended below their stored offsets, so they hold other records there now: "
            f"{listing(beyond)}. A reset cannot decide that; `kafka-ingest topic-changed {feed.name}` shows what can "
            "be done. Nothing was changed."
        )
    return bounds


def all_answered(answers: Mapping[TopicPartition, Answer | Unavailable]) -> dict[TopicPartition, Answer]:
    """Return Kafka's answers; raises KafkaUnavailableError where it cannot answer for a partition now."""
    found = {tp: answer for tp, answer in answers.items() if not isinstance(answer, Unavailable)}
    if len(found) < len(answers):
        silent = [
            f"{tp} ({answer.reason})" for tp, answer in sorted(answers.items()) if isinstance(answer, Unavailable)
        ]
        raise KafkaUnavailableError(
            f"Kafka cannot answer now for {listing(silent)}. Nothing was changed: try again, or name the other "
            "partitions."
        )
    return found


def starts_of_batch(target: ToBatch, feed: FeedSnapshot, control: ControlReader) -> dict[TopicPartition, int]:
    """Return where a batch and those after it began; raises where it is not a committed live batch of the feed."""
    batch = control.batch(target.batch_id)
    if batch.plan.feed_id != feed.feed_id or batch.plan.kind is not BatchKind.LIVE:
        raise WrongUseError(
            f"expected a live batch of feed {feed.name}, found {target.batch_id}, a {batch.plan.kind} batch of feed "
            f"{batch.feed_name}; `kafka-ingest batches {feed.name}` lists them. Nothing was changed."
        )
    if batch.state is not BatchState.COMMITTED:
        raise BatchStateError(
            f"expected a COMMITTED batch to go back to, found {target.batch_id}, which is {batch.state}: it moved no "
            f"stored offset. `kafka-ingest batches {feed.name}` lists others. Nothing was changed."
        )
    return control.starts_since(target.batch_id)


def check_places(target: ResetTarget, places: Mapping[TopicPartition, Place]) -> None:
    if isinstance(target, ToGroup) and (silent := [tp for tp, place in places.items() if place.group_offset is None]):
        raise InvalidRangeError(
            f"expected consumer group {target.group!r} to have offsets of all partitions that are reset, found none of "
            f"{listing(silent)}. Name the other topics or partitions. Nothing was changed."
        )
    if not isinstance(target, ToOffsets):
        return
    outside = [
        f"{tp}: expected {place.log_start_offset:,} to {place.end_offset:,}, found {target.offsets[tp]:,}"
        for tp, place in places.items()
        if not place.log_start_offset <= target.offsets[tp] <= place.end_offset
    ]
    if outside:
        raise InvalidRangeError(f"expected offsets that can be read, found {listing(outside)}. Nothing was changed.")


EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Mirrored:
    """Where a partition continues: ``time`` is its anchor's, None where the old log has no record left.

    At most ``again`` records are read twice. ``may_miss``: the new log may lack unread records, or pass some.
    """

    offset: int
    time: datetime | None
    again: int
    may_miss: bool


@dataclass(frozen=True, slots=True)
class Anchor:
    """The first unread record of the old log, or the last one that was read."""

    time: datetime
    is_unread: bool


def mirrored_offsets(
    rows: Collection[StoredOffset], feed: FeedSnapshot, isolation: Isolation, old: KafkaCluster, new: KafkaCluster
) -> dict[TopicPartition, Mirrored]:
    """Return where each of these rows continues in the new cluster; nothing is written.

    Raises InvalidRangeError where times cannot say it, and what planning raises where the old cluster is not the one
    that the offsets were counted in.
    """
    check_identity(rows, feed, old)
    stored = {row.topic_partition: row.next_offset for row in rows if row.next_offset is not None}
    logs = bounds_of(stored, feed, old)
    anchors = anchors_of(stored, logs, isolation, old)
    times = {tp: anchor.time for tp, anchor in anchors.items()}
    # The bounds are asked first: what comes in between is then read, and not passed.
    ends = all_answered(new.log_bounds(stored.keys()))
    firsts, found = first_of_time(times, old), first_of_time(times, new)
    copies = records_at(found, new)
    if dated := [tp for tp, record in copies.items() if record.by_broker]:
        raise InvalidRangeError(
            "expected copies with the times of their records, found that the new brokers date those of "
            f"{listing(dated)} themselves (message.timestamp.type=LogAppendTime). Choose start-over, with `start: "
            "{offsets: …}` in the feed file. Nothing was changed."
        )
    if behind := records_at({tp: ends[tp].log_start_offset for tp in times.keys() - found.keys()}, new):
        raise InvalidRangeError(
            "expected copies of the first unread records, or where all is read of the last ones, found only older "
            f"ones in {listing(sorted(behind))}. Wait until the mirror has caught up. If it has, choose start-over, "
            "with `start: {offsets: …}` in the feed file. Nothing was changed."
        )
    begins = records_at(firsts, old)
    alike = {tp for tp in copies.keys() & begins if time_of(copies[tp], tp) in {times[tp], time_of(begins[tp], tp)}}
    mirrored = {}
    for tp, next_offset in stored.items():
        start, end, old_start = ends[tp].log_start_offset, ends[tp].high_watermark, logs[tp].log_start_offset
        offset = found.get(tp, end if tp in anchors else start)
        if tp in alike and (old_start == 0 or firsts[tp] > old_start):
            again = max(0, next_offset - firsts[tp])
        else:  # all that the copy holds from there on may be read already, and all that it may still get
            again = min(next_offset, next_offset - old_start + end - offset)
        # A record of the same time need not be the first unread one: those before it may be deleted, or never copied.
        unsure = tp in anchors and (tp not in alike if start < offset == found.get(tp) else anchors[tp].is_unread)
        mirrored[tp] = Mirrored(offset, times.get(tp), again, unsure)
    return mirrored


def anchors_of(
    stored: Mapping[TopicPartition, int],
    logs: Mapping[TopicPartition, LogBounds],
    isolation: Isolation,
    old: KafkaCluster,
) -> dict[TopicPartition, Anchor]:
    """Return the records whose times count; none of a partition whose old log has no readable record left.

    Where all is read, the last record: looked for backwards, since offsets may be without records.
    """
    if lost := [tp for tp, offset in stored.items() if offset < logs[tp].log_start_offset]:
        raise InvalidRangeError(
            f"expected old logs that hold the stored offsets, found that those of {listing(lost)} begin later: records "
            "were deleted unread. Let the feed run there first, or `kafka-ingest skip` them. Nothing was changed."
        )
    unread = records_at(stored, old, isolation)
    if waiting := [
        tp for tp, log in logs.items() if tp not in unread and log.readable_end(isolation) < log.high_watermark
    ]:
        raise InvalidRangeError(
            f"expected old logs without open transactions, found some in {listing(waiting)}. End them, or wait. "
            "Nothing was changed."
        )
    anchors = {tp: Anchor(time_of(record, tp), is_unread=True) for tp, record in unread.items()}
    left, step = stored.keys() - anchors.keys(), 1
    while left := {tp for tp in left if stored[tp] > logs[tp].log_start_offset}:
        back = {tp: max(logs[tp].log_start_offset, stored[tp] - step) for tp in left}
        read = records_at(back, old, isolation)
        anchors |= {tp: Anchor(time_of(record, tp), is_unread=False) for tp, record in read.items()}
        left = {tp for tp in left - read.keys() if back[tp] > logs[tp].log_start_offset}
        step *= 2
    return anchors


def first_of_time(times: Mapping[TopicPartition, datetime], kafka: KafkaCluster) -> dict[TopicPartition, int]:
    """Return the first offset whose record is of that time or later, where there is one."""
    found = all_answered(kafka.offsets_at(times)) if times else {}
    return {tp: offset for tp, offset in found.items() if offset is not None}


def records_at(
    offsets: Mapping[TopicPartition, int], kafka: KafkaCluster, isolation: Isolation = Isolation.READ_UNCOMMITTED
) -> dict[TopicPartition, FirstRecord]:
    """Return the first record at each offset or later, where there is one."""
    found = all_answered(kafka.first_records(offsets, isolation)) if offsets else {}
    return {tp: record for tp, record in found.items() if record is not None}


def time_of(record: FirstRecord, tp: TopicPartition) -> datetime:
    try:
        if record.timestamp_ms is not None:
            return EPOCH + timedelta(milliseconds=record.timestamp_ms)
        found = "without"
    except OverflowError:
        found = f"of {record.timestamp_ms} ms since 1970, which is beyond the year 9999"
    raise InvalidRangeError(
        f"expected records with times, found one of {tp} {found}. Choose start-over, with `start: {{offsets: …}}` "
        "in the feed file. Nothing was changed."
    )


def said_of(mirrored: Mapping[TopicPartition, Mirrored]) -> list[str]:
    twice = {tp: each.again for tp, each in sorted(mirrored.items()) if each.again}
    lines = [
        f"read twice: at most {counted(sum(twice.values()), 'record')}"
        + (f": {listing(f'{tp} {again:,}' for tp, again in twice.items())}" if twice else "")
    ]
    if missing := [tp for tp, each in sorted(mirrored.items()) if each.may_miss]:
        lines.append(
            f"may be missed: the new logs of {listing(missing)} are empty, begin no earlier than the first unread "
            "records' times, or lack a record. Was all copied, and is it still there?"
        )
    else:
        lines.append(
            "missed: none, as long as the copies keep each partition's order and the records' own times, and where "
            "these are in no order, still hold the first unread records"
        )
    return lines
