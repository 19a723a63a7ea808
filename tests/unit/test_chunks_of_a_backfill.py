"""The life of a chunk after it was claimed.

Read, written and committed like any batch, and never the feed's own concern.
"""

from dataclasses import replace
from typing import Any

import pytest
from tests.fakes import GROUP, InMemoryControlTables, log, partition, span, topic
from tests.unit.test_explain_failure import batch_is_invalid
from tests.unit.test_plan_backfill import COPY, Backfilled, feed_with_a_hole, made_again

from kafka_ingest.batches.backfill_request import OpenGaps
from kafka_ingest.batches.explain_failure import explain_failure
from kafka_ingest.errors import (
    BatchStateError,
    KafkaIngestError,
    KafkaUnavailableError,
    OffsetsMissingError,
    PartitionUnreadableError,
    RecordsDeletedError,
    StagedOutputUnusableError,
    TopicRecreatedError,
)
from kafka_ingest.model.batch import Attempt, BatchPlan, BatchState
from kafka_ingest.model.coverage import coverage_of
from kafka_ingest.model.offsets import OffsetRange, OffsetsPolicy, intersect, span_of, union
from kafka_ingest.verbs.adopt import decide_adoption
from kafka_ingest.verbs.skip import decide_skip, skip


@pytest.fixture
def feed() -> Backfilled:
    return feed_with_a_hole()


@pytest.fixture
def chunk(feed: Backfilled) -> BatchPlan:
    """The one chunk of a backfill of orders-0[20, 60), PLANNED."""
    [plan] = feed.backfill(selection=OpenGaps()).chunks
    return plan


def holds(feed: Backfilled) -> list[object]:
    return list(feed.control.feed("orders").holds)


def refused(feed: Backfilled, plan: BatchPlan, error: type[KafkaIngestError]) -> str:
    """Return why a chunk is not read; it stays PLANNED, and nothing of the feed changes."""
    before, stored = holds(feed), feed.stored_offsets()
    with pytest.raises(error) as found:
        feed.write(plan.batch_id)
    assert feed.control.batch(plan.batch_id).state is BatchState.PLANNED
    assert (holds(feed), feed.stored_offsets()) == (before, stored)
    return str(found.value)


# ── Reading ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_chunk_whose_records_are_deleted_before_it_is_read_is_to_be_abandoned_and_planned_again(
    feed: Backfilled, chunk: BatchPlan
) -> None:
    feed.kafka.topics["orders"] = topic(log(30, 200), log(0, 150))
    message = refused(feed, chunk, RecordsDeletedError)
    assert "orders-0[20, 60) begins below the log start 30" in message
    assert f"Abandon it (`kafka-ingest abandon {chunk.batch_id} --reason …`) and plan the backfill again" in message


def test_a_chunk_of_a_log_that_ends_before_it_holds_up_no_partition_of_the_feed(
    feed: Backfilled, chunk: BatchPlan
) -> None:
    feed.kafka.topics["orders"] = topic(log(0, 10), log(0, 150))
    assert "ends above the log end 10" in refused(feed, chunk, RecordsDeletedError)


def test_a_copy_that_begins_above_what_is_left_of_the_log_holds_up_no_partition_of_the_feed(feed: Backfilled) -> None:
    [plan] = feed.backfill(span(0, 150, 200), **COPY).chunks
    feed.kafka.topics["orders"] = topic(log(0, 100), log(0, 150))
    with pytest.raises(RecordsDeletedError, match="plan the copy again"):
        feed.write(plan.batch_id)
    assert holds(feed) == []


def seen_in_epoch(feed: Backfilled, epoch: int, *ranges: OffsetRange, **request: Any) -> BatchPlan:
    """Plan one chunk while the logs have a leader epoch."""
    feed.kafka.topics["orders"] = topic(log(0, 200, leader_epoch=epoch), log(0, 150, leader_epoch=epoch))
    [plan] = feed.backfill(*ranges, **request).chunks
    return plan


def other_leader(feed: Backfilled, *starts: tuple[int, int], grown_to: int = 250) -> None:
    """Let partition 0 have leaders after that, each with the offset at which its epoch begins."""
    feed.kafka.topics["orders"] = topic(log(0, grown_to, leader_epoch=starts[-1][0]), log(0, 150, leader_epoch=3))
    feed.kafka.epoch_starts = {partition(0): dict(starts)}


def test_a_chunk_whose_log_was_cut_off_and_has_grown_again_is_not_read(feed: Backfilled) -> None:
    plan = seen_in_epoch(feed, 3, selection=OpenGaps())
    other_leader(feed, (5, 50))
    message = refused(feed, plan, RecordsDeletedError)
    assert "orders-0[20, 60) ends above the log end 50" in message
    assert "plan the backfill again" in message


def test_a_chunk_that_lies_behind_where_its_log_was_cut_off_is_read(feed: Backfilled) -> None:
    plan = seen_in_epoch(feed, 3, selection=OpenGaps())
    other_leader(feed, (4, 60), (5, 180))
    feed.write(plan.batch_id)
    assert feed.control.batch(plan.batch_id).state is BatchState.WRITTEN


def test_a_copy_of_what_the_feed_has_not_read_yet_is_not_read_where_its_log_was_cut_off(feed: Backfilled) -> None:
    plan = seen_in_epoch(feed, 3, span(0, 150, 200), **COPY)
    other_leader(feed, (5, 170))
    refused(feed, plan, RecordsDeletedError)


def test_a_chunk_notes_the_epochs_of_its_own_partitions_as_its_log_is_led_now(feed: Backfilled) -> None:
    # Led again since the feed read it, with all that it has read.
    plan = seen_in_epoch(feed, 7, selection=OpenGaps())
    assert dict(plan.leader_epochs) == {partition(0): 7}
    assert BatchPlan.from_document(plan.as_document()).leader_epochs == plan.leader_epochs


def test_a_chunk_that_was_planned_without_epochs_is_read_under_any_leader(feed: Backfilled, chunk: BatchPlan) -> None:
    assert not chunk.leader_epochs
    other_leader(feed, (5, 180))
    feed.write(chunk.batch_id)
    assert feed.control.batch(chunk.batch_id).state is BatchState.WRITTEN


def test_a_chunk_of_a_topic_that_was_made_again_is_not_read(feed: Backfilled, chunk: BatchPlan) -> None:
    feed.kafka.topics["orders"] = topic(log(0, 200), log(0, 150), topic_id="topic-id-2")
    refused(feed, chunk, TopicRecreatedError)


def test_while_kafka_is_down_a_chunk_waits(feed: Backfilled, chunk: BatchPlan) -> None:
    feed.kafka.is_down = True
    refused(feed, chunk, KafkaUnavailableError)
    feed.kafka.is_down = False
    feed.write(chunk.batch_id)
    assert feed.control.batch(chunk.batch_id).state is BatchState.WRITTEN


def test_a_record_that_nobody_can_read_holds_up_the_chunk_and_not_the_feed(feed: Backfilled, chunk: BatchPlan) -> None:
    attempt = stumbling(feed, chunk, 33)
    with pytest.raises(PartitionUnreadableError) as found:
        explain_failure(attempt, feed)

    assert "orders-0: the record at offset 33 cannot be read (BAD_MSG: damaged)" in str(found.value)
    assert f"abandon this backfill (`kafka-ingest abandon {chunk.batch_id} --reason …`)" in str(found.value)
    assert "kafka-ingest skip" not in str(found.value)
    assert holds(feed) == []


def stumbling(feed: Backfilled, plan: BatchPlan, offset: int) -> Attempt:
    """Let Spark end over a record that nobody can read."""
    attempt = feed.open_attempt(plan.batch_id)
    feed.kafka.damaged[partition(0)] = offset
    feed.sink.failures[attempt.directory] = batch_is_invalid(partition(0), offset)
    return attempt


# ── Committing ────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_chunk_is_committed_without_kafka_and_without_the_group(feed: Backfilled, chunk: BatchPlan) -> None:
    feed.write(chunk.batch_id)
    before, group = feed.stored_offsets(), dict(feed.kafka.groups[GROUP])
    feed.kafka.questions.clear()
    feed.kafka.is_down = True
    committed = feed.commit(chunk.batch_id)

    assert (committed.batch.state, committed.by_us) == (BatchState.COMMITTED, True)
    assert [count.rows for count in committed.counts] == [40]
    assert (feed.kafka.questions, feed.kafka.groups[GROUP], feed.stored_offsets()) == ([], group, before)
    assert feed.control.journal(feed.feed_id, kinds=["mirror_failed"], limit=1) == []


def test_a_group_that_was_moved_by_others_is_left_to_the_next_live_commit(feed: Backfilled, chunk: BatchPlan) -> None:
    feed.kafka.groups[GROUP][partition(0)] = 7
    feed.write(chunk.batch_id)
    feed.commit(chunk.batch_id)

    assert feed.kafka.groups[GROUP][partition(0)] == 7
    assert feed.control.ledger(chunk.batch_id) == []


def test_a_chunk_that_is_committed_again_stays_committed_once(feed: Backfilled, chunk: BatchPlan) -> None:
    feed.write(chunk.batch_id)
    feed.commit(chunk.batch_id)
    before = feed.control.state
    feed.write(chunk.batch_id)
    assert not feed.commit(chunk.batch_id, actor="run 2").by_us
    assert feed.control.state is before


def test_damaged_files_of_a_chunk_are_written_again(feed: Backfilled, chunk: BatchPlan) -> None:
    feed.write(chunk.batch_id)
    feed.sink.damaged.add(feed.control.attempts(chunk.batch_id)[0].directory)
    with pytest.raises(StagedOutputUnusableError):
        feed.commit(chunk.batch_id)
    assert [gap.state for gap in feed.control.gaps(feed.feed_id)] == ["open"]

    feed.write(chunk.batch_id)
    feed.commit(chunk.batch_id)
    assert [gap.state for gap in feed.control.gaps(feed.feed_id)] == ["closed"]
    assert feed.sink.published_ranges().count(span(0, 20, 60)) == 1


def test_holes_in_a_feed_whose_every_offset_is_a_record_stop_a_chunk_as_well(feed: Backfilled) -> None:
    feed.settings = replace(feed.settings, offsets_policy=OffsetsPolicy.DENSE)
    [plan] = feed.backfill(selection=OpenGaps()).chunks
    feed.write(plan.batch_id, missing=1)
    with pytest.raises(OffsetsMissingError, match="39 records, 1 offset without one"):
        feed.commit(plan.batch_id)


def test_a_chunk_that_was_abandoned_is_not_committed_and_its_offsets_are_free(
    feed: Backfilled, chunk: BatchPlan
) -> None:
    feed.write(chunk.batch_id)
    feed.control.abandon(chunk.batch_id, reason="not wanted", actor="ops")
    with pytest.raises(BatchStateError, match="was abandoned by ops"):
        feed.commit(chunk.batch_id)
    assert feed.backfill(selection=OpenGaps()).chunks[0].ranges == chunk.ranges
    assert span(0, 20, 60) not in feed.sink.published_ranges()


def test_the_receipt_of_a_chunk_has_no_decision_that_a_live_one_has_and_the_next_live_one_has_all(
    feed: Backfilled,
) -> None:
    feed.kafka.topics["orders"] = topic(log(0, 210), log(0, 150))
    [plan] = feed.backfill(selection=OpenGaps()).chunks
    feed.write(plan.batch_id)
    feed.commit(plan.batch_id)
    live = feed.committed()

    assert feed.sink.published[plan.batch_id].ledger == []
    events = [event.event_id for kept in feed.sink.published.values() for event in kept.ledger]
    assert events == [event.event_id for event in feed.control.ledger_of_feed(feed.feed_id)]
    assert live.ranges == (span(0, 200, 210),)


def passed(feed: Backfilled) -> None:
    """Let the feed pass orders-0[200, 210) as a gap, without a batch."""
    feed.kafka.topics["orders"] = topic(log(0, 210), log(0, 150))
    skip(decide_skip("orders", span(0, 200, 210), "poisoned", feed.control, feed.kafka), feed.control, actor="operator")
    assert feed.plan().batch is None
    assert feed.stored_offsets()[partition(0)] == 210


def events_of(feed: Backfilled, plan: BatchPlan) -> list[int]:
    """Return which events the published receipt of a batch has."""
    return [event.event_id for event in feed.sink.published[plan.batch_id].ledger]


def test_the_receipt_of_a_chunk_has_what_was_decided_since_the_newest_live_one_and_before_its_plan(
    feed: Backfilled,
) -> None:
    before = {event.event_id for event in feed.control.ledger_of_feed(feed.feed_id)}
    passed(feed)
    since = [each.event_id for each in feed.control.ledger_of_feed(feed.feed_id) if each.event_id not in before]
    first, second = feed.backfill(span(0, 200, 210), max_records=5).chunks
    feed.kafka.topics["orders"] = topic(log(0, 220), log(0, 170))
    skip(decide_skip("orders", span(1, 150, 160), "later", feed.control, feed.kafka), feed.control, actor="operator")
    for chunk in (first, second):
        feed.write(chunk.batch_id)
        feed.commit(chunk.batch_id)

    assert since
    assert events_of(feed, first) == events_of(feed, second) == since
    live = feed.committed()
    assert events_of(feed, live) == [
        event.event_id for event in feed.control.ledger_of_feed(feed.feed_id) if event.event_id not in before
    ]


def test_a_live_batch_that_is_open_is_committed_after_a_chunk_as_if_there_were_none(
    feed: Backfilled, chunk: BatchPlan
) -> None:
    feed.kafka.topics["orders"] = topic(log(0, 210), log(0, 150))
    live = feed.written()
    feed.write(chunk.batch_id)
    feed.commit(chunk.batch_id)
    feed.commit(live.batch_id)

    assert feed.stored_offsets()[partition(0)] == feed.kafka.groups[GROUP][partition(0)] == 210
    assert feed.plan().batch is None


# ── Lost control tables ───────────────────────────────────────────────────────────────────────────────────────────────


def gaps_of(feed: Backfilled) -> set[tuple[object, ...]]:
    """Return what is known of each gap."""
    found = feed.control.gaps(feed.feed_id)
    return {(gap.offset_range, gap.topic_id, gap.cause, gap.decided_by, gap.closed_by_batch) for gap in found}


def filled(feed: Backfilled, *ranges: OffsetRange) -> None:
    """Backfill ranges, to the end."""
    for chunk in feed.backfill(*ranges).chunks:
        feed.write(chunk.batch_id)
        feed.commit(chunk.batch_id)


def adopt(feed: Backfilled) -> None:
    """Lose the control tables, and rebuild them from the output."""
    feed.control = InMemoryControlTables()
    decision = decide_adoption(feed.settings, feed.control, feed.sink)
    feed.control.adopt(decision.target, decision.adoption, reason="the disk died", actor="ops")


@pytest.mark.parametrize("same_records", [True, False])
def test_gaps_are_rebuilt_as_they_were_whatever_became_of_their_topic(feed: Backfilled, *, same_records: bool) -> None:
    filled(feed, span(0, 30, 40))
    made_again(feed, "topic-id-2", same_records=same_records)
    feed.run_live()
    made_again(feed, "topic-id-3", same_records=True)
    feed.run_live()
    before, stored = gaps_of(feed), feed.stored_offsets()
    adopt(feed)

    assert (gaps_of(feed), feed.stored_offsets()) == (before, stored)
    assert {topic_id for _, topic_id, *_ in before} == {"topic-id-3" if same_records else "topic-id-1"}
    assert [each.problems for each in coverage_of(feed.control.coverage("orders")).values()] == [[], []]


def test_what_is_left_of_a_gap_is_filled_after_the_control_tables_were_lost(feed: Backfilled) -> None:
    filled(feed, span(0, 50, 55))
    filled(feed, span(0, 30, 40))
    feed.run_live()
    before = gaps_of(feed)
    adopt(feed)
    assert gaps_of(feed) == before

    filled(feed, span(0, 20, 60))
    in_hole = [each for each in feed.sink.published_ranges() if intersect([each], [span(0, 20, 60)])]
    assert union(in_hole) == [span(0, 20, 60)]
    assert span_of(in_hole) == 40


def test_a_hole_that_was_passed_and_filled_since_the_newest_live_batch_is_known_after_the_control_tables_were_lost(
    feed: Backfilled,
) -> None:
    passed(feed)
    filled(feed, span(0, 200, 206))
    before, stored = gaps_of(feed), feed.stored_offsets()
    adopt(feed)

    assert (gaps_of(feed), feed.stored_offsets()) == (before, stored)
    assert stored[partition(0)] == 210
    assert [each.problems for each in coverage_of(feed.control.coverage("orders")).values()] == [[], []]
    feed.run_live()
    filled(feed, span(0, 200, 210))
    in_hole = [each for each in feed.sink.published_ranges() if intersect([each], [span(0, 200, 210)])]
    assert in_hole == [span(0, 200, 206), span(0, 206, 210)]
