"""A feed whose output is a Delta table in a store that speaks S3's protocol: the whole way, with real parts."""

from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from tests.integration.test_adopt import DO_IT
from tests.integration.test_delta import LOG, answer
from tests.integration.test_whole_way import comparable, rows_expected
from tests.kafka_faults import topic_id
from tests.killing import Processes, ending_all
from tests.object_store import ObjectStore
from tests.project import Project

from embedded_broker import EmbeddedBroker
from order_events import order_events, produce


@pytest.fixture
def lake(project: Project, object_store: ObjectStore, tmp_path: Path) -> str:
    """Where the table goes, after the connection that leads there was defined."""
    object_store.make_bucket("lake")
    project.environment["AIRFLOW_CONN_AWS_LAKE"] = object_store.connection()
    return f"s3://aws_lake@lake{tmp_path}/orders"


@pytest.fixture
def processes(project: Project) -> Iterator[Processes]:
    with ending_all(project) as made:
        yield made


def rows_of(store: ObjectStore, lake: str) -> list[dict[str, Any]]:
    """Return all rows as Polars reads the table, by position."""
    options = {name: value for name, value in store.access().for_delta().items() if name.startswith("AWS_")}
    rows = pl.read_delta(lake.replace("aws_lake@", ""), storage_options=options)
    return rows.sort("kafka_topic", "kafka_partition", "kafka_offset").to_dicts()


def test_every_record_is_in_the_table_once_after_a_killed_commit_and_lost_control_tables(
    project: Project,
    processes: Processes,
    broker: EmbeddedBroker,
    topic: str,
    object_store: ObjectStore,
    lake: str,
) -> None:
    project.write_feed(topic, sink={"format": "delta", "path": lake})
    events = list(order_events(2_000, seed=11))
    id_of_topic = topic_id(broker.bootstrap_servers, topic)
    produce(broker.bootstrap_servers, topic, islice(events, 1_000))
    [first] = project.run()
    assert first["rows"] == 1_000
    found = [comparable(row) for row in rows_of(object_store, lake)]
    assert found == rows_expected(events[:1_000], topic, id_of_topic)

    produce(broker.bootstrap_servers, topic, events[1_000:])
    run = processes.run_feed(held_at=f"after:{LOG}.land")
    run.wait_until_held()
    run.kill()
    open_batch = project.status()["open_batch"]
    [second] = project.run()
    assert (second["batch_id"], second["rows"]) == (open_batch["batch_id"], 1_000)
    expected = rows_expected(events, topic, id_of_topic)
    assert [comparable(row) for row in rows_of(object_store, lake)] == expected
    assert {row["kafka_batch"] for row in rows_of(object_store, lake)} == {first["batch_id"], second["batch_id"]}
    assert project.stored_offsets() == project.group_offsets()

    assert answer(project, "coverage", "orders", "--verify")["verified"]["differences"] == []
    located = answer(project, "locate", "orders", topic, "0", "0")
    [file] = [file for batch in located["batches"] for file in batch["files"] if file["holds_record"]]
    assert file["path"].startswith(f"{lake}/batches/")
    assert project.kafka_ingest("doctor").exit_code == 0

    project.control_file.unlink()
    project.upgrade()
    answer(project, "adopt", "orders", *DO_IT)
    assert project.run() == []
    assert [comparable(row) for row in rows_of(object_store, lake)] == expected
