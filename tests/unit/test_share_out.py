"""Which ranges are cut so that all processors have as much to read; how Spark cuts them is tested with the job."""

import pytest

from kafka_ingest.writing.share_out import records_per_task

MILLION = 1_000_000


def test_partitions_of_about_one_size_are_a_task_and_a_file_each() -> None:
    assert records_per_task([2_500_000, 2_400_000, 2_600_000, 2_500_000], 2) is None


@pytest.mark.parametrize("spans", [[9 * MILLION, 333_333, 333_333, 333_334], [10 * MILLION]])
@pytest.mark.parametrize(("processors", "at_most"), [(2, 2_500_000), (4, 1_250_000), (16, 312_500)])
def test_a_task_of_a_hot_partition_is_half_of_what_a_processor_has_to_read(
    spans: list[int], processors: int, at_most: int
) -> None:
    assert records_per_task(spans, processors) == at_most


def test_half_as_much_again_as_its_share_a_range_may_have_before_it_is_cut() -> None:
    assert records_per_task([1_500_000, 1_500_000, 500_000, 500_000], 2) is None
    assert records_per_task([1_500_001, 1_499_999, 500_000, 500_000], 2) == MILLION


def test_little_is_not_worth_more_tasks() -> None:
    assert records_per_task([150_000], 64) is None
    assert records_per_task([150_001], 64) == 100_000
    assert records_per_task([1, 2_000], 2) is None


def test_many_partitions_are_not_cut_finer_than_they_are() -> None:
    assert records_per_task([MILLION] * 1_000, 2) is None
