"""What a format cannot answer or do is refused by name, before anything is changed."""

from datetime import UTC, datetime

import pytest
from tests.fakes import FeedInMemory, InMemorySink, sinks

from kafka_ingest.errors import NotOfThisFormatError
from kafka_ingest.observing.verify_output import count_batches
from kafka_ingest.verbs.expire import decide_expiry
from kafka_ingest.verbs.lost import decide_lost


class OnlyPublishing(InMemorySink):
    """An output that answers no question, and gives nothing back."""

    inspector = remover = salvage = None


@pytest.fixture
def feed() -> FeedInMemory:
    feed = FeedInMemory(sink=OnlyPublishing())
    feed.committed()
    return feed


def test_a_batch_is_committed_without_the_roles_that_a_format_may_lack(feed: FeedInMemory) -> None:
    assert len(feed.sink.published) == 1


def test_verifying_says_that_the_format_cannot_be_counted(feed: FeedInMemory) -> None:
    rows = feed.control.coverage("orders")
    with pytest.raises(NotOfThisFormatError, match="an output of format parquet cannot be counted batch by batch"):
        list(count_batches(rows, feed.control, sinks(feed.sink)))


def test_nothing_expires_from_a_format_that_cannot_remove(feed: FeedInMemory) -> None:
    with pytest.raises(NotOfThisFormatError, match=r"cannot let batches expire.*Nothing was changed"):
        decide_expiry(feed.settings, datetime(2100, 1, 1, tzinfo=UTC), feed.control, sinks(feed.sink))
    assert feed.sink.removals == {}


def test_files_of_a_format_that_cannot_set_them_aside_are_not_called_lost(feed: FeedInMemory) -> None:
    [batch_id] = feed.sink.published
    with pytest.raises(NotOfThisFormatError, match="cannot have single files taken out of readers' sight"):
        decide_lost("orders", batch_id, feed.control, sinks(feed.sink))
