"""Logs that were cut off below what was read of them, and have grown again: only leader epochs show it."""

import pytest
from tests.fakes import FakeKafkaCluster, FeedInMemory, InMemoryControlTables, feed_settings, log, partition, topic

from kafka_ingest.batches.ask_kafka import Reached, cut_off_at
from kafka_ingest.batches.plan_batch import PlanResult
from kafka_ingest.errors import KafkaUnavailableError, RangeNotInLogError, StoredOffsetBeyondLogError
from kafka_ingest.model.batch import BatchState
from kafka_ingest.model.offsets import Unavailable
from kafka_ingest.planning.settings import OnDataLoss
from kafka_ingest.verbs.adopt import adopt, decide_adoption
from kafka_ingest.verbs.topic_changes import changes_of


@pytest.fixture
def feed() -> FeedInMemory:
    """A feed that has read orders-0[0, 100) and orders-1[0, 50), both in leader epoch 3."""
    made = FeedInMemory(
        kafka=FakeKafkaCluster({"orders": topic(log(0, 100, leader_epoch=3), log(0, 50, leader_epoch=3))})
    )
    made.committed()
    return made


def cut_off_and_grown(feed: FeedInMemory, end: int, grown_to: int) -> None:
    """Let partition 0 have lost what lies behind an offset, and hold other records there under another leader."""
    feed.kafka.topics["orders"] = topic(log(0, grown_to, leader_epoch=5), log(0, 50, leader_epoch=3))
    feed.kafka.epoch_starts = {partition(0): {5: end}}


def test_a_log_that_was_cut_off_and_has_grown_again_stops_the_feed_and_is_held_where_it_ended(
    feed: FeedInMemory,
) -> None:
    cut_off_and_grown(feed, 60, 150)
    with pytest.raises(StoredOffsetBeyondLogError, match="stored offset 100, log end 150, and 60 on"):
        feed.plan()
    [hold] = feed.control.feed("orders").holds
    assert (hold.topic_partition, hold.at_offset) == (partition(0), 60)
    assert feed.stored_offsets() == {partition(0): 100, partition(1): 50}


def test_a_log_that_has_not_grown_so_far_again_is_held_where_it_was_cut_off_not_where_it_ends(
    feed: FeedInMemory,
) -> None:
    cut_off_and_grown(feed, 60, 90)
    with pytest.raises(StoredOffsetBeyondLogError):
        feed.plan()
    assert [hold.at_offset for hold in feed.control.feed("orders").holds] == [60]


def test_a_lower_end_that_a_plan_has_seen_counts_whatever_the_leader_says_later(feed: FeedInMemory) -> None:
    feed.kafka.topics["orders"] = topic(log(0, 40, leader_epoch=3), log(0, 50, leader_epoch=3))
    with pytest.raises(StoredOffsetBeyondLogError):
        feed.plan()
    cut_off_and_grown(feed, 60, 150)
    [change] = changes_of("orders", [], feed.settings, feed.control, feed.kafka).topics
    assert change.log_ends == {partition(0): 40}


def test_a_dry_run_says_the_same_and_writes_nothing(feed: FeedInMemory) -> None:
    cut_off_and_grown(feed, 60, 150)
    with pytest.raises(StoredOffsetBeyondLogError, match="log end 150, and 60 on"):
        feed.plan(None)
    assert feed.control.feed("orders").holds == []


def test_where_losses_are_held_the_other_partitions_continue(feed: FeedInMemory) -> None:
    cut_off_and_grown(feed, 60, 150)
    feed.kafka.topics["orders"] = topic(log(0, 150, leader_epoch=5), log(0, 70, leader_epoch=3))
    feed.settings = feed_settings(on_data_loss=OnDataLoss.HOLD)
    feed.committed()
    assert feed.stored_offsets() == {partition(0): 100, partition(1): 70}


def test_it_is_found_by_tables_that_were_rebuilt_from_the_output(feed: FeedInMemory) -> None:
    feed.control = InMemoryControlTables()
    adopt(decide_adoption(feed.settings, feed.control, feed.sink), feed.control, feed.sink, reason="-", actor="ops")
    cut_off_and_grown(feed, 60, 150)
    with pytest.raises(StoredOffsetBeyondLogError, match="log end 150, and 60 on"):
        feed.plan()


def test_another_leader_that_has_all_that_was_read_is_asked_once_and_noted(feed: FeedInMemory) -> None:
    cut_off_and_grown(feed, 100, 100)
    assert feed.plan().result is PlanResult.NOTHING_NEW
    assert feed.control.feed("orders").stored[partition(0)].leader_epoch == 5
    feed.kafka.questions.clear()
    assert feed.plan().result is PlanResult.NOTHING_NEW
    assert "epoch_ends" not in feed.kafka.questions


def test_while_no_leader_changes_nothing_is_asked(feed: FeedInMemory) -> None:
    feed.kafka.questions.clear()
    feed.plan()
    assert "epoch_ends" not in feed.kafka.questions


def test_a_log_whose_leader_epoch_went_back_may_hold_other_records_from_its_start(feed: FeedInMemory) -> None:
    feed.kafka.topics["orders"] = topic(log(20, 150, leader_epoch=1), log(0, 50, leader_epoch=3))
    with pytest.raises(StoredOffsetBeyondLogError):
        feed.plan()
    assert [hold.at_offset for hold in feed.control.feed("orders").holds] == [20]


def test_a_leader_that_does_not_say_leaves_its_partition_out() -> None:
    kafka = FakeKafkaCluster({"orders": topic(log(0, 150, leader_epoch=5))})
    bounds = kafka.log_bounds([partition(0)])
    kafka.topics["orders"] = topic(Unavailable("LEADER_NOT_AVAILABLE"))
    found = cut_off_at({partition(0): Reached(100, 3)}, bounds, kafka)
    assert found == {partition(0): Unavailable("LEADER_NOT_AVAILABLE")}


def test_a_batch_is_not_read_where_its_log_was_cut_off_after_it_was_planned(feed: FeedInMemory) -> None:
    feed.kafka.topics["orders"] = topic(log(0, 120, leader_epoch=3), log(0, 50, leader_epoch=3))
    plan = feed.planned()
    cut_off_and_grown(feed, 110, 150)
    with pytest.raises(RangeNotInLogError, match=r"orders-0\[100, 120\) ends above the log end 110"):
        feed.ask_for_attempt(plan.batch_id)
    assert feed.planned().batch_id != plan.batch_id
    assert feed.control.batch(plan.batch_id).state is BatchState.ABANDONED


def test_no_answer_for_the_only_partition_is_an_error(feed: FeedInMemory, monkeypatch: pytest.MonkeyPatch) -> None:
    feed.kafka.topics["orders"] = topic(log(0, 150, leader_epoch=5), log(0, 150, leader_epoch=5))
    monkeypatch.setattr(feed.kafka, "epoch_ends", lambda asked: dict.fromkeys(asked, Unavailable("no answer")))
    with pytest.raises(KafkaUnavailableError, match="orders-0: no answer"):
        feed.plan()
