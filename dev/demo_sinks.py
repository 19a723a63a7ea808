"""Where the demo's output goes: a directory of Parquet files, a table, or a topic, and how it is read back."""

import json
import os
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset
import yaml
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from environment import ROOT, output
from order_events import PARTITIONS, create_topic

FEED_FILE = ROOT / "dags" / "feeds" / "orders.yaml"
COLUMNS = ["kafka_partition", "kafka_offset", "kafka_timestamp", "key", "value", "kafka_headers"]
ROWS = 3
TABLE = "shop.orders"
WAREHOUSE = "DEMO_WAREHOUSE"
"""Where this process finds the demo's PostgreSQL."""
TOPIC = "orders_clean"
SERVERS = "DEMO_KAFKA_SERVERS"
"""Where this process finds the demo's Kafka."""


@dataclass(frozen=True, slots=True)
class DemoSink:
    """One format: what its feed file says, what else the environment needs, and what reads it back.

    ``read_back`` returns how many rows readers see, and the first ones.
    """

    settings: Mapping[str, str]
    connections: Callable[[Path, ExitStack], dict[str, str]]
    reader: str
    read_back: Callable[[Path], tuple[int, pa.Table]]


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


def connection_to_topic(_home: Path, _stack: ExitStack) -> dict[str, str]:
    """Make the output topic in the demo's own Kafka, whose connection the feed has, too."""
    create_topic(os.environ[SERVERS], TOPIC, PARTITIONS)
    return {}


def rows_of_directory(home: Path) -> tuple[int, pa.Table]:
    """Read a directory of Parquet files back."""
    return rows_of_dataset(pyarrow.dataset.dataset(output(home) / "orders", partitioning="hive"))


def rows_of_delta(home: Path) -> tuple[int, pa.Table]:
    """Read a Delta table back."""
    from deltalake import DeltaTable  # noqa: PLC0415 - not part of a plain installation

    return rows_of_dataset(DeltaTable(str(output(home) / "orders")).to_pyarrow_dataset())


def rows_of_dataset(found: pyarrow.dataset.Dataset) -> tuple[int, pa.Table]:
    """Read what pyarrow finds back."""
    return found.count_rows(), found.head(ROWS, columns=COLUMNS)


def rows_of_iceberg(home: Path) -> tuple[int, pa.Table]:
    """Read an Iceberg table back."""
    from pyiceberg.catalog import load_catalog  # noqa: PLC0415 - not part of a plain installation

    table = load_catalog("lake", type="sql", uri=f"sqlite:///{catalog(home)}").load_table(TABLE)
    return table.scan().count(), table.scan(selected_fields=tuple(COLUMNS), limit=ROWS).to_arrow()


def rows_of_postgresql(_home: Path) -> tuple[int, pa.Table]:
    """Read a table in PostgreSQL back."""
    import psycopg  # noqa: PLC0415 - as above
    from psycopg import sql  # noqa: PLC0415
    from psycopg.rows import dict_row  # noqa: PLC0415

    columns = sql.SQL(", ").join(map(sql.Identifier, COLUMNS))
    query = sql.SQL("SELECT {}, count(*) OVER () AS found FROM {} ORDER BY kafka_partition, kafka_offset LIMIT {}")
    with psycopg.connect(os.environ[WAREHOUSE], row_factory=dict_row) as connection:
        rows = connection.execute(query.format(columns, sql.Identifier(*TABLE.split(".")), ROWS)).fetchall()
    return rows[0]["found"], pa.Table.from_pylist(rows).select(COLUMNS)


def rows_of_topic(_home: Path) -> tuple[int, pa.Table]:
    """Read all committed records of the output topic, each at its offset there."""
    settings = {"bootstrap.servers": os.environ[SERVERS], "group.id": "demo", "isolation.level": "read_committed"}
    consumer = Consumer(settings | {"enable.auto.commit": False, "enable.partition.eof": True})
    consumer.assign([TopicPartition(TOPIC, number, 0) for number in range(PARTITIONS)])
    found, ended = [], 0
    while ended < PARTITIONS:
        for message in consumer.consume(10_000, 0.2):
            error = message.error()
            if error is not None and error.code() != KafkaError._PARTITION_EOF:  # noqa: SLF001 - librdkafka's own name
                raise KafkaException(error)
            if error is None:
                found.append(message)
            else:
                ended += 1
    consumer.close()
    first = sorted(found, key=lambda each: (each.partition() or 0, each.offset() or 0))[:ROWS]
    return len(found), pa.Table.from_pylist([row_of(each) for each in first])


def row_of(message: Message) -> dict[str, Any]:
    """Return a record as a row of :data:`COLUMNS`."""
    milliseconds = message.timestamp()[1]
    headers = [{"key": each[0], "value": each[1]} for each in message.headers() or ()]
    place = message.partition(), message.offset(), datetime.fromtimestamp(milliseconds / 1000, UTC)
    return dict(zip(COLUMNS, (*place, message.key(), message.value(), headers), strict=True))


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
    "kafka": DemoSink(
        {"format": "kafka", "conn_id": "kafka_default", "topic": TOPIC},
        connection_to_topic,
        "a read_committed consumer",
        rows_of_topic,
    ),
}


def environment_of(sink: DemoSink, home: Path, stack: ExitStack, servers: str) -> dict[str, str]:
    """Write the repository's feed file with another sink, and return the variables that lead to it.

    What a sink has to be started for ends with the stack.
    """
    feed: dict[str, Any] = yaml.safe_load(FEED_FILE.read_text())
    feed["sink"] |= sink.settings
    feeds = home / "feeds"
    feeds.mkdir(exist_ok=True)
    (feeds / FEED_FILE.name).write_text(yaml.safe_dump(feed, sort_keys=False))
    os.environ[SERVERS] = servers
    return {"KAFKA_INGEST_FEEDS": str(feeds), **sink.connections(home, stack)}
