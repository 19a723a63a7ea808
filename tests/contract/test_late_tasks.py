"""Tasks that come second or too late, a week later even.

One effect, and an answer that says who won and harms nothing.
"""

import shutil
from dataclasses import replace
from pathlib import Path
from uuid import UUID

import pytest
from tests.contract.builders import at_once
from tests.contract.conftest import SqlStore
from tests.contract.every_record_once import assert_every_record_is_there_once, assert_group_follows, records_in_output
from tests.contract.lives import Feeds, Life, empty_batch, produce, second_batch, stop_before
from tests.contract.whole_feed import DagRun, WholeFeed, at_rest

from kafka_ingest.batches.commit_batch import Committed
from kafka_ingest.batches.pin_receipt import pin_attempt
from kafka_ingest.errors import BatchStateError
from kafka_ingest.model.batch import BatchState
from kafka_ingest.model.place import DATA
from kafka_ingest.sinks.parquet import parquet_sink
from kafka_ingest.verbs.abandon import abandon
from kafka_ingest.verbs.clean import clean_up, staged_outputs_of_batch

pytestmark = pytest.mark.sqlite_is_enough

ROUNDS = 5


@pytest.fixture
def feeds(database: SqlStore, lake: Path) -> Feeds:
    return Feeds(lake, database.connect)


def elsewhere(feed: WholeFeed, database: SqlStore) -> WholeFeed:
    """Return the same feed as a task in another process has it."""
    return replace(feed, control=database.connect(), sink=parquet_sink(feed.output))


# ── At the same moment ────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.postgresql_too
@pytest.mark.parametrize("life", [second_batch, empty_batch])
def test_of_two_commits_of_a_batch_at_once_one_commits_it_and_both_say_who(
    database: SqlStore, feeds: Feeds, life: Life
) -> None:
    for _ in range(ROUNDS):
        feed = feeds.new(life)
        stop_before(feed, "sink.verify")
        batch_id = max(feed.states())
        rivals = [elsewhere(feed, database) for _ in range(2)]

        first, second = at_once(
            lambda batch_id=batch_id, rivals=rivals: rivals[0].commit(batch_id, "run 1"),
            lambda batch_id=batch_id, rivals=rivals: rivals[1].commit(batch_id, "run 2"),
        )

        assert isinstance(first, Committed), first
        assert isinstance(second, Committed), second
        assert first.batch == second.batch == feed.control.batch(batch_id)
        winner = first if first.batch.committed_by == "run 1" else second
        assert [each.by_us for each in (first, second)] == [each is winner for each in (first, second)]
        assert_every_record_is_there_once(feed)
        assert_group_follows(feed)


# ── Too late ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def superseded(feeds: Feeds) -> tuple[WholeFeed, UUID]:
    """Return a feed, and a batch of it that others came after; its staged files are cleaned up."""
    feed = feeds.new(produce)
    at_rest(feed)
    [batch_id] = feed.states()
    produce(feed)
    at_rest(feed)
    staged = staged_outputs_of_batch(batch_id, feed.control, feed.sinks)
    assert len(list(clean_up(staged, feed.control, feed.sinks))) == 1
    return feed, batch_id


def test_a_cleared_commit_of_a_superseded_batch_does_nothing_and_says_who_committed_it(
    database: SqlStore, feeds: Feeds
) -> None:
    feed, batch_id = superseded(feeds)
    announced = list(feed.airflow.announced)
    before = database.dump()

    committed = feed.commit(batch_id, "a week later")

    assert (committed.by_us, committed.batch.committed_by, committed.batch.state) == (
        False,
        "run 1",
        BatchState.COMMITTED,
    )
    assert database.dump() == before
    assert feed.airflow.announced == announced
    assert_every_record_is_there_once(feed)
    assert_group_follows(feed)


def test_a_cleared_write_of_a_superseded_batch_needs_no_spark_and_changes_nothing(
    database: SqlStore, feeds: Feeds
) -> None:
    feed, batch_id = superseded(feeds)
    before = database.dump()

    feed.write(batch_id, "a week later")

    assert database.dump() == before
    assert not list(feed.output.parent.rglob(f"staging/{batch_id}"))
    assert_every_record_is_there_once(feed)


def test_a_whole_run_of_a_superseded_batch_that_is_cleared_finds_what_is_new_instead(feeds: Feeds) -> None:
    feed, _ = superseded(feeds)
    feed.log.produce(2, 4)

    DagRun("run 1").resume(feed)

    assert_every_record_is_there_once(feed)
    assert_group_follows(feed)


@pytest.mark.parametrize("before", ["control.open_attempt", "control.begin_commit", "sink.publish"])
def test_the_cleared_tasks_of_an_abandoned_batch_are_refused_with_the_reason(
    database: SqlStore, feeds: Feeds, before: str
) -> None:
    feed = feeds.new(produce)
    stop_before(feed, before)
    [batch_id] = feed.states()
    abandon(batch_id, feed.control, feed.sinks, reason="wrong topic", actor="ops")
    dump = database.dump()

    with pytest.raises(BatchStateError, match=r"was abandoned by ops \(wrong topic\) and will not be committed"):
        feed.commit(batch_id, "run 1")
    with pytest.raises(BatchStateError, match=r"was abandoned by ops \(wrong topic\); it will not be written"):
        feed.write(batch_id, "run 1")

    assert database.dump() == dump
    assert records_in_output(feed.output) == []
    at_rest(feed)
    assert_every_record_is_there_once(feed)


def test_a_zombie_of_spark_that_ends_a_week_later_learns_that_another_attempt_counts(
    database: SqlStore, feeds: Feeds
) -> None:
    feed = feeds.new(produce)
    stop_before(feed, "spark.write_receipt")
    [batch_id] = feed.states()
    [zombie] = feed.control.attempts(batch_id)
    at_rest(feed)
    before = database.dump()

    shutil.rmtree(zombie.directory / DATA)
    feed.run_spark(zombie)
    found = pin_attempt(batch_id, zombie.attempt, feed)

    assert (found.state, found.pinned_attempt) == (BatchState.COMMITTED, zombie.attempt + 1)
    assert database.dump() == before
    assert_every_record_is_there_once(feed)
