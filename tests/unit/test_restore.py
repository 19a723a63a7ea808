"""What is restored of an abandoned batch is checked before anything is written; the journal names what exists."""

from collections.abc import Callable
from unittest.mock import patch
from uuid import UUID

import pytest
from tests.fakes import FeedInMemory, InMemoryControlTables, log, sinks, topic

from kafka_ingest.batches.restore import decide_restore, restore
from kafka_ingest.errors import (
    FeedChangedError,
    KafkaIngestError,
    KafkaUnavailableError,
    TopicGoneError,
    TopicRecreatedError,
    WrongClusterError,
)
from kafka_ingest.model.batch import BatchPlan, BatchState
from kafka_ingest.verbs.abandon import abandon

LOGS = (log(0, 100), log(0, 50))


class KilledError(Exception):
    """The process ended."""


@pytest.fixture
def abandoned(feed: FeedInMemory) -> BatchPlan:
    """A batch of all there is, which was written."""
    plan = feed.written()
    abandon(plan.batch_id, feed.control, sinks(feed.sink), reason="a mistake", actor="ops")
    return plan


def restored(feed: FeedInMemory, plan: BatchPlan, reason: str = "the last copy") -> list[UUID]:
    decision = decide_restore(plan.batch_id, feed)
    return restore(decision, feed, reason=reason, actor="ops")


def journal(feed: FeedInMemory, plan: BatchPlan) -> list[tuple[str, list[str]]]:
    """Return the reason and the batches of each line on a restore, newest first."""
    return [
        (each.detail["reason"], each.detail["into"])
        for each in feed.control.journal(plan.feed_id, kinds=["restored"], limit=9)
    ]


def topic_is_gone(feed: FeedInMemory) -> None:
    feed.kafka.topics.clear()


def topic_is_made_again(feed: FeedInMemory) -> None:
    feed.kafka.topics["orders"] = topic(*LOGS, topic_id="topic-id-2")


def cluster_is_another(feed: FeedInMemory) -> None:
    feed.kafka.id = "another cluster"


def kafka_is_down(feed: FeedInMemory) -> None:
    feed.kafka.is_down = True


@pytest.mark.parametrize(
    ("fault", "error"),
    [
        (topic_is_gone, TopicGoneError),
        (topic_is_made_again, TopicRecreatedError),
        (cluster_is_another, WrongClusterError),
        (kafka_is_down, KafkaUnavailableError),
    ],
)
def test_where_kafka_has_other_topics_or_no_answer_nothing_is_written(
    feed: FeedInMemory, abandoned: BatchPlan, fault: Callable[[FeedInMemory], None], error: type[KafkaIngestError]
) -> None:
    fault(feed)
    before = feed.control.state.copied()
    with pytest.raises(error):
        restored(feed, abandoned)
    assert feed.control.state == before


def test_a_topic_made_again_does_not_keep_what_an_earlier_call_wrote_from_its_commit(
    feed: FeedInMemory, abandoned: BatchPlan
) -> None:
    [batch_id] = restored(feed, abandoned)
    topic_is_made_again(feed)
    assert restored(feed, abandoned) == [batch_id]


def test_kafka_need_not_hold_the_records(feed: FeedInMemory, abandoned: BatchPlan) -> None:
    feed.kafka.topics["orders"] = topic(log(100, 100), log(50, 50))
    [batch_id] = restored(feed, abandoned)
    assert feed.control.batch(batch_id).state is BatchState.WRITTEN
    assert journal(feed, abandoned) == [("the last copy", [str(batch_id)])]


def test_where_the_feed_changed_since_it_was_decided_the_journal_names_no_batch(
    feed: FeedInMemory, abandoned: BatchPlan
) -> None:
    decision = decide_restore(abandoned.batch_id, feed)
    feed.control.note_holds(feed.control.feed("orders"), [])
    with pytest.raises(FeedChangedError):
        restore(decision, feed, reason="the last copy", actor="ops")
    assert journal(feed, abandoned) == []


def test_after_a_crash_between_the_two_the_next_call_writes_the_line(feed: FeedInMemory, abandoned: BatchPlan) -> None:
    with patch.object(InMemoryControlTables, "record_event", side_effect=KilledError), pytest.raises(KilledError):
        restored(feed, abandoned)
    [batch_id] = restored(feed, abandoned, "again")
    assert journal(feed, abandoned) == [("again", [str(batch_id)])]
