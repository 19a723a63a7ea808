"""Spark Structured Streaming with trigger(availableNow=True), into Parquet files or a table.

`spark-submit available_now.py TASK`, the task is JSON.
"""

import json
import sys

from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.avro.functions import from_avro

ICEBERG = "iceberg"
AVRO = "avro"
SCHEMA_ID_BYTES = 5
"""A byte 0 and the id."""

TABLE = "lake.orders"
TABLE_COLUMNS = (
    "topic string, partition int, offset bigint, timestamp timestamp, "
    "headers array<struct<key: string, value: binary>>, key binary, value binary, topic_id string"
)
COLUMNS = ("topic", "partition", "offset", "timestamp", "headers", "key", "value")


def main() -> None:
    """Read the topic to its end, and write it in the task's ``format``."""
    task = json.loads(sys.argv[1])
    spark = SparkSession.builder.appName("available-now").getOrCreate()
    source = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", task["bootstrap_servers"])
        .option("subscribe", task["topic"])
        .option("includeHeaders", "true")
        .option("startingOffsets", "earliest")
        .options(**task["consumer"])
        .load()
    )
    columns = COLUMNS
    if task["value"]:
        source = source.withColumn("value", decoded(task["value"]))
        columns = (*COLUMNS[:-1], "value.*")
    rows = source.select(*columns, f.lit(task["topic_id"]).alias("topic_id"))
    writer = (
        rows.writeStream.format(task["format"])
        .option("checkpointLocation", task["checkpoint"])
        .trigger(availableNow=True)
    )
    if task["format"] == ICEBERG:
        spark.sql(f"create table {TABLE} ({TABLE_COLUMNS}) using {ICEBERG}")
        query = writer.toTable(TABLE)
    else:
        query = writer.option("path", task["output"]).start()
    query.awaitTermination()
    spark.stop()


def decoded(value: dict[str, str]) -> Column:
    """Return the value as a struct; that of Avro is behind a schema id, which Spark knows nothing of."""
    if value["format"] == AVRO:
        return from_avro(f.expr(f"substring(value, {SCHEMA_ID_BYTES + 1})"), value["schema"])
    return f.from_json(f.col("value").cast("string"), value["schema"])


if __name__ == "__main__":
    main()
