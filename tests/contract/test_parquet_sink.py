"""The Parquet sink on real files.

What it makes, refuses, verifies, publishes once, and has on the disk when it returns.
"""

import errno
import itertools
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import duckdb
import polars as pl
import pyarrow.dataset
import pyarrow.parquet
import pytest
from tests.contract.builders import NOON, at_once, batch_id_of, orders, plan_of
from tests.contract.ordinary_user import ordinary_user
from tests.contract.power_cut import PowerCut, power_cut
from tests.contract.staged_files import Staged, below

from kafka_ingest.errors import (
    OutputConflictError,
    OutputNotUsableError,
    OutputUnavailableError,
    StagedOutputUnusableError,
)
from kafka_ingest.model.batch import BatchPlan
from kafka_ingest.model.completion import CompletionRules, Period, Unit
from kafka_ingest.model.gap import Removal, RemovalCause
from kafka_ingest.model.partition_term import PartitionTerm
from kafka_ingest.model.published_output import FilesState, PublishedReceipt
from kafka_ingest.model.receipt import Receipt
from kafka_ingest.ports.outputs import Sink
from kafka_ingest.sinks.choose import sink_of
from kafka_ingest.sinks.parquet import parquet_sink
from kafka_ingest.sinks.parquet.directory import write_success_files

ROUNDS = 25
BATCH = batch_id_of(1)
FIRST_FILE, SECOND_FILE = "part-00000.zstd.parquet", "part-00001.zstd.parquet"


@pytest.fixture
def output(tmp_path: Path) -> Path:
    return tmp_path / "lake" / "orders"


@pytest.fixture
def staged(output: Path) -> Staged:
    return Staged(output)


# ── Places ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_prepare_makes_the_output_and_what_lies_beside_it(output: Path):
    parquet_sink(output).publisher.prepare()

    assert sorted(str(path.relative_to(output.parent)) for path in output.parent.rglob("*")) == [
        "orders",
        "orders.kafka-ingest",
        "orders.kafka-ingest/receipts",
        "orders.kafka-ingest/staging",
    ]


def test_prepare_leaves_alone_what_is_there(staged: Staged):
    staged.publish()
    before = below(staged.output.parent)

    staged.sink.publisher.prepare()

    assert below(staged.output.parent) == before


@pytest.mark.parametrize(
    "in_the_way", ["lake", "lake/orders", "lake/orders.kafka-ingest", "lake/orders.kafka-ingest/receipts"]
)
def test_prepare_refuses_a_path_where_a_file_is_in_the_way(tmp_path: Path, in_the_way: str):
    file = tmp_path / in_the_way
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("not a directory")

    with pytest.raises(OutputNotUsableError, match=r"lake/orders, found: .*Correct sink\.path"):
        parquet_sink(tmp_path / "lake" / "orders").publisher.prepare()

    assert file.read_text() == "not a directory"


def test_prepare_refuses_a_path_where_nobody_can_make_a_directory():
    with pytest.raises(OutputNotUsableError, match=r"/proc/lake/orders, found: .*Correct sink\.path"):
        parquet_sink(Path("/proc/lake/orders")).publisher.prepare()


@pytest.fixture
def open_to_all() -> Iterator[Path]:
    """A directory that every user can reach; pytest's own is its owner's alone."""
    with tempfile.TemporaryDirectory(prefix="kafka-ingest-") as directory:
        Path(directory).chmod(0o777)
        yield Path(directory)


def test_prepare_refuses_a_parent_this_user_may_not_write(open_to_all: Path):
    parent = open_to_all / "lake"
    with ordinary_user():
        parent.mkdir(mode=0o555)

        with pytest.raises(OutputNotUsableError, match="Permission denied"):
            parquet_sink(parent / "orders").publisher.prepare()

    assert list(parent.iterdir()) == []


@pytest.mark.parametrize(
    "name", ["orders", "orders.kafka-ingest", "orders.kafka-ingest/staging", "orders.kafka-ingest/receipts"]
)
def test_prepare_refuses_a_directory_this_user_may_not_write(open_to_all: Path, name: str):
    output = open_to_all / "orders"
    with ordinary_user():
        parquet_sink(output).publisher.prepare()
        (open_to_all / name).chmod(0o555)

        with pytest.raises(OutputNotUsableError, match=f"{name} without that right"):
            parquet_sink(output).publisher.prepare()


def test_run_and_doctor_refuse_an_output_on_another_file_system_than_its_staging(output: Path):
    output.parent.mkdir(parents=True)
    here = output.parent.stat().st_dev
    other = next(folder for folder in ("/dev/shm", "/var/tmp") if Path(folder).stat().st_dev != here)
    with tempfile.TemporaryDirectory(dir=other) as elsewhere:
        output.symlink_to(elsewhere)

        for look in (parquet_sink(output).publisher.examine, parquet_sink(output).publisher.prepare):
            with pytest.raises(OutputNotUsableError, match="on one file system, found two"):
                look()


def test_an_attempt_that_cannot_be_opened_is_the_storages_failure(output: Path):
    sink = parquet_sink(output)
    sink.publisher.prepare()
    directory = sink.staging.attempt_directory(BATCH, 1)
    directory.parent.parent.rmdir()
    directory.parent.parent.write_text("a file in the way")

    with pytest.raises(OutputUnavailableError, match=r"could not be read or written: .*No offset was moved"):
        sink.staging.open_attempt(directory, b"{}")


def test_a_receipt_that_cannot_be_read_is_the_storages_failure_and_not_a_missing_one(staged: Staged):
    (staged.directory / "receipt.json").unlink()
    (staged.directory / "receipt.json").mkdir()

    with pytest.raises(OutputUnavailableError, match="Is a directory"):
        staged.sink.staging.read_receipt(staged.directory)


def test_a_sink_is_found_by_the_format_of_a_plan(output: Path):
    plan = plan_of((orders(0), 0, 10), output=output)

    assert sink_of(plan.output).staging.attempt_directory(BATCH, 1) == parquet_sink(output).staging.attempt_directory(
        BATCH, 1
    )
    with pytest.raises(
        OutputNotUsableError, match=r"a sink format out of parquet, delta, iceberg, postgresql, kafka, found 'csv'"
    ):
        sink_of(replace(plan.output, format="csv"))


# ── What is known of the output ───────────────────────────────────────────────────────────────────────────────────────


def test_an_output_that_is_not_there_knows_no_batches(output: Path):
    assert parquet_sink(output).publisher.known_batches() == []


def test_a_receipt_that_a_crash_left_half_written_makes_no_known_batch(staged: Staged):
    staged.kept.parent.mkdir()
    staged.kept.with_name(f"{staged.kept.name}.4711.tmp").write_bytes(b'{"vers')

    assert staged.sink.publisher.known_batches() == []


def test_receipts_that_cannot_be_listed_are_not_an_output_without_batches(open_to_all: Path):
    with ordinary_user():
        staged = Staged(open_to_all / "orders")
        staged.publish()
        staged.kept.parent.chmod(0o300)

        with pytest.raises(OutputUnavailableError, match="Permission denied"):
            staged.sink.publisher.known_batches()


# ── Asked before the commit ───────────────────────────────────────────────────────────────────────────────────────────


def test_an_output_that_was_removed_is_made_again_before_it_takes_a_batch(staged: Staged):
    staged.output.rmdir()

    staged.sink.publisher.can_take(staged.directory, staged.receipt)

    assert staged.output.is_dir()


def make_empty_directory(path: Path) -> None:
    path.mkdir()


def make_directory_with_a_file(path: Path) -> None:
    path.mkdir()
    (path / "theirs.parquet").write_bytes(b"theirs")


def make_file(path: Path) -> None:
    path.write_bytes(b"theirs")


def make_dangling_link(path: Path) -> None:
    path.symlink_to(path.with_name("absent"))


@pytest.mark.parametrize("make", [make_empty_directory, make_directory_with_a_file, make_file, make_dangling_link])
def test_an_output_where_something_lies_in_the_batchs_place_cannot_take_it(
    staged: Staged, make: Callable[[Path], None]
):
    make(staged.target)

    with pytest.raises(OutputConflictError, match=rf"{staged.target.name} exists.*move it elsewhere"):
        staged.sink.publisher.can_take(staged.directory, staged.receipt)


def test_an_output_that_cannot_be_written_cannot_take_a_batch(staged: Staged):
    staged.output.rmdir()
    staged.output.write_text("a file in the way")

    with pytest.raises(OutputNotUsableError, match=r"Correct sink\.path"):
        staged.sink.publisher.can_take(staged.directory, staged.receipt)


# ── Verifying what is staged ──────────────────────────────────────────────────────────────────────────────────────────


def test_an_attempt_without_files_is_verified_with_and_without_a_data_directory(output: Path):
    staged = Staged(output, partitions=0)
    staged.verify()
    staged.data.rmdir()
    staged.verify()


def test_all_files_missing_with_their_directory_are_named(staged: Staged):
    (staged.data / FIRST_FILE).unlink()
    (staged.data / SECOND_FILE).unlink()
    staged.data.rmdir()

    said = f"attempt 1 of batch {BATCH}: {FIRST_FILE} is missing, {SECOND_FILE} is missing"
    with pytest.raises(StagedOutputUnusableError, match=said):
        staged.verify()


@pytest.mark.parametrize("name", ["_SUCCESS", ".part-00000.zstd.parquet.crc"])
def test_a_file_that_the_receipt_does_not_know_is_named(staged: Staged, name: str):
    (staged.data / name).write_bytes(b"whose is this")

    with pytest.raises(StagedOutputUnusableError, match=f"{name} is not in the receipt"):
        staged.verify()


def test_a_directory_among_the_staged_files_is_named(staged: Staged):
    (staged.data / "_temporary").mkdir()

    with pytest.raises(StagedOutputUnusableError, match="_temporary is not in the receipt"):
        staged.verify()


def overwrite(path: Path, at: int, content: bytes) -> None:
    """Write some bytes into a file, from its start or (below 0) from its end; its size stays."""
    with path.open("r+b") as file:
        file.seek(at, os.SEEK_SET if at >= 0 else os.SEEK_END)
        file.write(content)


def test_a_file_with_a_damaged_footer_is_named(staged: Staged):
    path = staged.data / FIRST_FILE
    footer_length = int.from_bytes(path.read_bytes()[-8:-4], "little")
    overwrite(path, -8 - footer_length, b"\xff" * footer_length)

    with pytest.raises(StagedOutputUnusableError, match=f"{FIRST_FILE} is not a readable Parquet file"):
        staged.verify()


def test_storage_that_does_not_answer_proves_nothing_about_the_files(staged: Staged, monkeypatch: pytest.MonkeyPatch):
    def fail(_descriptor: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, "fsync", fail)

    with pytest.raises(OutputUnavailableError, match=r"Input/output error.*No offset was moved"):
        staged.verify()


# ── Publishing ────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_published_batch_lies_under_its_id_with_the_staged_content(staged: Staged):
    content = below(staged.data)
    staged.publish()

    assert below(staged.output) == {f"kafka_batch={BATCH}/{name}": content[name] for name in (FIRST_FILE, SECOND_FILE)}


def test_publishing_is_one_rename_of_the_data_and_leaves_the_rest_of_the_attempt(staged: Staged):
    inode = staged.data.stat().st_ino
    staged.publish()

    assert staged.target.stat().st_ino == inode
    assert sorted(below(staged.directory)) == ["plan.json", "receipt.json"]


def test_nothing_but_published_files_lies_under_the_output(output: Path):
    for number in (1, 2):
        Staged(output, number=number).publish()
    Staged(output, number=3, partitions=0).publish()
    Staged(output, number=4).verify()

    assert sorted(str(path.relative_to(output)) for path in output.rglob("*")) == [
        f"kafka_batch={batch_id_of(1)}",
        f"kafka_batch={batch_id_of(1)}/{FIRST_FILE}",
        f"kafka_batch={batch_id_of(1)}/{SECOND_FILE}",
        f"kafka_batch={batch_id_of(2)}",
        f"kafka_batch={batch_id_of(2)}/{FIRST_FILE}",
        f"kafka_batch={batch_id_of(2)}/{SECOND_FILE}",
    ]


def test_nothing_is_under_the_output_before_a_batch_is_published(staged: Staged):
    staged.verify()
    staged.sink.publisher.can_take(staged.directory, staged.receipt)

    assert list(staged.output.iterdir()) == []


def test_the_kept_receipt_says_all_that_lost_control_tables_are_rebuilt_from(staged: Staged):
    staged.publish()

    document = json.loads(staged.kept.read_bytes())
    assert document.keys() == {"version", "plan_fingerprint", "plan", "receipt", "ledger"}
    assert (document["version"], document["plan_fingerprint"]) == (1, staged.plan.fingerprint)
    assert BatchPlan.from_document(document["plan"]) == staged.plan
    assert Receipt.from_document(document["receipt"]) == staged.receipt
    assert document["ledger"] == [
        {
            "event_id": 7,
            "kind": "seeded",
            "at": "2026-03-01T12:00:00+00:00",
            "who": "planner",
            "detail": {"partitions": [{"offset": 0}]},
        }
    ]


def test_publishing_twice_is_publishing_once(staged: Staged):
    staged.publish()
    before = below(staged.output.parent)
    inode = staged.target.stat().st_ino

    staged.publish()

    assert below(staged.output.parent) == before
    assert staged.target.stat().st_ino == inode


@pytest.mark.parametrize("make", [make_empty_directory, make_directory_with_a_file, make_file, make_dangling_link])
def test_what_lies_in_the_batchs_place_and_is_not_the_batch_is_a_conflict_and_nothing_is_moved(
    staged: Staged, make: Callable[[Path], None]
):
    make(staged.target)
    before = (below(staged.output), below(staged.directory))

    with pytest.raises(OutputConflictError, match=staged.target.name):
        staged.publish()

    assert (below(staged.output), below(staged.directory)) == before


def test_a_published_batch_that_was_changed_by_hand_is_a_conflict_that_names_the_file(staged: Staged):
    staged.publish()
    (staged.target / FIRST_FILE).unlink()
    (staged.target / "compacted.parquet").write_bytes(b"theirs")

    with pytest.raises(OutputConflictError) as conflict:
        staged.publish()

    assert f"{FIRST_FILE} is missing" in str(conflict.value)
    assert "compacted.parquet is not in the receipt" in str(conflict.value)
    assert (staged.target / "compacted.parquet").read_bytes() == b"theirs"


def test_a_published_file_that_was_cut_short_is_a_conflict_with_both_sizes(staged: Staged):
    staged.publish()
    os.truncate(staged.target / SECOND_FILE, 5)

    with pytest.raises(OutputConflictError, match=rf"{SECOND_FILE} has 5 bytes instead of [\d,]+"):
        staged.publish()


def test_a_file_that_a_late_writer_adds_at_the_last_moment_is_a_conflict_before_publish_returns(
    staged: Staged, monkeypatch: pytest.MonkeyPatch
):
    rename = os.rename

    def add_a_file_just_before(source: Path, target: Path) -> None:
        if Path(source) == staged.data:
            (staged.data / "late.parquet").write_bytes(b"late")
        rename(source, target)

    monkeypatch.setattr(os, "rename", add_a_file_just_before)

    with pytest.raises(OutputConflictError, match=r"late\.parquet is not in the receipt"):
        staged.publish()


def test_a_batch_whose_files_are_neither_staged_nor_published_is_an_error(staged: Staged):
    staged.data.rename(staged.data.with_name("elsewhere"))

    with pytest.raises(OutputConflictError, match=r"neither its staged files .* nor its published ones .* exist"):
        staged.publish()

    assert list(staged.output.iterdir()) == []


def test_a_receipt_of_something_else_under_the_same_id_is_a_conflict_and_nothing_is_published(staged: Staged):
    staged.kept.parent.mkdir()
    staged.kept.write_bytes(b'{"version":1}')
    before = (below(staged.output), below(staged.directory))

    with pytest.raises(OutputConflictError, match="is the receipt of something else"):
        staged.publish()

    assert (below(staged.output), below(staged.directory)) == before
    assert staged.kept.read_bytes() == b'{"version":1}'


def test_a_kept_receipt_of_another_plan_is_a_conflict_and_nothing_is_published(staged: Staged):
    staged.publish()
    kept = json.loads(staged.kept.read_bytes()) | {"plan_fingerprint": "of another plan"}
    staged.kept.write_text(json.dumps(kept))
    before = below(staged.output)

    with pytest.raises(OutputConflictError, match="is the receipt of something else"):
        staged.publish()

    assert below(staged.output) == before


def test_another_attempt_of_a_published_batch_is_a_conflict_and_the_first_stays(output: Path):
    first, zombie = Staged(output, attempt=1), Staged(output, attempt=2)
    first.publish()
    before = below(output)

    with pytest.raises(OutputConflictError):
        zombie.publish()

    assert below(output) == before
    assert zombie.data.is_dir()


def test_a_receipt_that_is_kept_already_stays_as_it_is_however_the_rest_of_it_would_be_written_today(staged: Staged):
    staged.publish()
    kept = staged.kept.read_bytes()

    staged.sink.publisher.publish(staged.directory, PublishedReceipt(staged.plan, staged.receipt, []))

    assert staged.kept.read_bytes() == kept


def test_files_that_are_gone_or_changed_since_they_were_verified_are_not_published(staged: Staged):
    staged.verify()
    (staged.data / FIRST_FILE).unlink()

    with pytest.raises(OutputConflictError, match=rf"{FIRST_FILE} is missing .*were intact.*kafka-ingest abandon"):
        staged.publish()

    assert not staged.target.exists()


def test_the_receipt_of_a_published_batch_is_found_without_its_attempts_directory(staged: Staged):
    staged.publish()
    shutil.rmtree(staged.directory)

    assert staged.sink.archive.receipt(staged.plan.batch_id) == staged.receipt


def test_an_output_that_is_gone_is_the_storages_failure_and_the_files_stay_staged(staged: Staged):
    staged.output.rmdir()
    staged.output.write_text("a file in the way")

    with pytest.raises(OutputUnavailableError, match="No offset was moved"):
        staged.publish()

    assert sorted(path.name for path in staged.data.iterdir()) == [FIRST_FILE, SECOND_FILE]


def test_an_output_that_is_not_mounted_is_the_storages_failure_and_not_a_batch_that_was_removed(staged: Staged):
    staged.output.rmdir()

    with pytest.raises(OutputUnavailableError, match="No offset was moved"):
        staged.publish()

    assert sorted(path.name for path in staged.data.iterdir()) == [FIRST_FILE, SECOND_FILE]
    assert not staged.output.exists()
    staged.output.mkdir()
    staged.publish()
    assert sorted(path.name for path in staged.target.iterdir()) == [FIRST_FILE, SECOND_FILE]


# ── Crashes ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def publishes_that_died(output: Path) -> Iterator[Staged]:
    """Yield a batch for each file system call before which its first publish can die."""
    for crash in itertools.count():
        staged = Staged(output, number=crash + 1)
        try:
            with power_cut(after=crash):
                staged.publish()
        except PowerCut:
            yield staged
        else:
            assert crash >= 6, "a publish writes a receipt and moves a directory, both durably"
            return


def test_a_document_whose_writing_died_is_written_by_the_next_try(output: Path):
    sink = parquet_sink(output)
    sink.publisher.prepare()
    directory = sink.staging.attempt_directory(BATCH, 1)
    for crash in range(5):
        with suppress(PowerCut), power_cut(after=crash):
            sink.staging.open_attempt(directory, b"{}")

    sink.staging.open_attempt(directory, b"{}")

    assert (directory / "plan.json").read_bytes() == b"{}"


# ── Durable when it returns ───────────────────────────────────────────────────────────────────────────────────────────


@contextmanager
def recorded_calls() -> Iterator[list[tuple[str, Path]]]:
    """Note each fsync and rename with its path, in order, and let it through."""
    calls: list[tuple[str, Path]] = []
    fsync, rename = os.fsync, os.rename

    def recorded_fsync(descriptor: int) -> None:
        calls.append(("fsync", Path(f"/proc/self/fd/{descriptor}").readlink()))
        fsync(descriptor)

    def recorded_rename(source: Path, target: Path) -> None:
        calls.append(("rename to", Path(target)))
        rename(source, target)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", recorded_fsync)
        patch.setattr(os, "rename", recorded_rename)
        yield calls


def synced(calls: list[tuple[str, Path]]) -> set[Path]:
    return {path for call, path in calls if call == "fsync"}


def in_order(calls: list[tuple[str, Path]], *expected: tuple[str, Path]) -> bool:
    """Say whether the expected calls are among these, each after the one before it."""
    rest = iter(calls)
    return all(call in rest for call in expected)


def test_the_names_of_all_directories_that_prepare_makes_are_on_the_disk(output: Path):
    with recorded_calls() as calls:
        parquet_sink(output).publisher.prepare()

    beside = output.with_name("orders.kafka-ingest")
    assert synced(calls) == {output.parent.parent, output.parent, beside}


def test_an_attempts_document_and_its_directories_are_on_the_disk(output: Path):
    sink = parquet_sink(output)
    sink.publisher.prepare()
    directory = sink.staging.attempt_directory(BATCH, 1)
    with recorded_calls() as calls:
        sink.staging.open_attempt(directory, b"{}")

    (temporary,) = [path for path in synced(calls) if path.parent == directory]
    assert synced(calls) == {directory.parent.parent, directory.parent, directory, temporary}
    assert in_order(calls, ("fsync", temporary), ("rename to", directory / "plan.json"), ("fsync", directory))


def test_staged_files_and_their_names_are_on_the_disk_once_they_are_verified(staged: Staged):
    with recorded_calls() as calls:
        staged.verify()

    assert synced(calls) == {staged.data / FIRST_FILE, staged.data / SECOND_FILE, staged.data}


def test_a_receipt_is_on_the_disk_before_its_batch_is_visible_and_that_before_publish_returns(staged: Staged):
    with recorded_calls() as calls:
        staged.publish()

    (temporary,) = [path for path in synced(calls) if path.parent == staged.kept.parent]
    receipt_kept = [("fsync", temporary), ("rename to", staged.kept), ("fsync", staged.kept.parent)]
    assert in_order(calls, *receipt_kept, ("rename to", staged.target), ("fsync", staged.target))
    assert in_order(calls, ("rename to", staged.target), ("fsync", staged.output))


def test_verified_and_published_every_file_and_directory_of_the_batch_is_on_the_disk(staged: Staged):
    with recorded_calls() as calls:
        staged.verify()
        staged.publish()

    assert synced(calls) >= {
        staged.data / FIRST_FILE,
        staged.data / SECOND_FILE,
        staged.data,
        staged.target,
        staged.output,
        staged.kept.parent,
    }


def test_what_a_publisher_that_died_left_to_the_system_is_on_the_disk_when_the_next_one_returns(output: Path):
    for staged in publishes_that_died(output):
        with recorded_calls() as calls:
            staged.publish()

        assert synced(calls) >= {staged.kept.parent, staged.target, staged.output}


def test_a_batch_that_is_published_already_is_on_the_disk_when_publish_returns(staged: Staged):
    staged.publish()

    with recorded_calls() as calls:
        staged.publish()

    assert synced(calls) >= {staged.target, staged.output}


# ── Two publishers at once ────────────────────────────────────────────────────────────────────────────────────────────


def test_of_publishers_of_a_batch_without_files_at_once_all_succeed_and_it_is_there_once(output: Path):
    for number in range(1, ROUNDS + 1):
        staged = Staged(output, number=number, partitions=0)
        rivals = [parquet_sink(output) for _ in range(4)]

        def publisher(rival: Sink, staged: Staged = staged) -> Callable[[], None]:
            return lambda: rival.publisher.publish(staged.directory, staged.published)

        assert at_once(*(publisher(rival) for rival in rivals)) == [None] * 4

    assert len(staged.sink.publisher.known_batches()) == ROUNDS
    assert list(output.iterdir()) == []
    assert [path.name for path in staged.kept.parent.iterdir() if path.suffix != ".json"] == []


def test_of_attempts_that_open_their_directories_at_once_all_succeed(output: Path):
    sink = parquet_sink(output)
    sink.publisher.prepare()

    def opener(number: int) -> Callable[[], None]:
        return lambda: sink.staging.open_attempt(sink.staging.attempt_directory(BATCH, number), f"{number}".encode())

    assert at_once(*(opener(number) for number in range(1, 9))) == [None] * 8
    assert [(sink.staging.attempt_directory(BATCH, number) / "plan.json").read_text() for number in range(1, 9)] == [
        "1",
        "2",
        "3",
        "4",
        "5",
        "6",
        "7",
        "8",
    ]


def test_of_feeds_that_prepare_the_same_parents_at_once_all_succeed(tmp_path: Path):
    def preparer(number: int) -> Callable[[], None]:
        return parquet_sink(tmp_path / "a" / "b" / "c" / f"feed-{number % 2}").publisher.prepare

    assert at_once(*(preparer(number) for number in range(8))) == [None] * 8


# ── Readers ───────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def two_batches(output: Path) -> Path:
    """An output with two published batches of ten rows in each of two partitions, and a third that is only staged."""
    Staged(output, number=1).publish()
    Staged(output, number=2).publish()
    Staged(output, number=3).verify()
    return output


def mark(output: Path, by: Unit = Unit.DAY, terms: tuple[str, ...] = ("dt: day(kafka_timestamp)",)) -> list[str]:
    """Mark the hour or day of noon, and return where there are marks."""
    rules = CompletionRules(by, timedelta(0), timedelta(0), success_file="in_output")
    noon = Period(by.start_of(NOON), NOON, "run-1", 0, None, 0, None, None)
    write_success_files(output, rules, map(PartitionTerm.parse, terms), [noon])
    return sorted(str(path.relative_to(output.parent).parent) for path in output.parent.rglob("_SUCCESS"))


def test_a_complete_hour_has_its_mark_below_the_folders_of_its_times_and_a_second_write_changes_nothing(output: Path):
    Staged(output).publish()
    terms = ("land: value.country", "dt: day(kafka_timestamp)", "hr: hour(kafka_timestamp)")

    marked = [mark(output, Unit.HOUR, terms) for _ in range(2)]

    expected = ["orders.kafka-ingest/complete/hr=2026-03-01T12", "orders/dt=2026-03-01/hr=2026-03-01T12"]
    assert marked == [expected, expected]


def test_readers_pass_over_the_mark_of_a_complete_day(two_batches: Path):
    mark(two_batches)

    assert pyarrow.dataset.dataset(two_batches, partitioning="hive").count_rows() == 40
    assert pl.scan_parquet(two_batches, hive_partitioning=True).collect().height == 40
    for path in (f"{two_batches}", f"{two_batches}/**/*.parquet"):
        assert duckdb.read_parquet(path, hive_partitioning=True).aggregate("count(*)").fetchall() == [(40,)]


def test_marks_of_complete_days_are_no_batches_and_stay_when_batches_expire(two_batches: Path):
    sink = parquet_sink(two_batches)
    mark(two_batches)

    assert sink.publisher.known_batches() == [str(batch_id_of(number)) for number in (1, 2)]
    assert {each.files.state for each in sink.publisher.published_receipts()} == {FilesState.INTACT}
    assert sink.contents is not None
    held, unreadable, _ = sink.contents.held(sink.contents.evidence())
    assert (sum(each.rows for each in held), list(unreadable)) == (40, [])
    assert sink.remover is not None
    for number in (1, 2):
        sink.archive.note_removal(Removal(batch_id_of(number), RemovalCause.EXPIRED, NOON, "test", "old"))
        sink.remover.hide(batch_id_of(number))
    assert below(two_batches) == {"dt=2026-03-01/_SUCCESS": b""}


COUNTS = [
    (str(batch_id_of(1)), 0, 10),
    (str(batch_id_of(1)), 1, 10),
    (str(batch_id_of(2)), 0, 10),
    (str(batch_id_of(2)), 1, 10),
]


def test_pyarrow_reads_the_output_with_the_batch_from_the_path(two_batches: Path):
    table = pyarrow.dataset.dataset(two_batches, partitioning="hive").to_table()

    counts = table.group_by(["kafka_batch", "kafka_partition"]).aggregate([("kafka_offset", "count")]).to_pylist()
    assert sorted((row["kafka_batch"], row["kafka_partition"], row["kafka_offset_count"]) for row in counts) == COUNTS


def test_polars_reads_the_output_with_the_batch_from_the_path(two_batches: Path):
    frame = pl.scan_parquet(two_batches, hive_partitioning=True)

    counts = frame.group_by("kafka_batch", "kafka_partition").len().sort("kafka_batch", "kafka_partition").collect()
    assert counts.rows() == COUNTS


def test_a_kept_receipt_says_when_in_utc(staged: Staged):
    staged.publish()

    written_at = json.loads(staged.kept.read_bytes())["receipt"]["written_at"]
    assert datetime.fromisoformat(written_at) == datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
