"""What many feeds' plans ask is asked at once, and each comes to what it would have come to alone."""

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.fakes import FeedInMemory, feed_settings, log, partition, topic
from tests.outputs import parquet_at

from kafka_ingest import assembly
from kafka_ingest.batches.ask_together import ask_together
from kafka_ingest.batches.plan_batch import PlanOutcome, PlanResult, plan_batch
from kafka_ingest.errors import InvalidFeedError, KafkaUnavailableError
from kafka_ingest.model import topics as topic_patterns
from kafka_ingest.model.offsets import Unavailable
from kafka_ingest.planning.settings import FromGroup, Latest, OnDataLoss, OnMissingTopic
from kafka_ingest.settings.feed import Feed
from kafka_ingest.settings.feed_file import FeedFile

IN_BULK = ["describe_topics", "log_bounds", "cluster_id"]


def settings_of(name: str, **changes: Any) -> Any:
    return feed_settings(name=name, start_rules={name: feed_settings().start_rules["orders"]}, **changes)


@pytest.fixture
def feed() -> FeedInMemory:
    """A feed that has read orders-0[0, 100) and orders-1[0, 50)."""
    feed = FeedInMemory()
    feed.committed()
    feed.kafka.questions.clear()
    return feed


def planned_with_others(feed: FeedInMemory, *others: Any) -> PlanOutcome:
    asked = ask_together([feed.settings, *others], feed.control, feed.kafka)
    return plan_batch(feed.settings, feed, actor="run 1", asked=asked.get(feed.settings.name))


def test_a_feed_without_anything_new_has_three_questions_with_all_others_and_only_its_time_is_noted(
    feed: FeedInMemory,
) -> None:
    before, now = feed.control.feed("orders"), datetime.now(UTC)

    outcome = planned_with_others(replace(feed, sink=None))

    assert (outcome.result, outcome.batch, outcome.moved) == (PlanResult.NOTHING_NEW, None, False)
    assert feed.kafka.questions == IN_BULK
    after = feed.control.feed("orders")
    assert after.planned_at >= now
    assert replace(after, planned_at=before.planned_at, revision=before.revision) == before


def test_a_feed_with_new_records_asks_kafka_nothing_more(feed: FeedInMemory) -> None:
    feed.kafka.topics["orders"] = topic(log(0, 130), log(0, 50))

    batch = planned_with_others(feed).batch

    assert batch is not None
    assert [str(each) for each in batch.ranges] == ["orders-0[100, 130)"]
    assert feed.kafka.questions == IN_BULK


def first_plan(feed: FeedInMemory) -> None:
    feed.settings = settings_of("refunds", output=parquet_at("/data/refunds"))
    feed.kafka.topics["refunds"] = topic(log(5, 9))


def first_plan_from_a_group(feed: FeedInMemory) -> None:
    first_plan(feed)
    feed.settings = replace(feed.settings, start_rules={"refunds": FromGroup("other", Latest())})
    feed.kafka.groups["other"] = {partition(0, "refunds"): 7}


def new_records(feed: FeedInMemory) -> None:
    feed.kafka.topics["orders"] = topic(log(0, 130), log(0, 50))


def lost_records(feed: FeedInMemory) -> None:
    feed.kafka.topics["orders"] = topic(log(110, 130), log(0, 50))


def lost_records_as_a_gap(feed: FeedInMemory) -> None:
    lost_records(feed)
    feed.settings = replace(feed.settings, on_data_loss=OnDataLoss.RECORD_GAP)


def lost_records_as_a_hold(feed: FeedInMemory) -> None:
    lost_records(feed)
    feed.settings = replace(feed.settings, on_data_loss=OnDataLoss.HOLD)


def a_log_that_ends_below(feed: FeedInMemory) -> None:
    feed.kafka.topics["orders"] = topic(log(0, 90), log(0, 50))


def a_log_that_was_cut_off_and_grew(feed: FeedInMemory) -> None:
    with_epoch(feed, 3)
    feed.commit(feed.written().batch_id)
    with_epoch(feed, 4)
    feed.kafka.epoch_starts[partition(0)] = {4: 80}


def with_epoch(feed: FeedInMemory, epoch: int) -> None:
    feed.kafka.topics["orders"] = topic(log(0, 100 + epoch, leader_epoch=epoch), log(0, 50))


def another_leader(feed: FeedInMemory) -> None:
    feed.kafka.topics["orders"] = topic(log(0, 100, leader_epoch=7), log(0, 50))


def another_topic(feed: FeedInMemory) -> None:
    feed.kafka.topics["orders"] = topic(log(0, 100), log(0, 50), topic_id="another")


def no_topic(feed: FeedInMemory) -> None:
    del feed.kafka.topics["orders"]


def a_missing_topic_is_held(feed: FeedInMemory) -> None:
    rules = feed.settings.start_rules | {"refunds": Latest()}
    feed.settings = replace(feed.settings, start_rules=rules, on_missing_topic=OnMissingTopic.HOLD)


def a_new_partition(feed: FeedInMemory) -> None:
    feed.kafka.topics["orders"] = topic(log(0, 100), log(0, 50), log(0, 0))


def no_leader(feed: FeedInMemory) -> None:
    feed.kafka.topics["orders"] = topic(log(0, 100), Unavailable("LEADER_NOT_AVAILABLE"))


def an_open_transaction(feed: FeedInMemory) -> None:
    feed.kafka.topics["orders"] = topic(log(0, 120, lso=100), log(0, 50))


def a_hold_that_ends(feed: FeedInMemory) -> None:
    an_open_transaction(feed)
    feed.plan()
    feed.kafka.topics["orders"] = topic(log(0, 100), log(0, 50))


def another_cluster(feed: FeedInMemory) -> None:
    feed.kafka.id = "another"


def an_open_batch(feed: FeedInMemory) -> None:
    new_records(feed)
    feed.planned()


def too_few_records(feed: FeedInMemory) -> None:
    new_records(feed)
    feed.settings = replace(feed.settings, min_records=1_000, max_wait=timedelta(hours=1))


def an_edited_pattern(feed: FeedInMemory) -> None:
    feed.settings = replace(feed.settings, topic_pattern="ord.*", start_rules={})


SITUATIONS = [
    *(first_plan, first_plan_from_a_group, new_records, lost_records, lost_records_as_a_gap, lost_records_as_a_hold),
    *(a_log_that_ends_below, a_log_that_was_cut_off_and_grew, another_leader, another_topic, no_topic),
    *(a_missing_topic_is_held, a_new_partition, no_leader, an_open_transaction, a_hold_that_ends, another_cluster),
    *(an_open_batch, too_few_records, an_edited_pattern),
]


def come_to(feed: FeedInMemory, plan: Callable[[FeedInMemory], PlanOutcome]) -> object:
    """Return what a plan comes to, without ids and times."""
    try:
        outcome = plan(feed)
        decided = outcome.result, outcome.batch.ranges if outcome.batch else None, outcome.moved
    except Exception as error:  # noqa: BLE001 - which one is compared
        decided = type(error), str(error), None
    known = feed.control.feed(feed.settings.name)
    rows = [replace(row, updated_at=None, batch_id=None) for row in known.stored.values()] if known else None
    holds = [(hold.topic_partition, hold.cause) for hold in known.holds] if known else None
    gaps = [gap.offset_range for gap in feed.control.gaps(known.feed_id)] if known else None
    return decided, rows, holds, gaps, known and (known.topics, known.topic_pattern, known.waiting_since is None)


@pytest.mark.parametrize("happens", SITUATIONS)
def test_a_feed_that_is_planned_with_others_comes_to_what_it_comes_to_alone(
    feed: FeedInMemory, happens: Callable[[FeedInMemory], None]
) -> None:
    happens(feed)
    quiet = settings_of("quiet")
    feed.kafka.topics["quiet"] = topic(log(0, 0))
    together = feed.copied()

    assert come_to(together, lambda each: planned_with_others(each, quiet)) == come_to(feed, FeedInMemory.plan)


def test_a_topic_that_may_not_be_seen_is_its_own_feeds_alone(feed: FeedInMemory) -> None:
    feed.kafka.denied = {"secret"}

    asked = ask_together([settings_of("secret"), feed.settings], feed.control, feed.kafka)

    assert asked.keys() == {"orders"}
    assert asked["orders"].nothing is not None


def test_a_feed_that_another_process_changes_meanwhile_is_asked_about_again(feed: FeedInMemory) -> None:
    def changes() -> None:
        if feed.kafka.questions != IN_BULK:
            feed.kafka.interleaved = changes
            return
        feed.kafka.topics["orders"] = topic(log(0, 120), log(0, 50))
        feed.plan("another run")

    feed.kafka.interleaved = changes

    assert planned_with_others(feed).result is PlanResult.RESUMED


def test_an_open_batch_is_its_own_plans_alone(feed: FeedInMemory) -> None:
    an_open_batch(feed)
    assert ask_together([feed.settings], feed.control, feed.kafka) == {}


def test_what_keeps_kafka_from_answering_is_raised_and_each_feed_then_asks_by_itself(feed: FeedInMemory) -> None:
    feed.kafka.is_down = True
    with pytest.raises(KafkaUnavailableError):
        ask_together([feed.settings], feed.control, feed.kafka)


def test_a_pattern_that_cannot_be_decided_leaves_the_other_feeds_their_answers(
    feed: FeedInMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(topic_patterns, "MATCHED_WITHIN_S", 0.01)
    feed.kafka.topics["a" * 60 + "b"] = topic(log(0, 9))
    slow = replace(settings_of("slow"), topic_pattern="(a|aa)+", start_rules={})

    asked = ask_together([feed.settings, slow], feed.control, feed.kafka)

    assert (asked["orders"].nothing is not None, "slow" in asked) == (True, False)
    assert feed.kafka.questions == ["topic_names", *IN_BULK]


def test_threads_that_look_for_circles_at_once_share_one_look(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    looks = []

    def look(*_: object) -> dict[str, InvalidFeedError]:
        looks.append(1)
        time.sleep(0.05)
        return {}

    monkeypatch.setattr(assembly, "circles_of", look)
    monkeypatch.setattr(assembly, "control_tables", lambda _: None)
    feed = Feed.model_validate({"name": "a", "kafka": {"topics": ["a"]}, "sink": {"format": "parquet", "path": "/a"}})
    [parts] = assembly.assemble_all([FeedFile(tmp_path / "a.yaml", feed=feed)], lambda _: None, {})
    with ThreadPoolExecutor(4) as threads:
        assert list(threads.map(lambda _: parts.circles(), range(4))) == [{}] * 4
    assert looks == [1]
