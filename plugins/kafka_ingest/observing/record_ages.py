"""How old the records are that wait to be read: time as Kafka's records carry it (KIP-32), not as runs go.

Of each partition the record at the stored offset counts: the next one to be read. Whether it is older than a limit is
first asked by ListOffsets, which reads no record: where one that is younger is at or below the stored offset, the
feed has read what is younger than the limit. Only what this leaves open is read, one record a partition:

- where no younger record was read: the record may have no time at all, or there is none, as where only
  markers of transactions are left;
- where the younger record is one of the future: it is younger than every limit, and hides all after it.

Of the records that are committed the newest counts. Where the record with a log's largest time is below the stored
offset, Kafka says that time for all partitions at once. Of the others, which have something to read, the latest time
below the stored offset is found by halving (:mod:`kafka_ingest.observing.times_around`).
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from kafka_ingest.foundation.counting import grouped
from kafka_ingest.model.offsets import (
    FirstRecord,
    Isolation,
    LogBounds,
    NewestRecord,
    StoredOffset,
    TopicPartition,
    Unavailable,
)
from kafka_ingest.observing.times_around import (
    EARLIEST,
    IN_THE_FUTURE,
    OF_THE_FUTURE,
    Around,
    milliseconds,
    times_around,
)
from kafka_ingest.ports.cluster import KafkaCluster

ROUNDS: Final = (1, 4, 15)
"""Of how many partitions of one group a record is read: at first of the one with the most to read, and only where that
is not too old, of the next ones. Each takes a whole record batch over the network."""

NO_TIME: Final = Unavailable("the record at its stored offset carries no time")
NOT_READ: Final = Unavailable("the records at the stored offsets of other partitions were read")


@dataclass(frozen=True, slots=True, order=True)
class OlderThan:
    """Asks whether the record at a partition's stored offset, with so many behind it, is older than a time.

    One of a ``group`` that is older is enough for the caller.
    """

    group: str
    topic_partition: TopicPartition
    stored_offset: int
    lag: int
    time: datetime


def waiting(
    rows: Collection[StoredOffset], bounds: Mapping[TopicPartition, LogBounds | Unavailable], isolation: Isolation
) -> dict[TopicPartition, tuple[int, int]]:
    """Return where reading continues in each partition with something to read, and how many offsets that is."""
    found: dict[TopicPartition, tuple[int, int]] = {}
    for row in rows:
        log = bounds.get(row.topic_partition)
        if row.next_offset is None or not isinstance(log, LogBounds):
            continue
        start = max(row.next_offset, log.log_start_offset)
        if (lag := log.readable_end(isolation) - start) > 0:
            found[row.topic_partition] = start, lag
    return found


def oldest_waiting(
    kafka: KafkaCluster, places: Mapping[TopicPartition, tuple[int, int]], now: datetime
) -> dict[TopicPartition, timedelta | Unavailable | None]:
    """Return how old the record is that is read next in each of these partitions (:func:`waiting`).

    None where no record is left there; a time of the future is no age, so it counts as zero.
    """
    if not places:
        return {}
    found = kafka.first_records({tp: offset for tp, (offset, _) in places.items()})
    return {tp: age_of(record, now) for tp, record in found.items()}


def oldest_ages(
    kafka: KafkaCluster, feeds: Mapping[str, Mapping[TopicPartition, tuple[int, int]]], now: datetime, *, most: int
) -> dict[str, timedelta | None]:
    """Return how old the oldest record is that each feed reads next, of its partitions with the most to read.

    Zero where nothing waits, None where no age is known. No record is read, except behind one of the future.
    """
    chosen = [
        OlderThan(feed, tp, offset, lag, now)
        for feed, places in feeds.items()
        for tp, (offset, lag) in sorted(places.items(), key=lambda place: (-place[1][1], place[0]))[:most]
    ]
    found: dict[str, list[timedelta | Unavailable | None]] = {feed: [] for feed in feeds}
    for some in one_offset_each(chosen):
        places = {each.topic_partition: (each.stored_offset, each.lag) for each in some}
        times = times_around(kafka, {tp: offset for tp, (offset, _) in places.items()}, now)
        hidden = {tp: place for tp, place in places.items() if times[tp] == OF_THE_FUTURE}
        read = oldest_waiting(kafka, hidden, now)
        for each in some:
            tp, around = each.topic_partition, times[each.topic_partition]
            age = age_of_time(around.after_ms, now) if isinstance(around, Around) else read.get(tp, around)
            found[each.group].append(age)
    return {feed: oldest_of(ages) for feed, ages in found.items()}


def oldest_of(ages: Collection[timedelta | Unavailable | None]) -> timedelta | None:
    is_known = not any(isinstance(age, Unavailable) for age in ages)
    return max((age for age in ages if isinstance(age, timedelta)), default=timedelta() if is_known else None)


def age_of(record: FirstRecord | Unavailable | None, now: datetime) -> timedelta | Unavailable | None:
    """Return a record's age, where its time is one.

    -1 is Kafka's word for none, 0 is what some producers write, and those that write seconds seem to be of 1970.
    """
    if not isinstance(record, FirstRecord):
        return record
    if record.timestamp_ms is None or record.timestamp_ms < milliseconds(EARLIEST):
        return NO_TIME
    return age_of_time(record.timestamp_ms, now)


def age_of_time(timestamp_ms: int | None, now: datetime) -> timedelta | None:
    """Return how long ago a time was, zero for one of the future.

    In whole milliseconds: a producer may write any number of 64 bits, more than a timedelta holds.
    """
    return None if timestamp_ms is None else timedelta(milliseconds=max(0, milliseconds(now) - timestamp_ms))


def older_records(
    kafka: KafkaCluster, asked: Collection[OlderThan], now: datetime
) -> dict[OlderThan, timedelta | Unavailable | None]:
    """Return the age of each record that is older than the time asked about, None where it is not.

    The number of requests grows with how many times are asked about in one partition, not with the partitions.
    """
    found: dict[OlderThan, timedelta | Unavailable | None] = {}
    to_read: list[OlderThan] = []
    for some in one_time_each(asked):
        first = kafka.offsets_at({each.topic_partition: each.time for each in some})
        younger = {each for each in some if is_read(first[each.topic_partition], each)}
        # What Kafka contradicts itself about is read as well; the reading says where it does not answer at all.
        to_read += [each for each in some if each not in younger]
        future = kafka.offsets_at({each.topic_partition: now + IN_THE_FUTURE for each in younger}) if younger else {}
        for each in younger:
            if first[each.topic_partition] == future[each.topic_partition]:
                to_read.append(each)
            else:
                found[each] = None
    return found | ages_if_older(kafka, to_read, now)


def is_read(first: int | Unavailable | None, asked: OlderThan) -> bool:
    """Whether the first record that is younger than the time is at the stored offset, or was read before."""
    return isinstance(first, int) and first <= asked.stored_offset


def ages_if_older(
    kafka: KafkaCluster, asked: Collection[OlderThan], now: datetime
) -> dict[OlderThan, timedelta | Unavailable | None]:
    """Read the records, and return the ages of those that are older than the time asked about, None of the others."""
    left = grouped((each.group, each) for each in sorted(asked, key=lambda each: (-each.lag, each)))
    found: dict[OlderThan, timedelta | Unavailable | None] = {}
    for length in ROUNDS:
        read = [each for of_group in left.values() for each in of_group[:length]]
        # Two feeds may stand at different offsets of one partition.
        for some in one_offset_each(read):
            ages = oldest_waiting(kafka, {each.topic_partition: (each.stored_offset, each.lag) for each in some}, now)
            for each in some:
                age = ages[each.topic_partition]
                found[each] = None if isinstance(age, timedelta) and now - age >= each.time else age
        enough = {each.group for each in read if isinstance(found[each], timedelta)}
        left = {group: rest[length:] for group, rest in left.items() if group not in enough}
    return dict.fromkeys(asked, NOT_READ) | found


def one_time_each(asked: Collection[OlderThan]) -> Collection[list[OlderThan]]:
    return one_each(asked, lambda each: each.time)


def one_offset_each(asked: Collection[OlderThan]) -> Collection[list[OlderThan]]:
    return one_each(asked, lambda each: each.stored_offset)


def one_each(asked: Collection[OlderThan], what: Callable[[OlderThan], object]) -> Collection[list[OlderThan]]:
    known: dict[TopicPartition, list[object]] = {}
    parts: dict[int, list[OlderThan]] = {}
    for each in sorted(set(asked)):
        of_partition = known.setdefault(each.topic_partition, [])
        if what(each) not in of_partition:
            of_partition.append(what(each))
        parts.setdefault(of_partition.index(what(each)), []).append(each)
    return parts.values()


def newest_committed_ages(
    kafka: KafkaCluster, feeds: Mapping[str, Collection[StoredOffset]], now: datetime, *, most: int
) -> dict[str, timedelta | None]:
    """Return how old each feed's newest committed record is; None where none is, or where no time is known.

    Of each feed at most so many partitions with something to read are asked about, those with the newest records first.
    """
    places = {feed: committed(feed, rows, now) for feed, rows in feeds.items()}
    newest = kafka.newest_records({each.topic_partition for found in places.values() for each in found})
    times: dict[str, list[int]] = {feed: [] for feed in feeds}
    to_ask: list[OlderThan] = []
    for feed, found in places.items():
        known, others = divided(found, newest)
        times[feed] += known
        younger = [(time, each) for time, each in others if time is None or time > max(known, default=-1)]
        younger.sort(key=lambda pair: (-(pair[0] or 0), pair[1].topic_partition))
        to_ask += [each for _, each in younger[:most]]
    for some in one_offset_each(to_ask):
        around = times_around(kafka, {each.topic_partition: each.stored_offset for each in some}, now)
        for each in some:
            there = around[each.topic_partition]
            if isinstance(there, Around) and there.before_ms is not None:
                times[each.group].append(there.before_ms)
    return {feed: youngest(found, now) for feed, found in times.items()}


def committed(feed: str, rows: Collection[StoredOffset], now: datetime) -> list[OlderThan]:
    """Return where reading continues in the partitions of which something is committed."""
    return [
        OlderThan(feed, row.topic_partition, row.next_offset, 0, now)
        for row in rows
        if row.next_offset is not None and row.first_offset is not None and row.next_offset > row.first_offset
    ]


def divided(
    places: Iterable[OlderThan], newest: Mapping[TopicPartition, NewestRecord | Unavailable | None]
) -> tuple[list[int], list[tuple[int | None, OlderThan]]]:
    """Return the times of newest records that are committed, and of the others the largest time where it is known."""
    known: list[int] = []
    others: list[tuple[int | None, OlderThan]] = []
    for each in places:
        record = newest.get(each.topic_partition)
        if isinstance(record, NewestRecord) and record.offset < each.stored_offset:
            known.append(record.timestamp_ms)
        elif not isinstance(record, Unavailable):
            others.append((record.timestamp_ms if record is not None else None, each))
    return known, others


def youngest(times: Iterable[int], now: datetime) -> timedelta | None:
    """Return the age of the newest of these times, None where none is one."""
    ages = [age_of(FirstRecord(time, by_broker=False), now) for time in times]
    return min((age for age in ages if isinstance(age, timedelta)), default=None)
