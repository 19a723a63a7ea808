"""A feed whose output is a table in a store that speaks S3's protocol: the whole way, with real parts."""

import json
import warnings
from collections import Counter
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any
from unittest.mock import patch

import polars as pl
import pytest
from deltalake.exceptions import TableNotFoundError
from pyiceberg.catalog import load_catalog
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.table import Table
from tests.iceberg_lake import files_in_store
from tests.integration.test_adopt import DO_IT
from tests.integration.test_whole_way import comparable, rows_expected
from tests.kafka_faults import topic_id
from tests.killing import Processes, ending_all
from tests.object_store import ObjectStore, StoreFault
from tests.project import Project
from tests.quick_project import Killed, QuickProject
from tests.table_kinds import lands

from embedded_broker import EmbeddedBroker
from kafka_ingest.sinks.delta.table_log import TableLog
from kafka_ingest.sinks.iceberg.table import IcebergTable
from order_events import order_events, produce

FORMATS = ("delta", "iceberg")
LANDING = {"delta": TableLog, "iceberg": IcebergTable}


@dataclass(frozen=True)
class Lake:
    """A table in a store, and the connections that lead there."""

    store: ObjectStore
    format: str
    uri: str
    catalog: Path
    with_key: bool = True
    """Otherwise a container's role leads there."""

    @property
    def sink(self) -> dict[str, str]:
        """What a feed file says of it."""
        of_catalog = {"catalog": "lake", "table": "shop.orders"} if self.format == "iceberg" else {}
        return {"format": self.format, "path": self.uri, **of_catalog}

    @property
    def environment(self) -> dict[str, str]:
        """What Airflow knows of it, and what a container whose role leads there has."""
        catalog = json.dumps({"conn_type": "sqlite", "host": str(self.catalog)})
        store = self.store.connection(with_key=self.with_key)
        role = {} if self.with_key else self.store.role(self.catalog.parent)
        return {"AIRFLOW_CONN_AWS_LAKE": store, "AIRFLOW_CONN_LAKE": catalog, **role}

    def as_it_is_reached(self) -> AbstractContextManager[None]:
        """Take no requests inside but those of the role, if that leads there."""
        return nullcontext() if self.with_key else self.store.refusing_all_but_the_role()

    def rows(self) -> list[dict[str, Any]]:
        """Return all rows as Polars reads the table, by position."""
        options = {name: value for name, value in self.store.access().for_delta().items() if name.startswith("AWS_")}
        try:
            if self.format == "delta":
                found = pl.scan_delta(self.uri.replace("aws_lake@", ""), storage_options=options)
            else:
                found = pl.scan_iceberg(self.iceberg(), storage_options=options)
            with warnings.catch_warnings(action="ignore", category=pl.exceptions.PerformanceWarning):
                return found.sort("kafka_topic", "kafka_partition", "kafka_offset").collect().to_dicts()
        except (NoSuchTableError, TableNotFoundError):
            return []

    def iceberg(self) -> Table:
        """Return the table as another program has it."""
        files = files_in_store(self.store.access())
        return load_catalog("lake", type="sql", uri=f"sqlite:///{self.catalog}", **files).load_table("shop.orders")

    def batches_seen(self) -> dict[str, int]:
        """Return how many rows of each batch are there."""
        return dict(Counter(row["kafka_batch"] for row in self.rows()))


@pytest.fixture(params=FORMATS)
def lake(request: pytest.FixtureRequest, object_store: ObjectStore, tmp_path: Path) -> Lake:
    object_store.make_bucket("lake")
    # One of the two goes by a role: the clients are the same for both formats, apart from delta-rs.
    return Lake(
        object_store,
        request.param,
        f"s3://aws_lake@lake{tmp_path}/orders",
        tmp_path / "catalog.db",
        with_key=request.param == "delta",
    )


def answer(project: Project, *arguments: str) -> dict[str, Any]:
    said = project.kafka_ingest(*arguments, "--json")
    assert said.exit_code == 0, said.stdout + said.stderr
    return said.document


@pytest.fixture
def processes(project: Project) -> Iterator[Processes]:
    with ending_all(project) as made:
        yield made


def test_every_record_is_in_the_table_once_after_a_killed_commit_a_filled_gap_and_lost_control_tables(
    project: Project, processes: Processes, broker: EmbeddedBroker, topic: str, lake: Lake
) -> None:
    project.environment |= lake.environment
    project.write_feed(topic, sink=lake.sink)
    events = list(order_events(2_000, seed=11))
    id_of_topic = topic_id(broker.bootstrap_servers, topic)
    produce(broker.bootstrap_servers, topic, islice(events, 1_000))
    with lake.as_it_is_reached():
        [first] = project.run()
    assert first["rows"] == 1_000
    assert [comparable(row) for row in lake.rows()] == rows_expected(events[:1_000], topic, id_of_topic)

    produce(broker.bootstrap_servers, topic, events[1_000:])
    stored = project.stored_offsets()[0]
    answer(project, "skip", "orders", topic, "0", f"{stored}-{stored + 10}", "--reason", "poisoned")
    run = processes.run_feed(held_at=f"after:{lands(LANDING[lake.format])}")
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


GIVES_UP_SOON = {
    "spark.hadoop.fs.s3a.attempts.maximum": "1",
    "spark.hadoop.fs.s3a.retry.limit": "1",
    "spark.hadoop.fs.s3a.retry.throttle.limit": "1",
}


@pytest.mark.parametrize("lake", ["delta"], indirect=True)
def test_uploads_of_spark_that_fail_end_the_attempt_and_the_next_one_is_committed(
    project: Project, broker: EmbeddedBroker, topic: str, lake: Lake
) -> None:
    project.environment |= lake.environment
    project.write_feed(topic, sink=lake.sink, spark={"conf": GIVES_UP_SOON})
    produce(broker.bootstrap_servers, topic, order_events(100, seed=11))
    for fault in (
        StoreFault("(PUT|POST) .*/batches/", status=503, code="SlowDown"),
        StoreFault("(PUT|POST) .*/batches/", "cut"),
    ):
        with lake.store.failing(fault):
            failed = project.kafka_ingest("run", "orders", "--json")
        assert failed.exit_code == 1, failed.stdout + failed.stderr
        assert lake.rows() == []
    [batch] = project.run()
    assert (batch["rows"], lake.batches_seen()) == (100, {batch["batch_id"]: 100})
    assert f"/{batch['batch_id']}/3/" in json.dumps(answer(project, "locate", "orders", topic, "0", "0"))


# ── What operators do to a table in a store, with a stand-in for Spark ────────────────────────────────────────────────


@pytest.fixture
def feed(quick: QuickProject, lake: Lake, orders: str, monkeypatch: pytest.MonkeyPatch) -> QuickProject:
    """A feed of 15 records that writes there."""
    for name, value in lake.environment.items():
        monkeypatch.setenv(name, value)
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
