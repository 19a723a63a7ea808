"""Where the demo's output goes: a directory of Parquet files, or a table of another format, and how it is read back."""

import json
from collections.abc import Callable, Mapping
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


@dataclass(frozen=True, slots=True)
class DemoSink:
    """One format: what its feed file says, what else the environment needs, and what reads the first rows back."""

    settings: Mapping[str, str]
    connections: Callable[[Path], dict[str, str]]
    reader: str
    first_rows: Callable[[Path], pa.Table]


def catalog(home: Path) -> Path:
    """Return the SQLite file of the Iceberg catalog."""
    return home / "catalog.db"


def no_connection(_home: Path) -> dict[str, str]:
    """Return no variables."""
    return {}


def connection_to_catalog(home: Path) -> dict[str, str]:
    """Return the connection to the Iceberg catalog."""
    return {"AIRFLOW_CONN_LAKE": json.dumps({"conn_type": "sqlite", "host": str(catalog(home))})}


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


SINKS = {
    "parquet": DemoSink({"format": "parquet"}, no_connection, "pyarrow", rows_of_directory),
    "delta": DemoSink({"format": "delta"}, no_connection, "delta-rs", rows_of_delta),
    "iceberg": DemoSink(
        {"format": "iceberg", "catalog": "lake", "table": TABLE}, connection_to_catalog, "PyIceberg", rows_of_iceberg
    ),
}


def environment_of(sink: DemoSink, home: Path) -> dict[str, str]:
    """Write the repository's feed file with another sink, and return the variables that lead to it."""
    feed: dict[str, Any] = yaml.safe_load(FEED_FILE.read_text())
    feed["sink"] |= sink.settings
    feeds = home / "feeds"
    feeds.mkdir(exist_ok=True)
    (feeds / FEED_FILE.name).write_text(yaml.safe_dump(feed, sort_keys=False))
    return {"KAFKA_INGEST_FEEDS": str(feeds), **sink.connections(home)}
