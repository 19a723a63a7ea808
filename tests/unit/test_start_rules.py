"""Where a partition without a stored offset begins."""

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.fakes import partition

from kafka_ingest.errors import StartOutsideLogError
from kafka_ingest.model.offsets import Isolation, LogBounds, TopicPartition
from kafka_ingest.planning.settings import (
    AtOffset,
    AtOffsets,
    AtTimestamp,
    Earliest,
    FromGroup,
    Latest,
    NewPartition,
    PartitionAnswers,
    PartitionRule,
    Start,
    StartRule,
    rule_of_partition,
)

BOUNDS = LogBounds(log_start_offset=1_200, last_stable_offset=4_000, high_watermark=5_000)
NEW_YEAR = AtTimestamp(datetime(2026, 1, 1, tzinfo=UTC))


def start(rule: StartRule, number: int = 0, isolation: Isolation = Isolation.READ_COMMITTED) -> int:
    """Return where a rule begins in a log of [1,200, 5,000) whose last stable offset is 4,000."""
    answers = PartitionAnswers(BOUNDS, isolation)
    return rule_of_partition(rule, partition(number)).resolve(partition(number), answers).offset


def resolved(rule: PartitionRule, bounds: LogBounds = BOUNDS, **asked: int | None) -> Start:
    """Return where a rule begins in that log, given what Kafka said to what the rule asks for."""
    return rule.resolve(partition(0), PartitionAnswers(bounds, Isolation.READ_COMMITTED, **asked))


# ── Earliest, latest, explicit offsets ────────────────────────────────────────────────────────────────────────────────


def test_earliest_begins_at_the_log_start() -> None:
    assert start(Earliest()) == 1_200


def test_latest_begins_at_the_last_stable_offset_under_read_committed() -> None:
    assert start(Latest()) == 4_000


def test_latest_begins_at_the_high_watermark_under_read_uncommitted() -> None:
    assert start(Latest(), isolation=Isolation.READ_UNCOMMITTED) == 5_000


@pytest.mark.parametrize("offset", [1_200, 1_201, 4_999, 5_000])
def test_an_explicit_offset_inside_the_log_is_taken_as_it_is(offset: int) -> None:
    assert start(AtOffsets({0: offset}, Earliest())) == offset


def test_an_explicit_offset_of_0_is_an_offset_and_not_a_missing_one() -> None:
    bounds = LogBounds(0, 10, 10)
    assert AtOffsets({0: 0}, Latest()).of(partition(0)).resolve(
        partition(0), PartitionAnswers(bounds, Isolation.READ_COMMITTED)
    ) == Start(0, "offset 0")


def test_an_explicit_offset_below_the_log_start_is_refused_with_both_numbers() -> None:
    with pytest.raises(StartOutsideLogError, match=r"orders-0: .*names offset 1,199, but the log starts at 1,200"):
        start(AtOffsets({0: 1_199}, Earliest()))


def test_an_explicit_offset_above_the_log_end_is_refused_with_both_numbers() -> None:
    with pytest.raises(StartOutsideLogError, match=r"orders-0: .*names offset 5,001, but the log ends at 5,000"):
        start(AtOffsets({0: 5_001}, Earliest()))


def test_a_partition_that_is_not_named_begins_at_the_earliest_otherwise() -> None:
    assert start(AtOffsets({0: 3_000}, Earliest()), number=1) == 1_200


def test_a_partition_that_is_not_named_begins_at_the_latest_otherwise() -> None:
    assert start(AtOffsets({0: 3_000}, Latest()), number=1) == 4_000


def test_a_partition_that_a_known_topic_gained_begins_at_0_even_where_the_log_does_not() -> None:
    assert resolved(NewPartition()) == Start(0, "new partition")


# ── A time: as Kafka's ListOffsets defines it ─────────────────────────────────────────────────────────────────────────


def test_a_time_between_two_records_begins_at_the_later_one() -> None:
    assert resolved(NEW_YEAR, offset_at_timestamp=3_000) == Start(3_000, "timestamp 2026-01-01T00:00:00+00:00")


def test_a_time_before_the_log_begins_at_the_log_start() -> None:
    assert resolved(NEW_YEAR, offset_at_timestamp=1_200).offset == 1_200


def test_a_time_after_the_log_begins_at_its_end_and_the_note_says_so() -> None:
    assert resolved(NEW_YEAR, offset_at_timestamp=None) == Start(
        5_000, "timestamp 2026-01-01T00:00:00+00:00: no record is of that time or later, so the log's end"
    )


def test_a_time_in_a_partition_without_records_begins_at_its_end_and_never_below_0() -> None:
    assert resolved(NEW_YEAR, LogBounds(0, 0, 0), offset_at_timestamp=None).offset == 0
    assert resolved(NEW_YEAR, LogBounds(70, 70, 70), offset_at_timestamp=None).offset == 70


def test_an_offset_of_0_that_kafka_found_for_a_time_is_an_offset_and_not_a_missing_one() -> None:
    assert resolved(NEW_YEAR, LogBounds(0, 10, 10), offset_at_timestamp=0).offset == 0


def test_a_time_whose_first_record_arrived_after_the_bounds_were_asked_begins_at_the_end_as_it_was() -> None:
    assert resolved(NEW_YEAR, offset_at_timestamp=5_003).offset == 5_000


def test_a_time_whose_first_record_was_deleted_while_kafka_was_asked_begins_at_the_log_start() -> None:
    assert resolved(NEW_YEAR, offset_at_timestamp=900).offset == 1_200


def test_a_time_inside_an_open_transaction_begins_there_although_it_cannot_be_read_yet() -> None:
    assert resolved(NEW_YEAR, offset_at_timestamp=4_500).offset == 4_500


# ── A consumer group's offsets ────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("offset", [1_200, 3_000, 4_500, 5_000])
def test_a_groups_offset_inside_the_log_is_taken_as_it_is(offset: int) -> None:
    assert resolved(FromGroup("reports", Latest()), group_offset=offset) == Start(offset, "group reports")


def test_a_groups_offset_of_0_is_an_offset_and_not_a_missing_one() -> None:
    assert resolved(FromGroup("reports", Latest()), LogBounds(0, 10, 10), group_offset=0).offset == 0


@pytest.mark.parametrize(
    ("otherwise", "start_there"),
    [
        (Earliest(), Start(1_200, "earliest: group reports has no offset")),
        (Latest(), Start(4_000, "latest: group reports has no offset")),
    ],
)
def test_a_partition_for_which_the_group_has_no_offset_begins_by_the_stated_fallback(
    otherwise: Earliest | Latest, start_there: Start
) -> None:
    assert resolved(FromGroup("reports", otherwise), group_offset=None) == start_there


def test_a_groups_offset_below_the_log_start_is_kept_so_that_it_counts_as_loss() -> None:
    assert resolved(FromGroup("reports", Earliest()), group_offset=1_199).offset == 1_199


def test_a_groups_offset_above_the_log_end_is_refused_with_both_numbers() -> None:
    message = r"orders-0: consumer group 'reports', .*stands at offset 5,001, but the log ends at 5,000"
    with pytest.raises(StartOutsideLogError, match=message) as error:
        resolved(FromGroup("reports", Earliest()), group_offset=5_001)
    assert error.value.exit_code == 2


# ── What is stored of a rule ──────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("rule", "name"),
    [
        (Earliest(), "earliest"),
        (Latest(), "latest"),
        (AtOffsets({0: 1}, Latest()), "offset 1"),
        (AtOffsets({5: 1}, Latest()), "latest"),
    ],
)
def test_the_names_of_the_rules_are_stored_and_so_never_change(rule: StartRule, name: str) -> None:
    answers = PartitionAnswers(LogBounds(0, 9, 9), Isolation.READ_COMMITTED)
    tp = TopicPartition("orders", 0)
    assert rule_of_partition(rule, tp).resolve(tp, answers).note == name


@pytest.mark.parametrize(
    ("rule", "note"),
    [
        (Earliest(), "earliest"),
        (Latest(), "latest"),
        (NewPartition(), "new partition"),
        (NEW_YEAR, "timestamp 2026-01-01T00:00:00+00:00"),
        (FromGroup("reports", Latest()), "group reports otherwise latest"),
        (AtOffset(7), "offset 7"),
    ],
)
def test_a_pending_seed_is_noted_with_its_rule(rule: PartitionRule, note: str) -> None:
    assert str(rule) == note


@given(
    st.sampled_from([Earliest(), Latest(), NEW_YEAR]) | st.just(FromGroup("reports", Earliest())),
    st.sampled_from(Isolation),
    st.tuples(*[st.integers(0, 1_000)] * 3),
    st.none() | st.integers(0, 5_000),
    st.data(),
)
def test_a_start_that_is_not_named_lies_inside_the_log(
    rule: PartitionRule, isolation: Isolation, sizes: tuple[int, int, int], at_time: int | None, data: st.DataObject
) -> None:
    log_start, stable, unstable = sizes
    bounds = LogBounds(log_start, log_start + stable, log_start + stable + unstable)
    of_group = data.draw(st.none() | st.integers(log_start, bounds.high_watermark))
    found = rule.resolve(partition(0), PartitionAnswers(bounds, isolation, at_time, of_group)).offset
    assert log_start <= found <= bounds.high_watermark
