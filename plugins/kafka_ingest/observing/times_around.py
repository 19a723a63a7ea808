"""Which times are around an offset, as ListOffsets alone says it: no record is read, however large its batch is.

ListOffsets names the first record of a time or later, with its own time. The later the time, the larger the offset: so
halving finds the latest time whose record is below an offset, and the first one from there on. In a log whose times
grow these are the times of the records just before and from the offset on. A record that is older than one before it is
hidden by that; so is all that follows a record of the future, of which nothing is known then.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from kafka_ingest.model.offsets import NewestRecord, TopicPartition, Unavailable
from kafka_ingest.ports.cluster import KafkaCluster

ROUNDS: Final = 45
"""Requests at most for any number of partitions. Of 55 years 12 leave 1 %, and 41 a millisecond.

That many only where the records on both sides of an offset are old, and nearly of the same time.
"""
NEAR_ENOUGH: Final = 1.01
LEAST_MS: Final = 1_000.0
"""Ages are told apart by a hundredth, and by no less than a second."""
EPOCH: Final = datetime.fromtimestamp(0, UTC)
EARLIEST: Final = EPOCH + timedelta(days=365)
"""No record of Kafka's is of 1970."""
IN_THE_FUTURE: Final = timedelta(minutes=1)
"""By how much clocks may differ."""

NO_TIME: Final = Unavailable("its records carry no time")
OF_THE_FUTURE: Final = Unavailable("a record of the future hides the times of those after it")


@dataclass(frozen=True, slots=True)
class Around:
    """The latest time of a record below an offset, and the first later one from the offset on; None: there is none."""

    before_ms: int | None
    after_ms: int | None


@dataclass(slots=True)
class Search:
    """Ages in milliseconds: the record below the offset is at most so old, that from it on at least."""

    offset: int
    oldest: float
    youngest: float
    around: Around = Around(None, None)

    @property
    def is_done(self) -> bool:
        """Whether the ages are near enough, and the record from the offset on is known where there is one."""
        is_near = self.oldest <= max(self.youngest * NEAR_ENOUGH, LEAST_MS)
        return is_near and (self.around.after_ms is not None or self.oldest - self.youngest <= 1)

    @property
    def asked(self) -> float:
        """The age to ask for: the one in the middle, as ages are told apart, and of near ones just that."""
        least = max(self.youngest, LEAST_MS)
        return math.sqrt(self.oldest * least) if self.oldest > 2 * least else (self.oldest + self.youngest) / 2

    def take(self, found: NewestRecord | None, age: float, now_ms: int) -> None:
        if found is not None and found.offset < self.offset:
            self.around = Around(found.timestamp_ms, self.around.after_ms)
            self.oldest = min(age, now_ms - found.timestamp_ms)
        else:
            after = found.timestamp_ms if found is not None else None
            self.around, self.youngest = Around(self.around.before_ms, after), age


def times_around(
    kafka: KafkaCluster, offsets: Mapping[TopicPartition, int], now: datetime
) -> dict[TopicPartition, Around | Unavailable]:
    first = kafka.records_from(dict.fromkeys(offsets, EARLIEST))
    last = kafka.records_from(dict.fromkeys(offsets, now + IN_THE_FUTURE))
    found: dict[TopicPartition, Around | Unavailable] = {}
    searches: dict[TopicPartition, Search] = {}
    now_ms = milliseconds(now)
    for tp, offset in offsets.items():
        begun = begin(offset, first[tp], last[tp], now_ms)
        if isinstance(begun, Search):
            searches[tp] = begun
        else:
            found[tp] = begun
    for _ in range(ROUNDS):
        asked = {tp: search.asked for tp, search in searches.items() if not search.is_done}
        if not asked:
            break
        answers = kafka.records_from({tp: now - timedelta(milliseconds=age) for tp, age in asked.items()})
        for tp, answer in answers.items():
            if isinstance(answer, Unavailable):
                found[tp] = answer
                del searches[tp]
            else:
                searches[tp].take(answer, asked[tp], now_ms)
    return found | {tp: search.around for tp, search in searches.items()}


def begin(
    offset: int, first: NewestRecord | Unavailable | None, last: NewestRecord | Unavailable | None, now_ms: int
) -> Search | Around | Unavailable:
    """Return what the first record of all and the first of the future say: often enough to need no search."""
    if isinstance(first, Unavailable):
        return first
    if isinstance(last, Unavailable):
        return last
    if first is None:
        return NO_TIME
    if first.offset >= offset:
        return Around(None, first.timestamp_ms)
    if last is not None and last.offset < offset:
        return OF_THE_FUTURE
    search = Search(offset, now_ms, 0.0)
    search.take(last, 0.0, now_ms)
    search.take(first, now_ms, now_ms)
    return search


def milliseconds(time: datetime) -> int:
    return (time - EPOCH) // timedelta(milliseconds=1)
