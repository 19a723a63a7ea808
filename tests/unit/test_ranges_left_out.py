"""A live batch of which Kafka deleted records before they were read.

The ranges that lost none are committed by the very same.
"""

import json
from dataclasses import replace

import pytest
from tests.fakes import (
    GROUP,
    FeedInMemory,
    a_file,
    a_plan,
    a_receipt,
    feed_settings,
    log,
    partition,
    sinks,
    span,
    topic,
)

from kafka_ingest.batches.known_feed import plan_read
from kafka_ingest.batches.plan_batch import PlanResult
from kafka_ingest.errors import OffsetsLostError, RangeNotInLogError, StagedOutputUnusableError
from kafka_ingest.foundation.foreign_json import ForeignJsonError
from kafka_ingest.model.batch import BatchKind, BatchState
from kafka_ingest.model.coverage import coverage_of
from kafka_ingest.model.hold import HoldCause
from kafka_ingest.model.omissions import LeftOut, to_leave_out
from kafka_ingest.model.receipt import RangeCount, Receipt
from kafka_ingest.planning.settings import OnDataLoss
from kafka_ingest.settings.run_request import RunRequest, why_no_run_follows

LOST, KEPT = span(0, 100, 200), span(1, 0, 50)
PLAN = a_plan(LOST, KEPT)
LEFT_OUT = LeftOut(LOST, 130)


def assert_accounted(feed: FeedInMemory) -> None:
    """Every offset up to the stored ones is committed or in a gap, once."""
    rows = feed.control.coverage("orders")
    assert [problem for each in coverage_of(rows).values() for problem in each.problems] == []


# ── What is left out ──────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_range_is_left_out_where_its_log_starts_above_it_and_another_did_not_lose_anything() -> None:
    starts = {partition(0): 130, partition(1): 0}
    assert to_leave_out([LOST, KEPT], starts) == (LEFT_OUT,)
    assert to_leave_out([LOST, KEPT], {partition(0): 130}) == (LEFT_OUT,), "nobody knows of the other: it is tried"
    assert to_leave_out([LOST, KEPT], {partition(0): 100, partition(1): 0}) == ()
    assert to_leave_out([LOST, KEPT], {partition(0): 130, partition(1): 1}) == (), "nothing would be left to read"
    assert to_leave_out([LOST], {partition(0): 130}) == ()
    assert to_leave_out([LOST, KEPT], {}) == ()


def test_what_lost_nothing_is_never_left_out() -> None:
    with pytest.raises(ValueError, match=r"found orders-0\[100, 200\) and log start 100"):
        LeftOut(LOST, 100)


# ── The receipt ───────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_receipt_says_which_ranges_it_leaves_out_and_where_their_logs_started() -> None:
    receipt = a_receipt(PLAN, a_file(KEPT), left_out=(LEFT_OUT,))
    assert receipt.contradictions(PLAN) == []
    assert Receipt.from_bytes(receipt.as_bytes()) == receipt
    assert receipt.version == 3
    assert receipt.ranges_read(PLAN) == (KEPT,)
    assert receipt.range_counts(PLAN) == [RangeCount(KEPT, 50, 0, 49)]


def test_a_receipt_that_leaves_nothing_out_is_what_it_always_was() -> None:
    document = a_receipt(PLAN).as_document()
    assert (document["version"], "left_out" in document) == (1, False)


def test_a_receipt_of_the_version_that_leaves_ranges_out_names_some() -> None:
    document = a_receipt(PLAN, a_file(KEPT), left_out=(LEFT_OUT,)).as_document()
    with pytest.raises(ValueError, match="leaves ranges out, found none"):
        Receipt.from_bytes(json.dumps(document | {"left_out": []}).encode())
    with pytest.raises(ForeignJsonError, match="leaves ranges out, found none"):
        Receipt.from_bytes(json.dumps({key: value for key, value in document.items() if key != "left_out"}).encode())


@pytest.mark.parametrize(
    ("left_out", "kind", "problem"),
    [
        ((LeftOut(span(0, 100, 199), 130),), BatchKind.LIVE, "orders-0[100, 199) is left out, which the plan does not"),
        ((LeftOut(span(7, 0, 10), 5),), BatchKind.LIVE, "orders-7[0, 10) is left out, which the plan does not read"),
        ((LEFT_OUT, LEFT_OUT), BatchKind.LIVE, "orders-0[100, 200) is left out twice"),
        ((LEFT_OUT, LeftOut(KEPT, 1)), BatchKind.LIVE, "all of the plan's ranges are left out"),
        ((LeftOut(KEPT, 1),), BatchKind.LIVE, "part-orders-1.parquet holds orders-1, which is left out"),
        ((LEFT_OUT,), BatchKind.BACKFILL, "a backfill batch leaves no range out"),
        ((LEFT_OUT,), BatchKind.COPY, "a copy batch leaves no range out"),
    ],
)
def test_a_receipt_that_leaves_out_what_it_cannot_contradicts_its_plan(
    left_out: tuple[LeftOut, ...], kind: BatchKind, problem: str
) -> None:
    plan = a_plan(LOST, KEPT, kind=kind)
    found = a_receipt(plan, a_file(KEPT), left_out=left_out).contradictions(plan)
    assert any(each.startswith(problem) for each in found), found


# ── The batch ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_planned_batch_of_which_one_range_lost_its_beginning_continues_and_commits_the_others(
    feed: FeedInMemory,
) -> None:
    plan = feed.planned()
    feed.kafka.topics["orders"] = topic(log(30, 100), log(0, 50))
    assert feed.plan(actor="run 2").result is PlanResult.RESUMED
    feed.write(plan.batch_id)
    committed = feed.commit(plan.batch_id)

    assert committed.batch.plan == plan, "the plan is frozen"
    assert committed.batch.left_out == (LeftOut(span(0, 0, 100), 30),)
    assert committed.counts == (RangeCount(span(1, 0, 50), 50, 0, 49),)
    assert feed.stored_offsets() == {partition(0): 0, partition(1): 50}
    assert feed.kafka.groups[GROUP] == {partition(0): 0, partition(1): 50}
    with pytest.raises(OffsetsLostError, match="orders-0: stored offset 0, log start 30"):
        feed.plan(actor="run 3")


def test_what_a_batch_left_out_is_decided_by_the_next_plan_as_the_feed_says(feed: FeedInMemory) -> None:
    plan = feed.planned()
    feed.kafka.topics["orders"] = topic(log(30, 100), log(0, 50))
    feed.write(plan.batch_id)
    feed.commit(plan.batch_id)

    feed.settings = feed_settings(on_data_loss=OnDataLoss.HOLD)
    assert feed.plan().batch is None
    [hold] = feed.control.feed("orders").holds
    assert (hold.cause, hold.topic_partition, hold.at_offset) == (HoldCause.OFFSETS_LOST, partition(0), 0)

    feed.settings = feed_settings(on_data_loss=OnDataLoss.RECORD_GAP)
    assert feed.committed().ranges == (span(0, 30, 100),)
    assert [gap.offset_range for gap in feed.control.gaps(plan.feed_id)] == [span(0, 0, 30)]
    assert feed.stored_offsets() == {partition(0): 100, partition(1): 50}
    assert_accounted(feed)


def test_a_batch_that_is_written_again_is_written_as_it_was_planned(feed: FeedInMemory) -> None:
    plan = feed.planned()
    feed.kafka.topics["orders"] = topic(log(30, 100), log(0, 50))
    feed.write(plan.batch_id)
    feed.sink.damaged.add(feed.control.attempts(plan.batch_id)[0].directory)
    with pytest.raises(StagedOutputUnusableError):
        feed.commit(plan.batch_id)
    batch = feed.control.batch(plan.batch_id)
    assert (batch.state, batch.left_out, batch.ranges_read) == (BatchState.PLANNED, (), plan.ranges)

    feed.kafka.topics["orders"] = topic(log(30, 100), log(10, 50))
    with pytest.raises(RangeNotInLogError):
        feed.write(plan.batch_id)
    with pytest.raises(OffsetsLostError):
        feed.plan()
    assert feed.control.batch(plan.batch_id).state is BatchState.ABANDONED


def test_a_backfill_of_such_a_batch_means_what_it_has_read_also_once_it_is_folded(feed: FeedInMemory) -> None:
    plan = feed.planned()
    feed.kafka.topics["orders"] = topic(log(30, 100), log(0, 50))
    feed.write(plan.batch_id)
    batch = feed.commit(plan.batch_id).batch

    assert plan_read(batch, sinks(feed.sink)).ranges == (span(1, 0, 50),)
    folded = replace(batch, plan=plan.without_ranges())
    assert plan_read(folded, sinks(feed.sink)).ranges == (span(1, 0, 50),)


# ── What follows ──────────────────────────────────────────────────────────────────────────────────────────────────────


def test_after_a_batch_that_left_ranges_out_the_feed_runs_again_at_once(feed: FeedInMemory) -> None:
    plan = feed.planned()
    feed.kafka.topics["orders"] = topic(log(30, 100), log(0, 50))
    feed.write(plan.batch_id)
    batch = feed.commit(plan.batch_id).batch
    assert not plan.capped
    assert why_no_run_follows(batch, RunRequest(), "run 1") is None
    asked = why_no_run_follows(batch, RunRequest(max_records=10), "run 1")
    assert asked == "this run was asked for 10 records at most"
