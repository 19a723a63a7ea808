"""A feed without max_records: its batches hold what its newest ones would have read in ten minutes."""

from dataclasses import replace
from datetime import timedelta

import pytest
from tests.fakes import FakeKafkaCluster, FeedInMemory, feed_settings, log, partition, topic

from kafka_ingest.planning.limits import LEAST_RECORDS, with_default_limit

AUTO = feed_settings(limit_follows_speed=True)
BACKLOG = 900_000_000


@pytest.fixture
def feed() -> FeedInMemory:
    """A feed of a long backlog that says nothing of limits."""
    return FeedInMemory(FakeKafkaCluster({"orders": topic(log(0, BACKLOG))}), settings=AUTO)


def test_ten_minutes_at_the_best_speed_are_the_limit() -> None:
    assert with_default_limit(AUTO, [2_000.0, 100_000.0, 50.0]).max_records == 60_000_000


@pytest.mark.parametrize("speeds", [[], [0.5], [400.0]])
def test_of_slow_small_batches_and_of_none_the_limit_is_not_below_half_a_million(speeds: list[float]) -> None:
    assert with_default_limit(AUTO, speeds).max_records == LEAST_RECORDS == 500_000


def test_a_feed_that_waits_for_more_records_than_that_gets_them() -> None:
    waiting = replace(AUTO, min_records=2_000_000, max_wait=timedelta(hours=6))
    assert with_default_limit(waiting, []).max_records == 2_000_000


def test_the_first_batch_of_a_backlog_is_small_and_says_that_there_is_more(feed: FeedInMemory) -> None:
    plan = feed.planned()
    assert (plan.max_rows, plan.capped) == (500_000, True)


def test_a_dry_run_shows_the_same_limit(feed: FeedInMemory) -> None:
    decision = feed.plan(None).decision
    assert decision is not None
    assert (decision.max_records, sum(found.span for found in decision.ranges)) == (500_000, 500_000)


def test_the_batch_after_it_follows_the_speed_of_the_first(feed: FeedInMemory) -> None:
    first = feed.planned()
    feed.write(first.batch_id)
    attempt = feed.control.state.attempts[first.batch_id, 1]
    feed.control.state.written_at[first.batch_id] = attempt.opened_at + timedelta(seconds=5)
    feed.commit(first.batch_id)

    assert feed.planned().max_rows == 500_000 // 5 * 600


@pytest.mark.parametrize(("asked_for", "planned"), [(1_000, 1_000), (10_000_000, LEAST_RECORDS)])
def test_a_run_of_its_own_limit_may_read_less_than_that_and_not_more(
    feed: FeedInMemory, asked_for: int, planned: int
) -> None:
    feed.settings = replace(AUTO, max_records=asked_for)
    shown = feed.plan(None).decision
    assert shown is not None
    assert (shown.max_records, feed.planned().max_rows) == (planned, planned)


@pytest.mark.parametrize("max_records", [7, None])
def test_what_the_feed_says_counts(feed: FeedInMemory, max_records: int | None) -> None:
    feed.settings = feed_settings(max_records=max_records)
    assert feed.planned().max_rows == (max_records or BACKLOG)
    assert feed.stored_offsets() == {partition(0): 0}
