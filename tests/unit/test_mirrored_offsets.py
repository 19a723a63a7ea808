"""Where a feed continues in a cluster that has copies of its records at other offsets."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.fakes import FakeKafkaCluster, FeedInMemory, log, partition, topic

from kafka_ingest.errors import InvalidRangeError
from kafka_ingest.model.offsets import FirstRecord, Isolation, TopicPartition
from kafka_ingest.verbs.found_offsets import Mirrored, mirrored_offsets, said_of


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


def test_a_copy_that_is_behind_is_waited_for(feed: FeedInMemory) -> None:
    feed.kafka.times[partition(0)] = times({offset: offset for offset in range(100)})
    with pytest.raises(InvalidRangeError, match=r"only older ones in orders-0\. Wait until the mirror has caught up"):
        mirrored(feed, copy_of(0, 50, {offset: offset for offset in range(50)}))
    feed.kafka.topics["orders"] = topic(log(0, 101))
    feed.kafka.times[partition(0)] = times({99: 2, 100: 3})
    with pytest.raises(InvalidRangeError, match=r"only older ones in orders-0"):
        mirrored(feed, copy_of(0, 10, {9: 2}))


def test_a_copy_whose_unread_records_may_all_be_deleted_is_said_to(feed: FeedInMemory) -> None:
    feed.kafka.topics["orders"] = topic(log(0, 400))
    feed.kafka.times[partition(0)] = times({offset: offset for offset in range(400)})
    found = mirrored(feed, copy_of(400, 400, {}))
    assert found == Mirrored(400, at(100), again=100, may_miss=True)
    assert said_of({partition(0): found})[1].startswith("may be missed: the new logs of orders-0 are empty")
    assert mirrored(feed, copy_of(0, 0, {})) == Mirrored(0, at(100), again=100, may_miss=True), "nothing is copied yet"


def test_a_copy_that_begins_with_a_record_of_the_first_unread_ones_time_may_lack_it(feed: FeedInMemory) -> None:
    feed.kafka.topics["orders"] = topic(log(0, 102))
    feed.kafka.times[partition(0)] = times({99: 2, 100: 3, 101: 3})
    assert mirrored(feed, copy_of(11, 12, {11: 3})) == Mirrored(11, at(3), again=0, may_miss=True)
    assert mirrored(feed, copy_of(9, 12, {9: 2, 11: 4})) == Mirrored(11, at(3), again=100, may_miss=True), "a hole"


def test_records_that_only_the_copy_holds_still_count_as_read_twice(feed: FeedInMemory) -> None:
    feed.kafka.topics["orders"] = topic(log(99, 100))
    feed.kafka.times[partition(0)] = times({99: 2})
    assert mirrored(feed, copy_of(0, 12, {9: 2, 10: 2, 11: 2})) == Mirrored(9, at(2), again=4, may_miss=False)


def test_where_the_old_log_has_no_record_left_all_that_the_copy_holds_is_read(feed: FeedInMemory) -> None:
    feed.kafka.topics["orders"] = topic(log(100, 100))
    feed.kafka.times[partition(0)] = {}
    assert mirrored(feed, copy_of(3, 12, {3: 1})) == Mirrored(3, None, again=9, may_miss=False)
    assert mirrored(feed, copy_of(3, 3, {})) == Mirrored(3, None, again=0, may_miss=False)


MOVED = FeedInMemory(kafka=FakeKafkaCluster({"orders": topic(log(0, 100))}))
MOVED.committed()


def continued(
    seconds: list[int], stored: int, old_start: int, copied: list[int], later: list[int], shift: int
) -> tuple[Mirrored, list[int]]:
    """Return where a feed continues, and what it reads from there on, as numbers of the old log's records.

    ``copied`` are those that the new log holds, from ``shift`` on, ``later`` those that will be copied.
    """
    old = FakeKafkaCluster({"orders": topic(log(old_start, len(seconds)))})
    old.times[partition(0)] = times({number: seconds[number] for number in range(old_start, len(seconds))})
    places = {shift + place: number for place, number in enumerate(copied)}
    new = copy_of(shift, shift + len(copied), {offset: seconds[number] for offset, number in places.items()})
    snapshot = MOVED.control.feed("orders")
    assert snapshot is not None
    rows = {tp: replace(row, next_offset=stored) for tp, row in snapshot.stored.items()}
    snapshot = replace(snapshot, stored=rows)
    found = mirrored_offsets(rows.values(), snapshot, Isolation.READ_UNCOMMITTED, old, new)[partition(0)]
    return found, [number for offset, number in places.items() if offset >= found.offset] + later


@given(st.data())
def test_no_unread_record_is_passed_silently_and_never_more_are_read_twice_than_announced(data: st.DataObject) -> None:
    """Records of a time that does not fall; either log may have deleted its first ones, and the copy may be behind."""
    seconds = sorted(data.draw(st.lists(st.integers(1, 4), max_size=8)))
    size = len(seconds)
    stored = data.draw(st.integers(0, size))
    old_start = data.draw(st.integers(0, stored))
    begin = data.draw(st.integers(0, size))
    end = data.draw(st.integers(begin, size))
    copied, later = [*range(begin, end)], [*range(max(end, old_start), size)]
    try:
        found, read = continued(seconds, stored, old_start, copied, later, data.draw(st.integers(0, 3)))
    except InvalidRangeError:
        assert copied
        assert copied[-1] < stored, "it is behind"
        return
    assert found.may_miss or {*range(stored, size)} <= {*read}
    assert len([number for number in read if number < stored]) <= found.again


@given(st.data())
def test_times_in_no_order_pass_no_unread_record_of_a_copy_that_holds_the_first_one(data: st.DataObject) -> None:
    """The copy may lack any others: they were compacted, or it began later."""
    seconds = data.draw(st.lists(st.integers(1, 4), min_size=1, max_size=8))
    stored = data.draw(st.integers(0, len(seconds)))
    anchor = min(stored, len(seconds) - 1)
    copied = sorted({anchor} | data.draw(st.sets(st.sampled_from(range(len(seconds))))))
    found, read = continued(seconds, stored, 0, copied, [], data.draw(st.integers(0, 3)))
    assert {number for number in copied if number >= stored} <= {*read}
    assert len([number for number in read if number < stored]) <= found.again


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


def test_times_that_are_no_milliseconds_are_refused(feed: FeedInMemory) -> None:
    feed.kafka.topics["orders"] = topic(log(0, 101))
    nanoseconds = 1_767_225_600_000_000_000
    feed.kafka.firsts[partition(0)] = FirstRecord(nanoseconds, by_broker=False, offset=100)
    with pytest.raises(InvalidRangeError, match=f"one of orders-0 of {nanoseconds} ms since 1970, .* year 9999"):
        mirrored(feed, copy_of(0, 12, {10: 3}))
