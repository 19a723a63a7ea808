"""The planner's decision: which rule decided where each partition begins, and what is noted where none could yet."""

from datetime import UTC, datetime
from typing import Any

import pytest
from tests.fakes import FakeTopic, log, partition, span, topic
from tests.unit.planning_inputs import (
    NO_LEADER,
    answers,
    answers_of,
    decided,
    kinds_of,
    rows_after,
    seeds_of,
    starting,
    stored,
)

from kafka_ingest.errors import OffsetsLostError, StartOutsideLogError
from kafka_ingest.model.offsets import TopicPartition, Unavailable
from kafka_ingest.planning.settings import AtOffsets, AtTimestamp, Earliest, FromGroup, Latest, OnDataLoss
from kafka_ingest.planning.topics import KafkaAnswers

AT_NEW_YEAR = AtTimestamp(datetime(2026, 1, 1, tzinfo=UTC))
NEW_YEAR = "timestamp 2026-01-01T00:00:00+00:00"
OVERLOADED = Unavailable("REQUEST_TIMED_OUT")


def at_times(found: dict[int, int | Unavailable | None], **topics: FakeTopic) -> KafkaAnswers:
    """Return a cluster's answers where topic ``orders`` begins at a time, which Kafka finds at these offsets."""
    times: dict[TopicPartition, Any] = {partition(number): offset for number, offset in found.items()}
    return answers_of(topics, start_offsets_at=times)


def of_group(found: dict[int, int | None], **topics: FakeTopic) -> KafkaAnswers:
    """Return a cluster's answers where topic ``orders`` begins at a consumer group's offsets."""
    offsets: dict[TopicPartition, Any] = {partition(number): offset for number, offset in found.items()}
    return answers_of(topics, group_offsets=offsets)


# ── A time ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_time_before_between_and_after_the_records_of_three_partitions() -> None:
    kafka = at_times({0: 10, 1: 25, 2: None}, orders=topic(log(10, 100), log(0, 50), log(0, 30)))
    decision = decided(kafka, **starting(AT_NEW_YEAR))
    assert decision.ranges == (span(0, 10, 100), span(1, 25, 50))
    assert seeds_of(decision) == {
        partition(0): (10, NEW_YEAR),
        partition(1): (25, NEW_YEAR),
        partition(2): (30, f"{NEW_YEAR}: no record is of that time or later, so the log's end"),
    }


def test_a_time_in_a_partition_that_never_held_a_record_begins_at_0() -> None:
    decision = decided(at_times({0: None}, orders=topic(log(0, 0))), **starting(AT_NEW_YEAR))
    assert decision.seeds[0].next_offset == 0


def test_a_partition_whose_time_kafka_cannot_say_is_pending_and_held_and_holds_up_no_other() -> None:
    kafka = at_times({0: OVERLOADED, 1: 25}, orders=topic(log(0, 100), log(0, 50)))
    decision = decided(kafka, **starting(AT_NEW_YEAR))
    assert seeds_of(decision) == {partition(0): (None, NEW_YEAR), partition(1): (25, NEW_YEAR)}
    assert decision.left_out == {partition(0): "REQUEST_TIMED_OUT"}
    assert kinds_of(decision.holds) == [("orders-0", "no_answer", None)]
    assert decision.ranges == (span(1, 25, 50),)


def test_a_pending_time_is_resolved_once_kafka_can_say_it() -> None:
    rows = stored({0: None}, seeded_by=NEW_YEAR)
    decision = decided(at_times({0: 40}, orders=topic(log(0, 100))), rows, **starting(AT_NEW_YEAR))
    assert seeds_of(decision) == {partition(0): (40, NEW_YEAR)}
    assert decision.ranges == (span(0, 40, 100),)


def test_a_pending_time_that_kafka_still_cannot_say_stays_as_it_is() -> None:
    rows = stored({0: None}, seeded_by=NEW_YEAR)
    decision = decided(at_times({0: OVERLOADED}, orders=topic(log(0, 100))), rows, **starting(AT_NEW_YEAR))
    assert (decision.seeds, decision.left_out) == ((), {partition(0): "REQUEST_TIMED_OUT"})


# ── A consumer group ──────────────────────────────────────────────────────────────────────────────────────────────────


def test_each_seed_says_whether_the_group_or_the_fallback_decided() -> None:
    kafka = of_group({0: 40, 1: None}, orders=topic(log(0, 100), log(7, 50)))
    decision = decided(kafka, **starting(FromGroup("reports", Earliest())))
    assert decision.ranges == (span(0, 40, 100), span(1, 7, 50))
    assert seeds_of(decision) == {
        partition(0): (40, "group reports"),
        partition(1): (7, "earliest: group reports has no offset"),
    }


def test_a_group_that_read_everything_leaves_nothing_to_read() -> None:
    decision = decided(of_group({0: 100}, orders=topic(log(0, 100))), **starting(FromGroup("reports", Earliest())))
    assert (decision.ranges, decision.seeds[0].next_offset) == ((), 100)


def test_a_groups_offset_below_the_log_start_is_loss_before_anything_was_read() -> None:
    kafka = of_group({0: 5}, orders=topic(log(20, 100)))
    with pytest.raises(
        OffsetsLostError, match=r"orders-0: begins at 5 \(group reports\), log start 20 \(15 offsets gone\)"
    ) as error:
        decided(kafka, **starting(FromGroup("reports", Earliest())))
    assert "kafka-ingest skip" not in str(error.value)


def test_a_groups_offset_below_the_log_start_is_a_gap_from_the_seed_where_the_feed_says_so() -> None:
    kafka = of_group({0: 5}, orders=topic(log(20, 100)))
    decision = decided(kafka, **starting(FromGroup("reports", Earliest())), on_data_loss=OnDataLoss.RECORD_GAP)
    assert seeds_of(decision) == {partition(0): (5, "group reports")}
    assert [(jump.from_offset, jump.to_offset) for jump in decision.jumps] == [(5, 20)]
    assert decision.ranges == (span(0, 20, 100),)


def test_a_group_that_stands_above_the_log_is_refused() -> None:
    with pytest.raises(StartOutsideLogError, match=r"'reports'.*stands at offset 101, but the log ends at 100"):
        decided(of_group({0: 101}, orders=topic(log(0, 100))), **starting(FromGroup("reports", Latest())))


def test_a_partition_without_a_leader_notes_the_group_and_the_fallback() -> None:
    decision = decided(of_group({0: 40}, orders=topic(NO_LEADER)), **starting(FromGroup("reports", Latest())))
    assert seeds_of(decision) == {partition(0): (None, "group reports otherwise latest")}


def test_a_pending_group_start_takes_the_groups_offset_as_it_is_when_the_leader_is_back() -> None:
    rows = stored({0: None}, seeded_by="group reports otherwise latest")
    rule = starting(FromGroup("reports", Latest()))
    decision = decided(of_group({0: 60}, orders=topic(log(0, 100))), rows, **rule)
    assert seeds_of(decision) == {partition(0): (60, "group reports")}


# ── Several topics, each by its own rule ──────────────────────────────────────────────────────────────────────────────


def test_one_batch_reads_topics_that_begin_by_different_rules() -> None:
    kafka = answers_of(
        dict.fromkeys("abcd", topic(log(0, 50))),
        start_offsets_at={partition(0, "b"): 15},
        group_offsets={partition(0, "c"): 25},
    )
    rules = {
        "a": Earliest(),
        "b": AT_NEW_YEAR,
        "c": FromGroup("reports", Latest()),
        "d": AtOffsets({0: 35}, Latest()),
    }
    decision = decided(kafka, start_rules=rules)
    assert decision.ranges == (span(0, 0, 50, "a"), span(0, 15, 50, "b"), span(0, 25, 50, "c"), span(0, 35, 50, "d"))
    assert [note for _, note in seeds_of(decision).values()] == ["earliest", NEW_YEAR, "group reports", "offset 35"]


def test_a_newly_matched_topic_is_read_from_0_beside_one_that_continues() -> None:
    rows = stored({0: 40}, of="orders-eu")
    decision = decided(
        answers_of({"orders-eu": topic(log(0, 50)), "orders-us": topic(log(0, 30))}),
        rows,
        known={"topic_pattern": "orders-.*"},
        topic_pattern="orders-.*",
        start_rules={},
        pattern_start=Latest(),
    )
    assert decision.ranges == (span(0, 40, 50, "orders-eu"), span(0, 0, 30, "orders-us"))
    assert seeds_of(decision) == {partition(0, "orders-us"): (0, "new partition")}


def test_a_newly_matched_topic_whose_log_starts_above_0_has_lost_records() -> None:
    with pytest.raises(OffsetsLostError, match=r"orders-us-0: begins at 0 \(new partition\), log start 3"):
        decided(
            answers_of({"orders-eu": topic(log(0, 50)), "orders-us": topic(log(3, 30))}),
            stored({0: 40}, of="orders-eu"),
            known={"topic_pattern": "orders-.*"},
            topic_pattern="orders-.*",
            start_rules={},
        )


def test_a_topic_keeps_the_identity_that_its_first_row_was_stored_with() -> None:
    kafka = answers(orders=topic(log(0, 9), log(0, 9), topic_id="topic-id-2"))
    decision = decided(kafka, stored({0: 5}, topic_id=None))
    assert decision.topic_ids == {"orders": None}
    assert [seed.topic_id for seed in decision.seeds] == [None]


# ── Applied once ──────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "rule", [Earliest(), Latest(), AT_NEW_YEAR, FromGroup("reports", Earliest()), AtOffsets({0: 60}, Latest())]
)
def test_a_second_plan_seeds_nothing_whatever_the_rule(rule: Any) -> None:
    asked: dict[str, Any] = {
        "start_offsets_at": {partition(0): 30, partition(1): None},
        "group_offsets": {partition(0): 70},
    }
    kafka = answers_of({"orders": topic(log(0, 100), log(5, 40))}, **asked)
    first = decided(kafka, **starting(rule))
    second = decided(kafka, rows_after({}, first), **starting(rule))
    assert {seed.topic_partition for seed in first.seeds} == {partition(0), partition(1)}
    assert (second.seeds, second.ranges) == ((), ())
