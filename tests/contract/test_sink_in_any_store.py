"""What any store does for a table in it that speaks S3's protocol, tried with S3Proxy.

It checks signatures and writes what must not exist in one step of a file system; moto, of which the whole contract of
outputs asks its part, does not look at keys.
"""

from collections import Counter
from pathlib import Path

import deltalake
import pytest
from tests.contract.builders import NOON, batch_id_of, orders
from tests.contract.racing_publishers import Step, race
from tests.contract.sink_outputs import (
    IN_S3_PROXY,
    ROWS,
    IcebergInStore,
    InStore,
    made,
    opened,
    plan_to,
    publish,
    rows_of,
    written,
)

from kafka_ingest.errors import BatchRevokedError, BatchStateError, OutputUnavailableError
from kafka_ingest.model.partition_term import terms_of
from kafka_ingest.model.published_output import FilesState, PublishedCount
from kafka_ingest.model.removal import Removal, RemovalCause
from kafka_ingest.model.table_options import TableOptions
from kafka_ingest.sinks.tables import publisher

pytestmark = pytest.mark.long

A_WEEK_S = 7 * 86_400
PARTITIONED = TableOptions(partition_by=terms_of(["kafka_partition", "day(kafka_timestamp)"]))


@pytest.fixture(params=IN_S3_PROXY, ids=lambda kind: kind.name)
def output(request: pytest.FixtureRequest, tmp_path: Path) -> InStore:
    found = made(request.param, tmp_path / "orders", request)
    assert isinstance(found, InStore)
    return found


# ── Once ──────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_batch_is_seen_with_all_its_rows_once_however_often_it_is_published(output: InStore) -> None:
    directory, published = written(output, plan_to(output, 1))
    output.sink.staging.verify(directory, published.receipt)
    output.sink.publisher.can_take(directory, published.receipt)
    assert output.seen() == Counter()
    for _ in range(2):
        type(output)(output.path).sink.publisher.publish(directory, published)
    assert output.seen() == rows_of(published)
    assert output.sink.publisher.known_batches() == [str(batch_id_of(1))]
    assert output.sink.staging.read_receipt(directory) == published.receipt.as_bytes()
    with pytest.raises(BatchStateError):
        output.sink.publisher.revoke(directory, batch_id_of(1), rows=published.receipt.rows)


def test_a_batch_that_was_revoked_is_never_seen(output: InStore) -> None:
    directory, published = written(output, plan_to(output, 1))
    output.sink.publisher.revoke(directory, batch_id_of(1), rows=published.receipt.rows)
    with pytest.raises(BatchRevokedError):
        output.sink.publisher.publish(directory, published)
    assert output.seen() == Counter()
    assert output.sink.publisher.known_batches() == []


def test_of_publishers_in_processes_of_their_own_each_batch_is_there_once(output: InStore) -> None:
    batches = [written(output, plan_to(output, number)) for number in (1, 2)]
    steps = [[Step(output.path, directory, published)] for directory, published in batches * 2]
    assert race(output.name, steps) == [[None]] * len(steps)
    assert output.seen() == rows_of(batches[0][1]) + rows_of(batches[1][1])


def test_a_document_is_never_written_over(output: InStore) -> None:
    directory = opened(output, plan_to(output, 1))
    with pytest.raises(OutputUnavailableError, match=r"expected no .*plan\.json, or one with the same content"):
        output.sink.staging.open_attempt(directory, b'{"attempt": "another"}')


def test_a_wrong_secret_is_refused_without_naming_it_and_the_right_one_continues(output: InStore) -> None:
    directory, published = written(output, plan_to(output, 1))
    sink = output.reached(output.store.access(secret_key="not-the-secret", tries=2))
    for step in (sink.publisher.prepare, lambda: sink.publisher.publish(directory, published)):
        with pytest.raises(OutputUnavailableError, match="No offset was moved") as refused:
            step()
        assert "not-the-secret" not in str(refused.value)
    output.sink.publisher.publish(directory, published)
    assert output.seen() == rows_of(published)


# ── What lies in a store unseen ───────────────────────────────────────────────────────────────────────────────────────


def test_what_a_killed_writer_began_to_upload_goes_with_its_attempt_and_nothing_else_does(output: InStore) -> None:
    directory, _ = written(output, plan_to(output, 1))
    other, _ = written(output, plan_to(output, 1), attempt=12)
    files = output.opened(output.place).fs
    for each in (directory, other):
        data = output.sink.publisher.data_needs(each).place
        files.call_s3("create_multipart_upload", Bucket="lake", Key=f"{data.key}/part-7.parquet")
    output.sink.staging.remove(directory)
    left = files.call_s3("list_multipart_uploads", Bucket="lake", Prefix=f"{output.place.key}/")["Uploads"]
    assert [each["Key"] for each in left] == [f"{output.sink.publisher.data_needs(other).place.key}/part-7.parquet"]


def test_an_object_that_stands_for_a_folder_is_no_file(output: InStore) -> None:
    directory, published = written(output, plan_to(output, 1))
    data = output.sink.publisher.data_needs(directory).place
    files = output.opened(data).fs
    for key in (f"{data.key}/", f"{data.key}/__magic/"):
        files.call_s3("put_object", Bucket="lake", Key=key, Body=b"")
    output.sink.staging.verify(directory, published.receipt)
    output.sink.publisher.can_take(directory, published.receipt)
    output.sink.publisher.publish(directory, published)
    assert output.seen() == rows_of(published)


def test_objects_that_stand_for_folders_go_with_their_attempt(output: InStore) -> None:
    directory, _ = written(output, plan_to(output, 1))
    data = output.sink.publisher.data_needs(directory).place
    files = output.opened(data).fs
    for key in (f"{data.key}/", f"{data.key}/__magic/"):
        files.call_s3("put_object", Bucket="lake", Key=key, Body=b"")
    output.sink.staging.remove(directory)
    left = files.call_s3("list_objects_v2", Bucket="lake", Prefix=f"{output.place.key}/").get("Contents", [])
    assert not [each["Key"] for each in left if str(batch_id_of(1)) in each["Key"]]


def test_files_that_vacuum_could_take_at_this_moment_are_renewed_and_committed_later(
    output: InStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish(output, plan_to(output, 1))
    directory, published = written(output, plan_to(output, 2))
    with monkeypatch.context() as patch:
        real = publisher.time.time
        patch.setattr(publisher.time, "time", lambda: real() + A_WEEK_S)
        with pytest.raises(OutputUnavailableError, match=r"(VACUUM|remove_orphan_files) may take them"):
            output.sink.publisher.can_take(directory, published.receipt)
    output.sink.staging.verify(directory, published.receipt)
    output.sink.publisher.can_take(directory, published.receipt)


# ── Tables of a form of their own ─────────────────────────────────────────────────────────────────────────────────────


def test_a_partitioned_table_takes_batches_and_one_can_be_taken_out(output: InStore) -> None:
    partitioned = type(output)(output.path.with_name("partitioned"), PARTITIONED)
    partitioned.sink.publisher.prepare()
    first, second = (publish(partitioned, plan_to(partitioned, number)) for number in (1, 2))
    assert partitioned.seen() == rows_of(first) + rows_of(second)
    states = [each.files.state for each in partitioned.sink.publisher.published_receipts()]
    assert states == [FilesState.INTACT] * 2
    remover = partitioned.sink.remover
    assert remover is not None
    partitioned.sink.archive.note_removal(Removal(batch_id_of(1), RemovalCause.EXPIRED, NOON, "operator", "old"))
    remover.hide(batch_id_of(1))
    assert partitioned.seen() == rows_of(second)


# ── What operators and other programs do to a table ───────────────────────────────────────────────────────────────────


def compact(output: InStore) -> None:
    """Put all rows into files of another program's making."""
    if isinstance(output, IcebergInStore):
        table = output.table()
        table.overwrite(table.scan().to_arrow())
    else:
        options = output.store.access().for_delta()
        table = deltalake.DeltaTable(str(output.place.without_connection), storage_options=options)
        table.optimize.compact()
        table.create_checkpoint()


def test_a_batch_is_found_wherever_a_compaction_put_its_rows(output: InStore) -> None:
    before = [publish(output, plan_to(output, number)) for number in (1, 2)]
    compact(output)
    third = publish(output, plan_to(output, 3))
    inspector = output.sink.inspector
    assert inspector is not None
    for published in (*before, third):
        look = inspector.look_at(published.plan.batch_id, closely=True)
        assert list(look.problems) == []
        assert list(look.counts) == [PublishedCount(orders(each), ROWS, ROWS, 0, ROWS - 1) for each in (0, 1)]
        assert inspector.holds(published.plan.batch_id, published.receipt.files[0], orders(0), 3)
        assert not inspector.holds(published.plan.batch_id, published.receipt.files[0], orders(0), ROWS)
    states = [each.files.state for each in output.sink.publisher.published_receipts()]
    assert states == [FilesState.INTACT] * 3


def test_a_batch_that_expires_is_seen_no_more_and_the_others_are(output: InStore) -> None:
    _, second = (publish(output, plan_to(output, number)) for number in (1, 2))
    if output.format == "delta":
        compact(output)  # of an Iceberg table only whole files are taken out
    remover = output.sink.remover
    assert remover is not None
    output.sink.archive.note_removal(Removal(batch_id_of(1), RemovalCause.EXPIRED, NOON, "operator", "old"))
    assert remover.unfinished() == [str(batch_id_of(1))]
    remover.hide(batch_id_of(1))
    assert output.seen() == rows_of(second)
    assert remover.unfinished() == []
    assert output.sink.archive.removed_batches() == [str(batch_id_of(1))]
    states = [each.files.state for each in output.sink.publisher.published_receipts()]
    assert states == [FilesState.EXPIRED, FilesState.INTACT]
