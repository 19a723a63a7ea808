"""The control database is destroyed in the middle of a feed's history.

The output restores the history, and nothing is lost.
"""

import json
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from sqlalchemy import URL
from tests.kafka_faults import create_topic
from tests.killing import Produced, all_batches, records_of
from tests.quick_project import Killed, QuickProject

from embedded_postgresql import EmbeddedPostgresql

Destroy = Callable[[QuickProject], None]
GAP = {(0, 5), (0, 6)}


def remove_files(quick: QuickProject) -> None:
    """Remove SQLite's file and what it keeps beside it."""
    for file in quick.control_file.parent.glob(f"{quick.control_file.name}*"):
        file.unlink()


@pytest.fixture
def on_sqlite(tmp_path: Path, servers: str) -> tuple[QuickProject, Destroy]:
    return QuickProject(tmp_path / "quick", servers), remove_files


@pytest.fixture
def on_postgresql(tmp_path: Path, servers: str) -> Iterator[tuple[QuickProject, Destroy]]:
    with EmbeddedPostgresql() as server:
        made = QuickProject(tmp_path / "quick", servers)
        made.environment["AIRFLOW_CONN_KAFKA_INGEST"] = connection_to(server.create_database("control"))

        def drop(_: QuickProject) -> None:
            server.execute("DROP DATABASE control WITH (FORCE)")
            server.create_database("control")

        yield made, drop


def connection_to(url: URL) -> str:
    """Return an Airflow connection to a database."""
    return json.dumps(
        {"conn_type": "postgres", "host": url.query["host"], "schema": url.database, "login": url.username}
    )


@pytest.fixture(params=["on_sqlite", "on_postgresql"])
def feed_and_its_end(request: pytest.FixtureRequest) -> tuple[QuickProject, Destroy]:
    return request.getfixturevalue(request.param)  # type: ignore[no-any-return]


def test_a_control_database_that_is_destroyed_between_write_and_commit_is_restored_by_the_output(
    feed_and_its_end: tuple[QuickProject, Destroy], servers: str, name: str
) -> None:
    quick, destroy = feed_and_its_end
    produced = three_batches_and_one_that_is_only_written(quick, servers, name)
    visible, reported, gaps = records_of(quick), all_batches(quick)[1:], quick.gaps()
    assert {position for position, _ in visible}.isdisjoint(GAP)
    assert quick.status()["open_batch"]["state"] == "WRITTEN"

    destroy(quick)
    quick.upgrade()
    assert quick.refusal("run", "orders")[:2] == (3, "OUTPUT_UNKNOWN")
    adopted = quick.answer("adopt", "orders", "--execute", "--reason", "the disk died")
    assert adopted["mirror_failure"] is None

    known = ("batch_id", "state", "rows", "ranges")
    assert [{key: batch[key] for key in known} for batch in all_batches(quick)] == [
        {key: batch[key] for key in known} for batch in reported
    ]
    assert quick.gaps() == gaps == [(0, 5, 7, "skipped", "open")]
    assert quick.status()["open_batch"] is None
    assert records_of(quick) == visible, "what was only written is not visible"

    produced.add(1, 2)
    quick.run("orders", "--until-caught-up")
    expected = {position: value for position, value in produced.values.items() if position not in GAP}
    assert records_of(quick) == sorted(expected.items())
    assert quick.stored_offsets() == produced.ends
    assert quick.group_offsets() == produced.ends
    assert committed_offsets(quick) == sorted(expected)
    assert quick.run() == []


def three_batches_and_one_that_is_only_written(quick: QuickProject, servers: str, name: str) -> Produced:
    """Run a feed of small batches, with a jump over a gap, and stop between write and commit of the fourth."""
    create_topic(servers, name, 3)
    produced = Produced(servers, name)
    for partition, count in enumerate((16, 9, 2)):
        produced.add(partition, count)
    quick.upgrade()
    quick.write_feed(name, limits={"max_records_per_partition": 4})
    quick.run()
    quick.answer("skip", "orders", name, "0", "5-7", "--reason", "poisoned")
    quick.run()
    quick.run()
    with quick.stopping_before_the_commit(), suppress(Killed):
        quick.kafka_ingest("run", "orders")
    return produced


def committed_offsets(quick: QuickProject) -> list[tuple[int, int]]:
    """Return every offset that a committed batch holds, repetitions included."""
    return sorted(
        (entry["partition"], offset)
        for batch in all_batches(quick)
        if batch["state"] == "COMMITTED"
        for entry in batch["ranges"]
        for offset in range(entry["start_offset"], entry["end_offset"])
    )
