"""What any store does for a table in it: how it creates, lists, removes, refuses and fails.

S3Proxy speaks for S3: it checks signatures and writes what must not exist in one step of a file system; moto, of which
the whole contract of outputs asks its part, does not look at keys.
"""

import base64
import errno
import json
from collections import Counter
from pathlib import Path
from typing import Any

import deltalake
import pytest
from tests.contract.builders import NOON, batch_id_of, orders
from tests.contract.racing_publishers import Step, race
from tests.contract.sink_outputs import (
    IN_OTHER_CLOUDS,
    IN_S3_PROXY,
    ROWS,
    DeltaInAzure,
    DeltaInGcs,
    DeltaInS3Proxy,
    IcebergInStore,
    InStore,
    made,
    opened,
    plan_to,
    publish,
    rows_of,
    written,
)
from tests.contract.without_waiting import let_azure_try_at_once, let_gcs_try_at_once, let_tables_try_at_once
from tests.gcs_server import key_of_account, new_key
from tests.object_store import AzureLake, ObjectStore, StoreFault

from kafka_ingest.errors import BatchRevokedError, BatchStateError, OutputNotUsableError, OutputUnavailableError
from kafka_ingest.foundation import storage
from kafka_ingest.model.gap import Removal, RemovalCause
from kafka_ingest.model.partition_term import terms_of
from kafka_ingest.model.published_output import FilesState, PublishedCount
from kafka_ingest.model.table_options import TableOptions
from kafka_ingest.sinks.tables import publisher
from kafka_ingest.sinks.usable_places import storage_errors

pytestmark = pytest.mark.long

DECIDING_WRITE = {
    "delta": r"(POST|PUT) .*/_delta_log/\d+\.json",
    "iceberg": r"(POST .*/metadata/\d+-.*\.metadata\.json|PUT .*/metadata/\d+-.*\.metadata\.json.*comp=blocklist)",
}
GOOGLES_NAMES = {403: "403 Forbidden", 503: "503", 401: "401", 400: "400 Bad"}
ANOTHER_KEY = base64.b64encode(b"another key").decode()
A_WEEK_S = 7 * 86_400
PARTITIONED = TableOptions(partition_by=terms_of(["kafka_partition", "day(kafka_timestamp)"]))

of_any_format = pytest.mark.parametrize("output", [DeltaInGcs, DeltaInAzure], indirect=True, ids=lambda kind: kind.name)
"""For what a store does, whatever is in it."""
of_each_store = pytest.mark.parametrize("output", [DeltaInS3Proxy, DeltaInGcs, DeltaInAzure], indirect=True)
in_other_clouds = pytest.mark.parametrize("output", IN_OTHER_CLOUDS, indirect=True, ids=lambda kind: kind.name)
in_s3 = pytest.mark.parametrize("output", IN_S3_PROXY, indirect=True, ids=lambda kind: kind.name)


@pytest.fixture(autouse=True)
def without_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let tries follow each other at once."""
    let_gcs_try_at_once(monkeypatch)
    let_azure_try_at_once(monkeypatch)
    let_tables_try_at_once(monkeypatch)


@pytest.fixture(params=[*IN_S3_PROXY, *IN_OTHER_CLOUDS], ids=lambda kind: kind.name)
def output(request: pytest.FixtureRequest, tmp_path: Path) -> InStore:
    found = made(request.param, tmp_path / "orders", request)
    assert isinstance(found, InStore)
    found.sink = found.reached(found.store.access(tries=2))
    return found


# ── Once ──────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_batch_is_seen_once_however_often_it_is_published_and_one_that_was_revoked_never(output: InStore) -> None:
    directory, published = written(output, plan_to(output, 1))
    output.sink.staging.verify(directory, published.receipt)
    output.sink.publisher.can_take(directory, published.receipt)
    assert output.seen() == Counter()
    for _ in range(2):
        type(output)(output.path).sink.publisher.publish(directory, published)
    assert output.seen() == rows_of(published)
    assert output.sink.staging.read_receipt(directory) == published.receipt.as_bytes()
    with pytest.raises(BatchStateError):
        output.sink.publisher.revoke(directory, batch_id_of(1))
    second, not_published = written(output, plan_to(output, 2))
    output.sink.publisher.revoke(second, batch_id_of(2))
    with pytest.raises(BatchRevokedError):
        output.sink.publisher.publish(second, not_published)
    assert output.seen() == rows_of(published)
    assert output.sink.publisher.known_batches() == [str(batch_id_of(1))]


@of_each_store
def test_of_publishers_in_processes_of_their_own_each_batch_is_there_once(output: InStore) -> None:
    batches = [written(output, plan_to(output, number)) for number in (1, 2)]
    steps = [[Step(output.path, directory, published)] for directory, published in batches * 2]
    assert race(output.name, steps) == [[None]] * len(steps)
    assert output.seen() == rows_of(batches[0][1]) + rows_of(batches[1][1])


@of_each_store
def test_a_document_is_written_once_also_where_its_answer_is_lost_and_never_over_another(output: InStore) -> None:
    with output.store.failing(StoreFault(r"(POST|PUT) .*/plan\.json", "lose the answer", times=1)):
        directory = opened(output, plan_to(output, 1))
    assert storage.read_whole(output.opened(directory / "plan.json")) == b"{}"
    with pytest.raises(OutputUnavailableError, match=r"expected no .*plan\.json, or one with the same content"):
        output.sink.staging.open_attempt(directory, b'{"attempt": "another"}')


@in_other_clouds
@pytest.mark.parametrize("kind", ["lose the answer", "cut", "answer"])
def test_a_failure_of_the_write_that_decides_is_settled_by_a_look(output: InStore, kind: Any) -> None:
    publish(output, plan_to(output, 1))
    directory, published = written(output, plan_to(output, 2))
    fault = StoreFault(DECIDING_WRITE[output.format], kind, status=503, code="Backend Error", times=1)
    with output.store.failing(fault):
        output.sink.publisher.publish(directory, published)
    assert len(output.seen()) == 2 * len(rows_of(published))
    assert set(output.seen().values()) == {1}


@of_any_format
def test_a_store_that_overwrites_what_should_be_created_is_refused(output: InStore) -> None:
    storage.remove_file(output.opened(output.place.parent / "orders.kafka-ingest" / "written-once"))
    forgetful = StoreFault(".*", "forget the condition", conditional=True)
    # A key of an account signs conditions as well, and a token does not.
    sink = output.reached(output.store.access(**by_token(output.store), tries=2))
    said = r"\((ifGenerationMatch=0|If-None-Match: \*)\)"
    with output.store.failing(forgetful), pytest.raises(OutputNotUsableError, match=said):
        sink.publisher.prepare()


def by_token(store: ObjectStore) -> dict[str, str | None]:
    """Return how to reach Azure's store by a shared access signature, and others as they are."""
    return {"account_key": None, "sas_token": store.sas_token()} if isinstance(store, AzureLake) else {}


@pytest.mark.parametrize("output", [DeltaInAzure], indirect=True)
def test_a_shared_access_signature_is_enough(output: InStore) -> None:
    output.sink = output.reached(output.store.access(**by_token(output.store)))
    published = publish(output, plan_to(output, 1))
    assert output.seen() == rows_of(published)


# ── Refused and failing ───────────────────────────────────────────────────────────────────────────────────────────────


def test_another_key_than_the_accounts_is_refused_without_naming_it_and_the_right_one_continues(
    output: InStore,
) -> None:
    directory, published = written(output, plan_to(output, 1))
    sink = output.reached(output.store.access(**wrong_key(output.store), tries=2))
    for step in (sink.publisher.prepare, lambda: sink.publisher.publish(directory, published)):
        with pytest.raises(OutputUnavailableError, match="No offset was moved") as refused:
            step()
        assert not [secret for secret in ("PRIVATE KEY", ANOTHER_KEY) if secret in str(refused.value)]
    output.sink.publisher.publish(directory, published)
    assert output.seen() == rows_of(published)


def wrong_key(store: ObjectStore) -> dict[str, str]:
    """Return another key than the account's."""
    if isinstance(store, AzureLake):
        return {"account_key": ANOTHER_KEY}
    if store.scheme == "s3":
        return {"secret_key": ANOTHER_KEY}
    return {"key": json.dumps(key_of_account(store.endpoint, new_key()))}


@of_any_format
@pytest.mark.parametrize(("status", "code"), [(403, "Refused"), (503, "Busy"), (401, "Refused"), (400, "invalid")])
def test_what_the_store_answers_instead_is_in_the_error(output: InStore, status: int, code: str) -> None:
    directory, _ = written(output, plan_to(output, 1))
    said = code if isinstance(output.store, AzureLake) else GOOGLES_NAMES[status]
    with (
        output.store.failing(StoreFault(".*", status=status, code=code)),
        pytest.raises(OutputUnavailableError, match=said),
    ):
        output.sink.staging.read_receipt(directory)


@of_any_format
def test_a_bucket_that_is_missing_is_no_missing_file(output: InStore) -> None:
    place = type(output.place)(str(output.place).replace("@lake", "@no-such-lake"))
    elsewhere = output.opened(place / "receipt.json")
    for look in (storage.read_whole, lambda path: storage.names_in(path.parent), storage.size_of):
        with pytest.raises(OSError, match="there is no such bucket") as missing:
            look(elsewhere)
        assert missing.value.errno == errno.ENXIO
    with pytest.raises(FileNotFoundError):
        storage.read_whole(output.opened(output.place / "receipt.json"))
    with pytest.raises(OutputUnavailableError, match="no such bucket"), storage_errors(place):
        storage.read_whole(elsewhere)


# ── What lies in a store unseen ───────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("output", [DeltaInS3Proxy], indirect=True)
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


@pytest.mark.parametrize("output", [DeltaInS3Proxy], indirect=True)
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


@pytest.mark.parametrize("output", [DeltaInS3Proxy], indirect=True)
def test_objects_that_stand_for_folders_go_with_their_attempt(output: InStore) -> None:
    directory, _ = written(output, plan_to(output, 1))
    data = output.sink.publisher.data_needs(directory).place
    files = output.opened(data).fs
    for key in (f"{data.key}/", f"{data.key}/__magic/"):
        files.call_s3("put_object", Bucket="lake", Key=key, Body=b"")
    output.sink.staging.remove(directory)
    left = files.call_s3("list_objects_v2", Bucket="lake", Prefix=f"{output.place.key}/").get("Contents", [])
    assert not [each["Key"] for each in left if str(batch_id_of(1)) in each["Key"]]


@pytest.mark.parametrize("output", [DeltaInGcs], indirect=True)
def test_objects_that_stand_for_folders_are_no_files_and_go_with_their_attempt(output: InStore) -> None:
    directory, published = written(output, plan_to(output, 1))
    data = output.sink.publisher.data_needs(directory).place
    assert data is not None
    files = output.opened(data).fs
    for name in ("", "_temporary/"):
        files.pipe_file(f"lake/{data.key}/{name}", b"")
    files.pipe_file(f"lake/{data.parent.key}/", b"")
    output.sink.staging.verify(directory, published.receipt)
    output.sink.publisher.can_take(directory, published.receipt)
    # What another program has put there, by a name that the library would take for a pattern.
    files.pipe_file(f"lake/{data.key}/_temporary/a[b]*", b"")
    output.sink.staging.remove(directory)
    left = files.find(f"lake/{output.place.key}")
    assert [name for name in left if str(batch_id_of(1)) in name] == []


@pytest.mark.parametrize("output", [DeltaInAzure], indirect=True)
def test_folders_of_azure_are_no_files_and_go_with_their_attempt_once_they_are_empty(output: InStore) -> None:
    directory, published = written(output, plan_to(output, 1))
    data = output.sink.publisher.data_needs(directory).place
    assert data is not None
    store = output.store
    assert isinstance(store, AzureLake)
    for place in (data.parent, data, data / "_temporary", data / "_temporary" / "0"):
        store.make_folder(place.key)
    output.sink.staging.verify(directory, published.receipt)
    output.sink.publisher.can_take(directory, published.receipt)
    output.sink.staging.remove(directory)
    assert [name for name in store.names_below(output.place.parent.key) if str(batch_id_of(1)) in name] == []


@pytest.mark.parametrize("output", [DeltaInAzure], indirect=True)
def test_folders_of_azure_that_a_move_empties_are_removed_and_others_stay(output: InStore) -> None:
    store, place = output.store, output.place / "moved"
    assert isinstance(store, AzureLake)
    for folder in ("old", "old/one", "old/two"):
        store.make_folder(f"{place.key}/{folder}")
    for name in ("old/one/a", "old/two/b"):
        storage.write_whole(output.opened(place / name), b"")
    storage.move_files(output.opened(place), {"old/one/a": "new/a"})
    left = [name.removeprefix(f"{place.key}/") for name in store.names_below(place.key)]
    assert left == ["new/a", "old", "old/two", "old/two/b"]


@of_any_format
def test_names_from_one_on_are_those_that_come_after_it(output: InStore) -> None:
    folder = output.opened(output.place / "names")
    for name in ("a", "b", "c", "d/e"):
        storage.write_whole(folder / name, b"")
    assert storage.names_from(folder, "b") == ["b", "c"]
    assert sorted(storage.names_in(folder)) == ["a", "b", "c", "d"]
    storage.move_files(folder, {"a": "moved/a"})
    assert storage.files_below(folder) == ["b", "c", "d/e", "moved/a"]


@of_any_format
@pytest.mark.parametrize("content", [b"", b"0123456789"])
def test_the_beginning_and_the_end_of_a_file_are_read(output: InStore, content: bytes) -> None:
    file = output.opened(output.place / "said")
    storage.write_whole(file, content)
    assert [storage.read_end(file, most) for most in (4, 10, 40)] == [content[-4:], content, content]
    assert [storage.read_at_most(file, most) for most in (4, 10, 40)] == [content[:4], content, content]
    folder, long = output.opened(output.place), b"x" * (storage.SHORT + 7)
    storage.write_whole(folder / "long", long)
    assert list(storage.read_each(folder, ["said", "long"], storage.SHORT + 5)) == [content, long[:-2]]
    with pytest.raises(FileNotFoundError):
        list(storage.read_each(folder, ["said", "not said"], 4))
    with pytest.raises(FileNotFoundError):
        storage.read_at_most(output.opened(output.place / "not said"), 4)
    with pytest.raises(FileNotFoundError):
        storage.read_end(output.opened(output.place / "not said"), 4)


def test_files_that_a_clean_up_could_take_at_this_moment_are_renewed_and_committed_later(
    output: InStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish(output, plan_to(output, 1))
    directory, published = written(output, plan_to(output, 2))
    data = output.sink.publisher.data_needs(directory).place
    assert data is not None
    file = output.opened(data / published.receipt.files[0].name)
    before = file.fs.info(file.path)  # the time is one of whole seconds, and Azure has a new version as well
    with monkeypatch.context() as patch:
        real = publisher.time.time
        patch.setattr(publisher.time, "time", lambda: real() + A_WEEK_S)
        with pytest.raises(OutputUnavailableError, match=r"(VACUUM|remove_orphan_files) may take them"):
            output.sink.publisher.can_take(directory, published.receipt)
    assert file.fs.info(file.path) != before or output.store.scheme == "s3"
    output.sink.staging.verify(directory, published.receipt)
    output.sink.publisher.can_take(directory, published.receipt)


# ── Tables of a form of their own ─────────────────────────────────────────────────────────────────────────────────────


@in_s3
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


@in_s3
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


@of_any_format
def test_a_batch_that_expires_is_seen_no_more_and_the_others_are(output: InStore) -> None:
    _, second = (publish(output, plan_to(output, number)) for number in (1, 2))
    compact(output)
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
