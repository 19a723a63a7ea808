"""How old the newest record is that a feed has committed: time as Kafka's records carry it. No record is read.

Where the record with a log's largest time is below the stored offset, Kafka says that time for all partitions at
once. Of the others, which have something to read, the latest time below the stored offset is found by halving
(:mod:`kafka_ingest.observing.times_around`).
"""

from collections.abc import Collection, Iterable, Mapping
from datetime import datetime, timedelta

from kafka_ingest.model.offsets import FirstRecord, NewestRecord, StoredOffset, TopicPartition, Unavailable
from kafka_ingest.observing.record_ages import OlderThan, age_of, one_offset_each
from kafka_ingest.observing.times_around import Around, times_around
from kafka_ingest.ports.cluster import KafkaCluster


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
    """Return where reading goes on in the partitions of which something is committed."""
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
