"""A feed whose table is partitioned, with real Spark; and what operators ask of it and do to it."""

import json
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from typing import Any
from unittest.mock import patch

import duckdb
import pyarrow as pa
import pyarrow.dataset
import pytest
from deltalake import DeltaTable
from pyiceberg.catalog import load_catalog
from tests.integration.test_adopt import DO_IT, lose_control_tables
from tests.kafka_faults import FIRST_TIMESTAMP_MS, Record, log_end, plain_records, produce
from tests.quick_project import Killed, QuickProject

from kafka_ingest.sinks.delta.table_log import TableLog
from kafka_ingest.sinks.iceberg.commits import IcebergCommits

Partitions = Counter[tuple[str | None, ...]]
BY = ["kafka_topic", "day(kafka_timestamp)"]
DELTA = {"format": "delta", "path": "orders", "partition_by": BY}
ICEBERG = {"format": "iceberg", "path": "orders", "catalog": "lake", "table": "shop.orders", "partition_by": BY}
MIDNIGHT_MS = FIRST_TIMESTAMP_MS // 86_400_000 * 86_400_000 + 86_400_000


def in_delta(project: QuickProject) -> tuple[Partitions, pa.Table]:
    """Return how many files each partition has, and all rows."""
    table = DeltaTable(str(project.output / "orders"))
    found = pa.table(table.get_add_actions(flatten=True)).to_pylist()
    names = [f"partition.{name}" for name in table.metadata().partition_columns]
    return Counter(tuple(str(each[name]) for name in names) for each in found), table.to_pyarrow_table()


def in_iceberg(project: QuickProject) -> tuple[Partitions, pa.Table]:
    table = load_catalog("lake", type="sql", uri=f"sqlite:///{project.home}/catalog.db").load_table("shop.orders")
    found = table.inspect.files().to_pylist()
    return Counter(tuple(map(str, each["partition"].values())) for each in found), table.scan().to_arrow()


@pytest.mark.parametrize(
    ("sink", "look", "table"),
    [(DELTA, in_delta, TableLog), (ICEBERG, in_iceberg, IcebergCommits)],
    ids=["delta", "iceberg"],
)
def test_a_partitioned_feed_is_read_once_and_answers_and_obeys_as_any_other(
    quick: QuickProject,
    servers: str,
    orders: str,
    monkeypatch: pytest.MonkeyPatch,
    sink: dict[str, Any],
    look: Callable[[QuickProject], tuple[Partitions, pa.Table]],
    table: type[Any],
) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_LAKE", json.dumps({"conn_type": "sqlite", "host": f"{quick.home}/catalog.db"}))
    produce(servers, orders, 1, plain_records(4, MIDNIGHT_MS - 2_000))
    quick.write_feed(orders, sink=sink)
    with quick.submitting(spark_is_real=table is TableLog):  # what it stages for Iceberg, test_store sees
        [first] = quick.run()
    assert first["rows"] == 19
    days = {day: files for (_, day), files in look(quick)[0].items()}
    assert days == {str(day): files for day, files in zip(sorted(days), (2, 1), strict=True)}
    assert look(quick)[1].num_rows == 19
    assert verified(quick)

    # An offset of the second day is in one of the two files that span it.
    located = quick.answer("locate", "orders", orders, "1", "8")
    [file] = [file for batch in located["batches"] for file in batch["files"] if file["holds_record"]]
    explained = quick.answer("explain", file["path"])
    assert (explained["published"], explained["rows"], explained["receipt"]["differences"]) == (True, 2, [])

    # A batch that an operator ends while it is committed comes back as another.
    produce(servers, orders, 2, plain_records(3))
    with patch.object(table, "land", side_effect=Killed), suppress(Killed):
        quick.kafka_ingest("run", "orders")
    ended = quick.batches()[0]["batch_id"]
    quick.answer("abandon", ended, "--reason", "wrong topic")
    quick.answer("restore", ended, "--execute", "--reason", "it was the right one")
    assert look(quick)[1].num_rows == 22

    lose_control_tables(quick)
    quick.answer("adopt", "orders", *DO_IT)
    produce(servers, orders, 2, plain_records(2, MIDNIGHT_MS))
    assert [batch["rows"] for batch in quick.run()] == [2]
    assert verified(quick)
    expired = quick.answer("expire", "orders", "--before", "2100-01-01", "--execute", "--reason", "old")["batches"]
    assert first["batch_id"] in [batch["batch_id"] for batch in expired]
    assert first["batch_id"] not in look(quick)[1]["kafka_batch"].to_pylist()
    assert verified(quick)


def verified(project: QuickProject) -> bool:
    """Whether all offsets are accounted for, in the table too."""
    found = project.answer("coverage", "orders", "--verify")
    return bool(found["accounted"]) and found["verified"]["differences"] == []


def test_another_partitioning_than_the_tables_is_refused_when_it_is_planned(quick: QuickProject, orders: str) -> None:
    quick.write_feed(orders, sink=DELTA)
    quick.run()
    quick.edit_feed(sink={**DELTA, "partition_by": ["hour(kafka_timestamp)"]})
    exit_code, code, message = quick.refusal("run", "orders")
    assert (exit_code, code) == (2, "OUTPUT_NOT_USABLE")
    assert "partitioned by kafka_topic, kafka_date, sink.partition_by asks for kafka_hour" in message


FOLDERS = {
    "format": "parquet",
    "path": "orders",
    "partition_by": {"dt": "day(kafka_timestamp)", "land": "value.country", "sent": "hour(value.at)"},
}
COUNTRIES = ["DE", "a/b=c", None, "__HIVE_DEFAULT_PARTITION__", "é" * 33, "..", ""]
"""As a producer may have them; the fifth has 66 bytes."""
SCHEMA = "country string, at timestamp"


def test_files_of_a_directory_are_in_folders_by_columns_of_the_records(
    quick: QuickProject, servers: str, orders: str
) -> None:
    hours = [0, 1, 2, 2, 4, 5, 6]  # of the third and the fourth one file
    values = [{"country": c, "at": f"2026-01-31T{n:02}:59:00Z"} for n, c in zip(hours, COUNTRIES, strict=True)]
    records = [
        Record(json.dumps(value).encode(), b"key", MIDNIGHT_MS - 1_000 + n * 1_000) for n, value in enumerate(values)
    ]
    produce(servers, orders, 2, [*records, Record(b"no JSON", b"key", MIDNIGHT_MS)])
    start = {"offsets": {orders: {2: log_end(servers, orders, 2) - 8}}, "otherwise": "latest"}
    quick.write_feed(orders, sink=FOLDERS, value={"format": "json", "schema": SCHEMA}, start=start)
    with quick.submitting(spark_is_real=True):
        [first] = quick.run()
    assert first["rows"] == 7
    output = quick.output / "orders"
    none = "__HIVE_DEFAULT_PARTITION__"
    found = {tuple(each.partition("=")[2] for each in file.parent.parts[-3:]) for file in output.rglob("*.parquet")}
    lands = ["DE", "a%2Fb%3Dc", none, none, none, "..", none]
    assert found == {
        ("2026-01-02" if n else "2026-01-01", land, f"2026-01-31T{n:02}") for n, land in zip(hours, lands, strict=True)
    }
    rows = duckdb.read_parquet(f"{output}/**/*.parquet", hive_partitioning=True)
    some = rows.filter("sent in ('2026-01-31T01', '2026-01-31T04') and dt = date '2026-01-02'")
    [second, fifth] = some.order("kafka_offset").project("land, value.country, kafka_offset").fetchall()
    assert (second[:2], fifth[:2]) == (("a/b=c", "a/b=c"), (None, "é" * 33))
    table = pyarrow.dataset.dataset(output, partitioning="hive").to_table()
    assert (table.num_rows, len(set(table["kafka_batch"].to_pylist()))) == (7, 1)
    assert verified(quick)

    [located] = quick.answer("locate", "orders", orders, "2", str(second[2]))["batches"]
    [file] = [file for file in located["files"] if file["holds_record"]]
    explained = quick.answer("explain", file["path"])
    assert (explained["published"], explained["rows"], explained["receipt"]["differences"]) == (True, 1, [])

    quick.edit_feed(sink={**FOLDERS, "partition_by": {"dt": "day(kafka_timestamp)"}})
    exit_code, code, message = quick.refusal("run", "orders")
    assert (exit_code, code) == (2, "OUTPUT_NOT_USABLE")
    assert "has it, dt: day(kafka_timestamp); land: value.country; sent: hour(value.at), found dt: day(" in message

    quick.edit_feed(sink=FOLDERS)
    lose_control_tables(quick)
    quick.answer("adopt", "orders", *DO_IT)
    assert verified(quick)


def test_damaged_files_and_expired_batches_leave_their_folders(quick: QuickProject, servers: str, orders: str) -> None:
    quick.write_feed(orders, sink={**FOLDERS, "partition_by": {"dt": "day(kafka_timestamp)"}})
    quick.run()
    produce(servers, orders, 0, plain_records(1, MIDNIGHT_MS))
    [second] = quick.run()
    output = quick.output / "orders"
    of_second = output / f"kafka_batch={second['batch_id']}"
    [damaged] = of_second.rglob("*.parquet")
    assert damaged.parent.relative_to(of_second).as_posix() == "dt=2026-01-02"
    damaged.write_bytes(damaged.read_bytes()[:-100])
    quick.answer("lost", "orders", "--batch", second["batch_id"], "--execute", "--reason", "a disk died")
    aside = quick.output / "orders.kafka-ingest" / "lost" / second["batch_id"] / "dt=2026-01-02" / damaged.name
    assert (aside.is_file(), of_second.exists()) == (True, False)
    quick.answer("backfill", "orders", "gaps")
    assert [file.parent.name for file in output.rglob("*.parquet")].count("dt=2026-01-02") == 1
    quick.answer("expire", "orders", "--before", "2100-01-01", "--execute", "--reason", "old")
    assert list(output.iterdir()) == []
    assert verified(quick)
