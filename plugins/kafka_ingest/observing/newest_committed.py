"""How old the newest record is that a feed has committed: time as Kafka's records carry it.

Where the record with a log's largest time lies below the stored offset, Kafka says that time for all partitions at
once, and nothing is read. Of the others, which have something to read, the record before the stored offset is read.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from kafka_ingest.model.offsets import FirstRecord, NewestRecord, StoredOffset, TopicPartition, Unavailable
from kafka_ingest.observing.record_ages import age_of
from kafka_ingest.ports.cluster import KafkaCluster

BACK: Final = (1, 10)
"""How far before the stored offset is read: just before it may lie the marker of a transaction, or nothing."""


@dataclass(frozen=True, slots=True)
class Committed:
    """What a feed has committed of one partition, from ``start_offset`` up to ``end_offset``."""

    feed: str
    topic_partition: TopicPartition
    start_offset: int
    end_offset: int


def newest_committed_ages(
    kafka: KafkaCluster, feeds: Mapping[str, Collection[StoredOffset]], now: datetime, *, most: int
) -> dict[str, timedelta | None]:
    """Return how old each feed's newest committed record is; None where none is, or where no time is known.

    Of each feed the records of at most so many partitions are read, those with the newest ones first.
    """
    places = {feed: list(committed(feed, rows)) for feed, rows in feeds.items()}
    newest = kafka.newest_records({each.topic_partition for found in places.values() for each in found})
    ages: dict[str, list[timedelta]] = {feed: [] for feed in feeds}
    to_read: list[Committed] = []
    for feed, found in places.items():
        known, others = divided(found, newest)
        ages[feed] += [known_age for record in known if (known_age := age(record, now)) is not None]
        largest = max((record.timestamp_ms for record in known), default=-1)
        younger = [(time, each) for time, each in others if time is None or time > largest]
        younger.sort(key=lambda pair: (-(pair[0] or 0), pair[1].topic_partition))
        to_read += [each for _, each in younger[:most]]
    for each, record in read_before(kafka, to_read):
        if (found_age := age(record, now)) is not None:
            ages[each.feed].append(found_age)
    return {feed: min(found, default=None) for feed, found in ages.items()}


def committed(feed: str, rows: Collection[StoredOffset]) -> Iterator[Committed]:
    """Yield the partitions of which something is committed."""
    for row in rows:
        if row.next_offset is not None and row.first_offset is not None and row.next_offset > row.first_offset:
            yield Committed(feed, row.topic_partition, row.first_offset, row.next_offset)


def divided(
    places: Iterable[Committed], newest: Mapping[TopicPartition, NewestRecord | Unavailable | None]
) -> tuple[list[NewestRecord], list[tuple[int | None, Committed]]]:
    """Return newest records that are committed, and of the other partitions the largest time where it is known."""
    known: list[NewestRecord] = []
    others: list[tuple[int | None, Committed]] = []
    for each in places:
        record = newest.get(each.topic_partition)
        if isinstance(record, NewestRecord) and record.offset < each.end_offset:
            known.append(record)
        elif not isinstance(record, Unavailable):
            others.append((record.timestamp_ms if record is not None else None, each))
    return known, others


def read_before(kafka: KafkaCluster, places: Collection[Committed]) -> Iterator[tuple[Committed, FirstRecord]]:
    """Read what lies just before the end of what is committed, and yield the records that are part of it."""
    left = list(places)
    for back in BACK:
        at = {each: max(each.start_offset, each.end_offset - back) for each in left}
        left = []
        for offsets in one_offset_each(at):
            found = kafka.first_records({each.topic_partition: offset for each, offset in offsets.items()})
            for each in offsets:
                record = found[each.topic_partition]
                if isinstance(record, FirstRecord) and record.offset is not None and record.offset < each.end_offset:
                    yield each, record
                elif not isinstance(record, Unavailable):
                    left.append(each)


def one_offset_each(at: Mapping[Committed, int]) -> Iterator[dict[Committed, int]]:
    """Yield all places in as few parts as have one offset for each partition: two feeds may differ."""
    left = dict(at)
    while left:
        chosen: dict[TopicPartition, int] = {}
        part = {
            each: offset for each, offset in left.items() if chosen.setdefault(each.topic_partition, offset) == offset
        }
        yield part
        left = {each: offset for each, offset in left.items() if each not in part}


def age(record: NewestRecord | FirstRecord, now: datetime) -> timedelta | None:
    """Return a record's age, None where it carries no time."""
    found = age_of(FirstRecord(record.timestamp_ms, by_broker=False), now)
    return found if isinstance(found, timedelta) else None
