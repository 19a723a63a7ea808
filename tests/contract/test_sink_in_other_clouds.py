"""What is a cloud's own for a table in its store: how it creates, lists, removes, refuses and fails."""

import base64
import errno
import json
from collections import Counter
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from tests.contract.builders import NOON, batch_id_of
from tests.contract.racing_publishers import Step, race
from tests.contract.sink_outputs import (
    IN_OTHER_CLOUDS,
    DeltaInAzure,
    DeltaInGcs,
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

from kafka_ingest.errors import BatchRevokedError, OutputNotUsableError, OutputUnavailableError
from kafka_ingest.foundation import storage
from kafka_ingest.model.removal import Removal, RemovalCause
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

of_any_format = pytest.mark.parametrize("output", [DeltaInGcs, DeltaInAzure], indirect=True, ids=lambda kind: kind.name)
"""For what a store does, whatever is in it."""


@pytest.fixture(autouse=True)
def without_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let tries follow each other at once."""
    let_gcs_try_at_once(monkeypatch)
    let_azure_try_at_once(monkeypatch)
    let_tables_try_at_once(monkeypatch)


@pytest.fixture(params=IN_OTHER_CLOUDS, ids=lambda kind: kind.name)
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
    second, not_published = written(output, plan_to(output, 2))
    output.sink.publisher.revoke(second, batch_id_of(2), rows=not_published.receipt.rows)
    with pytest.raises(BatchRevokedError):
        output.sink.publisher.publish(second, not_published)
    assert output.seen() == rows_of(published)
    assert output.sink.publisher.known_batches() == [str(batch_id_of(1))]


def test_of_publishers_in_processes_of_their_own_each_batch_is_there_once(output: InStore) -> None:
    batches = [written(output, plan_to(output, number)) for number in (1, 2)]
    steps = [[Step(output.path, directory, published)] for directory, published in batches * 2]
    assert race(output.name, steps) == [[None]] * len(steps)
    assert output.seen() == rows_of(batches[0][1]) + rows_of(batches[1][1])


@of_any_format
def test_a_document_is_written_once_also_where_its_answer_is_lost_and_never_over_another(output: InStore) -> None:
    with output.store.failing(StoreFault(r"(POST|PUT) .*/plan\.json", "lose the answer", times=1)):
        directory = opened(output, plan_to(output, 1))
    assert storage.read_whole(output.opened(directory / "plan.json")) == b"{}"
    with pytest.raises(OutputUnavailableError, match=r"expected no .*plan\.json, or one with the same content"):
        output.sink.staging.open_attempt(directory, b'{"attempt": "another"}')


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
    assert file.fs.info(file.path) != before
    output.sink.publisher.can_take(directory, published.receipt)


def test_a_batch_that_expires_is_seen_no_more_and_the_others_are(output: InStore) -> None:
    _, second = (publish(output, plan_to(output, number)) for number in (1, 2))
    remover = output.sink.remover
    assert remover is not None
    output.sink.archive.note_removal(Removal(batch_id_of(1), RemovalCause.EXPIRED, NOON, "operator", "old"))
    remover.hide(UUID(str(batch_id_of(1))))
    assert output.seen() == rows_of(second)
