"""A feed whose output is a table in a store that speaks S3's protocol: the whole way, with real parts."""

import json
import warnings
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any
from unittest.mock import patch

import polars as pl
import pytest
from pyiceberg.catalog import load_catalog
from pyiceberg.exceptions import NoSuchTableError
from tests.iceberg_lake import files_in_store
from tests.integration.test_adopt import DO_IT
from tests.integration.test_delta import LOG, answer
from tests.integration.test_iceberg import TABLE
from tests.integration.test_whole_way import comparable, rows_expected
from tests.kafka_faults import topic_id
from tests.killing import Processes, ending_all
from tests.object_store import ObjectStore
from tests.project import Project
from tests.quick_project import Killed, QuickProject

from embedded_broker import EmbeddedBroker
from kafka_ingest.sinks.delta.table_log import TableLog
from kafka_ingest.sinks.iceberg.table import IcebergTable
from order_events import order_events, produce

FORMATS = ("delta", "iceberg")
LANDS = {"delta": f"{LOG}.land", "iceberg": f"{TABLE}.land"}
"""The call that makes a batch visible."""
LANDING = {"delta": TableLog, "iceberg": IcebergTable}


@dataclass(frozen=True)
class Lake:
    """A table in a store, and the connections that lead there."""

    store: ObjectStore
    format: str
    uri: str
    catalog: Path

    @property
    def sink(self) -> dict[str, str]:
        """What a feed file says of it."""
        of_catalog = {"catalog": "lake", "table": "shop.orders"} if self.format == "iceberg" else {}
        return {"format": self.format, "path": self.uri, **of_catalog}

    @property
    def connections(self) -> dict[str, str]:
        """What Airflow knows of it."""
        catalog = json.dumps({"conn_type": "sqlite", "host": str(self.catalog)})
        return {"AIRFLOW_CONN_AWS_LAKE": self.store.connection(), "AIRFLOW_CONN_LAKE": catalog}

    def rows(self) -> list[dict[str, Any]]:
        """Return all rows as Polars reads the table, by position."""
        options = {name: value for name, value in self.store.access().for_delta().items() if name.startswith("AWS_")}
        if self.format == "delta":
            try:
                found = pl.scan_delta(self.uri.replace("aws_lake@", ""), storage_options=options)
            except FileNotFoundError:
                return []
        else:
            files = files_in_store(self.store.access())
            try:
                table = load_catalog("lake", type="sql", uri=f"sqlite:///{self.catalog}", **files).load_table(
                    "shop.orders"
                )
            except NoSuchTableError:
                return []
            found = pl.scan_iceberg(table, storage_options=options)
        with warnings.catch_warnings(action="ignore", category=pl.exceptions.PerformanceWarning):
            return found.sort("kafka_topic", "kafka_partition", "kafka_offset").collect().to_dicts()

    def batches_seen(self) -> dict[str, int]:
        """Return how many rows of each batch are there."""
        return dict(Counter(row["kafka_batch"] for row in self.rows()))


@pytest.fixture(params=FORMATS)
def lake(request: pytest.FixtureRequest, object_store: ObjectStore, tmp_path: Path) -> Lake:
    object_store.make_bucket("lake")
    return Lake(object_store, request.param, f"s3://aws_lake@lake{tmp_path}/orders", tmp_path / "catalog.db")


@pytest.fixture
def processes(project: Project) -> Iterator[Processes]:
    with ending_all(project) as made:
        yield made


def test_every_record_is_in_the_table_once_after_a_killed_commit_a_filled_gap_and_lost_control_tables(
    project: Project, processes: Processes, broker: EmbeddedBroker, topic: str, lake: Lake
) -> None:
    project.environment |= lake.connections
    project.write_feed(topic, sink=lake.sink)
    events = list(order_events(2_000, seed=11))
    id_of_topic = topic_id(broker.bootstrap_servers, topic)
    produce(broker.bootstrap_servers, topic, islice(events, 1_000))
    [first] = project.run()
    assert first["rows"] == 1_000
    assert [comparable(row) for row in lake.rows()] == rows_expected(events[:1_000], topic, id_of_topic)

    produce(broker.bootstrap_servers, topic, events[1_000:])
    stored = project.stored_offsets()[0]
    answer(project, "skip", "orders", topic, "0", f"{stored}-{stored + 10}", "--reason", "poisoned")
    run = processes.run_feed(held_at=f"after:{LANDS[lake.format]}")
    run.wait_until_held()
    run.kill()
    open_batch = project.status()["open_batch"]
    [second] = project.run()
    assert (second["batch_id"], second["rows"]) == (open_batch["batch_id"], 1_000 - 10)
    [filled] = answer(project, "backfill", "orders", "gaps", "--reason", "mended")["chunks"]
    expected = rows_expected(events, topic, id_of_topic)
    assert [comparable(row) for row in lake.rows()] == expected
    assert lake.batches_seen().keys() == {first["batch_id"], second["batch_id"], filled["batch_id"]}
    assert project.stored_offsets() == project.group_offsets()

    assert answer(project, "coverage", "orders", "--verify")["verified"]["differences"] == []
    located = answer(project, "locate", "orders", topic, "0", "0")
    [file] = [file for batch in located["batches"] for file in batch["files"] if file["holds_record"]]
    assert file["path"].startswith(f"{lake.uri}/")
    assert f"/batches/{first['batch_id']}/" in file["path"]
    assert project.kafka_ingest("doctor").exit_code == 0

    project.control_file.unlink()
    project.upgrade()
    answer(project, "adopt", "orders", *DO_IT)
    assert project.run() == []
    assert [comparable(row) for row in lake.rows()] == expected


# ── What operators do to a table in a store, with a stand-in for Spark ────────────────────────────────────────────────


@pytest.fixture
def feed(quick: QuickProject, lake: Lake, orders: str, monkeypatch: pytest.MonkeyPatch) -> QuickProject:
    """A feed of 15 records that writes there."""
    for name, connection in lake.connections.items():
        monkeypatch.setenv(name, connection)
    quick.write_feed(orders, limits={"max_records": 5}, sink=lake.sink)
    return quick


def test_a_batch_that_was_abandoned_while_it_was_committed_is_never_seen_and_can_be_restored(
    feed: QuickProject, lake: Lake
) -> None:
    with patch.object(LANDING[lake.format], "land", side_effect=Killed), suppress(Killed):
        feed.kafka_ingest("run", "orders")
    [batch] = feed.batches()
    assert batch["state"] == "COMMITTING"
    feed.answer("abandon", batch["batch_id"], "--reason", "wrong topic")
    assert lake.batches_seen() == {}
    feed.answer("restore", batch["batch_id"], "--execute", "--reason", "it was the right one")
    assert list(lake.batches_seen().values()) == [5]
    assert batch["batch_id"] not in lake.batches_seen()


def test_old_batches_leave_the_table_and_what_is_cleaned_is_not_what_is_published(
    feed: QuickProject, lake: Lake
) -> None:
    feed.run("orders", "--until-caught-up")
    oldest, second, newest = (str(batch["batch_id"]) for batch in reversed(feed.batches()))
    for batch_id in (oldest, newest):
        feed.answer("clean", "--batch", batch_id, "--reason", "the store is dear")
    expire = ("expire", "orders", "--before", "2100-01-01", "--execute", "--reason", "old")
    assert [batch["batch_id"] for batch in feed.answer(*expire)["batches"]] == [oldest, second]
    assert lake.batches_seen() == {newest: 5}
    found = feed.answer("coverage", "orders", "--verify")
    assert (found["accounted"], found["verified"]["differences"]) == (True, [])
