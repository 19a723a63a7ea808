"""Which partitions retention is about to reach before they are read."""

import pytest
from tests.fakes import FeedInMemory, log, topic

from kafka_ingest.errors import WrongClusterError
from kafka_ingest.model.offsets import Isolation, LogBounds, Unavailable
from kafka_ingest.observing.feed_status import low_headroom


@pytest.fixture
def feed() -> FeedInMemory:
    """A feed whose partition 0 is read up to 100."""
    made = FeedInMemory()
    made.kafka.topics = {"orders": topic(log(0, 100))}
    made.committed()
    return made


def warnings(
    feed: FeedInMemory, bounds: LogBounds | Unavailable, isolation: Isolation = Isolation.READ_COMMITTED
) -> list[str]:
    feed.kafka.topics = {"orders": topic(bounds)}
    return [str(found) for found in low_headroom(feed.control.feed("orders"), feed.kafka, isolation)]


def test_a_stored_offset_in_the_oldest_tenth_of_a_log_that_loses_records_is_reported_with_its_numbers(
    feed: FeedInMemory,
) -> None:
    [warning] = warnings(feed, log(95, 1_000))
    assert "orders-0: the stored offset 100 is 5 above the log start 95" in warning


@pytest.mark.parametrize(
    "bounds",
    [
        pytest.param(log(0, 100_000), id="nothing was ever deleted"),
        pytest.param(log(95, 100), id="all is read"),
        pytest.param(log(10, 900), id="a tenth and more lies below"),
        pytest.param(log(95, 1_000, lso=100), id="an open transaction hides what is there"),
        pytest.param(Unavailable("LEADER_NOT_AVAILABLE"), id="unknown"),
    ],
)
def test_there_is_no_warning_where_retention_is_no_danger(feed: FeedInMemory, bounds: LogBounds | Unavailable) -> None:
    assert warnings(feed, bounds) == []


def test_what_lies_behind_an_open_transaction_counts_for_a_reader_of_everything(feed: FeedInMemory) -> None:
    assert len(warnings(feed, log(95, 1_000, lso=100), Isolation.READ_UNCOMMITTED)) == 1


def test_records_that_are_lost_already_are_reported_too(feed: FeedInMemory) -> None:
    [warning] = warnings(feed, log(200, 1_000))
    assert "100 offsets from the stored offset 100 on were deleted before they were read" in warning


def test_the_numbers_of_a_topic_that_was_made_again_are_left_out(feed: FeedInMemory) -> None:
    feed.kafka.topics = {"orders": topic(log(95, 1_000), topic_id="made again")}
    assert low_headroom(feed.control.feed("orders"), feed.kafka, Isolation.READ_COMMITTED) == []


def test_another_cluster_is_refused(feed: FeedInMemory) -> None:
    feed.kafka.id = "cluster-B"
    with pytest.raises(WrongClusterError):
        low_headroom(feed.control.feed("orders"), feed.kafka, Isolation.READ_COMMITTED)
