"""Stage what was read as plain Parquet files, and read back from their footers what they hold."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import pyarrow.parquet
from pyspark.sql import DataFrame, Observation
from pyspark.sql import functions as f

from kafka_ingest.foundation.storage import Opened, files_below, open_to_read, remove_file, size_of
from kafka_ingest.model.offsets import TopicPartition
from kafka_ingest.model.place import Place, spark_path
from kafka_ingest.model.receipt import WrittenFile, WrittenPartition
from kafka_ingest.model.written_columns import POSITION
from kafka_ingest.writing.share_out import TASKS_PER_PROCESSOR


def stage_files(
    records: DataFrame, data: Place, divided_by: Mapping[str, str] = MappingProxyType({}), *, together: bool = False
) -> int:
    """Write the records below ``data``, which must not exist, and return how many Spark counted in the same pass.

    ``divided_by``: expressions by name; each task writes a file for each combination of their values, one at a time.
    ``together``: all records of a combination go to one task first, so there is one file of each.
    """
    read = Observation()
    observed = records.observe(read, f.count("*").alias("rows"))
    if not divided_by:
        observed.write.mode("error").parquet(spark_path(data))
    else:
        named = observed.selectExpr("*", *(f"{value} as {name}" for name, value in divided_by.items()))
        if together:
            named = named.repartition(TASKS_PER_PROCESSOR * processors_of(records), *divided_by)
        in_order = named.sortWithinPartitions(*divided_by, *POSITION)
        in_order.write.mode("error").partitionBy(*divided_by).parquet(spark_path(data))
    return int(read.get["rows"])


def processors_of(records: DataFrame) -> int:
    return records.sparkSession.sparkContext.defaultParallelism


def staged_files(data: Opened) -> list[WrittenFile]:
    """Return what is below ``data``; files without rows are removed.

    Most Spark tasks read a range of one partition: such a file's footer says all. One that read several small ranges
    has their positions counted row by row.
    """
    written: list[WrittenFile] = []
    for name in files_below(data):
        path = data / name
        with open_to_read(path) as file:
            metadata = pyarrow.parquet.read_metadata(file)
        if not metadata.num_rows:
            remove_file(path)
            continue
        topic, last_topic = column_bounds(metadata, "kafka_topic")
        partition, last_partition = column_bounds(metadata, "kafka_partition")
        if (topic, partition) == (last_topic, last_partition):
            bounds = map(int, column_bounds(metadata, "kafka_offset"))
            held = [WrittenPartition(TopicPartition(str(topic), int(partition)), metadata.num_rows, *bounds)]
        else:
            held = counted_partitions(path)
        without_date = null_count(metadata, "kafka_timestamp")
        written.append(WrittenFile(name, size_of(path), tuple(held), without_date))
    return written


def counted_partitions(path: Opened) -> list[WrittenPartition]:
    """Return what a file holds of each partition, sorted, from the positions of all its rows."""
    with open_to_read(path) as file:
        offsets = pyarrow.parquet.read_table(file, columns=list(POSITION))
    counted = offsets.group_by(["kafka_topic", "kafka_partition"]).aggregate(
        [("kafka_offset", "count"), ("kafka_offset", "min"), ("kafka_offset", "max")]
    )
    held = [
        WrittenPartition(
            TopicPartition(row["kafka_topic"], row["kafka_partition"]),
            row["kafka_offset_count"],
            row["kafka_offset_min"],
            row["kafka_offset_max"],
        )
        for row in counted.to_pylist()
    ]
    return sorted(held, key=lambda each: each.topic_partition)


def column_bounds(metadata: pyarrow.parquet.FileMetaData, column: str) -> tuple[Any, Any]:
    """Return the smallest and largest value of a column over all row groups, from their statistics."""
    groups = statistics_of(metadata, column)
    filled = [statistics for statistics in groups if statistics is not None and statistics.has_min_max]
    if not filled or len(filled) != len(groups):
        raise ValueError(f"expected statistics of column {column} in every row group, found them in {len(filled)}")
    return min(statistics.min for statistics in filled), max(statistics.max for statistics in filled)  # type: ignore[type-var]


def null_count(metadata: pyarrow.parquet.FileMetaData, column: str) -> int:
    """Return how many rows have no value in a column, from the statistics of all row groups."""
    groups = statistics_of(metadata, column)
    counted = [count for statistics in groups if statistics and (count := statistics.null_count) is not None]
    if len(counted) != len(groups):
        raise ValueError(
            f"expected every row group to count the nulls of column {column}, found {len(counted)} that do"
        )
    return sum(counted)


def statistics_of(metadata: pyarrow.parquet.FileMetaData, column: str) -> list[pyarrow.parquet.Statistics | None]:
    index = next(number for number in range(metadata.num_columns) if metadata.schema.column(number).path == column)
    return [metadata.row_group(number).column(index).statistics for number in range(metadata.num_row_groups)]
