"""Where a feed continues in a cluster that has copies of its records at other offsets."""

from datetime import UTC, datetime, timedelta

import pytest
from tests.fakes import FakeKafkaCluster, FeedInMemory, log, partition, topic

from kafka_ingest.errors import InvalidRangeError
from kafka_ingest.model.offsets import FirstRecord, Isolation, TopicPartition
from kafka_ingest.verbs.mirrored_offsets import Mirrored, mirrored_offsets, said_of


def at(seconds: int) -> datetime:
    return datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=seconds)


def times(seconds: dict[int, int]) -> dict[int, datetime]:
    """Return the times of records at these offsets."""
    return {offset: at(second) for offset, second in seconds.items()}


@pytest.fixture
def feed() -> FeedInMemory:
    """A feed that committed orders-0[0, 100) of a log that ends there."""
    feed = FeedInMemory(kafka=FakeKafkaCluster({"orders": topic(log(0, 100))}))
    feed.committed()
    return feed


def mirrored(feed: FeedInMemory, copy: FakeKafkaCluster) -> Mirrored:
    snapshot = feed.control.feed("orders")
    found = mirrored_offsets(snapshot.stored.values(), snapshot, Isolation.READ_UNCOMMITTED, feed.kafka, copy)
    return found[partition(0)]


def copy_of(start: int, end: int, seconds: dict[int, int]) -> FakeKafkaCluster:
    copy = FakeKafkaCluster({"orders": topic(log(start, end), topic_id="copy")}, cluster_id="cluster-B")
    copy.times[partition(0)] = times(seconds)
    return copy


def test_it_continues_at_the_copy_of_the_first_unread_record(feed: FeedInMemory) -> None:
    feed.kafka.topics["orders"] = topic(log(0, 102))
    feed.kafka.times[partition(0)] = times({98: 1, 99: 2, 100: 3, 101: 4})
    assert mirrored(feed, copy_of(0, 12, {8: 1, 9: 2, 10: 3, 11: 4})) == Mirrored(10, at(3), again=0, may_miss=False)


def test_where_all_is_read_it_continues_at_the_last_record_which_is_looked_for_behind_offsets_without_one(
    feed: FeedInMemory,
) -> None:
    feed.kafka.times[partition(0)] = times({50: 1, 94: 2, 95: 3})
    assert mirrored(feed, copy_of(0, 12, {8: 1, 9: 2, 10: 3, 11: 4})) == Mirrored(9, at(2), again=6, may_miss=False)


def test_a_copy_that_is_behind_continues_at_its_end(feed: FeedInMemory) -> None:
    feed.kafka.topics["orders"] = topic(log(0, 101))
    feed.kafka.times[partition(0)] = times({99: 2, 100: 3})
    assert mirrored(feed, copy_of(0, 10, {9: 2})) == Mirrored(10, at(3), again=0, may_miss=False)


def test_where_the_old_log_has_no_record_left_all_that_the_copy_holds_is_read(feed: FeedInMemory) -> None:
    feed.kafka.topics["orders"] = topic(log(100, 100))
    feed.kafka.times[partition(0)] = {}
    found = mirrored(feed, copy_of(3, 12, {3: 1}))
    assert found == Mirrored(3, None, again=None, may_miss=False)
    assert said_of({partition(0): found})[1].startswith("no record is left in the old logs of orders-0")
    assert mirrored(feed, copy_of(3, 3, {})) == Mirrored(3, None, again=0, may_miss=False)


def test_copies_that_are_dated_by_their_broker_are_refused(feed: FeedInMemory) -> None:
    feed.kafka.topics["orders"] = topic(log(0, 101))
    feed.kafka.times[partition(0)] = times({100: 3})
    copy = copy_of(0, 12, {10: 3})
    copy.firsts[partition(0)] = FirstRecord(1, by_broker=True, offset=10)
    with pytest.raises(InvalidRangeError, match=r"date those of orders-0 themselves .*start-over"):
        mirrored(feed, copy)


def test_records_without_a_time_are_refused(feed: FeedInMemory) -> None:
    feed.kafka.topics["orders"] = topic(log(0, 101))
    feed.kafka.firsts[TopicPartition("orders", 0)] = FirstRecord(None, by_broker=False, offset=100)
    with pytest.raises(InvalidRangeError, match="expected records with times"):
        mirrored(feed, copy_of(0, 12, {10: 3}))
