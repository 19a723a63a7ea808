"""The planner's decision: how far a batch reads, and whether what there is makes a batch yet."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from tests.fakes import SOME_DAY, FakeTopic, log, partition, span, topic
from tests.unit.planning_inputs import NO_LEADER, ahead, answers, answers_of, decided, stored

from kafka_ingest.errors import EndOutsideLogError
from kafka_ingest.model.offsets import Isolation, OffsetRange, TopicPartition, Unavailable
from kafka_ingest.planning.decide import PlanDecision
from kafka_ingest.planning.settings import OnDataLoss, ToOffsets, ToTimestamp

FEBRUARY = ToTimestamp(datetime(2026, 2, 1, tzinfo=UTC))
HOUR = timedelta(hours=1)
WAITING: dict[str, Any] = {"min_records": 100, "max_wait": HOUR}


def to_february(found: dict[int, int | Unavailable | None], rows: dict[int, int], **settings: Any) -> PlanDecision:
    """Decide for a manual run up to a time, which Kafka finds at these offsets of logs [0, 100) with LSO 80."""
    times: dict[TopicPartition, Any] = {partition(number): offset for number, offset in found.items()}
    logs = topic(*[log(0, 100, lso=80)] * len(found))
    return decided(answers_of({"orders": logs}, end_offsets_at=times), stored(rows), end=FEBRUARY, **settings)


def to_offsets(
    ends: dict[TopicPartition, int], rows: dict[int, int], *, logs: FakeTopic, **settings: Any
) -> PlanDecision:
    """Decide for a manual run up to explicit offsets."""
    return decided(answers(orders=logs), stored(rows), end=ToOffsets(ends), **settings)


# ── A manual run up to a time ─────────────────────────────────────────────────────────────────────────────────────────


def test_a_run_up_to_a_time_ends_before_the_first_record_of_that_time() -> None:
    assert to_february({0: 40}, {0: 10}).ranges == (span(0, 10, 40),)


def test_a_run_up_to_a_time_that_no_record_has_ends_where_the_log_can_be_read_to() -> None:
    assert to_february({0: None}, {0: 10}).ranges == (span(0, 10, 80),)


def test_a_run_up_to_a_time_behind_an_open_transaction_ends_at_the_last_stable_offset() -> None:
    assert to_february({0: 90}, {0: 10}).ranges == (span(0, 10, 80),)
    assert to_february({0: 90}, {0: 10}, isolation=Isolation.READ_UNCOMMITTED).ranges == (span(0, 10, 90),)


def test_a_time_that_was_read_past_already_leaves_nothing_to_read_and_rewinds_nothing() -> None:
    decision = to_february({0: 40, 1: 40}, {0: 60, 1: 40})
    assert (decision.ranges, decision.jumps, decision.capped) == ((), (), False)


def test_an_end_at_offset_0_is_an_end() -> None:
    assert to_february({0: 0}, {0: 0}).ranges == ()


def test_a_partition_whose_end_kafka_cannot_say_is_left_out_and_holds_up_no_other() -> None:
    decision = to_february({0: Unavailable("REQUEST_TIMED_OUT"), 1: 40}, {0: 10, 1: 10})
    assert decision.ranges == (span(1, 10, 40),)
    assert decision.left_out == {partition(0): "REQUEST_TIMED_OUT"}


def test_each_partition_ends_at_its_own_offset_of_that_time() -> None:
    assert to_february({0: 40, 1: None, 2: 12}, {0: 10, 1: 10, 2: 10}).ranges == (
        span(0, 10, 40),
        span(1, 10, 80),
        span(2, 10, 12),
    )


# ── A manual run up to explicit offsets ───────────────────────────────────────────────────────────────────────────────


def test_a_run_up_to_offsets_reads_the_named_partitions_and_no_other() -> None:
    logs = topic(log(0, 100), log(0, 100))
    assert to_offsets({partition(0): 40}, {0: 10, 1: 10}, logs=logs).ranges == (span(0, 10, 40),)


@pytest.mark.parametrize("end", [11, 40, 100])
def test_an_end_may_lie_anywhere_from_the_stored_offset_to_the_log_end(end: int) -> None:
    assert to_offsets({partition(0): end}, {0: 10}, logs=topic(log(0, 100))).ranges == (span(0, 10, end),)


def test_an_end_at_the_stored_offset_reads_nothing() -> None:
    assert to_offsets({partition(0): 10}, {0: 10}, logs=topic(log(0, 100))).ranges == ()


@pytest.mark.parametrize(
    ("end", "logs", "message"),
    [
        (101, topic(log(0, 100)), "orders-0: asked to end at 101, readable up to 100"),
        (81, topic(log(0, 100, lso=80)), "orders-0: asked to end at 81, readable up to 80"),
        (40, topic(NO_LEADER), "orders-0: it takes no part"),
    ],
)
def test_an_end_outside_what_can_be_read_is_refused_with_all_numbers(end: int, logs: FakeTopic, message: str) -> None:
    with pytest.raises(EndOutsideLogError, match=message) as error:
        to_offsets({partition(0): end}, {0: 10}, logs=logs)
    assert error.value.exit_code == 2


def test_an_end_that_is_passed_already_leaves_nothing_to_read() -> None:
    decision = to_offsets({partition(0): 9, partition(1): 20}, {0: 10, 1: 10}, logs=topic(log(0, 100), log(0, 100)))
    assert decision.ranges == (span(1, 10, 20),)


def test_an_end_of_a_partition_or_topic_that_the_feed_does_not_have_is_refused() -> None:
    ends = {partition(7): 40, partition(0, "refunds"): 5}
    with pytest.raises(
        EndOutsideLogError,
        match=r"orders-7: it takes no part: .*, refunds-0: it takes no part",
    ):
        to_offsets(ends, {0: 10}, logs=topic(log(0, 100)))


def test_every_wrong_end_is_named_and_nothing_is_planned() -> None:
    logs = topic(log(0, 100), log(0, 100), log(0, 100))
    with pytest.raises(EndOutsideLogError, match=r"orders-0: .*, orders-2: .*Nothing was planned") as error:
        to_offsets({partition(0): 101, partition(1): 50, partition(2): 500}, {0: 10, 1: 10, 2: 10}, logs=logs)
    assert "orders-1" not in str(error.value)


def test_a_run_up_to_offsets_can_end_in_a_partition_that_this_plan_seeds() -> None:
    decision = decided(answers(orders=topic(log(5, 100))), end=ToOffsets({partition(0): 40}))
    assert decision.ranges == (span(0, 5, 40),)


def test_an_end_below_what_retention_took_reads_nothing_and_continues_from_the_log_start() -> None:
    decision = to_offsets({partition(0): 40}, {0: 10}, logs=topic(log(60, 100)), on_data_loss=OnDataLoss.RECORD_GAP)
    assert (decision.ranges, [jump.to_offset for jump in decision.jumps]) == ((), [60])


# ── What a manual run leaves alone ────────────────────────────────────────────────────────────────────────────────────


def test_a_manual_run_is_never_too_small_to_be_worth_it() -> None:
    decision = to_offsets({partition(0): 12}, {0: 10}, logs=topic(log(0, 100)), **WAITING)
    assert (decision.ranges, decision.waiting_since) == ((span(0, 10, 12),), None)


def test_a_manual_run_skips_nothing_because_it_is_behind() -> None:
    decision = to_offsets({partition(0): 90}, {0: 10}, logs=topic(log(0, 100)), skip_to_latest_when_behind=5)
    assert (decision.ranges, decision.jumps) == ((span(0, 10, 90),), ())


def test_a_manual_run_keeps_to_the_feeds_limits() -> None:
    decision = to_offsets({partition(0): 90}, {0: 10}, logs=topic(log(0, 100)), max_records=30)
    assert (decision.ranges, decision.capped) == ((span(0, 10, 40),), True)


def test_a_manual_run_to_its_end_is_not_capped_though_the_log_continues() -> None:
    assert to_offsets({partition(0): 90}, {0: 10}, logs=topic(log(0, 100))).capped is False


def test_a_manual_run_ends_at_a_gap_that_lies_ahead() -> None:
    decision = decided(
        answers(orders=topic(log(0, 100))),
        stored({0: 10}),
        known={"gaps_ahead": ahead(span(0, 50, 60))},
        end=ToOffsets({partition(0): 90}),
    )
    assert (decision.ranges, decision.capped) == ((span(0, 10, 50),), True)


# ── Small batches wait, but not forever ───────────────────────────────────────────────────────────────────────────────


def waiting(
    *lags: int,
    since: datetime | None = None,
    after: timedelta = timedelta(),
    filed: OffsetRange | None = None,
    **changes: Any,
) -> PlanDecision:
    """Decide some time after SOME_DAY for partitions that lag this much.

    The feed wants 100 records or an hour's wait.
    """
    known = {"waiting_since": since, "gaps_ahead": ahead(filed) if filed is not None else []}
    kafka = answers(orders=topic(*[log(0, 1_000 + lag) for lag in lags]))
    rows = stored(dict.fromkeys(range(len(lags)), 1_000))
    return decided(kafka, rows, known=known, now=SOME_DAY + after, **(WAITING | changes))


def test_fewer_records_than_wanted_wait_and_it_is_said_since_when_and_how_many() -> None:
    decision = waiting(40, 59)
    assert (decision.ranges, decision.capped) == ((), False)
    assert (decision.waiting_since, decision.waiting_records) == (SOME_DAY, 99)


def test_as_many_records_as_wanted_do_not_wait() -> None:
    decision = waiting(40, 60)
    assert decision.ranges == (span(0, 1_000, 1_040), span(1, 1_000, 1_060))
    assert (decision.waiting_since, decision.waiting_records) == (None, 0)


def test_a_wait_keeps_the_moment_it_began() -> None:
    assert waiting(40, since=SOME_DAY, after=HOUR / 2).waiting_since == SOME_DAY


def test_a_small_batch_goes_out_after_the_longest_wait() -> None:
    assert waiting(40, since=SOME_DAY, after=HOUR - timedelta(seconds=1)).ranges == ()
    decision = waiting(40, since=SOME_DAY, after=HOUR)
    assert (decision.ranges, decision.waiting_since) == ((span(0, 1_000, 1_040),), None)


def test_a_single_record_does_not_wait_forever_either() -> None:
    assert waiting(1, since=SOME_DAY, after=HOUR).ranges == (span(0, 1_000, 1_001),)


def test_nothing_new_is_not_a_wait() -> None:
    decision = waiting(0, since=SOME_DAY, after=HOUR / 2)
    assert (decision.ranges, decision.waiting_since, decision.waiting_records) == ((), None, 0)


def test_a_first_plan_whose_records_are_few_waits_and_seeds_all_the_same() -> None:
    decision = decided(answers(orders=topic(log(0, 40))), **WAITING)
    assert (decision.ranges, decision.waiting_since) == ((), SOME_DAY)
    assert [seed.next_offset for seed in decision.seeds] == [0]


def test_gaps_are_passed_over_while_records_wait() -> None:
    decision = waiting(40, filed=span(0, 1_000, 1_005))
    assert (decision.ranges, decision.waiting_records) == ((), 35)
    assert [jump.to_offset for jump in decision.jumps] == [1_005]


def test_records_behind_an_open_transaction_do_not_count_as_waiting() -> None:
    kafka = answers(orders=topic(log(0, 1_000, lso=40)))
    assert decided(kafka, stored({0: 0}), **WAITING).waiting_records == 40


def test_a_batch_that_a_limit_makes_small_does_not_wait_because_waiting_would_not_make_it_larger() -> None:
    decision = waiting(5_000, max_records_per_partition=50)
    assert (decision.ranges, decision.capped) == ((span(0, 1_000, 1_050),), True)
    assert decision.waiting_since is None


def test_a_batch_that_a_gap_ahead_makes_small_does_not_wait_either() -> None:
    decision = waiting(5_000, filed=span(0, 1_020, 1_030))
    assert (decision.ranges, decision.waiting_since) == ((span(0, 1_000, 1_020),), None)
