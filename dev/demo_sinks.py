"""Where the demo's output goes: a directory of Parquet files, or a table of another format, and how it is read back."""

import json
import os
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset
import yaml

from environment import ROOT, output

FEED_FILE = ROOT / "dags" / "feeds" / "orders.yaml"
COLUMNS = ["kafka_partition", "kafka_offset", "kafka_timestamp", "key", "value", "kafka_headers"]
ROWS = 3
TABLE = "shop.orders"
WAREHOUSE = "DEMO_WAREHOUSE"
"""Where this process finds the demo's PostgreSQL."""


@dataclass(frozen=True, slots=True)
class DemoSink:
    """One format: what its feed file says, what else the environment needs, and what reads the first rows back."""

    settings: Mapping[str, str]
    connections: Callable[[Path, ExitStack], dict[str, str]]
    reader: str
    first_rows: Callable[[Path], pa.Table]


def catalog(home: Path) -> Path:
    """Return the SQLite file of the Iceberg catalog."""
    return home / "catalog.db"


def no_connection(_home: Path, _stack: ExitStack) -> dict[str, str]:
    """Return no variables."""
    return {}


def connection_to_catalog(home: Path, _stack: ExitStack) -> dict[str, str]:
    """Return the connection to the Iceberg catalog."""
    return {"AIRFLOW_CONN_LAKE": json.dumps({"conn_type": "sqlite", "host": str(catalog(home))})}


def connection_to_warehouse(_home: Path, stack: ExitStack) -> dict[str, str]:
    """Start a PostgreSQL that ends with the demo, and return the connection to it."""
    from embedded_postgresql import EmbeddedPostgresql  # noqa: PLC0415 - not part of a plain installation

    server = stack.enter_context(EmbeddedPostgresql())
    server.execute("CREATE SCHEMA shop")
    url = server.url("postgres")
    os.environ[WAREHOUSE] = url.set(drivername="postgresql").render_as_string(hide_password=False)
    fields = {"conn_type": "postgres", "host": url.query["host"], "schema": url.database, "login": url.username}
    return {"AIRFLOW_CONN_WAREHOUSE": json.dumps(fields)}


def rows_of_directory(home: Path) -> pa.Table:
    """Return the first rows of a directory of Parquet files."""
    return pyarrow.dataset.dataset(output(home) / "orders", partitioning="hive").head(ROWS, columns=COLUMNS)


def rows_of_delta(home: Path) -> pa.Table:
    """Return the first rows of a Delta table."""
    from deltalake import DeltaTable  # noqa: PLC0415 - not part of a plain installation

    return DeltaTable(str(output(home) / "orders")).to_pyarrow_dataset().head(ROWS, columns=COLUMNS)


def rows_of_iceberg(home: Path) -> pa.Table:
    """Return the first rows of an Iceberg table."""
    from pyiceberg.catalog import load_catalog  # noqa: PLC0415 - not part of a plain installation

    table = load_catalog("lake", type="sql", uri=f"sqlite:///{catalog(home)}").load_table(TABLE)
    return table.scan(selected_fields=tuple(COLUMNS), limit=ROWS).to_arrow()


def rows_of_postgresql(_home: Path) -> pa.Table:
    """Return the first rows of a table in PostgreSQL."""
    import psycopg  # noqa: PLC0415 - as above
    from psycopg import sql  # noqa: PLC0415
    from psycopg.rows import dict_row  # noqa: PLC0415

    query = sql.SQL("SELECT {} FROM {} ORDER BY kafka_partition, kafka_offset LIMIT {}").format(
        sql.SQL(", ").join(map(sql.Identifier, COLUMNS)), sql.Identifier(*TABLE.split(".")), ROWS
    )
    with psycopg.connect(os.environ[WAREHOUSE], row_factory=dict_row) as connection:
        return pa.Table.from_pylist(connection.execute(query).fetchall())


SINKS = {
    "parquet": DemoSink({"format": "parquet"}, no_connection, "pyarrow", rows_of_directory),
    "delta": DemoSink({"format": "delta"}, no_connection, "delta-rs", rows_of_delta),
    "iceberg": DemoSink(
        {"format": "iceberg", "catalog": "lake", "table": TABLE}, connection_to_catalog, "PyIceberg", rows_of_iceberg
    ),
    "postgresql": DemoSink(
        {"format": "postgresql", "conn_id": "warehouse", "table": TABLE},
        connection_to_warehouse,
        "psycopg",
        rows_of_postgresql,
    ),
}


def environment_of(sink: DemoSink, home: Path, stack: ExitStack) -> dict[str, str]:
    """Write the repository's feed file with another sink, and return the variables that lead to it.

    What a sink has to be started for ends with the stack.
    """
    feed: dict[str, Any] = yaml.safe_load(FEED_FILE.read_text())
    feed["sink"] |= sink.settings
    feeds = home / "feeds"
    feeds.mkdir(exist_ok=True)
    (feeds / FEED_FILE.name).write_text(yaml.safe_dump(feed, sort_keys=False))
    return {"KAFKA_INGEST_FEEDS": str(feeds), **sink.connections(home, stack)}
