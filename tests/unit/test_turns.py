"""Retention that is quicker than a batch: what one partition loses costs the others no more than their turn."""

from collections.abc import Callable

import pytest
from tests.fakes import FakeKafkaCluster, FeedInMemory, feed_settings, log, partition, span, topic

from kafka_ingest.batches.plan_batch import PlanResult
from kafka_ingest.errors import RangeNotInLogError
from kafka_ingest.model.batch import BatchState
from kafka_ingest.model.gap import GapCause
from kafka_ingest.model.offsets import LogBounds, OffsetRange
from kafka_ingest.planning.settings import OnDataLoss

RUNS = 40


def a_feed(*logs: LogBounds, max_records: int | None = None) -> FeedInMemory:
    """Return a feed that continues with a gap where records are lost."""
    settings = feed_settings(on_data_loss=OnDataLoss.RECORD_GAP, max_records=max_records)
    return FeedInMemory(FakeKafkaCluster({"orders": topic(*logs)}), settings=settings)


def trim(feed: FeedInMemory, number: int, count: int) -> None:
    """Let retention delete the oldest records of a partition."""
    found = feed.kafka.topics["orders"].logs[number]
    start = min(found.log_start_offset + count, found.high_watermark)
    feed.kafka.topics["orders"].logs[number] = log(start, found.high_watermark)


def run(feed: FeedInMemory, while_reading: Callable[[], object]) -> PlanResult:
    """Run plan, write and commit; retention deletes records between plan and read.

    A run that fails is followed by the next.
    """
    outcome = feed.plan()
    if outcome.batch is not None:
        while_reading()
        try:
            feed.write(outcome.batch.batch_id)
        except RangeNotInLogError:
            return outcome.result
        feed.commit(outcome.batch.batch_id)
    return outcome.result


def committed(feed: FeedInMemory) -> list[OffsetRange]:
    """Return all ranges that batches committed."""
    batches = feed.control.state.batches.values()
    return [each for batch in batches if batch.state is BatchState.COMMITTED for each in batch.ranges_read]


def in_gaps(feed: FeedInMemory) -> list[OffsetRange]:
    """Return what was lost, all of it to retention."""
    gaps = feed.control.gaps(feed.control.feed("orders").feed_id)
    assert {gap.cause for gap in gaps} <= {GapCause.RETENTION}
    return [gap.offset_range for gap in gaps]


def assert_each_offset_once(feed: FeedInMemory, number: int) -> None:
    """Every offset up to the stored one was committed or is in a gap, once."""
    found = sorted(each for each in [*committed(feed), *in_gaps(feed)] if each.partition == number)
    end = 0
    for each in found:
        assert each.start_offset == end, found
        end = each.end_offset
    assert end == feed.stored_offsets()[partition(number)]


def test_a_partition_that_is_trimmed_during_every_read_does_not_keep_the_others_from_being_read() -> None:
    feed = a_feed(log(0, 1_000_000), log(0, 300), log(0, 200), max_records=100)

    for _ in range(RUNS):
        run(feed, lambda: trim(feed, 0, 10))

    assert feed.stored_offsets()[partition(1)] == 300
    assert feed.stored_offsets()[partition(2)] == 200
    assert {each.partition for each in committed(feed)} == {1, 2}
    for number in range(3):
        assert_each_offset_once(feed, number)


def test_others_that_always_have_something_to_read_leave_the_endangered_partition_its_turn() -> None:
    feed = a_feed(log(0, 1_000_000), log(0, 100), max_records=100)
    quiet = iter([False, False, True] * RUNS)

    def while_reading() -> None:
        if not next(quiet):
            trim(feed, 0, 10)
        grown = feed.kafka.topics["orders"].logs[1].high_watermark + 50
        feed.kafka.topics["orders"].logs[1] = log(0, grown)

    for _ in range(RUNS):
        run(feed, while_reading)

    by_partition = [sum(each.span for each in committed(feed) if each.partition == number) for number in range(2)]
    assert min(by_partition) > 0, by_partition
    assert_each_offset_once(feed, 0)
    assert_each_offset_once(feed, 1)


def test_partitions_that_lost_records_together_are_parted_where_one_of_them_keeps_losing() -> None:
    feed = a_feed(log(0, 1_000_000), log(0, 300), log(0, 200))
    feed.committed()
    feed.kafka.topics["orders"] = topic(log(1_000_100, 2_000_000), log(400, 600), log(300, 700))
    feed.plan()
    for number in range(3):
        trim(feed, number, 10)

    for _ in range(6):
        run(feed, lambda: trim(feed, 0, 10))

    assert feed.stored_offsets()[partition(1)] == 600
    assert feed.stored_offsets()[partition(2)] == 700


def test_of_endangered_partitions_those_that_lose_nothing_more_are_committed_by_the_same_batch() -> None:
    feed = a_feed(log(0, 1_000), log(0, 1_000), log(0, 10))

    def all_but_the_last_lose() -> None:
        trim(feed, 0, 10)
        trim(feed, 1, 10)
        feed.kafka.topics["orders"].logs[2] = log(0, feed.kafka.topics["orders"].logs[2].high_watermark + 40)

    for _ in range(3):
        run(feed, all_but_the_last_lose)
    run(feed, lambda: None)
    assert committed(feed)[-1].partition == 2, "the others first"

    batch = feed.planned()
    assert [planned.partition for planned in batch.ranges] == [0, 1], "apart from the last"
    trim(feed, 0, 10)
    feed.write(batch.batch_id)
    feed.commit(batch.batch_id)

    assert feed.stored_offsets() == {partition(0): 30, partition(1): 1_000, partition(2): 130}
    feed.kafka.topics["orders"].logs[2] = log(0, 200)
    assert [planned.partition for planned in feed.planned().ranges] == [2], "after a loss the others have their turn"
    for number in range(3):
        assert_each_offset_once(feed, number)


def test_what_an_endangered_partition_reads_at_once_is_a_tenth_of_a_batch() -> None:
    feed = a_feed(log(0, 10_000), log(0, 10_000), max_records=1_000)
    for _ in range(3):
        run(feed, lambda: trim(feed, 0, 50))
    assert feed.stored_offsets()[partition(0)] == 100

    others = feed.written()
    assert others.ranges == (span(1, 999, 1_999),)
    feed.commit(others.batch_id)
    endangered = feed.written()
    assert endangered.ranges == (span(0, 150, 250),)
    assert others.capped
    assert endangered.capped
    feed.commit(endangered.batch_id)
    assert {planned.partition for planned in feed.planned().ranges} == {0, 1}, (
        "something was read: they go together again"
    )


@pytest.mark.parametrize("max_records", [None, 5])
def test_an_endangered_partition_without_others_is_read_too(max_records: int | None) -> None:
    feed = a_feed(log(0, 100), max_records=max_records)
    for _ in range(2):
        run(feed, lambda: trim(feed, 0, 5))
    for _ in range(RUNS):
        run(feed, lambda: None)
    assert feed.stored_offsets() == {partition(0): 100}
    assert in_gaps(feed) == [span(0, 0, 5), span(0, 5, 10)]


def test_one_loss_parts_nothing() -> None:
    feed = a_feed(log(0, 100), log(0, 100))
    run(feed, lambda: trim(feed, 0, 10))
    assert committed(feed) == [span(1, 0, 100)]
    feed.kafka.topics["orders"].logs[1] = log(0, 150)
    assert feed.planned().ranges == (span(0, 10, 100), span(1, 100, 150))


def test_a_feed_at_rest_after_a_loss_has_nothing_to_do() -> None:
    feed = a_feed(log(0, 100), log(0, 100))
    feed.committed()
    feed.kafka.topics["orders"] = topic(log(120, 120), log(0, 100))
    assert run(feed, lambda: None) is PlanResult.NOTHING_NEW
    assert feed.stored_offsets() == {partition(0): 120, partition(1): 100}
