"""An operator moves stored offsets.

Where each target leads, what it comes to, and what is refused before anything is written.
"""

from collections.abc import Collection, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import pytest
import uuid6
from tests.fakes import FakeKafkaCluster, FeedInMemory, feed_settings, log, partition, span, topic

from kafka_ingest.errors import (
    BatchStateError,
    FeedChangedError,
    InvalidRangeError,
    KafkaUnavailableError,
    StoredOffsetBeyondLogError,
    TopicGoneError,
    TopicRecreatedError,
    UnknownBatchError,
    UnknownFeedError,
    WrongClusterError,
    WrongUseError,
)
from kafka_ingest.model.batch import BatchKind, BatchPlan, BatchState
from kafka_ingest.model.control_rows import BackfillRecord, ResetMove, StartOver
from kafka_ingest.model.gap import GapCause
from kafka_ingest.model.offsets import Isolation, OffsetRange, TopicPartition, Unavailable
from kafka_ingest.planning.settings import Earliest, Latest
from kafka_ingest.verbs.reset import PartitionReset, ResetDecision, decide_reset, reset
from kafka_ingest.verbs.reset_target import (
    ResetTarget,
    ShiftBy,
    ToBatch,
    ToEarliest,
    ToGroup,
    ToLatest,
    ToOffsets,
    ToTimestamp,
)
from kafka_ingest.verbs.skip import decide_skip, skip
from kafka_ingest.verbs.topic_changes import Choice, apply_choice, changes_of, rows_after

NO_LEADER = Unavailable("LEADER_NOT_AVAILABLE")
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
WHY = "the consumer downstream lost a day"


@pytest.fixture
def feed() -> FeedInMemory:
    """A feed that committed orders-0[0, 100) and orders-1[0, 50); each partition has 100 more records by now."""
    feed = FeedInMemory()
    feed.committed()
    feed.kafka.topics["orders"] = topic(log(0, 200), log(0, 150))
    return feed


def decided(
    feed: FeedInMemory, target: ResetTarget, named: Mapping[str, Collection[int]] | None = None
) -> ResetDecision:
    """Decide on a reset; nothing is written."""
    return decide_reset(target, named or {}, feed.settings, feed.control, feed.kafka, reason=WHY)


def of_partition(
    feed: FeedInMemory, target: ResetTarget, number: int = 0, named: Mapping[str, Collection[int]] | None = None
) -> PartitionReset:
    """Return what a reset comes to in one partition of ``orders``."""
    [found] = [
        each for each in decided(feed, target, named).partitions if each.stored.topic_partition == partition(number)
    ]
    return found


def done(feed: FeedInMemory, target: ResetTarget, named: Mapping[str, Collection[int]] | None = None) -> ResetDecision:
    """Decide on a reset and do it."""
    decision = decided(feed, target, named)
    reset(decision, feed.control, reason=WHY, actor="operator")
    return decision


def refusal(
    feed: FeedInMemory,
    target: ResetTarget,
    error: type[Exception],
    named: Mapping[str, Collection[int]] | None = None,
) -> str:
    """Return why there is no reset; nothing is written."""
    before = feed.control.state
    with pytest.raises(error) as found:
        done(feed, target, named)
    assert feed.control.state is before
    return str(found.value)


def new_offsets(decision: ResetDecision) -> dict[TopicPartition, int | None]:
    return {each.stored.topic_partition: each.new_offset for each in decision.partitions}


def at(*offsets: int) -> ToOffsets:
    """Return these offsets of the partitions 0, 1, … of ``orders`` as a target."""
    return ToOffsets({partition(number): offset for number, offset in enumerate(offsets)})


def gaps(feed: FeedInMemory) -> list[tuple[OffsetRange, GapCause, str]]:
    """Return the gap ledger."""
    return [(gap.offset_range, gap.cause, gap.state) for gap in feed.control.gaps(feed.control.feed("orders").feed_id)]


def skipped(feed: FeedInMemory, offset_range: OffsetRange) -> None:
    """Skip an interval."""
    skip(decide_skip("orders", offset_range, "poisoned", feed.control, feed.kafka), feed.control, actor="operator")


def backfill(feed: FeedInMemory, *ranges: OffsetRange, kind: BatchKind = BatchKind.BACKFILL) -> BatchPlan:
    """Plan a backfill or copy."""
    known = feed.control.feed("orders")
    plan = BatchPlan(
        batch_id=uuid6.uuid7(),
        kind=kind,
        feed_id=known.feed_id,
        feed_name="orders",
        cluster_id=known.cluster_id,
        topic_ids={"orders": "topic-id-1"},
        ranges=ranges,
        isolation=Isolation.READ_COMMITTED,
        offsets_policy=feed.settings.offsets_policy,
        output=feed.settings.output,
        planned_at=NOON,
    )
    feed.control.record_backfill(known, BackfillRecord([plan], [], {}), actor="airflow:backfill")
    return plan


def committed_backfill(feed: FeedInMemory, *ranges: OffsetRange) -> None:
    """Plan a backfill and commit it."""
    plan = backfill(feed, *ranges)
    feed.write(plan.batch_id)
    feed.commit(plan.batch_id)


# ── Where each target leads ───────────────────────────────────────────────────────────────────────────────────────────


def test_earliest_is_the_log_start_and_latest_the_end_of_what_can_be_read(feed: FeedInMemory) -> None:
    feed.kafka.topics["orders"] = topic(log(7, 200), log(0, 150, lso=120))
    assert new_offsets(decided(feed, ToEarliest())) == {partition(0): 7, partition(1): 0}
    assert new_offsets(decided(feed, ToLatest())) == {partition(0): 200, partition(1): 120}
    feed.settings = feed_settings(isolation=Isolation.READ_UNCOMMITTED)
    assert new_offsets(decided(feed, ToLatest())) == {partition(0): 200, partition(1): 150}


def test_a_time_leads_to_its_first_record_or_to_the_end(feed: FeedInMemory) -> None:
    feed.kafka.times = {
        partition(0): {offset: NOON + timedelta(seconds=offset) for offset in range(200)},
        partition(1): {offset: NOON - timedelta(days=1) for offset in range(150)},
    }
    decision = decided(feed, ToTimestamp(NOON + timedelta(seconds=42)))
    assert new_offsets(decision) == {partition(0): 42, partition(1): 150}
    assert [each.remark for each in decision.partitions] == ["", "no record is of that time or later"]


def test_a_time_whose_first_record_lies_behind_an_open_transaction_leads_to_where_it_begins(feed: FeedInMemory) -> None:
    feed.kafka.topics["orders"] = topic(log(0, 200, lso=120), log(0, 150))
    feed.kafka.times = {partition(0): {150: NOON}, partition(1): {60: NOON}}
    decision = decided(feed, ToTimestamp(NOON))
    assert new_offsets(decision) == {partition(0): 120, partition(1): 60}
    assert decision.partitions[0].remark == "cut to the end of what can be read"


def test_a_group_leads_to_where_it_stands_cut_to_what_the_log_holds(feed: FeedInMemory) -> None:
    feed.kafka.topics["orders"] = topic(log(30, 200), log(0, 150))
    feed.kafka.groups["other"] = {partition(0): 12, partition(1): 900}
    decision = decided(feed, ToGroup("other"))
    assert new_offsets(decision) == {partition(0): 30, partition(1): 150}
    assert [each.remark for each in decision.partitions] == [
        "cut to the log start",
        "cut to the end of what can be read",
    ]


def test_a_group_is_asked_before_the_logs_so_that_it_does_not_stand_beyond_them(feed: FeedInMemory) -> None:
    feed.kafka.groups["other"] = {partition(0): 12, partition(1): 9}
    feed.kafka.questions.clear()
    decided(feed, ToGroup("other"))
    assert feed.kafka.questions.index("group_offsets") < feed.kafka.questions.index("log_bounds")


def test_offsets_move_the_partitions_that_they_name_and_no_other(feed: FeedInMemory) -> None:
    decision = done(feed, ToOffsets({partition(1): 149}))
    assert new_offsets(decision) == {partition(1): 149}
    assert feed.stored_offsets() == {partition(0): 100, partition(1): 149}


@pytest.mark.parametrize(("shift", "expected"), [(-30, (70, 20)), (-70, (30, 0)), (60, (160, 110)), (120, (200, 150))])
def test_a_shift_goes_so_far_and_no_further_than_the_log(
    feed: FeedInMemory, shift: int, expected: tuple[int, int]
) -> None:
    assert new_offsets(decided(feed, ShiftBy(shift))) == dict(zip((partition(0), partition(1)), expected, strict=True))


@pytest.mark.parametrize("target", [ToLatest(), ShiftBy(5), ToTimestamp(NOON)])
def test_behind_an_open_transaction_nothing_that_leads_forward_leads_back(
    feed: FeedInMemory, target: ResetTarget
) -> None:
    feed.kafka.topics["orders"] = topic(log(0, 200, lso=100), log(0, 150))
    skipped(feed, span(0, 100, 180))
    assert of_partition(feed, target).new_offset == 180


def test_a_batch_leads_to_where_it_began_and_other_partitions_to_where_the_next_one_began(feed: FeedInMemory) -> None:
    feed.kafka.topics["orders"] = topic(log(0, 130), log(0, 50))
    second = feed.committed()
    feed.kafka.topics["orders"] = topic(log(0, 140), log(0, 90))
    feed.committed()
    assert new_offsets(decided(feed, ToBatch(second.batch_id))) == {partition(0): 100, partition(1): 50}
    newest = feed.control.feed("orders").newest_batch
    assert new_offsets(decided(feed, ToBatch(newest))) == {partition(0): 130, partition(1): 50}


def test_a_partition_that_no_batch_read_since_then_stays(feed: FeedInMemory) -> None:
    feed.kafka.topics["orders"] = topic(log(0, 130), log(0, 50))
    second = feed.committed()
    stays = of_partition(feed, ToBatch(second.batch_id), 1)
    assert (stays.move, stays.remark) == (None, "not read since that batch")


def test_a_start_that_is_pending_is_shown_and_stays() -> None:
    feed = FeedInMemory(kafka=FakeKafkaCluster({"orders": topic(NO_LEADER, log(0, 50))}))
    feed.committed()
    decision = decided(feed, ToEarliest())
    assert [(each.new_offset, each.remark) for each in decision.partitions] == [
        (None, "start pending: earliest"),
        (0, ""),
    ]
    assert [move.topic_partition for move in decision.moves] == [partition(1)]


def test_without_names_it_is_about_the_topics_that_the_feed_selects_now() -> None:
    both = {"orders": Earliest(), "refunds": Earliest()}
    feed = FeedInMemory(
        kafka=FakeKafkaCluster({"orders": topic(log(0, 10)), "refunds": topic(log(0, 10))}),
        settings=feed_settings(start_rules=both),
    )
    feed.committed()
    assert set(new_offsets(decided(feed, ToEarliest()))) == {partition(0), partition(0, "refunds")}
    feed.settings = feed_settings()
    assert set(new_offsets(decided(feed, ToEarliest()))) == {partition(0)}
    named = decided(feed, ToEarliest(), {"refunds": ()})
    assert set(new_offsets(named)) == {partition(0, "refunds")}


def test_names_narrow_it_to_topics_and_partitions(feed: FeedInMemory) -> None:
    assert new_offsets(decided(feed, ToEarliest(), {"orders": {1}})) == {partition(1): 0}
    done(feed, ToEarliest(), {"orders": {1}})
    assert feed.stored_offsets() == {partition(0): 100, partition(1): 0}


# ── What it comes to ──────────────────────────────────────────────────────────────────────────────────────────────────


def test_going_back_reads_again_what_is_committed(feed: FeedInMemory) -> None:
    found = of_partition(feed, at(40, 50))
    assert (found.move, found.read_again, found.skipped) == (ResetMove(partition(0), 100, 40), 60, 0)
    assert (found.overlaps, found.gaps, found.ended) == ([span(0, 40, 100)], [], [])
    done(feed, at(40, 50))
    assert feed.committed().ranges == (span(0, 40, 200), span(1, 50, 150))


def test_what_a_gap_passed_over_is_read_for_the_first_time(feed: FeedInMemory) -> None:
    skipped(feed, span(0, 100, 120))
    feed.kafka.topics["orders"] = topic(log(0, 130), log(0, 50))
    feed.committed()
    found = of_partition(feed, at(110, 50))
    assert (found.overlaps, found.ended) == ([span(0, 120, 130)], [span(0, 110, 120)])
    done(feed, at(110, 50))
    assert gaps(feed) == [(span(0, 100, 110), GapCause.SKIPPED, "open")]


def test_below_where_the_feed_began_only_backfills_are_committed() -> None:
    feed = FeedInMemory(settings=feed_settings(start_rules={"orders": Latest()}))
    feed.plan()
    committed_backfill(feed, span(0, 20, 30))
    found = of_partition(feed, ToEarliest())
    assert (found.read_again, found.overlaps) == (100, [span(0, 20, 30)])


def test_a_gap_that_a_backfill_closed_is_committed_and_stays_closed(feed: FeedInMemory) -> None:
    skipped(feed, span(0, 100, 120))
    committed_backfill(feed, span(0, 105, 110))
    found = of_partition(feed, at(90, 50))
    assert found.overlaps == [span(0, 90, 100), span(0, 105, 110)]
    assert found.ended == [span(0, 100, 105), span(0, 110, 120)]
    done(feed, at(90, 50))
    assert gaps(feed) == [(span(0, 105, 110), GapCause.SKIPPED, "closed")]


def test_going_forward_files_one_gap_that_says_why(feed: FeedInMemory) -> None:
    found = of_partition(feed, at(130, 50))
    assert (found.read_again, found.skipped, found.gaps, found.overlaps) == (0, 30, [span(0, 100, 130)], ())
    done(feed, at(130, 50))
    (gap,) = feed.control.gaps(feed.control.feed("orders").feed_id)
    assert (gap.offset_range, gap.cause, gap.state) == (span(0, 100, 130), GapCause.RESET, "open")
    assert (gap.reason, gap.decided_by) == (WHY, "operator")
    assert feed.committed().ranges == (span(0, 130, 200), span(1, 50, 150))


def test_a_gap_that_lies_ahead_is_passed_and_only_what_is_beside_it_is_filed(feed: FeedInMemory) -> None:
    skipped(feed, span(0, 110, 120))
    found = of_partition(feed, at(130, 50))
    assert found.gaps == [span(0, 100, 110), span(0, 120, 130)]
    done(feed, at(130, 50))
    assert gaps(feed) == [
        (span(0, 100, 110), GapCause.RESET, "open"),
        (span(0, 110, 120), GapCause.SKIPPED, "open"),
        (span(0, 120, 130), GapCause.RESET, "open"),
    ]


def test_into_a_gap_that_lies_ahead_the_way_leads_to_its_end(feed: FeedInMemory) -> None:
    skipped(feed, span(0, 110, 120))
    found = of_partition(feed, at(115, 50))
    assert (found.new_offset, found.gaps) == (120, [span(0, 100, 110)])
    assert found.remark == "to the end of the gap that was filed over 115"


def test_a_gap_that_begins_at_the_new_offset_is_passed_by_the_next_plan(feed: FeedInMemory) -> None:
    skipped(feed, span(0, 110, 120))
    done(feed, at(110, 50))
    assert feed.stored_offsets()[partition(0)] == 110
    assert gaps(feed)[1] == (span(0, 110, 120), GapCause.SKIPPED, "ahead")
    assert feed.planned().ranges[0] == span(0, 120, 200)


def test_gaps_ahead_stay_ahead_where_the_feed_goes_back(feed: FeedInMemory) -> None:
    skipped(feed, span(0, 110, 120))
    done(feed, at(90, 50))
    assert gaps(feed) == [(span(0, 110, 120), GapCause.SKIPPED, "ahead")]
    assert feed.committed().ranges[0] == span(0, 90, 110)


def test_a_reset_can_be_undone_and_nothing_that_is_committed_becomes_a_gap(feed: FeedInMemory) -> None:
    skipped(feed, span(0, 100, 120))
    done(feed, at(30, 50))
    found = of_partition(feed, at(120, 50))
    assert found.gaps == [span(0, 100, 120)], "the gap that ended is one again"
    assert found.remark == "70 are committed already, and no gap"
    done(feed, at(120, 50))
    assert gaps(feed) == [(span(0, 100, 120), GapCause.RESET, "open")]
    assert feed.committed().ranges[0] == span(0, 120, 200)
    assert feed.sink.published_ranges() == [span(0, 0, 100), span(0, 120, 200), span(1, 0, 50), span(1, 50, 150)]


def moved_to_another_id(feed: FeedInMemory, topic_id: str) -> None:
    """Let the topic have another id, and an operator say that it holds the same records."""
    feed.kafka.topics["orders"] = replace(feed.kafka.topics["orders"], topic_id=topic_id)
    known = feed.control.feed("orders")
    kept = [replace(row, topic_id=topic_id) for row in known.stored.values()]
    decided_on = StartOver("orders", topic_id, kept, same_records=True)
    feed.control.start_over(known, feed.kafka.id, [decided_on], reason="restored", actor="operator")


def test_a_reset_can_be_undone_after_the_same_records_were_given_another_id(feed: FeedInMemory) -> None:
    done(feed, at(30, 50))
    moved_to_another_id(feed, "topic-id-2")
    moved_to_another_id(feed, "topic-id-3")
    found = of_partition(feed, at(100, 50))
    assert (found.gaps, found.remark) == ([], "70 are committed already, and no gap")
    assert of_partition(feed, at(110, 50)).gaps == [span(0, 100, 110)]


def test_a_batch_of_before_the_same_records_were_given_another_id_leads_to_where_it_began(feed: FeedInMemory) -> None:
    first = feed.control.feed("orders").newest_batch
    second = feed.committed()
    moved_to_another_id(feed, "topic-id-2")
    assert new_offsets(decided(feed, ToBatch(second.batch_id))) == {partition(0): 100, partition(1): 50}
    assert new_offsets(decided(feed, ToBatch(first))) == {partition(0): 0, partition(1): 0}


def test_a_reset_is_undone_half_way_too(feed: FeedInMemory) -> None:
    done(feed, at(30, 50))
    feed.kafka.topics["orders"] = topic(log(0, 60), log(0, 50))
    feed.settings = feed_settings(max_records=10)
    assert feed.committed().ranges == (span(0, 30, 40),)
    feed.kafka.topics["orders"] = topic(log(0, 200), log(0, 150))
    assert of_partition(feed, at(110, 50)).gaps == [span(0, 100, 110)]


def test_records_that_took_the_place_of_committed_ones_in_a_truncated_log_are_a_gap_where_they_are_skipped(
    feed: FeedInMemory,
) -> None:
    done(feed, at(30, 50))
    feed.kafka.topics["orders"] = topic(log(0, 20), log(0, 150))
    changes = changes_of("orders", (), feed.settings, feed.control, feed.kafka)
    after = rows_after(changes, Choice.REWIND, feed.settings)
    apply_choice(changes, after, feed.control, discard_batch=False, reason="truncated", actor="operator")
    feed.kafka.topics["orders"] = topic(log(0, 90), log(0, 150))
    assert of_partition(feed, at(80, 50)).gaps == [span(0, 20, 80)]


def test_where_everything_is_there_already_nothing_moves(feed: FeedInMemory) -> None:
    assert decided(feed, at(100, 50)).moves == []


def test_the_group_may_be_asked_where_the_feed_itself_stands(feed: FeedInMemory) -> None:
    feed.kafka.groups["orders-ingest"] = {partition(0): 100, partition(1): 50}
    assert decided(feed, ToGroup("orders-ingest")).moves == []


def test_deciding_alone_writes_nothing(feed: FeedInMemory) -> None:
    before = feed.control.state
    decided(feed, at(40, 120))
    assert feed.control.state is before


# ── An open batch is in the way ───────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("state", [BatchState.PLANNED, BatchState.WRITTEN, BatchState.COMMITTING])
def test_an_open_batch_is_in_the_way_in_each_of_its_states_and_both_ways_on_are_named(
    feed: FeedInMemory, state: BatchState
) -> None:
    plan = feed.open_in(state)
    message = refusal(feed, ToEarliest(), BatchStateError)
    assert f"batch {plan.batch_id} is {state}" in message
    assert "`kafka-ingest run orders`" in message
    assert f"`kafka-ingest abandon {plan.batch_id} --reason …`" in message


def test_an_open_batch_of_other_partitions_is_in_the_way_too(feed: FeedInMemory) -> None:
    feed.kafka.topics["orders"] = topic(log(0, 200), log(0, 50))
    feed.planned()
    refusal(feed, ToEarliest(), BatchStateError, {"orders": {1}})


def test_an_open_backfill_is_in_the_way_until_it_has_ended(feed: FeedInMemory) -> None:
    skipped(feed, span(0, 100, 120))
    plan = backfill(feed, span(0, 100, 110))
    message = refusal(feed, ToLatest(), BatchStateError)
    assert f"backfill batch {plan.batch_id} is PLANNED" in message
    assert f"`kafka-ingest abandon {plan.batch_id} --reason …`" in message
    feed.control.abandon(plan.batch_id, reason="not wanted", actor="operator")
    done(feed, ToLatest())
    assert feed.stored_offsets() == {partition(0): 200, partition(1): 150}


def test_an_open_copy_is_not_in_the_way(feed: FeedInMemory) -> None:
    backfill(feed, span(0, 0, 10), kind=BatchKind.COPY)
    done(feed, ToLatest())
    assert feed.stored_offsets() == {partition(0): 200, partition(1): 150}


def test_a_feed_that_was_planned_since_the_reset_was_shown_refuses_it(feed: FeedInMemory) -> None:
    decision = decided(feed, ToEarliest())
    feed.planned()
    with pytest.raises(FeedChangedError):
        reset(decision, feed.control, reason=WHY, actor="operator")
    assert feed.stored_offsets() == {partition(0): 100, partition(1): 50}


def test_the_same_reset_twice_is_refused_the_second_time(feed: FeedInMemory) -> None:
    decision = decided(feed, ToEarliest())
    reset(decision, feed.control, reason=WHY, actor="operator")
    with pytest.raises(FeedChangedError):
        reset(decision, feed.control, reason=WHY, actor="operator")
    assert len(feed.control.journal(decision.feed.feed_id, kinds=["reset"], limit=9)) == 1


# ── Refused ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_feed_that_was_never_planned_is_refused() -> None:
    assert "which is not in the control tables" in refusal(FeedInMemory(), ToEarliest(), UnknownFeedError)


@pytest.mark.parametrize(
    ("target", "named", "said"),
    [
        (ToEarliest(), {"refunds": ()}, "expected topics with stored offsets, which are orders; found refunds"),
        (
            ToEarliest(),
            {"orders": {0, 7, 9}},
            "partitions of topic 'orders' with stored offsets, which are 0, 1; found 7, 9",
        ),
        (ToOffsets({partition(3): 0}), {}, "which are 0, 1; found 3"),
        (at(201, 50), {}, "expected offsets that can be read, found orders-0: expected 5 to 200, found 201"),
        (at(4, 151), {}, "orders-0: expected 5 to 200, found 4, orders-1: expected 0 to 150, found 151"),
    ],
)
def test_what_is_not_there_is_refused_with_what_is(
    feed: FeedInMemory, target: ResetTarget, named: Mapping[str, Collection[int]], said: str
) -> None:
    feed.kafka.topics["orders"] = topic(log(5, 200), log(0, 150))
    assert said in refusal(feed, target, InvalidRangeError, named)


def test_a_feed_that_selects_no_topic_it_has_read_is_refused(feed: FeedInMemory) -> None:
    feed.settings = feed_settings(start_rules={"refunds": Earliest()})
    message = refusal(feed, ToEarliest(), InvalidRangeError)
    assert "which are orders; found that the feed file selects none of them" in message


def test_a_group_that_does_not_know_a_partition_is_refused(feed: FeedInMemory) -> None:
    feed.kafka.groups["other"] = {partition(0): 12}
    message = refusal(feed, ToGroup("other"), InvalidRangeError)
    assert (
        "expected consumer group 'other' to have offsets of all partitions that are reset, found none of orders-1"
        in message
    )
    assert of_partition(feed, ToGroup("other"), named={"orders": {0}}).new_offset == 12


def test_a_batch_that_nobody_knows_or_that_moved_no_stored_offset_is_refused(feed: FeedInMemory) -> None:
    refusal(feed, ToBatch(uuid4()), UnknownBatchError)
    plan = feed.planned()
    feed.control.abandon(plan.batch_id, reason="not wanted", actor="operator")
    assert f"found {plan.batch_id}, which is ABANDONED" in refusal(feed, ToBatch(plan.batch_id), BatchStateError)
    skipped(feed, span(0, 100, 120))
    committed_backfill(feed, span(0, 100, 110))
    newest = feed.control.feed("orders").newest_batch
    assert f"found {newest}, a backfill batch of feed orders" in refusal(feed, ToBatch(newest), WrongUseError)


def test_where_kafka_cannot_answer_the_others_can_be_named(feed: FeedInMemory) -> None:
    feed.kafka.topics["orders"] = topic(NO_LEADER, log(0, 150))
    message = refusal(feed, ToLatest(), KafkaUnavailableError)
    assert "Kafka cannot answer now for orders-0 (LEADER_NOT_AVAILABLE)" in message
    done(feed, ToLatest(), {"orders": {1}})
    assert feed.stored_offsets() == {partition(0): 100, partition(1): 150}


def test_another_cluster_is_refused(feed: FeedInMemory) -> None:
    feed.kafka.id = "cluster-B"
    assert "connection leads to cluster cluster-B" in refusal(feed, ToEarliest(), WrongClusterError)


def test_a_topic_that_was_made_again_or_is_gone_is_refused(feed: FeedInMemory) -> None:
    feed.kafka.topics["orders"] = topic(log(0, 200), log(0, 150), topic_id="topic-id-2")
    assert "expected topic id topic-id-1, found topic-id-2" in refusal(feed, ToEarliest(), TopicRecreatedError)
    feed.kafka.topics.clear()
    assert "does not exist any more" in refusal(feed, ToEarliest(), TopicGoneError)


def test_a_partition_that_is_gone_is_refused_where_brokers_know_no_topic_ids() -> None:
    feed = FeedInMemory(kafka=FakeKafkaCluster({"orders": topic(log(0, 10), log(0, 10), topic_id=None)}))
    feed.committed()
    feed.kafka.topics["orders"] = topic(log(0, 10), topic_id=None)
    message = refusal(feed, ToEarliest(), TopicGoneError)
    assert "partitions orders-1 do not exist any more" in message
    assert "`kafka-ingest topic-changed orders`" in message


@pytest.mark.parametrize("grown_again", [False, True])
def test_a_stored_offset_beyond_the_log_is_not_resets_to_decide(feed: FeedInMemory, *, grown_again: bool) -> None:
    feed.kafka.topics["orders"] = topic(log(0, 80), log(0, 150))
    if grown_again:
        with pytest.raises(StoredOffsetBeyondLogError):
            feed.plan()
        feed.kafka.topics["orders"] = topic(log(0, 300), log(0, 150))
    message = refusal(feed, ToLatest(), StoredOffsetBeyondLogError)
    assert "orders-0: stored offset 100, log end" in message
    assert "`kafka-ingest topic-changed orders`" in message
    done(feed, ToLatest(), {"orders": {1}})
    assert feed.stored_offsets()[partition(1)] == 150


def test_records_that_retention_took_can_be_passed_by_a_reset_to_the_log_start(feed: FeedInMemory) -> None:
    feed.kafka.topics["orders"] = topic(log(130, 200), log(0, 150))
    found: Any = of_partition(feed, ToEarliest(), named={"orders": {0}})
    assert (found.new_offset, found.gaps) == (130, [span(0, 100, 130)])
    done(feed, ToEarliest(), {"orders": {0}})
    assert feed.planned().ranges == (span(0, 130, 200), span(1, 50, 150))
