"""Stage what was read as plain Parquet files, and read back from their footers what they hold."""

from pathlib import Path
from typing import Any

import pyarrow.parquet
from pyspark.sql import DataFrame, Observation
from pyspark.sql import functions as f

from kafka_ingest.offsets import TopicPartition
from kafka_ingest.receipt import WrittenFile


def stage_files(records: DataFrame, data: Path) -> int:
    """Write the records below ``data``, which must not exist, and return how many Spark counted in the same pass."""
    read = Observation("read")
    records.observe(read, f.count("*").alias("rows")).write.mode("error").parquet(str(data))
    return int(read.get["rows"])


def staged_files(data: Path) -> list[WrittenFile]:
    """Return what lies below ``data``, from the footers; files without rows are removed.

    Each Spark task reads a range of one partition, so a file holds one partition, and its footer's statistics name it.
    """
    written: list[WrittenFile] = []
    for path in sorted(data.iterdir()):
        metadata = pyarrow.parquet.read_metadata(path)
        if not metadata.num_rows:
            path.unlink()
            continue
        topic, same_topic = column_bounds(metadata, "kafka_topic")
        partition, same_partition = column_bounds(metadata, "kafka_partition")
        if (topic, partition) != (same_topic, same_partition):
            raise ValueError(
                f"{path}: expected the records of one partition, found {topic}-{partition} to {same_topic}-{same_partition}"
            )
        smallest_offset, largest_offset = column_bounds(metadata, "kafka_offset")
        written.append(
            WrittenFile(
                name=path.name,
                size_bytes=path.stat().st_size,
                rows=metadata.num_rows,
                topic_partition=TopicPartition(str(topic), int(partition)),
                smallest_offset=int(smallest_offset),
                largest_offset=int(largest_offset),
            )
        )
    return written


def column_bounds(metadata: pyarrow.parquet.FileMetaData, column: str) -> tuple[Any, Any]:
    """Return the smallest and largest value of a column over all row groups, from their statistics."""
    index = next(number for number in range(metadata.num_columns) if metadata.schema.column(number).path == column)
    groups = [metadata.row_group(number).column(index).statistics for number in range(metadata.num_row_groups)]
    filled = [statistics for statistics in groups if statistics is not None and statistics.has_min_max]
    if not filled or len(filled) != len(groups):
        raise ValueError(f"expected statistics of column {column} in every row group, found them in {len(filled)}")
    return min(statistics.min for statistics in filled), max(statistics.max for statistics in filled)  # type: ignore[type-var]
