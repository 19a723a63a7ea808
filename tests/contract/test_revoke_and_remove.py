"""The Parquet sink on real files: a batch that is revoked is never visible, and only what is staged is ever removed."""

import itertools
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.contract.builders import at_once
from tests.contract.power_cut import PowerCut, power_cut
from tests.contract.staged_files import Staged, below

from kafka_ingest.errors import BatchRevokedError, BatchStateError, OutputConflictError, OutputUnavailableError
from kafka_ingest.sinks.parquet import parquet_sink

ROUNDS = 25


@pytest.fixture
def output(tmp_path: Path) -> Path:
    return tmp_path / "lake" / "orders"


@pytest.fixture(params=[2, 0], ids=["with files", "without files"])
def staged(request: pytest.FixtureRequest, output: Path) -> Staged:
    """A batch that is COMMITTING, with and without a single record."""
    return Staged(output, partitions=request.param)


def revoke(staged: Staged) -> None:
    staged.sink.publisher.revoke(staged.directory, staged.plan.batch_id)


def assert_nothing_is_visible(staged: Staged) -> None:
    assert below(staged.output) == {}
    assert staged.sink.publisher.known_batches() == []
    assert list(staged.sink.publisher.published_receipts()) == []


# ── Revoking ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_revoked_batch_is_not_published_and_the_refusal_names_the_way_on(staged: Staged):
    revoke(staged)

    with pytest.raises(BatchRevokedError, match=f"kafka-ingest abandon {staged.plan.batch_id}"):
        staged.publish()
    assert_nothing_is_visible(staged)


def test_a_batch_that_is_published_already_is_not_revoked_and_stays_as_it_is(staged: Staged):
    staged.publish()
    before = below(staged.output.parent)

    with pytest.raises(BatchStateError, match=r"is published already.*only rolls forward"):
        revoke(staged)

    assert below(staged.output.parent) == before
    staged.publish()
    assert staged.sink.publisher.known_batches() == [str(staged.plan.batch_id)]


def test_revoking_twice_is_revoking_once(staged: Staged):
    revoke(staged)
    before = below(staged.output.parent)
    revoke(staged)
    assert below(staged.output.parent) == before


def test_the_staged_files_of_a_revoked_batch_stay_until_they_are_cleaned_up(output: Path):
    staged = Staged(output)
    files = {f"data.revoked/{name}": content for name, content in below(staged.data).items()}
    revoke(staged)
    assert {name: below(staged.directory)[name] for name in files} == files


@pytest.mark.parametrize("gone", ["its files", "its directory"])
def test_a_batch_whose_staged_files_vanished_can_be_revoked(output: Path, gone: str):
    staged = Staged(output)
    shutil.rmtree(staged.data if gone == "its files" else staged.directory)
    revoke(staged)
    with pytest.raises(BatchRevokedError):
        staged.publish()
    assert_nothing_is_visible(staged)


def test_a_late_task_of_sparks_that_makes_the_source_again_does_not_make_a_published_batch_revocable(staged: Staged):
    staged.publish()
    (staged.data / "_temporary").mkdir(parents=True)
    before = below(staged.output.parent)

    with pytest.raises(BatchStateError, match="is published already"):
        revoke(staged)

    assert below(staged.output.parent) == before
    staged.publish()


def test_a_late_task_of_sparks_does_not_hide_that_the_batch_was_published_at_the_last_moment(
    output: Path, monkeypatch: pytest.MonkeyPatch
):
    staged, rename = Staged(output), Path.rename

    def publish_before(source: Path, target: Path) -> Path:
        if target.name == "data.revoked":
            monkeypatch.undo()
            staged.publish()
            (staged.data / "_temporary").mkdir(parents=True)
        return rename(source, target)

    monkeypatch.setattr(Path, "rename", publish_before)
    with pytest.raises(BatchStateError, match="is published already"):
        revoke(staged)

    assert staged.sink.publisher.known_batches() == [str(staged.plan.batch_id)]
    staged.publish()


def test_a_late_task_of_sparks_does_not_keep_a_revoked_batch_from_being_revoked_again(staged: Staged):
    revoke(staged)
    (staged.directory / "data.revoked" / "part").write_bytes(b"rows")
    (staged.data / "_temporary").mkdir(parents=True)
    revoke(staged)
    assert_nothing_is_visible(staged)


def test_an_abandon_that_comes_after_the_clean_up_of_a_committed_batch_takes_nothing_of_it(staged: Staged):
    staged.publish()
    staged.sink.staging.remove(staged.directory)
    before = below(staged.output.parent)

    with pytest.raises(BatchStateError, match="is published already"):
        revoke(staged)

    assert below(staged.output.parent) == before
    assert [receipt.plan for receipt in staged.sink.publisher.published_receipts()] == [staged.plan]


def test_control_tables_from_a_backup_cannot_publish_a_batch_that_was_revoked_since(staged: Staged):
    revoke(staged)
    staged.sink.staging.remove(staged.directory)
    with pytest.raises(BatchRevokedError):
        staged.sink.publisher.can_take(staged.directory, staged.receipt)


STORAGE_STEPS: dict[str, Callable[[Staged], object]] = {
    "can_take": lambda staged: staged.sink.publisher.can_take(staged.directory, staged.receipt),
    "open_attempt": lambda staged: staged.sink.staging.open_attempt(staged.directory, b"{}"),
    "read_receipt": lambda staged: staged.sink.staging.read_receipt(staged.directory),
    "verify": lambda staged: staged.verify(),
    "publish": lambda staged: staged.publish(),
    "revoke": revoke,
    "size_bytes": lambda staged: staged.sink.staging.size_bytes(staged.directory),
    "remove": lambda staged: staged.sink.staging.remove(staged.directory),
}


@pytest.mark.parametrize("step", STORAGE_STEPS)
def test_storage_that_is_not_mounted_says_nothing_about_files_and_nothing_is_made_in_its_place(
    staged: Staged, step: str
):
    lake = staged.output.parent
    lake.rename(lake.with_name("the disk"))
    lake.mkdir()

    with pytest.raises(OutputUnavailableError, match="mount it"):
        STORAGE_STEPS[step](staged)

    assert list(lake.iterdir()) == []
    lake.rmdir()
    lake.with_name("the disk").rename(lake)
    staged.verify()
    staged.publish()


def test_a_file_system_that_became_read_only_is_the_storages_failure_and_not_a_wrong_path(
    staged: Staged, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(os, "access", lambda *_: False)
    monkeypatch.setattr(os, "statvfs", lambda _: SimpleNamespace(f_flag=os.ST_RDONLY))
    with pytest.raises(OutputUnavailableError, match="Read-only file system"):
        staged.sink.publisher.can_take(staged.directory, staged.receipt)


def test_files_that_are_added_to_a_published_batch_are_named_and_are_what_has_to_go(output: Path):
    staged = Staged(output)
    staged.publish()
    late = staged.target / "late.parquet"
    late.write_bytes(b"rows")
    with pytest.raises(OutputConflictError, match=r"late\.parquet is not in the receipt.*Remove those"):
        staged.publish()
    late.unlink()
    staged.publish()


def test_something_else_in_a_batchs_place_does_not_keep_it_from_being_revoked(output: Path):
    staged = Staged(output)
    staged.target.mkdir()
    revoke(staged)
    assert not staged.data.exists()


def test_a_publisher_that_kept_the_receipt_and_then_died_makes_no_revoked_batch_known(staged: Staged):
    with pytest.raises(PowerCut), power_cut(after=3):
        staged.publish()
    assert staged.kept.exists()
    revoke(staged)
    assert_nothing_is_visible(staged)


def test_a_publisher_that_comes_after_the_clean_up_of_a_revoked_batch_makes_nothing_known(staged: Staged):
    revoke(staged)
    staged.sink.staging.remove(staged.directory)

    with pytest.raises(BatchRevokedError):
        staged.publish()

    assert_nothing_is_visible(staged)


def test_of_publishers_and_revokers_of_a_batch_without_files_at_once_exactly_one_side_wins(output: Path):
    published = []
    for number in range(1, ROUNDS + 1):
        staged = Staged(output, number=number, partitions=0)
        answers = at_once(*(rival(staged) for rival in (publisher, revoker, publisher, revoker)))

        did_publish, did_revoke = ({type(answer) for answer in side} for side in (answers[::2], answers[1::2]))
        is_known = str(staged.plan.batch_id) in staged.sink.publisher.known_batches()
        assert (did_publish, did_revoke, is_known) in [
            ({type(None)}, {BatchStateError}, True),
            ({BatchRevokedError}, {type(None)}, False),
        ]
        published.append(is_known)
    assert len(published) == ROUNDS


def publisher(staged: Staged) -> Callable[[], None]:
    return lambda: parquet_sink(staged.output).publisher.publish(staged.directory, staged.published)


def revoker(staged: Staged) -> Callable[[], None]:
    return lambda: parquet_sink(staged.output).publisher.revoke(staged.directory, staged.plan.batch_id)


def test_a_revoke_of_a_batch_without_files_that_died_anywhere_is_finished_by_the_next_one(output: Path):
    for crash in itertools.count():
        staged = Staged(output, number=crash + 1, partitions=0)
        try:
            with power_cut(after=crash):
                revoke(staged)
        except PowerCut:
            revoke(staged)
            assert_nothing_is_visible(staged)
            with pytest.raises(BatchRevokedError):
                staged.publish()
        else:
            break
    assert crash >= 4, "revoking moves or names something and leaves a mark, both durably"


@pytest.mark.parametrize("partitions", [2, 0], ids=["with files", "without files"])
def test_a_publish_after_a_revoke_that_died_either_wins_whole_or_is_refused(output: Path, partitions: int):
    for crash in itertools.count():
        staged = Staged(output, number=crash + 1, partitions=partitions)
        try:
            with power_cut(after=crash):
                revoke(staged)
        except PowerCut:
            try:
                staged.publish()
            except BatchRevokedError:
                assert below(staged.target) == {}
            else:
                assert str(staged.plan.batch_id) in staged.sink.publisher.known_batches()
                with pytest.raises(BatchStateError, match="published already"):
                    revoke(staged)
        else:
            break


# ── Removing ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_name_that_vanishes_while_an_attempt_is_removed_leaves_nothing_behind(
    output: Path, monkeypatch: pytest.MonkeyPatch
):
    staged = Staged(output)
    real, vanished = os.unlink, []

    def unlink_what_another_process_just_unlinked(*arguments: Any, **named: Any) -> None:
        real(*arguments, **named)
        if not vanished:
            vanished.append(arguments)
            raise FileNotFoundError

    monkeypatch.setattr(os, "unlink", unlink_what_another_process_just_unlinked)
    staged.sink.staging.remove(staged.directory)
    assert vanished
    assert not staged.directory.exists()


def test_an_attempt_that_another_process_keeps_writing_to_is_not_called_removed(
    output: Path, monkeypatch: pytest.MonkeyPatch
):
    staged = Staged(output)
    monkeypatch.setattr(shutil, "rmtree", lambda _: None)
    with pytest.raises(OutputUnavailableError, match="another process keeps writing to it"):
        staged.sink.staging.remove(staged.directory)
