"""Read exactly the plan's offset ranges from Kafka."""

import json
from collections.abc import Mapping

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from kafka_ingest.batch import BatchPlan
from kafka_ingest.writing.share_out import records_per_task

# Measured defaults for a bounded read (docs/decisions.md); the connection's own settings win.
READ_DEFAULTS = {
    "max.poll.records": "10000",
    "max.partition.fetch.bytes": str(16 * 1024 * 1024),
    "receive.buffer.bytes": "-1",
    # At the end of a log the client's next fetch waits for new records, and Spark's question for the log's bounds behind it:
    # half a second for each range by default. A bounded read wants none that come later, so none is enough. Less patience
    # (fetch.max.wait.ms) would do the same, but before KIP-1018 it is also how long a broker reads from tiered storage.
    "fetch.min.bytes": "0",
}


def read_ranges(spark: SparkSession, plan: BatchPlan, kafka: Mapping[str, str]) -> DataFrame:
    """Return the records of the plan's ranges, in the raw format's columns.

    ``kafka`` holds the Java client's settings. Partitions are assigned with explicit numbers at both ends: a subscription
    would fail on a partition added since the plan, and -1 or -2 would be resolved late and recorded nowhere.
    """
    client = {**READ_DEFAULTS, **kafka, "isolation.level": plan.isolation.value}
    at_most = records_per_task(
        [offset_range.span for offset_range in plan.ranges], spark.sparkContext.defaultParallelism
    )
    return (
        spark.read.format("kafka")
        .options(**({"maxRecordsPerPartition": at_most} if at_most is not None else {}))
        .options(**{f"kafka.{key}": value for key, value in client.items()})
        .option("assign", by_topic(plan, None))
        .option("startingOffsets", by_topic(plan, "start_offset"))
        .option("endingOffsets", by_topic(plan, "end_offset"))
        # With false, an end past the last stable offset silently drops the rest of the range.
        .option("failOnDataLoss", "true")
        .option("includeHeaders", "true")
        .load()
        .select(
            f.col("topic").alias("kafka_topic"),
            f.col("partition").alias("kafka_partition"),
            f.col("offset").alias("kafka_offset"),
            f.col("timestamp").alias("kafka_timestamp"),
            f.col("key"),
            f.col("value"),
            f.col("headers").alias("kafka_headers"),
        )
    )


def by_topic(plan: BatchPlan, bound: str | None) -> str:
    """Return the plan's partitions, or one bound of their ranges, as the Kafka source's JSON."""
    partitions: dict[str, list[int]] = {}
    bounds: dict[str, dict[str, int]] = {}
    for offset_range in plan.ranges:
        partitions.setdefault(offset_range.topic, []).append(offset_range.partition)
        if bound is not None:
            bounds.setdefault(offset_range.topic, {})[str(offset_range.partition)] = getattr(offset_range, bound)
    return json.dumps(partitions if bound is None else bounds)
