"""A crash between any two steps of the life of a batch whose output is a Delta or Iceberg table (invariant 5)."""

from pathlib import Path

import pytest
from tests.contract.interference import changes_the_world
from tests.contract.lives import Feeds, Life, damaged_files, empty_batch, first_run, second_batch
from tests.contract.test_crash_at_every_boundary import (
    another_run,
    assert_recovers,
    die,
    every_world_and_half_a_publish,
    instants_of_one_batch,
)
from tests.contract.whole_feed import Scheduler, WholeFeed
from tests.fakes import InMemoryControlTables
from tests.object_store import ObjectStore

from kafka_ingest.foundation.storage import opened

pytestmark = pytest.mark.long


def every_world_of_a_table(name: str) -> bool:
    """Without what comes after the commit, which asks nothing of an output: test_crash_at_every_boundary tries that."""
    return every_world_and_half_a_publish(name) and not name.startswith(("after kafka.", "after airflow."))


@pytest.mark.parametrize(
    ("table", "life"),
    [
        *(("delta", life) for life in (first_run, second_batch, damaged_files)),
        *(("iceberg", life) for life in (first_run, second_batch, empty_batch)),
    ],
)
def test_a_crash_between_any_two_steps_leaves_every_record_in_the_table_once(
    lake: Path, table: str, life: Life
) -> None:
    """Another run repeats each step that the same run would, and first asks the table what is in it."""
    feeds = Feeds(lake, InMemoryControlTables, table)
    names, to_try = instants_of_one_batch(feeds.new(life), Scheduler(), every_world_of_a_table)
    beginning = feeds.beginning(life)
    for instant in to_try:
        feed, scheduler = beginning.again()
        die(feed, scheduler, instant)
        another_run(feed, scheduler)
        assert_recovers(feed, scheduler, after=names[instant], may_fail=life is damaged_files)


def every_world_of_a_store(name: str) -> bool:
    """After each step of Spark, and where all is published; what other steps leave, test_sink_in_store tries."""
    return changes_the_world(name) and name.split(" ", 1)[1].startswith(("sink.publish", "spark."))


def test_a_crash_after_any_step_leaves_every_record_in_a_store_once_and_no_upload_is_left_with_an_attempt(
    lake: Path, object_store: ObjectStore
) -> None:
    object_store.make_bucket("lake")
    feeds = Feeds(lake, InMemoryControlTables, "delta", object_store.access())
    names, changes = instants_of_one_batch(feeds.new(first_run), Scheduler(), every_world_of_a_store)
    # A crash after a step's second time, such as another range's file, leaves more of what its first time left.
    to_try = list({names[instant]: instant for instant in reversed(changes)}.values())
    assert "after spark.write_half_a_data_file" in {names[instant] for instant in to_try}
    for instant in to_try:
        feed, scheduler = feeds.new(first_run), Scheduler()
        die(feed, scheduler, instant)
        if "half" in names[instant]:
            assert uploads_below(feed)
        another_run(feed, scheduler)
        assert_recovers(feed, scheduler, after=names[instant])
        for batch_id in feed.states():
            for attempt in feed.control.attempts(batch_id):
                feed.sink.staging.remove(attempt.directory)
        assert not uploads_below(feed)


def uploads_below(feed: WholeFeed) -> list[str]:
    """Return the uploads in parts that have begun in the feed's place of a store."""
    place = feed.settings.output.place.parent
    assert not isinstance(place, Path)
    found = opened(place, feed.access).fs.call_s3("list_multipart_uploads", Bucket="lake", Prefix=f"{place.key}/")
    return [each["Key"] for each in found.get("Uploads", [])]
