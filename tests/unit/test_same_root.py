"""A relative output below another root than before splits the feed's output, and is said before it happens."""

from pathlib import Path

import pytest
from tests.fakes import OUTPUT, FeedInMemory, InMemorySink, feed_settings, log, sinks, topic
from tests.outputs import parquet_at

from kafka_ingest.batches.known_output import check_output
from kafka_ingest.batches.plan_batch import PlanResult
from kafka_ingest.errors import OutputElsewhereError

HERE = Path("/home/me/data") / OUTPUT.name
RELATIVE = Path(OUTPUT.name)
SAYS = (
    rf"sink.path '{RELATIVE}' leads to {HERE} here, but the feed's newest batch, .*, was published in {OUTPUT}: does "
    rf"KAFKA_INGEST_DATA differ .*Nothing was read, written or moved. Set KAFKA_INGEST_DATA={OUTPUT.parent} as there.*"
    rf"set it in the feed file: sink.path: {HERE}\.$"
)


@pytest.fixture
def feed() -> FeedInMemory:
    """A feed with a published batch and more to read, seen from a shell with another root."""
    made = FeedInMemory(settings=feed_settings(relative_path=RELATIVE))
    made.committed()
    made.kafka.topics = {"orders": topic(log(0, 200), log(0, 50))}
    made.settings = feed_settings(output=parquet_at(HERE), relative_path=RELATIVE)
    return made


def test_a_plan_under_another_root_is_refused_and_nothing_is_recorded(feed: FeedInMemory) -> None:
    with pytest.raises(OutputElsewhereError, match=SAYS):
        feed.plan()
    assert feed.control.feed("orders").open_batch is None


def test_a_dry_run_and_status_say_it_too(feed: FeedInMemory) -> None:
    with pytest.raises(OutputElsewhereError, match=SAYS):
        feed.plan(None)
    with pytest.raises(OutputElsewhereError, match=SAYS):
        check_output(feed.control.feed("orders"), feed.settings, feed.control, sinks(feed.sink))


@pytest.mark.parametrize(
    "settings",
    [
        # The feed file says where: a root has no part in it.
        feed_settings(output=parquet_at(HERE)),
        # The feed file was edited.
        feed_settings(output=parquet_at(HERE.with_name("renamed")), relative_path=Path("renamed")),
        feed_settings(
            output=parquet_at(HERE.parent / "lake" / OUTPUT.name),
            relative_path=Path("lake") / OUTPUT.name,
        ),
        # The same root.
        feed_settings(relative_path=RELATIVE),
    ],
)
def test_what_the_feed_file_says_itself_is_meant(feed: FeedInMemory, settings: object) -> None:
    feed.settings = settings
    feed.sink = InMemorySink(feed.settings.output.path) if feed.settings.output.path != OUTPUT else feed.sink
    assert feed.plan().result is PlanResult.PLANNED


def test_the_same_storage_under_another_name_is_no_other_output(feed: FeedInMemory) -> None:
    feed.sink.output_path = HERE
    assert feed.plan().result is PlanResult.PLANNED


def test_an_open_batch_continues_where_it_was_planned(feed: FeedInMemory) -> None:
    feed.settings, here = feed_settings(relative_path=RELATIVE), feed.settings
    planned = feed.planned()
    feed.settings = here
    assert feed.plan().batch == planned
