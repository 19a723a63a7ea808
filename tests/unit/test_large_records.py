"""Records for which Spark had too little memory: which are to blame, where they are held, and how that ends."""

from dataclasses import replace

import pytest
from tests.fakes import FeedInMemory, feed_settings, partition, sinks, span

from kafka_ingest.assembly import FeedParts
from kafka_ingest.batches.explain_failure import hold_too_large
from kafka_ingest.errors import PartitionUnreadableError, SparkOutOfMemoryError
from kafka_ingest.model.batch import BatchPlan, BatchState
from kafka_ingest.model.hold import HoldCause
from kafka_ingest.model.spark_settings import MIB, Heap, LargeRecord, too_large
from kafka_ingest.settings.feed import Feed
from kafka_ingest.spark_launch.spark_submission import SparkMaster
from kafka_ingest.write_step import explain

MB = 1_000_000
HEAP = Heap("spark.driver.memory", "1000m", decodes=False)


@pytest.fixture
def feed() -> FeedInMemory:
    """A feed whose first batch orders-0[0, 100), orders-1[0, 50) is PLANNED; 10 MB surely fit."""
    feed = FeedInMemory(settings=feed_settings(surely_fits=10 * MB))
    feed.plan()
    return feed


def explained(feed: FeedInMemory, batch: BatchPlan | None = None) -> None:
    """Look for the records to blame, as the write task does once Spark ran out of memory."""
    planned = feed.control.batch((batch or feed.planned()).batch_id)
    hold_too_large(planned, HEAP, feed.control, feed.kafka)


def explanation(feed: FeedInMemory) -> str:
    """Return the reason that was found."""
    with pytest.raises(PartitionUnreadableError) as found:
        explained(feed)
    return str(found.value)


# ── Which are to blame ──


def test_the_first_record_of_a_partition_that_is_about_as_large_as_the_largest_is_to_blame() -> None:
    found = {
        partition(0): [LargeRecord(3, 20 * MB), LargeRecord(7, 60 * MB), LargeRecord(9, 100 * MB)],
        partition(1): [LargeRecord(0, 20 * MB)],
        partition(2): [LargeRecord(5, 51 * MB)],
    }
    assert too_large(found, 10 * MB) == {partition(0): LargeRecord(7, 60 * MB), partition(2): LargeRecord(5, 51 * MB)}


def test_a_record_that_surely_fits_is_not_to_blame() -> None:
    found = {partition(0): [LargeRecord(3, 10 * MB)], partition(1): [LargeRecord(3, 9 * MB)]}
    assert too_large(found, 10 * MB) == {}
    assert too_large({}, 10 * MB) == {}


def test_beside_one_that_no_process_can_read_no_other_is_to_blame() -> None:
    batch = LargeRecord(8, 512 * MB, of_batch=True)
    found = {partition(0): [LargeRecord(3, 200 * MB), batch], partition(1): [LargeRecord(3, 200 * MB)]}
    assert too_large(found, 10 * MB) == {partition(0): batch}
    assert str(batch) == "the record batch at offset 8, which takes more than 512,000,000 bytes"


def test_a_hundredth_of_the_heap_surely_fits_and_a_thousandth_where_records_are_decoded() -> None:
    assert HEAP.surely_fits == 10 * 1024 * 1024
    assert HEAP.size_for(10 * 1024 * 1024) == "1000m"
    decoding = replace(HEAP, decodes=True)
    assert decoding.surely_fits == 1024 * 1024
    assert decoding.size_for(1024 * 1024 + 1) == "1001m"


# ── Looked for ──


@pytest.fixture
def parts(feed: FeedInMemory) -> FeedParts:
    """The feed with a Spark on this machine, and its parts in memory."""
    file = {"name": "orders", "kafka": {"topics": ["orders"]}, "sink": {"format": "parquet", "path": "/data/orders"}}
    parts = FeedParts(Feed.model_validate(file), feed.control, lambda _: None, {})
    vars(parts).update(kafka=feed.kafka, sinks=sinks(feed.sink), master=SparkMaster("spark_default", "local[2]"))
    return parts


@pytest.mark.parametrize("said", ["java.lang.OutOfMemoryError: Java heap space", "Spark was killed (by the system"])
def test_a_record_is_looked_for_once_spark_ran_out_of_memory_or_was_killed(
    feed: FeedInMemory, parts: FeedParts, said: str
) -> None:
    feed.kafka.sizes[partition(0)] = {34: 11 * MB}
    with pytest.raises(PartitionUnreadableError, match="orders-0: Spark has too little memory"):
        explain(parts, feed.open_attempt(feed.planned().batch_id), said)
    assert parts.settings_of_run(None).surely_fits == 1024 * MIB // 100


def test_without_a_large_record_it_is_the_settings_or_nobody_knows(feed: FeedInMemory, parts: FeedParts) -> None:
    attempt = feed.open_attempt(feed.planned().batch_id)
    with pytest.raises(SparkOutOfMemoryError):
        explain(parts, attempt, "java.lang.OutOfMemoryError: Java heap space")
    explain(parts, attempt, "Spark was killed (by the system")


def test_after_another_failure_no_record_is_looked_for(feed: FeedInMemory, parts: FeedParts) -> None:
    feed.kafka.sizes[partition(0)] = {34: 11 * MB}
    explain(parts, feed.open_attempt(feed.planned().batch_id), "Spark ended with exit code 1")
    assert feed.control.feed("orders").holds == []
    assert "large_records" not in feed.kafka.questions


# ── Held, and read again ──


def test_a_record_that_was_too_large_is_held_with_its_size_and_what_can_be_done(feed: FeedInMemory) -> None:
    feed.kafka.sizes[partition(0)] = {20: 5 * MB, 34: 40 * MB}

    said = explanation(feed)

    reason = "Spark has too little memory for the record at offset 34, which has 40,000,000 bytes"
    assert f"orders-0: {reason}. No offset was moved." in said
    assert "Raise spark.driver.memory in the feed's spark.conf to 3815m, or skip" in said
    assert "`kafka-ingest skip orders orders 0 34-TO --reason …`" in said
    (hold,) = feed.control.feed("orders").holds
    assert (hold.topic_partition, hold.cause, hold.at_offset) == (partition(0), HoldCause.UNREADABLE, 34)
    assert hold.reason == reason


def test_the_next_plan_ends_before_it_and_the_other_partitions_continue(feed: FeedInMemory) -> None:
    feed.kafka.sizes[partition(0)] = {34: 40 * MB}
    first = feed.planned()
    explanation(feed)

    assert feed.planned(actor="run 2").ranges == (span(0, 0, 34), span(1, 0, 50))
    assert feed.control.batch(first.batch_id).state is BatchState.ABANDONED


def test_it_stays_held_until_spark_has_the_memory_for_it(feed: FeedInMemory) -> None:
    feed.kafka.sizes[partition(0)] = {34: 40 * MB}
    explanation(feed)
    feed.committed()
    assert feed.stored_offsets() == {partition(0): 34, partition(1): 50}
    feed.plan()
    assert [hold.at_offset for hold in feed.control.feed("orders").holds] == [34]

    feed.settings = feed_settings(surely_fits=40 * MB)
    feed.committed()
    assert feed.stored_offsets() == {partition(0): 100, partition(1): 50}
    feed.plan()
    assert feed.control.feed("orders").holds == []


def test_with_more_memory_the_same_batch_is_resumed(feed: FeedInMemory) -> None:
    feed.kafka.sizes[partition(0)] = {34: 40 * MB}
    first = feed.planned()
    explanation(feed)
    feed.settings = feed_settings(surely_fits=40 * MB)
    assert feed.planned(actor="run 2").batch_id == first.batch_id


def test_where_all_records_surely_fit_nothing_is_held(feed: FeedInMemory) -> None:
    feed.kafka.sizes[partition(0)] = {34: 10 * MB}
    explained(feed)
    assert feed.control.feed("orders").holds == []
