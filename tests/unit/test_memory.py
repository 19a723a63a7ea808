"""How much one task reads at a time: less where many share a heap, and in parts where a range has few records."""

import pytest

from kafka_ingest.model.spark_settings import MIB, heap_bytes
from kafka_ingest.writing.share_out import memory_per_task, most_rows_kept, read_sizes, shared_read_sizes

MILLION = 1_000_000


@pytest.mark.parametrize(
    ("text", "mebibytes"),
    [("1g", 1024), ("2560m", 2560), ("640M", 640), ("512", 512), ("2048kb", 2), (" 2g ", 2048), ("1GiB", 1024)],
)
def test_a_heap_is_as_large_as_spark_takes_it_to_be(text: str, mebibytes: int) -> None:
    assert heap_bytes(text) == mebibytes * MIB


def test_what_is_no_size_counts_as_the_default() -> None:
    assert heap_bytes("lots") == 1024 * MIB


def test_with_a_local_master_all_tasks_share_the_drivers_heap() -> None:
    assert memory_per_task({}, 8, is_local=True) == 128 * MIB
    assert memory_per_task({"spark.driver.memory": "4g", "spark.executor.memory": "1g"}, 2, is_local=True) == 2048 * MIB


def test_on_a_cluster_it_is_an_executors_memory_among_its_cores() -> None:
    conf = {"spark.driver.memory": "4g", "spark.executor.memory": "8g", "spark.executor.cores": "4"}
    assert memory_per_task(conf, 64, is_local=False) == 2048 * MIB
    assert memory_per_task({}, 64, is_local=False) == 64 * MIB


def sizes(processors: int, largest_range: int, heap: str = "1g") -> tuple[int, int]:
    found = read_sizes(memory_per_task({"spark.driver.memory": heap}, processors, is_local=True), largest_range)
    return int(found["max.poll.records"]), int(found["max.partition.fetch.bytes"])


def test_many_records_on_two_processors_are_read_as_much_at_a_time_as_is_fastest() -> None:
    assert sizes(2, 2_500_000) == (10_000, 16 * MIB)


@pytest.mark.parametrize(
    ("processors", "fetched"), [(2, 16 * MIB), (4, 8 * MIB), (8, 4 * MIB), (16, 2 * MIB), (64, MIB)]
)
def test_the_more_tasks_share_a_heap_the_less_each_fetches_and_never_less_than_kafkas_default(
    processors: int, fetched: int
) -> None:
    assert sizes(processors, MILLION)[1] == fetched


@pytest.mark.parametrize("processors", [1, 2, 4, 8, 16])
def test_a_hundred_records_of_a_megabyte_that_compress_to_nothing_never_take_more_than_a_quarter_of_the_heap(
    processors: int,
) -> None:
    polled, _ = sizes(processors, 100)
    assert polled * processors <= 1024 // 4


def test_a_range_of_few_records_is_polled_in_eight_parts() -> None:
    assert sizes(2, 8_000)[0] == 1_000
    assert sizes(2, 80_000)[0] == 10_000


def test_a_larger_heap_polls_small_ranges_at_once() -> None:
    assert sizes(2, 500, heap="8g")[0] == 1_024


def test_a_task_polls_one_record_at_least() -> None:
    assert sizes(4_096, 1)[0] == 1


@pytest.mark.parametrize("heap", [256 * MIB, 512 * MIB, 1024 * MIB, 8192 * MIB])
@pytest.mark.parametrize("partitions", [33, 600, 1_000])
def test_what_the_drivers_consumer_fetches_of_all_partitions_stays_below_an_eighth_of_the_heap(
    heap: int, partitions: int
) -> None:
    found = shared_read_sizes(heap, partitions, 3)
    assert int(found["max.partition.fetch.bytes"]) * partitions <= heap // 8


@pytest.mark.parametrize("heap", [256 * MIB, 1024 * MIB])
def test_one_poll_of_the_drivers_consumer_fits_where_every_record_has_a_megabyte(heap: int) -> None:
    assert int(shared_read_sizes(heap, 600, 100_000)["max.poll.records"]) * MIB <= heap // 8


def test_the_drivers_consumer_fetches_something_of_each_of_very_many_partitions() -> None:
    assert shared_read_sizes(256 * MIB, 100_000, 1)["max.partition.fetch.bytes"] == str(16 * 1024)


def test_the_driver_keeps_less_of_a_small_heap_and_of_a_small_message() -> None:
    assert most_rows_kept(1024 * MIB, 128 * MIB) == 32 * MIB
    assert most_rows_kept(256 * MIB, 128 * MIB) == 16 * MIB
    assert most_rows_kept(1024 * MIB, 16 * MIB) == 4 * MIB
