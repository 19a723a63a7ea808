"""How Spark writes the records of many or few partitions of a table: in one session, with a small bound on files."""

import json
from pathlib import Path
from typing import Any

import pyarrow.parquet
from tests.spark.quick_start import run_script

STAGE = """
import json, sys
from datetime import UTC, datetime
from pathlib import Path

from pyspark.sql import SparkSession

from kafka_ingest.model.offsets import OffsetRange, TopicPartition
from kafka_ingest.model.partition_term import terms_of
from kafka_ingest.foundation.storage import opened
from kafka_ingest.writing import division
from kafka_ingest.writing.rounds import remove_from_disk
from kafka_ingest.writing.table_partitions import stage_partitioned

division.MOST_FILES = 6
spark = SparkSession.builder.getOrCreate()
planned_at = datetime(2026, 6, 1, tzinfo=UTC)
said = {}
for name, days, first in json.loads(sys.argv[2]):
    records = spark.range(0, 600, 1, 2).selectExpr(
        "'orders' as kafka_topic",
        "spark_partition_id() as kafka_partition",
        "id as kafka_offset",
        f"timestamp '{first}' + make_interval(0, 0, 0, cast(id % {days} as int)) as kafka_timestamp",
        "id as by_0",
    )
    ranges = [OffsetRange(TopicPartition("orders", 0), 0, 300), OffsetRange(TopicPartition("orders", 1), 300, 600)]
    terms = terms_of(["kafka_topic", "day(kafka_timestamp)"])
    try:
        place = Path(sys.argv[1]) / name
        said[name] = stage_partitioned(lambda: records, ranges, place, terms, planned_at, opened, remove_from_disk)
    except division.TooManyFilesError as error:
        said[name] = str(error)
print(json.dumps(said))
"""
CASES = [
    ("near", 3, "2026-05-25T00:00:00Z"),
    ("far", 3, "1971-05-01T00:00:00Z"),
    ("many", 5, "1971-05-01T00:00:00Z"),
    ("too many", 7, "1971-05-01T00:00:00Z"),
]


def test_a_backlog_of_many_days_is_written_with_one_file_a_day_and_too_many_of_them_not_at_all(tmp_path: Path) -> None:
    script = tmp_path / "stage.py"
    script.write_text(STAGE)
    utc = {"spark.sql.session.timeZone": "UTC"}
    done = run_script(script, str(tmp_path), json.dumps(CASES), master="local[2]", conf=utc)
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout.splitlines()[-1])
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


def rows_of(path: Path) -> list[dict[str, Any]]:
    """Return a file's rows, which are those of the partition that its folders name."""
    table = pyarrow.parquet.ParquetFile(path).read()
    assert table.column_names == ["kafka_topic", "kafka_partition", "kafka_offset", "kafka_timestamp", "by_0"]
    rows = table.to_pylist()
    folders = {("kafka_topic=orders", f"kafka_date={row['kafka_timestamp'].date()}") for row in rows}
    assert folders == {path.parts[-3:-1]}
    return rows
