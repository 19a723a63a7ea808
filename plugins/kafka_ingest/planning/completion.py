"""Whether an hour or a day is complete: decided from the stored offsets and Kafka's answers, without asking anything.

A partition has passed a time once a record of that time or later is below its stored offset (KIP-79), or, where Kafka
has none, once all that it has is read and the time is long past. So an open batch, a gap ahead, a range that was left
out and a lag hold an hour back by themselves: the stored offset has not moved.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from kafka_ingest.foundation.counting import are, counted
from kafka_ingest.model.completion import CompletionRules
from kafka_ingest.model.control_rows import FeedSnapshot
from kafka_ingest.model.hold import HoldCause
from kafka_ingest.model.offsets import (
    LogBounds,
    NewestRecord,
    StoredOffset,
    TopicDescription,
    TopicPartition,
    Unavailable,
)
from kafka_ingest.model.topics import is_other_topic

MAY_PASS = frozenset({HoldCause.OPEN_TRANSACTION, HoldCause.NO_ANSWER})
"""Holds that do not change which records the stored offset is behind: Kafka's answers of now decide."""


@dataclass(frozen=True, slots=True)
class WaitedFor:
    """What an hour waits for: a partition, a topic, or time alone, where neither is named."""

    reason: str
    topic: str | None = None
    partition: int | None = None

    def __str__(self) -> str:
        if self.topic is None:
            return self.reason
        return f"{self.topic if self.partition is None else TopicPartition(self.topic, self.partition)}: {self.reason}"


@dataclass(frozen=True, slots=True)
class PassingAnswers:
    """Kafka's answers on one time; ``records_from`` has the first record of that time or later, None where none is."""

    topics: Mapping[str, TopicDescription]
    bounds: Mapping[TopicPartition, LogBounds | Unavailable]
    records_from: Mapping[TopicPartition, NewestRecord | Unavailable | None]


@dataclass(frozen=True, slots=True)
class Question:
    """Whether an hour or a day of a feed is over, as of now."""

    feed: FeedSnapshot
    rules: CompletionRules
    began_at: datetime
    now: datetime

    @property
    def due_at(self) -> datetime:
        """From which time on records show it."""
        return self.rules.due_at(self.began_at)


def waited_for(asked: Question, answers: PassingAnswers) -> list[WaitedFor]:
    """Return what an hour or a day of a feed waits for; it is complete where that is nothing."""
    return too_early(asked) or [
        found for topic in sorted(asked.feed.topics) for found in waited_for_in(topic, asked, answers)
    ]


def too_early(asked: Question) -> list[WaitedFor]:
    """Return what it waits for whatever Kafka answers; nothing where Kafka is to be asked."""
    if asked.now < asked.due_at:
        return [WaitedFor(f"it is over at {asked.due_at:%Y-%m-%d %H:%M:%S} UTC, the delay included")]
    if asked.feed.planned_at is not None and asked.feed.planned_at < asked.due_at:
        # Topics and partitions that were added meanwhile are not known, nor what has arrived up to its end.
        return [WaitedFor("no plan has asked Kafka since it was over")]
    return []


def waited_for_in(topic: str, asked: Question, answers: PassingAnswers) -> Iterator[WaitedFor]:
    """Yield what is waited for in a topic."""
    found = answers.topics.get(topic)
    held = [hold for hold in asked.feed.holds if hold.topic == topic and hold.partition is None]
    if found is None:
        yield WaitedFor("it does not exist", topic)
    elif any(is_other_topic(row.topic_id, found.topic_id) for row in rows_of(topic, asked.feed)):
        yield WaitedFor("it was deleted and created again", topic)
    elif held:
        yield WaitedFor(f"held: {held[0].reason}", topic)
    else:
        for tp in found.topic_partitions():
            for reason in why_it_waits(tp, asked, answers):
                yield WaitedFor(reason, topic, tp.partition)


def rows_of(topic: str, feed: FeedSnapshot) -> list[StoredOffset]:
    return [row for tp, row in feed.stored.items() if tp.topic == topic]


def why_it_waits(tp: TopicPartition, asked: Question, answers: PassingAnswers) -> Iterator[str]:
    row, bounds, first = asked.feed.stored.get(tp), answers.bounds.get(tp), answers.records_from.get(tp)
    if row is None or row.next_offset is None:
        yield "no plan has found out yet where it begins"
    elif held := list(holds_of(asked.feed, tp)):
        yield held[0]
    elif isinstance(bounds, Unavailable):
        yield f"Kafka does not answer for it: {bounds.reason}"
    elif isinstance(first, Unavailable):
        yield f"Kafka does not answer for it: {first.reason}"
    elif bounds is not None:
        yield from why_not_passed(row.next_offset, bounds, first, asked)


def why_not_passed(stored: int, bounds: LogBounds, first: NewestRecord | None, asked: Question) -> Iterator[str]:
    proves_nothing = ""
    if stored > bounds.high_watermark:
        yield f"the log ends at {bounds.high_watermark:,}, below what was read, {stored:,}"
        return
    if first is not None:
        if first.timestamp_ms <= asked.now.timestamp() * 1000:
            if first.offset >= stored:
                yield to_read(stored, bounds)
            return
        # Of a wrong clock, or another unit: its time says nothing of the records around it.
        proves_nothing = f"; the record at {first.offset:,} proves nothing, it is of {of_time(first.timestamp_ms)}"
    idle_at = asked.due_at + asked.rules.idle_after
    if stored < bounds.high_watermark:
        yield to_read(stored, bounds) + proves_nothing
    elif asked.now < idle_at:
        yield f"it has no record of {asked.due_at:%Y-%m-%d %H:%M} or later; it is idle from {idle_at:%H:%M} UTC on"


def holds_of(feed: FeedSnapshot, tp: TopicPartition) -> Iterator[str]:
    """Yield the holds by which a partition's stored offset says nothing, or stays where it is."""
    for hold in feed.holds:
        if hold.topic_partition == tp and hold.cause not in MAY_PASS:
            yield f"held: {hold.reason}"


def to_read(stored: int, bounds: LogBounds) -> str:
    if stored >= bounds.last_stable_offset:
        return f"an open transaction holds back {counted(bounds.high_watermark - stored, 'offset')} from {stored:,} on"
    left = bounds.high_watermark - stored
    return f"{counted(left, 'offset')} from {stored:,} on {are(left)} to be read"


def of_time(timestamp_ms: int) -> str:
    """Return a record's time, which may be none that a date can express."""
    try:
        return f"{datetime.fromtimestamp(timestamp_ms / 1000, UTC):%Y-%m-%d}"
    except (ValueError, OverflowError, OSError):
        return f"{timestamp_ms:,} ms"
