"""Where a feed's offsets are in another cluster that has copies of its records at other offsets: found by their times.

A mirror keeps each partition's order and the records' own times. So the copy of a record is at, or after, the first
record of its time or later; from there on nothing is missed, and what lies before the copy is read a second time.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from kafka_ingest.errors import InvalidRangeError
from kafka_ingest.foundation.counting import counted
from kafka_ingest.model.control_rows import FeedSnapshot
from kafka_ingest.model.offsets import FirstRecord, Isolation, LogBounds, StoredOffset, TopicPartition, listing
from kafka_ingest.ports.cluster import KafkaCluster
from kafka_ingest.verbs.reset_positions import all_answered, bounds_of, check_identity

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
