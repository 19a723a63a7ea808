"""The log of a Delta table as a commit reads and writes it, against the library and other readers."""

import json
import os
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow.parquet
import pytest
from deltalake import DeltaTable
from tests.contract.builders import batch_id_of
from tests.contract.sink_outputs import DeltaOutput, plan_to, publish, rows_of, written

from kafka_ingest.errors import OutputNotUsableError, OutputUnavailableError
from kafka_ingest.sinks.delta import add_actions, log_reading, table_log
from kafka_ingest.sinks.delta.log_entry import AddedFile, entry_name, write_entry
from kafka_ingest.sinks.delta.log_reading import LogReading
from kafka_ingest.sinks.delta.table_fit import FileStatistics, form_of
from kafka_ingest.sinks.delta.table_log import TableLog
from kafka_ingest.sinks.delta.table_rows import DeltaRows
from kafka_ingest.sinks.tables.table_format import Mark, Outcome

BEFORE, AFTER = (1, 2, 3), (4, 5)
"""The batches before and after a checkpoint."""


@pytest.fixture
def output(tmp_path: Path) -> DeltaOutput:
    made = DeltaOutput(tmp_path / "orders")
    made.sink.publisher.prepare()
    return made


def log_of(output: DeltaOutput) -> Path:
    return output.path / "_delta_log"


def table(output: DeltaOutput) -> DeltaTable:
    return DeltaTable(str(output.path))


@pytest.mark.parametrize(
    "path", ["/etc/passwd", "file:///etc/passwd", "s3://other/x.parquet", "../orders-of-others/x.parquet", "a%2F..%2Fx"]
)
def test_a_file_that_the_log_names_outside_of_the_table_is_neither_read_nor_counted(
    output: DeltaOutput, path: str
) -> None:
    batch = plan_to(output, 1)
    publish(output, batch)
    add = {"path": path, "size": 7, "partitionValues": {}, "modificationTime": 1, "dataChange": True, "stats": None}
    (log_of(output) / entry_name(2)).write_text(json.dumps({"add": add}))

    rows, log = DeltaRows(TableLog(output.path)), TableLog(output.path)
    for ask in (lambda: rows.visible({batch.batch_id}), lambda: log.delete_rows(batch.batch_id)):
        with pytest.raises(OutputNotUsableError, match="expected files below the Delta table, found "):
            ask()


def a_link_to_the_log(output: DeltaOutput, elsewhere: Path) -> None:
    log_of(output).rename(elsewhere / "log")
    log_of(output).symlink_to(elsewhere / "log")


def a_link_to_an_entry(output: DeltaOutput, elsewhere: Path) -> None:
    entry = log_of(output) / entry_name(1)
    entry.rename(elsewhere / "entry")
    entry.symlink_to(elsewhere / "entry")


def a_link_to_a_checkpoint(output: DeltaOutput, elsewhere: Path) -> None:
    table(output).create_checkpoint()
    [checkpoint] = log_of(output).glob("*.checkpoint.parquet")
    checkpoint.rename(elsewhere / "checkpoint")
    checkpoint.symlink_to(elsewhere / "checkpoint")


def a_pipe(output: DeltaOutput, _elsewhere: Path) -> None:
    os.mkfifo(log_of(output) / entry_name(2))


@pytest.mark.parametrize("change", [a_link_to_the_log, a_link_to_an_entry, a_link_to_a_checkpoint, a_pipe])
def test_a_log_that_is_elsewhere_or_nothing_that_ends_is_not_read(
    output: DeltaOutput, tmp_path: Path, change: Callable[[DeltaOutput, Path], None]
) -> None:
    publish(output, plan_to(output, 1))
    (elsewhere := tmp_path / "elsewhere").mkdir()
    change(output, elsewhere)
    for ask in (TableLog(output.path).open, TableLog(output.path).check_writable):
        with pytest.raises(OutputUnavailableError, match=r"expected (no symbolic link|a file).*No offset was moved"):
            ask()


def test_the_rows_of_a_batch_are_not_deleted_through_a_link_to_another_file(output: DeltaOutput) -> None:
    first, second = plan_to(output, 1), plan_to(output, 2)
    publish(output, first)
    publish(output, second)
    file, *_ = (output.path / "batches" / str(first.batch_id)).rglob("*.parquet")
    other, *_ = (output.path / "batches" / str(second.batch_id)).rglob("*.parquet")
    file.unlink()
    file.symlink_to(other)
    with pytest.raises(OSError, match="expected no symbolic link below"):
        TableLog(output.path).delete_rows(first.batch_id)
    assert table(output).version() == 2


# ── Reading ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def in_two_parts(log: Path) -> None:
    """Write the newest checkpoint as two files, as Spark does with large ones."""
    [whole] = log.glob("*.checkpoint.parquet")
    rows, name = pyarrow.parquet.read_table(whole), whole.name.partition(".")[0]
    whole.unlink()
    for part in (1, 2):
        half = rows.slice(0, 2) if part == 1 else rows.slice(2)
        pyarrow.parquet.write_table(half, log / f"{name}.checkpoint.{part:010}.{2:010}.parquet")


def a_part_of_another(log: Path) -> None:
    """Leave a part of a newer checkpoint whose other part is missing, and of the same one."""
    for version in (4, 5):
        (log / f"{version:020}.checkpoint.{1:010}.{2:010}.parquet").write_bytes(b"none")
    (log / "_last_checkpoint").unlink()


def clean_up(log: Path) -> None:
    """Delete the entries that the checkpoint sums up."""
    for version in range(len(BEFORE) + 1):
        (log / f"{version:020}.json").unlink()


def hint_elsewhere(log: Path) -> None:
    """Note a checkpoint that is gone."""
    (log / "_last_checkpoint").write_text('{"version": 6, "size": 9}')


def litter(log: Path) -> None:
    """Leave what other writers and file systems leave in a log."""
    for name in (f"{9:020}.json#1", f"{5:020}.crc", f".{9:020}.json.crc", "0.compacted.json", f"{1:020}.json.tmp"):
        (log / name).write_bytes(b"none of ours")


LOGS: dict[str, list[Callable[[Path], object]]] = {
    "a checkpoint and entries": [],
    "cleaned up": [clean_up],
    "in two parts": [clean_up, in_two_parts],
    "a part without the other": [clean_up, a_part_of_another],
    "no note of the checkpoint": [clean_up, lambda log: (log / "_last_checkpoint").unlink()],
    "a note of one that is gone": [clean_up, hint_elsewhere],
    "a damaged note": [clean_up, lambda log: (log / "_last_checkpoint").write_bytes(b"")],
    "entries only": [lambda log: [path.unlink() for path in (*log.glob("*.parquet"), log / "_last_checkpoint")]],
    "litter": [litter],
}


@pytest.mark.parametrize("changes", LOGS.values(), ids=LOGS.keys())
def test_a_log_says_what_the_library_reads_from_it(
    output: DeltaOutput, changes: list[Callable[[Path], object]]
) -> None:
    for number in BEFORE:
        publish(output, plan_to(output, number))
    table(output).alter.set_table_properties({"delta.logRetentionDuration": "interval 90 days"})
    table(output).create_checkpoint()
    for number in AFTER:
        publish(output, plan_to(output, number))
    directory, published = written(output, plan_to(output, 6))
    output.sink.publisher.revoke(directory, published.plan.batch_id)
    ids = [str(batch_id_of(number)) for number in (*BEFORE, *AFTER, 6, 7)]
    expected = table(output)
    transactions = [expected.transaction_version(batch_id) for batch_id in ids]
    for change in changes:
        change(log_of(output))
    found = LogReading.of(log_of(output))
    assert found is not None
    assert (found.version, found.form) == (expected.version(), form_of(expected))
    assert [found.transaction_version(batch_id) for batch_id in ids] == transactions == [1, 1, 1, 1, 1, 2, None]


def test_a_reading_follows_what_others_commit(output: DeltaOutput) -> None:
    publish(output, plan_to(output, 1))
    found = LogReading.of(log_of(output))
    assert found is not None
    publish(output, plan_to(output, 2))
    table(output).alter.set_table_properties({"delta.appendOnly": "true"})
    assert found.transaction_version(str(batch_id_of(2))) is None
    found.update()
    assert found.transaction_version(str(batch_id_of(2))) == 1
    assert (found.version, found.form) == (3, form_of(table(output)))


@pytest.mark.parametrize("checkpoint", [None, 1])
def test_an_entry_that_is_missing_stops_the_commit(output: DeltaOutput, checkpoint: int | None) -> None:
    publish(output, plan_to(output, 1))
    if checkpoint is not None:
        table(output).create_checkpoint()
    for number in (2, 3):
        publish(output, plan_to(output, number))
    missing = log_of(output) / entry_name(2)
    missing.unlink()
    directory, published = written(output, plan_to(output, 4))
    for step in (
        lambda: output.sink.publisher.publish(directory, published),
        lambda: output.sink.publisher.revoke(directory, batch_id_of(2)),
    ):
        with pytest.raises(OutputUnavailableError, match=f"{missing.name}.*No offset was moved"):
            step()
    assert not missing.exists()


def expire_the_log(output: DeltaOutput) -> None:
    """Sum up the log and delete its entries, as after a month, or as another program's clean-up does at any time."""
    table(output).alter.set_table_properties({"delta.logRetentionDuration": "interval 0 seconds"})
    table(output).create_checkpoint()
    table(output).cleanup_metadata()


def test_a_commit_is_never_made_below_a_checkpoint_whose_entries_are_gone(output: DeltaOutput) -> None:
    publish(output, plan_to(output, 1))
    log = TableLog(output.path)
    with log.one_reading():
        assert log.mark(batch_id_of(9)) is None
        publish(output, plan_to(output, 2))
        expire_the_log(output)
        assert not (log_of(output) / entry_name(2)).exists()
        assert log.land(Mark(batch_id_of(9), Outcome.PUBLISHED)).outcome is Outcome.PUBLISHED
    assert TableLog(output.path).mark(batch_id_of(9)) is not None
    assert table(output).transaction_version(str(batch_id_of(9))) == 1


def test_an_entry_that_is_made_below_a_checkpoint_counts_for_nothing_and_the_batch_is_committed_above(
    output: DeltaOutput, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish(output, plan_to(output, 1))
    directory, published = written(output, plan_to(output, 3))
    real, rivals = table_log.write_entry, []

    def after_a_rival_and_a_clean_up(*arguments: Any) -> bool:
        if not rivals:
            rivals.append(2)
            monkeypatch.setattr(table_log, "write_entry", real)
            publish(output, plan_to(output, 2))
            expire_the_log(output)
            (log_of(output) / entry_name(2)).unlink(missing_ok=True)
        return real(*arguments)

    monkeypatch.setattr(table_log, "write_entry", after_a_rival_and_a_clean_up)
    output.sink.publisher.publish(directory, published)
    assert rivals
    assert table(output).transaction_version(str(batch_id_of(3))) == 1
    assert sum(output.seen().values()) == 60


def test_a_clean_up_of_the_log_while_it_is_read_lets_the_reading_begin_again(
    output: DeltaOutput, monkeypatch: pytest.MonkeyPatch
) -> None:
    batches = [publish(output, plan_to(output, number)) for number in BEFORE]
    real, cleaned = log_reading.read_each, []

    def read_after_a_clean_up(folder: Path, names: list[str], most: int) -> Iterator[bytes]:
        if not cleaned:
            cleaned.append(expire_the_log(output))
        return real(folder, names, most)

    monkeypatch.setattr(log_reading, "read_each", read_after_a_clean_up)
    found = LogReading.of(log_of(output))
    assert found is not None
    assert found.version == table(output).version()
    assert all(found.transaction_version(str(each.plan.batch_id)) == 1 for each in batches)


def test_a_checkpoint_is_on_the_disk_before_entries_are_deleted(
    output: DeltaOutput, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish(output, plan_to(output, 1))
    table(output).alter.set_table_properties({"delta.checkpointInterval": "3"})
    publish(output, plan_to(output, 2))
    happened: list[str] = []
    real_sync, real_clean_up = table_log.sync, DeltaTable.cleanup_metadata

    def sync(path: Path) -> None:
        happened.append(path.name)
        real_sync(path)

    def clean_up(of: DeltaTable) -> None:
        happened.append("clean-up")
        real_clean_up(of)

    monkeypatch.setattr(table_log, "sync", sync)
    monkeypatch.setattr(DeltaTable, "cleanup_metadata", clean_up)
    publish(output, plan_to(output, 3))
    publish(output, plan_to(output, 4))
    before = happened[: happened.index("clean-up")]
    assert {f"{checkpoints(output)[-1]:020}.checkpoint.parquet", "_last_checkpoint", "_delta_log"} < set(before)


def test_an_entry_that_is_cut_off_within_a_file_stops_the_commit(output: DeltaOutput) -> None:
    publish(output, plan_to(output, 1))
    newest = log_of(output) / f"{1:020}.json"
    before, _, _ = newest.read_bytes().rpartition(b'{"add":')
    newest.write_bytes(before + b'{"add":{"path":"batches/0')
    directory, published = written(output, plan_to(output, 2))
    with pytest.raises(OutputUnavailableError, match=f"{1:020}.json is no entry of a log.*No offset was moved"):
        output.sink.publisher.publish(directory, published)
    assert not (log_of(output) / f"{2:020}.json").exists()


@pytest.mark.parametrize("name", [f"{2:020}.json", f"{1:020}.checkpoint.json"])
def test_a_log_that_is_larger_than_any_tables_is_neither_read_whole_nor_handed_to_the_library(
    output: DeltaOutput, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish(output, plan_to(output, 1))
    with (log_of(output) / name).open("wb") as huge:
        huge.truncate(2**40)  # a hole: it takes no place on the disk
    monkeypatch.setattr(log_reading, "MOST_OF_ENTRY", 1_000_000)
    directory, published = written(output, plan_to(output, 2))
    for ask in (TableLog(output.path).open, lambda: output.sink.publisher.publish(directory, published)):
        with pytest.raises(
            OutputUnavailableError, match=r"expected at most 1,000,000 bytes, found more.*No offset was"
        ):
            ask()


def test_a_checkpoint_that_unpacks_to_more_than_any_tables_is_refused_before_it_is_unpacked(
    output: DeltaOutput, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish(output, plan_to(output, 1))
    table(output).create_checkpoint()
    monkeypatch.setattr(log_reading, "MOST_OF_CHECKPOINT", 100)
    with pytest.raises(OutputUnavailableError, match=r"checkpoint\.parquet: expected at most 100 bytes to be read"):
        TableLog(output.path).open()


def test_an_entry_of_a_version_far_away_names_the_one_that_is_missing(output: DeltaOutput) -> None:
    publish(output, plan_to(output, 1))
    (log_of(output) / f"{10**20 - 1}.json").write_bytes(b"{}")
    with pytest.raises(OutputUnavailableError, match=f"{2:020}.json"):
        TableLog(output.path).open()


# ── Writing ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_commit_asks_for_no_list_of_files_and_needs_no_library(
    output: DeltaOutput, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = publish(output, plan_to(output, 1))
    directory, published = written(output, plan_to(output, 2))
    with monkeypatch.context() as patched:
        for module in (table_log, add_actions):
            patched.setattr(module, "delta_lake", lambda: pytest.fail("it was loaded"))
        output.sink.publisher.can_take(directory, published.receipt)
        output.sink.publisher.publish(directory, published)
    assert output.seen() == rows_of(first) + rows_of(published)


def test_of_two_entries_of_one_version_there_is_the_first_completely(tmp_path: Path) -> None:
    file = AddedFile("batches/a b/ä%.parquet", 1, {}, 0, FileStatistics(1, ()))
    assert write_entry(tmp_path, 1, [file], ("a", 1), {}, {})
    before = (tmp_path / f"{1:020}.json").read_bytes()
    assert not write_entry(tmp_path, 1, [], ("b", 1), {}, {})
    assert [path.name for path in tmp_path.iterdir()] == [f"{1:020}.json"]
    assert (tmp_path / f"{1:020}.json").read_bytes() == before
    assert b'"path":"batches/a%20b/%C3%A4%25.parquet"' in before


def test_what_dies_while_it_writes_an_entry_leaves_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def dies(_descriptor: int) -> None:
        assert not (tmp_path / f"{1:020}.json").exists()
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", dies)
    with pytest.raises(KeyboardInterrupt):
        write_entry(tmp_path, 1, [], ("a", 1), {}, {})
    assert list(tmp_path.iterdir()) == []


def test_files_with_odd_names_are_read_by_others(output: DeltaOutput) -> None:
    directory, published = written(output, plan_to(output, 1))
    place = output.path / "batches" / str(batch_id_of(1)) / "1"
    names = {path.name: f"ä b+%41 {path.name}" for path in place.iterdir()}
    for old, new in names.items():
        (place / old).rename(place / new)
    files = tuple(replace(each, name=names[each.name]) for each in published.receipt.files)
    published = replace(published, receipt=replace(published.receipt, files=files))
    output.sink.publisher.publish(directory, published)
    assert output.seen() == rows_of(published)
    assert Counter(table(output).to_pyarrow_table()["kafka_batch"].to_pylist()) == {str(batch_id_of(1)): 20}


def test_others_see_the_commit_as_an_append_of_the_files(output: DeltaOutput) -> None:
    published = publish(output, plan_to(output, 1))
    [newest, _] = table(output).history()
    assert (newest["operation"], newest["operationParameters"]["mode"], newest["version"]) == ("WRITE", "Append", 1)
    assert newest["kafka_ingest.batch_id"] == str(batch_id_of(1))
    sizes = {file.name: file.size_bytes for file in published.receipt.files}
    actions = table(output).get_add_actions(flatten=True)
    paths = [path.rpartition("/")[2] for path in actions["path"].to_pylist()]
    assert dict(zip(paths, actions["size_bytes"].to_pylist(), strict=True)) == sizes
    assert actions["num_records"].to_pylist() == [10, 10]
    assert actions["max.kafka_offset"].to_pylist() == [9, 9]


# ── Checkpoints ───────────────────────────────────────────────────────────────────────────────────────────────────────


def checkpoints(output: DeltaOutput) -> list[int]:
    return sorted(int(path.name[:20]) for path in log_of(output).glob("*.checkpoint.parquet"))


def test_commits_sum_up_the_log_as_often_as_the_table_asks_for_it(output: DeltaOutput) -> None:
    publish(output, plan_to(output, 1))
    table(output).alter.set_table_properties({"delta.checkpointInterval": "3"})
    batches = [publish(output, plan_to(output, number)) for number in range(2, 8)]
    assert checkpoints(output) == [2, 5, 8], "the first is the library's own"
    found = LogReading.of(log_of(output))
    assert found is not None
    assert (found.version, found.since_checkpoint) == (8, 0)
    assert sum(output.seen().values()) == 20 + sum(each.receipt.rows for each in batches)


@pytest.mark.parametrize("asked", ["true", "false"])
def test_with_a_checkpoint_entries_leave_that_are_older_than_the_table_keeps_them(
    output: DeltaOutput, asked: str
) -> None:
    publish(output, plan_to(output, 1))
    properties: dict[str, str] = {
        "delta.checkpointInterval": "3",
        "delta.logRetentionDuration": "interval 0 seconds",
        "delta.enableExpiredLogCleanup": asked,
    }
    table(output).alter.set_table_properties(properties)
    for number in range(2, 6):
        publish(output, plan_to(output, number))
    assert (log_of(output) / f"{1:020}.json").exists() is (asked == "false")
    assert sum(output.seen().values()) == 100


def test_a_checkpoint_that_fails_fails_no_commit_and_is_made_by_the_next_one(
    output: DeltaOutput, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    publish(output, plan_to(output, 1))
    table(output).alter.set_table_properties({"delta.checkpointInterval": "3"})

    def fails(_: Any) -> None:
        raise OSError(28, "no space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(DeltaTable, "create_checkpoint", fails)
        for number in (2, 3, 4):
            publish(output, plan_to(output, number))
    assert "No checkpoint was made" in caplog.text
    assert checkpoints(output) == [2]
    publish(output, plan_to(output, 5))
    assert checkpoints(output) == [2, 6]
    assert sum(output.seen().values()) == 100


def test_polars_reads_a_table_whose_log_was_summed_up_between_commits(output: DeltaOutput) -> None:
    publish(output, plan_to(output, 1))
    table(output).create_checkpoint()
    publish(output, plan_to(output, 2))
    found = pl.scan_delta(str(output.path)).filter(pl.col("kafka_batch") == str(batch_id_of(2))).collect()
    assert found.height == 20
    assert json.loads((log_of(output) / "_last_checkpoint").read_bytes())["version"] == 1
