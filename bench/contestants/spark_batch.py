"""A Spark batch read of Kafka with its defaults: `spark-submit spark_batch.py TASK`, the task is JSON."""

import json
import sys

from pyspark.sql import SparkSession
from pyspark.sql import functions as f

COLUMNS = ("topic", "partition", "offset", "timestamp", "headers", "key", "value")


def main() -> None:
    """Read from the earliest to the latest offset and write it as Parquet."""
    task = json.loads(sys.argv[1])
    spark = SparkSession.builder.appName("spark-batch").getOrCreate()
    source = (
        spark.read.format("kafka")
        .option("kafka.bootstrap.servers", task["bootstrap_servers"])
        .option("subscribe", task["topic"])
        .option("includeHeaders", "true")
        .option("startingOffsets", "earliest")
        .option("endingOffsets", "latest")
        .load()
    )
    source.select(*COLUMNS, f.lit(task["topic_id"]).alias("topic_id")).write.parquet(task["output"])
    spark.stop()


if __name__ == "__main__":
    main()
