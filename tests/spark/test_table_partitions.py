"""How Spark writes the records of many or few partitions of a table: in one session, with a small bound on files."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow.parquet
import pytest
from pyspark.sql import SparkSession

from kafka_ingest.foundation.storage import opened
from kafka_ingest.model.offsets import OffsetRange, TopicPartition
from kafka_ingest.model.partition_term import terms_of
from kafka_ingest.writing import table_partitions
from kafka_ingest.writing.rounds import remove_from_disk
from kafka_ingest.writing.table_partitions import stage_partitioned

TASKS = 2
PLANNED_AT = datetime(2026, 6, 1, tzinfo=UTC)
RANGES = [OffsetRange(TopicPartition("orders", 0), 0, 300), OffsetRange(TopicPartition("orders", 1), 300, 600)]
TERMS = terms_of(["kafka_topic", "day(kafka_timestamp)"])
CASES = [
    ("near", 3, "2026-05-25T00:00:00Z"),
    ("far", 3, "1971-05-01T00:00:00Z"),
    ("many", 5, "1971-05-01T00:00:00Z"),
    ("too many", 7, "1971-05-01T00:00:00Z"),
]


def test_a_backlog_of_many_days_is_written_with_one_file_a_day_and_too_many_of_them_not_at_all(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table_partitions, "MOST_FILES", 6)
    monkeypatch.setattr(table_partitions, "processors_of", lambda _: TASKS)
    said = {name: staged(in_utc(spark), tmp_path / name, days, first) for name, days, first in CASES}
    files = {name: [rows_of(path) for path in (tmp_path / name).rglob("*.parquet")] for name, _, _ in CASES[:3]}

    assert {name: said[name] for name in files} == dict.fromkeys(files, 600), "what Spark counted"
    for name, days, _ in CASES[:3]:
        found = [{row["kafka_timestamp"].date() for row in rows} for rows in files[name]]
        assert {len(dates) for dates in found} == {1}
        assert len(set.union(*found)) == days
        assert sorted(row["kafka_offset"] for rows in files[name] for row in rows) == list(range(600))
        for rows in files[name]:
            positions = [(row["kafka_partition"], row["kafka_offset"]) for row in rows]
            assert positions == sorted(positions)
    # Two tasks with records of three days each; of five days each they would be more than six.
    assert {name: len(files[name]) for name in files} == {"near": 6, "far": 6, "many": 5}

    expected = "TOO_MANY_TABLE_PARTITIONS: expected records of at most 6 partitions of the table"
    assert said["too many"].startswith(expected)
    assert said["too many"].endswith("found 7")
    assert not list((tmp_path / "too many").rglob("*"))


def in_utc(spark: SparkSession) -> SparkSession:
    """Return a session for which days are those of UTC, as for a job's."""
    session = spark.newSession()
    session.conf.set("spark.sql.session.timeZone", "UTC")
    return session


def staged(spark: SparkSession, place: Path, days: int, first: str) -> int | str:
    """Stage records of so many days; return how many Spark counted, or why it does not."""
    records = spark.range(0, 600, 1, TASKS).selectExpr(
        "'orders' as kafka_topic",
        "spark_partition_id() as kafka_partition",
        "id as kafka_offset",
        f"timestamp '{first}' + make_interval(0, 0, 0, cast(id % {days} as int)) as kafka_timestamp",
        "id as by_0",
    )
    try:
        return stage_partitioned(lambda: records, RANGES, place, TERMS, PLANNED_AT, opened, remove_from_disk)
    except table_partitions.TooManyFilesError as error:
        return str(error)


def rows_of(path: Path) -> list[dict[str, Any]]:
    """Return a file's rows, which are those of the partition that its folders name."""
    table = pyarrow.parquet.ParquetFile(path).read()
    assert table.column_names == ["kafka_topic", "kafka_partition", "kafka_offset", "kafka_timestamp", "by_0"]
    rows = table.to_pylist()
    folders = {("kafka_topic=orders", f"kafka_date={row['kafka_timestamp'].date()}") for row in rows}
    assert folders == {path.parts[-3:-1]}
    return rows
