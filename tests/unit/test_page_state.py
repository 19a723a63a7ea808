"""A feed's own view says the same of its state as the list of all feeds does."""

from datetime import timedelta

import pytest
from tests.fakes import FakeKafkaCluster, FeedInMemory, log, topic

from kafka_ingest.model.control_rows import FeedSnapshot
from kafka_ingest.observing.feed_lines import FeedLine, Standing, ask_logs, line_of
from kafka_ingest.observing.feed_status import ask
from kafka_ingest.observing.group_drift import GroupDrift
from kafka_ingest.page.one_feed import line_of_snapshot
from kafka_ingest.settings.feed import Feed

HOURLY = Feed.model_validate(
    {"name": "orders", "kafka": {"topics": ["orders"], "group": "g"}, "sink": {"format": "parquet", "path": "orders"}}
)


@pytest.fixture
def feed() -> FeedInMemory:
    """A feed that committed orders-0[0, 100) and orders-1[0, 50)."""
    feed = FeedInMemory()
    feed.committed()
    return feed


def snapshot_of(feed: FeedInMemory) -> FeedSnapshot:
    found: FeedSnapshot = feed.control.feed("orders")
    return found


def own_line(feed: FeedInMemory, *, undecided: int = 0, oldest: timedelta | None = None) -> FeedLine:
    snapshot = snapshot_of(feed)
    return line_of_snapshot(snapshot, undecided, ask(snapshot, feed.kafka, "g"), HOURLY, None, oldest)


def test_a_feed_is_on_time_or_behind_by_its_schedule_and_its_group_may_have_drifted(feed: FeedInMemory) -> None:
    feed.kafka.topics["orders"] = topic(log(0, 130), log(0, 50))
    young, old = own_line(feed, oldest=timedelta(minutes=5)), own_line(feed, oldest=timedelta(hours=9))
    assert (young.lag, young.standings, old.standings) == (30, (Standing.ON_TIME,), (Standing.BEHIND,))
    feed.kafka.groups["g"] = dict.fromkeys(snapshot_of(feed).stored, 50)
    drifted = own_line(feed, undecided=1)
    assert drifted.standings[:2] == (Standing.GAPS, Standing.DRIFTED)
    assert drifted.drift == GroupDrift(behind=50)


@pytest.mark.parametrize(
    "kafka",
    [
        FakeKafkaCluster({"orders": topic(log(0, 130), log(0, 50))}, cluster_id="another"),
        FakeKafkaCluster({"orders": topic(log(0, 130), log(0, 50), topic_id="another")}),
        FakeKafkaCluster({}),
    ],
    ids=["another cluster", "another topic", "no topic"],
)
def test_of_another_cluster_or_topic_both_views_show_no_number(feed: FeedInMemory, kafka: FakeKafkaCluster) -> None:
    feed.kafka = kafka
    line = own_line(feed)
    assert (line.lag, line.standings) == (None, (Standing.OTHER_RECORDS,))
    logs = ask_logs(kafka, snapshot_of(feed).stored)
    assert line.overview is not None
    assert line_of(line.overview, logs, HOURLY.kafka.isolation).standings == line.standings


def test_without_an_answer_the_state_is_unknown(feed: FeedInMemory) -> None:
    assert line_of_snapshot(snapshot_of(feed), 0, None, HOURLY, None, None).standings == (Standing.UNKNOWN,)
    assert line_of_snapshot(snapshot_of(feed), 0, None, None, "no sink", None).standings == (
        Standing.UNUSABLE,
        Standing.UNKNOWN,
    )
