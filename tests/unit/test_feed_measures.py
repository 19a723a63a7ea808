"""What is measured of one feed, and which metrics that is."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest
from tests.fakes import FeedInMemory, log, span, topic

from kafka_ingest.airflow_tasks.metrics import (
    FRESHNESS,
    GAP_OFFSETS,
    HEADROOM,
    HOLDS,
    LAG,
    LOST_OFFSETS,
    LOW_HEADROOM,
    OPEN_GAPS,
    SILENT_PARTITIONS,
    gauges,
)
from kafka_ingest.errors import KafkaUnavailableError
from kafka_ingest.model.gap import GapCause, NewGap
from kafka_ingest.model.offsets import FirstRecord, Isolation, Unavailable
from kafka_ingest.model.summaries import FeedOverview, OpenGaps
from kafka_ingest.observing.feed_lines import ask_logs, feed_measures, measures_of

IN_CONTROL_TABLES = {HOLDS: 0, OPEN_GAPS: 0, GAP_OFFSETS: 0}


@pytest.fixture
def feed() -> FeedInMemory:
    """A feed that has read partition 0 up to 100 and partition 1 up to 50."""
    made = FeedInMemory()
    made.committed()
    return made


def sent(feed: FeedInMemory) -> dict[Any, int]:
    """Return the gauges that would be sent; where many feeds are asked about at once, they are the same but for one.

    Freshness takes a record of each partition.
    """
    snapshot = feed.control.feed("orders")
    measured = feed_measures(snapshot, feed.control, feed.kafka, Isolation.READ_COMMITTED)
    logs = None if measured.kafka_error else ask_logs(feed.kafka, snapshot.stored.keys())
    seen = overview_of(feed)
    among_all = measures_of(seen, seen.open_gaps, logs, Isolation.READ_COMMITTED, why_not=measured.kafka_error)
    assert among_all == replace(measured, freshness=None)
    return dict(gauges(measured))


def overview_of(feed: FeedInMemory) -> FeedOverview:
    """Return the feed as lists show it."""
    known = feed.control.feed("orders")
    gaps = [gap.offset_range.span for gap in feed.control.gaps(known.feed_id) if gap.closed_by_batch is None]
    return FeedOverview(
        known.feed_id,
        known.name,
        known.cluster_id,
        known.topics,
        known.stored,
        rows_committed=150,
        holds=tuple(known.holds),
        open_gaps=OpenGaps(len(gaps), sum(gaps)),
    )


def test_lag_is_what_can_be_read_and_headroom_the_least_of_partitions_with_something_to_read(
    feed: FeedInMemory,
) -> None:
    feed.kafka.topics = {"orders": topic(log(95, 1_000, lso=900), log(49, 50))}
    known = {LAG: 800, FRESHNESS: 0, HEADROOM: 5, LOW_HEADROOM: 1, LOST_OFFSETS: 0, SILENT_PARTITIONS: 0}
    assert sent(feed) == IN_CONTROL_TABLES | known


def test_a_feed_with_nothing_to_read_has_a_lag_of_zero_and_no_headroom(feed: FeedInMemory) -> None:
    known = {LAG: 0, FRESHNESS: 0, LOW_HEADROOM: 0, LOST_OFFSETS: 0, SILENT_PARTITIONS: 0}
    assert sent(feed) == IN_CONTROL_TABLES | known


def test_what_was_deleted_unread_is_counted_and_makes_headroom_negative(feed: FeedInMemory) -> None:
    feed.kafka.topics = {"orders": topic(log(130, 200), log(0, 50))}
    known = {LAG: 70, FRESHNESS: 0, HEADROOM: -30, LOW_HEADROOM: 1, LOST_OFFSETS: 30, SILENT_PARTITIONS: 0}
    assert sent(feed) == IN_CONTROL_TABLES | known


@pytest.mark.parametrize(
    ("second", "topic_id", "known"),
    [
        (Unavailable("no leader"), None, {LAG: 20, FRESHNESS: 0, HEADROOM: 100, SILENT_PARTITIONS: 1}),
        # No lag of another topic's records is sent.
        (log(0, 70), "made again", {SILENT_PARTITIONS: 2}),
    ],
)
def test_what_kafka_does_not_answer_about_is_counted_apart(
    feed: FeedInMemory, second: Any, topic_id: str | None, known: dict[Any, int]
) -> None:
    changed = {"topic_id": topic_id} if topic_id is not None else {}
    feed.kafka.topics = {"orders": topic(log(0, 120), second, **changed)}
    assert sent(feed) == IN_CONTROL_TABLES | {LOW_HEADROOM: 0, LOST_OFFSETS: 0} | known


def test_freshness_is_the_age_of_the_oldest_record_that_waits_and_unknown_where_records_carry_no_time(
    feed: FeedInMemory,
) -> None:
    feed.kafka.topics = {"orders": topic(log(0, 200), log(0, 90))}
    first, second = (span(partition, 0, 1).topic_partition for partition in (0, 1))
    now = datetime.now(UTC)
    feed.kafka.times = {first: {99: now - timedelta(days=9), 100: now - timedelta(hours=2.5)}, second: {50: now}}
    assert sent(feed)[FRESHNESS] // 3_600 == 2
    feed.kafka.firsts = dict.fromkeys((first, second), FirstRecord(0, by_broker=False))
    assert FRESHNESS not in sent(feed)
    feed.kafka.firsts = {}

    def silent(*_: object) -> None:
        raise KafkaUnavailableError("the broker is down")

    feed.kafka.records_from = silent
    assert sent(feed)[LAG] == 140
    assert FRESHNESS not in sent(feed)


def test_without_kafka_only_what_is_stored_is_sent(feed: FeedInMemory, monkeypatch: pytest.MonkeyPatch) -> None:
    def silent(*_: object) -> None:
        raise KafkaUnavailableError("the broker is down")

    monkeypatch.setattr(feed.kafka, "describe_topics", silent)
    assert sent(feed) == IN_CONTROL_TABLES


def test_open_gaps_are_counted_with_their_offsets_and_closed_ones_are_not(
    feed: FeedInMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = feed.control.feed("orders")
    feed.control.file_gap(known, NewGap(span(0, 100, 130), GapCause.SKIPPED, "not wanted"), seed=None, actor="ops")
    [gap] = feed.control.gaps(known.feed_id)
    closed = replace(gap, closed_by_batch=UUID(int=1))
    monkeypatch.setattr(feed.control, "gaps", lambda _: [gap, closed])
    found = sent(feed)
    assert (found[OPEN_GAPS], found[GAP_OFFSETS]) == (1, 30)
