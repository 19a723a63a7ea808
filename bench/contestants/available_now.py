"""Spark Structured Streaming with trigger(availableNow=True).

`spark-submit available_now.py TASK`, the task is JSON.
"""

import json
import sys

from pyspark.sql import SparkSession
from pyspark.sql import functions as f

COLUMNS = ("topic", "partition", "offset", "timestamp", "headers", "key", "value")


def main() -> None:
    """Read the topic to its end, and write it as Parquet."""
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
    query = (
        source.select(*COLUMNS, f.lit(task["topic_id"]).alias("topic_id"))
        .writeStream.format("parquet")
        .option("path", task["output"])
        .option("checkpointLocation", task["checkpoint"])
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main()
