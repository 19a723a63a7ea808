"""Where a partition without a stored offset begins."""

import pytest
from tests.fakes import partition

from kafka_ingest.errors import StartOutsideLogError
from kafka_ingest.offsets import Isolation, LogBounds, TopicPartition
from kafka_ingest.planning.start_rules import (
    AtOffsets,
    Earliest,
    Latest,
    NewPartition,
    PartitionAnswers,
    Start,
    StartRule,
    rule_of_partition,
)

BOUNDS = LogBounds(log_start_offset=1_200, last_stable_offset=4_000, high_watermark=5_000)


def start(rule: StartRule | NewPartition, number: int = 0, isolation: Isolation = Isolation.READ_COMMITTED) -> int:
    """Return where a rule begins in a log of [1,200, 5,000) whose last stable offset is 4,000."""
    answers = PartitionAnswers(BOUNDS, isolation)
    return rule_of_partition(rule, partition(number)).resolve(partition(number), answers).offset


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
    assert start(NewPartition()) == 0


@pytest.mark.parametrize(
    ("rule", "name"),
    [
        (Earliest(), "earliest"),
        (Latest(), "latest"),
        (AtOffsets({0: 1}, Latest()), "offset 1"),
        (AtOffsets({5: 1}, Latest()), "latest"),
        (NewPartition(), "new partition"),
    ],
)
def test_the_names_of_the_rules_are_stored_and_so_never_change(rule: StartRule | NewPartition, name: str) -> None:
    answers = PartitionAnswers(LogBounds(0, 9, 9), Isolation.READ_COMMITTED)
    tp = TopicPartition("orders", 0)
    assert rule_of_partition(rule, tp).resolve(tp, answers).note == name
