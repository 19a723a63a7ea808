"""Spark Structured Streaming with trigger(availableNow=True): one query for each topic, in one driver.

`spark-submit available_now_of_many.py TASK`, the task is JSON. As many queries at a time as there are processors.
"""

import json
import sys
from concurrent.futures import ThreadPoolExecutor

from pyspark.sql import SparkSession
from pyspark.sql import functions as f

COLUMNS = ("topic", "partition", "offset", "timestamp", "headers", "key", "value")


def main() -> None:
    """Read each topic to its end, and write it as Parquet into a folder of its own."""
    task = json.loads(sys.argv[1])
    spark = SparkSession.builder.appName("available-now-of-many").getOrCreate()

    def land(topic: str) -> None:
        source = (
            spark.readStream.format("kafka")
            .option("kafka.bootstrap.servers", task["bootstrap_servers"])
            .option("subscribe", topic)
            .option("includeHeaders", "true")
            .option("startingOffsets", "earliest")
            .load()
        )
        rows = source.select(*COLUMNS, f.lit(task["topic_id"]).alias("topic_id"))
        writer = rows.writeStream.format("parquet").option("checkpointLocation", f"{task['checkpoint']}/{topic}")
        writer.trigger(availableNow=True).option("path", f"{task['output']}/{topic}").start().awaitTermination()

    with ThreadPoolExecutor(spark.sparkContext.defaultParallelism) as queries:
        list(queries.map(land, task["topics"]))
    spark.stop()


if __name__ == "__main__":
    main()
