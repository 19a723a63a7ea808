"""A feed whose output is an Iceberg table, on real parts: every record once for every reader, killed commits or not."""

import json
import warnings
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from datetime import datetime, timedelta
from itertools import islice
from typing import Any
from unittest.mock import patch

import polars as pl
import pytest
from pyiceberg.catalog import load_catalog
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.table import Table
from tests.integration.test_adopt import DO_IT, lose_control_tables
from tests.integration.test_whole_way import comparable, rows_expected
from tests.kafka_faults import plain_records, topic_id
from tests.kafka_faults import produce as produce_plain
from tests.killing import Processes, ending_all
from tests.project import Project
from tests.quick_project import Killed, QuickProject

from embedded_broker import EmbeddedBroker
from kafka_ingest.sinks.iceberg.table import IcebergTable
from order_events import order_events, produce

TABLE = "kafka_ingest.sinks.iceberg.table:IcebergTable"
SINK = {"format": "iceberg", "path": "orders", "catalog": "lake", "table": "shop.orders"}


@pytest.fixture
def with_catalog(project: Project) -> Project:
    """A project whose environment has the connection of a catalog."""
    project.environment["AIRFLOW_CONN_LAKE"] = connection(project)
    return project


@pytest.fixture
def quick_with_catalog(quick: QuickProject, monkeypatch: pytest.MonkeyPatch) -> QuickProject:
    """The same where commands run in this process."""
    monkeypatch.setenv("AIRFLOW_CONN_LAKE", connection(quick))
    return quick


@pytest.fixture
def processes(with_catalog: Project) -> Iterator[Processes]:
    with ending_all(with_catalog) as made:
        yield made


def connection(project: Project) -> str:
    return json.dumps({"conn_type": "sqlite", "host": str(project.home / "catalog.db")})


def table_of(project: Project, name: str = "shop.orders") -> Table:
    return load_catalog("lake", type="sql", uri=f"sqlite:///{project.home}/catalog.db").load_table(name)


def rows_of(project: Project, name: str = "shop.orders") -> list[dict[str, Any]]:
    """Return all rows as Polars reads the table, by position."""
    try:
        table = table_of(project, name)
    except NoSuchTableError:
        return []
    with warnings.catch_warnings(action="ignore", category=pl.exceptions.PerformanceWarning):
        rows = pl.scan_iceberg(table).sort("kafka_topic", "kafka_partition", "kafka_offset").collect()
    return rows.to_dicts()


def answer(project: Project, *arguments: str) -> dict[str, Any]:
    said = project.kafka_ingest(*arguments, "--json")
    assert said.exit_code == 0, said.stdout + said.stderr
    return said.document


@pytest.mark.parametrize("killed_at", [f"before:{TABLE}.land", f"after:{TABLE}.land"], ids=["before landing", "landed"])
def test_every_record_is_in_the_table_once_after_two_runs_a_killed_commit_and_a_backfill(
    with_catalog: Project, processes: Processes, broker: EmbeddedBroker, topic: str, killed_at: str
) -> None:
    project = with_catalog
    project.write_feed(topic, sink=SINK)
    events = list(order_events(3_000, seed=11))
    id_of_topic = topic_id(broker.bootstrap_servers, topic)
    produce(broker.bootstrap_servers, topic, islice(events, 1_000))
    [first] = project.run()
    assert first["rows"] == 1_000
    assert [comparable(row) for row in rows_of(project)] == rows_expected(events[:1_000], topic, id_of_topic)

    # The commit of the second run is killed with -9; the third continues with the same batch.
    produce(broker.bootstrap_servers, topic, events[1_000:2_000])
    run = processes.run_feed(held_at=killed_at)
    run.wait_until_held()
    run.kill()
    assert len(rows_of(project)) == (2_000 if killed_at.startswith("after") else 1_000)
    open_batch = project.status()["open_batch"]
    assert open_batch["state"] == "COMMITTING"
    [second] = project.run()
    assert (second["batch_id"], second["rows"]) == (open_batch["batch_id"], 1_000)
    assert [comparable(row) for row in rows_of(project)] == rows_expected(events[:2_000], topic, id_of_topic)

    # What an operator skipped is read by a backfill, after all.
    stored = project.stored_offsets()[0]
    produce(broker.bootstrap_servers, topic, events[2_000:])
    answer(project, "skip", "orders", topic, "0", f"{stored}-{stored + 10}", "--reason", "poisoned")
    [third] = project.run()
    assert len(rows_of(project)) == 3_000 - 10
    [chunk] = answer(project, "backfill", "orders", "gaps", "--reason", "mended")["chunks"]
    assert [comparable(row) for row in rows_of(project)] == rows_expected(events, topic, id_of_topic)
    batches = {first["batch_id"], second["batch_id"], third["batch_id"], chunk["batch_id"]}
    assert {row["kafka_batch"] for row in rows_of(project)} == batches
    assert project.stored_offsets() == project.group_offsets()

    check_questions(project, topic, stored, chunk["batch_id"])


def check_questions(project: Project, topic: str, offset: int, batch_id: str) -> None:
    """The questions about an output are answered of a table, too, or refused by name."""
    assert answer(project, "coverage", "orders", "--verify")["verified"]["differences"] == []
    located = answer(project, "locate", "orders", topic, "0", str(offset))
    [file] = [file for batch in located["batches"] for file in batch["files"] if file["holds_record"]]
    explained = answer(project, "explain", file["path"])
    assert (explained["published"], explained["batch_id"]) == (True, batch_id)
    assert explained["receipt"]["differences"] == []
    assert {"name": "kafka_batch", "type": "string"} in explained["columns"]
    [feed] = answer(project, "feeds")["feeds"]
    assert {key: feed["sink"][key] for key in SINK} == SINK
    assert "in one snapshot of the table" in feed["guarantee"]
    refused = project.kafka_ingest("lost", "orders", "--batch", batch_id, "--json")
    assert (refused.exit_code, refused.document["error"]["code"]) == (2, "NOT_OF_THIS_FORMAT")
    assert project.kafka_ingest("doctor").exit_code == 0


# ── What operators do to a table ──────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def three_batches(quick_with_catalog: QuickProject, orders: str) -> QuickProject:
    """A feed with three live batches of 5 records each."""
    quick_with_catalog.write_feed(orders, limits={"max_records": 5}, sink=SINK)
    quick_with_catalog.run("orders", "--until-caught-up")
    return quick_with_catalog


def ids(project: QuickProject) -> list[str]:
    """Return the batches, oldest first."""
    return [str(batch["batch_id"]) for batch in reversed(project.batches())]


def batches_seen(project: Project, name: str = "shop.orders") -> dict[str, int]:
    return dict(Counter(row["kafka_batch"] for row in rows_of(project, name)))


def test_old_batches_leave_the_table_and_their_offsets_stay_committed(three_batches: QuickProject) -> None:
    oldest, second, newest = ids(three_batches)
    expire = ("expire", "orders", "--before", "2100-01-01", "--execute", "--reason", "old")
    assert [batch["batch_id"] for batch in three_batches.answer(*expire)["batches"]] == [oldest, second]
    assert batches_seen(three_batches) == {newest: 5}
    found = three_batches.answer("coverage", "orders", "--verify")
    assert (found["accounted"], found["verified"]["differences"]) == (True, [])
    assert sum(partition["offsets"]["expired"] for partition in found["partitions"]) == 10
    assert three_batches.run() == []


def test_lost_control_tables_are_rebuilt_from_the_receipts_beside_the_table(
    three_batches: QuickProject, servers: str, orders: str
) -> None:
    before = batches_seen(three_batches), three_batches.stored_offsets()
    lose_control_tables(three_batches)
    refused = three_batches.kafka_ingest("run", "orders", "--json")
    assert refused.document["error"]["code"] == "OUTPUT_UNKNOWN"
    three_batches.answer("adopt", "orders", *DO_IT)
    assert (batches_seen(three_batches), three_batches.stored_offsets()) == before
    produce_plain(servers, orders, 2, plain_records(3))
    assert [batch["rows"] for batch in three_batches.run()] == [3]
    assert sum(batches_seen(three_batches).values()) == 18


def test_a_batch_that_was_abandoned_while_it_was_committed_is_never_seen_and_can_be_restored(
    quick_with_catalog: QuickProject, orders: str
) -> None:
    quick = quick_with_catalog
    quick.write_feed(orders, sink=SINK)
    with patch.object(IcebergTable, "land", side_effect=Killed), suppress(Killed):
        quick.kafka_ingest("run", "orders")
    [batch] = quick.batches()
    assert batch["state"] == "COMMITTING"
    quick.answer("abandon", batch["batch_id"], "--reason", "wrong topic")
    assert batches_seen(quick) == {}
    quick.answer("restore", batch["batch_id"], "--execute", "--reason", "it was the right one")
    assert list(batches_seen(quick).values()) == [15]
    assert batch["batch_id"] not in batches_seen(quick)


def test_expired_snapshots_and_clean_up_of_ours_leave_what_is_published(three_batches: QuickProject) -> None:
    seen = batches_seen(three_batches)
    for batch_id in ids(three_batches):
        three_batches.answer("clean", "--batch", batch_id, "--reason", "the disk is full")
    later = datetime.now() + timedelta(days=1)  # noqa: DTZ005 - as the library compares it
    table_of(three_batches).maintenance.expire_snapshots().older_than(later).commit()
    assert batches_seen(three_batches) == seen
    assert three_batches.answer("coverage", "orders", "--verify")["verified"]["differences"] == []


def test_a_copy_goes_to_a_table_of_its_own_in_the_same_namespace(three_batches: QuickProject) -> None:
    copy = ("backfill", "orders", f"batch={ids(three_batches)[0]}", "--copy-to", "orders_again", "--reason", "a look")
    assert [chunk["rows"] for chunk in three_batches.answer(*copy)["chunks"]] == [5]
    assert sum(batches_seen(three_batches, "shop.orders_again").values()) == 5
    assert sum(batches_seen(three_batches).values()) == 15
