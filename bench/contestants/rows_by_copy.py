"""What one writes by hand: pyarrow's rows by psycopg's binary COPY, in one transaction. The task is JSON."""

import json
import sys
import time

import psycopg
import pyarrow.parquet

PIECE = 20_000


def main() -> None:
    """Copy all files into the table, and print how long it took."""
    task = json.loads(sys.argv[1])
    began = time.perf_counter()
    names = [column["name"] for column in task["columns"]]
    statement = f"COPY {task['table']} ({', '.join(names)}) FROM STDIN (FORMAT BINARY)"
    with psycopg.connect(task["uri"]) as connection, connection.cursor() as cursor, cursor.copy(statement) as copy:
        copy.set_types([column["postgresql"] for column in task["columns"]])
        for path in task["files"]:
            with pyarrow.parquet.ParquetFile(path) as file:
                for batch in file.iter_batches(PIECE, columns=names):
                    for row in zip(*(column.to_pylist() for column in batch.columns), strict=True):
                        copy.write_row(row)
    print(json.dumps({"seconds": time.perf_counter() - began}))


if __name__ == "__main__":
    main()
