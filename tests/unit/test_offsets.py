"""Positions in Kafka's logs: what they refuse to be, and what they answer."""

from dataclasses import FrozenInstanceError

import pytest
from tests.fakes import partition, span

from kafka_ingest.model.offsets import (
    Isolation,
    LogBounds,
    OffsetRange,
    StoredOffset,
    TopicDescription,
    TopicPartition,
    listing,
)


def test_a_topic_partition_needs_a_topic_name() -> None:
    with pytest.raises(ValueError, match="needs a topic name, found an empty one"):
        TopicPartition("", 0)


def test_a_partition_number_below_0_is_refused() -> None:
    with pytest.raises(ValueError, match="orders: partition numbers start at 0, found -1"):
        TopicPartition("orders", -1)


def test_partitions_sort_by_topic_and_then_by_number_not_by_text() -> None:
    assert sorted([partition(10), partition(9), partition(11, "a")]) == [
        partition(11, "a"),
        partition(9),
        partition(10),
    ]


def test_a_partition_reads_as_kafka_tools_write_it() -> None:
    assert str(TopicPartition("orders", 7)) == "orders-7"


@pytest.mark.parametrize("sentinel", [-1, -2])
def test_a_range_never_starts_at_a_sentinel(sentinel: int) -> None:
    with pytest.raises(ValueError, match=f"orders-0: a start offset is 0 or more, found {sentinel}"):
        span(0, sentinel, 10)


def test_a_range_never_ends_at_a_sentinel() -> None:
    with pytest.raises(ValueError, match=r"orders-0: a range ends at or after its start, found \[0, -1\)"):
        span(0, 0, -1)


def test_a_range_that_ends_before_it_starts_is_refused() -> None:
    with pytest.raises(ValueError, match=r"found \[11, 10\)"):
        span(0, 11, 10)


def test_a_range_spans_its_start_and_not_its_end() -> None:
    assert span(0, 100, 103).span == 3


def test_a_range_may_be_empty() -> None:
    assert span(0, 100, 100).span == 0


def test_a_range_says_which_partition_it_is_of() -> None:
    offset_range = span(3, 100, 200, "refunds")
    assert (offset_range.topic, offset_range.partition) == ("refunds", 3)


def test_a_range_reads_as_a_half_open_interval() -> None:
    assert str(span(3, 100, 200)) == "orders-3[100, 200)"


def test_a_range_cannot_be_changed() -> None:
    offset_range = OffsetRange(partition(0), 0, 10)
    with pytest.raises(FrozenInstanceError):
        offset_range.end_offset = 20


def test_a_read_committed_reader_sees_up_to_the_last_stable_offset() -> None:
    assert LogBounds(10, 90, 100).readable_end(Isolation.READ_COMMITTED) == 90


def test_a_read_uncommitted_reader_sees_up_to_the_high_watermark() -> None:
    assert LogBounds(10, 90, 100).readable_end(Isolation.READ_UNCOMMITTED) == 100


def test_a_topic_lists_its_partitions_in_order() -> None:
    assert TopicDescription("orders", "id", (0, 1)).topic_partitions() == [partition(0), partition(1)]


def test_a_stored_offset_without_a_number_is_pending() -> None:
    assert StoredOffset(partition(0), "id", None, None, "earliest").is_pending


def test_a_stored_offset_of_0_is_not_pending() -> None:
    assert not StoredOffset(partition(0), "id", 0, 0, "earliest").is_pending


def test_a_short_listing_names_all() -> None:
    assert listing([partition(0), partition(1)]) == "orders-0, orders-1"


def test_a_long_listing_names_the_first_five_and_counts_the_rest() -> None:
    assert listing(range(1_005)) == "0, 1, 2, 3, 4 and 1,000 more"
