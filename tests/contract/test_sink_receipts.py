"""What a sink reports afterwards: all that was ever published in it, and what Spark said of an attempt that failed."""

import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from tests.contract.builders import NOON, batch_id_of, orders
from tests.contract.ordinary_user import ordinary_user
from tests.contract.sink_outputs import (
    KINDS,
    KafkaOutput,
    Output,
    ParquetOutput,
    made,
    opened,
    plan_to,
    publish,
    written,
)

from kafka_ingest.errors import OutputConflictError, OutputUnavailableError
from kafka_ingest.foundation import storage
from kafka_ingest.model.gap import Event, Removal, RemovalCause
from kafka_ingest.model.place import FAILURE, RemotePlace
from kafka_ingest.model.published_output import FilesState, PublishedReceipt
from kafka_ingest.sinks.kept_receipts import KeptReceipts
from kafka_ingest.sinks.parquet import parquet_sink

REMOVING = [kind for kind in KINDS if KafkaOutput not in getattr(kind, "values", (kind,))]
"""Those that batches can be taken out of."""


@pytest.fixture(params=KINDS, ids=lambda kind: kind.name)
def output(request: pytest.FixtureRequest, tmp_path: Path) -> Output:
    return made(request.param, tmp_path / "orders", request)


@pytest.fixture
def parquet(tmp_path: Path) -> ParquetOutput:
    made = ParquetOutput(tmp_path / "orders")
    made.sink.publisher.prepare()
    return made


def reported(output: Output) -> list[PublishedReceipt]:
    """Return all that was published; a ledger is the same in whatever it comes, and rows may have been counted."""
    found = list(output.sink.publisher.published_receipts())
    for each in found:
        assert each.files.state is not FilesState.INTACT or each.files.rows in {None, each.receipt.rows}
    return [replace(each, ledger=tuple(each.ledger), files=replace(each.files, rows=None)) for each in found]


# ── What was published ────────────────────────────────────────────────────────────────────────────────────────────────


def test_an_output_that_is_not_there_reports_nothing(tmp_path: Path) -> None:
    assert list(parquet_sink(tmp_path / "lake" / "orders").publisher.published_receipts()) == []


def test_published_batches_are_reported_oldest_first_each_once_as_it_was_published_and_kept(output: Output) -> None:
    assert reported(output) == []
    ledger = (
        Event(7, "seeded", NOON, "planner", None, {"partitions": [{"topic": "orders", "offset": None}]}),
        Event(12, "gap", NOON + timedelta(microseconds=3), "operator", None, {"gaps": [{"reason": "§ „vergiftet“"}]}),
        Event(9, "reset", NOON, "cli:operator@host/1", None, {"removed": [], "partitions": []}),
    )
    of_two = plan_to(output, 2, leader_epochs={orders(0): 4}, topic_id=None)
    written(output, of_two, attempt=1)
    directory, second = written(output, of_two, attempt=2, ledger=ledger)
    for _ in range(2):
        output.sink.publisher.publish(directory, second)
    tenth = publish(output, plan_to(output, 10))
    first = publish(output, plan_to(output, 1), without_rows=True)
    written(output, plan_to(output, 11))
    assert reported(output) == [first, second, tenth]
    kept = [output.sink.archive.receipt(batch_id_of(number)) for number in (1, 2, 10, 11)]
    assert kept == [first.receipt, second.receipt, tenth.receipt, None]


def test_reporting_changes_nothing(parquet: ParquetOutput) -> None:
    publish(parquet, plan_to(parquet, 1))
    before = {path: path.stat().st_mtime_ns for path in parquet.path.parent.rglob("*")}
    reported(parquet)
    assert {path: path.stat().st_mtime_ns for path in parquet.path.parent.rglob("*")} == before


# ── Receipts that were changed by hand ────────────────────────────────────────────────────────────────────────────────


def refusal(parquet: ParquetOutput, error: type[Exception] = OutputConflictError) -> str:
    """Return why what was published is not reported to its end."""
    with pytest.raises(error) as refused:
        list(parquet.sink.publisher.published_receipts())
    return str(refused.value)


@pytest.fixture
def three_batches(parquet: ParquetOutput) -> ParquetOutput:
    """An output with three published batches."""
    for number in (1, 2, 3):
        publish(parquet, plan_to(parquet, number))
    return parquet


def test_the_batches_before_a_damaged_receipt_are_reported_before_it_is_refused(three_batches: ParquetOutput) -> None:
    three_batches.kept(2).write_text("{}")
    receipts = three_batches.sink.publisher.published_receipts()
    assert next(receipts).plan.batch_id == batch_id_of(1)
    with pytest.raises(OutputConflictError):
        next(receipts)


@pytest.mark.parametrize(
    "content", ["", "{", '{"vers', "\x00" * 40, "[]", "5", "null", '"text"', "{}", '{"version": 1}']
)
def test_what_is_no_receipt_is_refused_with_its_path(three_batches: ParquetOutput, content: str) -> None:
    three_batches.kept(2).write_text(content)
    message = refusal(three_batches)
    assert str(three_batches.kept(2)) in message
    assert "restore" in message.lower()


def test_a_receipt_of_another_version_is_refused_with_both(three_batches: ParquetOutput) -> None:
    three_batches.change(2, lambda document: document.update(version=2))
    assert "expected a published receipt of format version 1, found 2" in refusal(three_batches)


@pytest.mark.parametrize("part", ["plan", "receipt", "ledger", "plan_fingerprint"])
def test_a_receipt_that_lacks_a_part_is_refused(three_batches: ParquetOutput, part: str) -> None:
    three_batches.change(2, lambda document: document.pop(part))
    assert f"holds batch {batch_id_of(2)}, expected its receipt in" in refusal(three_batches)


def test_a_plan_that_was_changed_by_hand_does_not_fit_its_fingerprint(three_batches: ParquetOutput) -> None:
    three_batches.change(2, lambda document: document["plan"]["ranges"][0].update(end_offset=11))
    assert "expected plan fingerprint" in refusal(three_batches)


def test_a_receipt_that_contradicts_its_plan_is_refused_with_what_cannot_be(three_batches: ParquetOutput) -> None:
    three_batches.change(2, lambda document: document["receipt"].update(rows_read=7))
    assert "Spark read 7 records, the files hold 20" in refusal(three_batches)


def test_a_receipt_of_another_batch_inside_is_refused(three_batches: ParquetOutput) -> None:
    other = json.loads(three_batches.kept(1).read_bytes())["receipt"]
    three_batches.change(2, lambda document: document.update(receipt=other))
    assert f"expected batch {batch_id_of(2)}, found {batch_id_of(1)}" in refusal(three_batches)


def test_visible_files_whose_receipt_is_gone_are_not_passed_over(three_batches: ParquetOutput) -> None:
    three_batches.kept(2).unlink()
    message = refusal(three_batches)
    assert f"holds batch {batch_id_of(2)}, expected its receipt in {three_batches.kept(2)}" in message
    assert "without it, it is unknown which offsets the batch holds" in message


def test_a_directory_that_only_looks_like_a_batch_is_not_passed_over(three_batches: ParquetOutput) -> None:
    (three_batches.path / "kafka_batch=restored").mkdir()
    assert "holds batch restored" in refusal(three_batches)


def found(parquet: ParquetOutput) -> list[FilesState]:
    """Return what is there of each batch."""
    return [published.files.state for published in parquet.sink.publisher.published_receipts()]


def test_a_receipt_whose_files_are_gone_is_reported_and_says_so(three_batches: ParquetOutput) -> None:
    shutil.rmtree(three_batches.visible(2))
    assert found(three_batches) == [FilesState.INTACT, FilesState.GONE, FilesState.INTACT]
    assert reported(three_batches)[1].files.difference == f"its files are not in {three_batches.visible(2)}"


def removal_of(number: int, cause: RemovalCause) -> Removal:
    return Removal(batch_id_of(number), cause, NOON, "ops", f"it is {cause}")


@pytest.mark.parametrize("output", REMOVING, indirect=True, ids=lambda kind: kind.name)
def test_a_batch_that_was_found_gone_and_came_back_can_expire(output: Output) -> None:
    publish(output, plan_to(output, 1))
    output.sink.archive.note_removal(removal_of(1, RemovalCause.GONE))
    assert output.sink.archive.removal(batch_id_of(1)) is None, "its files are there again"
    with pytest.raises(ValueError, match="noted as removed before it is hidden"):
        output.sink.remover.hide(batch_id_of(1))

    expires = removal_of(1, RemovalCause.EXPIRED)
    for later in (expires, removal_of(1, RemovalCause.GONE), replace(expires, reason="said twice")):
        output.sink.archive.note_removal(later)
        assert output.sink.archive.removal(batch_id_of(1)) == expires
    assert output.sink.remover.unfinished() == [str(batch_id_of(1))]
    output.sink.remover.hide(batch_id_of(1))
    output.sink.remover.delete_hidden(batch_id_of(1))
    assert output.sink.remover.unfinished() == []
    assert reported(output)[0].files.state is FilesState.EXPIRED


def test_damaged_files_that_were_kept_are_deleted_with_their_batch(three_batches: ParquetOutput) -> None:
    sink, batch_id = three_batches.sink, batch_id_of(2)
    names = [path.name for path in three_batches.visible(2).iterdir()]
    sink.salvage.set_aside(batch_id, names)
    aside = three_batches.path.with_name("orders.kafka-ingest") / "lost" / str(batch_id)
    assert sorted(path.name for path in aside.iterdir()) == sorted(names)
    assert sink.remover.unfinished() == [], "it is not removed, and they may be repaired"

    sink.archive.note_removal(removal_of(2, RemovalCause.EXPIRED))
    sink.remover.hide(batch_id)
    assert sink.remover.unfinished() == [str(batch_id)]
    sink.remover.delete_hidden(batch_id)
    assert (aside.exists(), sink.remover.unfinished()) == (False, [])
    sink.remover.delete_hidden(batch_id)


def test_something_else_in_the_place_of_a_batch_is_a_change(three_batches: ParquetOutput) -> None:
    shutil.rmtree(three_batches.visible(2))
    three_batches.visible(2).write_text("not a directory")
    assert found(three_batches)[1] is FilesState.CHANGED


def take_a_file(directory: Path) -> None:
    (directory / "part-00000.parquet").unlink()


def add_a_file(directory: Path) -> None:
    (directory / "theirs.parquet").write_bytes(b"theirs")


def cut_a_file(directory: Path) -> None:
    os.truncate(directory / "part-00001.parquet", 5)


@pytest.mark.parametrize(
    ("harm", "difference"),
    [
        (take_a_file, "part-00000.parquet is missing"),
        (add_a_file, "theirs.parquet is not in the receipt"),
        (cut_a_file, "part-00001.parquet has 5 bytes instead of"),
    ],
)
def test_visible_files_that_are_not_those_of_the_receipt_are_reported_with_the_difference(
    three_batches: ParquetOutput, harm: Callable[[Path], None], difference: str
) -> None:
    harm(three_batches.visible(2))
    assert found(three_batches) == [FilesState.INTACT, FilesState.CHANGED, FilesState.INTACT]
    assert difference in reported(three_batches)[1].files.difference


def test_a_receipt_that_a_crash_left_half_written_is_not_reported(three_batches: ParquetOutput) -> None:
    kept = three_batches.kept(4)
    kept.with_name(f".{kept.name}.4711.tmp").write_bytes(b'{"vers')
    assert len(reported(three_batches)) == 3


def test_a_batch_whose_publishing_died_between_receipt_and_files_is_not_taken_for_published(
    parquet: ParquetOutput, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory, published = written(parquet, plan_to(parquet, 1))
    rename = Path.rename

    def die_at_the_data(source: Path, target: Path) -> Path:
        if source == directory / "data":
            raise KeyboardInterrupt
        return rename(source, target)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "rename", die_at_the_data)
        with pytest.raises(KeyboardInterrupt):
            parquet.sink.publisher.publish(directory, published)
    assert found(parquet) == [FilesState.STAGED]
    cut_a_file(directory / "data")
    assert found(parquet) == [FilesState.BROKEN]
    parquet.stage(directory, [file.name for file in published.receipt.files])
    parquet.sink.publisher.publish(directory, published)
    assert reported(parquet) == [published]


# ── Storage that fails proves nothing ─────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def open_to_all() -> Iterator[Path]:
    """A directory that every user can reach; pytest's own is its owner's alone."""
    with tempfile.TemporaryDirectory(prefix="kafka-ingest-") as directory:
        Path(directory).chmod(0o777)
        yield Path(directory)


def test_a_receipt_that_cannot_be_read_now_is_not_a_damaged_one(open_to_all: Path) -> None:
    with ordinary_user():
        parquet = ParquetOutput(open_to_all / "orders")
        parquet.sink.publisher.prepare()
        publish(parquet, plan_to(parquet, 1))
        parquet.kept(1).chmod(0)
        assert "Permission denied" in refusal(parquet, OutputUnavailableError)


def test_a_receipt_that_is_a_directory_is_the_storages_failure(three_batches: ParquetOutput) -> None:
    three_batches.kept(2).unlink()
    three_batches.kept(2).mkdir()
    assert "Is a directory" in refusal(three_batches, OutputUnavailableError)


def test_a_receipt_that_another_version_keeps_in_a_store_at_the_same_moment_is_compared(
    parquet: ParquetOutput, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, published = written(parquet, plan_to(parquet, 1))
    kept = KeptReceipts(storage.opened(RemotePlace(f"memory://lake{tmp_path}/receipts")))
    read = KeptReceipts._read

    def slowly(receipts: KeptReceipts, batch_id: UUID) -> dict[str, Any] | None:
        found = read(receipts, batch_id)
        monkeypatch.undo()
        kept.keep(replace(published, ledger=[Event(7, "seeded", NOON, "planner", None, {})]))
        return found

    monkeypatch.setattr(KeptReceipts, "_read", slowly)
    kept.keep(published)
    assert kept.receipt(batch_id_of(1)) == published.receipt


# ── What Spark said of an attempt that failed ─────────────────────────────────────────────────────────────────────────

SAID = (
    "CorruptRecordException: Record batch for partition orders-0 at offset 34 is invalid\n\tat …\nCaused by: „§“ 🙈\n"
)


def test_what_spark_said_is_read_as_it_was_said(output: Output) -> None:
    directory = opened(output, plan_to(output, 1))
    staging = output.sink.staging
    others = [staging.attempt_directory(batch_id_of(1), 2), directory]
    assert [staging.read_failure(each) for each in others] == [None, None]
    output.fail(directory, SAID)
    assert (staging.read_failure(directory), staging.read_failure(others[0])) == (SAID, None)
    assert staging.read_receipt(directory) is None
    assert staging.end_of_failure(directory, 5) == (SAID[-2:], True)
    assert staging.end_of_failure(directory, 10_000) == (SAID, False)


def test_a_failure_without_a_word_is_not_one_of_which_nothing_is_known(output: Output) -> None:
    directory = opened(output, plan_to(output, 1))
    output.fail(directory, "")
    assert output.sink.staging.read_failure(directory) == ""


def test_a_failure_that_cannot_be_read_is_the_storages_and_not_a_missing_one(parquet: ParquetOutput) -> None:
    directory = opened(parquet, plan_to(parquet, 1))
    (directory / FAILURE).mkdir()
    with pytest.raises(OutputUnavailableError, match=r"Is a directory.*No offset was moved"):
        parquet.sink.staging.read_failure(directory)


def test_a_file_where_an_attempts_directory_should_be_is_the_storages_failure(parquet: ParquetOutput) -> None:
    directory = parquet.sink.staging.attempt_directory(batch_id_of(1), 1)
    directory.parent.mkdir(parents=True)
    directory.write_text("a file in the way")
    with pytest.raises(OutputUnavailableError):
        parquet.sink.staging.read_failure(directory)


@pytest.mark.parametrize("part", ["plan", "receipt"])
@pytest.mark.parametrize("content", [None, [], "text", 5])
def test_a_part_that_is_no_object_is_refused(three_batches: ParquetOutput, part: str, content: object) -> None:
    three_batches.change(2, lambda document: document.update({part: content}))
    assert f"holds batch {batch_id_of(2)}, expected its receipt in" in refusal(three_batches)


def test_a_receipt_of_another_batch_under_this_name_is_refused(three_batches: ParquetOutput) -> None:
    shutil.copy(three_batches.kept(1), three_batches.kept(2))
    assert f"holds batch {batch_id_of(2)}, expected its receipt in" in refusal(three_batches)
