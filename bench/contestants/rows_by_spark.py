"""Spark's JDBC writer with batches of rewritten INSERTs. The task is JSON; Spark's start is not measured."""

import json
import sys
import time

from pyspark.sql import SparkSession

AT_ONCE = "10000"
"""Rows of one batch; Spark's default of 1,000 is slower."""


def main() -> None:
    """Write all files into the table, and print how long it took."""
    task = json.loads(sys.argv[1])
    builder = SparkSession.builder.master(f"local[{task['parallelism']}]")
    builder = builder.config("spark.jars", task["driver"]).config("spark.sql.session.timeZone", "UTC")
    spark = builder.config("spark.ui.enabled", "false").getOrCreate()
    spark.range(1).count()
    began = time.perf_counter()
    rows = spark.read.parquet(*task["files"]).select(*(column["name"] for column in task["columns"]))
    options = {"batchsize": AT_ONCE, "driver": "org.postgresql.Driver", "reWriteBatchedInserts": "true"}
    rows.write.jdbc(task["jdbc"], task["table"], mode="append", properties=options)
    print(json.dumps({"seconds": time.perf_counter() - began}))
    spark.stop()


if __name__ == "__main__":
    main()
