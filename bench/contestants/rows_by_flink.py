"""Flink's JDBC connector with batches of rewritten INSERTs, in Flink's own environment. The task is JSON.

The start of Python and Java is not measured, that of the job is.
"""

import json
import sys
import time
from pathlib import Path

from pyflink.table import EnvironmentSettings, TableEnvironment

AT_ONCE = "10000"
"""Rows of one batch; Flink's default of 100 is slower."""


def main() -> None:
    """Write all files into the table, and print how long it took."""
    task = json.loads(sys.argv[1])
    tables = TableEnvironment.create(EnvironmentSettings.new_instance().in_batch_mode().build())
    jars = [jar for folder in task["jars"] for jar in sorted(Path(folder).glob("*.jar"))]
    for name, value in {
        "pipeline.jars": ";".join(jar.as_uri() for jar in jars),
        "parallelism.default": str(task["parallelism"]),
        "table.local-time-zone": "UTC",
    }.items():
        tables.get_config().set(name, value)
    columns = ", ".join(f"`{column['name']}` {column['flink']}" for column in task["columns"])
    folder = Path(task["files"][0]).parent.as_uri()
    source = f"'connector' = 'filesystem', 'path' = '{folder}', 'format' = 'parquet', 'parquet.utc-timezone' = 'true'"
    tables.execute_sql(f"CREATE TABLE source ({columns}) WITH ({source})")
    sink = {"connector": "jdbc", "url": task["jdbc"] + "&reWriteBatchedInserts=true", "table-name": task["table"]}
    sink |= {"username": task["user"], "password": "none", "driver": "org.postgresql.Driver"}
    sink |= {"sink.buffer-flush.max-rows": AT_ONCE, "sink.buffer-flush.interval": "10s"}
    options = ", ".join(f"'{name}' = '{value}'" for name, value in sink.items())
    tables.execute_sql(f"CREATE TABLE sink ({columns}) WITH ({options})")
    began = time.perf_counter()
    tables.from_path("source").execute_insert("sink").wait()
    print(json.dumps({"seconds": time.perf_counter() - began}))


if __name__ == "__main__":
    main()
