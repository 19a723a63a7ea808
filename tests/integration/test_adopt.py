"""Control tables that are lost, old or another database: nothing is read twice, and the output restores the history."""

import json
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any
from unittest.mock import patch
from uuid import UUID

import pyarrow.parquet as pq
import pytest
import uuid6
from tests.integration.conftest import MoveGroup
from tests.kafka_faults import plain_records, produce
from tests.quick_project import Killed, QuickProject, spans

from kafka_ingest.sinks.kept_receipts import KeptReceipts
from kafka_ingest.sinks.parquet.publisher import ParquetPublisher

DO_IT = ("--execute", "--reason", "the disk died")


def lose_control_tables(quick: QuickProject) -> None:
    """Delete the control database and leave an empty one, as a new installation makes it."""
    for file in control_files(quick):
        file.unlink()
    quick.make_control_tables()


def control_files(quick: QuickProject) -> Iterator[Path]:
    """Return the database's file and what SQLite keeps beside it."""
    yield from quick.control_file.parent.glob(f"{quick.control_file.name}*")


def back_up(quick: QuickProject) -> Path:
    """Copy the control tables as they are now."""
    copy = quick.home / "backup.db"
    with closing(sqlite3.connect(quick.control_file)) as source, closing(sqlite3.connect(copy)) as target:
        source.backup(target)
    return copy


def restore(quick: QuickProject, copy: Path) -> None:
    """Put an older copy in the control tables' place."""
    for file in control_files(quick):
        file.unlink()
    shutil.copy(copy, quick.control_file)


def receipts(quick: QuickProject) -> list[Path]:
    """Return the published receipts, oldest first."""
    return sorted((quick.home / "output" / "orders.kafka-ingest" / "receipts").rglob("*.json"))


def what_is_known(quick: QuickProject) -> tuple[list[Any], list[Any], list[Any]]:
    """Return what adopting has to bring back: stored offsets with their history, batches, gaps."""
    partitions = [
        (entry["topic_id"], entry["partition"], entry["first_offset"], entry["stored_offset"], entry["rows"])
        for entry in quick.status()["partitions"]
    ]
    batches = [(batch["batch_id"], batch["state"], batch["rows"], batch["ranges"]) for batch in quick.batches()]
    return partitions, batches, quick.gaps()


def every_record_once(quick: QuickProject, counts: dict[int, int]) -> bool:
    """Whether the output holds each record of partitions that are so long, each once."""
    return quick.positions() == [(partition, n) for partition, count in counts.items() for n in range(count)]


# ── Lost ──────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_adopting_is_shown_first_and_then_every_record_is_read_once(
    quick: QuickProject, servers: str, orders: str
) -> None:
    quick.write_feed(orders)
    quick.run("orders", "--end-offset", f"{orders}:0=4")
    quick.run()
    known = what_is_known(quick)
    lose_control_tables(quick)

    shown = quick.answer("adopt", "orders")
    assert (shown["executed"], len(shown["batches"])) == (False, 2)
    assert [(row["partition"], row["stored_offset_now"], row["stored_offset"]) for row in shown["partitions"]] == [
        (0, None, 10),
        (1, None, 5),
        (2, None, 0),
    ]
    assert quick.status()["partitions"] == [], "showing writes nothing"

    quick.answer("adopt", "orders", *DO_IT)
    assert what_is_known(quick) == known
    produce(servers, orders, 0, plain_records(2))
    produce(servers, orders, 2, plain_records(3))
    [batch] = quick.run()
    assert batch["rows"] == 5
    assert every_record_once(quick, {0: 12, 1: 5, 2: 3})


@pytest.mark.usefixtures("servers")
def test_the_adopted_feed_is_the_same_feed_and_its_group_follows_again(
    quick: QuickProject, orders: str, move_group: MoveGroup
) -> None:
    group = f"{orders}-group"
    quick.write_feed(orders, kafka={"topics": [orders], "group": group})
    quick.run()
    feed_id = json.loads(receipts(quick)[0].read_text())["plan"]["feed"]["feed_id"]
    lose_control_tables(quick)
    move_group(group, orders, {0: 3})
    assert quick.answer("adopt", "orders")["feed_id"] == feed_id
    adopted = quick.answer("adopt", "orders", *DO_IT)
    assert (adopted["feed_id"], adopted["mirror_failure"]) == (feed_id, None)
    assert quick.group_offsets() == {0: 10, 1: 5, 2: 0}


def test_batches_are_restored_in_their_order_also_where_the_clock_went_back_between_them(
    quick: QuickProject, orders: str
) -> None:
    quick.write_feed(orders, limits={"max_records_per_partition": 4})
    quick.run()
    an_hour_ago = UUID(int=uuid6.uuid7().int - (3_600_000 << 80))
    with patch.object(uuid6, "uuid7", return_value=an_hour_ago):
        quick.run("orders", "--until-caught-up")
    known = what_is_known(quick)
    assert len(receipts(quick)) == 3
    lose_control_tables(quick)
    quick.answer("adopt", "orders", *DO_IT)
    assert what_is_known(quick) == known
    assert quick.run() == []
    assert every_record_once(quick, {0: 10, 1: 5})


# ── Restored from an older backup ─────────────────────────────────────────────────────────────────────────────────────


def test_a_written_batch_of_an_older_copy_that_was_published_since_is_not_published_twice(
    quick: QuickProject, orders: str
) -> None:
    quick.write_feed(orders)
    with quick.stopping_before_the_commit(), suppress(Killed):
        quick.kafka_ingest("run", "orders")
    older = back_up(quick)
    quick.run()
    restore(quick, older)
    quick.refusal("run", "orders")
    quick.answer("adopt", "orders", *DO_IT)
    assert quick.run() == []
    assert every_record_once(quick, {0: 10, 1: 5})


# ── What cannot be adopted ────────────────────────────────────────────────────────────────────────────────────────────


def test_tables_that_know_all_have_nothing_to_adopt_and_that_is_no_error(quick: QuickProject, orders: str) -> None:
    quick.write_feed(orders)
    quick.run()
    known = what_is_known(quick)
    for options in ((), DO_IT):
        answer = quick.answer("adopt", "orders", *options)
        assert (answer["nothing_new"], answer["executed"], answer["batches"]) == (True, False, [])
    assert what_is_known(quick) == known
    shown = quick.kafka_ingest("adopt", "orders")
    assert (shown.exit_code, shown.stdout) == (
        0,
        "nothing to adopt: the control tables know all 1 batch of the output\n",
    )


def test_adopting_needs_a_reason(quick: QuickProject, orders: str) -> None:
    quick.write_feed(orders)
    quick.run()
    lose_control_tables(quick)
    assert quick.refusal("adopt", "orders", "--execute")[:2] == (2, "WRONG_USE")
    assert quick.status()["partitions"] == []


@pytest.fixture
def three_batches(quick: QuickProject, orders: str) -> str:
    """Three published batches, and control tables that are lost."""
    quick.write_feed(orders, limits={"max_records": 5})
    quick.run("orders", "--until-caught-up")
    lose_control_tables(quick)
    assert len(receipts(quick)) == 3
    return orders


@pytest.mark.usefixtures("three_batches")
def test_a_missing_receipt_is_refused_and_put_back_it_is_adopted(quick: QuickProject) -> None:
    receipt = receipts(quick)[1]
    content = receipt.read_bytes()
    receipt.unlink()
    exit_code, code, message = quick.refusal("adopt", "orders", *DO_IT)
    assert (exit_code, code) == (3, "OUTPUT_CONFLICT")
    assert receipt.stem in message
    assert quick.status()["partitions"] == []

    receipt.write_bytes(content)
    quick.answer("adopt", "orders", *DO_IT)
    assert quick.stored_offsets() == {0: 10, 1: 5, 2: 0}


@pytest.mark.usefixtures("three_batches")
def test_a_damaged_receipt_is_refused(quick: QuickProject) -> None:
    receipts(quick)[1].write_text("{")
    exit_code, code, message = quick.refusal("adopt", "orders", *DO_IT)
    assert (exit_code, code) == (3, "OUTPUT_CONFLICT")
    assert receipts(quick)[1].name in message
    assert quick.status()["partitions"] == []


@pytest.mark.usefixtures("three_batches")
def test_a_batch_whose_files_are_gone_is_adopted_from_its_receipt_and_recorded_as_removed(quick: QuickProject) -> None:
    batch_id = receipts(quick)[1].stem
    shutil.rmtree(quick.output / "orders" / f"kafka_batch={batch_id}")
    shown = quick.answer("adopt", "orders")
    assert [(each["batch_id"], each["state"]) for each in shown["files"]] == [(batch_id, "gone")]
    assert f"kafka_batch={batch_id}" in shown["files"][0]["difference"]
    in_words = quick.kafka_ingest("adopt", "orders", COLUMNS="200")
    assert f"batch {batch_id}: its files are not in" in in_words.stderr
    assert "would be recorded as removed" in in_words.stderr

    quick.answer("adopt", "orders", *DO_IT)
    assert quick.stored_offsets() == {0: 10, 1: 5, 2: 0}
    assert quick.run() == []
    found = quick.answer("coverage", "orders", "--verify")
    assert (found["accounted"], found["verified"]["differences"], found["verified"]["removed_batches"]) == (True, [], 1)
    assert sum(partition["offsets"]["expired"] for partition in found["partitions"]) == 5

    lose_control_tables(quick)
    assert [each["state"] for each in quick.answer("adopt", "orders", *DO_IT)["files"]] == ["expired"]
    again = quick.answer("coverage", "orders", "--verify")
    assert again["partitions"] == found["partitions"]


@pytest.mark.usefixtures("three_batches")
def test_a_batch_whose_files_a_user_compacted_is_adopted_and_counted(quick: QuickProject) -> None:
    batch_id = receipts(quick)[-1].stem
    directory = quick.output / "orders" / f"kafka_batch={batch_id}"
    for path in list(directory.iterdir()):
        if pq.ParquetFile(path).metadata.num_rows:
            pq.write_table(pq.ParquetFile(path).read(), directory / f"compacted-{path.name}")
        path.unlink()
    answer = quick.answer("adopt", "orders", *DO_IT)
    assert [(each["batch_id"], each["state"]) for each in answer["files"]] == [(batch_id, "changed")]
    found = quick.answer("coverage", "orders", "--verify")
    assert (found["accounted"], found["verified"]["differences"], found["verified"]["rows"]) == (True, [], 15)


def test_a_batch_whose_publishing_ended_half_way_is_published_by_adopting_and_not_taken_for_removed(
    quick: QuickProject, orders: str
) -> None:
    quick.write_feed(orders)
    with patch.object(ParquetPublisher, "_move", side_effect=Killed), suppress(Killed):
        quick.kafka_ingest("run", "orders")
    assert quick.positions() == []
    lose_control_tables(quick)
    assert [each["state"] for each in quick.answer("adopt", "orders")["files"]] == ["staged"]
    assert quick.positions() == [], "showing publishes nothing"

    quick.answer("adopt", "orders", *DO_IT)
    assert quick.run() == []
    assert every_record_once(quick, {0: 10, 1: 5})


def test_a_batch_whose_abandoning_ended_half_way_stays_abandoned(quick: QuickProject, orders: str) -> None:
    quick.write_feed(orders)
    with patch.object(ParquetPublisher, "_move", side_effect=Killed), suppress(Killed):
        quick.kafka_ingest("run", "orders")
    [batch] = quick.batches()
    with patch.object(KeptReceipts, "withdraw", side_effect=Killed), suppress(Killed):
        quick.kafka_ingest("abandon", batch["batch_id"], "--reason", "not wanted")
    lose_control_tables(quick)
    assert quick.refusal("adopt", "orders", *DO_IT)[:2] == (2, "NOTHING_TO_ADOPT")


def test_the_output_of_another_feed_is_not_adopted(quick: QuickProject, orders: str) -> None:
    quick.write_feed(orders)
    quick.run()
    (quick.feeds / "orders.yaml").unlink()
    quick.write_feed(orders, name="sales", sink={"format": "parquet", "path": "orders"})
    exit_code, code, message = quick.refusal("adopt", "sales")
    assert (exit_code, code) == (3, "OUTPUT_CONFLICT")
    assert "`kafka-ingest rename-feed orders sales --reason …`" in message
    quick.answer("rename-feed", "orders", "sales", "--reason", "a better name")
    assert quick.run("sales") == []


def test_a_feed_that_is_known_does_not_take_over_what_another_one_wrote(quick: QuickProject, orders: str) -> None:
    quick.write_feed(orders)
    quick.run()
    quick.write_feed(orders, name="sales")
    quick.plan(name="sales")
    for suffix in ("", ".kafka-ingest"):
        shutil.move(quick.output / f"orders{suffix}", quick.output / f"elsewhere{suffix}")
    quick.edit_feed("sales", sink={"format": "parquet", "path": "elsewhere"})
    exit_code, code, _ = quick.refusal("adopt", "sales")
    assert (exit_code, code) == (3, "OUTPUT_CONFLICT")
    assert quick.refusal("plan", "orders", "--dry-run")[:2] == (1, "OUTPUT_UNAVAILABLE")
    for suffix in ("", ".kafka-ingest"):
        shutil.move(quick.output / f"elsewhere{suffix}", quick.output / f"orders{suffix}")
    assert spans(quick.dry_run(name="orders")) == {}
