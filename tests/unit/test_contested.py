"""Of two feeds that claim one name, output or group the one that the control tables know keeps running."""

from dataclasses import replace
from pathlib import Path

import pytest
from tests.fakes import OUTPUT, FeedInMemory, InMemorySink, feed_settings, log, topic
from tests.outputs import parquet_at

from kafka_ingest.assembly import claimant
from kafka_ingest.batches.output_places import Claimant, keeps_running
from kafka_ingest.settings.feed import Feed

ORDERS = Claimant("orders", parquet_at(OUTPUT), ("orders",), None)
COPY = Claimant("copy", parquet_at(OUTPUT), ("orders",), None)
ELSEWHERE = Path("/data/elsewhere")


@pytest.fixture
def feed() -> FeedInMemory:
    """Feed ``orders``, with a committed batch."""
    made = FeedInMemory()
    made.committed()
    return made


def known_elsewhere(feed: FeedInMemory) -> None:
    """Let the control tables know feed ``refunds``, too, with a batch in an output of its own."""
    settings = feed_settings(name="refunds", output=parquet_at(ELSEWHERE))
    FeedInMemory(control=feed.control, sink=InMemorySink(ELSEWHERE), settings=settings).committed()


def test_the_one_that_was_there_first_runs_and_the_copy_does_not(feed: FeedInMemory) -> None:
    assert keeps_running(ORDERS, [COPY], feed.control)
    assert not keeps_running(COPY, [ORDERS], feed.control)


def test_a_feed_that_was_planned_and_has_no_batch_yet_was_there_first() -> None:
    feed = FeedInMemory()
    feed.kafka.topics = {"orders": topic(log(5, 5))}
    feed.plan()
    assert keeps_running(ORDERS, [COPY], feed.control)


def test_where_the_control_tables_know_none_nobody_runs() -> None:
    control = FeedInMemory().control
    assert not keeps_running(ORDERS, [COPY], control)
    assert not keeps_running(COPY, [ORDERS], control)


def test_where_they_know_both_at_their_places_nobody_runs(feed: FeedInMemory) -> None:
    # They share a group: whose it was, the control tables do not say.
    known_elsewhere(feed)
    claimant = Claimant("refunds", parquet_at(ELSEWHERE), ("orders",), None)
    assert not keeps_running(ORDERS, [claimant], feed.control)
    assert not keeps_running(claimant, [ORDERS], feed.control)


def test_a_known_feed_that_was_edited_into_anothers_output_does_not_stop_that_one(feed: FeedInMemory) -> None:
    known_elsewhere(feed)
    edited = Claimant("refunds", parquet_at(OUTPUT), ("orders",), None)
    assert keeps_running(ORDERS, [edited], feed.control)
    assert not keeps_running(edited, [ORDERS], feed.control)


@pytest.mark.parametrize(
    "other",
    [
        {"output": parquet_at(ELSEWHERE)},
        {"topics": ("refunds",)},
        {"topics": (), "topic_pattern": "orders"},
    ],
)
def test_a_copy_that_took_the_name_is_not_the_feed_where_it_reads_or_writes_something_else(
    feed: FeedInMemory, other: dict[str, object]
) -> None:
    assert keeps_running(ORDERS, [ORDERS], feed.control)
    assert not keeps_running(replace(ORDERS, **other), [ORDERS], feed.control)


@pytest.mark.parametrize("is_committed", [True, False])
def test_a_root_that_goes_up_again_is_the_place_it_leads_to(is_committed: bool) -> None:  # noqa: FBT001 - of parametrize
    environment = {"KAFKA_INGEST_DATA": "/opt/x/../data"}
    document = {"name": "orders", "kafka": {"topics": ["orders"]}, "sink": {"format": "parquet", "path": "orders"}}
    file = Feed.model_validate(document)
    written = file.output(environment).path
    assert written == Path("/opt/x/../data/orders"), "what is there already was published under this name"
    feed = FeedInMemory(sink=InMemorySink(written), settings=feed_settings(output=parquet_at(written)))
    feed.committed() if is_committed else feed.planned()
    claim = claimant(file, environment)
    assert keeps_running(claim, [COPY], feed.control)
    assert not keeps_running(replace(claim, output=parquet_at(Path("/opt/x/data/orders"))), [COPY], feed.control)


def test_an_open_batch_says_where_a_feed_writes(feed: FeedInMemory) -> None:
    feed.settings, feed.sink = feed_settings(output=parquet_at(ELSEWHERE)), InMemorySink(ELSEWHERE)
    feed.kafka.topics = {"orders": topic(log(0, 200), log(0, 50))}
    feed.planned()
    assert keeps_running(replace(ORDERS, output=parquet_at(ELSEWHERE)), [COPY], feed.control)
    assert keeps_running(ORDERS, [COPY], feed.control)
