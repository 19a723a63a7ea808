"""Records that wait to be read: which start a run, and which of them retention is about to reach."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from hashlib import sha256
from typing import Final

from kafka_ingest.foundation.counting import counted, were
from kafka_ingest.model.offsets import Isolation, LogBounds, StoredOffset, TopicPartition, Unavailable

UNANSWERED_FOR: Final = timedelta(minutes=10)
"""After that a start that moved no stored offset is asked for again: its event was lost, or its run failed."""


@dataclass(frozen=True, slots=True)
class StartWhen:
    """How many records that wait make a feed due, or how old one of them is."""

    records: int | None = None
    or_older_than: timedelta | None = None


@dataclass(frozen=True, slots=True)
class AwaitedFeed:
    """A feed whose file says ``start_when``; ``dag_id`` is the DAG that its runs are of."""

    name: str
    dag_id: str
    rule: StartWhen
    isolation: Isolation = Isolation.READ_COMMITTED


@dataclass(frozen=True, slots=True)
class Standing:
    """Where a feed stands. ``position`` names its stored offsets: :func:`position_of`.

    ``asked_position`` and ``asked_at``: where it stood when a start was asked for last, and when that was.
    ``stop``: why its next plan has something to decide first. ``waiting``: how many offsets can be read, and
    ``has_older``: whether one of these records is older than the rule's limit.
    """

    position: str
    asked_position: str | None = None
    asked_at: datetime | None = None
    has_open_batch: bool = False
    stop: str | None = None
    waiting: int = 0
    has_older: bool = False


@dataclass(frozen=True, slots=True)
class Due:
    """Whether a feed is due now, and why, or why not."""

    is_due: bool
    why: str


def why_not_now(standing: Standing, now: datetime) -> str | None:
    """Return what keeps a start from being asked for, whatever waits; None where nothing does.

    One start for one position, since the rule may hold for as long as nothing is committed.
    """
    if standing.has_open_batch:
        return "a batch is open: its next run resumes it"
    if standing.stop is not None:
        return standing.stop
    asked = standing.asked_at
    if asked is not None and standing.position == standing.asked_position and now - asked < UNANSWERED_FOR:
        return f"a start was asked for at {asked.isoformat(timespec='seconds')}, and no stored offset has moved since"
    return None


def is_due(rule: StartWhen, standing: Standing, now: datetime) -> Due:
    waiting = f"{counted(standing.waiting, 'offset')} can be read"
    if reason := why_not_now(standing, now):
        return Due(is_due=False, why=reason)
    if rule.records is not None and standing.waiting >= rule.records:
        return Due(is_due=True, why=f"{waiting}, from {rule.records:,} on a run starts")
    if rule.or_older_than is not None and standing.waiting and standing.has_older:
        seconds = rule.or_older_than.total_seconds()
        return Due(is_due=True, why=f"{waiting}, of which one is older than {seconds:,.0f} s")
    return Due(is_due=False, why=waiting)


def position_of(stored: Iterable[StoredOffset]) -> str:
    """Return a short name of stored offsets; others have another."""
    text = "\n".join(sorted(f"{row.topic_partition} {row.topic_id} {row.next_offset}" for row in stored))
    return sha256(text.encode()).hexdigest()[:32]


OLDEST_PART = 10
"""A stored offset in the oldest tenth of a log is near its end, whether time or size decides what Kafka deletes."""


@dataclass(frozen=True, slots=True)
class LowHeadroom:
    """A partition with records to read whose stored offset is close above a moving log start, or below it."""

    topic_partition: TopicPartition
    stored_offset: int
    bounds: LogBounds

    def __str__(self) -> str:
        bounds, headroom = self.bounds, self.stored_offset - self.bounds.log_start_offset
        if headroom < 0:
            return (
                f"{self.topic_partition}: {counted(-headroom, 'offset')} from the stored offset "
                f"{self.stored_offset:,} on "
                f"{were(-headroom)} deleted before they were read; the log starts at "
                f"{bounds.log_start_offset:,}. The next plan stops, "
                "or records a gap, as on_data_loss says."
            )
        return (
            f"{self.topic_partition}: the stored offset {self.stored_offset:,} is {headroom:,} above the log start "
            f"{bounds.log_start_offset:,}, in the oldest tenth of what Kafka holds (up to {bounds.high_watermark:,}). "
            "Read faster, or keep more, before records are deleted unread."
        )


def in_danger(
    rows: Iterable[StoredOffset], bounds: Mapping[TopicPartition, LogBounds | Unavailable], isolation: Isolation
) -> list[LowHeadroom]:
    """Return the partitions whose stored offset is in the oldest tenth of their log, with records to read above it.

    Without those of whose logs Kafka said nothing.
    """
    found: list[LowHeadroom] = []
    for row in rows:
        log, offset = bounds.get(row.topic_partition), row.next_offset
        if offset is None or not isinstance(log, LogBounds) or not log.log_start_offset:
            continue
        is_in_oldest = (offset - log.log_start_offset) * OLDEST_PART < log.high_watermark - log.log_start_offset
        if is_in_oldest and offset < log.readable_end(isolation):
            found.append(LowHeadroom(row.topic_partition, offset, log))
    return found
