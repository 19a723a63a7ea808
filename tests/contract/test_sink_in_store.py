"""What an output in an object store brings besides: failures of stores and networks."""

import errno
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.contract.builders import batch_id_of
from tests.contract.sink_outputs import (
    DeltaInStore,
    IcebergInStore,
    InStore,
    opened,
    plan_to,
    publish,
    rows_of,
    written,
)
from tests.iceberg_lake import connections_beside
from tests.object_store import ObjectStore, StoreFault

from kafka_ingest.errors import BatchRevokedError, KafkaIngestError, OutputNotUsableError, OutputUnavailableError
from kafka_ingest.foundation import storage
from kafka_ingest.model.place import Place
from kafka_ingest.model.published_output import FilesState, PublishedReceipt
from kafka_ingest.sinks.choose import examine

pytestmark = pytest.mark.long

DECIDING_PUT = {"delta": r"PUT .*/_delta_log/\d+\.json", "iceberg": r"PUT .*/metadata/\d+-.*\.metadata\.json"}
"""The one that decides in Delta's log, and the last one before a catalog decides."""
FIRST_PUT = {"delta": r"PUT .*/_delta_log/0{20}\.json", "iceberg": r"PUT .*/metadata/00000-.*\.metadata\.json"}
"""The one that makes the table."""


@pytest.fixture(params=[DeltaInStore, IcebergInStore], ids=lambda kind: kind.name)
def output(request: pytest.FixtureRequest, object_store: ObjectStore, tmp_path: Path) -> InStore:
    found: InStore = request.param(tmp_path / "orders")
    # What fails all the time shall not be tried for seconds.
    found.sink = found.reached(object_store.access(tries=2))
    found.sink.publisher.prepare()
    return found


# ── The put that decides ──────────────────────────────────────────────────────────────────────────────────────────────


def test_a_commit_whose_answer_is_lost_counts_once(output: InStore) -> None:
    first = publish(output, plan_to(output, 1))
    directory, published = written(output, plan_to(output, 2))
    with output.store.failing(StoreFault(DECIDING_PUT[output.format], "lose the answer", times=1)):
        output.sink.publisher.publish(directory, published)
    output.sink.publisher.publish(directory, published)
    assert output.seen() == rows_of(first) + rows_of(published)


def test_a_revocation_whose_answer_is_lost_holds(output: InStore) -> None:
    publish(output, plan_to(output, 1))
    directory, published = written(output, plan_to(output, 2))
    with output.store.failing(StoreFault(DECIDING_PUT[output.format], "lose the answer", times=1)):
        output.sink.publisher.revoke(directory, batch_id_of(2), rows=published.receipt.rows)
    with pytest.raises(BatchRevokedError):
        output.sink.publisher.publish(directory, published)


@pytest.mark.parametrize(
    "fault",
    [
        ("answer", 503, "SlowDown"),
        ("answer", 500, "InternalError"),
        ("answer", 409, "ConditionalRequestConflict"),
        ("cut", 0, ""),
    ],
)
def test_a_store_that_fails_once_at_the_put_that_decides_is_asked_again(
    output: InStore, fault: tuple[Any, int, str]
) -> None:
    kind, status, code = fault
    publish(output, plan_to(output, 1))
    directory, published = written(output, plan_to(output, 2))
    with output.store.failing(StoreFault(DECIDING_PUT[output.format], kind, status=status, code=code, times=1)):
        output.sink.publisher.publish(directory, published)
    assert len(output.seen()) == 2 * len(rows_of(published))


def test_a_table_that_may_be_made_by_another_writer_at_this_moment_is_looked_for_again(output: InStore) -> None:
    directory, published = written(output, plan_to(output, 1))
    # S3's answer while another put of the same name is under way: nothing is there yet, and perhaps nothing will be.
    conflict = StoreFault(FIRST_PUT[output.format], status=409, code="ConditionalRequestConflict", times=2)
    with output.store.failing(conflict):
        output.sink.publisher.publish(directory, published)
    assert output.seen() == rows_of(published)


def test_a_document_whose_answer_is_lost_is_written_once(output: InStore) -> None:
    with output.store.failing(StoreFault(r"PUT .*/plan\.json", "lose the answer", times=1)):
        directory = opened(output, plan_to(output, 1))
    assert storage.read_whole(output.opened(directory / "plan.json")) == b"{}"


# ── Failures at every step ────────────────────────────────────────────────────────────────────────────────────────────

FAILURES = {
    "throttled": StoreFault("/lake", status=503, code="SlowDown"),
    "broken": StoreFault("/lake", status=500, code="InternalError"),
    "no bucket": StoreFault("/lake", status=404, code="NoSuchBucket"),
    "expired": StoreFault("/lake", status=403, code="ExpiredToken"),
    "wrong key": StoreFault("/lake", status=403, code="InvalidAccessKeyId"),
    "cut": StoreFault("/lake", "cut"),
}

Step = Callable[[InStore, Place, PublishedReceipt], object]
STEPS: dict[str, Step] = {
    "prepare": lambda output, _, __: output.sink.publisher.prepare(),
    "known": lambda output, _, __: output.sink.publisher.known_batches(),
    "is kept": lambda output, _, published: output.sink.archive.is_kept(published.plan.batch_id),
    "receipt": lambda output, directory, _: output.sink.staging.read_receipt(directory),
    "failure": lambda output, directory, _: output.sink.staging.read_failure(directory),
    "verify": lambda output, directory, published: output.sink.staging.verify(directory, published.receipt),
    "can take": lambda output, directory, published: output.sink.publisher.can_take(directory, published.receipt),
    "publish": lambda output, directory, published: output.sink.publisher.publish(directory, published),
    "reported": lambda output, _, __: list(output.sink.publisher.published_receipts()),
    "size": lambda output, directory, _: output.sink.staging.size_bytes(directory),
    "remove": lambda output, directory, _: output.sink.staging.remove(directory),
}


@pytest.mark.parametrize("failure", FAILURES)
def test_a_store_that_fails_at_a_step_proves_nothing_and_the_next_run_continues(output: InStore, failure: str) -> None:
    directory, published = written(output, plan_to(output, 1))
    for name, step in STEPS.items():
        with (
            output.store.failing(FAILURES[failure]),
            pytest.raises(OutputUnavailableError, match="No offset was moved") as refused,
        ):
            step(output, directory, published)
        assert "test-secret-key" not in str(refused.value), name
        step(output, directory, published)
    assert output.seen() == rows_of(published)


@pytest.mark.parametrize("failure", FAILURES)
def test_a_store_that_fails_while_an_operator_revokes_lets_it_be_done_again(output: InStore, failure: str) -> None:
    directory, published = written(output, plan_to(output, 1))
    with output.store.failing(FAILURES[failure]), pytest.raises(OutputUnavailableError):
        output.sink.publisher.revoke(directory, batch_id_of(1), rows=published.receipt.rows)
    output.sink.publisher.revoke(directory, batch_id_of(1), rows=published.receipt.rows)
    with pytest.raises(BatchRevokedError):
        output.sink.publisher.publish(directory, published)
    assert not output.seen()


@pytest.mark.parametrize("crash", range(1, 46, 4))
def test_a_store_that_is_gone_from_any_request_on_leaves_a_whole_batch_or_none(output: InStore, crash: int) -> None:
    directory, published = written(output, plan_to(output, 1))
    output.store.set_faults(StoreFault("/lake/", "cut", skip=crash))
    try:
        output.sink.publisher.publish(directory, published)
    except KafkaIngestError:
        pass
    finally:
        output.store.set_faults()
    assert output.seen() in ({}, rows_of(published))
    output.sink.publisher.publish(directory, published)
    assert output.seen() == rows_of(published)


def test_an_attempt_of_which_the_store_keeps_an_object_is_not_removed_and_the_next_clean_up_continues(
    output: InStore,
) -> None:
    directory, _ = written(output, plan_to(output, 1))
    assert len(output.data_files()) == 2
    with (
        output.store.failing(StoreFault(r"POST .*\?delete", "keep one", code="AccessDenied")),
        pytest.raises(OutputUnavailableError, match=r"AccessDenied .* 1 stay, such as .*part-00001\.parquet"),
    ):
        output.sink.staging.remove(directory)
    assert output.sink.staging.read_receipt(directory) is not None, "its data would never be found without it"
    output.sink.staging.remove(directory)
    assert output.data_files() == []
    assert output.sink.staging.read_receipt(directory) is None


# ── Stores that cannot be used ────────────────────────────────────────────────────────────────────────────────────────


def test_a_store_that_overwrites_what_should_only_be_created_is_refused_with_the_reason(output: InStore) -> None:
    directory, published = written(output, plan_to(output, 1))
    access = output.store.access()
    for refuse in (
        output.sink.publisher.prepare,
        lambda: output.sink.publisher.can_take(directory, published.receipt),
        lambda: examine(plan_to(output, 1).output, connections_beside(output.path, access)),
    ):
        with (
            output.store.failing(StoreFault(r"PUT .*/written-once", "forget the condition")),
            pytest.raises(OutputNotUsableError, match="expected a store that refuses to overwrite an object"),
        ):
            refuse()


def test_files_of_another_output_are_no_table(output: InStore) -> None:
    storage.write_whole(output.opened(output.place / f"kafka_batch={batch_id_of(1)}" / "part-0.parquet"), b"PAR1")
    with pytest.raises(
        OutputNotUsableError, match=r"files of another output, which (VACUUM|remove_orphan_files) would delete"
    ):
        output.sink.publisher.prepare()


# ── Without a key ─────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("role", [ObjectStore.role, ObjectStore.role_of_machine], ids=["container", "machine"])
def test_a_connection_without_a_key_uses_the_role_of_the_container_or_the_machine_in_every_client(
    output: InStore,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    role: Callable[[ObjectStore, Path], dict[str, str]],
) -> None:
    for name, value in role(output.store, tmp_path).items():
        monkeypatch.setenv(name, value)
    output.sink = output.reached(output.store.access(access_key=None, secret_key=None, tries=2))
    directory, published = written(output, plan_to(output, 1))
    with output.store.refusing_all_but_the_role():
        output.sink.publisher.prepare()
        output.sink.staging.verify(directory, published.receipt)
        output.sink.publisher.can_take(directory, published.receipt)
        output.sink.publisher.publish(directory, published)
        assert [each.files.state for each in output.sink.publisher.published_receipts()] == [FilesState.INTACT]
    assert output.seen() == rows_of(published)


def test_a_role_that_the_store_does_not_know_is_refused_retryably(output: InStore) -> None:
    with output.store.refusing_all_but_the_role(), pytest.raises(OutputUnavailableError, match="No offset was moved"):
        output.sink.publisher.prepare()


# ── A bucket that vanishes ────────────────────────────────────────────────────────────────────────────────────────────


def test_a_missing_bucket_is_no_missing_file(output: InStore) -> None:
    nowhere = storage.opened(output.place.parent.parent / "x", output.store.access())
    with pytest.raises(FileNotFoundError):
        storage.read_whole(nowhere)
    with (
        output.store.failing(FAILURES["no bucket"]),
        pytest.raises(OSError, match="there is no such bucket") as found,
    ):
        storage.read_whole(nowhere)
    assert (type(found.value), found.value.errno) == (OSError, errno.ENXIO)
