"""The planner's decision: what takes no part for now, since when; and what is passed over instead of read."""

from collections.abc import Collection
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from tests.fakes import SOME_DAY, FakeTopic, log, partition, span, topic
from tests.unit.planning_inputs import NO_LEADER, ahead, answers, answers_of, decided, kinds_of, seeds_of, stored

from kafka_ingest.errors import OffsetsLostError, StoredOffsetBeyondLogError, TopicGoneError
from kafka_ingest.model.gap import GapCause
from kafka_ingest.model.hold import Hold, HoldCause
from kafka_ingest.model.offsets import Isolation, TopicPartition, Unavailable
from kafka_ingest.planning.decide import PlanDecision
from kafka_ingest.planning.settings import Earliest, Latest, OnDataLoss, OnMissingTopic

YESTERDAY = datetime(2026, 1, 1, tzinfo=UTC)
HOLD_LOSSES: dict[str, Any] = {"on_data_loss": OnDataLoss.HOLD}
RECORD_GAP: dict[str, Any] = {"on_data_loss": OnDataLoss.RECORD_GAP}
TWO_TOPICS: dict[str, Any] = {"start_rules": {"orders": Earliest(), "refunds": Latest()}}


def gaps_of(decision: PlanDecision) -> list[tuple[str, str]]:
    """Return what is passed over, and what decided it."""
    return [(str(gap.offset_range), gap.cause.value) for gap in decision.gaps]


def since(decision: PlanDecision) -> list[datetime]:
    """Return since when each hold holds."""
    return [hold.since for hold in decision.holds]


def next_plan(before: PlanDecision, kafka: Any, rows: dict[Any, Any], **settings: Any) -> PlanDecision:
    """Decide an hour later, with the holds that the earlier plan wrote down."""
    known = {"holds": before.holds, "waiting_since": before.waiting_since}
    return decided(kafka, rows, known=known, now=SOME_DAY + timedelta(hours=1), **settings)


# ── Partitions that Kafka cannot answer for ───────────────────────────────────────────────────────────────────────────


def test_a_partition_without_a_leader_is_held_with_its_reason_and_the_moment_it_was_first_seen() -> None:
    decision = decided(answers(orders=topic(NO_LEADER, log(0, 50))), stored({0: 5, 1: 10}))
    reason = "LEADER_NOT_AVAILABLE: no leader"
    assert decision.holds == (Hold("orders", 0, HoldCause.NO_ANSWER, reason, SOME_DAY),)


def test_a_partition_that_still_has_no_leader_is_held_since_the_first_time_whatever_the_reason_now() -> None:
    rows = stored({0: 5, 1: 10})
    first = decided(answers(orders=topic(NO_LEADER, log(0, 50))), rows)
    later = next_plan(first, answers(orders=topic(Unavailable("REPLICA_NOT_AVAILABLE"), log(0, 50))), rows)
    assert [(hold.reason, hold.since) for hold in later.holds] == [("REPLICA_NOT_AVAILABLE", SOME_DAY)]


def test_a_partition_that_answers_again_is_held_no_more_and_another_hold_begins_later() -> None:
    rows = stored({0: 5, 1: 10})
    first = decided(answers(orders=topic(NO_LEADER, log(0, 50))), rows)
    healed = next_plan(first, answers(orders=topic(log(0, 50), log(0, 50))), rows)
    again = next_plan(healed, answers(orders=topic(NO_LEADER, log(0, 50))), rows)
    assert healed.holds == ()
    assert since(again) == [SOME_DAY + timedelta(hours=1)]


def test_how_many_partitions_answered_is_counted() -> None:
    decision = decided(answers(orders=topic(NO_LEADER, log(0, 50), log(0, 0))), stored({0: 5, 1: 10, 2: 0}))
    assert (decision.answered, len(decision.left_out)) == (2, 1)


# ── An open transaction holds the last stable offset back ─────────────────────────────────────────────────────────────


def test_an_open_transaction_is_a_hold_of_its_own_and_neither_a_lag_nor_left_out() -> None:
    decision = decided(answers(orders=topic(log(0, 1_100, lso=1_000))), stored({0: 1_000}))
    assert (decision.ranges, decision.left_out, decision.capped) == ((), {}, False)
    assert kinds_of(decision.holds) == [("orders-0", "open_transaction", 1_000)]
    assert decision.holds[0].reason == "an open transaction begins at offset 1,000: 100 offsets behind it"


def test_what_lies_below_an_open_transaction_is_read_while_it_is_held() -> None:
    decision = decided(answers(orders=topic(log(0, 100, lso=80))), stored({0: 10}))
    assert (decision.ranges, kinds_of(decision.holds)) == (
        (span(0, 10, 80),),
        [("orders-0", "open_transaction", 80)],
    )


def test_a_reader_of_uncommitted_records_is_not_held_by_a_transaction() -> None:
    kafka = answers(orders=topic(log(0, 100, lso=80)))
    assert decided(kafka, stored({0: 10}), isolation=Isolation.READ_UNCOMMITTED).holds == ()


def test_the_same_open_transaction_is_held_since_the_first_time_though_more_waits_behind_it() -> None:
    rows = stored({0: 80})
    first = decided(answers(orders=topic(log(0, 100, lso=80))), rows)
    later = next_plan(first, answers(orders=topic(log(0, 500, lso=80))), rows)
    assert since(later) == [SOME_DAY]
    assert "420 offsets behind it" in later.holds[0].reason


def test_another_open_transaction_is_a_new_hold() -> None:
    first = decided(answers(orders=topic(log(0, 100, lso=80))), stored({0: 80}))
    later = next_plan(first, answers(orders=topic(log(0, 500, lso=90))), stored({0: 90}))
    assert [(hold.at_offset, hold.since) for hold in later.holds] == [(90, SOME_DAY + timedelta(hours=1))]


def test_each_partition_is_held_by_its_own_transaction() -> None:
    decision = decided(answers(orders=topic(log(0, 9, lso=5), log(0, 9), log(0, 9, lso=0))), stored({0: 5, 1: 9, 2: 0}))
    assert kinds_of(decision.holds) == [("orders-0", "open_transaction", 5), ("orders-2", "open_transaction", 0)]


# ── Records that nobody can read ──────────────────────────────────────────────────────────────────────────────────────


def damaged(at_offset: int, number: int = 0) -> Hold:
    """Return what a failed read noted yesterday."""
    return Hold(
        "orders", number, HoldCause.UNREADABLE, f"the record at offset {at_offset} is damaged", YESTERDAY, at_offset
    )


def tried(
    hold: Hold, rows: dict[int, int], *logs: Any, still: Collection[TopicPartition] = (), **known: Any
) -> PlanDecision:
    """Decide after the held offset was tried again."""
    kafka = answers_of({"orders": topic(*logs)}, unreadable=still)
    return decided(kafka, stored(rows), known={"holds": [hold]} | known)


def test_ranges_end_before_an_offset_that_still_cannot_be_read_and_the_other_partitions_continue() -> None:
    decision = tried(damaged(50), {0: 10, 1: 10}, log(0, 100), log(0, 100), still=[partition(0)])
    assert decision.ranges == (span(0, 10, 50), span(1, 10, 100))
    assert decision.holds == (damaged(50),)
    assert decision.left_out == {partition(0): "the record at offset 50 is damaged"}
    assert decision.capped is False


def test_a_partition_that_stands_at_an_unreadable_offset_has_no_range_and_stays_held() -> None:
    decision = tried(damaged(50), {0: 50, 1: 10}, log(0, 100), log(0, 100), still=[partition(0)])
    assert decision.ranges == (span(1, 10, 100),)
    assert decision.holds == (damaged(50),)


def test_an_offset_that_can_be_read_again_holds_nothing_any_more() -> None:
    decision = tried(damaged(50), {0: 50}, log(0, 100))
    assert (decision.ranges, decision.holds) == ((span(0, 50, 100),), ())


def test_an_unreadable_offset_that_was_skipped_is_forgotten() -> None:
    decision = tried(damaged(50), {0: 50}, log(0, 100), still=[partition(0)], gaps_ahead=ahead(span(0, 50, 60)))
    assert (decision.ranges, decision.holds, decision.left_out) == ((span(0, 60, 100),), (), {})


def test_an_unreadable_offset_that_retention_took_is_forgotten() -> None:
    kafka = answers_of({"orders": topic(log(70, 100))}, unreadable=[partition(0)])
    decision = decided(kafka, stored({0: 50}), known={"holds": [damaged(50)]}, **RECORD_GAP)
    assert (decision.ranges, decision.holds) == ((span(0, 70, 100),), ())


def test_an_unreadable_offset_of_a_partition_without_a_leader_stays_held_until_it_can_be_tried_again() -> None:
    decision = tried(damaged(50), {0: 50, 1: 10}, NO_LEADER, log(0, 100), still=[])
    assert kinds_of(decision.holds) == [("orders-0", "no_answer", None), ("orders-0", "unreadable", 50)]


# ── Topics that are not there ─────────────────────────────────────────────────────────────────────────────────────────


def test_under_hold_the_other_topics_make_a_batch_and_the_missing_one_is_visible() -> None:
    rows = stored({0: 5}) | stored({0: 5}, of="refunds")
    decision = decided(answers(orders=topic(log(0, 50))), rows, **TWO_TOPICS, on_missing_topic=OnMissingTopic.HOLD)
    assert decision.ranges == (span(0, 5, 50),)
    assert kinds_of(decision.holds) == [("refunds", "topic_missing", None)]
    assert list(decision.topics) == ["orders", "refunds"]
    assert decision.left_out == {}


def test_a_topic_that_is_still_missing_is_held_since_the_first_time() -> None:
    rows = stored({0: 5}) | stored({0: 5}, of="refunds")
    settings = TWO_TOPICS | {"on_missing_topic": OnMissingTopic.HOLD}
    first = decided(answers(orders=topic(log(0, 50))), rows, **settings)
    later = next_plan(first, answers(orders=topic(log(0, 60))), rows, **settings)
    assert since(later) == [SOME_DAY]


def test_a_held_topic_that_is_back_continues_where_it_stood() -> None:
    rows = stored({0: 5}) | stored({0: 5}, of="refunds")
    both = answers(orders=topic(log(0, 50)), refunds=topic(log(0, 9)))
    held = Hold("refunds", None, HoldCause.TOPIC_MISSING, "gone", YESTERDAY)
    decision = decided(both, rows, known={"holds": [held]}, **TWO_TOPICS, on_missing_topic=OnMissingTopic.HOLD)
    assert (decision.ranges, decision.holds) == ((span(0, 5, 50), span(0, 5, 9, "refunds")), ())


def test_a_topic_that_was_held_before_it_ever_was_is_read_from_0_when_it_is_made() -> None:
    both = answers(orders=topic(log(0, 50)), refunds=topic(log(0, 9)))
    known = {"topics": ["orders", "refunds"]}
    decision = decided(both, stored({0: 50}), known=known, **TWO_TOPICS, on_missing_topic=OnMissingTopic.HOLD)
    assert decision.ranges == (span(0, 0, 9, "refunds"),)


def test_without_hold_a_missing_topic_stops_the_others_too() -> None:
    rows = stored({0: 5}) | stored({0: 5}, of="refunds")
    with pytest.raises(TopicGoneError, match="'refunds'"):
        decided(answers(orders=topic(log(0, 50))), rows, **TWO_TOPICS)


def test_all_kinds_of_holds_stand_beside_each_other() -> None:
    rows = stored({0: 5, 1: 5, 2: 20}) | stored({0: 5}, of="refunds")
    decision = decided(
        answers_of({"orders": topic(NO_LEADER, log(0, 50, lso=30), log(0, 50))}, unreadable=[partition(2)]),
        rows,
        known={"holds": [damaged(20, number=2)]},
        **TWO_TOPICS,
        on_missing_topic=OnMissingTopic.HOLD,
    )
    assert sorted(kinds_of(decision.holds)) == [
        ("orders-0", "no_answer", None),
        ("orders-1", "open_transaction", 30),
        ("orders-2", "unreadable", 20),
        ("refunds", "topic_missing", None),
    ]
    assert decision.ranges == (span(1, 5, 30),)


# ── What retention took: fail, or a gap ───────────────────────────────────────────────────────────────────────────────


def test_under_record_gap_a_lost_interval_is_a_gap_and_reading_continues_from_the_log_start() -> None:
    decision = decided(answers(orders=topic(log(30, 100))), stored({0: 10}), **RECORD_GAP)
    assert gaps_of(decision) == [("orders-0[10, 30)", "retention")]
    assert decision.ranges == (span(0, 30, 100),)


def test_under_record_gap_the_other_partitions_are_not_touched() -> None:
    logs = topic(log(30, 100), log(0, 100), log(40, 40))
    decision = decided(answers(orders=logs), stored({0: 10, 1: 50, 2: 40}), **RECORD_GAP)
    assert [jump.topic_partition for jump in decision.jumps] == [partition(0)]
    assert decision.ranges == (span(0, 30, 100), span(1, 50, 100))


def test_under_record_gap_a_new_partition_that_lost_its_first_records_begins_with_a_gap() -> None:
    decision = decided(answers(orders=topic(log(0, 9), log(4, 9))), stored({0: 9}), **RECORD_GAP)
    assert [(seed.next_offset, seed.seeded_by) for seed in decision.seeds] == [(0, "new partition")]
    assert gaps_of(decision) == [("orders-1[0, 4)", "retention")]
    assert decision.ranges == (span(1, 4, 9),)


def test_a_gap_is_recorded_also_where_nothing_is_left_to_read() -> None:
    decision = decided(answers(orders=topic(log(100, 100))), stored({0: 10}), **RECORD_GAP)
    assert (gaps_of(decision), decision.ranges) == ([("orders-0[10, 100)", "retention")], ())


def test_under_fail_one_lost_partition_stops_the_batch_of_all_of_them() -> None:
    with pytest.raises(OffsetsLostError, match="orders-0"):
        decided(answers(orders=topic(log(30, 100), log(0, 100))), stored({0: 10, 1: 50}))


def test_under_fail_what_is_too_far_behind_is_skipped_all_the_same() -> None:
    decision = decided(answers(orders=topic(log(0, 100))), stored({0: 10}), skip_to_latest_when_behind=50)
    assert gaps_of(decision) == [("orders-0[10, 100)", GapCause.BEHIND.value)]


def test_under_fail_a_lost_interval_that_an_operator_filed_before_is_not_loss() -> None:
    known = {"gaps_ahead": ahead(span(0, 10, 30))}
    decision = decided(answers(orders=topic(log(30, 100))), stored({0: 10}), known=known)
    assert (gaps_of(decision), decision.ranges) == ([("orders-0[10, 30)", "skipped")], (span(0, 30, 100),))


def test_under_hold_a_partition_that_lost_records_is_held_where_they_begin_and_the_others_continue() -> None:
    kafka = answers(orders=topic(log(30, 100), log(0, 100)))
    decision = decided(kafka, stored({0: 10, 1: 60}), **HOLD_LOSSES)
    assert (decision.jumps, decision.ranges) == ((), (span(1, 60, 100),))
    assert kinds_of(decision.holds) == [("orders-0", "offsets_lost", 10)]
    assert decision.left_out == {
        partition(0): "20 offsets from 10 on were deleted unread: the log starts at 30",
    }


def test_a_held_loss_keeps_since_when_also_while_retention_takes_more() -> None:
    known = {"holds": [Hold("orders", 0, HoldCause.OFFSETS_LOST, "20 offsets", YESTERDAY, 10)]}
    kafka = answers(orders=topic(log(50, 100), log(0, 100)))
    (hold,) = decided(kafka, stored({0: 10, 1: 60}), known=known, **HOLD_LOSSES).holds
    assert (hold.since, hold.reason.startswith("40 offsets")) == (YESTERDAY, True)


def test_under_hold_a_partition_continues_by_itself_once_its_loss_was_skipped() -> None:
    known = {"holds": [Hold("orders", 0, HoldCause.OFFSETS_LOST, "20 offsets", YESTERDAY, 10)]}
    decision = decided(answers(orders=topic(log(30, 100))), stored({0: 30}), known=known, **HOLD_LOSSES)
    assert (decision.holds, decision.ranges) == ((), (span(0, 30, 100),))


def test_under_hold_a_new_partition_that_lost_its_beginning_is_seeded_and_held_there() -> None:
    kafka = answers(orders=topic(log(0, 100), log(30, 100)))
    decision = decided(kafka, stored({0: 10}), **HOLD_LOSSES)
    assert seeds_of(decision) == {partition(1): (0, "new partition")}
    assert kinds_of(decision.holds) == [("orders-1", "offsets_lost", 0)]
    assert decision.ranges == (span(0, 10, 100),)


def test_where_every_partition_lost_records_even_hold_stops() -> None:
    with pytest.raises(OffsetsLostError, match="orders-0: stored offset 10, log start 30"):
        decided(answers(orders=topic(log(30, 100))), stored({0: 10}), **HOLD_LOSSES)


def test_under_hold_a_log_that_ended_below_its_stored_offset_holds_its_partition_and_the_others_continue() -> None:
    kafka = answers(orders=topic(log(0, 100), log(0, 100)))
    decision = decided(kafka, stored({0: 120, 1: 60}), **HOLD_LOSSES)
    assert kinds_of(decision.holds) == [("orders-0", "beyond_log", 100)]
    assert decision.ranges == (span(1, 60, 100),)


def test_under_hold_a_log_that_was_seen_to_end_stays_held_also_when_it_has_grown_again() -> None:
    seen = Hold("orders", 0, HoldCause.BEYOND_LOG, "the log ended at 100", YESTERDAY, 100)
    kafka = answers(orders=topic(log(0, 200), log(0, 100)))
    decision = decided(kafka, stored({0: 120, 1: 60}), known={"holds": [seen]}, **HOLD_LOSSES)
    assert (decision.holds, decision.ranges) == ((seen,), (span(1, 60, 100),))


@pytest.mark.parametrize("policy", list(OnDataLoss))
def test_record_gap_does_not_cover_an_offset_above_the_log_end(policy: OnDataLoss) -> None:
    with pytest.raises(StoredOffsetBeyondLogError, match="orders-0: stored offset 120, log end 100"):
        decided(answers(orders=topic(log(0, 100))), stored({0: 120}), on_data_loss=policy)


# ── Skipped because it is behind ──────────────────────────────────────────────────────────────────────────────────────


def test_only_the_partitions_that_are_too_far_behind_jump() -> None:
    kafka = answers(orders=topic(log(0, 100), log(0, 100)))
    decision = decided(kafka, stored({0: 10, 1: 60}), skip_to_latest_when_behind=50)
    assert [jump.topic_partition for jump in decision.jumps] == [partition(0)]
    assert decision.ranges == (span(1, 60, 100),)


def test_a_first_plan_that_is_too_far_behind_jumps_from_its_seed() -> None:
    decision = decided(answers(orders=topic(log(0, 100))), skip_to_latest_when_behind=50)
    assert [seed.next_offset for seed in decision.seeds] == [0]
    assert gaps_of(decision) == [("orders-0[0, 100)", "behind")]


# ── Capped: there is more that could be read at once ──────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("logs", "filed", "capped"),
    [
        (topic(log(0, 100)), [], False),
        (topic(log(0, 100)), [span(0, 50, 60)], True),
        (topic(log(0, 100)), [span(0, 50, 100)], False),
        (topic(log(0, 100)), [span(0, 10, 60)], False),
        (topic(log(0, 100, lso=60)), [span(0, 50, 60)], False),
    ],
)
def test_a_gap_that_lies_ahead_caps_a_batch_where_there_is_more_behind_it(
    logs: FakeTopic, filed: list[Any], *, capped: bool
) -> None:
    decision = decided(answers(orders=logs), stored({0: 10}), known={"gaps_ahead": ahead(*filed)})
    assert decision.capped is capped


def test_gaps_ahead_of_other_partitions_and_topics_are_not_mixed_up() -> None:
    kafka = answers(orders=topic(log(0, 100), log(0, 100)), refunds=topic(log(0, 100)))
    rows = stored({0: 10, 1: 10}) | stored({0: 10}, of="refunds")
    known = {"gaps_ahead": ahead(span(1, 50, 60), span(0, 20, 30, "refunds"))}
    decision = decided(kafka, rows, known=known, **TWO_TOPICS)
    assert decision.ranges == (span(0, 10, 100), span(1, 10, 50), span(0, 10, 20, "refunds"))
