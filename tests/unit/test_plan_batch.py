"""The plan task on fakes: resume an open batch, or ask, decide and record."""

import itertools
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import uuid6
from tests.fakes import (
    CLUSTER,
    FEED_ID,
    GROUP,
    OUTPUT,
    TOPIC_ID,
    FakeKafkaCluster,
    FeedInMemory,
    InMemorySink,
    feed_settings,
    log,
    partition,
    span,
    topic,
)
from tests.outputs import parquet_at

from kafka_ingest.batches.plan_batch import PlanResult, next_batch_id
from kafka_ingest.errors import (
    EndOutsideLogError,
    FeedChangedError,
    KafkaUnavailableError,
    OffsetsLostError,
    OutputNotUsableError,
    OutputUnavailableError,
    OutputUnknownError,
    RangeNotInLogError,
    StartUndecidedError,
    StoredOffsetBeyondLogError,
    TopicRecreatedError,
    UnknownTopicError,
    WrongClusterError,
)
from kafka_ingest.model.batch import AttemptState, BatchKind, BatchState
from kafka_ingest.model.control_rows import NewFeed, PlanRecord
from kafka_ingest.model.hold import HoldCause
from kafka_ingest.model.offsets import FirstRecord, Isolation, OffsetsPolicy, Unavailable
from kafka_ingest.planning.settings import Earliest, Latest, OnDataLoss, OnTopicChanged, ToOffsets
from kafka_ingest.verbs.skip import decide_skip, skip

NO_LEADER = Unavailable("LEADER_NOT_AVAILABLE")


# ── New batches ───────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_new_plan_is_durable_when_it_is_returned(feed: FeedInMemory) -> None:
    outcome = feed.plan()
    assert outcome.result is PlanResult.PLANNED
    assert outcome.batch is not None
    assert feed.control.batch(outcome.batch.batch_id).plan == outcome.batch
    assert feed.control.batch(outcome.batch.batch_id).state is BatchState.PLANNED


def test_a_plan_says_everything_that_a_retry_needs() -> None:
    feed = FeedInMemory(
        kafka=FakeKafkaCluster({"orders": topic(log(0, 100, lso=90, leader_epoch=3))}),
        settings=feed_settings(offsets_policy=OffsetsPolicy.DENSE, max_records=40),
    )
    plan = feed.planned()
    assert (plan.kind, plan.feed_name, plan.cluster_id) == (BatchKind.LIVE, "orders", CLUSTER)
    assert (plan.topic_ids, plan.ranges) == ({"orders": TOPIC_ID}, (span(0, 0, 40),))
    assert (plan.isolation, plan.offsets_policy) == (Isolation.READ_COMMITTED, OffsetsPolicy.DENSE)
    assert plan.output == parquet_at(OUTPUT)
    assert (plan.capped, plan.leader_epochs) == (True, {partition(0): 3})


def test_a_plan_names_the_id_of_its_own_topics_only() -> None:
    feed = FeedInMemory(
        kafka=FakeKafkaCluster({"orders": topic(log(0, 5)), "refunds": topic(log(0, 0))}),
        settings=feed_settings(start_rules={"orders": Earliest(), "refunds": Earliest()}),
    )
    assert feed.planned().topic_ids == {"orders": TOPIC_ID}


def test_batch_ids_are_ordered_by_time(feed: FeedInMemory) -> None:
    first = feed.committed()
    feed.kafka.topics["orders"] = topic(log(0, 101), log(0, 50))
    assert feed.planned().batch_id > first.batch_id


def test_a_plan_is_recorded_under_the_name_of_its_actor(feed: FeedInMemory) -> None:
    assert feed.control.batch(feed.planned(actor="run 7").batch_id).planned_by == "run 7"


def test_the_next_batch_begins_where_the_last_one_ended(feed: FeedInMemory) -> None:
    feed.committed()
    feed.kafka.topics["orders"] = topic(log(0, 120), log(0, 50))
    assert feed.planned().ranges == (span(0, 100, 120),)


# ── Nothing new ───────────────────────────────────────────────────────────────────────────────────────────────────────


def test_nothing_new_is_no_batch(feed: FeedInMemory) -> None:
    feed.committed()
    outcome = feed.plan()
    assert (outcome.result, outcome.batch) == (PlanResult.NOTHING_NEW, None)


def test_a_first_plan_with_nothing_to_read_still_writes_the_seeds() -> None:
    feed = FeedInMemory(settings=feed_settings(start_rules={"orders": Latest()}))
    assert feed.plan().result is PlanResult.NOTHING_NEW
    assert feed.stored_offsets() == {partition(0): 100, partition(1): 50}


def test_latest_does_not_slide_while_a_topic_is_quiet() -> None:
    feed = FeedInMemory(settings=feed_settings(start_rules={"orders": Latest()}))
    feed.plan()
    feed.kafka.topics["orders"] = topic(log(0, 103), log(0, 50))
    assert feed.planned().ranges == (span(0, 100, 103),)


def test_a_partition_without_a_leader_is_pending_and_read_once_it_has_one() -> None:
    feed = FeedInMemory(kafka=FakeKafkaCluster({"orders": topic(NO_LEADER, log(0, 50))}))
    outcome = feed.plan()
    assert outcome.decision is not None
    assert outcome.decision.left_out == {partition(0): "LEADER_NOT_AVAILABLE"}
    assert feed.stored_offsets() == {partition(0): None, partition(1): 0}
    assert outcome.batch is not None
    feed.write(outcome.batch.batch_id)
    feed.commit(outcome.batch.batch_id)
    feed.kafka.topics["orders"] = topic(log(7, 100), log(0, 50))
    assert feed.planned().ranges == (span(0, 7, 100),)


# ── A refused plan leaves no trace ────────────────────────────────────────────────────────────────────────────────────


def assert_no_trace(feed: FeedInMemory) -> None:
    assert feed.control.feed("orders") is None
    assert feed.sink.is_prepared is False


def test_a_topic_that_does_not_exist_leaves_no_trace() -> None:
    feed = FeedInMemory(kafka=FakeKafkaCluster({}))
    with pytest.raises(UnknownTopicError):
        feed.plan()
    assert_no_trace(feed)


def test_brokers_that_are_down_leave_no_trace(feed: FeedInMemory) -> None:
    feed.kafka.is_down = True
    with pytest.raises(KafkaUnavailableError):
        feed.plan()
    assert_no_trace(feed)


def test_a_topic_of_which_no_partition_answers_is_not_nothing_new_and_leaves_no_trace() -> None:
    feed = FeedInMemory(kafka=FakeKafkaCluster({"orders": topic(NO_LEADER, NO_LEADER)}))
    with pytest.raises(
        KafkaUnavailableError, match="none of the feed's 2 partitions: orders-0: LEADER_NOT_AVAILABLE, "
    ):
        feed.plan()
    assert_no_trace(feed)


def test_an_output_that_cannot_be_written_is_refused_before_anything_is_planned(feed: FeedInMemory) -> None:
    feed.sink.refusal = "permission denied"
    with pytest.raises(OutputNotUsableError, match="permission denied"):
        feed.plan()
    assert_no_trace(feed)


def test_a_new_feed_whose_output_holds_batches_stops_with_exit_code_3(feed: FeedInMemory) -> None:
    feed.sink.foreign_batches = ["0189-first", "0190-second"]
    with pytest.raises(
        OutputUnknownError, match=r"feed orders is new .*/data/orders already holds 2 .*0190-second"
    ) as error:
        feed.plan()
    assert error.value.exit_code == 3
    assert feed.control.feed("orders") is None


def test_a_known_feed_plans_on_over_its_own_output(feed: FeedInMemory) -> None:
    feed.committed()
    feed.kafka.topics["orders"] = topic(log(0, 101), log(0, 50))
    assert feed.plan().result is PlanResult.PLANNED


def test_another_cluster_stops_a_known_feed_and_moves_nothing(feed: FeedInMemory) -> None:
    feed.committed()
    feed.kafka.id = "cluster-B"
    with pytest.raises(WrongClusterError, match="cluster-B"):
        feed.plan()
    assert feed.stored_offsets() == {partition(0): 100, partition(1): 50}


def test_a_dry_run_decides_the_same_and_writes_nothing(feed: FeedInMemory) -> None:
    shown = feed.plan(None)
    assert (shown.result, shown.batch) == (PlanResult.PLANNED, None)
    assert shown.decision is not None
    assert shown.decision.ranges == (span(0, 0, 100), span(1, 0, 50))
    assert_no_trace(feed)


# ── Open batches are resumed ──────────────────────────────────────────────────────────────────────────────────────────


def until_planned(feed: FeedInMemory) -> None:
    feed.planned()


def until_written(feed: FeedInMemory) -> None:
    feed.written()


def until_committing(feed: FeedInMemory) -> None:
    feed.control.begin_commit(feed.written().batch_id, 1)


@pytest.mark.parametrize("until", [until_planned, until_written, until_committing])
def test_an_open_batch_is_resumed_and_not_planned_again(
    feed: FeedInMemory, until: Callable[[FeedInMemory], None]
) -> None:
    until(feed)
    known = feed.control.feed("orders").open_batch
    feed.kafka.topics["orders"] = topic(log(0, 500), log(0, 500))
    outcome = feed.plan(actor="run 2")
    assert (outcome.result, outcome.batch, outcome.decision) == (PlanResult.RESUMED, known.plan, None)
    assert feed.control.batch(known.batch_id) == known


@pytest.mark.parametrize("until", [until_written, until_committing])
def test_a_batch_whose_records_are_written_is_resumed_without_asking_kafka(
    feed: FeedInMemory, until: Callable[[FeedInMemory], None]
) -> None:
    until(feed)
    feed.kafka.questions.clear()
    feed.kafka.is_down = True
    assert feed.plan().result is PlanResult.RESUMED
    assert feed.kafka.questions == []


def test_a_valid_receipt_that_is_found_after_a_crash_is_pinned(feed: FeedInMemory) -> None:
    plan = feed.planned()
    feed.spark_writes(feed.open_attempt(plan.batch_id))
    assert feed.plan(actor="run 2").result is PlanResult.RESUMED
    batch = feed.control.batch(plan.batch_id)
    assert (batch.state, batch.pinned_attempt, batch.rows) == (BatchState.WRITTEN, 1, 150)


def test_a_written_batch_is_pinned_although_its_records_are_deleted_by_now(feed: FeedInMemory) -> None:
    plan = feed.planned()
    feed.spark_writes(feed.open_attempt(plan.batch_id))
    feed.kafka.topics["orders"] = topic(log(100, 100), log(50, 50))
    feed.plan()
    assert feed.control.batch(plan.batch_id).state is BatchState.WRITTEN


def test_an_invalid_receipt_is_refused_and_noted_and_the_batch_is_read_again(feed: FeedInMemory) -> None:
    plan = feed.planned()
    attempt = feed.open_attempt(plan.batch_id)
    feed.sink.receipts[attempt.directory] = b'{"version": 1, "batch_id": "'
    assert feed.plan(actor="run 2").result is PlanResult.RESUMED
    assert feed.control.batch(plan.batch_id).state is BatchState.PLANNED
    (event,) = feed.control.journal(plan.feed_id, kinds=["receipt_refused"], limit=1)
    assert (event.actor, event.batch_id, event.detail["attempt"]) == ("run 2", plan.batch_id, 1)
    assert "cannot be read" in event.detail["reason"]


def test_the_receipt_of_a_topic_that_was_made_again_stops_with_exit_code_3(feed: FeedInMemory) -> None:
    plan = feed.planned()
    feed.spark_writes(feed.open_attempt(plan.batch_id))
    feed.kafka.topics["orders"] = topic(log(0, 100), log(0, 50), topic_id="topic-id-2")
    with pytest.raises(TopicRecreatedError) as error:
        feed.plan()
    assert error.value.exit_code == 3
    assert feed.control.batch(plan.batch_id).state is BatchState.PLANNED


def test_a_planned_batch_of_a_topic_that_was_made_again_is_not_abandoned(feed: FeedInMemory) -> None:
    plan = feed.planned()
    feed.kafka.topics["orders"] = topic(log(0, 0), log(0, 0), topic_id="topic-id-2")
    for actor in (None, "run 2"):
        with pytest.raises(TopicRecreatedError):
            feed.plan(actor)
    assert feed.control.batch(plan.batch_id).state is BatchState.PLANNED


def test_a_planned_batch_is_not_read_from_another_cluster(feed: FeedInMemory) -> None:
    plan = feed.planned()
    feed.kafka.id = "cluster-B"
    with pytest.raises(WrongClusterError, match=r"cluster-A.*cluster-B"):
        feed.plan()
    assert feed.control.batch(plan.batch_id).state is BatchState.PLANNED


def test_a_receipt_is_not_pinned_against_another_cluster(feed: FeedInMemory) -> None:
    feed.kafka.topics["orders"] = topic(log(0, 100), log(0, 50), topic_id=None)
    plan = feed.planned()
    feed.spark_writes(feed.open_attempt(plan.batch_id))
    feed.kafka.id = "cluster-B"
    with pytest.raises(WrongClusterError, match=r"cluster-A.*cluster-B"):
        feed.plan()
    assert feed.control.batch(plan.batch_id).state is BatchState.PLANNED


def test_a_planned_batch_is_abandoned_for_one_of_the_partitions_that_have_a_leader(feed: FeedInMemory) -> None:
    plan = feed.planned()
    feed.kafka.topics["orders"] = topic(NO_LEADER, log(0, 50))
    outcome = feed.plan()
    assert outcome.batch is not None
    assert outcome.batch.ranges == (span(1, 0, 50),)
    assert feed.control.batch(plan.batch_id).state is BatchState.ABANDONED


def test_a_planned_batch_waits_where_no_partition_has_a_leader(feed: FeedInMemory) -> None:
    plan = feed.planned()
    feed.kafka.topics["orders"] = topic(NO_LEADER, NO_LEADER)
    assert feed.plan().batch == plan


def test_a_planned_batch_over_leaderless_partitions_only_gives_way_to_the_feeds_others(feed: FeedInMemory) -> None:
    feed.committed()
    feed.kafka.topics["orders"] = topic(log(0, 150), log(0, 50))
    plan = feed.planned()
    assert plan.ranges == (span(0, 100, 150),)
    feed.kafka.topics["orders"] = topic(NO_LEADER, log(0, 80))
    outcome = feed.plan()
    assert outcome.batch is not None
    assert outcome.batch.ranges == (span(1, 50, 80),)
    assert feed.control.batch(plan.batch_id).state is BatchState.ABANDONED


def test_an_attempt_is_not_opened_on_a_partition_that_nobody_leads(feed: FeedInMemory) -> None:
    plan = feed.planned()
    feed.kafka.topics["orders"] = topic(NO_LEADER, NO_LEADER)
    with pytest.raises(KafkaUnavailableError, match="cannot answer for orders-0: LEADER_NOT_AVAILABLE"):
        feed.open_attempt(plan.batch_id)
    assert feed.control.attempts(plan.batch_id) == []


# ── A log that ends below the stored offset ───────────────────────────────────────────────────────────────────────────


def test_a_log_that_was_seen_to_end_below_the_stored_offset_stops_the_feed_also_when_it_has_grown_again(
    feed: FeedInMemory,
) -> None:
    feed.committed()
    for ends in (60, 150, 90):
        feed.kafka.topics["orders"] = topic(log(0, ends), log(0, 80))
        with pytest.raises(StoredOffsetBeyondLogError, match=f"stored offset 100, log end {ends}"):
            feed.plan()
    [hold] = feed.control.feed("orders").holds
    assert (hold.cause, hold.topic_partition, hold.at_offset) == (HoldCause.BEYOND_LOG, partition(0), 60)
    assert feed.stored_offsets() == {partition(0): 100, partition(1): 50}


def test_what_a_task_saw_of_a_truncated_log_is_not_forgotten_when_the_log_has_grown_again(feed: FeedInMemory) -> None:
    feed.committed()
    feed.kafka.topics["orders"] = topic(log(0, 200), log(0, 50))
    plan = feed.planned()
    feed.kafka.topics["orders"] = topic(log(0, 60), log(0, 50))
    with pytest.raises(RangeNotInLogError):
        feed.open_attempt(plan.batch_id)
    feed.control.abandon(plan.batch_id, reason="in the way", actor="operator")
    feed.kafka.topics["orders"] = topic(log(0, 250), log(0, 50))
    with pytest.raises(StoredOffsetBeyondLogError, match="log end 250, and 60 on"):
        feed.plan()


@pytest.mark.parametrize("end", [None, ToOffsets({partition(0): 100})])
def test_a_truncated_log_is_noted_whatever_else_is_wrong_with_a_plan(feed: FeedInMemory, end: ToOffsets | None) -> None:
    feed.committed()
    feed.kafka.topics["orders"] = topic(log(0, 105), log(0, 50))
    skip(decide_skip("orders", span(0, 102, 105), "poisoned", feed.control, feed.kafka), feed.control, actor="operator")
    feed.kafka.topics["orders"] = topic(log(0, 99), log(0, 50))
    with pytest.raises((StoredOffsetBeyondLogError, EndOutsideLogError)):
        feed.plan(end=end)
    feed.kafka.topics["orders"] = topic(log(0, 150), log(0, 50))
    with pytest.raises(StoredOffsetBeyondLogError):
        feed.plan()


def test_a_gap_that_reaches_above_the_logs_end_shows_a_truncation_too(feed: FeedInMemory) -> None:
    feed.committed()
    feed.kafka.topics["orders"] = topic(log(0, 120), log(0, 50))
    feed.settings = feed_settings(max_records=5)
    assert feed.committed().ranges == (span(0, 100, 105),)
    feed.settings = feed_settings()
    decision = decide_skip("orders", span(0, 106, 120), "poisoned", feed.control, feed.kafka)
    skip(decision, feed.control, actor="operator")
    assert feed.committed().ranges == (span(0, 105, 106),)
    feed.kafka.topics["orders"] = topic(log(0, 110), log(0, 50))
    for ends in (110, 150):
        feed.kafka.topics["orders"] = topic(log(0, ends), log(0, 50))
        with pytest.raises(StoredOffsetBeyondLogError):
            feed.plan()


def test_an_open_batch_of_a_topic_that_the_feed_reads_no_longer_is_resumed() -> None:
    feed = FeedInMemory(
        kafka=FakeKafkaCluster({"orders": topic(log(0, 100)), "refunds": topic(log(0, 20))}),
        settings=feed_settings(start_rules={"refunds": Earliest()}),
    )
    plan = feed.planned()
    feed.settings = feed_settings()
    outcome = feed.plan(actor="run 2")
    assert (outcome.result, outcome.batch) == (PlanResult.RESUMED, plan)


def test_a_truncated_log_of_a_topic_that_is_no_longer_read_stops_nothing_and_is_not_forgotten() -> None:
    feed = FeedInMemory(
        kafka=FakeKafkaCluster({"orders": topic(log(0, 100)), "refunds": topic(log(0, 20))}),
        settings=feed_settings(start_rules={"orders": Earliest(), "refunds": Earliest()}),
    )
    feed.committed()
    both = feed.settings
    feed.kafka.topics = {"orders": topic(log(0, 110)), "refunds": topic(log(0, 5))}
    with pytest.raises(StoredOffsetBeyondLogError):
        feed.plan()
    feed.settings = feed_settings()
    assert feed.committed().ranges == (span(0, 100, 110),)
    feed.settings = both
    feed.kafka.topics["refunds"] = topic(log(0, 50))
    with pytest.raises(StoredOffsetBeyondLogError, match="refunds-0"):
        feed.plan()


# ── Ids ───────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_ids_of_a_feeds_batches_grow_also_where_the_clock_goes_back(feed: FeedInMemory) -> None:
    first = feed.committed()
    ahead = uuid6.UUID(int=first.batch_id.int + (3_600_000 << 80))
    made = [next_batch_id(ahead)]
    for _ in range(5):
        made.append(next_batch_id(made[-1]))
    assert [ahead, *made] == sorted([ahead, *made])
    assert {each.version for each in made} == {7}
    assert next_batch_id(None) > first.batch_id
    assert next_batch_id(first.batch_id) > first.batch_id


# ── Open batches that no longer fit ───────────────────────────────────────────────────────────────────────────────────


def test_a_planned_batch_above_the_end_of_a_log_is_abandoned_and_planning_starts_over(feed: FeedInMemory) -> None:
    stale = feed.planned()
    feed.kafka.topics["orders"] = topic(log(0, 90), log(0, 50))
    outcome = feed.plan(actor="run 2")
    assert outcome.result is PlanResult.PLANNED
    assert outcome.batch is not None
    assert outcome.batch.ranges == (span(0, 0, 90), span(1, 0, 50))
    batch = feed.control.batch(stale.batch_id)
    assert batch.state is BatchState.ABANDONED
    assert batch.reason == "its ranges can no longer be read: orders-0[0, 100) ends above the log end 90"


def test_a_planned_batch_whose_records_were_deleted_is_abandoned_and_the_loss_is_said(feed: FeedInMemory) -> None:
    stale = feed.planned()
    feed.kafka.topics["orders"] = topic(log(30, 100), log(10, 50))
    with pytest.raises(OffsetsLostError, match="orders-0: stored offset 0, log start 30"):
        feed.plan()
    assert feed.control.batch(stale.batch_id).state is BatchState.ABANDONED
    assert feed.stored_offsets() == {partition(0): 0, partition(1): 0}


def test_a_batch_that_a_rival_writes_while_it_is_held_against_the_log_is_never_abandoned(feed: FeedInMemory) -> None:
    # Its staged files may be the last copy of what retention deleted: only an operator abandons a WRITTEN batch.
    plan = feed.planned()
    attempt = feed.open_attempt(plan.batch_id)
    feed.kafka.topics["orders"] = topic(log(30, 100), log(0, 50))

    def spark_ends_and_its_task_pins() -> None:
        feed.spark_writes(attempt)
        feed.pin(attempt)

    feed.kafka.interleaved = spark_ends_and_its_task_pins
    assert feed.plan(actor="run 2").result is PlanResult.RESUMED
    assert feed.control.batch(plan.batch_id).state is BatchState.WRITTEN


def test_a_batch_that_an_operator_abandons_while_it_is_pinned_is_not_resumed(feed: FeedInMemory) -> None:
    plan = feed.planned()
    feed.spark_writes(feed.open_attempt(plan.batch_id))
    feed.kafka.interleaved = lambda: feed.control.abandon(plan.batch_id, reason="not wanted", actor="operator")
    outcome = feed.plan(actor="run 2")
    assert outcome.result is PlanResult.PLANNED
    assert outcome.batch is not None
    assert outcome.batch.batch_id != plan.batch_id


# ── Rivals ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def record_empty_plan(feed: FeedInMemory) -> None:
    """Write to the feed's control rows as another plan that found nothing new."""
    snapshot = feed.control.feed("orders") or NewFeed(FEED_ID, "orders")
    feed.control.record_plan(snapshot, PlanRecord(CLUSTER, ["orders"]), actor="rival")


def test_a_rival_that_writes_between_reading_and_recording_makes_the_plan_start_over(feed: FeedInMemory) -> None:
    feed.committed()
    feed.kafka.topics["orders"] = topic(log(0, 120), log(0, 50))
    feed.kafka.questions.clear()
    feed.kafka.interleaved = lambda: record_empty_plan(feed)
    assert feed.planned().ranges == (span(0, 100, 120),)
    assert feed.kafka.questions.count("log_bounds") == 2


def test_a_rivals_batch_is_taken_on_instead_of_a_second_one(feed: FeedInMemory) -> None:
    feed.committed()
    feed.kafka.topics["orders"] = topic(log(0, 120), log(0, 50))
    rival = replace(feed)
    feed.kafka.interleaved = lambda: rival.plan(actor="rival")
    outcome = feed.plan(actor="run 2")
    assert outcome.result is PlanResult.RESUMED
    assert outcome.batch is not None
    assert feed.control.batch(outcome.batch.batch_id).planned_by == "rival"


def test_of_two_first_plans_at_once_one_wins_and_the_other_takes_its_batch_on(feed: FeedInMemory) -> None:
    rival = replace(feed)
    feed.kafka.interleaved = lambda: rival.plan(actor="rival")
    outcome = feed.plan(actor="run 1")
    assert outcome.result is PlanResult.RESUMED
    assert outcome.batch == feed.control.feed("orders").open_batch.plan


def test_a_plan_gives_up_after_a_few_tries_and_may_be_tried_again(feed: FeedInMemory) -> None:
    feed.committed()
    feed.kafka.topics["orders"] = topic(log(0, 120), log(0, 50))

    def write_again_and_again() -> None:
        record_empty_plan(feed)
        feed.kafka.interleaved = write_again_and_again

    feed.kafka.interleaved = write_again_and_again
    with pytest.raises(FeedChangedError, match="feed orders: another process wrote to it 5 times"):
        feed.plan()
    assert feed.control.feed("orders").open_batch is None


def test_a_new_attempt_after_an_abandoned_batch_is_attempt_1_of_the_new_one(feed: FeedInMemory) -> None:
    stale = feed.planned()
    feed.open_attempt(stale.batch_id)
    feed.control.abandon(stale.batch_id, reason="not wanted", actor="operator")
    attempt = feed.open_attempt(feed.planned().batch_id)
    assert (attempt.attempt, attempt.state) == (1, AttemptState.OPEN)


# ── One bad part holds itself, and the rest continues
# ────────────────────────────────────────────────────────────────────


def two_topics(feed: FeedInMemory, **changes: Any) -> None:
    """Let the feed read orders and refunds, and hold what is bad."""
    feed.kafka.topics["refunds"] = topic(log(0, 30))
    feed.settings = feed_settings(
        start_rules={"orders": Earliest(), "refunds": Earliest()},
        on_topic_changed=OnTopicChanged.HOLD,
        **{"on_data_loss": OnDataLoss.HOLD} | changes,
    )


@pytest.mark.parametrize("on_data_loss", list(OnDataLoss))
def test_an_open_batch_over_a_topic_made_again_is_abandoned_and_the_other_topic_continues(
    feed: FeedInMemory, on_data_loss: OnDataLoss
) -> None:
    two_topics(feed, on_data_loss=on_data_loss)
    first = feed.planned()
    feed.kafka.topics["refunds"] = topic(log(20, 90), topic_id="another-topic-id")

    second = feed.planned()

    assert feed.control.batch(first.batch_id).state is BatchState.ABANDONED
    assert {planned.topic for planned in second.ranges} == {"orders"}
    assert feed.control.gaps(first.feed_id) == [], "the new topic's log says nothing of the old one's offsets"
    assert feed.stored_offsets()[partition(0, "refunds")] == 0
    feed.write(second.batch_id)
    feed.commit(second.batch_id)
    [hold] = feed.control.feed("orders").holds
    assert (hold.topic, hold.cause) == ("refunds", HoldCause.TOPIC_CHANGED)
    assert feed.plan().result is PlanResult.NOTHING_NEW, "it stays held"


def test_kafka_is_asked_nothing_of_a_topic_made_again_by_what_was_known_of_the_one_before(feed: FeedInMemory) -> None:
    two_topics(feed)
    feed.kafka.topics["refunds"] = topic(log(0, 30, leader_epoch=3))
    feed.committed()
    feed.kafka.topics["refunds"] = topic(log(0, 90, leader_epoch=0), topic_id="another-topic-id")
    feed.kafka.questions.clear()
    assert feed.plan().result is PlanResult.NOTHING_NEW
    assert "epoch_ends" not in feed.kafka.questions


def test_a_receipt_over_a_topic_made_again_needs_the_operator_also_under_hold(feed: FeedInMemory) -> None:
    two_topics(feed)
    plan = feed.planned()
    feed.spark_writes(feed.open_attempt(plan.batch_id))
    feed.kafka.topics["refunds"] = topic(log(0, 90), topic_id="another-topic-id")
    with pytest.raises(TopicRecreatedError):
        feed.plan()
    assert feed.control.batch(plan.batch_id).state is BatchState.PLANNED


def test_a_written_batch_over_a_topic_made_again_commits(feed: FeedInMemory) -> None:
    two_topics(feed)
    plan = feed.written()
    feed.kafka.topics["refunds"] = topic(log(0, 90), topic_id="another-topic-id")
    assert feed.plan().result is PlanResult.RESUMED
    feed.commit(plan.batch_id)
    assert feed.stored_offsets()[partition(0, "refunds")] == 30


def test_the_group_follows_the_topics_that_continue_and_a_held_one_is_no_failure(feed: FeedInMemory) -> None:
    two_topics(feed)
    feed.committed()
    feed.kafka.topics |= {
        "refunds": topic(log(0, 90), topic_id="another-topic-id"),
        "orders": topic(log(0, 120), log(0, 50)),
    }
    plan = feed.written()
    assert feed.commit(plan.batch_id).mirrored.failure is None
    assert feed.kafka.groups[GROUP][partition(0)] == 120
    assert feed.kafka.groups[GROUP][partition(0, "refunds")] == 30


def test_an_open_batch_that_lost_records_and_a_leader_is_abandoned_and_its_other_partitions_are_read() -> None:
    kafka = FakeKafkaCluster({"orders": topic(log(0, 100), log(0, 50), log(0, 30))})
    feed = FeedInMemory(kafka, settings=feed_settings(on_data_loss=OnDataLoss.HOLD))
    first = feed.planned()
    feed.kafka.topics["orders"] = topic(log(10, 100), NO_LEADER, log(0, 30))

    second = feed.planned()

    batch = feed.control.batch(first.batch_id)
    assert batch.state is BatchState.ABANDONED
    assert batch.reason == (
        "its ranges can no longer be read: orders-1: LEADER_NOT_AVAILABLE, orders-0[0, 100) begins below the log "
        "start 10"
    )
    assert second.ranges == (span(2, 0, 30),)
    assert feed.control.gaps(first.feed_id) == []
    [hold] = [each for each in feed.control.feed("orders").holds if each.cause is HoldCause.OFFSETS_LOST]
    assert (hold.topic_partition, hold.at_offset) == (partition(0), 0)


def test_a_log_that_ended_below_its_stored_offset_holds_its_partition_until_an_operator_decides(
    feed: FeedInMemory,
) -> None:
    feed.settings = feed_settings(on_data_loss=OnDataLoss.HOLD)
    feed.committed()
    for ends, other in ((60, 80), (150, 90)):
        feed.kafka.topics["orders"] = topic(log(0, ends), log(0, other))
        plan = feed.written()
        assert [planned.topic_partition for planned in plan.ranges] == [partition(1)]
        feed.commit(plan.batch_id)
    [hold] = feed.control.feed("orders").holds
    assert (hold.cause, hold.topic_partition, hold.at_offset) == (HoldCause.BEYOND_LOG, partition(0), 60)
    assert feed.stored_offsets() == {partition(0): 100, partition(1): 90}


# ── Retention over a gap that lies ahead ──────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(("start", "end"), [(120, 130), (120, 160), (105, 115)])
def test_retention_over_a_gap_ahead_of_an_open_batch_files_no_offset_twice(
    feed: FeedInMemory, start: int, end: int
) -> None:
    feed.settings = feed_settings(on_data_loss=OnDataLoss.RECORD_GAP)
    feed.committed()
    feed.kafka.topics["orders"] = topic(log(0, 200), log(0, 50))
    filed = decide_skip("orders", span(0, start, end), "poisoned", feed.control, feed.kafka)
    skip(filed, feed.control, actor="operator")
    feed.planned()
    feed.kafka.topics["orders"] = topic(log(150, 200), log(0, 50))
    plan = feed.planned()
    gaps = sorted(gap.offset_range for gap in feed.control.gaps(plan.feed_id))
    assert gaps[0].start_offset == 100
    assert gaps[-1].end_offset == max(150, end)
    assert all(one.end_offset == other.start_offset for one, other in itertools.pairwise(gaps))
    assert {gap.state for gap in feed.control.gaps(plan.feed_id)} == {"open"}
    assert plan.ranges == (span(0, max(150, end), 200),)


# ── An output that is away ────────────────────────────────────────────────────────────────────────────────────────────


def test_an_output_that_batches_were_published_in_is_never_made_again(feed: FeedInMemory) -> None:
    feed.committed()
    feed.kafka.topics = {"orders": topic(log(0, 200), log(0, 50))}
    before = feed.stored_offsets()
    there, feed.sink = feed.sink, InMemorySink()  # what lies below a mount point

    with pytest.raises(OutputUnavailableError, match="Is the storage mounted"):
        feed.plan()

    assert feed.stored_offsets() == before
    assert feed.control.feed("orders").open_batch is None
    feed.sink = there
    feed.committed()


def test_the_topic_of_a_feed_that_a_file_for_many_found_later_is_new_though_its_start_says_latest() -> None:
    noon = datetime(2026, 3, 1, 12, tzinfo=UTC)
    found = FeedInMemory(settings=feed_settings(start_rules={"orders": Latest()}, found_after=noon))
    written = FirstRecord(round(noon.timestamp() * 1000) + 1, by_broker=False, offset=0)
    found.kafka.firsts = {partition(0): written, partition(1): written}
    batch = found.copied().planned()
    assert [each.start_offset for each in batch.ranges] == [0, 0]

    long_before = noon - timedelta(days=1)
    older = FirstRecord(round(long_before.timestamp() * 1000), by_broker=True, offset=0)
    found.kafka.firsts = {partition(0): older, partition(1): older}
    assert found.plan().result is PlanResult.NOTHING_NEW
    assert found.stored_offsets() == {partition(0): 100, partition(1): 50}


def test_where_nothing_proves_the_age_of_a_feeds_only_topic_it_is_recorded_for_an_operator_to_decide() -> None:
    noon = datetime(2026, 3, 1, 12, tzinfo=UTC)
    found = FeedInMemory(settings=feed_settings(start_rules={"orders": Latest()}, found_after=noon))
    by_producer = FirstRecord(round((noon - timedelta(days=1)).timestamp() * 1000), by_broker=False, offset=0)
    found.kafka.firsts = {partition(0): by_producer, partition(1): by_producer}
    with pytest.raises(StartUndecidedError, match="nothing proves whether it was made since or is older"):
        found.plan(actor=None)
    assert found.control.feed("orders") is None
    for _ in range(2):
        with pytest.raises(StartUndecidedError, match="nothing proves whether it was made since or is older"):
            found.plan()
    assert {row.is_pending for row in found.control.feed("orders").stored.values()} == {True}
