"""What an output in an object store brings besides: failures of stores and networks."""

import errno
import re
import signal
import sqlite3
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from tests.contract.builders import NOON, batch_id_of, orders
from tests.contract.racing_publishers import publishing
from tests.contract.sink_outputs import (
    DeltaInStore,
    IcebergInStore,
    InStore,
    plan_to,
    publish,
    rows_of,
    written,
)
from tests.contract.test_sink_replace import of_partition, replacing
from tests.contract.without_waiting import let_s3_try_at_once, let_tables_try_at_once
from tests.iceberg_lake import connections_beside
from tests.killing import wait_for
from tests.object_store import ObjectStore, StoreFault

from kafka_ingest.errors import BatchRevokedError, BatchStateError, OutputNotUsableError, OutputUnavailableError
from kafka_ingest.foundation import storage
from kafka_ingest.model.gap import Removal, RemovalCause
from kafka_ingest.model.place import Place
from kafka_ingest.model.published_output import FilesState, PublishedReceipt
from kafka_ingest.model.receipt import WrittenFile
from kafka_ingest.model.table_options import OnNewColumns, TableOptions
from kafka_ingest.ports.outputs import Sink
from kafka_ingest.sinks.choose import examine
from kafka_ingest.sinks.iceberg import commits as iceberg_commits
from kafka_ingest.sinks.usable_places import storage_errors

pytestmark = pytest.mark.long

DECIDING_PUT = {"delta": r"PUT .*/_delta_log/\d+\.json", "iceberg": r"PUT .*/metadata/\d+-.*\.metadata\.json"}
"""The one that decides in Delta's log, and the last one before a catalog decides."""
FIRST_PUT = {"delta": r"PUT .*/_delta_log/0{20}\.json", "iceberg": r"PUT .*/metadata/00000-.*\.metadata\.json"}
"""The one that makes the table."""


@pytest.fixture(autouse=True)
def without_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let tries follow each other at once."""
    let_s3_try_at_once(monkeypatch)
    let_tables_try_at_once(monkeypatch)


@pytest.fixture(params=[DeltaInStore, IcebergInStore], ids=lambda kind: kind.name)
def output(request: pytest.FixtureRequest, object_store: ObjectStore, tmp_path: Path) -> InStore:
    found: InStore = request.param(tmp_path / "orders")
    found.sink = found.reached(object_store.access(tries=2))
    found.sink.publisher.prepare()
    return found


# ── The put that decides ──────────────────────────────────────────────────────────────────────────────────────────────


def test_a_revocation_whose_answer_is_lost_holds(output: InStore) -> None:
    publish(output, plan_to(output, 1))
    directory, published = written(output, plan_to(output, 2))
    with output.store.failing(StoreFault(DECIDING_PUT[output.format], "lose the answer", times=1)):
        output.sink.publisher.revoke(directory, batch_id_of(2))
    with pytest.raises(BatchRevokedError):
        output.sink.publisher.publish(directory, published)


@pytest.mark.parametrize(
    "fault",
    [
        ("answer", 503, "SlowDown"),
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


@pytest.mark.parametrize("kind", ["withhold the request", "withhold the answer"])
def test_what_a_committer_leaves_that_is_killed_at_the_put_that_decides_is_committed_once(
    output: InStore, kind: Any
) -> None:
    first = publish(output, plan_to(output, 1))
    directory, published = written(output, plan_to(output, 2))
    with output.store.failing(StoreFault(DECIDING_PUT[output.format], kind, times=1)):
        committer = publishing(output.name, output.path, directory, published)
        wait_for(lambda: output.store.met() == [1], "the committer to come to that put")
        committer.kill()
        committer.join()
    assert committer.exitcode == -signal.SIGKILL
    output.sink.publisher.publish(directory, published)
    assert output.seen() == rows_of(first) + rows_of(published)
    with pytest.raises(BatchStateError):
        output.sink.publisher.revoke(directory, batch_id_of(2))


def test_a_table_that_may_be_made_by_another_writer_at_this_moment_is_looked_for_again(output: InStore) -> None:
    directory, published = written(output, plan_to(output, 1))
    # S3's answer while another put of the same name is under way: nothing is there yet, and perhaps nothing will be.
    conflict = StoreFault(FIRST_PUT[output.format], status=409, code="ConditionalRequestConflict", times=2)
    with output.store.failing(conflict):
        output.sink.publisher.publish(directory, published)
    assert output.seen() == rows_of(published)


# ── Failures at every step ────────────────────────────────────────────────────────────────────────────────────────────

FAILURES = {
    "broken": StoreFault("/lake", status=500, code="InternalError"),
    "no bucket": StoreFault("/lake", status=404, code="NoSuchBucket"),
    "expired": StoreFault("/lake", status=403, code="ExpiredToken"),
    "cut": StoreFault("/lake", "cut"),
    "cut in the middle": StoreFault("/lake", "halve the answer"),
}
SLOW = StoreFault("/lake", "trickle")
OF_EACH_CLIENT = {"open", "receipt", "restage", "known", "verify", "publish", "look", "replace", "remove"}
"""Steps by whose requests all clients ask, in each of their ways: others meet one that is gone, empty, or refuses."""
AT_ANY_STEP = {"cut", "no bucket", "expired"}


@dataclass(frozen=True)
class Life:
    """What a batch comes to, until half of it is replaced and the rest is removed; and where each part is staged."""

    directory: Place
    published: PublishedReceipt
    again: Place
    """Of a second attempt, which is staged from the first one's files."""
    replacing: Place
    replacement: PublishedReceipt
    revoked: PublishedReceipt
    """A batch that an operator revokes."""

    @property
    def batch_id(self) -> UUID:
        """The batch."""
        return self.published.plan.batch_id

    @property
    def file(self) -> WrittenFile:
        """One of its files."""
        return self.published.receipt.files[1]


def holds(sink: Any, life: Life) -> bool:
    """Look for a record. A file that cannot be read is an OSError there, which callers name."""
    with storage_errors(life.directory):
        found: bool = sink.inspector.holds(life.batch_id, life.file, orders(1), 3)
    return found


Step = Callable[[Any, Life], object]
"""One of a sink; the roles that not every sink has are there."""
STEPS: dict[str, Step] = {
    "prepare": lambda sink, _: sink.publisher.prepare(),
    "needs": lambda sink, life: sink.publisher.data_needs(life.again),
    "open": lambda sink, life: sink.staging.open_attempt(life.again, b"{}"),
    "receipt": lambda sink, life: sink.staging.read_receipt(life.directory),
    "failure": lambda sink, life: sink.staging.read_failure(life.directory),
    "restageable": lambda sink, life: sink.staging.check_restageable(life.directory, life.published.receipt),
    "restage": lambda sink, life: sink.staging.restage(
        life.directory, life.published.receipt, life.again, life.published.plan.ranges
    ),
    "restaged": lambda sink, life: sink.staging.write_receipt(life.again, b"{}"),
    "known": lambda sink, _: sink.publisher.known_batches(),
    "is kept": lambda sink, life: sink.archive.is_kept(life.batch_id),
    "verify": lambda sink, life: sink.staging.verify(life.directory, life.published.receipt),
    "can take": lambda sink, life: sink.publisher.can_take(life.directory, life.published.receipt),
    "publish": lambda sink, life: sink.publisher.publish(life.directory, life.published),
    "reported": lambda sink, _: list(sink.publisher.published_receipts()),
    "kept receipt": lambda sink, life: sink.archive.published_receipt(life.batch_id),
    "look": lambda sink, life: sink.inspector.look_at(life.batch_id, closely=True),
    "path": lambda sink, life: sink.inspector.path(life.batch_id, life.file),
    "holds": holds,
    "can replace": lambda sink, _: sink.replacer.check_can_replace(),
    "replaced": lambda sink, life: sink.replacer.rows_of(life.replacement.plan.replaces),
    "can take the replacement": lambda sink, life: sink.replacer.can_take(
        life.replacing, life.replacement.plan, life.replacement.receipt
    ),
    "replace": lambda sink, life: sink.publisher.publish(life.replacing, life.replacement),
    "revoke": lambda sink, life: sink.publisher.revoke(life.again, life.revoked.plan.batch_id),
    "size": lambda sink, life: sink.staging.size_bytes(life.again),
    "remove the other attempt": lambda sink, life: sink.staging.remove(life.again),
    "remove": lambda sink, life: sink.staging.remove(life.directory),
    "can remove": lambda sink, _: sink.remover.check_can_remove(),
    "note a removal": lambda sink, life: sink.archive.note_removal(
        Removal(life.batch_id, RemovalCause.EXPIRED, NOON, "operator", "old")
    ),
    "unfinished": lambda sink, _: sink.remover.unfinished(),
    "hide": lambda sink, life: sink.remover.hide(life.batch_id),
}


OF_MANY_REQUESTS = {"verify", "restage", "reported", "look", "holds", "replaced", "remove the other attempt", "hide"}
"""Each in its own way; of publishing, see below."""


def test_a_store_that_fails_at_any_step_proves_nothing_and_the_next_run_continues(
    output: InStore, tmp_path: Path
) -> None:
    # Columns that a table may lack make Spark's needs a question about the table.
    output = type(output)(tmp_path / "lacking" / "orders", TableOptions(OnNewColumns.IGNORE))
    plan = plan_to(output, 1)
    directory, published = written(output, plan)
    replacing_directory, replacement = written(output, replacing(output, 2, plan, 0))
    revoked_directory, revoked = written(output, plan_to(output, 3))
    again = output.sink.staging.attempt_directory(plan.batch_id, 2)
    life = Life(directory, published, again, replacing_directory, replacement, revoked)
    sink = another(output)
    for name, step in STEPS.items():
        for failure in FAILURES if name in OF_EACH_CLIENT else AT_ANY_STEP:
            with (
                output.store.failing(FAILURES[failure]),
                pytest.raises(OutputUnavailableError, match="No offset was moved") as refused,
            ):
                step(sink, life)
            assert "test-secret-key" not in str(refused.value), (name, failure)
        if name in OF_MANY_REQUESTS:
            take_with_a_store_that_is_gone_from_each_request_on(output.store, partial(step, sink, life))
        with output.store.failing(SLOW):
            step(output.sink, life)
    assert output.seen() == rows_of(replacement)
    with pytest.raises(BatchRevokedError):
        output.sink.publisher.publish(revoked_directory, revoked)


def take_with_a_store_that_is_gone_from_each_request_on(store: ObjectStore, step: Callable[[], object]) -> None:
    for request in count(1):
        if not comes_to(store, replace(FAILURES["cut"], skip=request, kinds=True), step)[1]:
            return


def comes_to(store: ObjectStore, fault: StoreFault, step: Callable[[], object]) -> tuple[bool, bool]:
    """Take a step while a store fails; return whether it was done, and whether a request met the failure."""
    store.set_faults(fault)
    try:
        step()
    except OutputUnavailableError:
        done = False
    else:
        done = True
    finally:
        [met] = store.set_faults()
    return done, met > fault.skip


@pytest.mark.parametrize(
    ("step", "asks"), [("open", r"PUT .*/plan\.json"), ("verify", r"GET .*\.parquet"), ("publish", FIRST_PUT)]
)
def test_an_answer_that_does_not_come_is_not_waited_for_and_the_next_run_continues(
    output: InStore, step: str, asks: str | dict[str, str]
) -> None:
    directory, published = written(output, plan_to(output, 1))
    life = Life(directory, published, directory.parent / "2", directory, published, published)
    impatient = output.reached(output.store.access(tries=1, read_timeout_s=1.0))
    silent = StoreFault(asks if isinstance(asks, str) else asks[output.format], "withhold the answer", times=1)
    done, was_met = comes_to(output.store, silent, partial(STEPS[step], impatient, life))
    assert was_met
    # What a commit came to, the table says.
    assert not done or step == "publish"
    STEPS[step](output.sink, life)
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


# ── Failures at every request ─────────────────────────────────────────────────────────────────────────────────────────

# Of the questions of one kind that a client asks the first one fails, and the first one after something was written:
# the world that they leave is the same whichever of them fails. Each request that writes fails.

Seen = Counter[tuple[str, int, int]]
Beginning = Callable[[InStore], tuple[Callable[[Sink], object], Seen, Seen]]
"""Brings a table to where something is to be done; returns that, and what readers see before and after it."""
DUE = TableOptions(properties=(("delta.checkpointInterval", "2"),))

FAULTS = {
    # Also what a process leaves that is killed before the request, or as soon as the store has done the one before.
    "gone from there on": StoreFault("/lake/", "cut", kinds=True),
    # A question whose answer is lost is one that was cut.
    "lost once": StoreFault("/lake/", "lose the answer", times=1, kinds=True),
}


IDS = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}|(?<=snap-)\d+")


class Moment:
    """What lies in a store, and what a catalog says, at one moment: to begin there again."""

    def __init__(self, output: InStore) -> None:
        self._folder = output.opened(output.place.parent)
        self._catalog = output.path.parent / "catalog.db"
        self._tags = self.found()
        self._contents = {name: storage.read_whole(self._folder / name) for name in self._tags}
        self._rows = self._catalog.read_bytes() if self._catalog.exists() else b""

    def found(self) -> dict[str, str]:
        """Return what there is now in the store: a long list, by which a store answers slowly."""
        return {name: each["ETag"] for name, each in storage.found_below(self._folder).items()}

    def world(self, found: dict[str, str]) -> tuple[str, ...]:
        """Return what there is now, apart from ids that differ from run to run."""
        names = list(found)
        if self._rows:
            with closing(sqlite3.connect(self._catalog)) as catalog:
                names += [str(row) for row in catalog.execute("SELECT metadata_location FROM iceberg_tables")]
        return tuple(sorted(IDS.sub("<id>", name) for name in names))

    def restore(self, found: dict[str, str]) -> None:
        """Put back what there was."""
        if new := found.keys() - self._tags.keys():
            objects = [{"Key": (self._folder / name).path.partition("/")[2]} for name in new]
            self._folder.fs.call_s3("delete_objects", Bucket="lake", Delete={"Objects": objects})
        for name, tag in self._tags.items():
            if found.get(name) != tag:
                storage.write_whole(self._folder / name, self._contents[name])
        if self._rows:
            self._catalog.write_bytes(self._rows)


def first_batch(output: InStore) -> tuple[Callable[[Sink], object], Seen, Seen]:
    """The first batch of a table, which makes it."""
    directory, published = written(output, plan_to(output, 1))
    return lambda sink: sink.publisher.publish(directory, published), Counter(), rows_of(published)


def next_batch(output: InStore) -> tuple[Callable[[Sink], object], Seen, Seen]:
    """Another one, with which a checkpoint is due, and older marks leave the table."""
    before = [publish(output, plan_to(output, number)) for number in (1, 2)]
    directory, published = written(output, plan_to(output, 3))
    seen = rows_of(before[0]) + rows_of(before[1])
    return lambda sink: sink.publisher.publish(directory, published), seen, seen + rows_of(published)


def replacement(output: InStore) -> tuple[Callable[[Sink], object], Seen, Seen]:
    """A batch whose rows take the place of some of another one's."""
    old = publish(output, plan_to(output, 1))
    directory, new = written(output, replacing(output, 2, old.plan, 0))
    return (
        lambda sink: sink.publisher.publish(directory, new),
        rows_of(old),
        of_partition(old, 1) + rows_of(new),
    )


def removal(output: InStore) -> tuple[Callable[[Sink], object], Seen, Seen]:
    """A batch that expires."""
    old, stays = (publish(output, plan_to(output, number)) for number in (1, 2))
    noted = Removal(old.plan.batch_id, RemovalCause.EXPIRED, NOON, "operator", "old")

    def expire(sink: Sink) -> None:
        sink.archive.note_removal(noted)
        assert sink.remover is not None
        sink.remover.hide(noted.batch_id)

    return expire, rows_of(old) + rows_of(stays), rows_of(stays)


@pytest.mark.parametrize(
    ("output", "begin", "fault"),
    [
        (DeltaInStore, first_batch, "gone from there on"),
        (DeltaInStore, next_batch, "lost once"),
        (IcebergInStore, first_batch, "gone from there on"),
        (IcebergInStore, next_batch, "lost once"),
    ],
    indirect=["output"],
)
def test_whichever_request_of_a_publishing_fails_a_whole_batch_is_seen_or_none_and_the_next_run_completes_it(
    output: InStore, monkeypatch: pytest.MonkeyPatch, begin: Beginning, fault: str
) -> None:
    monkeypatch.setattr(iceberg_commits, "MOST", 1)
    monkeypatch.setattr(iceberg_commits, "STAY", 1)
    output = type(output)(output.path, DUE)
    deed, before, after = begin(output)
    beginning = Moment(output)
    looked_at = set()
    for request in count():
        done, was_met = comes_to(output.store, replace(FAULTS[fault], skip=request), lambda: deed(another(output)))
        found = beginning.found()
        # A question that fails leaves a world that was looked at before.
        if (now := (done, beginning.world(found))) not in looked_at:
            looked_at.add(now)
            seen = output.seen()
            assert seen == after if done else seen in (before, after), f"request {request}"
            deed(another(output))
            assert output.seen() == after, f"request {request}"
            found = beginning.found()
        if not was_met:
            break
        beginning.restore(found)
    assert request > 3


def another(output: InStore) -> Sink:
    """Return the sink as another process has it, which tries each request once."""
    return output.reached(output.store.access(tries=1))


@pytest.mark.parametrize(
    ("output", "begin"),
    [*((DeltaInStore, begin) for begin in (next_batch, replacement, removal)), (IcebergInStore, replacement)],
    indirect=["output"],
)
def test_a_commit_whose_answer_is_lost_counts_once(output: InStore, begin: Beginning) -> None:
    deed, _, after = begin(output)
    with output.store.failing(StoreFault(DECIDING_PUT[output.format], "lose the answer", times=1)):
        deed(output.sink)
    assert output.seen() == after
    deed(output.sink)
    assert output.seen() == after


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


def test_the_empty_folder_of_a_log_is_no_other_output(object_store: ObjectStore, tmp_path: Path) -> None:
    output = DeltaInStore(tmp_path / "orders")
    output.sink = output.reached(object_store.access(tries=2))
    folder = output.opened(output.place)
    folder.fs.call_s3("put_object", Bucket="lake", Key=f"{folder.path.partition('/')[2]}/_delta_log/")
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
