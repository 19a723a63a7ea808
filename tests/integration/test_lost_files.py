"""Published files that were lost or damaged: named, made gaps by an operator, and read again, once."""

import shutil
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pyarrow.parquet
import pytest
from tests.integration.conftest import Begun
from tests.integration.test_adopt import DO_IT, lose_control_tables
from tests.kafka_faults import delete_records, plain_records, produce
from tests.quick_project import Killed, QuickProject

from kafka_ingest.control.gap_store import OutputStore
from kafka_ingest.sinks.parquet_contents import DataFile

EXECUTE = ("--execute", "--reason", "a disk died")
EVERY_RECORD = [(0, n) for n in range(10)] + [(1, n) for n in range(5)]


def begin(project: QuickProject, orders: str) -> None:
    """Read the topic in two live batches: 4 records of partition 0, then the rest of it and partition 1."""
    project.write_feed(orders)
    project.run("orders", "--end-offset", f"{orders}:0=4")
    project.run()
    assert project.positions() == EVERY_RECORD


@pytest.fixture
def feed(begun: Begun) -> QuickProject:
    return begun.project


def newest(project: QuickProject) -> str:
    """Return the id of the newest batch."""
    return str(project.batches()[0]["batch_id"])


def path_of(project: QuickProject, batch_id: str, partition: int = 0) -> Path:
    """Return the published file of a batch that has a partition's rows."""
    for path in sorted((project.output / "orders" / f"kafka_batch={batch_id}").iterdir()):
        rows = pyarrow.parquet.ParquetFile(path).read(columns=["kafka_partition"]).to_pydict()["kafka_partition"]
        if partition in rows:
            return path
    raise AssertionError(f"no file of partition {partition}")


def damage(path: Path) -> None:
    """Overwrite the middle of a file, as a bad disk does; its footer stays."""
    content = bytearray(path.read_bytes())
    content[len(content) // 4 : len(content) // 4 + 20] = b"\x00" * 20
    path.write_bytes(content)


def lost(project: QuickProject, batch_id: str, *options: str) -> dict[str, Any]:
    return project.answer("lost", "orders", "--batch", batch_id, *options)


def ranges(found: list[dict[str, Any]]) -> list[tuple[int, int, int]]:
    return [(each["partition"], each["start_offset"], each["end_offset"]) for each in found]


def assert_every_record_is_there_once(project: QuickProject) -> None:
    """Hold the output and the control tables against each other and against the topic."""
    assert project.positions() == EVERY_RECORD
    found = project.answer("coverage", "orders", "--verify")
    assert (found["accounted"], found["verified"]["differences"]) == (True, [])


def test_a_lost_file_becomes_a_gap_of_exactly_its_offsets_and_the_backfill_reads_it_once(feed: QuickProject) -> None:
    batch_id = newest(feed)
    path = path_of(feed, batch_id)
    path.unlink()
    shown = lost(feed, batch_id)
    assert (shown["executed"], ranges(shown["gaps"])) == (False, [(0, 4, 10)])
    assert feed.gaps() == [], "showing writes nothing"

    assert ranges(lost(feed, batch_id, *EXECUTE)["gaps"]) == [(0, 4, 10)]
    assert feed.gaps() == [(0, 4, 10, "output_lost", "open")]
    assert feed.stored_offsets()[0] == 10
    found = feed.answer("coverage", "orders", "--verify")
    assert (found["accounted"], found["verified"]["differences"]) == (True, [])
    again = lost(feed, batch_id, *EXECUTE)
    assert (again["files"], again["executed"]) == ([], False)

    feed.answer("backfill", "orders", "gaps")
    assert feed.gaps() == [(0, 4, 10, "output_lost", "closed")]
    assert_every_record_is_there_once(feed)
    located = feed.answer("locate", "orders", feed.answer("gaps", "orders")["gaps"][0]["topic"], "0", "5")
    assert [(each["kind"], each["record"]) for each in located["batches"]] == [
        ("backfill", "in_file"),
        ("live", "lost"),
    ]


def test_a_damaged_file_leaves_readers_sight_and_the_others_of_its_batch_stay(feed: QuickProject) -> None:
    batch_id = newest(feed)
    path = path_of(feed, batch_id)
    damage(path)
    shown = lost(feed, batch_id, *EXECUTE)
    assert (ranges(shown["gaps"]), shown["files"][0]["is_there"]) == ([(0, 4, 10)], True)
    assert not path.exists()
    aside = feed.output / "orders.kafka-ingest" / "lost" / batch_id / path.name
    assert aside.exists(), "it may still be repaired"
    assert feed.positions() == [(0, n) for n in range(4)] + [(1, n) for n in range(5)]
    feed.answer("backfill", "orders", "gaps")
    assert_every_record_is_there_once(feed)


def test_a_whole_batch_that_was_lost_is_read_again(feed: QuickProject) -> None:
    batch_id = newest(feed)
    shutil.rmtree(feed.output / "orders" / f"kafka_batch={batch_id}")
    assert ranges(lost(feed, batch_id, *EXECUTE)["gaps"]) == [(0, 4, 10), (1, 0, 5)]
    feed.answer("backfill", "orders", "gaps")
    assert_every_record_is_there_once(feed)


@pytest.mark.parametrize("is_read_again", [False, True])
def test_lost_control_tables_are_rebuilt_with_what_was_lost(
    feed: QuickProject, orders: str, servers: str, *, is_read_again: bool
) -> None:
    batch_id = newest(feed)
    damage(path_of(feed, batch_id))
    lost(feed, batch_id, *EXECUTE)
    if is_read_again:
        feed.answer("backfill", "orders", "gaps")
    produce(servers, orders, 1, plain_records(2))
    feed.run()
    known = feed.answer("coverage", "orders")["partitions"], feed.gaps()
    lose_control_tables(feed)
    feed.answer("adopt", "orders", *DO_IT)
    assert (feed.answer("coverage", "orders")["partitions"], feed.gaps()) == known
    feed.answer("backfill", "orders", "gaps")
    assert feed.positions() == [(0, n) for n in range(10)] + [(1, n) for n in range(7)]
    assert feed.answer("coverage", "orders", "--verify")["verified"]["differences"] == []


def test_a_crash_between_moving_a_damaged_file_and_writing_it_down_is_repaired_by_doing_it_again(
    feed: QuickProject,
) -> None:
    batch_id = newest(feed)
    damage(path_of(feed, batch_id))
    with patch.object(OutputStore, "record_lost", side_effect=Killed), pytest.raises(Killed):
        lost(feed, batch_id, *EXECUTE)
    assert feed.gaps() == []
    assert ranges(lost(feed, batch_id, *EXECUTE)["gaps"]) == [(0, 4, 10)]
    feed.answer("backfill", "orders", "gaps")
    assert_every_record_is_there_once(feed)


def test_what_kafka_forgot_stays_an_open_gap(feed: QuickProject, orders: str, servers: str) -> None:
    batch_id = newest(feed)
    path_of(feed, batch_id).unlink()
    lost(feed, batch_id, *EXECUTE)
    delete_records(servers, orders, 0, 7)
    assert feed.refusal("backfill", "orders", "gaps")[:2] == (3, "RECORDS_DELETED")
    feed.answer("backfill", "orders", "gaps", "--when", "missing=record_gap")
    assert [(gap[1], gap[2], gap[4]) for gap in feed.gaps()] == [(4, 7, "open"), (7, 10, "closed")]
    found = feed.answer("coverage", "orders", "--verify")
    assert (found["accounted"], found["verified"]["differences"]) == (True, [])


def test_a_batch_that_is_intact_has_lost_nothing_and_one_of_another_place_is_refused(feed: QuickProject) -> None:
    assert lost(feed, newest(feed), *EXECUTE)["files"] == []
    refused = feed.refusal("lost", "orders", "--batch", newest(feed), "--execute")
    assert refused[:2] == (2, "WRONG_USE")
    unknown = "01990000-0000-7000-8000-000000000001"
    assert feed.refusal("lost", "orders", "--batch", unknown)[:2] == (2, "UNKNOWN_BATCH")


def test_storage_that_is_away_is_not_taken_for_lost_files(feed: QuickProject) -> None:
    (feed.output / "orders").rename(feed.home / "away")
    (feed.output / "orders.kafka-ingest").rename(feed.home / "away.kafka-ingest")
    assert feed.refusal("lost", "orders", "--batch", newest(feed), *EXECUTE)[:2] == (1, "OUTPUT_UNAVAILABLE")
    assert feed.gaps() == []


def test_storage_of_an_output_that_was_left_behind_and_is_away_is_not_taken_for_lost_files(
    feed: QuickProject, orders: str, servers: str
) -> None:
    batch_id = newest(feed)
    feed.edit_feed(sink={"format": "parquet", "path": "elsewhere"})
    produce(servers, orders, 1, plain_records(2))
    feed.run()
    (feed.output / "orders").rename(feed.home / "away")
    (feed.output / "orders.kafka-ingest").rename(feed.home / "away.kafka-ingest")
    assert feed.refusal("lost", "orders", "--batch", batch_id, *EXECUTE)[:2] == (1, "OUTPUT_UNAVAILABLE")
    assert feed.gaps() == []


def test_where_other_files_lie_among_a_batchs_own_no_one_can_say_what_is_lost(feed: QuickProject) -> None:
    batch_id = newest(feed)
    path = path_of(feed, batch_id)
    path.rename(path.with_name("compacted.parquet"))
    exit_code, code, message = feed.refusal("lost", "orders", "--batch", batch_id, *EXECUTE)
    assert (exit_code, code) == (3, "OUTPUT_CONFLICT")
    assert "compacted.parquet" in message


def test_a_file_that_cannot_be_read_now_proves_nothing(feed: QuickProject) -> None:
    batch_id = newest(feed)
    with patch.object(DataFile, "contents", side_effect=OSError(5, "input/output error")):
        assert feed.refusal("lost", "orders", "--batch", batch_id, *EXECUTE)[:2] == (1, "OUTPUT_UNAVAILABLE")
    assert feed.gaps() == []
