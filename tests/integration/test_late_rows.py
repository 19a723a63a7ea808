"""A feed whose late rows go to a dataset of their own: what readers of both see, whatever happens in between."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import duckdb
import pyarrow.parquet
import pytest
from tests.integration.test_adopt import DO_IT, lose_control_tables
from tests.kafka_faults import create_topic, plain_records, produce
from tests.killing import Processes, ending_all, kill_a_run_that_spark_wrote_for
from tests.quick_project import QuickProject

from kafka_ingest.control.completion_store import CompletionStore

HOUR_MS = 3_600_000
PUBLISHER = "kafka_ingest.sinks.parquet.publisher"


def hours_ago(hours: int) -> int:
    return (round(time.time() * 1000) // HOUR_MS - hours) * HOUR_MS


def rows_of(folder: Path) -> list[tuple[int, int]]:
    """Return the positions of all rows below a folder, as a reader of Parquet files finds them."""
    files = folder.rglob("*.parquet")
    read = [pyarrow.parquet.ParquetFile(file).read(["kafka_partition", "kafka_offset"]).to_pylist() for file in files]
    return sorted((row["kafka_partition"], row["kafka_offset"]) for rows in read for row in rows)


class Feed:
    """A feed of two partitions, of which all hours up to this one are complete: five offsets are read of the first."""

    def __init__(self, project: QuickProject, servers: str, topic: str) -> None:
        self.project, self.servers, self.topic = project, servers, topic
        self.output, self.late = project.output / "orders", project.output / "orders_late"
        create_topic(servers, topic, 2)
        produce(servers, topic, 0, plain_records(5, hours_ago(5), HOUR_MS))

    def write(self, **sink: Any) -> None:
        complete = {"by": "hour", "delay": "1s", "idle_after": "1s", "on_late": "dataset"}
        self.project.write_feed(self.topic, complete=complete, sink={"format": "parquet", "path": "orders", **sink})
        self.project.run()

    def add(self, *, late: int, others: int = 0) -> None:
        """Produce records of an hour that is complete, and then of this one."""
        produce(self.servers, self.topic, 0, plain_records(late, hours_ago(4)) + plain_records(others, hours_ago(0)))

    def run(self) -> dict[str, Any]:
        [batch] = self.project.run()
        return batch

    @property
    def late_rows(self) -> int:
        return sum(each["late_rows"] for each in self.project.answer("partitions", "orders")["complete"])

    def is_sound(self) -> bool:
        found = self.project.answer("coverage", "orders", "--verify")
        alone = self.project.kafka_ingest("verify", str(self.output))
        return bool(found["accounted"]) and found["verified"]["differences"] == [] and alone.exit_code == 0

    def file_of(self, offset: int) -> Path:
        [located] = self.project.answer("locate", "orders", self.topic, "0", str(offset))["batches"]
        return Path(next(file["path"] for file in located["files"] if file["holds_record"]))


@pytest.fixture
def feed(quick: QuickProject, servers: str, name: str) -> Feed:
    return Feed(quick, servers, name)


@pytest.fixture
def processes(quick: QuickProject) -> Iterator[Processes]:
    with ending_all(quick) as made:
        yield made


def test_late_rows_are_where_readers_of_the_output_do_not_look_and_all_verbs_find_them(feed: Feed) -> None:
    feed.write(partition_by={"dt": "day(kafka_timestamp)"})
    assert not feed.late.exists(), "nothing is late before anything is complete"
    feed.add(late=2, others=1)

    with feed.project.submitting(spark_is_real=True):
        batch = feed.run()

    assert batch["rows"] == 3
    assert rows_of(feed.late) == [(0, 5), (0, 6)]
    assert rows_of(feed.output) == [(0, offset) for offset in (0, 1, 2, 3, 4, 7)]
    found = duckdb.read_parquet(f"{feed.late}/**/*.parquet", hive_partitioning=True).project("kafka_batch, kafka_late")
    assert {tuple(map(str, row)) for row in found.fetchall()} == {(batch["batch_id"], "true")}
    assert feed.late_rows == 2
    assert feed.is_sound()
    late, other = feed.file_of(6), feed.file_of(7)
    assert feed.late in late.parents
    assert feed.output in other.parents
    for file in (late, other):
        explained = feed.project.answer("explain", str(file))
        assert (explained["batch_id"], explained["receipt"]["differences"]) == (batch["batch_id"], [])

    late.write_bytes(late.read_bytes()[:-100])
    feed.project.answer("lost", "orders", "--batch", batch["batch_id"], "--execute", "--reason", "a disk died")
    assert rows_of(feed.late) == []
    feed.project.answer("backfill", "orders", "gaps")
    assert rows_of(feed.output) == [(0, offset) for offset in range(8)], "a backfill's rows are late for no one"
    assert rows_of(feed.late) == []


def test_a_batch_may_be_all_late_or_not_at_all_and_expires_as_a_whole(feed: Feed) -> None:
    feed.write()
    feed.add(late=0, others=1)
    feed.run()
    assert not feed.late.exists()

    feed.add(late=2)
    all_late = feed.run()
    assert rows_of(feed.late) == [(0, 6), (0, 7)]
    assert not (feed.output / f"kafka_batch={all_late['batch_id']}").exists()
    assert feed.is_sound()
    lose_control_tables(feed.project)
    feed.project.answer("adopt", "orders", *DO_IT)
    assert feed.is_sound()

    feed.add(late=0, others=1)
    newest = feed.run()
    feed.project.answer("expire", "orders", "--before", "2100-01-01", "--execute", "--reason", "old")
    left = [each.name for place in (feed.output, feed.late) for each in place.iterdir()]
    assert left == [f"kafka_batch={newest['batch_id']}"]
    assert list((feed.project.output / "orders.kafka-ingest" / "removed").iterdir()) == []
    assert feed.is_sound()


@pytest.mark.parametrize("others", [1, 0], ids=["some late", "all late"])
@pytest.mark.parametrize(
    "killed_at",
    [
        f"after:{PUBLISHER}:move_late_rows",
        f"before:{PUBLISHER}:ParquetPublisher._publish_late_rows",
        f"after:{PUBLISHER}:ParquetPublisher._publish_late_rows",
    ],
    ids=["set aside", "others published", "published"],
)
def test_a_run_that_is_killed_while_it_publishes_late_rows_is_completed_by_the_next_one(
    feed: Feed, processes: Processes, killed_at: str, others: int
) -> None:
    feed.write()
    feed.add(late=2, others=others)
    kill_a_run_that_spark_wrote_for(feed.project, processes, killed_at)

    feed.run()

    assert rows_of(feed.late) == [(0, 5), (0, 6)]
    assert rows_of(feed.output) == [(0, offset) for offset in (0, 1, 2, 3, 4, 7)[: 5 + others]]
    assert feed.project.run() == []
    assert feed.late_rows == 2
    assert feed.is_sound()


@pytest.mark.parametrize("others", [1, 0], ids=["some late", "all late"])
def test_late_rows_that_were_set_aside_are_revoked_with_the_batch_and_restored_with_it(
    feed: Feed, processes: Processes, others: int
) -> None:
    feed.write()
    feed.add(late=2, others=others)
    kill_a_run_that_spark_wrote_for(feed.project, processes, f"after:{PUBLISHER}:move_late_rows")
    ended = feed.project.batches()[0]["batch_id"]

    feed.project.answer("abandon", ended, "--reason", "wrong topic")
    assert rows_of(feed.late) == []
    feed.project.answer("restore", ended, "--execute", "--reason", "it was the right one")

    assert rows_of(feed.late) == [(0, 5), (0, 6)]
    assert len(rows_of(feed.output)) == 5 + others
    assert feed.is_sound()


def test_a_batch_whose_late_rows_alone_are_left_to_publish_cannot_be_abandoned_and_is_adopted_whole(
    feed: Feed, processes: Processes
) -> None:
    feed.write()
    feed.add(late=2, others=1)
    kill_a_run_that_spark_wrote_for(feed.project, processes, f"before:{PUBLISHER}:ParquetPublisher._publish_late_rows")
    batch_id = feed.project.batches()[0]["batch_id"]

    assert feed.project.kafka_ingest("abandon", batch_id, "--reason", "wrong").exit_code != 0
    lose_control_tables(feed.project)
    feed.project.answer("adopt", "orders", *DO_IT)

    assert rows_of(feed.late) == [(0, 5), (0, 6)]
    assert feed.is_sound()


def test_an_attempt_that_was_opened_before_an_hour_was_complete_has_its_rows_in_the_output_and_they_are_late(
    feed: Feed,
) -> None:
    feed.write()
    feed.add(late=1)
    with patch.object(CompletionStore, "complete_span", return_value=None):
        feed.run()
    feed.add(late=1)

    feed.run()

    assert rows_of(feed.output) == [(0, offset) for offset in range(6)]
    assert rows_of(feed.late) == [(0, 6)]
    assert feed.late_rows == 2
    assert feed.is_sound()
