"""An output restores its feed's history: in control tables that lost it, and in an older copy of them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
import uuid6
from hypothesis import given
from hypothesis import strategies as st
from tests.fakes import (
    FEED_ID,
    SOME_DAY,
    FakeKafkaCluster,
    FakeTopic,
    FeedInMemory,
    InMemoryControlTables,
    InMemorySink,
    a_plan,
    a_receipt,
    feed_settings,
    log,
    partition,
    span,
    topic,
)
from tests.outputs import parquet_at

from kafka_ingest.batches.backfill_request import BackfillRequest, OffsetRanges, OnMissing, OpenGaps, Selection
from kafka_ingest.batches.plan_backfill import plan_backfill
from kafka_ingest.errors import (
    FeedChangedError,
    NothingToAdoptError,
    OutputConflictError,
    OutputUnavailableError,
    OutputUnknownError,
    ReceiptsDoNotFollowError,
)
from kafka_ingest.model.batch import AttemptState, BatchKind, BatchPlan, BatchState
from kafka_ingest.model.control_rows import NewFeed
from kafka_ingest.model.gap import Event, Gap
from kafka_ingest.model.offsets import LogBounds, OffsetRange, StoredOffset, TopicPartition, Unavailable
from kafka_ingest.model.published_output import PublishedReceipt
from kafka_ingest.planning.settings import Earliest, Latest, OnDataLoss
from kafka_ingest.verbs.adopt import AdoptDecision, decide_adoption
from kafka_ingest.verbs.adopt import adopt as adopt_output
from kafka_ingest.verbs.reset import decide_reset, reset
from kafka_ingest.verbs.reset_target import ResetTarget, ShiftBy, ToEarliest, ToOffsets
from kafka_ingest.verbs.skip import decide_skip, skip
from kafka_ingest.verbs.topic_changes import Choice, apply_choice, changes_of, rows_after

ELSEWHERE = Path("/data/elsewhere")
NO_LEADER = Unavailable("LEADER_NOT_AVAILABLE")
OTHER_FEED = UUID("01990000-0000-7000-8000-00000000beef")


@pytest.fixture
def feed() -> FeedInMemory:
    """A feed that committed two batches: orders-0[0, 100) with orders-1[0, 50), then orders-0[100, 130)."""
    return FeedInMemory.of_two_batches()


def decided(feed: FeedInMemory) -> AdoptDecision:
    """Show what adopting comes to; nothing is written."""
    return decide_adoption(feed.settings, feed.control, feed.sink)


def adopt(feed: FeedInMemory) -> AdoptDecision:
    """Show what adopting comes to, and do it."""
    decision = decided(feed)
    if not decision.is_nothing:
        adopt_output(decision, feed.control, feed.sink, reason="the disk died", actor="operator")
    return decision


def lose_tables(feed: FeedInMemory) -> None:
    """Put control tables in place that know nothing."""
    feed.control = InMemoryControlTables()


def refusal(feed: FeedInMemory, error: type[Exception]) -> str:
    """Return why there is no adopting; nothing is written."""
    before = feed.control.state
    with pytest.raises(error) as found:
        adopt(feed)
    assert feed.control.state is before
    return str(found.value)


def more_records(feed: FeedInMemory, *ends: int, topic_id: str | None = "topic-id-1") -> None:
    """Let the partitions of topic ``orders`` end there, all from offset 0."""
    feed.kafka.topics["orders"] = topic(*(log(0, end) for end in ends), topic_id=topic_id)


def skipped(feed: FeedInMemory, offset_range: OffsetRange) -> Gap:
    """Skip an interval."""
    decision = decide_skip("orders", offset_range, "poisoned", feed.control, feed.kafka)
    return skip(decision, feed.control, actor="operator")


def moved(feed: FeedInMemory, target: ResetTarget) -> None:
    """Reset the feed's partition 0."""
    named = {} if isinstance(target, ToOffsets) else {"orders": {0}}
    decision = decide_reset(target, named, feed.settings, feed.control, feed.kafka, reason="a lost day")
    reset(decision, feed.control, reason="a lost day", actor="operator")


def changed(feed: FeedInMemory, choice: Choice, *named: str) -> None:
    """Decide what a topic that changed means; an open batch that reads it is abandoned."""
    changes = changes_of("orders", named, feed.settings, feed.control, feed.kafka)
    after = rows_after(changes, choice, feed.settings)
    apply_choice(changes, after, feed.control, discard_batch=True, reason="made again", actor="operator")


def rows(feed: FeedInMemory) -> dict[TopicPartition, StoredOffset]:
    """Return the stored offsets with all that is known of them, apart from when they were written."""
    known = feed.control.feed("orders")
    return {tp: replace(row, updated_at=None) for tp, row in known.stored.items()} if known is not None else {}


def gaps(feed: FeedInMemory) -> list[Gap]:
    """Return the gap ledger."""
    known = feed.control.feed("orders")
    return feed.control.gaps(known.feed_id) if known is not None else []


def states(feed: FeedInMemory) -> list[BatchState]:
    """Return the batches' states, oldest first."""
    found = feed.control.batch_states(feed.control.feed("orders").feed_id)
    return [found[batch_id] for batch_id in sorted(found)]


def work_off(feed: FeedInMemory) -> None:
    """Plan, write and commit until nothing is new."""
    while (batch := feed.plan().batch) is not None:
        feed.write(batch.batch_id)
        feed.commit(batch.batch_id)


def published(sink: InMemorySink, plan: BatchPlan, *ledger: Event, **changes: Any) -> None:
    """Let an output hold a batch."""
    sink.published[plan.batch_id] = PublishedReceipt(plan, a_receipt(plan, **changes), ledger)


def seeded(*ranges: OffsetRange) -> Event:
    """Return the event that says of partitions that they begin where these ranges do."""
    partitions = [
        {"topic": each.topic, "partition": each.partition, "topic_id": "topic-id-1"}
        | {"offset": each.start_offset, "rule": "earliest"}
        for each in ranges
    ]
    return Event(1, "seeded", SOME_DAY, "run 1", None, {"partitions": partitions})


def numbered(number: int, *ranges: OffsetRange, **changes: Any) -> BatchPlan:
    """Return a plan whose batch id sorts by its number."""
    return a_plan(*ranges, batch_id=UUID(int=(0x0199 << 112) + number), **changes)


# ── Control tables that know nothing ──────────────────────────────────────────────────────────────────────────────────


def test_stored_offsets_are_what_they_were(feed: FeedInMemory) -> None:
    before = rows(feed)
    lose_tables(feed)
    adopt(feed)
    assert rows(feed) == before
    assert feed.stored_offsets() == {partition(0): 130, partition(1): 50}


def test_the_feed_continues_where_its_output_ends(feed: FeedInMemory) -> None:
    lose_tables(feed)
    more_records(feed, 150, 60)
    with pytest.raises(OutputUnknownError, match="`kafka-ingest adopt orders` rebuilds them from the output"):
        feed.plan()
    adopt(feed)
    assert feed.committed().ranges == (span(0, 130, 150), span(1, 50, 60))
    assert feed.sink.published_ranges() == [
        span(0, 0, 100),
        span(0, 100, 130),
        span(0, 130, 150),
        span(1, 0, 50),
        span(1, 50, 60),
    ]


def test_it_is_the_same_feed_with_the_same_id(feed: FeedInMemory) -> None:
    feed_id = feed.control.feed("orders").feed_id
    lose_tables(feed)
    assert adopt(feed).target == NewFeed(feed_id, "orders")
    assert feed.control.feed("orders").feed_id == feed_id


def test_all_batches_are_committed_by_the_attempts_that_were_published(feed: FeedInMemory) -> None:
    more_records(feed, 140, 50)
    plan = feed.planned()
    feed.open_attempt(plan.batch_id)
    feed.write(plan.batch_id)
    feed.commit(plan.batch_id)
    known = {batch_id: feed.control.attempts(batch_id)[-1] for batch_id in feed.control.state.batches}
    lose_tables(feed)
    adopt(feed)
    assert states(feed) == [BatchState.COMMITTED] * 3
    for batch_id, was in known.items():
        (attempt,) = feed.control.attempts(batch_id)
        assert (attempt.attempt, attempt.state) == (was.attempt, AttemptState.PINNED)
        assert (attempt.directory, attempt.receipt_sha256) == (was.directory, was.receipt_sha256)


def test_showing_writes_nothing(feed: FeedInMemory) -> None:
    lose_tables(feed)
    before = feed.control.state
    decision = decided(feed)
    assert decision.stored_now == {}
    assert [(row.topic_partition, row.next_offset) for row in decision.adoption.stored] == [
        (partition(0), 130),
        (partition(1), 50),
    ]
    assert feed.control.state is before


def test_a_partition_that_was_seeded_and_never_read_keeps_its_start() -> None:
    feed = FeedInMemory(
        kafka=FakeKafkaCluster({"orders": topic(log(0, 10), log(0, 7))}),
        settings=feed_settings(start_rules={"orders": Latest()}),
    )
    feed.plan()
    more_records(feed, 12, 7)
    feed.committed()
    lose_tables(feed)
    adopt(feed)
    assert feed.stored_offsets() == {partition(0): 12, partition(1): 7}
    more_records(feed, 12, 9)
    assert feed.planned().ranges == (span(1, 7, 9),)


def test_a_start_that_was_pending_is_still_pending_and_resolved_by_the_next_plan() -> None:
    feed = FeedInMemory(kafka=FakeKafkaCluster({"orders": topic(NO_LEADER, log(0, 50))}))
    feed.committed()
    lose_tables(feed)
    adopt(feed)
    assert rows(feed)[partition(0)].is_pending
    feed.kafka.topics["orders"] = topic(log(3, 9), log(0, 50))
    assert feed.planned().ranges == (span(0, 3, 9),)


def test_what_a_pending_start_came_to_later_is_restored_too() -> None:
    feed = FeedInMemory(kafka=FakeKafkaCluster({"orders": topic(NO_LEADER, log(0, 50))}))
    feed.committed()
    feed.kafka.topics["orders"] = topic(log(3, 9), log(0, 50))
    feed.committed()
    before = rows(feed)
    lose_tables(feed)
    adopt(feed)
    assert rows(feed) == before
    assert before[partition(0)].first_offset == 3


def test_gaps_are_restored_those_passed_and_those_ahead(feed: FeedInMemory) -> None:
    feed.settings = feed_settings(on_data_loss=OnDataLoss.RECORD_GAP)
    feed.kafka.topics["orders"] = topic(log(140, 200), log(0, 90))
    skipped(feed, span(1, 50, 60))
    skipped(feed, span(1, 80, 85))
    feed.committed()
    before = gaps(feed)
    assert [(str(gap.offset_range), gap.cause.value, gap.state) for gap in before] == [
        ("orders-0[130, 140)", "retention", "open"),
        ("orders-1[50, 60)", "skipped", "open"),
        ("orders-1[80, 85)", "skipped", "ahead"),
    ]
    lose_tables(feed)
    adopt(feed)
    assert gaps(feed) == before
    assert feed.stored_offsets() == {partition(0): 200, partition(1): 80}
    work_off(feed)
    assert feed.stored_offsets() == {partition(0): 200, partition(1): 90}
    assert span(1, 85, 90) in feed.sink.published_ranges()


def test_a_gap_that_lay_ahead_and_was_passed_since_is_restored_as_passed(feed: FeedInMemory) -> None:
    more_records(feed, 200, 50)
    skipped(feed, span(0, 150, 160))
    work_off(feed)
    before = gaps(feed)
    lose_tables(feed)
    adopt(feed)
    assert gaps(feed) == before
    assert [gap.state for gap in before] == ["open"]


def test_a_topic_that_was_started_over_is_restored(feed: FeedInMemory) -> None:
    more_records(feed, 30, 20, topic_id="topic-id-2")
    changed(feed, Choice.START_OVER)
    feed.committed()
    before = rows(feed)
    lose_tables(feed)
    adopt(feed)
    assert rows(feed) == before
    assert feed.stored_offsets() == {partition(0): 30, partition(1): 20}


def test_a_topic_that_was_started_over_with_fewer_partitions_has_none_of_those_that_are_gone(
    feed: FeedInMemory,
) -> None:
    more_records(feed, 30, topic_id="topic-id-2")
    changed(feed, Choice.START_OVER)
    feed.committed()
    lose_tables(feed)
    adopt(feed)
    assert feed.stored_offsets() == {partition(0): 30}


def test_a_topic_that_was_forgotten_stays_forgotten() -> None:
    feed = FeedInMemory(
        kafka=FakeKafkaCluster({"orders": topic(log(0, 10)), "refunds": topic(log(0, 20))}),
        settings=feed_settings(start_rules={"orders": Earliest(), "refunds": Earliest()}),
    )
    feed.committed()
    feed.kafka.topics = {"orders": topic(log(0, 15))}
    changed(feed, Choice.FORGET, "refunds")
    feed.settings = feed_settings()
    feed.committed()
    lose_tables(feed)
    adopt(feed)
    assert feed.stored_offsets() == {partition(0): 15}


def test_a_feed_that_went_over_to_another_cluster_is_adopted_with_that_one(feed: FeedInMemory) -> None:
    feed.kafka.id = "cluster-B"
    more_records(feed, 140, 50, topic_id="topic-id-B")
    changed(feed, Choice.SAME_RECORDS)
    feed.committed()
    before = rows(feed)
    lose_tables(feed)
    adopt(feed)
    assert feed.control.feed("orders").cluster_id == "cluster-B"
    assert {tp: (row.next_offset, row.topic_id) for tp, row in rows(feed).items()} == {
        tp: (row.next_offset, row.topic_id) for tp, row in before.items()
    }
    more_records(feed, 145, 50, topic_id="topic-id-B")
    assert feed.planned().ranges == (span(0, 140, 145),)


def test_seeds_gaps_and_resets_are_in_the_journal_again_in_their_order(feed: FeedInMemory) -> None:
    more_records(feed, 200, 50)
    skipped(feed, span(0, 130, 140))
    feed.committed()
    more_records(feed, 30, 20, topic_id="topic-id-2")
    changed(feed, Choice.START_OVER)
    feed.committed()
    feed_id = feed.control.feed("orders").feed_id
    before = [(event.kind, event.at, event.actor, event.detail) for event in feed.control.state.ledger_events(feed_id)]
    lose_tables(feed)
    adopt(feed)
    again = [(event.kind, event.at, event.actor, event.detail) for event in feed.control.state.ledger_events(feed_id)]
    assert again == before
    assert [kind for kind, _, _, _ in again] == ["seeded", "gap", "reset"]


def test_receipts_after_an_adoption_do_not_record_again_what_was_recorded_before(feed: FeedInMemory) -> None:
    lose_tables(feed)
    adopt(feed)
    more_records(feed, 200, 50)
    gap = skipped(feed, span(0, 130, 140))
    plan = feed.committed()
    (event,) = feed.sink.published[plan.batch_id].ledger
    assert event.detail == {"gaps": [gap.as_document()]}


def test_tables_that_are_lost_twice_are_rebuilt_twice(feed: FeedInMemory) -> None:
    lose_tables(feed)
    adopt(feed)
    more_records(feed, 200, 60)
    skipped(feed, span(0, 130, 140))
    feed.committed()
    before, known_gaps = rows(feed), gaps(feed)
    lose_tables(feed)
    adopt(feed)
    assert (rows(feed), gaps(feed)) == (before, known_gaps)


def test_adopting_is_in_the_journal_with_who_and_why(feed: FeedInMemory) -> None:
    lose_tables(feed)
    adopt(feed)
    (event,) = feed.control.journal(feed.control.feed("orders").feed_id, kinds=["adopted"], limit=1)
    assert (event.actor, event.detail["reason"]) == ("operator", "the disk died")


def test_a_topic_that_the_pattern_matches_since_is_read_from_its_beginning() -> None:
    feed = FeedInMemory(
        kafka=FakeKafkaCluster({"orders": topic(log(0, 10))}),
        settings=feed_settings(start_rules={}, topic_pattern="orders.*", pattern_start=Latest()),
    )
    feed.plan()
    more_records(feed, 12)
    feed.committed()
    lose_tables(feed)
    adopt(feed)
    feed.kafka.topics["orders-refunds"] = topic(log(0, 4), topic_id="refunds-id")
    assert feed.planned().ranges == (span(0, 0, 4, "orders-refunds"),)


def test_a_topic_that_the_file_brings_in_since_gets_its_start_rule(feed: FeedInMemory) -> None:
    lose_tables(feed)
    feed.kafka.topics["refunds"] = topic(log(0, 20), topic_id="refunds-id")
    feed.settings = feed_settings(start_rules={"orders": Earliest(), "refunds": Latest()})
    adopt(feed)
    feed.plan()
    assert feed.stored_offsets()[partition(0, "refunds")] == 20


def test_a_batch_that_read_no_record_moved_the_offsets_all_the_same(feed: FeedInMemory) -> None:
    more_records(feed, 135, 50)
    plan = feed.planned()
    feed.write(plan.batch_id, missing=5)
    feed.commit(plan.batch_id)
    lose_tables(feed)
    adopt(feed)
    assert feed.stored_offsets()[partition(0)] == 135
    assert feed.control.batch(plan.batch_id).rows == 0


# ── What receipts alone can show ──────────────────────────────────────────────────────────────────────────────────────


def test_a_backfill_moves_no_stored_offset(feed: FeedInMemory) -> None:
    feed_id = feed.control.feed("orders").feed_id
    backfill = a_plan(span(0, 20, 30), batch_id=uuid6.uuid7(), kind=BatchKind.BACKFILL, feed_id=feed_id)
    published(feed.sink, backfill)
    before = rows(feed)
    lose_tables(feed)
    adopt(feed)
    assert rows(feed) == before
    assert feed.control.batch(backfill.batch_id).state is BatchState.COMMITTED


def test_where_only_backfills_were_published_they_show_where_the_feed_stands() -> None:
    feed = FeedInMemory()
    published(feed.sink, numbered(1, span(0, 20, 30), kind=BatchKind.BACKFILL), seeded(span(0, 50, 60), span(1, 7, 8)))
    adopt(feed)
    assert feed.stored_offsets() == {partition(0): 50, partition(1): 7}
    assert feed.control.batch(UUID(int=(0x0199 << 112) + 1)).state is BatchState.COMMITTED


def test_where_only_backfills_were_published_and_none_shows_where_the_feed_stands_they_are_refused() -> None:
    feed = FeedInMemory()
    published(feed.sink, numbered(1, span(0, 20, 30), kind=BatchKind.BACKFILL))
    assert "backfill of orders-0[20, 30), and no receipt has the feed's stored offset" in refusal(
        feed, ReceiptsDoNotFollowError
    )


def test_ranges_of_which_no_receipt_says_where_they_began_are_refused() -> None:
    feed = FeedInMemory()
    published(feed.sink, numbered(2, span(0, 100, 200)))
    assert "orders-0[100, 200)" in refusal(feed, ReceiptsDoNotFollowError)


def test_a_leader_epoch_belongs_to_the_offset_that_it_was_seen_with_and_not_to_a_later_one() -> None:
    feed = FeedInMemory()
    published(feed.sink, numbered(1, span(0, 0, 10), leader_epochs={partition(0): 4}), seeded(span(0, 0, 10)))
    published(feed.sink, numbered(2, span(0, 10, 20)))
    adopt(feed)
    assert rows(feed)[partition(0)].leader_epoch is None


def test_receipts_of_an_older_name_of_the_feed_are_its_own() -> None:
    feed = FeedInMemory()
    published(feed.sink, numbered(1, span(0, 0, 10), feed_name="sales"), seeded(span(0, 0, 10)))
    published(feed.sink, numbered(2, span(0, 10, 20)))
    assert adopt(feed).target == NewFeed(FEED_ID, "orders")
    assert feed.stored_offsets() == {partition(0): 20}


# ── An older copy of the control tables ───────────────────────────────────────────────────────────────────────────────


def test_an_older_copy_stops_the_feed_and_adopting_continues_where_the_output_ends(feed: FeedInMemory) -> None:
    older = feed.control.state
    more_records(feed, 150, 60)
    feed.committed()
    before = rows(feed)
    feed.control.state = older
    with pytest.raises(OutputUnknownError, match="`kafka-ingest adopt orders` shows how they would change"):
        feed.plan()
    adopt(feed)
    assert rows(feed) == before
    more_records(feed, 155, 60)
    assert feed.planned().ranges == (span(0, 150, 155),)


def test_only_what_changes_is_shown_beside_what_is_stored_now(feed: FeedInMemory) -> None:
    older = feed.control.state
    more_records(feed, 150, 50)
    plan = feed.committed()
    feed.control.state = older
    decision = decided(feed)
    assert {tp: row.next_offset for tp, row in decision.stored_now.items()} == {partition(0): 130, partition(1): 50}
    assert [(row.topic_partition, row.next_offset) for row in decision.adoption.stored] == [(partition(0), 150)]
    assert [adopted.plan.batch_id for adopted in decision.adoption.batches] == [plan.batch_id]


@pytest.mark.parametrize("state", [BatchState.PLANNED, BatchState.WRITTEN, BatchState.COMMITTING])
def test_an_open_batch_of_an_older_copy_that_was_published_since_is_committed(
    feed: FeedInMemory, state: BatchState
) -> None:
    more_records(feed, 150, 50)
    plan = feed.open_in(state)
    older = feed.control.state
    feed.write(plan.batch_id)
    feed.commit(plan.batch_id)
    before = rows(feed)
    feed.control.state = older
    assert adopt(feed).adoption.abandoned is None
    assert feed.control.batch(plan.batch_id).state is BatchState.COMMITTED
    assert rows(feed) == before
    assert feed.plan().batch is None


@pytest.mark.parametrize("state", [BatchState.PLANNED, BatchState.WRITTEN])
def test_an_open_batch_of_an_older_copy_whose_ranges_were_read_since_is_abandoned(
    feed: FeedInMemory, state: BatchState
) -> None:
    more_records(feed, 150, 50)
    plan = feed.planned()
    if state is BatchState.WRITTEN:
        feed.write(plan.batch_id)
    older = feed.control.state
    feed.control.abandon(plan.batch_id, reason="planned too early", actor="operator")
    feed.committed()
    feed.control.state = older
    assert adopt(feed).adoption.abandoned == plan.batch_id
    assert (feed.control.batch(plan.batch_id).state, feed.plan().batch) == (BatchState.ABANDONED, None)
    assert feed.sink.published_ranges() == [span(0, 0, 100), span(0, 100, 130), span(0, 130, 150), span(1, 0, 50)]


def test_an_open_batch_whose_ranges_nobody_read_since_continues(feed: FeedInMemory) -> None:
    feed_id = feed.control.feed("orders").feed_id
    published(feed.sink, a_plan(span(0, 20, 30), batch_id=uuid6.uuid7(), kind=BatchKind.BACKFILL, feed_id=feed_id))
    more_records(feed, 150, 50)
    plan = planned_beside(feed)
    assert adopt(feed).adoption.abandoned is None
    assert feed.plan().batch == plan
    feed.write(plan.batch_id)
    feed.commit(plan.batch_id)
    assert feed.stored_offsets() == {partition(0): 150, partition(1): 50}


def planned_beside(feed: FeedInMemory) -> BatchPlan:
    """Plan as if the output held nothing that the tables do not know."""
    known = feed.control.batch_states(feed.control.feed("orders").feed_id)
    output, feed.sink = feed.sink, InMemorySink()
    feed.sink.published = {batch_id: kept for batch_id, kept in output.published.items() if batch_id in known}
    plan = feed.planned()
    feed.sink = output
    return plan


def test_what_was_decided_since_the_newest_batch_stays(feed: FeedInMemory) -> None:
    older = feed.control.state
    more_records(feed, 150, 50)
    feed.committed()
    feed.control.state = older
    more_records(feed, 200, 90, 0)
    gap = skipped(feed, span(1, 50, 70))
    far = skipped(feed, span(0, 130, 180))
    adopt(feed)
    assert feed.stored_offsets() == {partition(0): 180, partition(1): 70}
    assert gaps(feed) == [far, gap]


def test_a_seed_that_no_receipt_records_stays(feed: FeedInMemory) -> None:
    older = feed.control.state
    more_records(feed, 150, 50)
    feed.committed()
    feed.control.state = older
    feed.kafka.topics["orders"] = topic(log(0, 150), log(0, 50), log(30, 40))
    skipped(feed, span(2, 0, 30))
    adopt(feed)
    assert feed.stored_offsets() == {partition(0): 150, partition(1): 50, partition(2): 30}


def test_a_topic_that_was_made_again_since_the_copy_has_the_offsets_of_the_new_one(feed: FeedInMemory) -> None:
    older = feed.control.state
    more_records(feed, 30, 20, topic_id="topic-id-2")
    changed(feed, Choice.START_OVER)
    feed.committed()
    before = rows(feed)
    feed.control.state = older
    adopt(feed)
    assert rows(feed) == before


def test_a_gap_ahead_in_the_topic_as_it_was_is_not_jumped_over_in_the_new_one(feed: FeedInMemory) -> None:
    more_records(feed, 200, 50)
    skipped(feed, span(0, 150, 160))
    older = feed.control.state
    more_records(feed, 30, 20, topic_id="topic-id-2")
    changed(feed, Choice.START_OVER)
    feed.committed()
    feed.control.state = older
    adopt(feed)
    more_records(feed, 200, 20, topic_id="topic-id-2")
    assert feed.planned().ranges == (span(0, 30, 200),)


def test_a_topic_that_was_started_over_after_the_newest_batch_is_not_set_back(feed: FeedInMemory) -> None:
    feed.kafka.topics["refunds"] = topic(log(0, 5), topic_id="refunds-id")
    feed.settings = feed_settings(start_rules={"orders": Earliest(), "refunds": Earliest()})
    older = feed.control.state
    feed.committed()
    feed.control.state = older
    more_records(feed, 30, 20, topic_id="topic-id-2")
    changed(feed, Choice.START_OVER, "orders")
    adopt(feed)
    assert feed.stored_offsets() == {partition(0): 0, partition(1): 0, partition(0, "refunds"): 5}


def test_a_gap_that_was_passed_since_the_copy_is_not_ahead_any_more(feed: FeedInMemory) -> None:
    more_records(feed, 200, 50)
    skipped(feed, span(0, 150, 160))
    older = feed.control.state
    work_off(feed)
    before = gaps(feed)
    feed.control.state = older
    adopt(feed)
    assert gaps(feed) == before
    assert feed.control.feed("orders").gaps_ahead == []


# ── Refused ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_an_output_without_a_published_batch_has_nothing_to_adopt() -> None:
    message = refusal(FeedInMemory(), NothingToAdoptError)
    assert message == (
        "feed orders: its output /data/orders holds no published batch, so there is nothing to adopt. Is its storage "
        "mounted?"
    )


def test_tables_that_know_all_have_nothing_to_adopt(feed: FeedInMemory) -> None:
    before = feed.control.state
    decision = adopt(feed)
    assert (decision.is_nothing, decision.known) == (True, 2)
    assert feed.control.state is before


def test_adopting_twice_has_nothing_to_adopt_the_second_time(feed: FeedInMemory) -> None:
    lose_tables(feed)
    adopt(feed)
    assert adopt(feed).is_nothing


def test_an_output_of_two_feeds_is_refused(feed: FeedInMemory) -> None:
    published(feed.sink, numbered(9, span(0, 0, 9), feed_id=OTHER_FEED))
    lose_tables(feed)
    message = refusal(feed, OutputConflictError)
    assert "expected the batches of one feed in /data/orders, found those of 2" in message


def test_the_output_of_another_feed_is_refused_where_the_name_is_known_with_another_id(feed: FeedInMemory) -> None:
    feed.sink.published.clear()
    published(feed.sink, numbered(9, span(0, 0, 9), feed_id=OTHER_FEED))
    message = refusal(feed, OutputConflictError)
    assert f"was written by feed {OTHER_FEED}: two feeds share this output, or it was moved here" in message


def test_a_feed_that_was_renamed_in_its_file_only_is_shown_how_to_keep_its_history(feed: FeedInMemory) -> None:
    feed.settings = feed_settings(name="sales")
    message = refusal(feed, OutputConflictError)
    assert "the feed that is 'orders' in the control tables" in message
    assert "`kafka-ingest rename-feed orders sales --reason …`" in message


def test_a_missing_receipt_leaves_a_hole_and_is_refused_with_both_ends(feed: FeedInMemory) -> None:
    more_records(feed, 150, 50)
    newest = feed.committed()
    missing = sorted(feed.sink.published)[1]
    del feed.sink.published[missing]
    lose_tables(feed)
    message = refusal(feed, ReceiptsDoNotFollowError)
    assert f"batch {newest.batch_id} reads orders-0[130, 150) of topic id topic-id-1" in message
    assert "the receipts before it end at 100 of topic id topic-id-1" in message
    assert "restore it from a backup" in message


def test_a_receipt_that_reads_what_was_read_already_is_refused() -> None:
    feed = FeedInMemory()
    published(feed.sink, numbered(1, span(0, 0, 10)), seeded(span(0, 0, 10)))
    published(feed.sink, numbered(2, span(0, 5, 15)))
    assert "reads orders-0[5, 15)" in refusal(feed, ReceiptsDoNotFollowError)


def test_a_receipt_of_another_topic_of_that_name_is_refused_unless_the_topic_was_started_over() -> None:
    feed = FeedInMemory()
    published(feed.sink, numbered(1, span(0, 0, 10)), seeded(span(0, 0, 10)))
    published(feed.sink, numbered(2, span(0, 10, 20), topic_ids={"orders": "topic-id-2"}))
    message = refusal(feed, ReceiptsDoNotFollowError)
    assert "of topic id topic-id-2, the receipts before it end at 10 of topic id topic-id-1" in message


def test_an_output_that_cannot_be_read_is_not_one_without_batches(feed: FeedInMemory) -> None:
    lose_tables(feed)
    feed.sink.is_down = True
    refusal(feed, OutputUnavailableError)


def test_a_feed_that_another_process_wrote_to_since_it_was_shown_refuses_the_adoption(feed: FeedInMemory) -> None:
    older = feed.control.state
    more_records(feed, 150, 50)
    feed.committed()
    feed.control.state = older
    decision = decided(feed)
    skipped(feed, span(0, 130, 140))
    with pytest.raises(FeedChangedError):
        feed.control.adopt(decision.target, decision.adoption, reason="the disk died", actor="operator")
    assert feed.stored_offsets()[partition(0)] == 140


def test_a_feed_that_was_adopted_since_it_was_shown_refuses_a_second_adoption(feed: FeedInMemory) -> None:
    lose_tables(feed)
    decision = decided(feed)
    adopt(feed)
    with pytest.raises(FeedChangedError):
        feed.control.adopt(decision.target, decision.adoption, reason="the disk died", actor="operator")
    assert states(feed) == [BatchState.COMMITTED] * 2


# ── Whatever happened to the feed ─────────────────────────────────────────────────────────────────────────────────────


@dataclass
class Life:
    """A feed to which one thing after another happens."""

    feed: FeedInMemory

    @classmethod
    def begun(cls) -> "Life":
        settings = feed_settings(max_records=12, on_data_loss=OnDataLoss.RECORD_GAP)
        life = cls(FeedInMemory(FakeKafkaCluster({"orders": topic(log(0, 10), log(0, 3))}), settings=settings))
        life.batch()
        return life

    @property
    def topic(self) -> FakeTopic:
        return self.feed.kafka.topics["orders"]

    def become(self, logs: Sequence[LogBounds | Unavailable], topic_id: str | None = None) -> None:
        self.feed.kafka.topics["orders"] = topic(*logs, topic_id=topic_id or self.topic.topic_id)

    def records(self) -> None:
        """Five more records in every partition; all have a leader."""
        self.become(
            [log(0, 5) if isinstance(found, Unavailable) else grown(found) for found in self.topic.logs.values()]
        )

    def partition(self) -> None:
        """A new partition, which has no leader yet."""
        self.become([*self.topic.logs.values(), NO_LEADER])

    def retention(self) -> None:
        """Only the newest two records of partition 0 are still there."""
        first, *others = self.topic.logs.values()
        self.become([log(max(first.log_start_offset, first.high_watermark - 2), first.high_watermark), *others])

    def batch(self) -> None:
        """A batch is planned, and committed where something is new."""
        if (plan := self.feed.plan().batch) is not None:
            self.feed.write(plan.batch_id)
            self.feed.commit(plan.batch_id)

    def abandoned(self) -> None:
        """A batch is planned and abandoned."""
        if (plan := self.feed.plan().batch) is not None:
            self.feed.control.abandon(plan.batch_id, reason="not wanted", actor="operator")

    def skip(self, ahead: int) -> None:
        """Two offsets of partition 0 are skipped, from the stored one on or some offsets further."""
        bounds, stored = self.topic.logs[0], self.feed.stored_offsets()[partition(0)]
        start = stored + ahead
        filed = [gap.offset_range for gap in self.feed.control.feed("orders").gaps_ahead]
        is_free = all(start + 2 <= gap.start_offset or gap.end_offset <= start for gap in filed)
        if is_free and start + 2 <= bounds.high_watermark:
            skipped(self.feed, span(0, start, start + 2))

    def reset(self, by: int) -> None:
        """The stored offset of partition 0 goes back or forward."""
        moved(self.feed, ShiftBy(by))

    def backfill(self, selection: Selection, *, chunk: int = 3) -> None:
        """What is missing is read after all, as far as it is still there."""
        request = BackfillRequest(selection, {}, on_missing=OnMissing.RECORD_GAP, max_records=chunk)
        parts = (self.feed.settings, self.feed)
        for plan in plan_backfill(request, *parts, actor="operator").chunks:
            self.feed.write(plan.batch_id)
            self.feed.commit(plan.batch_id)

    def backfill_some(self) -> None:
        """Some offsets are read after all, of those that were passed and are still there."""
        stored = self.feed.stored_offsets().get(partition(0)) or 0
        start = min(stored, self.topic.logs[0].log_start_offset + 1)
        if start < stored and self.feed.control.feed("orders").stored[partition(0)].topic_id == self.topic.topic_id:
            self.backfill(OffsetRanges([span(0, start, stored)]), chunk=2)

    def backfill_gaps(self) -> None:
        """All open gaps are read after all."""
        if not any(isinstance(found, Unavailable) for found in self.topic.logs.values()):
            self.backfill(OpenGaps())

    def made_again(self) -> None:
        """The topic is made again with as many partitions, and started over."""
        generation = int((self.topic.topic_id or "").rpartition("-")[2]) + 1
        self.become([log(0, 4) for _ in self.topic.logs], topic_id=f"topic-id-{generation}")
        changed(self.feed, Choice.START_OVER)

    def restorable(self) -> tuple[Any, ...]:
        """Return what an adoption has to bring back."""
        committed = [batch for batch in self.feed.control.state.batches.values() if batch.state is BatchState.COMMITTED]
        counts = {batch.batch_id: self.feed.control.range_counts(batch.batch_id) for batch in committed}
        ledger = self.feed.control.state.ledger_events(self.feed.control.feed("orders").feed_id)
        return rows(self.feed), gaps(self.feed), counts, [(event.kind, event.at, event.detail) for event in ledger]


def grown(bounds: LogBounds) -> LogBounds:
    return log(bounds.log_start_offset, bounds.high_watermark + 5)


THINGS: dict[str, Callable[[Life], None]] = {
    "records arrive": Life.records,
    "a partition is added": Life.partition,
    "retention": Life.retention,
    "a batch": Life.batch,
    "a batch that is abandoned": Life.abandoned,
    "a skip": lambda life: life.skip(0),
    "a skip ahead": lambda life: life.skip(3),
    "a reset back": lambda life: life.reset(-4),
    "a reset to the log start": lambda life: moved(life.feed, ToEarliest()),
    "a reset forward": lambda life: life.reset(3),
    "a backfill of some": Life.backfill_some,
    "a backfill of the gaps": Life.backfill_gaps,
    "the topic is made again": Life.made_again,
}


@given(st.lists(st.sampled_from(list(THINGS)), max_size=14), st.integers(0, 14))
def test_whatever_happened_up_to_the_newest_batch_is_restored(things: list[str], copied_after: int) -> None:
    life = Life.begun()
    copy = life.feed.control.state
    for number, thing in enumerate(things):
        if number == copied_after:
            copy = life.feed.control.state
        THINGS[thing](life)
    # A receipt records what was decided before it: the newest thing is a batch.
    life.records()
    life.batch()
    before = life.restorable()

    lose_tables(life.feed)
    adopt(life.feed)
    assert life.restorable() == before, "tables that are lost"

    life.feed.control.state = copy
    adopt(life.feed)
    assert life.restorable() == before, "an older copy"
    life.records()
    work_off(life.feed)


def test_a_gap_ahead_that_was_taken_along_to_another_topic_id_is_restored(feed: FeedInMemory) -> None:
    more_records(feed, 200, 50)
    skipped(feed, span(0, 190, 195))
    more_records(feed, 200, 50, topic_id="topic-id-2")
    changed(feed, Choice.SAME_RECORDS)
    feed.settings = feed_settings(max_records=20)
    feed.committed()
    before = gaps(feed)
    lose_tables(feed)
    adopt(feed)
    assert gaps(feed) == before != []


def test_a_gap_ahead_beside_a_log_that_was_truncated_is_restored(feed: FeedInMemory) -> None:
    more_records(feed, 130, 90)
    skipped(feed, span(1, 60, 65))
    more_records(feed, 80, 90)
    changed(feed, Choice.REWIND)
    more_records(feed, 95, 90)
    feed.committed()
    before = gaps(feed)
    lose_tables(feed)
    adopt(feed)
    assert gaps(feed) == before != []


def test_a_gap_ahead_in_a_forgotten_topic_is_not_restored_nor_jumped_over_in_a_new_one_of_that_name() -> None:
    feed = FeedInMemory(
        kafka=FakeKafkaCluster({"orders": topic(log(0, 10)), "refunds": topic(log(0, 20), topic_id="refunds-id")}),
        settings=feed_settings(start_rules={"orders": Earliest(), "refunds": Earliest()}),
    )
    feed.committed()
    feed.kafka.topics["refunds"] = topic(log(0, 50), topic_id="refunds-id")
    skipped(feed, span(0, 30, 40, "refunds"))
    feed.kafka.topics = {"orders": topic(log(0, 15))}
    changed(feed, Choice.FORGET, "refunds")
    both, feed.settings = feed.settings, feed_settings()
    feed.committed()
    lose_tables(feed)
    adopt(feed)
    assert gaps(feed) == []
    feed.settings = both
    feed.kafka.topics["refunds"] = topic(log(0, 50), topic_id="refunds-id-2")
    assert feed.planned().ranges == (span(0, 0, 50, "refunds"),)


def test_a_topic_that_was_made_again_with_fewer_partitions_since_the_copy_keeps_no_row_of_those_that_are_gone(
    feed: FeedInMemory,
) -> None:
    older = feed.control.state
    more_records(feed, 30, topic_id="topic-id-2")
    changed(feed, Choice.START_OVER)
    feed.committed()
    feed.control.state = older
    adopt(feed)
    assert feed.stored_offsets() == {partition(0): 30}
    assert feed.plan().batch is None


def test_an_open_batch_of_an_older_copy_over_a_topic_that_was_made_again_since_is_abandoned(feed: FeedInMemory) -> None:
    more_records(feed, 150, 50)
    plan = feed.planned()
    older = feed.control.state
    more_records(feed, 30, 20, topic_id="topic-id-2")
    changed(feed, Choice.START_OVER)
    feed.committed()
    feed.control.state = older
    assert adopt(feed).adoption.abandoned == plan.batch_id
    assert feed.plan().batch is None


def test_tables_that_are_lost_twice_have_the_whole_journal_again(feed: FeedInMemory) -> None:
    more_records(feed, 200, 50)
    for _ in range(3):
        feed.control.abandon(feed.planned().batch_id, reason="not wanted", actor="operator")
    skipped(feed, span(0, 130, 140))
    feed.committed()
    lose_tables(feed)
    adopt(feed)
    more_records(feed, 300, 50)
    for start in (200, 210, 220):
        skipped(feed, span(0, start, start + 10))
    feed.committed()
    feed_id = feed.control.feed("orders").feed_id
    before = [(event.kind, event.at) for event in feed.control.state.ledger_events(feed_id)]
    lose_tables(feed)
    adopt(feed)
    assert [(event.kind, event.at) for event in feed.control.state.ledger_events(feed_id)] == before


def test_what_was_decided_on_a_truncated_log_since_the_copy_wins_over_the_larger_offset(feed: FeedInMemory) -> None:
    older = feed.control.state
    feed.kafka.topics["orders"] = topic(log(0, 80), log(0, 50))
    changed(feed, Choice.REWIND)
    feed.kafka.topics["orders"] = topic(log(0, 90), log(0, 50))
    assert feed.committed().ranges == (span(0, 80, 90),)
    before = feed.stored_offsets()
    feed.control.state = older
    adopt(feed)
    assert feed.stored_offsets() == before
    feed.kafka.topics["orders"] = topic(log(0, 140), log(0, 50))
    assert feed.committed().ranges == (span(0, 90, 140),)


def test_a_receipt_that_is_missing_before_the_output_was_left_for_another_is_still_missed(feed: FeedInMemory) -> None:
    first = feed.sink
    more_records(feed, 200, 50)
    missing = feed.committed()
    more_records(feed, 300, 50)
    feed.committed()
    feed.settings, feed.sink = feed_settings(output=parquet_at(ELSEWHERE)), InMemorySink(ELSEWHERE)
    more_records(feed, 400, 50)
    feed.committed()
    feed.settings, feed.sink = feed_settings(), first
    more_records(feed, 500, 50)
    feed.committed()
    lose_tables(feed)
    adopt(feed)
    assert feed.stored_offsets() == {partition(0): 500, partition(1): 50}
    lose_tables(feed)
    del feed.sink.published[missing.batch_id]
    refusal(feed, ReceiptsDoNotFollowError)


def test_the_first_receipt_in_another_output_records_partitions_that_it_never_read(feed: FeedInMemory) -> None:
    feed.settings, feed.sink = feed_settings(output=parquet_at(ELSEWHERE)), InMemorySink(ELSEWHERE)
    more_records(feed, 200, 50)
    assert feed.committed().ranges == (span(0, 130, 200),)
    before = feed.stored_offsets()
    lose_tables(feed)
    adopt(feed)
    assert feed.stored_offsets() == before == {partition(0): 200, partition(1): 50}
    assert feed.plan().batch is None


# ── Resets ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def with_a_gap(feed: FeedInMemory) -> None:
    """Pass orders-0[130, 150) as a gap, and read on up to 180."""
    more_records(feed, 180, 50)
    skipped(feed, span(0, 130, 150))
    feed.committed()


@pytest.mark.parametrize("to_offset", [160, 140, 130, 20, 0])
def test_a_feed_that_was_reset_back_is_restored_with_the_gaps_that_ended(feed: FeedInMemory, to_offset: int) -> None:
    with_a_gap(feed)
    moved(feed, ToOffsets({partition(0): to_offset}))
    feed.settings = feed_settings(max_records=5)
    feed.committed()
    before = rows(feed), gaps(feed)
    lose_tables(feed)
    adopt(feed)
    assert (rows(feed), gaps(feed)) == before
    assert feed.stored_offsets()[partition(0)] == to_offset + 5


def test_a_feed_that_was_reset_forward_is_restored_with_the_gap_that_was_filed(feed: FeedInMemory) -> None:
    more_records(feed, 180, 60)
    moved(feed, ToOffsets({partition(0): 170}))
    feed.committed()
    before = rows(feed), gaps(feed)
    lose_tables(feed)
    adopt(feed)
    assert (rows(feed), gaps(feed)) == before
    assert [gap.offset_range for gap in gaps(feed)] == [span(0, 130, 170)]


def test_a_partition_that_was_reset_and_not_read_since_is_where_it_was_put(feed: FeedInMemory) -> None:
    more_records(feed, 180, 60)
    moved(feed, ToOffsets({partition(0): 180, partition(1): 50}))
    feed.committed()
    before = rows(feed), gaps(feed)
    lose_tables(feed)
    adopt(feed)
    assert (rows(feed), gaps(feed)) == before
    assert feed.stored_offsets() == {partition(0): 180, partition(1): 60}


def test_a_reset_that_was_undone_is_restored_without_a_gap(feed: FeedInMemory) -> None:
    moved(feed, ToOffsets({partition(0): 20}))
    moved(feed, ToOffsets({partition(0): 130}))
    more_records(feed, 140, 50)
    feed.committed()
    before = rows(feed)
    lose_tables(feed)
    adopt(feed)
    assert (rows(feed), gaps(feed)) == (before, [])


def test_gaps_that_a_reset_ended_since_the_copy_are_not_open_any_more(feed: FeedInMemory) -> None:
    with_a_gap(feed)
    older = feed.control.state
    moved(feed, ToOffsets({partition(0): 140}))
    feed.settings = feed_settings(max_records=5)
    feed.committed()
    before = rows(feed), gaps(feed)
    feed.control.state = older
    adopt(feed)
    assert (rows(feed), gaps(feed)) == before
    assert [(gap.offset_range, gap.state) for gap in gaps(feed)] == [(span(0, 130, 140), "open")]


def test_gaps_that_ended_where_a_truncated_log_was_rewound_are_restored_as_ended(feed: FeedInMemory) -> None:
    with_a_gap(feed)
    older = feed.control.state
    more_records(feed, 140, 50)
    changed(feed, Choice.REWIND)
    more_records(feed, 160, 50)
    feed.committed()
    before = gaps(feed)
    assert [gap.offset_range for gap in before] == [span(0, 130, 140)]
    for state in (InMemoryControlTables().state, older):
        feed.control.state = state
        adopt(feed)
        assert gaps(feed) == before


def test_an_open_batch_of_an_older_copy_that_lies_above_a_feed_that_went_back_is_abandoned(feed: FeedInMemory) -> None:
    more_records(feed, 180, 50)
    plan = feed.planned()
    older = feed.control.state
    feed.control.abandon(plan.batch_id, reason="not wanted", actor="operator")
    moved(feed, ToOffsets({partition(0): 20}))
    feed.settings = feed_settings(max_records=10)
    feed.committed()
    feed.control.state = older
    assert adopt(feed).adoption.abandoned == plan.batch_id
    assert feed.committed().ranges == (span(0, 30, 40),)
