"""Flink's table connectors in batch mode: `python flink_batch.py TASK`, in Flink's own environment.

The task is JSON.
"""

import json
import sys
from pathlib import Path
from typing import Any

from pyflink.table import EnvironmentSettings, TableEnvironment
from pyflink.table.expressions import lit

ICEBERG = "iceberg"
RAW_VALUE = "`value` BYTES"
TABLE = "lake.bench.orders"
MILLISECONDS, MICROSECONDS = 3, 6
"""How precise times are: Kafka's, and those of Iceberg's tables."""

ICEBERG_OPTIONS = {
    "format-version": "2",
    "write.parquet.compression-codec": "zstd",
    "write.parquet.compression-level": "1",
}

SOURCE = """
CREATE TABLE source (
  `topic` STRING METADATA VIRTUAL, `partition` INT METADATA VIRTUAL, `offset` BIGINT METADATA VIRTUAL,
  `timestamp` TIMESTAMP_LTZ(3) METADATA VIRTUAL, `headers` MAP<STRING, BYTES> METADATA VIRTUAL,
  `key` BYTES, {value}
) WITH ({options})
"""
SINK = """
CREATE TABLE {sink} (
  `topic` STRING, `partition` INT, `offset` BIGINT, `timestamp` TIMESTAMP_LTZ({precision}),
  `headers` MAP<STRING, BYTES>, `key` BYTES, {value}, `topic_id` STRING
) WITH ({options})
"""


def main() -> None:
    """Read the topic to its end, and write it as Parquet files or into an Iceberg table."""
    task = json.loads(sys.argv[1])
    settings = EnvironmentSettings.new_instance().in_batch_mode().build()
    tables = TableEnvironment.create(settings)
    jars = [jar for folder in task["jars"] for jar in sorted(Path(folder).glob("*.jar"))]
    for name, value in {
        "pipeline.jars": ";".join(jar.as_uri() for jar in jars),
        "parallelism.default": str(task["parallelism"]),
        "execution.runtime-mode": "BATCH",
    }.items():
        tables.get_config().set(name, value)
    value = task["value"]["columns"] if task["value"] else RAW_VALUE
    tables.execute_sql(SOURCE.format(value=value, options=in_sql(source_options(task))))
    if task["format"] == ICEBERG:
        tables.execute_sql(f"CREATE CATALOG lake WITH ({in_sql(catalog_options(task))})")
        tables.execute_sql("CREATE DATABASE lake.bench")
        sink, options, precision = TABLE, ICEBERG_OPTIONS, MICROSECONDS
    else:
        sink, options, precision = "sink", sink_options(task), MILLISECONDS
    tables.execute_sql(SINK.format(sink=sink, value=value, options=in_sql(options), precision=precision))
    records = tables.from_path("source").add_columns(lit(task["topic_id"]).alias("topic_id"))
    records.execute_insert(sink).wait()


def source_options(task: dict[str, Any]) -> dict[str, str]:
    """Return the Kafka connector's options; ends where the task names offsets, otherwise where the log does."""
    ends = ";".join(f"partition:{partition},offset:{offset}" for partition, offset in task["end_offsets"].items())
    bounded = (
        {"scan.bounded.mode": "specific-offsets", "scan.bounded.specific-offsets": ends}
        if ends
        else {"scan.bounded.mode": "latest-offset"}
    )
    return {
        "connector": "kafka",
        "topic": task["topic"],
        "properties.bootstrap.servers": task["bootstrap_servers"],
        "scan.startup.mode": "earliest-offset",
        **bounded,
        "key.format": "raw",
        "key.fields": "key",
        **(task["value"]["options"] if task["value"] else {"value.format": "raw"}),
        "value.fields-include": "EXCEPT_KEY",
        **{f"properties.{name}": value for name, value in task["consumer"].items()},
    }


def catalog_options(task: dict[str, Any]) -> dict[str, str]:
    """Return the options of the catalog that needs no server: the directory itself."""
    return {"type": "iceberg", "catalog-type": "hadoop", "warehouse": Path(task["output"]).as_uri()}


def sink_options(task: dict[str, Any]) -> dict[str, str]:
    """Return the file system connector's options."""
    return {
        "connector": "filesystem",
        "path": Path(task["output"]).as_uri(),
        "format": "parquet",
        "parquet.compression": "ZSTD",
        "parquet.compression.codec.zstd.level": "1",
        **task["parquet"],
    }


def in_sql(options: dict[str, str]) -> str:
    """Return options as SQL text."""
    return ", ".join(f"'{name}' = '{value}'" for name, value in options.items())


if __name__ == "__main__":
    main()
