"""Which ranges are cut, and which share a task and a file; how Spark does either is tested with the job."""

import pytest
from tests.fakes import span

from kafka_ingest.writing.share_out import records_per_task, shared_out, shared_tasks, small_ranges

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


@pytest.mark.parametrize(
    ("at_most", "parts"),
    [
        (None, [(100, 110), (5, 6)]),
        (10, [(100, 110), (5, 6)]),
        (9, [(100, 105), (105, 110), (5, 6)]),
        (4, [(100, 103), (103, 106), (106, 110), (5, 6)]),
        (1, [(offset, offset + 1) for offset in range(100, 110)] + [(5, 6)]),
    ],
)
def test_the_parts_of_a_range_are_equal_and_together_the_range(
    at_most: int | None, parts: list[tuple[int, int]]
) -> None:
    found = shared_out([span(0, 100, 110), span(1, 5, 6)], at_most)

    assert [(part.start_offset, part.end_offset) for part in found] == parts
    assert [part.partition for part in found] == [0] * (len(parts) - 1) + [1]


def test_a_batch_of_few_ranges_is_a_task_and_a_file_each_however_small_they_are() -> None:
    assert small_ranges([span(number, 0, 500) for number in range(32)], alone=True) == []


def test_ranges_of_a_batch_that_shares_a_spark_share_tasks_and_files_as_soon_as_there_are_two() -> None:
    small = [span(number, 0, 500) for number in range(2)]
    assert small_ranges(small, alone=False) == small
    assert small_ranges([small[0], span(1, 0, 10_000)], alone=False) == []


def test_of_many_ranges_the_small_ones_share_files_and_the_others_do_not() -> None:
    small = [span(number, 0, 3) for number in range(100)]
    large = [span(number, 0, 10_000) for number in range(100, 110)]
    assert small_ranges([*small, *large], alone=True) == small


@pytest.mark.parametrize(
    ("ranges", "records", "processors", "tasks"),
    [
        (1_000, 3, 2, 20),  # fifty ranges each
        (33, 3, 2, 2),  # one for each processor
        (33, 3, 16, 16),
        (100, 9_999, 2, 10),  # a hundred thousand records each
        (10_000, 3, 2, 2_000),  # five ranges each: a consumer knows of all partitions of its topic
        (1_000, 3, 16, 167),
    ],
)
def test_small_ranges_are_shared_out_by_number_and_by_records(
    ranges: int, records: int, processors: int, tasks: int
) -> None:
    assert shared_tasks([span(number, 0, records) for number in range(ranges)], processors) == tasks
