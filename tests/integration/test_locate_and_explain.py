"""`locate`: which run ingested an offset, and into which file.

`explain`: which offsets are in a file, and whose it is.
"""

import shutil
from pathlib import Path
from typing import Any

import pyarrow.parquet
import pytest
from tests.integration.test_adopt import lose_control_tables
from tests.kafka_faults import (
    aborted_transaction,
    create_topic,
    delete_topic,
    plain_records,
    produce,
    recreate_topic,
)
from tests.quick_project import Killed, QuickProject

BECAUSE = ("--reason", "poisoned by a broken producer")


@pytest.fixture
def feed(quick: QuickProject, orders: str) -> QuickProject:
    quick.write_feed(orders)
    return quick


def located(quick: QuickProject, topic: str, partition: int, offset: int) -> dict[str, Any]:
    return quick.answer("locate", "orders", topic, str(partition), str(offset))


def explained(quick: QuickProject, file: Path) -> dict[str, Any]:
    return quick.answer("explain", str(file))


def files(quick: QuickProject) -> list[Path]:
    return sorted((quick.output / "orders").rglob("*.parquet"))


def offsets_in(file: Path) -> list[tuple[int, int]]:
    """Return partition and offset of a file's rows, read past the command line."""
    with pyarrow.parquet.ParquetFile(file) as opened:
        rows = opened.read(["kafka_partition", "kafka_offset"]).to_pylist()
    return [(row["kafka_partition"], row["kafka_offset"]) for row in rows]


def files_found(found: dict[str, Any]) -> list[tuple[str, bool | None]]:
    """Return the files of all batches, and whether each holds the record."""
    return [(file["path"], file["holds_record"]) for batch in found["batches"] for file in batch["files"] or []]


# ── An offset that was ingested ───────────────────────────────────────────────────────────────────────────────────────


def test_every_record_is_located_in_the_file_that_holds_it_and_in_the_batch_that_committed_it(
    feed: QuickProject, orders: str
) -> None:
    batches = feed.run("orders", "--max-records", "6", "--until-caught-up")
    batches += feed.run()
    assert len(batches) > 1
    holding = {position: file for file in files(feed) for position in offsets_in(file)}
    assert len(holding) == 15

    for (partition, offset), file in holding.items():
        found = located(feed, orders, partition, offset)
        assert found["state"] == "committed"
        [batch] = found["batches"]
        assert files_found(found) == [(str(file), True)]
        assert batch["record"] == "in_file"
        assert batch["batch_id"] == file.parent.name.removeprefix("kafka_batch=")
        assert (batch["kind"], batch["state"], batch["earlier_topic"]) == ("live", "COMMITTED", False)
        assert batch["start_offset"] <= offset < batch["end_offset"]


def test_the_answer_names_who_planned_and_committed_it_and_when(feed: QuickProject, orders: str) -> None:
    feed.run()
    [listed] = feed.batches()
    found = located(feed, orders, 0, 3)
    [batch] = found["batches"]
    for key in ("batch_id", "planned_at", "planned_by", "committed_at", "committed_by", "output"):
        assert batch[key] == listed[key]
    assert (found["first_offset"], found["stored_offset"], found["gap"]) == (0, 10, None)
    shown = feed.kafka_ingest("locate", "orders", orders, "0", "3").stdout
    assert f"{orders}-0 offset 3: committed with live batch {batch['batch_id']}" in shown
    assert f"{batch['files'][0]['path']}: holds it" in shown


def test_an_offset_without_a_record_is_reported_as_such(quick: QuickProject, servers: str, name: str) -> None:
    create_topic(servers, name, 1)
    produce(servers, name, 0, plain_records(3))
    aborted_transaction(servers, name, 0, plain_records(2))
    produce(servers, name, 0, plain_records(1))
    quick.write_feed(name)
    quick.run()
    assert [offset for _, offset in quick.positions()] == [0, 1, 2, 6]

    for offset in (3, 4, 5):
        found = located(quick, name, 0, offset)
        assert (found["state"], found["batches"][0]["record"]) == ("committed", "none")
        assert files_found(found) == [(str(files(quick)[0]), False)]
    shown = quick.kafka_ingest("locate", "orders", name, "0", "3").stdout
    assert "no record at this offset: compacted, aborted, a transaction marker" in shown


# ── An offset that was not ────────────────────────────────────────────────────────────────────────────────────────────


def test_what_is_pending_passed_over_ahead_and_not_read_yet_is_distinguished(feed: QuickProject, orders: str) -> None:
    feed.run("orders", "--end-offset", f"{orders}:0=2")
    feed.answer("skip", "orders", orders, "0", "2-4", *BECAUSE)
    feed.answer("skip", "orders", orders, "0", "8-9", *BECAUSE)
    abandoned = feed.plan()["batch_id"]
    feed.answer("abandon", abandoned, *BECAUSE)
    planned = feed.plan("--end-offset", f"{orders}:0=6")["batch_id"]

    states = [located(feed, orders, 0, offset)["state"] for offset in range(11)]
    assert states == [
        *["committed"] * 2,
        *["gap"] * 2,
        *["pending"] * 2,
        *["not_read_yet"] * 2,
        "gap",
        *["not_read_yet"] * 2,
    ]
    pending = located(feed, orders, 0, 5)
    assert [(batch["batch_id"], batch["state"]) for batch in pending["batches"]] == [
        (planned, "PLANNED"),
        (abandoned, "ABANDONED"),
    ]
    assert [batch["files"] for batch in pending["batches"]] == [None, None]
    passed, ahead = (located(feed, orders, 0, offset)["gap"] for offset in (3, 8))
    assert (passed["state"], passed["cause"], passed["reason"]) == ("open", "skipped", BECAUSE[1])
    assert (ahead["state"], ahead["start_offset"], ahead["end_offset"]) == ("ahead", 8, 9)
    assert located(feed, orders, 0, 7)["stored_offset"] == 4
    assert located(feed, orders, 2, 0)["state"] == "not_read_yet"


SENTENCES: list[tuple[str, str]] = [
    ("1", "committed with live batch"),
    ("3", "not ingested: gap"),
    ("5", "is PLANNED"),
    ("8", "will not be ingested once the stored offset gets there: gap"),
    ("9", "not read yet: the stored offset is 4"),
]


def test_each_state_is_said_in_a_sentence(feed: QuickProject, orders: str) -> None:
    feed.run("orders", "--end-offset", f"{orders}:0=2")
    feed.answer("skip", "orders", orders, "0", "2-4", *BECAUSE)
    feed.answer("skip", "orders", orders, "0", "8-9", *BECAUSE)
    feed.plan("--end-offset", f"{orders}:0=6")
    for offset, said in SENTENCES:
        first_line = feed.kafka_ingest("locate", "orders", orders, "0", offset).stdout.splitlines()[0]
        assert first_line.startswith(f"{orders}-0 offset {offset}: "), offset
        assert said in first_line, offset


def test_what_lies_before_the_feeds_first_offset_is_reported(feed: QuickProject, orders: str) -> None:
    feed.edit_feed(start="latest")
    feed.plan()
    found = located(feed, orders, 0, 9)
    assert (found["state"], found["first_offset"], found["seeded_by"]) == ("before_first", 10, "latest")
    said = feed.kafka_ingest("locate", "orders", orders, "0", "9").stdout
    assert "before the feed's first offset 10 (start rule latest)" in said


# ── Backfills, copies and resets ──────────────────────────────────────────────────────────────────────────────────────


def test_a_backfill_ingests_an_offset_and_a_copy_into_another_output_does_not(feed: QuickProject, orders: str) -> None:
    feed.run("orders", "--end-offset", f"{orders}:0=4")
    feed.answer("skip", "orders", orders, "0", "4-8", *BECAUSE)
    feed.run()
    feed.answer("backfill", "orders", f"{orders}:0=5-7", *BECAUSE)
    feed.answer("backfill", "orders", f"{orders}:0=4-6", "--copy-to", str(feed.home / "copies"), *BECAUSE)

    copied, both, filled, skipped = (located(feed, orders, 0, offset) for offset in (4, 5, 6, 7))
    assert [found["state"] for found in (copied, both, filled, skipped)] == ["gap", "committed", "committed", "gap"]
    assert [batch["kind"] for batch in both["batches"]] == ["copy", "backfill"]
    assert [batch["record"] for batch in both["batches"]] == ["in_file", "in_file"]
    assert [batch["kind"] for batch in copied["batches"]] == ["copy"]
    assert (filled["gap"]["state"], filled["gap"]["closed_by_batch"]) == ("closed", filled["batches"][0]["batch_id"])
    assert Path(files_found(copied)[0][0]).is_relative_to(feed.home / "copies")
    assert explained(feed, Path(files_found(copied)[0][0]))["batch"]["kind"] == "copy"


def test_an_offset_that_is_read_again_is_in_both_batches(feed: QuickProject, orders: str) -> None:
    feed.run()
    feed.answer("reset", "orders", "--to", f"offsets={orders}:0=6", "--execute", *BECAUSE)
    before = feed.kafka_ingest("locate", "orders", orders, "0", "8").stdout
    assert "the stored offset went back to 6, so it is read again" in before
    feed.run()
    again, once = (located(feed, orders, 0, offset) for offset in (8, 5))
    assert [batch["start_offset"] for batch in again["batches"]] == [6, 0]
    assert [holds for _, holds in files_found(again)] == [True, True]
    assert len(once["batches"]) == 1


# ── A topic that was made again, or is gone ───────────────────────────────────────────────────────────────────────────


def test_a_batch_of_an_earlier_topic_of_that_name_is_marked_and_does_not_count(
    feed: QuickProject, servers: str, orders: str
) -> None:
    feed.run()
    earlier_id = feed.partition(0)["topic_id"]
    recreate_topic(servers, orders, partitions=3)
    produce(servers, orders, 0, plain_records(2))
    feed.answer("topic-changed", "orders", "--choice", "start-over", "--execute", *BECAUSE)
    assert located(feed, orders, 0, 1)["state"] == "not_read_yet"
    feed.run()

    both, only_earlier = (located(feed, orders, 0, offset) for offset in (1, 7))
    assert [(batch["earlier_topic"], batch["topic_id"]) for batch in both["batches"]] == [
        (False, both["topic_id"]),
        (True, earlier_id),
    ]
    assert (both["state"], len(files_found(both))) == ("committed", 2)
    assert (only_earlier["state"], files_found(only_earlier)[0][1]) == ("not_read_yet", True)
    shown = feed.kafka_ingest("locate", "orders", orders, "0", "7").stdout
    assert f"{earlier_id}, an earlier topic of that name" in shown


def test_of_a_topic_that_was_forgotten_the_batches_are_still_shown(
    feed: QuickProject, servers: str, orders: str
) -> None:
    feed.run()
    delete_topic(servers, orders)
    feed.answer("topic-changed", "orders", "--choice", "forget", "--execute", *BECAUSE)
    found = located(feed, orders, 0, 7)
    assert (found["state"], found["stored_offset"]) == ("forgotten", None)
    assert files_found(found)[0][1] is True
    assert feed.refusal("locate", "orders", orders, "0", "70")[:2] == (2, "WRONG_USE")


# ── Where the output is not what it was ───────────────────────────────────────────────────────────────────────────────


def test_with_the_outputs_storage_away_the_rest_of_the_answer_stands(feed: QuickProject, orders: str) -> None:
    [batch] = feed.run()
    feed.output.rename(feed.output.with_name("away"))
    found = located(feed, orders, 0, 3)
    [found_one] = found["batches"]
    assert (found["state"], found_one["batch_id"], found_one["record"], found_one["files"]) == (
        "committed",
        batch["batch_id"],
        "not_known",
        None,
    )
    assert "is its storage mounted?" in found_one["problem"]
    assert "is its storage mounted?" in feed.kafka_ingest("locate", "orders", orders, "0", "3").stdout


def test_a_file_that_was_removed_or_damaged_is_named_with_what_is_wrong(feed: QuickProject, orders: str) -> None:
    feed.run()
    of_partition = {offsets_in(file)[0][0]: file for file in files(feed)}
    of_partition[0].unlink()
    of_partition[1].write_bytes(b"no more")
    for partition, problem in ((0, "file not found"), (1, "found a damaged one")):
        found = located(feed, orders, partition, 3)
        [found_one] = found["batches"][0]["files"]
        assert (found_one["path"], found_one["holds_record"]) == (str(of_partition[partition]), None)
        assert problem in found_one["problem"]
        assert (found["state"], found["batches"][0]["record"]) == ("committed", "not_known")


def test_after_the_output_moved_each_offset_is_located_in_the_output_of_its_time(
    feed: QuickProject, orders: str
) -> None:
    feed.run("orders", "--end-offset", f"{orders}:0=4")
    feed.edit_feed(sink={"format": "parquet", "path": "elsewhere"})
    feed.run()
    outputs = [located(feed, orders, 0, offset)["batches"][0] for offset in (3, 4)]
    assert [batch["output"] for batch in outputs] == [str(feed.output / "orders"), str(feed.output / "elsewhere")]
    assert [batch["record"] for batch in outputs] == ["in_file", "in_file"]


# ── Wrong use of locate ───────────────────────────────────────────────────────────────────────────────────────────────


NOT_THERE: list[tuple[tuple[str, ...], str, str]] = [
    (("orders", "refunds", "0", "3"), "WRONG_USE", "(partitions 0 to 2); found refunds-0"),
    (("orders", "{topic}", "3", "3"), "WRONG_USE", "(partitions 0 to 2); found {topic}-3"),
    (("nobody", "{topic}", "0", "3"), "UNKNOWN_FEED", "found 'nobody'"),
]


def test_what_the_feed_does_not_have_is_refused_with_what_it_has(feed: QuickProject, orders: str) -> None:
    feed.plan()
    for arguments, code, said in NOT_THERE:
        exit_code, found, message = feed.refusal("locate", *(argument.format(topic=orders) for argument in arguments))
        assert (exit_code, found) == (2, code), arguments
        assert said.format(topic=orders) in message, arguments


NO_OFFSETS: list[str] = ["-1", "latest", "1.5", str(2**63), ""]


def test_an_offset_that_none_can_be_is_refused(feed: QuickProject, orders: str) -> None:
    feed.plan()
    for offset in NO_OFFSETS:
        assert feed.kafka_ingest("locate", "orders", orders, "0", "--", offset).exit_code == 2, offset


# ── A file, explained ─────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_published_file_is_explained_by_what_is_in_it_and_by_its_batch(feed: QuickProject, orders: str) -> None:
    feed.run("orders", "--end-offset", f"{orders}:0=4")
    [listed] = feed.batches()
    [file] = files(feed)

    found = explained(feed, file)
    assert (found["topic"], found["partition"], found["rows"]) == (orders, 0, 4)
    assert (found["smallest_offset"], found["largest_offset"]) == (0, 3)
    assert found["intervals"] == [{"start_offset": 0, "end_offset": 4}]
    assert (found["file"], found["size_bytes"], found["published"]) == (str(file), file.stat().st_size, True)
    assert {"name": "kafka_offset", "type": "int64"} in found["columns"]
    batch = found["batch"]
    assert (batch["feed"], batch["kind"], batch["state"]) == ("orders", "live", "COMMITTED")
    assert (batch["start_offset"], batch["end_offset"]) == (0, 4)
    for key in ("batch_id", "planned_by", "committed_by", "committed_at", "output"):
        assert batch[key] == listed[key]
    assert (found["receipt"], found["receipt_problem"], found["control_tables"]) == ({"differences": []}, None, None)
    shown = feed.kafka_ingest("explain", str(file)).stdout
    assert "it matches its receipt" in shown
    assert f"{orders}-0[0, 4)" in shown


def test_offsets_without_a_record_are_left_out_of_the_intervals(quick: QuickProject, servers: str, name: str) -> None:
    create_topic(servers, name, 1)
    for _ in range(25):
        aborted_transaction(servers, name, 0, plain_records(1))
        produce(servers, name, 0, plain_records(1))
    quick.write_feed(name)
    quick.run()
    [file] = files(quick)
    held = [offset for _, offset in offsets_in(file)]

    found = explained(quick, file)
    assert (found["interval_count"], found["rows"]) == (25, 25)
    assert [entry["start_offset"] for entry in found["intervals"]] == held
    shown = quick.kafka_ingest("explain", str(file)).stdout
    assert "and 5 more" in " ".join(shown.split())


def test_a_file_is_found_by_a_relative_path_and_through_links(
    feed: QuickProject, orders: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    feed.run("orders", "--end-offset", f"{orders}:0=4")
    [file] = files(feed)
    linked = feed.home / "linked.parquet"
    linked.symlink_to(file)
    (feed.home / "lake").symlink_to(feed.output)
    monkeypatch.chdir(file.parent)

    relative, through_link, through_folder = (
        explained(feed, path)
        for path in (
            Path(file.name),
            linked,
            feed.home / "lake" / file.relative_to(feed.output),
        )
    )
    assert relative == through_link == through_folder
    assert relative["file"] == str(file)


def test_a_file_that_is_itself_a_link_to_colder_storage_is_still_its_batchs(feed: QuickProject, orders: str) -> None:
    feed.run("orders", "--end-offset", f"{orders}:0=4")
    [file] = files(feed)
    cold = feed.home / "cold.parquet"
    file.rename(cold)
    file.symlink_to(cold)
    found = explained(feed, file)
    assert (found["file"], found["receipt"]) == (str(file), {"differences": []})


def test_a_staged_file_is_explained_by_its_attempt(feed: QuickProject, orders: str) -> None:
    with feed.stopping_before_the_commit(), pytest.raises(Killed):
        feed.kafka_ingest("run", "orders", "--end-offset", f"{orders}:0=4")
    [file] = (feed.output / "orders.kafka-ingest" / "staging").rglob("*.parquet")
    found = explained(feed, file)
    assert (found["published"], found["attempt"], found["rows"]) == (False, 1, 4)
    assert (found["batch"]["state"], found["batch"]["attempt_state"]) == ("WRITTEN", "PINNED")
    assert found["receipt"] == {"differences": []}

    (file.parents[1] / "receipt.json").unlink()
    found = explained(feed, file)
    assert (found["receipt"], "attempt 1 has written no receipt" in found["receipt_problem"]) == (None, True)


# ── A file that is not what its receipt says ──────────────────────────────────────────────────────────────────────────


def test_a_file_that_was_written_again_differs_from_its_receipt(feed: QuickProject, orders: str) -> None:
    feed.run("orders", "--end-offset", f"{orders}:0=4")
    [file] = files(feed)
    with pyarrow.parquet.ParquetFile(file) as opened:
        rows = opened.read()
    pyarrow.parquet.write_table(rows.slice(1), file)
    added = file.with_name("added.parquet")
    shutil.copy(file, added)

    assert [text.partition(":")[0] for text in explained(feed, file)["receipt"]["differences"]] == [
        "bytes",
        "rows",
        "smallest offset",
    ]
    assert "rows: the receipt says 4, found 3" in explained(feed, file)["receipt"]["differences"]
    assert explained(feed, added)["receipt"]["differences"] == [
        f"the receipt names no file added.parquet, but {file.name}"
    ]
    assert "it differs from its receipt" in feed.kafka_ingest("explain", str(file)).stdout


def test_a_copy_of_an_output_is_distinguished_from_the_output(feed: QuickProject, orders: str) -> None:
    feed.run("orders", "--end-offset", f"{orders}:0=4")
    [file] = files(feed)
    copied = feed.home / "copied"
    shutil.copytree(feed.output / "orders", copied)
    [difference] = explained(feed, copied / file.relative_to(feed.output / "orders"))["receipt"]["differences"]
    assert difference.endswith(f"the file is in {copied}: a copy, or moved")


def test_without_its_receipt_a_file_is_reported_and_that_it_cannot_be_compared(feed: QuickProject, orders: str) -> None:
    [batch] = feed.run("orders", "--end-offset", f"{orders}:0=4")
    [kept] = (feed.output / "orders.kafka-ingest" / "receipts").rglob(f"{batch['batch_id']}.json")
    kept.unlink()
    found = explained(feed, files(feed)[0])
    assert (found["rows"], found["receipt"]) == (4, None)
    assert f"expected the receipt of batch {batch['batch_id']}" in found["receipt_problem"]


# ── Without control tables, or with others ────────────────────────────────────────────────────────────────────────────


def test_without_control_tables_what_is_in_the_file_is_reported_all_the_same(feed: QuickProject, orders: str) -> None:
    [batch] = feed.run("orders", "--end-offset", f"{orders}:0=4")
    [file] = files(feed)
    for name in feed.control_file.parent.glob(f"{feed.control_file.name}*"):
        name.unlink()

    answer = feed.kafka_ingest("explain", str(file), "--json")
    assert answer.exit_code == 1
    found = answer.document
    assert (found["batch_id"], found["rows"], found["largest_offset"]) == (batch["batch_id"], 4, 3)
    assert (found["batch"], found["control_tables"]["error"]["code"]) == (None, "CONTROL_SCHEMA")
    assert found["receipt"] == {"differences": []}
    shown = feed.kafka_ingest("explain", str(file))
    assert (shown.exit_code, "CONTROL_SCHEMA" in shown.stderr, orders in shown.stdout) == (1, True, True)


def test_a_batch_that_the_control_tables_do_not_know_is_said_and_is_no_failure(feed: QuickProject, orders: str) -> None:
    feed.run("orders", "--end-offset", f"{orders}:0=4")
    [file] = files(feed)
    lose_control_tables(feed)
    found = explained(feed, file)
    assert (found["batch"], found["control_tables"], found["rows"]) == (None, None, 4)
    assert "the control tables know no batch" in feed.kafka_ingest("explain", str(file)).stderr


# ── What is no data file ──────────────────────────────────────────────────────────────────────────────────────────────


def test_a_file_in_an_object_store_is_refused_with_the_command_that_answers_there(quick: QuickProject) -> None:
    exit_code, code, message = quick.refusal("explain", "s3://lake/orders/batches/1/1/part-0.parquet")
    assert (exit_code, code) == (2, "WRONG_USE")
    assert "expected a file on a local or mounted disk, found s3://lake/" in message
    assert "`kafka-ingest locate FEED TOPIC PARTITION OFFSET`" in message


def test_what_is_no_data_file_is_refused_with_what_was_expected(feed: QuickProject, orders: str) -> None:
    feed.run("orders", "--end-offset", f"{orders}:0=4")
    [file] = files(feed)
    text = file.with_name("notes.txt")
    text.write_text("not Parquet")
    stray = feed.home / "stray.parquet"
    shutil.copy(file, stray)
    for path, said in (
        (feed.home / "absent.parquet", "found nothing at"),
        (file.parent, "which is not a file"),
        (text, "expected a data file of this project, found a damaged one, or another"),
        (stray, "OUTPUT/kafka_batch=<batch>/<file>"),
    ):
        exit_code, code, message = feed.refusal("explain", str(path))
        assert (exit_code, code) == (2, "NOT_A_DATA_FILE")
        assert said in message
        assert str(path) in message
