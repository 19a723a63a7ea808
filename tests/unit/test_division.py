"""How many files a batch for a partitioned table may have, and when its records are brought together first."""

from datetime import UTC, datetime

import pytest

from kafka_ingest.model.offsets import OffsetRange, TopicPartition
from kafka_ingest.model.partition_term import MOST_FILES, LateRows, terms_of
from kafka_ingest.writing.table_partitions import Division, TooManyFilesError, chosen, own_name, uncounted

DAY = terms_of(["kafka_topic", "day(kafka_timestamp)"])


def ranges_of(partitions: int, *, topics: int = 1, records: int = 100) -> list[OffsetRange]:
    return [
        OffsetRange(TopicPartition(f"orders-{topic}", partition), 0, records)
        for topic in range(topics)
        for partition in range(partitions)
    ]


def test_a_batch_of_few_partitions_takes_years_of_hours_as_they_come() -> None:
    by_hour = terms_of(["hour(kafka_timestamp)"])
    assert uncounted(ranges_of(1), by_hour, 2) == Division(together=False, times=9_999)
    assert uncounted(ranges_of(10), by_hour, 2) == Division(together=False, times=999)


def test_late_rows_double_the_files_and_their_folder_is_above_all_others_whatever_names_these_take() -> None:
    five, hours = datetime(2026, 1, 31, 5, tzinfo=UTC), terms_of(["hour(kafka_timestamp)"])
    late = LateRows(first=five, before=five)
    assert uncounted(ranges_of(1), (late, *hours), 2) == Division(together=False, times=4_999)
    assert uncounted(ranges_of(5_001), (late,), 2) == Division(together=True)
    assert own_name("kafka_by_0=true/part-1.parquet", 3, (late,)) == "kafka_late=true/part-1.parquet"
    assert own_name("kafka_by_0=false/part-1.parquet", 3, (late,)) == "part-1.parquet"
    both, folders = (late, *DAY[:1]), "kafka_by_0=true/kafka_by_1"
    assert own_name(f"{folders}=x/part-1.parquet", 3, both) == "kafka_late=true/kafka_topic=x/part-1.parquet"
    assert own_name(f"{folders}={'x' * 249}/part-1.parquet", 3, both) == "kafka_late=true/00003-part-1.parquet"


def test_a_large_range_that_several_tasks_read_counts_as_often_as_they_are() -> None:
    assert uncounted(ranges_of(1, records=4_000_000), DAY, 2) == Division(together=False, times=MOST_FILES // 4 - 1)


def test_records_of_many_kafka_partitions_are_brought_together_where_even_their_newest_days_would_be_too_many() -> None:
    assert uncounted(ranges_of(1_428), DAY, 2) == Division(together=False, times=6)
    assert uncounted(ranges_of(1_429), DAY, 2) == Division(together=True, times=9_999)
    assert uncounted(ranges_of(100, topics=100), DAY, 2) == Division(together=True, times=99)


def test_where_nothing_bounds_the_files_they_are_counted() -> None:
    assert uncounted(ranges_of(1, topics=3_000), DAY, 2) is None
    assert uncounted(ranges_of(3_000), terms_of(["kafka_partition", "hour(kafka_timestamp)"]), 2) is None


@pytest.mark.parametrize(
    ("terms", "partitions"),
    [(["kafka_topic"], 1), (["kafka_batch"], 1), (["kafka_partition", "kafka_topic_id"], 10_000)],
)
def test_without_times_a_file_for_each_kafka_partition_is_the_most(terms: list[str], partitions: int) -> None:
    assert uncounted(ranges_of(partitions), terms_of(terms), 2) == Division(together=False)


def test_without_times_too_many_kafka_partitions_are_brought_together_or_refused() -> None:
    ranges = ranges_of(10_001)
    assert uncounted(ranges, terms_of(["kafka_topic"]), 2) == Division(together=True)
    with pytest.raises(TooManyFilesError, match="10,001"):
        uncounted(ranges, terms_of(["kafka_partition"]), 2)


def test_counted_files_are_written_as_they_come_or_one_for_each_partition_or_refused_by_name() -> None:
    assert chosen(10_000, 100) == Division(together=False)
    assert chosen(10_001, 10_000) == Division(together=True)
    with pytest.raises(
        TooManyFilesError,
        match=r"TOO_MANY_TABLE_PARTITIONS: expected records of at most 10,000 partitions .* found 10,001",
    ):
        chosen(10_001, 10_001)


# ── Names ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_file_lies_in_folders_that_are_called_after_the_tables_columns_unless_one_would_be_too_long() -> None:
    of_day = "kafka_date=2026-01-02/part-00000.parquet"
    assert own_name("by_0=orders/by_1=2026-01-02/part-00000.parquet", 3, DAY) == f"kafka_topic=orders/{of_day}"
    longest, longer = "x" * 243, "x" * 244
    assert own_name(f"by_0={longest}/by_1=2026-01-02/part-00000.parquet", 3, DAY) == f"kafka_topic={longest}/{of_day}"
    assert own_name(f"by_0={longer}/by_1=2026-01-02/part-00000.parquet", 3, DAY) == "00003-part-00000.parquet"
