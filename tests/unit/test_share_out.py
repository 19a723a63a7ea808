"""Which ranges are cut so that all processors have as much to read."""

import math

import pytest

from kafka_ingest.writing.share_out import WORTH_A_TASK, records_per_task

MILLION = 1_000_000


def tasks(spans: list[int], processors: int) -> list[int]:
    """Return how many records each task reads, as Spark cuts ranges (KafkaOffsetRangeCalculator)."""
    at_most = records_per_task(spans, processors)
    if at_most is None:
        return spans
    return [span / pieces for span in spans for pieces in [math.ceil(span / at_most)] for _ in range(pieces)]


def busiest(spans: list[int], processors: int) -> float:
    """Return how many records the processor reads that has the most to do, if each takes the next task when it is free."""
    loads = [0.0] * processors
    for task in tasks(spans, processors):
        loads[loads.index(min(loads))] += task
    return max(loads)


def test_partitions_of_about_one_size_are_a_task_and_a_file_each() -> None:
    assert records_per_task([2_500_000, 2_400_000, 2_600_000, 2_500_000], 2) is None


@pytest.mark.parametrize("processors", [2, 4, 16])
def test_a_hot_partition_keeps_all_processors_busy(processors: int) -> None:
    spans = [9 * MILLION, 333_333, 333_333, 333_334]
    assert busiest(spans, processors) <= 1.25 * sum(spans) / processors
    assert busiest(spans[:1], processors) <= 1.25 * spans[0] / processors


def test_a_single_partition_is_shared_out() -> None:
    assert tasks([10 * MILLION], 2) == [2_500_000] * 4


def test_little_is_not_worth_more_tasks() -> None:
    assert records_per_task([WORTH_A_TASK], 64) is None
    assert records_per_task([1, 2_000], 2) is None


def test_many_partitions_are_not_cut_finer_than_they_are() -> None:
    assert records_per_task([MILLION] * 1_000, 2) is None
